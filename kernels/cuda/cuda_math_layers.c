/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_math_layers.c - products, layers and experts queued on a GPU: which kernel, how many blocks.
 */
#include <assert.h>
#include <math.h>

#include "kernels/cuda/cuda_math_host.h"
#include "lib/base/order.h"

#define ATTENTION_BLOCKS 2048 /* each has room for one row of probabilities */

/* ---- products ---- */

/* Factors as a linear layer has them: rows of `a` times rows of `b`. */
static struct math_product product_of(const struct dcpk_matmul *shape, const void *a, const void *b,
                                      void *out)
{
    return (struct math_product){{a, shape->rows, (int32_t)shape->dtype, 0},
                                 {b, shape->columns, (int32_t)shape->dtype, 0},
                                 out,
                                 shape->inner,
                                 shape->n_slices,
                                 shape->n_parts,
                                 (int32_t)shape->out};
}

void cuda_matmul(struct dcpk_math *math, const struct dcpk_matmul *shape, const void *x,
                 const void *w, void *out)
{
    struct math_product product = product_of(shape, x, w, out);

    cuda_math_multiply(math, &product);
}

void cuda_matmul_input(struct dcpk_math *math, const struct dcpk_matmul *shape, const void *dy,
                       const void *w, void *out)
{
    struct math_product product = product_of(shape, dy, w, out);

    product.b.is_inner_first = 1;
    cuda_math_multiply(math, &product);
}

void cuda_matmul_weight(struct dcpk_math *math, const struct dcpk_matmul *shape, const void *dy,
                        const void *x, float *dw)
{
    struct math_product product = product_of(shape, dy, x, dw);

    product.a.is_inner_first = product.b.is_inner_first = 1;
    product.out_dtype = DCPK_F32;
    product.n_slices = product.n_parts = 1;
    cuda_math_multiply(math, &product);
}

void cuda_add_slices(struct dcpk_math *math, const struct dcpk_matrix *shape, int64_t n_slices,
                     const float *partials, void *out)
{
    int64_t n = shape->rows * shape->columns;
    int dtype = (int)shape->dtype;

    assert(n_slices >= 1 && n_slices <= DCPK_MAX_SLICES);
    cuda_math_each(math, MATH_ADD_SLICES, n, (void *[]){&dtype, &n, &n_slices, &partials, &out});
}

/* ---- layers ---- */

void cuda_rmsnorm(struct dcpk_math *math, const struct dcpk_rmsnorm *shape, const void *x,
                  const void *w, void *y)
{
    cuda_math_launch(math, MATH_RMSNORM, shape->rows,
                     (void *[]){cuda_math_value(shape), &x, &w, &y});
}

void cuda_rmsnorm_input(struct dcpk_math *math, const struct dcpk_rmsnorm *shape, const void *x,
                        const void *w, const void *dy, void *dx)
{
    cuda_math_launch(math, MATH_RMSNORM_INPUT, shape->rows,
                     (void *[]){cuda_math_value(shape), &x, &w, &dy, &dx});
}

void cuda_rmsnorm_weight(struct dcpk_math *math, const struct dcpk_rmsnorm *shape, const void *x,
                         const void *dy, float *dw)
{
    void *scales = cuda_math_room(math, shape->rows * (int64_t)sizeof(float));

    assert(shape->rows % shape->lanes == 0);
    if (scales == NULL)
        return;
    cuda_math_launch(math, MATH_RMSNORM_SCALES, shape->rows,
                     (void *[]){cuda_math_value(shape), &x, &scales});
    cuda_math_each(math, MATH_RMSNORM_WEIGHT, shape->lanes * shape->columns,
                   (void *[]){cuda_math_value(shape), &x, &dy, &scales, &dw});
}

static void rope_launch(struct dcpk_math *math, const struct dcpk_rope *shape, const float *table,
                        float sign, const void *x, void *y)
{
    cuda_math_each(math, MATH_ROPE, shape->rows * shape->heads * (shape->head_dim / 2),
                   (void *[]){cuda_math_value(shape), &sign, &table, &x, &y});
}

void cuda_rope(struct dcpk_math *math, const struct dcpk_rope *shape, const float *table,
               const void *x, void *y)
{
    rope_launch(math, shape, table, 1.0f, x, y);
}

void cuda_rope_backward(struct dcpk_math *math, const struct dcpk_rope *shape, const float *table,
                        const void *dy, void *dx)
{
    rope_launch(math, shape, table, -1.0f, dy, dx);
}

void cuda_swiglu(struct dcpk_math *math, const struct dcpk_matrix *shape, const void *x, void *y)
{
    cuda_math_each(math, MATH_SWIGLU, shape->rows * shape->columns,
                   (void *[]){cuda_math_value(shape), &x, &y});
}

