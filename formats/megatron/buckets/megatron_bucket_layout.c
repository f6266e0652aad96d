/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_bucket_layout.c - parameters laid into DDP's buffers, rank by rank, the last registered
 * first. */
/*
 *      bucket 0                            bucket 1
 *   +--------+--+---------+---+-----+   +----------+---
 *   | output |..| norm    |...|.....|   | fc2      |       ..: gaps: a parameter starts at a
 *   +--------+--+---------+---+-----+   +----------+---        multiple of 64 elements
 *   0                     ^ n_elems ^ n_padded_elems           (start_alignment)
 */
#include "formats/megatron/buckets/megatron_bucket_layout.h"

#include <inttypes.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/model/laid_out.h"

/* Divisor of the ends of buckets, in elements, with --ddp-pad-buckets-for-high-nccl-busbw
 * (MC/optimizer/param_layout.py@0.19.0 bucket_end_divisor). */
#define BANDWIDTH_ALIGNMENT 65536

/* --- the parameters --- */

/* How tensor parallelism of the target cuts a parameter. */
static dcpk_status layout_find_blocks(const struct dcpk_model *model,
                                      const struct dcpk_param *param, int64_t tp,
                                      struct dcpk_arena *arena, struct dcpk_blocks *blocks,
                                      struct dcpk_error *err)
{
    struct dcpk_spread spread = {.rank = 0};

    *blocks = (struct dcpk_blocks){.axis = -1, .n_ranks = 1, .n_parts = 1};
    if (dcpk_spread_of(model, param, tp, arena, &spread, err))
        return err->status;
    if (spread.tp_axis < 0 || tp == 1)
        return DCPK_OK;
    blocks->axis = spread.tp_axis;
    blocks->n_ranks = tp;
    blocks->part[0].n_rows = spread.shape[spread.tp_axis];
    if (spread.tp_axis == 0 && spread.n_parts > 0)
        blocks->n_parts = (int)spread.n_parts;
    for (int i = 0; i < blocks->n_parts && spread.tp_axis == 0 && spread.n_parts > 0; i++)
        blocks->part[i] =
            (struct dcpk_rows){spread.part_at[i], spread.part_at[i + 1] - spread.part_at[i]};
    return DCPK_OK;
}

static dcpk_status layout_fill_slot(const struct dcpk_model *model,
                                    const struct dcpk_bucket_run *run, const struct dcpk_cut *cut,
                                    struct dcpk_arena *arena, struct dcpk_replay_slot *slot,
                                    struct dcpk_error *err)
{
    const struct dcpk_param *param = &model->params[slot->param];
    const struct dcpk_model_tensor *value = dcpk_model_value(model, param);
    const int64_t tp = dcpk_cut_tp(cut, slot->reg.expert >= 0);
    struct dcpk_blocks *blocks = dcpk_arena_alloc(arena, sizeof *blocks, err);

    if (blocks == NULL || dcpk_cut_find(cut, &slot->reg, &slot->chunk, err) ||
        layout_find_blocks(model, param, tp, arena, blocks, err) ||
        dcpk_shape_count(value->shape, value->rank, &slot->n_elems, err))
        return err->status;
    slot->blocks = blocks;
    slot->n_elems /= blocks->n_ranks;
    slot->dtype = run->model_dtype;
    if (param->tensor[DCPK_WEIGHT] != DCPK_NO_TENSOR)
        slot->dtype = model->tensors[param->tensor[DCPK_WEIGHT]].dtype;
    slot->has_own_bucket = dcpk_replay_has_own_bucket(cut, param->name);
    return DCPK_OK;
}

dcpk_status dcpk_bucket_layout_collect(const struct dcpk_model *model,
                                       const struct dcpk_bucket_run *run, struct dcpk_arena *arena,
                                       struct dcpk_replay *replay, struct dcpk_error *err)
{
    replay->slots =
        dcpk_arena_array(arena, model->n_params + DCPK_REPLAY_COPIES, sizeof *replay->slots, err);
    if (replay->slots == NULL)
        return err->status;
    for (uint32_t p = 0; p < model->n_params; p++) {
        struct dcpk_replay_slot *slot = &replay->slots[replay->n_slots];

        if (dcpk_model_value(model, &model->params[p]) == NULL)
            continue;
        *slot = (struct dcpk_replay_slot){.param = p};
        if (!dcpk_registered_find(model->params[p].name, replay->cut.spec, &slot->reg))
            return dcpk_fail(err, DCPK_EUNSUPPORTED,
                             "the place of parameter '%s' in the order of registration is not "
                             "known",
                             model->params[p].name);
        if (slot->reg.is_buffer && !run->has_buffers)
            continue;
        if (layout_fill_slot(model, run, &replay->cut, arena, slot, err))
            return dcpk_context(err, "parameter '%s'", model->params[p].name);
        replay->n_slots++;
    }
    dcpk_replay_add_copies(replay);
    return dcpk_replay_order(model, replay->cut.spec, replay, err);
}

