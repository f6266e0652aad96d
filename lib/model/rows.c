/* SPDX-License-Identifier: Apache-2.0 */
/* rows.c - takes rows of a tensor out, and puts them together again. */
#include "lib/model/rows.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

dcpk_status dcpk_rows_behind(struct dcpk_arena *arena, const char *const *names,
                             const int64_t *n_rows, size_t n, struct dcpk_split *split,
                             struct dcpk_error *err)
{
    struct dcpk_stored *list;
    struct dcpk_rows *rows;
    int64_t row = 0;

    if ((list = dcpk_arena_array(arena, n, sizeof *list, err)) == NULL ||
        (rows = dcpk_arena_array(arena, n, sizeof *rows, err)) == NULL)
        return err->status;
    for (size_t i = 0; i < n; i++) {
        rows[i] = (struct dcpk_rows){row, n_rows[i]};
        list[i] = (struct dcpk_stored){names[i], &rows[i], 1};
        row += n_rows[i];
    }
    *split = (struct dcpk_split){list, n};
    return DCPK_OK;
}

/* *n_blocks: of at least one row, so that what ranks hold is never more than the rows there are. */
static dcpk_status check_ranks(const struct dcpk_split *split, int64_t tp, size_t *n_blocks,
                               struct dcpk_error *err)
{
    *n_blocks = 0;
    for (size_t i = 0; i < split->n; i++) {
        const struct dcpk_stored *part = &split->list[i];

        for (size_t b = 0; b < part->n_rows; b++) {
            if (part->rows[b].n_rows % tp != 0)
                return dcpk_fail(err, DCPK_EMISMATCH,
                                 "tp=%" PRId64 " does not divide the %" PRId64
                                 " rows of its part '%s'",
                                 tp, part->rows[b].n_rows, part->name);
            *n_blocks += part->rows[b].n_rows > 0;
        }
    }
    return DCPK_OK;
}

/* Lists the blocks that rank r holds, in the order of the split. Returns their number. */
static size_t list_held(const struct dcpk_split *split, int64_t tp, int64_t r,
                        struct dcpk_rows *rows)
{
    size_t n = 0;

    for (size_t i = 0; i < split->n; i++)
        for (size_t b = 0; b < split->list[i].n_rows; b++)
            if (split->list[i].rows[b].n_rows > 0)
                rows[n++] = dcpk_rows_of_rank(split->list[i].rows[b], tp, r);
    return n;
}

/*
 * Rows by part, then by rank, or by rank, then by part:
 *
 *     of one    z z z z x x x x        by rank    z z x x z z x x
 *     rank      0 0 1 1 0 0 1 1        rank       0 0 0 0 1 1 1 1
 */
dcpk_status dcpk_rows_by_rank(struct dcpk_arena *arena, const struct dcpk_split *split, int64_t tp,
                              struct dcpk_stored *ranked, struct dcpk_error *err)
{
    struct dcpk_rows *rows;
    size_t n_blocks, n = 0;

    if (check_ranks(split, tp, &n_blocks, err))
        return err->status;
    rows = dcpk_arena_array(arena, n_blocks * (size_t)tp, sizeof *rows, err);
    if (rows == NULL)
        return err->status;
    for (int64_t r = 0; r < tp && n_blocks > 0; r++)
        n += list_held(split, tp, r, rows + n);
    *ranked = (struct dcpk_stored){"", rows, n};
    return DCPK_OK;
}

static int64_t count_rows(const struct dcpk_stored *stored)
{
    int64_t n = 0;

    for (size_t b = 0; b < stored->n_rows; b++)
        n += stored->rows[b].n_rows;
    return n;
}

dcpk_status dcpk_rows_fit(const struct dcpk_split *split, const struct dcpk_model_tensor *tensor,
                          struct dcpk_error *err)
{
    int64_t n = 0;

