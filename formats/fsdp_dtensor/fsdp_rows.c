/* SPDX-License-Identifier: Apache-2.0 */
/* fsdp_rows.c - the names of SwiGLU halves, and the fused down-projection taken apart. */
#include "formats/fsdp_dtensor/fsdp_rows.h"

#include <inttypes.h>
#include <string.h>

#include "lib/base/order.h"
#include "lib/base/text.h"

#define ATTENTION "self_attention."
#define FUSED     ATTENTION "linear_qkv_down_proj."

/* The parameters that a fused one joins, in the order of its rows. */
static const char *const projections[] = {ATTENTION "linear_q_down_proj.weight",
                                          ATTENTION "linear_kv_down_proj.weight"};

const struct dcpk_part_kind dcpk_fsdp_halves[] = {
    {"_w", DCPK_PART_HALF}, {"_v", DCPK_PART_HALF}, {NULL, DCPK_PART_HALF}};

const char *dcpk_fsdp_part_end(const char *part)
{
    for (size_t i = 0; dcpk_gate_up[i].name != NULL; i++)
        if (strcmp(part, dcpk_gate_up[i].name) == 0)
            return dcpk_fsdp_halves[i].name;
    return "";
}

/* "linear_fc1.weight_w", "linear_fc1.weight7_v" */
int dcpk_fsdp_half(const char *name)
{
    if (strstr(name, "linear_fc1.") == NULL)
        return -1;
    for (int i = 0; dcpk_fsdp_halves[i].name != NULL; i++)
        if (dcpk_ends_with(name, dcpk_fsdp_halves[i].name))
            return i;
    return -1;
}

/* `name` with its ending `from` replaced; NULL when memory is out. */
static const char *with_end(struct dcpk_arena *arena, const char *name, const char *from,
                            const char *to, struct dcpk_error *err)
{
    return dcpk_arena_printf(arena, err, "%.*s%s", (int)(strlen(name) - strlen(from)), name, to);
}

dcpk_status dcpk_fsdp_fused_name(struct dcpk_arena *arena, const char *name, const char **fused,
                                 struct dcpk_error *err)
{
    *fused = NULL;
    for (size_t i = 0; i < 2; i++) {
        if (!dcpk_ends_with(name, projections[i]))
            continue;
        *fused = with_end(arena, name, projections[i], FUSED "weight", err);
        return dcpk_made(*fused, err);
    }
    return DCPK_OK;
}

dcpk_status dcpk_fsdp_group_params(const struct dcpk_model *model, const char *name,
                                   uint32_t params[2], size_t *n, struct dcpk_error *err)
{
    static const struct {
        const char *live, *stored;
    } others[] = {{FUSED "weight", ATTENTION "linear_q_down_proj.weight"},
                  {FUSED "weight", ATTENTION "linear_kv_down_proj.weight"},
                  {FUSED "layer_norm_weight", "input_layernorm.weight"},
                  {FUSED "layer_norm_bias", "input_layernorm.bias"}};
    uint64_t found;

    *n = 0;
    if (dcpk_map_get(&model->param_by_name, name, strlen(name), &found))
        params[(*n)++] = (uint32_t)found;
    for (size_t i = 0; i < DCPK_COUNT(others) && *n < 2; i++) {
        const char *stored;

        if (!dcpk_ends_with(name, others[i].live))
            continue;
        stored = with_end(model->arena, name, others[i].live, others[i].stored, err);
        if (stored == NULL)
            return err->status;
        if (dcpk_map_get(&model->param_by_name, stored, strlen(stored), &found))
            params[(*n)++] = (uint32_t)found;
    }
    return DCPK_OK;
}

/* The number of rows that are the query's; the others are the keys' and values'. */
static dcpk_status query_rows(const struct dcpk_value *attrs, const struct dcpk_model_tensor *fused,
                              const char *name, int64_t *n_rows, struct dcpk_error *err)
{
    if (dcpk_value_as_int(dcpk_value_get(attrs, "q_lora_rank"), n_rows) && *n_rows > 0 &&
        *n_rows < fused->shape[0])
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EUNSUPPORTED,
                     "'%s': args.q_lora_rank does not say which of its %" PRId64
                     " rows are the query's",
                     name, fused->shape[0]);
}

/*
 * Finds the rows of both. Each tensor-parallel rank has its block of the query's, then of the
 * others (multi_latent_attention.py@0.18.2 to main, FusedMLASelfAttention). *whole: the fused
 * tensor in the order of one rank.
 */
static dcpk_status find_rows(struct dcpk_model *model, const char *name, struct dcpk_split *parts,
                             struct dcpk_model_tensor *whole, struct dcpk_error *err)
{
    static const char *const names[] = {"query", "keys and values"};
    const struct dcpk_value *attrs = dcpk_value_attrs(model->args);
    struct dcpk_stored ranked;
    const struct dcpk_split by_rank = {&ranked, 1};
    const int64_t tp = dcpk_value_int_or(attrs, "tensor_model_parallel_size", 1);
    int64_t n_rows[2];

    if (query_rows(attrs, whole, name, &n_rows[0], err))
        return err->status;
    n_rows[1] = whole->shape[0] - n_rows[0];
    if (dcpk_rows_behind(model->arena, names, n_rows, 2, parts, err))
        return err->status;
    if (tp <= 1)
        return DCPK_OK;
    if (dcpk_rows_by_rank(model->arena, parts, tp, &ranked, err))
        return dcpk_context(err, "'%s'", name);
    return dcpk_rows_join(model->arena, &by_rank, whole, whole, err);
}

/* Add the two parameters that a fused tensor joins. */
static dcpk_status add_unfused(struct dcpk_model *model, const struct dcpk_model_tensor *fused,
                               const char *name, struct dcpk_error *err)
{
    struct dcpk_model_tensor whole = *fused, part = whole;
    struct dcpk_split parts;

    /* Without rows it is torch AdamW's step, which both have. */
    if (fused->rank > 0 && find_rows(model, name, &parts, &whole, err))
        return err->status;
    for (size_t i = 0; i < 2; i++) {
        const char *stored = with_end(model->arena, name, FUSED "weight", projections[i], err);

        if (stored == NULL ||
            (fused->rank > 0 && dcpk_rows_take(model->arena, &whole, &parts.list[i], &part, err)) ||
            dcpk_model_param(model, stored, &part.param, err) || dcpk_model_add(model, &part, err))
            return err->status;
    }
    return DCPK_OK;
}

dcpk_status dcpk_fsdp_add_named(struct dcpk_model *model, struct dcpk_model_tensor *tensor,
                                const char *name, struct dcpk_error *err)
{
    if (dcpk_ends_with(name, FUSED "weight"))
        return add_unfused(model, tensor, name, err);
    if (dcpk_model_param(model, name, &tensor->param, err))
        return err->status;
    return dcpk_model_add(model, tensor, err);
}
