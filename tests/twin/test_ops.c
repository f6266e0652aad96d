/* SPDX-License-Identifier: Apache-2.0 */
/* test_ops.c - the mathematics of every device: results that no layout of ranks changes, order of
 * sums, rounding, and what stands at the borders. */
#include <math.h>
#include <stdio.h>

#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "tests/ops_bench.h"

#define OP(name, ...) b->ops->name(b->math, __VA_ARGS__)
#define MOST          4096 /* elements of a matrix here */

static const enum dcpk_dtype dtypes[] = {DCPK_F32, DCPK_BF16, DCPK_F16};

/* Device memory of n elements holds what `want` does, to the bit. */
static void check_same(struct ops_bench *b, const void *got, const void *want, size_t n_bytes,
                       const char *label)
{
    static uint8_t got_bytes[MOST * 8], want_bytes[MOST * 8];

    CHECK(n_bytes <= sizeof got_bytes, label);
    ops_bytes_down(b, got, got_bytes, n_bytes);
    ops_bytes_down(b, want, want_bytes, n_bytes);
    CHECK(memcmp(got_bytes, want_bytes, n_bytes) == 0, label);
}

/* Columns [first, first + n) of rows x columns as a matrix of its own. */
static void *columns_of(struct ops_bench *b, const struct dcpk_matrix *whole, const void *at,
                        int64_t first, int64_t n)
{
    const size_t bytes = dcpk_dtype_bytes(whole->dtype);
    const struct dcpk_strided_rows shape = {whole->dtype, whole->rows, n, whole->columns, n};
    void *part = ops_room(b, (size_t)(whole->rows * n) * bytes);

    OP(copy_rows, &shape, (const char *)at + (size_t)first * bytes, part);
    return part;
}

static void *random_up(struct ops_bench *b, enum dcpk_dtype dtype, uint64_t seed, int64_t n)
{
    float x[MOST];

    CHECK(n <= MOST, "elements");
    ops_random(seed, x, n);
    return ops_up(b, dtype, x, n);
}

/* ---- products ---- */

/* x [7, 48] w [19, 48]^T in 8 slices: one rank computes all, or each of 2, 4, 8 its columns. */
static void products_are_sliced(struct ops_bench *b)
{
    for (size_t d = 0; d < DCPK_COUNT(dtypes); d++) {
        const enum dcpk_dtype dtype = dtypes[d];
        const struct dcpk_matmul whole = {dtype, DCPK_F32, 7, 19, 48, 8, 1};
        const struct dcpk_matrix x_rows = {dtype, 7, 48}, w_rows = {dtype, 19, 48};
        void *x = random_up(b, dtype, 1, 7 * 48), *w = random_up(b, dtype, 2, 19 * 48);
        float *all = ops_room(b, 8 * 7 * 19 * 4), *gathered = ops_room(b, 8 * 7 * 19 * 4);

        OP(matmul, &whole, x, w, all);
        for (int64_t ranks = 2; ranks <= 8; ranks *= 2) {
            const int64_t n = 48 / ranks;
            const struct dcpk_matmul part = {dtype, DCPK_F32, 7, 19, n, 8 / ranks, 1};

            for (int64_t rank = 0; rank < ranks; rank++)
                OP(matmul, &part, columns_of(b, &x_rows, x, rank * n, n),
                   columns_of(b, &w_rows, w, rank * n, n), gathered + rank * 8 / ranks * 7 * 19);
            check_same(b, gathered, all, 8 * 7 * 19 * 4, dcpk_dtype_name(dtype));
        }
        ops_clear(b);
    }
}

