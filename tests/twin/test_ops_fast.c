/* SPDX-License-Identifier: Apache-2.0 */
/* test_ops_fast.c - devices whose sums have any order against the processor, within a tolerance:
 * shapes that take several blocks, grouped queries, slices, halves. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "lib/base/order.h"
#include "tests/ops_bench.h"

/* The same work on both. */
struct pair {
    struct ops_bench want, got;
};

static const enum dcpk_dtype dtypes[] = {DCPK_F32, DCPK_BF16, DCPK_F16};

/* Of results that were rounded to the dtype, or whose terms were. */
static double tolerance_of(enum dcpk_dtype dtype)
{
    if (dtype == DCPK_F32)
        return 2e-5;
    return dtype == DCPK_F16 ? 4e-3 : 3e-2;
}

static void pair_up(struct pair *p, enum dcpk_dtype dtype, uint64_t seed, int64_t n, void *at[2])
{
    float *x = malloc((size_t)n * sizeof *x);

    CHECK(x != NULL, "memory");
    ops_random(seed, x, n);
    at[0] = ops_up(&p->want, dtype, x, n);
    at[1] = ops_up(&p->got, dtype, x, n);
    free(x);
}

static void pair_room(struct pair *p, size_t n_bytes, void *at[2])
{
    at[0] = ops_room(&p->want, n_bytes);
    at[1] = ops_room(&p->got, n_bytes);
}

/* The difference is small beside the root mean square of what is wanted. */
static void pair_check(struct pair *p, enum dcpk_dtype dtype, double tolerance, int64_t n,
                       void *const at[2], const char *label)
{
    float *want = malloc((size_t)n * sizeof *want), *got = malloc((size_t)n * sizeof *got);
    double squares = 0, worst = 0;

    CHECK(want != NULL && got != NULL, "memory");
    ops_down(&p->want, dtype, at[0], want, n);
    ops_down(&p->got, dtype, at[1], got, n);
    for (int64_t i = 0; i < n; i++) {
        CHECK(isfinite(got[i]), label);
        squares += (double)want[i] * (double)want[i];
        worst = fmax(worst, fabs((double)want[i] - (double)got[i]));
    }
    if (worst > tolerance * (sqrt(squares / (double)n) + 1e-6) * 4)
        fprintf(stderr, "%s: %g of %g\n", label, worst, sqrt(squares / (double)n));
    CHECK(worst <= tolerance * (sqrt(squares / (double)n) + 1e-6) * 4, label);
    free(want);
    free(got);
}

#define BOTH(name, shape, ...)                                                                     \
    do {                                                                                           \
        for (int side = 0; side < 2; side++) {                                                     \
            struct ops_bench *b = side == 0 ? &p->want : &p->got;                                  \
                                                                                                   \
            b->ops->name(b->math, shape, __VA_ARGS__);                                             \
        }                                                                                          \
    } while (0)

static void products_agree(struct pair *p, enum dcpk_dtype dtype)
{
    const struct dcpk_matmul plain = {dtype, dtype, 70, 48, 96, 1, 1};
    const struct dcpk_matmul slices = {dtype, DCPK_F32, 70, 48, 96, 4, 1};
    const struct dcpk_matmul halves = {dtype, DCPK_F32, 70, 48, 96, 4, 2};
    const struct dcpk_matmul leaf = {dtype, DCPK_F32, 70, 48, 96, 1, 1};
    void *x[2], *w[2], *dy[2], *out[2], *wide[2];

    pair_up(p, dtype, 1, 70 * 96, x);
    pair_up(p, dtype, 2, 48 * 96, w);
    pair_up(p, dtype, 3, 70 * 96, dy);
    pair_room(p, 70 * 48 * 4, out);
    pair_room(p, 4 * 70 * 48 * 4, wide);
    BOTH(matmul, &plain, x[side], w[side], out[side]);
    pair_check(p, dtype, tolerance_of(dtype), 70 * 48, out, "x w^T");
    BOTH(matmul, &slices, x[side], w[side], wide[side]);
    pair_check(p, DCPK_F32, 2e-5, 4 * 70 * 48, wide, "slices of x w^T");
    BOTH(matmul_input, &plain, dy[side], w[side], out[side]);
    pair_check(p, dtype, tolerance_of(dtype), 70 * 48, out, "dy w");
    BOTH(matmul_input, &halves, dy[side], w[side], wide[side]);
    pair_check(p, DCPK_F32, 2e-5, 4 * 70 * 48, wide, "halves of dy w");
    BOTH(matmul_weight, &leaf, x[side], w[side], wide[side]);
    pair_check(p, DCPK_F32, 2e-5, 70 * 48, wide, "dy^T x");
}

/* The spacing of the dtype's numbers, by their size, at most. */
static double spacing_of(enum dcpk_dtype dtype)
{
    if (dtype == DCPK_F32)
        return 0;
    return dtype == DCPK_F16 ? 0x1p-10 : 0x1p-7;
}

