/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_memory.c - a GPU's memory: taken, lent to other processes by IPC handles, borrowed. */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "kernels/cuda/cuda_host.h"
#include "lib/base/alloc.h"

dcpk_status cuda_memory_info(struct dcpk_space *space, uint64_t *free_bytes, uint64_t *total_bytes,
                             struct dcpk_error *err)
{
    const int before = cuda_enter(space);
    size_t unused = 0, total = 0;
    const dcpk_status st =
        cuda_check(cudaMemGetInfo(&unused, &total), "asking for the GPU's memory", err);

    cuda_leave(before);
    *free_bytes = unused;
    *total_bytes = total;
    return st;
}

static cudaError_t memory_take(enum dcpk_memory_kind kind, size_t n_bytes, void **at)
{
    if (kind == DCPK_MEMORY_HOST)
        return cudaHostAlloc(at, n_bytes, cudaHostAllocPortable | cudaHostAllocMapped);
    return cudaMalloc(at, n_bytes);
}

static void memory_drop(struct cuda_memory *memory)
{
    if (memory->kind == DCPK_MEMORY_HOST)
        cudaFreeHost(memory->at);
    else
        cudaFree(memory->at);
    dcpk_free(memory);
}

dcpk_status cuda_memory_alloc(struct dcpk_space *space, enum dcpk_memory_kind kind, size_t n_bytes,
                              void **at, struct dcpk_error *err)
{
    struct cuda_space *s = (struct cuda_space *)space;
    struct cuda_memory *made = dcpk_alloc(sizeof *made, err);
    cudaError_t code;
    int before;

    if (made == NULL)
        return err->status;
    before = cuda_enter(space);
    code = memory_take(kind, n_bytes, &made->at);
    if (code == cudaErrorMemoryAllocation && kind == DCPK_MEMORY_DEVICE) {
        size_t unused = 0, total = 0;

        cudaGetLastError();
        cudaMemGetInfo(&unused, &total);
        dcpk_fail(err, DCPK_ENOMEM, "GPU %d is out of memory: %zu bytes asked, %zu of %zu are free",
                  space->ordinal, n_bytes, unused, total);
    } else {
        cuda_check(code, "taking memory", err);
    }
    cuda_leave(before);
    if (code != cudaSuccess) {
        dcpk_free(made);
        return err->status;
    }
    made->kind = kind;
    made->next = s->own;
    s->own = made;
    *at = made->at;
    return DCPK_OK;
}

void cuda_memory_free(struct dcpk_space *space, void *at)
{
    struct cuda_space *s = (struct cuda_space *)space;
    struct cuda_memory **link = &s->own, *memory;
    int before;

    if (at == NULL)
        return;
    while (*link != NULL && (*link)->at != at)
        link = &(*link)->next;
    assert(*link != NULL);
    memory = *link;
    *link = memory->next;
    before = cuda_enter(space);
    memory_drop(memory);
    cuda_leave(before);
}

void cuda_memory_release(struct cuda_space *space)
{
    for (struct cuda_memory *memory = space->own, *next; memory != NULL; memory = next) {
        next = memory->next;
        memory_drop(memory);
    }
    space->own = NULL;
}

/*
 * The allocation around `at`, by the driver's own number for it: addresses come back after a free.
 */
static dcpk_status memory_describe(const struct cuda_space *s, CUdeviceptr at,
                                   struct dcpk_memory_id *id, struct dcpk_error *err)
{
    unsigned long long generation = 0;
    CUdeviceptr base = 0;
    size_t n_bytes = 0;

    if (s->driver.range(&base, &n_bytes, at) != CUDA_SUCCESS ||
        s->driver.attribute(&generation, CU_POINTER_ATTRIBUTE_BUFFER_ID, at) != CUDA_SUCCESS)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "%#" PRIx64 " is no memory of GPU %d",
                         (uint64_t)at, s->base.ordinal);
    *id = (struct dcpk_memory_id){.base = base, .n_bytes = n_bytes, .generation = generation};
    dcpk_memory_id_sign(id);
    return DCPK_OK;
}

