/* SPDX-License-Identifier: Apache-2.0 */
/* remap_rounds.c - boxes of moves one after another in messages, the same on both sides. */
#include "lib/plan/remap_rounds.h"

#include <assert.h>

#include "lib/base/alloc.h"
#include "lib/base/checked.h"
#include "lib/base/order.h"
#include "lib/tensor/chunks.h"

#define PARTS_A_MESSAGE 16 /* at least, of large boxes: the last one of a message may not fit */

static void streams_free(struct dcpk_remap_stream *streams, int n)
{
    for (int r = 0; streams != NULL && r < n; r++) {
        dcpk_free(streams[r].parts);
        dcpk_free(streams[r].message_bytes);
    }
    dcpk_free(streams);
}

void dcpk_remap_rounds_release(struct dcpk_remap_rounds *rounds)
{
    streams_free(rounds->sends, rounds->n_ranks);
    streams_free(rounds->receives, rounds->n_ranks);
    dcpk_arena_free(rounds->arena);
    *rounds = (struct dcpk_remap_rounds){0};
}

/* Put n_bytes after what the last message holds, or into a new one. */
static dcpk_status stream_add(struct dcpk_remap_stream *stream, size_t move, const int64_t *span,
                              uint64_t n_bytes, uint64_t room_bytes, struct dcpk_error *err)
{
    uint64_t at = 0;

    if (stream->n_rounds > 0)
        (void)dcpk_align_u64(stream->message_bytes[stream->n_rounds - 1], DCPK_PART_ALIGN, &at);
    if (stream->n_rounds == 0 || at + n_bytes > room_bytes) {
        if (dcpk_grow(&stream->message_bytes, &stream->rounds_capacity, stream->n_rounds,
                      sizeof *stream->message_bytes, err))
            return err->status;
        stream->message_bytes[stream->n_rounds++] = at = 0;
    }
    if (dcpk_grow(&stream->parts, &stream->capacity, stream->n_parts, sizeof *stream->parts, err))
        return err->status;
    stream->parts[stream->n_parts++] =
        (struct dcpk_remap_part){move, span, (uint32_t)stream->n_rounds - 1, at};
    stream->message_bytes[stream->n_rounds - 1] = at + n_bytes;
    return DCPK_OK;
}

/* Cut a move into parts and append them. */
static dcpk_status stream_add_move(struct dcpk_remap_rounds *rounds,
                                   struct dcpk_remap_stream *stream,
                                   const struct dcpk_remap_plan *plan, size_t move,
                                   uint64_t room_bytes, struct dcpk_error *err)
{
    const struct dcpk_shard *target = &plan->input.targets[plan->moves[move].target];
    const size_t elem_bytes = dcpk_dtype_bytes(target->dtype);
    const uint64_t limit_elems = dcpk_max_u64(room_bytes / PARTS_A_MESSAGE / elem_bytes, 1);
    struct dcpk_span_list list;
    struct dcpk_box box;

    dcpk_move_box(plan, &plan->moves[move], &box);
    if (dcpk_row_chunks(box.extent, box.rank, limit_elems, rounds->arena, &list, err) != DCPK_OK)
        return err->status;
    for (size_t i = 0; i < list.n; i++) {
        int64_t *span = dcpk_arena_array(rounds->arena, 2 * (size_t)box.rank, sizeof *span, err);
        uint64_t n_bytes = elem_bytes;

        if (span == NULL)
            return err->status;
        for (int a = 0; a < box.rank; a++) { /* chunks are counted from the box */
            span[a] = box.offset[a] + list.spans[i][a];
            span[box.rank + a] = list.spans[i][box.rank + a];
            n_bytes *= (uint64_t)span[box.rank + a];
        }
        if (stream_add(stream, move, span, n_bytes, room_bytes, err))
            return err->status;
    }
    return DCPK_OK;
}

static dcpk_status rounds_fill(struct dcpk_remap_rounds *rounds, const struct dcpk_staging *staging,
                               size_t unit, struct dcpk_error *err)
{
    const struct dcpk_remap_plan *plan = staging->plan;
    const int self = staging->self;

    for (size_t m = plan->units[unit].first_move; m < plan->units[unit + 1].first_move; m++) {
        const int from = plan->input.sources[plan->moves[m].source].holder;
        const int to = plan->input.targets[plan->moves[m].target].holder;
        const int peer = from == self ? to : from;
        struct dcpk_remap_stream *stream =
            from == self ? &rounds->sends[peer] : &rounds->receives[peer];

        if (from == to || (from != self && to != self) ||
            !staging->is_staged[self * plan->input.n_ranks + peer])
            continue;
        if (stream_add_move(rounds, stream, plan, m, staging->room_bytes, err))
            return err->status;
        rounds->n_rounds = dcpk_max_size(rounds->n_rounds, stream->n_rounds);
    }
    return DCPK_OK;
}

dcpk_status dcpk_remap_rounds_new(const struct dcpk_staging *staging, size_t unit,
                                  struct dcpk_remap_rounds *rounds, struct dcpk_error *err)
{
    const size_t n_ranks = (size_t)staging->plan->input.n_ranks;
    dcpk_status st;

    assert(staging->room_bytes >= 4 * DCPK_PART_ALIGN);
    *rounds = (struct dcpk_remap_rounds){.n_ranks = (int)n_ranks};
    rounds->arena = dcpk_arena_new();
    rounds->sends = dcpk_alloc_array(n_ranks, sizeof *rounds->sends, err);
    if (rounds->sends != NULL)
        rounds->receives = dcpk_alloc_array(n_ranks, sizeof *rounds->receives, err);
    st = dcpk_made(rounds->receives, err);
    if (st == DCPK_OK)
        st = rounds_fill(rounds, staging, unit, err);
    if (st != DCPK_OK)
        dcpk_remap_rounds_release(rounds);
    return st;
}
