/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_flatten.c - boxes of tensors as runs of a flattened one, cut where their elements cease
 * to follow each other; blocks of a tensor as rows of elements, one after the other. */
/*
 *   shape (4, 6), two blocks of (2, 6)      flattened (2, 1, 12)
 *
 *     a b c d e f                           block (0, 0):  a b c d e f g h i j k l
 *     g h i j k l
 *     m n o p q r                           block (1, 0):  m n o p q r s t u v w x
 *     s t u v w x
 */
#include "formats/megatron/megatron_flatten.h"

#include <assert.h>
#include <string.h>

#include "lib/base/alloc.h"

dcpk_status dcpk_flat_pieces_add(struct dcpk_flat_pieces *pieces, uint32_t src,
                                 const struct dcpk_box *from, const struct dcpk_box *at, int64_t n,
                                 struct dcpk_error *err)
{
    struct dcpk_box to = *at;

    if (n == 0)
        return DCPK_OK;
    for (int a = 0; a < to.rank; a++)
        to.extent[a] = 1;
    to.extent[to.rank - 1] = n;
    if (dcpk_grow(&pieces->list, &pieces->capacity, pieces->n, sizeof *pieces->list, err) ||
        dcpk_piece_make(pieces->arena, src, from, &to, &pieces->list[pieces->n], err))
        return err->status;
    pieces->n++;
    return DCPK_OK;
}

/* The axis from which on `part` holds all of `box`: its elements follow each other there for one
 * index of the axes before it. */
static int whole_from(const struct dcpk_box *box, const struct dcpk_box *part)
{
    int axis = box->rank;

    while (axis > 1 && part->extent[axis - 1] == box->extent[axis - 1])
        axis--;
    return axis - 1;
}

dcpk_status dcpk_flat_pieces_add_part(struct dcpk_flat_pieces *pieces,
                                      const struct dcpk_piece *piece, const struct dcpk_box *box,
                                      const struct dcpk_box *at, struct dcpk_error *err)
{
    const bool is_fill = piece->src == DCPK_PIECE_FILL;
    struct dcpk_box from = {0}, to, bounds, run, place = *at;
    int n_outer;

    assert(piece->axes == 0);
    if (!dcpk_piece_clip(piece, box, &from, &bounds))
        return DCPK_OK;
    n_outer = whole_from(box, &bounds);
    run = bounds;
    for (int a = 0; a < n_outer; a++)
        run.extent[a] = 1;
    do {
        const int64_t n = (int64_t)dcpk_box_elems(&run);

        (void)dcpk_piece_clip(piece, &run, &from, &to);
        place.offset[place.rank - 1] = at->offset[at->rank - 1] + dcpk_box_flat_offset(box, &run);
        if (dcpk_flat_pieces_add(pieces, piece->src, is_fill ? NULL : &from, &place, n, err))
            return err->status;
    } while (dcpk_box_next(run.offset, &bounds, n_outer));
    return DCPK_OK;
}

dcpk_status dcpk_flat_pieces_keep(const struct dcpk_flat_pieces *pieces,
                                  struct dcpk_out_tensor *tensor, struct dcpk_error *err)
{
    tensor->pieces =
        dcpk_arena_copy(pieces->arena, pieces->list, pieces->n, sizeof *pieces->list, err);
    tensor->n_pieces = pieces->n;
    return dcpk_made(tensor->pieces, err);
}

void dcpk_flat_pieces_release(struct dcpk_flat_pieces *pieces)
{
    dcpk_free(pieces->list);
    pieces->list = NULL;
    pieces->n = pieces->capacity = 0;
}

/* The blocks of a tensor, and those of them that a piece lands in. */
struct blocks {
    int rank;
    int64_t extent[DCPK_MAX_RANK]; /* of each */
    struct dcpk_box numbers;       /* left to visit: block numbers as indices */
    int64_t number[DCPK_MAX_RANK]; /* the block at hand */
};

static void blocks_of_piece(struct blocks *b, const struct dcpk_piece *piece)
{
    struct dcpk_box to;

    dcpk_piece_to(piece, &to);
    b->numbers.rank = b->rank;
    for (int a = 0; a < b->rank; a++) {
        const int64_t end = to.offset[a] + to.extent[a];

        b->number[a] = b->numbers.offset[a] = to.offset[a] / b->extent[a];
        b->numbers.extent[a] = (end - 1) / b->extent[a] + 1 - b->number[a];
    }
}

