/* SPDX-License-Identifier: Apache-2.0 */
/* fsdp_reduce.c - gradients: leaves are added up, buckets reduced, the last sums made fp32. */
/*
 * Exact: every leaf becomes integers of 2^-lsb (lib/device/ops.h, to_fixed), and only integers are
 * added after that, so that no layout of ranks, order of microbatches or algorithm changes a bit.
 *
 *   leaf --to_fixed--> comm --reduce-scatter--> grads ... --outer ranks--> --from_fixed--> fp32
 *
 * comm of a microbatch starts with what the slice has so far: the reduction adds it. Native: leaves
 * are added in the dtype of comm, their sums in that of main_grads.
 */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lib/train/fsdp_priv.h"

/* The place of a bucket's kept sums of its elements from `at` on. */
static uint8_t *kept_sums(const struct dcpk_fsdp *f, const struct dcpk_fsdp_bucket *b, int64_t at)
{
    return b->grads + (size_t)(at - b->grads_at) * f->grads_bytes;
}

/* The kind of reduction that makes kept sums. */
static enum dcpk_reduction kept_reduction(const struct dcpk_fsdp *f)
{
    if (f->is_exact)
        return DCPK_SUM_I64;
    if (f->main_grads == DCPK_BF16)
        return DCPK_SUM_BF16;
    return DCPK_SUM_F32;
}

static dcpk_status comm_take(struct dcpk_fsdp *f, struct dcpk_fsdp_bucket *b,
                             struct dcpk_error *err)
{
    void *at;

    if (dcpk_fsdp_take(f, DCPK_TAG_COMM, (size_t)b->n_elems * f->comm_bytes, &at, err))
        return err->status;
    b->comm = at;
    return DCPK_OK;
}

static void comm_free(struct dcpk_fsdp *f, struct dcpk_fsdp_bucket *b)
{
    dcpk_fsdp_give(f, DCPK_TAG_COMM, (size_t)b->n_elems * f->comm_bytes, b->comm);
    b->comm = NULL;
}

static dcpk_status bucket_fill(struct dcpk_fsdp *f, struct dcpk_fsdp_bucket *b,
                               struct dcpk_error *err)
{
    const size_t n_slice = (size_t)b->n_slice * f->comm_bytes;

    /* More passes than `begin` was given: sums would be reduced twice. */
    assert(b->n_backward < f->n_microbatches && b->grads_state == DCPK_GRADS_EMPTY);
    b->grads_state = DCPK_GRADS_FILLING;
    if (!dcpk_fsdp_cuts_grads(f))
        return DCPK_OK;
    if (comm_take(f, b, err))
        return err->status;
    f->math->ops->zero(f->math, b->comm, (size_t)b->n_elems * f->comm_bytes);
    if (f->is_exact)
        f->math->ops->copy(f->math, b->comm + (size_t)b->slice_at * f->comm_bytes, b->grads,
                           n_slice);
    return DCPK_OK;
}

dcpk_status dcpk_fsdp_fill(struct dcpk_fsdp *f, size_t unit, struct dcpk_error *err)
{
    const struct dcpk_fsdp_unit *u = &f->units[unit];

    for (size_t i = u->first; i < u->first + u->n; i++)
        if (bucket_fill(f, &f->buckets[i], err))
            return err->status;
    return DCPK_OK;
}

void dcpk_fsdp_add(struct dcpk_fsdp *f, size_t param, int64_t row, int64_t n_rows,
                   const float *grad)
{
    const struct dcpk_fsdp_spot *spot = &f->spots[param];
    const struct dcpk_fsdp_bucket *b = &f->buckets[spot->bucket];
    const struct dcpk_train_param *p = &f->options.params->list[param];
    const int64_t first = spot->first + row * p->shape[1], n = n_rows * p->shape[1];
    const struct dcpk_fixed fixed = {.n = n,
                                     .period = n,
                                     .lsb = f->lsb,
                                     .limit = INT64_MAX / f->options.mesh->n_ranks,
                                     .first = row * p->shape[1]};
    enum dcpk_dtype dtype = f->main_grads;
    uint8_t *sums = b->grads;

    assert(spot->bucket != SIZE_MAX && b->grads_state == DCPK_GRADS_FILLING);
    assert(row >= 0 && row + n_rows <= p->shape[0]);
    if (n == 0)
        return;
    if (b->comm != NULL) {
        sums = b->comm;
        dtype = f->comm;
    }
    if (f->is_exact) {
        f->math->ops->to_fixed(f->math, &fixed, grad, (int64_t *)(void *)sums + first,
                               &f->bad[param]);
        return;
    }
    if (dcpk_fsdp_looks_at_grads(f))
        f->math->ops->find_bad(f->math, n, fixed.first, grad, &f->bad[param]);
    f->math->ops->accumulate(f->math, dtype, n, grad,
                             sums + (size_t)first * dcpk_dtype_bytes(dtype));
}

