/* SPDX-License-Identifier: Apache-2.0 */
/* remap_files_parts.c - finds the parts of the files that the targets of a team want: crosses views
 * with chunks, cuts them into parts, and deals these to its ranks by bytes. */
/*
 *   view --pieces--> boxes of stored tensors --chunk index--> chunks --slabs of a slice--> parts
 *   parts in the order of their files, the first share of bytes to the first rank, ...
 *
 * No file is looked at: places come from the metadata. Parts that share bytes (aliases, pieces that
 * interleave) have one reader.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/map.h"
#include "lib/base/order.h"
#include "lib/exec/remap_files_inside.h"
#include "lib/exec/slab.h"

/* Sources of the plan have no memory: addresses where none can be, apart from each other. */
#define SOURCE_ADDRESS (UINT64_C(1) << 63)
#define SOURCE_BYTES   32

struct parts_maker {
    struct dcpk_remap_files *files;
    size_t capacity;         /* of files->parts */
    uint32_t *first, *items; /* targets by view: items[first[v]] .. items[first[v + 1] - 1] */
    uint32_t view;
    struct dcpk_box_tree wanted; /* boxes of the view's targets */
};

/* Part of a piece that may be added. */
struct candidate {
    uint32_t piece, chunk, file;
    uint64_t order;
    size_t elem_bytes;
};

static const int64_t *target_span(const void *items, size_t i)
{
    const struct parts_maker *m = items;

    return m->files->base.targets[m->items[m->first[m->view] + i]].span;
}

static dcpk_status view_numbers(const struct dcpk_remap_files *files, struct dcpk_map *names,
                                struct dcpk_error *err)
{
    for (size_t i = 0; i < files->options.n_views; i++) {
        const char *name = files->options.views[i].name;
        uint64_t found;
        bool existed;

        if (dcpk_map_put(names, name, strlen(name), i, &existed, &found, err))
            return err->status;
        assert(!existed);
    }
    return DCPK_OK;
}

/* The view of a target, whose tensor must be the view's. */
static dcpk_status target_find_view(const struct dcpk_remap_files *files,
                                    const struct dcpk_map *names, const struct dcpk_shard *target,
                                    uint32_t *number, struct dcpk_error *err)
{
    char box_text[256], wanted[256], stored[256];
    const struct dcpk_view *view;
    struct dcpk_box box;
    uint64_t found;

    dcpk_box_unpack(target->span, target->rank, &box);
    dcpk_box_format(&box, box_text, sizeof box_text);
    if (!dcpk_map_get(names, target->name, strlen(target->name), &found))
        return dcpk_fail(err, DCPK_EMISMATCH,
                         "rank %d: '%.200s' %s: the checkpoint has no tensor of that name",
                         target->holder, target->name, box_text);
    view = &files->options.views[found].view;
    if (!dcpk_shape_equal(target->shape, target->rank, view->shape, view->rank))
        return dcpk_fail(err, DCPK_EMISMATCH,
                         "rank %d: '%.200s' %s belongs to a tensor %s, but in the checkpoint that "
                         "is %s",
                         target->holder, target->name, box_text,
                         dcpk_shape_format(target->shape, target->rank, wanted, sizeof wanted),
                         dcpk_shape_format(view->shape, view->rank, stored, sizeof stored));
    *number = (uint32_t)found;
    return DCPK_OK;
}

/* Find the view of every target, and group them by it. */
static dcpk_status group_targets(struct parts_maker *m, const struct dcpk_map *names,
                                 struct dcpk_error *err)
{
    struct dcpk_remap_files *files = m->files;
    const size_t n_views = files->options.n_views, n = files->base.n_targets;

    files->target_view = dcpk_arena_array(files->base.arena, n, sizeof *files->target_view, err);
    if (files->target_view == NULL)
        return err->status;
    for (size_t i = 0; i < n; i++) {
        if (target_find_view(files, names, &files->base.targets[i], &files->target_view[i], err))
            return err->status;
        m->first[files->target_view[i] + 2]++;
    }
    for (size_t v = 2; v < n_views + 2; v++)
        m->first[v] += m->first[v - 1];
    for (size_t i = 0; i < n; i++) /* first[v + 1] moves from the begin of v to its end */
        m->items[m->first[files->target_view[i] + 1]++] = (uint32_t)i;
    return DCPK_OK;
}

