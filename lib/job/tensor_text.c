/* SPDX-License-Identifier: Apache-2.0 */
/* tensor_text.c - walks a slice row by row and writes its elements. */
#include "lib/job/tensor_text.h"

#include <inttypes.h>

#include "lib/base/alloc.h"
#include "lib/base/json.h"
#include "lib/base/order.h"
#include "lib/tensor/elem.h"

#define BLOCK_ELEMS 65536 /* of a row that are read at once */
#define FLUSH_BYTES 65536

struct text_writing {
    const struct dcpk_text_options *options;
    const struct dcpk_view *view;
    const struct dcpk_slice *slice;
    struct dcpk_view_reader *reader;
    bool is_summary;
    int kept[DCPK_MAX_RANK]; /* axes that the result has */
    int n_kept;
    int64_t at[DCPK_MAX_RANK]; /* the element under way, in the tensor */
    /* Bytes read of the last kept axis: elements [first, first + n) of the row that `at` is in. */
    uint8_t *block;
    int64_t first, n;
    struct dcpk_bytes text;
    struct dcpk_json_out json;
};

static dcpk_status text_flush(struct text_writing *w, size_t least, struct dcpk_error *err)
{
    dcpk_status st = dcpk_bytes_status(&w->text, err);

    if (st != DCPK_OK || w->text.n_bytes < least)
        return st;
    st = w->options->put(w->options->context, w->text.data, w->text.n_bytes, err);
    w->text.n_bytes = 0;
    return st;
}

/* The dtype of both parts of a complex number. */
static enum dcpk_dtype half_of(enum dcpk_dtype dtype)
{
    if (dtype == DCPK_C128)
        return DCPK_F64;
    return dtype == DCPK_C64 ? DCPK_F32 : DCPK_F16;
}

static void put_complex(struct text_writing *w, const struct dcpk_elem *e)
{
    const enum dcpk_dtype half = half_of(w->view->dtype);
    char re[32], im[32];

    if (w->options->as_json) {
        dcpk_json_begin_array(&w->json);
        dcpk_json_put_double(&w->json, e->re);
        dcpk_json_put_double(&w->json, e->im);
        dcpk_json_end_array(&w->json);
        return;
    }
    dcpk_elem_format_float(half, e->re, re);
    dcpk_elem_format_float(half, e->im, im);
    dcpk_bytes_printf(&w->text, "(%s%s%sj)", re, im[0] == '-' ? "" : "+", im);
}

static void put_float(struct text_writing *w, double v)
{
    char text[32];

    if (w->options->as_json) {
        dcpk_json_put_double(&w->json, v);
        return;
    }
    dcpk_elem_format_float(w->view->dtype, v, text);
    dcpk_bytes_text(&w->text, text);
}

static void text_put_elem(struct text_writing *w, const struct dcpk_elem *e)
{
    const bool as_json = w->options->as_json;

    switch (e->kind) {
    case DCPK_ELEM_FLOAT:
        put_float(w, e->re);
        break;
    case DCPK_ELEM_COMPLEX:
        put_complex(w, e);
        break;
    case DCPK_ELEM_INT:
        if (as_json)
            dcpk_json_put_int(&w->json, e->i);
        else
            dcpk_bytes_printf(&w->text, "%" PRId64, e->i);
        break;
    case DCPK_ELEM_BOOL:
        if (as_json)
            dcpk_json_put_bool(&w->json, e->u != 0);
        else
            dcpk_bytes_text(&w->text, e->u != 0 ? "True" : "False");
        break;
    case DCPK_ELEM_UINT:
    case DCPK_ELEM_BITS:
        if (as_json)
            dcpk_json_put_uint(&w->json, e->u);
        else
            dcpk_bytes_printf(&w->text, "%" PRIu64, e->u);
        break;
    }
}

/* Read from the element under way on, along the last kept axis, towards `last` but not past it. */
static dcpk_status read_block(struct text_writing *w, int axis, int64_t last,
                              struct dcpk_error *err)
{
    struct dcpk_box box = {.rank = w->view->rank};

    w->n = 0; /* nothing, should it fail */
    for (int i = 0; i < box.rank; i++) {
        box.offset[i] = w->at[i];
        box.extent[i] = 1;
    }
    if (axis >= 0) {
        const int64_t at = w->at[axis], n = (last > at ? last - at : at - last) + 1;

        box.extent[axis] = dcpk_min_i64(n, BLOCK_ELEMS);
        box.offset[axis] = last > at ? at : at - (box.extent[axis] - 1);
    }
    if (dcpk_view_reader_read(w->reader, &box, w->block, err) != DCPK_OK)
        return err->status;
    w->first = axis >= 0 ? box.offset[axis] : 0;
    w->n = axis >= 0 ? box.extent[axis] : 1;
    return DCPK_OK;
}