void cuda_swiglu_backward(struct dcpk_math *math, const struct dcpk_matrix *shape, const void *x,
                          const void *dy, void *dx)
{
    cuda_math_each(math, MATH_SWIGLU_BACKWARD, shape->rows * shape->columns,
                   (void *[]){cuda_math_value(shape), &x, &dy, &dx});
}

void cuda_embedding(struct dcpk_math *math, const struct dcpk_embedding *shape,
                    const int32_t *tokens, const void *w, void *y)
{
    cuda_math_each(math, MATH_EMBEDDING, shape->n_tokens * shape->columns,
                   (void *[]){cuda_math_value(shape), &tokens, &w, &y});
}

void cuda_embedding_weight(struct dcpk_math *math, const struct dcpk_embedding *shape,
                           const int32_t *tokens, const void *dy, float *dw)
{
    cuda_math_launch(math, MATH_EMBEDDING_WEIGHT, shape->n_tokens,
                     (void *[]){cuda_math_value(shape), &tokens, &dy, &dw});
}

/* ---- attention ---- */

void cuda_attention(struct dcpk_math *math, const struct dcpk_attention *shape, const void *q,
                    const void *k, const void *v, void *out)
{
    const int64_t n =
        dcpk_min_i64(shape->rows * shape->groups * shape->per_group, ATTENTION_BLOCKS);
    void *room = cuda_math_room(math, n * shape->n_keys * (int64_t)sizeof(float));

    assert(shape->n_keys >= shape->first + shape->rows);
    if (room != NULL)
        cuda_math_launch(math, MATH_ATTENTION, n,
                         (void *[]){cuda_math_value(shape), &q, &k, &v, &out, &room});
}

void cuda_attention_backward(struct dcpk_math *math, const struct dcpk_attention *shape,
                             const struct dcpk_attention_backward *data)
{
    const int64_t queries = shape->per_group * shape->rows, n = queries * shape->n_keys;
    float *room = cuda_math_room(math, 2 * n * (int64_t)sizeof *room);

    assert(shape->n_keys >= shape->first + shape->rows);
    for (int64_t group = 0; room != NULL && group < shape->groups; group++) {
        struct math_attention_group by_value = {*shape, *data, group, room, room + n};

        cuda_math_launch(math, MATH_ATTENTION_QUERIES, queries, (void *[]){&by_value});
        cuda_math_launch(math, MATH_ATTENTION_KEYS, shape->n_keys, (void *[]){&by_value});
    }
}

/* ---- experts ---- */

void cuda_router(struct dcpk_math *math, const struct dcpk_router *shape, const float *logits,
                 const float *bias, int32_t *chosen, float *probs)
{
    void *room = cuda_math_room(math, shape->rows * shape->experts * (int64_t)sizeof(float));

    assert(shape->topk >= 1 && shape->topk <= shape->experts);
    if (room != NULL)
        cuda_math_each(math, MATH_ROUTER, shape->rows,
                       (void *[]){cuda_math_value(shape), &logits, &bias, &chosen, &probs, &room});
}

void cuda_router_backward(struct dcpk_math *math, const struct dcpk_router *shape,
                          const float *logits, const int32_t *chosen, const float *d_probs,
                          float *d_logits)
{
    const int64_t n = shape->rows * (shape->experts + shape->topk);
    void *room = cuda_math_room(math, n * (int64_t)sizeof(float));

    if (room != NULL)
        cuda_math_each(
            math, MATH_ROUTER_BACKWARD, shape->rows,
            (void *[]){cuda_math_value(shape), &logits, &chosen, &d_probs, &d_logits, &room});
}

void cuda_gather_rows(struct dcpk_math *math, const struct dcpk_matrix *shape, const int32_t *index,
                      const void *x, void *y)
{
    cuda_math_each(math, MATH_GATHER_ROWS, shape->rows * shape->columns,
                   (void *[]){cuda_math_value(shape), &index, &x, &y});
}

void cuda_combine(struct dcpk_math *math, const struct dcpk_combine *shape, const int32_t *place,
                  const float *probs, const void *y, void *out)
{
    cuda_math_each(math, MATH_COMBINE, shape->rows * shape->columns,
                   (void *[]){cuda_math_value(shape), &place, &probs, &y, &out});
}

void cuda_combine_rows(struct dcpk_math *math, const struct dcpk_combine *shape,
                       const int32_t *place, const float *probs, const void *d_out, void *dy)
{
    cuda_math_each(math, MATH_COMBINE_ROWS, shape->rows * shape->topk * shape->columns,
                   (void *[]){cuda_math_value(shape), &place, &probs, &d_out, &dy});
}

void cuda_combine_probs(struct dcpk_math *math, const struct dcpk_combine *shape,
                        const int32_t *place, const void *y, const void *d_out, float *d_probs)
{
    cuda_math_launch(math, MATH_COMBINE_PROBS, shape->rows * shape->topk,
                     (void *[]){cuda_math_value(shape), &place, &y, &d_out, &d_probs});
}

