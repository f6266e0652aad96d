/* SPDX-License-Identifier: Apache-2.0 */
/* fsdp_gather.c - weights of units: gathered before they are used, the next ones meanwhile. */
/*
 * optim_grads_params, forward of unit u; backward the same way downward:
 *
 *   want u:  gather u | gather u + 1, u + 2, ... until prefetch_elems are ahead, or the double
 *            buffer is full | wait for u
 *   leave u: release u
 *
 * What lies outside units keeps its gathered weights to the end of the step. HFSDP's slices are
 * gathered over the outer ranks first, once after each install.
 */
#include <assert.h>

#include "lib/train/fsdp_priv.h"

dcpk_status dcpk_fsdp_end(struct dcpk_fsdp_wait *wait, struct dcpk_error *err)
{
    struct dcpk_group *group = wait->group;

    if (group == NULL)
        return DCPK_OK;
    wait->group = NULL;
    return group->by->wait(group, wait->ticket, err);
}

static dcpk_status gather_outer(struct dcpk_fsdp *f, size_t bucket, struct dcpk_error *err)
{
    struct dcpk_fsdp_bucket *b = &f->buckets[bucket];
    const size_t n_bytes = (size_t)b->n_own * f->compute_bytes;
    uint8_t *mine = b->weights + (size_t)(b->own_at - b->slice_at) * f->compute_bytes;

    if (!b->is_outer_stale)
        return DCPK_OK;
    b->is_outer_stale = false;
    dcpk_fsdp_log(f, DCPK_FSDP_OUTER_GATHER, bucket, DCPK_FORWARD);
    return b->outer->by->all_gather(b->outer, mine, n_bytes, b->weights, NULL, err);
}

dcpk_status dcpk_fsdp_gather_bucket(struct dcpk_fsdp *f, size_t bucket, uint8_t *whole,
                                    struct dcpk_error *err)
{
    struct dcpk_fsdp_bucket *b = &f->buckets[bucket];
    const size_t n_bytes = (size_t)b->n_slice * f->compute_bytes;
    const uint8_t *mine = b->weights + (size_t)(b->slice_at - b->weights_at) * f->compute_bytes;
    uint64_t *ticket = NULL;

    assert(b->weights_state == DCPK_WEIGHTS_EMPTY);
    if (f->overlaps_gather)
        ticket = &b->gathering.ticket;
    if (f->math->ops->wait(f->math, err) || gather_outer(f, bucket, err) ||
        b->gather->by->all_gather(b->gather, mine, n_bytes, whole, ticket, err))
        return err->status;
    if (ticket != NULL)
        b->gathering.group = b->gather;
    b->whole = whole;
    b->weights_state = DCPK_WEIGHTS_COMMUNICATING;
    return DCPK_OK;
}

dcpk_status dcpk_fsdp_bucket_ready(struct dcpk_fsdp *f, size_t bucket, enum dcpk_train_pass pass,
                                   struct dcpk_error *err)
{
    struct dcpk_fsdp_bucket *b = &f->buckets[bucket];

    if (b->weights_state != DCPK_WEIGHTS_COMMUNICATING)
        return DCPK_OK;
    if (dcpk_fsdp_end(&b->gathering, err))
        return err->status;
    b->weights_state = DCPK_WEIGHTS_READY;
    dcpk_fsdp_log(f, DCPK_FSDP_READY, bucket, pass);
    return DCPK_OK;
}

/* Memory for the whole weights of a unit: a buffer of the pool where it fits. */
static dcpk_status unit_take_memory(struct dcpk_fsdp *f, struct dcpk_fsdp_unit *u,
                                    struct dcpk_error *err)
{
    const size_t n_bytes = (size_t)u->n_elems * f->compute_bytes;
    const bool has_max = f->options.config->fsdp.has_max_pool;
    void *at;

    if (u->is_kept)
        return DCPK_OK;
    f->n_live++;
    for (int i = 0; i < 2; i++)
        if (f->pool[i] != NULL && !f->is_taken[i] && (has_max || n_bytes == f->pool_bytes)) {
            f->is_taken[i] = true;
            u->buffer = i;
            u->gathered = f->pool[i];
            return DCPK_OK;
        }
    if (dcpk_fsdp_take(f, DCPK_TAG_GATHER, n_bytes, &at, err))
        return err->status;
    u->buffer = -1;
    u->gathered = at;
    return DCPK_OK;
}

