/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_stacking.c - keys of all layers and experts taken apart. */
#include "formats/megatron/megatron_stacking.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

#define LAYERS  "layers."
#define EXPERTS "mlp.experts.experts."

dcpk_status dcpk_stacking_find(const char *name, int rank, struct dcpk_stacking *s,
                               struct dcpk_error *err)
{
    const char *experts = strstr(name, EXPERTS);

    *s = (struct dcpk_stacking){0, SIZE_MAX, 0};
    for (const char *p = name; (p = strstr(p, LAYERS)) != NULL; p++)
        if ((p == name || p[-1] == '.') && !isdigit((unsigned char)p[strlen(LAYERS)])) {
            if (s->layer_at != 0)
                return dcpk_fail(err, DCPK_EUNSUPPORTED, "two stacked layer axes");
            s->layer_at = (size_t)(p - name) + strlen(LAYERS);
            s->n_axes++;
        }
    if (experts != NULL) {
        if (isdigit((unsigned char)experts[strlen(EXPERTS)]))
            return dcpk_fail(err, DCPK_EUNSUPPORTED,
                             "experts as single shards (singleton_local_shards) are not read by "
                             "this version (save without "
                             "that option)");
        s->expert_at = (size_t)(experts - name);
        s->n_axes++;
    }
    if (s->n_axes > rank)
        return dcpk_fail(err, DCPK_EFORMAT, "the name says %d stacked axes, the item has %d",
                         s->n_axes, rank);
    return DCPK_OK;
}

const char *dcpk_stacking_name(struct dcpk_arena *arena, const char *name,
                               const struct dcpk_stacking *s, int64_t layer, int64_t expert,
                               struct dcpk_error *err)
{
    const char *head = "", *tail = name;

    if (s->layer_at != 0) {
        head = dcpk_arena_printf(arena, err, "%.*s%" PRId64 ".", (int)s->layer_at, name, layer);
        tail = name + s->layer_at;
    }
    if (head == NULL)
        return NULL;
    if (s->expert_at == SIZE_MAX)
        return dcpk_arena_printf(arena, err, "%s%s", head, tail);
    return dcpk_arena_printf(arena, err, "%s%.*smlp.experts.%s%" PRId64, head,
                             (int)(name + s->expert_at - tail), tail,
                             name + s->expert_at + strlen(EXPERTS), expert);
}
