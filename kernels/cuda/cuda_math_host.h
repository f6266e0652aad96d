/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_math_host.h - a GPU opened for mathematics: its kernels, and how calls queue them. */
#ifndef DCPK_KERNELS_CUDA_CUDA_MATH_HOST_H
#define DCPK_KERNELS_CUDA_CUDA_MATH_HOST_H

#include <stdint.h>

#include "kernels/cuda/cuda_driver.h"
#include "kernels/cuda/cuda_priv.h"
#include "lib/device/device.h"

/* ---- devices ---- */

/* The file `path` as data of this program, with 16 bytes' alignment. */
#define CUDA_IMAGE(name, path)                                                                     \
    __asm__(".pushsection .rodata\n"                                                               \
            ".balign 16\n"                                                                         \
            ".hidden " #name "\n"                                                                  \
            ".global " #name "\n" #name ":\n"                                                      \
            ".incbin \"" path "\"\n"                                                               \
            ".popsection\n");                                                                      \
    extern const unsigned char name[]

/* Tickets of a queue that can be distinguished; an older one is done when the next is. */
#define CUDA_TICKETS 16

/* The kernels that move a tile. All tiles of one kind and size are one launch. */
enum cuda_kind {
    CUDA_MOVE_WHOLE, /* addresses, strides and rows in 16-byte units on both sides */
    CUDA_MOVE_ODD,   /* any other copy */
    CUDA_CAST_F32_BF16,
    CUDA_CAST_F32_F16,
    CUDA_CAST_BF16_F32,
    CUDA_CAST_F16_F32,
    CUDA_CAST_F32_E4M3,
    CUDA_CAST_BF16_E4M3,
    CUDA_CAST_F32_E5M2,
    CUDA_CAST_BF16_E5M2,
    CUDA_CAST_ANY, /* the rare pairs: through f64, in integers */
    CUDA_READ,     /* for the fingerprint alone: nothing is stored */
    CUDA_N_KINDS,
};

/* A large tile is a block's work, a small one a warp's. */
enum cuda_size { CUDA_BLOCK, CUDA_WARP, CUDA_N_SIZES };

/* The machine code of this folder's .cu files, loaded into a context. */
struct cuda_kernels {
    CUmodule modules[3];
    CUfunction functions[CUDA_N_KINDS][CUDA_N_SIZES][2]; /* without sums, with them */
};

struct cuda_queue {
    CUstream stream;
    CUevent events[CUDA_TICKETS];
    uint64_t n_tickets; /* given out so far; ticket i is event i % CUDA_TICKETS */
};

struct cuda_memory {
    struct cuda_memory *next;
    uint64_t at;
    size_t n_bytes;
    enum dcpk_memory_kind kind;
    bool is_free; /* DCPK_MEMORY_PRIVATE, kept for the next one who asks for as much */
};

struct cuda_device {
    struct dcpk_device base;
    struct cuda_driver driver;
    CUdevice device;
    CUcontext context; /* the device's primary one */
    unsigned n_multiprocessors;
    unsigned max_blocks[3]; /* of a launch, by enum dcpk_pace */
    struct cuda_kernels kernels;
    struct cuda_queue queues[DCPK_N_QUEUES];
    CUevent *marks; /* of queue 0 */
    size_t n_marks, marks_capacity;
    struct cuda_memory *own; /* the latest first */
    struct dcpk_imports imports;
};

/* cuda_kernels.c. Load them into the thread's context. */
dcpk_status cuda_kernels_load(struct cuda_device *s, struct dcpk_error *err);
/* In the thread's context; also after a failed load. */
void cuda_kernels_unload(struct cuda_device *s);

/* The hooks of dcpk_device_ops, by file: cuda_memory.c, cuda_table.c. */
dcpk_status cuda_memory_info(struct dcpk_device *device, uint64_t *free_bytes,
                             uint64_t *total_bytes, struct dcpk_error *err);
dcpk_status cuda_memory_alloc(struct dcpk_device *device, enum dcpk_memory_kind kind,
                              size_t n_bytes, void **at, struct dcpk_error *err);
void cuda_memory_free(struct dcpk_device *device, void *at);
dcpk_status cuda_memory_lock(struct dcpk_device *device, void *at, size_t n_bytes,
                             struct dcpk_error *err);
void cuda_memory_unlock(struct dcpk_device *device, void *at);
dcpk_status cuda_memory_export(struct dcpk_device *device, const void *at, size_t n_bytes,
                               struct dcpk_memory_id *id, struct dcpk_error *err);
dcpk_status cuda_memory_import(struct dcpk_device *device, const struct dcpk_memory_id *id,
                               void **at, struct dcpk_error *err);
void cuda_memory_release(struct cuda_device *s); /* all own memory, in the thread's context */

dcpk_status cuda_table_load(struct dcpk_device *device, const struct dcpk_tiles *tiles,
                            struct dcpk_table **table, struct dcpk_error *err);
void cuda_table_unload(struct dcpk_device *device, struct dcpk_table *table);
dcpk_status cuda_table_run(struct dcpk_device *device, int queue, const struct dcpk_table *table,
                           uint64_t *sums, struct dcpk_error *err);

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
 * (cuda_math.c); layers (cuda_math_layers.c), losses and weights (cuda_math_layers.c). */
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
