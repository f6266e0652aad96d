/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_layers.c - what works on single tokens: norms, rotary positions, SwiGLU, embeddings. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu_ops.h"
#include "lib/device/ops_math.h"

/* ---- RMSNorm ----
 *   s = 1 / sqrt(mean(x^2) + e)          y = x s w
 *   dx = s dy w - x s^3 mean(dy w x)     dw = sum over rows of dy x s
 */
static float row_scale(const struct dcpk_rmsnorm *shape, const float *x)
{
    float sum = 0;

    for (int64_t i = 0; i < shape->columns; i++)
        sum += x[i] * x[i];
    return 1.0f / sqrtf(sum / (float)shape->columns + shape->epsilon);
}

void cpu_rmsnorm(struct dcpk_math *math, const struct dcpk_rmsnorm *shape, const void *x,
                 const void *w, void *y)
{
    const int64_t n = shape->columns;
    float *row = cpu_scratch(math, 2 * n), *weight;

    if (row == NULL)
        return;
    weight = row + n;
    cpu_load(shape->dtype, w, 0, n, weight);
    for (int64_t r = 0; r < shape->rows; r++) {
        float scale;

        cpu_load(shape->dtype, x, r * n, n, row);
        scale = row_scale(shape, row);
        for (int64_t i = 0; i < n; i++)
            row[i] = row[i] * scale * weight[i];
        cpu_store(shape->dtype, row, n, y, r * n);
    }
}

void cpu_rmsnorm_input(struct dcpk_math *math, const struct dcpk_rmsnorm *shape, const void *x,
                       const void *w, const void *dy, void *dx)
{
    const int64_t n = shape->columns;
    float *row = cpu_scratch(math, 3 * n), *weight, *d;

    if (row == NULL)
        return;
    weight = row + n;
    d = row + 2 * n;
    cpu_load(shape->dtype, w, 0, n, weight);
    for (int64_t r = 0; r < shape->rows; r++) {
        float scale, back, sum = 0;

        cpu_load(shape->dtype, x, r * n, n, row);
        cpu_load(shape->dtype, dy, r * n, n, d);
        scale = row_scale(shape, row);
        for (int64_t i = 0; i < n; i++)
            d[i] *= weight[i];
        for (int64_t i = 0; i < n; i++)
            sum += d[i] * row[i];
        back = scale * scale * scale * (sum / (float)n);
        for (int64_t i = 0; i < n; i++)
            d[i] = d[i] * scale - row[i] * back;
        cpu_store(shape->dtype, d, n, dx, r * n);
    }
}

void cpu_rmsnorm_weight(struct dcpk_math *math, const struct dcpk_rmsnorm *shape, const void *x,
                        const void *dy, float *dw)
{
    const int64_t n = shape->columns;
    float *row = cpu_scratch(math, 2 * n), *d;

    assert(shape->rows % shape->lanes == 0);
    if (row == NULL)
        return;
    d = row + n;
    memset(dw, 0, (size_t)(shape->lanes * n) * sizeof *dw);
    for (int64_t r = 0; r < shape->rows; r++) {
        float *sum = dw + r % shape->lanes * n, scale;

        cpu_load(shape->dtype, x, r * n, n, row);
        cpu_load(shape->dtype, dy, r * n, n, d);
        scale = row_scale(shape, row);
        for (int64_t i = 0; i < n; i++)
            sum[i] += d[i] * (row[i] * scale);
    }
}

/* ---- rotary positions ----
 * A pair (x1, x2) of the halves is turned by the angle of its row and place; back by minus it. */
static void heads_turn(struct dcpk_math *math, const struct dcpk_rope *shape, const float *table,
                       float sign, const void *x, void *y)
{
    const int64_t n = shape->head_dim, half = n / 2;
    float *row = cpu_scratch(math, 2 * n), *turned;

    if (row == NULL)
        return;
    turned = row + n;
    for (int64_t i = 0; i < shape->rows * shape->heads; i++) {
        const float *cosines = table + i / shape->heads * half;
        const float *sines = cosines + shape->rows * half;

        cpu_load(shape->dtype, x, i * n, n, row);
        for (int64_t j = 0; j < half; j++) {
            const float sine = sign * sines[j];

            turned[j] = row[j] * cosines[j] - row[half + j] * sine;
            turned[half + j] = row[half + j] * cosines[j] + row[j] * sine;
        }
        cpu_store(shape->dtype, turned, n, y, i * n);
    }
}

void cpu_rope(struct dcpk_math *math, const struct dcpk_rope *shape, const float *table,
              const void *x, void *y)
{
    heads_turn(math, shape, table, 1.0f, x, y);
}

void cpu_rope_backward(struct dcpk_math *math, const struct dcpk_rope *shape, const float *table,
                       const void *dy, void *dx)
{
    heads_turn(math, shape, table, -1.0f, dy, dx);
}

/* ---- SwiGLU ----
 *   y = g s(g) u     dg = dy u s (1 + g (1 - s))     du = dy g s     with the sigmoid s = s(g)
 */
void cpu_swiglu(struct dcpk_math *math, const struct dcpk_matrix *shape, const void *x, void *y)
{
    const int64_t n = shape->columns;
    float *gate = cpu_scratch(math, 2 * n), *up;

    if (gate == NULL)
        return;
    up = gate + n;
    for (int64_t r = 0; r < shape->rows; r++) {
        cpu_load(shape->dtype, x, r * 2 * n, 2 * n, gate);
        for (int64_t i = 0; i < n; i++)
            gate[i] = gate[i] * dcpk_sigmoid(gate[i]) * up[i];
        cpu_store(shape->dtype, gate, n, y, r * n);
    }
}

