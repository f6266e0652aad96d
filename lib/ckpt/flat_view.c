/* SPDX-License-Identifier: Apache-2.0 */
/* flat_view.c - tensors seen through runs of stored chunks, or inside objects: flat ranges cut into
 * boxes. */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "lib/base/checked.h"
#include "lib/ckpt/checkpoint.h"
#include "lib/ckpt/format.h"

dcpk_status dcpk_checkpoint_add_view(struct dcpk_checkpoint *ckpt, const struct dcpk_tensor *tensor,
                                     uint32_t *index, struct dcpk_error *err)
{
    const size_t n = ckpt->n_tensors + ckpt->n_views;
    dcpk_status st;

    if (n >= UINT32_MAX - 1)
        return dcpk_fail(err, DCPK_ERANGE, "more than %u tensors", UINT32_MAX);
    st = dcpk_checkpoint_reserve(ckpt, n, ckpt->n_chunks + ckpt->n_view_chunks, err);
    if (st != DCPK_OK)
        return st;
    ckpt->tensors[n] = *tensor;
    ckpt->tensors[n].first_chunk = ckpt->n_chunks + ckpt->n_view_chunks;
    ckpt->tensors[n].n_chunks = 0;
    ckpt->n_views++;
    *index = (uint32_t)n;
    return DCPK_OK;
}

dcpk_status dcpk_checkpoint_add_computed(struct dcpk_checkpoint *ckpt,
                                         const struct dcpk_tensor *tensor,
                                         const struct dcpk_computed *how, uint32_t *index,
                                         struct dcpk_error *err)
{
    struct dcpk_computed *kept = dcpk_arena_alloc(ckpt->arena, sizeof *kept, err);
    struct dcpk_tensor computed = *tensor;

    if (kept == NULL)
        return err->status;
    *kept = *how;
    computed.computed = kept;
    return dcpk_checkpoint_add_view(ckpt, &computed, index, err);
}

/* Append a chunk to the last view. */
static dcpk_status view_add_chunk(struct dcpk_checkpoint *ckpt, const struct dcpk_box *box,
                                  struct dcpk_chunk_run run, const struct dcpk_place *place,
                                  struct dcpk_error *err)
{
    const uint32_t view = (uint32_t)(ckpt->n_tensors + ckpt->n_views - 1);
    const size_t n = ckpt->n_chunks + ckpt->n_view_chunks;
    int64_t *span = dcpk_arena_array(ckpt->arena, 2 * (size_t)box->rank, sizeof *span, err);

    if (span == NULL || dcpk_checkpoint_reserve(ckpt, view, n, err))
        return err->status;
    dcpk_box_pack(box, span);
    ckpt->chunks[n] = (struct dcpk_chunk){.tensor = view, .span = span, .place = *place};
    ckpt->runs[ckpt->n_view_chunks] = run;
    ckpt->n_view_chunks++;
    ckpt->tensors[view].n_chunks++;
    return DCPK_OK;
}

dcpk_status dcpk_checkpoint_add_inner(struct dcpk_checkpoint *ckpt,
                                      const struct dcpk_tensor *tensor,
                                      const struct dcpk_place *place, uint32_t *index,
                                      size_t *chunk, struct dcpk_error *err)
{
    const uint64_t file_bytes = dcpk_source_bytes(ckpt->files[place->file]);
    struct dcpk_box whole;
    uint64_t n_bytes = 0;
    int64_t n_elems;

    if (dcpk_shape_count(tensor->shape, tensor->rank, &n_elems, err) != DCPK_OK)
        return err->status;
    if (!dcpk_mul_u64((uint64_t)n_elems, dcpk_dtype_bytes(tensor->dtype), &n_bytes) ||
        n_bytes != place->n_bytes || n_bytes > file_bytes ||
        place->offset_bytes > file_bytes - n_bytes)
        return dcpk_fail(err, DCPK_EFORMAT,
                         "'%s': %" PRIu64 " bytes at byte %" PRIu64 " of '%s' are not its %" PRId64
                         " elements",
                         tensor->key, place->n_bytes, place->offset_bytes,
                         dcpk_source_name(ckpt->files[place->file]), n_elems);
    dcpk_box_whole(tensor->shape, tensor->rank, &whole);
    *chunk = ckpt->n_chunks + ckpt->n_view_chunks;
    if (dcpk_checkpoint_add_view(ckpt, tensor, index, err) != DCPK_OK)
        return err->status;
    return view_add_chunk(ckpt, &whole, (struct dcpk_chunk_run){DCPK_IN_PLACE, 0}, place, err);
}

