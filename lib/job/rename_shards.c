/* SPDX-License-Identifier: Apache-2.0 */
/* rename_shards.c - a box under one name -> boxes of stored tensors -> boxes under other names. */
#include "lib/job/rename_shards.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/map.h"
#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/job/feed_views_priv.h"

#define MAX_NAME 1024 /* bytes; longer ones have no prefix that goes */

/* A piece of a view, by the stored tensor that it takes from. */
struct taking {
    uint32_t src, view, piece;
};

struct renamer {
    const struct dcpk_feed_views *source; /* that `from` is of */
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

    return DCPK_ORDER_BY_3(x, y, src, view, piece);
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

    for (size_t i; dcpk_bisect(low, high, &i);)
        if (r->takings[i].src < src)
            low = i + 1;
        else
            high = i;
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
    size_t first;

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
    first = find_takings(r, piece->src);
    for (size_t i = first; i < r->n_takings && r->takings[i].src == piece->src; i++)
        if (taking_add(r, &r->takings[i], &stored, shard, err))
            return err->status;
    if (r->made->are_targets && (first == r->n_takings || r->takings[first].src != piece->src))
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "'%.200s' is computed from what is stored: only a conversion does that",
                         view->name);
    return DCPK_OK;
}

/*
 * The name that views have: of Megatron's modules without wrappers, "1.module.module.decoder" is
 * "1.decoder", and "0." goes where there is one chunk. key: of MAX_NAME bytes, may be used.
 */
static const char *find_name(const struct dcpk_feed_views *views, const char *name, char *key)
{
    static const char wrapper[] = "module.";
    size_t n_chunk = strspn(name, "0123456789");
    const char *rest = name;

    if (views->n_chunks == 0 || strlen(name) >= MAX_NAME)
        return name;
    n_chunk = n_chunk > 0 && name[n_chunk] == '.' ? n_chunk + 1 : 0;
    for (rest += n_chunk; dcpk_starts_with(rest, wrapper); rest += strlen(wrapper))
        continue;
    if (views->n_chunks == 1 && n_chunk == 2 && name[0] == '0')
        return rest;
    memcpy(key, name, n_chunk);
    memcpy(key + n_chunk, rest, strlen(rest) + 1);
    return key;
}

/*
 * A shard of a tensor whose lines take turns, with the axis of 2 that the view has for them: lines
 * [2a, 2b) are [a, b) of either kind, and each is two strides from the next.
 */
static dcpk_status shard_pair(struct renamer *r, const struct dcpk_remap_view *view,
                              const struct dcpk_out_tensor *of, struct dcpk_shard *shard,
                              struct dcpk_error *err)
{
    const size_t rank = (size_t)view->view.rank, old = rank - 1;
    int64_t *numbers = dcpk_arena_array(r->made->arena, 3 * rank, sizeof *numbers, err);
    size_t pair = 0;

    if (numbers == NULL)
        return err->status;
    while (pair < old - 1 && of->written_shape[pair] == view->view.shape[pair])
        pair++;
    if (shard->span[pair] % 2 != 0 || shard->span[old + pair] % 2 != 0)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "'%.200s': its lines take turns on axis %zu, where a box must begin and "
                         "end with an even one",
                         view->name, pair);
    for (size_t a = 0; a < rank; a++) {
        const size_t from = a - (a > pair);
        const int64_t by = 1 + (a == pair);

        numbers[a] = shard->span[from] / by;
        numbers[rank + a] = shard->span[old + from] / by;
        numbers[2 * rank + a] = shard->stride_bytes[from] * by;
    }
    numbers[pair + 1] = 0;
    numbers[rank + pair + 1] = 2;
    shard->rank = view->view.rank;
    shard->shape = view->view.shape;
    shard->span = numbers;
    shard->stride_bytes = numbers + 2 * rank;
    return DCPK_OK;
}

/* Zeros of a target, whose source is for the caller to make. */
static dcpk_status zeros_add(struct renamer *r, const struct dcpk_shard *shard,
                             struct dcpk_error *err)
{
    struct dcpk_renamed *made = r->made;

    if (dcpk_grow(&made->zeros, &made->zeros_capacity, made->n_zeros, sizeof *shard, err))
        return err->status;
    made->zeros[made->n_zeros] = *shard;
    made->zeros[made->n_zeros++].name =
        dcpk_arena_printf(made->arena, err, "%s, zeros", shard->name);
    return err->status;
}

static const char *side_name(const struct renamer *r)
{
    return r->made->are_targets ? "target" : "source";
}

static const char *of_rank(const struct renamer *r)
{
    return r->source->is_of_rank ? " on this rank" : "";
}

/* Makes the shard one of the view, or finds that it is of another shape. */
static dcpk_status shard_fit(struct renamer *r, size_t found, struct dcpk_shard *shard,
                             struct dcpk_error *err)
{
    const struct dcpk_remap_view *view = &r->from[found];
    const struct dcpk_out_tensor *of = r->source->of == NULL ? NULL : r->source->of[found];
    const int64_t *shape = view->view.shape;
    int rank = view->view.rank;
    char listed[256], wanted[256];

    if (of != NULL && of->written_shape != NULL) {
        shape = of->written_shape;
        rank = of->written_rank;
    }
    if (!dcpk_shape_equal(shard->shape, shard->rank, shape, rank))
        return dcpk_fail(
            err, DCPK_EMISMATCH,
            "the %s '%.200s' belongs to a tensor %s, but by the checkpoint that is %s%s",
            side_name(r), shard->name,
            dcpk_shape_format(shard->shape, shard->rank, listed, sizeof listed),
            dcpk_shape_format(shape, rank, wanted, sizeof wanted), of_rank(r));
    if (shape != view->view.shape)
        return shard_pair(r, view, of, shard, err);
    return DCPK_OK;
}

static dcpk_status shard_rename(struct renamer *r, const struct dcpk_shard *listed,
                                struct dcpk_error *err)
{
    struct dcpk_shard shard = *listed;
    const struct dcpk_remap_view *view;
    const char *name;
    char key[MAX_NAME];
    uint64_t found;

    name = find_name(r->source, shard.name, key);
    if (!dcpk_map_get(&r->names, name, strlen(name), &found))
        return dcpk_fail(err, DCPK_EMISMATCH,
                         "the %s '%.200s': the checkpoint has no tensor of that name%s",
                         side_name(r), shard.name, of_rank(r));
    view = &r->from[found];
    if (shard_fit(r, found, &shard, err))
        return err->status;
    if (dcpk_shard_is_empty(&shard))
        return DCPK_OK;
    if (r->source->writes_zeros && r->made->are_targets && view->view.n_pieces == 1 &&
        view->view.pieces[0].src == DCPK_PIECE_FILL)
        return zeros_add(r, &shard, err);
    for (size_t p = 0; p < view->view.n_pieces; p++)
        if (piece_rename(r, view, &view->view.pieces[p], &shard, err))
            return err->status;
    return DCPK_OK;
}

dcpk_status dcpk_rename_shards(const struct dcpk_feed_views *from, const struct dcpk_feed_views *to,
                               const struct dcpk_shard *shards, size_t n, struct dcpk_renamed *made,
                               struct dcpk_error *err)
{
    struct renamer r = {.source = from, .made = made};
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
