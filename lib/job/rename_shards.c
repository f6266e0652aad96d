/* SPDX-License-Identifier: Apache-2.0 */
/* rename_shards.c - a box under one name -> boxes of stored tensors -> boxes under other names. */
#include "lib/job/rename_shards.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/map.h"
#include "lib/tensor/strided.h"

/* A piece of a view, by the stored tensor that it takes from. */
struct taking {
    uint32_t src, view, piece;
};

struct renamer {
    const struct dcpk_remap_view *from, *to;
    size_t n_from, n_to;
    struct dcpk_map names;  /* of from */
    struct taking *takings; /* of to, sorted; owned */
    size_t n_takings;
    struct dcpk_renamed *made;
};

/* A box of a stored tensor, in the memory of a shard. */
struct stored_box {
    uint32_t src;
    struct dcpk_box box;
    uint64_t at; /* of its first element */
    int64_t stride_bytes[DCPK_MAX_RANK];
};

static int compare_takings(const void *a, const void *b)
{
    const struct taking *x = a, *y = b;

    if (x->src != y->src)
        return x->src < y->src ? -1 : 1;
    if (x->view != y->view)
        return x->view < y->view ? -1 : 1;
    return x->piece < y->piece ? -1 : x->piece > y->piece;
}

static dcpk_status renamer_index(struct renamer *r, struct dcpk_error *err)
{
    size_t n = 0;

    for (size_t v = 0; v < r->n_from; v++) {
        uint64_t found;
        bool existed;

        if (dcpk_map_put(&r->names, r->from[v].name, strlen(r->from[v].name), v, &existed, &found,
                         err))
            return err->status;
    }
    for (size_t v = 0; v < r->n_to; v++)
        n += r->to[v].view.n_pieces;
    r->takings = dcpk_alloc_array(n, sizeof *r->takings, err);
    if (r->takings == NULL)
        return err->status;
    for (uint32_t v = 0; v < r->n_to; v++)
        for (uint32_t p = 0; p < r->to[v].view.n_pieces; p++)
            if (r->to[v].view.pieces[p].src != DCPK_PIECE_FILL)
                r->takings[r->n_takings++] = (struct taking){r->to[v].view.pieces[p].src, v, p};
    if (r->n_takings > 0)
        qsort(r->takings, r->n_takings, sizeof *r->takings, compare_takings);
    return DCPK_OK;
}

/* Only boxes of stored elements have a place in memory. */
static dcpk_status check_piece(const struct dcpk_remap_view *view, const struct dcpk_piece *piece,
                               struct dcpk_error *err)
{
    if (view->view.blocks != NULL || view->view.gives_steps || dcpk_piece_is_flat(piece))
        return dcpk_fail(
            err, DCPK_EUNSUPPORTED,
            "'%.200s' is not made of boxes of stored elements, which memory could have",
            view->name);
    return DCPK_OK;
}

/* The part of a stored box that a piece of a view takes, as a shard. */
static dcpk_status taking_add(struct renamer *r, const struct taking *taking,
                              const struct stored_box *stored, const struct dcpk_shard *shard,
                              struct dcpk_error *err)
{
    const struct dcpk_remap_view *view = &r->to[taking->view];
    const struct dcpk_piece *piece = &view->view.pieces[taking->piece];
    const size_t rank = (size_t)view->view.rank;
    struct dcpk_shard made = *shard;
    struct dcpk_box from, to, common;
    uint8_t axis[DCPK_MAX_RANK];
    int64_t *numbers;

    if (check_piece(view, piece, err))
        return err->status;
    dcpk_piece_from(piece, &from);
    dcpk_piece_to(piece, &to);
    if (!dcpk_box_intersect(&from, &stored->box, &common))
        return DCPK_OK;
    numbers = dcpk_arena_array(r->made->arena, 3 * rank, sizeof *numbers, err);
    if (numbers == NULL ||
        dcpk_grow(&r->made->shards, &r->made->capacity, r->made->n, sizeof *r->made->shards, err))
        return err->status;
    dcpk_piece_axes(piece, axis);
    for (size_t t = 0; t < rank; t++) {
        const uint8_t f = axis[t];

        numbers[t] = to.offset[t];
        numbers[rank + t] = 1;
        if (f == DCPK_PIECE_NO_AXIS)
            continue;
        numbers[t] += common.offset[f] - from.offset[f];
        numbers[rank + t] = common.extent[f];
        numbers[2 * rank + t] = stored->stride_bytes[f];
    }
    made.at = stored->at;
    for (int f = 0; f < common.rank; f++)
        made.at += (uint64_t)((common.offset[f] - stored->box.offset[f]) * stored->stride_bytes[f]);
    made.name = view->name;
    made.rank = view->view.rank;
    made.shape = view->view.shape;
    made.span = numbers;
    made.stride_bytes = numbers + 2 * rank;
    r->made->shards[r->made->n++] = made;
    return DCPK_OK;
}

