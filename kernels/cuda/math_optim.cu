/* SPDX-License-Identifier: Apache-2.0 */
/* math_optim.cu - losses, gradients as integers, norms, optimizers, initial weights. The
 * computation is defined in kernels/cpu/cpu_layers.c and cpu_optim.c. */
#include "kernels/cuda/math.cuh"

/* ---- cross entropy ---- */

/* A block is a row. */
extern "C" __global__ void math_cross_entropy_max(struct dcpk_cross_entropy shape,
                                                  const void *logits, float *max)
{
    for (int64_t row = blockIdx.x; row < shape.rows; row += gridDim.x) {
        float most = -INFINITY;

        for (int64_t i = threadIdx.x; i < shape.columns; i += MATH_THREADS) {
            const float x = load(shape.dtype, logits, row * shape.columns + i);

            most = x > most ? x : most;
        }
        most = block_max(most);
        if (threadIdx.x == 0)
            max[row] = most;
    }
}

/* A block is a slice of a row. */
extern "C" __global__ void math_cross_entropy_sums(struct dcpk_cross_entropy shape,
                                                   const void *logits, const float *max,
                                                   float *sums)
{
    const int64_t n = shape.columns / shape.n_slices;

    for (int64_t at = blockIdx.x; at < shape.rows * shape.n_slices; at += gridDim.x) {
        const int64_t row = at / shape.n_slices, slice = at % shape.n_slices;
        float sum = 0;

        for (int64_t i = threadIdx.x; i < n; i += MATH_THREADS)
            sum +=
                dcpk_exp(load(shape.dtype, logits, row * shape.columns + slice * n + i) - max[row]);
        sum = block_sum(sum);
        if (threadIdx.x == 0)
            sums[slice * shape.rows + row] = sum;
    }
}

extern "C" __global__ void math_cross_entropy_labels(struct dcpk_cross_entropy shape,
                                                     const void *logits, const int32_t *labels,
                                                     float *label_logits)
{
    for (int64_t row = first(); row < shape.rows; row += step()) {
        const int64_t at = labels[row] - shape.first;
        const bool is_here = at >= 0 && at < shape.columns;

        label_logits[row] = is_here ? load(shape.dtype, logits, row * shape.columns + at) : 0.0f;
    }
}

extern "C" __global__ void math_cross_entropy(int64_t n, const float *max, const float *sum,
                                              const float *label_logits, float *losses)
{
    for (int64_t i = first(); i < n; i += step())
        losses[i] = dcpk_log(sum[i]) - (label_logits[i] - max[i]);
}

extern "C" __global__ void math_cross_entropy_backward(struct dcpk_cross_entropy shape,
                                                       struct dcpk_cross_entropy_backward data)
{
    for (int64_t i = first(); i < shape.rows * shape.columns; i += step()) {
        const int64_t row = i / shape.columns, column = i % shape.columns;
        const float x = load(shape.dtype, data.logits, i);
        float d = dcpk_exp(x - data.max[row]) / data.sum[row];

        if (shape.first + column == data.labels[row])
            d -= 1.0f;
        store(shape.dtype, d * data.factor[row], data.d_logits, i);
    }
}

/* ---- exact sums ---- */

__device__ void note_bad(int64_t number, uint64_t *bad)
{
    atomicMax(reinterpret_cast<unsigned long long *>(bad), DCPK_BAD_RECORD(number));
}

/* A thread is a sum: what it adds, it adds alone. */
extern "C" __global__ void math_to_fixed(struct dcpk_fixed shape, double unit, const float *x,
                                         int64_t *sums, uint64_t *bad)
{
    const double limit = static_cast<double>(shape.limit);

    for (int64_t i = first(); i < shape.period; i += step())
        for (int64_t at = i; at < shape.n; at += shape.period) {
            const double scaled = static_cast<double>(x[at]) * unit;
            const int64_t term = scaled > -limit && scaled < limit ? llrint(scaled) : shape.limit;
            const int64_t room = shape.limit - (term > 0 ? term : -term);

            /* |sum + term| stays below the limit; no overflow, as |sum| is below it. */
            if (term == shape.limit || (term > 0 ? sums[i] >= room : sums[i] <= -room))
                note_bad(shape.first + at, bad);
            else
                sums[i] += term;
        }
}

