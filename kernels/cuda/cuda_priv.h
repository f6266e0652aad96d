/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_priv.h - what the host code (C) and the kernels (CUDA C++) of this folder share. */
#ifndef DCPK_KERNELS_CUDA_CUDA_PRIV_H
#define DCPK_KERNELS_CUDA_CUDA_PRIV_H

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/device/tile.h"

/* Which kernel moves a tile. All tiles of one kind and size are one launch. */
enum cuda_kind {
    CUDA_MOVE_WHOLE, /* addresses, strides and rows in 16-byte units on both sides */
    CUDA_MOVE_ODD,   /* any other copy */
    CUDA_READ,       /* for the fingerprint alone: nothing is stored */
    CUDA_CAST_F32_BF16,
    CUDA_CAST_F32_F16,
    CUDA_CAST_BF16_F32,
    CUDA_CAST_F16_F32,
    CUDA_CAST_F32_E4M3,
    CUDA_CAST_BF16_E4M3,
    CUDA_CAST_F32_E5M2,
    CUDA_CAST_BF16_E5M2,
    CUDA_CAST_ANY, /* the rare pairs: through f64, in integers */
    CUDA_N_KINDS,
};

/* A large tile is a block's work, a small one a warp's. */
enum cuda_size { CUDA_BLOCK, CUDA_WARP, CUDA_N_SIZES };

/* Bytes of an element, by enum dcpk_dtype: handed to kernels by value. */
struct cuda_dtypes {
    uint8_t elem_bytes[32];
};

struct cuda_launch {
    enum cuda_kind kind;
    enum cuda_size size;
    const struct dcpk_tile *tiles;       /* in the device's memory */
    const struct dcpk_tile_words *words; /* likewise; NULL where `sums` is */
    unsigned long long *sums;            /* NULL: no fingerprints */
    uint32_t n_tiles;
    struct cuda_dtypes dtypes;
    unsigned n_blocks; /* at most so many; 0: as many as there is work for */
};

#ifdef __cplusplus
extern "C" {
#endif
/* Queue a launch of at least one tile. Each takes the kinds of its name. A tile has less than 2^31
 * bytes on either side. */
cudaError_t dcpk_cuda_launch_move(const struct cuda_launch *launch, cudaStream_t stream);
cudaError_t dcpk_cuda_launch_read(const struct cuda_launch *launch, cudaStream_t stream);
cudaError_t dcpk_cuda_launch_cast(const struct cuda_launch *launch, cudaStream_t stream);
#ifdef __cplusplus
}
#endif

#endif
