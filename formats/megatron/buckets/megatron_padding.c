/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_padding.c - states of parameters, seen through the keys under which their elements were
 * stored. */
/*
 *   layout     the buckets of the run, from args and the order of registration
 *   moved      for each rank's part of a parameter: runs of elements of other parts, or lost ones
 *   segments   a run of a part -> runs of stored chunks (megatron_segments.h)
 *   views      one for each state of a parameter, of these runs; pieces around it fill the holes
 */
#include "formats/megatron/buckets/megatron_buckets.h"

#include <inttypes.h>
#include <string.h>

#include "formats/megatron/buckets/megatron_segments.h"
#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/ckpt/format.h"

#define NO_PART           SIZE_MAX
#define MEAN_BUFFER_ELEMS (INT64_C(1) << 18)

struct repair {
    struct dcpk_model *model;
    struct dcpk_bucket_layout layout;
    struct dcpk_moved moved;
    size_t *part_of; /* of slot s, tensor-parallel rank r: [s * n_ranks + r], or NO_PART */
    struct dcpk_chunk_rows *rows;
    struct dcpk_segments segments;    /* of the last source asked for; reused */
    struct dcpk_model_tensor *stored; /* the view's tensors with the pieces that they had */
    struct dcpk_repaired *repaired;
};

/* One state of the parameter of a slot on its way: the view that is added last, and its pieces. */
struct mending {
    struct repair *r;
    const struct dcpk_replay_slot *slot;
    struct dcpk_model_tensor *tensor; /* owner of the replaced pieces */
    uint32_t view, constant;          /* constant: DCPK_NO_TENSOR until it is needed */
    struct dcpk_piece *pieces;
    size_t n_pieces, capacity;
};

/* ---- the layout ---- */

static dcpk_status padding_lay_out(struct repair *r, struct dcpk_error *err)
{
    struct dcpk_model *model = r->model;
    struct dcpk_replay *replay = &r->layout.replay;

    replay->rules = &dcpk_replay_rules[0];
    r->layout.has_expert_optimizer = model->has_expert_optimizer;
    if (dcpk_cut_read(model->args, model->arena, &replay->cut, err))
        return err->status;
    if (model->ckpt->given.bucket_elems > 0 && replay->cut.bucketing.n_elems > 0)
        replay->cut.bucketing = (struct dcpk_bucketing){.n_elems = model->ckpt->given.bucket_elems};
    replay->n_ranks = dcpk_max_i64(replay->cut.tp, replay->cut.etp);
    if (dcpk_replay_collect(model, replay, err) ||
        dcpk_replay_order(model, replay->cut.spec, replay, err) ||
        dcpk_bucket_layout_lay(&r->layout, model->arena, err) ||
        dcpk_moved_find(&r->layout, model->arena, &r->moved, err))
        return err->status;
    return DCPK_OK;
}

static dcpk_status padding_find_parts(struct repair *r, struct dcpk_error *err)
{
    const size_t n_ranks = (size_t)r->layout.replay.n_ranks;
    const size_t n = r->layout.replay.n_slots * n_ranks;

    r->part_of = dcpk_arena_array(r->model->arena, n, sizeof *r->part_of, err);
    if (r->part_of == NULL)
        return err->status;
    for (size_t i = 0; i < n; i++)
        r->part_of[i] = NO_PART;
    for (size_t b = 0; b < r->layout.n; b++) {
        const struct dcpk_laid_bucket *bucket = &r->layout.buckets[b];

        for (size_t p = bucket->first_part; p < bucket->first_part + bucket->n_parts; p++)
            r->part_of[r->layout.parts[p].slot * n_ranks + (size_t)bucket->tp_rank] = p;
    }
    return DCPK_OK;
}

/* The runs of what tensor-parallel rank t has of a slot; *n 0: it stores nothing of it. */
static struct dcpk_moved_run *runs_of(const struct repair *r, size_t slot, int64_t t, size_t *n)
{
    const size_t part = r->part_of[slot * (size_t)r->layout.replay.n_ranks + (size_t)t];

