/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_experts.c - the router of a mixture of experts, and rows on their way to experts and back. */
#include <assert.h>
#include <string.h>

#include "kernels/cpu/cpu_ops.h"
#include "lib/device/ops_math.h"

/* ---- router ---- */

/* Scores that experts are chosen by: logits or probabilities, all `experts` of them. */
static void row_scores(const struct dcpk_router *shape, const float *logits, float *scores)
{
    if (shape->score == DCPK_TOPK_OF_SOFTMAX)
        dcpk_softmax(shape->experts, logits, scores);
    else if (shape->score == DCPK_TOPK_OF_SIGMOID)
        for (int64_t e = 0; e < shape->experts; e++)
            scores[e] = dcpk_sigmoid(logits[e]);
    else
        memcpy(scores, logits, (size_t)shape->experts * sizeof *scores);
}

/* The topk highest of scores + bias (may be NULL). */
static void row_choose(const struct dcpk_router *shape, const float *scores, const float *bias,
                       bool *is_taken, int32_t *chosen)
{
    memset(is_taken, 0, (size_t)shape->experts * sizeof *is_taken);
    for (int64_t slot = 0; slot < shape->topk; slot++) {
        int64_t best = -1;
        float most = 0;

        for (int64_t e = 0; e < shape->experts; e++) {
            const float score = bias == NULL ? scores[e] : scores[e] + bias[e];

            if (is_taken[e] || (best >= 0 && !(score > most)))
                continue;
            best = e;
            most = score;
        }
        is_taken[best] = true;
        chosen[slot] = (int32_t)best;
    }
}

/* The sum that the probabilities of sigmoids are divided by. */
static float sigmoid_sum(const struct dcpk_router *shape, const float *sigmoids)
{
    float sum = 0;

    for (int64_t slot = 0; slot < shape->topk; slot++)
        sum += sigmoids[slot];
    return sum + DCPK_SIGMOID_SUM;
}

void cpu_router(struct dcpk_math *math, const struct dcpk_router *shape, const float *logits,
                const float *bias, int32_t *chosen, float *probs)
{
    const int64_t topk = shape->topk;
    float *scores = cpu_scratch(math, 2 * shape->experts);

    assert(topk >= 1 && topk <= shape->experts);
    for (int64_t r = 0; scores != NULL && r < shape->rows; r++, chosen += topk, probs += topk) {
        row_scores(shape, logits + r * shape->experts, scores);
        row_choose(shape, scores, bias, (bool *)(scores + shape->experts), chosen);
        for (int64_t slot = 0; slot < topk; slot++)
            probs[slot] = scores[chosen[slot]];
        if (shape->score == DCPK_SOFTMAX_OF_TOPK) {
            dcpk_softmax(topk, probs, probs);
        } else if (shape->score == DCPK_TOPK_OF_SIGMOID && topk > 1) {
            const float sum = sigmoid_sum(shape, probs);

            for (int64_t slot = 0; slot < topk; slot++)
                probs[slot] /= sum;
        }
    }
}

/* The sum of p d. A softmax has the gradient p (d - this). */
static float probs_dot(int64_t n, const float *p, const float *d)
{
    float sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += p[i] * d[i];
    return sum;
}

/* scores: of all experts. d: zeros, of all experts. room: topk. */
static void row_backward(const struct dcpk_router *shape, const float *scores,
                         const int32_t *chosen, const float *d_probs, float *room, float *d)
{
    const int64_t topk = shape->topk;
    float dot;

    for (int64_t slot = 0; slot < topk; slot++)
        room[slot] = scores[chosen[slot]];
    if (shape->score == DCPK_TOPK_OF_SOFTMAX) {
        dot = probs_dot(topk, room, d_probs);
        for (int64_t e = 0; e < shape->experts; e++)
            d[e] = scores[e] * -dot;
        for (int64_t slot = 0; slot < topk; slot++)
            d[chosen[slot]] = room[slot] * (d_probs[slot] - dot);
    } else if (shape->score == DCPK_SOFTMAX_OF_TOPK) {
        dcpk_softmax(topk, room, room);
        dot = probs_dot(topk, room, d_probs);
        for (int64_t slot = 0; slot < topk; slot++)
            d[chosen[slot]] = room[slot] * (d_probs[slot] - dot);
    } else {
        const float sum = topk > 1 ? sigmoid_sum(shape, room) : 1.0f;

        dot = topk > 1 ? probs_dot(topk, room, d_probs) / sum : 0.0f;
        for (int64_t slot = 0; slot < topk; slot++)
            d[chosen[slot]] = (d_probs[slot] - dot) / sum * (room[slot] * (1.0f - room[slot]));
    }
}

