/* SPDX-License-Identifier: Apache-2.0 */
/* collectives.c - the collectives of a process alone: a sum over one rank is what it has. */
#include "lib/device/collectives.h"

#include <assert.h>
#include <string.h>

#include "lib/base/alloc.h"

size_t dcpk_reduction_bytes(enum dcpk_reduction reduction)
{
    static const size_t n_bytes[] = {
        [DCPK_SUM_I64] = 8, [DCPK_SUM_F32] = 4, [DCPK_SUM_BF16] = 2,
        [DCPK_SUM_F64] = 8, [DCPK_MAX_F32] = 4, [DCPK_MAX_F64] = 8,
    };

    return n_bytes[reduction];
}

static dcpk_status alone_world(struct dcpk_comm *comm, int ordinal, struct dcpk_group **world,
                               struct dcpk_error *err)
{
    struct dcpk_group *made;

    (void)ordinal;
    if (comm != NULL && comm->n_ranks > 1)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "%d ranks are not one process alone",
                         comm->n_ranks);
    made = dcpk_alloc(sizeof *made, err);
    if (made == NULL)
        return err->status;
    *made = (struct dcpk_group){.by = &dcpk_collectives_alone, .n_ranks = 1};
    *world = made;
    return DCPK_OK;
}

static dcpk_status alone_split(struct dcpk_group *of, int colour, struct dcpk_group **group,
                               struct dcpk_error *err)
{
    (void)of;
    (void)colour;
    return alone_world(NULL, 0, group, err);
}

static void alone_free(struct dcpk_group *group)
{
    dcpk_free(group);
}

/* Every call has done its work when it returns. */
static void alone_take(uint64_t *ticket)
{
    if (ticket != NULL)
        *ticket = 0;
}

static dcpk_status alone_all_gather(struct dcpk_group *group, const void *mine, size_t n_bytes,
                                    void *all, uint64_t *ticket, struct dcpk_error *err)
{
    (void)group;
    (void)err;
    if (mine != all)
        memcpy(all, mine, n_bytes);
    alone_take(ticket);
    return DCPK_OK;
}

static dcpk_status alone_reduce(struct dcpk_group *group, enum dcpk_reduction reduction, void *all,
                                size_t n, uint64_t *ticket, struct dcpk_error *err)
{
    (void)group;
    (void)reduction;
    (void)all;
    (void)n;
    (void)err;
    alone_take(ticket);
    return DCPK_OK;
}

static dcpk_status alone_all_to_all(struct dcpk_group *group, const struct dcpk_parts *send,
                                    const struct dcpk_parts *receive, uint64_t *ticket,
                                    struct dcpk_error *err)
{
    (void)group;
    (void)err;
    assert(send->n_bytes[0] == receive->n_bytes[0]);
    memcpy(receive->at, send->at, send->n_bytes[0]);
    alone_take(ticket);
    return DCPK_OK;
}

static dcpk_status alone_broadcast(struct dcpk_group *group, int root, void *data, size_t n_bytes,
                                   uint64_t *ticket, struct dcpk_error *err)
{
    (void)group;
    (void)data;
    (void)n_bytes;
    (void)err;
    assert(root == 0);
    alone_take(ticket);
    return DCPK_OK;
}

static dcpk_status alone_send(struct dcpk_group *group, int to, const void *data, size_t n_bytes,
                              uint64_t *ticket, struct dcpk_error *err)
{
    (void)group;
    (void)data;
    (void)n_bytes;
    (void)ticket;
    return dcpk_fail(err, DCPK_EUNSUPPORTED, "there is no rank %d to send to", to);
}

static dcpk_status alone_receive(struct dcpk_group *group, int from, void *data, size_t n_bytes,
                                 uint64_t *ticket, struct dcpk_error *err)
{
    (void)group;
    (void)data;
    (void)n_bytes;
    (void)ticket;
    return dcpk_fail(err, DCPK_EUNSUPPORTED, "there is no rank %d to receive from", from);
}

static dcpk_status alone_wait(struct dcpk_group *group, uint64_t ticket, struct dcpk_error *err)
{
    (void)group;
    (void)ticket;
    (void)err;
    return DCPK_OK;
}

const struct dcpk_collectives dcpk_collectives_alone = {
    .name = "alone",
    .summary = "one process",
    .is_device = false,
    .world = alone_world,
    .split = alone_split,
    .free = alone_free,
    .all_gather = alone_all_gather,
    .all_reduce = alone_reduce,
    .reduce_scatter = alone_reduce,
    .all_to_all = alone_all_to_all,
    .broadcast = alone_broadcast,
    .send = alone_send,
    .receive = alone_receive,
    .wait = alone_wait,
};
