/* SPDX-License-Identifier: Apache-2.0 */
/* fsdp.c - what enter and leave of a unit do to its buckets, and what the steps of a run do to all
 * of them. fsdp_gather.c and fsdp_reduce.c move bytes. */
/*
 * A microbatch under optim_grads_params, with two units; -1 is what lies outside units:
 *
 *   forward     enter -1 | enter 0   leave 0 | enter 1   leave 1 | leave -1
 *     weights   gather   | gather    release | gather    release |
 *
 *   backward    enter -1 | enter 1   leave 1 | enter 0   leave 0 | leave -1
 *     weights            | gather    release | gather    release |
 *     gradients fill     | fill      reduce  | fill      reduce  | reduce, wait for all
 *
 * fill: sums for all elements of the bucket begin; reduce: they become the sums of a slice. Weights
 * outside units stay gathered until install. Other strategies keep weights whole, and reduce
 * gradients at each microbatch or at the last one (fsdp.h).
 * Source: _register_fsdp_hooks of fsdp/src/megatron_fsdp/megatron_fsdp.py @core_v0.19.0.
 */
#include "lib/train/fsdp.h"

#include <assert.h>
#include <math.h>

#include "lib/base/alloc.h"
#include "lib/base/cursor.h"
#include "lib/base/digest.h"
#include "lib/train/fsdp_priv.h"

const char *const dcpk_fsdp_action_names[DCPK_FSDP_N_ACTIONS] = {
    [DCPK_FSDP_GATHER] = "gather",
    [DCPK_FSDP_PREFETCH] = "prefetch",
    [DCPK_FSDP_READY] = "ready",
    [DCPK_FSDP_RELEASE] = "release",
    [DCPK_FSDP_REDUCE] = "reduce",
    [DCPK_FSDP_REDUCED] = "reduced",
    [DCPK_FSDP_OUTER_GATHER] = "outer-gather",
    [DCPK_FSDP_OUTER_REDUCE] = "outer-reduce",
};

static struct dcpk_fsdp *fsdp_of(struct dcpk_weights *weights)
{
    return (struct dcpk_fsdp *)weights;
}

/* ---- calls of a model ---- */

static size_t unit_number(const struct dcpk_fsdp *f, int64_t unit)
{
    assert(unit >= -1 && (size_t)(unit + 1) < f->n_units);
    return (size_t)(unit + 1);
}

static dcpk_status fsdp_enter(struct dcpk_weights *weights, int64_t unit, enum dcpk_train_pass pass,
                              struct dcpk_error *err)
{
    struct dcpk_fsdp *f = fsdp_of(weights);
    const enum dcpk_phase before = dcpk_phase_enter(f->options.phases, DCPK_PHASE_GATHER);
    const size_t number = unit_number(f, unit);
    const dcpk_status st = dcpk_fsdp_want(f, number, pass, err);

    dcpk_phase_leave(f->options.phases, before);
    if (st != DCPK_OK)
        return st;
    if (pass == DCPK_BACKWARD)
        return dcpk_fsdp_fill(f, number, err);
    return DCPK_OK;
}

static dcpk_status reduce_unit(struct dcpk_fsdp *f, size_t number, struct dcpk_error *err)
{
    const enum dcpk_phase before = dcpk_phase_enter(f->options.phases, DCPK_PHASE_REDUCE);
    dcpk_status st = dcpk_fsdp_reduce(f, number, err);

    if (st == DCPK_OK && number == 0)
        st = dcpk_fsdp_drain(f, 0, err);
    dcpk_phase_leave(f->options.phases, before);
    return st;
}

/* Weights gathered to be recomputed with serve the backward pass, too. */
static dcpk_status fsdp_leave(struct dcpk_weights *weights, int64_t unit, enum dcpk_train_pass pass,
                              struct dcpk_error *err)
{
    struct dcpk_fsdp *f = fsdp_of(weights);
    const size_t number = unit_number(f, unit);

    if (pass == DCPK_BACKWARD && reduce_unit(f, number, err))
        return err->status;
    if (number > 0 && pass != DCPK_RECOMPUTE)
        dcpk_fsdp_release(f, number, pass);
    return DCPK_OK;
}

