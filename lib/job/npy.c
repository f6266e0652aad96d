/* SPDX-License-Identifier: Apache-2.0 */
/* npy.c - reads a slice in boxes as large as a buffer and writes its elements. */
/*
 * The axes that the result has are split at one of them: those after it fit the buffer with all of
 * their range, so a box takes as many indices of the split axis as fit, and one index of each axis
 * before it. A box holds what a step leaves out, too; a wide step is read index by index.
 */
#include "lib/job/npy.h"

#include <inttypes.h>

#include "lib/base/alloc.h"
#include "lib/base/bytes.h"
#include "lib/base/order.h"
#include "lib/base/text.h"

#ifndef DCPK_NPY_BLOCK_BYTES
#define DCPK_NPY_BLOCK_BYTES (4 << 20)
#endif
#define MAX_STEP     64 /* elements; past it single indices are read */
#define HEADER_ALIGN 64

struct npy_writing {
    const struct dcpk_npy_options *options;
    const struct dcpk_view *view;
    const struct dcpk_slice *slice;
    struct dcpk_view_reader *reader;
    int kept[DCPK_MAX_RANK]; /* axes that the result has */
    int n_kept;
    int split;                 /* in kept; n_kept: all fits, or there are none */
    int64_t chunk;             /* indices of the split axis in a box */
    int64_t at[DCPK_MAX_RANK]; /* index in the slice, of each kept axis up to the split one */
    uint8_t *block, *elems, *wide;
};

static bool is_wide(enum dcpk_dtype dtype, unsigned flags)
{
    return (flags & DCPK_NPY_WIDEN) != 0 &&
           (dtype == DCPK_BF16 || dtype == DCPK_F8_E4M3FN || dtype == DCPK_F8_E5M2);
}

const char *dcpk_npy_descr(enum dcpk_dtype dtype, unsigned flags)
{
    static const char *const names[DCPK_N_DTYPES] = {
        [DCPK_F64] = "<f8",         [DCPK_F32] = "<f4",        [DCPK_F16] = "<f2",
        [DCPK_BF16] = "|V2",        [DCPK_I64] = "<i8",        [DCPK_I32] = "<i4",
        [DCPK_I16] = "<i2",         [DCPK_I8] = "|i1",         [DCPK_U64] = "<u8",
        [DCPK_U32] = "<u4",         [DCPK_U16] = "<u2",        [DCPK_U8] = "|u1",
        [DCPK_BOOL] = "|b1",        [DCPK_C128] = "<c16",      [DCPK_C64] = "<c8",
        [DCPK_F8_E4M3FN] = "|V1",   [DCPK_F8_E5M2] = "|V1",    [DCPK_F8_E4M3FNUZ] = "|V1",
        [DCPK_F8_E5M2FNUZ] = "|V1", [DCPK_F8_E8M0FNU] = "|V1",
    };

    return is_wide(dtype, flags) ? "<f4" : names[dtype];
}

static dcpk_status npy_put_header(const struct npy_writing *w, struct dcpk_error *err)
{
    static const uint8_t magic[] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0};
    struct dcpk_bytes header = {0}, file = {0};
    dcpk_status st;

    dcpk_bytes_printf(&header, "{'descr': '%s', 'fortran_order': False, 'shape': (",
                      dcpk_npy_descr(w->view->dtype, w->options->flags));
    for (int i = 0; i < w->n_kept; i++)
        dcpk_bytes_printf(&header, "%s%" PRId64 "%s", dcpk_joint(i > 0, ", "),
                          w->slice->axis[w->kept[i]].n, w->n_kept == 1 ? "," : "");
    dcpk_bytes_text(&header, "), }");
    while ((sizeof magic + 2 + header.n_bytes + 1) % HEADER_ALIGN != 0 && header.status == DCPK_OK)
        dcpk_bytes_u8(&header, ' ');
    dcpk_bytes_u8(&header, '\n');
    dcpk_bytes_put(&file, magic, sizeof magic);
    dcpk_bytes_u16(&file, (uint16_t)header.n_bytes); /* sixteen axes take 400 bytes */
    dcpk_bytes_put(&file, header.data, header.n_bytes);
    st = dcpk_bytes_status(&header, err);
    if (st == DCPK_OK)
        st = dcpk_bytes_status(&file, err);
    if (st == DCPK_OK)
        st = w->options->put(w->options->context, file.data, file.n_bytes, err);
    dcpk_bytes_release(&header);
    dcpk_bytes_release(&file);
    return st;
}

static int64_t step_of(const struct dcpk_slice_axis *axis)
{
    return axis->step < 0 ? -axis->step : axis->step;
}

/* Elements of the tensor's axis from the first of n indices to the last. */
static int64_t axis_span(const struct dcpk_slice_axis *axis, int64_t n)
{
    return (n - 1) * step_of(axis) + 1;
}

/* Find the split axis: spans are bounded by the tensor's shape, the block's size by division. */
static void choose_split(struct npy_writing *w)
{
    int64_t left = (int64_t)(DCPK_NPY_BLOCK_BYTES / dcpk_dtype_bytes(w->view->dtype));

    w->split = w->n_kept;
    while (w->split > 0) {
        const struct dcpk_slice_axis *axis = &w->slice->axis[w->kept[w->split - 1]];
        const bool is_dense = axis->n == 1 || step_of(axis) <= MAX_STEP;

        w->split--;
        w->chunk = 1;
        if (!is_dense)
            return;
        if (axis_span(axis, axis->n) > left) {
            w->chunk = (left - 1) / step_of(axis) + 1;
            return;
        }
        left /= axis_span(axis, axis->n);
        w->chunk = axis->n;
    }
}

