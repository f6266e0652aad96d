/* SPDX-License-Identifier: Apache-2.0 */
/* remap_memory.c - checks the places of a rank's shards: targets must be apart from all else. */
/*
 * Shards are sorted by their first byte, so that only those are compared whose byte ranges meet.
 * Two that interleave, as column blocks of one buffer do, are apart all the same: with equal
 * strides the distance between them is taken apart into one index for each stride, which makes them
 * boxes of one larger array.
 */
#include <stdlib.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/plan/remap_priv.h"

/* The bytes that a shard lies in: [first, end). */
struct region {
    uint64_t first, end;
    const struct dcpk_shard *shard;
    bool is_target;
    const char *role; /* for messages */
};

enum meeting { APART, MEET, UNKNOWN };

static struct region region_of(const struct dcpk_shard *shard, bool is_target)
{
    struct region r = {
        .shard = shard, .is_target = is_target, .role = is_target ? "the target" : "the source"};
    uint64_t n_bytes;

    dcpk_shard_range(shard, &r.first, &n_bytes);
    r.end = r.first + n_bytes;
    return r;
}

static int compare_regions(const void *a, const void *b)
{
    const struct region *x = a, *y = b;

    return DCPK_ORDER_BY_2(x, y, first, shard);
}

/* True if each element that both hold has one address, and no other element has it. */
static bool are_same_place(const struct dcpk_shard *a, const struct dcpk_shard *b)
{
    uint64_t a_origin = a->at, b_origin = b->at; /* of the element 0, 0, .. */

    if (a->dtype != b->dtype || strcmp(a->name, b->name) != 0)
        return false;
    for (int axis = 0; axis < a->rank; axis++) {
        const bool is_line = a->span[a->rank + axis] > 1 || b->span[b->rank + axis] > 1;

        if (is_line && a->stride_bytes[axis] != b->stride_bytes[axis])
            return false;
        a_origin -= (uint64_t)a->span[axis] * (uint64_t)a->stride_bytes[axis];
        b_origin -= (uint64_t)b->span[axis] * (uint64_t)b->stride_bytes[axis];
    }
    return a_origin == b_origin;
}

/* Axes of more than one element with their strides, the widest first; the shard's bytes follow
 * `first`. Strides below 0 are turned: that gives the same bytes. */
struct lattice {
    int n;
    int64_t stride[DCPK_MAX_RANK + 1], extent[DCPK_MAX_RANK + 1];
};

static void lattice_of(const struct dcpk_shard *shard, struct lattice *l)
{
    l->n = 0;
    for (int a = 0; a < shard->rank; a++) {
        int at = l->n;

        if (shard->span[shard->rank + a] == 1)
            continue;
        for (; at > 0 && l->stride[at - 1] < llabs(shard->stride_bytes[a]); at--) {
            l->stride[at] = l->stride[at - 1];
            l->extent[at] = l->extent[at - 1];
        }
        l->stride[at] = llabs(shard->stride_bytes[a]);
        l->extent[at] = shard->span[shard->rank + a];
        l->n++;
    }
    l->stride[l->n] = 1; /* the bytes of an element are an axis, too */
    l->extent[l->n++] = (int64_t)dcpk_dtype_bytes(shard->dtype);
}

/* Two shards whose ranges meet, a's first byte not after b's. */
static enum meeting find_meeting(const struct region *a, const struct region *b)
{
    uint64_t distance = b->first - a->first;
    struct lattice x, y;
    bool are_apart = false;

    lattice_of(a->shard, &x);
    lattice_of(b->shard, &y);
    if (x.n != y.n || memcmp(x.stride, y.stride, (size_t)x.n * sizeof x.stride[0]) != 0)
        return UNKNOWN;
    for (int i = 0; i < x.n; i++) {
        const uint64_t stride = (uint64_t)x.stride[i];
        const int64_t at = stride == 0 ? 0 : (int64_t)(distance / stride);

        /* b must not reach into the next index of a wider axis, else indices are ambiguous */
        if (i > 0 && dcpk_max_i64(at + y.extent[i], x.extent[i]) >
                         x.stride[i - 1] / dcpk_max_i64(x.stride[i], 1))
            return UNKNOWN;
        are_apart = are_apart || at >= x.extent[i];
        distance -= (uint64_t)at * stride;
    }
    return are_apart ? APART : MEET;
}

/* Checks that every element of a target has an address of its own. */
static dcpk_status check_alone(const struct region *region, struct dcpk_error *err)
{
    char text[DCPK_SHARD_TEXT];
    struct lattice l;

    if (!region->is_target)
        return DCPK_OK;
    lattice_of(region->shard, &l);
    for (int i = 1; i < l.n; i++)
        if (l.stride[i] * l.extent[i] > l.stride[i - 1])
            return dcpk_fail(err, DCPK_EMISMATCH, "the target of %s overlaps with itself in memory",
                             dcpk_shard_format(region->shard, text, sizeof text));
    return DCPK_OK;
}

static dcpk_status check_pair(const struct region *a, const struct region *b,
                              struct dcpk_error *err)
{
    char a_text[DCPK_SHARD_TEXT], b_text[DCPK_SHARD_TEXT];
    enum meeting meeting;

    if (!a->is_target && !b->is_target)
        return DCPK_OK;
    if (a->is_target != b->is_target && are_same_place(a->shard, b->shard))
        return DCPK_OK;
    meeting = find_meeting(a, b);
    if (meeting == APART)
        return DCPK_OK;
    dcpk_shard_format(a->shard, a_text, sizeof a_text);
    dcpk_shard_format(b->shard, b_text, sizeof b_text);
    if (meeting == MEET)
        return dcpk_fail(err, DCPK_EMISMATCH, "%s of %s overlaps in memory with %s of %s", a->role,
                         a_text, b->role, b_text);
    return dcpk_fail(err, DCPK_EUNSUPPORTED,
                     "%s of %s and %s of %s share a range of memory with different strides",
                     a->role, a_text, b->role, b_text);
}

static size_t add_regions(const struct dcpk_shard *shards, size_t n, int self, bool is_target,
                          struct region *regions)
{
    size_t n_added = 0;

    for (size_t i = 0; i < n; i++)
        if (shards[i].holder == self && !dcpk_shard_is_empty(&shards[i]))
            regions[n_added++] = region_of(&shards[i], is_target);
    return n_added;
}

dcpk_status dcpk_remap_check_memory(const struct dcpk_remap_plan *plan, int self,
                                    struct dcpk_error *err)
{
    const struct dcpk_remap_input *in = &plan->input;
    struct region *regions = dcpk_alloc_array(in->n_sources + in->n_targets, sizeof *regions, err);
    dcpk_status st = DCPK_OK;
    size_t n;

    if (regions == NULL)
        return err->status;
    n = add_regions(in->sources, in->n_sources, self, false, regions);
    n += add_regions(in->targets, in->n_targets, self, true, regions + n);
    qsort(regions, n, sizeof *regions, compare_regions);
    for (size_t i = 0; i < n && st == DCPK_OK; i++) {
        st = check_alone(&regions[i], err);
        for (size_t j = i + 1; j < n && regions[j].first < regions[i].end && st == DCPK_OK; j++)
            st = check_pair(&regions[i], &regions[j], err);
    }
    dcpk_free(regions);
    return st;
}