/*
 * The dtype in which a view comes into the ring: that of the stored tensors, where it is one and
 * the target's cast is the view's own; else the view's. If two casts are needed, the reader makes
 * the first, so that targets get the values of the view.
 */
static enum dcpk_dtype dtype_of_view(const struct dcpk_remap_files *files,
                                     const struct dcpk_view *view, enum dcpk_dtype wanted)
{
    enum dcpk_dtype stored = DCPK_DTYPE_NONE;

    for (size_t i = 0; i < view->n_pieces; i++) {
        const uint32_t src = view->pieces[i].src;

        if (src == DCPK_PIECE_FILL)
            continue;
        if (stored != DCPK_DTYPE_NONE && stored != files->options.ckpt->tensors[src].dtype)
            return view->dtype;
        stored = files->options.ckpt->tensors[src].dtype;
    }
    if (view->literal != NULL || stored == DCPK_DTYPE_NONE || wanted != view->dtype)
        return view->dtype;
    return stored;
}

/* Add the box `to` of the view, where a target wants some of it. */
static dcpk_status part_add(struct parts_maker *m, const struct candidate *c,
                            const struct dcpk_box *to, struct dcpk_error *err)
{
    struct dcpk_remap_files *files = m->files;
    size_t at = 0, item;
    int64_t *span;

    if (dcpk_box_elems(to) == 0 || !dcpk_box_tree_next(&m->wanted, to, &at, &item))
        return DCPK_OK;
    span = dcpk_arena_array(files->base.arena, 2 * (size_t)to->rank, sizeof *span, err);
    if (span == NULL ||
        dcpk_grow(&files->parts, &m->capacity, files->n_parts, sizeof *files->parts, err))
        return err->status;
    dcpk_box_pack(to, span);
    files->parts[files->n_parts] = (struct feed_part){.view = m->view,
                                                      .piece = c->piece,
                                                      .chunk = c->chunk,
                                                      .number = (uint32_t)files->n_parts,
                                                      .file = c->file,
                                                      .order = c->order,
                                                      .n_bytes = dcpk_box_elems(to) * c->elem_bytes,
                                                      .span = span};
    files->n_parts++;
    return DCPK_OK;
}

/* Fills and literals, in parts that fit a slice. */
static dcpk_status add_without_file(struct parts_maker *m, uint32_t piece,
                                    const struct dcpk_box *box, struct dcpk_error *err)
{
    struct dcpk_remap_files *files = m->files;
    const size_t elem_bytes = dcpk_dtype_bytes(files->dtypes[m->view]);
    struct dcpk_slabs slabs;

    if (dcpk_box_elems(box) == 0)
        return DCPK_OK;
    dcpk_slabs_cut(box, elem_bytes, files->slice_bytes, &slabs);
    for (uint64_t i = 0; i < slabs.n; i++) {
        const struct candidate c = {piece, FEED_NONE, FEED_NONE, files->n_parts, elem_bytes};
        struct dcpk_box slab;

        dcpk_slabs_box(&slabs, i, &slab);
        if (part_add(m, &c, &slab, err))
            return err->status;
    }
    return DCPK_OK;
}

/* The place of the first element of `box` in its file, if the chunk is a run of elements there. */
static uint64_t order_of(const struct dcpk_remap_files *files, const struct dcpk_chunk *chunk,
                         const struct dcpk_box *whole, const struct dcpk_box *box)
{
    const struct dcpk_checkpoint *ckpt = files->options.ckpt;
    const uint64_t elem_bytes = dcpk_dtype_bytes(ckpt->tensors[chunk->tensor].dtype);
    const struct dcpk_chunk_run *run = dcpk_checkpoint_chunk_run(ckpt, chunk);
    uint64_t before = 0;

    for (int a = 0; a < box->rank; a++)
        before =
            before * (uint64_t)whole->extent[a] + (uint64_t)(box->offset[a] - whole->offset[a]);
    if (run != NULL)
        before += (uint64_t)run->first;
    return chunk->place.offset_bytes + dcpk_min_u64(before * elem_bytes, chunk->place.n_bytes);
}

