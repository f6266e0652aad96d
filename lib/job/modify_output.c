/* SPDX-License-Identifier: Apache-2.0 */
/* modify_output.c - the keys that stay, grouped by the bytes they name, as an output. */
#include <inttypes.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/job/modify_priv.h"

#define NO_FILE UINT32_MAX

/*
 * Items in groups that share their bytes: item i is in group[i], after the others of it in next[].
 */
struct grouping {
    struct dcpk_modification *m;
    struct dcpk_map by_place;
    uint32_t *first, *last; /* of each group: items; the index is the group's first item */
    uint32_t *next;         /* of each item; UINT32_MAX: the last */
    uint32_t *file; /* of the source's files: their number in the output, NO_FILE: not needed */
};

static const struct dcpk_tensor *tensor_of(const struct dcpk_modification *m, size_t item)
{
    return item < m->ckpt->n_tensors ? &m->ckpt->tensors[item] : NULL;
}

/*
 * The place that distinguishes groups: an object's, or a tensor's first chunk's. NULL: it has none.
 */
static const struct dcpk_place *place_of(const struct dcpk_modification *m, size_t item)
{
    const struct dcpk_tensor *tensor = tensor_of(m, item);

    if (tensor == NULL)
        return &m->ckpt->objects[item - m->ckpt->n_tensors].place;
    return tensor->n_chunks == 0 ? NULL : &m->ckpt->chunks[tensor->first_chunk].place;
}

static bool same_numbers(const int64_t *a, const int64_t *b, int n)
{
    return n == 0 || memcmp(a, b, (size_t)n * sizeof *a) == 0;
}

/* True if two tensors differ in nothing but their keys, and stay so. */
static bool same_tensor(const struct dcpk_modification *m, size_t i, size_t j)
{
    const struct dcpk_tensor *a = tensor_of(m, i), *b = tensor_of(m, j);

    if (a == NULL || b == NULL)
        return a == b; /* objects: their place is all they have */
    if (a->dtype != b->dtype || m->items[i].to != m->items[j].to || a->rank != b->rank ||
        !same_numbers(a->shape, b->shape, a->rank) || a->n_chunks != b->n_chunks ||
        a->model_shape != b->model_shape)
        return false;
    for (size_t c = 0; c < a->n_chunks; c++) {
        const struct dcpk_chunk *x = &m->ckpt->chunks[a->first_chunk + c];
        const struct dcpk_chunk *y = &m->ckpt->chunks[b->first_chunk + c];

        if (x->place.file != y->place.file || x->place.offset_bytes != y->place.offset_bytes ||
            x->place.n_bytes != y->place.n_bytes || !same_numbers(x->span, y->span, 2 * a->rank))
            return false;
    }
    return true;
}

static dcpk_status group_item(struct grouping *g, uint32_t item, struct dcpk_error *err)
{
    struct dcpk_modification *m = g->m;
    const struct dcpk_place *place = place_of(m, item);
    const char *text;
    bool existed = false;
    uint64_t other = 0;

    g->first[item] = g->last[item] = item;
    g->next[item] = UINT32_MAX;
    if (place == NULL)
        return DCPK_OK;
    text =
        dcpk_arena_printf(m->out->arena, err, "%d %" PRIu32 " %" PRIu64 " %" PRIu64,
                          (int)m->items[item].to, place->file, place->offset_bytes, place->n_bytes);
    if (text == NULL || dcpk_map_put(&g->by_place, text, strlen(text), item, &existed, &other, err))
        return err->status;
    if (!existed || !same_tensor(m, (size_t)other, item))
        return DCPK_OK;
    g->first[item] = (uint32_t)other;
    g->next[g->last[other]] = item;
    g->last[other] = item;
    return DCPK_OK;
}

/* The number of a data file in the output. */
static dcpk_status take_file(struct grouping *g, uint32_t file, uint32_t *number,
                             struct dcpk_error *err)
{
    struct dcpk_output *out = g->m->out;
    struct dcpk_source *source = g->m->ckpt->files[file];
    dcpk_status st = DCPK_OK;

    if (g->file[file] == NO_FILE) {
        st = dcpk_grow(&out->files, &out->files_capacity, out->n_files, sizeof *out->files, err);
        if (st != DCPK_OK)
            return st;
        out->files[out->n_files] =
            (struct dcpk_out_file){dcpk_source_name(source), dcpk_source_bytes(source)};
        g->file[file] = (uint32_t)out->n_files++;
    }
    *number = g->file[file];
    return st;
}

/* The chunks of the source with the places they have; the item is passed on whole, so where its
 * data begins does not matter. */
static dcpk_status take_chunks(struct grouping *g, const struct dcpk_tensor *tensor,
                               struct dcpk_out_tensor *t, struct dcpk_error *err)
{
    struct dcpk_output *out = g->m->out;
    dcpk_status st = DCPK_OK;

