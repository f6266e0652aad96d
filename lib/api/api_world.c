/* SPDX-License-Identifier: Apache-2.0 */
/* api_world.c - a caller's all_gather as the transport of ranks. */
#include <string.h>

#include "lib/api/api_engine_priv.h"
#include "lib/base/alloc.h"
#include "lib/base/order.h"

#define BROADCAST_BYTES ((size_t)256 << 10) /* at once, of each rank */

struct world_comm {
    struct dcpk_comm base;
    struct dcpkit_world world;
    uint8_t *all; /* broadcasts of all ranks */
};

/* Not in place. An answer of 0 is believed when the own bytes came back. */
static dcpk_status world_all_gather(struct dcpk_comm *comm, const void *mine, size_t n_bytes,
                                    void *all, struct dcpk_error *err)
{
    const struct dcpkit_world *world = &((struct world_comm *)comm)->world;
    uint8_t *own = (uint8_t *)all + (size_t)comm->rank * n_bytes;
    int answer;

    for (size_t i = 0; i < n_bytes; i++)
        own[i] = (uint8_t) ~((const uint8_t *)mine)[i];
    answer = world->all_gather(world->context, mine, n_bytes, all);
    if (answer != 0)
        return dcpk_fail(err, DCPK_EIO, "rank %d of %d: all_gather of %zu bytes failed with %d",
                         comm->rank, comm->n_ranks, n_bytes, answer);
    if (n_bytes > 0 && memcmp(own, mine, n_bytes) != 0)
        return dcpk_fail(err, DCPK_EIO, "all_gather did not bring back what rank %d gave",
                         comm->rank);
    return DCPK_OK;
}

/* All give what they have at `data`, and take that of the root. */
static dcpk_status world_broadcast(struct dcpk_comm *comm, int root, void *data, size_t n_bytes,
                                   struct dcpk_error *err)
{
    uint8_t *all = ((struct world_comm *)comm)->all, *bytes = data;

    for (size_t at = 0, n; at < n_bytes; at += n) {
        n = dcpk_min_size(n_bytes - at, BROADCAST_BYTES);
        if (world_all_gather(comm, bytes + at, n, all, err))
            return err->status;
        memcpy(bytes + at, all + (size_t)root * n, n);
    }
    return DCPK_OK;
}

static void world_free(struct dcpk_comm *comm)
{
    dcpk_free(((struct world_comm *)comm)->all);
    dcpk_free(comm);
}

/* No work of ranks here sends messages: there is no `send`. */
static const struct dcpk_transport world_transport = {
    .name = "world",
    .summary = "the caller's all_gather",
    .all_gather = world_all_gather,
    .broadcast = world_broadcast,
    .leave = world_free,
    .abandon = world_free,
};

static dcpk_status check_world(const struct dcpkit_world *world, struct dcpk_error *err)
{
    if (world->n_ranks < 1 || world->rank < 0 || world->rank >= world->n_ranks)
        return dcpk_fail(err, DCPK_EUSAGE, "a world has ranks from 0 on, not rank %d of %d",
                         world->rank, world->n_ranks);
    if (world->n_ranks > 1 && world->all_gather == NULL)
        return dcpk_fail(err, DCPK_EUSAGE, "a world of %d ranks needs an all_gather",
                         world->n_ranks);
    return DCPK_OK;
}

dcpk_status api_ranks_over(const struct dcpkit_world *world, struct dcpk_ranks **ranks,
                           struct dcpk_error *err)
{
    struct world_comm *comm;

    *ranks = NULL;
    if (world == NULL)
        return DCPK_OK;
    if (check_world(world, err))
        return err->status;
    if (world->n_ranks == 1)
        return DCPK_OK;
    comm = dcpk_alloc(sizeof *comm, err);
    if (comm == NULL)
        return err->status;
    comm->base = (struct dcpk_comm){
        .transport = &world_transport, .rank = world->rank, .n_ranks = world->n_ranks};
    comm->world = *world;
    comm->all = dcpk_alloc_array((size_t)world->n_ranks, BROADCAST_BYTES, err);
    if (comm->all == NULL || dcpk_ranks_over(&comm->base, ranks, err))
        world_free(&comm->base);
    return err->status;
}
