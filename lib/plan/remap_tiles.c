/* SPDX-License-Identifier: Apache-2.0 */
/* remap_tiles.c - axes in order, runs, planes of rows, tiles. */
/*
 *   box -> axes in the order of the destination, merged -> a run (the innermost axis, where it is
 *   dense on both sides), rows (the longest other axis), and a walk over the axes that are left:
 *
 *        head |<-- multiples of 16 bytes at the destination -->| tail
 *        ...  [ tile_bytes ][ tile_bytes ][ rest            ]    ..     long runs: row by row
 *        ..   [ rows together, up to tile_bytes             ]    .      short ones
 */
#include "lib/plan/remap_tiles.h"

#include <assert.h>
#include <stdlib.h>

#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/tensor/fingerprint.h"

#define SHORT_RUN_BYTES 64 /* shorter runs are not worth peeling: narrow units move them */

/* An axis of a box: how far its steps reach on each side, and in words of the tensor. */
struct axis {
    int64_t extent, src, dst, words;
};

/* Rows of elements side by side, not yet cut. */
struct plane {
    uint64_t src, dst, first; /* first: number of the first word */
    int64_t n_elems, n_rows;
    struct axis row;
};

struct cutter {
    struct dcpk_tile_list *list;
    size_t tile_bytes;
    enum dcpk_dtype from, to;
    int64_t from_bytes, to_bytes, elem_words; /* of one element */
    uint32_t sum;
    bool has_words, is_read;
    struct axis axes[DCPK_MAX_RANK];
    int n_axes;
};

void dcpk_tile_list_release(struct dcpk_tile_list *list)
{
    dcpk_free(list->tiles);
    dcpk_free(list->words);
    *list = (struct dcpk_tile_list){0};
}

static dcpk_status list_append(struct dcpk_tile_list *list, const struct dcpk_tile *tile,
                               const struct dcpk_tile_words *words, struct dcpk_error *err)
{
    if (dcpk_grow(&list->tiles, &list->tiles_capacity, list->n, sizeof *list->tiles, err))
        return err->status;
    if (words != NULL &&
        dcpk_grow(&list->words, &list->words_capacity, list->n, sizeof *list->words, err))
        return err->status;
    list->tiles[list->n] = *tile;
    if (words != NULL)
        list->words[list->n] = *words;
    list->n++;
    return DCPK_OK;
}

static bool axis_goes_before(const struct axis *a, const struct axis *b)
{
    if (llabs(a->dst) != llabs(b->dst))
        return llabs(a->dst) > llabs(b->dst);
    return llabs(a->src) > llabs(b->src);
}

/* Sort by steps at the destination, then merge neighbours that lie one after the other. */
static void arrange_axes(struct cutter *c)
{
    int n = 0;

    for (int i = 1; i < c->n_axes; i++)
        for (int j = i; j > 0 && axis_goes_before(&c->axes[j], &c->axes[j - 1]); j--) {
            const struct axis swap = c->axes[j];

            c->axes[j] = c->axes[j - 1];
            c->axes[j - 1] = swap;
        }
    for (int i = 0; i < c->n_axes; i++) {
        const struct axis in = c->axes[i];
        struct axis *out = n > 0 ? &c->axes[n - 1] : NULL;

        if (out != NULL && out->src == in.src * in.extent && out->dst == in.dst * in.extent &&
            (!c->has_words || out->words == in.words * in.extent)) {
            *out = (struct axis){out->extent * in.extent, in.src, in.dst, in.words};
            continue;
        }
        c->axes[n++] = in;
    }
    c->n_axes = n;
}

/* Take the innermost axis as the run, where it is one. A plain copy is one of bytes. */
static int64_t take_run(struct cutter *c)
{
    const struct axis *last = c->n_axes > 0 ? &c->axes[c->n_axes - 1] : NULL;
    int64_t n_elems = 1;

    if (last != NULL && last->src == c->from_bytes && last->dst == c->to_bytes &&
        (!c->has_words || last->words == c->elem_words)) {
        n_elems = last->extent;
        c->n_axes--;
    }
    if (!c->has_words && c->from == c->to) {
        n_elems *= c->to_bytes;
        c->from = c->to = DCPK_U8;
        c->from_bytes = c->to_bytes = 1;
    }
    return n_elems;
}

