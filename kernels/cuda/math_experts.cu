/* SPDX-License-Identifier: Apache-2.0 */
/* math_experts.cu - the router of a mixture of experts, and rows on their way to experts and back.
 * The computation is defined in kernels/cpu/cpu_experts.c. */
#include "kernels/cuda/math.cuh"

/* ---- router: a thread is a token ---- */

static __device__ void row_scores(const struct dcpk_router &shape, const float *logits,
                                  float *scores)
{
    if (shape.score == DCPK_TOPK_OF_SOFTMAX)
        dcpk_softmax(shape.experts, logits, scores);
    else
        for (int64_t e = 0; e < shape.experts; e++)
            scores[e] = shape.score == DCPK_TOPK_OF_SIGMOID ? dcpk_sigmoid(logits[e]) : logits[e];
}

static __device__ bool slot_has(const int32_t *chosen, int64_t n, int64_t expert)
{
    for (int64_t slot = 0; slot < n; slot++)
        if (chosen[slot] == expert)
            return true;
    return false;
}

static __device__ void row_choose(const struct dcpk_router &shape, const float *scores,
                                  const float *bias, int32_t *chosen)
{
    for (int64_t slot = 0; slot < shape.topk; slot++) {
        int64_t best = -1;
        float most = 0;

        for (int64_t e = 0; e < shape.experts; e++) {
            const float score = bias == nullptr ? scores[e] : scores[e] + bias[e];

            if ((best >= 0 && !(score > most)) || slot_has(chosen, slot, e))
                continue;
            best = e;
            most = score;
        }
        chosen[slot] = static_cast<int32_t>(best);
    }
}

static __device__ float sigmoid_sum(const struct dcpk_router &shape, const float *sigmoids)
{
    float sum = 0;

    for (int64_t slot = 0; slot < shape.topk; slot++)
        sum += sigmoids[slot];
    return sum + DCPK_SIGMOID_SUM;
}

/* room: `experts` floats for each row. */
extern "C" __global__ void math_router(struct dcpk_router shape, const float *logits,
                                       const float *bias, int32_t *chosen, float *probs,
                                       float *room)
{
    for (int64_t row = first(); row < shape.rows; row += step()) {
        float *scores = room + row * shape.experts, *p = probs + row * shape.topk, sum = 1;
        int32_t *slots = chosen + row * shape.topk;

        row_scores(shape, logits + row * shape.experts, scores);
        row_choose(shape, scores, bias, slots);
        for (int64_t slot = 0; slot < shape.topk; slot++)
            p[slot] = scores[slots[slot]];
        if (shape.score == DCPK_SOFTMAX_OF_TOPK)
            dcpk_softmax(shape.topk, p, p);
        else if (shape.score == DCPK_TOPK_OF_SIGMOID && shape.topk > 1)
            sum = sigmoid_sum(shape, p);
        for (int64_t slot = 0; slot < shape.topk; slot++)
            p[slot] /= sum;
    }
}

static __device__ float probs_dot(int64_t n, const float *p, const float *d)
{
    float sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += p[i] * d[i];
    return sum;
}

/* p: the scores of what was chosen, then their probabilities. d: zeros. */
static __device__ void row_backward(const struct dcpk_router &shape, const float *scores,
                                    const int32_t *chosen, const float *d_probs, float *p, float *d)
{
    const bool is_sigmoid = shape.score == DCPK_TOPK_OF_SIGMOID;
    const bool is_divided = is_sigmoid && shape.topk > 1;
    float dot, sum;

    if (shape.score == DCPK_SOFTMAX_OF_TOPK)
        dcpk_softmax(shape.topk, p, p);
    sum = is_divided ? sigmoid_sum(shape, p) : 1.0f;
    dot = is_sigmoid && !is_divided ? 0.0f : probs_dot(shape.topk, p, d_probs) / sum;
    if (shape.score == DCPK_TOPK_OF_SOFTMAX)
        for (int64_t e = 0; e < shape.experts; e++)
            d[e] = scores[e] * -dot;
    for (int64_t slot = 0; slot < shape.topk; slot++)
        d[chosen[slot]] = is_sigmoid ? (d_probs[slot] - dot) / sum * (p[slot] * (1.0f - p[slot]))
                                     : p[slot] * (d_probs[slot] - dot);
}

/* room: `experts` and `topk` floats for each row. */
extern "C" __global__ void math_router_backward(struct dcpk_router shape, const float *logits,
                                                const int32_t *chosen, const float *d_probs,
                                                float *d_logits, float *room)
{
    for (int64_t row = first(); row < shape.rows; row += step()) {
        float *scores = room + row * (shape.experts + shape.topk), *p = scores + shape.experts;
        const int32_t *slots = chosen + row * shape.topk;
        float *d = d_logits + row * shape.experts;

        row_scores(shape, logits + row * shape.experts, scores);
        for (int64_t e = 0; e < shape.experts; e++)
            d[e] = 0;
        for (int64_t slot = 0; slot < shape.topk; slot++)
            p[slot] = scores[slots[slot]];
        row_backward(shape, scores, slots, d_probs + row * shape.topk, p, d);
    }
}

/* ---- rows to experts and back ---- */

extern "C" __global__ void math_gather_rows(struct dcpk_matrix shape, const int32_t *index,
                                            const void *x, void *y)
{
    for (int64_t i = first(); i < shape.rows * shape.columns; i += step()) {
        const int64_t from = index[i / shape.columns] * shape.columns + i % shape.columns;

        if (shape.dtype == DCPK_F32)
            static_cast<uint32_t *>(y)[i] = static_cast<const uint32_t *>(x)[from];
        else
            static_cast<uint16_t *>(y)[i] = static_cast<const uint16_t *>(x)[from];
    }
}

extern "C" __global__ void math_combine(struct dcpk_combine shape, const int32_t *place,
                                        const float *probs, const void *y, void *out)
{
    for (int64_t i = first(); i < shape.rows * shape.columns; i += step()) {
        const int64_t row = i / shape.columns, column = i % shape.columns;
        float sum = 0;

        for (int64_t at = row * shape.topk; at < (row + 1) * shape.topk; at++) {
            const float factor = probs == nullptr ? 1.0f : probs[at];

            sum += factor * load(shape.dtype, y, place[at] * shape.columns + column);
        }
        store(shape.dtype, sum, out, i);
    }
}

extern "C" __global__ void math_combine_rows(struct dcpk_combine shape, const int32_t *place,
                                             const float *probs, const void *d_out, void *dy)
{
    const int64_t n = shape.rows * shape.topk * shape.columns;

    for (int64_t i = first(); i < n; i += step()) {
        const int64_t at = i / shape.columns, column = i % shape.columns;
        const float d = load(shape.dtype, d_out, at / shape.topk * shape.columns + column);

        store(shape.dtype, probs[at] * d, dy, place[at] * shape.columns + column);
    }
}

/* A block is a slot. */
extern "C" __global__ void math_combine_probs(struct dcpk_combine shape, const int32_t *place,
                                              const void *y, const void *d_out, float *d_probs)
{
    for (int64_t at = blockIdx.x; at < shape.rows * shape.topk; at += gridDim.x) {
        const int64_t from = place[at] * shape.columns, to = at / shape.topk * shape.columns;
        float sum = 0;

        for (int64_t i = threadIdx.x; i < shape.columns; i += MATH_THREADS)
            sum += load(shape.dtype, y, from + i) * load(shape.dtype, d_out, to + i);
        sum = block_sum(sum);
        if (threadIdx.x == 0)
            d_probs[at] = sum;
    }
}