static dcpk_status flatten_piece(struct blocks *b, const struct dcpk_piece *piece,
                                 struct dcpk_flat_pieces *pieces, struct dcpk_error *err)
{
    struct dcpk_box block = {.rank = b->rank}, at = {.rank = b->rank + 1};

    blocks_of_piece(b, piece);
    do {
        for (int a = 0; a < b->rank; a++) {
            block.offset[a] = b->number[a] * b->extent[a];
            block.extent[a] = b->extent[a];
            at.offset[a] = b->number[a];
        }
        if (dcpk_flat_pieces_add_part(pieces, piece, &block, &at, err))
            return err->status;
    } while (dcpk_box_next(b->number, &b->numbers, b->rank));
    return DCPK_OK;
}

/* A block is a chunk: (number, 0) of sizes (1, .., 1, elements). */
static dcpk_status flatten_spans(struct dcpk_arena *arena, const struct blocks *b,
                                 struct dcpk_out_tensor *tensor, int64_t n_elems,
                                 struct dcpk_error *err)
{
    const int rank = b->rank + 1;
    const int64_t **spans = dcpk_arena_array(arena, tensor->n_spans, sizeof *spans, err);

    if (spans == NULL)
        return err->status;
    for (size_t i = 0; i < tensor->n_spans; i++) {
        int64_t *span = dcpk_arena_array(arena, 2 * (size_t)rank, sizeof *span, err);

        if (span == NULL)
            return err->status;
        for (int a = 0; a < b->rank; a++) {
            assert(tensor->spans[i][b->rank + a] == b->extent[a]);
            span[a] = tensor->spans[i][a] / b->extent[a];
            span[rank + a] = 1;
        }
        span[2 * rank - 1] = n_elems;
        spans[i] = span;
    }
    tensor->spans = spans;
    return DCPK_OK;
}

/* (blocks of each axis.., elements of a block) */
static dcpk_status flatten_shape(struct dcpk_arena *arena, const struct blocks *b,
                                 struct dcpk_out_tensor *tensor, int64_t n_elems,
                                 struct dcpk_error *err)
{
    int64_t *shape = dcpk_arena_array(arena, (size_t)b->rank + 1, sizeof *shape, err);

    if (shape == NULL)
        return err->status;
    for (int a = 0; a < b->rank; a++)
        shape[a] = tensor->shape[a] / b->extent[a];
    shape[b->rank] = n_elems;
    tensor->model_shape = tensor->shape;
    tensor->model_rank = tensor->rank;
    tensor->shape = shape;
    tensor->rank = b->rank + 1;
    return DCPK_OK;
}

dcpk_status dcpk_megatron_flatten(struct dcpk_arena *arena, struct dcpk_out_tensor *tensor,
                                  struct dcpk_error *err)
{
    struct dcpk_flat_pieces pieces = {.arena = arena};
    struct blocks b = {.rank = tensor->rank};
    int64_t n_elems;

    if (tensor->rank >= DCPK_MAX_RANK)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "'%s' would have %d axes when it is flattened",
                         tensor->keys[0], tensor->rank + 1);
    assert(tensor->n_spans > 0);
    memcpy(b.extent, tensor->spans[0] + b.rank, (size_t)b.rank * sizeof *b.extent);
    n_elems = (int64_t)dcpk_count_elems(b.extent, b.rank);
    if (n_elems == 0)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "'%s' without elements cannot be flattened",
                         tensor->keys[0]);
    for (size_t i = 0; i < tensor->n_pieces && err->status == DCPK_OK; i++)
        (void)flatten_piece(&b, &tensor->pieces[i], &pieces, err);
    if (err->status == DCPK_OK && dcpk_flat_pieces_keep(&pieces, tensor, err) == DCPK_OK &&
        flatten_spans(arena, &b, tensor, n_elems, err) == DCPK_OK)
        (void)flatten_shape(arena, &b, tensor, n_elems, err);
    dcpk_flat_pieces_release(&pieces);
    return err->status;
}
