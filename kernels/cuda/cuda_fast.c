/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_fast.c - the row "cublas": "cuda" with products by cuBLAS, and attention by products. */
/*
 * Attention of a block of queries, of all heads at once; s, p, ds: [heads, block, keys seen]
 *
 *   forward:    s = q k^T   ->  p = softmax   ->  out = p v
 *   backward:   s = q k^T, dp = d_out v^T   ->  p, ds
 *               d_q = ds k, d_k += ds^T q, d_v += p^T d_out
 *
 * Blocks are small enough that scores stay in the GPU's second cache, and see no keys after them.
 * Query heads j of all groups are a batch, since they lie at one distance: per_group batches.
 */
#include <assert.h>
#include <cublas_v2.h>
#include <dlfcn.h>

#include "kernels/cuda/cuda_driver.h"
#include "kernels/cuda/cuda_math_host.h"
#include "kernels/kernels.h"
#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/base/symbols.h"

/* ---- cuBLAS, loaded when it is opened ---- */

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

static void blas_close(struct dcpk_math *math, struct cuda_blas *blas)
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

/* libcublas.so of CUDA 12 or 13; *blas is set on success only. In the context of the math, whose
 * stream it takes. Errors: DCPK_EUNSUPPORTED with the reason, DCPK_ENOMEM. */
static dcpk_status blas_open(struct dcpk_math *math, struct cuda_blas **blas,
                             struct dcpk_error *err)
{
    struct cuda_blas *made = dcpk_alloc(sizeof *made, err);

    if (made == NULL)
        return err->status;
    if (blas_fill(math, made, err)) {
        blas_close(math, made);
        return err->status;
    }
    *blas = made;
    return DCPK_OK;
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

/* Queue it; a fault is kept for the next wait. */
static void blas_multiply(struct dcpk_math *math, const struct blas_product *p)
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

/* ---- mathematics by it ---- */

/* fp32 scores of a block: an H200's second cache has 50 MiB. */
#define SCORE_BYTES ((int64_t)24 << 20)
#define NORM_ROWS   128 /* that a thread adds up before they are partial sums */

/* ---- products ---- */

/* Slices are a batch; the second half of `inner` is added to the first. */
static void fast_matmul(struct dcpk_math *math, const struct dcpk_matmul *shape, const void *x,
                        const void *w, void *out)
{
    const int64_t n = shape->inner / (shape->n_slices * shape->n_parts);
    const size_t bytes = dcpk_dtype_bytes(shape->dtype);

    for (int64_t part = 0; part < shape->n_parts; part++) {
        const size_t at = (size_t)(part * (shape->inner / shape->n_parts)) * bytes;
        const struct blas_product product = {
            .form = BLAS_ROWS,
            .rows = shape->rows,
            .columns = shape->columns,
            .inner = n,
            .n_batch = shape->n_slices,
            .a = {(const uint8_t *)x + at, shape->inner, n},
            .b = {(const uint8_t *)w + at, shape->inner, n},
            .out = {out, shape->columns, shape->rows * shape->columns},
            .in_dtype = shape->dtype,
            .out_dtype = shape->out,
            .adds = part > 0,
        };

        blas_multiply(math, &product);
    }
}

static void fast_matmul_input(struct dcpk_math *math, const struct dcpk_matmul *shape,
                              const void *dy, const void *w, void *out)
{
    const int64_t n = shape->inner / (shape->n_slices * shape->n_parts);
    const size_t bytes = dcpk_dtype_bytes(shape->dtype);

    for (int64_t part = 0; part < shape->n_parts; part++) {
        const size_t at = (size_t)(part * (shape->inner / shape->n_parts)) * bytes;
        const struct blas_product product = {
            .form = BLAS_COLUMNS,
            .rows = shape->rows,
            .columns = shape->columns,
            .inner = n,
            .n_batch = shape->n_slices,
            .a = {(const uint8_t *)dy + at, shape->inner, n},
            .b = {(const uint8_t *)w + at * (size_t)shape->columns, shape->columns,
                  n * shape->columns},
            .out = {out, shape->columns, shape->rows * shape->columns},
            .in_dtype = shape->dtype,
            .out_dtype = shape->out,
            .adds = part > 0,
        };

        blas_multiply(math, &product);
    }
}

static void fast_matmul_weight(struct dcpk_math *math, const struct dcpk_matmul *shape,
                               const void *dy, const void *x, float *dw)
{
    const struct blas_product product = {
        .form = BLAS_LEAF,
        .rows = shape->rows,
        .columns = shape->columns,
        .inner = shape->inner,
        .n_batch = 1,
        .a = {dy, shape->rows, 0},
        .b = {x, shape->columns, 0},
        .out = {dw, shape->columns, 0},
        .in_dtype = shape->dtype,
        .out_dtype = DCPK_F32,
    };

    blas_multiply(math, &product);
}

/* ---- attention ---- */

/* A block of queries of all heads. */
struct block {
    const struct dcpk_attention *shape;
    int64_t row, n_rows; /* queries */
    int64_t n_keys;      /* that the last of them sees */
    float *s, *dp;       /* scores, and gradients of probabilities */
    uint8_t *p, *ds;     /* of the shape's dtype */
};

/* The matrix in a row of a head: of queries, the j-th of each group; of keys, all of a group. */
static struct blas_matrix query_heads(const struct block *b, const void *q, int64_t j)
{
    const struct dcpk_attention *a = b->shape;
    const int64_t stride = a->groups * a->per_group * a->head_dim;
    const int64_t at = b->row * stride + j * a->head_dim;

