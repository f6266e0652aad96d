/* SPDX-License-Identifier: Apache-2.0 */
/* compute.c - slabs of tensors that others make by arithmetic: values times scales, or plus a
 * number, or that number alone. */
/*
 * Values times scales, in the two buffers of a worker (the formula: lib/tensor/scale.h):
 *
 *   cast_to     | values of the box | scales of its blocks, float32 |
 *   cast_from   | scales as they are stored, then the box of the weight, float32 |
 */
#include <string.h>

#include "lib/exec/slab.h"
#include "lib/exec/workers.h"

/* Gather a box of a tensor as it is; out NULL: only advise. */
static dcpk_status gather_tensor(struct dcpk_exec *exec, struct dcpk_worker *worker, uint32_t index,
                                 const struct dcpk_box *box, void *out, struct dcpk_error *err)
{
    const struct dcpk_tensor *tensor = &exec->ckpt->tensors[index];
    int64_t span[4 * DCPK_MAX_RANK];
    const struct dcpk_piece piece = {.src = index,
                                     .src_rank = (uint8_t)tensor->rank,
                                     .dst_rank = (uint8_t)tensor->rank,
                                     .span = span};
    const struct dcpk_view view = {.dtype = tensor->dtype,
                                   .rank = tensor->rank,
                                   .shape = tensor->shape,
                                   .pieces = &piece,
                                   .n_pieces = 1};
    struct dcpk_box_tree pieces;
    const struct dcpk_gather_from from = {&view, &pieces};

    dcpk_box_pack(box, span);
    dcpk_box_pack(box, span + 2 * tensor->rank);
    if (dcpk_piece_tree_build(&view, &pieces, err)) /* of one: it holds no memory */
        return err->status;
    if (out != NULL)
        return dcpk_gather(exec, worker, &from, box, out, err);
    dcpk_gather_advise(exec, &from, box);
    return DCPK_OK;
}

/* [offset, offset + extent) in steps of `size`: those that it touches. */
static void count_in(struct dcpk_box *box, int axis, int64_t size)
{
    const int64_t end = box->offset[axis] + box->extent[axis];

    box->offset[axis] /= size;
    box->extent[axis] = (end + size - 1) / size - box->offset[axis];
}

/* Finds the places of the values and the scales of a box in their tensors. */
static void find_boxes(const struct dcpk_exec *exec, const struct dcpk_computed *computed,
                       const struct dcpk_box *box, struct dcpk_box *values, struct dcpk_box *scales)
{
    *values = *box;
    if (exec->ckpt->tensors[computed->values].dtype == DCPK_F4_E2M1FN_X2)
        count_in(values, box->rank - 1, 2);
    *scales = *box;
    count_in(scales, box->rank - 2, computed->block_rows);
    count_in(scales, box->rank - 1, computed->block_cols);
}

/* The float32 of 2^(code - 127). Source: OCP MX 1.0, 5.4.1 (E8M0). */
static uint32_t exponent_bits(uint8_t code)
{
    if (code == 0)
        return UINT32_C(1) << 22;
    return code == 255 ? UINT32_C(0x7fc00000) : (uint32_t)code << 23;
}

/* Scales of a box as float32. codes: room for them as they are stored. */
static dcpk_status read_scales(struct dcpk_exec *exec, struct dcpk_worker *worker, uint32_t tensor,
                               const struct dcpk_box *box, float *scales, struct dcpk_error *err)
{
    const enum dcpk_dtype dtype = exec->ckpt->tensors[tensor].dtype;
    const size_t n = (size_t)dcpk_slab_elems(box);
    uint8_t *codes = worker->cast_from;

    if (dtype == DCPK_F32)
        return gather_tensor(exec, worker, tensor, box, scales, err);
    if (gather_tensor(exec, worker, tensor, box, codes, err))
        return err->status;
    if (dcpk_dtype_is_float(dtype))
        return exec->kernels->cast(dtype, codes, DCPK_F32, scales, n, err);
    for (size_t i = 0; i < n; i++) {
        const uint32_t bits = exponent_bits(codes[i]);

        memcpy(&scales[i], &bits, sizeof bits);
    }
    return DCPK_OK;
}

static void compute_constant(struct dcpk_worker *worker, float number, const struct dcpk_box *box)
{
    float *out = (float *)(void *)worker->cast_from;

    for (uint64_t i = 0, n = dcpk_slab_elems(box); i < n; i++)
        out[i] = number;
}

