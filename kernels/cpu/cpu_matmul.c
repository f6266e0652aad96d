/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_matmul.c - matrix products, and the sum of their slices. */
/*
 * All three products are out[r, c] = sum over i of a(r, i) b(i, c), with factors that lie either
 * way round. A slice's part of them is packed in fp32 as the kernel reads it, i being slowest:
 *
 *     a: blocks of ROWS rows     | r0 r1 r2 r3 | r0 r1 r2 r3 | ...     one i after the other
 *     b: a block of COLUMNS      | c0 ........ c15 | c0 ........ c15 | ...
 *
 * The kernel keeps ROWS x COLUMNS sums in registers and walks over i: each sum adds its products
 * one by one, i ascending.
 */
#include <assert.h>
#include <string.h>

#include "kernels/cpu/cpu_ops.h"
#include "lib/base/order.h"

#define ROWS       4
#define COLUMNS    16
#define BLOCK_ROWS 128 /* rows of a that are packed at a time */
#define STRIP      256 /* elements that are in fp32 at a time */

/* One factor: element (outer, i), outer a row or a column of the result. */
struct matmul_factor {
    enum dcpk_dtype dtype;
    const void *at;
    int64_t n_outer, n_inner;
    bool is_inner_first; /* [inner, outer] in memory, else [outer, inner] */
};

/* A slice's piece of the contracted axis; n_parts of them lie `step` apart. */
struct matmul_slice {
    int64_t first, n, n_parts, step;
};

/* Pack outer [outer, outer + width) of a slice into blocks, `width` to an i; zeros past the end. */
static void factor_pack(const struct matmul_factor *f, int64_t outer, int64_t width,
                        const struct matmul_slice *slice, float *to)
{
    const int64_t n_outer = dcpk_min_i64(width, f->n_outer - outer);
    float strip[STRIP];

    memset(to, 0, (size_t)(slice->n * slice->n_parts * width) * sizeof *to);
    for (int64_t part = 0; part < slice->n_parts; part++, to += slice->n * width) {
        const int64_t first = slice->first + part * slice->step;

        for (int64_t i = 0; f->is_inner_first && i < slice->n; i++)
            cpu_load(f->dtype, f->at, (first + i) * f->n_outer + outer, n_outer, to + i * width);
        for (int64_t o = 0; !f->is_inner_first && o < n_outer; o++)
            for (int64_t i = 0; i < slice->n; i += STRIP) {
                const int64_t some = dcpk_min_i64(STRIP, slice->n - i);

                cpu_load(f->dtype, f->at, (outer + o) * f->n_inner + first + i, some, strip);
                for (int64_t j = 0; j < some; j++)
                    to[(i + j) * width + o] = strip[j];
            }
    }
}

/* Vectors of the compiler, as wide as AVX's registers: wider ones stay in memory with gcc 12. One
 * core, 256 x 1024 x 1024 in 8 slices, 2026-11-23: 33 GFLOP/s, with 16 lanes 8.5. */
#define LANES 8
typedef float matmul_lanes __attribute__((vector_size(LANES * sizeof(float))));

__attribute__((always_inline)) static inline void multiply_rows(int64_t n, const float *a,
                                                                const float *b, float *sums)
{
    matmul_lanes left[ROWS] = {{0}}, right[ROWS] = {{0}};

    for (int64_t i = 0; i < n; i++, a += ROWS, b += COLUMNS) {
        matmul_lanes b_left, b_right;

        memcpy(&b_left, b, sizeof b_left);
        memcpy(&b_right, b + LANES, sizeof b_right);
        for (int r = 0; r < ROWS; r++) {
            left[r] += a[r] * b_left;
            right[r] += a[r] * b_right;
        }
    }
    for (int r = 0; r < ROWS; r++) {
        memcpy(sums + r * COLUMNS, &left[r], sizeof left[r]);
        memcpy(sums + r * COLUMNS + LANES, &right[r], sizeof right[r]);
    }
}

#ifdef __x86_64__
__attribute__((target("avx2"))) static void multiply_avx2(int64_t n, const float *a, const float *b,
                                                          float *sums)
{
    multiply_rows(n, a, b, sums);
}
#endif

/* ROWS x COLUMNS sums of n packed products. */
static void multiply_block(int64_t n, const float *a, const float *b, float *sums)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2")) {
        multiply_avx2(n, a, b, sums);
        return;
    }
#endif
    multiply_rows(n, a, b, sums);
}

/* A product to be made: [n_slices, a.n_outer, b.n_outer] of out's dtype. */
struct matmul_job {
    struct matmul_factor a, b;
    enum dcpk_dtype out_dtype;
    void *out;
    int64_t n_inner, n_slices, n_parts;
};

