/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c - completes and checks an output before a byte moves. */
#include "lib/plan/plan.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#include "lib/base/alloc.h"
#include "lib/base/checked.h"
#include "lib/base/order.h"
#include "lib/ckpt/format.h"
#include "lib/tensor/chunks.h"

/* A piece's source side: an existing tensor of that rank, a box inside it, a dtype that can become
 * the output's. */
static dcpk_status check_source(const struct dcpk_output *out, const struct dcpk_out_tensor *tensor,
                                const struct dcpk_piece *piece, struct dcpk_error *err)
{
    const struct dcpk_tensor *source;
    struct dcpk_box whole, from;
    char box[256], shape[256];

    if (piece->src == DCPK_PIECE_FILL)
        return DCPK_OK;
    if (piece->src >= out->source->n_tensors + out->source->n_views)
        return dcpk_fail(err, DCPK_ERANGE, "a piece names tensor %" PRIu32 " of %zu", piece->src,
                         out->source->n_tensors + out->source->n_views);
    source = &out->source->tensors[piece->src];
    if (piece->src_rank != source->rank)
        return dcpk_fail(err, DCPK_EMISMATCH, "a piece takes '%s', of rank %d, with rank %d",
                         source->key, source->rank, piece->src_rank);
    dcpk_box_whole(source->shape, source->rank, &whole);
    dcpk_piece_from(piece, &from);
    if (!dcpk_box_contains(&whole, &from))
        return dcpk_fail(err, DCPK_EMISMATCH, "a piece takes %s of '%s', whose shape is %s",
                         dcpk_box_format(&from, box, sizeof box), source->key,
                         dcpk_shape_format(source->shape, source->rank, shape, sizeof shape));
    if (source->dtype != tensor->dtype &&
        !(dcpk_dtype_is_float(source->dtype) &&
          (dcpk_dtype_is_float(tensor->dtype) || tensor->blocks != NULL)))
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "'%s' is %s, which is not cast to %s", source->key,
                         dcpk_dtype_name(source->dtype), dcpk_dtype_name(tensor->dtype));
    return DCPK_OK;
}

/* The spans of a tensor's pieces on the output side, for the cover check; grown as needed. */
struct spans {
    const int64_t **span;
    size_t capacity;
};

static dcpk_status check_pieces(const struct dcpk_output *out, const struct dcpk_out_tensor *tensor,
                                struct spans *spans, struct dcpk_error *err)
{
    if (tensor->n_pieces > spans->capacity) {
        const size_t n = tensor->n_pieces + 64;
        const int64_t **larger = dcpk_realloc(spans->span, n * sizeof *larger, err);

        if (larger == NULL)
            return err->status;
        spans->span = larger;
        spans->capacity = n;
    }
    for (size_t i = 0; i < tensor->n_pieces; i++) {
        const struct dcpk_piece *piece = &tensor->pieces[i];
        dcpk_status st = check_source(out, tensor, piece, err);

        if (st != DCPK_OK)
            return st;
        if (piece->dst_rank != tensor->rank)
            return dcpk_fail(err, DCPK_EMISMATCH, "a piece of rank %d for a tensor of rank %d",
                             piece->dst_rank, tensor->rank);
        spans->span[i] = piece->span + 2 * piece->src_rank;
    }
    if (tensor->blocks != NULL)
        return dcpk_cover_check(tensor->blocks->shape, tensor->rank, spans->span, tensor->n_pieces,
                                err);
    return dcpk_cover_check(tensor->shape, tensor->rank, spans->span, tensor->n_pieces, err);
}

/* The boxes that the format asks for, or as few row-aligned ones as make sense. */
static dcpk_status choose_spans(struct dcpk_output *out, const struct dcpk_out_tensor *tensor,
                                struct dcpk_span_list *list, struct dcpk_error *err)
{
    assert(tensor->dtype != DCPK_DTYPE_NONE);
    if (tensor->spans == NULL)
        return dcpk_row_chunks(tensor->shape, tensor->rank,
                               DCPK_CHUNK_BYTES / dcpk_dtype_bytes(tensor->dtype), out->arena, list,
                               err);
    *list = (struct dcpk_span_list){tensor->spans, tensor->n_spans};
    return dcpk_cover_check(tensor->shape, tensor->rank, list->spans, list->n, err);
}

static dcpk_status cut_tensor(struct dcpk_output *out, uint32_t t, struct dcpk_error *err)
{
    struct dcpk_out_tensor *tensor = &out->tensors[t];
    struct dcpk_span_list list;

    if (choose_spans(out, tensor, &list, err) != DCPK_OK)
        return err->status;
    tensor->first_chunk = out->n_chunks;
    for (size_t i = 0; i < list.n; i++) {
        if (dcpk_grow(&out->chunks, &out->chunks_capacity, out->n_chunks, sizeof *out->chunks,
                      err) != DCPK_OK)
            return err->status;
        out->chunks[out->n_chunks++] = (struct dcpk_out_chunk){.tensor = t, .span = list.spans[i]};
    }
    tensor->n_chunks = list.n;
    return DCPK_OK;
}

