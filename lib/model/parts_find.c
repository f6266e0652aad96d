/* SPDX-License-Identifier: Apache-2.0 */
/* parts_find.c - the stored tensors that are parts of one parameter, by their names. */
#include <string.h>

#include "lib/base/order.h"
#include "lib/model/parts.h"

/* The names before the part's name. */
static const struct projection {
    const char *name;
    bool is_conv;
} projections[] = {{".in_proj.weight.", false},
                   {".in_proj.bias.", false},
                   {".conv1d.weight.", true},
                   {".conv1d.bias.", true}};

/* The projection that `name` is a part of, and its bytes with the dot after it; NULL: of none. */
static const struct projection *projection_of(const char *name, size_t *head_bytes)
{
    for (size_t i = 0; i < DCPK_COUNT(projections); i++) {
        const char *at = strstr(name, projections[i].name);

        if (at == NULL)
            continue;
        *head_bytes = (size_t)(at - name) + strlen(projections[i].name);
        return &projections[i];
    }
    return NULL;
}

dcpk_status dcpk_parts_look_up(const struct dcpk_model *model, const struct dcpk_part_key *key,
                               size_t head_bytes, const struct dcpk_part_kind *kinds,
                               struct dcpk_found_parts *found, struct dcpk_error *err)
{
    const struct dcpk_checkpoint *ckpt = model->ckpt;

    for (found->n = 0; kinds[found->n].name != NULL; found->n++) {
        const char *text =
            dcpk_arena_printf(model->arena, err, "%s%.*s%s%s", key->prefix, (int)head_bytes,
                              key->name, kinds[found->n].name, key->tail);
        const struct dcpk_tensor *tensor;

        if (text == NULL)
            return err->status;
        tensor = dcpk_checkpoint_tensor(ckpt, text);
        if (tensor == NULL) {
            found->missing = text;
            found->n = 0;
            return DCPK_OK;
        }
        found->tensor[found->n] = (uint32_t)(tensor - ckpt->tensors);
    }
    return DCPK_OK;
}

static bool names_one_of(const struct dcpk_part_kind *kinds, const char *name)
{
    for (; kinds->name != NULL; kinds++)
        if (strcmp(kinds->name, name) == 0)
            return true;
    return false;
}

dcpk_status dcpk_parts_find(const struct dcpk_model *model, uint32_t source,
                            const struct dcpk_part_key *key, struct dcpk_found_parts *found,
                            struct dcpk_error *err)
{
    size_t head_bytes = 0;
    const struct projection *projection = projection_of(key->name, &head_bytes);

    *found = (struct dcpk_found_parts){.tensor = {source}, .n = 1};
    found->whole_bytes = projection == NULL ? strlen(key->name) : head_bytes - 1;
    if (projection == NULL)
        return DCPK_OK;
    found->n = 0;
    for (size_t i = 0; i < DCPK_N_PART_LAYOUTS && found->n == 0; i++) {
        const struct dcpk_part_layout *layout = &dcpk_part_layouts[i];
        const struct dcpk_part_kind *kinds = projection->is_conv ? layout->conv : layout->proj;

        if (names_one_of(kinds, key->name + head_bytes) &&
            dcpk_parts_look_up(model, key, head_bytes, kinds, found, err))
            return err->status;
    }
    return DCPK_OK;
}
