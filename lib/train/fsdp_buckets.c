/* SPDX-License-Identifier: Apache-2.0 */
/* fsdp_buckets.c - parameters into flat buckets, buckets into slices, this rank's slices into
 * shards. */
/*
 *   unit 0    | proj   | norm | qkv       | norm | fc1     | fc2    |pad|   | its experts   |pad|
 *   unit 1    | ...                                                 |pad|   | ...           |pad|
 *   outside   | embedding                     |pad|   | final norm | output         |pad|
 *
 *   a bucket  |   slice 0     |   slice 1     |   slice 2     |   slice 3     |   of D = 4 ranks
 *               rows of proj    norm, rows of qkv, ...                        shards of its rank
 *
 * Parameters of one group stand in a bucket in the order of registration, where their shapes allow
 * it; a slice ends between two rows (lib/place/fsdp_layout.h has the rules). Outside units a bucket
 * that has reached a size is followed by another one.
 */
#include <assert.h>

#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/place/fsdp_layout.h"
#include "lib/train/fsdp.h"
#include "lib/train/fsdp_priv.h"

/* ---- from a configuration alone ---- */

enum dcpk_strategy dcpk_fsdp_strategy(const struct dcpk_train_config *config)
{
    if (config->fsdp.mode == DCPK_MODE_MEGATRON_FSDP)
        return config->fsdp.strategy;
    if (config->fsdp.has_distributed_optimizer)
        return DCPK_OPTIM;
    return DCPK_NO_SHARD;
}

bool dcpk_fsdp_has_units(const struct dcpk_train_config *config)
{
    return config->fsdp.mode == DCPK_MODE_MEGATRON_FSDP &&
           dcpk_fsdp_strategy(config) != DCPK_NO_SHARD;
}

/* Ranks that the optimizer's state of experts, or of the rest, is cut over. */
static int64_t count_shards(const struct dcpk_train_config *config, bool is_expert)
{
    const struct dcpk_grid *l = &config->layout;
    int64_t n = l->dp * l->cp;

    if (dcpk_fsdp_strategy(config) == DCPK_NO_SHARD)
        return 1;
    if (!config->fsdp.is_outer_sharded)
        n /= l->instances;
    if (is_expert)
        n /= l->ep;
    return n;
}

static bool share_has_copies(const struct dcpk_train_config *config)
{
    return config->layout.pp > 1 && (config->model.is_tied || config->model.mtp_layers > 0);
}

bool dcpk_fsdp_is_copied(const struct dcpk_train_config *config,
                         const struct dcpk_train_param *param)
{
    return param->is_shared || (param->kind == DCPK_P_EMBEDDING && share_has_copies(config));
}

struct dcpk_fsdp_param dcpk_fsdp_flat(const struct dcpk_train_config *config,
                                      const struct dcpk_train_param *param)
{
    const bool is_expert = param->expert >= 0;
    const bool is_alone =
        dcpk_fsdp_strategy(config) != DCPK_NO_SHARD && dcpk_fsdp_is_copied(config, param);
    const uint64_t kind = (uint64_t)!is_alone << 1 | (uint64_t)is_expert;
    int64_t unit = -1;

    if (dcpk_fsdp_has_units(config))
        unit = param->unit;
    return (struct dcpk_fsdp_param){.name = param->live,
                                    .shape = param->shape,
                                    .rank = param->rank,
                                    .group = (uint64_t)(unit + 1) << 2 | kind,
                                    .is_in_unit = unit >= 0,
                                    .n_shards = count_shards(config, is_expert)};
}

/* ---- buckets ---- */

/* Data that the layout is made from. */
struct fsdp_plan {
    struct dcpk_fsdp_param *params;
    struct dcpk_fsdp_place *places;
    size_t *at; /* in the table */
    size_t n;
};

static void plan_add(const struct dcpk_fsdp *f, size_t at, struct fsdp_plan *plan)
{
    plan->params[plan->n] = dcpk_fsdp_flat(f->options.config, &f->options.params->list[at]);
    plan->at[plan->n++] = at;
}

