/* SPDX-License-Identifier: Apache-2.0 */
/* gather.c - collects the elements of a region from wherever the source's chunks keep them. */
/*
 *   region of the view --pieces--> boxes of source tensors --chunk index--> parts of chunks
 * --locate--> bytes of files
 *
 * Each part is one strided copy from the file into the region's buffer. Its shape decides how it
 * is read:
 * - one run on both sides: straight into place;
 * - long runs: each straight into place;
 * - short runs close to each other: their whole span into scratch, as many outer indices as fit,
 *   then copied;
 * - short runs far apart: run by run.
 * Where the dtypes differ, the part goes through the cast buffers, slab by slab.
 */
#include <string.h>

#include "lib/base/order.h"
#include "lib/exec/slab.h"
#include "lib/exec/workers.h"

/* A run this long is read in place: a system call then costs less than the copy it saves. */
#define LONG_RUN_BYTES (32 << 10)
/* So many bytes read in vain cost less than one more system call. */
#define WASTE_RUN_BYTES (8 << 10)

/* A gathering under way. */
struct gather {
    struct dcpk_exec *exec;
    struct dcpk_worker *worker;
    const struct dcpk_view *view;
    const struct dcpk_box *region;
    int64_t stride_bytes[DCPK_MAX_RANK]; /* of the region's buffer */
    uint8_t *out;                        /* NULL: only advise */
};

/* A strided copy out of a file, or out of a chunk that was decoded. */
struct file_copy {
    const uint8_t *decoded; /* NULL: from `source` */
    struct dcpk_source *source;
    uint64_t first_bytes;
    struct dcpk_copy copy;
    uint8_t *out;
};

static const int64_t *piece_span(const void *items, size_t i)
{
    const struct dcpk_piece *piece = (const struct dcpk_piece *)items + i;

    return piece->span + 2 * piece->src_rank;
}

dcpk_status dcpk_piece_tree_build(const struct dcpk_view *view, struct dcpk_box_tree *tree,
                                  struct dcpk_error *err)
{
    *tree = (struct dcpk_box_tree){
        .items = view->pieces,
        .span = piece_span,
        .n = view->literal == NULL ? view->n_pieces : 0,
        .rank = view->rank,
    };
    return dcpk_box_tree_build(tree, err);
}

static void swap_axes(struct dcpk_copy *copy, int a, int b)
{
    const int64_t extent = copy->extent[a];
    const int64_t src = copy->src_stride_bytes[a], dst = copy->dst_stride_bytes[a];

    copy->extent[a] = copy->extent[b];
    copy->src_stride_bytes[a] = copy->src_stride_bytes[b];
    copy->dst_stride_bytes[a] = copy->dst_stride_bytes[b];
    copy->extent[b] = extent;
    copy->src_stride_bytes[b] = src;
    copy->dst_stride_bytes[b] = dst;
}

/* The order of the loops is free: let the source's widest stride come first, so that inner loops
 * span few bytes. */
static void sort_axes(struct dcpk_copy *copy)
{
    for (int a = 1; a < copy->rank; a++)
        for (int b = a; b > 0 && copy->src_stride_bytes[b - 1] < copy->src_stride_bytes[b]; b--)
            swap_axes(copy, b - 1, b);
}

/* Bytes from the first to the end of the last element that the axes from `axis` on reach in the
 * source. */
static uint64_t span_bytes(const struct dcpk_copy *copy, int axis)
{
    uint64_t n = copy->elem_bytes;

    for (; axis < copy->rank; axis++)
        n += (uint64_t)(copy->extent[axis] - 1) * (uint64_t)copy->src_stride_bytes[axis];
    return n;
}

static uint64_t wanted_bytes(const struct dcpk_copy *copy, int axis)
{
    uint64_t n = copy->elem_bytes;

    for (; axis < copy->rank; axis++)
        n *= (uint64_t)copy->extent[axis];
    return n;
}

/* Bytes that lie one behind the other on both sides (`run`), or in the source alone. */
static uint64_t run_bytes(const struct dcpk_copy *copy, bool both)
{
    const int last = copy->rank - 1;
    const int64_t elem_bytes = (int64_t)copy->elem_bytes;

    if (last < 0 || copy->src_stride_bytes[last] != elem_bytes ||
        (both && copy->dst_stride_bytes[last] != elem_bytes))
        return copy->elem_bytes;
    return (uint64_t)copy->extent[last] * copy->elem_bytes;
}

