/* SPDX-License-Identifier: Apache-2.0 */
/* ranks_share.c - numbers that ranks compare, bytes that they share. */
/*
 * Sharing takes two agreements and a broadcast of each rank. The first agreement is about sizes,
 * from which each rank takes memory. The second is about whether all have it, and carries the
 * CRC-32 of what each rank then sends.
 */
#include <stdint.h>
#include <string.h>

#include "lib/base/checked.h"
#include "lib/base/digest.h"
#include "lib/base/order.h"
#include "lib/device/device.h"
#include "lib/exec/ranks_priv.h"

dcpk_status dcpk_ranks_check_same(struct dcpk_ranks *ranks, uint64_t number, const char *what,
                                  struct dcpk_error *err)
{
    dcpk_status st;

    if (ranks == NULL)
        return DCPK_OK;
    st = dcpk_ranks_agree_inside(ranks, CHECK_SAME, number, DCPK_OK, err);
    for (int r = 1; st == DCPK_OK && r < ranks->comm->n_ranks; r++)
        if (ranks->votes[r].number != ranks->votes[0].number)
            st = dcpk_fail(err, DCPK_EIO,
                           "ranks 0 and %d of %d do not see the same %s (is it on a file system "
                           "that all share, and written to no more?)",
                           r, ranks->comm->n_ranks, what);
    if (st != DCPK_OK)
        ranks->failed = *err;
    return st;
}

dcpk_status dcpk_ranks_least(struct dcpk_ranks *ranks, uint64_t *number, struct dcpk_error *err)
{
    dcpk_status st;

    if (ranks == NULL)
        return DCPK_OK;
    st = dcpk_ranks_agree_inside(ranks, LEAST, *number, DCPK_OK, err);
    for (int r = 0; st == DCPK_OK && r < ranks->comm->n_ranks; r++)
        if (ranks->votes[r].number < *number)
            *number = ranks->votes[r].number;
    return st;
}

/* Keeps the agreed sizes; *n_all: their sum. Returns false if the sum exceeds the address space. */
static bool take_sizes(struct dcpk_ranks *ranks, size_t *n_all)
{
    uint64_t sum = 0;

    for (int r = 0; r < ranks->comm->n_ranks; r++) {
        ranks->sizes[r] = ranks->votes[r].number;
        if (!dcpk_add_u64(sum, ranks->sizes[r], &sum) || sum > PTRDIFF_MAX)
            return false;
    }
    *n_all = (size_t)sum;
    return true;
}

/* Broadcasts the data of each rank. Bytes are compared at the end, so that all make all calls. */
static dcpk_status broadcast_all(struct dcpk_ranks *ranks, const void *mine, uint8_t *all,
                                 struct dcpk_error *err)
{
    int changed = -1;

    for (int r = 0; r < ranks->comm->n_ranks; all += (size_t)ranks->sizes[r++]) {
        const size_t n_bytes = (size_t)ranks->sizes[r];

        if (r == ranks->comm->rank && n_bytes > 0)
            memcpy(all, mine, n_bytes);
        if (dcpk_ranks_broadcast(ranks, r, all, n_bytes, err) != DCPK_OK)
            return err->status;
        if (changed < 0 && dcpk_crc32(0, all, n_bytes) != ranks->votes[r].number)
            changed = r;
    }
    if (changed < 0)
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EIO, "the data of rank %d of %d arrived with other bytes", changed,
                     ranks->comm->n_ranks);
}

dcpk_status dcpk_ranks_share(struct dcpk_ranks *ranks, const void *mine, size_t n_bytes,
                             struct dcpk_bytes *all, dcpk_status st, struct dcpk_error *err)
{
    size_t n_all = 0;
    uint32_t crc32 = 0;