/* The box that holds n indices of the split axis from w->at on, and all of those after it. */
static void npy_box_at(const struct npy_writing *w, int64_t n, struct dcpk_box *box)
{
    box->rank = w->slice->rank;
    for (int a = 0; a < box->rank; a++) {
        box->offset[a] = w->slice->axis[a].first;
        box->extent[a] = 1;
    }
    for (int i = 0; i < w->n_kept; i++) {
        const struct dcpk_slice_axis *axis = &w->slice->axis[w->kept[i]];
        int64_t first = axis->first, count = axis->n;

        if (i <= w->split) {
            first += w->at[i] * axis->step;
            count = i == w->split ? n : 1;
        }
        if (axis->step < 0) /* `first` is the last in memory */
            first -= axis_span(axis, count) - 1;
        box->extent[w->kept[i]] = axis_span(axis, count);
        box->offset[w->kept[i]] = first;
    }
}

/* From the box in w->block to its elements in w->elems, in the slice's order. Returns how many. */
static size_t npy_pick(const struct npy_writing *w, const struct dcpk_box *box, int64_t n)
{
    const size_t elem_bytes = dcpk_dtype_bytes(w->view->dtype);
    struct dcpk_copy copy = {.elem_bytes = elem_bytes};
    int64_t strides[DCPK_MAX_RANK];
    const uint8_t *from = w->block;
    size_t count = 1;

    dcpk_row_major_strides(elem_bytes, box->extent, box->rank, strides);
    for (int i = w->split; i < w->n_kept; i++) {
        const struct dcpk_slice_axis *axis = &w->slice->axis[w->kept[i]];
        const int64_t stride = strides[w->kept[i]];

        copy.extent[copy.rank] = i == w->split ? n : axis->n;
        copy.src_stride_bytes[copy.rank] = stride * axis->step;
        if (axis->step < 0)
            from += (box->extent[w->kept[i]] - 1) * stride;
        count *= (size_t)copy.extent[copy.rank++];
    }
    dcpk_row_major_strides(elem_bytes, copy.extent, copy.rank, copy.dst_stride_bytes);
    w->options->kernels->copy(&copy, from, w->elems);
    return count;
}

static dcpk_status npy_put_elems(const struct npy_writing *w, size_t n, struct dcpk_error *err)
{
    const size_t elem_bytes = dcpk_dtype_bytes(w->view->dtype);

    if (w->wide == NULL)
        return w->options->put(w->options->context, w->elems, n * elem_bytes, err);
    if (w->options->kernels->cast(w->view->dtype, w->elems, DCPK_F32, w->wide, n, err) != DCPK_OK)
        return err->status;
    return w->options->put(w->options->context, w->wide, n * dcpk_dtype_bytes(DCPK_F32), err);
}

/* To the next box; false after the last one. */
static bool npy_advance(struct npy_writing *w)
{
    int i = w->split;

    if (w->n_kept == 0)
        return false;
    w->at[i] += w->chunk;
    while (w->at[i] >= w->slice->axis[w->kept[i]].n) {
        w->at[i] = 0;
        if (i-- == 0)
            return false;
        w->at[i]++;
    }
    return true;
}

static dcpk_status npy_put_boxes(struct npy_writing *w, struct dcpk_error *err)
{
    struct dcpk_box box;

    if (dcpk_slice_count(w->slice) == 0)
        return DCPK_OK;
    do {
        int64_t n = 1;

        if (w->n_kept > 0) {
            n = w->slice->axis[w->kept[w->split]].n - w->at[w->split];
            n = dcpk_min_i64(n, w->chunk);
        }
        npy_box_at(w, n, &box);
        if (dcpk_view_reader_read(w->reader, &box, w->block, err) ||
            npy_put_elems(w, npy_pick(w, &box, n), err))
            return err->status;
    } while (npy_advance(w));
    return DCPK_OK;
}

static dcpk_status npy_take_buffers(struct npy_writing *w, struct dcpk_error *err)
{
    const size_t n_elems = DCPK_NPY_BLOCK_BYTES / dcpk_dtype_bytes(w->view->dtype);

    w->block = dcpk_alloc(DCPK_NPY_BLOCK_BYTES, err);
    w->elems = dcpk_alloc(DCPK_NPY_BLOCK_BYTES, err);
    if (w->block == NULL || w->elems == NULL)
        return err->status;
    if (is_wide(w->view->dtype, w->options->flags)) {
        w->wide = dcpk_alloc_array(n_elems, dcpk_dtype_bytes(DCPK_F32), err);
        if (w->wide == NULL)
            return err->status;
    }
    return DCPK_OK;
}

dcpk_status dcpk_npy_write(struct dcpk_exec *exec, const struct dcpk_view *view,
                           const struct dcpk_slice *slice, const struct dcpk_npy_options *options,
                           struct dcpk_error *err)
{
    struct npy_writing w = {.options = options, .view = view, .slice = slice, .chunk = 1};
    dcpk_status st;

    if (dcpk_npy_descr(view->dtype, options->flags) == NULL)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "numpy has no dtype for %s",
                         dcpk_dtype_name(view->dtype));
    for (int axis = 0; axis < slice->rank; axis++)
        if (!slice->axis[axis].is_dropped)
            w.kept[w.n_kept++] = axis;
    if (dcpk_slice_count(slice) > 0)
        choose_split(&w);
    st = npy_take_buffers(&w, err);
    if (st == DCPK_OK)
        st = dcpk_view_reader_new(exec, view, &w.reader, err);
    if (st == DCPK_OK)
        st = npy_put_header(&w, err);
    if (st == DCPK_OK)
        st = npy_put_boxes(&w, err);
    dcpk_view_reader_free(w.reader);
    dcpk_free(w.wide);
    dcpk_free(w.elems);
    dcpk_free(w.block);
    return st;
}
