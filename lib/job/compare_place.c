/* SPDX-License-Identifier: Apache-2.0 */
/* compare_place.c - where two tensors are furthest apart, under the stored key, and in what order
 * that is told. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/text.h"
#include "lib/job/compare_priv.h"
#include "lib/model/model.h"
#include "lib/tensor/elem.h"

#define VALUE_BYTES 64 /* of a value's text */
#define MOST_DIGITS 17

const char *dcpk_compare_part_name(enum dcpk_compare_part part)
{
    static const char *const names[DCPK_N_COMPARED] = {
        [DCPK_COMPARED_WEIGHTS] = "weights", [DCPK_COMPARED_MASTERS] = "masters",
        [DCPK_COMPARED_MOMENTS] = "moments", [DCPK_COMPARED_TENSORS] = "tensors",
        [DCPK_COMPARED_GROUPS] = "groups",   [DCPK_COMPARED_ARGS] = "args",
        [DCPK_COMPARED_STATE] = "state",
    };

    return names[part];
}

enum dcpk_compare_part dcpk_comparing_part(const char *name, const char *part, bool is_tensor)
{
    if (part != NULL && strcmp(part, dcpk_role_name(DCPK_WEIGHT)) == 0)
        return DCPK_COMPARED_WEIGHTS;
    if (part != NULL && strcmp(part, dcpk_role_name(DCPK_MASTER)) == 0)
        return DCPK_COMPARED_MASTERS;
    if (part != NULL && strcmp(part, "parameter group") == 0)
        return DCPK_COMPARED_GROUPS;
    if (part != NULL)
        return DCPK_COMPARED_MOMENTS;
    if (is_tensor)
        return DCPK_COMPARED_TENSORS;
    if (strcmp(name, "args") == 0 || dcpk_starts_with(name, "args."))
        return DCPK_COMPARED_ARGS;
    return dcpk_starts_with(name, "param_groups") ? DCPK_COMPARED_GROUPS : DCPK_COMPARED_STATE;
}

/* The element number `index`, row-major, of a tensor of that shape, as a box of one. */
static void box_of(const int64_t *shape, int rank, int64_t index, struct dcpk_box *box)
{
    box->rank = rank;
    for (int axis = rank; axis-- > 0;) {
        box->offset[axis] = index % shape[axis];
        box->extent[axis] = 1;
        index /= shape[axis];
    }
}

static dcpk_status read_elem(struct dcpk_exec *exec, const struct dcpk_view *view,
                             const struct dcpk_box *box, struct dcpk_elem *elem,
                             struct dcpk_error *err)
{
    struct dcpk_view_reader *reader = NULL;
    uint8_t data[16] = {0};
    dcpk_status st = dcpk_view_reader_new(exec, view, &reader, err);

    if (st == DCPK_OK)
        st = dcpk_view_reader_read(reader, box, data, err);
    dcpk_view_reader_free(reader);
    if (st == DCPK_OK)
        *elem = dcpk_elem_load(view->dtype, data);
    return st;
}

static void format_elem(const struct dcpk_elem *e, int digits, char text[VALUE_BYTES])
{
    switch (e->kind) {
    case DCPK_ELEM_FLOAT:
        snprintf(text, VALUE_BYTES, "%.*g", digits, e->re);
        break;
    case DCPK_ELEM_COMPLEX:
        snprintf(text, VALUE_BYTES, "%.*g%+.*gj", digits, e->re, digits, e->im);
        break;
    case DCPK_ELEM_INT:
        snprintf(text, VALUE_BYTES, "%" PRId64, e->i);
        break;
    case DCPK_ELEM_UINT:
    case DCPK_ELEM_BOOL:
    case DCPK_ELEM_BITS:
        snprintf(text, VALUE_BYTES, "%" PRIu64, e->u);
        break;
    }
}

/* Three digits, or as many more as it takes to see that they differ. */
static dcpk_status put_values(struct dcpk_comparing *c, const struct dcpk_elem *a,
                              const struct dcpk_elem *b, struct dcpk_difference *d,
                              struct dcpk_error *err)
{
    char left[VALUE_BYTES], right[VALUE_BYTES];
    int digits = 3;