/* dy [5, 32] w [32, 9] with gates and ups: a rank's part of `inner` is some of both halves. */
static void halves_are_sliced(struct ops_bench *b)
{
    const struct dcpk_matmul whole = {DCPK_BF16, DCPK_F32, 5, 9, 32, 8, 2};
    const struct dcpk_matmul part = {DCPK_BF16, DCPK_F32, 5, 9, 8, 2, 2};
    const struct dcpk_matrix dy_rows = {DCPK_BF16, 5, 32};
    char *dy = random_up(b, DCPK_BF16, 3, 5 * 32), *w = random_up(b, DCPK_BF16, 4, 32 * 9);
    float *all = ops_room(b, 8 * 45 * 4), *gathered = ops_room(b, 8 * 45 * 4);

    OP(matmul_input, &whole, dy, w, all);
    for (int64_t rank = 0; rank < 4; rank++) {
        const struct dcpk_strided_rows join = {DCPK_BF16, 5, 4, 4, 8};
        char *part_dy = ops_room(b, 5 * 8 * 2), *part_w = ops_room(b, 8 * 9 * 2);

        OP(copy_rows, &join, columns_of(b, &dy_rows, dy, rank * 4, 4), part_dy);
        OP(copy_rows, &join, columns_of(b, &dy_rows, dy, 16 + rank * 4, 4), part_dy + 4 * 2);
        OP(copy, part_w, w + rank * 4 * 9 * 2, 4 * 9 * 2);
        OP(copy, part_w + 4 * 9 * 2, w + (16 + rank * 4) * 9 * 2, 4 * 9 * 2);
        OP(matmul_input, &part, part_dy, part_w, gathered + rank * 2 * 45);
    }
    check_same(b, gathered, all, 8 * 45 * 4, "gate and up");
}

/* Rows and columns of a product are what they are in a larger one. */
static void products_are_cut(struct ops_bench *b)
{
    const struct dcpk_matmul whole = {DCPK_BF16, DCPK_BF16, 133, 21, 30, 1, 1};
    const struct dcpk_matmul lower = {DCPK_BF16, DCPK_BF16, 60, 21, 30, 1, 1};
    const struct dcpk_matmul right = {DCPK_BF16, DCPK_BF16, 133, 8, 30, 1, 1};
    const struct dcpk_matrix rows = {DCPK_BF16, 133, 21};
    char *x = random_up(b, DCPK_BF16, 5, 133 * 30), *w = random_up(b, DCPK_BF16, 6, 21 * 30);
    char *all = ops_room(b, 133 * 21 * 2), *part = ops_room(b, 133 * 21 * 2);

    OP(matmul, &whole, x, w, all);
    OP(matmul, &lower, x + 73 * 30 * 2, w, part);
    check_same(b, part, all + 73 * 21 * 2, 60 * 21 * 2, "rows");
    OP(matmul, &right, x, w + 13 * 30 * 2, part);
    check_same(b, part, columns_of(b, &rows, all, 13, 8), 133 * 8 * 2, "columns");
}

/* One sum after the other in fp32, as the header has it: the processor's are equal to the bit. */
static void products_are_plain_sums(struct ops_bench *b)
{
    const struct dcpk_matmul shape = {DCPK_F32, DCPK_F32, 6, 18, 37, 1, 1};
    const struct dcpk_matmul weight = {DCPK_F32, DCPK_F32, 6, 18, 37, 1, 1};
    float x[6 * 37], w[18 * 37], x_turned[6 * 37], w_turned[18 * 37], got[3][6 * 18];
    void *out[3];

    ops_random(7, x, 6 * 37);
    ops_random(8, w, 18 * 37);
    for (int i = 0; i < 37; i++) {
        for (int r = 0; r < 6; r++)
            x_turned[i * 6 + r] = x[r * 37 + i];
        for (int c = 0; c < 18; c++)
            w_turned[i * 18 + c] = w[c * 37 + i];
    }
    for (int i = 0; i < 3; i++)
        out[i] = ops_room(b, sizeof got[i]);
    OP(matmul, &shape, ops_up(b, DCPK_F32, x, 6 * 37), ops_up(b, DCPK_F32, w, 18 * 37), out[0]);
    OP(matmul_input, &shape, ops_up(b, DCPK_F32, x, 6 * 37), ops_up(b, DCPK_F32, w_turned, 18 * 37),
       out[1]);
    OP(matmul_weight, &weight, ops_up(b, DCPK_F32, x_turned, 6 * 37),
       ops_up(b, DCPK_F32, w_turned, 18 * 37), out[2]);
    for (int i = 0; i < 3; i++)
        ops_bytes_down(b, out[i], got[i], sizeof got[i]);
    for (int at = 0; at < 6 * 18; at++) {
        volatile float sum = 0;

        for (int i = 0; i < 37; i++) {
            const volatile float product = x[at / 18 * 37 + i] * w[at % 18 * 37 + i];

            sum += product;
        }
        for (int i = 0; i < 3; i++)
            CHECK(b->ops->device->is_host ? got[i][at] == sum : fabsf(got[i][at] - sum) < 1e-5f,
                  "product");
    }
}