/* ---- reductions ---- */

static dcpk_status bucket_reduce(struct dcpk_fsdp *f, size_t bucket, struct dcpk_error *err)
{
    struct dcpk_fsdp_bucket *b = &f->buckets[bucket];
    const struct dcpk_collectives *by = b->reduce->by;
    uint8_t *all = b->grads;
    uint64_t *ticket = NULL;
    dcpk_status st;

    if (b->comm != NULL)
        all = b->comm;
    if (f->overlaps_reduce)
        ticket = &b->reducing.ticket;
    dcpk_fsdp_log(f, DCPK_FSDP_REDUCE, bucket, DCPK_BACKWARD);
    if (f->math->ops->wait(f->math, err))
        return err->status;
    if (f->strategy == DCPK_NO_SHARD)
        st = by->all_reduce(b->reduce, f->reduction, all, (size_t)b->n_elems, ticket, err);
    else
        st = by->reduce_scatter(b->reduce, f->reduction, all, (size_t)b->n_slice, ticket, err);
    if (st != DCPK_OK)
        return st;
    if (ticket != NULL)
        b->reducing.group = b->reduce;
    b->grads_state = DCPK_GRADS_QUEUED;
    f->queue[f->n_queued++] = bucket;
    f->queued_elems += b->n_elems;
    return dcpk_fsdp_drain(f, f->queue_elems, err);
}

/* optim, no_shard: sums are reduced where they are, or in a copy of the dtype of comm. */
static dcpk_status bucket_reduce_kept(struct dcpk_fsdp *f, size_t bucket, struct dcpk_error *err)
{
    struct dcpk_fsdp_bucket *b = &f->buckets[bucket];

    if (b->n_backward < f->n_microbatches) {
        b->grads_state = DCPK_GRADS_EMPTY;
        return DCPK_OK;
    }
    if (dcpk_fsdp_casts_grads(f)) {
        if (comm_take(f, b, err))
            return err->status;
        f->math->ops->cast(f->math, f->main_grads, f->comm, b->n_elems, b->grads, b->comm);
    }
    return bucket_reduce(f, bucket, err);
}

dcpk_status dcpk_fsdp_reduce(struct dcpk_fsdp *f, size_t unit, struct dcpk_error *err)
{
    const struct dcpk_fsdp_unit *u = &f->units[unit];

    for (size_t i = u->first; i < u->first + u->n; i++) {
        assert(f->buckets[i].grads_state == DCPK_GRADS_FILLING);
        f->buckets[i].n_backward++;
        if (dcpk_fsdp_cuts_grads(f)) {
            if (bucket_reduce(f, i, err))
                return err->status;
        } else if (bucket_reduce_kept(f, i, err)) {
            return err->status;
        }
    }
    return DCPK_OK;
}

/* A reduced slice of another dtype than fp32 is added to the kept one. */
static dcpk_status add_slice(struct dcpk_fsdp *f, struct dcpk_fsdp_bucket *b, const uint8_t *slice,
                             struct dcpk_error *err)
{
    const size_t n_bytes = (size_t)b->n_slice * sizeof(float);
    void *wide;

    if (f->comm == DCPK_F32) {
        f->math->ops->accumulate(f->math, f->main_grads, b->n_slice, (const void *)slice, b->grads);
        return DCPK_OK;
    }
    if (dcpk_memory_account_alloc(f->options.account, DCPK_TAG_COMM, n_bytes, &wide, err))
        return err->status;
    f->math->ops->cast(f->math, f->comm, DCPK_F32, b->n_slice, slice, wide);
    f->math->ops->accumulate(f->math, f->main_grads, b->n_slice, wide, b->grads);
    dcpk_memory_account_free(f->options.account, DCPK_TAG_COMM, n_bytes, wide);
    return DCPK_OK;
}

