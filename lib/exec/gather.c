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
 * Where the dtypes differ, the part goes through the cast buffers, slab by slab. So does a tensor
 * that is computed (struct dcpk_computed): its values and scales are gathered for each slab.
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

/* The order of the loops is free: let the source's widest stride come first, so that inner loops
 * span few bytes. */
static void sort_axes(struct dcpk_copy *copy)
{
    for (int a = 1; a < copy->rank; a++)
        for (int b = a; b > 0 && copy->src_stride_bytes[b - 1] < copy->src_stride_bytes[b]; b--)
            dcpk_copy_swap_axes(copy, b - 1, b);
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
    return dcpk_count_elems(copy->extent + axis, copy->rank - axis) * copy->elem_bytes;
}

/* Bytes that lie one after the other on both sides (`run`), or in the source alone. */
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

/* `n` indices of reading->axis and the axes after it: where they begin in the source and in
 * out. */
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
    g->exec->kernels->copy(&part, worker->scratch, file->out + step->dst_bytes);
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
        g->exec->kernels->copy(copy, file->decoded + file->first_bytes, file->out);
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

/* A part of a chunk, or of a tensor that is computed, and where it goes. */
struct part {
    const struct dcpk_piece *piece;
    const struct dcpk_computed *computed; /* NULL: of a chunk, which the next three describe */
    const struct dcpk_extent *extent;
    const struct dcpk_box *chunk;
    const uint8_t *decoded; /* the chunk's bytes, where it is stored encoded */
    enum dcpk_dtype dtype;  /* of the source */
};

/* The destination of a box of the source: `to` in memory that begins at `at`. */
struct landing {
    struct dcpk_box to; /* its offsets mean nothing here */
    int64_t stride_bytes[DCPK_MAX_RANK];
    uint8_t *at; /* NULL: only advise */
};

/* The copy of `box` (of the source tensor) to where it lands. */
static void make_copy(const struct part *part, const struct dcpk_box *box,
                      const struct landing *landing, struct file_copy *file)
{
    file->decoded = part->decoded;
    file->source = part->extent->source;
    file->first_bytes = part->extent->first_bytes;
    file->out = landing->at;
    for (int axis = 0; axis < box->rank; axis++)
        file->first_bytes += (uint64_t)(box->offset[axis] - part->chunk->offset[axis]) *
                             (uint64_t)part->extent->stride_bytes[axis];
    dcpk_copy_pair(dcpk_dtype_bytes(part->dtype), box, part->extent->stride_bytes, &landing->to,
                   landing->stride_bytes, &file->copy);
    if (!part->extent->is_row_major)
        sort_axes(&file->copy);
    dcpk_copy_simplify(&file->copy);
}

/* Box `to` of the view, in the region's buffer. */
static void land_in_region(const struct gather *g, const struct dcpk_box *to,
                           struct landing *landing)
{
    uint64_t at = 0;

    landing->to = *to;
    memcpy(landing->stride_bytes, g->stride_bytes, sizeof landing->stride_bytes);
    for (int axis = 0; axis < to->rank; axis++)
        at += (uint64_t)(to->offset[axis] - g->region->offset[axis]) *
              (uint64_t)g->stride_bytes[axis];
    landing->at = g->out == NULL ? NULL : g->out + at;
}

/*
 * A box of the source side of a flat piece: its rows lie as far apart as those of the piece, on the
 * axis of the region that the piece fills.
 *
 *     piece [2, 3] at 7 of a bucket:  7  8  9 10 11 12     column 1, box [2, 1]: 8 and 11
 */
static void land_flat(const struct gather *g, const struct dcpk_piece *piece,
                      const struct dcpk_box *box, struct landing *landing)
{
    struct dcpk_box from, to;
    uint64_t at = 0;

    dcpk_piece_from(piece, &from);
    dcpk_piece_to(piece, &to);
    landing->to = *box;
    dcpk_row_major_strides(dcpk_dtype_bytes(g->view->dtype), from.extent, from.rank,
                           landing->stride_bytes);
    for (int axis = 0; axis < from.rank; axis++)
        at += (uint64_t)(box->offset[axis] - from.offset[axis]) *
              (uint64_t)landing->stride_bytes[axis];
    for (int axis = 0; axis < to.rank; axis++) /* may begin before the region; the sum does not */
        at +=
            (uint64_t)(to.offset[axis] - g->region->offset[axis]) * (uint64_t)g->stride_bytes[axis];
    landing->at = g->out == NULL ? NULL : g->out + at;
}

