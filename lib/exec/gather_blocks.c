/* SPDX-License-Identifier: Apache-2.0 */
/* gather_blocks.c - gathers a matrix of floats as blocks of fp8, or their scales. */
/*
 * A block needs all of its elements, whatever part of it is asked for: the blocks that a region
 * touches are gathered whole, in float32, as many next to each other as half of the scratch memory
 * holds. So the result does not depend on how a tensor is cut among tasks, threads and ranks; a
 * block that is cut is read by each of them.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "lib/base/order.h"
#include "lib/exec/workers.h"

#define BLOCK           DCPK_FP8_BLOCK
#define BLOCK_BYTES     (BLOCK * BLOCK * sizeof(float))
#define LARGEST         448.0F /* of float8_e4m3fn */
#define LEAST_AMAX      1e-4F
#define LEAST_SCALE     0x1p-126F
#define INFINITY_BITS   UINT32_C(0x7f800000)
#define EXPONENT_OFFSET 127 /* of float8_e8m0fnu, and of float32 */

/* A gathering of blocks under way. */
struct blocks {
    struct dcpk_exec *exec;
    struct dcpk_worker *worker;
    const struct dcpk_view *view;
    const struct dcpk_box *region; /* of the view */
    uint8_t *out;
    float *elems;        /* of `box`, row-major */
    struct dcpk_box box; /* of the matrix: blocks next to each other */
};

/* The scale of a block, and what its elements are multiplied with (0: divided by the scale). */
struct block_scale {
    float scale, factor;
};

/* The least power of two that is not below x, a normal number. */
static float power_above(float x)
{
    int exponent;
    const float fraction = frexpf(x, &exponent);

    return ldexpf(1, exponent - (fraction == 0.5F));
}

static struct block_scale find_scale(const struct dcpk_fp8_format *format, float amax)
{
    struct block_scale s = {1, 0};

    if (format->variant == DCPK_FP8_TRANSFORMERS) {
        if (amax > 0)
            s.factor = 1 / amax * LARGEST;
        else
            s.factor = 1;
        s.scale = 1 / s.factor;
        if (format->is_ue8m0)
            s.scale = power_above(fmaxf(s.scale, LEAST_SCALE));
    } else if (format->variant == DCPK_FP8_DEEPGEMM || format->is_ue8m0) {
        s.scale = fmaxf(amax, LEAST_AMAX) / LARGEST;
        if (format->is_ue8m0)
            s.scale = power_above(s.scale);
        s.factor = 1 / s.scale;
    } else if (amax > 0) {
        s.scale = amax / LARGEST;
    }
    if (format->is_ue8m0)
        s.factor = 1 / s.scale;
    return s;
}

/* The largest |w| of a block at column `col` of the box, as bits: they are in the order of sizes,
 * and infinities and NaN above all. */
static uint32_t find_amax(const struct blocks *b, int64_t col, int64_t n_cols)
{
    uint32_t most = 0;

    for (int64_t i = 0; i < b->box.extent[0]; i++) {
        const float *row = b->elems + i * b->box.extent[1] + col;

        for (int64_t j = 0; j < n_cols; j++) {
            uint32_t bits;

            memcpy(&bits, &row[j], sizeof bits);
            bits &= ~(UINT32_C(1) << 31);
            if (bits > most)
                most = bits;
        }
    }
    return most;
}

/* Elements of a row as they are cast: within the range of the values. A NaN stays one. */
static void scale_row(const struct block_scale *s, float *row, int64_t n)
{
    for (int64_t j = 0; j < n; j++) {
        float x = row[j] * s->factor;

        if (s->factor == 0)
            x = row[j] / s->scale;
        if (x > LARGEST)
            x = LARGEST;
        if (x < -LARGEST)
            x = -LARGEST;
        row[j] = x;
    }
}

/* Writes the elements of a block that are in the region. */
static dcpk_status put_values(const struct blocks *b, const struct block_scale *s, int64_t col,
                              int64_t n_cols, struct dcpk_error *err)
{
    const struct dcpk_box block = {
        2, {b->box.offset[0], b->box.offset[1] + col}, {b->box.extent[0], n_cols}};
    struct dcpk_box part;

    if (!dcpk_box_intersect(&block, b->region, &part))
        return DCPK_OK;
    for (int64_t i = part.offset[0]; i < part.offset[0] + part.extent[0]; i++) {
        float *row = b->elems + (i - b->box.offset[0]) * b->box.extent[1] + part.offset[1] -
                     b->box.offset[1];
        uint8_t *to = b->out + (i - b->region->offset[0]) * b->region->extent[1] + part.offset[1] -
                      b->region->offset[1];

        scale_row(s, row, part.extent[1]);
        if (b->exec->kernels->cast(DCPK_F32, row, DCPK_F8_E4M3FN, to, (size_t)part.extent[1], err))
            return err->status;
    }
    return DCPK_OK;
}

