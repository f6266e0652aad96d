/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_segments.c - blocks of tensor parallelism crossed with the chunks that hold them. */
#include "formats/megatron/buckets/megatron_segments.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#include "formats/megatron/buckets/megatron_replay.h"
#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/ckpt/format.h"
#include "lib/tensor/elem.h"

#define PART_ELEMS DCPK_MIN_AGREEING /* of a run, compared at a time */

/* ---- chunks by rows ---- */

struct row_chunk {
    int64_t row; /* its first, on axis 0 */
    size_t chunk;
};

struct dcpk_chunk_rows {
    const struct dcpk_checkpoint *ckpt;
    struct row_chunk *list; /* as many as chunks: those of each tensor in its place, ascending */
    int64_t *most;          /* rows of the highest chunk of each tensor */
};

static int segments_compare_rows(const void *left, const void *right)
{
    const struct row_chunk *a = left, *b = right;

    return DCPK_THREE_WAY(a->row, b->row);
}

static void rows_sort_chunks(struct dcpk_chunk_rows *rows, size_t t)
{
    const struct dcpk_tensor *tensor = &rows->ckpt->tensors[t];
    struct row_chunk *list = &rows->list[tensor->first_chunk];

    for (size_t i = 0; i < tensor->n_chunks; i++) {
        const int64_t *span = rows->ckpt->chunks[tensor->first_chunk + i].span;

        list[i] = (struct row_chunk){.chunk = tensor->first_chunk + i};
        if (tensor->rank == 0)
            continue;
        list[i].row = span[0];
        rows->most[t] = dcpk_max_i64(rows->most[t], span[tensor->rank]);
    }
    if (tensor->n_chunks > 1)
        qsort(list, tensor->n_chunks, sizeof *list, segments_compare_rows);
}

dcpk_status dcpk_chunk_rows_new(const struct dcpk_checkpoint *ckpt, struct dcpk_chunk_rows **rows,
                                struct dcpk_error *err)
{
    struct dcpk_chunk_rows *made = dcpk_alloc(sizeof *made, err);

    if (made == NULL)
        return err->status;
    made->ckpt = ckpt;
    made->list = dcpk_alloc_array(ckpt->n_chunks, sizeof *made->list, err);
    made->most = dcpk_alloc_array(ckpt->n_tensors, sizeof *made->most, err);
    if (made->list == NULL || made->most == NULL) {
        dcpk_chunk_rows_free(made);
        return err->status;
    }
    for (size_t t = 0; t < ckpt->n_tensors; t++)
        rows_sort_chunks(made, t);
    *rows = made;
    return DCPK_OK;
}

void dcpk_chunk_rows_free(struct dcpk_chunk_rows *rows)
{
    if (rows == NULL)
        return;
    dcpk_free(rows->list);
    dcpk_free(rows->most);
    dcpk_free(rows);
}

/* The first chunk of the tensor in the list that may reach row `row`. */
static size_t first_reaching(const struct dcpk_chunk_rows *rows, uint32_t t, int64_t row)
{
    const struct dcpk_tensor *tensor = &rows->ckpt->tensors[t];
    size_t low = tensor->first_chunk, high = tensor->first_chunk + tensor->n_chunks;

    for (size_t i; dcpk_bisect(low, high, &i);)
        if (rows->list[i].row <= row - rows->most[t])
            low = i + 1;
        else
            high = i;
    return low;
}

/* ---- blocks ---- */

dcpk_status dcpk_rank_block_find(const struct dcpk_rank_part *part, int64_t at,
                                 struct dcpk_rank_block *block, struct dcpk_error *err)
{
    *block = (struct dcpk_rank_block){.n = 0};
    for (int p = 0; p < part->blocks->n_parts; p++) {
        block->first += block->n;
        dcpk_blocks_box(part->blocks, part->tensor->shape, part->tensor->rank, part->rank, p,
                        &block->box);
        if (dcpk_box_count(&block->box, &block->n, err))
            return err->status;
        if (at < block->first + block->n)
            return DCPK_OK;
    }
    return dcpk_fail(err, DCPK_ERANGE, "element %" PRId64 " of a rank's %" PRId64, at,
                     block->first + block->n);
}

/* ---- segments ---- */