    for (size_t i = 0; i < split->n; i++) {
        if (split->list[i].rows == NULL)
            return DCPK_OK;
        n += count_rows(&split->list[i]);
    }
    if (tensor->rank == 0 || tensor->shape[0] != n)
        return dcpk_fail(err, DCPK_EMISMATCH, "its %s has not the %" PRId64 " rows of its parts",
                         dcpk_role_name(tensor->role), n);
    return DCPK_OK;
}

/* A tensor under construction. */
struct moving {
    struct dcpk_arena *arena;
    bool is_joined;            /* of parts; else it is one */
    struct dcpk_piece *pieces; /* NULL: they are only counted */
    size_t n_pieces;
};

/* Rows of `tensor` become those from to_row on. */
static dcpk_status move_rows(struct moving *m, const struct dcpk_model_tensor *tensor,
                             struct dcpk_rows rows, int64_t to_row, struct dcpk_error *err)
{
    struct dcpk_box region, from, to;

    assert(tensor->rank > 0 && rows.row + rows.n_rows <= tensor->shape[0]);
    dcpk_box_whole(tensor->shape, tensor->rank, &region);
    region.offset[0] = rows.row;
    region.extent[0] = rows.n_rows;
    for (size_t i = 0; i < tensor->n_pieces; i++) {
        const struct dcpk_piece *piece = &tensor->pieces[i];

        if (!dcpk_piece_clip(piece, &region, &from, &to))
            continue;
        to.offset[0] += to_row - rows.row;
        if (m->pieces != NULL &&
            dcpk_piece_like(m->arena, piece, &from, &to, &m->pieces[m->n_pieces], err))
            return err->status;
        m->n_pieces++;
    }
    return DCPK_OK;
}

/* The rows under a name out of `whole`, or, joining, those of `part` back to where they were. */
static dcpk_status move_blocks(struct moving *m, const struct dcpk_model_tensor *tensor,
                               const struct dcpk_stored *stored, struct dcpk_error *err)
{
    int64_t row = 0; /* of the part */

    for (size_t b = 0; b < stored->n_rows; b++) {
        const struct dcpk_rows whole = stored->rows[b], part = {row, whole.n_rows};

        if (m->is_joined && move_rows(m, tensor, part, whole.row, err))
            return err->status;
        if (!m->is_joined && move_rows(m, tensor, whole, part.row, err))
            return err->status;
        row += whole.n_rows;
    }
    return DCPK_OK;
}

/* The parts' blocks, counted, or made where there is room for them. */
static dcpk_status move_parts(struct moving *m, const struct dcpk_split *split,
                              const struct dcpk_model_tensor *parts, struct dcpk_error *err)
{
    m->n_pieces = 0;
    for (size_t i = 0; i < split->n; i++)
        if (move_blocks(m, &parts[i], &split->list[i], err))
            return err->status;
    return DCPK_OK;
}

/* A tensor of the rows that the blocks move, and in all else as parts[0] is. */
static dcpk_status make_moved(struct moving *m, const struct dcpk_split *split,
                              const struct dcpk_model_tensor *parts,
                              struct dcpk_model_tensor *moved, struct dcpk_error *err)
{
    const struct dcpk_model_tensor like = parts[0];
    int64_t *shape = dcpk_arena_copy(m->arena, like.shape, (size_t)like.rank, sizeof *shape, err);

    if (shape == NULL || move_parts(m, split, parts, err))
        return err->status;
    m->pieces = dcpk_arena_array(m->arena, m->n_pieces, sizeof *m->pieces, err);
    if (m->pieces == NULL || move_parts(m, split, parts, err))
        return err->status;
    shape[0] = 0;
    for (size_t i = 0; i < split->n; i++)
        shape[0] += count_rows(&split->list[i]);
    *moved = like;
    moved->shape = shape;
    moved->pieces = m->pieces;
    moved->n_pieces = m->n_pieces;
    return DCPK_OK;
}

dcpk_status dcpk_rows_take(struct dcpk_arena *arena, const struct dcpk_model_tensor *tensor,
                           const struct dcpk_stored *stored, struct dcpk_model_tensor *taken,
                           struct dcpk_error *err)
{
    const struct dcpk_split one = {stored, 1};
    struct moving m = {.arena = arena};