void cpu_swiglu_backward(struct dcpk_math *math, const struct dcpk_matrix *shape, const void *x,
                         const void *dy, void *dx)
{
    const int64_t n = shape->columns;
    float *gate = cpu_scratch(math, 3 * n), *up, *d;

    if (gate == NULL)
        return;
    up = gate + n;
    d = gate + 2 * n;
    for (int64_t r = 0; r < shape->rows; r++) {
        cpu_load(shape->dtype, x, r * 2 * n, 2 * n, gate);
        cpu_load(shape->dtype, dy, r * n, n, d);
        for (int64_t i = 0; i < n; i++) {
            const float s = dcpk_sigmoid(gate[i]), silu = gate[i] * s;

            gate[i] = d[i] * up[i] * (s * (1.0f + gate[i] * (1.0f - s)));
            up[i] = d[i] * silu;
        }
        cpu_store(shape->dtype, gate, 2 * n, dx, r * 2 * n);
    }
}

/* ---- embeddings ---- */

void cpu_embedding(struct dcpk_math *math, const struct dcpk_embedding *shape,
                   const int32_t *tokens, const void *w, void *y)
{
    const int64_t n = shape->columns;
    float *row = cpu_scratch(math, n);

    for (int64_t t = 0; row != NULL && t < shape->n_tokens; t++) {
        const int64_t at = tokens[t] - shape->first;

        memset(row, 0, (size_t)n * sizeof *row);
        if (at >= 0 && at < shape->vocab_rows)
            cpu_load(shape->dtype, w, at * n, n, row);
        for (int64_t i = 0; i < n; i++)
            row[i] += 0.0f; /* -0 becomes 0, as it does in a sum over ranks */
        cpu_store(shape->dtype, row, n, y, t * n);
    }
}

void cpu_embedding_weight(struct dcpk_math *math, const struct dcpk_embedding *shape,
                          const int32_t *tokens, const void *dy, float *dw)
{
    const int64_t n = shape->columns;
    float *row = cpu_scratch(math, n);

    for (int64_t t = 0; row != NULL && t < shape->n_tokens; t++) {
        const int64_t at = tokens[t] - shape->first;

        if (at < 0 || at >= shape->vocab_rows)
            continue;
        cpu_load(shape->dtype, dy, t * n, n, row);
        for (int64_t i = 0; i < n; i++)
            dw[at * n + i] += row[i];
    }
}

/* ---- cross entropy over a vocabulary that ranks share out ---- */

void cpu_cross_entropy_max(struct dcpk_math *math, const struct dcpk_cross_entropy *shape,
                           const void *logits, float *max)
{
    const int64_t n = shape->columns;
    float *row = cpu_scratch(math, n);

    for (int64_t r = 0; row != NULL && r < shape->rows; r++) {
        float most = -INFINITY;

        cpu_load(shape->dtype, logits, r * n, n, row);
        for (int64_t i = 0; i < n; i++)
            most = row[i] > most ? row[i] : most;
        max[r] = most;
    }
}

void cpu_cross_entropy_sums(struct dcpk_math *math, const struct dcpk_cross_entropy *shape,
                            const void *logits, const float *max, float *sums)
{
    const int64_t n = shape->columns, in_slice = n / shape->n_slices;
    float *row = cpu_scratch(math, n);

    assert(n % shape->n_slices == 0);
    for (int64_t r = 0; row != NULL && r < shape->rows; r++) {
        cpu_load(shape->dtype, logits, r * n, n, row);
        for (int64_t i = 0; i < n; i++)
            row[i] = dcpk_exp(row[i] - max[r]);
        for (int64_t slice = 0; slice < shape->n_slices; slice++) {
            float sum = 0;

            for (int64_t i = slice * in_slice; i < (slice + 1) * in_slice; i++)
                sum += row[i];
            sums[slice * shape->rows + r] = sum;
        }
    }
}

void cpu_cross_entropy_labels(struct dcpk_math *math, const struct dcpk_cross_entropy *shape,
                              const void *logits, const int32_t *labels, float *label_logits)
{
    (void)math;
    for (int64_t r = 0; r < shape->rows; r++) {
        const int64_t at = labels[r] - shape->first;

        label_logits[r] = 0;
        if (at >= 0 && at < shape->columns)
            cpu_load(shape->dtype, logits, r * shape->columns + at, 1, &label_logits[r]);
    }
}

void cpu_cross_entropy(struct dcpk_math *math, int64_t n, const float *max, const float *sum,
                       const float *label_logits, float *losses)
{
    (void)math;
    for (int64_t r = 0; r < n; r++)
        losses[r] = dcpk_log(sum[r]) - (label_logits[r] - max[r]);
}

/* d = (p - 1 for the label) factor */
void cpu_cross_entropy_backward(struct dcpk_math *math, const struct dcpk_cross_entropy *shape,
                                const struct dcpk_cross_entropy_backward *data)
{
    const int64_t n = shape->columns;
    float *row = cpu_scratch(math, n);

    for (int64_t r = 0; row != NULL && r < shape->rows; r++) {
        const int64_t at = data->labels[r] - shape->first;

        cpu_load(shape->dtype, data->logits, r * n, n, row);
        for (int64_t i = 0; i < n; i++)
            row[i] = dcpk_exp(row[i] - data->max[r]) / data->sum[r];
        if (at >= 0 && at < n)
            row[at] -= 1.0f;
        for (int64_t i = 0; i < n; i++)
            row[i] *= data->factor[r];
        cpu_store(shape->dtype, row, n, data->d_logits, r * n);
    }
}
