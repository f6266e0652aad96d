/* SPDX-License-Identifier: Apache-2.0 */
/* units.c - cuts a planned output into units of work. */
#include "lib/write/units.h"

#include <assert.h>
#include <stdlib.h>

#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/exec/ranks.h"

const struct dcpk_out_chunk *dcpk_units_chunk(const struct dcpk_units *units, size_t i)
{
    return &units->out->chunks[units->order[i]];
}

uint32_t dcpk_unit_file(const struct dcpk_units *units, size_t unit)
{
    return dcpk_units_chunk(units, units->units[unit].first)->file;
}

void dcpk_units_chunk_box(const struct dcpk_units *units, const struct dcpk_out_chunk *chunk,
                          struct dcpk_box *box)
{
    dcpk_box_unpack(chunk->span, units->out->tensors[chunk->tensor].rank, box);
}

static size_t elem_bytes_of(const struct dcpk_units *units, const struct dcpk_out_chunk *chunk)
{
    return dcpk_dtype_bytes(units->out->tensors[chunk->tensor].dtype);
}

/* Work for a byte of a chunk, by which units are cut and shared out: each scale of a block needs
 * all values of it. */
static uint64_t work_of_byte(const struct dcpk_units *units, const struct dcpk_out_chunk *chunk)
{
    const struct dcpk_fp8_blocks *blocks = units->out->tensors[chunk->tensor].blocks;

    if (blocks == NULL || !blocks->gives_scales)
        return 1;
    return DCPK_FP8_BLOCK * DCPK_FP8_BLOCK / elem_bytes_of(units, chunk);
}

static uint64_t chunk_work(const struct dcpk_units *units, const struct dcpk_out_chunk *chunk)
{
    return chunk->data_bytes * work_of_byte(units, chunk);
}

/* A chunk in parts of at most a unit's size. */
static void cut_chunk(const struct dcpk_units *units, const struct dcpk_out_chunk *chunk,
                      struct dcpk_slabs *parts)
{
    struct dcpk_box box;

    dcpk_units_chunk_box(units, chunk, &box);
    dcpk_slabs_cut(&box, elem_bytes_of(units, chunk), units->limit_bytes, parts);
}

void dcpk_unit_part_box(const struct dcpk_units *units, size_t unit, struct dcpk_box *box,
                        uint64_t *first_bytes)
{
    const struct dcpk_unit *u = &units->units[unit];
    const struct dcpk_out_chunk *chunk = dcpk_units_chunk(units, u->first);
    struct dcpk_slabs parts;

    assert(u->n_chunks == 0);
    cut_chunk(units, chunk, &parts);
    dcpk_slabs_box(&parts, u->part, box);
    *first_bytes = dcpk_slabs_first(&parts, u->part) * elem_bytes_of(units, chunk);
}

uint64_t dcpk_unit_bytes(const struct dcpk_units *units, size_t unit)
{
    const struct dcpk_unit *u = &units->units[unit];
    struct dcpk_box box;
    uint64_t n_bytes = 0;

    if (u->n_chunks == 0) {
        dcpk_unit_part_box(units, unit, &box, &n_bytes);
        return dcpk_box_elems(&box) * elem_bytes_of(units, dcpk_units_chunk(units, u->first));
    }
    for (uint32_t i = 0; i < u->n_chunks; i++)
        n_bytes += dcpk_units_chunk(units, u->first + i)->data_bytes;
    return n_bytes;
}

uint64_t dcpk_unit_work(const struct dcpk_units *units, size_t unit)
{
    const struct dcpk_unit *u = &units->units[unit];
    uint64_t n = 0;

    if (u->n_chunks == 0)
        return dcpk_unit_bytes(units, unit) *
               work_of_byte(units, dcpk_units_chunk(units, u->first));
    for (uint32_t i = 0; i < u->n_chunks; i++)
        n += chunk_work(units, dcpk_units_chunk(units, u->first + i));
    return n;
}

static int compare_chunks(const void *a, const void *b, void *context)
{
    const struct dcpk_output *out = ((const struct dcpk_units *)context)->out;
    const struct dcpk_out_chunk *x = &out->chunks[*(const uint32_t *)a];
    const struct dcpk_out_chunk *y = &out->chunks[*(const uint32_t *)b];

    if (x->file != y->file)
        return DCPK_THREE_WAY(x->file, y->file);
    if (x->offset_bytes != y->offset_bytes)
        return DCPK_THREE_WAY(x->offset_bytes, y->offset_bytes);
    /* Items without bytes may share a place: their order is fixed all the same. */
    return (x > y) - (x < y);
}