    return (struct blas_matrix){(const uint8_t *)q + (size_t)at * dcpk_dtype_bytes(a->dtype),
                                stride, a->per_group * a->head_dim};
}

static struct blas_matrix key_heads(const struct block *b, const void *k)
{
    return (struct blas_matrix){k, b->shape->groups * b->shape->head_dim, b->shape->head_dim};
}

/* Scores, or what has their shape, of the j-th heads of all groups. */
static struct blas_matrix score_heads(const struct block *b, const void *s, size_t elem_bytes,
                                      int64_t j)
{
    const int64_t n = b->n_rows * b->n_keys;

    return (struct blas_matrix){
        (const uint8_t *)s + (size_t)(j * b->shape->groups * n) * elem_bytes, b->n_keys, n};
}

/* out [block, keys] = x keys^T, of queries or their gradients. */
static void block_scores(struct dcpk_math *math, const struct block *b, const void *x,
                         const void *keys, float *out)
{
    for (int64_t j = 0; j < b->shape->per_group; j++) {
        const struct blas_product product = {
            .form = BLAS_ROWS,
            .rows = b->n_rows,
            .columns = b->n_keys,
            .inner = b->shape->head_dim,
            .n_batch = b->shape->groups,
            .a = query_heads(b, x, j),
            .b = key_heads(b, keys),
            .out = score_heads(b, out, sizeof *out, j),
            .in_dtype = b->shape->dtype,
            .out_dtype = DCPK_F32,
        };

        blas_multiply(math, &product);
    }
}

/* out [block, head_dim] = p values. */
static void block_values(struct dcpk_math *math, const struct block *b, const void *p,
                         const void *values, void *out)
{
    for (int64_t j = 0; j < b->shape->per_group; j++) {
        const struct blas_product product = {
            .form = BLAS_COLUMNS,
            .rows = b->n_rows,
            .columns = b->shape->head_dim,
            .inner = b->n_keys,
            .n_batch = b->shape->groups,
            .a = score_heads(b, p, dcpk_dtype_bytes(b->shape->dtype), j),
            .b = key_heads(b, values),
            .out = query_heads(b, out, j),
            .in_dtype = b->shape->dtype,
            .out_dtype = b->shape->dtype,
        };

        blas_multiply(math, &product);
    }
}

/* sum [keys, head_dim] += p^T x; the heads of a group follow one another. */
static void block_keys(struct dcpk_math *math, const struct block *b, const void *p, const void *x,
                       float *sum)
{
    for (int64_t j = 0; j < b->shape->per_group; j++) {
        const struct blas_product product = {
            .form = BLAS_LEAF,
            .rows = b->n_keys,
            .columns = b->shape->head_dim,
            .inner = b->n_rows,
            .n_batch = b->shape->groups,
            .a = score_heads(b, p, dcpk_dtype_bytes(b->shape->dtype), j),
            .b = query_heads(b, x, j),
            .out = key_heads(b, sum),
            .in_dtype = b->shape->dtype,
            .out_dtype = DCPK_F32,
            .adds = true,
        };

        blas_multiply(math, &product);
    }
}

static void block_softmax(struct dcpk_math *math, const struct block *b)
{
    const struct dcpk_attention *a = b->shape;
    struct math_scores scores = {.n = a->groups * a->per_group * b->n_rows,
                                 .n_rows = b->n_rows,
                                 .n_keys = b->n_keys,
                                 .first = a->first + b->row,
                                 .scale = a->scale,
                                 .dtype = (int32_t)a->dtype,
                                 .s = b->s,
                                 .dp = b->dp,
                                 .p = b->p,
                                 .ds = b->ds};

    cuda_math_launch(math, MATH_SOFTMAX, (scores.n + SOFTMAX_ROWS - 1) / SOFTMAX_ROWS,
                     (void *[]){&scores});
}

/* The next block after `row`, with room for what it computes; false where there is none. */
static bool block_next(struct dcpk_math *math, struct block *b, bool is_backward)
{
    const struct dcpk_attention *a = b->shape;
    const int64_t heads = a->groups * a->per_group, bytes = (int64_t)dcpk_dtype_bytes(a->dtype);
    const int64_t most = heads * dcpk_max_i64(a->first + a->rows, 1) * (int64_t)sizeof(float);
    const int64_t rows = dcpk_max_i64(SCORE_BYTES / most / 64 * 64, 64);
    int64_t n, of_each;

    b->row += b->n_rows;
    b->n_rows = dcpk_min_i64(rows, a->rows - b->row);
    if (b->n_rows <= 0)
        return false;
    b->n_keys = a->first + b->row + b->n_rows;
    n = heads * b->n_rows * b->n_keys;
    of_each = n * ((int64_t)sizeof(float) + bytes);
    b->s = cuda_math_room(math, is_backward ? 2 * of_each : of_each);
    if (b->s == NULL)
        return false;
    b->p = (uint8_t *)(b->s + n);
    if (is_backward) {
        b->dp = b->s + n;
        b->p = (uint8_t *)(b->s + 2 * n);
        b->ds = b->p + n * bytes;
    }
    return true;
}

static void fast_attention(struct dcpk_math *math, const struct dcpk_attention *shape,
                           const void *q, const void *k, const void *v, void *out)
{
    struct block b = {.shape = shape};

    assert(shape->n_keys >= shape->first + shape->rows);
    while (block_next(math, &b, false)) {
        block_scores(math, &b, q, k, b.s);
        block_softmax(math, &b);
        block_values(math, &b, b.p, v, out);
    }
}

static void fast_attention_backward(struct dcpk_math *math, const struct dcpk_attention *shape,
                                    const struct dcpk_attention_backward *data)
{
    const size_t n_bytes =
        (size_t)(shape->n_keys * shape->groups * shape->head_dim) * sizeof(float);
    struct block b = {.shape = shape};

    assert(shape->n_keys >= shape->first + shape->rows);
    math->ops->zero(math, data->d_k, n_bytes);
    math->ops->zero(math, data->d_v, n_bytes);
    while (block_next(math, &b, true)) {
        block_scores(math, &b, data->q, data->k, b.s);
        block_scores(math, &b, data->d_out, data->v, b.dp);
        block_softmax(math, &b);
        block_values(math, &b, b.ds, data->k, data->d_q);
        block_keys(math, &b, b.ds, data->q, data->d_k);
        block_keys(math, &b, b.p, data->d_out, data->d_v);
    }
}

/* ---- norms ---- */

/* Rows are cut into parts, whose sums are added in a second pass. */
static void fast_rmsnorm_weight(struct dcpk_math *math, const struct dcpk_rmsnorm *shape,
                                const void *x, const void *dy, float *dw)
{
    int64_t n_parts = (shape->rows + NORM_ROWS - 1) / NORM_ROWS;
    const int64_t n = shape->columns, n_sums = n_parts * n;
    int64_t part_rows = NORM_ROWS;
    float *scales, *sums;

    if (shape->lanes > 1 || n_parts <= 1) {
        cuda_rmsnorm_weight(math, shape, x, dy, dw);
        return;
    }
    scales = cuda_math_room(math, (shape->rows + n_sums) * (int64_t)sizeof(float));
    if (scales == NULL)
        return;
    sums = scales + shape->rows;
    cuda_math_launch(math, MATH_RMSNORM_SCALES, shape->rows,
                     (void *[]){cuda_math_value(shape), &x, &scales});
    cuda_math_each(
        math, MATH_RMSNORM_PARTS, n_sums,
        (void *[]){cuda_math_value(shape), &part_rows, &n_parts, &x, &dy, &scales, &sums});
    cuda_math_each(math, MATH_ADD_PARTS, n,
                   (void *[]){(void *)(uintptr_t)&n, &n_parts, &sums, &dw});
}

/* ---- the row ---- */

static dcpk_status fast_open(struct dcpk_math *math, struct dcpk_error *err)
{
    if (cuda_math_open(math, err))
        return err->status;
    return blas_open(math, &((struct cuda_math *)math)->blas, err);
}

static void fast_close(struct dcpk_math *math)
{
    blas_close(math, ((struct cuda_math *)math)->blas);
    cuda_math_close(math);
}

const struct dcpk_ops dcpk_cublas_ops = {.name = "cublas",
                                         .summary = "NVIDIA GPUs, products by cuBLAS",
                                         .open = fast_open,
                                         .close = fast_close,
                                         CUDA_MATH_SHARED DCPK_OPS_MAIN(DCPK_OPS_ROW, fast)};
