/* SPDX-License-Identifier: Apache-2.0 */
/* remap_plan.c - tensors of both sides, their units, and what a plan amounts to. */
#include "lib/plan/remap_plan.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/digest.h"
#include "lib/base/map.h"
#include "lib/base/order.h"
#include "lib/plan/remap_priv.h"

#define UNWANTED UINT32_MAX

void dcpk_move_box(const struct dcpk_remap_plan *plan, const struct dcpk_move *move,
                   struct dcpk_box *box)
{
    const struct dcpk_shard *source = &plan->input.sources[move->source];
    const struct dcpk_shard *target = &plan->input.targets[move->target];
    struct dcpk_box other;

    dcpk_box_unpack(move->span != NULL ? move->span : source->span, source->rank, box);
    if (move->span != NULL)
        return;
    dcpk_box_unpack(target->span, target->rank, &other);
    (void)dcpk_box_intersect(box, &other, box);
}

int dcpk_move_mover(const struct dcpk_remap_plan *plan, const struct dcpk_move *move)
{
    const struct dcpk_shard *source = &plan->input.sources[move->source];
    const struct dcpk_shard *target = &plan->input.targets[move->target];
    const bool widens = dcpk_dtype_bytes(target->dtype) > dcpk_dtype_bytes(source->dtype);

    if (widens && !plan->only_pushes)
        return target->holder;
    return source->holder;
}

bool dcpk_move_is_kept(const struct dcpk_remap_plan *plan, const struct dcpk_move *move)
{
    const struct dcpk_shard *source = &plan->input.sources[move->source];
    const struct dcpk_shard *target = &plan->input.targets[move->target];
    struct dcpk_box box;

    if (source->holder != target->holder || source->dtype != target->dtype)
        return false;
    dcpk_move_box(plan, move, &box);
    for (int a = 0; a < box.rank; a++)
        if (box.extent[a] > 1 && source->stride_bytes[a] != target->stride_bytes[a])
            return false;
    return dcpk_shard_address(source, box.offset) == dcpk_shard_address(target, box.offset);
}

/* A shard by itself. */
static dcpk_status shard_check(const struct dcpk_remap_input *input, const struct dcpk_shard *shard,
                               struct dcpk_error *err)
{
    char text[DCPK_SHARD_TEXT], shape[256];

    if (shard->rank < 0 || shard->rank > DCPK_MAX_RANK)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "rank %d: '%.200s' has %d axes, the limit is %d",
                         shard->holder, shard->name, shard->rank, DCPK_MAX_RANK);
    assert(shard->holder >= 0 && shard->holder < input->n_ranks);
    for (int a = 0; a < shard->rank; a++) {
        const int64_t offset = shard->span[a], extent = shard->span[shard->rank + a];

        if (offset < 0 || extent < 0 || offset > shard->shape[a] ||
            extent > shard->shape[a] - offset)
            return dcpk_fail(err, DCPK_EMISMATCH, "%s lies outside its tensor %s",
                             dcpk_shard_format(shard, text, sizeof text),
                             dcpk_shape_format(shard->shape, shard->rank, shape, sizeof shape));
    }
    if (dcpk_dtype_bytes(shard->dtype) == 0)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "%s has no dtype",
                         dcpk_shard_format(shard, text, sizeof text));
    return DCPK_OK;
}

/* Checks a shard against what is known of its tensor. dtype: that of its side. */
static dcpk_status shard_agrees(const struct dcpk_shard *shard,
                                const struct dcpk_remap_tensor *tensor, enum dcpk_dtype dtype,
                                struct dcpk_error *err)
{
    char text[DCPK_SHARD_TEXT], mine[256], others[256];

    if (!dcpk_shape_equal(shard->shape, shard->rank, tensor->shape, tensor->rank))
        return dcpk_fail(err, DCPK_EMISMATCH, "%s belongs to a tensor %s, others to %s",
                         dcpk_shard_format(shard, text, sizeof text),
                         dcpk_shape_format(shard->shape, shard->rank, mine, sizeof mine),
                         dcpk_shape_format(tensor->shape, tensor->rank, others, sizeof others));
    if (shard->dtype != dtype)
        return dcpk_fail(err, DCPK_EMISMATCH, "%s is %s, others of the tensor on this side are %s",
                         dcpk_shard_format(shard, text, sizeof text), dcpk_dtype_name(shard->dtype),
                         dcpk_dtype_name(dtype));
    return DCPK_OK;
}

