/* SPDX-License-Identifier: Apache-2.0 */
/* scale.h - values of few bits times the scales of their blocks, in the form that every device
 * takes. */
#ifndef DCPK_LIB_TENSOR_SCALE_H
#define DCPK_LIB_TENSOR_SCALE_H

#include <stdint.h>

#include "lib/tensor/dtype.h"

/*
 * A matrix of n_rows x n_cols elements, cut out of a larger one whose blocks of block_rows x
 * block_cols elements have a scale each:
 *
 *     out[i][j] = value[i][j] * scales[(row + i) / block_rows][(col + j) / block_cols]
 *
 * one multiplication of float32. Values lie row after row, each row from a whole byte on; scales
 * are those of the blocks that the matrix touches, row-major. A value; passed to kernels as it is.
 */
struct dcpk_scale {
    /*
     * The dtype of the values: DCPK_F8_E4M3FN, DCPK_F8_E5M2, or DCPK_F4_E2M1FN_X2: two elements a
     * byte, the low half first. Then block_cols is even, and where `col` is odd each row begins
     * with a half byte before its elements.
     */
    enum dcpk_dtype dtype;
    int64_t n_rows, n_cols;
    int64_t row, col; /* of the first element in its block: below block_rows, block_cols */
    int64_t block_rows, block_cols;
};

/* Bytes of a row of values. */
static inline int64_t dcpk_scale_row_bytes(const struct dcpk_scale *s)
{
    if (s->dtype == DCPK_F4_E2M1FN_X2)
        return (s->col % 2 + s->n_cols + 1) / 2;
    return s->n_cols;
}

/* Scales in a row of blocks. */
static inline int64_t dcpk_scale_cols(const struct dcpk_scale *s)
{
    return (s->col + s->n_cols + s->block_cols - 1) / s->block_cols;
}

#endif
