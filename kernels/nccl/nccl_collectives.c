/* SPDX-License-Identifier: Apache-2.0 */
/* nccl_collectives.c - groups of ranks with GPUs, and their calls. */
/*
 * A group has three channels, so that no message waits for one that goes the other way:
 *
 *   ALL    collectives, in the order in which they are called
 *   UP     messages to a higher rank, from a lower one
 *   DOWN   messages to a lower rank, from a higher one
 *
 * A ticket is the number of a call in its channel times the channels, plus the channel.
 */
#include "kernels/kernels.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/nccl/nccl_channel.h"
#include "lib/base/alloc.h"
#include "lib/base/clock.h"
#include "lib/device/link.h"

enum { ALL, UP, DOWN, N_CHANNELS };

struct nccl_group {
    struct dcpk_group base;
    struct nccl_device device;
    struct nccl_channel channels[N_CHANNELS];
    bool has_failed;
    struct registered **registered; /* each owned: NCCL writes into it */
    size_t n_registered, capacity;
};

/* A user buffer that the channel of collectives knows. */
struct registered {
    void *at, *handle;
    bool is_window; /* made by a call for windows, and undone by one */
};

/* The message of the first rank of a future group to the others. */
struct invitation {
    ncclUniqueId ids[N_CHANNELS];
};

static struct nccl_group *group_of(struct dcpk_group *group)
{
    return (struct nccl_group *)group;
}

/* ---- calls ---- */

static dcpk_status group_pump(struct nccl_group *g, struct dcpk_error *err)
{
    for (int i = 0; i < N_CHANNELS; i++)
        if (dcpk_nccl_channel_pump(&g->channels[i], err))
            return err->status;
    return DCPK_OK;
}

static dcpk_status group_wait_for(struct nccl_group *g, int channel, size_t number,
                                  struct dcpk_error *err)
{
    const double begun = dcpk_now_seconds();
    bool done = false;

    for (;;) {
        const double waited = dcpk_now_seconds() - begun;

        if (group_pump(g, err) || dcpk_nccl_channel_poll(&g->channels[channel], number, &done, err))
            return err->status;
        if (done)
            return DCPK_OK;
        if (g->base.timeout_ms > 0 && waited * 1000 > g->base.timeout_ms)
            return dcpk_fail(err, DCPK_EIO,
                             "NCCL, a collective call: another rank is not there after %d ms",
                             g->base.timeout_ms);
        dcpk_pause(waited);
    }
}

static dcpk_status group_wait(struct dcpk_group *group, uint64_t ticket, struct dcpk_error *err)
{
    struct nccl_group *g = group_of(group);
    dcpk_status st;

    if (g->has_failed)
        return dcpk_fail(err, DCPK_EIO, "an earlier call between the ranks failed");
    dcpk_cuda_enter(&g->device.driver, g->device.context);
    st = group_wait_for(g, (int)(ticket % N_CHANNELS), (size_t)(ticket / N_CHANNELS), err);
    dcpk_cuda_leave(&g->device.driver);
    if (st != DCPK_OK)
        g->has_failed = true;
    return st;
}

/* End of every call: queue it, and wait for it where there is no ticket. */
static dcpk_status group_call(struct nccl_group *g, int channel, const struct nccl_call *call,
                              uint64_t *ticket, struct dcpk_error *err)
{
    size_t number;
    dcpk_status st;

    if (g->has_failed) {
        dcpk_free(call->parts);
        return dcpk_fail(err, DCPK_EIO, "an earlier call between the ranks failed");
    }
    dcpk_cuda_enter(&g->device.driver, g->device.context);
    st = dcpk_nccl_channel_add(&g->channels[channel], call, &number, err);
    if (st == DCPK_OK)
        st = group_pump(g, err);
    dcpk_cuda_leave(&g->device.driver);
    if (st != DCPK_OK) {
        g->has_failed = true;
        return st;
    }
    if (ticket == NULL)
        return group_wait(&g->base, (uint64_t)number * N_CHANNELS + (uint64_t)channel, err);
    *ticket = (uint64_t)number * N_CHANNELS + (uint64_t)channel;
    return DCPK_OK;
}

