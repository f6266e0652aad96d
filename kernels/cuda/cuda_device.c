/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_device.c - a GPU opened as a device: streams as queues, events as tickets. */
#include "kernels/kernels.h"

#include <inttypes.h>
#include <string.h>

#include "kernels/cuda/cuda_math_host.h"
#include "lib/base/alloc.h"
#include "lib/base/order.h"

#define MIN_CAPABILITY 8 /* major: what the kernels are built for, and all that came after */

static dcpk_status attribute_read(const struct cuda_device *s, CUdevice_attribute which, int *value,
                                  struct dcpk_error *err)
{
    return dcpk_cuda_check(&s->driver, s->driver.device_attribute(value, which, s->device),
                           "asking for the GPU", err);
}

/* The device of that number, and whether it will do. */
static dcpk_status device_find(struct cuda_device *s, int ordinal, struct dcpk_error *err)
{
    int n_devices = 0, major = 0, minor = 0, n_multiprocessors = 0;
    char name[64] = "";

    if (dcpk_cuda_check(&s->driver, s->driver.device_count(&n_devices), "counting GPUs", err))
        return err->status;
    if (ordinal < 0 || ordinal >= n_devices)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "there is no GPU %d: this process sees %d, from 0 on (if there are more, "
                         "CUDA_VISIBLE_DEVICES hides them)",
                         ordinal, n_devices);
    if (dcpk_cuda_check(&s->driver, s->driver.device_get(&s->device, ordinal), "finding the GPU",
                        err) ||
        dcpk_cuda_check(&s->driver, s->driver.device_name(name, sizeof name, s->device),
                        "asking for the GPU", err) ||
        attribute_read(s, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &major, err) ||
        attribute_read(s, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &minor, err) ||
        attribute_read(s, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &n_multiprocessors, err))
        return err->status;
    s->n_multiprocessors = (unsigned)n_multiprocessors;
    s->base.gpu_major = major;
    if (major >= MIN_CAPABILITY)
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EUNSUPPORTED,
                     "GPU %d (%s) has compute capability %d.%d, needed is %d.0 or more", ordinal,
                     name, major, minor, MIN_CAPABILITY);
}

static dcpk_status queue_open(struct cuda_device *s, struct cuda_queue *queue,
                              struct dcpk_error *err)
{
    if (dcpk_cuda_check(&s->driver, s->driver.stream_create(&queue->stream, CU_STREAM_NON_BLOCKING),
                        "making a stream", err))
        return err->status;
    for (size_t i = 0; i < CUDA_TICKETS; i++)
        if (dcpk_cuda_check(&s->driver,
                            s->driver.event_create(&queue->events[i], CU_EVENT_DISABLE_TIMING),
                            "making an event", err))
            return err->status;
    return DCPK_OK;
}

static void queue_close(struct cuda_device *s, struct cuda_queue *queue)
{
    for (size_t i = 0; i < CUDA_TICKETS; i++)
        if (queue->events[i] != NULL)
            s->driver.event_destroy(queue->events[i]);
    if (queue->stream != NULL)
        s->driver.stream_destroy(queue->stream);
}

/* Everything that lives in the context, which is the thread's. */
static dcpk_status device_fill(struct cuda_device *s, int n_blocks, struct dcpk_error *err)
{
    const unsigned for_link = n_blocks > 0 ? (unsigned)n_blocks : s->n_multiprocessors;

    /* Per H200: a block a multiprocessor fills a link: 365 of 390 GB/s; 48 blocks reach 344. While
     * NCCL has messages under way, 33 blocks pack and unpack at its side: 253 GB/s arrive, 238 with
     * 66, 217 with 132, which leave it too little of the memory's time; 16 are too slow, 224. */
    s->max_blocks[DCPK_PACE_MEMORY] = INT32_MAX;
    s->max_blocks[DCPK_PACE_LINK] = for_link;
    s->max_blocks[DCPK_PACE_BESIDE] =
        (unsigned)dcpk_min_size(for_link, (s->n_multiprocessors + 3) / 4);
    for (int i = 0; i < DCPK_N_QUEUES; i++)
        if (queue_open(s, &s->queues[i], err))
            return err->status;
    return cuda_kernels_load(s, err);
}