/* Rows [row, row + n_rows) of slice number `number`. a_pack, b_pack: room. */
static void job_block(const struct matmul_job *job, int64_t number, int64_t row, float *a_pack,
                      float *b_pack)
{
    const int64_t n = job->n_inner / (job->n_slices * job->n_parts);
    const struct matmul_slice slice = {number * n, n, job->n_parts, job->n_inner / job->n_parts};
    const int64_t n_rows = dcpk_min_i64(BLOCK_ROWS, job->a.n_outer - row);
    const int64_t length = n * job->n_parts, rows = job->a.n_outer, columns = job->b.n_outer;
    float sums[ROWS * COLUMNS];

    for (int64_t r = 0; r < n_rows; r += ROWS)
        factor_pack(&job->a, row + r, ROWS, &slice, a_pack + r * length);
    for (int64_t c = 0; c < columns; c += COLUMNS) {
        factor_pack(&job->b, c, COLUMNS, &slice, b_pack);
        for (int64_t r = 0; r < n_rows; r++) {
            const int64_t at = (number * rows + row + r) * columns + c;

            if (r % ROWS == 0)
                multiply_block(length, a_pack + r * length, b_pack, sums);
            cpu_store(job->out_dtype, sums + r % ROWS * COLUMNS, dcpk_min_i64(COLUMNS, columns - c),
                      job->out, at);
        }
    }
}

static void job_run(struct dcpk_math *math, const struct matmul_job *job)
{
    const int64_t length = job->n_inner / job->n_slices;
    float *room;

    assert(job->n_inner % (job->n_slices * job->n_parts) == 0);
    assert(job->n_slices <= DCPK_MAX_SLICES && (job->n_parts == 1 || job->out_dtype == DCPK_F32));
    assert(job->n_slices == 1 || job->out_dtype == DCPK_F32);
    room = cpu_scratch(math, (BLOCK_ROWS + COLUMNS) * length);
    for (int64_t slice = 0; room != NULL && slice < job->n_slices; slice++)
        for (int64_t row = 0; row < job->a.n_outer; row += BLOCK_ROWS)
            job_block(job, slice, row, room, room + BLOCK_ROWS * length);
}

/* Factors as a linear layer has them: rows of `a` times rows of `b`. */
static struct matmul_job job_of(const struct dcpk_matmul *shape, const void *a, const void *b,
                                void *out)
{
    return (struct matmul_job){{shape->dtype, a, shape->rows, shape->inner, false},
                               {shape->dtype, b, shape->columns, shape->inner, false},
                               shape->out,
                               out,
                               shape->inner,
                               shape->n_slices,
                               shape->n_parts};
}

void cpu_matmul(struct dcpk_math *math, const struct dcpk_matmul *shape, const void *x,
                const void *w, void *out)
{
    const struct matmul_job job = job_of(shape, x, w, out);

    job_run(math, &job);
}

void cpu_matmul_input(struct dcpk_math *math, const struct dcpk_matmul *shape, const void *dy,
                      const void *w, void *out)
{
    struct matmul_job job = job_of(shape, dy, w, out);

    job.b.is_inner_first = true;
    job_run(math, &job);
}

void cpu_matmul_weight(struct dcpk_math *math, const struct dcpk_matmul *shape, const void *dy,
                       const void *x, float *dw)
{
    struct matmul_job job = job_of(shape, dy, x, dw);

    job.a.is_inner_first = job.b.is_inner_first = true;
    job.out_dtype = DCPK_F32;
    job.n_slices = job.n_parts = 1;
    job_run(math, &job);
}

/* Pairs, then pairs of their sums, until one is left; an odd one goes up as it is. */
void cpu_add_slices(struct dcpk_math *math, const struct dcpk_matrix *shape, int64_t n_slices,
                    const float *partials, void *out)
{
    const int64_t n = shape->rows * shape->columns;
    float *room = cpu_scratch(math, n_slices * STRIP);

    assert(n_slices >= 1 && n_slices <= DCPK_MAX_SLICES);
    for (int64_t at = 0; room != NULL && at < n; at += STRIP) {
        const int64_t some = dcpk_min_i64(STRIP, n - at);

        for (int64_t slice = 0; slice < n_slices; slice++)
            memcpy(room + slice * STRIP, partials + slice * n + at, (size_t)some * sizeof *room);
        for (int64_t step = 1; step < n_slices; step *= 2)
            for (int64_t slice = 0; slice + step < n_slices; slice += 2 * step)
                for (int64_t i = 0; i < some; i++)
                    room[slice * STRIP + i] += room[(slice + step) * STRIP + i];
        cpu_store(shape->dtype, room, some, out, at);
    }
}