    *n = 0;
    if (part == NO_PART)
        return NULL;
    *n = r->moved.first_run[part + 1] - r->moved.first_run[part];
    return &r->moved.runs[r->moved.first_run[part]];
}

/* Counts the elements of a slot that lie elsewhere, and the lost ones. */
static void count_slot(const struct repair *r, size_t slot, int64_t *n_moved, int64_t *n_lost)
{
    const struct dcpk_replay_slot *s = &r->layout.replay.slots[slot];

    *n_moved = *n_lost = 0;
    for (int64_t t = 0; t < s->blocks->n_ranks; t++) {
        const size_t part = r->part_of[slot * (size_t)r->layout.replay.n_ranks + (size_t)t];
        size_t n;
        const struct dcpk_moved_run *run = runs_of(r, slot, t, &n);

        for (size_t i = 0; i < n; i++) {
            if (run[i].from == DCPK_MOVED_LOST)
                *n_lost += run[i].n;
            if (run[i].from != part || run[i].first != run[i].at)
                *n_moved += run[i].n;
        }
    }
}

/* ---- elements of rank 0 ---- */

/* The segments of a tensor of a slot, of what rank t has of it, or rank 0 for all. */
static dcpk_status slot_segments(struct repair *r, const struct dcpk_replay_slot *slot,
                                 const struct dcpk_model_tensor *tensor, int64_t t,
                                 struct dcpk_error *err)
{
    const struct dcpk_rank_part part = {slot->blocks, tensor,
                                        dcpk_min_i64(t, slot->blocks->n_ranks - 1)};

    if (dcpk_segments_find(&r->segments, r->model, r->rows, &part, err))
        dcpk_context(err, "the %s of '%s'", dcpk_role_name(tensor->role),
                     r->model->params[slot->param].name);
    return err->status;
}

/* Finds the elements of the weight or the master of a slot's parameter on rank t, or on rank 0 for
 * all, from `at` on. */
static dcpk_status rank_run_of(const struct repair *r, const struct dcpk_replay_slot *slot,
                               enum dcpk_role role, int64_t t, struct dcpk_rank_run *run,
                               struct dcpk_error *err)
{
    const uint32_t found = r->model->params[slot->param].tensor[role];

    if (found == DCPK_NO_TENSOR)
        return dcpk_fail(err, DCPK_EFORMAT, "'%s' has no %s", r->model->params[slot->param].name,
                         dcpk_role_name(role));
    run->part = (struct dcpk_rank_part){slot->blocks, &r->stored[found],
                                        dcpk_min_i64(t, slot->blocks->n_ranks - 1)};
    return DCPK_OK;
}

/*
 * Rank t's elements would lie under the key of a parameter that all ranks have, where only those of
 * rank 0 are stored. Ranks may have computed the same: the masters show it, of so many elements
 * that chance does not. Else they are lost.
 */
static dcpk_status settle_run(struct repair *r, const struct dcpk_replay_slot *slot, int64_t t,
                              struct dcpk_moved_run *run, struct dcpk_error *err)
{
    struct dcpk_rank_run runs[2] = {{.at = run->at}, {.at = run->first}};
    bool agree = false;

    if (!run->is_of_rank_0)
        return DCPK_OK;
    if (run->n >= DCPK_MIN_AGREEING &&
        (rank_run_of(r, slot, DCPK_WEIGHT, t, &runs[0], err) ||
         rank_run_of(r, &r->layout.replay.slots[r->layout.parts[run->from].slot], DCPK_MASTER, 0,
                     &runs[1], err) ||
         dcpk_rank_runs_agree(r->model, r->rows, runs, run->n, &agree, err)))
        return err->status;
    if (!agree)
        run->from = DCPK_MOVED_LOST;
    return DCPK_OK;
}

static dcpk_status settle_all(struct repair *r, struct dcpk_error *err)
{
    for (size_t s = 0; s < r->layout.replay.n_slots; s++) {
        const struct dcpk_replay_slot *slot = &r->layout.replay.slots[s];

        for (int64_t t = 0; t < slot->blocks->n_ranks && !slot->is_copy; t++) {
            size_t n;
            struct dcpk_moved_run *runs = runs_of(r, s, t, &n);

            for (size_t i = 0; i < n; i++)
                if (settle_run(r, slot, t, &runs[i], err))
                    return err->status;
        }
    }
    return DCPK_OK;
}