static const void *fsdp_weight(struct dcpk_weights *weights, size_t param)
{
    const struct dcpk_fsdp *f = fsdp_of(weights);
    const struct dcpk_fsdp_spot *spot = &f->spots[param];

    if (spot->bucket == SIZE_MAX)
        return spot->buffer;
    assert(f->buckets[spot->bucket].weights_state == DCPK_WEIGHTS_READY);
    return f->buckets[spot->bucket].whole + (size_t)spot->first * f->compute_bytes;
}

static void fsdp_add(struct dcpk_weights *weights, size_t param, int64_t row, int64_t n_rows,
                     const float *grad)
{
    dcpk_fsdp_add(fsdp_of(weights), param, row, n_rows, grad);
}

static const struct dcpk_weights_ops fsdp_ops = {fsdp_enter, fsdp_leave, fsdp_weight, fsdp_add};

/* ---- counting ---- */

uint64_t dcpk_fsdp_sent(const struct dcpk_fsdp *f, enum dcpk_fsdp_action action,
                        const struct dcpk_fsdp_bucket *b)
{
    const uint64_t n_inner = (uint64_t)b->reduce->n_ranks;
    uint64_t n_outer = 1;

    if (b->outer != NULL)
        n_outer = (uint64_t)b->outer->n_ranks;
    switch (action) {
    case DCPK_FSDP_GATHER:
    case DCPK_FSDP_PREFETCH:
        return dcpk_fsdp_ring((uint64_t)b->n_elems * f->compute_bytes, n_inner);
    case DCPK_FSDP_REDUCE:
        if (f->strategy == DCPK_NO_SHARD)
            return dcpk_fsdp_ring(2 * (uint64_t)b->n_elems * f->comm_bytes, n_inner);
        return dcpk_fsdp_ring((uint64_t)b->n_elems * f->comm_bytes, n_inner);
    case DCPK_FSDP_OUTER_GATHER:
        return dcpk_fsdp_ring((uint64_t)b->n_slice * f->compute_bytes, n_outer);
    case DCPK_FSDP_OUTER_REDUCE:
        if (f->is_hfsdp)
            return dcpk_fsdp_ring((uint64_t)b->n_slice * f->grads_bytes, n_outer);
        return dcpk_fsdp_ring(2 * (uint64_t)b->n_slice * f->grads_bytes, n_outer);
    case DCPK_FSDP_READY:
    case DCPK_FSDP_RELEASE:
    case DCPK_FSDP_REDUCED:
    case DCPK_FSDP_N_ACTIONS:
        break;
    }
    return 0;
}

void dcpk_fsdp_log(struct dcpk_fsdp *f, enum dcpk_fsdp_action action, size_t bucket,
                   enum dcpk_train_pass pass)
{
    const struct dcpk_fsdp_bucket *b = &f->buckets[bucket];
    const uint64_t sent = dcpk_fsdp_sent(f, action, b);
    enum dcpk_fsdp_action counted = action;
    struct dcpk_fsdp_event event = {action, bucket, b->unit, b->is_expert, pass, sent};

    if (action == DCPK_FSDP_PREFETCH)
        counted = DCPK_FSDP_GATHER;
    f->traffic.n_bytes[counted] += sent;
    f->traffic.n_calls[counted]++;
    if (f->options.event != NULL)
        f->options.event(f->options.context, &event);
}

/* ---- a run ---- */

static void choose(struct dcpk_fsdp *f)
{
    const struct dcpk_train_config *config = f->options.config;
    const struct dcpk_train_precision *precision = &config->precision;

    f->strategy = dcpk_fsdp_strategy(config);
    f->has_units = dcpk_fsdp_has_units(config);
    f->is_hfsdp = config->layout.instances > 1 && config->fsdp.is_outer_sharded;
    f->is_exact = precision->is_exact;
    f->overlaps_gather = config->fsdp.overlaps_gather || dcpk_fsdp_cuts_weights(f);
    f->overlaps_reduce = config->fsdp.overlaps_reduce || dcpk_fsdp_cuts_grads(f);
    f->compute = precision->compute;
    f->main_grads = precision->main_grads;
    f->comm = precision->comm;
    f->compute_bytes = dcpk_dtype_bytes(f->compute);
    f->grads_bytes = dcpk_dtype_bytes(f->main_grads);
    f->comm_bytes = dcpk_dtype_bytes(f->comm);
    f->reduction = DCPK_SUM_F32;
    if (f->comm == DCPK_BF16)
        f->reduction = DCPK_SUM_BF16;
    if (f->is_exact) {
        f->grads_bytes = f->comm_bytes = sizeof(int64_t);
        f->reduction = DCPK_SUM_I64;
    }
}