/* No tokens: a gradient of zeros. */
static void nothing_gives_zeros(struct ops_bench *b)
{
    const struct dcpk_matmul shape = {DCPK_BF16, DCPK_F32, 3, 5, 0, 1, 1};
    float got[15], *dw = ops_room(b, sizeof got);
    void *none = ops_room(b, 1);

    OP(matmul_weight, &shape, none, none, dw);
    ops_bytes_down(b, dw, got, sizeof got);
    for (int i = 0; i < 15; i++)
        CHECK(got[i] == 0, "no tokens");
}

static void slices_are_a_tree(struct ops_bench *b)
{
    static const struct {
        const char *label;
        int64_t n;
        float partials[5], want;
    } cases[] = {
        {"4: not one after the other, which gives 1", 4, {1e8f, 1, -1e8f, 1}, 0},
        {"4: not 0+2, 1+3", 4, {1, -1e8f, 1, 1e8f}, 0},
        {"5: the odd one comes last", 5, {1e8f, 1, 1, -1e8f, 1}, 1},
        {"3", 3, {1e8f, 1, -1e8f}, 0},
        {"1", 1, {3}, 3},
        {"2 in bf16: rounded once, not both before", 2, {1.00390625f, 0.00390625f}, 1.0078125f},
    };

    for (size_t i = 0; i < DCPK_COUNT(cases); i++) {
        const struct dcpk_matrix shape = {i == DCPK_COUNT(cases) - 1 ? DCPK_BF16 : DCPK_F32, 1, 1};
        void *out = ops_room(b, 4);
        float got;

        OP(add_slices, &shape, cases[i].n, ops_up(b, DCPK_F32, cases[i].partials, cases[i].n), out);
        ops_down(b, shape.dtype, out, &got, 1);
        CHECK(got == cases[i].want, cases[i].label);
    }
}

/* ---- layers ---- */

/* Blocks of queries give what all of them give; keys that no query sees are not looked at. */
static void attention_is_cut(struct ops_bench *b)
{
    const struct dcpk_attention whole = {DCPK_BF16, 12, 0, 12, 2, 2, 8, 0.35f};
    const struct dcpk_attention block = {DCPK_BF16, 4, 4, 12, 2, 2, 8, 0.35f};
    const struct dcpk_attention group = {DCPK_BF16, 12, 0, 12, 1, 2, 8, 0.35f};
    const struct dcpk_matrix q_rows = {DCPK_BF16, 12, 32}, k_rows = {DCPK_BF16, 12, 16};
    float q[12 * 32], k[12 * 16];
    char *q_at, *all = ops_room(b, 12 * 32 * 2), *part = ops_room(b, 12 * 32 * 2);
    void *k_at, *blind;

    ops_random(9, q, 12 * 32);
    ops_random(10, k, 12 * 16);
    q_at = ops_up(b, DCPK_BF16, q, 12 * 32);
    k_at = ops_up(b, DCPK_BF16, k, 12 * 16);
    OP(attention, &whole, q_at, k_at, k_at, all);
    OP(attention, &group, columns_of(b, &q_rows, q_at, 16, 16), columns_of(b, &k_rows, k_at, 8, 8),
       columns_of(b, &k_rows, k_at, 8, 8), part);
    check_same(b, part, columns_of(b, &q_rows, all, 16, 16), 12 * 16 * 2, "a group");
    for (int i = 8 * 16; i < 12 * 16; i++)
        k[i] = NAN;
    blind = ops_up(b, DCPK_BF16, k, 12 * 16);
    OP(attention, &block, q_at + 4 * 32 * 2, blind, blind, part);
    check_same(b, part, all + 4 * 32 * 2, 4 * 32 * 2, "a block");
}