/* ---- pieces ---- */

static dcpk_status mending_add(struct mending *m, const struct dcpk_piece *piece,
                               struct dcpk_error *err)
{
    if (dcpk_grow(&m->pieces, &m->capacity, m->n_pieces, sizeof *m->pieces, err))
        return err->status;
    m->pieces[m->n_pieces++] = *piece;
    return DCPK_OK;
}

/* A box that a view or the constant holds at the same place. */
static dcpk_status add_same(struct mending *m, uint32_t src, const struct dcpk_box *box,
                            struct dcpk_error *err)
{
    const struct dcpk_box *from = src == DCPK_PIECE_FILL ? NULL : box;
    struct dcpk_piece piece;

    if (dcpk_piece_make(m->r->model->arena, src, from, box, &piece, err))
        return err->status;
    return mending_add(m, &piece, err);
}

/* A box of masters that are lost: the weights. */
static dcpk_status add_weights(struct mending *m, const struct dcpk_box *box,
                               struct dcpk_error *err)
{
    const struct dcpk_model *model = m->r->model;
    const struct dcpk_model_tensor *weight =
        &model->tensors[model->params[m->slot->param].tensor[DCPK_WEIGHT]];

    for (size_t i = 0; i < weight->n_pieces; i++) {
        struct dcpk_box from, to;
        struct dcpk_piece piece;

        if (!dcpk_piece_clip(&weight->pieces[i], box, &from, &to))
            continue;
        if (dcpk_piece_like(model->arena, &weight->pieces[i], &from, &to, &piece, err) ||
            mending_add(m, &piece, err))
            return err->status;
    }
    return DCPK_OK;
}

static dcpk_status padding_add_lost(struct mending *m, const struct dcpk_box *box,
                                    struct dcpk_error *err)
{
    if (m->tensor->role == DCPK_MASTER)
        return add_weights(m, box, err);
    return add_same(m, m->tensor->role == DCPK_EXP_AVG_SQ ? m->constant : DCPK_PIECE_FILL, box,
                    err);
}

/* Adds a repaired run of rank t's part of the parameter, box by box. */
static dcpk_status add_boxes(struct mending *m, int64_t t, const struct dcpk_moved_run *run,
                             struct dcpk_error *err)
{
    const struct dcpk_rank_part part = {m->slot->blocks, m->tensor, t};
    int64_t at = run->at, n = run->n;

    while (n > 0) {
        struct dcpk_rank_block block;
        struct dcpk_box box;
        int64_t taken;

        if (dcpk_rank_block_find(&part, at, &block, err))
            return err->status;
        taken = dcpk_box_take_run(&block.box, at - block.first,
                                  dcpk_min_i64(n, block.first + block.n - at), &box);
        if (run->from == DCPK_MOVED_LOST)
            (void)padding_add_lost(m, &box, err);
        else
            (void)add_same(m, m->view, &box, err);
        if (err->status != DCPK_OK)
            return err->status;
        at += taken;
        n -= taken;
    }
    return DCPK_OK;
}

/* ---- views ---- */

/* Elements of rank t's part, from `at` on, are those of a chunk: block by block into the view. */
static dcpk_status add_chunk_run(struct mending *m, int64_t t, int64_t at, int64_t n,
                                 struct dcpk_chunk_run from, struct dcpk_error *err)
{
    const struct dcpk_rank_part part = {m->slot->blocks, m->tensor, t};

    while (n > 0) {
        struct dcpk_rank_block block;
        int64_t here;

        if (dcpk_rank_block_find(&part, at, &block, err))
            return err->status;
        here = dcpk_min_i64(n, block.first + block.n - at);
        if (dcpk_checkpoint_add_run(m->r->model->ckpt, &block.box, at - block.first, here, from,
                                    err))
            return err->status;
        at += here;
        n -= here;
        from.first += here;
    }
    return DCPK_OK;
}

