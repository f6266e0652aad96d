/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_math_host.h - a GPU opened for mathematics: its kernels, and how calls queue them. */
#ifndef DCPK_KERNELS_CUDA_CUDA_MATH_HOST_H
#define DCPK_KERNELS_CUDA_CUDA_MATH_HOST_H

#include "kernels/cuda/cuda_host.h"
#include "kernels/cuda/cuda_math.h"

enum math_kernel {
    MATH_ADD,
    MATH_SCALE,
    MATH_CAST,
    MATH_ACCUMULATE,
    MATH_COPY_ROWS,
    MATH_RMSNORM,
    MATH_RMSNORM_INPUT,
    MATH_RMSNORM_SCALES,
    MATH_RMSNORM_WEIGHT,
    MATH_ROPE,
    MATH_SWIGLU,
    MATH_SWIGLU_BACKWARD,
    MATH_EMBEDDING,
    MATH_EMBEDDING_WEIGHT,
    MATH_MULTIPLY,
    MATH_ADD_SLICES,
    MATH_ATTENTION,
    MATH_ATTENTION_QUERIES,
    MATH_ATTENTION_KEYS,
    MATH_ROUTER,
    MATH_ROUTER_BACKWARD,
    MATH_GATHER_ROWS,
    MATH_COMBINE,
    MATH_COMBINE_ROWS,
    MATH_COMBINE_PROBS,
    MATH_CROSS_ENTROPY_MAX,
    MATH_CROSS_ENTROPY_SUMS,
    MATH_CROSS_ENTROPY_LABELS,
    MATH_CROSS_ENTROPY,
    MATH_CROSS_ENTROPY_BACKWARD,
    MATH_TO_FIXED,
    MATH_FROM_FIXED,
    MATH_FIND_BAD,
    MATH_SUM_SQUARES,
    MATH_ADAM_TE,
    MATH_ADAM_TORCH,
    MATH_SGD,
    MATH_NORMAL,
    MATH_SOFTMAX,
    MATH_RMSNORM_PARTS,
    MATH_ADD_PARTS,
    MATH_N_KERNELS,
};

enum math_module {
    MATH_LAYERS,
    MATH_MATMUL,
    MATH_HEADS,
    MATH_EXPERTS,
    MATH_OPTIM,
    MATH_FAST,
    MATH_N_MODULES
};

/* The GPU's, kept for the next one who asks for as much. */
struct math_memory {
    void *at;
    size_t n_bytes;
    bool is_free;
};

struct cuda_blas;

struct cuda_math {
    struct dcpk_math base;
    struct dcpk_space *space; /* owned; its queue 0 is the stream of all work */
    CUmodule modules[MATH_N_MODULES];
    CUfunction functions[MATH_N_KERNELS];
    void *room; /* of the device; grows */
    size_t room_bytes;
    struct math_memory *memory;
    size_t n_memory, memory_capacity;
    struct cuda_blas *blas;   /* of the row "cublas", else NULL */
    struct dcpk_error failed; /* of the first call that failed; for the next wait */
};

/* cuda_math_kernels.c: load them into the thread's context. */
dcpk_status cuda_math_load(struct cuda_math *m, struct dcpk_error *err);
void cuda_math_unload(struct cuda_math *m);

/* cuda_math.c. The GPU of the device. */
const struct cuda_space *cuda_math_space(const struct dcpk_math *math);
/* Keep the first fault for the next wait. */
void cuda_math_fault(struct dcpk_math *math, const struct dcpk_error *err);
/* Room of the device until the next call for room; NULL, and the fault is kept. */
void *cuda_math_room(struct dcpk_math *math, int64_t n_bytes);
/* Queue a kernel: n_blocks of MATH_THREADS, fewer where they go round; none where it is 0. */
void cuda_math_launch(struct dcpk_math *math, enum math_kernel kernel, int64_t n_blocks,
                      void **arguments);
/* Queue a kernel, a thread an element of n. */
void cuda_math_each(struct dcpk_math *math, enum math_kernel kernel, int64_t n, void **arguments);
/* Queue MATH_MULTIPLY. */
void cuda_math_multiply(struct dcpk_math *math, struct math_product *product);

/* Hooks of dcpk_ops: memory, and what works element by element. */
dcpk_status cuda_math_alloc(struct dcpk_math *math, size_t n_bytes, void **at,
                            struct dcpk_error *err);
