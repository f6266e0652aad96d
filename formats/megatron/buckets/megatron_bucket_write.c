/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_bucket_write.c - buckets as tensors of an output: flat pieces of parameters, gaps, and
 * the objects next to them. */
#include "formats/megatron/buckets/megatron_buckets.h"

#include <inttypes.h>

#include "formats/megatron/buckets/megatron_bucket_layout.h"
#include "formats/megatron/megatron_flatten.h"
#include "lib/base/order.h"

struct bucket_writer {
    const struct dcpk_model *model;
    struct dcpk_output *out;
    const struct dcpk_bucket_optimizers *optimizers;
    struct dcpk_bucket_layout layout;
    struct dcpk_bucket_states states;
};

/* --- pieces --- */

/* Elements [first, first + n) of the bucket: zeros. */
static dcpk_status pieces_add_gap(struct dcpk_flat_pieces *pieces, int64_t first, int64_t n,
                                  struct dcpk_error *err)
{
    const struct dcpk_box at = {.rank = 1, .offset = {first}};

    return dcpk_flat_pieces_add(pieces, DCPK_PIECE_FILL, NULL, &at, n, err);
}

/* Adds a tensor-parallel rank's part of a parameter's tensor, from element `first` of the bucket
 * on. */
static dcpk_status pieces_add_slot(struct dcpk_flat_pieces *pieces,
                                   const struct dcpk_blocks *blocks,
                                   const struct dcpk_model_tensor *tensor, int64_t tp_rank,
                                   int64_t first, struct dcpk_error *err)
{
    for (int p = 0; p < blocks->n_parts; p++) {
        const struct dcpk_box at = {.rank = 1, .offset = {first}};
        struct dcpk_box box;
        int64_t n;

        dcpk_blocks_box(blocks, tensor->shape, tensor->rank,
                        dcpk_min_i64(tp_rank, blocks->n_ranks - 1), p, &box);
        if (dcpk_box_count(&box, &n, err))
            return err->status;
        for (size_t i = 0; i < tensor->n_pieces; i++)
            if (dcpk_flat_pieces_add_part(pieces, &tensor->pieces[i], &box, &at, err))
                return err->status;
        first += n;
    }
    return DCPK_OK;
}

dcpk_status dcpk_bucket_find_tensor(const struct dcpk_model *model,
                                    const struct dcpk_replay_slot *slot,
                                    const struct dcpk_bucket_state *state,
                                    const struct dcpk_model_tensor **tensor, struct dcpk_error *err)
{
    const char *other = state->role == DCPK_STATE ? state->name : NULL;
    uint32_t found;

    if (state->role == DCPK_MASTER) {
        *tensor = dcpk_model_value(model, &model->params[slot->param]);
        return DCPK_OK;
    }
    found = dcpk_model_find(model, slot->param, state->role, other);
    if (found == DCPK_NO_TENSOR)
        return dcpk_fail(err, DCPK_EMISMATCH, "'%s' has no %s, which other parameters have",
                         model->params[slot->param].name, state->name);
    *tensor = &model->tensors[found];
    return DCPK_OK;
}

dcpk_status dcpk_bucket_add_pieces(const struct dcpk_bucket_source *from,
                                   const struct dcpk_laid_bucket *bucket, int64_t first,
                                   struct dcpk_flat_pieces *pieces, struct dcpk_error *err)
{
    int64_t end = 0;

    for (size_t i = 0; i < bucket->n_parts; i++) {
        const struct dcpk_bucket_part *part = &from->layout->parts[bucket->first_part + i];
        const struct dcpk_replay_slot *slot = &from->layout->replay.slots[part->slot];
        const struct dcpk_model_tensor *tensor;

        if (pieces_add_gap(pieces, first + end, part->first - end, err) ||
            dcpk_bucket_find_tensor(from->model, slot, from->state, &tensor, err) ||
            pieces_add_slot(pieces, slot->blocks, tensor, bucket->tp_rank, first + part->first,
                            err))
            return err->status;
        end = part->first + part->n_elems;
    }
    return pieces_add_gap(pieces, first + end, bucket->n_elems - end, err);
}

/* --- tensors --- */

/* The start of the next chunk after element `at`: the slice of a rank ends, or a parameter begins
 * or ends. *part: the first part that ends after `at`. */
