/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_loss.c - cross entropy over a vocabulary that ranks share out. */
#include <assert.h>
#include <math.h>

#include "kernels/cpu/cpu_ops.h"
#include "lib/device/ops_math.h"

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
