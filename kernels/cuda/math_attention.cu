/* SPDX-License-Identifier: Apache-2.0 */
/* math_attention.cu - causal attention of a block of queries, and its gradients. The formulas stand
 * in kernels/cpu/cpu_attention.c. A plain version: each pass over keys reads them again. */
#include "kernels/cuda/math.cuh"

/* One query row of one head. */
struct query {
    int64_t n;         /* keys that it sees */
    int64_t at;        /* its first element */
    int64_t key, step; /* the first element of key 0 of its group; from key to key */
};

static __device__ __forceinline__ struct query query_of(const struct dcpk_attention &shape,
                                                        int64_t row, int64_t group, int64_t j)
{
    return {shape.first + row + 1,
            ((row * shape.groups + group) * shape.per_group + j) * shape.head_dim,
            group * shape.head_dim, shape.groups * shape.head_dim};
}

/* The dot product of a row of x at `at` with key j. */
static __device__ float key_dot(const struct dcpk_attention &shape, const struct query &query,
                                const void *x, const void *keys, int64_t j)
{
    float sum = 0;

    for (int64_t i = 0; i < shape.head_dim; i++)
        sum += load(shape.dtype, x, query.at + i) *
               load(shape.dtype, keys, query.key + j * query.step + i);
    return sum;
}

/* Probabilities of all keys of a query, by a block, into p. */
static __device__ void query_probs(const struct dcpk_attention &shape, const struct query &query,
                                   const void *q, const void *k, float *p)
{
    float most = -INFINITY, sum = 0;

    for (int64_t j = threadIdx.x; j < query.n; j += MATH_THREADS) {
        p[j] = key_dot(shape, query, q, k, j) * shape.scale;
        most = p[j] > most ? p[j] : most;
    }
    most = block_max(most);
    for (int64_t j = threadIdx.x; j < query.n; j += MATH_THREADS) {
        p[j] = dcpk_exp(p[j] - most);
        sum += p[j];
    }
    sum = block_sum(sum);
    for (int64_t j = threadIdx.x; j < query.n; j += MATH_THREADS)
        p[j] /= sum;
    __syncthreads();
}

/* to = sum over keys j of factor[j] rows[j], j ascending; a thread is an element. */
static __device__ void keys_sum(const struct dcpk_attention &shape, const struct query &query,
                                const float *factor, const void *rows, void *to)
{
    for (int64_t i = threadIdx.x; i < shape.head_dim; i += MATH_THREADS) {
        float sum = 0;

        for (int64_t j = 0; j < query.n; j++)
            sum += factor[j] * load(shape.dtype, rows, query.key + j * query.step + i);
        store(shape.dtype, sum, to, query.at + i);
    }
    __syncthreads();
}

/* Blocks go round over queries. room: n_keys floats for each block. */
extern "C" __global__ void math_attention(struct dcpk_attention shape, const void *q, const void *k,
                                          const void *v, void *out, float *room)
{
    const int64_t heads = shape.groups * shape.per_group;
    float *p = room + blockIdx.x * shape.n_keys;

    for (int64_t i = blockIdx.x; i < shape.rows * heads; i += gridDim.x) {
        const int64_t head = i % heads;
        const struct query query =
            query_of(shape, i / heads, head / shape.per_group, head % shape.per_group);

        query_probs(shape, query, q, k, p);
        keys_sum(shape, query, p, v, out);
    }
}

/* dq, and p and ds of all queries of one group. */
extern "C" __global__ void math_attention_queries(struct math_attention_group g)
{
    const struct dcpk_attention &shape = g.shape;

    for (int64_t i = blockIdx.x; i < shape.rows * shape.per_group; i += gridDim.x) {
        const int64_t j = i / shape.rows, row = i % shape.rows;
        const struct query query = query_of(shape, row, g.group, j);
        float *p = g.p + i * shape.n_keys, *ds = g.ds + i * shape.n_keys, sum = 0;

        query_probs(shape, query, g.data.q, g.data.k, p);
        for (int64_t key = threadIdx.x; key < query.n; key += MATH_THREADS) {
            ds[key] = key_dot(shape, query, g.data.d_out, g.data.v, key);
            sum += p[key] * ds[key];
        }
        sum = block_sum(sum);
        for (int64_t key = threadIdx.x; key < query.n; key += MATH_THREADS)
            ds[key] = p[key] * (ds[key] - sum) * shape.scale;
        __syncthreads();
        keys_sum(shape, query, ds, g.data.k, g.data.d_q);
    }
}

/* dk and dv of the keys of one group: a block is a key, a thread an element; heads ascending, rows
 * ascending. */
extern "C" __global__ void math_attention_keys(struct math_attention_group g)
{
    const struct dcpk_attention &shape = g.shape;

    for (int64_t key = blockIdx.x; key < shape.n_keys; key += gridDim.x) {
        const int64_t begin = key > shape.first ? key - shape.first : 0;

        for (int64_t e = threadIdx.x; e < shape.head_dim; e += MATH_THREADS) {
            const int64_t to = (key * shape.groups + g.group) * shape.head_dim + e;
            float dk = 0, dv = 0;

            for (int64_t j = 0; j < shape.per_group; j++)
                for (int64_t row = begin; row < shape.rows; row++) {
                    const int64_t at = (j * shape.rows + row) * shape.n_keys + key;
                    const int64_t from = query_of(shape, row, g.group, j).at + e;

                    dk += g.ds[at] * load(shape.dtype, g.data.q, from);
                    dv += g.p[at] * load(shape.dtype, g.data.d_out, from);
                }
            g.data.d_k[to] = dk;
            g.data.d_v[to] = dv;
        }
    }
}
