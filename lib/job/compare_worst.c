/* SPDX-License-Identifier: Apache-2.0 */
/* compare_worst.c - finds where two tensors are furthest apart, under the stored key, and sorts by
 * it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/job/compare_priv.h"
#include "lib/tensor/elem.h"

#define MAX_DIGITS 17 /* of a value's text */

/* Element `at`, row-major, of a tensor of that shape, as a box of one. */
static void box_of(const int64_t *shape, int rank, int64_t at, struct dcpk_box *box)
{
    box->rank = rank;
    for (int axis = rank; axis-- > 0;) {
        box->offset[axis] = at % shape[axis];
        box->extent[axis] = 1;
        at /= shape[axis];
    }
}

static dcpk_status read_elem(struct dcpk_exec *exec, const struct dcpk_view *view,
                             const struct dcpk_box *box, struct dcpk_elem *elem,
                             struct dcpk_error *err)
{
    struct dcpk_view_reader *reader = NULL;
    uint8_t data[16] = {0};
    dcpk_status st;

    if (dcpk_view_reader_new(exec, view, &reader, err))
        return err->status;
    st = dcpk_view_reader_read(reader, box, data, err);
    dcpk_view_reader_free(reader);
    if (st == DCPK_OK)
        *elem = dcpk_elem_load(view->dtype, data);
    return st;
}

static void format_elem(const struct dcpk_elem *e, int digits, char text[DCPK_VALUE_BYTES])
{
    switch (e->kind) {
    case DCPK_ELEM_FLOAT:
        snprintf(text, DCPK_VALUE_BYTES, "%.*g", digits, e->re);
        break;
    case DCPK_ELEM_COMPLEX:
        snprintf(text, DCPK_VALUE_BYTES, "%.*g%+.*gj", digits, e->re, digits, e->im);
        break;
    case DCPK_ELEM_INT:
        snprintf(text, DCPK_VALUE_BYTES, "%" PRId64, e->i);
        break;
    case DCPK_ELEM_UINT:
    case DCPK_ELEM_BOOL:
    case DCPK_ELEM_BITS:
        snprintf(text, DCPK_VALUE_BYTES, "%" PRIu64, e->u);
        break;
    }
}

/* Three digits, or as many more as it takes to see that they differ. */
static void format_elems(const struct dcpk_elem elem[2], char text[2][DCPK_VALUE_BYTES])
{
    int digits = 3;

    do {
        format_elem(&elem[DCPK_A], digits, text[DCPK_A]);
        format_elem(&elem[DCPK_B], digits, text[DCPK_B]);
    } while (strcmp(text[DCPK_A], text[DCPK_B]) == 0 && ++digits <= MAX_DIGITS);
}

dcpk_status dcpk_pair_place(const struct dcpk_tensor_pair *pair, struct dcpk_exec *exec, int64_t at,
                            char place[DCPK_PLACE_BYTES], char values[2][DCPK_VALUE_BYTES],
                            struct dcpk_error *err)
{
    struct dcpk_elem elem[2];
    struct dcpk_box box;

    box_of(pair->view[0].shape, pair->view[0].rank, at, &box);
    for (int s = 0; s < 2; s++)
        if (read_elem(exec, &pair->view[s], &box, &elem[s], err))
            return err->status;
    format_elems(elem, values);
    dcpk_shape_format(box.offset, box.rank, place, DCPK_PLACE_BYTES);
    return DCPK_OK;
}

/* The stored tensor of A that the element is of, and its place there. Fills are stored nowhere. */
static dcpk_status put_stored_key(struct dcpk_comparing *c, const struct dcpk_box *box,
                                  struct dcpk_difference *d, struct dcpk_error *err)
{
    const struct dcpk_view *view = &d->views[DCPK_A];
    struct dcpk_box from = *box, to;
    char text[256];

