/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_memory.c - a GPU's memory: taken, lent to other processes by IPC handles, borrowed. */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "kernels/cuda/cuda_math_host.h"
#include "lib/base/alloc.h"

dcpk_status cuda_memory_info(struct dcpk_device *device, uint64_t *free_bytes,
                             uint64_t *total_bytes, struct dcpk_error *err)
{
    const struct cuda_device *s = (const struct cuda_device *)device;
    size_t unused = 0, total = 0;
    CUresult code;

    dcpk_cuda_enter(&s->driver, s->context);
    code = s->driver.memory_info(&unused, &total);
    dcpk_cuda_leave(&s->driver);
    *free_bytes = unused;
    *total_bytes = total;
    return dcpk_cuda_check(&s->driver, code, "asking for the GPU's memory", err);
}

/* In the thread's context, as memory_drop. */
static CUresult memory_take(const struct cuda_device *s, struct cuda_memory *memory)
{
    CUdeviceptr device = 0;
    void *host = NULL;
    CUresult code;

    if (memory->kind == DCPK_MEMORY_HOST)
        code = s->driver.host_alloc(&host, memory->n_bytes, CU_MEMHOSTALLOC_PORTABLE);
    else
        code = s->driver.memory_alloc(&device, memory->n_bytes);
    memory->at = memory->kind == DCPK_MEMORY_HOST ? (uint64_t)(uintptr_t)host : (uint64_t)device;
    return code;
}

static void memory_drop(const struct cuda_device *s, struct cuda_memory *memory)
{
    if (memory->kind == DCPK_MEMORY_HOST)
        s->driver.host_free((void *)(uintptr_t)memory->at);
    else
        s->driver.memory_free((CUdeviceptr)memory->at);
    dcpk_free(memory);
}

static dcpk_status memory_missing(const struct cuda_device *s, size_t n_bytes,
                                  struct dcpk_error *err)
{
    size_t unused = 0, total = 0;

    s->driver.memory_info(&unused, &total);
    return dcpk_fail(err, DCPK_ENOMEM,
                     "GPU %d is out of memory: %zu bytes asked, %zu of %zu are free",
                     s->base.ordinal, n_bytes, unused, total);
}

/* Gives the GPU what is kept of freed memory, once no queued work uses it. In the thread's context.
 * A fault of the stream shows at the next wait again. */
static void memory_shrink(struct cuda_device *s)
{
    s->driver.stream_wait(s->queues[0].stream);
    for (struct cuda_memory **link = &s->own, *memory; (memory = *link) != NULL;)
        if (memory->is_free) {
            *link = memory->next;
            memory_drop(s, memory);
        } else {
            link = &memory->next;
        }
}

/* Private memory of that size, or a little more, that was freed; NULL: none. */
static struct cuda_memory *memory_find(const struct cuda_device *s, size_t n_bytes)
{
    struct cuda_memory *best = NULL;

    for (struct cuda_memory *one = s->own; one != NULL; one = one->next)
        if (one->is_free && one->n_bytes >= n_bytes && one->n_bytes - n_bytes <= n_bytes / 8 &&
            (best == NULL || one->n_bytes < best->n_bytes))
            best = one;
    return best;
}

static struct cuda_memory *memory_new(struct cuda_device *s, enum dcpk_memory_kind kind,
                                      size_t n_bytes, struct dcpk_error *err)
{
    struct cuda_memory *made = dcpk_alloc(sizeof *made, err);
    CUresult code;

    if (made == NULL)
        return NULL;
    made->kind = kind;
    made->n_bytes = n_bytes;
    dcpk_cuda_enter(&s->driver, s->context);
    code = memory_take(s, made);
    if (code == CUDA_ERROR_OUT_OF_MEMORY && kind != DCPK_MEMORY_HOST) {
        memory_shrink(s);
        code = memory_take(s, made);
    }
    if (code == CUDA_ERROR_OUT_OF_MEMORY && kind != DCPK_MEMORY_HOST)
        memory_missing(s, n_bytes, err);
    else
        dcpk_cuda_check(&s->driver, code, "taking memory", err);
    dcpk_cuda_leave(&s->driver);
    if (code != CUDA_SUCCESS) {
        dcpk_free(made);
        return NULL;
    }
    made->next = s->own;
    s->own = made;
    return made;
}

/* To take memory from the GPU, and to give it back, waits for all of its work: private memory,
 * which a step of training takes and frees often, is kept. */
dcpk_status cuda_memory_alloc(struct dcpk_device *device, enum dcpk_memory_kind kind,
                              size_t n_bytes, void **at, struct dcpk_error *err)
{
    struct cuda_device *s = (struct cuda_device *)device;
    struct cuda_memory *memory = NULL;

    if (kind == DCPK_MEMORY_PRIVATE)
        memory = memory_find(s, n_bytes);
    if (memory == NULL)
        memory = memory_new(s, kind, n_bytes, err);
    if (memory == NULL)
        return err->status;
    memory->is_free = false;
    *at = (void *)(uintptr_t)memory->at;
    return DCPK_OK;
}

void cuda_memory_free(struct dcpk_device *device, void *at)
{
    struct cuda_device *s = (struct cuda_device *)device;
    struct cuda_memory **link = &s->own, *memory;

    if (at == NULL)
        return;
    while (*link != NULL && (*link)->at != (uint64_t)(uintptr_t)at)
        link = &(*link)->next;
    assert(*link != NULL && !(*link)->is_free);
    memory = *link;
    if (memory->kind == DCPK_MEMORY_PRIVATE) {
        memory->is_free = true;
        return;
    }
    *link = memory->next;
    dcpk_cuda_enter(&s->driver, s->context);
    memory_drop(s, memory);
    dcpk_cuda_leave(&s->driver);
}

