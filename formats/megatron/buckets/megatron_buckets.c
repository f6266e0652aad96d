/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_buckets.c - optimizer state in DDP buckets (dp_reshardable, fully_sharded_bucket_space,
 * dp_zero_gather_scatter) -> model-shaped tensors of the canonical view. */
#include "formats/megatron/buckets/megatron_buckets.h"

#include <inttypes.h>
#include <string.h>

#include "formats/megatron/buckets/megatron_bucket_list.h"
#include "formats/megatron/buckets/megatron_replay.h"
#include "formats/megatron/megatron.h"
#include "lib/base/alloc.h"
#include "lib/base/order.h"

/* One state of a bucket, from element `first` on. */
struct stretch {
    const struct dcpk_bucket *bucket;
    size_t state;
    int64_t first;
};

/* The first n elements of it are all of `block` of the last view added. */
static dcpk_status bucket_add_block(struct dcpk_checkpoint *ckpt, const struct stretch *from,
                                    int64_t n, const struct dcpk_box *block, struct dcpk_error *err)
{
    const struct dcpk_bucket *bucket = from->bucket;
    int64_t done = 0;

    for (size_t c = dcpk_find_last((const uint64_t *)bucket->cuts, sizeof *bucket->cuts,
                                   bucket->n_cuts, (uint64_t)from->first);
         done < n; c++) {
        const int64_t at = from->first + done;
        const struct dcpk_chunk_run run = {bucket->chunks[from->state][c], at - bucket->cuts[c]};
        int64_t end = bucket->n_stored_elems, here;

        if (c + 1 < bucket->n_cuts)
            end = bucket->cuts[c + 1];
        here = dcpk_min_i64(end - at, n - done);
        if (dcpk_checkpoint_add_run(ckpt, block, done, here, run, err) != DCPK_OK)
            return err->status;
        done += here;
    }
    return DCPK_OK;
}

/* It begins with what rank r has of the last view added. view: the shape of that. */
static dcpk_status add_rank(struct dcpk_checkpoint *ckpt, const struct dcpk_tensor *view,
                            const struct dcpk_blocks *blocks, int64_t r, struct stretch from,
                            struct dcpk_error *err)
{
    for (int part = 0; part < blocks->n_parts; part++) {
        struct dcpk_box block;
        int64_t n = 0;

        dcpk_blocks_box(blocks, view->shape, view->rank, r, part, &block);
        if (dcpk_box_count(&block, &n, err) || bucket_add_block(ckpt, &from, n, &block, err))
            return err->status;
        from.first += n;
    }
    return DCPK_OK;
}

/* One state of the parameter of a slot, by number. */
struct slot_state {
    size_t slot, state;
};

/* Add a view of one state of a parameter: every rank's blocks, wherever they lie. */
static dcpk_status bucket_add_view(struct dcpk_model *model, const struct dcpk_bucket_list *list,
                                   const struct dcpk_replay *replay, struct slot_state of,
                                   uint32_t *index, struct dcpk_error *err)
{
    const struct dcpk_replay_slot *slot = &replay->slots[of.slot];
    const struct dcpk_param *param = &model->params[slot->param];
    const struct dcpk_model_tensor *weight = &model->tensors[param->tensor[DCPK_WEIGHT]];
    const struct dcpk_replay_place *places = &replay->places[of.slot * (size_t)replay->n_ranks];
    /* The view outlives the model: its shape must too. */
    const int64_t *shape = dcpk_arena_copy(model->ckpt->arena, weight->shape, (size_t)weight->rank,
                                           sizeof *shape, err);
    struct dcpk_tensor view = {.rank = weight->rank, .shape = shape};

    view.dtype = model->ckpt->tensors[list->buckets[places[0].bucket].tensor[of.state]].dtype;
    view.key = dcpk_arena_printf(model->ckpt->arena, err, "optimizer.distributed (%s of %s)",
                                 list->states[of.state], param->name);
    if (view.key == NULL || shape == NULL ||
        dcpk_checkpoint_add_view(model->ckpt, &view, index, err))
        return err->status;
    for (int64_t r = 0; r < slot->blocks->n_ranks; r++)
        if (add_rank(model->ckpt, &view, slot->blocks, r,
                     (struct stretch){&list->buckets[places[r].bucket], of.state, places[r].first},
                     err))
            return err->status;
    return DCPK_OK;
}

/* Add one state of a parameter to the model. */
static dcpk_status bucket_add_state(struct dcpk_model *model, const struct dcpk_bucket_list *list,
                                    const struct dcpk_replay *replay, size_t s, size_t state,
                                    struct dcpk_error *err)
{
    const uint32_t param = replay->slots[s].param;
    const struct dcpk_megatron_key key = {list->states[state], strlen(list->states[state]), ""};
    struct dcpk_piece *piece = dcpk_arena_alloc(model->arena, sizeof *piece, err);
    struct dcpk_model_tensor tensor = {.param = param, .role = dcpk_megatron_role(&key)};
    struct dcpk_box whole;
    uint32_t view;

    if (piece == NULL ||
        bucket_add_view(model, list, replay, (struct slot_state){s, state}, &view, err))
        return err->status;
    if (tensor.role == DCPK_STATE)
        tensor.state = list->states[state];
    tensor.dtype = model->ckpt->tensors[view].dtype;
    tensor.rank = model->ckpt->tensors[view].rank;
    tensor.shape = model->ckpt->tensors[view].shape;
    dcpk_box_whole(tensor.shape, tensor.rank, &whole);
    if (dcpk_piece_make(model->arena, view, &whole, &whole, piece, err))
        return err->status;
    tensor.pieces = piece;
    tensor.n_pieces = 1;
    return dcpk_model_add(model, &tensor, err);
}

