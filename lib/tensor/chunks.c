/* SPDX-License-Identifier: Apache-2.0 */
/* chunks.c - the boxes of blocks and of rows. */
#include "lib/tensor/chunks.h"

#include <assert.h>

#include "lib/base/order.h"

static int64_t count_blocks(int64_t n, int64_t step)
{
    return n / step + (n % step != 0);
}

/* Writes box i of the blocks. */
static void put_block(const int64_t *shape, int rank, const int64_t *step, int64_t i, int64_t *span)
{
    for (int a = rank - 1; a >= 0; a--) {
        const int64_t n = count_blocks(shape[a], step[a]);

        span[a] = i % n * step[a];
        span[rank + a] = dcpk_min_i64(step[a], shape[a] - span[a]);
        i /= n;
    }
}

dcpk_status dcpk_block_chunks(const int64_t *shape, int rank, const int64_t *step,
                              struct dcpk_arena *arena, struct dcpk_span_list *list,
                              struct dcpk_error *err)
{
    const size_t width = 2 * (size_t)rank;
    int64_t *numbers, n_elems, n_chunks = 1;
    const int64_t **spans;

    assert(rank >= 0 && rank <= DCPK_MAX_RANK);
    if (dcpk_shape_count(shape, rank, &n_elems, err) != DCPK_OK)
        return err->status;
    for (int a = 0; a < rank; a++)
        n_chunks = n_elems == 0 ? 0 : n_chunks * count_blocks(shape[a], step[a]);
    spans = dcpk_arena_array(arena, (size_t)n_chunks, sizeof *spans, err);
    numbers = dcpk_arena_array(arena, (size_t)n_chunks, width * sizeof *numbers, err);
    if (spans == NULL || numbers == NULL)
        return err->status;
    for (int64_t i = 0; i < n_chunks; i++) {
        spans[i] = numbers + (size_t)i * width;
        put_block(shape, rank, step, i, numbers + (size_t)i * width);
    }
    *list = (struct dcpk_span_list){spans, (size_t)n_chunks};
    return DCPK_OK;
}

/*
 * Finds the first axis whose rows fit into limit_elems; shape is not empty. Axes before it have one
 * index a box, those after it are whole. The elements of the whole are known to fit into 64 bits.
 */
static void find_row_steps(const int64_t *shape, int rank, uint64_t limit_elems, int64_t *step)
{
    uint64_t row_elems = 1;

    for (int a = rank - 1; a >= 0; a--) {
        step[a] = 1;
        if (row_elems <= limit_elems)
            step[a] = (int64_t)dcpk_min_u64(limit_elems / row_elems, (uint64_t)shape[a]);
        row_elems *= (uint64_t)shape[a];
    }
}

dcpk_status dcpk_row_chunks(const int64_t *shape, int rank, uint64_t limit_elems,
                            struct dcpk_arena *arena, struct dcpk_span_list *list,
                            struct dcpk_error *err)
{
    int64_t step[DCPK_MAX_RANK], n_elems, *span;
    const int64_t **spans;

    assert(rank >= 0 && rank <= DCPK_MAX_RANK);
    if (dcpk_shape_count(shape, rank, &n_elems, err) != DCPK_OK)
        return err->status;
    if (n_elems > 0) {
        find_row_steps(shape, rank, dcpk_max_u64(limit_elems, 1), step);
        return dcpk_block_chunks(shape, rank, step, arena, list, err);
    }
    spans = dcpk_arena_array(arena, 1, sizeof *spans, err);
    span = dcpk_arena_array(arena, 2 * (size_t)rank, sizeof *span, err);
    if (spans == NULL || span == NULL)
        return err->status;
    for (int a = 0; a < rank; a++) /* one box, as empty as the tensor */
        span[rank + a] = shape[a];
    spans[0] = span;
    *list = (struct dcpk_span_list){spans, 1};
    return DCPK_OK;
}