/* How a file copy is carried out: for every index of the axes before `axis`, `group` indices of
 * `axis` at a time. */
struct reading {
    int axis;
    int64_t group;
    bool in_place; /* each is one run, read to where it belongs; else a span, read into scratch */
};

/* The outermost axis along which whole spans fit in scratch and are worth reading. */
static struct reading choose_reading(const struct dcpk_copy *copy, size_t scratch_bytes)
{
    const uint64_t run = run_bytes(copy, true), source_run = run_bytes(copy, false);
    const int n_outer = run > copy->elem_bytes ? copy->rank - 1 : copy->rank;
    const struct reading by_run = {.axis = n_outer, .group = 1, .in_place = true};

    if (run >= LONG_RUN_BYTES)
        return by_run;
    for (int axis = 0; axis < n_outer; axis++) {
        const uint64_t inner = span_bytes(copy, axis + 1);
        const uint64_t stride = (uint64_t)copy->src_stride_bytes[axis];
        uint64_t group = (uint64_t)copy->extent[axis], span, wanted;

        if (inner > scratch_bytes)
            continue;
        if (stride > 0 && (scratch_bytes - inner) / stride < group)
            group = (scratch_bytes - inner) / stride + 1;
        if (group > (uint64_t)copy->extent[axis])
            group = (uint64_t)copy->extent[axis];
        span = (group - 1) * stride + inner;
        wanted = group * wanted_bytes(copy, axis + 1);
        if (span <= 2 * wanted + wanted / source_run * WASTE_RUN_BYTES)
            return (struct reading){.axis = axis, .group = (int64_t)group};
    }
    return by_run;
}

/* `n` indices of reading->axis and the axes behind it: where they begin in the source and in out.
 */
struct read_step {
    int64_t n;
    uint64_t src_bytes, dst_bytes;
};

static dcpk_status read_part(const struct gather *g, const struct file_copy *file,
                             const struct reading *reading, const struct read_step *step,
                             struct dcpk_error *err)
{
    const uint64_t first = file->first_bytes + step->src_bytes;
    struct dcpk_worker *worker = g->worker;
    struct dcpk_copy part = {.elem_bytes = file->copy.elem_bytes};

    if (reading->in_place)
        return dcpk_worker_read(worker, file->source, first, file->out + step->dst_bytes,
                                (size_t)run_bytes(&file->copy, true), err);
    for (int axis = reading->axis; axis < file->copy.rank; axis++) {
        part.extent[part.rank] = axis == reading->axis ? step->n : file->copy.extent[axis];
        part.src_stride_bytes[part.rank] = file->copy.src_stride_bytes[axis];
        part.dst_stride_bytes[part.rank++] = file->copy.dst_stride_bytes[axis];
    }
    if (dcpk_worker_read(worker, file->source, first, worker->scratch, (size_t)span_bytes(&part, 0),
                         err) != DCPK_OK)
        return err->status;
    g->exec->device->copy(&part, worker->scratch, file->out + step->dst_bytes);
    return DCPK_OK;
}

/* Step to the next index of the first n axes; false after the last one. */
static bool next_index(const struct dcpk_copy *copy, int n, int64_t *index)
{
    for (int axis = n - 1; axis >= 0; axis--) {
        if (++index[axis] < copy->extent[axis])
            return true;
        index[axis] = 0;
    }
    return false;
}

static uint64_t index_offset(const int64_t *stride_bytes, const int64_t *index, int n)
{
    uint64_t at = 0;

    for (int axis = 0; axis < n; axis++)
        at += (uint64_t)index[axis] * (uint64_t)stride_bytes[axis];
    return at;
}

static dcpk_status read_copy(const struct gather *g, const struct file_copy *file,
                             struct dcpk_error *err)
{
    const struct dcpk_copy *copy = &file->copy;
    const struct reading reading = choose_reading(copy, g->worker->scratch_bytes);
    const int64_t n_rows = reading.in_place ? 1 : copy->extent[reading.axis];
    int64_t index[DCPK_MAX_RANK] = {0};
    dcpk_status st = DCPK_OK;

