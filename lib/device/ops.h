/* SPDX-License-Identifier: Apache-2.0 */
/* ops.h - the mathematics of a training step on one device: matrix products, layers of a GPT with
 * their gradients, optimizers. A new device is a folder in kernels/ and one row in kernels.c. */
/*
 * Why a result has the same bits under every layout of ranks
 * - A sum of one element of a result has an order of its own, which no other element, no number of
 *   rows, no thread and no block changes.
 * - A contraction that tensor parallelism cuts is computed as n equal *slices* of the whole, each
 *   a sum of its own in fp32. A rank computes the slices of its part; ranks gather all of them, and
 *   add_slices adds them as a binary tree:
 *
 *       slice    0   1   2   3   4   5   6   7
 *                 \ /     \ /     \ /     \ /
 *                  +       +       +       +         rank 0 of 2 computes 0 to 3,
 *                    \   /           \   /           rank 1 computes 4 to 7
 *                      +               +
 *                          \       /
 *                              +  --> one rounding to the dtype
 *
 * - Gradients of weights are those of one *leaf* (some tokens of one sample), in fp32, rows
 *   ascending; leaves are added as integers (to_fixed), in any order.
 *
 * Numbers: activations and weights are F32, BF16 or F16. All arithmetic is in fp32, a
 * multiplication and an addition each rounded; what is stored is rounded once, to nearest, ties to
 * even. Devices agree within a tolerance, one device with itself to the bit.
 */
#ifndef DCPK_LIB_DEVICE_OPS_H
#define DCPK_LIB_DEVICE_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/device/device.h"
#include "lib/tensor/dtype.h"

/* rows x columns, row-major. In all shapes below, sizes may be 0 where no comment excludes it. */
struct dcpk_matrix {
    enum dcpk_dtype dtype;
    int64_t rows, columns;
};

/* The columns of rows that lie `stride` elements apart. */
struct dcpk_strided_rows {
    enum dcpk_dtype dtype;
    int64_t rows, columns;
    int64_t from_stride, to_stride; /* elements, at least `columns` */
};

/*
 * A product whose result has rows x columns. `inner` is the contracted axis, or what this rank has
 * of it. It is cut into n_slices equal slices; n_slices 1: not cut.
 * n_parts 2: `inner` is two halves (gate and up), and slice s is the s-th piece of the first half,
 * then that of the second:
 *
 *     inner:   g0 g1 g2 g3 u0 u1 u2 u3      4 slices: (g0 u0) (g1 u1) (g2 u2) (g3 u3)
 */
#define DCPK_MAX_SLICES 64 /* of any product, all ranks together */
struct dcpk_matmul {
    enum dcpk_dtype dtype; /* of both factors */
    enum dcpk_dtype out;   /* F32: [n_slices, rows, columns]; dtype: n_slices is 1, rounded once */
    int64_t rows, columns, inner;
    /* At least 1; their product divides inner. n_parts 2 goes into F32: a half is not rounded. */
    int64_t n_slices, n_parts;
};

/* columns: at least 1. lanes: row r belongs to lane r % lanes (q and k norms: a head is a lane, for
 * gradients that tensor parallelism does not change; else 1); it divides rows. */
struct dcpk_rmsnorm {
    enum dcpk_dtype dtype;
    int64_t rows, columns, lanes;
    float epsilon;
};

/* [rows, heads, head_dim]; head_dim is even. */
struct dcpk_rope {
    enum dcpk_dtype dtype;
    int64_t rows, heads, head_dim;
};

/*
 * Queries [first, first + rows) of one sample over keys [0, n_keys), n_keys at least first + rows.
 * Query i sees keys 0 .. i. Heads: query head g * per_group + j uses the key head g.
 *
 *     q, out: [rows, groups, per_group, head_dim]       k, v: [n_keys, groups, head_dim]
 */
struct dcpk_attention {
    enum dcpk_dtype dtype;
    int64_t rows, first, n_keys;
    int64_t groups, per_group, head_dim;
    float scale; /* 1 / sqrt(head_dim) */
};

/* Borrowed. d_k and d_v: fp32, the parts of these queries for every key; rows ascending within a
 * head, heads of a group ascending. Those of several blocks of queries are added by `accumulate`,
 * blocks ascending, in any process. */
struct dcpk_attention_backward {
    const void *q, *k, *v, *d_out;
    void *d_q;
    float *d_k, *d_v; /* overwritten; [n_keys, groups, head_dim] */
};

