/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_math.c - a GPU's mathematics: its table, memory, and what works element by element. */
#include <assert.h>

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/cuda_math_host.h"
#include "lib/base/alloc.h"
#include "lib/base/order.h"

#define MAX_BLOCKS 16384 /* of a launch whose blocks go round */

const struct cuda_device *cuda_math_device(const struct dcpk_math *math)
{
    return (const struct cuda_device *)((const struct cuda_math *)math)->device;
}

void cuda_math_fault(struct dcpk_math *math, const struct dcpk_error *err)
{
    struct cuda_math *m = (struct cuda_math *)math;

    if (m->failed.status == DCPK_OK)
        m->failed = *err;
}

void *cuda_math_room(struct dcpk_math *math, int64_t n_bytes)
{
    struct cuda_math *m = (struct cuda_math *)math;
    struct dcpk_error err = DCPK_ERROR_INIT;
    void *room;

    if (m->room != NULL && m->room_bytes >= (size_t)n_bytes)
        return m->room;
    if (math->ops->alloc(math, dcpk_max_size((size_t)n_bytes, 1), &room, &err)) {
        cuda_math_fault(math, &err);
        return NULL;
    }
    math->ops->free(math, m->room);
    m->room = room;
    m->room_bytes = (size_t)n_bytes;
    return room;
}

static void kernel_launch(struct dcpk_math *math, enum math_kernel kernel, const unsigned blocks[3],
                          unsigned n_threads, void **arguments)
{
    const struct cuda_device *s = cuda_math_device(math);
    struct dcpk_error err = DCPK_ERROR_INIT;
    CUresult code;

    dcpk_cuda_enter(&s->driver, s->context);
    code =
        s->driver.launch(((const struct cuda_math *)math)->functions[kernel], blocks[0], blocks[1],
                         blocks[2], n_threads, 1, 1, 0, s->queues[0].stream, arguments, NULL);
    dcpk_cuda_leave(&s->driver);
    if (dcpk_cuda_check(&s->driver, code, "starting a kernel", &err))
        cuda_math_fault(math, &err);
}

void cuda_math_launch(struct dcpk_math *math, enum math_kernel kernel, int64_t n_blocks,
                      void **arguments)
{
    const unsigned blocks[3] = {(unsigned)dcpk_min_i64(n_blocks, MAX_BLOCKS), 1, 1};

    if (n_blocks > 0)
        kernel_launch(math, kernel, blocks, MATH_THREADS, arguments);
}

void cuda_math_each(struct dcpk_math *math, enum math_kernel kernel, int64_t n, void **arguments)
{
    cuda_math_launch(math, kernel, (n + MATH_THREADS - 1) / MATH_THREADS, arguments);
}

void cuda_math_multiply(struct dcpk_math *math, struct math_product *product)
{
    const unsigned blocks[3] = {
        (unsigned)((product->b.n_outer + MATMUL_TILE - 1) / MATMUL_TILE),
        (unsigned)((product->a.n_outer + MATMUL_TILE - 1) / MATMUL_TILE),
        (unsigned)product->n_slices,
    };

    assert(product->n_inner % (product->n_slices * product->n_parts) == 0);
    assert(product->n_slices == 1 || product->out_dtype == DCPK_F32);
    if (blocks[0] > 0 && blocks[1] > 0)
        kernel_launch(math, MATH_MULTIPLY, blocks, MATMUL_THREADS, (void *[]){product});
}

static void gpu_close(struct dcpk_math *math)
{
    struct cuda_math *m = (struct cuda_math *)math;
    const struct cuda_device *s;

    if (m == NULL)
        return;
    if (m->device != NULL) {
        s = cuda_math_device(math);
        dcpk_cuda_enter(&s->driver, s->context);
        s->driver.stream_wait(s->queues[0].stream);
        cuda_math_unload(m);
        dcpk_cuda_leave(&s->driver);
        dcpk_cuda_device.close(m->device);
    }
    dcpk_free(m->memory);
    dcpk_free(m);
}

static dcpk_status math_fill(struct cuda_math *m, int ordinal, struct dcpk_error *err)
{
    const struct dcpk_device_options options = {.ordinal = ordinal};
    const struct cuda_device *s;
    dcpk_status st;

    m->base.ops = &dcpk_cuda_ops;
    m->failed = (struct dcpk_error)DCPK_ERROR_INIT;
    if (dcpk_cuda_device.open(&options, &m->device, err))
        return err->status;
    s = cuda_math_device(&m->base);
    m->base.gpu_major = s->major;
    dcpk_cuda_enter(&s->driver, s->context);
    st = cuda_math_load(m, err);
    dcpk_cuda_leave(&s->driver);
    return st;
}