/* The gradients of blocks of queries, added up, are those of all; a group's do not need others. */
static void attention_gradients_are_cut(struct ops_bench *b)
{
    const struct dcpk_attention whole = {DCPK_F32, 12, 0, 12, 2, 2, 8, 0.35f};
    float *q = random_up(b, DCPK_F32, 11, 384), *k = random_up(b, DCPK_F32, 12, 192);
    float *v = random_up(b, DCPK_F32, 13, 192), *d_out = random_up(b, DCPK_F32, 14, 384);
    float *d_q[2], *d_k[3], got[192], want[192];

    for (int i = 0; i < 2; i++)
        d_q[i] = ops_room(b, 384 * 4);
    for (int i = 0; i < 3; i++)
        d_k[i] = ops_room(b, 2 * 192 * 4);
    OP(zero, d_k[1], 2 * 192 * 4);
    OP(attention_backward, &whole,
       &(struct dcpk_attention_backward){q, k, v, d_out, d_q[0], d_k[0], d_k[0] + 192});
    for (int64_t first = 0; first < 12; first += 4) {
        const struct dcpk_attention block = {DCPK_F32, 4, first, 12, 2, 2, 8, 0.35f};
        const struct dcpk_attention_backward data = {
            q + first * 32, k, v, d_out + first * 32, d_q[1] + first * 32, d_k[2], d_k[2] + 192};

        OP(attention_backward, &block, &data);
        OP(accumulate, DCPK_F32, 2 * 192, d_k[2], d_k[1]);
    }
    check_same(b, d_q[1], d_q[0], 384 * 4, "queries");
    for (int half = 0; half < 2; half++) {
        ops_bytes_down(b, d_k[0] + half * 192, want, sizeof want);
        ops_bytes_down(b, d_k[1] + half * 192, got, sizeof got);
        for (int i = 0; i < 192; i++)
            CHECK(fabsf(got[i] - want[i]) < 1e-5f, "keys and values");
    }
}

/* Heads as lanes: the gradient of one does not depend on how many a rank has. */
static void lanes_are_apart(struct ops_bench *b)
{
    const struct dcpk_rmsnorm whole = {DCPK_BF16, 12, 8, 4, 1e-5f};
    const struct dcpk_rmsnorm part = {DCPK_BF16, 6, 8, 2, 1e-5f};
    const struct dcpk_matrix rows = {DCPK_BF16, 3, 32};
    void *x = random_up(b, DCPK_BF16, 15, 96), *dy = random_up(b, DCPK_BF16, 16, 96);
    float *all = ops_room(b, 4 * 8 * 4), *half = ops_room(b, 2 * 8 * 4);

    OP(rmsnorm_weight, &whole, x, dy, all);
    OP(rmsnorm_weight, &part, columns_of(b, &rows, x, 16, 16), columns_of(b, &rows, dy, 16, 16),
       half);
    check_same(b, half, all + 16, 2 * 8 * 4, "two of four heads");
}

static void embeddings_add_up(struct ops_bench *b)
{
    static const float w[] = {-0.0f, 2, 3, 4};
    static const int32_t ids[] = {1, 0};
    const struct dcpk_embedding whole = {DCPK_BF16, 2, 2, 0, 2}, low = {DCPK_BF16, 2, 2, 0, 1};
    const struct dcpk_embedding high = {DCPK_BF16, 2, 2, 1, 1};
    char *w_at = ops_up(b, DCPK_BF16, w, 4);
    const int32_t *tokens = ops_bytes_up(b, ids, sizeof ids);
    void *all = ops_room(b, 8), *parts[2] = {ops_room(b, 8), ops_room(b, 8)};

    OP(embedding, &whole, tokens, w_at, all);
    OP(embedding, &low, tokens, w_at, parts[0]);
    OP(embedding, &high, tokens, w_at + 4, parts[1]);
    OP(add, DCPK_BF16, 4, parts[0], parts[1], parts[0]);
    check_same(b, parts[0], all, 8, "also where a weight is -0");
}

