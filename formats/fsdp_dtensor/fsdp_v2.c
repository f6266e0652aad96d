/* SPDX-License-Identifier: Apache-2.0 */
/* fsdp_v2.c - keys of Megatron-FSDP v2 (FORMAT.md 13). */

#include <inttypes.h>
#include <string.h>

#include "formats/fsdp_dtensor/fsdp_dtensor_priv.h"
#include "lib/base/order.h"
#include "lib/base/text.h"

#define FD_V2_GROUP "optimizer.param_groups."

bool dcpk_fsdp_is_v2(const struct dcpk_checkpoint *ckpt)
{
    if (dcpk_checkpoint_object(ckpt, FD_V2_GROUP "0.params") == NULL)
        return false;
    for (size_t i = 0; i < ckpt->n_tensors; i++)
        if (dcpk_starts_with(ckpt->tensors[i].key, FD_MODEL) ||
            dcpk_starts_with(ckpt->tensors[i].key, FD_STATE FD_Q_FP32))
            return false;
    return true;
}

bool dcpk_fsdp_wants_v2(const struct dcpk_output *out)
{
    return out->target.generation != NULL && strcmp(out->target.generation, "V2") == 0;
}

static dcpk_status add_value(struct dcpk_output *out, const char *key,
                             const struct dcpk_value *value, struct dcpk_error *err)
{
    uint32_t payload;

    if (dcpk_output_add_payload(out, value, NULL, &payload, err))
        return err->status;
    return dcpk_output_add_object(out, key, payload, err);
}

/* Every spelling of every parameter of a group: a loader looks each of its own names up. */
static dcpk_status fsdp_list_names(const struct dcpk_model *model, struct dcpk_output *out,
                                   uint32_t group, const struct dcpk_value **names,
                                   struct dcpk_error *err)
{
    const struct dcpk_value **items;
    size_t n = 0;

    for (size_t i = 0; i < model->n_params; i++)
        if (model->params[i].group == group)
            n += model->params[i].n_spellings;
    items = dcpk_arena_array(out->arena, n + 1, sizeof *items, err);
    if (items == NULL)
        return err->status;
    n = 0;
    for (size_t i = 0; i < model->n_params; i++) {
        const struct dcpk_param *p = &model->params[i];

        for (size_t s = 0; p->group == group && s < p->n_spellings; s++) {
            items[n] = dcpk_value_str(out->arena, p->spellings[s], err);
            if (items[n++] == NULL)
                return err->status;
        }
    }
    *names = dcpk_value_seq(out->arena, DCPK_V_LIST, items, n, err);
    return dcpk_made(*names, err);
}

static dcpk_status add_group(const struct dcpk_model *model, struct dcpk_output *out,
                             uint32_t group, struct dcpk_error *err)
{
    const struct dcpk_value *dict = model->groups[group], *names;
    const char *key = dcpk_arena_printf(out->arena, err, FD_V2_GROUP "%" PRIu32 ".params", group);

    if (key == NULL || fsdp_list_names(model, out, group, &names, err) ||
        add_value(out, key, names, err))
        return err->status;
    for (size_t i = 0; i < dict->n; i++) {
        const char *field = dcpk_value_as_str(dict->as.pairs[i].key);

        if (field == NULL || strcmp(field, "params") == 0)
            continue;
        key = dcpk_arena_printf(out->arena, err, FD_V2_GROUP "%" PRIu32 ".%s", group, field);
        if (key == NULL || add_value(out, key, dict->as.pairs[i].value, err))
            return err->status;
    }
    return DCPK_OK;
}

dcpk_status dcpk_fsdp_v2_add_groups(const struct dcpk_model *model, struct dcpk_output *out,
                                    struct dcpk_error *err)
{
    for (uint32_t g = 0; g < model->n_groups; g++)
        if (add_group(model, out, g, err))
            return err->status;
    return DCPK_OK;
}

/* True if "<...>.<module>.weight" is the weight of a ColumnParallelLinear or a RowParallelLinear
 * (MC/tensor_parallel/layers.py, get_extra_state). *n_bytes: of the module's name. */
static bool fsdp_is_linear(const char *name, size_t *n_bytes)
{
    static const char *const modules[] = {"output_layer", "in_proj", "out_proj", "eh_proj"};
    const char *last;

    if (!dcpk_ends_with(name, ".weight"))
        return false;
    *n_bytes = strlen(name) - strlen(".weight");
    last = memrchr(name, '.', *n_bytes);
    if (last == NULL)
        last = name;
    else
        last++;
    for (size_t i = 0; i < DCPK_COUNT(modules); i++)
        if (strncmp(last, modules[i], strlen(modules[i])) == 0 &&
            last + strlen(modules[i]) == name + *n_bytes)
            return true;
    return dcpk_starts_with(last, "linear_");
}

dcpk_status dcpk_fsdp_v2_add_extra_states(const struct dcpk_model *model, struct dcpk_output *out,
                                          struct dcpk_error *err)
{
    bool has_output_layer = false;
    uint32_t payload;

    if (dcpk_output_add_payload(out, dcpk_value_none(), NULL, &payload, err))
        return err->status;
    for (size_t i = 0; i < model->n_params; i++) {
        const struct dcpk_param *p = &model->params[i];

        for (size_t s = 0; s < p->n_spellings; s++) {
            size_t n_bytes;
            const char *key;

            if (!fsdp_is_linear(p->spellings[s], &n_bytes))
                continue;
            has_output_layer |= dcpk_starts_with(p->spellings[s], "output_layer.");
            key = dcpk_arena_printf(out->arena, err, FD_V2_MODEL "%.*s._extra_state", (int)n_bytes,
                                    p->spellings[s]);
            if (key == NULL || dcpk_output_add_object(out, key, payload, err))
                return err->status;
        }
    }
    if (has_output_layer)
        return DCPK_OK;
    /* One that shares the embedding's weight has its extra state all the same. */
    return dcpk_output_add_object(out, FD_V2_MODEL "output_layer._extra_state", payload, err);
}