static dcpk_status compute_sum(struct dcpk_exec *exec, struct dcpk_worker *worker,
                               const struct dcpk_computed *computed, const struct dcpk_box *box,
                               struct dcpk_error *err)
{
    const enum dcpk_dtype dtype = exec->ckpt->tensors[computed->values].dtype;
    const size_t n = (size_t)dcpk_slab_elems(box);
    float *out = (float *)(void *)worker->cast_from;

    if (gather_tensor(exec, worker, computed->values, box, worker->cast_to, err) ||
        exec->kernels->cast(dtype, worker->cast_to, DCPK_F32, out, n, err))
        return err->status;
    for (size_t i = 0; i < n; i++)
        out[i] += computed->addend;
    return DCPK_OK;
}

/* Codes of float8_e4m3fn as those of the distance to the next number: from 2^-9, the smallest of
 * all, up to 2^5. */
static void find_steps(uint8_t *codes, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        const int exponent = codes[i] >> 3 & 15;

        codes[i] = (uint8_t)((exponent - 3) << 3);
        if (exponent < 4)
            codes[i] = (uint8_t)(1 << (exponent - (exponent > 0)));
    }
}

static dcpk_status compute_product(struct dcpk_exec *exec, struct dcpk_worker *worker,
                                   const struct dcpk_computed *computed, const struct dcpk_box *box,
                                   struct dcpk_error *err)
{
    const int rows = box->rank - 2, cols = box->rank - 1;
    const struct dcpk_scale one = {.dtype = exec->ckpt->tensors[computed->values].dtype,
                                   .n_rows = box->extent[rows],
                                   .n_cols = box->extent[cols],
                                   .row = box->offset[rows] % computed->block_rows,
                                   .col = box->offset[cols] % computed->block_cols,
                                   .block_rows = computed->block_rows,
                                   .block_cols = computed->block_cols};
    const uint64_t n = (uint64_t)(one.n_rows * one.n_cols), n_all = dcpk_slab_elems(box);
    struct dcpk_box values_box, scales_box;
    uint64_t n_values, n_scales; /* of a matrix: bytes, and scales */
    uint64_t first_scale;        /* byte after all values, of a whole float */
    float *scales, *out = (float *)(void *)worker->cast_from;

    find_boxes(exec, computed, box, &values_box, &scales_box);
    n_values = (uint64_t)(one.n_rows * dcpk_scale_row_bytes(&one));
    n_scales = (uint64_t)(scales_box.extent[rows] * scales_box.extent[cols]);
    first_scale = (n_all / n * n_values + sizeof *scales - 1) / sizeof *scales * sizeof *scales;
    scales = (float *)(void *)(worker->cast_to + first_scale);
    if (read_scales(exec, worker, computed->scales, &scales_box, scales, err) ||
        gather_tensor(exec, worker, computed->values, &values_box, worker->cast_to, err))
        return err->status;
    if (computed->gives_steps)
        find_steps(worker->cast_to, n_all);
    for (uint64_t i = 0; i < n_all / n; i++)
        exec->kernels->scale(&one, worker->cast_to + i * n_values, scales + i * n_scales,
                             out + i * n);
    return DCPK_OK;
}

dcpk_status dcpk_compute(struct dcpk_exec *exec, struct dcpk_worker *worker,
                         const struct dcpk_computed *computed, const struct dcpk_box *box,
                         struct dcpk_error *err)
{
    if (computed->values == DCPK_NO_VALUES) {
        compute_constant(worker, computed->addend, box);
        return DCPK_OK;
    }
    if (computed->scales == DCPK_NO_SCALES)
        return compute_sum(exec, worker, computed, box, err);
    return compute_product(exec, worker, computed, box, err);
}

void dcpk_compute_advise(struct dcpk_exec *exec, const struct dcpk_computed *computed,
                         const struct dcpk_box *box)
{
    struct dcpk_error ignored = DCPK_ERROR_INIT;
    struct dcpk_box values = *box, scales;

    if (computed->values == DCPK_NO_VALUES)
        return;
    if (computed->scales != DCPK_NO_SCALES)
        find_boxes(exec, computed, box, &values, &scales);
    (void)gather_tensor(exec, NULL, computed->values, &values, NULL, &ignored);
}
