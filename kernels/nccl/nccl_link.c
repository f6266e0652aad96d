/* SPDX-License-Identifier: Apache-2.0 */
/* nccl_link.c - a communicator that never blocks: it is asked whether it is done, and aborted by
 * its own clock. */
#include "kernels/kernels.h"

#include <assert.h>

#include "kernels/cuda/cuda_driver.h"
#include "kernels/nccl/nccl_channel.h"
#include "lib/base/alloc.h"
#include "lib/base/clock.h"
#include "lib/base/order.h"

#define N_UNDER_WAY 2

enum nccl_phase {
    NCCL_IDLE,     /* no exchange, or one without messages */
    NCCL_STARTING, /* the group is on its way to the stream */
    NCCL_RUNNING,  /* the event stands after it */
};

struct nccl_exchange {
    enum nccl_phase phase;
    CUevent event;
};

struct nccl_link {
    struct dcpk_link base;
    struct nccl nccl;
    ncclComm_t comm; /* NULL: aborted, or never there */
    struct cuda_driver driver;
    CUdevice device;
    CUcontext context; /* the device's primary one */
    CUstream stream;
    struct nccl_exchange exchanges[N_UNDER_WAY]; /* exchange i is number i % N_UNDER_WAY */
    uint64_t n_begun, n_done;
};

static dcpk_status comm_join(struct nccl_link *l, const ncclUniqueId *id, struct dcpk_error *err)
{
    const double begun = dcpk_now_seconds();
    ncclConfig_t config = dcpk_nccl_config();
    bool done = false;

    if (dcpk_nccl_check(&l->nccl, NULL,
                        l->nccl.init(&l->comm, l->base.n_ranks, *id, l->base.rank, &config),
                        "joining the other ranks", err))
        return err->status;
    while (!done) {
        const double waited = dcpk_now_seconds() - begun;

        if (dcpk_nccl_poll(&l->nccl, l->comm, &done, err))
            return err->status;
        if (!done && waited > NCCL_JOIN_SECONDS)
            return dcpk_fail(err, DCPK_EIO, "NCCL has not joined the other ranks after %d s",
                             NCCL_JOIN_SECONDS);
        if (!done)
            dcpk_pause(waited);
    }
    return DCPK_OK;
}

static dcpk_status link_fill(struct nccl_link *l, const ncclUniqueId *id, struct dcpk_error *err)
{
    const struct cuda_driver *d = &l->driver;

    if (dcpk_cuda_check(d,
                        d->stream_create_first(&l->stream, CU_STREAM_NON_BLOCKING, NCCL_PRIORITY),
                        "making a stream", err))
        return err->status;
    for (size_t i = 0; i < N_UNDER_WAY; i++)
        if (dcpk_cuda_check(d, d->event_create(&l->exchanges[i].event, CU_EVENT_DISABLE_TIMING),
                            "making an event", err))
            return err->status;
    return comm_join(l, id, err);
}

static void nccl_abort(struct dcpk_link *link)
{
    struct nccl_link *l = (struct nccl_link *)link;

    l->n_done = l->n_begun;
    if (l->comm == NULL)
        return;
    dcpk_cuda_enter(&l->driver, l->context);
    l->nccl.abort(l->comm);
    dcpk_cuda_leave(&l->driver);
    l->comm = NULL;
}

/* A communicator whose exchanges are done is aborted, too: to destroy it would wait for others. */
static void nccl_close(struct dcpk_link *link)
{
    struct nccl_link *l = (struct nccl_link *)link;

    if (l == NULL)
        return;
    nccl_abort(link);
    if (l->context != NULL) {
        dcpk_cuda_enter(&l->driver, l->context);
        for (size_t i = 0; i < N_UNDER_WAY; i++)
            if (l->exchanges[i].event != NULL)
                l->driver.event_destroy(l->exchanges[i].event);
        if (l->stream != NULL)
            l->driver.stream_destroy(l->stream);
        dcpk_cuda_leave(&l->driver);
        l->driver.context_release(l->device);
    }
    dcpk_free(l);
}

/* Prepares a link before it meets the others. */
static dcpk_status link_prepare(struct nccl_link *l, int ordinal, ncclUniqueId *id,
                                struct dcpk_error *err)
{
    if (dcpk_cuda_driver_load(&l->driver, err) || dcpk_nccl_load(&l->nccl, err) ||
        dcpk_cuda_check(&l->driver, l->driver.device_get(&l->device, ordinal), "finding the GPU",
                        err) ||
        dcpk_cuda_check(&l->driver, l->driver.context_retain(&l->context, l->device),
                        "opening the GPU", err))
        return err->status;
    if (l->base.rank == 0)
        return dcpk_nccl_check(&l->nccl, l->comm, l->nccl.get_unique_id(id),
                               "inviting the other ranks", err);
    return DCPK_OK;
}

static dcpk_status nccl_open(struct dcpk_comm *comm, struct dcpk_device *device,
                             struct dcpk_link **link, struct dcpk_error *err)
{
    struct nccl_link *made = dcpk_alloc(sizeof *made, err);
    ncclUniqueId id = {{0}};

    if (made != NULL) {
        made->base = (struct dcpk_link){&dcpk_link_nccl, comm->rank, comm->n_ranks, false};
        link_prepare(made, device->ordinal, &id, err);
    }
    if (dcpk_link_agree(comm, dcpk_link_nccl.name, err) == DCPK_OK &&
        comm->transport->broadcast(comm, 0, &id, sizeof id, err) == DCPK_OK) {
        dcpk_cuda_enter(&made->driver, made->context);
        link_fill(made, &id, err);
        dcpk_cuda_leave(&made->driver);
    }
    if (err->status != DCPK_OK)
        nccl_close(made == NULL ? NULL : &made->base);
    else
        *link = &made->base;
    return err->status;
}