/* The reduction of a bucket has ended: its result goes where it is kept. */
static dcpk_status bucket_keep(struct dcpk_fsdp *f, struct dcpk_fsdp_bucket *b,
                               struct dcpk_error *err)
{
    const uint8_t *slice;
    dcpk_status st = DCPK_OK;

    if (b->comm == NULL)
        return DCPK_OK;
    slice = b->comm + (size_t)b->slice_at * f->comm_bytes;
    if (!dcpk_fsdp_cuts_grads(f))
        f->math->ops->cast(f->math, f->comm, f->main_grads, b->n_slice, slice,
                           kept_sums(f, b, b->slice_at));
    else if (f->is_exact)
        f->math->ops->copy(f->math, b->grads, slice, (size_t)b->n_slice * f->grads_bytes);
    else
        st = add_slice(f, b, slice, err);
    if (st == DCPK_OK)
        st = f->math->ops->wait(f->math, err);
    comm_free(f, b);
    return st;
}

dcpk_status dcpk_fsdp_drain(struct dcpk_fsdp *f, int64_t n_elems, struct dcpk_error *err)
{
    while (f->n_queued > 0 && f->queued_elems > n_elems) {
        const size_t bucket = f->queue[0];
        struct dcpk_fsdp_bucket *b = &f->buckets[bucket];

        memmove(f->queue, f->queue + 1, --f->n_queued * sizeof *f->queue);
        f->queued_elems -= b->n_elems;
        if (dcpk_fsdp_end(&b->reducing, err) || bucket_keep(f, b, err))
            return err->status;
        b->grads_state = DCPK_GRADS_EMPTY;
        dcpk_fsdp_log(f, DCPK_FSDP_REDUCED, bucket, DCPK_BACKWARD);
    }
    return DCPK_OK;
}

/* ---- the end of a step ---- */

static dcpk_status outer_begin(struct dcpk_fsdp *f, size_t bucket, struct dcpk_error *err)
{
    struct dcpk_fsdp_bucket *b = &f->buckets[bucket];
    uint8_t *slice = kept_sums(f, b, b->slice_at);
    uint64_t *ticket = NULL;
    dcpk_status st;

    if (b->outer == NULL)
        return DCPK_OK;
    if (f->overlaps_reduce)
        ticket = &b->reducing.ticket;
    dcpk_fsdp_log(f, DCPK_FSDP_OUTER_REDUCE, bucket, DCPK_BACKWARD);
    if (f->is_hfsdp)
        st = b->outer->by->reduce_scatter(b->outer, kept_reduction(f), slice, (size_t)b->n_own,
                                          ticket, err);
    else
        st = b->outer->by->all_reduce(b->outer, kept_reduction(f), slice, (size_t)b->n_slice,
                                      ticket, err);
    if (st == DCPK_OK && ticket != NULL)
        b->reducing.group = b->outer;
    return st;
}

static dcpk_status reduce_outer(struct dcpk_fsdp *f, struct dcpk_error *err)
{
    if (f->math->ops->wait(f->math, err))
        return err->status;
    for (size_t i = 0; i < f->n_buckets; i++)
        if (outer_begin(f, i, err))
            return err->status;
    for (size_t i = 0; i < f->n_buckets; i++)
        if (f->buckets[i].outer != NULL && dcpk_fsdp_end(&f->buckets[i].reducing, err))
            return err->status;
    return DCPK_OK;
}

/* Each tensor-parallel rank has the gradients of its heads; both stages those of their use of an
 * embedding. */
static dcpk_status add_copies(struct dcpk_fsdp *f, struct dcpk_error *err)
{
    const struct dcpk_train_mesh *mesh = f->options.mesh;

    for (size_t i = 0; i < f->shards.n; i++) {
        const struct dcpk_train_shard *shard = &f->shards.list[i];
        const struct dcpk_train_param *p = &f->options.params->list[shard->param];
        const struct dcpk_fsdp_bucket *b = &f->buckets[shard->bucket];
        uint8_t *sums = kept_sums(f, b, b->own_at + shard->slice_first);
        struct dcpk_group *group = NULL;

        if (p->kind == DCPK_P_Q_NORM || p->kind == DCPK_P_K_NORM)
            group = mesh->group[DCPK_G_TP];
        else if (dcpk_fsdp_is_copied(f->options.config, p))
            group = mesh->group[DCPK_G_EMBEDDING];
        if (group != NULL && group->n_ranks > 1 &&
            group->by->all_reduce(group, kept_reduction(f), sums, (size_t)shard->n_elems, NULL,
                                  err))
            return err->status;
    }
    return DCPK_OK;
}