/* A block of the rank, and the piece of the tensor that a chunk is looked up for. */
struct crossing {
    struct dcpk_segments *segments;
    const struct dcpk_checkpoint *ckpt;
    const struct dcpk_rank_block *block;
    const struct dcpk_piece *piece;
    struct dcpk_box from; /* of the piece, in its source */
};

static dcpk_status cross_chunk(struct crossing *c, size_t chunk, struct dcpk_error *err)
{
    const struct dcpk_tensor *stored = &c->ckpt->tensors[c->piece->src];
    struct dcpk_segments *segments = c->segments;
    struct dcpk_segment *made;
    struct dcpk_box whole, box, to;

    dcpk_box_unpack(c->ckpt->chunks[chunk].span, stored->rank, &whole);
    if (!dcpk_box_intersect(&whole, &c->from, &box))
        return DCPK_OK;
    dcpk_piece_forward(c->piece, &box, &to);
    if (!dcpk_box_is_run(&whole, &box) || !dcpk_box_is_run(&c->block->box, &to))
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "'%s' is not stored in chunks as the ranks of its run wrote them",
                         stored->key);
    if (dcpk_grow(&segments->list, &segments->capacity, segments->n, sizeof *made, err))
        return err->status;
    made = &segments->list[segments->n];
    *made = (struct dcpk_segment){.at = c->block->first + dcpk_box_flat_offset(&c->block->box, &to),
                                  .chunk = chunk,
                                  .first = dcpk_box_flat_offset(&whole, &box)};
    if (dcpk_box_count(&box, &made->n, err))
        return err->status;
    segments->n++;
    return DCPK_OK;
}

static dcpk_status cross_piece(struct crossing *c, const struct dcpk_chunk_rows *rows,
                               struct dcpk_error *err)
{
    const struct dcpk_tensor *stored;
    struct dcpk_box to;
    int64_t row = 0, end = 1;

    if (!dcpk_piece_clip(c->piece, &c->block->box, &c->from, &to))
        return DCPK_OK;
    if (c->piece->src >= c->ckpt->n_tensors || c->piece->axes != 0)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "it is not a slice of a stored tensor");
    stored = &c->ckpt->tensors[c->piece->src];
    if (stored->rank > 0) {
        row = c->from.offset[0];
        end = row + c->from.extent[0];
    }
    for (size_t i = first_reaching(rows, c->piece->src, row);
         i < stored->first_chunk + stored->n_chunks && rows->list[i].row < end; i++)
        if (cross_chunk(c, rows->list[i].chunk, err))
            return err->status;
    return DCPK_OK;
}

static int compare_segments(const void *left, const void *right)
{
    const struct dcpk_segment *a = left, *b = right;

    return DCPK_THREE_WAY(a->at, b->at);
}

/* They hold every element once. */
static dcpk_status check_segments(const struct dcpk_segments *segments, int64_t n_elems,
                                  struct dcpk_error *err)
{
    int64_t at = 0;

    for (size_t i = 0; i < segments->n && segments->list[i].at == at; i++)
        at += segments->list[i].n;
    if (at == n_elems)
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EFORMAT, "its chunks do not hold element %" PRId64 " once", at);
}

dcpk_status dcpk_segments_find(struct dcpk_segments *segments, const struct dcpk_model *model,
                               const struct dcpk_chunk_rows *rows,
                               const struct dcpk_rank_part *part, struct dcpk_error *err)
{
    struct dcpk_rank_block block;
    struct crossing c = {.segments = segments, .ckpt = model->ckpt, .block = &block};
    int64_t n_elems;

    segments->n = 0;
    if (dcpk_shape_count(part->tensor->shape, part->tensor->rank, &n_elems, err))
        return err->status;
    n_elems /= part->blocks->n_ranks;
    for (int64_t at = 0; at < n_elems; at = block.first + block.n) {
        if (dcpk_rank_block_find(part, at, &block, err))
            return err->status;
        for (size_t i = 0; i < part->tensor->n_pieces; i++) {
            c.piece = &part->tensor->pieces[i];
            if (cross_piece(&c, rows, err))
                return err->status;
        }
    }
    if (segments->n > 1)
        qsort(segments->list, segments->n, sizeof *segments->list, compare_segments);
    return check_segments(segments, n_elems, err);
}