/* The GPU reaches it by itself; any other the driver copies through memory of its own. */
dcpk_status cuda_memory_lock(struct dcpk_device *device, void *at, size_t n_bytes,
                             struct dcpk_error *err)
{
    const struct cuda_device *s = (const struct cuda_device *)device;
    CUresult code;

    dcpk_cuda_enter(&s->driver, s->context);
    code = s->driver.host_register(at, n_bytes, CU_MEMHOSTREGISTER_PORTABLE);
    dcpk_cuda_leave(&s->driver);
    return dcpk_cuda_check(&s->driver, code, "page-locking memory", err);
}

void cuda_memory_unlock(struct dcpk_device *device, void *at)
{
    const struct cuda_device *s = (const struct cuda_device *)device;

    dcpk_cuda_enter(&s->driver, s->context);
    s->driver.stream_wait(s->queues[0].stream);
    s->driver.host_unregister(at);
    dcpk_cuda_leave(&s->driver);
}

void cuda_memory_release(struct cuda_device *s)
{
    for (struct cuda_memory *memory = s->own, *next; memory != NULL; memory = next) {
        next = memory->next;
        memory_drop(s, memory);
    }
    s->own = NULL;
}

/*
 * The allocation around `at`, by the driver's own number for it: addresses come back after a free.
 */
static dcpk_status memory_describe(const struct cuda_device *s, CUdeviceptr at,
                                   struct dcpk_memory_id *id, struct dcpk_error *err)
{
    unsigned long long generation = 0;
    CUdeviceptr base = 0;
    size_t n_bytes = 0;

    if (s->driver.memory_range(&base, &n_bytes, at) != CUDA_SUCCESS ||
        s->driver.pointer_attribute(&generation, CU_POINTER_ATTRIBUTE_BUFFER_ID, at) !=
            CUDA_SUCCESS)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "%#" PRIx64 " is not memory of GPU %d",
                         (uint64_t)at, s->base.ordinal);
    *id = (struct dcpk_memory_id){.base = base, .n_bytes = n_bytes, .generation = generation};
    dcpk_memory_id_sign(id);
    return DCPK_OK;
}

static dcpk_status memory_handle(const struct cuda_device *s, struct dcpk_memory_id *id,
                                 struct dcpk_error *err)
{
    CUipcMemHandle handle;
    const CUresult code = s->driver.handle_get(&handle, id->base);

    static_assert(sizeof handle <= sizeof id->handle, "an IPC handle fits");
    if (code != CUDA_SUCCESS)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "memory at %#" PRIx64 " cannot be shared with other processes: %s; what "
                         "cudaMalloc gives can, torch's expandable segments and pools cannot",
                         id->base, dcpk_cuda_reason(&s->driver, code));
    memcpy(id->handle, &handle, sizeof handle);
    return DCPK_OK;
}

static dcpk_status memory_export(const struct cuda_device *s, CUdeviceptr at, size_t n_bytes,
                                 struct dcpk_memory_id *id, struct dcpk_error *err)
{
    if (memory_describe(s, at, id, err))
        return err->status;
    if (n_bytes > id->base + id->n_bytes - at)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "%zu bytes at %#" PRIx64 " go past the end of their allocation", n_bytes,
                         (uint64_t)at);
    return memory_handle(s, id, err);
}

dcpk_status cuda_memory_export(struct dcpk_device *device, const void *at, size_t n_bytes,
                               struct dcpk_memory_id *id, struct dcpk_error *err)
{
    const struct cuda_device *s = (const struct cuda_device *)device;
    dcpk_status st;

    dcpk_cuda_enter(&s->driver, s->context);
    st = memory_export(s, (CUdeviceptr)(uintptr_t)at, n_bytes, id, err);
    dcpk_cuda_leave(&s->driver);
    return st;
}

/* Memory of another GPU of this process: by its own address, once the peer lets us. */
static dcpk_status peer_enable(const struct cuda_device *s, const struct dcpk_memory_id *id,
                               struct dcpk_error *err)
{
    CUcontext owner = NULL;
    CUresult code = s->driver.pointer_attribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, id->base);

    if (dcpk_cuda_check(&s->driver, code, "asking where memory is", err))
        return err->status;
    if (owner == s->context)
        return DCPK_OK;
    code = s->driver.peer_enable(owner, 0);
    if (code == CUDA_SUCCESS || code == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EUNSUPPORTED, "GPU %d cannot reach another one's memory: %s",
                     s->base.ordinal, dcpk_cuda_reason(&s->driver, code));
}

dcpk_status cuda_memory_import(struct dcpk_device *device, const struct dcpk_memory_id *id,
                               void **at, struct dcpk_error *err)
{
    struct cuda_device *s = (struct cuda_device *)device;
    dcpk_status st;

    dcpk_cuda_enter(&s->driver, s->context);
    if (dcpk_memory_id_is_own(id)) {
        st = peer_enable(s, id, err);
        if (st == DCPK_OK)
            *at = (void *)(uintptr_t)id->base;
    } else {
        st = dcpk_imports_get(&s->imports, id, at, err);
    }
    dcpk_cuda_leave(&s->driver);
    return st;
}
