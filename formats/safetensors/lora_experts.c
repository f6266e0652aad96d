/* SPDX-License-Identifier: Apache-2.0 */
/* lora_experts.c - LoRA of parameters that have all experts in memory, merged into files that have
 * a tensor for each. */
/*
 * Source: peft 0.21.2, tuners/lora/layer.py, ParamWrapper.get_delta_weight: the matrices of expert
 * e are A[e * r : (e + 1) * r, :] and B[:, e], B[:, E + e], ..., so A is [E, r, in] and B [out, r,
 * E]. tuners_utils.py, _inject_parameters: each parameter of a module is wrapped in turn, so that
 * the last one has the module's name, and the one before `base_layer` after it.
 */
#include <inttypes.h>
#include <string.h>

#include "formats/safetensors/hf_matching.h"
#include "formats/safetensors/hf_model.h"
#include "formats/safetensors/hf_ops.h"
#include "lib/base/order.h"
#include "lib/base/text.h"

static const char layer[] = ".base_layer";

/* The matrices of a parameter, by expert. */
struct expert_factors {
    uint32_t a, b; /* views of three axes */
    int64_t rank, n_out, n_in;
    float scale;
    size_t near, n_merged; /* the binding to look at first; weights */
};

bool dcpk_lora_targets(const struct dcpk_lora_config *config, const char *name)
{
    const struct dcpk_json *list = dcpk_json_member(config->doc, DCPK_LORA_TARGETS);

    if (list == NULL || dcpk_json_kind(list) != DCPK_JSON_ARRAY)
        return false;
    for (const struct dcpk_json *m = dcpk_json_first(list); m != NULL; m = dcpk_json_next(m)) {
        const char *target = dcpk_json_string(m);
        const size_t n = strlen(dcpk_text_or(target, "")), n_name = strlen(name);

        if (n > 0 && n <= n_name && strcmp(name + n_name - n, target) == 0 &&
            (n == n_name || name[n_name - n - 1] == '.'))
            return true;
    }
    return false;
}

/* The binding of the files' names for a parameter; NULL: none. *near: where to begin; then the one
 * after it, which is the next expert's. */
static const struct dcpk_hf_binding *file_binding(const struct dcpk_hf_matching *m, const char *mg,
                                                  size_t *near)
{
    for (size_t i = 0; i < m->bindings.n; i++) {
        const size_t at = (*near + i) % m->bindings.n;
        const struct dcpk_hf_binding *b = &m->bindings.list[at];

        if (b->rule->flags == 0 && strcmp(b->mg, mg) == 0) {
            *near = at + 1;
            return b;
        }
    }
    return NULL;
}

const char *dcpk_hf_name_in_files(const struct dcpk_hf_matching *m, const char *name)
{
    size_t near = 0;

    for (size_t i = 0; i < m->bindings.n; i++) {
        const struct dcpk_hf_binding *b = &m->bindings.list[i], *file;

        if ((b->rule->flags & DCPK_HF_IN_MEMORY) == 0 || b->expert >= 0 ||
            strcmp(b->hf[0], name) != 0)
            continue;
        file = file_binding(m, b->mg, &near);
        if (file != NULL && file->rule->n_hf == 1)
            return file->hf[0];
    }
    return name;
}

/* The first binding of the parameter that the matrices of `module` change; NULL: none. */
static const struct dcpk_hf_binding *find_parameter(const struct dcpk_hf_matching *m,
                                                    const struct dcpk_lora_config *config,
                                                    const char *module)
{
    const struct dcpk_hf_binding *found[2] = {NULL, NULL};
    size_t n = strlen(module), n_inner = 0;

    while (n > strlen(layer) && strncmp(module + n - strlen(layer), layer, strlen(layer)) == 0) {
        n -= strlen(layer);
        n_inner++;
    }
    for (size_t i = 0; i < m->bindings.n; i++) {
        const struct dcpk_hf_binding *b = &m->bindings.list[i];

        if ((b->rule->flags & DCPK_HF_IN_MEMORY) == 0 || b->expert != 0 ||
            strncmp(b->hf[0], module, n) != 0 || b->hf[0][n] != '.' ||
            strchr(b->hf[0] + n + 1, '.') != NULL || !dcpk_lora_targets(config, b->hf[0]))
            continue;
        found[1] = found[0];
        found[0] = b;
    }
    if (n_inner >= DCPK_COUNT(found))
        return NULL;
    return found[n_inner];
}

static bool expert_is_plain(const struct dcpk_tensor *t)
{
    return t->rank == 2 && dcpk_dtype_is_float(t->dtype) && dcpk_dtype_bytes(t->dtype) >= 2 &&
           dcpk_dtype_bytes(t->dtype) <= sizeof(float);
}

/* The same bytes with three axes. */
static dcpk_status shape_view(struct dcpk_checkpoint *ckpt, uint32_t matrix, const int64_t shape[3],
                              uint32_t *view, struct dcpk_error *err)
{
    struct dcpk_tensor tensor = ckpt->tensors[matrix];
    const struct dcpk_place place = ckpt->chunks[tensor.first_chunk].place;
    int64_t *kept = dcpk_arena_array(ckpt->arena, 3, sizeof *kept, err);
    size_t chunk;

    if (kept == NULL)
        return err->status;
    memcpy(kept, shape, 3 * sizeof *kept);
    tensor.shape = kept;
    tensor.rank = 3;
    return dcpk_checkpoint_add_inner(ckpt, &tensor, &place, view, &chunk, err);
}

