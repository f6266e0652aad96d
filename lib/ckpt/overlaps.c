/* SPDX-License-Identifier: Apache-2.0 */
/* overlaps.c - items by their bytes in files: which are the same, that no two overlap, and a table
 * of what was made of them. */
#include "lib/ckpt/overlaps.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/ckpt/checkpoint.h"
#include "lib/ckpt/content.h"

/* ---- tensors of the same bytes ---- */

/* Stored chunks both, or runs that begin alike in chunks whose places are compared elsewhere. */
static bool same_run(const struct dcpk_chunk_run *a, const struct dcpk_chunk_run *b)
{
    return a == b || (a != NULL && b != NULL && a->first == b->first);
}

/* The same arithmetic with the same bytes. */
static bool same_computed(const struct dcpk_checkpoint *ckpt, const struct dcpk_tensor *x,
                          const struct dcpk_tensor *y)
{
    const struct dcpk_computed *a = x->computed, *b = y->computed;

    return a != NULL && b != NULL && dcpk_shape_equal(x->shape, x->rank, y->shape, y->rank) &&
           a->block_rows == b->block_rows && a->block_cols == b->block_cols &&
           a->addend == b->addend && a->product.rank == b->product.rank &&
           a->product.left == b->product.left && a->product.right == b->product.right &&
           a->product.is_turned == b->product.is_turned && a->product.expert == b->product.expert &&
           a->product.first_row == b->product.first_row &&
           (a->values == b->values || (a->values != DCPK_NO_VALUES && b->values != DCPK_NO_VALUES &&
                                       dcpk_tensors_are_aliases(ckpt, a->values, b->values))) &&
           (a->scales == b->scales || (a->scales != DCPK_NO_SCALES && b->scales != DCPK_NO_SCALES &&
                                       dcpk_tensors_are_aliases(ckpt, a->scales, b->scales)));
}

bool dcpk_tensors_are_aliases(const struct dcpk_checkpoint *ckpt, uint32_t a, uint32_t b)
{
    const struct dcpk_tensor *x = &ckpt->tensors[a], *y = &ckpt->tensors[b];

    if (a == b)
        return true;
    if (x->computed != NULL || y->computed != NULL)
        return same_computed(ckpt, x, y);
    if (x->dtype != y->dtype || x->rank != y->rank || x->n_chunks != y->n_chunks)
        return false;
    for (size_t i = 0; i < x->n_chunks; i++) {
        const struct dcpk_chunk *c = &ckpt->chunks[x->first_chunk + i],
                                *d = &ckpt->chunks[y->first_chunk + i];
        const size_t span_bytes = 2 * (size_t)x->rank * sizeof *c->span;

        if (c->place.n_bytes == 0 || c->place.file != d->place.file ||
            c->place.offset_bytes != d->place.offset_bytes ||
            !same_run(dcpk_checkpoint_chunk_run(ckpt, c), dcpk_checkpoint_chunk_run(ckpt, d)) ||
            memcmp(c->span, d->span, span_bytes) != 0)
            return false;
    }
    return true;
}

bool dcpk_pieces_are_aliases(const struct dcpk_checkpoint *ckpt, const struct dcpk_piece *a,
                             size_t n_a, const struct dcpk_piece *b, size_t n_b)
{
    if (n_a != n_b)
        return false;
    for (size_t i = 0; i < n_a; i++) {
        const struct dcpk_piece *p = &a[i], *q = &b[i];
        const size_t span_bytes = 2 * ((size_t)p->src_rank + p->dst_rank) * sizeof *p->span;

        if (p->src == DCPK_PIECE_FILL || q->src == DCPK_PIECE_FILL || p->src_rank != q->src_rank ||
            p->dst_rank != q->dst_rank || p->axes != q->axes ||
            memcmp(p->span, q->span, span_bytes) != 0 ||
            !dcpk_tensors_are_aliases(ckpt, p->src, q->src))
            return false;
    }
    return true;
}