/* ---- losses, exact sums, norms, optimizers and initial weights ---- */

void cuda_cross_entropy_max(struct dcpk_math *math, const struct dcpk_cross_entropy *shape,
                            const void *logits, float *max)
{
    cuda_math_launch(math, MATH_CROSS_ENTROPY_MAX, shape->rows,
                     (void *[]){cuda_math_value(shape), &logits, &max});
}

void cuda_cross_entropy_sums(struct dcpk_math *math, const struct dcpk_cross_entropy *shape,
                             const void *logits, const float *max, float *sums)
{
    assert(shape->columns % shape->n_slices == 0);
    cuda_math_launch(math, MATH_CROSS_ENTROPY_SUMS, shape->rows * shape->n_slices,
                     (void *[]){cuda_math_value(shape), &logits, &max, &sums});
}

void cuda_cross_entropy_labels(struct dcpk_math *math, const struct dcpk_cross_entropy *shape,
                               const void *logits, const int32_t *labels, float *label_logits)
{
    cuda_math_each(math, MATH_CROSS_ENTROPY_LABELS, shape->rows,
                   (void *[]){cuda_math_value(shape), &logits, &labels, &label_logits});
}

void cuda_cross_entropy(struct dcpk_math *math, int64_t n, const float *max, const float *sum,
                        const float *label_logits, float *losses)
{
    cuda_math_each(math, MATH_CROSS_ENTROPY, n, (void *[]){&n, &max, &sum, &label_logits, &losses});
}

void cuda_cross_entropy_backward(struct dcpk_math *math, const struct dcpk_cross_entropy *shape,
                                 const struct dcpk_cross_entropy_backward *data)
{
    cuda_math_each(math, MATH_CROSS_ENTROPY_BACKWARD, shape->rows * shape->columns,
                   (void *[]){cuda_math_value(shape), cuda_math_value(data)});
}

void cuda_to_fixed(struct dcpk_math *math, const struct dcpk_fixed *shape, const float *x,
                   int64_t *sums, uint64_t *bad)
{
    double unit = ldexp(1.0, shape->lsb);

    assert(shape->period >= 1);
    cuda_math_each(math, MATH_TO_FIXED, shape->period,
                   (void *[]){cuda_math_value(shape), &unit, &x, &sums, &bad});
}

void cuda_from_fixed(struct dcpk_math *math, int64_t n, double factor, const int64_t *sums,
                     float *x)
{
    cuda_math_each(math, MATH_FROM_FIXED, n, (void *[]){&n, &factor, &sums, &x});
}

void cuda_find_bad(struct dcpk_math *math, int64_t n, int64_t first, const float *x, uint64_t *bad)
{
    cuda_math_each(math, MATH_FIND_BAD, n, (void *[]){&n, &first, &x, &bad});
}

void cuda_sum_squares(struct dcpk_math *math, const struct dcpk_matrix *shape, int64_t n_slices,
                      const float *x, double *sums)
{
    int64_t n_sums = shape->rows * n_slices, n = shape->columns / n_slices;

    assert(shape->columns % n_slices == 0);
    cuda_math_launch(math, MATH_SUM_SQUARES, n_sums, (void *[]){&n_sums, &n, &x, &sums});
}

void cuda_adam(struct dcpk_math *math, const struct dcpk_adam *adam,
               const struct dcpk_optimizer_state *state)
{
    struct math_adam factors = {
        .beta1 = (float)adam->beta1,
        .rest1 = (float)(1.0 - adam->beta1),
        .beta2 = (float)adam->beta2,
        .rest2 = (float)(1.0 - adam->beta2),
        .epsilon = (float)adam->epsilon,
        .lr = (float)adam->lr,
        .decay = (float)adam->weight_decay,
        .c1 = (float)adam->c1,
        .c2 = (float)adam->c2,
    };

    if (adam->is_torch_form) {
        factors.lr = (float)(adam->lr / adam->c1);
        factors.decay = (float)(1.0 - adam->lr * adam->weight_decay);
        factors.c2 = (float)sqrt(adam->c2);
    }
    cuda_math_each(math, adam->is_torch_form ? MATH_ADAM_TORCH : MATH_ADAM_TE, state->n,
                   (void *[]){&factors, cuda_math_value(state)});
}

void cuda_sgd(struct dcpk_math *math, const struct dcpk_sgd *sgd,
              const struct dcpk_optimizer_state *state)
{
    float momentum = (float)sgd->momentum, decay = (float)sgd->weight_decay, lr = (float)sgd->lr;

    cuda_math_each(math, MATH_SGD, state->n,
                   (void *[]){&momentum, &decay, &lr, cuda_math_value(state)});
}

void cuda_normal(struct dcpk_math *math, const struct dcpk_normal *shape, float *x)
{
    cuda_math_each(math, MATH_NORMAL, shape->rows * shape->columns,
                   (void *[]){cuda_math_value(shape), &x});
}