static dcpk_status gpu_open(int ordinal, struct dcpk_math **math, struct dcpk_error *err)
{
    struct cuda_math *made = dcpk_alloc(sizeof *made, err);

    if (made == NULL)
        return err->status;
    if (math_fill(made, ordinal, err)) {
        gpu_close(&made->base);
        return err->status;
    }
    *math = &made->base;
    return DCPK_OK;
}

/* A fault of the stream shows at the next wait again. */
static void stream_wait(const struct dcpk_math *math)
{
    const struct cuda_device *s = cuda_math_device(math);

    dcpk_cuda_enter(&s->driver, s->context);
    s->driver.stream_wait(s->queues[0].stream);
    dcpk_cuda_leave(&s->driver);
}

/* Memory of that size, or a little more, that was given back; NULL: none. */
static struct math_memory *memory_find(struct cuda_math *m, size_t n_bytes)
{
    struct math_memory *best = NULL;

    for (size_t i = 0; i < m->n_memory; i++) {
        struct math_memory *one = &m->memory[i];

        if (one->is_free && one->n_bytes >= n_bytes && one->n_bytes - n_bytes <= n_bytes / 8 &&
            (best == NULL || one->n_bytes < best->n_bytes))
            best = one;
    }
    return best;
}

/* Give what was given back to the GPU. */
static void memory_shrink(struct cuda_math *m)
{
    size_t n = 0;

    for (size_t i = 0; i < m->n_memory; i++) {
        if (m->memory[i].is_free)
            dcpk_cuda_device.free(m->device, m->memory[i].at);
        else
            m->memory[n++] = m->memory[i];
    }
    m->n_memory = n;
}

static dcpk_status memory_new(struct cuda_math *m, size_t n_bytes, struct math_memory *made,
                              struct dcpk_error *err)
{
    struct dcpk_error first = DCPK_ERROR_INIT;

    *made = (struct math_memory){.n_bytes = n_bytes};
    if (dcpk_cuda_device.alloc(m->device, DCPK_MEMORY_DEVICE, n_bytes, &made->at, &first) ==
        DCPK_OK)
        return DCPK_OK;
    stream_wait(&m->base);
    memory_shrink(m);
    return dcpk_cuda_device.alloc(m->device, DCPK_MEMORY_DEVICE, n_bytes, &made->at, err);
}

/* To take memory from the GPU, and to give it back, waits for all of its work: it is kept. */
dcpk_status cuda_math_alloc(struct dcpk_math *math, size_t n_bytes, void **at,
                            struct dcpk_error *err)
{
    struct cuda_math *m = (struct cuda_math *)math;
    struct math_memory *memory = memory_find(m, n_bytes);

    if (memory == NULL) {
        struct math_memory made;

        if (dcpk_grow(&m->memory, &m->memory_capacity, m->n_memory, sizeof *m->memory, err) ||
            memory_new(m, n_bytes, &made, err))
            return err->status;
        memory = &m->memory[m->n_memory++];
        *memory = made;
    }
    memory->is_free = false;
    *at = memory->at;
    return DCPK_OK;
}

/* Frees memory: queued work runs before the queued work of a later owner. */
void cuda_math_free(struct dcpk_math *math, void *at)
{
    struct cuda_math *m = (struct cuda_math *)math;
    size_t i = 0;

    if (at == NULL)
        return;
    while (m->memory[i].at != at)
        i++;
    assert(i < m->n_memory && !m->memory[i].is_free);
    m->memory[i].is_free = true;
}

dcpk_status cuda_math_alloc_host(struct dcpk_math *math, size_t n_bytes, void **at,
                                 struct dcpk_error *err)
{
    struct dcpk_device *device = ((struct cuda_math *)math)->device;

    return dcpk_cuda_device.alloc(device, DCPK_MEMORY_HOST, n_bytes, at, err);
}

void cuda_math_free_host(struct dcpk_math *math, void *at)
{
    if (at == NULL)
        return;
    stream_wait(math);
    dcpk_cuda_device.free(((struct cuda_math *)math)->device, at);
}