/* The longest axis that is left; the order of the others stays. */
static struct axis take_rows(struct cutter *c)
{
    struct axis rows = {1, 0, 0, 0};
    int longest = c->n_axes - 1;

    if (c->n_axes == 0)
        return rows;
    for (int i = longest; i >= 0; i--)
        if (c->axes[i].extent > c->axes[longest].extent)
            longest = i;
    rows = c->axes[longest];
    for (c->n_axes--; longest < c->n_axes; longest++)
        c->axes[longest] = c->axes[longest + 1];
    return rows;
}

/* Elements [low, high) of n_rows rows of a plane. */
struct patch {
    int64_t first_row, n_rows, low, high;
};

/* One tile of a plane. */
static dcpk_status emit_tile(struct cutter *c, const struct plane *p, const struct patch *patch,
                             struct dcpk_error *err)
{
    const uint64_t row = (uint64_t)patch->first_row;
    const struct dcpk_tile_words words = {.first = p->first + row * (uint64_t)p->row.words +
                                                   (uint64_t)(patch->low * c->elem_words),
                                          .row_step = (uint64_t)p->row.words,
                                          .sum = c->sum};
    struct dcpk_tile tile = {
        .src = p->src + row * (uint64_t)p->row.src + (uint64_t)(patch->low * c->from_bytes),
        .dst = p->dst + row * (uint64_t)p->row.dst + (uint64_t)(patch->low * c->to_bytes),
        .src_stride_bytes = p->row.src,
        .dst_stride_bytes = p->row.dst,
        .n_elems = (uint32_t)(patch->high - patch->low),
        .n_rows = (uint32_t)patch->n_rows,
        .from = (uint8_t)c->from,
        .to = (uint8_t)c->to};

    if (c->is_read)
        tile.dst = 0;
    return list_append(c->list, &tile, c->has_words ? &words : NULL, err);
}

/* Rows [first, first + n) of elements [low, high), in tiles of many rows or parts of one. */
static dcpk_status emit_rows(struct cutter *c, const struct plane *p, int64_t low, int64_t high,
                             struct dcpk_error *err)
{
    const int64_t tile_elems = dcpk_max_i64((int64_t)c->tile_bytes / c->to_bytes, 1);
    const int64_t step = dcpk_min_i64(tile_elems, high - low);
    const int64_t rows = step == 0 ? 1 : tile_elems / step;

    for (int64_t r = 0; r < p->n_rows; r += rows)
        for (int64_t at = low; at < high; at += step) {
            const struct patch patch = {r, dcpk_min_i64(rows, p->n_rows - r), at,
                                        dcpk_min_i64(at + step, high)};

            if (emit_tile(c, p, &patch, err))
                return err->status;
        }
    return DCPK_OK;
}

/*
 * All of a plane whose rows have one misalignment at the destination: the elements before the first
 * multiple of 16 bytes, those up to the last one, and the rest.
 */
static dcpk_status emit_peeled(struct cutter *c, const struct plane *p, struct dcpk_error *err)
{
    const int64_t align = DCPK_TILE_ALIGN;
    const int64_t head_bytes = (align - (int64_t)(p->dst % DCPK_TILE_ALIGN)) % align;
    const int64_t head = head_bytes / c->to_bytes;
    const int64_t body = (p->n_elems - head) * c->to_bytes / align * align / c->to_bytes;

    if (head_bytes % c->to_bytes != 0) /* no element begins there */
        return emit_rows(c, p, 0, p->n_elems, err);
    if (emit_rows(c, p, 0, head, err) || emit_rows(c, p, head, head + body, err) ||
        emit_rows(c, p, head + body, p->n_elems, err))
        return err->status;
    return DCPK_OK;
}