/* The first piece of `to` that takes from a stored tensor. */
static size_t find_takings(const struct renamer *r, uint32_t src)
{
    size_t low = 0, high = r->n_takings;

    while (low < high) {
        const size_t middle = low + (high - low) / 2;

        if (r->takings[middle].src < src)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The elements of a shard that a piece of its view takes from a stored tensor. */
static dcpk_status piece_rename(struct renamer *r, const struct dcpk_remap_view *view,
                                const struct dcpk_piece *piece, const struct dcpk_shard *shard,
                                struct dcpk_error *err)
{
    struct stored_box stored = {.src = piece->src};
    struct dcpk_box region, to;
    uint8_t axis[DCPK_MAX_RANK];

    dcpk_box_unpack(shard->span, shard->rank, &region);
    if (piece->src == DCPK_PIECE_FILL)
        return DCPK_OK;
    if (check_piece(view, piece, err))
        return err->status;
    if (!dcpk_piece_clip(piece, &region, &stored.box, &to))
        return DCPK_OK;
    dcpk_piece_axes(piece, axis);
    for (int t = 0; t < to.rank; t++)
        if (axis[t] != DCPK_PIECE_NO_AXIS)
            stored.stride_bytes[axis[t]] = shard->stride_bytes[t];
    stored.at = dcpk_shard_address(shard, to.offset);
    for (size_t i = find_takings(r, piece->src);
         i < r->n_takings && r->takings[i].src == piece->src; i++)
        if (taking_add(r, &r->takings[i], &stored, shard, err))
            return err->status;
    return DCPK_OK;
}

static dcpk_status shard_rename(struct renamer *r, const struct dcpk_shard *shard,
                                struct dcpk_error *err)
{
    char listed[256], stored[256];
    const struct dcpk_remap_view *view;
    uint64_t found;

    if (!dcpk_map_get(&r->names, shard->name, strlen(shard->name), &found))
        return dcpk_fail(err, DCPK_EMISMATCH,
                         "the source '%.200s': the checkpoint has no tensor of that name",
                         shard->name);
    view = &r->from[found];
    if (!dcpk_shape_equal(shard->shape, shard->rank, view->view.shape, view->view.rank))
        return dcpk_fail(
            err, DCPK_EMISMATCH,
            "the source '%.200s' is of a tensor %s, in the checkpoint it is %s", shard->name,
            dcpk_shape_format(shard->shape, shard->rank, listed, sizeof listed),
            dcpk_shape_format(view->view.shape, view->view.rank, stored, sizeof stored));
    if (dcpk_shard_is_empty(shard))
        return DCPK_OK;
    for (size_t p = 0; p < view->view.n_pieces; p++)
        if (piece_rename(r, view, &view->view.pieces[p], shard, err))
            return err->status;
    return DCPK_OK;
}

dcpk_status dcpk_rename_shards(const struct dcpk_feed_views *from, const struct dcpk_feed_views *to,
                               const struct dcpk_shard *shards, size_t n, struct dcpk_renamed *made,
                               struct dcpk_error *err)
{
    struct renamer r = {.made = made};
    dcpk_status st;

    r.from = dcpk_feed_views(from, &r.n_from);
    r.to = dcpk_feed_views(to, &r.n_to);
    st = renamer_index(&r, err);
    for (size_t i = 0; i < n && st == DCPK_OK; i++)
        st = shard_rename(&r, &shards[i], err);
    dcpk_map_release(&r.names);
    dcpk_free(r.takings);
    return st;
}