/* Checks that this loop runs the choice. */
static dcpk_status check_choice(const struct dcpk_fsdp *f, struct dcpk_error *err)
{
    const struct dcpk_group *world = f->options.mesh->group[DCPK_G_WORLD];

    if (f->is_hfsdp && f->strategy != DCPK_OPTIM_GRADS_PARAMS)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "Optimizer fully-sharded HFSDP is only supported with full-sharding on "
                         "DP-Shard");
    if (!f->options.is_megatron && !f->is_exact &&
        ((f->comm != DCPK_F32 && f->comm != DCPK_BF16) ||
         (f->main_grads != DCPK_F32 && f->main_grads != DCPK_BF16)))
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "gradients are added in float32 or bfloat16, not in %s and %s",
                         dcpk_dtype_name(f->main_grads), dcpk_dtype_name(f->comm));
    if (f->math->device->ops->is_host == world->by->is_device)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "collectives of '%s' do not reach the memory of '%s'", world->by->name,
                         f->math->ops->name);
    return DCPK_OK;
}

dcpk_status dcpk_fsdp_plan(const struct dcpk_fsdp_options *options, struct dcpk_fsdp **fsdp,
                           struct dcpk_error *err)
{
    struct dcpk_fsdp *f = dcpk_alloc(sizeof *f, err);

    if (f == NULL)
        return err->status;
    f->base.ops = &fsdp_ops;
    f->options = *options;
    f->math = options->account->math;
    choose(f);
    if (dcpk_fsdp_lay_out(f, err)) {
        dcpk_fsdp_free(f);
        return err->status;
    }
    *fsdp = f;
    return DCPK_OK;
}

dcpk_status dcpk_fsdp_new(const struct dcpk_fsdp_options *options, struct dcpk_fsdp **fsdp,
                          struct dcpk_error *err)
{
    struct dcpk_fsdp *f;

    if (dcpk_fsdp_plan(options, &f, err))
        return err->status;
    if (check_choice(f, err) || dcpk_fsdp_make_shards(f, err) || dcpk_fsdp_allocate(f, err)) {
        dcpk_fsdp_free(f);
        return err->status;
    }
    *fsdp = f;
    return DCPK_OK;
}

dcpk_status dcpk_fsdp_settle(struct dcpk_fsdp *f, struct dcpk_error *err)
{
    for (size_t i = 0; i < f->n_buckets; i++)
        if (dcpk_fsdp_end(&f->buckets[i].gathering, err))
            return err->status;
    return DCPK_OK;
}

void dcpk_fsdp_free(struct dcpk_fsdp *f)
{
    struct dcpk_error err = DCPK_ERROR_INIT;

    if (f == NULL)
        return;
    for (size_t i = 0; f->buckets != NULL && i < f->n_buckets; i++) {
        struct dcpk_fsdp_bucket *b = &f->buckets[i];

        (void)dcpk_fsdp_end(&b->gathering, &err); /* memory stays until then */
        (void)dcpk_fsdp_end(&b->reducing, &err);
    }
    dcpk_fsdp_deallocate(f);
    dcpk_free(f->buckets);
    dcpk_free(f->queue);
    dcpk_free(f->units);
    dcpk_free(f->spots);
    dcpk_free(f->host_bad);
    dcpk_free(f->shards.list);
    dcpk_free(f);
}

struct dcpk_weights *dcpk_fsdp_weights(struct dcpk_fsdp *fsdp)
{
    return &fsdp->base;
}

const struct dcpk_train_shards *dcpk_fsdp_shards(const struct dcpk_fsdp *fsdp)
{
    return &fsdp->shards;
}

float *dcpk_fsdp_buffer(struct dcpk_fsdp *fsdp, size_t param)
{
    assert(fsdp->spots[param].bucket == SIZE_MAX);
    return fsdp->spots[param].buffer;
}

const struct dcpk_fsdp_traffic *dcpk_fsdp_traffic(const struct dcpk_fsdp *fsdp)
{
    return &fsdp->traffic;
}