    t->first_chunk = out->n_chunks;
    t->n_chunks = tensor->n_chunks;
    for (size_t i = 0; i < tensor->n_chunks && st == DCPK_OK; i++) {
        const struct dcpk_chunk *chunk = &g->m->ckpt->chunks[tensor->first_chunk + i];
        struct dcpk_out_chunk c = {.tensor = (uint32_t)out->n_tensors,
                                   .span = chunk->span,
                                   .offset_bytes = chunk->place.offset_bytes,
                                   .data_bytes = chunk->place.n_bytes};

        st = take_file(g, chunk->place.file, &c.file, err);
        if (st == DCPK_OK)
            st = dcpk_grow(&out->chunks, &out->chunks_capacity, out->n_chunks, sizeof *out->chunks,
                           err);
        if (st == DCPK_OK)
            out->chunks[out->n_chunks++] = c;
    }
    return st;
}

/* One piece, the whole tensor, in the boxes that it had. */
static dcpk_status take_elements(const struct dcpk_modification *m, uint32_t item,
                                 struct dcpk_out_tensor *t, struct dcpk_error *err)
{
    const struct dcpk_tensor *tensor = tensor_of(m, item);
    struct dcpk_arena *arena = m->out->arena;
    struct dcpk_view view;
    const int64_t **spans;
    dcpk_status st = dcpk_view_stored(m->ckpt, item, arena, &view, err);

    if (st != DCPK_OK)
        return st;
    t->pieces = view.pieces;
    t->n_pieces = view.n_pieces;
    if (tensor->n_chunks == 0)
        return DCPK_OK; /* an empty one: the plan finds its box */
    spans = dcpk_arena_array(arena, tensor->n_chunks, sizeof *spans, err);
    if (spans == NULL)
        return err->status;
    for (size_t i = 0; i < tensor->n_chunks; i++)
        spans[i] = m->ckpt->chunks[tensor->first_chunk + i].span;
    t->spans = spans;
    t->n_spans = tensor->n_chunks;
    return DCPK_OK;
}

/* The tensor in the output, without keys and elements. */
static struct dcpk_out_tensor out_tensor(const struct dcpk_modification *m, uint32_t item)
{
    const struct dcpk_tensor *tensor = tensor_of(m, item);

    return (struct dcpk_out_tensor){.dtype = m->items[item].to,
                                    .rank = tensor->rank,
                                    .shape = tensor->shape,
                                    .model_shape = tensor->model_shape,
                                    .model_rank = tensor->model_rank};
}

/* All keys of a group. */
static dcpk_status take_keys(struct grouping *g, uint32_t first, struct dcpk_out_tensor *t,
                             struct dcpk_error *err)
{
    const char **keys;
    size_t n = 0;

    for (uint32_t i = first; i != UINT32_MAX; i = g->next[i])
        n++;
    keys = dcpk_arena_array(g->m->out->arena, n, sizeof *keys, err);
    if (keys == NULL)
        return err->status;
    for (uint32_t i = first; i != UINT32_MAX; i = g->next[i])
        keys[t->n_keys++] = g->m->items[i].name;
    t->keys = keys;
    return DCPK_OK;
}

static dcpk_status group_add_tensor(struct grouping *g, uint32_t first, struct dcpk_error *err)
{
    struct dcpk_out_tensor t = out_tensor(g->m, first);

    if (take_keys(g, first, &t, err) != DCPK_OK)
        return err->status;
    if (g->m->is_rewritten && take_elements(g->m, first, &t, err) != DCPK_OK)
        return err->status;
    if (!g->m->is_rewritten && take_chunks(g, tensor_of(g->m, first), &t, err) != DCPK_OK)
        return err->status;
    return dcpk_output_add_tensor(g->m->out, &t, err);
}

static dcpk_status group_add_objects(struct grouping *g, uint32_t first, struct dcpk_error *err)
{
    struct dcpk_output *out = g->m->out;
    const struct dcpk_object *object = &g->m->ckpt->objects[first - g->m->ckpt->n_tensors];
    uint32_t payload = 0;
    dcpk_status st = dcpk_output_keep_payload(out, object, &payload, err);

    if (st == DCPK_OK && !g->m->is_rewritten) {
        out->payloads[payload].offset_bytes = object->place.offset_bytes;
        out->payloads[payload].n_bytes = object->place.n_bytes;
        st = take_file(g, object->place.file, &out->payloads[payload].file, err);
    }
    for (uint32_t i = first; i != UINT32_MAX && st == DCPK_OK; i = g->next[i])
        st = dcpk_output_add_object(out, g->m->items[i].name, payload, err);
    return st;
}

static dcpk_status grouping_init(struct grouping *g, struct dcpk_error *err)
{
    const size_t n = g->m->n_items;

    g->first = dcpk_arena_array(g->m->out->arena, n, sizeof *g->first, err);
    g->last = dcpk_arena_array(g->m->out->arena, n, sizeof *g->last, err);
    g->next = dcpk_arena_array(g->m->out->arena, n, sizeof *g->next, err);
    g->file = dcpk_arena_array(g->m->out->arena, g->m->ckpt->n_files, sizeof *g->file, err);
    if (g->first == NULL || g->last == NULL || g->next == NULL || g->file == NULL)
        return err->status;
    for (size_t i = 0; i < g->m->ckpt->n_files; i++)
        g->file[i] = NO_FILE;
    return DCPK_OK;
}

