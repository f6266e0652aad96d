/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_priv.h - declarations for both the host code (C) and the kernels (CUDA C++) of this
 * folder. */
#ifndef DCPK_KERNELS_CUDA_CUDA_PRIV_H
#define DCPK_KERNELS_CUDA_CUDA_PRIV_H

#include <stdint.h>

#include "lib/device/ops.h"
#include "lib/device/tile.h"

#define CUDA_THREADS 256 /* of a block, in every kernel */

/* Arguments of every kernel, by value. */
struct cuda_tiles {
    const struct dcpk_tile *tiles;       /* in the device's memory */
    const struct dcpk_tile_words *words; /* likewise; not looked at without sums */
    unsigned long long *sums;
    uint32_t n;
    uint8_t elem_bytes[32]; /* by enum dcpk_dtype */
};

/* ---- mathematics ---- */

#define MATH_THREADS   128 /* of a block, in every kernel but those of products */
#define MATMUL_TILE    64  /* rows and columns of a product that a block computes */
#define MATMUL_DEPTH   16  /* of the contracted axis at a time */
#define MATMUL_THREADS 256
#define SOFTMAX_ROWS   4 /* of a block: a warp each */

/* One factor of a product: element (outer, i). */
struct math_factor {
    const void *at;
    int64_t n_outer;
    int32_t dtype;
    int32_t is_inner_first; /* [inner, outer] in memory, else [outer, inner] */
};

/* out[slice, r, c] = sum over i of a(r, i) b(c, i). */
struct math_product {
    struct math_factor a, b;
    void *out;
    int64_t n_inner, n_slices, n_parts;
    int32_t out_dtype;
};

/* Probabilities of the queries of one group, and the gradients of their scores, in fp32:
 * [per_group, rows, n_keys] each. */
struct math_attention_group {
    struct dcpk_attention shape;
    struct dcpk_attention_backward data;
    int64_t group;
    float *p, *ds;
};

/*
 * n rows of scores, a row of n_keys for each query: query i % n_rows of a block, which sees first +
 * i % n_rows + 1 keys. p = softmax of scale * s; with gradients dp of p, ds is that of the scores.
 */
struct math_scores {
    int64_t n, n_rows, n_keys, first;
    float scale;
    int32_t dtype;       /* of p and ds */
    const float *s, *dp; /* dp NULL: no gradients */
    void *p, *ds;
};

/* Factors of Adam as they are multiplied. */
struct math_adam {
    float beta1, rest1, beta2, rest2, epsilon, lr, decay, c1, c2;
};

#endif
