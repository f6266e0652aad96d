/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_host.h - what the host code of this folder shares: the opened GPU. */
#ifndef DCPK_KERNELS_CUDA_CUDA_HOST_H
#define DCPK_KERNELS_CUDA_CUDA_HOST_H

#include <stdint.h>

#include "kernels/cuda/cuda_driver.h"
#include "lib/device/device.h"

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

#endif
