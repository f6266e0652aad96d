/* SPDX-License-Identifier: Apache-2.0 */
/* gather_link.c - messages by all_gather: all ranks get everything, and take what is theirs. */
/*
 * First every rank gives the lengths of its messages and of those that it expects, a row of the
 * table; all judge the same table. Then each gives its messages one after the other, in the order
 * of receivers, in windows of WINDOW_BYTES, until the longest stream is through:
 *
 *     stream of a rank   | to 0 | to 1      | to 2 |
 *     windows            |--------|--------|--------|
 */
#include "kernels/kernels.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/order.h"

#define WINDOW_BYTES ((size_t)1 << 20)

struct gather_link {
    struct dcpk_link base;
    struct dcpk_comm *comm;
    const struct dcpk_exchange *exchange; /* NULL: none under way */
    uint64_t *lengths;   /* bytes: a row of each rank: to each other one, then expected from each */
    uint64_t *row;       /* this rank's of them */
    uint8_t *mine, *all; /* a window of this rank, and of each */
    bool is_over;
};

static void gather_close(struct dcpk_link *link)
{
    struct gather_link *l = (struct gather_link *)link;

    if (l == NULL)
        return;
    dcpk_free(l->lengths);
    dcpk_free(l->row);
    dcpk_free(l->mine);
    dcpk_free(l->all);
    dcpk_free(l);
}

static dcpk_status gather_open(struct dcpk_comm *comm, struct dcpk_device *device,
                               struct dcpk_link **link, struct dcpk_error *err)
{
    const size_t n = (size_t)comm->n_ranks;
    struct gather_link *made = dcpk_alloc(sizeof *made, err);

    (void)device;
    if (made == NULL)
        return err->status;
    made->base = (struct dcpk_link){&dcpk_link_gather, comm->rank, comm->n_ranks, false};
    made->comm = comm;
    made->lengths = dcpk_alloc_array(2 * n * n, sizeof *made->lengths, err);
    if (made->lengths != NULL)
        made->row = dcpk_alloc_array(2 * n, sizeof *made->row, err);
    if (made->row != NULL)
        made->mine = dcpk_alloc_array(1, WINDOW_BYTES, err);
    if (made->mine != NULL)
        made->all = dcpk_alloc_array(n, WINDOW_BYTES, err);
    if (made->all == NULL) {
        gather_close(&made->base);
        return err->status;
    }
    *link = &made->base;
    return DCPK_OK;
}

static dcpk_status gather_begin(struct dcpk_link *link, const struct dcpk_exchange *exchange,
                                struct dcpk_error *err)
{
    struct gather_link *l = (struct gather_link *)link;

    assert(l->exchange == NULL);
    if (l->is_over)
        return dcpk_fail(err, DCPK_EIO, "an exchange has failed before");
    l->exchange = exchange;
    return DCPK_OK;
}

/* The row of a rank in the table. */
static const uint64_t *row_of(const struct gather_link *l, int rank)
{
    return l->lengths + 2 * (size_t)rank * (size_t)l->base.n_ranks;
}

/* The start of a rank's message to another one in its stream. */
static uint64_t message_start(const struct gather_link *l, int from, int to)
{
    const uint64_t *row = row_of(l, from);
    uint64_t at = 0;

    for (int r = 0; r < to; r++)
        at += row[r];
    return at;
}

static uint64_t longest_stream(const struct gather_link *l)
{
    uint64_t most = 0;

    for (int r = 0; r < l->base.n_ranks; r++)
        most = dcpk_max_u64(most, message_start(l, r, l->base.n_ranks));
    return most;
}

/*
 * Copy what a message that begins at `start` of a stream has in common with the window [first, end)
 * of it: into the window, or out of it.
 */
static void copy_common(const struct dcpk_message *m, uint64_t start, uint64_t first, uint64_t end,
                        uint8_t *window, bool is_sent)
{
    const uint64_t from = dcpk_max_u64(start, first), to = dcpk_min_u64(start + m->n_bytes, end);
    uint8_t *in_message, *in_window;

    if (from >= to)
        return;
    in_message = (uint8_t *)m->at + (from - start);
    in_window = window + (from - first);
    if (is_sent)
        memcpy(in_window, in_message, (size_t)(to - from));
    else
        memcpy(in_message, in_window, (size_t)(to - from));
}

/* One window of all streams. */
static dcpk_status gather_window(struct gather_link *l, uint64_t first, uint64_t end,
                                 struct dcpk_error *err)
{
    const struct dcpk_exchange *e = l->exchange;
    const int self = l->base.rank;
    const size_t n_bytes = (size_t)(end - first);

    memset(l->mine, 0, n_bytes);
    for (size_t i = 0; i < e->n_sends; i++)
        copy_common(&e->sends[i], message_start(l, self, e->sends[i].peer), first, end, l->mine,
                    true);
    if (l->comm->transport->all_gather(l->comm, l->mine, n_bytes, l->all, err))
        return err->status;
    for (size_t i = 0; i < e->n_receives; i++) {
        const struct dcpk_message *m = &e->receives[i];

        copy_common(m, message_start(l, m->peer, self), first, end,
                    l->all + (size_t)m->peer * n_bytes, false);
    }
    return DCPK_OK;
}

static dcpk_status gather_lengths(struct gather_link *l, struct dcpk_error *err)
{
    const struct dcpk_exchange *e = l->exchange;
    const int n = l->base.n_ranks;
    const size_t row_bytes = 2 * (size_t)n * sizeof *l->row;

    memset(l->row, 0, row_bytes);
    for (size_t i = 0; i < e->n_sends; i++)
        l->row[e->sends[i].peer] = e->sends[i].n_bytes;
    for (size_t i = 0; i < e->n_receives; i++)
        l->row[n + e->receives[i].peer] = e->receives[i].n_bytes;
    return l->comm->transport->all_gather(l->comm, l->row, row_bytes, l->lengths, err);
}

/* The same on all ranks: none goes into the windows alone. */
static dcpk_status check_lengths(const struct gather_link *l, struct dcpk_error *err)
{
    const int n = l->base.n_ranks;

    for (int from = 0; from < n; from++)
        for (int to = 0; to < n; to++) {
            const uint64_t sent = row_of(l, from)[to], expected = row_of(l, to)[n + from];

            if (sent != expected)
                return dcpk_fail(err, DCPK_EIO,
                                 "rank %d sends %" PRIu64
                                 " bytes to rank %d, which expects %" PRIu64,
                                 from, sent, to, expected);
        }
    return DCPK_OK;
}

static dcpk_status gather_poll(struct dcpk_link *link, bool *done, struct dcpk_error *err)
{
    struct gather_link *l = (struct gather_link *)link;

    if (l->exchange != NULL) {
        uint64_t n_bytes, end;

        if (gather_lengths(l, err) || check_lengths(l, err))
            return err->status;
        n_bytes = longest_stream(l);
        for (uint64_t first = 0; first < n_bytes; first = end) {
            end = dcpk_min_u64(first + WINDOW_BYTES, n_bytes);
            if (gather_window(l, first, end, err))
                return err->status;
        }
    }
    l->exchange = NULL;
    *done = true;
    return DCPK_OK;
}

static void gather_abort(struct dcpk_link *link)
{
    struct gather_link *l = (struct gather_link *)link;

    l->is_over = true;
    l->exchange = NULL;
}

const struct dcpk_link_ops dcpk_link_gather = {
    .name = "gather",
    .summary = "the collective call of any transport, for those with nothing better",
    .memory = DCPK_MEMORY_HOST,
    .n_under_way = 1,
    DCPK_LINK_FUNCTIONS(gather),
};