/* Finds the first shard of each holder; n_ranks + 1 numbers. */
static dcpk_status find_holders(const struct dcpk_remap_input *input,
                                const struct dcpk_shard *shards, size_t n, size_t *first,
                                struct dcpk_error *err)
{
    int rank = 0;

    for (size_t i = 0; i < n; i++) {
        if (shard_check(input, &shards[i], err))
            return err->status;
        assert(i == 0 || shards[i].holder >= shards[i - 1].holder);
        while (rank <= shards[i].holder)
            first[rank++] = i;
    }
    while (rank <= input->n_ranks)
        first[rank++] = n;
    return DCPK_OK;
}

/* Number the tensor of target i, a new one where its name is. */
static dcpk_status target_number(struct dcpk_remap_plan *plan, struct dcpk_map *names, size_t i,
                                 struct dcpk_error *err)
{
    const struct dcpk_shard *shard = &plan->input.targets[i];
    struct dcpk_remap_tensor *tensor;
    uint64_t found = plan->n_tensors;
    bool existed;

    if (dcpk_map_put(names, shard->name, strlen(shard->name), found, &existed, &found, err))
        return err->status;
    tensor = &plan->tensors[found];
    plan->target_tensor[i] = (uint32_t)found;
    if (existed)
        return shard_agrees(shard, tensor, tensor->to, err);
    *tensor = (struct dcpk_remap_tensor){
        .name = shard->name, .to = shard->dtype, .rank = shard->rank, .shape = shard->shape};
    plan->n_tensors++;
    return DCPK_OK;
}

/* The i-th targets of all ranks, then the next ones: units then give every rank its share. */
static dcpk_status number_targets(struct dcpk_remap_plan *plan, struct dcpk_map *names,
                                  const size_t *first, struct dcpk_error *err)
{
    bool more = true;

    for (size_t i = 0; more; i++) {
        more = false;
        for (int r = 0; r < plan->input.n_ranks; r++) {
            if (i >= first[r + 1] - first[r])
                continue;
            more = true;
            if (target_number(plan, names, first[r] + i, err))
                return err->status;
        }
    }
    return DCPK_OK;
}

static dcpk_status number_sources(struct dcpk_remap_plan *plan, const struct dcpk_map *names,
                                  struct dcpk_error *err)
{
    for (size_t i = 0; i < plan->input.n_sources; i++) {
        const struct dcpk_shard *shard = &plan->input.sources[i];
        struct dcpk_remap_tensor *tensor;
        uint64_t found;

        plan->source_tensor[i] = UNWANTED;
        if (!dcpk_map_get(names, shard->name, strlen(shard->name), &found)) {
            plan->n_unwanted++;
            continue;
        }
        tensor = &plan->tensors[found];
        if (tensor->from == DCPK_DTYPE_NONE)
            tensor->from = shard->dtype;
        if (shard_agrees(shard, tensor, tensor->from, err))
            return err->status;
        plan->source_tensor[i] = (uint32_t)found;
    }
    return DCPK_OK;
}

/* Number tensors and check all shards. */
static dcpk_status plan_tensors(struct dcpk_remap_plan *plan, struct dcpk_arena *scratch,
                                struct dcpk_error *err)
{
    const struct dcpk_remap_input *input = &plan->input;
    size_t *first = dcpk_arena_array(scratch, (size_t)input->n_ranks + 1, sizeof *first, err);
    struct dcpk_map names = {0};
    dcpk_status st;