/* The same state of the parameter that a part is of. Its pieces are those that were stored. */
static const struct dcpk_model_tensor *padding_state_of(const struct mending *m, size_t part)
{
    const struct repair *r = m->r;
    const uint32_t param = r->layout.replay.slots[r->layout.parts[part].slot].param;
    const uint32_t found = dcpk_model_find(r->model, param, m->tensor->role, m->tensor->state);

    return found == DCPK_NO_TENSOR ? NULL : &r->stored[found];
}

/* The stored runs of what a run is made of, into r->segments. */
static dcpk_status find_segments(struct mending *m, int64_t t, const struct dcpk_moved_run *run,
                                 struct dcpk_error *err)
{
    struct repair *r = m->r;
    const struct dcpk_replay_slot *slot = &r->layout.replay.slots[r->layout.parts[run->from].slot];
    const struct dcpk_model_tensor *state = padding_state_of(m, run->from);

    if (state == NULL)
        return dcpk_fail(err, DCPK_EFORMAT, "'%s' lacks a state that others have",
                         r->model->params[slot->param].name);
    return slot_segments(r, slot, state, t, err);
}

/* A run into the view that is added last. */
static dcpk_status mending_add_run(struct mending *m, int64_t t, const struct dcpk_moved_run *run,
                                   struct dcpk_error *err)
{
    const struct dcpk_segments *segments = &m->r->segments;

    if (run->from == DCPK_MOVED_LOST)
        return DCPK_OK;
    if (find_segments(m, t, run, err))
        return err->status;
    for (size_t i = 0; i < segments->n; i++) {
        const struct dcpk_segment *s = &segments->list[i];
        const int64_t first = dcpk_max_i64(s->at, run->first);
        const int64_t end = dcpk_min_i64(s->at + s->n, run->first + run->n);
        const struct dcpk_chunk_run from = {s->chunk, s->first + (first - s->at)};

        if (first < end &&
            add_chunk_run(m, t, run->at + (first - run->first), end - first, from, err))
            return err->status;
    }
    return DCPK_OK;
}

/* ---- the mean ---- */

/* The sum of n float32 of a file. */
static dcpk_status padding_add_up(const struct dcpk_extent *where, int64_t n, float *buffer,
                                  double *sum, struct dcpk_error *err)
{
    uint64_t at = where->first_bytes;

    while (n > 0) {
        const int64_t here = dcpk_min_i64(n, MEAN_BUFFER_ELEMS);

        if (dcpk_source_read(where->source, at, buffer, (size_t)here * sizeof *buffer, err))
            return err->status;
        for (int64_t i = 0; i < here; i++)
            *sum += (double)buffer[i];
        at += (uint64_t)here * sizeof *buffer;
        n -= here;
    }
    return DCPK_OK;
}

/* The mean of what the view has; 0 where that is nothing. buffer: MEAN_BUFFER_ELEMS of them. */
static dcpk_status view_mean(struct dcpk_checkpoint *ckpt, uint32_t view, float *buffer,
                             float *mean, struct dcpk_error *err)
{
    const struct dcpk_tensor *tensor = &ckpt->tensors[view];
    int64_t n_all = 0;
    double sum = 0;

    if (tensor->dtype != DCPK_F32)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "'%s' is %s, not float32", tensor->key,
                         dcpk_dtype_name(tensor->dtype));
    for (size_t c = tensor->first_chunk; c < tensor->first_chunk + tensor->n_chunks; c++) {
        struct dcpk_extent where = {0};
        struct dcpk_box box;
        int64_t n;

        dcpk_box_unpack(ckpt->chunks[c].span, tensor->rank, &box);
        if (dcpk_box_count(&box, &n, err) ||
            dcpk_checkpoint_locate(ckpt, &ckpt->chunks[c], NULL, &where, err))
            return err->status;
        if (where.decoded_bytes > 0)
            return dcpk_fail(err, DCPK_EUNSUPPORTED, "'%s' is stored compressed", tensor->key);
        if (!where.is_zero && padding_add_up(&where, n, buffer, &sum, err))
            return err->status;
        n_all += n;
    }
    *mean = n_all == 0 ? 0 : (float)(sum / (double)n_all);
    return DCPK_OK;
}

