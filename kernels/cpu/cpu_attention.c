/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_attention.c - causal attention of a block of queries, and its gradients. */
/*
 * For a query row i of one head, over the keys j = 0 .. first + i:
 *
 *   s[j] = scale q . k[j]      p[j] = exp(s[j] - max s) / sum      out = sum over j of p[j] v[j]
 *
 *   dp[j] = d_out . v[j]       D = sum over j of p[j] dp[j]        ds[j] = p[j] (dp[j] - D) scale
 *   dq = sum over j of ds[j] k[j]      dk[j] += ds[j] q            dv[j] += p[j] d_out
 *
 * Sums over j and over the elements of a head are in ascending order. The keys and values of a
 * group lie in fp32, also turned round, [head_dim, n_keys]: each loop then runs over results.
 */
#include <assert.h>
#include <string.h>

#include "kernels/cpu/cpu_ops.h"
#include "lib/device/ops_math.h"

struct attention_room {
    float *k, *v, *k_turned, *v_turned; /* of one group */
    float *p, *dp;                      /* n_keys */
    float *q, *out, *dq;                /* head_dim */
};

static bool room_init(struct dcpk_math *math, const struct dcpk_attention *shape,
                      struct attention_room *room)
{
    const int64_t keys = shape->n_keys * shape->head_dim;
    float *at = cpu_scratch(math, 4 * keys + 2 * shape->n_keys + 3 * shape->head_dim);

    assert(shape->n_keys >= shape->first + shape->rows);
    if (at == NULL)
        return false;
    room->k = at;
    room->v = room->k + keys;
    room->k_turned = room->v + keys;
    room->v_turned = room->k_turned + keys;
    room->p = room->v_turned + keys;
    room->dp = room->p + shape->n_keys;
    room->q = room->dp + shape->n_keys;
    room->out = room->q + shape->head_dim;
    room->dq = room->out + shape->head_dim;
    return true;
}

/* Load the rows of group `group` of keys or values, and turn them round. */
static void group_load(const struct dcpk_attention *shape, const void *from, int64_t group,
                       float *rows, float *turned)
{
    const int64_t d = shape->head_dim;

    for (int64_t j = 0; j < shape->n_keys; j++) {
        cpu_load(shape->dtype, from, (j * shape->groups + group) * d, d, rows + j * d);
        for (int64_t i = 0; i < d; i++)
            turned[i * shape->n_keys + j] = rows[j * d + i];
    }
}

/* y += factor x */
static void add_scaled(int64_t n, float factor, const float *x, float *restrict y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] += factor * x[i];
}

/* to[j] = x . row j, for n rows that lie turned round. */
static void rows_dot(const struct dcpk_attention *shape, int64_t n, const float *x,
                     const float *turned, float *to)
{
    memset(to, 0, (size_t)n * sizeof *to);
    for (int64_t i = 0; i < shape->head_dim; i++)
        add_scaled(n, x[i], turned + i * shape->n_keys, to);
}

/* The probabilities of n keys, from room->q. */
static void query_probs(const struct dcpk_attention *shape, int64_t n,
                        const struct attention_room *room)
{
    float *p = room->p;

    rows_dot(shape, n, room->q, room->k_turned, p);
    for (int64_t j = 0; j < n; j++)
        p[j] *= shape->scale;
    dcpk_softmax(n, p, p);
}

/* The element where query row `row` of a head begins. */
static int64_t query_at(const struct dcpk_attention *shape, int64_t row, int64_t group, int64_t j)
{
    return ((row * shape->groups + group) * shape->per_group + j) * shape->head_dim;
}

void cpu_attention(struct dcpk_math *math, const struct dcpk_attention *shape, const void *q,
                   const void *k, const void *v, void *out)
{
    const int64_t d = shape->head_dim, heads = shape->groups * shape->per_group;
    struct attention_room room;

    if (!room_init(math, shape, &room))
        return;
    for (int64_t head = 0; head < heads; head++) {
        const int64_t group = head / shape->per_group, within = head % shape->per_group;

        if (within == 0) {
            group_load(shape, k, group, room.k, room.k_turned);
            group_load(shape, v, group, room.v, room.v_turned);
        }
        for (int64_t row = 0; row < shape->rows; row++) {
            const int64_t at = query_at(shape, row, group, within), n = shape->first + row + 1;

            cpu_load(shape->dtype, q, at, d, room.q);
            query_probs(shape, n, &room);
            memset(room.out, 0, (size_t)d * sizeof *room.out);
            for (int64_t j = 0; j < n; j++)
                add_scaled(d, room.p[j], room.v + j * d, room.out);
            cpu_store(shape->dtype, room.out, d, out, at);
        }
    }
}

/* One query row of one head: its dq, and what it adds to the keys of its group. */
static void query_backward(const struct dcpk_attention *shape,
                           const struct dcpk_attention_backward *data, int64_t row, int64_t head,
                           const struct attention_room *room)
{
    const int64_t group = head / shape->per_group, d = shape->head_dim, n = shape->first + row + 1;
    const int64_t at = query_at(shape, row, group, head % shape->per_group);
    float sum = 0;

    cpu_load(shape->dtype, data->q, at, d, room->q);
    cpu_load(shape->dtype, data->d_out, at, d, room->out);
    query_probs(shape, n, room);
    rows_dot(shape, n, room->out, room->v_turned, room->dp);
    for (int64_t j = 0; j < n; j++)
        sum += room->p[j] * room->dp[j];
    memset(room->dq, 0, (size_t)d * sizeof *room->dq);
    for (int64_t j = 0; j < n; j++) {
        const int64_t key = (j * shape->groups + group) * d;
        const float ds = room->p[j] * (room->dp[j] - sum) * shape->scale;

        add_scaled(d, ds, room->k + j * d, room->dq);
        add_scaled(d, ds, room->q, data->d_k + key);
        add_scaled(d, room->p[j], room->out, data->d_v + key);
    }
    cpu_store(shape->dtype, room->dq, d, data->d_q, at);
}

void cpu_attention_backward(struct dcpk_math *math, const struct dcpk_attention *shape,
                            const struct dcpk_attention_backward *data)
{
    const size_t n_bytes =
        (size_t)(shape->n_keys * shape->groups * shape->head_dim) * sizeof(float);
    struct attention_room room;

    if (!room_init(math, shape, &room))
        return;
    memset(data->d_k, 0, n_bytes);
    memset(data->d_v, 0, n_bytes);
    for (int64_t head = 0; head < shape->groups * shape->per_group; head++) {
        if (head % shape->per_group == 0) {
            group_load(shape, data->k, head / shape->per_group, room.k, room.k_turned);
            group_load(shape, data->v, head / shape->per_group, room.v, room.v_turned);
        }
        for (int64_t row = 0; row < shape->rows; row++)
            query_backward(shape, data, row, head, &room);
    }
}