dcpk_status dcpk_fsdp_begin(struct dcpk_fsdp *f, int64_t n_microbatches, struct dcpk_error *err)
{
    assert(f->n_queued == 0 && n_microbatches >= 1);
    f->n_microbatches = n_microbatches;
    f->lsb = f->options.config->precision.exact_lsb;
    for (size_t i = 0; i < f->n_buckets; i++) {
        struct dcpk_fsdp_bucket *b = &f->buckets[i];

        b->n_backward = 0;
        f->math->ops->zero(f->math, b->grads, (size_t)b->n_grads * f->grads_bytes);
    }
    f->math->ops->zero(f->math, f->bad, f->options.params->n * sizeof *f->bad);
    return f->math->ops->wait(f->math, err);
}

void dcpk_fsdp_scale_sums(struct dcpk_fsdp *f, double scale)
{
    f->lsb = f->options.config->precision.exact_lsb - ilogb(scale);
}

dcpk_status dcpk_fsdp_finish(struct dcpk_fsdp *f, double factor, struct dcpk_error *err)
{
    const enum dcpk_phase before = dcpk_phase_enter(f->options.phases, DCPK_PHASE_REDUCE);
    dcpk_status st;

    for (size_t i = 0; i < f->n_buckets; i++)
        assert(f->buckets[i].n_backward == f->n_microbatches);
    st = dcpk_fsdp_finish_grads(f, factor, err);
    dcpk_phase_leave(f->options.phases, before);
    return st;
}

/* Installs the rank's own elements as weights of the compute dtype. Where main parameters are to be
 * of that dtype, they take its rounding. */
static void install_own(struct dcpk_fsdp *f, struct dcpk_fsdp_bucket *b)
{
    uint8_t *own = b->weights + (size_t)(b->own_at - b->weights_at) * f->compute_bytes;
    const bool is_rounded = f->options.config->precision.main_params == f->compute;

    f->math->ops->cast(f->math, DCPK_F32, f->compute, b->n_own, b->main, own);
    if (is_rounded && f->compute != DCPK_F32)
        f->math->ops->cast(f->math, f->compute, DCPK_F32, b->n_own, own, b->main);
    b->is_outer_stale = b->n_own < b->n_slice;
}

/* Gathers what the strategy keeps whole. */
static dcpk_status install_gather(struct dcpk_fsdp *f, struct dcpk_error *err)
{
    for (size_t i = 0; i < f->n_buckets && !dcpk_fsdp_cuts_weights(f); i++) {
        struct dcpk_fsdp_bucket *b = &f->buckets[i];

        b->weights_state = DCPK_WEIGHTS_READY;
        if (f->strategy == DCPK_NO_SHARD)
            continue;
        b->weights_state = DCPK_WEIGHTS_EMPTY;
        dcpk_fsdp_log(f, DCPK_FSDP_GATHER, i, DCPK_FORWARD);
        if (dcpk_fsdp_gather_bucket(f, i, b->weights, err))
            return err->status;
    }
    return f->math->ops->wait(f->math, err);
}

dcpk_status dcpk_fsdp_install(struct dcpk_fsdp *f, struct dcpk_error *err)
{
    enum dcpk_phase before;
    dcpk_status st;

    for (size_t i = 0; i < f->n_buckets; i++) /* an install that no pass has used yet */
        if (dcpk_fsdp_bucket_ready(f, i, DCPK_FORWARD, err))
            return err->status;
    if (dcpk_fsdp_cuts_weights(f)) {
        assert(f->n_live == 0);
        if (f->units[0].n > 0 && f->buckets[0].weights_state == DCPK_WEIGHTS_READY)
            dcpk_fsdp_release(f, 0, DCPK_BACKWARD);
    }
    for (size_t i = 0; i < f->n_buckets; i++)
        install_own(f, &f->buckets[i]);
    before = dcpk_phase_enter(f->options.phases, DCPK_PHASE_GATHER);
    st = install_gather(f, err);
    dcpk_phase_leave(f->options.phases, before);
    return st;
}

/* ---- replicas ---- */

/*
 *   rank r    h(r) = the first 8 bytes of XXH3-128 over the weights that it keeps
 *   gather    h(0) h(1) ... h(D - 1)
 *   rank r    fails where h(r) is not h(0)
 *
 * Dense weights over all data-parallel ranks, then those of experts over the ranks that have them.
 */