extern "C" __global__ void math_from_fixed(int64_t n, double factor, const int64_t *sums, float *x)
{
    for (int64_t i = first(); i < n; i += step())
        x[i] = static_cast<float>(static_cast<double>(sums[i]) * factor);
}

extern "C" __global__ void math_find_bad(int64_t n, int64_t first_number, const float *x,
                                         uint64_t *bad)
{
    for (int64_t i = first(); i < n; i += step())
        if (!isfinite(x[i]))
            note_bad(first_number + i, bad);
}

/* A block is a slice of a row; n elements each. */
extern "C" __global__ void math_sum_squares(int64_t n_sums, int64_t n, const float *x, double *sums)
{
    for (int64_t at = blockIdx.x; at < n_sums; at += gridDim.x) {
        double sum = 0;

        for (int64_t i = threadIdx.x; i < n; i += MATH_THREADS) {
            const double v = static_cast<double>(x[at * n + i]);

            sum += v * v;
        }
        sum = block_sum(sum);
        if (threadIdx.x == 0)
            sums[at] = sum;
    }
}

/* ---- optimizers ---- */

extern "C" __global__ void math_adam_te(struct math_adam f, struct dcpk_optimizer_state state)
{
    for (int64_t i = first(); i < state.n; i += step()) {
        const float g = state.grad[i], p = state.param[i];
        const float m = f.beta1 * state.first[i] + f.rest1 * g;
        const float v = f.beta2 * state.second[i] + f.rest2 * g * g;
        const float update = (m / f.c1) / (sqrtf(v / f.c2) + f.epsilon) + f.decay * p;

        state.first[i] = m;
        state.second[i] = v;
        state.param[i] = p - f.lr * update;
    }
}

/* decay: 1 - lr weight_decay; lr: lr / c1; c2: its root. */
extern "C" __global__ void math_adam_torch(struct math_adam f, struct dcpk_optimizer_state state)
{
    for (int64_t i = first(); i < state.n; i += step()) {
        const float g = state.grad[i], p = state.param[i] * f.decay;
        const float m = state.first[i] + (g - state.first[i]) * f.rest1;
        const float v = f.beta2 * state.second[i] + f.rest2 * g * g;

        state.first[i] = m;
        state.second[i] = v;
        state.param[i] = p - f.lr * (m / (sqrtf(v) / f.c2 + f.epsilon));
    }
}

extern "C" __global__ void math_sgd(float momentum, float decay, float lr,
                                    struct dcpk_optimizer_state state)
{
    for (int64_t i = first(); i < state.n; i += step()) {
        float g = state.grad[i] + decay * state.param[i];

        if (state.first != nullptr) {
            g = momentum * state.first[i] + g;
            state.first[i] = g;
        }
        state.param[i] -= lr * g;
    }
}

/* ---- initial weights ---- */

extern "C" __global__ void math_normal(struct dcpk_normal shape, float *x)
{
    for (int64_t i = first(); i < shape.rows * shape.columns; i += step()) {
        const int64_t row = shape.first_row + i / shape.columns;
        const int64_t column = shape.first_column + i % shape.columns;
        const uint64_t element = static_cast<uint64_t>(row * shape.whole_columns + column);
        const struct dcpk_philox block = dcpk_philox_block(shape.key, element / 2);
        const double radius = sqrt(-2.0 * log(dcpk_philox_unit(block.word[0], block.word[1])));
        const double angle = 6.283185307179586 * dcpk_philox_unit(block.word[2], block.word[3]);

        x[i] =
            static_cast<float>(shape.std * radius * (element % 2 == 0 ? cos(angle) : sin(angle)));
    }
}