static dcpk_status memory_handle(struct dcpk_memory_id *id, struct dcpk_error *err)
{
    cudaIpcMemHandle_t handle;
    const cudaError_t code = cudaIpcGetMemHandle(&handle, (void *)(uintptr_t)id->base);

    static_assert(sizeof handle <= sizeof id->handle, "an IPC handle fits");
    cudaGetLastError();
    if (code != cudaSuccess)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "memory at %#" PRIx64 " cannot be shared with other processes: %s; memory "
                         "of cudaMalloc can, that of torch's expandable segments and of pools "
                         "cannot",
                         id->base, cudaGetErrorString(code));
    memcpy(id->handle, &handle, sizeof handle);
    return DCPK_OK;
}

dcpk_status cuda_memory_export(struct dcpk_space *space, const void *at, size_t n_bytes,
                               struct dcpk_memory_id *id, struct dcpk_error *err)
{
    const struct cuda_space *s = (const struct cuda_space *)space;
    const CUdeviceptr address = (CUdeviceptr)(uintptr_t)at;
    const int before = cuda_enter(space);
    dcpk_status st = memory_describe(s, address, id, err);

    if (st == DCPK_OK && n_bytes > id->base + id->n_bytes - address)
        st = dcpk_fail(err, DCPK_EUNSUPPORTED,
                       "%zu bytes at %#" PRIx64 " go past the end of their allocation", n_bytes,
                       (uint64_t)address);
    if (st == DCPK_OK)
        st = memory_handle(id, err);
    cuda_leave(before);
    return st;
}

/* Memory of another GPU of this process: by its own address, once the peer lets us. */
static dcpk_status peer_enable(const struct dcpk_space *space, const struct dcpk_memory_id *id,
                               struct dcpk_error *err)
{
    struct cudaPointerAttributes memory;
    cudaError_t code;

    if (cuda_check(cudaPointerGetAttributes(&memory, (void *)(uintptr_t)id->base),
                   "asking where memory is", err))
        return err->status;
    if (memory.type != cudaMemoryTypeDevice || memory.device == space->ordinal)
        return DCPK_OK;
    code = cudaDeviceEnablePeerAccess(memory.device, 0);
    cudaGetLastError();
    if (code == cudaSuccess || code == cudaErrorPeerAccessAlreadyEnabled)
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EUNSUPPORTED, "GPU %d cannot reach the memory of GPU %d: %s",
                     space->ordinal, memory.device, cudaGetErrorString(code));
}

static dcpk_status memory_map(const struct dcpk_memory_id *id, void **at, struct dcpk_error *err)
{
    cudaIpcMemHandle_t handle;
    cudaError_t code;

    memcpy(&handle, id->handle, sizeof handle);
    code = cudaIpcOpenMemHandle(at, handle, cudaIpcMemLazyEnablePeerAccess);
    cudaGetLastError();
    if (code == cudaErrorMemoryAllocation)
        return cuda_check(code, "mapping a peer's memory", err);
    if (code != cudaSuccess)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "memory of process %" PRIu64 " has no way here: %s", id->process,
                         cudaGetErrorString(code));
    return DCPK_OK;
}

void cuda_memory_unmap(const struct dcpk_import *import)
{
    cudaIpcCloseMemHandle(import->at);
    cudaGetLastError();
}

dcpk_status cuda_memory_import(struct dcpk_space *space, const struct dcpk_memory_id *id, void **at,
                               struct dcpk_error *err)
{
    struct cuda_space *s = (struct cuda_space *)space;
    const int before = cuda_enter(space);
    dcpk_status st;

    if (dcpk_memory_id_is_own(id)) {
        st = peer_enable(space, id, err);
        if (st == DCPK_OK)
            *at = (void *)(uintptr_t)id->base;
    } else {
        st = dcpk_imports_get(&s->imports, id, memory_map, at, err);
    }
    cuda_leave(before);
    return st;
}