/* Elements from `first` on of a chunk. */
static dcpk_status read_elems(struct dcpk_checkpoint *ckpt, size_t chunk, int64_t first, int64_t n,
                              uint8_t *out, struct dcpk_error *err)
{
    const struct dcpk_tensor *tensor = &ckpt->tensors[ckpt->chunks[chunk].tensor];
    const size_t elem_bytes = dcpk_dtype_bytes(tensor->dtype);
    struct dcpk_extent where = {0};

    if (dcpk_checkpoint_locate(ckpt, &ckpt->chunks[chunk], NULL, &where, err))
        return err->status;
    if (!where.is_row_major || where.is_zero || where.decoded_bytes > 0)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "'%s' is not stored as one run of bytes",
                         tensor->key);
    return dcpk_source_read(where.source, where.first_bytes + (uint64_t)first * elem_bytes, out,
                            (size_t)n * elem_bytes, err);
}

static dcpk_status segments_read(const struct dcpk_segments *segments, struct dcpk_checkpoint *ckpt,
                                 int64_t at, int64_t n, uint8_t *out, struct dcpk_error *err)
{
    for (size_t i = 0; i < segments->n; i++) {
        const struct dcpk_segment *s = &segments->list[i];
        const int64_t first = dcpk_max_i64(s->at, at);
        const int64_t end = dcpk_min_i64(s->at + s->n, at + n);
        const size_t elem_bytes =
            dcpk_dtype_bytes(ckpt->tensors[ckpt->chunks[s->chunk].tensor].dtype);

        if (first < end && read_elems(ckpt, s->chunk, s->first + (first - s->at), end - first,
                                      out + (size_t)(first - at) * elem_bytes, err))
            return err->status;
    }
    return DCPK_OK;
}

/* n elements of a run, from its `done`-th on. */
static dcpk_status read_run_part(struct dcpk_model *model, const struct dcpk_segments *segments,
                                 const struct dcpk_rank_run *run, int64_t done,
                                 double out[PART_ELEMS], struct dcpk_error *err)
{
    const size_t elem_bytes = dcpk_dtype_bytes(run->part.tensor->dtype);
    uint8_t bytes[PART_ELEMS * 8];

    if (elem_bytes > 8)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "elements of %zu bytes", elem_bytes);
    if (segments_read(segments, model->ckpt, run->at + done, PART_ELEMS, bytes, err))
        return err->status;
    for (size_t i = 0; i < PART_ELEMS; i++) {
        const struct dcpk_elem elem =
            dcpk_elem_load(run->part.tensor->dtype, bytes + i * elem_bytes);

        out[i] = dcpk_elem_double(&elem);
    }
    return DCPK_OK;
}

/* `of`: the segments of the two runs. */
static dcpk_status compare_runs(struct dcpk_model *model, const struct dcpk_rank_run run[2],
                                const struct dcpk_segments of[2], int64_t n, bool *agree,
                                struct dcpk_error *err)
{
    for (int64_t at = 0; at < n && *agree; at += PART_ELEMS) {
        const int64_t done = dcpk_min_i64(at, n - PART_ELEMS);
        double weights[PART_ELEMS], masters[PART_ELEMS];

        if (read_run_part(model, &of[0], &run[0], done, weights, err) ||
            read_run_part(model, &of[1], &run[1], done, masters, err))
            return err->status;
        for (size_t i = 0; i < PART_ELEMS; i++)
            *agree = *agree && dcpk_replay_is_near(weights[i], masters[i]);
    }
    return DCPK_OK;
}

dcpk_status dcpk_rank_runs_agree(struct dcpk_model *model, const struct dcpk_chunk_rows *rows,
                                 const struct dcpk_rank_run run[2], int64_t n, bool *agree,
                                 struct dcpk_error *err)
{
    struct dcpk_segments of[2] = {{.n = 0}, {.n = 0}};

    assert(n >= PART_ELEMS);
    *agree = true;
    if (dcpk_segments_find(&of[0], model, rows, &run[0].part, err) == DCPK_OK &&
        dcpk_segments_find(&of[1], model, rows, &run[1].part, err) == DCPK_OK)
        (void)compare_runs(model, run, of, n, agree, err);
    dcpk_free(of[0].list);
    dcpk_free(of[1].list);
    return err->status;
}
