/* SPDX-License-Identifier: Apache-2.0 */
/* state_hash.c - hashes of rows, added up over shards and ranks. */
#include "lib/train/state_hash.h"

#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/cursor.h"
#include "lib/base/digest.h"
#include "lib/train/run_mesh.h"

#define N_ARRAYS 3 /* main, exp_avg, exp_avg_sq */

/* One shard in the host's memory. */
struct hashed_shard {
    const struct dcpk_train_shard *shard;
    const struct dcpk_train_param *param;
    const float *arrays[N_ARRAYS]; /* NULL: SGD has none */
    int64_t n_slices, first_slice;
};

/* H of slice `slice` of row `row`, both of the shard. */
static uint64_t hash_slice(const struct hashed_shard *h, int64_t row, int64_t slice)
{
    struct dcpk_hasher hasher;
    const int64_t columns = h->param->shape[1], n = columns / h->n_slices;
    const int64_t whole_row = dcpk_train_param_row(h->param, h->shard->row + row);
    uint8_t place[16];
    struct dcpk_hash hash;

    dcpk_store_u64le(place, (uint64_t)whole_row);
    dcpk_store_u64le(place + 8, (uint64_t)(h->first_slice + slice));
    dcpk_hasher_begin(&hasher);
    dcpk_hasher_update(&hasher, h->param->canonical, strlen(h->param->canonical));
    dcpk_hasher_update(&hasher, place, sizeof place);
    for (int a = 0; a < N_ARRAYS; a++)
        if (h->arrays[a] != NULL)
            dcpk_hasher_update(&hasher, h->arrays[a] + row * columns + slice * n,
                               (size_t)n * sizeof(float));
    dcpk_hasher_digest(&hasher, &hash);
    return dcpk_load_u64le(hash.digest);
}

static uint64_t hash_shard(const struct hashed_shard *h)
{
    uint64_t sum = 0;

    for (int64_t row = 0; row < h->shard->n_rows; row++)
        for (int64_t slice = 0; slice < h->n_slices; slice++)
            sum += hash_slice(h, row, slice);
    return sum;
}

/* Copies the arrays to `host`, which has room for all, and waits. */
static dcpk_status fetch_shard(const struct dcpk_train_state *state, struct hashed_shard *h,
                               float *host, struct dcpk_error *err)
{
    const struct dcpk_ops *ops = state->math->ops;
    const float *const from[N_ARRAYS] = {h->shard->main, h->shard->exp_avg, h->shard->exp_avg_sq};

    for (int a = 0; a < N_ARRAYS; a++) {
        float *to = host + a * h->shard->n_elems;

        if (from[a] == NULL)
            continue;
        ops->copy(state->math, to, from[a], (size_t)h->shard->n_elems * sizeof(float));
        h->arrays[a] = to;
    }
    return ops->wait(state->math, err);
}

static dcpk_status hash_shards(const struct dcpk_train_state *state, float *host, uint64_t *sum,
                               struct dcpk_error *err)
{
    for (size_t i = 0; i < state->shards->n; i++) {
        const struct dcpk_train_shard *shard = &state->shards->list[i];
        struct hashed_shard h = {.shard = shard, .param = &state->params->list[shard->param]};

        if (!shard->is_counted)
            continue;
        h.n_slices = dcpk_train_slices(state->config, h.param, &h.first_slice);
        if (fetch_shard(state, &h, host, err) != DCPK_OK)
            return err->status;
        *sum += hash_shard(&h);
    }
    return DCPK_OK;
}

static int64_t largest_shard(const struct dcpk_train_shards *shards)
{
    int64_t most = 0;

    for (size_t i = 0; i < shards->n; i++)
        if (shards->list[i].n_elems > most)
            most = shards->list[i].n_elems;
    return most;
}

/* Buffers are whole on all ranks of a stage: one of them counts. */
static dcpk_status hash_buffers(const struct dcpk_train_state *state, uint64_t *sum,
                                struct dcpk_error *err)
{
    const struct dcpk_train_mesh *mesh = state->mesh;

    if (state->buffers == NULL || mesh->at.tp > 0 || mesh->group[DCPK_G_DP_CP]->rank > 0)
        return DCPK_OK;
    for (size_t i = 0; i < state->params->n; i++) {
        const struct dcpk_train_param *p = &state->params->list[i];
        const struct dcpk_train_shard whole = {
            .n_rows = p->shape[0], .n_elems = p->shape[0] * p->shape[1], .main = state->buffers[i]};
        struct hashed_shard h = {.shard = &whole, .param = p, .n_slices = 1};
        float *host;

        if (!p->is_buffer)
            continue;
        host = dcpk_alloc_array((size_t)whole.n_elems, sizeof *host, err);
        if (host == NULL || fetch_shard(state, &h, host, err) != DCPK_OK) {
            dcpk_free(host);
            return err->status;
        }
        *sum += hash_shard(&h);
        dcpk_free(host);
    }
    return DCPK_OK;
}

/* Hashes the elements that this rank counts. */
static dcpk_status hash_counted(const struct dcpk_train_state *state, uint64_t *sum,
                                struct dcpk_error *err)
{
    const size_t n = (size_t)largest_shard(state->shards);
    float *host = dcpk_alloc_array(n, N_ARRAYS * sizeof *host, err);
    dcpk_status st = err->status;

    if (host != NULL)
        st = hash_shards(state, host, sum, err);
    if (st == DCPK_OK)
        st = hash_buffers(state, sum, err);
    dcpk_free(host);
    return st;
}

dcpk_status dcpk_state_hash(const struct dcpk_train_state *state, uint64_t *hash,
                            struct dcpk_error *err)
{
    uint64_t sum = 0;
    int64_t total;
    dcpk_status st = hash_counted(state, &sum, err);

    memcpy(&total, &sum, sizeof total);
    st = dcpk_totals_agree(state->mesh->group[DCPK_G_WORLD], state->math, st, &total, 1, err);
    if (st == DCPK_OK)
        memcpy(hash, &total, sizeof total);
    return st;
}