/* The first parameter with a bad gradient, or n. */
static dcpk_status find_bad_param(struct dcpk_fsdp *f, size_t *param, struct dcpk_error *err)
{
    const size_t n = f->options.params->n;

    if (dcpk_math_copy(f->math, f->host_bad, f->bad, n * sizeof *f->bad, err))
        return err->status;
    *param = 0;
    while (*param < n && f->host_bad[*param] == 0)
        ++*param;
    return DCPK_OK;
}

/* Only integers have a range of their own. */
static dcpk_status fail_range(const struct dcpk_fsdp *f, size_t param, struct dcpk_error *err)
{
    const struct dcpk_group *world = f->options.mesh->group[DCPK_G_WORLD];
    const struct dcpk_train_param *p = &f->options.params->list[param];
    const int64_t number = DCPK_BAD_NUMBER(f->host_bad[param]);
    char range[64] = "";

    if (f->is_exact)
        snprintf(range, sizeof range, ", or passes 2^%d / %d ranks", 63 - f->lsb, world->n_ranks);
    return dcpk_fail(err, DCPK_ERANGE,
                     "rank %d: the gradient of '%s' is not finite%s, first at [%" PRId64
                     ", %" PRId64 "] of this rank's [%" PRId64 ", %" PRId64 "]",
                     world->rank, p->live, range, number / p->shape[1], number % p->shape[1],
                     p->shape[0], p->shape[1]);
}

/* All ranks fail where one of them has to. */
static dcpk_status agree_on_range(struct dcpk_fsdp *f, struct dcpk_error *err)
{
    struct dcpk_group *world = f->options.mesh->group[DCPK_G_WORLD];
    double worst = 0;
    size_t param;

    if (find_bad_param(f, &param, err))
        return err->status;
    if (param < f->options.params->n)
        worst = world->rank + 1;
    if (dcpk_math_copy(f->math, f->worst, &worst, sizeof worst, err) ||
        world->by->all_reduce(world, DCPK_MAX_F64, f->worst, 1, NULL, err))
        return err->status;
    if (dcpk_math_copy(f->math, &worst, f->worst, sizeof worst, err))
        return err->status;
    if (worst == 0)
        return DCPK_OK;
    if (param < f->options.params->n)
        return fail_range(f, param, err);
    return dcpk_fail(err, DCPK_ERANGE, "rank %d found a gradient that is %s", (int)worst - 1,
                     f->is_exact ? "not finite or too large" : "not finite");
}

static void make_fp32(struct dcpk_fsdp *f, struct dcpk_fsdp_bucket *b, double factor)
{
    const struct dcpk_ops *ops = f->math->ops;
    const void *sums = kept_sums(f, b, b->own_at);

    if (f->is_exact) {
        ops->from_fixed(f->math, b->n_own, ldexp(factor, -f->lsb), sums, b->grad);
        return;
    }
    if (!dcpk_fsdp_shares_grad(f))
        ops->cast(f->math, f->main_grads, DCPK_F32, b->n_own, sums, b->grad);
    ops->scale(f->math, DCPK_F32, b->n_own, (float)factor, b->grad);
}

/* Finite floats can have a sum that is not; of integers to_fixed has seen it (dcpk_fsdp_add). */
static void find_bad_sums(struct dcpk_fsdp *f)
{
    if (f->is_exact || !dcpk_fsdp_looks_at_grads(f))
        return;
    for (size_t i = 0; i < f->shards.n; i++) {
        const struct dcpk_train_shard *shard = &f->shards.list[i];

        f->math->ops->find_bad(f->math, shard->n_elems,
                               shard->row * f->options.params->list[shard->param].shape[1],
                               shard->grad, &f->bad[shard->param]);
    }
}

dcpk_status dcpk_fsdp_finish_grads(struct dcpk_fsdp *f, double factor, struct dcpk_error *err)
{
    if (dcpk_fsdp_drain(f, 0, err) || reduce_outer(f, err) || add_copies(f, err))
        return err->status;
    for (size_t i = 0; i < f->n_buckets; i++)
        make_fp32(f, &f->buckets[i], factor);
    find_bad_sums(f);
    return agree_on_range(f, err);
}