dcpk_status dcpk_checkpoint_add_stored_view(struct dcpk_checkpoint *ckpt,
                                            const struct dcpk_tensor *tensor, uint32_t first_file,
                                            uint32_t *index, struct dcpk_error *err)
{
    struct dcpk_checkpoint *from = ckpt->adapter;

    if (dcpk_checkpoint_add_view(ckpt, tensor, index, err))
        return err->status;
    for (size_t i = 0; i < tensor->n_chunks; i++) {
        const struct dcpk_chunk *chunk = &from->chunks[tensor->first_chunk + i];
        struct dcpk_place place = {.file = first_file + chunk->place.file};
        struct dcpk_extent where;
        struct dcpk_box box;
        int64_t n_elems;

        dcpk_box_unpack(chunk->span, tensor->rank, &box);
        if (dcpk_box_count(&box, &n_elems, err))
            return err->status;
        if (n_elems == 0)
            continue;
        if (dcpk_checkpoint_locate(from, chunk, NULL, &where, err))
            return err->status;
        if (!where.is_row_major || where.decoded_bytes != 0 || where.is_zero)
            return dcpk_fail(err, DCPK_EUNSUPPORTED,
                             "'%s' is not stored as one run of its elements", tensor->key);
        place.offset_bytes = where.first_bytes;
        place.n_bytes = (uint64_t)n_elems * dcpk_dtype_bytes(tensor->dtype);
        if (view_add_chunk(ckpt, &box, (struct dcpk_chunk_run){DCPK_IN_PLACE, 0}, &place, err))
            return err->status;
    }
    return DCPK_OK;
}

static bool run_fits(int64_t start, int64_t n, int64_t end)
{
    return start >= 0 && n >= 0 && n <= end && start <= end - n;
}

dcpk_status dcpk_checkpoint_add_run(struct dcpk_checkpoint *ckpt, const struct dcpk_box *block,
                                    int64_t start, int64_t n, struct dcpk_chunk_run run,
                                    struct dcpk_error *err)
{
    const struct dcpk_tensor *view = &ckpt->tensors[ckpt->n_tensors + ckpt->n_views - 1];
    const struct dcpk_tensor *stored = &ckpt->tensors[ckpt->chunks[run.of].tensor];
    struct dcpk_box whole, source;
    int64_t block_elems = 0, chunk_elems = 0;

    dcpk_box_whole(view->shape, view->rank, &whole);
    dcpk_box_unpack(ckpt->chunks[run.of].span, stored->rank, &source);
    if (dcpk_box_count(block, &block_elems, err) || dcpk_box_count(&source, &chunk_elems, err))
        return err->status;
    if (!dcpk_box_contains(&whole, block) || !run_fits(start, n, block_elems) ||
        !run_fits(run.first, n, chunk_elems))
        return dcpk_fail(err, DCPK_EFORMAT,
                         "'%s': elements %" PRId64 " to %" PRId64
                         " of a chunk do not fit into '%s'",
                         stored->key, run.first, run.first + n, view->key);
    while (n > 0) {
        struct dcpk_box box;
        const int64_t taken = dcpk_box_take_run(block, start, n, &box);
        const struct dcpk_place place = ckpt->chunks[run.of].place; /* the table may move */

        if (view_add_chunk(ckpt, &box, run, &place, err) != DCPK_OK)
            return err->status;
        start += taken;
        run.first += taken;
        n -= taken;
    }
    return DCPK_OK;
}

const struct dcpk_chunk_run *dcpk_checkpoint_chunk_run(const struct dcpk_checkpoint *ckpt,
                                                       const struct dcpk_chunk *chunk)
{
    const size_t i = (size_t)(chunk - ckpt->chunks);

    assert(i < ckpt->n_chunks + ckpt->n_view_chunks);
    if (i < ckpt->n_chunks)
        return NULL;
    return &ckpt->runs[i - ckpt->n_chunks];
}

/* A chunk that is not of a view, or the whole of an inner tensor. */
static dcpk_status locate_whole(struct dcpk_checkpoint *ckpt, const struct dcpk_chunk *chunk,
                                const struct dcpk_reader *reader, struct dcpk_extent *where,
                                struct dcpk_error *err)
{
    if (dcpk_checkpoint_chunk_run(ckpt, chunk) == NULL)
        return ckpt->format->reader->locate(ckpt, chunk, reader, where, err);
    *where = (struct dcpk_extent){.source = ckpt->files[chunk->place.file],
                                  .first_bytes = chunk->place.offset_bytes,
                                  .is_row_major = true};
    return DCPK_OK;
}

