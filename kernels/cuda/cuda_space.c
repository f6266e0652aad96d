/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_space.c - a GPU opened as a space: streams as queues, events as tickets. */
#include "kernels/cuda/cuda.h"

#include <assert.h>
#include <string.h>

#include "kernels/cuda/cuda_host.h"
#include "lib/base/alloc.h"

int cuda_enter(const struct dcpk_space *space)
{
    int before = space->ordinal;

    cudaGetDevice(&before);
    if (before != space->ordinal)
        cudaSetDevice(space->ordinal);
    return before;
}

void cuda_leave(int device)
{
    int now = device;

    cudaGetDevice(&now);
    if (now != device)
        cudaSetDevice(device);
}

dcpk_status cuda_check(cudaError_t code, const char *doing, struct dcpk_error *err)
{
    if (code == cudaSuccess)
        return DCPK_OK;
    cudaGetLastError(); /* the next call would report it again */
    return dcpk_fail(err, code == cudaErrorMemoryAllocation ? DCPK_ENOMEM : DCPK_EIO, "%s: %s (%s)",
                     doing, cudaGetErrorString(code), cudaGetErrorName(code));
}

/* Why no GPU can be had at all, or DCPK_OK. */
static dcpk_status driver_check(int ordinal, struct dcpk_error *err)
{
    int driver = 0, n_devices = 0;
    const cudaError_t code = cudaGetDeviceCount(&n_devices);

    cudaGetLastError();
    cudaDriverGetVersion(&driver);
    if (code == cudaErrorInsufficientDriver && driver != 0)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "the driver knows CUDA up to %d.%d, this build needs %d.%d", driver / 1000,
                         driver % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    if (code == cudaErrorInsufficientDriver)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "this machine has no driver for NVIDIA GPUs");
    if (code != cudaSuccess)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "no GPU: %s (%s)", cudaGetErrorString(code),
                         cudaGetErrorName(code));
    if (ordinal < 0 || ordinal >= n_devices)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "there is no GPU %d, only %d from 0 on", ordinal,
                         n_devices);
    return DCPK_OK;
}

/* The kernels are built for a list of processors, and for what comes after the last. */
static dcpk_status kernels_check(const struct cudaDeviceProp *device, struct dcpk_error *err)
{
    if (device->major >= 8)
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EUNSUPPORTED,
                     "%s has compute capability %d.%d, this build needs 8.0 or more", device->name,
                     device->major, device->minor);
}

static dcpk_status driver_find(struct cuda_driver *driver, struct dcpk_error *err)
{
    enum cudaDriverEntryPointQueryResult found;
    void *range = NULL, *attribute = NULL;

    if (cuda_check(cudaGetDriverEntryPointByVersion("cuMemGetAddressRange", &range, 12000,
                                                    cudaEnableDefault, &found),
                   "asking the driver for cuMemGetAddressRange", err) ||
        cuda_check(cudaGetDriverEntryPointByVersion("cuPointerGetAttribute", &attribute, 12000,
                                                    cudaEnableDefault, &found),
                   "asking the driver for cuPointerGetAttribute", err))
        return err->status;
    if (range == NULL || attribute == NULL)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "the driver lacks cuMemGetAddressRange");
    memcpy(&driver->range, &range, sizeof range);
    memcpy(&driver->attribute, &attribute, sizeof attribute);
    return DCPK_OK;
}

static void queue_close(struct cuda_queue *queue)
{
    for (size_t i = 0; i < CUDA_TICKETS; i++)
        if (queue->events[i] != NULL)
            cudaEventDestroy(queue->events[i]);
    if (queue->stream != NULL)
        cudaStreamDestroy(queue->stream);
}

static dcpk_status queue_open(struct cuda_queue *queue, struct dcpk_error *err)
{
    if (cuda_check(cudaStreamCreateWithFlags(&queue->stream, cudaStreamNonBlocking),
                   "making a stream", err))
        return err->status;
    for (size_t i = 0; i < CUDA_TICKETS; i++)
        if (cuda_check(cudaEventCreateWithFlags(&queue->events[i], cudaEventDisableTiming),
                       "making an event", err))
            return err->status;
    return DCPK_OK;
}

/* Releases what a space has; its device is the thread's. */
static void space_release(struct cuda_space *s)
{
    for (int i = 0; i < DCPK_N_QUEUES; i++)
        if (s->queues[i].stream != NULL)
            cudaStreamSynchronize(s->queues[i].stream);
    dcpk_imports_release(&s->imports);
    cuda_memory_release(s);
    for (int i = 0; i < DCPK_N_QUEUES; i++)
        queue_close(&s->queues[i]);
    dcpk_free(s);
}

