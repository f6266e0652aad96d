/* SPDX-License-Identifier: Apache-2.0 */
/* noise.c - shards through the host's memory, a unit of the last place up or down. */
#include "lib/train/noise.h"

#include <math.h>

#include "lib/base/alloc.h"

/* The name is hashed as FNV-1a does, from a start of our own; row and column are stirred in by
 * odd constants of splitmix64. */
#define NOISE_START  UINT64_C(1469598103934665603)
#define FNV_PRIME    UINT64_C(1099511628211)
#define STIR_ROWS    UINT64_C(0x9e3779b97f4a7c15)
#define STIR_COLUMNS UINT64_C(0xbf58476d1ce4e5b9)

/* Of a name, a row and a column; as good as a coin. */
static bool noise_is_up(const char *name, int64_t row, int64_t column)
{
    uint64_t h = NOISE_START;

    for (; *name != '\0'; name++)
        h = (h ^ (uint8_t)*name) * FNV_PRIME;
    h = (h ^ (uint64_t)row) * STIR_ROWS;
    h = (h ^ h >> 29 ^ (uint64_t)column) * STIR_COLUMNS;
    return (h >> 40 & 1) != 0;
}

static void noise_fill(const struct dcpk_train_param *param, const struct dcpk_train_shard *shard,
                       float *values)
{
    const int64_t columns = param->shape[1];

    for (int64_t i = 0; i < shard->n_elems; i++) {
        const int64_t row = dcpk_train_param_row(param, shard->row + i / columns);
        const int64_t column = param->offset[1] + i % columns;
        float to = -INFINITY;

        if (noise_is_up(param->canonical, row, column))
            to = INFINITY;
        if (values[i] != 0 && isfinite(values[i]))
            values[i] = nextafterf(values[i], to);
    }
}

static dcpk_status noise_add_shard(const struct dcpk_train_state *state,
                                   const struct dcpk_train_shard *shard, struct dcpk_error *err)
{
    const struct dcpk_ops *ops = state->math->ops;
    const size_t n_bytes = (size_t)shard->n_elems * sizeof(float);
    float *host = dcpk_alloc(n_bytes, err);
    dcpk_status st = err->status;

    if (host == NULL)
        return st;
    ops->copy(state->math, host, shard->main, n_bytes);
    st = ops->wait(state->math, err);
    if (st == DCPK_OK) {
        noise_fill(&state->params->list[shard->param], shard, host);
        ops->copy(state->math, shard->main, host, n_bytes);
        st = ops->wait(state->math, err);
    }
    dcpk_free(host);
    return st;
}

dcpk_status dcpk_noise_add(const struct dcpk_train_state *state, struct dcpk_error *err)
{
    for (size_t i = 0; i < state->shards->n; i++)
        if (noise_add_shard(state, &state->shards->list[i], err) != DCPK_OK)
            return err->status;
    return DCPK_OK;
}
