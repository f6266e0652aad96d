/* SPDX-License-Identifier: Apache-2.0 */
/* modify_output.c - the keys that stay, grouped by the bytes they name, as an output. */
#include <inttypes.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/exec/modify_priv.h"

#define NO_FILE UINT32_MAX

/* Items in groups that share their bytes: item i is in group[i], behind the others of it in next[].
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

/* The place that tells groups apart: an object's, or a tensor's first chunk's. NULL: it has none.
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

/* Are two tensors the same in all but their keys, and stay so? */
static bool same_tensor(const struct dcpk_modification *m, size_t i, size_t j)
{
    const struct dcpk_tensor *a = tensor_of(m, i), *b = tensor_of(m, j);

    if (a == NULL || b == NULL)
        return a == b; /* objects: their place says it all */
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
    dcpk_status st;

    g->first[item] = g->last[item] = item;
    g->next[item] = UINT32_MAX;
    if (place == NULL)
        return DCPK_OK;
    text =
        dcpk_arena_printf(m->out->arena, err, "%d %" PRIu32 " %" PRIu64 " %" PRIu64,
                          (int)m->items[item].to, place->file, place->offset_bytes, place->n_bytes);
    st = text == NULL ? err->status
                      : dcpk_map_put(&g->by_place, text, strlen(text), item, &existed, &other, err);
    if (st != DCPK_OK || !existed || !same_tensor(m, (size_t)other, item))
        return st;
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
static dcpk_status take_elements(struct grouping *g, uint32_t item,
                                 const struct dcpk_tensor *tensor, struct dcpk_out_tensor *t,
                                 struct dcpk_error *err)
{
    struct dcpk_arena *arena = g->m->out->arena;
    struct dcpk_view view;
    const int64_t **spans;
    dcpk_status st = dcpk_view_stored(g->m->ckpt, item, arena, &view, err);

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
        spans[i] = g->m->ckpt->chunks[tensor->first_chunk + i].span;
    t->spans = spans;
    t->n_spans = tensor->n_chunks;
    return DCPK_OK;
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

static dcpk_status add_tensor(struct grouping *g, uint32_t first, struct dcpk_error *err)
{
    const struct dcpk_tensor *tensor = tensor_of(g->m, first);
    struct dcpk_out_tensor t = {.dtype = g->m->items[first].to,
                                .rank = tensor->rank,
                                .shape = tensor->shape,
                                .model_shape = tensor->model_shape,
                                .model_rank = tensor->model_rank};
    dcpk_status st = take_keys(g, first, &t, err);

    if (st == DCPK_OK)
        st = g->m->is_rewritten ? take_elements(g, first, tensor, &t, err)
                                : take_chunks(g, tensor, &t, err);
    return st == DCPK_OK ? dcpk_output_add_tensor(g->m->out, &t, err) : st;
}

static dcpk_status add_objects(struct grouping *g, uint32_t first, struct dcpk_error *err)
{
    struct dcpk_output *out = g->m->out;
    const struct dcpk_object *object = &g->m->ckpt->objects[first - g->m->ckpt->n_tensors];
    uint32_t payload = 0;
    dcpk_status st = dcpk_output_add_payload(out, NULL, object, &payload, err);

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

    if (n >= UINT32_MAX)
        return dcpk_fail(err, DCPK_ERANGE, "%zu keys, the limit is %" PRIu32, n, UINT32_MAX - 1);
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

dcpk_status dcpk_modify_output(struct dcpk_modification *m, struct dcpk_error *err)
{
    struct grouping g = {.m = m};
    dcpk_status st = grouping_init(&g, err);

    for (uint32_t i = 0; i < m->n_items && st == DCPK_OK; i++)
        if (m->items[i].removed_by == NULL)
            st = group_item(&g, i, err);
    for (uint32_t i = 0; i < m->n_items && st == DCPK_OK; i++) {
        if (m->items[i].removed_by != NULL || g.first[i] != i)
            continue;
        st = tensor_of(m, i) != NULL ? add_tensor(&g, i, err) : add_objects(&g, i, err);
    }
    dcpk_map_release(&g.by_place);
    return st;
}