static void device_empty(struct cuda_device *s)
{
    for (int i = 0; i < DCPK_N_QUEUES; i++)
        if (s->queues[i].stream != NULL)
            s->driver.stream_wait(s->queues[i].stream);
    dcpk_imports_release(&s->imports);
    if (s->base.math != NULL)
        s->base.math->ops->close(s->base.math);
    dcpk_free(s->base.math);
    cuda_memory_release(s);
    cuda_kernels_unload(s);
    for (size_t i = 0; i < s->n_marks; i++)
        s->driver.event_destroy(s->marks[i]);
    dcpk_free(s->marks);
    for (int i = 0; i < DCPK_N_QUEUES; i++)
        queue_close(s, &s->queues[i]);
}

static void cuda_close(struct dcpk_device *device)
{
    struct cuda_device *s = (struct cuda_device *)device;

    if (s == NULL)
        return;
    if (s->context != NULL) {
        dcpk_cuda_enter(&s->driver, s->context);
        device_empty(s);
        dcpk_cuda_leave(&s->driver);
        s->driver.context_release(s->device);
    }
    dcpk_free(s);
}

static dcpk_status handle_map(void *context, const struct dcpk_memory_id *id, void **at,
                              struct dcpk_error *err);
static void handle_unmap(void *context, const struct dcpk_import *import);

static dcpk_status math_open(struct cuda_device *s, const struct dcpk_ops *ops,
                             struct dcpk_error *err)
{
    struct cuda_math *made = dcpk_alloc(sizeof *made, err);

    if (made == NULL)
        return err->status;
    made->base = (struct dcpk_math){ops, &s->base, DCPK_ERROR_INIT};
    s->base.math = &made->base; /* closed with the device */
    return ops->open(s->base.math, err);
}

static dcpk_status device_open(struct cuda_device *s, const struct dcpk_device_options *options,
                               struct dcpk_error *err)
{
    dcpk_status st;

    s->base = (struct dcpk_device){.ops = &dcpk_cuda_device, .ordinal = options->ordinal};
    s->imports = (struct dcpk_imports){.map = handle_map, .unmap = handle_unmap, .context = s};
    if (dcpk_cuda_driver_load(&s->driver, err) || device_find(s, options->ordinal, err) ||
        dcpk_cuda_check(&s->driver, s->driver.context_retain(&s->context, s->device),
                        "opening the GPU", err))
        return err->status;
    dcpk_cuda_enter(&s->driver, s->context);
    st = device_fill(s, options->n_blocks, err);
    dcpk_cuda_leave(&s->driver);
    if (st == DCPK_OK && options->math != NULL)
        st = math_open(s, options->math, err);
    return st;
}

static dcpk_status cuda_open(const struct dcpk_device_options *options, struct dcpk_device **device,
                             struct dcpk_error *err)
{
    struct cuda_device *made = dcpk_alloc(sizeof *made, err);

    if (made == NULL)
        return err->status;
    if (device_open(made, options, err)) {
        cuda_close(&made->base);
        return err->status;
    }
    *device = &made->base;
    return DCPK_OK;
}

/* Memory that another process exported. */
static dcpk_status handle_map(void *context, const struct dcpk_memory_id *id, void **at,
                              struct dcpk_error *err)
{
    const struct cuda_device *s = context;
    CUipcMemHandle handle;
    CUdeviceptr mapped;
    CUresult code;

    memcpy(&handle, id->handle, sizeof handle);
    code = s->driver.handle_open(&mapped, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    if (code == CUDA_ERROR_OUT_OF_MEMORY)
        return dcpk_cuda_check(&s->driver, code, "mapping a peer's memory", err);
    if (code != CUDA_SUCCESS)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "memory of process %" PRIu64 " has no way here: %s", id->process,
                         dcpk_cuda_reason(&s->driver, code));
    *at = (void *)(uintptr_t)mapped;
    return DCPK_OK;
}

static void handle_unmap(void *context, const struct dcpk_import *import)
{
    const struct cuda_device *s = context;

    s->driver.handle_close((CUdeviceptr)(uintptr_t)import->at);
}

static dcpk_status cuda_copy(struct dcpk_device *device, int queue, void *to, const void *from,
                             size_t n_bytes, struct dcpk_error *err)
{
    const struct cuda_device *s = (const struct cuda_device *)device;
    CUresult code;

    dcpk_cuda_enter(&s->driver, s->context);
    code = s->driver.copy((CUdeviceptr)(uintptr_t)to, (CUdeviceptr)(uintptr_t)from, n_bytes,
                          s->queues[queue].stream);
    dcpk_cuda_leave(&s->driver);
    return dcpk_cuda_check(&s->driver, code, "queueing a copy", err);
}

