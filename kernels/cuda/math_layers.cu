/* SPDX-License-Identifier: Apache-2.0 */
/* math_layers.cu - element by element and token by token: sums, casts, norms, rotary positions,
 * SwiGLU, embeddings. The formulas stand in kernels/cpu/cpu_layers.c. */
#include "kernels/cuda/math.cuh"

extern "C" __global__ void math_add(int dtype, int64_t n, const void *a, const void *b, void *out)
{
    for (int64_t i = first(); i < n; i += step())
        store(dtype, load(dtype, a, i) + load(dtype, b, i), out, i);
}

extern "C" __global__ void math_scale(int dtype, int64_t n, float factor, void *x)
{
    for (int64_t i = first(); i < n; i += step())
        store(dtype, load(dtype, x, i) * factor, x, i);
}

extern "C" __global__ void math_cast(int from, int to, int64_t n, const void *x, void *y)
{
    for (int64_t i = first(); i < n; i += step())
        store(to, load(from, x, i), y, i);
}

extern "C" __global__ void math_accumulate(int dtype, int64_t n, const float *x, void *sum)
{
    for (int64_t i = first(); i < n; i += step())
        store(dtype, load(dtype, sum, i) + x[i], sum, i);
}

/* bytes: of an element, 1, 2, 4 or 8. */
extern "C" __global__ void math_copy_rows(struct dcpk_strided_rows shape, int bytes,
                                          const void *from, void *to)
{
    for (int64_t i = first(); i < shape.rows * shape.columns; i += step()) {
        const int64_t row = i / shape.columns, column = i % shape.columns;
        const int64_t src = row * shape.from_stride + column, dst = row * shape.to_stride + column;

        if (bytes == 2)
            static_cast<uint16_t *>(to)[dst] = static_cast<const uint16_t *>(from)[src];
        else if (bytes == 4)
            static_cast<uint32_t *>(to)[dst] = static_cast<const uint32_t *>(from)[src];
        else if (bytes == 8)
            static_cast<uint64_t *>(to)[dst] = static_cast<const uint64_t *>(from)[src];
        else
            static_cast<uint8_t *>(to)[dst] = static_cast<const uint8_t *>(from)[src];
    }
}

/* ---- RMSNorm: a block is a row ---- */

static __device__ float row_scale(const struct dcpk_rmsnorm &shape, const void *x, int64_t row)
{
    float sum = 0;

    for (int64_t i = threadIdx.x; i < shape.columns; i += MATH_THREADS) {
        const float v = load(shape.dtype, x, row * shape.columns + i);

        sum += v * v;
    }
    return 1.0f / sqrtf(block_sum(sum) / static_cast<float>(shape.columns) + shape.epsilon);
}

extern "C" __global__ void math_rmsnorm(struct dcpk_rmsnorm shape, const void *x, const void *w,
                                        void *y)
{
    for (int64_t row = blockIdx.x; row < shape.rows; row += gridDim.x) {
        const float scale = row_scale(shape, x, row);

        for (int64_t i = threadIdx.x; i < shape.columns; i += MATH_THREADS) {
            const int64_t at = row * shape.columns + i;

            store(shape.dtype, load(shape.dtype, x, at) * scale * load(shape.dtype, w, i), y, at);
        }
    }
}

/* A thread reads the elements of dy that it then writes: dx may be dy. */
extern "C" __global__ void math_rmsnorm_input(struct dcpk_rmsnorm shape, const void *x,
                                              const void *w, const void *dy, void *dx)
{
    for (int64_t row = blockIdx.x; row < shape.rows; row += gridDim.x) {
        const float scale = row_scale(shape, x, row);
        float sum = 0, back;

        for (int64_t i = threadIdx.x; i < shape.columns; i += MATH_THREADS) {
            const int64_t at = row * shape.columns + i;

            sum += load(shape.dtype, dy, at) * load(shape.dtype, w, i) * load(shape.dtype, x, at);
        }
        back = scale * scale * scale * (block_sum(sum) / static_cast<float>(shape.columns));
        for (int64_t i = threadIdx.x; i < shape.columns; i += MATH_THREADS) {
            const int64_t at = row * shape.columns + i;
            const float d = load(shape.dtype, dy, at) * load(shape.dtype, w, i);

            store(shape.dtype, d * scale - load(shape.dtype, x, at) * back, dx, at);
        }
    }
}