static dcpk_status check_size(const struct dcpk_out_tensor *tensor, struct dcpk_error *err)
{
    int64_t n_elems;
    uint64_t n_bytes;

    if (dcpk_shape_count(tensor->shape, tensor->rank, &n_elems, err) != DCPK_OK)
        return err->status;
    if (!dcpk_mul_u64((uint64_t)n_elems, dcpk_dtype_bytes(tensor->dtype), &n_bytes) ||
        n_bytes > INT64_MAX)
        return dcpk_fail(err, DCPK_ERANGE, "%" PRId64 " elements of %s pass 2^63 bytes", n_elems,
                         dcpk_dtype_name(tensor->dtype));
    return DCPK_OK;
}

/* The size of one tensor, its pieces and its chunks. */
static dcpk_status plan_tensor(struct dcpk_output *out, uint32_t t, struct spans *spans,
                               struct dcpk_error *err)
{
    const struct dcpk_out_tensor *tensor = &out->tensors[t];

    if (check_size(tensor, err) ||
        (tensor->literal == NULL && check_pieces(out, tensor, spans, err)) ||
        cut_tensor(out, t, err))
        return dcpk_context(err, "planning '%s'", tensor->keys[0]);
    return DCPK_OK;
}

static dcpk_status check_and_cut(struct dcpk_output *out, struct dcpk_error *err)
{
    struct spans spans = {0};
    dcpk_status st = DCPK_OK;

    if (out->n_tensors > UINT32_MAX)
        return dcpk_fail(err, DCPK_ERANGE, "%zu tensors to write", out->n_tensors);
    for (uint32_t t = 0; t < out->n_tensors && st == DCPK_OK; t++)
        st = plan_tensor(out, t, &spans, err);
    dcpk_free(spans.span);
    return st;
}

/* The bytes that a chunk or a payload takes in a file. */
struct range {
    uint64_t first_bytes, end_bytes;
    uint32_t file;
    uint32_t chunk; /* or PAYLOAD + its number */
};
#define PAYLOAD UINT32_C(0x80000000)

/* Names the contents of a range, for messages. */
static const char *range_name(const struct dcpk_output *out, const struct range *range)
{
    if (range->chunk >= PAYLOAD)
        return dcpk_output_payload_name(out, range->chunk - PAYLOAD);
    return out->tensors[out->chunks[range->chunk].tensor].keys[0];
}

static int compare_ranges(const void *a, const void *b)
{
    const struct range *x = a, *y = b;

    return DCPK_ORDER_BY_3(x, y, file, first_bytes, end_bytes);
}

static dcpk_status chunk_range(const struct dcpk_output *out, uint32_t c, struct range *range,
                               struct dcpk_error *err)
{
    const struct dcpk_out_chunk *chunk = &out->chunks[c];
    const struct dcpk_out_tensor *tensor = &out->tensors[chunk->tensor];
    struct dcpk_box box;
    int64_t n_elems;
    dcpk_status st;

    *range = (struct range){.first_bytes = chunk->offset_bytes, .file = chunk->file, .chunk = c};
    dcpk_box_unpack(chunk->span, tensor->rank, &box);
    st = dcpk_box_count(&box, &n_elems, err);
    if (st != DCPK_OK)
        return st;
    if (chunk->data_bytes != (uint64_t)n_elems * dcpk_dtype_bytes(tensor->dtype))
        return dcpk_fail(
            err, DCPK_EMISMATCH,
            "'%s': laid out as %" PRIu64 " bytes, its %" PRId64 " elements of %s differ",
            tensor->keys[0], chunk->data_bytes, n_elems, dcpk_dtype_name(tensor->dtype));
    if (!dcpk_add_u64(chunk->offset_bytes, chunk->data_bytes, &range->end_bytes) ||
        !dcpk_add_u64(range->end_bytes, (uint64_t)chunk->lead_bytes + chunk->tail_bytes,
                      &range->end_bytes))
        return dcpk_fail(err, DCPK_ERANGE, "'%s': placed at byte %" PRIu64 ", past 2^64",
                         tensor->keys[0], chunk->offset_bytes);
    return DCPK_OK;
}

static dcpk_status payload_range(const struct dcpk_output *out, uint32_t p, struct range *range,
                                 struct dcpk_error *err)
{
    const struct dcpk_out_payload *payload = &out->payloads[p];

    *range = (struct range){
        .first_bytes = payload->offset_bytes, .file = payload->file, .chunk = PAYLOAD + p};
    if (!dcpk_add_u64(payload->offset_bytes, payload->n_bytes, &range->end_bytes))
        return dcpk_fail(err, DCPK_ERANGE, "'%s': placed at byte %" PRIu64 ", past 2^64",
                         range_name(out, range), payload->offset_bytes);
    return DCPK_OK;
}

