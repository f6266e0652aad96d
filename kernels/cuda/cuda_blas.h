/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_blas.h - products by NVIDIA's cuBLAS, loaded when it is asked for. */
#ifndef DCPK_KERNELS_CUDA_CUDA_BLAS_H
#define DCPK_KERNELS_CUDA_CUDA_BLAS_H

#include "kernels/cuda/cuda_math_host.h"

/* A factor or the result of a product: rows `stride` elements apart, `step` elements from one of
 * the batch to the next. */
struct blas_matrix {
    const void *at;
    int64_t stride, step;
};

/*
 * n_batch products of the same shape, row-major, with sums in fp32:
 *
 *     BLAS_ROWS      out [rows, columns] = a [rows, inner] b [columns, inner]^T
 *     BLAS_COLUMNS   out [rows, columns] = a [rows, inner] b [inner, columns]
 *     BLAS_LEAF      out [rows, columns] = a [inner, rows]^T b [inner, columns]
 */
enum blas_form { BLAS_ROWS, BLAS_COLUMNS, BLAS_LEAF };

struct blas_product {
    enum blas_form form;
    int64_t rows, columns, inner, n_batch;
    struct blas_matrix a, b, out;
    enum dcpk_dtype in_dtype, out_dtype;
    bool adds; /* to what `out` holds */
};

/* libcublas.so of CUDA 12 or 13; *blas is set on success only. In the context of the math, whose
 * stream it takes. Errors: DCPK_EUNSUPPORTED with the reason, DCPK_ENOMEM. */
dcpk_status cuda_blas_open(struct dcpk_math *math, struct cuda_blas **blas, struct dcpk_error *err);
void cuda_blas_close(struct dcpk_math *math, struct cuda_blas *blas); /* NULL is a no-op */

/* Queue it; a fault is kept for the next wait. */
void cuda_blas_multiply(struct dcpk_math *math, const struct blas_product *product);

#endif
