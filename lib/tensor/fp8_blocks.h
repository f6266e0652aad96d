/* SPDX-License-Identifier: Apache-2.0 */
/* fp8_blocks.h - a matrix of floats as values of 8 bits and the scales of their blocks. */
#ifndef DCPK_LIB_TENSOR_FP8_BLOCKS_H
#define DCPK_LIB_TENSOR_FP8_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

/* Rows and columns of a block; those at the ends are cut off. */
#define DCPK_FP8_BLOCK 128

/*
 * Arithmetic of a block, in float32 with amax, the largest |w| of it. Every one rounds to
 * nearest even and saturates at 448. Source: "weight_quant" of DeepSeek-V3's inference/kernel.py,
 * per_block_cast_to_fp8 of DeepGEMM, Fp8Quantize of transformers 5.23.
 */
enum dcpk_fp8_variant {
    DCPK_FP8_NONE,
    DCPK_FP8_DEEPSEEK, /* s = amax / 448, of zeros 1; w / s */
    DCPK_FP8_DEEPGEMM, /* s = max(amax, 1e-4) / 448; w * (1 / s) */
    /* r = (1 / amax) * 448, as torch divides a number by a tensor, of zeros 1; w * r; s = 1 / r */
    DCPK_FP8_TRANSFORMERS,
    DCPK_FP8_N_VARIANTS
};

/* A form of blocks. Zeroed: none. */
struct dcpk_fp8_format {
    enum dcpk_fp8_variant variant;
    /* Scales are powers of two, those above amax / 448: of DEEPSEEK as DEEPGEMM has them, in
     * float32; of TRANSFORMERS in float8_e8m0fnu, of zeros 1, not below 2^-126. */
    bool is_ue8m0;
};

/*
 * A tensor of a matrix in this form: its values, float8_e4m3fn in the matrix's shape, or its
 * scales, one a block. Borrowed by views and outputs.
 */
struct dcpk_fp8_blocks {
    struct dcpk_fp8_format format;
    bool gives_scales;
    const int64_t *shape; /* of the matrix: two axes */
    const char *name;     /* of the matrix, for messages */
};

#endif
