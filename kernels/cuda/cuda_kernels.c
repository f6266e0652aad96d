/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_kernels.c - the machine code of the .cu files, found by name. */
/*
 * nvcc makes one file of machine code for several processors (a fatbin) of each .cu; they are data
 * of this program. The driver takes the code of its GPU, or compiles what no code is there for.
 */
#include <stdio.h>

#include "kernels/cuda/cuda_math_host.h"
#include "lib/base/order.h"

CUDA_IMAGE(dcpk_cuda_tile_move, DCPK_TILE_MOVE_FATBIN);
CUDA_IMAGE(dcpk_cuda_tile_cast, DCPK_TILE_CAST_FATBIN);
CUDA_IMAGE(dcpk_cuda_tile_read, DCPK_TILE_READ_FATBIN);

enum { MOVE, CAST, READ };

static const struct {
    const char *name;
    int module;
} rows[CUDA_N_KINDS] = {
    [CUDA_MOVE_WHOLE] = {"move_whole", MOVE},
    [CUDA_MOVE_ODD] = {"move_odd", MOVE},
    [CUDA_CAST_F32_BF16] = {"cast_f32_bf16", CAST},
    [CUDA_CAST_F32_F16] = {"cast_f32_f16", CAST},
    [CUDA_CAST_BF16_F32] = {"cast_bf16_f32", CAST},
    [CUDA_CAST_F16_F32] = {"cast_f16_f32", CAST},
    [CUDA_CAST_F32_E4M3] = {"cast_f32_e4m3", CAST},
    [CUDA_CAST_BF16_E4M3] = {"cast_bf16_e4m3", CAST},
    [CUDA_CAST_F32_E5M2] = {"cast_f32_e5m2", CAST},
    [CUDA_CAST_BF16_E5M2] = {"cast_bf16_e5m2", CAST},
    [CUDA_CAST_ANY] = {"cast_any", CAST},
};

static dcpk_status kernel_find(struct cuda_device *s, int module, const char *name,
                               CUfunction *found, struct dcpk_error *err)
{
    const CUresult code = s->driver.module_function(found, s->kernels.modules[module], name);

    if (dcpk_cuda_check(&s->driver, code, "finding a kernel", err))
        dcpk_context(err, "%s", name);
    return err->status;
}

/* The four kernels of a kind: TILE_KERNELS in tile.cuh. */
static dcpk_status kind_find(struct cuda_device *s, enum cuda_kind kind, struct dcpk_error *err)
{
    static const char *const sizes[CUDA_N_SIZES] = {"block", "warp"};
    static const char *const sums[2] = {"", "_sums"};
    char name[64];

    for (int size = 0; size < CUDA_N_SIZES; size++)
        for (int i = 0; i < 2; i++) {
            snprintf(name, sizeof name, "%s_%s%s", rows[kind].name, sizes[size], sums[i]);
            if (kernel_find(s, rows[kind].module, name, &s->kernels.functions[kind][size][i], err))
                return err->status;
        }
    return DCPK_OK;
}

dcpk_status cuda_kernels_load(struct cuda_device *s, struct dcpk_error *err)
{
    const unsigned char *const images[] = {dcpk_cuda_tile_move, dcpk_cuda_tile_cast,
                                           dcpk_cuda_tile_read};

    for (size_t i = 0; i < DCPK_COUNT(images); i++)
        if (dcpk_cuda_check(&s->driver, s->driver.module_load(&s->kernels.modules[i], images[i]),
                            "loading the kernels", err))
            return err->status;
    for (int kind = 0; kind < CUDA_READ; kind++)
        if (kind_find(s, (enum cuda_kind)kind, err))
            return err->status;
    return kernel_find(s, READ, "read_tiles", &s->kernels.functions[CUDA_READ][CUDA_BLOCK][1], err);
}

void cuda_kernels_unload(struct cuda_device *s)
{
    for (size_t i = 0; i < DCPK_COUNT(s->kernels.modules); i++)
        if (s->kernels.modules[i] != NULL)
            s->driver.module_unload(s->kernels.modules[i]);
}