    if (file->decoded != NULL) {
        g->exec->device->copy(copy, file->decoded + file->first_bytes, file->out);
        return DCPK_OK;
    }
    do {
        const uint64_t src = index_offset(copy->src_stride_bytes, index, reading.axis);
        const uint64_t dst = index_offset(copy->dst_stride_bytes, index, reading.axis);

        for (int64_t row = 0; row < n_rows && st == DCPK_OK; row += reading.group) {
            struct read_step step = {dcpk_min_i64(n_rows - row, reading.group), src, dst};

            if (row > 0) {
                step.src_bytes += (uint64_t)row * (uint64_t)copy->src_stride_bytes[reading.axis];
                step.dst_bytes += (uint64_t)row * (uint64_t)copy->dst_stride_bytes[reading.axis];
            }
            st = read_part(g, file, &reading, &step, err);
        }
    } while (st == DCPK_OK && next_index(copy, reading.axis, index));
    return st;
}

/* A part of a chunk and where it goes. */
struct part {
    const struct dcpk_piece *piece;
    const struct dcpk_extent *extent;
    const struct dcpk_box *chunk;
    enum dcpk_dtype dtype;  /* of the source */
    const uint8_t *decoded; /* the chunk's bytes, where it is stored encoded */
};

/* The copy of `box` (of the source tensor) to memory at `out` where box `to` has these strides. */
static void make_copy(const struct part *part, const struct dcpk_box *box,
                      const struct dcpk_box *to, const int64_t *dst_stride, uint8_t *out,
                      struct file_copy *file)
{
    file->decoded = part->decoded;
    file->source = part->extent->source;
    file->first_bytes = part->extent->first_bytes;
    file->out = out;
    for (int axis = 0; axis < box->rank; axis++)
        file->first_bytes += (uint64_t)(box->offset[axis] - part->chunk->offset[axis]) *
                             (uint64_t)part->extent->stride_bytes[axis];
    dcpk_copy_pair(dcpk_dtype_bytes(part->dtype), box, part->extent->stride_bytes, to, dst_stride,
                   &file->copy);
    if (!part->extent->is_row_major)
        sort_axes(&file->copy);
    dcpk_copy_simplify(&file->copy);
}

/* Where box `to` of the view begins in the region's buffer. */
static uint8_t *place_in_region(const struct gather *g, const struct dcpk_box *to)
{
    uint64_t at = 0;

    for (int axis = 0; axis < to->rank; axis++)
        at += (uint64_t)(to->offset[axis] - g->region->offset[axis]) *
              (uint64_t)g->stride_bytes[axis];
    return g->out + at;
}

/* Read one slab of a part densely, cast it, put it into place. */
static dcpk_status cast_slab(const struct gather *g, const struct part *part,
                             const struct dcpk_box *box, struct dcpk_error *err)
{
    const size_t n_elems = (size_t)dcpk_slab_elems(box);
    const size_t elem_bytes = dcpk_dtype_bytes(g->view->dtype);
    int64_t packed[DCPK_MAX_RANK], packed_out[DCPK_MAX_RANK];
    struct file_copy file;
    struct dcpk_copy copy;
    struct dcpk_box to;

    dcpk_row_major_strides(dcpk_dtype_bytes(part->dtype), box->extent, box->rank, packed);
    make_copy(part, box, box, packed, g->worker->cast_from, &file);
    if (read_copy(g, &file, err) != DCPK_OK)
        return err->status;
    dcpk_piece_forward(part->piece, box, &to);
    dcpk_row_major_strides(elem_bytes, to.extent, to.rank, packed_out);
    dcpk_copy_pair(elem_bytes, &to, packed_out, &to, g->stride_bytes, &copy);
    dcpk_copy_simplify(&copy);
    if (wanted_bytes(&copy, 0) == run_bytes(&copy, true)) /* one run: cast straight into place */
        return g->exec->device->cast(part->dtype, g->worker->cast_from, g->view->dtype,
                                     place_in_region(g, &to), n_elems, err);
    if (g->exec->device->cast(part->dtype, g->worker->cast_from, g->view->dtype, g->worker->cast_to,
                              n_elems, err) != DCPK_OK)
        return err->status;
    g->exec->device->copy(&copy, g->worker->cast_to, place_in_region(g, &to));
    return DCPK_OK;
}

