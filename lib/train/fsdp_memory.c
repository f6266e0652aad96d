/* SPDX-License-Identifier: Apache-2.0 */
/* fsdp_memory.c - the memory that a rank keeps over a step, and shards in it. */
/*
 *   each bucket           weights, of the compute dtype, and sums of gradients: all or a slice
 *                         main and grad, fp32: what this rank's optimizer owns of the slice
 *   all shards together   | exp_avg | exp_avg_sq | exp_avg | exp_avg_sq | ...
 *   optim_grads_params    room for whole weights: of those outside units, and, with a double
 *                         buffer, of two units
 *
 * footprint.c has the sizes. Memory that a pass gathers or reduces in addition is taken and freed
 * there.
 */
#include <string.h>

#include "lib/train/fsdp_priv.h"

dcpk_status dcpk_fsdp_take(struct dcpk_fsdp *f, enum dcpk_memory_tag tag, size_t n_bytes, void **at,
                           struct dcpk_error *err)
{
    enum dcpk_buffer_use use = DCPK_BUFFER_GATHER;

    if (f->options.buffers == NULL)
        return dcpk_memory_account_alloc(f->options.account, tag, n_bytes, at, err);
    if (tag == DCPK_TAG_GRADS || tag == DCPK_TAG_COMM)
        use = DCPK_BUFFER_REDUCE;
    if (dcpk_user_buffers_take(f->options.buffers, use, n_bytes, at, err))
        return dcpk_context(err, "memory for %s", dcpk_memory_tag_names[tag]);
    dcpk_memory_account_count(f->options.account, tag, (int64_t)n_bytes);
    return DCPK_OK;
}

void dcpk_fsdp_give(struct dcpk_fsdp *f, enum dcpk_memory_tag tag, size_t n_bytes, void *at)
{
    if (f->options.buffers == NULL) {
        dcpk_memory_account_free(f->options.account, tag, n_bytes, at);
    } else if (at != NULL) {
        dcpk_user_buffers_give(f->options.buffers, at);
        dcpk_memory_account_count(f->options.account, tag, -(int64_t)n_bytes);
    }
}

/* Zeroed memory. is_sent: collectives move it. */
static dcpk_status memory_take(struct dcpk_fsdp *f, bool is_sent, enum dcpk_memory_tag tag,
                               size_t n_bytes, void *address, struct dcpk_error *err)
{
    void *at;
    dcpk_status st;

    if (is_sent)
        st = dcpk_fsdp_take(f, tag, n_bytes, &at, err);
    else
        st = dcpk_memory_account_alloc(f->options.account, tag, n_bytes, &at, err);
    if (st != DCPK_OK)
        return st;
    f->math->ops->zero(f->math, at, n_bytes);
    memcpy(address, &at, sizeof at);
    return DCPK_OK;
}

static void memory_give(struct dcpk_fsdp *f, bool is_sent, enum dcpk_memory_tag tag, size_t n_bytes,
                        void *at)
{
    if (is_sent)
        dcpk_fsdp_give(f, tag, n_bytes, at);
    else
        dcpk_memory_account_free(f->options.account, tag, n_bytes, at);
}

/* True if kept weights are gathered from where they are. */
static bool sends_weights(const struct dcpk_fsdp *f)
{
    return f->strategy != DCPK_NO_SHARD;
}

/* The same of kept sums: reduced where they are, or added over outer ranks. */
static bool sends_grads(const struct dcpk_fsdp *f, const struct dcpk_fsdp_bucket *b)
{
    return b->outer != NULL || (!dcpk_fsdp_cuts_grads(f) && !dcpk_fsdp_casts_grads(f));
}

/* The groups that move a bucket's weights and gradients. */
static void bucket_join(struct dcpk_fsdp *f, const struct dcpk_fsdp_bucket *b)
{
    if (f->options.buffers == NULL)
        return;
    if (sends_weights(f))
        dcpk_user_buffers_join(f->options.buffers, DCPK_BUFFER_GATHER, b->gather);
    if (f->is_hfsdp)
        dcpk_user_buffers_join(f->options.buffers, DCPK_BUFFER_GATHER, b->outer);
    dcpk_user_buffers_join(f->options.buffers, DCPK_BUFFER_REDUCE, b->reduce);
    dcpk_user_buffers_join(f->options.buffers, DCPK_BUFFER_REDUCE, b->outer);
}