static dcpk_status group_all_gather(struct dcpk_group *group, const void *mine, size_t n_bytes,
                                    void *all, uint64_t *ticket, struct dcpk_error *err)
{
    const struct nccl_call call = {
        .kind = NCCL_CALL_ALL_GATHER, .from = mine, .to = all, .n = n_bytes};

    return group_call(group_of(group), ALL, &call, ticket, err);
}

static dcpk_status group_all_reduce(struct dcpk_group *group, enum dcpk_reduction reduction,
                                    void *all, size_t n, uint64_t *ticket, struct dcpk_error *err)
{
    const struct nccl_call call = {
        .kind = NCCL_CALL_ALL_REDUCE, .to = all, .n = n, .reduction = reduction};

    return group_call(group_of(group), ALL, &call, ticket, err);
}

static dcpk_status group_reduce_scatter(struct dcpk_group *group, enum dcpk_reduction reduction,
                                        void *all, size_t n, uint64_t *ticket,
                                        struct dcpk_error *err)
{
    const size_t n_bytes = n * dcpk_reduction_bytes(reduction);
    const struct nccl_call call = {.kind = NCCL_CALL_REDUCE_SCATTER,
                                   .from = all,
                                   .to = (uint8_t *)all + (size_t)group->rank * n_bytes,
                                   .n = n,
                                   .reduction = reduction};

    return group_call(group_of(group), ALL, &call, ticket, err);
}

static dcpk_status group_all_to_all(struct dcpk_group *group, const struct dcpk_parts *send,
                                    const struct dcpk_parts *receive, uint64_t *ticket,
                                    struct dcpk_error *err)
{
    const size_t n = (size_t)group->n_ranks;
    const struct nccl_call call = {.kind = NCCL_CALL_ALL_TO_ALL,
                                   .from = send->at,
                                   .to = receive->at,
                                   .parts = dcpk_alloc_array(2 * n, sizeof *call.parts, err)};

    if (call.parts == NULL)
        return err->status;
    memcpy(call.parts, send->n_bytes, n * sizeof *call.parts);
    memcpy(call.parts + n, receive->n_bytes, n * sizeof *call.parts);
    return group_call(group_of(group), ALL, &call, ticket, err);
}

static dcpk_status group_broadcast(struct dcpk_group *group, int root, void *data, size_t n_bytes,
                                   uint64_t *ticket, struct dcpk_error *err)
{
    const struct nccl_call call = {
        .kind = NCCL_CALL_BROADCAST, .to = data, .n = n_bytes, .peer = root};

    return group_call(group_of(group), ALL, &call, ticket, err);
}

static dcpk_status group_send(struct dcpk_group *group, int to, const void *data, size_t n_bytes,
                              uint64_t *ticket, struct dcpk_error *err)
{
    const struct nccl_call call = {.kind = NCCL_CALL_SEND, .from = data, .n = n_bytes, .peer = to};

    assert(to != group->rank);
    return group_call(group_of(group), to > group->rank ? UP : DOWN, &call, ticket, err);
}

static dcpk_status group_receive(struct dcpk_group *group, int from, void *data, size_t n_bytes,
                                 uint64_t *ticket, struct dcpk_error *err)
{
    const struct nccl_call call = {
        .kind = NCCL_CALL_RECEIVE, .to = data, .n = n_bytes, .peer = from};

    assert(from != group->rank);
    return group_call(group_of(group), from < group->rank ? UP : DOWN, &call, ticket, err);
}

/* ---- user buffers ---- */

static dcpk_status group_buffer_alloc(struct dcpk_group *group, size_t n_bytes, void **at,
                                      struct dcpk_error *err)
{
    const struct nccl_device *d = &group_of(group)->device;
    ncclResult_t result;

    if (d->nccl.mem_alloc == NULL)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "libnccl.so.2 is older than " NCCL_MEMORY_RELEASE
                         ": it has no user buffers");
    dcpk_cuda_enter(&d->driver, d->context);
    result = d->nccl.mem_alloc(at, n_bytes);
    dcpk_cuda_leave(&d->driver);
    if (result != ncclSuccess)
        return dcpk_fail(err, DCPK_ENOMEM, "NCCL gives no user buffer of %zu bytes: %s", n_bytes,
                         d->nccl.error_string(result));
    return DCPK_OK;
}