/* Ranges in the order of the files: each ends in its file and before the next begins. */
static dcpk_status check_ranges(const struct dcpk_output *out, const struct range *ranges, size_t n,
                                struct dcpk_error *err)
{
    for (size_t i = 0; i < n; i++) {
        const struct range *range = &ranges[i];

        if (range->file >= out->n_files)
            return dcpk_fail(err, DCPK_EMISMATCH, "'%s' is placed in file %" PRIu32 " of %zu",
                             range_name(out, range), range->file, out->n_files);
        if (range->end_bytes > out->files[range->file].n_bytes)
            return dcpk_fail(err, DCPK_EMISMATCH,
                             "'%s' ends at byte %" PRIu64 " of '%s', which has %" PRIu64,
                             range_name(out, range), range->end_bytes, out->files[range->file].name,
                             out->files[range->file].n_bytes);
        if (i > 0 && range->file == ranges[i - 1].file &&
            range->first_bytes < ranges[i - 1].end_bytes)
            return dcpk_fail(err, DCPK_EMISMATCH,
                             "'%s' and '%s' overlap at byte %" PRIu64 " of '%s'",
                             range_name(out, &ranges[i - 1]), range_name(out, range),
                             range->first_bytes, out->files[range->file].name);
    }
    return DCPK_OK;
}

static dcpk_status check_places(const struct dcpk_output *out, struct dcpk_error *err)
{
    const size_t n = out->n_chunks + out->n_payloads;
    struct range *ranges;
    bool sorted = true;
    dcpk_status st = DCPK_OK;

    if (out->n_chunks >= PAYLOAD || out->n_payloads >= PAYLOAD)
        return dcpk_fail(err, DCPK_ERANGE, "%zu chunks and %zu objects, the limit is %" PRIu32,
                         out->n_chunks, out->n_payloads, PAYLOAD);
    ranges = dcpk_alloc_array(n, sizeof *ranges, err);
    if (ranges == NULL)
        return err->status;
    for (size_t i = 0; i < n && st == DCPK_OK; i++) { /* objects first, as formats lay them out */
        if (i < out->n_payloads)
            st = payload_range(out, (uint32_t)i, &ranges[i], err);
        else
            st = chunk_range(out, (uint32_t)(i - out->n_payloads), &ranges[i], err);
        sorted = sorted && (i == 0 || compare_ranges(&ranges[i - 1], &ranges[i]) <= 0);
    }
    if (st == DCPK_OK && !sorted)
        qsort(ranges, n, sizeof *ranges, compare_ranges);
    if (st == DCPK_OK)
        st = check_ranges(out, ranges, n, err);
    dcpk_free(ranges);
    return st;
}

dcpk_status dcpk_plan_build(struct dcpk_output *out, struct dcpk_error *err)
{
    assert(out->n_chunks == 0);
    if (check_and_cut(out, err) || out->format->writer->lay_out(out, err) || check_places(out, err))
        return dcpk_context(err, "planning the %s output", out->format->name);
    return DCPK_OK;
}

/* Memory of the checkpoint, its index and the output: what grows with their number of keys and
 * chunks. */
static uint64_t metadata_bytes(const struct dcpk_output *out)
{
    const struct dcpk_checkpoint *source = out->source;
    const size_t n_tensors = source->n_tensors + source->n_views;
    uint64_t n_bytes = dcpk_arena_used_bytes(source->arena) + dcpk_arena_used_bytes(out->arena);

    n_bytes += n_tensors * (sizeof *source->tensors + sizeof(struct dcpk_box_tree)) +
               (source->n_chunks + source->n_view_chunks) * sizeof *source->chunks +
               source->n_view_chunks * sizeof *source->runs +
               source->n_objects * sizeof *source->objects;
    for (size_t t = 0; t < n_tensors; t++)
        n_bytes += dcpk_box_tree_bytes(source->tensors[t].n_chunks, source->tensors[t].rank);
    return n_bytes + out->tensors_capacity * sizeof *out->tensors +
           out->payloads_capacity * sizeof *out->payloads +
           out->objects_capacity * sizeof *out->objects +
           out->chunks_capacity * sizeof *out->chunks + out->files_capacity * sizeof *out->files;
}

void dcpk_plan_totals(const struct dcpk_output *out, struct dcpk_plan_totals *totals)
{
    *totals = (struct dcpk_plan_totals){
        .n_tensors = out->n_tensors,
        .n_chunks = out->n_chunks,
        .n_objects = out->n_objects,
        .n_payloads = out->n_payloads,
        .n_files = out->n_files,
        .metadata_bytes = metadata_bytes(out),
    };
    for (size_t t = 0; t < out->n_tensors; t++) {
        totals->n_keys += out->tensors[t].n_keys;
        totals->n_pieces += out->tensors[t].n_pieces;
    }
    for (size_t c = 0; c < out->n_chunks; c++)
        totals->tensor_bytes += out->chunks[c].data_bytes;
    for (size_t f = 0; f < out->n_files; f++)
        totals->file_bytes += out->files[f].n_bytes;
}