static int64_t next_cut(const struct bucket_writer *w, const struct dcpk_laid_bucket *bucket,
                        int64_t at, size_t *part)
{
    const struct dcpk_bucket_part *parts = &w->layout.parts[bucket->first_part];
    const int64_t slice = bucket->n_padded_elems / bucket->n_slices;
    int64_t end = dcpk_min_i64((at / slice + 1) * slice, bucket->n_elems);

    while (*part < bucket->n_parts && parts[*part].first + parts[*part].n_elems <= at)
        ++*part;
    if (*part == bucket->n_parts)
        return end;
    if (parts[*part].first > at)
        return dcpk_min_i64(end, parts[*part].first);
    return dcpk_min_i64(end, parts[*part].first + parts[*part].n_elems);
}

/* The chunks that data-parallel ranks write of a bucket (formats/torch_dist/FORMAT.md 5.4). */
static dcpk_status cut_bucket(const struct bucket_writer *w, const struct dcpk_laid_bucket *bucket,
                              struct dcpk_out_tensor *tensor, struct dcpk_error *err)
{
    const size_t most = 2 * bucket->n_parts + (size_t)bucket->n_slices + 1;
    const int64_t **spans = dcpk_arena_array(w->out->arena, most, sizeof *spans, err);
    size_t part = 0;
    int64_t end;

    if (spans == NULL)
        return err->status;
    for (int64_t at = 0; at < bucket->n_elems; at = end) {
        int64_t *span = dcpk_arena_array(w->out->arena, 2, sizeof *span, err);

        if (span == NULL)
            return err->status;
        end = next_cut(w, bucket, at, &part);
        span[0] = at;
        span[1] = end - at;
        spans[tensor->n_spans++] = span;
    }
    tensor->spans = spans;
    return DCPK_OK;
}

const char *dcpk_bucket_grad_dtype(const struct dcpk_value *args, enum dcpk_dtype dtype)
{
    const struct dcpk_value *attrs = dcpk_value_attrs(args);
    bool is_fp32 = dtype == DCPK_BF16;

    (void)dcpk_value_as_bool(dcpk_value_get(attrs, "accumulate_allreduce_grads_in_fp32"), &is_fp32);
    if (is_fp32)
        dtype = DCPK_F32;
    return dcpk_dtype_name(dtype);
}

/* "chained_1." where the ranks of the group have two optimizers, dense and expert. */
static const char *chained_prefix(const struct bucket_writer *w,
                                  const struct dcpk_laid_bucket *bucket)
{
    if (bucket->is_expert)
        return "chained_1.";
    for (size_t i = 0; i < w->layout.n; i++)
        if (w->layout.buckets[i].is_expert && w->layout.buckets[i].stage == bucket->stage)
            return "chained_0.";
    return "";
}

static const char *group_key(const struct bucket_writer *w, const struct dcpk_laid_bucket *bucket,
                             struct dcpk_error *err)
{
    return dcpk_arena_printf(w->out->arena, err, "%soptimizer.distributed.dp_group_idx_%" PRId64,
                             chained_prefix(w, bucket), bucket->group);
}

static dcpk_status bucket_put_state(const struct bucket_writer *w,
                                    const struct dcpk_laid_bucket *bucket,
                                    const struct dcpk_bucket_state *state,
                                    struct dcpk_out_tensor tensor, struct dcpk_error *err)
{
    const struct dcpk_bucket_source from = {w->model, &w->layout, state};
    struct dcpk_flat_pieces pieces = {.arena = w->out->arena};

    if (dcpk_bucket_add_pieces(&from, bucket, 0, &pieces, err) == DCPK_OK &&
        dcpk_flat_pieces_keep(&pieces, &tensor, err) == DCPK_OK)
        (void)dcpk_output_add_tensor(w->out, &tensor, err);
    dcpk_flat_pieces_release(&pieces);
    return err->status;
}

static dcpk_status put_bucket(const struct bucket_writer *w, const struct dcpk_laid_bucket *bucket,
                              struct dcpk_error *err)
{
    const char *group = group_key(w, bucket, err);
    int64_t *shape = dcpk_arena_array(w->out->arena, 1, sizeof *shape, err);
    struct dcpk_out_tensor tensor = {.dtype = DCPK_F32, .rank = 1, .shape = shape, .n_keys = 1};

