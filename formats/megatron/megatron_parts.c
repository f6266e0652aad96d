/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_parts.c - the parts of Mamba's and Gated DeltaNet's projections, by their names. */
#include "formats/megatron/megatron_parts.h"

#include <inttypes.h>
#include <string.h>

#include "lib/base/text.h"

/* What stands before the part's name. */
static const char *const projections[] = {".in_proj.weight.", ".in_proj.bias.", ".conv1d.weight.",
                                          ".conv1d.bias."};
#define N_PROJECTIONS (sizeof projections / sizeof projections[0])

/* Where the part's name begins in `key`, NULL when it names none. */
static const char *part_of(const char *key, bool *is_conv)
{
    for (size_t i = 0; i < N_PROJECTIONS; i++) {
        const char *p = strstr(key, projections[i]);

        if (p == NULL)
            continue;
        *is_conv = i >= 2;
        return p + strlen(projections[i]);
    }
    return NULL;
}

/* All parts of one layout, when the key is one of them and each is there; else *n is 0. */
static dcpk_status find_layout(const struct dcpk_checkpoint *ckpt, const char *key,
                               const char *part, const struct dcpk_part_kind *layout,
                               uint32_t *tensors, size_t *n, struct dcpk_error *err)
{
    bool is_part = false;
    size_t found = 0;

    *n = 0;
    for (; layout[found].name != NULL; found++) {
        const struct dcpk_tensor *tensor;
        char *name = dcpk_arena_printf(ckpt->arena, err, "%.*s%s", (int)(part - key), key,
                                       layout[found].name);

        if (name == NULL)
            return err->status;
        tensor = dcpk_checkpoint_tensor(ckpt, name);
        if (tensor == NULL)
            return DCPK_OK;
        tensors[found] = (uint32_t)(tensor - ckpt->tensors);
        is_part |= strcmp(part, layout[found].name) == 0;
    }
    *n = is_part ? found : 0;
    return DCPK_OK;
}

dcpk_status dcpk_megatron_parts_find(const struct dcpk_checkpoint *ckpt, uint32_t tensor,
                                     struct dcpk_parts *parts, struct dcpk_error *err)
{
    const char *key = ckpt->tensors[tensor].key;
    bool is_conv = false;
    const char *part = part_of(key, &is_conv);
    size_t n = 0;
    dcpk_status st = DCPK_OK;

    *parts = (struct dcpk_parts){.n = 1, .tensor = {tensor}, .whole_bytes = strlen(key)};
    if (part == NULL)
        return DCPK_OK;
    parts->whole_bytes = (size_t)(part - key) - 1;
    for (size_t i = 0; i < DCPK_N_PART_LAYOUTS && n == 0 && st == DCPK_OK; i++)
        st = find_layout(ckpt, key, part,
                         is_conv ? dcpk_part_layouts[i].conv : dcpk_part_layouts[i].proj,
                         parts->tensor, &n, err);
    if (st == DCPK_OK && n == 0)
        st = dcpk_fail(err, DCPK_EUNSUPPORTED,
                       "a part of a projection whose parts are not those of Mamba or Gated "
                       "DeltaNet, or not all there");
    parts->n = parts->tensor[0] == tensor ? n : 0;
    parts->tensor[0] = tensor;
    return st;
}

dcpk_status dcpk_megatron_parts_join(const struct dcpk_checkpoint *ckpt,
                                     const struct dcpk_parts *parts, int n_lead,
                                     const int64_t **shape, struct dcpk_error *err)
{
    const struct dcpk_tensor *first = &ckpt->tensors[parts->tensor[0]];
    int64_t *joined = dcpk_arena_array(ckpt->arena, (size_t)first->rank + 1, sizeof *joined, err);

    if (joined == NULL)
        return err->status;
    *shape = joined;
    memcpy(joined, first->shape + n_lead, (size_t)(first->rank - n_lead) * sizeof *joined);
    for (size_t i = 1; i < parts->n; i++) {
        const struct dcpk_tensor *t = &ckpt->tensors[parts->tensor[i]];
        bool same = first->rank > n_lead && t->rank == first->rank && t->dtype == first->dtype;

        for (int a = 0; a < first->rank && same; a++)
            same = a == n_lead || t->shape[a] == first->shape[a];
        if (!same || t->shape[n_lead] > INT64_MAX - joined[0])
            return dcpk_fail(err, DCPK_EFORMAT,
                             "'%s' and '%s' are rows of one parameter and differ in dtype or shape",
                             first->key, t->key);
        joined[0] += t->shape[n_lead];
    }
    return DCPK_OK;
}