/* --- buffers --- */

/* A rank's buffer being filled. */
struct laying {
    struct dcpk_bucket_layout *layout;
    size_t buckets_capacity, parts_capacity; /* of the tables, which are not yet in the arena */
    struct dcpk_laid_bucket next;            /* of the next bucket; n_elems: filled so far */
    int64_t expert_rank, chunk;
};

static bool buffer_has(const struct laying *l, const struct dcpk_replay_slot *slot)
{
    const struct dcpk_cut *cut = &l->layout->replay.cut;
    const bool is_expert = slot->reg.expert >= 0;

    if (slot->chunk != l->chunk ||
        (is_expert && l->layout->has_expert_optimizer) != l->next.is_expert)
        return false;
    return !is_expert || slot->reg.expert / (cut->n_experts / cut->ep) == l->expert_rank;
}

/* The bucket ends here; the next begins empty. */
static dcpk_status laying_close(struct laying *l, struct dcpk_error *err)
{
    struct dcpk_bucket_layout *layout = l->layout;
    struct dcpk_replay_rules rules = *layout->replay.rules;
    int64_t multiple;

    if (l->next.n_elems > DCPK_MAX_BUCKET_ELEMS)
        return dcpk_fail(err, DCPK_ERANGE, "a bucket of %" PRId64 " elements", l->next.n_elems);
    if (dcpk_grow(&layout->buckets, &l->buckets_capacity, layout->n, sizeof *layout->buckets, err))
        return err->status;
    if (layout->replay.cut.pads_for_bandwidth)
        rules.end_alignment = BANDWIDTH_ALIGNMENT;
    multiple = dcpk_replay_end_multiple(&rules, l->next.n_slices);
    l->next.n_padded_elems = dcpk_replay_round_up(l->next.n_elems, multiple);
    layout->buckets[layout->n++] = l->next;
    l->next.number++;
    l->next.n_elems = 0;
    l->next.first_part = layout->n_parts;
    l->next.n_parts = 0;
    return DCPK_OK;
}

static dcpk_status laying_add_part(struct laying *l, size_t s, int64_t full_elems,
                                   struct dcpk_error *err)
{
    struct dcpk_bucket_layout *layout = l->layout;
    const struct dcpk_replay_slot *slot = &layout->replay.slots[s];

    l->next.n_elems = dcpk_replay_round_up(l->next.n_elems, layout->replay.rules->start_alignment);
    if (slot->has_own_bucket && l->next.n_parts > 0 && laying_close(l, err))
        return err->status;
    if (dcpk_grow(&layout->parts, &l->parts_capacity, layout->n_parts, sizeof *layout->parts, err))
        return err->status;
    layout->parts[layout->n_parts++] = (struct dcpk_bucket_part){s, l->next.n_elems, slot->n_elems};
    l->next.n_parts++;
    l->next.n_elems += slot->n_elems;
    if (slot->has_own_bucket || (full_elems > 0 && l->next.n_elems >= full_elems))
        return laying_close(l, err);
    return DCPK_OK;
}

/* All parameters of one dtype that the buffer has. */
static dcpk_status laying_fill(struct laying *l, enum dcpk_dtype dtype, struct dcpk_error *err)
{
    const struct dcpk_replay *replay = &l->layout->replay;
    const int64_t full_elems = dcpk_replay_full_elems(replay, l->chunk);

    l->next.dtype = dtype;
    l->next.number = 0;
    l->next.n_elems = 0;
    l->next.first_part = l->layout->n_parts;
    l->next.n_parts = 0;
    for (size_t s = replay->n_slots; s-- > 0;)
        if (replay->slots[s].dtype == dtype && buffer_has(l, &replay->slots[s]) &&
            laying_add_part(l, s, full_elems, err))
            return err->status;
    if (l->next.n_parts > 0)
        return laying_close(l, err);
    return DCPK_OK;
}