static dcpk_status add_states(struct dcpk_model *model, const struct dcpk_bucket_list *list,
                              const struct dcpk_replay *replay, struct dcpk_error *err)
{
    for (size_t s = 0; s < replay->n_slots; s++) {
        if (replay->slots[s].is_copy)
            continue;
        for (size_t state = 0; state < list->n_states; state++)
            if (bucket_add_state(model, list, replay, s, state, err))
                return err->status;
    }
    return DCPK_OK;
}

/* Drops copies that other buckets hold too: for parameters that tensor parallelism does not cut,
 * and for a tied embedding, the first rank's counts. */
static dcpk_status drop_copies(struct dcpk_model *model, const struct dcpk_bucket_list *list,
                               const struct dcpk_replay *replay, struct dcpk_error *err)
{
    bool *is_used = dcpk_alloc_array(list->n, sizeof *is_used, err);

    if (is_used == NULL)
        return err->status;
    for (size_t s = 0; s < replay->n_slots; s++)
        for (int64_t r = 0; r < replay->slots[s].blocks->n_ranks; r++)
            if (!replay->slots[s].is_copy)
                is_used[replay->places[s * (size_t)replay->n_ranks + (size_t)r].bucket] = true;
    for (size_t i = 0; i < list->n; i++)
        for (size_t state = 0; state < list->n_states && !is_used[i]; state++)
            dcpk_model_omit(model, model->ckpt->tensors[list->buckets[i].tensor[state]].key,
                            "copies of parameters that an earlier rank's bucket holds");
    dcpk_free(is_used);
    return DCPK_OK;
}

/*
 * Parameter groups are kept next to the buckets of each group of ranks, the same on all of them
 * (MC/optimizer/__init__.py@0.19.0 gathers the keys of all ranks): the first group's are taken.
 */
static dcpk_status bucket_add_groups(struct dcpk_model *model, const struct dcpk_bucket *bucket,
                                     struct dcpk_error *err)
{
    int64_t unused;
    const size_t n = dcpk_bucket_take_group(bucket->key, &unused, &unused);
    const char *key =
        dcpk_arena_printf(model->arena, err, "%.*s.optimizer/shard_0_1", (int)n, bucket->key);
    const struct dcpk_object *object;
    const struct dcpk_value *value;

    if (key == NULL)
        return err->status;
    object = dcpk_checkpoint_object(model->ckpt, key);
    if (object == NULL)
        return dcpk_fail(err, DCPK_EFORMAT, "there is no item '%s': parameter groups are missing",
                         key);
    if (dcpk_model_need(model, object, &value, err))
        return err->status;
    return dcpk_megatron_add_groups(model, dcpk_value_at(value, 0), err);
}

/* Dense, then expert. */
static dcpk_status add_all_groups(struct dcpk_model *model, const struct dcpk_bucket_list *list,
                                  struct dcpk_error *err)
{
    for (size_t i = 0; i < list->n; i++)
        if ((i == 0 || list->buckets[i].is_expert != list->buckets[i - 1].is_expert) &&
            bucket_add_groups(model, &list->buckets[i], err))
            return err->status;
    return DCPK_OK;
}

/* The buckets that the checkpoint has, in tensors or gathered in objects. */
static dcpk_status bucket_read_list(struct dcpk_model *model, unsigned flags,
                                    struct dcpk_bucket_list *list, struct dcpk_error *err)
{
    if (dcpk_bucket_list_read(model->ckpt, flags, list, err))
        return err->status;
    if (list->n != 0)
        return DCPK_OK;
    return dcpk_gathered_list_read(model->ckpt, list, err);
}

/* Everything after a list of buckets: whose they are, states and groups into the model. */
static dcpk_status decode_list(struct dcpk_model *model, const struct dcpk_bucket_list *list,
                               bool is_old, struct dcpk_error *err)
{
    const struct dcpk_replay_rules *rules = is_old ? NULL : &dcpk_replay_rules[0];
    struct dcpk_replay replay;

    if (dcpk_replay_run(model, list, rules, &replay, err) ||
        add_states(model, list, &replay, err) || drop_copies(model, list, &replay, err) ||
        add_all_groups(model, list, err))
        return err->status;
    model->has_optimizer = true;
    model->needs_proof = true;
    return DCPK_OK;
}

static const char resave[] = "; without decoding: load with the same Megatron and save with "
                             "--dist-ckpt-optim-fully-reshardable";

dcpk_status dcpk_megatron_decode_buckets(struct dcpk_model *model, struct dcpk_error *err)
{
    const bool is_old = strcmp(model->optimizer_layout, "dp_reshardable") != 0;
    struct dcpk_bucket_list list;

    if (bucket_read_list(model, is_old ? DCPK_BUCKETS_PADDED : 0, &list, err) ||
        (list.n > 0 && decode_list(model, &list, is_old, err))) {
        dcpk_context(err, "decoding the optimizer's buckets (%s%s)", model->optimizer_layout,
                     is_old ? "" : resave);
        err->fixes |= DCPK_FIX_WEIGHTS_ONLY;
        return err->status;
    }
    return DCPK_OK;
}
