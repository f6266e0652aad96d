/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_blas.c - libcublas.so, by dlopen; row-major products as cuBLAS takes them. */
/*
 * cuBLAS is column-major: a row-major matrix is its transpose there, so that
 *
 *     out = a b     is asked for as     out^T = b^T a^T
 *
 * and the factors change places. One stream and one workspace of a fixed size: the same call gives
 * the same bits. Source: cuBLAS, section "Results Reproducibility" @13.0.
 *
 * A product that cuBLAS cuts along the contracted axis would have its partial sums rounded to the
 * result's 16 bits unless its mode forbids that. Source: cuBLAS, cublasMath_t @13.0.
 */
#include "kernels/cuda/cuda_blas.h"

#include <cublas_v2.h>
#include <dlfcn.h>

#include "kernels/cuda/cuda_driver.h"
#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/base/symbols.h"

#define WORKSPACE_BYTES ((size_t)32 << 20) /* recommended by cuBLAS for Hopper */
#define MATH_MODE                                                                                  \
    ((cublasMath_t)(CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION))

/* name of the member, function. <cublas_v2.h> gives the function its newest version. */
#define BLAS_CALLS(CALL)                                                                           \
    CALL(create, cublasCreate_v2)                                                                  \
    CALL(destroy, cublasDestroy_v2)                                                                \
    CALL(set_stream, cublasSetStream_v2)                                                           \
    CALL(set_workspace, cublasSetWorkspace_v2)                                                     \
    CALL(set_math_mode, cublasSetMathMode)                                                         \
    CALL(multiply, cublasGemmStridedBatchedEx)                                                     \
    CALL(reason, cublasGetStatusString)

struct cuda_blas {
#define BLAS_MEMBER(name, function) __typeof__(function) *name;
    BLAS_CALLS(BLAS_MEMBER)
#undef BLAS_MEMBER
    cublasHandle_t handle;
    void *workspace; /* of the device, which frees it */
};

static dcpk_status blas_load(struct cuda_blas *blas, struct dcpk_error *err)
{
    static const char *const libraries[] = {"libcublas.so.13", "libcublas.so.12"};
    const struct dcpk_symbol symbols[] = {
#define BLAS_ROW(member, function) {DCPK_SYMBOL_NAME(function), &blas->member},
        BLAS_CALLS(BLAS_ROW)
#undef BLAS_ROW
    };
    const char *missing;
    void *library = NULL;

    for (size_t i = 0; library == NULL && i < DCPK_COUNT(libraries); i++)
        library = dlopen(libraries[i], RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "cuBLAS is not there: %s", dlerror());
    missing = dcpk_symbols_find(library, symbols, DCPK_COUNT(symbols));
    if (missing != NULL)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "cuBLAS lacks %s", missing);
    return DCPK_OK;
}

static dcpk_status blas_check(const struct cuda_blas *blas, cublasStatus_t code, const char *doing,
                              struct dcpk_error *err)
{
    if (code == CUBLAS_STATUS_SUCCESS)
        return DCPK_OK;
    return dcpk_fail(err, code == CUBLAS_STATUS_ALLOC_FAILED ? DCPK_ENOMEM : DCPK_EIO,
                     "%s: cuBLAS: %s", doing, blas->reason(code));
}

static dcpk_status blas_fill(struct dcpk_math *math, struct cuda_blas *blas, struct dcpk_error *err)
{
    const struct cuda_device *s = cuda_math_device(math);
    cublasStatus_t code;

    if (blas_load(blas, err) || cuda_memory_alloc(math->device, DCPK_MEMORY_PRIVATE,
                                                  WORKSPACE_BYTES, &blas->workspace, err))
        return err->status;
    dcpk_cuda_enter(&s->driver, s->context);
    code = blas->create(&blas->handle);
    if (code == CUBLAS_STATUS_SUCCESS)
        code = blas->set_stream(blas->handle, s->queues[0].stream);
    if (code == CUBLAS_STATUS_SUCCESS)
        code = blas->set_workspace(blas->handle, blas->workspace, WORKSPACE_BYTES);
    if (code == CUBLAS_STATUS_SUCCESS)
        code = blas->set_math_mode(blas->handle, MATH_MODE);
    dcpk_cuda_leave(&s->driver);
    return blas_check(blas, code, "opening", err);
}

dcpk_status cuda_blas_open(struct dcpk_math *math, struct cuda_blas **blas, struct dcpk_error *err)
{
    struct cuda_blas *made = dcpk_alloc(sizeof *made, err);

    if (made == NULL)
        return err->status;
    if (blas_fill(math, made, err)) {
        cuda_blas_close(math, made);
        return err->status;
    }
    *blas = made;
    return DCPK_OK;
}

void cuda_blas_close(struct dcpk_math *math, struct cuda_blas *blas)
{
    const struct cuda_device *s = cuda_math_device(math);

    if (blas == NULL)
        return;
    if (blas->handle != NULL) {
        dcpk_cuda_enter(&s->driver, s->context);
        blas->destroy(blas->handle);
        dcpk_cuda_leave(&s->driver);
    }
    dcpk_free(blas);
}

static cudaDataType_t blas_type(enum dcpk_dtype dtype)
{
    if (dtype == DCPK_BF16)
        return CUDA_R_16BF;
    if (dtype == DCPK_F16)
        return CUDA_R_16F;
    return CUDA_R_32F;
}

/* Also for a factor without columns: cuBLAS takes no 0. */
static int blas_stride(const struct blas_matrix *factor)
{
    return (int)dcpk_max_i64(factor->stride, 1);
}

void cuda_blas_multiply(struct dcpk_math *math, const struct blas_product *p)
{
    const struct cuda_device *s = cuda_math_device(math);
    const struct cuda_blas *blas = ((const struct cuda_math *)math)->blas;
    const cublasOperation_t first = p->form == BLAS_ROWS ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t second = p->form == BLAS_LEAF ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cudaDataType_t in = blas_type(p->in_dtype), out = blas_type(p->out_dtype);
    const float one = 1, more = p->adds ? 1 : 0;
    struct dcpk_error err = DCPK_ERROR_INIT;
    cublasStatus_t code;

    if (p->rows == 0 || p->columns == 0 || p->n_batch == 0)
        return;
    dcpk_cuda_enter(&s->driver, s->context);
    code = blas->multiply(blas->handle, first, second, (int)p->columns, (int)p->rows, (int)p->inner,
                          &one, p->b.at, in, blas_stride(&p->b), p->b.step, p->a.at, in,
                          blas_stride(&p->a), p->a.step, &more, (void *)(uintptr_t)p->out.at, out,
                          (int)p->out.stride, p->out.step, (int)p->n_batch, CUBLAS_COMPUTE_32F,
                          CUBLAS_GEMM_DEFAULT);
    dcpk_cuda_leave(&s->driver);
    if (blas_check(blas, code, "a product", &err))
        dcpk_math_fault(math, &err);
}
