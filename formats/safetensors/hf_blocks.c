/* SPDX-License-Identifier: Apache-2.0 */
/* hf_blocks.c - weights in blocks of fp8 with the scales that stand next to them: hf_scales.c reads
 * them. */
#include <string.h>

#include "formats/safetensors/hf_writing.h"
#include "lib/base/text.h"

static const char suffix[] = "_scale_inv"; /* of names of scales */

bool dcpk_hf_is_quantised(const struct dcpk_hf_writing *e, const struct dcpk_hf_binding *b,
                          const struct dcpk_out_tensor *part)
{
    return e->out->target.family.fp8.variant != DCPK_FP8_NONE && e->role == DCPK_WEIGHT &&
           part->rank >= 2 && b->rule->dtype == DCPK_DTYPE_NONE &&
           strstr(b->mg, ".linear_") != NULL;
}

/* Checks that the class has the matrix as a linear layer of torch does, by itself. */
static dcpk_status check_matrix(const struct dcpk_hf_writing *e, const struct dcpk_hf_binding *b,
                                const struct dcpk_out_tensor *part, struct dcpk_error *err)
{
    bool is_plain =
        part->rank == 2 && part->written_shape == NULL && dcpk_ends_with(part->keys[0], ".weight");

    for (size_t i = 0; i < b->rule->n_ops; i++)
        is_plain = is_plain && b->rule->ops[i] != DCPK_HF_TRANSPOSE;
    if (is_plain)
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EUNSUPPORTED,
                     "'%s' of family %s is not the matrix of one linear layer: there are no blocks "
                     "of fp8 for it",
                     part->keys[0], e->map->family);
}

/* Appends the tensor under its key and `ending`. */
static dcpk_status add_half(struct dcpk_hf_writing *e, struct dcpk_out_tensor *tensor,
                            const struct dcpk_fp8_blocks *how, const char *ending,
                            struct dcpk_error *err)
{
    struct dcpk_arena *arena = e->out->arena;
    struct dcpk_fp8_blocks *blocks = dcpk_arena_alloc(arena, sizeof *blocks, err);
    const char **key = dcpk_arena_alloc(arena, sizeof *key, err);

    if (blocks == NULL || key == NULL)
        return err->status;
    *blocks = *how;
    *key = dcpk_arena_printf(arena, err, "%s%s", how->name, ending);
    if (*key == NULL)
        return err->status;
    tensor->blocks = blocks;
    tensor->keys = key;
    return dcpk_output_add_tensor(e->out, tensor, err);
}

dcpk_status dcpk_hf_add_blocks(struct dcpk_hf_writing *e, const struct dcpk_hf_binding *b,
                               const struct dcpk_out_tensor *part, struct dcpk_error *err)
{
    struct dcpk_fp8_blocks how = {
        .format = e->out->target.family.fp8, .shape = part->shape, .name = part->keys[0]};
    struct dcpk_out_tensor values = *part, scales = *part;
    int64_t *shape;

    if (check_matrix(e, b, part, err))
        return err->status;
    shape = dcpk_arena_array(e->out->arena, 2, sizeof *shape, err);
    if (shape == NULL)
        return err->status;
    for (int a = 0; a < 2; a++)
        shape[a] = (part->shape[a] + DCPK_FP8_BLOCK - 1) / DCPK_FP8_BLOCK;
    values.dtype = DCPK_F8_E4M3FN;
    scales.shape = shape;
    scales.dtype = DCPK_F32;
    if (how.format.is_ue8m0 && how.format.variant == DCPK_FP8_TRANSFORMERS)
        scales.dtype = DCPK_F8_E8M0FNU;
    e->n_quantised++;
    if (add_half(e, &values, &how, "", err))
        return err->status;
    how.gives_scales = true;
    return add_half(e, &scales, &how, suffix, err);
}

dcpk_status dcpk_hf_check_blocks(const struct dcpk_hf_writing *e, struct dcpk_error *err)
{
    static const char *const names[DCPK_FP8_N_VARIANTS] = {"", "deepseek", "deepgemm",
                                                           "transformers"};
    const struct dcpk_fp8_format *fp8 = &e->out->target.family.fp8;

    if (fp8->variant == DCPK_FP8_NONE)
        return DCPK_OK;
    if (e->n_quantised == 0 || e->map->scales_suffix == NULL ||
        strcmp(e->map->scales_suffix, suffix) != 0)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "models of family %s are not written in blocks of fp8", e->map->family);
    dcpk_output_event(
        e->out, DCPK_EVENT_NOTE, "fp8",
        "%zu matrices are rounded to blocks of fp8 (variant %s%s); embeddings, norms, "
        "routers and biases are not",
        e->n_quantised, names[fp8->variant], dcpk_joint(fp8->is_ue8m0, ", scales ue8m0"));
    return DCPK_OK;
}