static dcpk_status cast_part(const struct gather *g, const struct part *part,
                             const struct dcpk_box *box, struct dcpk_error *err)
{
    const size_t from_bytes = dcpk_dtype_bytes(part->dtype);
    const size_t to_bytes = dcpk_dtype_bytes(g->view->dtype);
    struct dcpk_slabs slabs;

    dcpk_slabs_cut(box, dcpk_max_size(from_bytes, to_bytes), g->worker->cast_bytes, &slabs);
    for (uint64_t i = 0; i < slabs.n; i++) {
        struct dcpk_box slab;

        dcpk_slabs_box(&slabs, i, &slab);
        if (cast_slab(g, part, &slab, err) != DCPK_OK)
            return err->status;
    }
    return DCPK_OK;
}

/* Zeros: the longest runs that the region's buffer allows. */
static void fill_piece(const struct gather *g, const struct dcpk_box *to)
{
    int64_t index[DCPK_MAX_RANK] = {0};
    struct dcpk_copy fill;
    uint8_t *first;
    int n_outer;

    if (g->out == NULL)
        return;
    first = place_in_region(g, to);
    dcpk_copy_pair(dcpk_dtype_bytes(g->view->dtype), to, g->stride_bytes, to, g->stride_bytes,
                   &fill);
    dcpk_copy_simplify(&fill);
    n_outer = run_bytes(&fill, true) > fill.elem_bytes ? fill.rank - 1 : fill.rank;
    do {
        memset(first + index_offset(fill.dst_stride_bytes, index, n_outer), 0,
               (size_t)run_bytes(&fill, true));
    } while (next_index(&fill, n_outer, index));
}

static void advise_part(const struct part *part, const struct file_copy *file)
{
    const struct dcpk_extent *extent = part->extent;

    if (extent->decoded_bytes > 0)
        dcpk_source_advise(extent->source, extent->record_offset_bytes, extent->record_bytes,
                           DCPK_WILL_NEED);
    else if (span_bytes(&file->copy, 0) >= LONG_RUN_BYTES)
        dcpk_source_advise(file->source, file->first_bytes, span_bytes(&file->copy, 0),
                           DCPK_WILL_NEED);
}

static dcpk_status gather_part(const struct gather *g, const struct part *part,
                               const struct dcpk_box *box, struct dcpk_error *err)
{
    struct file_copy file;
    struct dcpk_box to;
    uint8_t *out = NULL;

    dcpk_piece_forward(part->piece, box, &to);
    if (part->extent->is_zero) {
        fill_piece(g, &to);
        return DCPK_OK;
    }
    if (g->out != NULL && part->dtype != g->view->dtype)
        return cast_part(g, part, box, err);
    if (g->out != NULL)
        out = place_in_region(g, &to);
    make_copy(part, box, &to, g->stride_bytes, out, &file);
    if (g->out != NULL)
        return read_copy(g, &file, err);
    advise_part(part, &file);
    return DCPK_OK;
}

/* A part of an encoded chunk (a run of one: of the chunk around it). */
static dcpk_status gather_decoded(const struct gather *g, const struct dcpk_chunk *chunk,
                                  struct part *part, const struct dcpk_box *box,
                                  struct dcpk_error *err)
{
    const struct dcpk_checkpoint *ckpt = g->exec->ckpt;
    const struct dcpk_chunk_run *run = dcpk_checkpoint_chunk_run(ckpt, chunk);
    const struct dcpk_chunk *stored = run == NULL ? chunk : &ckpt->chunks[run->of];
    dcpk_status st;

    if (dcpk_decoded_get(g->exec->decoded, stored, part->extent, &part->decoded, err) != DCPK_OK)
        return err->status;
    st = gather_part(g, part, box, err);
    dcpk_decoded_put(g->exec->decoded, stored);
    return st;
}

static dcpk_status gather_chunk(const struct gather *g, const struct dcpk_chunk *chunk,
                                struct part *part, const struct dcpk_box *box,
                                struct dcpk_error *err)
{
    if (part->extent->decoded_bytes > 0 && g->out != NULL)
        return gather_decoded(g, chunk, part, box, err);
    return gather_part(g, part, box, err);
}

