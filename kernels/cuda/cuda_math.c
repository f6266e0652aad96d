/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_math.c - a GPU's mathematics: its table, and what works element by element. */
#include <assert.h>

#include "kernels/cuda/cuda_math_host.h"
#include "kernels/kernels.h"
#include "lib/base/order.h"

CUDA_IMAGE(dcpk_cuda_math_layers, DCPK_MATH_LAYERS_FATBIN);
CUDA_IMAGE(dcpk_cuda_math_matmul, DCPK_MATH_MATMUL_FATBIN);
CUDA_IMAGE(dcpk_cuda_math_attention, DCPK_MATH_ATTENTION_FATBIN);
CUDA_IMAGE(dcpk_cuda_math_experts, DCPK_MATH_EXPERTS_FATBIN);
CUDA_IMAGE(dcpk_cuda_math_optim, DCPK_MATH_OPTIM_FATBIN);
CUDA_IMAGE(dcpk_cuda_math_fast, DCPK_MATH_FAST_FATBIN);

#define MATH_ENTRY(number, name, module) {#name, MATH_##module},
static const struct {
    const char *name;
    enum math_module module;
} kernels[MATH_N_KERNELS] = {MATH_KERNELS(MATH_ENTRY)};

static dcpk_status kernels_find(const struct cuda_driver *driver, struct cuda_math *m,
                                struct dcpk_error *err)
{
    const unsigned char *const images[MATH_N_MODULES] = {
        [MATH_LAYERS] = dcpk_cuda_math_layers,   [MATH_MATMUL] = dcpk_cuda_math_matmul,
        [MATH_HEADS] = dcpk_cuda_math_attention, [MATH_EXPERTS] = dcpk_cuda_math_experts,
        [MATH_OPTIM] = dcpk_cuda_math_optim,     [MATH_FAST] = dcpk_cuda_math_fast,
    };

    for (int i = 0; i < MATH_N_MODULES; i++)
        if (dcpk_cuda_check(driver, driver->module_load(&m->modules[i], images[i]),
                            "loading the mathematics", err))
            return err->status;
    for (int i = 0; i < MATH_N_KERNELS; i++)
        if (dcpk_cuda_check(driver,
                            driver->module_function(&m->functions[i], m->modules[kernels[i].module],
                                                    kernels[i].name),
                            "finding a kernel", err))
            return dcpk_context(err, "%s", kernels[i].name);
    return DCPK_OK;
}

dcpk_status cuda_math_open(struct dcpk_math *math, struct dcpk_error *err)
{
    const struct cuda_device *s = cuda_math_device(math);
    dcpk_status st;

    dcpk_cuda_enter(&s->driver, s->context);
    st = kernels_find(&s->driver, (struct cuda_math *)math, err);
    dcpk_cuda_leave(&s->driver);
    return st;
}

void cuda_math_close(struct dcpk_math *math)
{
    const struct cuda_device *s = cuda_math_device(math);
    const struct cuda_math *m = (const struct cuda_math *)math;

    dcpk_cuda_enter(&s->driver, s->context);
    for (int i = 0; i < MATH_N_MODULES; i++)
        if (m->modules[i] != NULL)
            s->driver.module_unload(m->modules[i]);
    dcpk_cuda_leave(&s->driver);
}

#define MAX_BLOCKS 16384 /* of a launch whose blocks go round */

const struct cuda_device *cuda_math_device(const struct dcpk_math *math)
{
    return (const struct cuda_device *)math->device;
}

void *cuda_math_room(struct dcpk_math *math, int64_t n_bytes)
{
    struct cuda_math *m = (struct cuda_math *)math;
    struct dcpk_error err = DCPK_ERROR_INIT;
    void *room;

    if (m->room != NULL && m->room_bytes >= (size_t)n_bytes)
        return m->room;
    if (cuda_memory_alloc(math->device, DCPK_MEMORY_PRIVATE, dcpk_max_size((size_t)n_bytes, 1),
                          &room, &err)) {
        dcpk_math_fault(math, &err);
        return NULL;
    }
    cuda_memory_free(math->device, m->room);
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
        dcpk_math_fault(math, &err);
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

void cuda_math_copy(struct dcpk_math *math, void *to, const void *from, size_t n_bytes)
{
    struct dcpk_error err = DCPK_ERROR_INIT;

    if (n_bytes > 0 && dcpk_cuda_device.copy(math->device, 0, to, from, n_bytes, &err))
        dcpk_math_fault(math, &err);
}

dcpk_status cuda_math_wait(struct dcpk_math *math, struct dcpk_error *err)
{
    const struct cuda_device *s = cuda_math_device(math);
    struct dcpk_error fault = DCPK_ERROR_INIT;
    CUresult code;

    dcpk_cuda_enter(&s->driver, s->context);
    code = s->driver.stream_wait(s->queues[0].stream);
    dcpk_cuda_leave(&s->driver);
    if (dcpk_cuda_check(&s->driver, code, "computing", &fault))
        dcpk_math_fault(math, &fault);
    return dcpk_math_take_fault(math, err);
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
        dcpk_math_fault(math, &err);
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
    int bytes = (int)dcpk_dtype_bytes(shape->dtype);

    assert(bytes <= 8);
    cuda_math_each(math, MATH_COPY_ROWS, shape->rows * shape->columns,
                   (void *[]){cuda_math_value(shape), &bytes, &from, &to});
}

const struct dcpk_ops dcpk_cuda_ops = {.name = "cuda",
                                       .summary = "NVIDIA GPUs",
                                       .is_ordered = true,
                                       .open = cuda_math_open,
                                       .close = cuda_math_close,
                                       CUDA_MATH_SHARED DCPK_OPS_MAIN(DCPK_OPS_ROW, cuda)};