static dcpk_status emit_plane(struct cutter *c, const struct plane *p, struct dcpk_error *err)
{
    const int64_t row_bytes = p->n_elems * c->to_bytes;
    struct plane row = *p;

    if (row_bytes >= (int64_t)c->tile_bytes && p->row.dst % DCPK_TILE_ALIGN != 0) {
        for (row.n_rows = 1; row.dst != p->dst + (uint64_t)p->n_rows * (uint64_t)p->row.dst;) {
            if (emit_peeled(c, &row, err)) /* each row has a misalignment of its own */
                return err->status;
            row.src += (uint64_t)p->row.src;
            row.dst += (uint64_t)p->row.dst;
            row.first += (uint64_t)p->row.words;
        }
        return DCPK_OK;
    }
    if (row_bytes >= SHORT_RUN_BYTES && row_bytes * p->n_rows >= (int64_t)DCPK_TILE_SMALL_BYTES &&
        p->row.dst % DCPK_TILE_ALIGN == 0)
        return emit_peeled(c, p, err);
    return emit_rows(c, p, 0, p->n_elems, err);
}

/* Walk over the axes that are neither run nor rows. */
static dcpk_status cut_box(struct cutter *c, struct plane *p, struct dcpk_error *err)
{
    int64_t index[DCPK_MAX_RANK] = {0};
    int a;

    arrange_axes(c);
    p->n_elems = take_run(c);
    p->row = take_rows(c);
    p->n_rows = p->row.extent;
    do {
        if (emit_plane(c, p, err))
            return err->status;
        for (a = c->n_axes - 1; a >= 0; a--) {
            const struct axis *axis = &c->axes[a];
            const int64_t steps = ++index[a] < axis->extent ? 1 : 1 - axis->extent;

            p->src += (uint64_t)(steps * axis->src);
            p->dst += (uint64_t)(steps * axis->dst);
            p->first += (uint64_t)(steps * axis->words);
            if (steps == 1)
                break;
            index[a] = 0;
        }
    } while (a >= 0);
    return DCPK_OK;
}

dcpk_status dcpk_tile_list_add(struct dcpk_tile_list *list, const struct dcpk_tile_box *box,
                               size_t tile_bytes, struct dcpk_error *err)
{
    const bool is_read = box->dst.at == 0;
    const struct dcpk_tile_side *dst = is_read ? &box->src : &box->dst;
    const size_t to_bytes = dcpk_dtype_bytes(dst->dtype);
    struct cutter c = {.list = list,
                       .tile_bytes = tile_bytes,
                       .from = box->src.dtype,
                       .to = dst->dtype,
                       .from_bytes = (int64_t)dcpk_dtype_bytes(box->src.dtype),
                       .to_bytes = (int64_t)to_bytes,
                       .elem_words = (int64_t)(to_bytes / dcpk_fingerprint_word_bytes(to_bytes)),
                       .sum = box->sum,
                       .has_words = box->has_words,
                       .is_read = is_read};
    struct plane plane = {.src = box->src.at, .dst = dst->at};
    int64_t words = c.elem_words; /* of an axis: from one index to the next */

    assert(tile_bytes >= DCPK_TILE_ALIGN && tile_bytes % DCPK_TILE_ALIGN == 0);
    for (int a = box->box.rank - 1; a >= 0; a--) {
        assert(box->box.extent[a] >= 1);
        plane.first += (uint64_t)(box->box.offset[a] * words);
        if (box->box.extent[a] > 1)
            c.axes[c.n_axes++] = (struct axis){box->box.extent[a], box->src.stride_bytes[a],
                                               dst->stride_bytes[a], words};
        words *= box->shape[a];
    }
    for (int i = 0; i < c.n_axes / 2; i++) { /* the first axis first: it breaks ties */
        const struct axis swap = c.axes[i];

        c.axes[i] = c.axes[c.n_axes - 1 - i];
        c.axes[c.n_axes - 1 - i] = swap;
    }
    return cut_box(&c, &plane, err);
}

dcpk_status dcpk_tile_lists_deal(const struct dcpk_tile_list *const *lists, size_t n,
                                 struct dcpk_tile_list *all, struct dcpk_error *err)
{
    bool more = true;

    for (size_t i = 0; more; i++) {
        more = false;
        for (size_t l = 0; l < n; l++) {
            const struct dcpk_tile_list *list = lists[l];

            if (i >= list->n)
                continue;
            more = true;
            if (list_append(all, &list->tiles[i], list->words == NULL ? NULL : &list->words[i],
                            err))
                return err->status;
        }
    }
    return DCPK_OK;
}
