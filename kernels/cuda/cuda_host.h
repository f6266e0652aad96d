/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_host.h - what the host code of this folder shares: the opened GPU, its errors. */
#ifndef DCPK_KERNELS_CUDA_CUDA_HOST_H
#define DCPK_KERNELS_CUDA_CUDA_HOST_H

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdint.h>

#include "lib/device/device_space.h"
#include "lib/device/imports.h"

/* Tickets of a queue that can be told apart; an older one is done when the next is. */
#define CUDA_TICKETS 16

/* Functions of the driver that the runtime does not have; found in it, not linked. */
struct cuda_driver {
    CUresult (*range)(CUdeviceptr *base, size_t *n_bytes, CUdeviceptr at);
    CUresult (*attribute)(void *data, CUpointer_attribute which, CUdeviceptr at);
};

struct cuda_queue {
    cudaStream_t stream;
    cudaEvent_t events[CUDA_TICKETS];
    uint64_t n_tickets; /* given out so far; ticket i is event i % CUDA_TICKETS */
};

struct cuda_memory {
    struct cuda_memory *next;
    void *at;
    enum dcpk_memory_kind kind;
};

struct cuda_space {
    struct dcpk_space base;
    struct cuda_driver driver;
    struct cuda_queue queues[DCPK_N_QUEUES];
    struct cuda_memory *own; /* the latest first */
    struct dcpk_imports imports;
    unsigned n_blocks; /* of launches that reach peers */
};

/* Make the space's device the thread's; returns the one that was, for cuda_leave. */
int cuda_enter(const struct dcpk_space *space);
void cuda_leave(int device);

/* DCPK_OK, or what the runtime's code comes to (DCPK_ENOMEM, DCPK_EIO): "<doing>: <its reason>". */
dcpk_status cuda_check(cudaError_t code, const char *doing, struct dcpk_error *err);

/* The hooks of dcpk_space_ops, by file: cuda_memory.c, cuda_table.c. */
dcpk_status cuda_memory_info(struct dcpk_space *space, uint64_t *free_bytes, uint64_t *total_bytes,
                             struct dcpk_error *err);
dcpk_status cuda_memory_alloc(struct dcpk_space *space, enum dcpk_memory_kind kind, size_t n_bytes,
                              void **at, struct dcpk_error *err);
void cuda_memory_free(struct dcpk_space *space, void *at);
dcpk_status cuda_memory_export(struct dcpk_space *space, const void *at, size_t n_bytes,
                               struct dcpk_memory_id *id, struct dcpk_error *err);
dcpk_status cuda_memory_import(struct dcpk_space *space, const struct dcpk_memory_id *id, void **at,
                               struct dcpk_error *err);
void cuda_memory_unmap(const struct dcpk_import *import);
void cuda_memory_release(struct cuda_space *space); /* all of `own` */

dcpk_status cuda_table_load(struct dcpk_space *space, const struct dcpk_tiles *tiles,
                            struct dcpk_table **table, struct dcpk_error *err);
void cuda_table_unload(struct dcpk_space *space, struct dcpk_table *table);
dcpk_status cuda_table_run(struct dcpk_space *space, int queue, const struct dcpk_table *table,
                           uint64_t *sums, struct dcpk_error *err);

#endif