static bool unit_is_gathered(const struct dcpk_fsdp *f, const struct dcpk_fsdp_unit *u)
{
    return u->n == 0 || f->buckets[u->first].weights_state != DCPK_WEIGHTS_EMPTY;
}

/* Begin the gathers of all buckets of a unit, in their order on every rank. */
static dcpk_status unit_gather(struct dcpk_fsdp *f, size_t unit, enum dcpk_fsdp_action action,
                               enum dcpk_train_pass pass, struct dcpk_error *err)
{
    struct dcpk_fsdp_unit *u = &f->units[unit];
    uint8_t *at;

    if (unit_is_gathered(f, u))
        return DCPK_OK;
    if (unit_take_memory(f, u, err))
        return err->status;
    at = u->gathered;
    for (size_t i = u->first; i < u->first + u->n; i++) {
        dcpk_fsdp_log(f, action, i, pass);
        if (dcpk_fsdp_gather_bucket(f, i, at, err))
            return err->status;
        at += (size_t)f->buckets[i].n_elems * f->compute_bytes;
    }
    return DCPK_OK;
}

/* Gather what comes after `unit`, which number 0 is before all others in either direction. */
static dcpk_status prefetch_units(struct dcpk_fsdp *f, size_t unit, enum dcpk_train_pass pass,
                                  struct dcpk_error *err)
{
    const bool is_up = pass == DCPK_FORWARD;
    int64_t ahead = 0;
    size_t next = unit;

    if (!f->overlaps_gather || pass == DCPK_RECOMPUTE)
        return DCPK_OK;
    if (unit == 0 && !is_up)
        next = f->n_units;
    for (;;) {
        if (is_up)
            next++;
        else
            next--;
        if (next == 0 || next >= f->n_units || ahead >= f->prefetch_elems)
            return DCPK_OK;
        if (!unit_is_gathered(f, &f->units[next])) {
            if (f->pool_bytes > 0 && f->n_live >= 2)
                return DCPK_OK;
            if (unit_gather(f, next, DCPK_FSDP_PREFETCH, pass, err))
                return err->status;
        }
        ahead += f->units[next].n_elems;
    }
}

dcpk_status dcpk_fsdp_want(struct dcpk_fsdp *f, size_t unit, enum dcpk_train_pass pass,
                           struct dcpk_error *err)
{
    const struct dcpk_fsdp_unit *u = &f->units[unit];

    if (dcpk_fsdp_cuts_weights(f) &&
        (unit_gather(f, unit, DCPK_FSDP_GATHER, pass, err) || prefetch_units(f, unit, pass, err)))
        return err->status;
    for (size_t i = u->first; i < u->first + u->n; i++)
        if (dcpk_fsdp_bucket_ready(f, i, pass, err))
            return err->status;
    return DCPK_OK;
}

void dcpk_fsdp_release(struct dcpk_fsdp *f, size_t unit, enum dcpk_train_pass pass)
{
    struct dcpk_fsdp_unit *u = &f->units[unit];

    if (!dcpk_fsdp_cuts_weights(f) || u->n == 0)
        return;
    for (size_t i = u->first; i < u->first + u->n; i++) {
        struct dcpk_fsdp_bucket *b = &f->buckets[i];

        assert(b->gathering.group == NULL);
        b->weights_state = DCPK_WEIGHTS_EMPTY;
        b->whole = NULL;
        dcpk_fsdp_log(f, DCPK_FSDP_RELEASE, i, pass);
    }
    if (u->is_kept)
        return;
    f->n_live--;
    if (u->buffer >= 0)
        f->is_taken[u->buffer] = false;
    else
        dcpk_fsdp_give(f, DCPK_TAG_GATHER, (size_t)u->n_elems * f->compute_bytes, u->gathered);
    u->gathered = NULL;
    u->buffer = -1;
}