    if (first == NULL)
        return err->status;
    if (input->n_sources >= UNWANTED || input->n_targets >= UNWANTED)
        return dcpk_fail(err, DCPK_ERANGE, "%zu and %zu shards, the limit is %" PRIu32,
                         input->n_sources, input->n_targets, UNWANTED - 1);
    st = find_holders(input, input->sources, input->n_sources, first, err);
    if (st == DCPK_OK)
        st = find_holders(input, input->targets, input->n_targets, first, err);
    if (st == DCPK_OK)
        st = number_targets(plan, &names, first, err);
    if (st == DCPK_OK)
        st = number_sources(plan, &names, err);
    dcpk_map_release(&names);
    return st;
}

static dcpk_status tensor_check_cast(const struct dcpk_remap_tensor *t, struct dcpk_error *err)
{
    if (t->from == DCPK_DTYPE_NONE || t->from == t->to ||
        (dcpk_dtype_is_float(t->from) && dcpk_dtype_is_float(t->to)))
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EUNSUPPORTED, "'%.200s' cannot be cast from %s to %s", t->name,
                     dcpk_dtype_name(t->from), dcpk_dtype_name(t->to));
}

/* Group the shards of a side by tensor, without the empty ones. */
static dcpk_status side_build(struct remap_planner *p, const struct dcpk_shard *shards, size_t n,
                              const uint32_t *tensor, struct remap_side *side,
                              struct dcpk_error *err)
{
    const size_t n_tensors = p->plan->n_tensors;

    side->shards = shards;
    side->first = dcpk_arena_array(p->scratch, n_tensors + 2, sizeof *side->first, err);
    side->items = dcpk_arena_array(p->scratch, n, sizeof *side->items, err);
    if (side->first == NULL || side->items == NULL)
        return err->status;
    for (size_t i = 0; i < n; i++)
        if (tensor[i] != UNWANTED && !dcpk_shard_is_empty(&shards[i]))
            side->first[tensor[i] + 2]++;
    for (size_t t = 2; t < n_tensors + 2; t++)
        side->first[t] += side->first[t - 1];
    for (size_t i = 0; i < n; i++) /* first[t + 1] moves from the begin of t to its end */
        if (tensor[i] != UNWANTED && !dcpk_shard_is_empty(&shards[i]))
            side->items[side->first[tensor[i] + 1]++] = (uint32_t)i;
    return DCPK_OK;
}

/* Bytes of targets that a tensor adds to each rank; true if a rank then has more than a unit's. */
static bool unit_is_full(const struct remap_planner *p, uint32_t tensor, uint64_t *rank_bytes)
{
    const struct dcpk_remap_plan *plan = p->plan;
    const uint64_t limit = plan->input.unit_bytes;
    bool full = false;

    for (uint32_t i = p->targets.first[tensor]; i < p->targets.first[tensor + 1]; i++) {
        const struct dcpk_shard *target = &plan->input.targets[p->targets.items[i]];

        rank_bytes[target->holder] += dcpk_shard_bytes(target);
        full = full || rank_bytes[target->holder] > limit;
    }
    return limit > 0 && full;
}

/* Match tensor after tensor and cut their list into units. */
static dcpk_status plan_moves(struct remap_planner *p, struct dcpk_error *err)
{
    struct dcpk_remap_plan *plan = p->plan;
    const size_t n_ranks = (size_t)plan->input.n_ranks;
    uint64_t *rank_bytes = dcpk_arena_array(p->scratch, n_ranks, sizeof *rank_bytes, err);

    if (rank_bytes == NULL)
        return err->status;
    plan->units = dcpk_arena_array(plan->arena, plan->n_tensors + 1, sizeof *plan->units, err);
    if (plan->units == NULL)
        return err->status;
    for (uint32_t t = 0; t < plan->n_tensors; t++) {
        const bool is_full = unit_is_full(p, t, rank_bytes);

        if (t == 0 || is_full)
            plan->units[plan->n_units++] = (struct dcpk_remap_unit){t, plan->n_moves};
        if (t > 0 && is_full) { /* the tensor that did not fit begins the next one */
            memset(rank_bytes, 0, n_ranks * sizeof *rank_bytes);
            (void)unit_is_full(p, t, rank_bytes);
        }
        if (tensor_check_cast(&plan->tensors[t], err) || dcpk_remap_match(p, t, err))
            return err->status;
    }
    plan->units[plan->n_units] = (struct dcpk_remap_unit){plan->n_tensors, plan->n_moves};
    return DCPK_OK;
}