    if (stored->rows != NULL)
        return make_moved(&m, &one, tensor, taken, err);
    *taken = *tensor;
    return DCPK_OK;
}

dcpk_status dcpk_rows_join(struct dcpk_arena *arena, const struct dcpk_split *split,
                           const struct dcpk_model_tensor *parts, struct dcpk_model_tensor *whole,
                           struct dcpk_error *err)
{
    struct moving m = {.arena = arena, .is_joined = true};

    if (split->list[0].rows != NULL)
        return make_moved(&m, split, parts, whole, err);
    *whole = parts[0];
    return DCPK_OK;
}

/* --- stored tensors --- */

/* Checks that stored tensors differ in their rows alone. *n_rows: of all. */
static dcpk_status check_alike(const struct dcpk_checkpoint *ckpt,
                               const struct dcpk_sources *sources, int64_t *n_rows,
                               struct dcpk_error *err)
{
    const struct dcpk_tensor *first = &ckpt->tensors[sources->tensor[0]];
    const int axis = sources->n_lead;

    *n_rows = 0;
    for (size_t i = 0; i < sources->n; i++) {
        const struct dcpk_tensor *t = &ckpt->tensors[sources->tensor[i]];
        bool same = first->rank > axis && t->rank == first->rank && t->dtype == first->dtype;

        for (int a = 0; a < first->rank && same; a++)
            same = a == axis || t->shape[a] == first->shape[a];
        if (!same || t->shape[axis] > INT64_MAX - *n_rows)
            return dcpk_fail(err, DCPK_EFORMAT,
                             "'%s' and '%s' are rows of one parameter and differ in dtype or shape",
                             first->key, t->key);
        *n_rows += t->shape[axis];
    }
    return DCPK_OK;
}

/* A piece for each stored tensor, its rows after those of the one before. */
static dcpk_status place_sources(struct dcpk_model *model, const struct dcpk_sources *sources,
                                 struct dcpk_piece *pieces, struct dcpk_error *err)
{
    const int n_lead = sources->n_lead;
    int64_t row = 0;

    for (size_t i = 0; i < sources->n; i++) {
        const struct dcpk_tensor *stored = &model->ckpt->tensors[sources->tensor[i]];
        struct dcpk_box from, to;

        dcpk_box_whole(stored->shape, stored->rank, &from);
        dcpk_box_whole(stored->shape + n_lead, stored->rank - n_lead, &to);
        for (int a = 0; a < n_lead; a++) {
            from.offset[a] = sources->at[a];
            from.extent[a] = 1;
        }
        if (to.rank > 0) {
            to.offset[0] = row;
            row += to.extent[0];
        }
        if (dcpk_piece_make(model->arena, sources->tensor[i], &from, &to, &pieces[i], err))
            return err->status;
    }
    return DCPK_OK;
}

dcpk_status dcpk_rows_read(struct dcpk_model *model, const struct dcpk_sources *sources,
                           struct dcpk_model_tensor *tensor, struct dcpk_error *err)
{
    const struct dcpk_tensor *first = &model->ckpt->tensors[sources->tensor[0]];
    const int rank = first->rank - sources->n_lead;
    struct dcpk_piece *pieces = dcpk_arena_array(model->arena, sources->n, sizeof *pieces, err);
    int64_t *shape, n_rows;

    if (pieces == NULL)
        return err->status;
    tensor->shape = first->shape + sources->n_lead;
    if (sources->n > 1) {
        shape = dcpk_arena_extend(model->arena, tensor->shape, (size_t)rank, (size_t)rank + 1,
                                  sizeof *shape, err);
        if (shape == NULL || check_alike(model->ckpt, sources, &n_rows, err))
            return err->status;
        shape[0] = n_rows;
        tensor->shape = shape;
    }
    tensor->dtype = first->dtype;
    tensor->rank = rank;
    tensor->pieces = pieces;
    tensor->n_pieces = sources->n;
    return place_sources(model, sources, pieces, err);
}