static dcpk_status replica_add(struct dcpk_fsdp *f, const struct dcpk_fsdp_bucket *b,
                               struct dcpk_hasher *hasher, struct dcpk_error *err)
{
    const size_t n_bytes = (size_t)b->n_weights * f->compute_bytes;
    uint8_t *host = dcpk_alloc(n_bytes, err);
    dcpk_status st = err->status;

    if (host == NULL)
        return st;
    st = dcpk_math_copy(f->math, host, b->weights, n_bytes, err);
    if (st == DCPK_OK)
        dcpk_hasher_update(hasher, host, n_bytes);
    dcpk_free(host);
    return st;
}

/* Hashes this rank's weights, of experts or of the rest. */
static dcpk_status replica_hash(struct dcpk_fsdp *f, bool is_expert, uint64_t *hash,
                                struct dcpk_error *err)
{
    struct dcpk_hasher hasher;
    struct dcpk_hash made;
    dcpk_status st = DCPK_OK;

    dcpk_hasher_begin(&hasher);
    for (size_t i = 0; st == DCPK_OK && i < f->n_buckets; i++)
        if (f->buckets[i].is_expert == is_expert)
            st = replica_add(f, &f->buckets[i], &hasher, err);
    dcpk_hasher_digest(&hasher, &made);
    *hash = dcpk_load_u64le(made.digest);
    return st;
}

/* Data that this rank compares: memory of the math for a hash of each rank, and its own hashes. */
struct replicas {
    uint64_t *room;
    uint64_t dense, expert;
};

static dcpk_status replicas_hash(struct dcpk_fsdp *f, struct replicas *r, struct dcpk_error *err)
{
    const size_t n = (size_t)f->options.mesh->group[DCPK_G_WORLD]->n_ranks;
    void *room;

    if (f->math->device->ops->alloc(f->math->device, DCPK_MEMORY_PRIVATE, n * sizeof *r->room,
                                    &room, err))
        return err->status;
    r->room = room;
    for (size_t i = 0; i < f->n_buckets; i++)
        if (dcpk_fsdp_bucket_ready(f, i, DCPK_FORWARD, err))
            return err->status;
    if (replica_hash(f, false, &r->dense, err) || replica_hash(f, true, &r->expert, err))
        return err->status;
    return DCPK_OK;
}

/* Collective over the group. Fails on ranks whose hash is not that of the first. */
static dcpk_status replicas_compare(struct dcpk_fsdp *f, enum dcpk_train_group of, uint64_t mine,
                                    uint64_t *room, struct dcpk_error *err)
{
    const struct dcpk_train_mesh *mesh = f->options.mesh;
    struct dcpk_group *group = mesh->group[of];
    uint64_t first;

    if (dcpk_math_copy(f->math, room + group->rank, &mine, sizeof mine, err) ||
        group->by->all_gather(group, room + group->rank, sizeof mine, room, NULL, err))
        return err->status;
    if (dcpk_math_copy(f->math, &first, room, sizeof first, err) != DCPK_OK)
        return err->status;
    if (mine != first)
        return dcpk_fail(err, DCPK_EMISMATCH,
                         "Parameter hashes not matching across DP replicas: weights of rank %d are "
                         "not those of its group's first rank",
                         mesh->group[DCPK_G_WORLD]->rank);
    return DCPK_OK;
}

dcpk_status dcpk_fsdp_check_replicas(struct dcpk_fsdp *f, struct dcpk_error *err)
{
    struct dcpk_group *world = f->options.mesh->group[DCPK_G_WORLD];
    struct dcpk_error of_experts = DCPK_ERROR_INIT;
    struct replicas r = {.room = NULL};
    dcpk_status st;

    if (dcpk_fsdp_cuts_weights(f))
        return DCPK_OK; /* there are no copies */
    /* No rank gathers before all have hashed: none waits for one that has failed. */
    st = dcpk_totals_agree(world, f->math, replicas_hash(f, &r, err), NULL, 0, err);
    if (st != DCPK_OK)
        goto out;
    st = replicas_compare(f, DCPK_G_DP_CP, r.dense, r.room, err);
    /* If the dense ones differ, other ranks still compare experts. */
    if (replicas_compare(f, DCPK_G_EXPERT_DP, r.expert, r.room, &of_experts) && st == DCPK_OK) {
        *err = of_experts;
        st = err->status;
    }
    st = dcpk_totals_agree(world, f->math, st, NULL, 0, err);
out:
    f->math->device->ops->free(f->math->device, r.room);
    return st;
}