/* The axes of the landing of a turned piece in the order of its source. */
static void turn_landing(const struct dcpk_piece *piece, const struct dcpk_box *box,
                         struct landing *landing)
{
    const struct landing turned = *landing;
    uint8_t axis[DCPK_MAX_RANK];

    dcpk_piece_axes(piece, axis);
    landing->to = *box;
    for (int t = 0; t < turned.to.rank; t++)
        if (axis[t] != DCPK_PIECE_NO_AXIS)
            landing->stride_bytes[axis[t]] = turned.stride_bytes[t];
}

/* Finds the destination of a box of the source side of a piece. */
static void find_landing(const struct gather *g, const struct dcpk_piece *piece,
                         const struct dcpk_box *box, struct landing *landing)
{
    struct dcpk_box to;

    if (dcpk_piece_is_flat(piece)) {
        land_flat(g, piece, box, landing);
        return;
    }
    dcpk_piece_forward(piece, box, &to);
    land_in_region(g, &to, landing);
    if (piece->axes != 0)
        turn_landing(piece, box, landing);
}

/* A slab of a part, row-major, into worker->cast_from. */
static dcpk_status read_slab(const struct gather *g, const struct part *part,
                             const struct dcpk_box *box, struct dcpk_error *err)
{
    struct landing packed = {.to = *box, .at = g->worker->cast_from};
    struct file_copy file;

    if (part->computed != NULL)
        return dcpk_compute(g->exec, g->worker, part->computed, box, err);
    dcpk_row_major_strides(dcpk_dtype_bytes(part->dtype), box->extent, box->rank,
                           packed.stride_bytes);
    make_copy(part, box, &packed, &file);
    return read_copy(g, &file, err);
}

/* Read one slab of a part densely, cast it, put it into place. */
static dcpk_status cast_slab(const struct gather *g, const struct part *part,
                             const struct dcpk_box *box, struct dcpk_error *err)
{
    const size_t n_elems = (size_t)dcpk_box_elems(box);
    const size_t elem_bytes = dcpk_dtype_bytes(g->view->dtype);
    int64_t packed_out[DCPK_MAX_RANK];
    struct landing landing;
    struct dcpk_copy copy;

    if (read_slab(g, part, box, err) != DCPK_OK)
        return err->status;
    find_landing(g, part->piece, box, &landing);
    dcpk_row_major_strides(elem_bytes, landing.to.extent, landing.to.rank, packed_out);
    dcpk_copy_pair(elem_bytes, &landing.to, packed_out, &landing.to, landing.stride_bytes, &copy);
    dcpk_copy_simplify(&copy);
    if (part->dtype == g->view->dtype) { /* computed */
        g->exec->kernels->copy(&copy, g->worker->cast_from, landing.at);
        return DCPK_OK;
    }
    if (wanted_bytes(&copy, 0) == run_bytes(&copy, true)) /* one run: cast straight into place */
        return g->exec->kernels->cast(part->dtype, g->worker->cast_from, g->view->dtype, landing.at,
                                      n_elems, err);
    if (g->exec->kernels->cast(part->dtype, g->worker->cast_from, g->view->dtype,
                               g->worker->cast_to, n_elems, err) != DCPK_OK)
        return err->status;
    g->exec->kernels->copy(&copy, g->worker->cast_to, landing.at);
    return DCPK_OK;
}

static dcpk_status cast_part(const struct gather *g, const struct part *part,
                             const struct dcpk_box *box, struct dcpk_error *err)
{
    const size_t to_bytes = dcpk_dtype_bytes(g->view->dtype);
    size_t from_bytes = dcpk_dtype_bytes(part->dtype);
    struct dcpk_slabs slabs;

    if (part->computed != NULL)
        from_bytes = DCPK_COMPUTED_BYTES;
    dcpk_slabs_cut(box, dcpk_max_size(from_bytes, to_bytes), g->worker->cast_bytes, &slabs);
    for (uint64_t i = 0; i < slabs.n; i++) {
        struct dcpk_box slab;

        dcpk_slabs_box(&slabs, i, &slab);
        if (cast_slab(g, part, &slab, err) != DCPK_OK)
            return err->status;
    }
    return DCPK_OK;
}