    if (ranks == NULL) {
        if (st != DCPK_OK)
            return st;
        dcpk_bytes_put(all, mine, n_bytes);
        return dcpk_bytes_status(all, err);
    }
    if (dcpk_ranks_agree_inside(ranks, SHARE, n_bytes, st, err) != DCPK_OK)
        return err->status;
    if (take_sizes(ranks, &n_all)) {
        dcpk_bytes_zeros(all, n_all);
        st = dcpk_bytes_status(all, err);
        crc32 = dcpk_crc32(0, mine, n_bytes);
    } else {
        st = dcpk_fail(err, DCPK_ENOMEM, "ranks share more bytes than memory can have");
    }
    if (dcpk_ranks_agree_inside(ranks, SHARE, crc32, st, err) != DCPK_OK)
        return err->status;
    return broadcast_all(ranks, mine, all->data + (all->n_bytes - n_all), err);
}

dcpk_status dcpk_ranks_share_each(struct dcpk_ranks *ranks, const void *mine, size_t n_bytes,
                                  struct dcpk_bytes *all, dcpk_status st, struct dcpk_error *err)
{
    st = dcpk_ranks_share(ranks, mine, n_bytes, all, st, err);
    for (int r = 0; ranks != NULL && st == DCPK_OK && r < ranks->comm->n_ranks; r++)
        if (ranks->sizes[r] != n_bytes) {
            st = dcpk_fail(err, DCPK_EIO,
                           "ranks %d and %d of %d share different things (please report this)",
                           ranks->comm->rank, r, ranks->comm->n_ranks);
            ranks->failed = *err;
        }
    return st;
}

/* Combines the numbers of two ranks. */
typedef uint64_t fold(uint64_t a, uint64_t b);

static uint64_t fold_sum(uint64_t a, uint64_t b)
{
    return a + b;
}

static dcpk_status share_numbers(struct dcpk_ranks *ranks, uint64_t *numbers, size_t n,
                                 fold *of_two, dcpk_status st, struct dcpk_error *err)
{
    struct dcpk_bytes all = {0};

    st = dcpk_ranks_share_each(ranks, numbers, n * sizeof *numbers, &all, st, err);
    if (st == DCPK_OK && n > 0)
        memset(numbers, 0, n * sizeof *numbers);
    for (size_t i = 0; st == DCPK_OK && i < all.n_bytes / sizeof *numbers; i++) {
        uint64_t its;

        memcpy(&its, all.data + i * sizeof its, sizeof its);
        numbers[i % n] = of_two(numbers[i % n], its);
    }
    dcpk_bytes_release(&all);
    return st;
}

dcpk_status dcpk_ranks_sum(struct dcpk_ranks *ranks, uint64_t *numbers, size_t n, dcpk_status st,
                           struct dcpk_error *err)
{
    return share_numbers(ranks, numbers, n, fold_sum, st, err);
}

dcpk_status dcpk_ranks_most(struct dcpk_ranks *ranks, uint64_t *numbers, size_t n, dcpk_status st,
                            struct dcpk_error *err)
{
    return share_numbers(ranks, numbers, n, dcpk_max_u64, st, err);
}

dcpk_status dcpk_ranks_first(struct dcpk_ranks *ranks, void *bytes, size_t n_bytes, dcpk_status st,
                             struct dcpk_error *err)
{
    struct dcpk_bytes all = {0};

    st = dcpk_ranks_share_each(ranks, bytes, n_bytes, &all, st, err);
    if (st == DCPK_OK)
        memcpy(bytes, all.data, n_bytes);
    dcpk_bytes_release(&all);
    return st;
}

dcpk_status dcpk_ranks_ordinal(struct dcpk_ranks *ranks, int *ordinal, struct dcpk_error *err)
{
    struct dcpk_memory_id id = {0};
    struct dcpk_bytes all = {0};
    dcpk_status st;

    dcpk_memory_id_sign(&id);
    st = dcpk_ranks_share_each(ranks, id.host, sizeof id.host, &all, DCPK_OK, err);
    *ordinal = 0;
    for (int r = 0; st == DCPK_OK && r < dcpk_ranks_self(ranks); r++)
        *ordinal += memcmp(all.data + (size_t)r * sizeof id.host, id.host, sizeof id.host) == 0;
    dcpk_bytes_release(&all);
    return st;
}