/* This rank's rows [first, first + vocab_rows) of the vocabulary, of `columns` elements each. */
struct dcpk_embedding {
    enum dcpk_dtype dtype;
    int64_t n_tokens, columns;
    int64_t first, vocab_rows;
};

/* How probabilities come from logits. Source: megatron/core/transformer/moe/moe_utils.py
 * @core_v0.19.0, topk_routing_with_score_function. */
enum dcpk_router_score {
    DCPK_SOFTMAX_OF_TOPK, /* choose by logit; softmax over the chosen ones */
    DCPK_TOPK_OF_SOFTMAX, /* --moe-router-pre-softmax: softmax over all, then choose */
    DCPK_TOPK_OF_SIGMOID, /* with an expert bias: choose by sigmoid + bias; topk > 1: sigmoids of
                             what was chosen are divided by their sum + 1e-20 */
};

struct dcpk_router {
    enum dcpk_router_score score;
    int64_t rows, experts, topk; /* 1 <= topk <= experts */
};

/* A token's results of its `topk` experts, added up in the order of slots. */
struct dcpk_combine {
    enum dcpk_dtype dtype;
    int64_t rows, columns, topk;
};

/* Logits [rows, columns] of this rank's columns [first, first + columns) of the vocabulary. */
struct dcpk_cross_entropy {
    enum dcpk_dtype dtype;
    int64_t rows, columns, first;
    int64_t n_slices; /* equal ones of `columns` */
};

/* Borrowed. max, sum: one a row, of the whole vocabulary. factor: one a row, what the gradient of
 * the row's loss is multiplied by; 0 for a masked token. d_logits may be logits. */
struct dcpk_cross_entropy_backward {
    const void *logits;
    const int32_t *labels;
    const float *max, *sum, *factor;
    void *d_logits;
};

/*
 * Sums of fp32 numbers that no order changes: integers whose unit is 2^-lsb. Element i of n is
 * added to sum i % period: `period` n has a sum for each element, 1 one for all.
 * limit: sums stay below it in magnitude; INT64_MAX / ranks, where ranks add theirs afterwards.
 * first: the number of element 0 among those that share a record of bad ones.
 */
struct dcpk_fixed {
    int64_t n, period; /* at least 1 */
    int lsb;
    int64_t limit;
    int64_t first;
};

/* The record of bad elements: 0, as zeroed, while there is none; the first one's is the largest. */
#define DCPK_BAD_RECORD(number) (UINT64_MAX - (uint64_t)(number))
#define DCPK_BAD_NUMBER(record) ((int64_t)(UINT64_MAX - (record)))

/*
 * TE:    m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g g;  u = (m/c1) / (sqrt(v/c2) + eps) + wd p;
 *        p = p - lr u
 * torch: p = p (1 - lr wd);  m = m + (g - m) (1-b1);  v = b2 v + (1-b2) g g;
 *        p = p - (lr/c1) (m / (sqrt(v)/sqrt(c2) + eps))
 * c_i = 1 - b_i^t, by the caller in double; all factors are rounded to fp32 once.
 * Sources: transformer_engine/common/multi_tensor/adam.cu @v2.8, ADAM_MODE_1; torch/optim/adam.py
 * @v2.11.0, _single_tensor_adam.
 */
struct dcpk_adam {
    bool is_torch_form;
    double lr, beta1, beta2, epsilon, weight_decay;
    double c1, c2;
};

/* torch's: g = g + wd p; m = momentum m + g; p = p - lr m. Momentum 0: m is NULL, p = p - lr g. */
struct dcpk_sgd {
    double lr, momentum, weight_decay;
};

/* n elements each, fp32. Borrowed. */
struct dcpk_optimizer_state {
    int64_t n;
    float *param, *first, *second; /* exp_avg, exp_avg_sq; sgd: the momentum is `first` */
    const float *grad;
};

/*
 * Normal numbers of the part [first_row, +rows) x [first_column, +columns) of a tensor of
 * whole_columns columns: element e, numbered row-major in the whole tensor, has the e % 2-th number
 * of block e / 2 of the key's stream (lib/device/philox.h), on any rank.
 */
struct dcpk_normal {
    uint64_t key;
    int64_t rows, columns, first_row, first_column, whole_columns;
    double std;
};

/* The mathematics of an opened device, which owns it. A device's own fields follow it. */
struct dcpk_math {
    const struct dcpk_ops *ops;
    struct dcpk_device *device;
    struct dcpk_error failed; /* of the first call that failed; for the next wait */
};