/* A tensor of the mean of the view that is added last, in its shape. */
static dcpk_status add_constant(struct mending *m, struct dcpk_error *err)
{
    struct dcpk_checkpoint *ckpt = m->r->model->ckpt;
    struct dcpk_computed how = {.values = DCPK_NO_VALUES, .scales = DCPK_NO_SCALES};
    float *buffer = dcpk_alloc_array(MEAN_BUFFER_ELEMS, sizeof *buffer, err);
    struct dcpk_tensor mean = ckpt->tensors[m->view];

    if (buffer == NULL)
        return err->status;
    (void)view_mean(ckpt, m->view, buffer, &how.addend, err);
    dcpk_free(buffer);
    if (err->status != DCPK_OK)
        return err->status;
    return dcpk_checkpoint_add_computed(ckpt, &mean, &how, &m->constant, err);
}

/* ---- states ---- */

static dcpk_status add_state_view(struct mending *m, struct dcpk_error *err)
{
    struct dcpk_checkpoint *ckpt = m->r->model->ckpt;
    const struct dcpk_model_tensor *t = m->tensor;
    const int64_t *shape =
        dcpk_arena_copy(ckpt->arena, t->shape, (size_t)t->rank, sizeof *shape, err);
    struct dcpk_tensor view = {.dtype = t->dtype, .rank = t->rank, .shape = shape};

    view.key = dcpk_arena_printf(ckpt->arena, err, "%s of %s, repaired", dcpk_role_name(t->role),
                                 m->r->model->params[t->param].name);
    if (view.key == NULL || shape == NULL)
        return err->status;
    return dcpk_checkpoint_add_view(ckpt, &view, &m->view, err);
}

/* Calls a function for every run of the slot. */
static dcpk_status each_run(struct mending *m,
                            dcpk_status (*take)(struct mending *m, int64_t t,
                                                const struct dcpk_moved_run *run,
                                                struct dcpk_error *err),
                            struct dcpk_error *err)
{
    const size_t slot = (size_t)(m->slot - m->r->layout.replay.slots);

    for (int64_t t = 0; t < m->slot->blocks->n_ranks; t++) {
        size_t n;
        const struct dcpk_moved_run *runs = runs_of(m->r, slot, t, &n);

        for (size_t i = 0; i < n; i++)
            if (take(m, t, &runs[i], err))
                return err->status;
    }
    return DCPK_OK;
}

static dcpk_status keep_pieces(struct mending *m, struct dcpk_error *err)
{
    struct dcpk_piece *kept =
        dcpk_arena_copy(m->r->model->arena, m->pieces, m->n_pieces, sizeof *kept, err);

    if (kept == NULL)
        return err->status;
    m->tensor->pieces = kept;
    m->tensor->n_pieces = m->n_pieces;
    return DCPK_OK;
}

static dcpk_status mend_state(struct repair *r, const struct dcpk_replay_slot *slot,
                              uint32_t tensor, int64_t n_lost, struct dcpk_error *err)
{
    struct mending m = {.r = r, .slot = slot, .tensor = &r->model->tensors[tensor]};

    if (add_state_view(&m, err) == DCPK_OK)
        (void)each_run(&m, mending_add_run, err);
    if (err->status == DCPK_OK && n_lost > 0 && m.tensor->role == DCPK_EXP_AVG_SQ)
        (void)add_constant(&m, err);
    if (err->status == DCPK_OK && each_run(&m, add_boxes, err) == DCPK_OK)
        (void)keep_pieces(&m, err);
    dcpk_free(m.pieces);
    return err->status;
}

static dcpk_status mend_slot(struct repair *r, const struct dcpk_replay_slot *slot, int64_t n_lost,
                             struct dcpk_error *err)
{
    static const enum dcpk_role roles[] = {DCPK_MASTER, DCPK_EXP_AVG, DCPK_EXP_AVG_SQ};
    const struct dcpk_param *param = &r->model->params[slot->param];