static dcpk_status gather_piece(const struct gather *g, const struct dcpk_piece *piece,
                                struct dcpk_error *err)
{
    const struct dcpk_reader *reader = g->worker == NULL ? NULL : &g->worker->reader;
    const struct dcpk_tensor *tensor;
    const struct dcpk_chunk *chunk;
    struct dcpk_box from, to;
    char text[256];
    uint64_t n_left; /* elements that no chunk gave yet */
    size_t at = 0;

    if (!dcpk_piece_clip(piece, g->region, &from, &to))
        return DCPK_OK;
    if (piece->src == DCPK_PIECE_FILL) {
        fill_piece(g, &to);
        return DCPK_OK;
    }
    tensor = &g->exec->ckpt->tensors[piece->src];
    n_left = dcpk_slab_elems(&from);
    while ((chunk = dcpk_chunk_index_next(g->exec->index, piece->src, &from, &at)) != NULL) {
        struct dcpk_extent extent;
        struct dcpk_box chunk_box, box;
        struct part part = {piece, &extent, &chunk_box, tensor->dtype, NULL};

        dcpk_box_unpack(chunk->span, tensor->rank, &chunk_box);
        if (!dcpk_box_intersect(&chunk_box, &from, &box))
            continue;
        if (dcpk_exec_locate(g->exec, chunk, reader, &extent, err) != DCPK_OK)
            return err->status;
        if (gather_chunk(g, chunk, &part, &box, err) != DCPK_OK) {
            dcpk_context(err, "reading '%s' from '%s'", tensor->key,
                         dcpk_source_name(extent.source));
            return err->status;
        }
        n_left -= dcpk_slab_elems(&box);
    }
    /* Memory that no chunk filled must not get out; the full check is check_cover's. */
    if (n_left != 0)
        return dcpk_fail(err, DCPK_EFORMAT, "the chunks of '%s' do not cover %s exactly",
                         tensor->key, dcpk_box_format(&from, text, sizeof text));
    return DCPK_OK;
}

static void gather_literal(const struct gather *g)
{
    const size_t elem_bytes = dcpk_dtype_bytes(g->view->dtype);
    const uint8_t *literal = g->view->literal;
    int64_t stride_bytes[DCPK_MAX_RANK];
    struct dcpk_copy copy;

    dcpk_row_major_strides(elem_bytes, g->view->shape, g->view->rank, stride_bytes);
    dcpk_copy_pair(elem_bytes, g->region, stride_bytes, g->region, g->stride_bytes, &copy);
    dcpk_copy_simplify(&copy);
    g->exec->device->copy(
        &copy, literal + index_offset(stride_bytes, g->region->offset, g->view->rank), g->out);
}

static dcpk_status gather_all(const struct gather *g, const struct dcpk_box_tree *pieces,
                              struct dcpk_error *err)
{
    size_t at = 0, i;
    dcpk_status st = DCPK_OK;

    while (st == DCPK_OK && dcpk_box_tree_next(pieces, g->region, &at, &i))
        st = gather_piece(g, &g->view->pieces[i], err);
    return st;
}

dcpk_status dcpk_gather(struct dcpk_exec *exec, struct dcpk_worker *worker,
                        const struct dcpk_gather_from *from, const struct dcpk_box *region,
                        void *out, struct dcpk_error *err)
{
    const struct dcpk_view *view = from->view;
    struct gather g = {.exec = exec, .worker = worker, .view = view, .region = region, .out = out};

    if (dcpk_slab_elems(region) == 0)
        return DCPK_OK;
    dcpk_row_major_strides(dcpk_dtype_bytes(view->dtype), region->extent, region->rank,
                           g.stride_bytes);
    if (view->literal != NULL) {
        gather_literal(&g);
        return DCPK_OK;
    }
    return gather_all(&g, from->pieces, err);
}

void dcpk_gather_advise(struct dcpk_exec *exec, const struct dcpk_gather_from *from,
                        const struct dcpk_box *region)
{
    const struct dcpk_view *view = from->view;
    struct gather g = {.exec = exec, .view = view, .region = region};
    struct dcpk_error ignored = DCPK_ERROR_INIT;

    dcpk_row_major_strides(dcpk_dtype_bytes(view->dtype), region->extent, region->rank,
                           g.stride_bytes);
    if (view->literal == NULL && dcpk_slab_elems(region) > 0)
        (void)gather_all(&g, from->pieces, &ignored);
}