void cuda_math_free(struct dcpk_math *math, void *at);
dcpk_status cuda_math_alloc_host(struct dcpk_math *math, size_t n_bytes, void **at,
                                 struct dcpk_error *err);
void cuda_math_free_host(struct dcpk_math *math, void *at);
dcpk_status cuda_math_lock_host(struct dcpk_math *math, void *at, size_t n_bytes,
                                struct dcpk_error *err);
void cuda_math_unlock_host(struct dcpk_math *math, void *at);
void cuda_math_copy(struct dcpk_math *math, void *to, const void *from, size_t n_bytes);
void cuda_math_zero(struct dcpk_math *math, void *at, size_t n_bytes);
dcpk_status cuda_math_wait(struct dcpk_math *math, struct dcpk_error *err);
void cuda_math_add(struct dcpk_math *math, enum dcpk_dtype dtype, int64_t n, const void *a,
                   const void *b, void *out);
void cuda_math_scale(struct dcpk_math *math, enum dcpk_dtype dtype, int64_t n, float factor,
                     void *x);
void cuda_math_cast(struct dcpk_math *math, enum dcpk_dtype from, enum dcpk_dtype to, int64_t n,
                    const void *x, void *y);
void cuda_math_accumulate(struct dcpk_math *math, enum dcpk_dtype dtype, int64_t n, const float *x,
                          void *sum);
void cuda_math_copy_rows(struct dcpk_math *math, const struct dcpk_strided_rows *shape,
                         const void *from, void *to);

/* The hooks of dcpk_ops that work on losses, gradients and weights: cuda_math_optim.c. */
void cuda_cross_entropy_max(struct dcpk_math *math, const struct dcpk_cross_entropy *shape,
                            const void *logits, float *max);
void cuda_cross_entropy_sums(struct dcpk_math *math, const struct dcpk_cross_entropy *shape,
                             const void *logits, const float *max, float *sums);
void cuda_cross_entropy_labels(struct dcpk_math *math, const struct dcpk_cross_entropy *shape,
                               const void *logits, const int32_t *labels, float *label_logits);
void cuda_cross_entropy(struct dcpk_math *math, int64_t n, const float *max, const float *sum,
                        const float *label_logits, float *losses);
void cuda_cross_entropy_backward(struct dcpk_math *math, const struct dcpk_cross_entropy *shape,
                                 const struct dcpk_cross_entropy_backward *data);
void cuda_to_fixed(struct dcpk_math *math, const struct dcpk_fixed *shape, const float *x,
                   int64_t *sums, uint64_t *bad);
void cuda_from_fixed(struct dcpk_math *math, int64_t n, double factor, const int64_t *sums,
                     float *x);
void cuda_find_bad(struct dcpk_math *math, int64_t n, int64_t first, const float *x, uint64_t *bad);
void cuda_sum_squares(struct dcpk_math *math, const struct dcpk_matrix *shape, int64_t n_slices,
                      const float *x, double *sums);
void cuda_adam(struct dcpk_math *math, const struct dcpk_adam *adam,
               const struct dcpk_optimizer_state *state);
void cuda_sgd(struct dcpk_math *math, const struct dcpk_sgd *sgd,
              const struct dcpk_optimizer_state *state);
void cuda_normal(struct dcpk_math *math, const struct dcpk_normal *shape, float *x);

/* Functions of layers: cuda_math_layers.c. */
void cuda_matmul(struct dcpk_math *math, const struct dcpk_matmul *shape, const void *x,
                 const void *w, void *out);
void cuda_matmul_input(struct dcpk_math *math, const struct dcpk_matmul *shape, const void *dy,
                       const void *w, void *out);
void cuda_matmul_weight(struct dcpk_math *math, const struct dcpk_matmul *shape, const void *dy,
                        const void *x, float *dw);
void cuda_add_slices(struct dcpk_math *math, const struct dcpk_matrix *shape, int64_t n_slices,
                     const float *partials, void *out);
void cuda_rmsnorm(struct dcpk_math *math, const struct dcpk_rmsnorm *shape, const void *x,
                  const void *w, void *y);
void cuda_rmsnorm_input(struct dcpk_math *math, const struct dcpk_rmsnorm *shape, const void *x,
                        const void *w, const void *dy, void *dx);