static void put_scale(const struct blocks *b, float scale, int64_t col)
{
    const int64_t i = b->box.offset[0] / BLOCK - b->region->offset[0];
    const int64_t j = (b->box.offset[1] + col) / BLOCK - b->region->offset[1];
    uint8_t *to =
        b->out + (size_t)(i * b->region->extent[1] + j) * dcpk_dtype_bytes(b->view->dtype);

    if (b->view->dtype == DCPK_F8_E8M0FNU)
        *to = (uint8_t)(ilogbf(scale) + EXPONENT_OFFSET);
    else
        memcpy(to, &scale, sizeof scale);
    b->worker->n_zero_scales += scale == 0;
}

/* The box has an element that is not finite. */
static dcpk_status refuse_elem(const struct blocks *b, struct dcpk_error *err)
{
    int64_t i = 0;

    while (isfinite(b->elems[i]))
        i++;
    return dcpk_fail(err, DCPK_EUNSUPPORTED,
                     "'%s'[%" PRId64 ", %" PRId64 "] is NaN or infinite: blocks of fp8 hold finite "
                     "numbers alone",
                     b->view->blocks->name, b->box.offset[0] + i / b->box.extent[1],
                     b->box.offset[1] + i % b->box.extent[1]);
}

/* Refuses a block whose elements would be NaN or lost. */
static dcpk_status refuse_scale(const struct blocks *b, int64_t col, float amax,
                                struct dcpk_error *err)
{
    return dcpk_fail(err, DCPK_EUNSUPPORTED,
                     "'%s': no element of the block at [%" PRId64 ", %" PRId64
                     "] is above %g, whose scale is 0 in float32: deepgemm and ue8m0 have a least "
                     "scale",
                     b->view->blocks->name, b->box.offset[0], b->box.offset[1] + col, (double)amax);
}

/* Blocks next to each other. */
static dcpk_status blocks_gather(struct blocks *b, const struct dcpk_box_tree *pieces,
                                 struct dcpk_error *err)
{
    const struct dcpk_view matrix = {.dtype = DCPK_F32,
                                     .rank = 2,
                                     .shape = b->view->blocks->shape,
                                     .pieces = b->view->pieces,
                                     .n_pieces = b->view->n_pieces};
    const struct dcpk_gather_from from = {&matrix, pieces};

    if (dcpk_gather(b->exec, b->worker, &from, &b->box, b->elems, err))
        return err->status;
    for (int64_t col = 0; col < b->box.extent[1]; col += BLOCK) {
        const int64_t n_cols = dcpk_min_i64(BLOCK, b->box.extent[1] - col);
        const uint32_t bits = find_amax(b, col, n_cols);
        struct block_scale s;
        float amax;

        if (bits >= INFINITY_BITS)
            return refuse_elem(b, err);
        memcpy(&amax, &bits, sizeof amax);
        s = find_scale(&b->view->blocks->format, amax);
        if (s.scale == 0 && b->view->blocks->format.variant != DCPK_FP8_TRANSFORMERS)
            return refuse_scale(b, col, amax, err);
        if (b->view->blocks->gives_scales)
            put_scale(b, s.scale, col);
        else if (put_values(b, &s, col, n_cols, err))
            return err->status;
    }
    return DCPK_OK;
}

/* The blocks that the region touches, as lines of the matrix. */
static void find_lines(const struct blocks *b, int axis, int64_t *first, int64_t *end)
{
    const int64_t step = b->view->blocks->gives_scales ? BLOCK : 1;
    const int64_t last = (b->region->offset[axis] + b->region->extent[axis]) * step;

    *first = b->region->offset[axis] * step / BLOCK * BLOCK;
    *end = dcpk_min_i64((last + BLOCK - 1) / BLOCK * BLOCK, b->view->blocks->shape[axis]);
}

dcpk_status dcpk_gather_blocks(struct dcpk_exec *exec, struct dcpk_worker *worker,
                               const struct dcpk_gather_from *from, const struct dcpk_box *region,
                               void *out, struct dcpk_error *err)
{
    const size_t n_bytes = worker->scratch_bytes / 2 / BLOCK_BYTES * BLOCK_BYTES;
    const int64_t n_cols = (int64_t)(n_bytes / BLOCK_BYTES) * BLOCK;
    int64_t first[2], end[2];
    struct blocks b = {.exec = exec,
                       .worker = worker,
                       .view = from->view,
                       .region = region,
                       .out = out,
                       .elems = (float *)(void *)worker->scratch,
                       .box.rank = 2};

    for (int axis = 0; axis < 2; axis++)
        find_lines(&b, axis, &first[axis], &end[axis]);
    worker->scratch += n_bytes;
    worker->scratch_bytes -= n_bytes;
    for (int64_t i = first[0]; i < end[0] && err->status == DCPK_OK; i += BLOCK)
        for (int64_t j = first[1]; j < end[1] && err->status == DCPK_OK; j += n_cols) {
            b.box.offset[0] = i;
            b.box.extent[0] = dcpk_min_i64(BLOCK, end[0] - i);
            b.box.offset[1] = j;
            b.box.extent[1] = dcpk_min_i64(n_cols, end[1] - j);
            (void)blocks_gather(&b, from->pieces, err);
        }
    worker->scratch -= n_bytes;
    worker->scratch_bytes += n_bytes;
    return err->status;
}