    for (size_t i = 0; i < DCPK_COUNT(roles); i++)
        if (param->tensor[roles[i]] != DCPK_NO_TENSOR &&
            mend_state(r, slot, param->tensor[roles[i]], n_lost, err))
            return err->status;
    for (uint32_t t = param->tensor[DCPK_STATE]; t != DCPK_NO_TENSOR;
         t = r->model->tensors[t].next_state)
        if (mend_state(r, slot, t, n_lost, err))
            return err->status;
    return DCPK_OK;
}

static dcpk_status mend_all(struct repair *r, struct dcpk_error *err)
{
    const struct dcpk_replay *replay = &r->layout.replay;

    for (size_t s = 0; s < replay->n_slots; s++) {
        const struct dcpk_param *param = &r->model->params[replay->slots[s].param];
        struct dcpk_lost *lost = &r->repaired->lost[r->repaired->n];
        int64_t n_moved;

        if (replay->slots[s].is_copy)
            continue;
        *lost = (struct dcpk_lost){.name = param->name};
        count_slot(r, s, &n_moved, &lost->n_lost);
        r->repaired->n_moved += (uint64_t)n_moved;
        r->repaired->n_lost += (uint64_t)lost->n_lost;
        if (n_moved == 0)
            continue;
        if (dcpk_shape_count(r->model->tensors[param->tensor[DCPK_WEIGHT]].shape,
                             r->model->tensors[param->tensor[DCPK_WEIGHT]].rank, &lost->n_elems,
                             err) ||
            mend_slot(r, &replay->slots[s], lost->n_lost, err))
            return err->status;
        r->repaired->n += lost->n_lost > 0;
    }
    return DCPK_OK;
}

/* Every stored state is in the view, though perhaps none of its elements is under its own name. */
static void carry_states(struct dcpk_model *model)
{
    for (size_t t = 0; t < model->ckpt->n_tensors; t++) {
        struct dcpk_megatron_key key;

        if (dcpk_megatron_split_key(model->ckpt->tensors[t].key, &key))
            dcpk_model_carry(model, model->ckpt->tensors[t].key);
    }
}

static dcpk_status keep_repaired(struct repair *r, struct dcpk_error *err)
{
    struct dcpk_model *model = r->model;

    r->repaired = dcpk_arena_alloc(model->arena, sizeof *r->repaired, err);
    r->stored = dcpk_alloc_array(model->n_tensors, sizeof *r->stored, err);
    if (r->repaired == NULL || r->stored == NULL)
        return err->status;
    memcpy(r->stored, model->tensors, model->n_tensors * sizeof *r->stored);
    *r->repaired = (struct dcpk_repaired){.n = 0};
    r->repaired->lost = dcpk_arena_array(model->arena, r->layout.replay.n_slots + 1,
                                         sizeof *r->repaired->lost, err);
    return err->status;
}

static dcpk_status repair(struct repair *r, struct dcpk_error *err)
{
    struct dcpk_model *model = r->model;

    if (padding_lay_out(r, err) || padding_find_parts(r, err) || keep_repaired(r, err) ||
        dcpk_chunk_rows_new(model->ckpt, &r->rows, err) || settle_all(r, err) || mend_all(r, err))
        return err->status;
    if (r->repaired->n_moved == 0)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "by its args no padded DDP bucket of the run is before another bucket: "
                         "nothing was moved");
    carry_states(model);
    model->repaired = r->repaired;
    return DCPK_OK;
}

dcpk_status dcpk_megatron_repair_padding(struct dcpk_model *model, struct dcpk_error *err)
{
    struct repair r = {.model = model};

    if (strcmp(model->optimizer_layout, "fully_reshardable") != 0)
        dcpk_fail(err, DCPK_EUSAGE, "the optimizer's state is %s, which the fault did not touch",
                  model->optimizer_layout);
    else
        (void)repair(&r, err);
    dcpk_chunk_rows_free(r.rows);
    dcpk_free(r.stored);
    dcpk_free(r.segments.list);
    if (err->status != DCPK_OK)
        dcpk_context(err, "undoing the padding of DDP buckets");
    return err->status;
}