/* An item's place; index: a chunk's, or n_chunks + an object's. There is one for each, so it is
 * packed. */
struct place_ref {
    uint64_t offset_bytes, n_bytes;
    uint32_t file, index;
};

static int compare_place_refs(const void *left, const void *right)
{
    const struct place_ref *a = left, *b = right;

    return DCPK_ORDER_BY_4(a, b, file, offset_bytes, n_bytes, index);
}

static bool same_place(const struct place_ref *a, const struct place_ref *b)
{
    return a->file == b->file && a->offset_bytes == b->offset_bytes && a->n_bytes == b->n_bytes;
}

static struct place_ref make_place_ref(const struct dcpk_place *place, size_t index)
{
    return (struct place_ref){place->offset_bytes, place->n_bytes, place->file, (uint32_t)index};
}

/* The places of all items in the order of compare_refs; heap, one for each chunk and object. */
static dcpk_status sorted_refs(const struct dcpk_checkpoint *ckpt, struct place_ref **refs,
                               struct dcpk_error *err)
{
    const size_t n = ckpt->n_chunks + ckpt->n_objects;
    struct place_ref *r;

    if (n > UINT32_MAX)
        return dcpk_fail(err, DCPK_ERANGE, "%zu chunks and objects, the limit is %u", n,
                         UINT32_MAX);
    r = dcpk_alloc_array(n, sizeof *r, err);
    if (r == NULL)
        return err->status;
    for (size_t i = 0; i < ckpt->n_chunks; i++)
        r[i] = make_place_ref(&ckpt->chunks[i].place, i);
    for (size_t i = 0; i < ckpt->n_objects; i++)
        r[ckpt->n_chunks + i] = make_place_ref(&ckpt->objects[i].place, ckpt->n_chunks + i);
    qsort(r, n, sizeof *r, compare_place_refs);
    *refs = r;
    return DCPK_OK;
}

/* Finds, among items with one place, the one that is not an alias: a weight, or else the first. */
static size_t find_original(const struct dcpk_checkpoint *ckpt, const struct place_ref *refs,
                            size_t n)
{
    for (size_t i = 0; i < n && refs[i].index < ckpt->n_chunks; i++)
        if (dcpk_content_of(ckpt->tensors[ckpt->chunks[refs[i].index].tensor].key) ==
            DCPK_CONTENT_WEIGHTS)
            return i;
    return 0;
}

dcpk_status dcpk_find_aliases(const struct dcpk_checkpoint *ckpt, bool *is_alias,
                              struct dcpk_error *err)
{
    const size_t n = ckpt->n_chunks + ckpt->n_objects;
    struct place_ref *refs;
    dcpk_status st = sorted_refs(ckpt, &refs, err);

    if (st != DCPK_OK)
        return st;
    for (size_t first = 0, end; first < n; first = end) {
        size_t original;

        for (end = first + 1; end < n && same_place(&refs[end], &refs[first]); end++)
            continue;
        if (end == first + 1 || refs[first].n_bytes == 0) /* no bytes: no place to share */
            continue;
        original = first + find_original(ckpt, &refs[first], end - first);
        for (size_t i = first; i < end; i++)
            is_alias[refs[i].index] = i != original;
    }
    dcpk_free(refs);
    return DCPK_OK;
}

static const char *key_of(const struct dcpk_checkpoint *ckpt, uint64_t index)
{
    if (index < ckpt->n_chunks)
        return ckpt->tensors[ckpt->chunks[index].tensor].key;
    return ckpt->objects[index - ckpt->n_chunks].key;
}