static dcpk_status space_fill(struct cuda_space *s, const struct dcpk_space_options *options,
                              struct dcpk_error *err)
{
    struct cudaDeviceProp device;

    if (cuda_check(cudaGetDeviceProperties(&device, options->ordinal), "asking for the GPU", err) ||
        kernels_check(&device, err) || driver_find(&s->driver, err))
        return err->status;
    s->imports.unmap = cuda_memory_unmap;
    /* A block a multiprocessor fills a link of an H200: 365 of 390 GB/s; 48 blocks reach 344. */
    s->n_blocks =
        options->n_blocks > 0 ? (unsigned)options->n_blocks : (unsigned)device.multiProcessorCount;
    for (int i = 0; i < DCPK_N_QUEUES; i++)
        if (queue_open(&s->queues[i], err))
            return err->status;
    return DCPK_OK;
}

static dcpk_status cuda_open(const struct dcpk_space_options *options, struct dcpk_space **space,
                             struct dcpk_error *err)
{
    struct cuda_space *made;
    int before;

    if (driver_check(options->ordinal, err))
        return err->status;
    made = dcpk_alloc(sizeof *made, err);
    if (made == NULL)
        return err->status;
    made->base = (struct dcpk_space){&dcpk_cuda_space, options->ordinal};
    before = cuda_enter(&made->base);
    if (space_fill(made, options, err))
        space_release(made);
    else
        *space = &made->base;
    cuda_leave(before);
    return err->status;
}

static void cuda_close(struct dcpk_space *space)
{
    int before;

    if (space == NULL)
        return;
    before = cuda_enter(space);
    space_release((struct cuda_space *)space);
    cuda_leave(before);
}

static dcpk_status cuda_copy(struct dcpk_space *space, int queue, void *to, const void *from,
                             size_t n_bytes, struct dcpk_error *err)
{
    struct cuda_space *s = (struct cuda_space *)space;
    const int before = cuda_enter(space);
    const dcpk_status st =
        cuda_check(cudaMemcpyAsync(to, from, n_bytes, cudaMemcpyDefault, s->queues[queue].stream),
                   "queueing a copy", err);

    cuda_leave(before);
    return st;
}

/* A ticket is its number times the queues, plus the queue. */
static dcpk_status cuda_ticket(struct dcpk_space *space, int queue, uint64_t *ticket,
                               struct dcpk_error *err)
{
    struct cuda_queue *q = &((struct cuda_space *)space)->queues[queue];
    const int before = cuda_enter(space);
    const dcpk_status st = cuda_check(
        cudaEventRecord(q->events[q->n_tickets % CUDA_TICKETS], q->stream), "marking a queue", err);

    cuda_leave(before);
    if (st == DCPK_OK)
        *ticket = q->n_tickets++ * DCPK_N_QUEUES + (uint64_t)queue;
    return st;
}

/* The event of an old ticket may stand for a later one by now: done no sooner. */
static dcpk_status cuda_poll(struct dcpk_space *space, uint64_t ticket, bool *done,
                             struct dcpk_error *err)
{
    const struct cuda_space *s = (const struct cuda_space *)space;
    const struct cuda_queue *q = &s->queues[ticket % DCPK_N_QUEUES];
    const int before = cuda_enter(space);
    const cudaError_t code = cudaEventQuery(q->events[ticket / DCPK_N_QUEUES % CUDA_TICKETS]);
    dcpk_status st = DCPK_OK;

    if (code != cudaErrorNotReady)
        st = cuda_check(code, "waiting for the GPU", err);
    cudaGetLastError(); /* "not ready" stays behind otherwise */
    cuda_leave(before);
    *done = code == cudaSuccess;
    return st;
}

const struct dcpk_space_ops dcpk_cuda_space = {
    .name = "cuda",
    .summary = "NVIDIA GPUs",
    .open = cuda_open,
    .close = cuda_close,
    .memory_info = cuda_memory_info,
    .alloc = cuda_memory_alloc,
    .free = cuda_memory_free,
    .export_memory = cuda_memory_export,
    .import_memory = cuda_memory_import,
    .load = cuda_table_load,
    .unload = cuda_table_unload,
    .run = cuda_table_run,
    .copy = cuda_copy,
    .ticket = cuda_ticket,
    .poll = cuda_poll,
};