/* The parts of a chunk that land in a piece: slabs of the chunk, clipped. */
static dcpk_status add_chunk(struct parts_maker *m, uint32_t number, const struct dcpk_box *from,
                             const struct dcpk_chunk *chunk, struct dcpk_error *err)
{
    const struct dcpk_remap_files *files = m->files;
    const struct dcpk_checkpoint *ckpt = files->options.ckpt;
    const struct dcpk_piece *piece = &files->options.views[m->view].view.pieces[number];
    const struct dcpk_tensor *tensor = &ckpt->tensors[chunk->tensor];
    const size_t elem_bytes = dcpk_dtype_bytes(tensor->dtype);
    const size_t widest = dcpk_max_size(elem_bytes, dcpk_dtype_bytes(files->dtypes[m->view]));
    struct candidate c = {.piece = number,
                          .chunk = (uint32_t)(chunk - ckpt->chunks),
                          .file = chunk->place.file,
                          .elem_bytes = elem_bytes};
    struct dcpk_box whole;
    struct dcpk_slabs slabs;

    dcpk_box_unpack(chunk->span, tensor->rank, &whole);
    dcpk_slabs_cut(&whole, widest, files->slice_bytes, &slabs);
    for (uint64_t i = 0; i < slabs.n; i++) {
        struct dcpk_box box, to;

        dcpk_slabs_box(&slabs, i, &box);
        if (!dcpk_box_intersect(&box, from, &box))
            continue;
        c.order = order_of(files, chunk, &whole, &box);
        dcpk_piece_forward(piece, &box, &to);
        if (part_add(m, &c, &to, err))
            return err->status;
    }
    return DCPK_OK;
}

static dcpk_status add_piece(struct parts_maker *m, uint32_t number, struct dcpk_error *err)
{
    const struct dcpk_remap_files *files = m->files;
    const struct dcpk_piece *piece = &files->options.views[m->view].view.pieces[number];
    const struct dcpk_chunk *chunk;
    struct dcpk_box from, to;
    size_t at = 0;

    dcpk_piece_to(piece, &to);
    if (piece->src == DCPK_PIECE_FILL || piece->axes != 0 ||
        files->options.ckpt->tensors[piece->src].computed != NULL)
        return add_without_file(m, number, &to, err);
    dcpk_piece_from(piece, &from);
    while ((chunk = dcpk_chunk_index_next(files->exec->index, piece->src, &from, &at)) != NULL)
        if (add_chunk(m, number, &from, chunk, err))
            return err->status;
    return DCPK_OK;
}

static dcpk_status add_view(struct parts_maker *m, uint32_t number, struct dcpk_error *err)
{
    struct dcpk_remap_files *files = m->files;
    const struct dcpk_view *view = &files->options.views[number].view;
    dcpk_status st = DCPK_OK;
    struct dcpk_box whole;

    m->view = number;
    if (m->first[number] == m->first[number + 1])
        return DCPK_OK;
    files->dtypes[number] =
        dtype_of_view(files, view, files->base.targets[m->items[m->first[number]]].dtype);
    m->wanted = (struct dcpk_box_tree){.items = m,
                                       .span = target_span,
                                       .n = m->first[number + 1] - m->first[number],
                                       .rank = view->rank};
    if (dcpk_box_tree_build(&m->wanted, err))
        return err->status;
    dcpk_box_whole(view->shape, view->rank, &whole);
    if (view->literal != NULL)
        st = add_without_file(m, FEED_NONE, &whole, err);
    for (size_t i = 0; i < view->n_pieces && view->literal == NULL && st == DCPK_OK; i++)
        st = add_piece(m, (uint32_t)i, err);
    dcpk_box_tree_release(&m->wanted);
    return st;
}

static int compare_parts(const void *left, const void *right)
{
    const struct feed_part *a = left, *b = right;

    return DCPK_ORDER_BY_4(a, b, file, order, view, number);
}

/* Bytes of a file up to which parts were seen. */
struct front {
    uint32_t file;
    uint64_t end;
};

/* The bytes of a part that none before it has; *shares: it has some that one before it has. */
static uint64_t new_bytes(struct front *front, const struct feed_part *part, bool *shares)
{
    const uint64_t end = part->order + part->n_bytes;
    uint64_t n_bytes = part->n_bytes;

    *shares = part->file != FEED_NONE && front->file == part->file && part->order < front->end;
    if (*shares)
        n_bytes = end > front->end ? end - front->end : 0;
    if (front->file != part->file)
        *front = (struct front){part->file, 0};
    front->end = dcpk_max_u64(front->end, end);
    return n_bytes;
}