dcpk_status dcpk_checkpoint_locate(struct dcpk_checkpoint *ckpt, const struct dcpk_chunk *chunk,
                                   const struct dcpk_reader *reader, struct dcpk_extent *where,
                                   struct dcpk_error *err)
{
    const struct dcpk_tensor *tensor = &ckpt->tensors[chunk->tensor];
    const struct dcpk_chunk_run *run = dcpk_checkpoint_chunk_run(ckpt, chunk);
    const struct dcpk_chunk *stored = chunk;
    int64_t stride = (int64_t)dcpk_dtype_bytes(tensor->dtype);

    if (run == NULL)
        return ckpt->format->reader->locate(ckpt, chunk, reader, where, err);
    if (run->of != DCPK_IN_PLACE)
        stored = &ckpt->chunks[run->of];
    if (locate_whole(ckpt, stored, reader, where, err) != DCPK_OK)
        return err->status;
    if (!where->is_row_major)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "'%s': a flattened chunk is not stored as one run",
                         tensor->key);
    where->first_bytes += (uint64_t)run->first * (uint64_t)stride;
    for (int a = tensor->rank; a-- > 0;) {
        where->stride_bytes[a] = stride;
        stride *= chunk->span[tensor->rank + a];
    }
    return DCPK_OK;
}

/* ---- lines in pairs ---- */

dcpk_status dcpk_checkpoint_pair_shape(struct dcpk_checkpoint *ckpt, struct dcpk_tensor *tensor,
                                       int axis, struct dcpk_error *err)
{
    int64_t *shape;

    if (axis >= tensor->rank || tensor->rank == DCPK_MAX_RANK)
        return dcpk_fail(err, DCPK_EMISMATCH, "a tensor of %d axes has no lines to be moved",
                         tensor->rank);
    if (tensor->shape[axis] % 2 != 0)
        return dcpk_fail(err, DCPK_EMISMATCH, "its %" PRId64 " rows are not pairs",
                         tensor->shape[axis]);
    shape = dcpk_arena_array(ckpt->arena, (size_t)tensor->rank + 1, sizeof *shape, err);
    if (shape == NULL)
        return err->status;
    for (int a = 0; a <= tensor->rank; a++)
        shape[a] = tensor->shape[a - (a > axis)];
    shape[axis] /= 2;
    shape[axis + 1] = 2;
    tensor->shape = shape;
    tensor->rank++;
    return DCPK_OK;
}

/* The bytes of a chunk, stored or a view of all of one, as part of the last view: those of each
 * step along the axes before `axis` follow each other in a block of all its pairs. */
static dcpk_status pair_chunk(struct dcpk_checkpoint *ckpt, const struct dcpk_tensor *tensor,
                              size_t chunk, int axis, struct dcpk_error *err)
{
    struct dcpk_box box, block = {.rank = tensor->rank + 1};
    int64_t index[DCPK_MAX_RANK], n_run = 1, n_first = 1;

    dcpk_box_unpack(ckpt->chunks[chunk].span, tensor->rank, &box);
    if (chunk >= ckpt->n_chunks)
        chunk = ckpt->runs[chunk - ckpt->n_chunks].of;
    for (int a = 0; a < tensor->rank; a++) {
        const int at = a + (a > axis);

        if (box.extent[a] == 0)
            return DCPK_OK;
        block.offset[at] = box.offset[a];
        block.extent[at] = a < axis ? 1 : box.extent[a];
        if (a > axis)
            n_first *= box.extent[a];
        if (a >= axis)
            n_run *= box.extent[a];
    }
    block.offset[axis] = 0;
    block.extent[axis] = tensor->shape[axis] / 2;
    block.offset[axis + 1] = 0;
    block.extent[axis + 1] = 2;
    n_first *= box.offset[axis];
    memcpy(index, box.offset, sizeof index);
    for (int64_t first = 0;; first += n_run) {
        memcpy(block.offset, index, (size_t)axis * sizeof *index);
        if (dcpk_checkpoint_add_run(ckpt, &block, n_first, n_run,
                                    (struct dcpk_chunk_run){chunk, first}, err))
            return err->status;
        if (!dcpk_box_next(index, &box, axis))
            return DCPK_OK;
    }
}

dcpk_status dcpk_checkpoint_pair_view(struct dcpk_checkpoint *ckpt, uint32_t index, int axis,
                                      uint32_t *view, struct dcpk_error *err)
{
    struct dcpk_tensor tensor = ckpt->tensors[index];
    const struct dcpk_tensor stored = tensor;

    if (dcpk_checkpoint_pair_shape(ckpt, &tensor, axis, err) ||
        dcpk_checkpoint_add_view(ckpt, &tensor, view, err))
        return err->status;
    for (size_t i = 0; i < stored.n_chunks; i++)
        if (pair_chunk(ckpt, &stored, stored.first_chunk + i, axis, err))
            return err->status;
    return DCPK_OK;
}
