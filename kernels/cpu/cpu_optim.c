/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_optim.c - gradients as integers, norms, optimizers, initial weights. */
#include <assert.h>
#include <math.h>

#include "kernels/cpu/cpu_ops.h"
#include "lib/device/philox.h"

/* ---- exact sums ---- */

static void note_bad(int64_t number, uint64_t *bad)
{
    if (*bad < DCPK_BAD_RECORD(number))
        *bad = DCPK_BAD_RECORD(number);
}

void cpu_to_fixed(struct dcpk_math *math, const struct dcpk_fixed *shape, const float *x,
                  int64_t *sums, uint64_t *bad)
{
    const double unit = ldexp(1.0, shape->lsb), limit = (double)shape->limit;

    (void)math;
    assert(shape->period >= 1);
    for (int64_t first = 0; first < shape->n; first += shape->period)
        for (int64_t i = 0; i < shape->period && first + i < shape->n; i++) {
            const double scaled = (double)x[first + i] * unit;
            int64_t sum;

            /* A NaN fails as well. */
            if (!(scaled > -limit && scaled < limit) ||
                __builtin_add_overflow(sums[i], llrint(scaled), &sum) || sum >= shape->limit ||
                sum <= -shape->limit)
                note_bad(shape->first + first + i, bad);
            else
                sums[i] = sum;
        }
}

void cpu_from_fixed(struct dcpk_math *math, int64_t n, double factor, const int64_t *sums, float *x)
{
    (void)math;
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)((double)sums[i] * factor);
}

void cpu_find_bad(struct dcpk_math *math, int64_t n, int64_t first, const float *x, uint64_t *bad)
{
    (void)math;
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i]))
            note_bad(first + i, bad);
}

void cpu_sum_squares(struct dcpk_math *math, const struct dcpk_matrix *shape, int64_t n_slices,
                     const float *x, double *sums)
{
    const int64_t n = shape->columns / n_slices;

    (void)math;
    assert(shape->columns % n_slices == 0);
    for (int64_t at = 0; at < shape->rows * n_slices; at++, x += n) {
        double sum = 0;

        for (int64_t i = 0; i < n; i++)
            sum += (double)x[i] * (double)x[i];
        sums[at] = sum;
    }
}

/* ---- optimizers ---- */

static void adam_te(const struct dcpk_adam *adam, const struct dcpk_optimizer_state *state)
{
    const float beta1 = (float)adam->beta1, beta2 = (float)adam->beta2, lr = (float)adam->lr;
    const float rest1 = (float)(1.0 - adam->beta1), rest2 = (float)(1.0 - adam->beta2);
    const float epsilon = (float)adam->epsilon, decay = (float)adam->weight_decay;
    const float c1 = (float)adam->c1, c2 = (float)adam->c2;

    for (int64_t i = 0; i < state->n; i++) {
        const float g = state->grad[i], p = state->param[i];
        const float m = beta1 * state->first[i] + rest1 * g;
        const float v = beta2 * state->second[i] + rest2 * g * g;
        const float update = (m / c1) / (sqrtf(v / c2) + epsilon) + decay * p;

        state->first[i] = m;
        state->second[i] = v;
        state->param[i] = p - lr * update;
    }
}

static void adam_torch(const struct dcpk_adam *adam, const struct dcpk_optimizer_state *state)
{
    const float beta2 = (float)adam->beta2, keep = (float)(1.0 - adam->lr * adam->weight_decay);
    const float rest1 = (float)(1.0 - adam->beta1), rest2 = (float)(1.0 - adam->beta2);
    const float epsilon = (float)adam->epsilon, step = (float)(adam->lr / adam->c1);
    const float root2 = (float)sqrt(adam->c2);

    for (int64_t i = 0; i < state->n; i++) {
        const float g = state->grad[i], p = state->param[i] * keep;
        const float m = state->first[i] + (g - state->first[i]) * rest1;
        const float v = beta2 * state->second[i] + rest2 * g * g;

        state->first[i] = m;
        state->second[i] = v;
        state->param[i] = p - step * (m / (sqrtf(v) / root2 + epsilon));
    }
}

void cpu_adam(struct dcpk_math *math, const struct dcpk_adam *adam,
              const struct dcpk_optimizer_state *state)
{
    (void)math;
    if (adam->is_torch_form)
        adam_torch(adam, state);
    else
        adam_te(adam, state);
}

void cpu_sgd(struct dcpk_math *math, const struct dcpk_sgd *sgd,
             const struct dcpk_optimizer_state *state)
{
    const float momentum = (float)sgd->momentum, decay = (float)sgd->weight_decay;
    const float lr = (float)sgd->lr;

    (void)math;
    for (int64_t i = 0; i < state->n; i++) {
        float g = state->grad[i] + decay * state->param[i];

        if (state->first != NULL) {
            g = momentum * state->first[i] + g;
            state->first[i] = g;
        }
        state->param[i] -= lr * g;
    }
}

/* ---- initial weights ---- */

/* Box and Muller: a block's two numbers of (0, 1] give two normal ones. */
static float element_normal(uint64_t key, uint64_t element, double std)
{
    const double turn = 6.283185307179586;
    const struct dcpk_philox block = dcpk_philox_block(key, element / 2);
    const double radius = sqrt(-2.0 * log(dcpk_philox_unit(block.word[0], block.word[1])));
    const double angle = turn * dcpk_philox_unit(block.word[2], block.word[3]);

    return (float)(std * radius * (element % 2 == 0 ? cos(angle) : sin(angle)));
}

void cpu_normal(struct dcpk_math *math, const struct dcpk_normal *shape, float *x)
{
    (void)math;
    for (int64_t r = 0; r < shape->rows; r++)
        for (int64_t c = 0; c < shape->columns; c++) {
            const int64_t row = shape->first_row + r, column = shape->first_column + c;
            const int64_t element = row * shape->whole_columns + column;

            x[r * shape->columns + c] = element_normal(shape->key, (uint64_t)element, shape->std);
        }
}