static dcpk_status order_chunks(struct dcpk_units *units, struct dcpk_error *err)
{
    const size_t n = units->out->n_chunks;
    bool sorted = true;

    units->order = dcpk_alloc_array(n, sizeof *units->order, err);
    if (units->order == NULL)
        return err->status;
    for (size_t i = 0; i < n; i++) {
        units->order[i] = (uint32_t)i;
        sorted = sorted &&
                 (i == 0 || compare_chunks(&units->order[i - 1], &units->order[i], units) <= 0);
    }
    if (!sorted)
        qsort_r(units->order, n, sizeof *units->order, compare_chunks, units);
    return DCPK_OK;
}

/* The number of chunks from order[first] on that make a unit; 0: the first one is too large for
 * any. */
static uint32_t measure_unit(const struct dcpk_units *units, size_t first)
{
    const struct dcpk_out_chunk *chunk = dcpk_units_chunk(units, first);
    uint64_t n_bytes = chunk_work(units, chunk);
    uint32_t n = 1;

    if (n_bytes > units->limit_bytes)
        return 0;
    for (size_t i = first + 1; i < units->out->n_chunks; i++, n++) {
        const struct dcpk_out_chunk *next = dcpk_units_chunk(units, i);

        if (next->file != chunk->file || chunk_work(units, next) > units->limit_bytes - n_bytes)
            break;
        n_bytes += chunk_work(units, next);
    }
    return n;
}

dcpk_status dcpk_units_cut(const struct dcpk_output *out, uint64_t limit_bytes,
                           struct dcpk_units *units, struct dcpk_error *err)
{
    size_t capacity = 0;

    units->out = out;
    units->limit_bytes = limit_bytes;
    if (order_chunks(units, err) != DCPK_OK)
        return err->status;
    for (size_t first = 0; first < out->n_chunks;) {
        const uint32_t n_chunks = measure_unit(units, first);
        struct dcpk_slabs parts = {.n = 1};

        if (n_chunks == 0)
            cut_chunk(units, dcpk_units_chunk(units, first), &parts);
        for (uint64_t part = 0; part < parts.n; part++) {
            if (dcpk_grow(&units->units, &capacity, units->n, sizeof *units->units, err) != DCPK_OK)
                return err->status;
            units->units[units->n++] = (struct dcpk_unit){(uint32_t)first, n_chunks, part};
        }
        first += n_chunks == 0 ? 1 : n_chunks;
    }
    return DCPK_OK;
}

/* Bytes of its sources that an output tensor takes for each of its own. */
static double read_ratio(const struct dcpk_output *out, const struct dcpk_out_tensor *t)
{
    double read_bytes = 0, n_bytes = (double)dcpk_dtype_bytes(t->dtype);
    struct dcpk_box box;

    for (int d = 0; d < t->rank; d++)
        n_bytes *= (double)t->shape[d];
    for (size_t i = 0; i < t->n_pieces; i++) {
        const struct dcpk_piece *piece = &t->pieces[i];

        if (piece->src == DCPK_PIECE_FILL)
            continue;
        dcpk_piece_to(piece, &box);
        read_bytes += (double)dcpk_box_elems(&box) *
                      (double)dcpk_dtype_bytes(out->source->tensors[piece->src].dtype);
    }
    return n_bytes > 0 ? read_bytes / n_bytes : 0;
}

dcpk_status dcpk_units_share(const struct dcpk_units *units, int n_ranks,
                             struct dcpk_unit_share *shares, struct dcpk_error *err)
{
    const struct dcpk_output *out = units->out;
    double *ratios = dcpk_alloc_array(out->n_tensors, sizeof *ratios, err);
    uint64_t total = 0, before = 0;

    if (ratios == NULL)
        return err->status;
    for (size_t t = 0; t < out->n_tensors; t++)
        ratios[t] = read_ratio(out, &out->tensors[t]);
    for (size_t i = 0; i < units->n; i++)
        total += dcpk_unit_work(units, i);
    for (size_t i = 0; i < units->n; i++) {
        const struct dcpk_unit *u = &units->units[i];
        struct dcpk_unit_share *share = &shares[dcpk_work_rank(total, n_ranks, before)];

        for (uint32_t k = 0; k < (u->n_chunks == 0 ? 1 : u->n_chunks); k++) {
            const struct dcpk_out_chunk *chunk = dcpk_units_chunk(units, u->first + k);
            const uint64_t n = u->n_chunks == 0 ? dcpk_unit_bytes(units, i) : chunk->data_bytes;

            share->written_bytes += n;
            share->read_bytes += (uint64_t)((double)n * ratios[chunk->tensor]);
        }
        before += dcpk_unit_work(units, i);
    }
    dcpk_free(ratios);
    return DCPK_OK;
}

void dcpk_units_release(struct dcpk_units *units)
{
    dcpk_free(units->order);
    dcpk_free(units->units);
}