void cuda_rmsnorm_weight(struct dcpk_math *math, const struct dcpk_rmsnorm *shape, const void *x,
                         const void *dy, float *dw);
void cuda_rope(struct dcpk_math *math, const struct dcpk_rope *shape, const float *table,
               const void *x, void *y);
void cuda_rope_backward(struct dcpk_math *math, const struct dcpk_rope *shape, const float *table,
                        const void *dy, void *dx);
void cuda_attention(struct dcpk_math *math, const struct dcpk_attention *shape, const void *q,
                    const void *k, const void *v, void *out);
void cuda_attention_backward(struct dcpk_math *math, const struct dcpk_attention *shape,
                             const struct dcpk_attention_backward *data);
void cuda_swiglu(struct dcpk_math *math, const struct dcpk_matrix *shape, const void *x, void *y);
void cuda_swiglu_backward(struct dcpk_math *math, const struct dcpk_matrix *shape, const void *x,
                          const void *dy, void *dx);
void cuda_embedding(struct dcpk_math *math, const struct dcpk_embedding *shape,
                    const int32_t *tokens, const void *w, void *y);
void cuda_embedding_weight(struct dcpk_math *math, const struct dcpk_embedding *shape,
                           const int32_t *tokens, const void *dy, float *dw);
void cuda_router(struct dcpk_math *math, const struct dcpk_router *shape, const float *logits,
                 const float *bias, int32_t *chosen, float *probs);
void cuda_router_backward(struct dcpk_math *math, const struct dcpk_router *shape,
                          const float *logits, const int32_t *chosen, const float *d_probs,
                          float *d_logits);
void cuda_gather_rows(struct dcpk_math *math, const struct dcpk_matrix *shape, const int32_t *index,
                      const void *x, void *y);
void cuda_combine(struct dcpk_math *math, const struct dcpk_combine *shape, const int32_t *place,
                  const float *probs, const void *y, void *out);
void cuda_combine_rows(struct dcpk_math *math, const struct dcpk_combine *shape,
                       const int32_t *place, const float *probs, const void *d_out, void *dy);
void cuda_combine_probs(struct dcpk_math *math, const struct dcpk_combine *shape,
                        const int32_t *place, const void *y, const void *d_out, float *d_probs);

/* Members that all rows of GPUs have in common. */
#define CUDA_MATH_SHARED                                                                           \
    .alloc = cuda_math_alloc, .free = cuda_math_free, .alloc_host = cuda_math_alloc_host,          \
    .free_host = cuda_math_free_host, .lock_host = cuda_math_lock_host,                            \
    .unlock_host = cuda_math_unlock_host, .copy = cuda_math_copy, .zero = cuda_math_zero,          \
    .wait = cuda_math_wait, .add = cuda_math_add, .scale = cuda_math_scale,                        \
    .cast = cuda_math_cast, .accumulate = cuda_math_accumulate, .copy_rows = cuda_math_copy_rows,  \
    .add_slices = cuda_add_slices, .rmsnorm = cuda_rmsnorm, .rmsnorm_input = cuda_rmsnorm_input,   \
    .rope = cuda_rope, .rope_backward = cuda_rope_backward, .swiglu = cuda_swiglu,                 \
    .swiglu_backward = cuda_swiglu_backward, .embedding = cuda_embedding,                          \
    .embedding_weight = cuda_embedding_weight, .router = cuda_router,                              \
    .router_backward = cuda_router_backward, .gather_rows = cuda_gather_rows,                      \
    .combine = cuda_combine, .combine_rows = cuda_combine_rows,                                    \
    .combine_probs = cuda_combine_probs, .cross_entropy_max = cuda_cross_entropy_max,              \
    .cross_entropy_sums = cuda_cross_entropy_sums,                                                 \
    .cross_entropy_labels = cuda_cross_entropy_labels, .cross_entropy = cuda_cross_entropy,        \
    .cross_entropy_backward = cuda_cross_entropy_backward, .to_fixed = cuda_to_fixed,              \
    .from_fixed = cuda_from_fixed, .find_bad = cuda_find_bad, .sum_squares = cuda_sum_squares,     \
    .adam = cuda_adam, .sgd = cuda_sgd, .normal = cuda_normal

#endif