/* A buffer for each dtype, in the order in which parameters of it are registered first. */
static dcpk_status laying_fill_chunk(struct laying *l, struct dcpk_error *err)
{
    const struct dcpk_replay *replay = &l->layout->replay;
    bool is_filled[DCPK_N_DTYPES] = {false};

    for (size_t s = 0; s < replay->n_slots; s++) {
        const enum dcpk_dtype dtype = replay->slots[s].dtype;

        if (is_filled[dtype] || !buffer_has(l, &replay->slots[s]))
            continue;
        is_filled[dtype] = true;
        if (laying_fill(l, dtype, err))
            return err->status;
        l->next.buffer++;
    }
    return DCPK_OK;
}

/* Groups of one optimizer: tensor-parallel rank fastest, then expert-parallel, then stage. */
static dcpk_status laying_fill_groups(struct laying *l, bool is_expert, struct dcpk_error *err)
{
    const struct dcpk_cut *cut = &l->layout->replay.cut;
    const int64_t tp = dcpk_cut_tp(cut, is_expert), ep = dcpk_cut_ep(cut, is_expert);

    for (int64_t group = 0; group < tp * ep * cut->pp; group++) {
        l->next = (struct dcpk_laid_bucket){.is_expert = is_expert,
                                            .group = group,
                                            .stage = group / tp / ep,
                                            .tp_rank = group % tp,
                                            .n_slices = cut->n_slices};
        if (is_expert)
            l->next.n_slices = cut->n_expert_slices;
        l->expert_rank = group / tp % ep;
        for (int64_t v = 0; v < cut->vpp; v++) {
            l->chunk = v * cut->pp + l->next.stage;
            if (laying_fill_chunk(l, err))
                return err->status;
        }
    }
    return DCPK_OK;
}

/* The tables, from the heap into the arena. */
static dcpk_status laying_keep(const struct dcpk_bucket_layout *made, struct dcpk_arena *arena,
                               struct dcpk_bucket_layout *layout, struct dcpk_error *err)
{
    struct dcpk_laid_bucket *buckets =
        dcpk_arena_copy(arena, made->buckets, made->n, sizeof *buckets, err);
    struct dcpk_bucket_part *parts =
        dcpk_arena_copy(arena, made->parts, made->n_parts, sizeof *parts, err);

    if (buckets == NULL || parts == NULL)
        return err->status;
    *layout = *made;
    layout->buckets = buckets;
    layout->parts = parts;
    return DCPK_OK;
}

dcpk_status dcpk_bucket_layout_lay(struct dcpk_bucket_layout *layout, struct dcpk_arena *arena,
                                   struct dcpk_error *err)
{
    struct dcpk_bucket_layout made = {.replay = layout->replay,
                                      .has_expert_optimizer = layout->has_expert_optimizer};
    struct laying laying = {.layout = &made};

    if (laying_fill_groups(&laying, false, err) == DCPK_OK &&
        (!made.has_expert_optimizer || laying_fill_groups(&laying, true, err) == DCPK_OK))
        (void)laying_keep(&made, arena, layout, err);
    dcpk_free(made.buckets);
    dcpk_free(made.parts);
    return err->status;
}

dcpk_status dcpk_bucket_layout_make(const struct dcpk_model *model,
                                    const struct dcpk_bucket_run *run, struct dcpk_arena *arena,
                                    struct dcpk_bucket_layout *layout, struct dcpk_error *err)
{
    struct dcpk_bucket_layout made = {.replay = {.rules = &dcpk_replay_rules[0]},
                                      .has_expert_optimizer = run->has_expert_optimizer};

    if (dcpk_cut_read(run->args, arena, &made.replay.cut, err))
        return err->status;
    made.replay.cut.spec = dcpk_cut_spec(dcpk_value_attrs(run->args), run->impl);
    if (dcpk_bucket_layout_collect(model, run, arena, &made.replay, err) ||
        dcpk_bucket_layout_lay(&made, arena, err))
        return err->status;
    *layout = made;
    return DCPK_OK;
}
