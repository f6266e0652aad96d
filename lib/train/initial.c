/* SPDX-License-Identifier: Apache-2.0 */
/* initial.c - normal numbers by name and element, ones for norms; a unit of the last place up or
 * down. */
#include "lib/train/initial.h"

#include <math.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/cursor.h"
#include "lib/base/digest.h"

static double kind_std(const struct dcpk_train_model *m, enum dcpk_param_kind kind)
{
    const bool adds_to_residual = kind == DCPK_P_PROJ || kind == DCPK_P_FC2 ||
                                  kind == DCPK_P_EXPERT_FC2 || kind == DCPK_P_SHARED_FC2;

    if (adds_to_residual)
        return m->init_std / sqrt(2.0 * (double)m->layers);
    return m->init_std;
}

static uint64_t stream_key(uint64_t seed, const char *name)
{
    struct dcpk_hasher hasher;
    uint8_t bytes[8];
    struct dcpk_hash hash;

    dcpk_store_u64le(bytes, seed);
    dcpk_hasher_begin(&hasher);
    dcpk_hasher_update(&hasher, bytes, sizeof bytes);
    dcpk_hasher_update(&hasher, name, strlen(name));
    dcpk_hasher_digest(&hasher, &hash);
    return dcpk_load_u64le(hash.digest);
}

/* n_rows rows of the shard from its row `row` on, which follow each other in the whole. */
static void fill_rows(const struct dcpk_train_state *state, const struct dcpk_train_shard *shard,
                      struct dcpk_normal *shape, int64_t row, int64_t n_rows)
{
    const struct dcpk_train_param *param = &state->params->list[shard->param];

    if (n_rows <= 0)
        return;
    shape->rows = n_rows;
    shape->first_row = dcpk_train_param_row(param, shard->row + row);
    state->math->ops->normal(state->math, shape, shard->main + row * param->shape[1]);
}

/* Gate rows and up rows are two runs of the whole. */
static void fill_matrix(const struct dcpk_train_state *state, const struct dcpk_train_shard *shard,
                        uint64_t key)
{
    const struct dcpk_train_param *param = &state->params->list[shard->param];
    struct dcpk_normal shape = {.key = key,
                                .columns = param->shape[1],
                                .first_column = param->offset[1],
                                .whole_columns = param->whole[1],
                                .std = kind_std(&state->config->model, param->kind)};
    int64_t n_first = shard->n_rows;

    if (param->has_halves) {
        n_first = param->shape[0] / 2 - shard->row;
        if (n_first < 0)
            n_first = 0;
        if (n_first > shard->n_rows)
            n_first = shard->n_rows;
    }
    fill_rows(state, shard, &shape, 0, n_first);
    fill_rows(state, shard, &shape, n_first, shard->n_rows - n_first);
}

static dcpk_status fill_norm(const struct dcpk_train_state *state,
                             const struct dcpk_train_shard *shard, struct dcpk_error *err)
{
    const size_t n = (size_t)shard->n_elems;
    float *ones = dcpk_alloc_array(n, sizeof *ones, err);
    dcpk_status st;

    if (ones == NULL)
        return err->status;
    for (size_t i = 0; i < n; i++)
        ones[i] = 1;
    st = dcpk_math_copy(state->math, shard->main, ones, n * sizeof *ones, err);
    dcpk_free(ones);
    return st;
}

dcpk_status dcpk_initial_fill(const struct dcpk_train_state *state, struct dcpk_error *err)
{
    dcpk_status st = DCPK_OK;

    for (size_t i = 0; st == DCPK_OK && i < state->shards->n; i++) {
        const struct dcpk_train_shard *shard = &state->shards->list[i];
        const struct dcpk_train_param *param = &state->params->list[shard->param];

        if (param->rank == 1)
            st = fill_norm(state, shard, err);
        else
            fill_matrix(state, shard, stream_key(state->config->data.seed, param->canonical));
    }
    if (st == DCPK_OK)
        st = state->math->ops->wait(state->math, err);
    return st;
}

/* ---- noise ---- */

/* The name is hashed as FNV-1a does, from a start of our own; row and column are stirred in by
 * odd constants of splitmix64. */
#define NOISE_START  UINT64_C(1469598103934665603)
#define FNV_PRIME    UINT64_C(1099511628211)
#define STIR_ROWS    UINT64_C(0x9e3779b97f4a7c15)
#define STIR_COLUMNS UINT64_C(0xbf58476d1ce4e5b9)

/* A coin thrown by a name, a row and a column. */
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
    const size_t n_bytes = (size_t)shard->n_elems * sizeof(float);
    float *host = dcpk_alloc(n_bytes, err);
    dcpk_status st = err->status;

    if (host == NULL)
        return st;
    st = dcpk_math_copy(state->math, host, shard->main, n_bytes, err);
    if (st == DCPK_OK) {
        noise_fill(&state->params->list[shard->param], shard, host);
        st = dcpk_math_copy(state->math, shard->main, host, n_bytes, err);
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
