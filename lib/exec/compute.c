/* SPDX-License-Identifier: Apache-2.0 */
/* compute.c - slabs of tensors that others make by arithmetic: values times scales, or plus a
 * number or a product of matrices, or that number alone. */
/*
 * Values times scales, in the two buffers of a worker (the formula: lib/tensor/scale.h):
 *
 *   cast_to     | values of the box | scales of its blocks, float32 |
 *   cast_from   | scales as they are stored, then the box of the weight, float32 |
 *
 * Values plus a product of matrices; each part has a float32 for each element of the box:
 *
 *   cast_to     | sum of products | a matrix as it is stored |
 *   cast_from   | columns of right, then the box of the weight | rows of left |
 */
#include <string.h>

#include "lib/base/order.h"
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
    const size_t n = (size_t)dcpk_box_elems(box);
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

    for (uint64_t i = 0, n = dcpk_box_elems(box); i < n; i++)
        out[i] = number;
}

static dcpk_status compute_sum(struct dcpk_exec *exec, struct dcpk_worker *worker,
                               const struct dcpk_computed *computed, const struct dcpk_box *box,
                               struct dcpk_error *err)
{
    const enum dcpk_dtype dtype = exec->ckpt->tensors[computed->values].dtype;
    const size_t n = (size_t)dcpk_box_elems(box);
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
    const uint64_t n = (uint64_t)(one.n_rows * one.n_cols), n_all = dcpk_box_elems(box);
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

#define TILE_COLS 4096 /* floats of a row that stay in a core's first cache */

/* A product of matrices under way, for a box of the tensor. */
struct multiplying {
    struct dcpk_exec *exec;
    struct dcpk_worker *worker;
    const struct dcpk_product *of;
    const struct dcpk_box *box;
    int64_t first, n; /* of the rank: the part that is in `left` and `right` */
    float *left, *right, *sum;
    uint8_t *stored;
};

/* Reads a box of a matrix, `axis` along the rank, as float32; the other axis is that of the box. */
static dcpk_status read_factor(const struct multiplying *m, uint32_t tensor, int axis, float *out,
                               struct dcpk_error *err)
{
    const bool is_left = tensor == m->of->left;
    const int along = is_left ? 0 : 1;
    struct dcpk_box box = {.rank = m->exec->ckpt->tensors[tensor].rank};
    const int of_expert = 2 * is_left, first = box.rank == 3 && !is_left;

    if (box.rank == 3) {
        box.offset[of_expert] = m->of->expert;
        box.extent[of_expert] = 1;
    }
    box.offset[first + axis] = m->first;
    box.extent[first + axis] = m->n;
    box.offset[first + 1 - axis] = m->box->offset[along] + is_left * m->of->first_row;
    box.extent[first + 1 - axis] = m->box->extent[along];
    if (gather_tensor(m->exec, m->worker, tensor, &box, m->stored, err))
        return err->status;
    return m->exec->kernels->cast(m->exec->ckpt->tensors[tensor].dtype, m->stored, DCPK_F32, out,
                                  (size_t)dcpk_box_elems(&box), err);
}

/* Columns of right, [rank, columns]; as it is stored turned, through the room of left. */
static dcpk_status read_right(const struct multiplying *m, struct dcpk_error *err)
{
    const int64_t n_cols = m->box->extent[1];

    if (!m->of->is_turned)
        return read_factor(m, m->of->right, 0, m->right, err);
    if (read_factor(m, m->of->right, 1, m->left, err))
        return err->status;
    for (int64_t c = 0; c < n_cols; c++)
        for (int64_t k = 0; k < m->n; k++)
            m->right[k * n_cols + c] = m->left[c * m->n + k];
    return DCPK_OK;
}

/* Adds the products of the part of the rank that was read. */
static void add_products(const struct multiplying *m)
{
    const int64_t n_rows = m->box->extent[0], n_cols = m->box->extent[1];
    const int64_t row_step = m->of->is_turned ? 1 : m->n, step = m->of->is_turned ? n_rows : 1;

    for (int64_t at = 0; at < n_cols; at += TILE_COLS)
        for (int64_t row = 0; row < n_rows; row++)
            for (int64_t k = 0; k < m->n; k++)
                m->exec->kernels->add_fused(m->left[row * row_step + k * step],
                                            m->right + k * n_cols + at, m->first + k == 0,
                                            m->sum + row * n_cols + at,
                                            (size_t)dcpk_min_i64(TILE_COLS, n_cols - at));
}

static dcpk_status compute_with_product(struct dcpk_exec *exec, struct dcpk_worker *worker,
                                        const struct dcpk_computed *computed,
                                        const struct dcpk_box *box, struct dcpk_error *err)
{
    const size_t n = (size_t)dcpk_box_elems(box);
    float *out = (float *)(void *)worker->cast_from, *sum = (float *)(void *)worker->cast_to;
    struct multiplying m = {.exec = exec,
                            .worker = worker,
                            .of = &computed->product,
                            .box = box,
                            .left = out + n,
                            .right = out,
                            .sum = sum,
                            .stored = (uint8_t *)(sum + n)};
    /* So many of the rank fit next to the longer side of the box. */
    const int64_t most = dcpk_min_i64(box->extent[0], box->extent[1]);

    for (; m.first < m.of->rank; m.first += m.n) {
        m.n = dcpk_min_i64(most, m.of->rank - m.first);
        if (read_right(&m, err) || read_factor(&m, m.of->left, !m.of->is_turned, m.left, err))
            return err->status;
        add_products(&m);
    }
    if (gather_tensor(exec, worker, computed->values, box, m.stored, err) ||
        exec->kernels->cast(exec->ckpt->tensors[computed->values].dtype, m.stored, DCPK_F32, out, n,
                            err))
        return err->status;
    exec->kernels->add_term(computed->addend, sum, false, out, n);
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
    if (computed->product.rank > 0)
        return compute_with_product(exec, worker, computed, box, err);
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
