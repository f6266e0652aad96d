/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_math_kernels.c - the machine code of the math_*.cu files, found by name. */
#include "kernels/cuda/cuda_math_host.h"

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
                            "finding a kernel", err)) {
            dcpk_context(err, "%s", kernels[i].name);
            return err->status;
        }
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