void cpu_router_backward(struct dcpk_math *math, const struct dcpk_router *shape,
                         const float *logits, const int32_t *chosen, const float *d_probs,
                         float *d_logits)
{
    const int64_t n = shape->experts, topk = shape->topk;
    float *scores = cpu_scratch(math, n + topk);

    for (int64_t r = 0; scores != NULL && r < shape->rows; r++) {
        memset(d_logits + r * n, 0, (size_t)n * sizeof *d_logits);
        row_scores(shape, logits + r * n, scores);
        row_backward(shape, scores, chosen + r * topk, d_probs + r * topk, scores + n,
                     d_logits + r * n);
    }
}

/* ---- rows to experts and back ---- */

void cpu_gather_rows(struct dcpk_math *math, const struct dcpk_matrix *shape, const int32_t *index,
                     const void *x, void *y)
{
    const size_t n_bytes = (size_t)shape->columns * dcpk_dtype_bytes(shape->dtype);

    (void)math;
    for (int64_t r = 0; r < shape->rows && n_bytes > 0; r++)
        memcpy((char *)y + (size_t)r * n_bytes, (const char *)x + (size_t)index[r] * n_bytes,
               n_bytes);
}

void cpu_combine(struct dcpk_math *math, const struct dcpk_combine *shape, const int32_t *place,
                 const float *probs, const void *y, void *out)
{
    const int64_t n = shape->columns;
    float *row = cpu_scratch(math, 2 * n), *sum;

    if (row == NULL)
        return;
    sum = row + n;
    for (int64_t r = 0; r < shape->rows; r++) {
        memset(sum, 0, (size_t)n * sizeof *sum);
        for (int64_t at = r * shape->topk; at < (r + 1) * shape->topk; at++) {
            const float factor = probs == NULL ? 1.0f : probs[at];

            cpu_load(shape->dtype, y, place[at] * n, n, row);
            for (int64_t i = 0; i < n; i++)
                sum[i] += factor * row[i];
        }
        cpu_store(shape->dtype, sum, n, out, r * n);
    }
}

void cpu_combine_rows(struct dcpk_math *math, const struct dcpk_combine *shape,
                      const int32_t *place, const float *probs, const void *d_out, void *dy)
{
    const int64_t n = shape->columns;
    float *row = cpu_scratch(math, 2 * n), *scaled;

    if (row == NULL)
        return;
    scaled = row + n;
    for (int64_t r = 0; r < shape->rows; r++) {
        cpu_load(shape->dtype, d_out, r * n, n, row);
        for (int64_t at = r * shape->topk; at < (r + 1) * shape->topk; at++) {
            for (int64_t i = 0; i < n; i++)
                scaled[i] = probs[at] * row[i];
            cpu_store(shape->dtype, scaled, n, dy, place[at] * n);
        }
    }
}

void cpu_combine_probs(struct dcpk_math *math, const struct dcpk_combine *shape,
                       const int32_t *place, const void *y, const void *d_out, float *d_probs)
{
    const int64_t n = shape->columns;
    float *row = cpu_scratch(math, 2 * n), *d;

    if (row == NULL)
        return;
    d = row + n;
    for (int64_t r = 0; r < shape->rows; r++) {
        cpu_load(shape->dtype, d_out, r * n, n, d);
        for (int64_t at = r * shape->topk; at < (r + 1) * shape->topk; at++) {
            cpu_load(shape->dtype, y, place[at] * n, n, row);
            d_probs[at] = probs_dot(n, row, d);
        }
    }
}