extern "C" __global__ void math_rmsnorm_scales(struct dcpk_rmsnorm shape, const void *x,
                                               float *scales)
{
    for (int64_t row = blockIdx.x; row < shape.rows; row += gridDim.x) {
        const float scale = row_scale(shape, x, row);

        if (threadIdx.x == 0)
            scales[row] = scale;
    }
}

/* A thread is a column of a lane. */
extern "C" __global__ void math_rmsnorm_weight(struct dcpk_rmsnorm shape, const void *x,
                                               const void *dy, const float *scales, float *dw)
{
    for (int64_t i = first(); i < shape.lanes * shape.columns; i += step()) {
        const int64_t column = i % shape.columns;
        float sum = 0;

        for (int64_t row = i / shape.columns; row < shape.rows; row += shape.lanes) {
            const int64_t at = row * shape.columns + column;

            sum += load(shape.dtype, dy, at) * (load(shape.dtype, x, at) * scales[row]);
        }
        dw[i] = sum;
    }
}

/* ---- rotary positions: a thread is a pair ---- */

extern "C" __global__ void math_rope(struct dcpk_rope shape, float sign, const float *table,
                                     const void *x, void *y)
{
    const int64_t half = shape.head_dim / 2;

    for (int64_t i = first(); i < shape.rows * shape.heads * half; i += step()) {
        const int64_t head = i / half, j = i % half, at = head * shape.head_dim + j;
        const float *angle = table + head / shape.heads * half + j;
        const float cosine = angle[0], sine = sign * angle[shape.rows * half];
        const float x1 = load(shape.dtype, x, at), x2 = load(shape.dtype, x, at + half);

        store(shape.dtype, x1 * cosine - x2 * sine, y, at);
        store(shape.dtype, x2 * cosine + x1 * sine, y, at + half);
    }
}

/* ---- SwiGLU ---- */

extern "C" __global__ void math_swiglu(struct dcpk_matrix shape, const void *x, void *y)
{
    for (int64_t i = first(); i < shape.rows * shape.columns; i += step()) {
        const int64_t at = i / shape.columns * 2 * shape.columns + i % shape.columns;
        const float gate = load(shape.dtype, x, at), up = load(shape.dtype, x, at + shape.columns);

        store(shape.dtype, gate * dcpk_sigmoid(gate) * up, y, i);
    }
}

extern "C" __global__ void math_swiglu_backward(struct dcpk_matrix shape, const void *x,
                                                const void *dy, void *dx)
{
    for (int64_t i = first(); i < shape.rows * shape.columns; i += step()) {
        const int64_t at = i / shape.columns * 2 * shape.columns + i % shape.columns;
        const float gate = load(shape.dtype, x, at), up = load(shape.dtype, x, at + shape.columns);
        const float d = load(shape.dtype, dy, i), s = dcpk_sigmoid(gate);

        store(shape.dtype, d * up * (s * (1.0f + gate * (1.0f - s))), dx, at);
        store(shape.dtype, d * (gate * s), dx, at + shape.columns);
    }
}

/* ---- embeddings ---- */

extern "C" __global__ void math_embedding(struct dcpk_embedding shape, const int32_t *tokens,
                                          const void *w, void *y)
{
    for (int64_t i = first(); i < shape.n_tokens * shape.columns; i += step()) {
        const int64_t at = tokens[i / shape.columns] - shape.first;
        float x = 0;

        if (at >= 0 && at < shape.vocab_rows)
            x += load(shape.dtype, w, at * shape.columns + i % shape.columns);
        store(shape.dtype, x, y, i);
    }
}

/* The block of the first of several equal tokens adds the gradients of all of them, in their order.
 */
extern "C" __global__ void math_embedding_weight(struct dcpk_embedding shape, const int32_t *tokens,
                                                 const void *dy, float *dw)
{
    for (int64_t t = blockIdx.x; t < shape.n_tokens; t += gridDim.x) {
        const int32_t token = tokens[t];
        const int64_t at = token - shape.first;
        bool is_later = at < 0 || at >= shape.vocab_rows;

        for (int64_t i = threadIdx.x; i < t && !is_later; i += MATH_THREADS)
            is_later = tokens[i] == token;
        if (__syncthreads_or(is_later))
            continue;
        for (int64_t column = threadIdx.x; column < shape.columns; column += MATH_THREADS) {
            float sum = dw[at * shape.columns + column];

            for (int64_t i = t; i < shape.n_tokens; i++)
                if (tokens[i] == token)
                    sum += load(shape.dtype, dy, i * shape.columns + column);
            dw[at * shape.columns + column] = sum;
        }
    }
}
