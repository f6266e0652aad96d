/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_math_optim.c - losses, exact sums, norms, optimizers and initial weights queued on a GPU. */
#include <assert.h>
#include <math.h>

#include "kernels/cuda/cuda_math_host.h"

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