static void group_buffer_free(struct dcpk_group *group, void *at)
{
    const struct nccl_device *d = &group_of(group)->device;

    if (at == NULL)
        return;
    dcpk_cuda_enter(&d->driver, d->context);
    d->nccl.mem_free(at);
    dcpk_cuda_leave(&d->driver);
}

/*
 * NCCL 2.28 gives the handle of a local registration, in host memory, where it has no symmetric
 * windows, which lie in the GPU's; later ones give none. 2.27 gives the same for both: it counts as
 * a window unless NCCL_WIN_ENABLE=0 turns windows off, so also between hosts, where 2.27 has none.
 * Source: ncclCommWindowRegister in src/register/register.cc @2.27.3, src/dev_runtime.cc @2.28.9,
 * @2.29.2.
 */
static bool handle_is_window(const struct nccl_group *g, const struct registered *r)
{
    const struct nccl_device *d = &g->device;
    const char *wanted = getenv("NCCL_WIN_ENABLE");
    CUmemorytype type = CU_MEMORYTYPE_HOST;
    int version = 0;

    if (!r->is_window || r->handle == NULL)
        return false;
    if (d->nccl.get_version(&version) == ncclSuccess && version < NCCL_WINDOW_SHOWS)
        return wanted == NULL || strcmp(wanted, "0") != 0;
    dcpk_cuda_enter(&d->driver, d->context);
    if (d->driver.pointer_attribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                    (CUdeviceptr)(uintptr_t)r->handle) != CUDA_SUCCESS)
        type = CU_MEMORYTYPE_HOST; /* the driver does not know it */
    dcpk_cuda_leave(&d->driver);
    return type == CU_MEMORYTYPE_DEVICE;
}

static dcpk_status group_buffer_register(struct dcpk_group *group, void *at, size_t n_bytes,
                                         enum dcpk_registration by, enum dcpk_registration *got,
                                         struct dcpk_error *err)
{
    struct nccl_group *g = group_of(group);
    struct nccl_call call = {.kind = NCCL_CALL_REGISTER, .to = at, .n = n_bytes};
    struct registered *made;

    *got = DCPK_NOT_REGISTERED;
    if (by == DCPK_REGISTERED_WINDOW && g->device.nccl.window_register == NULL)
        return DCPK_OK;
    if (dcpk_grow(&g->registered, &g->capacity, g->n_registered, sizeof(struct registered *), err))
        return err->status;
    made = dcpk_alloc(sizeof *made, err);
    if (made == NULL)
        return err->status;
    g->registered[g->n_registered++] = made;
    made->at = at;
    made->is_window = by == DCPK_REGISTERED_WINDOW;
    if (made->is_window)
        call.kind = NCCL_CALL_REGISTER_WINDOW;
    call.handle = &made->handle;
    if (group_call(g, ALL, &call, NULL, err))
        return dcpk_context(err, "registering a user buffer of %zu bytes", n_bytes);
    if (handle_is_window(g, made))
        *got = DCPK_REGISTERED_WINDOW;
    else if (made->handle != NULL)
        *got = DCPK_REGISTERED_LOCALLY;
    return DCPK_OK;
}

/* A communicator that has failed is aborted soon, which undoes it. */
static void registered_drop(const struct nccl_group *g, const struct registered *r)
{
    const struct nccl *nccl = &g->device.nccl;
    ncclComm_t comm = g->channels[ALL].comm;

    if (g->has_failed || comm == NULL || r->handle == NULL)
        return;
    dcpk_cuda_enter(&g->device.driver, g->device.context);
    if (r->is_window)
        nccl->window_deregister(comm, r->handle);
    else
        nccl->comm_deregister(comm, r->handle);
    dcpk_cuda_leave(&g->device.driver);
}

static void group_buffer_unregister(struct dcpk_group *group, void *at)
{
    struct nccl_group *g = group_of(group);
    size_t n = 0;

    for (size_t i = 0; i < g->n_registered; i++) {
        struct registered *r = g->registered[i];

        if (r->at != at) {
            g->registered[n++] = r;
            continue;
        }
        registered_drop(g, r);
        if (g->has_failed)
            g->registered[n++] = r; /* NCCL may still write into it, until the group is freed */
        else
            dcpk_free(r);
    }
    g->n_registered = n;
}