/* last: the index on that axis of the last element that this row will be asked for. */
static dcpk_status text_put_next(struct text_writing *w, int axis, int64_t last,
                                 struct dcpk_error *err)
{
    const int64_t at = axis >= 0 ? w->at[axis] : 0;
    struct dcpk_elem e;

    if ((at < w->first || at >= w->first + w->n) && read_block(w, axis, last, err) != DCPK_OK)
        return err->status;
    e = dcpk_elem_load(w->view->dtype,
                       w->block + (size_t)(at - w->first) * dcpk_dtype_bytes(w->view->dtype));
    text_put_elem(w, &e);
    return text_flush(w, FLUSH_BYTES, err);
}

/* Writes the separator between two items at this depth, as numpy's _formatArray. */
static void put_separator(struct text_writing *w, int depth)
{
    const int axes_left = w->n_kept - depth;

    if (w->options->as_json)
        return;
    if (axes_left == 1) {
        dcpk_bytes_text(&w->text, ", ");
        return;
    }
    dcpk_bytes_text(&w->text, ",");
    for (int i = 1; i < axes_left; i++)
        dcpk_bytes_text(&w->text, "\n");
    for (int i = 0; i <= depth; i++)
        dcpk_bytes_text(&w->text, " ");
}

static dcpk_status text_put_axis(struct text_writing *w, int depth, struct dcpk_error *err);

/* Items [from, to) of the axis at this depth. */
static dcpk_status text_put_items(struct text_writing *w, int depth, int64_t from, int64_t to,
                                  struct dcpk_error *err)
{
    const int axis = w->kept[depth];
    const struct dcpk_slice_axis *range = &w->slice->axis[axis];
    dcpk_status st = DCPK_OK;

    w->n = 0; /* the block read is of another row, or of the other edge */
    for (int64_t i = from; i < to && st == DCPK_OK; i++) {
        if (i > 0)
            put_separator(w, depth);
        w->at[axis] = range->first + i * range->step;
        if (depth + 1 < w->n_kept)
            st = text_put_axis(w, depth + 1, err);
        else
            st = text_put_next(w, axis, range->first + (to - 1) * range->step, err);
    }
    return st;
}

static dcpk_status text_put_axis(struct text_writing *w, int depth, struct dcpk_error *err)
{
    const int64_t n = w->slice->axis[w->kept[depth]].n;
    const bool is_cut = w->is_summary && n > 2 * DCPK_TEXT_EDGE_ITEMS;
    dcpk_status st;

    if (w->options->as_json)
        dcpk_json_begin_array(&w->json);
    else
        dcpk_bytes_text(&w->text, "[");
    st = text_put_items(w, depth, 0, is_cut ? DCPK_TEXT_EDGE_ITEMS : n, err);
    if (st == DCPK_OK && is_cut) {
        put_separator(w, depth);
        dcpk_bytes_text(&w->text, "...");
        st = text_put_items(w, depth, n - DCPK_TEXT_EDGE_ITEMS, n, err);
    }
    if (w->options->as_json)
        dcpk_json_end_array(&w->json);
    else
        dcpk_bytes_text(&w->text, "]");
    return st;
}

static void text_init(struct text_writing *w)
{
    w->is_summary = !w->options->all && !w->options->as_json &&
                    dcpk_slice_count(w->slice) > DCPK_TEXT_THRESHOLD;
    for (int axis = 0; axis < w->slice->rank; axis++) {
        w->at[axis] = w->slice->axis[axis].first;
        if (!w->slice->axis[axis].is_dropped)
            w->kept[w->n_kept++] = axis;
    }
    dcpk_json_out_init(&w->json, &w->text, 0);
}

dcpk_status dcpk_tensor_text(struct dcpk_exec *exec, const struct dcpk_view *view,
                             const struct dcpk_slice *slice,
                             const struct dcpk_text_options *options, struct dcpk_error *err)
{
    struct text_writing w = {.options = options, .view = view, .slice = slice};
    dcpk_status st = dcpk_view_reader_new(exec, view, &w.reader, err);

    if (st != DCPK_OK)
        return st;
    text_init(&w);
    w.block = dcpk_alloc_array(BLOCK_ELEMS, dcpk_dtype_bytes(view->dtype), err);
    if (w.block == NULL)
        st = err->status;
    else if (w.n_kept == 0)
        st = text_put_next(&w, -1, 0, err);
    else if (dcpk_slice_count(slice) == 0 && !options->as_json)
        dcpk_bytes_text(&w.text, "[]"); /* as numpy prints an empty array */
    else
        st = text_put_axis(&w, 0, err);
    if (st == DCPK_OK)
        st = text_flush(&w, 0, err);
    dcpk_bytes_release(&w.text);
    dcpk_free(w.block);
    dcpk_view_reader_free(w.reader);
    return st;
}