/*
 * Work is done in order, in queue 0 of the device. Memory named in a call is the device's
 * (DCPK_MEMORY_PRIVATE), unless a comment allows the host's, and stays untouched by others until
 * wait. Queued work has no status: what fails in it is reported by the next wait, and what was
 * queued after it leaves undefined results. Shapes, and structs of pointers, are read before a call
 * returns. Results do not overlap what is read, unless a comment allows it.
 */
struct dcpk_ops {
    const char *name, *summary;
    const struct dcpk_device_ops *device; /* what it computes on */
    /* Sums have orders of their own, as above. Else they have any: the same call gives the same
     * bits, and another layout of ranks others. */
    bool is_ordered;

    /* Called by open and close of the device, the latter also after an open that failed. NULL:
     * there is nothing to do. Errors of open: DCPK_EUNSUPPORTED with the reason, DCPK_ENOMEM. */
    dcpk_status (*open)(struct dcpk_math *math, struct dcpk_error *err);
    void (*close)(struct dcpk_math *math);
    /* Queued. Either side is the device's memory or the host's. */
    void (*copy)(struct dcpk_math *math, void *to, const void *from, size_t n_bytes);
    void (*zero)(struct dcpk_math *math, void *at, size_t n_bytes);
    /* Waits until all queued work is done. Errors: of the queued work, once. */
    dcpk_status (*wait)(struct dcpk_math *math, struct dcpk_error *err);

    /* Element by element. out may be a or b, y of cast x where dtypes are equal. */
    void (*add)(struct dcpk_math *math, enum dcpk_dtype dtype, int64_t n, const void *a,
                const void *b, void *out);
    void (*scale)(struct dcpk_math *math, enum dcpk_dtype dtype, int64_t n, float factor, void *x);
    void (*cast)(struct dcpk_math *math, enum dcpk_dtype from, enum dcpk_dtype to, int64_t n,
                 const void *x, void *y);
    /* sum = sum + x, rounded to the sum's dtype. */
    void (*accumulate)(struct dcpk_math *math, enum dcpk_dtype dtype, int64_t n, const float *x,
                       void *sum);
    /* Also what splits and joins columns: q, k, v of interleaved rows; halves. */
    void (*copy_rows)(struct dcpk_math *math, const struct dcpk_strided_rows *shape,
                      const void *from, void *to);

    /* out = x w^T: x [rows, inner], w [columns, inner]. */
    void (*matmul)(struct dcpk_math *math, const struct dcpk_matmul *shape, const void *x,
                   const void *w, void *out);
    /* out = dy w: dy [rows, inner], w [inner, columns]. The gradient of an input. */
    void (*matmul_input)(struct dcpk_math *math, const struct dcpk_matmul *shape, const void *dy,
                         const void *w, void *out);
    /* dw = dy^T x: dy [inner, rows], x [inner, columns], dw [rows, columns] in fp32. The gradient
     * of a weight, by the tokens of one leaf (`inner`), which are added ascending. */
    void (*matmul_weight)(struct dcpk_math *math, const struct dcpk_matmul *shape, const void *dy,
                          const void *x, float *dw);
    /* partials [n_slices, rows * columns] in fp32, all of them, into out of shape->dtype. */
    void (*add_slices)(struct dcpk_math *math, const struct dcpk_matrix *shape, int64_t n_slices,
                       const float *partials, void *out);

    /* y = x / sqrt(mean(x^2) + epsilon) * w. */
    void (*rmsnorm)(struct dcpk_math *math, const struct dcpk_rmsnorm *shape, const void *x,
                    const void *w, void *y);
    /* dx may be dy. */
    void (*rmsnorm_input)(struct dcpk_math *math, const struct dcpk_rmsnorm *shape, const void *x,
                          const void *w, const void *dy, void *dx);
    /* dw [lanes, columns], by the rows of one leaf, added ascending. */
    void (*rmsnorm_weight)(struct dcpk_math *math, const struct dcpk_rmsnorm *shape, const void *x,
                           const void *dy, float *dw);

    /* y = x cos + (-x2, x1) sin with the halves x1, x2 of a head. table: cosines, then sines, each
     * [rows, head_dim / 2] (dcpk_rope_table). y may be x. */
    void (*rope)(struct dcpk_math *math, const struct dcpk_rope *shape, const float *table,
                 const void *x, void *y);
    /* dx may be dy. */
    void (*rope_backward)(struct dcpk_math *math, const struct dcpk_rope *shape, const float *table,
                          const void *dy, void *dx);