/* ---- groups ---- */

static void group_free(struct dcpk_group *group)
{
    struct nccl_group *g = group_of(group);

    if (g == NULL)
        return;
    if (g->device.context != NULL) {
        dcpk_cuda_enter(&g->device.driver, g->device.context);
        for (int i = 0; i < N_CHANNELS; i++)
            dcpk_nccl_channel_close(&g->channels[i]);
        dcpk_cuda_leave(&g->device.driver);
        g->device.driver.context_release(g->device.device);
    }
    for (size_t i = 0; i < g->n_registered; i++)
        dcpk_free(g->registered[i]);
    dcpk_free(g->registered);
    dcpk_free(g);
}

/* A group on the GPU `device`, without ranks yet. */
static struct nccl_group *group_new(CUdevice device, int timeout_ms, struct dcpk_error *err)
{
    struct nccl_group *g = dcpk_alloc(sizeof *g, err);

    if (g == NULL)
        return NULL;
    g->base.by = &dcpk_collectives_nccl;
    g->base.timeout_ms = timeout_ms;
    g->device.device = device;
    if (dcpk_cuda_driver_load(&g->device.driver, err) ||
        dcpk_cuda_check(&g->device.driver,
                        g->device.driver.context_retain(&g->device.context, device),
                        "opening the GPU", err)) {
        g->device.context = NULL;
        group_free(&g->base);
        return NULL;
    }
    return g;
}

static void group_fill(struct nccl_group *g, int rank, int n_ranks,
                       const struct invitation *invitation)
{
    g->base.rank = rank;
    g->base.n_ranks = n_ranks;
    for (int i = 0; i < N_CHANNELS; i++) {
        g->channels[i] = (struct nccl_channel){
            .device = &g->device, .rank = rank, .n_ranks = n_ranks, .busy = &g->base.busy};
        if (invitation != NULL)
            g->channels[i].id = invitation->ids[i];
    }
}

static dcpk_status invitation_make(const struct nccl *nccl, struct invitation *invitation,
                                   struct dcpk_error *err)
{
    for (int i = 0; i < N_CHANNELS; i++)
        if (dcpk_nccl_check(nccl, NULL, nccl->get_unique_id(&invitation->ids[i]),
                            "inviting the other ranks", err))
            return err->status;
    return DCPK_OK;
}

static dcpk_status find_gpu(int ordinal, CUdevice *device, struct dcpk_error *err)
{
    struct cuda_driver driver;

    if (dcpk_cuda_driver_load(&driver, err))
        return err->status;
    return dcpk_cuda_check(&driver, driver.device_get(device, ordinal), "finding the GPU", err);
}

/* Prepares a group before it meets the other ranks. *g: also set by later failures. */
static dcpk_status world_prepare(const struct dcpk_comm *comm, int ordinal, struct nccl_group **g,
                                 struct invitation *invitation, struct dcpk_error *err)
{
    CUdevice device;

    if (find_gpu(ordinal, &device, err))
        return err->status;
    *g = group_new(device, comm->timeout_ms, err);
    if (*g == NULL)
        return err->status;
    if (comm->n_ranks == 1)
        return DCPK_OK;
    if (dcpk_nccl_load(&(*g)->device.nccl, err))
        return err->status;
    if (comm->rank > 0)
        return DCPK_OK;
    return invitation_make(&(*g)->device.nccl, invitation, err);
}

static dcpk_status group_world(struct dcpk_comm *comm, int ordinal, struct dcpk_group **world,
                               struct dcpk_error *err)
{
    struct dcpk_comm alone = {.n_ranks = 1};
    struct nccl_group *g = NULL;
    struct invitation invitation = {0};
    dcpk_status st;