static dcpk_status factors_make(struct dcpk_hf_matching *m, const struct dcpk_lora_factors *pair,
                                struct expert_factors *f, struct dcpk_error *err)
{
    const int64_t n_experts = m->sizes.n_experts;
    const struct dcpk_tensor *a, *b;

    if (pair->a == DCPK_NO_TENSOR || pair->b == DCPK_NO_TENSOR)
        return dcpk_fail(err, DCPK_EMISMATCH, "the adapter lacks lora_A or lora_B of '%s'",
                         pair->module);
    a = &m->ckpt->tensors[pair->a];
    b = &m->ckpt->tensors[pair->b];
    if (!expert_is_plain(a) || !expert_is_plain(b) || a->n_chunks != 1 || b->n_chunks != 1 ||
        n_experts < 1 || a->shape[0] % n_experts != 0 || a->shape[0] != b->shape[1] ||
        a->shape[0] == 0)
        return dcpk_fail(err, DCPK_EMISMATCH,
                         "'%s' and '%s' are not matrices of %" PRId64 " experts", a->key, b->key,
                         n_experts);
    f->rank = a->shape[0] / n_experts;
    f->n_in = a->shape[1];
    f->n_out = b->shape[0];
    if (shape_view(m->ckpt, pair->a, (int64_t[]){n_experts, f->rank, f->n_in}, &f->a, err))
        return err->status;
    return shape_view(m->ckpt, pair->b, (int64_t[]){f->n_out, f->rank, n_experts}, &f->b, err);
}

/* The weight `name` of an expert, whose rows are those of B from *first_row on. */
static dcpk_status weight_merge(struct dcpk_hf_matching *m, struct expert_factors *f,
                                const char *name, struct dcpk_product *product,
                                struct dcpk_error *err)
{
    const uint32_t base = dcpk_hf_matching_stored(m, name);
    struct dcpk_computed how = {.values = base, .scales = DCPK_NO_SCALES, .addend = f->scale};
    struct dcpk_tensor weight;

    if (base == DCPK_NO_TENSOR)
        return dcpk_fail(err, DCPK_EMISMATCH, "the base has no '%s', which the adapter changes",
                         name);
    weight = m->ckpt->tensors[base];
    if (!expert_is_plain(&weight) || m->scaled[base].view != DCPK_NO_TENSOR ||
        weight.shape[1] != f->n_in || weight.shape[0] > f->n_out - product->first_row)
        return dcpk_fail(err, DCPK_EMISMATCH,
                         "the adapter does not fit its base: '%s' is a product of [%" PRId64
                         ", rank] and [rank, %" PRId64 "] there",
                         name, f->n_out, f->n_in);
    how.product = *product;
    product->first_row += weight.shape[0];
    f->n_merged++;
    weight.dtype = DCPK_F32;
    weight.n_chunks = 0;
    return dcpk_checkpoint_add_computed(m->ckpt, &weight, &how, &m->scaled[base].view, err);
}

/* An expert's part of the parameter, which files have as one tensor or as rows of several. */
static dcpk_status expert_merge(struct dcpk_hf_matching *m, struct expert_factors *f,
                                const struct dcpk_hf_binding *b, struct dcpk_error *err)
{
    const struct dcpk_hf_binding *file = file_binding(m, b->mg, &f->near);
    struct dcpk_product product = {
        .left = f->b, .right = f->a, .rank = f->rank, .expert = b->expert};

    if (file == NULL || b->rule->n_ops > 0 || file->rule->n_ops > 1 ||
        (file->rule->n_ops == 1 && file->rule->ops[0] != DCPK_HF_CAT))
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "the adapter changes '%s', whose experts the family stores otherwise: let "
                         "PEFT merge it (merge_and_unload())",
                         b->hf[0]);
    for (size_t i = 0; i < file->rule->n_hf; i++)
        if (weight_merge(m, f, file->hf[i], &product, err))
            return err->status;
    if (product.first_row != f->n_out)
        return dcpk_fail(err, DCPK_EMISMATCH,
                         "the adapter has %" PRId64 " rows of '%s', the base %" PRId64, f->n_out,
                         b->hf[0], product.first_row);
    return DCPK_OK;
}

dcpk_status dcpk_hf_lora_experts(struct dcpk_hf_matching *m, const struct dcpk_lora_config *config,
                                 const struct dcpk_lora_factors *pair, size_t *n_merged,
                                 struct dcpk_error *err)
{
    const struct dcpk_hf_binding *first = find_parameter(m, config, pair->module);
    struct expert_factors f = {.n_merged = 0};

    *n_merged = 0;
    if (first == NULL || factors_make(m, pair, &f, err) ||
        dcpk_lora_scale(config, first->hf[0], f.rank, &f.scale, err))
        return err->status;
    for (size_t i = 0; i < m->bindings.n; i++) {
        const struct dcpk_hf_binding *b = &m->bindings.list[i];

        if (b->rule == first->rule && strcmp(b->hf[0], first->hf[0]) == 0 &&
            expert_merge(m, &f, b, err))
            return err->status;
    }
    *n_merged = f.n_merged;
    return DCPK_OK;
}