/* A ticket is its number times the queues, plus the queue. */
static dcpk_status cuda_ticket(struct dcpk_device *device, int queue, uint64_t *ticket,
                               struct dcpk_error *err)
{
    struct cuda_device *s = (struct cuda_device *)device;
    struct cuda_queue *q = &s->queues[queue];
    CUresult code;

    dcpk_cuda_enter(&s->driver, s->context);
    code = s->driver.event_record(q->events[q->n_tickets % CUDA_TICKETS], q->stream);
    dcpk_cuda_leave(&s->driver);
    if (dcpk_cuda_check(&s->driver, code, "marking a queue", err))
        return err->status;
    *ticket = q->n_tickets++ * DCPK_N_QUEUES + (uint64_t)queue;
    return DCPK_OK;
}

/* The event of an old ticket may stand for a later one by now: done no sooner. */
static dcpk_status cuda_poll(struct dcpk_device *device, uint64_t ticket, bool *done,
                             struct dcpk_error *err)
{
    const struct cuda_device *s = (const struct cuda_device *)device;
    const struct cuda_queue *q = &s->queues[ticket % DCPK_N_QUEUES];
    CUresult code;

    dcpk_cuda_enter(&s->driver, s->context);
    code = s->driver.event_query(q->events[ticket / DCPK_N_QUEUES % CUDA_TICKETS]);
    dcpk_cuda_leave(&s->driver);
    *done = code == CUDA_SUCCESS;
    if (code == CUDA_ERROR_NOT_READY)
        return DCPK_OK;
    return dcpk_cuda_check(&s->driver, code, "waiting for the GPU", err);
}

/* One more event, in the thread's context. */
static dcpk_status mark_new(struct cuda_device *s, struct dcpk_error *err)
{
    if (dcpk_grow(&s->marks, &s->marks_capacity, s->n_marks, sizeof *s->marks, err) ||
        dcpk_cuda_check(&s->driver, s->driver.event_create(&s->marks[s->n_marks], CU_EVENT_DEFAULT),
                        "making an event", err))
        return err->status;
    s->n_marks++;
    return DCPK_OK;
}

static dcpk_status cuda_mark(struct dcpk_device *device, size_t number, struct dcpk_error *err)
{
    struct cuda_device *s = (struct cuda_device *)device;
    dcpk_status st = DCPK_OK;

    dcpk_cuda_enter(&s->driver, s->context);
    if (number == s->n_marks)
        st = mark_new(s, err);
    if (st == DCPK_OK)
        st = dcpk_cuda_check(&s->driver,
                             s->driver.event_record(s->marks[number], s->queues[0].stream),
                             "marking a queue", err);
    dcpk_cuda_leave(&s->driver);
    return st;
}

static dcpk_status cuda_between(struct dcpk_device *device, size_t from, size_t to, double *seconds,
                                struct dcpk_error *err)
{
    const struct cuda_device *s = (const struct cuda_device *)device;
    float milliseconds = 0;
    CUresult code;

    dcpk_cuda_enter(&s->driver, s->context);
    code = s->driver.event_wait(s->marks[to]);
    if (code == CUDA_SUCCESS)
        code = s->driver.event_elapsed(&milliseconds, s->marks[from], s->marks[to]);
    dcpk_cuda_leave(&s->driver);
    *seconds = 1e-3 * (double)milliseconds;
    return dcpk_cuda_check(&s->driver, code, "timing a queue", err);
}

const struct dcpk_device_ops dcpk_cuda_device = {
    .name = "cuda",
    .summary = "NVIDIA GPUs",
    .open = cuda_open,
    .close = cuda_close,
    .memory_info = cuda_memory_info,
    .alloc = cuda_memory_alloc,
    .free = cuda_memory_free,
    .lock_host = cuda_memory_lock,
    .unlock_host = cuda_memory_unlock,
    .export_memory = cuda_memory_export,
    .import_memory = cuda_memory_import,
    .load = cuda_table_load,
    .unload = cuda_table_unload,
    .run = cuda_table_run,
    .copy = cuda_copy,
    .ticket = cuda_ticket,
    .poll = cuda_poll,
    .mark = cuda_mark,
    .between = cuda_between,
};
