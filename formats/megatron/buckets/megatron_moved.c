/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_moved.c - ranges of a buffer with padding, as they were cut out of one without. */
/*
 *   buffer   | bucket 0  a  b |pad| bucket 1  c  d  |pad| bucket 2  e |
 *   W        | bucket 0  a  b | bucket 1  c  d  | bucket 2  e |
 *   stored     [ a ][  b      ]   [ c ][  d         ]     [ e ]          cut out of W
 *                               ^ a hole, as wide as pad: these elements of c are lost
 */
#include "formats/megatron/buckets/megatron_segments.h"

#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/order.h"

/* A range of W that is stored, as the elements of a part. */
struct stored_range {
    int64_t first, end;
    size_t part;
    bool is_of_rank_0; /* this rank's own range is not stored */
};

struct moving {
    const struct dcpk_bucket_layout *layout;
    struct dcpk_moved *moved;
    size_t runs_capacity;
    struct stored_range *stored; /* of one buffer, ascending; room for all parts */
    size_t n_stored;
};

static const struct dcpk_replay_slot *moved_slot_of(const struct moving *m, size_t part)
{
    return &m->layout->replay.slots[m->layout->parts[part].slot];
}

/* True if the rank stores the part. */
static bool moved_is_own(const struct moving *m, const struct dcpk_laid_bucket *bucket, size_t part)
{
    return !moved_slot_of(m, part)->is_copy &&
           bucket->tp_rank < moved_slot_of(m, part)->blocks->n_ranks;
}

/* The bucket after the last one of the buffer. */
static size_t moving_buffer_end(const struct moving *m, size_t first)
{
    size_t i = first + 1;

    while (i < m->layout->n && m->layout->buckets[i].number != 0)
        i++;
    return i;
}

static void list_stored(struct moving *m, size_t first, size_t end)
{
    int64_t start = 0, n_elems = 0;

    m->n_stored = 0;
    for (size_t b = first; b < end; b++)
        n_elems += m->layout->buckets[b].n_elems;
    for (size_t b = first; b < end; b++) {
        const struct dcpk_laid_bucket *bucket = &m->layout->buckets[b];

        for (size_t p = bucket->first_part; p < bucket->first_part + bucket->n_parts; p++) {
            const struct dcpk_bucket_part *part = &m->layout->parts[p];
            const int64_t from = start + part->first;

            if (!moved_slot_of(m, p)->is_copy && from < n_elems)
                m->stored[m->n_stored++] =
                    (struct stored_range){from, dcpk_min_i64(from + part->n_elems, n_elems), p,
                                          !moved_is_own(m, bucket, p)};
        }
        start += bucket->n_padded_elems;
    }
}

static dcpk_status moved_add_run(struct moving *m, const struct dcpk_moved_run *run,
                                 struct dcpk_error *err)
{
    struct dcpk_moved *moved = m->moved;

    if (dcpk_grow(&moved->runs, &m->runs_capacity, moved->n_runs, sizeof *moved->runs, err))
        return err->status;
    moved->runs[moved->n_runs++] = *run;
    return DCPK_OK;
}

/* W[begin : begin + n) is the state of `part`. *next: the first stored range that ends after it. */
static dcpk_status find_runs(struct moving *m, size_t part, int64_t begin, size_t *next,
                             struct dcpk_error *err)
{
    const int64_t n = m->layout->parts[part].n_elems;
    int64_t at = 0;

    while (*next < m->n_stored && m->stored[*next].end <= begin)
        ++*next;
    for (size_t s = *next; at < n; s++) {
        struct dcpk_moved_run run = {.at = at, .n = n - at, .from = DCPK_MOVED_LOST};
        const struct stored_range *range = &m->stored[s];

        if (s < m->n_stored)
            run.n = dcpk_min_i64(run.n, dcpk_max_i64(range->first - begin - at, 0));
        if (run.n > 0 && moved_add_run(m, &run, err))
            return err->status;
        at += run.n;
        if (at == n)
            break;
        run = (struct dcpk_moved_run){.at = at,
                                      .n = dcpk_min_i64(n, range->end - begin) - at,
                                      .from = range->part,
                                      .first = begin + at - range->first,
                                      .is_of_rank_0 = range->is_of_rank_0};
        if (moved_add_run(m, &run, err))
            return err->status;
        at += run.n;
    }
    return DCPK_OK;
}

static dcpk_status move_buffer(struct moving *m, size_t first, size_t end, struct dcpk_error *err)
{
    int64_t start = 0;
    size_t next = 0;

    list_stored(m, first, end);
    for (size_t b = first; b < end; b++) {
        const struct dcpk_laid_bucket *bucket = &m->layout->buckets[b];

        for (size_t p = bucket->first_part; p < bucket->first_part + bucket->n_parts; p++) {
            m->moved->first_run[p] = m->moved->n_runs;
            if (moved_is_own(m, bucket, p) &&
                find_runs(m, p, start + m->layout->parts[p].first, &next, err))
                return err->status;
        }
        start += bucket->n_elems;
    }
    return DCPK_OK;
}

dcpk_status dcpk_moved_find(const struct dcpk_bucket_layout *layout, struct dcpk_arena *arena,
                            struct dcpk_moved *moved, struct dcpk_error *err)
{
    struct dcpk_moved made = {0};
    struct moving m = {.layout = layout, .moved = &made};
    struct dcpk_moved_run *kept = NULL;
    size_t end;

    made.first_run = dcpk_arena_array(arena, layout->n_parts + 1, sizeof *made.first_run, err);
    m.stored = dcpk_alloc_array(layout->n_parts, sizeof *m.stored, err);
    for (size_t first = 0; first < layout->n && err->status == DCPK_OK; first = end) {
        end = moving_buffer_end(&m, first);
        (void)move_buffer(&m, first, end, err);
    }
    if (err->status == DCPK_OK)
        kept = dcpk_arena_copy(arena, made.runs, made.n_runs, sizeof *kept, err);
    if (kept != NULL) {
        made.first_run[layout->n_parts] = made.n_runs;
        *moved = (struct dcpk_moved){kept, made.n_runs, made.first_run};
    }
    dcpk_free(made.runs);
    dcpk_free(m.stored);
    return err->status;
}