    void (*attention)(struct dcpk_math *math, const struct dcpk_attention *shape, const void *q,
                      const void *k, const void *v, void *out);
    void (*attention_backward)(struct dcpk_math *math, const struct dcpk_attention *shape,
                               const struct dcpk_attention_backward *data);

    /* x [rows, 2 columns] is gate, then up; y [rows, columns] = gate sigmoid(gate) up. */
    void (*swiglu)(struct dcpk_math *math, const struct dcpk_matrix *shape, const void *x, void *y);
    /* dx may be x. */
    void (*swiglu_backward)(struct dcpk_math *math, const struct dcpk_matrix *shape, const void *x,
                            const void *dy, void *dx);

    /* Rows of w; zeros for a token that another rank has: the sum over ranks is exact. */
    void (*embedding)(struct dcpk_math *math, const struct dcpk_embedding *shape,
                      const int32_t *tokens, const void *w, void *y);
    /* Adds to dw [vocab_rows, columns], tokens ascending. For few rows, number the tokens again. */
    void (*embedding_weight)(struct dcpk_math *math, const struct dcpk_embedding *shape,
                             const int32_t *tokens, const void *dy, float *dw);

    /* logits [rows, experts]; bias [experts] with DCPK_TOPK_OF_SIGMOID, else NULL. chosen, probs
     * [rows, topk]: the highest first, of equal ones the lower expert first. */
    void (*router)(struct dcpk_math *math, const struct dcpk_router *shape, const float *logits,
                   const float *bias, int32_t *chosen, float *probs);
    void (*router_backward)(struct dcpk_math *math, const struct dcpk_router *shape,
                            const float *logits, const int32_t *chosen, const float *d_probs,
                            float *d_logits);
    /* y[r] = x[index[r]] for `rows` rows. */
    void (*gather_rows)(struct dcpk_math *math, const struct dcpk_matrix *shape,
                        const int32_t *index, const void *x, void *y);
    /* out[r] = sum over slots t of probs[r, t] y[place[r, t]]. probs NULL: without factors, the
     * gradient of gather_rows. */
    void (*combine)(struct dcpk_math *math, const struct dcpk_combine *shape, const int32_t *place,
                    const float *probs, const void *y, void *out);
    /* dy[place[r, t]] = probs[r, t] d_out[r]; places differ. */
    void (*combine_rows)(struct dcpk_math *math, const struct dcpk_combine *shape,
                         const int32_t *place, const float *probs, const void *d_out, void *dy);
    /* d_probs[r, t] = sum over columns of y[place[r, t]] d_out[r]. */
    void (*combine_probs)(struct dcpk_math *math, const struct dcpk_combine *shape,
                          const int32_t *place, const void *y, const void *d_out, float *d_probs);

    /*
     * The loss of a row is log(sum of exp(logit - max)) + max - logit of its label. Each rank has
     * some columns; between the calls ranks take the maximum, gather slices and add the labels'
     * logits:
     *   cross_entropy_max -> max over ranks -> cross_entropy_sums -> gather, add_slices (F32)
     *   cross_entropy_labels -> sum over ranks (one is not 0) -> cross_entropy
     */
    void (*cross_entropy_max)(struct dcpk_math *math, const struct dcpk_cross_entropy *shape,
                              const void *logits, float *max);
    /* sums [n_slices, rows]. */
    void (*cross_entropy_sums)(struct dcpk_math *math, const struct dcpk_cross_entropy *shape,
                               const void *logits, const float *max, float *sums);
    /* 0 for a label that another rank has. */
    void (*cross_entropy_labels)(struct dcpk_math *math, const struct dcpk_cross_entropy *shape,
                                 const void *logits, const int32_t *labels, float *label_logits);
    /* n rows. losses may be label_logits. */
    void (*cross_entropy)(struct dcpk_math *math, int64_t n, const float *max, const float *sum,
                          const float *label_logits, float *losses);
    void (*cross_entropy_backward)(struct dcpk_math *math, const struct dcpk_cross_entropy *shape,
                                   const struct dcpk_cross_entropy_backward *data);