static dcpk_status bucket_allocate(struct dcpk_fsdp *f, struct dcpk_fsdp_bucket *b,
                                   struct dcpk_error *err)
{
    const size_t n_weights = (size_t)b->n_weights, n_grads = (size_t)b->n_grads;
    const size_t n_own = (size_t)b->n_own * sizeof(float);

    if (memory_take(f, sends_weights(f), DCPK_TAG_WEIGHTS, n_weights * f->compute_bytes,
                    &b->weights, err) ||
        memory_take(f, sends_grads(f, b), DCPK_TAG_GRADS, n_grads * f->grads_bytes, &b->grads,
                    err) ||
        memory_take(f, false, DCPK_TAG_MAIN, n_own, &b->main, err))
        return err->status;
    if (dcpk_fsdp_shares_grad(f))
        b->grad = (float *)(void *)b->grads + (b->own_at - b->grads_at);
    else if (memory_take(f, false, DCPK_TAG_GRADS, n_own, &b->grad, err))
        return err->status;
    if (!dcpk_fsdp_cuts_weights(f))
        b->whole = b->weights;
    return DCPK_OK;
}

static void bucket_deallocate(struct dcpk_fsdp *f, struct dcpk_fsdp_bucket *b)
{
    struct dcpk_memory_account *account = f->options.account;
    const size_t n_own = (size_t)b->n_own * sizeof(float);

    if (!dcpk_fsdp_shares_grad(f))
        dcpk_memory_account_free(account, DCPK_TAG_GRADS, n_own, b->grad);
    dcpk_memory_account_free(account, DCPK_TAG_MAIN, n_own, b->main);
    memory_give(f, sends_grads(f, b), DCPK_TAG_GRADS, (size_t)b->n_grads * f->grads_bytes,
                b->grads);
    memory_give(f, sends_weights(f), DCPK_TAG_WEIGHTS, (size_t)b->n_weights * f->compute_bytes,
                b->weights);
    dcpk_fsdp_give(f, DCPK_TAG_COMM, (size_t)b->n_elems * f->comm_bytes, b->comm);
}

/* True if another rank counts the same rows. */
static bool shard_is_counted(const struct dcpk_fsdp *f, const struct dcpk_train_param *p,
                             const struct dcpk_fsdp_bucket *b)
{
    const struct dcpk_train_mesh *mesh = f->options.mesh;

    if (p->is_shared || (p->tp_axis < 0 && mesh->at.tp > 0))
        return false;
    if (f->strategy == DCPK_NO_SHARD)
        return b->reduce->rank == 0;
    return b->outer == NULL || f->is_hfsdp || b->outer->rank == 0;
}

/* Moments are of elements, not of what fills buckets up. */
static dcpk_status shards_allocate(struct dcpk_fsdp *f, struct dcpk_error *err)
{
    const int n_moments = dcpk_train_count_moments(&f->options.config->optim);
    size_t n_elems = 0;
    float *at;

    for (size_t i = 0; i < f->shards.n; i++)
        n_elems += (size_t)f->shards.list[i].n_elems;
    f->moments_bytes = n_elems * (size_t)n_moments * sizeof(float);
    if (n_moments > 0 && memory_take(f, false, DCPK_TAG_ADAM, f->moments_bytes, &f->moments, err))
        return err->status;
    at = f->moments;
    for (size_t i = 0; i < f->shards.n; i++) {
        struct dcpk_train_shard *shard = &f->shards.list[i];
        const struct dcpk_fsdp_bucket *b = &f->buckets[shard->bucket];

        shard->main = b->main + shard->slice_first;
        shard->grad = b->grad + shard->slice_first;
        shard->is_counted = shard_is_counted(f, &f->options.params->list[shard->param], b);
        if (n_moments > 0) {
            shard->exp_avg = at;
            at += shard->n_elems;
        }
        if (n_moments > 1) {
            shard->exp_avg_sq = at;
            at += shard->n_elems;
        }
    }
    return DCPK_OK;
}

static size_t buffer_bytes(const struct dcpk_train_param *p)
{
    return (size_t)(p->shape[0] * p->shape[1]) * sizeof(float);
}

/* The size that most units have, of several such sizes the first; with a pool of the longest, that.
 * Source: param_and_grad_buffer.py FixedPoolAllocator @core_v0.19.0. */