    if (comm == NULL)
        comm = &alone;
    st = world_prepare(comm, ordinal, &g, &invitation, err);
    if (comm->n_ranks > 1) /* collective, whatever became of this rank */
        st = dcpk_link_agree(comm, dcpk_collectives_nccl.name, err);
    if (st == DCPK_OK && comm->n_ranks > 1)
        st = comm->transport->broadcast(comm, 0, &invitation, sizeof invitation, err);
    if (st != DCPK_OK) {
        if (g != NULL)
            group_free(&g->base);
        return st;
    }
    group_fill(g, comm->rank, comm->n_ranks, &invitation);
    *world = &g->base;
    return DCPK_OK;
}

/* Shares n_bytes of every rank of `of`, from `mine` into `all`, by way of page-locked memory. */
static dcpk_status group_share(struct nccl_group *of, const void *mine, size_t n_bytes, void *all,
                               struct dcpk_error *err)
{
    const struct cuda_driver *d = &of->device.driver;
    const size_t n_all = n_bytes * (size_t)of->base.n_ranks;
    uint8_t *room;
    void *at = NULL;
    CUresult code;
    dcpk_status st;

    dcpk_cuda_enter(d, of->device.context);
    code = d->host_alloc(&at, n_all, CU_MEMHOSTALLOC_PORTABLE);
    dcpk_cuda_leave(d);
    if (dcpk_cuda_check(d, code, "taking memory", err))
        return err->status;
    room = at;
    memcpy(room + (size_t)of->base.rank * n_bytes, mine, n_bytes);
    st = group_all_gather(&of->base, room + (size_t)of->base.rank * n_bytes, n_bytes, room, NULL,
                          err);
    if (st != DCPK_OK)
        return st; /* the call that failed may still write into the room: it is not freed */
    memcpy(all, room, n_all);
    dcpk_cuda_enter(d, of->device.context);
    d->host_free(at);
    dcpk_cuda_leave(d);
    return DCPK_OK;
}

/* Ranks of one colour are a group; its first one invites them. invitations: room for one a rank. */
static dcpk_status split_several(struct nccl_group *of, int colour, struct nccl_group *made,
                                 struct invitation *invitations, struct dcpk_error *err)
{
    int32_t *colours = (int32_t *)(void *)invitations; /* the first of two uses of the room */
    struct invitation mine = {0};
    const int32_t wanted = colour;
    int rank = 0, n_ranks = 0, first = -1;

    if (group_share(of, &wanted, sizeof wanted, colours, err))
        return err->status;
    for (int r = 0; r < of->base.n_ranks; r++) {
        if (colours[r] != colour)
            continue;
        if (first < 0)
            first = r;
        if (r < of->base.rank)
            rank++;
        n_ranks++;
    }
    if (first == of->base.rank && n_ranks > 1 && invitation_make(&of->device.nccl, &mine, err))
        return err->status;
    if (group_share(of, &mine, sizeof mine, invitations, err))
        return err->status;
    made->device.nccl = of->device.nccl;
    group_fill(made, rank, n_ranks, &invitations[first]);
    return DCPK_OK;
}

static dcpk_status group_split(struct dcpk_group *group, int colour, struct dcpk_group **made,
                               struct dcpk_error *err)
{
    struct nccl_group *of = group_of(group);
    struct nccl_group *g = group_new(of->device.device, group->timeout_ms, err);
    struct invitation *invitations = NULL;
    dcpk_status st = DCPK_OK;

    if (g == NULL)
        return err->status;
    if (group->n_ranks == 1) {
        group_fill(g, 0, 1, NULL);
        *made = &g->base;
        return DCPK_OK;
    }
    invitations = dcpk_alloc_array((size_t)group->n_ranks, sizeof *invitations, err);
    st = err->status;
    if (invitations != NULL)
        st = split_several(of, colour, g, invitations, err);
    dcpk_free(invitations);
    if (st != DCPK_OK) {
        group_free(&g->base);
        return st;
    }
    *made = &g->base;
    return DCPK_OK;
}

const struct dcpk_collectives dcpk_collectives_nccl = {
    .name = "nccl",
    .summary = "NVIDIA's NCCL, between GPUs",
    .is_device = true,
    DCPK_COLLECTIVES_FUNCTIONS(group),
    .buffer_alloc = group_buffer_alloc,
    .buffer_free = group_buffer_free,
    .buffer_register = group_buffer_register,
    .buffer_unregister = group_buffer_unregister,
};
