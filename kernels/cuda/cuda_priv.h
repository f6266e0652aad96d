/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_priv.h - what the host code (C) and the kernels (CUDA C++) of this folder share. */
#ifndef DCPK_KERNELS_CUDA_CUDA_PRIV_H
#define DCPK_KERNELS_CUDA_CUDA_PRIV_H

#include <stdint.h>

#include "lib/device/tile.h"

#define CUDA_THREADS 256 /* of a block, in every kernel */

/* Arguments of every kernel, by value. */
struct cuda_tiles {
    const struct dcpk_tile *tiles;       /* in the device's memory */
    const struct dcpk_tile_words *words; /* likewise; not looked at without sums */
    unsigned long long *sums;
    uint32_t n;
    uint8_t elem_bytes[32]; /* by enum dcpk_dtype */
};

#endif