dcpk_status dcpk_check_overlaps(const struct dcpk_checkpoint *ckpt, struct dcpk_error *err)
{
    const size_t n = ckpt->n_chunks + ckpt->n_objects;
    const struct place_ref *last = NULL; /* of those so far in this file, the one that ends last */
    struct place_ref *refs;
    dcpk_status st = sorted_refs(ckpt, &refs, err);

    if (st != DCPK_OK)
        return st;
    for (size_t i = 0; i < n && st == DCPK_OK; i++) {
        const struct place_ref *p = &refs[i];

        if (p->n_bytes == 0)
            continue;
        if (last == NULL || last->file != p->file ||
            p->offset_bytes - last->offset_bytes >= last->n_bytes)
            last = p;
        else if (!same_place(p, last))
            st = dcpk_fail(err, DCPK_EFORMAT,
                           "'%s' at byte %" PRIu64 " (%" PRIu64 " bytes) and '%s' at byte %" PRIu64
                           " (%" PRIu64 " bytes) overlap in '%s'",
                           key_of(ckpt, last->index), last->offset_bytes, last->n_bytes,
                           key_of(ckpt, p->index), p->offset_bytes, p->n_bytes,
                           dcpk_source_name(ckpt->files[p->file]));
    }
    dcpk_free(refs);
    return st;
}

/* ---- a table by place ---- */

#define NO_VALUE UINT64_MAX /* no address of one */

struct key {
    uint64_t words[6]; /* file, offset and length of each; UINT64_MAX: none */
};

static void words_put_place(uint64_t words[3], const struct dcpk_place *place)
{
    static const struct dcpk_place none = {UINT32_MAX, UINT64_MAX, UINT64_MAX};

    if (place == NULL)
        place = &none;
    words[0] = place->file;
    words[1] = place->offset_bytes;
    words[2] = place->n_bytes;
}

static struct key table_key(const struct dcpk_place *a, const struct dcpk_place *b)
{
    struct key key;

    words_put_place(key.words, a);
    words_put_place(key.words + 3, b);
    return key;
}

static bool place_is_empty(const struct dcpk_place *place)
{
    return place != NULL && place->n_bytes == 0;
}

void dcpk_by_place_release(struct dcpk_by_place *t)
{
    dcpk_map_release(&t->map);
}

bool dcpk_by_place_get(const struct dcpk_by_place *t, const struct dcpk_place *a,
                       const struct dcpk_place *b, uint64_t *value)
{
    const struct key key = table_key(a, b);

    if (place_is_empty(a) || place_is_empty(b))
        return false;
    return dcpk_map_get(&t->map, (const char *)&key, sizeof key, value);
}

dcpk_status dcpk_by_place_put(struct dcpk_by_place *t, const struct dcpk_place *a,
                              const struct dcpk_place *b, uint64_t value, struct dcpk_error *err)
{
    struct key *key = dcpk_arena_alloc(t->arena, sizeof *key, err);
    bool existed;
    uint64_t found;

    if (key == NULL)
        return err->status;
    *key = table_key(a, b);
    return dcpk_map_put(&t->map, (const char *)key, sizeof *key, value, &existed, &found, err);
}

dcpk_status dcpk_by_place_load(struct dcpk_by_place *t, struct dcpk_checkpoint *ckpt,
                               const struct dcpk_object *object, const struct dcpk_value **value,
                               struct dcpk_error *err)
{
    const struct dcpk_value *loaded = NULL;
    struct dcpk_error failed = DCPK_ERROR_INIT;
    uint64_t found;

    if (!dcpk_by_place_get(t, &object->place, NULL, &found)) {
        found = NO_VALUE;
        if (dcpk_checkpoint_load_item(ckpt, object, t->arena, &loaded, &failed) == DCPK_OK)
            found = (uint64_t)(uintptr_t)loaded;
        if (dcpk_by_place_put(t, &object->place, NULL, found, err) != DCPK_OK)
            return err->status;
        if (failed.status != DCPK_OK)
            *err = failed;
    } else if (found == NO_VALUE) {
        dcpk_fail(err, DCPK_EFORMAT, "its item could not be read under another key");
    }
    if (found != NO_VALUE)
        *value = (const struct dcpk_value *)(uintptr_t)found;
    return err->status;
}
