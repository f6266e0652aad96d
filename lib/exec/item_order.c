/* SPDX-License-Identifier: Apache-2.0 */
/* item_order.c - chunks and objects in the order of their places. */
#include "lib/exec/item_order.h"

#include <inttypes.h>
#include <stdlib.h>

#include "lib/base/alloc.h"
#include "lib/base/order.h"

static int compare_places(const struct dcpk_place *a, const struct dcpk_place *b)
{
    if (a->file != b->file)
        return DCPK_THREE_WAY(a->file, b->file);
    if (a->offset_bytes != b->offset_bytes)
        return DCPK_THREE_WAY(a->offset_bytes, b->offset_bytes);
    return DCPK_THREE_WAY(a->n_bytes, b->n_bytes);
}

static int compare_chunks(const void *a, const void *b, void *context)
{
    const struct dcpk_chunk *chunks = ((const struct dcpk_checkpoint *)context)->chunks;
    const uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    const int by_place = compare_places(&chunks[i].place, &chunks[j].place);

    if (by_place != 0)
        return by_place;
    return DCPK_THREE_WAY(i, j);
}

static int compare_objects(const void *a, const void *b, void *context)
{
    const struct dcpk_object *objects = ((const struct dcpk_checkpoint *)context)->objects;
    const uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    const int by_place = compare_places(&objects[i].place, &objects[j].place);

    if (by_place != 0)
        return by_place;
    return DCPK_THREE_WAY(i, j);
}

/* A kind of items: their order, and which of neighbours are one. */
struct item_kind {
    size_t n;
    int (*compare)(const void *, const void *, void *);
    bool (*same)(const struct dcpk_checkpoint *, uint32_t, uint32_t);
};

/* first: by item, the place in *items of the one that it shares its bytes with; NULL: not
 * wanted. */
static dcpk_status order_items(struct dcpk_checkpoint *ckpt, const struct item_kind *kind,
                               uint32_t *first, uint32_t **items, size_t *n_items,
                               struct dcpk_error *err)
{
    const size_t n = kind->n;
    uint32_t *order;
    size_t n_kept = 0;

    if (n > UINT32_MAX)
        return dcpk_fail(err, DCPK_ERANGE, "%zu items, the limit is %" PRIu32, n, UINT32_MAX);
    order = dcpk_alloc_array(n, sizeof *order, err);
    if (order == NULL)
        return err->status;
    for (size_t i = 0; i < n; i++)
        order[i] = (uint32_t)i;
    qsort_r(order, n, sizeof *order, kind->compare, ckpt);
    for (size_t i = 0; i < n; i++) {
        const uint32_t item = order[i];

        if (n_kept == 0 || !kind->same(ckpt, order[n_kept - 1], item))
            order[n_kept++] = item;
        if (first != NULL)
            first[item] = (uint32_t)(n_kept - 1);
    }
    *items = order;
    *n_items = n_kept;
    return DCPK_OK;
}

/* The chunks of aliases: one place, one dtype, the same extents. */
static bool same_chunk(const struct dcpk_checkpoint *ckpt, uint32_t i, uint32_t j)
{
    const struct dcpk_chunk *a = &ckpt->chunks[i], *b = &ckpt->chunks[j];
    const struct dcpk_tensor *s = &ckpt->tensors[a->tensor], *t = &ckpt->tensors[b->tensor];

    if (compare_places(&a->place, &b->place) != 0 || s->dtype != t->dtype || s->rank != t->rank)
        return false;
    for (int axis = 0; axis < s->rank; axis++)
        if (a->span[s->rank + axis] != b->span[t->rank + axis])
            return false;
    return true;
}

static bool same_object(const struct dcpk_checkpoint *ckpt, uint32_t i, uint32_t j)
{
    return compare_places(&ckpt->objects[i].place, &ckpt->objects[j].place) == 0;
}

dcpk_status dcpk_order_chunks(struct dcpk_checkpoint *ckpt, uint32_t **chunks, size_t *n_chunks,
                              struct dcpk_error *err)
{
    const struct item_kind kind = {ckpt->n_chunks, compare_chunks, same_chunk};

    return order_items(ckpt, &kind, NULL, chunks, n_chunks, err);
}

dcpk_status dcpk_order_objects(struct dcpk_checkpoint *ckpt, uint32_t *first, uint32_t **objects,
                               size_t *n_objects, struct dcpk_error *err)
{
    const struct item_kind kind = {ckpt->n_objects, compare_objects, same_object};

    return order_items(ckpt, &kind, first, objects, n_objects, err);
}
