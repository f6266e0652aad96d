/* SPDX-License-Identifier: Apache-2.0 */
/* user_buffers.c - a pool of buffers, and with which groups they are registered. */
#include "lib/train/user_buffers.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/train/train.h"

#define MAX_GROUPS 8 /* gathers and reductions, dense and of experts, and outer ones: 6 */

struct user_buffer {
    void *at;
    size_t n_bytes;
    enum dcpk_buffer_use use;
    bool is_taken;
    unsigned windows, locals; /* a bit for each group that it is registered with */
};

struct user_group {
    struct dcpk_group *group;
    bool uses[2];
    bool is_local; /* without windows */
    size_t n_seen; /* buffers that registrations have seen, the first of the pool */
};

struct dcpk_user_buffers {
    const struct dcpk_train_job *job;
    bool is_silent;
    struct user_buffer *list;
    size_t n, capacity;
    struct user_group groups[MAX_GROUPS];
    size_t n_groups;
};

static void note_line(const struct dcpk_train_job *job, bool is_silent, const char *text)
{
    if (!is_silent && job->notes != NULL)
        job->notes(job->context, text, strlen(text));
}

/* ---- the pool ---- */

/* Tries whether this rank has user buffers; the reason in `absent`. */
static void find_absent(struct dcpk_group *world, struct dcpk_error *absent)
{
    void *at = NULL;

    if (world->by->buffer_alloc == NULL)
        dcpk_fail(absent, DCPK_EUNSUPPORTED, "collectives of '%s' have none", world->by->name);
    else if (world->n_ranks == 1)
        dcpk_fail(absent, DCPK_EUNSUPPORTED, "a run of one rank sends nothing");
    else if (world->by->buffer_alloc(world, 1, &at, absent) == DCPK_OK)
        world->by->buffer_free(world, at);
}

dcpk_status dcpk_user_buffers_new(const struct dcpk_train_job *job, bool is_silent,
                                  struct dcpk_user_buffers **buffers, struct dcpk_error *err)
{
    struct dcpk_error absent = DCPK_ERROR_INIT;
    struct dcpk_user_buffers *made;
    char text[DCPK_ERROR_BYTES + 64];
    int64_t n_able;

    *buffers = NULL;
    if (!job->config->fsdp.has_user_buffers || job->math->device->gpu_major == 0)
        return DCPK_OK;
    made = dcpk_alloc(sizeof *made, err);
    find_absent(job->world, &absent);
    n_able = absent.status == DCPK_OK;
    if (dcpk_totals_agree(job->world, job->math, err->status, &n_able, 1, err) != DCPK_OK) {
        dcpk_free(made);
        return err->status;
    }
    if (n_able == job->world->n_ranks) {
        made->job = job;
        made->is_silent = is_silent;
        *buffers = made;
        return DCPK_OK;
    }
    dcpk_free(made);
    snprintf(text, sizeof text, "nccl_ub registers nothing: %s\n",
             absent.status == DCPK_OK ? "another rank has no user buffers" : absent.text);
    note_line(job, is_silent, text);
    return DCPK_OK;
}

void dcpk_user_buffers_free(struct dcpk_user_buffers *b)
{
    if (b == NULL)
        return;
    for (size_t i = 0; i < b->n; i++)
        b->job->world->by->buffer_free(b->job->world, b->list[i].at);
    dcpk_free(b->list);
    dcpk_free(b);
}

void dcpk_user_buffers_join(struct dcpk_user_buffers *b, enum dcpk_buffer_use use,
                            struct dcpk_group *group)
{
    size_t i = 0;

    if (group == NULL || group->n_ranks == 1)
        return;
    while (i < b->n_groups && b->groups[i].group != group)
        i++;
    if (i == b->n_groups) {
        assert(b->n_groups < MAX_GROUPS && b->n == 0);
        b->groups[b->n_groups++] = (struct user_group){
            .group = group, .is_local = b->job->config->fsdp.has_local_registration};
    }
    b->groups[i].uses[use] = true;
}

/* A free buffer of that size, NULL: none. One that is larger would be missing later: the second
 * step could then take others than the first. */
static struct user_buffer *find_free(const struct dcpk_user_buffers *b, enum dcpk_buffer_use use,
                                     size_t n_bytes)
{
    for (size_t i = 0; i < b->n; i++) {
        struct user_buffer *one = &b->list[i];

        if (!one->is_taken && one->use == use && one->n_bytes == n_bytes)
            return one;
    }
    return NULL;
}

dcpk_status dcpk_user_buffers_take(struct dcpk_user_buffers *b, enum dcpk_buffer_use use,
                                   size_t n_bytes, void **at, struct dcpk_error *err)
{
    struct dcpk_group *world = b->job->world;
    struct user_buffer *one;

    if (n_bytes == 0)
        n_bytes = 1;
    one = find_free(b, use, n_bytes);
    if (one == NULL) {
        struct user_buffer made = {.n_bytes = n_bytes, .use = use};

        if (dcpk_grow(&b->list, &b->capacity, b->n, sizeof *b->list, err) ||
            world->by->buffer_alloc(world, n_bytes, &made.at, err))
            return err->status;
        one = &b->list[b->n++];
        *one = made;
    }
    one->is_taken = true;
    *at = one->at;
    return DCPK_OK;
}

