/* SPDX-License-Identifier: Apache-2.0 */
/* buffer_case.h - collectives of host memory that have user buffers, too, and know which of them
 * are registered with which group. */
#ifndef DCPK_TESTS_BUFFER_CASE_H
#define DCPK_TESTS_BUFFER_CASE_H

#include "lib/base/alloc.h"
#include "lib/device/collectives.h"
#include "tests/check.h"

static const struct dcpk_collectives *buffer_plain; /* without them */
static struct dcpk_collectives buffer_collectives;  /* of the world and of all groups of it */
static struct {
    struct dcpk_group *group;
    uint8_t *at;
    size_t n_bytes;
} buffer_known[512];
static size_t n_buffer_known, n_buffer_windows; /* registered now; windows ever */

static dcpk_status buffer_case_split(struct dcpk_group *of, int colour, struct dcpk_group **group,
                                     struct dcpk_error *err)
{
    const dcpk_status st = buffer_plain->split(of, colour, group, err);

    if (st == DCPK_OK)
        (*group)->by = &buffer_collectives;
    return st;
}

static dcpk_status buffer_case_alloc(struct dcpk_group *group, size_t n_bytes, void **at,
                                     struct dcpk_error *err)
{
    (void)group;
    *at = dcpk_alloc_aligned(256, n_bytes, err);
    return err->status;
}

static void buffer_case_free(struct dcpk_group *group, void *at)
{
    (void)group;
    for (size_t i = 0; i < n_buffer_known; i++)
        CHECK(buffer_known[i].at != at, "memory that is registered is not freed");
    dcpk_free(at);
}

/* All ranks of the group have a buffer of that size in this place. */
static dcpk_status buffer_case_register(struct dcpk_group *group, void *at, size_t n_bytes,
                                        enum dcpk_registration by, enum dcpk_registration *got,
                                        struct dcpk_error *err)
{
    int64_t sum = (int64_t)n_bytes;

    if (by == DCPK_REGISTERED_WINDOW) {
        if (buffer_plain->all_reduce(group, DCPK_SUM_I64, &sum, 1, NULL, err))
            return err->status;
        CHECK_EQ_INT(sum, (int64_t)n_bytes * group->n_ranks, "windows have one size");
        n_buffer_windows++;
    }
    CHECK(n_buffer_known < sizeof buffer_known / sizeof buffer_known[0], "registrations");
    buffer_known[n_buffer_known].group = group;
    buffer_known[n_buffer_known].at = at;
    buffer_known[n_buffer_known++].n_bytes = n_bytes;
    *got = by;
    return DCPK_OK;
}

static void buffer_case_unregister(struct dcpk_group *group, void *at)
{
    size_t n = 0;

    for (size_t i = 0; i < n_buffer_known; i++)
        if (buffer_known[i].group != group || buffer_known[i].at != at)
            buffer_known[n++] = buffer_known[i];
    CHECK(n < n_buffer_known, "it was registered");
    n_buffer_known = n;
}

/* The world has user buffers from now on, and groups that are split from it. */
static inline void buffer_case_begin(struct dcpk_group *world)
{
    buffer_plain = world->by;
    buffer_collectives = *buffer_plain;
    buffer_collectives.split = buffer_case_split;
    buffer_collectives.buffer_alloc = buffer_case_alloc;
    buffer_collectives.buffer_free = buffer_case_free;
    buffer_collectives.buffer_register = buffer_case_register;
    buffer_collectives.buffer_unregister = buffer_case_unregister;
    world->by = &buffer_collectives;
    n_buffer_windows = 0;
}

#endif