/* Hashes all that ranks must agree on. Spans of moves follow from the shards, addresses are left
 * out. */
static void plan_digest(struct dcpk_remap_plan *plan)
{
    struct dcpk_hasher hasher;
    struct dcpk_hash hash;

    dcpk_hasher_begin(&hasher);
    for (size_t i = 0; i < plan->n_moves; i++)
        dcpk_hasher_update(&hasher, &plan->moves[i], offsetof(struct dcpk_move, span));
    dcpk_hasher_update(&hasher, plan->units, (plan->n_units + 1) * sizeof *plan->units);
    dcpk_hasher_update(&hasher, plan->totals, (size_t)plan->input.n_ranks * sizeof *plan->totals);
    dcpk_hasher_digest(&hasher, &hash);
    memcpy(&plan->digest, hash.digest, sizeof plan->digest);
}

static void plan_predict(struct dcpk_remap_plan *plan)
{
    uint64_t most = 0;

    for (int r = 0; r < plan->input.n_ranks; r++)
        most =
            dcpk_max_u64(most, dcpk_max_u64(plan->totals[r].in_bytes, plan->totals[r].out_bytes));
    if (plan->input.link_bytes_a_second > 0)
        plan->seconds = (double)most / plan->input.link_bytes_a_second;
}

static dcpk_status plan_alloc(struct dcpk_remap_plan *plan, struct dcpk_error *err)
{
    const struct dcpk_remap_input *input = &plan->input;

    plan->tensors = dcpk_arena_array(plan->arena, input->n_targets, sizeof *plan->tensors, err);
    if (plan->tensors == NULL)
        return err->status;
    plan->source_tensor =
        dcpk_arena_array(plan->arena, input->n_sources, sizeof *plan->source_tensor, err);
    if (plan->source_tensor == NULL)
        return err->status;
    plan->target_tensor =
        dcpk_arena_array(plan->arena, input->n_targets, sizeof *plan->target_tensor, err);
    if (plan->target_tensor == NULL)
        return err->status;
    plan->totals = dcpk_arena_array(plan->arena, (size_t)input->n_ranks, sizeof *plan->totals, err);
    if (plan->totals == NULL)
        return err->status;
    return DCPK_OK;
}

static dcpk_status plan_fill(struct dcpk_remap_plan *plan, struct dcpk_arena *scratch,
                             struct dcpk_error *err)
{
    const struct dcpk_remap_input *input = &plan->input;
    struct remap_planner p = {.plan = plan, .scratch = scratch};

    if (plan_alloc(plan, err) || plan_tensors(plan, scratch, err) ||
        side_build(&p, input->sources, input->n_sources, plan->source_tensor, &p.sources, err) ||
        side_build(&p, input->targets, input->n_targets, plan->target_tensor, &p.targets, err) ||
        plan_moves(&p, err))
        return err->status;
    plan_digest(plan);
    plan_predict(plan);
    return DCPK_OK;
}

dcpk_status dcpk_remap_plan_new(const struct dcpk_remap_input *input, struct dcpk_remap_plan **plan,
                                struct dcpk_error *err)
{
    struct dcpk_remap_plan *made = dcpk_alloc(sizeof *made, err);
    struct dcpk_arena *scratch;
    dcpk_status st;

    if (made == NULL)
        return err->status;
    assert(input->n_ranks >= 1);
    made->input = *input;
    made->arena = dcpk_arena_new();
    scratch = dcpk_arena_new();
    st = plan_fill(made, scratch, err);
    dcpk_arena_free(scratch);
    if (st == DCPK_OK)
        *plan = made;
    else
        dcpk_remap_plan_free(made);
    return st;
}

void dcpk_remap_plan_free(struct dcpk_remap_plan *plan)
{
    if (plan == NULL)
        return;
    dcpk_free(plan->moves);
    dcpk_arena_free(plan->arena);
    dcpk_free(plan);
}