/* ---- experts ---- */

static void ties_go_to_the_lower(struct ops_bench *b)
{
    static const float logits[] = {1, 3, 3, 2, 3, 0, 0, 0, 0, 0};
    static const int32_t want[] = {1, 2, 4, 0, 1, 2};
    const struct dcpk_router shape = {DCPK_SOFTMAX_OF_TOPK, 2, 5, 3};
    int32_t *chosen = ops_room(b, sizeof want), got[6];
    float *probs = ops_room(b, sizeof want), got_probs[6];

    OP(router, &shape, ops_up(b, DCPK_F32, logits, 10), NULL, chosen, probs);
    ops_bytes_down(b, chosen, got, sizeof got);
    ops_bytes_down(b, probs, got_probs, sizeof got_probs);
    for (int i = 0; i < 6; i++) {
        CHECK_EQ_INT(got[i], want[i], "chosen");
        CHECK(fabsf(got_probs[i] - 1.0f / 3) < 1e-7f, "probability");
    }
}

/* Slots in their order: 1e8 - 1e8 + 1 is 1, every other order gives 0 where fp32 rounds. */
static void slots_are_in_order(struct ops_bench *b)
{
    static const float y[] = {1, 1e8f, -1e8f}, ones[] = {1, 1, 1};
    static const int32_t place[] = {1, 2, 0, 1, 0, 2};
    static const float want[] = {1, 0};
    const struct dcpk_combine shape = {DCPK_F32, 1, 1, 3};

    for (int i = 0; i < 2; i++) {
        void *out = ops_room(b, 4);
        float got;

        OP(combine, &shape, ops_bytes_up(b, place + 3 * i, 12), ops_up(b, DCPK_F32, ones, 3),
           ops_up(b, DCPK_F32, y, 3), out);
        ops_down(b, DCPK_F32, out, &got, 1);
        CHECK(got == want[i], i == 0 ? "1e8 - 1e8 + 1" : "1e8 + 1 - 1e8");
    }
}

/* ---- loss ---- */

static void losses_are_cut(struct ops_bench *b)
{
    static const int32_t ids[] = {0, 31, 16, 15, 7};
    const struct dcpk_cross_entropy whole = {DCPK_BF16, 5, 32, 0, 8};
    const struct dcpk_matrix rows = {DCPK_BF16, 5, 32}, sum_rows = {DCPK_F32, 5, 1};
    const int32_t *labels = ops_bytes_up(b, ids, sizeof ids);
    void *logits = random_up(b, DCPK_BF16, 17, 160);
    float *max = ops_room(b, 20), *all = ops_room(b, 8 * 20), *sums = ops_room(b, 8 * 20);
    float *sum = ops_room(b, 20), *label[2] = {ops_room(b, 20), ops_room(b, 20)};
    float x[160], got[5];

    OP(cross_entropy_max, &whole, logits, max);
    OP(cross_entropy_sums, &whole, logits, max, all);
    for (int64_t rank = 0; rank < 2; rank++) {
        const struct dcpk_cross_entropy part = {DCPK_BF16, 5, 16, rank * 16, 4};
        const void *columns = columns_of(b, &rows, logits, rank * 16, 16);

        OP(cross_entropy_sums, &part, columns, max, sums + rank * 4 * 5);
        OP(cross_entropy_labels, &part, columns, labels, label[rank]);
    }
    check_same(b, sums, all, 8 * 20, "slices");
    OP(add, DCPK_F32, 5, label[0], label[1], label[0]);
    OP(add_slices, &sum_rows, 8, sums, sum);
    OP(cross_entropy, 5, max, sum, label[0], label[0]);
    ops_bytes_down(b, label[0], got, sizeof got);
    ops_down(b, DCPK_BF16, logits, x, 160);
    for (int r = 0; r < 5; r++) {
        double want = 0;

        for (int i = 0; i < 32; i++)
            want += exp((double)x[r * 32 + i]);
        want = log(want) - (double)x[r * 32 + ids[r]];
        CHECK(fabs((double)got[r] - want) < 1e-6, "loss");
    }
}