/* Zeros: the longest runs that the buffer allows. */
static void fill_landing(const struct gather *g, const struct landing *landing)
{
    int64_t index[DCPK_MAX_RANK] = {0};
    struct dcpk_copy fill;
    int n_outer;

    if (landing->at == NULL)
        return;
    dcpk_copy_pair(dcpk_dtype_bytes(g->view->dtype), &landing->to, landing->stride_bytes,
                   &landing->to, landing->stride_bytes, &fill);
    dcpk_copy_simplify(&fill);
    n_outer = run_bytes(&fill, true) > fill.elem_bytes ? fill.rank - 1 : fill.rank;
    do {
        memset(landing->at + index_offset(fill.dst_stride_bytes, index, n_outer), 0,
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
    struct landing landing;
    struct file_copy file;

    find_landing(g, part->piece, box, &landing);
    if (part->extent->is_zero) {
        fill_landing(g, &landing);
        return DCPK_OK;
    }
    if (g->out != NULL && part->dtype != g->view->dtype)
        return cast_part(g, part, box, err);
    make_copy(part, box, &landing, &file);
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

    if (dcpk_decoded_get(g->exec->decoded, stored, part->extent, &part->decoded,
                         &g->worker->read_bytes, err) != DCPK_OK)
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

/* The box `from` of a tensor that is computed. */
static dcpk_status gather_computed(const struct gather *g, const struct dcpk_piece *piece,
                                   const struct dcpk_tensor *tensor, const struct dcpk_box *from,
                                   struct dcpk_error *err)
{
    struct dcpk_computed how = *tensor->computed;
    const struct part part = {piece, &how, NULL, NULL, NULL, tensor->dtype};

    how.gives_steps = g->view->gives_steps;
    if (g->out == NULL)
        dcpk_compute_advise(g->exec, tensor->computed, from);
    else if (cast_part(g, &part, from, err))
        dcpk_context(err, "computing '%s'", tensor->key);
    return err->status;
}

/* A box of a source tensor, from whichever chunks hold it. */
static dcpk_status gather_box(const struct gather *g, const struct dcpk_piece *piece,
                              const struct dcpk_box *from, struct dcpk_error *err)
{
    const struct dcpk_reader *reader = g->worker == NULL ? NULL : &g->worker->reader;
    const struct dcpk_tensor *tensor = &g->exec->ckpt->tensors[piece->src];
    uint64_t n_left = dcpk_box_elems(from); /* elements that no chunk gave yet */
    const struct dcpk_chunk *chunk;
    char text[256];
    size_t at = 0;

    if (tensor->computed != NULL)
        return gather_computed(g, piece, tensor, from, err);
    while ((chunk = dcpk_chunk_index_next(g->exec->index, piece->src, from, &at)) != NULL) {
        struct dcpk_extent extent;
        struct dcpk_box chunk_box, box;
        struct part part = {piece, NULL, &extent, &chunk_box, NULL, tensor->dtype};

        dcpk_box_unpack(chunk->span, tensor->rank, &chunk_box);
        if (!dcpk_box_intersect(&chunk_box, from, &box))
            continue;
        if (dcpk_exec_locate(g->exec, chunk, reader, &extent, err) != DCPK_OK)
            return err->status;
        if (gather_chunk(g, chunk, &part, &box, err) != DCPK_OK)
            return dcpk_context(err, "reading '%s' from '%s'", tensor->key,
                                dcpk_source_name(extent.source));
        n_left -= dcpk_box_elems(&box);
    }
    /* Memory that no chunk filled must not get out; the full check is check_cover's. */
    if (n_left != 0)
        return dcpk_fail(err, DCPK_EFORMAT, "the chunks of '%s' do not cover %s exactly",
                         tensor->key, dcpk_box_format(from, text, sizeof text));
    return DCPK_OK;
}

static dcpk_status gather_piece(const struct gather *g, const struct dcpk_piece *piece,
                                struct dcpk_error *err)
{
    struct dcpk_box from, to;
    struct landing landing;
    int64_t n_done = 0;

    while (dcpk_piece_next(piece, g->region, &n_done, &from, &to)) {
        if (piece->src == DCPK_PIECE_FILL) {
            land_in_region(g, &to, &landing);
            fill_landing(g, &landing);
        } else if (gather_box(g, piece, &from, err) != DCPK_OK) {
            return err->status;
        }
    }
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
    g->exec->kernels->copy(
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

    if (dcpk_box_elems(region) == 0)
        return DCPK_OK;
    if (view->blocks != NULL)
        return dcpk_gather_blocks(exec, worker, from, region, out, err);
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
    if (view->literal == NULL && dcpk_box_elems(region) > 0 &&
        (view->blocks == NULL || !view->blocks->gives_scales))
        (void)gather_all(&g, from->pieces, &ignored);
}