    do {
        format_elem(a, digits, left);
        format_elem(b, digits, right);
    } while (strcmp(left, right) == 0 && ++digits <= MOST_DIGITS);
    d->place.a = dcpk_arena_strdup(c->report->arena, left, err);
    if (d->place.a != NULL)
        d->place.b = dcpk_arena_strdup(c->report->arena, right, err);
    return d->place.b == NULL ? err->status : DCPK_OK;
}

/* The stored tensor of A that the element is of, and its place there. Fills are stored nowhere. */
static dcpk_status put_key(struct dcpk_comparing *c, const struct dcpk_box *box,
                           struct dcpk_difference *d, struct dcpk_error *err)
{
    const struct dcpk_view *view = &d->views[0];
    struct dcpk_box from, to;
    char text[256];

    d->place.key = d->name;
    from = *box;
    for (size_t i = 0; i < view->n_pieces; i++) {
        const struct dcpk_piece *piece = &view->pieces[i];

        if (piece->src == DCPK_PIECE_FILL || !dcpk_piece_clip(piece, box, &from, &to))
            continue;
        d->place.key = c->a->tensors[piece->src].key;
        break;
    }
    d->place.index = dcpk_arena_strdup(
        c->report->arena, dcpk_shape_format(from.offset, from.rank, text, sizeof text), err);
    return d->place.index == NULL ? err->status : DCPK_OK;
}

static dcpk_status find_place(struct dcpk_comparing *c, struct dcpk_exec *left,
                              struct dcpk_exec *right, struct dcpk_difference *d,
                              struct dcpk_error *err)
{
    const int64_t index = d->measured.worst >= 0 ? d->measured.worst : d->measured.first_different;
    struct dcpk_elem a, b;
    struct dcpk_box box;
    dcpk_status st;

    if (index < 0)
        return DCPK_OK;
    box_of(d->views[0].shape, d->views[0].rank, index, &box);
    st = read_elem(left, &d->views[0], &box, &a, err);
    if (st == DCPK_OK)
        st = read_elem(right, &d->views[1], &box, &b, err);
    if (st == DCPK_OK)
        st = put_values(c, &a, &b, d, err);
    return st == DCPK_OK ? put_key(c, &box, d, err) : st;
}

static int compare_apart(const void *left, const void *right)
{
    const struct dcpk_difference *a = *(struct dcpk_difference *const *)left;
    const struct dcpk_difference *b = *(struct dcpk_difference *const *)right;
    const bool a_has_nan = a->measured.n_nan > 0, b_has_nan = b->measured.n_nan > 0;

    if ((a->kind == DCPK_ELEMENTS_DIFFER) != (b->kind == DCPK_ELEMENTS_DIFFER))
        return a->kind == DCPK_ELEMENTS_DIFFER ? 1 : -1;
    if (a->kind != DCPK_ELEMENTS_DIFFER)
        return (a->number > b->number) - (a->number < b->number);
    if (a_has_nan != b_has_nan)
        return a_has_nan ? -1 : 1;
    if (a->measured.max_rel != b->measured.max_rel)
        return a->measured.max_rel > b->measured.max_rel ? -1 : 1;
    return (a->number > b->number) - (a->number < b->number);
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
    qsort(all, n, sizeof *all, compare_apart);
    list->end = &list->first;
    for (size_t i = 0; i < n; i++) {
        *list->end = all[i];
        list->end = &all[i]->next;
    }
    *list->end = NULL;
    dcpk_free(all);
    return DCPK_OK;
}

dcpk_status dcpk_comparing_places(struct dcpk_comparing *c, struct dcpk_exec *left,
                                  struct dcpk_exec *right, struct dcpk_error *err)
{
    struct dcpk_differences *lists[] = {&c->report->differences, &c->report->tolerated};
    dcpk_status st = DCPK_OK;

    for (size_t l = 0; l < 2; l++) {
        for (struct dcpk_difference *d = lists[l]->first; d != NULL && st == DCPK_OK; d = d->next)
            if (d->kind == DCPK_ELEMENTS_DIFFER)
                st = find_place(c, left, right, d, err);
        if (st == DCPK_OK && lists[l]->n > 1)
            st = sort_list(lists[l], err);
    }
    return st;
}