size_t dcpk_fsdp_pool_bytes(const struct dcpk_fsdp *f)
{
    const bool has_max = f->options.config->fsdp.has_max_pool;
    int64_t best = 0;
    size_t n_best = 0;

    if (!dcpk_fsdp_cuts_weights(f) || !(f->options.config->fsdp.has_double_buffer || has_max))
        return 0;
    for (size_t u = 1; u < f->n_units; u++) {
        const int64_t n_elems = f->units[u].n_elems;
        size_t n = 0;

        for (size_t v = 1; v < f->n_units; v++)
            n += f->units[v].n_elems == n_elems;
        if (has_max ? n_elems > best : n > n_best) {
            best = n_elems;
            n_best = n;
        }
    }
    return (size_t)best * f->compute_bytes;
}

static dcpk_status gathers_allocate(struct dcpk_fsdp *f, struct dcpk_error *err)
{
    struct dcpk_fsdp_unit *kept = &f->units[0];
    const size_t n_bytes = (size_t)kept->n_elems * f->compute_bytes;

    for (size_t u = 0; u < f->n_units; u++)
        f->units[u].buffer = -1;
    if (!dcpk_fsdp_cuts_weights(f))
        return DCPK_OK;
    if (memory_take(f, true, DCPK_TAG_WEIGHTS, n_bytes, &kept->gathered, err))
        return err->status;
    f->pool_bytes = dcpk_fsdp_pool_bytes(f);
    for (int i = 0; i < 2 && f->pool_bytes > 0; i++)
        if (memory_take(f, true, DCPK_TAG_GATHER, f->pool_bytes, &f->pool[i], err))
            return err->status;
    return DCPK_OK;
}

dcpk_status dcpk_fsdp_allocate(struct dcpk_fsdp *f, struct dcpk_error *err)
{
    const struct dcpk_train_params *params = f->options.params;

    for (size_t i = 0; i < f->n_buckets; i++)
        bucket_join(f, &f->buckets[i]);
    for (size_t i = 0; i < f->n_buckets; i++)
        if (bucket_allocate(f, &f->buckets[i], err))
            return err->status;
    for (size_t i = 0; i < params->n; i++)
        if (params->list[i].is_buffer &&
            memory_take(f, false, DCPK_TAG_WEIGHTS, buffer_bytes(&params->list[i]),
                        &f->spots[i].buffer, err))
            return err->status;
    if (memory_take(f, false, DCPK_TAG_GRADS, params->n * sizeof *f->bad, &f->bad, err) ||
        memory_take(f, false, DCPK_TAG_GRADS, sizeof *f->worst, &f->worst, err) ||
        shards_allocate(f, err) || gathers_allocate(f, err) || f->math->ops->wait(f->math, err))
        return err->status;
    return DCPK_OK;
}

void dcpk_fsdp_deallocate(struct dcpk_fsdp *f)
{
    const struct dcpk_train_params *params = f->options.params;
    struct dcpk_memory_account *account = f->options.account;

    for (int i = 0; i < 2; i++)
        dcpk_fsdp_give(f, DCPK_TAG_GATHER, f->pool_bytes, f->pool[i]);
    for (size_t u = 0; f->units != NULL && u < f->n_units; u++)
        if (f->units[u].is_kept || f->units[u].buffer < 0)
            dcpk_fsdp_give(f, f->units[u].is_kept ? DCPK_TAG_WEIGHTS : DCPK_TAG_GATHER,
                           (size_t)f->units[u].n_elems * f->compute_bytes, f->units[u].gathered);
    dcpk_memory_account_free(account, DCPK_TAG_ADAM, f->moments_bytes, f->moments);
    dcpk_memory_account_free(account, DCPK_TAG_GRADS, params->n * sizeof *f->bad, f->bad);
    dcpk_memory_account_free(account, DCPK_TAG_GRADS, sizeof *f->worst, f->worst);
    for (size_t i = 0; f->spots != NULL && i < params->n; i++)
        dcpk_memory_account_free(account, DCPK_TAG_WEIGHTS, buffer_bytes(&params->list[i]),
                                 f->spots[i].buffer);
    for (size_t i = 0; f->buckets != NULL && i < f->n_buckets; i++)
        bucket_deallocate(f, &f->buckets[i]);
}