/* ---- rounding ---- */

static void results_are_rounded(struct ops_bench *b)
{
    static const struct {
        const char *label;
        enum dcpk_dtype dtype;
        float x, want;
    } cases[] = {
        {"bf16: a tie goes to even, down", DCPK_BF16, 0x1.01p0f, 1},
        {"bf16: a tie goes to even, up", DCPK_BF16, 0x1.03p0f, 0x1.04p0f},
        {"bf16: above a tie", DCPK_BF16, 0x1.010002p0f, 0x1.02p0f},
        {"bf16: negative", DCPK_BF16, -0x1.03p0f, -0x1.04p0f},
        {"bf16: past the largest", DCPK_BF16, 0x1.ffp127f, INFINITY},
        {"f16: a tie goes to even", DCPK_F16, 0x1.002p0f, 1},
        {"f16: subnormal", DCPK_F16, 0x1.8p-24f, 0x1p-23f},
        {"f16: past the largest", DCPK_F16, 65520, INFINITY},
        {"f16: the largest", DCPK_F16, 65519, 65504},
    };

    for (size_t i = 0; i < DCPK_COUNT(cases); i++) {
        const float zero = 0;
        void *x = ops_up(b, DCPK_F32, &cases[i].x, 1), *sum = ops_up(b, cases[i].dtype, &zero, 1);
        float got;

        OP(accumulate, cases[i].dtype, 1, x, sum);
        ops_down(b, cases[i].dtype, sum, &got, 1);
        CHECK(got == cases[i].want, cases[i].label);
    }
}

/* ---- exact sums ---- */

static void fixed_sums_are_exact(struct ops_bench *b)
{
    static const float x[] = {0.5f, 1.5f, -0.5f, -1.5f, 2.5f, 3, 1e-3f};
    static const int64_t want[] = {0, 2, 0, -2, 2, 3, 0}, want_three[] = {0 - 2 + 0, 2 + 2, 0 + 3};
    const struct dcpk_fixed each = {7, 7, 0, INT64_MAX, 0};
    const struct dcpk_fixed three = {7, 3, 0, INT64_MAX, 0};
    const struct dcpk_fixed fine = {1, 1, 44, INT64_MAX, 0};
    int64_t *sums = ops_room(b, sizeof want), got[7];
    uint64_t *bad = ops_room(b, 8), got_bad;
    float *back = ops_room(b, 4), got_back;
    const float tiny = 0x1.8p-44f;

    OP(zero, bad, 8);
    OP(zero, sums, sizeof want);
    OP(to_fixed, &each, ops_up(b, DCPK_F32, x, 7), sums, bad);
    ops_bytes_down(b, sums, got, sizeof got);
    for (int i = 0; i < 7; i++)
        CHECK_EQ_INT(got[i], want[i], "to even");
    OP(zero, sums, sizeof want);
    OP(to_fixed, &three, ops_up(b, DCPK_F32, x, 7), sums, bad);
    ops_bytes_down(b, sums, got, sizeof want_three);
    for (int i = 0; i < 3; i++)
        CHECK_EQ_INT(got[i], want_three[i], "three sums");
    OP(zero, sums, 8);
    OP(to_fixed, &fine, ops_up(b, DCPK_F32, &tiny, 1), sums, bad);
    OP(from_fixed, 1, 0x1p-40, sums, back);
    ops_bytes_down(b, back, &got_back, sizeof got_back);
    CHECK(got_back == 0x1p-39f, "2 units of 2^-44, times 16");
    ops_bytes_down(b, bad, &got_bad, sizeof got_bad);
    CHECK_EQ_INT(got_bad, 0, "nothing bad");
}