    /* sums += rint(x * 2^lsb). *bad becomes the larger one of itself and the record of the first x
     * that is not finite, or whose sum would reach the limit; their sums are undefined. */
    void (*to_fixed)(struct dcpk_math *math, const struct dcpk_fixed *shape, const float *x,
                     int64_t *sums, uint64_t *bad);
    /* x = sums * factor, in double, rounded once. factor: 2^-lsb and what the sum is scaled by. */
    void (*from_fixed)(struct dcpk_math *math, int64_t n, double factor, const int64_t *sums,
                       float *x);
    /* The same of an x that is not finite. first: the number of x[0]. */
    void (*find_bad)(struct dcpk_math *math, int64_t n, int64_t first, const float *x,
                     uint64_t *bad);
    /* sums [rows, n_slices] of squares in double: of equal slices of the columns of each row, in
     * the order of columns. shape: F32. */
    void (*sum_squares)(struct dcpk_math *math, const struct dcpk_matrix *shape, int64_t n_slices,
                        const float *x, double *sums);
    void (*adam)(struct dcpk_math *math, const struct dcpk_adam *adam,
                 const struct dcpk_optimizer_state *state);
    void (*sgd)(struct dcpk_math *math, const struct dcpk_sgd *sgd,
                const struct dcpk_optimizer_state *state);
    /* x [rows, columns], rounded once. */
    void (*normal)(struct dcpk_math *math, const struct dcpk_normal *shape, float *x);
};

/*
 * Members of dcpk_ops that compute, for headers and tables of those that implement them:
 * X(member, prefix) for each. MAIN: what a library of a vendor may replace; OTHER: the rest of
 * layers, losses, gradients and weights.
 */
#define DCPK_OPS_MAIN(X, prefix)                                                                   \
    X(matmul, prefix)                                                                              \
    X(matmul_input, prefix)                                                                        \
    X(matmul_weight, prefix)                                                                       \
    X(rmsnorm_weight, prefix)                                                                      \
    X(attention, prefix)                                                                           \
    X(attention_backward, prefix)
#define DCPK_OPS_OTHER(X, prefix)                                                                  \
    X(add_slices, prefix)                                                                          \
    X(rmsnorm, prefix)                                                                             \
    X(rmsnorm_input, prefix)                                                                       \
    X(rope, prefix)                                                                                \
    X(rope_backward, prefix)                                                                       \
    X(swiglu, prefix)                                                                              \
    X(swiglu_backward, prefix)                                                                     \
    X(embedding, prefix)                                                                           \
    X(embedding_weight, prefix)                                                                    \
    X(router, prefix)                                                                              \
    X(router_backward, prefix)                                                                     \
    X(gather_rows, prefix)                                                                         \
    X(combine, prefix)                                                                             \
    X(combine_rows, prefix)                                                                        \
    X(combine_probs, prefix)                                                                       \
    X(cross_entropy_max, prefix)                                                                   \
    X(cross_entropy_sums, prefix)                                                                  \
    X(cross_entropy_labels, prefix)                                                                \
    X(cross_entropy, prefix)                                                                       \
    X(cross_entropy_backward, prefix)                                                              \
    X(to_fixed, prefix)                                                                            \
    X(from_fixed, prefix)                                                                          \
    X(find_bad, prefix)                                                                            \
    X(sum_squares, prefix)                                                                         \
    X(adam, prefix)                                                                                \
    X(sgd, prefix)                                                                                 \
    X(normal, prefix)
/* The prototype of a function called prefix_member, and its place in a table. */
#define DCPK_OPS_DECLARE(member, prefix)                                                           \
    __typeof__(*((struct dcpk_ops *)NULL)->member) prefix##_##member;
#define DCPK_OPS_ROW(member, prefix) .member = prefix##_##member,

/* Open device `ordinal` with this mathematics. *math is set on success only; close its device.
 * Errors: those of dcpk_device_ops.open. */
dcpk_status dcpk_math_open(const struct dcpk_ops *ops, int ordinal, struct dcpk_math **math,
                           struct dcpk_error *err);

/* For those that implement it: keeps the first fault for the next wait; returns it, once. */
void dcpk_math_fault(struct dcpk_math *math, const struct dcpk_error *fault);
dcpk_status dcpk_math_take_fault(struct dcpk_math *math, struct dcpk_error *err);

/* Copy n_bytes once all that is queued is done, and wait. Errors: as of wait. */
static inline dcpk_status dcpk_math_copy(struct dcpk_math *math, void *to, const void *from,
                                         size_t n_bytes, struct dcpk_error *err)
{
    math->ops->copy(math, to, from, n_bytes);
    return math->ops->wait(math, err);
}

/*
 * The table of rope for positions [first, first + rows): cosines, then sines, [rows, head_dim / 2]
 * each, rounded to dtype, into the host's memory. Angles as Megatron makes them, in fp32: position
 * times base^(-2j / head_dim). Source: megatron/core/models/common/embeddings/
 * rotary_pos_embedding.py @core_v0.19.0.
 */
void dcpk_rope_table(const struct dcpk_rope *shape, int64_t first, double base, float *table);

#endif