static void bucket_find_groups(struct dcpk_fsdp *f, struct dcpk_fsdp_bucket *b)
{
    static const enum dcpk_train_group whole[] = {DCPK_G_DP_CP, DCPK_G_EXPERT_DP},
                                       inner[] = {DCPK_G_INNER, DCPK_G_EXPERT_INNER},
                                       gather[] = {DCPK_G_GATHER, DCPK_G_EXPERT_GATHER};
    struct dcpk_group *const *group = f->options.mesh->group;

    b->gather = group[gather[b->is_expert]];
    b->reduce = group[whole[b->is_expert]];
    if (f->strategy == DCPK_NO_SHARD)
        return;
    b->reduce = group[inner[b->is_expert]];
    if (group[DCPK_G_OUTER]->n_ranks > 1)
        b->outer = group[DCPK_G_OUTER];
}

static void bucket_make(struct dcpk_fsdp *f, const struct dcpk_fsdp_param *param,
                        const struct dcpk_train_param *p, int64_t n_elems,
                        struct dcpk_fsdp_bucket *b)
{
    int64_t n_outer = 1;

    b->unit = -1;
    if (param->is_in_unit)
        b->unit = p->unit;
    b->is_expert = p->expert >= 0;
    bucket_find_groups(f, b);
    b->n_elems = b->n_slice = b->n_own = b->n_weights = b->n_grads = n_elems;
    b->n_shards = param->n_shards;
    if (f->strategy == DCPK_NO_SHARD)
        return;
    if (f->is_hfsdp && b->outer != NULL)
        n_outer = b->outer->n_ranks;
    assert(b->n_shards == b->reduce->n_ranks * n_outer);
    b->n_slice = n_elems / b->reduce->n_ranks;
    b->n_own = b->n_slice / n_outer;
    b->slice_at = b->reduce->rank * b->n_slice;
    b->shard = b->reduce->rank * n_outer;
    if (n_outer > 1)
        b->shard += b->outer->rank;
    b->own_at = b->shard * b->n_own;
    if (dcpk_fsdp_cuts_weights(f)) {
        b->weights_at = b->slice_at;
        b->n_weights = b->n_slice;
    }
    if (dcpk_fsdp_cuts_grads(f)) {
        b->grads_at = b->slice_at;
        b->n_grads = b->n_slice;
    }
}

/* Buckets in the order of their numbers, units of them, and where each parameter is. */
static dcpk_status buckets_make(struct dcpk_fsdp *f, const struct fsdp_plan *plan,
                                struct dcpk_error *err)
{
    for (size_t i = 0; i < plan->n; i++)
        if (plan->places[i].bucket >= f->n_buckets)
            f->n_buckets = plan->places[i].bucket + 1;
    f->buckets = dcpk_alloc_array(f->n_buckets, sizeof *f->buckets, err);
    f->queue = dcpk_alloc_array(f->n_buckets, sizeof *f->queue, err);
    if (f->buckets == NULL || f->queue == NULL)
        return err->status;
    for (size_t i = 0; i < plan->n; i++) {
        const struct dcpk_fsdp_place *place = &plan->places[i];
        const struct dcpk_train_param *p = &f->options.params->list[plan->at[i]];

        f->spots[plan->at[i]] = (struct dcpk_fsdp_spot){place->bucket, place->first, NULL};
        bucket_make(f, &plan->params[i], p, place->bucket_elems, &f->buckets[place->bucket]);
    }
    for (size_t i = f->n_buckets; i-- > 0;) {
        struct dcpk_fsdp_unit *u = &f->units[f->buckets[i].unit + 1];

        u->first = i;
        u->n++;
        u->n_elems += f->buckets[i].n_elems;
    }
    f->units[0].is_kept = true;
    return DCPK_OK;
}

/* Rows of this rank; no rank may cut one. */
static dcpk_status shard_make(struct dcpk_fsdp *f, size_t i, struct dcpk_error *err)
{
    const struct dcpk_train_param *p = &f->options.params->list[i];
    const struct dcpk_fsdp_param flat = dcpk_fsdp_flat(f->options.config, p);
    const struct dcpk_fsdp_bucket *b = &f->buckets[f->spots[i].bucket];
    const struct dcpk_fsdp_place place = {
        .bucket = f->spots[i].bucket, .first = f->spots[i].first, .bucket_elems = b->n_elems};
    struct dcpk_box box;
    int64_t first;

    if (dcpk_fsdp_check_rows(&flat, &place, err) ||
        dcpk_fsdp_shard(&flat, &place, b->shard, &box, &first, err))
        return err->status;
    if (box.extent[0] > 0)
        f->shards.list[f->shards.n++] =
            (struct dcpk_train_shard){.param = i,
                                      .row = box.offset[0],
                                      .n_rows = box.extent[0],
                                      .n_elems = box.extent[0] * p->shape[1],
                                      .bucket = place.bucket,
                                      .slice_first = first};
    return DCPK_OK;
}

