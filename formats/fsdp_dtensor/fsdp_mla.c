/* SPDX-License-Identifier: Apache-2.0 */
/* fsdp_mla.c - the fused down-projection of multi-latent attention, taken apart. */
#include "formats/fsdp_dtensor/fsdp_mla.h"

#include <inttypes.h>
#include <string.h>

#include "lib/base/text.h"
#include "lib/ckpt/parts.h"

#define ATTENTION "self_attention."
#define FUSED     ATTENTION "linear_qkv_down_proj."

static const char *const halves[] = {ATTENTION "linear_q_down_proj.weight",
                                     ATTENTION "linear_kv_down_proj.weight"};

/* `name` with its ending `from` replaced; NULL when memory is out. */
static const char *with_end(struct dcpk_arena *arena, const char *name, const char *from,
                            const char *to, struct dcpk_error *err)
{
    return dcpk_arena_printf(arena, err, "%.*s%s", (int)(strlen(name) - strlen(from)), name, to);
}

bool dcpk_fsdp_is_fused(const char *name)
{
    return dcpk_ends_with(name, FUSED "weight");
}

dcpk_status dcpk_fsdp_fused_name(struct dcpk_arena *arena, const char *name, const char **fused,
                                 struct dcpk_error *err)
{
    *fused = NULL;
    for (size_t i = 0; i < 2; i++) {
        if (!dcpk_ends_with(name, halves[i]))
            continue;
        *fused = with_end(arena, name, halves[i], FUSED "weight", err);
        return *fused == NULL ? err->status : DCPK_OK;
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
    for (size_t i = 0; i < sizeof others / sizeof others[0] && *n < 2; i++) {
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

/* How many of the rows are the query's; the others are the keys' and values'. */
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
 * The rows of one tensor-parallel rank: the query's, then the others. Each rank has its block of
 * both (multi_latent_attention.py@0.18.2 to main, FusedMLASelfAttention).
 */
static dcpk_status unite_rows(struct dcpk_model *model, const char *name, int64_t n_query,
                              struct dcpk_model_tensor *fused, struct dcpk_error *err)
{
    const struct dcpk_part parts[] = {{"query", n_query},
                                      {"keys and values", fused->shape[0] - n_query}};
    struct dcpk_parts_held held = {.parts = parts, .n = 2, .tp = 1};
    dcpk_status st;

    dcpk_value_as_int(dcpk_value_get(dcpk_value_attrs(model->args), "tensor_model_parallel_size"),
                      &held.tp);
    if (held.tp <= 1)
        return DCPK_OK;
    st = dcpk_parts_reorder(model->arena, &held, DCPK_PARTS_OF_ONE, fused, fused, err);
    if (st != DCPK_OK)
        dcpk_context(err, "'%s'", name);
    return st;
}

dcpk_status dcpk_fsdp_add_unfused(struct dcpk_model *model, const struct dcpk_model_tensor *fused,
                                  const char *name, struct dcpk_error *err)
{
    struct dcpk_model_tensor whole = *fused;
    int64_t n_query = 0, row = 0;
    dcpk_status st = DCPK_OK;

    if (fused->rank > 0) { /* else torch AdamW's step, which both have */
        st = query_rows(dcpk_value_attrs(model->args), fused, name, &n_query, err);
        if (st == DCPK_OK)
            st = unite_rows(model, name, n_query, &whole, err);
    }
    for (size_t i = 0; i < 2 && st == DCPK_OK; i++) {
        struct dcpk_model_tensor part = whole;
        const char *stored = with_end(model->arena, name, FUSED "weight", halves[i], err);

        st = stored == NULL ? err->status : DCPK_OK;
        if (st == DCPK_OK && fused->rank > 0)
            st = dcpk_model_rows(model->arena, &whole, row,
                                 i == 0 ? n_query : fused->shape[0] - n_query, &part, err);
        if (st == DCPK_OK)
            st = dcpk_model_param(model, stored, &part.param, err);
        if (st == DCPK_OK)
            st = dcpk_model_add(model, &part, err);
        row = n_query;
    }
    return st;
}