/* True if it belongs to the same encoded chunk as the part before it. One rank decodes it. */
static bool is_of_same_code(const struct dcpk_remap_files *files, const struct feed_part *before,
                            const struct feed_part *part)
{
    const struct dcpk_checkpoint *ckpt = files->options.ckpt;
    const struct dcpk_place *a, *b;

    if (ckpt->format->reader->decode == NULL || before->chunk == FEED_NONE ||
        part->chunk == FEED_NONE)
        return false;
    a = &ckpt->chunks[before->chunk].place;
    b = &ckpt->chunks[part->chunk].place;
    return a->file == b->file && a->offset_bytes == b->offset_bytes;
}

/* The ranks of this rank's team, in order. */
static dcpk_status list_team(const struct dcpk_remap_files *files, int **ranks, size_t *n,
                             struct dcpk_error *err)
{
    const int self = files->base.self;

    *n = 0;
    *ranks = dcpk_arena_array(files->base.arena, (size_t)files->base.n_ranks, sizeof **ranks, err);
    for (int r = 0; *ranks != NULL && r < files->base.n_ranks; r++)
        if (files->team[r] == files->team[self])
            (*ranks)[(*n)++] = r;
    return dcpk_made(*ranks, err);
}

/* Parts as sources of the plan, each share of bytes with another rank of the team. */
static dcpk_status deal_parts(struct dcpk_remap_files *files, struct dcpk_error *err)
{
    static const int64_t no_strides[DCPK_MAX_RANK];
    struct dcpk_remap *base = &files->base;
    struct front front = {FEED_NONE, 0};
    uint64_t total = 0, before = 0, share;
    size_t n_team, k = 0;
    bool shares;
    int *ranks;

    if (list_team(files, &ranks, &n_team, err))
        return err->status;
    base->sources = dcpk_arena_array(base->arena, files->n_parts, sizeof *base->sources, err);
    if (base->sources == NULL)
        return err->status;
    for (size_t i = 0; i < files->n_parts; i++)
        total += new_bytes(&front, &files->parts[i], &shares);
    share = total / n_team + 1;
    front = (struct front){FEED_NONE, 0};
    for (size_t i = 0; i < files->n_parts; i++) {
        const struct feed_part *part = &files->parts[i];
        const struct dcpk_remap_view *view = &files->options.views[part->view];
        const uint64_t n_bytes = new_bytes(&front, part, &shares);

        if (i == 0 || !(shares || is_of_same_code(files, part - 1, part)))
            k = dcpk_max_size(k, (size_t)((before + n_bytes / 2) / share));
        before += n_bytes;
        base->sources[i] = (struct dcpk_shard){.name = view->name,
                                               .dtype = files->dtypes[part->view],
                                               .rank = view->view.rank,
                                               .holder = ranks[k],
                                               .shape = view->view.shape,
                                               .span = part->span,
                                               .stride_bytes = no_strides,
                                               .at = SOURCE_ADDRESS + SOURCE_BYTES * i};
        if (ranks[k] < base->self)
            files->first_part = i + 1;
        files->n_loads += ranks[k] == base->self;
    }
    base->n_sources = files->n_parts;
    return DCPK_OK;
}

static dcpk_status make_all(struct parts_maker *m, struct dcpk_arena *scratch,
                            struct dcpk_error *err)
{
    struct dcpk_remap_files *files = m->files;
    const size_t n_views = files->options.n_views;
    struct dcpk_map names = {0};
    dcpk_status st;

    m->first = dcpk_arena_array(scratch, n_views + 2, sizeof *m->first, err);
    if (m->first != NULL)
        m->items = dcpk_arena_array(scratch, files->base.n_targets, sizeof *m->items, err);
    if (m->items != NULL)
        files->dtypes = dcpk_arena_array(files->base.arena, n_views, sizeof *files->dtypes, err);
    if (files->dtypes == NULL)
        return err->status;
    st = view_numbers(files, &names, err);
    if (st == DCPK_OK)
        st = group_targets(m, &names, err);
    dcpk_map_release(&names);
    for (size_t v = 0; v < n_views && st == DCPK_OK; v++)
        st = add_view(m, (uint32_t)v, err);
    return st;
}

dcpk_status dcpk_feed_make_parts(struct dcpk_remap_files *files, struct dcpk_error *err)
{
    struct parts_maker m = {.files = files};
    struct dcpk_arena *scratch = dcpk_arena_new();
    dcpk_status st;

    st = make_all(&m, scratch, err);
    dcpk_arena_free(scratch);
    if (st != DCPK_OK)
        return st;
    if (files->n_parts > 0)
        qsort(files->parts, files->n_parts, sizeof *files->parts, compare_parts);
    return deal_parts(files, err);
}