/* Long sums are cut into parts: a part that were rounded to 16 bits would show in small results. */
static void deep_products_agree(struct pair *p, enum dcpk_dtype dtype)
{
    enum { ROWS = 16, DEPTH = 1 << 15 };
    const struct dcpk_matmul shape = {dtype, dtype, ROWS, ROWS, DEPTH, 1, 1};
    float want[ROWS * ROWS], got[ROWS * ROWS];
    void *x[2], *w[2], *out[2];
    double squares = 0, slack;

    pair_up(p, dtype, 13, ROWS * DEPTH, x);
    pair_up(p, dtype, 14, ROWS * DEPTH, w);
    pair_room(p, sizeof want, out);
    BOTH(matmul, &shape, x[side], w[side], out[side]);
    ops_down(&p->want, dtype, out[0], want, ROWS * ROWS);
    ops_down(&p->got, dtype, out[1], got, ROWS * ROWS);
    for (int i = 0; i < ROWS * ROWS; i++)
        squares += (double)want[i] * (double)want[i];
    slack = 8e-5 * sqrt(squares / (ROWS * ROWS)); /* of sums in fp32 */
    for (int i = 0; i < ROWS * ROWS; i++)
        CHECK(fabs((double)want[i] - (double)got[i]) <=
                  spacing_of(dtype) * fabs((double)want[i]) + slack,
              "a long sum");
}

/* 24 MiB of scores are 384 queries of these heads: several blocks. */
static void attention_agrees(struct pair *p, enum dcpk_dtype dtype)
{
    const struct dcpk_attention shape = {dtype, 900, 124, 1100, 8, 2, 8, 0.35f};
    const int64_t n_q = 900 * 16 * 8, n_k = 1100 * 8 * 8;
    void *q[2], *k[2], *v[2], *d_out[2], *out[2], *d_k[2], *d_v[2];

    pair_up(p, dtype, 4, n_q, q);
    pair_up(p, dtype, 5, n_k, k);
    pair_up(p, dtype, 6, n_k, v);
    pair_up(p, dtype, 7, n_q, d_out);
    pair_room(p, (size_t)n_q * 4, out);
    pair_room(p, (size_t)n_k * 4, d_k);
    pair_room(p, (size_t)n_k * 4, d_v);
    BOTH(attention, &shape, q[side], k[side], v[side], out[side]);
    pair_check(p, dtype, 2 * tolerance_of(dtype), n_q, out, "attention");
    for (int side = 0; side < 2; side++) {
        const struct dcpk_attention_backward data = {q[side],   k[side],   v[side],  d_out[side],
                                                     out[side], d_k[side], d_v[side]};
        struct ops_bench *b = side == 0 ? &p->want : &p->got;

        b->ops->attention_backward(b->math, &shape, &data);
    }
    pair_check(p, dtype, 4 * tolerance_of(dtype), n_q, out, "gradient of queries");
    pair_check(p, DCPK_F32, 4 * tolerance_of(dtype), n_k, d_k, "gradient of keys");
    pair_check(p, DCPK_F32, 4 * tolerance_of(dtype), n_k, d_v, "gradient of values");
}

static void norms_agree(struct pair *p, enum dcpk_dtype dtype)
{
    const struct dcpk_rmsnorm shape = {dtype, 300, 40, 1, 1e-5f};
    void *x[2], *dy[2], *dw[2];

    pair_up(p, dtype, 8, 300 * 40, x);
    pair_up(p, dtype, 9, 300 * 40, dy);
    pair_room(p, 40 * 4, dw);
    BOTH(rmsnorm_weight, &shape, x[side], dy[side], dw[side]);
    pair_check(p, DCPK_F32, 2e-5, 40, dw, "gradient of a norm");
}

static void embeddings_agree(struct pair *p, enum dcpk_dtype dtype)
{
    const struct dcpk_embedding shape = {dtype, 500, 130, 10, 60};
    int32_t tokens[500];
    void *ids[2], *dy[2], *dw[2];

    for (int i = 0; i < 500; i++)
        tokens[i] = (i * 37 + i * i) % 80;
    ids[0] = ops_bytes_up(&p->want, tokens, sizeof tokens);
    ids[1] = ops_bytes_up(&p->got, tokens, sizeof tokens);
    pair_up(p, dtype, 10, 500 * 130, dy);
    pair_room(p, 60 * 130 * 4, dw);
    BOTH(zero, dw[side], 60 * 130 * 4);
    BOTH(embedding_weight, &shape, ids[side], dy[side], dw[side]);
    pair_check(p, DCPK_F32, 1e-6, 60 * 130, dw, "gradient of an embedding");
}

static void fast_devices_agree(void **state)
{
    bool is_there = false;

    (void)state;
    for (size_t i = 1; dcpk_math_ops[i] != NULL; i++) {
        struct pair p;

        if (!ops_open(&p.got, dcpk_math_ops[i]))
            continue;
        is_there = true;
        CHECK(ops_open(&p.want, dcpk_math_ops[0]), "the processor");
        for (size_t d = 0; d < DCPK_COUNT(dtypes); d++) {
            const enum dcpk_dtype dtype = dtypes[d];

            products_agree(&p, dtype);
            deep_products_agree(&p, dtype);
            attention_agrees(&p, dtype);
            norms_agree(&p, dtype);
            embeddings_agree(&p, dtype);
            ops_clear(&p.want);
            ops_clear(&p.got);
        }
        ops_close(&p.want);
        ops_close(&p.got);
    }
    if (!is_there)
        exit(77);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fast_devices_agree),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