/* Bytes of files that stay whole, which no key of the output names. */
static uint64_t unnamed_bytes(const struct dcpk_output *out)
{
    uint64_t all = 0, named = 0;

    for (size_t i = 0; i < out->n_files; i++)
        all += out->files[i].n_bytes;
    for (size_t i = 0; i < out->n_chunks; i++)
        named += out->chunks[i].data_bytes;
    for (size_t i = 0; i < out->n_payloads; i++)
        named += out->payloads[i].n_bytes;
    return all - dcpk_min_u64(named, all);
}

/* Items that share files: the same bytes are kept once. */
static dcpk_status keep_together(struct dcpk_modification *m, struct dcpk_error *err)
{
    struct grouping g = {.m = m};
    dcpk_status st = grouping_init(&g, err);

    for (uint32_t i = 0; i < m->n_items && st == DCPK_OK; i++)
        if (m->items[i].removed_by == NULL)
            st = group_item(&g, i, err);
    for (uint32_t i = 0; i < m->n_items && st == DCPK_OK; i++) {
        if (m->items[i].removed_by != NULL || g.first[i] != i)
            continue;
        if (tensor_of(m, i) != NULL)
            st = group_add_tensor(&g, i, err);
        else
            st = group_add_objects(&g, i, err);
    }
    for (size_t f = 0; f < m->ckpt->n_files && st == DCPK_OK && !m->is_rewritten; f++)
        if (g.file[f] != NO_FILE)
            st = dcpk_output_keep(m->out, m->out->files[g.file[f]].name, m->ckpt->files[f], err);
    if (!m->is_rewritten)
        m->unused_bytes = unnamed_bytes(m->out);
    dcpk_map_release(&g.by_place);
    return st;
}

/*
 * The boxes of a tensor become cells of one grid, as files of their own are: as they were, or where
 * one at the edge is smaller, all of it in one.
 */
static dcpk_status make_grid(struct dcpk_modification *m, struct dcpk_out_tensor *t,
                             struct dcpk_error *err)
{
    const size_t rank = (size_t)t->rank;
    bool is_even = t->n_spans > 0;
    const int64_t **spans;
    int64_t *whole;

    for (size_t i = 1; i < t->n_spans; i++)
        is_even = is_even && same_numbers(t->spans[i] + rank, t->spans[0] + rank, t->rank);
    if (is_even)
        return DCPK_OK;
    spans = dcpk_arena_array(m->out->arena, 1, sizeof *spans, err);
    whole = dcpk_arena_array(m->out->arena, 2 * rank, sizeof *whole, err);
    if (spans == NULL || whole == NULL)
        return err->status;
    for (size_t a = 0; a < rank; a++)
        whole[rank + a] = t->shape[a];
    spans[0] = whole;
    t->spans = spans;
    t->n_spans = t->n_spans > 0; /* an empty tensor has none */
    return DCPK_OK;
}

/* A tensor of its own, under its new key and with its new dtype. */
static dcpk_status rewrite_apart(struct dcpk_modification *m, uint32_t item, struct dcpk_error *err)
{
    struct dcpk_out_tensor t = out_tensor(m, item);
    const char **key = dcpk_arena_array(m->out->arena, 1, sizeof *key, err);

    if (key == NULL || take_elements(m, item, &t, err) || make_grid(m, &t, err))
        return err->status;
    *key = m->items[item].name;
    t.keys = key;
    t.n_keys = 1;
    return dcpk_output_add_tensor(m->out, &t, err);
}

/* Items that have files of their own: only what is cast is written. */
static dcpk_status keep_apart(struct dcpk_modification *m, struct dcpk_error *err)
{
    struct dcpk_kept_item *kept = dcpk_arena_array(m->out->arena, m->n_items, sizeof *kept, err);
    size_t n = 0;

    if (kept == NULL)
        return err->status;
    for (uint32_t i = 0; i < m->n_items; i++) {
        const struct dcpk_edit_item *item = &m->items[i];
        const struct dcpk_tensor *tensor = tensor_of(m, i);

        if (item->removed_by != NULL)
            continue;
        kept[n] = (struct dcpk_kept_item){
            .name = item->name, .tensor = tensor, .is_rewritten = item->to != item->dtype};
        if (tensor == NULL)
            kept[n].object = &m->ckpt->objects[i - m->ckpt->n_tensors];
        if (kept[n++].is_rewritten && rewrite_apart(m, i, err) != DCPK_OK)
            return err->status;
    }
    return m->out->format->editor->keep(m->out, kept, n, err);
}

dcpk_status dcpk_modify_output(struct dcpk_modification *m, struct dcpk_error *err)
{
    if (m->n_items >= UINT32_MAX)
        return dcpk_fail(err, DCPK_ERANGE, "%zu keys, the limit is %" PRIu32, m->n_items,
                         UINT32_MAX - 1);
    if (m->out->format->editor->keep == NULL)
        return keep_together(m, err);
    return keep_apart(m, err);
}