/* The GPU reaches it by itself; any other the driver copies through memory of its own. */
dcpk_status cuda_math_lock_host(struct dcpk_math *math, void *at, size_t n_bytes,
                                struct dcpk_error *err)
{
    const struct cuda_device *s = cuda_math_device(math);
    CUresult code;

    dcpk_cuda_enter(&s->driver, s->context);
    code = s->driver.host_register(at, n_bytes, CU_MEMHOSTREGISTER_PORTABLE);
    dcpk_cuda_leave(&s->driver);
    return dcpk_cuda_check(&s->driver, code, "page-locking memory", err);
}

void cuda_math_unlock_host(struct dcpk_math *math, void *at)
{
    const struct cuda_device *s = cuda_math_device(math);

    stream_wait(math);
    dcpk_cuda_enter(&s->driver, s->context);
    s->driver.host_unregister(at);
    dcpk_cuda_leave(&s->driver);
}

void cuda_math_copy(struct dcpk_math *math, void *to, const void *from, size_t n_bytes)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_device *device = ((struct cuda_math *)math)->device;

    if (n_bytes > 0 && dcpk_cuda_device.copy(device, 0, to, from, n_bytes, &err))
        cuda_math_fault(math, &err);
}

dcpk_status cuda_math_wait(struct dcpk_math *math, struct dcpk_error *err)
{
    struct cuda_math *m = (struct cuda_math *)math;
    const struct cuda_device *s = cuda_math_device(math);
    struct dcpk_error fault = DCPK_ERROR_INIT;
    CUresult code;

    dcpk_cuda_enter(&s->driver, s->context);
    code = s->driver.stream_wait(s->queues[0].stream);
    dcpk_cuda_leave(&s->driver);
    if (dcpk_cuda_check(&s->driver, code, "computing", &fault))
        cuda_math_fault(math, &fault);
    if (m->failed.status == DCPK_OK)
        return DCPK_OK;
    *err = m->failed;
    m->failed = (struct dcpk_error)DCPK_ERROR_INIT;
    return err->status;
}

void cuda_math_zero(struct dcpk_math *math, void *at, size_t n_bytes)
{
    const struct cuda_device *s = cuda_math_device(math);
    struct dcpk_error err = DCPK_ERROR_INIT;
    CUresult code;

    if (n_bytes == 0)
        return;
    dcpk_cuda_enter(&s->driver, s->context);
    code = s->driver.fill((CUdeviceptr)(uintptr_t)at, 0, n_bytes, s->queues[0].stream);
    dcpk_cuda_leave(&s->driver);
    if (dcpk_cuda_check(&s->driver, code, "zeroing memory", &err))
        cuda_math_fault(math, &err);
}

void cuda_math_add(struct dcpk_math *math, enum dcpk_dtype dtype, int64_t n, const void *a,
                   const void *b, void *out)
{
    cuda_math_each(math, MATH_ADD, n, (void *[]){&dtype, &n, &a, &b, &out});
}

void cuda_math_scale(struct dcpk_math *math, enum dcpk_dtype dtype, int64_t n, float factor,
                     void *x)
{
    cuda_math_each(math, MATH_SCALE, n, (void *[]){&dtype, &n, &factor, &x});
}

void cuda_math_cast(struct dcpk_math *math, enum dcpk_dtype from, enum dcpk_dtype to, int64_t n,
                    const void *x, void *y)
{
    cuda_math_each(math, MATH_CAST, n, (void *[]){&from, &to, &n, &x, &y});
}

void cuda_math_accumulate(struct dcpk_math *math, enum dcpk_dtype dtype, int64_t n, const float *x,
                          void *sum)
{
    cuda_math_each(math, MATH_ACCUMULATE, n, (void *[]){&dtype, &n, &x, &sum});
}

void cuda_math_copy_rows(struct dcpk_math *math, const struct dcpk_strided_rows *shape,
                         const void *from, void *to)
{
    struct dcpk_strided_rows by_value = *shape;
    int bytes = (int)dcpk_dtype_bytes(shape->dtype);

    assert(bytes <= 8);
    cuda_math_each(math, MATH_COPY_ROWS, shape->rows * shape->columns,
                   (void *[]){&by_value, &bytes, &from, &to});
}

const struct dcpk_ops dcpk_cuda_ops = {.name = "cuda",
                                       .summary = "NVIDIA GPUs",
                                       .is_ordered = true,
                                       .open = gpu_open,
                                       .close = gpu_close,
                                       CUDA_MATH_SHARED DCPK_OPS_MAIN(DCPK_OPS_ROW, cuda)};
