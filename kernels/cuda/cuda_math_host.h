/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_math_host.h - a GPU opened for mathematics: its kernels, and how calls queue them. */
#ifndef DCPK_KERNELS_CUDA_CUDA_MATH_HOST_H
#define DCPK_KERNELS_CUDA_CUDA_MATH_HOST_H

#include "kernels/cuda/cuda_host.h"
#include "kernels/cuda/cuda_priv.h"

/* The kernels: X(number without MATH_, name, module that has it). */
#define MATH_KERNELS(X)                                                                            \
    X(ADD, math_add, LAYERS)                                                                       \
    X(SCALE, math_scale, LAYERS)                                                                   \
    X(CAST, math_cast, LAYERS)                                                                     \
    X(ACCUMULATE, math_accumulate, LAYERS)                                                         \
    X(COPY_ROWS, math_copy_rows, LAYERS)                                                           \
    X(RMSNORM, math_rmsnorm, LAYERS)                                                               \
    X(RMSNORM_INPUT, math_rmsnorm_input, LAYERS)                                                   \
    X(RMSNORM_SCALES, math_rmsnorm_scales, LAYERS)                                                 \
    X(RMSNORM_WEIGHT, math_rmsnorm_weight, LAYERS)                                                 \
    X(ROPE, math_rope, LAYERS)                                                                     \
    X(SWIGLU, math_swiglu, LAYERS)                                                                 \
    X(SWIGLU_BACKWARD, math_swiglu_backward, LAYERS)                                               \
    X(EMBEDDING, math_embedding, LAYERS)                                                           \
    X(EMBEDDING_WEIGHT, math_embedding_weight, LAYERS)                                             \
    X(MULTIPLY, math_multiply, MATMUL)                                                             \
    X(ADD_SLICES, math_add_slices, MATMUL)                                                         \
    X(ATTENTION, math_attention, HEADS)                                                            \
    X(ATTENTION_QUERIES, math_attention_queries, HEADS)                                            \
    X(ATTENTION_KEYS, math_attention_keys, HEADS)                                                  \
    X(ROUTER, math_router, EXPERTS)                                                                \
    X(ROUTER_BACKWARD, math_router_backward, EXPERTS)                                              \
    X(GATHER_ROWS, math_gather_rows, EXPERTS)                                                      \
    X(COMBINE, math_combine, EXPERTS)                                                              \
    X(COMBINE_ROWS, math_combine_rows, EXPERTS)                                                    \
    X(COMBINE_PROBS, math_combine_probs, EXPERTS)                                                  \
    X(CROSS_ENTROPY_MAX, math_cross_entropy_max, OPTIM)                                            \
    X(CROSS_ENTROPY_SUMS, math_cross_entropy_sums, OPTIM)                                          \
    X(CROSS_ENTROPY_LABELS, math_cross_entropy_labels, OPTIM)                                      \
    X(CROSS_ENTROPY, math_cross_entropy, OPTIM)                                                    \
    X(CROSS_ENTROPY_BACKWARD, math_cross_entropy_backward, OPTIM)                                  \
    X(TO_FIXED, math_to_fixed, OPTIM)                                                              \
    X(FROM_FIXED, math_from_fixed, OPTIM)                                                          \
    X(FIND_BAD, math_find_bad, OPTIM)                                                              \
    X(SUM_SQUARES, math_sum_squares, OPTIM)                                                        \
    X(ADAM_TE, math_adam_te, OPTIM)                                                                \
    X(ADAM_TORCH, math_adam_torch, OPTIM)                                                          \
    X(SGD, math_sgd, OPTIM)                                                                        \
    X(NORMAL, math_normal, OPTIM)                                                                  \
    X(SOFTMAX, math_softmax, FAST)                                                                 \
    X(RMSNORM_PARTS, math_rmsnorm_parts, FAST)                                                     \
    X(ADD_PARTS, math_add_parts, FAST)

#define MATH_NUMBER(number, name, module) MATH_##number,
enum math_kernel { MATH_KERNELS(MATH_NUMBER) MATH_N_KERNELS };

enum math_module {
    MATH_LAYERS,
    MATH_MATMUL,
    MATH_HEADS,
    MATH_EXPERTS,
    MATH_OPTIM,
    MATH_FAST,
    MATH_N_MODULES
};

struct cuda_blas;

struct cuda_math {
    struct dcpk_math base;
    CUmodule modules[MATH_N_MODULES];
    CUfunction functions[MATH_N_KERNELS];
    void *room; /* of the device; grows */
    size_t room_bytes;
    struct cuda_blas *blas; /* of the row "cublas", else NULL */
};

/* cuda_math.c: load and unload the kernels. */
dcpk_status cuda_math_open(struct dcpk_math *math, struct dcpk_error *err);
void cuda_math_close(struct dcpk_math *math);

/* cuda_math.c. The GPU of the device. */
const struct cuda_device *cuda_math_device(const struct dcpk_math *math);
/* Room of the device until the next call for room; NULL, and the fault is kept. */
void *cuda_math_room(struct dcpk_math *math, int64_t n_bytes);
/* Queue a kernel: n_blocks of MATH_THREADS, fewer where they go round; none where it is 0. */
void cuda_math_launch(struct dcpk_math *math, enum math_kernel kernel, int64_t n_blocks,
                      void **arguments);
/* Queue a kernel, a thread an element of n. */
void cuda_math_each(struct dcpk_math *math, enum math_kernel kernel, int64_t n, void **arguments);
/* A struct as an argument of a kernel, which takes a copy of it. */
static inline void *cuda_math_value(const void *at)
{
    return (void *)(uintptr_t)at;
}
/* Queue MATH_MULTIPLY. */
void cuda_math_multiply(struct dcpk_math *math, struct math_product *product);

/* Members of dcpk_ops (DCPK_OPS_MAIN, lib/device/ops.h): copies, and work element by element
 * (cuda_math.c); layers (cuda_math_layers.c), losses and weights (cuda_math_optim.c). */
#define CUDA_OPS_PLAIN(X, prefix)                                                                  \
    X(copy, prefix)                                                                                \
    X(zero, prefix)                                                                                \
    X(wait, prefix)                                                                                \
    X(add, prefix)                                                                                 \
    X(scale, prefix)                                                                               \
    X(cast, prefix)                                                                                \
    X(accumulate, prefix)                                                                          \
    X(copy_rows, prefix)
CUDA_OPS_PLAIN(DCPK_OPS_DECLARE, cuda_math)
DCPK_OPS_MAIN(DCPK_OPS_DECLARE, cuda)
DCPK_OPS_OTHER(DCPK_OPS_DECLARE, cuda)

/* Members that all rows of GPUs have in common. */
#define CUDA_MATH_SHARED                                                                           \
    .device = &dcpk_cuda_device,                                                                   \
    CUDA_OPS_PLAIN(DCPK_OPS_ROW, cuda_math) DCPK_OPS_OTHER(DCPK_OPS_ROW, cuda)

#endif
