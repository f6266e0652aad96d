/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_ops.h - what the files of the processor's mathematics share: cpu_ops.c has the table. */
/*
 * The specification of all devices: each element of a result is one sum in one order, in fp32,
 * whose products and additions are rounded one by one (the build switches contraction off). Vectors
 * run over elements of results, never over a sum; so the width of vectors changes no bit. Work is
 * done before a call returns.
 */
#ifndef DCPK_KERNELS_CPU_CPU_OPS_H
#define DCPK_KERNELS_CPU_CPU_OPS_H

#include "lib/device/ops.h"

struct cpu_math {
    struct dcpk_math base;
    float *scratch; /* grows */
    size_t n_scratch;
    struct dcpk_error failed; /* of the first call that failed; for the next wait */
};

#define CPU_ALIGNMENT 256 /* bytes, of memory */

/* cpu_values.c: */
/* Room for n floats, undefined, until the next call for room; NULL, and the fault is kept for
 * wait. */
float *cpu_scratch(struct dcpk_math *math, int64_t n);

/* n elements from `first` on to fp32, and back, rounded. */
void cpu_load(enum dcpk_dtype dtype, const void *from, int64_t first, int64_t n, float *x);
void cpu_store(enum dcpk_dtype dtype, const float *x, int64_t n, void *to, int64_t first);

/* The address of element `first`. */
const void *cpu_at(enum dcpk_dtype dtype, const void *base, int64_t first);

/* The hooks of dcpk_ops, by file. cpu_matmul.c: */
void cpu_matmul(struct dcpk_math *math, const struct dcpk_matmul *shape, const void *x,
                const void *w, void *out);
void cpu_matmul_input(struct dcpk_math *math, const struct dcpk_matmul *shape, const void *dy,
                      const void *w, void *out);
void cpu_matmul_weight(struct dcpk_math *math, const struct dcpk_matmul *shape, const void *dy,
                       const void *x, float *dw);
void cpu_add_slices(struct dcpk_math *math, const struct dcpk_matrix *shape, int64_t n_slices,
                    const float *partials, void *out);

/* cpu_layers.c: */
void cpu_rmsnorm(struct dcpk_math *math, const struct dcpk_rmsnorm *shape, const void *x,
                 const void *w, void *y);
void cpu_rmsnorm_input(struct dcpk_math *math, const struct dcpk_rmsnorm *shape, const void *x,
                       const void *w, const void *dy, void *dx);
void cpu_rmsnorm_weight(struct dcpk_math *math, const struct dcpk_rmsnorm *shape, const void *x,
                        const void *dy, float *dw);
void cpu_rope(struct dcpk_math *math, const struct dcpk_rope *shape, const float *table,
              const void *x, void *y);
void cpu_rope_backward(struct dcpk_math *math, const struct dcpk_rope *shape, const float *table,
                       const void *dy, void *dx);
void cpu_swiglu(struct dcpk_math *math, const struct dcpk_matrix *shape, const void *x, void *y);
void cpu_swiglu_backward(struct dcpk_math *math, const struct dcpk_matrix *shape, const void *x,
                         const void *dy, void *dx);
void cpu_embedding(struct dcpk_math *math, const struct dcpk_embedding *shape,
                   const int32_t *tokens, const void *w, void *y);
void cpu_embedding_weight(struct dcpk_math *math, const struct dcpk_embedding *shape,
                          const int32_t *tokens, const void *dy, float *dw);

/* cpu_attention.c: */
void cpu_attention(struct dcpk_math *math, const struct dcpk_attention *shape, const void *q,
                   const void *k, const void *v, void *out);
void cpu_attention_backward(struct dcpk_math *math, const struct dcpk_attention *shape,
                            const struct dcpk_attention_backward *data);

/* cpu_experts.c: */
void cpu_router(struct dcpk_math *math, const struct dcpk_router *shape, const float *logits,
                const float *bias, int32_t *chosen, float *probs);
void cpu_router_backward(struct dcpk_math *math, const struct dcpk_router *shape,
                         const float *logits, const int32_t *chosen, const float *d_probs,
                         float *d_logits);
void cpu_gather_rows(struct dcpk_math *math, const struct dcpk_matrix *shape, const int32_t *index,
                     const void *x, void *y);
void cpu_combine(struct dcpk_math *math, const struct dcpk_combine *shape, const int32_t *place,
                 const float *probs, const void *y, void *out);
void cpu_combine_rows(struct dcpk_math *math, const struct dcpk_combine *shape,
                      const int32_t *place, const float *probs, const void *d_out, void *dy);
void cpu_combine_probs(struct dcpk_math *math, const struct dcpk_combine *shape,
                       const int32_t *place, const void *y, const void *d_out, float *d_probs);

/* cpu_loss.c: */
void cpu_cross_entropy_max(struct dcpk_math *math, const struct dcpk_cross_entropy *shape,
                           const void *logits, float *max);
void cpu_cross_entropy_sums(struct dcpk_math *math, const struct dcpk_cross_entropy *shape,
                            const void *logits, const float *max, float *sums);
void cpu_cross_entropy_labels(struct dcpk_math *math, const struct dcpk_cross_entropy *shape,
                              const void *logits, const int32_t *labels, float *label_logits);
void cpu_cross_entropy(struct dcpk_math *math, int64_t n, const float *max, const float *sum,
                       const float *label_logits, float *losses);
void cpu_cross_entropy_backward(struct dcpk_math *math, const struct dcpk_cross_entropy *shape,
                                const struct dcpk_cross_entropy_backward *data);

/* cpu_optim.c: */
void cpu_to_fixed(struct dcpk_math *math, const struct dcpk_fixed *shape, const float *x,
                  int64_t *sums, uint64_t *bad);
void cpu_from_fixed(struct dcpk_math *math, int64_t n, double factor, const int64_t *sums,
                    float *x);
void cpu_find_bad(struct dcpk_math *math, int64_t n, int64_t first, const float *x, uint64_t *bad);
void cpu_sum_squares(struct dcpk_math *math, const struct dcpk_matrix *shape, int64_t n_slices,
                     const float *x, double *sums);
void cpu_adam(struct dcpk_math *math, const struct dcpk_adam *adam,
              const struct dcpk_optimizer_state *state);
void cpu_sgd(struct dcpk_math *math, const struct dcpk_sgd *sgd,
             const struct dcpk_optimizer_state *state);
void cpu_normal(struct dcpk_math *math, const struct dcpk_normal *shape, float *x);

#endif