    d->place.key = d->name;
    for (size_t i = 0; i < view->n_pieces; i++) {
        const struct dcpk_piece *piece = &view->pieces[i];

        if (piece->src == DCPK_PIECE_FILL || !dcpk_piece_clip(piece, box, &from, &to))
            continue;
        d->place.key = c->side[DCPK_A].ckpt->tensors[piece->src].key;
        break;
    }
    return dcpk_comparing_print(c, &d->place.index, err, "%s",
                                dcpk_shape_format(from.offset, from.rank, text, sizeof text));
}

static dcpk_status find_furthest(struct dcpk_comparing *c, struct dcpk_difference *d,
                                 struct dcpk_error *err)
{
    int64_t at = d->measured.worst;
    char values[2][DCPK_VALUE_BYTES];
    struct dcpk_elem elem[2];
    struct dcpk_box box;

    if (at < 0)
        at = d->measured.first_different;
    if (at < 0)
        return DCPK_OK;
    box_of(d->views[DCPK_A].shape, d->views[DCPK_A].rank, at, &box);
    for (int s = 0; s < 2; s++)
        if (read_elem(c->side[s].exec, &d->views[s], &box, &elem[s], err))
            return err->status;
    format_elems(elem, values);
    if (dcpk_comparing_print(c, &d->place.a, err, "%s", values[DCPK_A]) ||
        dcpk_comparing_print(c, &d->place.b, err, "%s", values[DCPK_B]) ||
        put_stored_key(c, &box, d, err))
        return err->status;
    return DCPK_OK;
}

static int by_distance(const void *left, const void *right)
{
    const struct dcpk_difference *a = *(struct dcpk_difference *const *)left;
    const struct dcpk_difference *b = *(struct dcpk_difference *const *)right;
    const bool a_has_nan = a->measured.n_nan > 0, b_has_nan = b->measured.n_nan > 0;

    if ((a->kind == DCPK_ELEMENTS_DIFFER) != (b->kind == DCPK_ELEMENTS_DIFFER))
        return DCPK_THREE_WAY(a->kind == DCPK_ELEMENTS_DIFFER, b->kind == DCPK_ELEMENTS_DIFFER);
    if (a->kind == DCPK_ELEMENTS_DIFFER && a_has_nan != b_has_nan)
        return DCPK_THREE_WAY(b_has_nan, a_has_nan);
    if (a->kind == DCPK_ELEMENTS_DIFFER && a->measured.max_rel != b->measured.max_rel)
        return DCPK_THREE_WAY(b->measured.max_rel, a->measured.max_rel);
    return DCPK_THREE_WAY(a->number, b->number);
}

/* A list's differences in order. */
static dcpk_status sort_list(struct dcpk_differences *list, struct dcpk_error *err)
{
    struct dcpk_difference **all = dcpk_alloc_array((size_t)list->n, sizeof *all, err);
    size_t n = 0;

    if (all == NULL)
        return err->status;
    for (struct dcpk_difference *d = list->first; d != NULL; d = d->next) {
        d->number = n;
        all[n++] = d;
    }
    qsort(all, n, sizeof *all, by_distance);
    list->end = &list->first;
    for (size_t i = 0; i < n; i++) {
        *list->end = all[i];
        list->end = &all[i]->next;
    }
    *list->end = NULL;
    dcpk_free(all);
    return DCPK_OK;
}

dcpk_status dcpk_comparing_worst(struct dcpk_comparing *c, struct dcpk_error *err)
{
    struct dcpk_differences *lists[] = {&c->report->differences, &c->report->tolerated};

    for (size_t l = 0; l < DCPK_COUNT(lists); l++) {
        for (struct dcpk_difference *d = lists[l]->first; d != NULL; d = d->next)
            if (d->kind == DCPK_ELEMENTS_DIFFER && find_furthest(c, d, err))
                return err->status;
        if (lists[l]->n > 1 && sort_list(lists[l], err))
            return err->status;
    }
    return DCPK_OK;
}