static void bad_numbers_are_seen(struct ops_bench *b)
{
    static const struct {
        const char *label;
        float x;
        int64_t before, limit;
        bool want, is_infinite;
    } cases[] = {
        {"NaN", NAN, 0, INT64_MAX, true, true},
        {"infinite", -INFINITY, 0, INT64_MAX, true, true},
        {"2^19", 524288, 0, INT64_MAX, true, false},
        {"below 2^19", 524287, 0, INT64_MAX, false, false},
        {"-2^19", -524288, 0, INT64_MAX, true, false},
        {"a sum past 2^63", 400000, INT64_C(400000) << 44, INT64_MAX, true, false},
        {"a sum at the limit", 1, INT64_C(1) << 44, INT64_C(1) << 45, true, false},
        {"a sum below the limit", 1, INT64_C(1) << 44, (INT64_C(1) << 45) + 1, false, false},
        {"a sum below minus the limit", -1, -(INT64_C(1) << 44), INT64_C(1) << 45, true, false},
    };

    for (size_t i = 0; i < DCPK_COUNT(cases); i++) {
        const struct dcpk_fixed shape = {1, 1, 44, cases[i].limit, 7};
        const uint64_t none = 0;
        int64_t *sum = ops_bytes_up(b, &cases[i].before, 8);
        uint64_t *bad = ops_bytes_up(b, &none, 8), got;
        const float *x = ops_up(b, DCPK_F32, &cases[i].x, 1);

        OP(to_fixed, &shape, x, sum, bad);
        ops_bytes_down(b, bad, &got, 8);
        CHECK(got == (cases[i].want ? DCPK_BAD_RECORD(7) : 0), cases[i].label);
        OP(zero, bad, 8);
        OP(find_bad, 1, 7, x, bad);
        ops_bytes_down(b, bad, &got, 8);
        CHECK(got == (cases[i].is_infinite ? DCPK_BAD_RECORD(7) : 0), cases[i].label);
    }
}

/* Of several bad elements the record has the first, in whatever order they are seen. */
static void first_bad_is_recorded(struct ops_bench *b)
{
    static const float x[] = {1, 2, INFINITY, 4, NAN, 6};
    const struct dcpk_fixed shape = {6, 6, 0, INT64_MAX, 100};
    int64_t *sums = ops_room(b, 6 * sizeof *sums);
    uint64_t *bad = ops_room(b, 8), got;
    const float *up = ops_up(b, DCPK_F32, x, 6);

    OP(zero, bad, 8);
    OP(zero, sums, 6 * sizeof *sums);
    OP(to_fixed, &shape, up, sums, bad);
    ops_bytes_down(b, bad, &got, 8);
    CHECK_EQ_INT(DCPK_BAD_NUMBER(got), 102, "the infinite one");
    OP(find_bad, 2, 0, up + 4, bad);
    ops_bytes_down(b, bad, &got, 8);
    CHECK_EQ_INT(DCPK_BAD_NUMBER(got), 0, "an earlier one");
}

/* ---- norms, initial weights ---- */

static void squares_are_sliced(struct ops_bench *b)
{
    const struct dcpk_matrix whole = {DCPK_F32, 3, 16}, part = {DCPK_F32, 3, 8};
    float *x = random_up(b, DCPK_F32, 18, 48), host[48];
    double *sums = ops_room(b, 12 * 8), *right = ops_room(b, 6 * 8), got[12], got_right[6];

    OP(sum_squares, &whole, 4, x, sums);
    OP(sum_squares, &part, 2, columns_of(b, &whole, x, 8, 8), right);
    ops_bytes_down(b, sums, got, sizeof got);
    ops_bytes_down(b, right, got_right, sizeof got_right);
    ops_bytes_down(b, x, host, sizeof host);
    for (int i = 0; i < 12; i++) {
        double want = 0;

        for (int j = 0; j < 4; j++)
            want += (double)host[4 * i + j] * (double)host[4 * i + j];
        CHECK(b->ops->device->is_host ? got[i] == want : fabs(got[i] - want) < 1e-14, "a slice");
    }
    for (int r = 0; r < 3; r++)
        CHECK(memcmp(got_right + 2 * r, got + 4 * r + 2, 16) == 0, "slices of a part");
}

