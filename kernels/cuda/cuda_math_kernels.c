/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_math_kernels.c - the machine code of the math_*.cu files, found by name. */
#include "kernels/cuda/cuda_math_host.h"

CUDA_IMAGE(dcpk_cuda_math_layers, DCPK_MATH_LAYERS_FATBIN);
CUDA_IMAGE(dcpk_cuda_math_matmul, DCPK_MATH_MATMUL_FATBIN);
CUDA_IMAGE(dcpk_cuda_math_attention, DCPK_MATH_ATTENTION_FATBIN);
CUDA_IMAGE(dcpk_cuda_math_experts, DCPK_MATH_EXPERTS_FATBIN);
CUDA_IMAGE(dcpk_cuda_math_optim, DCPK_MATH_OPTIM_FATBIN);
CUDA_IMAGE(dcpk_cuda_math_fast, DCPK_MATH_FAST_FATBIN);

static const struct {
    const char *name;
    enum math_module module;
} kernels[MATH_N_KERNELS] = {
    [MATH_ADD] = {"math_add", MATH_LAYERS},
    [MATH_SCALE] = {"math_scale", MATH_LAYERS},
    [MATH_CAST] = {"math_cast", MATH_LAYERS},
    [MATH_ACCUMULATE] = {"math_accumulate", MATH_LAYERS},
    [MATH_COPY_ROWS] = {"math_copy_rows", MATH_LAYERS},
    [MATH_RMSNORM] = {"math_rmsnorm", MATH_LAYERS},
    [MATH_RMSNORM_INPUT] = {"math_rmsnorm_input", MATH_LAYERS},
    [MATH_RMSNORM_SCALES] = {"math_rmsnorm_scales", MATH_LAYERS},
    [MATH_RMSNORM_WEIGHT] = {"math_rmsnorm_weight", MATH_LAYERS},
    [MATH_ROPE] = {"math_rope", MATH_LAYERS},
    [MATH_SWIGLU] = {"math_swiglu", MATH_LAYERS},
    [MATH_SWIGLU_BACKWARD] = {"math_swiglu_backward", MATH_LAYERS},
    [MATH_EMBEDDING] = {"math_embedding", MATH_LAYERS},
    [MATH_EMBEDDING_WEIGHT] = {"math_embedding_weight", MATH_LAYERS},
    [MATH_MULTIPLY] = {"math_multiply", MATH_MATMUL},
    [MATH_ADD_SLICES] = {"math_add_slices", MATH_MATMUL},
    [MATH_ATTENTION] = {"math_attention", MATH_HEADS},
    [MATH_ATTENTION_QUERIES] = {"math_attention_queries", MATH_HEADS},
    [MATH_ATTENTION_KEYS] = {"math_attention_keys", MATH_HEADS},
    [MATH_ROUTER] = {"math_router", MATH_EXPERTS},
    [MATH_ROUTER_BACKWARD] = {"math_router_backward", MATH_EXPERTS},
    [MATH_GATHER_ROWS] = {"math_gather_rows", MATH_EXPERTS},
    [MATH_COMBINE] = {"math_combine", MATH_EXPERTS},
    [MATH_COMBINE_ROWS] = {"math_combine_rows", MATH_EXPERTS},
    [MATH_COMBINE_PROBS] = {"math_combine_probs", MATH_EXPERTS},
    [MATH_CROSS_ENTROPY_MAX] = {"math_cross_entropy_max", MATH_OPTIM},
    [MATH_CROSS_ENTROPY_SUMS] = {"math_cross_entropy_sums", MATH_OPTIM},
    [MATH_CROSS_ENTROPY_LABELS] = {"math_cross_entropy_labels", MATH_OPTIM},
    [MATH_CROSS_ENTROPY] = {"math_cross_entropy", MATH_OPTIM},
    [MATH_CROSS_ENTROPY_BACKWARD] = {"math_cross_entropy_backward", MATH_OPTIM},
    [MATH_TO_FIXED] = {"math_to_fixed", MATH_OPTIM},
    [MATH_FROM_FIXED] = {"math_from_fixed", MATH_OPTIM},
    [MATH_FIND_BAD] = {"math_find_bad", MATH_OPTIM},
    [MATH_SUM_SQUARES] = {"math_sum_squares", MATH_OPTIM},
    [MATH_ADAM_TE] = {"math_adam_te", MATH_OPTIM},
    [MATH_ADAM_TORCH] = {"math_adam_torch", MATH_OPTIM},
    [MATH_SGD] = {"math_sgd", MATH_OPTIM},
    [MATH_NORMAL] = {"math_normal", MATH_OPTIM},
    [MATH_SOFTMAX] = {"math_softmax", MATH_FAST},
    [MATH_RMSNORM_PARTS] = {"math_rmsnorm_parts", MATH_FAST},
    [MATH_ADD_PARTS] = {"math_add_parts", MATH_FAST},
};

dcpk_status cuda_math_load(struct cuda_math *m, struct dcpk_error *err)
{
    const struct cuda_driver *driver = &((const struct cuda_space *)m->space)->driver;
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

void cuda_math_unload(struct cuda_math *m)
{
    const struct cuda_driver *driver = &((const struct cuda_space *)m->space)->driver;

    for (int i = 0; i < MATH_N_MODULES; i++)
        if (m->modules[i] != NULL)
            driver->module_unload(m->modules[i]);
}