void dcpk_user_buffers_give(struct dcpk_user_buffers *b, void *at)
{
    size_t i = 0;

    if (at == NULL)
        return;
    while (b->list[i].at != at)
        i++;
    assert(b->list[i].is_taken);
    b->list[i].is_taken = false;
}

/* ---- registration ---- */

/* Registers with group g the buffers that it has not seen. *n: their number, *n_got: those that
 * became `by`, which are marked. */
static dcpk_status group_try(struct dcpk_user_buffers *b, size_t g, enum dcpk_registration by,
                             size_t *n, int64_t *n_got, struct dcpk_error *err)
{
    struct dcpk_group *group = b->groups[g].group;

    *n = 0;
    *n_got = 0;
    for (size_t i = b->groups[g].n_seen; i < b->n; i++) {
        struct user_buffer *one = &b->list[i];
        enum dcpk_registration got;

        if (!b->groups[g].uses[one->use])
            continue;
        if (group->by->buffer_register(group, one->at, one->n_bytes, by, &got, err))
            return err->status;
        ++*n;
        *n_got += got == by;
        if (got == by && by == DCPK_REGISTERED_WINDOW)
            one->windows |= 1u << g;
        else if (got == by)
            one->locals |= 1u << g;
    }
    return DCPK_OK;
}

/* Undoes what group g has of the buffers from `first` on. */
static void group_undo(struct dcpk_user_buffers *b, size_t g, size_t first)
{
    struct dcpk_group *group = b->groups[g].group;

    for (size_t i = first; i < b->groups[g].n_seen; i++) {
        struct user_buffer *one = &b->list[i];

        if (!b->groups[g].uses[one->use])
            continue;
        group->by->buffer_unregister(group, one->at);
        one->windows &= ~(1u << g);
        one->locals &= ~(1u << g);
    }
}

/* Windows where all ranks of the group have them, else local registrations on all. */
static dcpk_status group_register(struct dcpk_user_buffers *b, size_t number,
                                  struct dcpk_error *err)
{
    struct user_group *g = &b->groups[number];
    const size_t first = g->n_seen;
    int64_t n_got = 0;
    size_t n = 0;

    if (!g->is_local) {
        if (group_try(b, number, DCPK_REGISTERED_WINDOW, &n, &n_got, err))
            return err->status;
        if (n > 0 && dcpk_totals_agree(g->group, b->job->math, DCPK_OK, &n_got, 1, err))
            return err->status;
        g->is_local = n_got < (int64_t)n * g->group->n_ranks;
        g->n_seen = b->n;
        if (!g->is_local)
            return DCPK_OK;
        group_undo(b, number, first);
        g->n_seen = first;
    }
    if (group_try(b, number, DCPK_REGISTERED_LOCALLY, &n, &n_got, err))
        return err->status;
    g->n_seen = b->n;
    return DCPK_OK;
}

static void note_registered(const struct dcpk_user_buffers *b)
{
    const struct dcpk_group *world = b->job->world;
    unsigned windows = 0, locals = 0;
    const char *how = "as symmetric windows";
    unsigned long long n_bytes = 0;
    char text[256];
    size_t n = 0;

    for (size_t i = 0; i < b->n; i++) {
        const struct user_buffer *one = &b->list[i];

        windows |= one->windows;
        locals |= one->locals;
        if ((one->windows | one->locals) != 0) {
            n_bytes += one->n_bytes;
            n++;
        }
    }
    if (locals != 0 && b->job->config->fsdp.has_local_registration)
        how = "locally";
    else if (locals != 0 && windows != 0)
        how = "as symmetric windows and, with groups that have none, locally";
    else if (locals != 0)
        how = "locally: there are no symmetric windows";
    if (n > 0)
        snprintf(text, sizeof text, "nccl_ub: rank %d registered %llu bytes (buffers: %zu), %s\n",
                 world->rank, n_bytes, n, how);
    else
        snprintf(text, sizeof text, "nccl_ub registers nothing: '%s' takes no registrations\n",
                 world->by->name);
    note_line(b->job, b->is_silent, text);
}

dcpk_status dcpk_user_buffers_register(struct dcpk_user_buffers *b, int64_t n_trained,
                                       struct dcpk_error *err)
{
    bool is_new = false;

    if (b == NULL || n_trained > 1 || (n_trained == 0 && b->job->config->fsdp.registers_by_hand))
        return DCPK_OK;
    for (size_t g = 0; g < b->n_groups; g++) {
        is_new = is_new || b->groups[g].n_seen < b->n;
        if (group_register(b, g, err))
            return err->status;
    }
    if (is_new)
        note_registered(b);
    return DCPK_OK;
}

void dcpk_user_buffers_unregister(struct dcpk_user_buffers *b)
{
    for (size_t g = 0; b != NULL && g < b->n_groups; g++)
        group_undo(b, g, 0);
}