static void normals_are_by_element(struct ops_bench *b)
{
    const struct dcpk_normal whole = {12345, 64, 63, 0, 0, 63, 0.5};
    const struct dcpk_normal part = {12345, 5, 7, 20, 31, 63, 0.5};
    const struct dcpk_normal other = {12346, 64, 63, 0, 0, 63, 0.5};
    const struct dcpk_matrix rows = {DCPK_F32, 5, 63};
    float *all = ops_room(b, 64 * 63 * 4), *some = ops_room(b, 64 * 63 * 4), x[64 * 63];
    double sum = 0, squares = 0, fourth = 0;

    OP(normal, &whole, all);
    OP(normal, &part, some);
    check_same(b, some, columns_of(b, &rows, all + 20 * 63, 31, 7), 5 * 7 * 4, "a part");
    ops_bytes_down(b, all, x, sizeof x);
    for (int i = 0; i < 64 * 63; i++) {
        sum += (double)x[i];
        squares += (double)x[i] * (double)x[i];
        fourth += pow((double)x[i], 4);
    }
    CHECK(fabs(sum / 4032) < 0.03, "mean 0");
    CHECK(fabs(squares / 4032 - 0.25) < 0.02, "variance");
    CHECK(fabs(fourth / 4032 / (3 * 0.0625) - 1) < 0.2, "fourth moment of a normal distribution");
    OP(normal, &other, some);
    ops_bytes_down(b, some, x, sizeof x);
    ops_bytes_down(b, all, &x[1], 4);
    CHECK(x[0] != x[1], "another key");
}

/* ---- the queue ---- */

static void faults_are_seen_by_wait(struct ops_bench *b)
{
    const struct dcpk_matmul shape = {DCPK_F32, DCPK_F32, 1, 1, 100000, 1, 1};
    float *x = ops_room(b, 400000), *out = ops_room(b, 4);
    struct dcpk_error err = DCPK_ERROR_INIT;

    if (!b->ops->device->is_host)
        return;
    dcpk_alloc_fail_nth(1);
    OP(matmul, &shape, x, x, out);
    dcpk_alloc_fail_nth(0);
    CHECK_EQ_INT(b->ops->wait(b->math, &err), DCPK_ENOMEM, "room for a product");
    CHECK_OK(b->ops->wait(b->math, &err), "once");
}

static const struct {
    void (*check)(struct ops_bench *);
    bool is_of_order; /* of devices whose sums have an order of their own */
} checks[] = {
    {products_are_sliced, true},     {halves_are_sliced, true},
    {products_are_cut, true},        {products_are_plain_sums, false},
    {nothing_gives_zeros, false},    {slices_are_a_tree, false},
    {attention_is_cut, true},        {attention_gradients_are_cut, true},
    {lanes_are_apart, false},        {embeddings_add_up, false},
    {ties_go_to_the_lower, false},   {slots_are_in_order, false},
    {losses_are_cut, false},         {results_are_rounded, false},
    {fixed_sums_are_exact, false},   {bad_numbers_are_seen, false},
    {first_bad_is_recorded, false},  {squares_are_sliced, false},
    {normals_are_by_element, false}, {faults_are_seen_by_wait, false},
};

static void devices_keep_the_rules(void **state)
{
    (void)state;
    for (size_t i = 0; dcpk_math_ops[i] != NULL; i++) {
        struct ops_bench b;

        if (!ops_open(&b, dcpk_math_ops[i]))
            continue;
        for (size_t c = 0; c < DCPK_COUNT(checks); c++) {
            if (b.ops->is_ordered || !checks[c].is_of_order)
                checks[c].check(&b);
            ops_clear(&b);
        }
        ops_close(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_keep_the_rules),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