    if (group == NULL || shape == NULL || cut_bucket(w, bucket, &tensor, err))
        return err->status;
    *shape = bucket->n_elems;
    for (size_t s = 0; s < w->states.n; s++) {
        const char **key = dcpk_arena_array(w->out->arena, 1, sizeof *key, err);

        if (key == NULL)
            return err->status;
        *key = dcpk_arena_printf(w->out->arena, err,
                                 "%s.gbuf_idx_%" PRId64
                                 ".dtype_(torch.%s, torch.%s).bucket_idx_%" PRId64 ".%s",
                                 group, bucket->buffer, dcpk_dtype_name(bucket->dtype),
                                 dcpk_bucket_grad_dtype(w->optimizers->args, bucket->dtype),
                                 bucket->number, w->states.list[s].name);
        tensor.keys = key;
        if (*key == NULL || bucket_put_state(w, bucket, &w->states.list[s], tensor, err))
            return err->status;
    }
    return DCPK_OK;
}

/* --- objects --- */

static dcpk_status bucket_put_object(const struct bucket_writer *w, const char *group,
                                     const char *name, const struct dcpk_value *value,
                                     struct dcpk_error *err)
{
    const struct dcpk_value *list = dcpk_value_seq(w->out->arena, DCPK_V_LIST, &value, 1, err);
    const char *key = dcpk_arena_printf(w->out->arena, err, "%s.%s/shard_0_1", group, name);
    uint32_t payload;

    if (list == NULL || key == NULL || dcpk_output_add_payload(w->out, list, NULL, &payload, err))
        return err->status;
    return dcpk_output_add_object(w->out, key, payload, err);
}

/* The record of the buckets [first, end), which are those of one buffer: {(torch.bfloat16,
 * torch.float32): [numel, ...]}. */
static const struct dcpk_value *buffer_record(const struct bucket_writer *w, size_t first,
                                              size_t end, bool padded, struct dcpk_error *err)
{
    const enum dcpk_dtype dtype = w->layout.buckets[first].dtype;
    struct dcpk_arena *arena = w->out->arena;
    const struct dcpk_value *pair[2] = {
        dcpk_value_global(arena, "torch", dcpk_dtype_name(dtype), err),
        dcpk_value_global(arena, "torch", dcpk_bucket_grad_dtype(w->optimizers->args, dtype), err)};
    const struct dcpk_value **numbers = dcpk_arena_array(arena, end - first, sizeof *numbers, err);
    struct dcpk_value_pair entry;

    if (pair[0] == NULL || pair[1] == NULL || numbers == NULL)
        return NULL;
    for (size_t i = first; i < end; i++) {
        const struct dcpk_laid_bucket *bucket = &w->layout.buckets[i];

        numbers[i - first] =
            dcpk_value_int(arena, padded ? bucket->n_padded_elems : bucket->n_elems, err);
        if (numbers[i - first] == NULL)
            return NULL;
    }
    entry.key = dcpk_value_seq(arena, DCPK_V_TUPLE, pair, 2, err);
    entry.value = dcpk_value_seq(arena, DCPK_V_LIST, numbers, end - first, err);
    if (entry.key == NULL || entry.value == NULL)
        return NULL;
    return dcpk_value_dict(arena, &entry, 1, err);
}

static size_t record_end(const struct dcpk_bucket_layout *layout, size_t first)
{
    size_t i = first + 1;

    while (i < layout->n && layout->buckets[i].number != 0)
        i++;
    return i;
}

/* The sizes of all buckets [first, end) of a group: a list over its buffers. */
static dcpk_status bucket_put_record(const struct bucket_writer *w, const char *group, size_t first,
                                     size_t end, bool padded, struct dcpk_error *err)
{
    const struct dcpk_value **buffers =
        dcpk_arena_array(w->out->arena, end - first, sizeof *buffers, err);
    const struct dcpk_value *list;
    size_t n = 0;

    if (buffers == NULL)
        return err->status;
    for (size_t i = first; i < end; i = record_end(&w->layout, i)) {
        buffers[n] = buffer_record(w, i, record_end(&w->layout, i), padded, err);
        if (buffers[n++] == NULL)
            return err->status;
    }
    list = dcpk_value_seq(w->out->arena, DCPK_V_LIST, buffers, n, err);
    if (list == NULL)
        return err->status;
    return bucket_put_object(w, group, padded ? "per_bucket_numel" : "per_bucket_numel_unpadded",
                             list, err);
}