/* All messages in one group: none waits for another. */
static dcpk_status group_queue(struct nccl_link *l, const struct dcpk_exchange *exchange,
                               struct dcpk_error *err)
{
    ncclResult_t failed = l->nccl.group_start();
    ncclResult_t ended;

    for (size_t i = 0; i < exchange->n_sends && failed == ncclSuccess; i++) {
        const struct dcpk_message *m = &exchange->sends[i];

        failed = l->nccl.send(m->at, m->n_bytes, ncclUint8, m->peer, l->comm, l->stream);
        if (failed == ncclInProgress)
            failed = ncclSuccess;
    }
    for (size_t i = 0; i < exchange->n_receives && failed == ncclSuccess; i++) {
        const struct dcpk_message *m = &exchange->receives[i];

        failed = l->nccl.receive(m->at, m->n_bytes, ncclUint8, m->peer, l->comm, l->stream);
        if (failed == ncclInProgress)
            failed = ncclSuccess;
    }
    ended = l->nccl.group_end();
    if (dcpk_nccl_check(&l->nccl, l->comm, failed, "queueing messages", err) ||
        dcpk_nccl_check(&l->nccl, l->comm, ended, "queueing messages", err))
        return err->status;
    return DCPK_OK;
}

/* The group of an exchange reaches the stream when the communicator reports success; the event is
 * put after it then. */
static dcpk_status exchange_start(struct nccl_link *l, struct nccl_exchange *e,
                                  struct dcpk_error *err)
{
    bool queued = false;

    if (e->phase != NCCL_STARTING)
        return DCPK_OK;
    if (dcpk_nccl_poll(&l->nccl, l->comm, &queued, err))
        return err->status;
    if (!queued)
        return DCPK_OK;
    if (dcpk_cuda_check(&l->driver, l->driver.event_record(e->event, l->stream),
                        "marking the stream", err))
        return err->status;
    e->phase = NCCL_RUNNING;
    return DCPK_OK;
}

/* A communicator that is at work takes no group: wait for the one before to reach the stream. */
static dcpk_status before_start(struct nccl_link *l, struct dcpk_error *err)
{
    const double begun = dcpk_now_seconds();

    for (uint64_t i = l->n_done; i < l->n_begun; i++) {
        struct nccl_exchange *e = &l->exchanges[i % N_UNDER_WAY];

        while (exchange_start(l, e, err) == DCPK_OK && e->phase == NCCL_STARTING) {
            const double waited = dcpk_now_seconds() - begun;

            if (waited > NCCL_JOIN_SECONDS)
                return dcpk_fail(err, DCPK_EIO, "NCCL has not begun an exchange after %d s",
                                 NCCL_JOIN_SECONDS);
            dcpk_pause(waited);
        }
    }
    return err->status;
}

static dcpk_status nccl_begin(struct dcpk_link *link, const struct dcpk_exchange *exchange,
                              struct dcpk_error *err)
{
    struct nccl_link *l = (struct nccl_link *)link;
    struct nccl_exchange *e = &l->exchanges[l->n_begun % N_UNDER_WAY];

    assert(l->n_begun - l->n_done < N_UNDER_WAY);
    if (l->comm == NULL)
        return dcpk_fail(err, DCPK_EIO, "the link was aborted");
    e->phase = NCCL_IDLE;
    if (exchange->n_sends + exchange->n_receives > 0) {
        dcpk_cuda_enter(&l->driver, l->context);
        if (before_start(l, err) == DCPK_OK && group_queue(l, exchange, err) == DCPK_OK)
            e->phase = NCCL_STARTING;
        dcpk_cuda_leave(&l->driver);
    }
    if (err->status == DCPK_OK)
        l->n_begun++;
    return err->status;
}

static dcpk_status exchange_poll(struct nccl_link *l, struct nccl_exchange *e,
                                 struct dcpk_error *err)
{
    bool queued = false;
    CUresult code;

    if (exchange_start(l, e, err))
        return err->status;
    if (e->phase != NCCL_RUNNING)
        return DCPK_OK;
    code = l->driver.event_query(e->event);
    if (code == CUDA_ERROR_NOT_READY)
        return dcpk_nccl_poll(&l->nccl, l->comm, &queued, err);
    if (dcpk_cuda_check(&l->driver, code, "waiting for messages", err))
        return err->status;
    e->phase = NCCL_IDLE;
    return DCPK_OK;
}

static dcpk_status nccl_poll(struct dcpk_link *link, bool *done, struct dcpk_error *err)
{
    struct nccl_link *l = (struct nccl_link *)link;
    struct nccl_exchange *e = &l->exchanges[l->n_done % N_UNDER_WAY];
    dcpk_status st = DCPK_OK;

    if (l->n_done < l->n_begun) {
        dcpk_cuda_enter(&l->driver, l->context);
        st = exchange_poll(l, e, err);
        dcpk_cuda_leave(&l->driver);
        if (st == DCPK_OK && e->phase == NCCL_IDLE)
            l->n_done++;
        *done = st == DCPK_OK && e->phase == NCCL_IDLE;
        return st;
    }
    *done = true;
    return DCPK_OK;
}

const struct dcpk_link_ops dcpk_link_nccl = {
    .name = "nccl",
    .summary = "NVIDIA's NCCL, between GPUs",
    .memory = DCPK_MEMORY_DEVICE,
    .n_under_way = N_UNDER_WAY,
    DCPK_LINK_FUNCTIONS(nccl),
};