dcpk_status dcpk_fsdp_make_shards(struct dcpk_fsdp *f, struct dcpk_error *err)
{
    const struct dcpk_train_params *params = f->options.params;

    f->shards.list = dcpk_alloc_array(params->n, sizeof *f->shards.list, err);
    if (f->shards.list == NULL)
        return err->status;
    for (size_t i = 0; i < params->n; i++)
        if (f->spots[i].bucket != SIZE_MAX && shard_make(f, i, err))
            return err->status;
    return DCPK_OK;
}

/* Whole buckets have the sizes of their parameters. */
static void buckets_trim(struct dcpk_fsdp *f)
{
    const struct dcpk_train_params *params = f->options.params;

    for (size_t i = 0; i < f->n_buckets; i++)
        f->buckets[i].n_elems = 0;
    for (size_t i = 0; i < params->n; i++)
        if (f->spots[i].bucket != SIZE_MAX)
            f->buckets[f->spots[i].bucket].n_elems +=
                params->list[i].shape[0] * params->list[i].shape[1];
    for (size_t i = 0; i < f->n_buckets; i++) {
        struct dcpk_fsdp_bucket *b = &f->buckets[i];

        b->n_slice = b->n_own = b->n_weights = b->n_grads = b->n_elems;
    }
}

/* Finds how much may be under way at one time. With a double buffer one unit's gradients are filled
 * while another's are reduced. Source: param_and_grad_buffer.py _enforce_double_buffer_limit
 * @core_v0.19.0. */
static void find_queue(struct dcpk_fsdp *f)
{
    const struct dcpk_train_fsdp *asked = &f->options.config->fsdp;
    int64_t n_elems = 0, n_units = 0, n_largest = 0;

    for (size_t u = 1; u < f->n_units; u++) {
        n_elems += f->units[u].n_elems;
        n_units += f->units[u].n > 0;
        n_largest = dcpk_max_i64(n_largest, f->units[u].n_elems);
    }
    f->queue_elems = dcpk_train_queue_elems(f->options.config, n_units, n_elems);
    f->prefetch_elems = f->queue_elems / 2;
    if ((asked->has_double_buffer || asked->has_max_pool) && n_largest > 0)
        f->queue_elems = dcpk_min_i64(f->queue_elems, n_largest);
    if (!f->overlaps_reduce)
        f->queue_elems = 0;
}

dcpk_status dcpk_fsdp_lay_out(struct dcpk_fsdp *f, struct dcpk_error *err)
{
    const struct dcpk_train_params *params = f->options.params;
    const int64_t bucket_elems =
        dcpk_train_bucket_elems(f->options.config, f->options.mesh->at.pp, f->overlaps_reduce);
    struct fsdp_plan plan = {0};
    dcpk_status st = DCPK_OK;

    f->n_units = (size_t)params->n_units + 1;
    f->units = dcpk_alloc_array(f->n_units, sizeof *f->units, err);
    f->spots = dcpk_alloc_array(params->n, sizeof *f->spots, err);
    f->host_bad = dcpk_alloc_array(params->n, sizeof *f->host_bad, err);
    plan.params = dcpk_alloc_array(params->n, sizeof *plan.params, err);
    plan.places = dcpk_alloc_array(params->n, sizeof *plan.places, err);
    plan.at = dcpk_alloc_array(params->n, sizeof *plan.at, err);
    if (f->units == NULL || f->spots == NULL || f->host_bad == NULL || plan.params == NULL ||
        plan.places == NULL || plan.at == NULL) {
        st = err->status;
        goto out;
    }
    for (size_t i = 0; i < params->n; i++) {
        f->spots[i].bucket = SIZE_MAX;
        if (!params->list[i].is_buffer)
            plan_add(f, i, &plan);
    }
    if (dcpk_fsdp_layout(plan.params, plan.n, bucket_elems, plan.places, err) ||
        buckets_make(f, &plan, err)) {
        st = err->status;
        goto out;
    }
    if (f->options.is_megatron && f->strategy == DCPK_NO_SHARD)
        buckets_trim(f);
    find_queue(f);
out:
    dcpk_free(plan.params);
    dcpk_free(plan.places);
    dcpk_free(plan.at);
    return st;
}