/* Puts the objects that one rank of the group saves for all of them, next to the buckets [first,
 * end). */
static dcpk_status put_group(const struct bucket_writer *w, size_t first, size_t end,
                             struct dcpk_error *err)
{
    const struct dcpk_laid_bucket *bucket = &w->layout.buckets[first];
    const struct dcpk_value *state = w->optimizers->state[bucket->is_expert];
    const char *group = group_key(w, bucket, err);

    if (group == NULL)
        return err->status;
    for (size_t i = 0; i < state->n; i++)
        if (bucket_put_object(w, group, dcpk_value_as_str(state->as.pairs[i].key),
                              state->as.pairs[i].value, err))
            return err->status;
    if (bucket_put_record(w, group, first, end, true, err) ||
        bucket_put_record(w, group, first, end, false, err))
        return err->status;
    return DCPK_OK;
}

/* --- all of it --- */

dcpk_status dcpk_bucket_states_find(const struct dcpk_model *m, const struct dcpk_replay *replay,
                                    struct dcpk_bucket_states *states, struct dcpk_error *err)
{
    const struct dcpk_param *param;

    states->n = 0;
    if (replay->n_slots == 0)
        return DCPK_OK;
    param = &m->params[replay->slots[0].param];
    states->list[states->n++] = (struct dcpk_bucket_state){"param", DCPK_MASTER};
    if (param->tensor[DCPK_EXP_AVG] != DCPK_NO_TENSOR)
        states->list[states->n++] = (struct dcpk_bucket_state){"exp_avg", DCPK_EXP_AVG};
    if (param->tensor[DCPK_EXP_AVG_SQ] != DCPK_NO_TENSOR)
        states->list[states->n++] = (struct dcpk_bucket_state){"exp_avg_sq", DCPK_EXP_AVG_SQ};
    for (uint32_t t = param->tensor[DCPK_STATE]; t != DCPK_NO_TENSOR;
         t = m->tensors[t].next_state) {
        if (states->n == DCPK_MAX_BUCKET_STATES)
            return dcpk_fail(err, DCPK_EUNSUPPORTED, "more than %d states of a parameter",
                             DCPK_MAX_BUCKET_STATES);
        states->list[states->n++] = (struct dcpk_bucket_state){m->tensors[t].state, DCPK_STATE};
    }
    return DCPK_OK;
}

static size_t bucket_group_end(const struct dcpk_bucket_layout *layout, size_t first)
{
    size_t i = first + 1;

    while (i < layout->n && layout->buckets[i].group == layout->buckets[first].group &&
           layout->buckets[i].is_expert == layout->buckets[first].is_expert)
        i++;
    return i;
}

static dcpk_status put_groups(const struct bucket_writer *w, struct dcpk_error *err)
{
    const struct dcpk_bucket_layout *layout = &w->layout;

    for (size_t first = 0; first < layout->n; first = bucket_group_end(layout, first)) {
        for (size_t i = first; i < bucket_group_end(layout, first); i++)
            if (put_bucket(w, &layout->buckets[i], err))
                return err->status;
        if (put_group(w, first, bucket_group_end(layout, first), err))
            return err->status;
    }
    return DCPK_OK;
}

dcpk_status dcpk_megatron_put_buckets(const struct dcpk_model *model, struct dcpk_output *out,
                                      const struct dcpk_bucket_optimizers *optimizers,
                                      struct dcpk_error *err)
{
    const struct dcpk_bucket_run run = {.args = optimizers->args,
                                        .impl = out->target.impl,
                                        .model_dtype = optimizers->model_dtype,
                                        .has_expert_optimizer = optimizers->state[1] != NULL};
    struct bucket_writer w = {.model = model, .out = out, .optimizers = optimizers};

    if (dcpk_bucket_layout_make(model, &run, out->arena, &w.layout, err) ||
        dcpk_bucket_states_find(model, &w.layout.replay, &w.states, err) || put_groups(&w, err))
        dcpk_context(err, "laying the optimizer's state into buckets (dp_reshardable)");
    return err->status;
}
