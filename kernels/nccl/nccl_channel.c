/* SPDX-License-Identifier: Apache-2.0 */
/* nccl_channel.c - calls of NCCL by a communicator that never blocks. */
#include "kernels/nccl/nccl_channel.h"

#include <assert.h>
#include <string.h>

#include "lib/base/alloc.h"

/* ---- the queue ---- */

/* The stream and an event for each call are made when they are needed. */
static dcpk_status channel_open(struct nccl_channel *c, struct dcpk_error *err)
{
    const struct cuda_driver *d = &c->device->driver;

    if (c->stream != NULL)
        return DCPK_OK;
    return dcpk_cuda_check(
        d, d->stream_create_first(&c->stream, CU_STREAM_NON_BLOCKING, NCCL_PRIORITY),
        "making a stream", err);
}

/* Those of a call; the first one only where the group is timed. */
static dcpk_status events_make(const struct nccl_channel *c, struct nccl_call *made,
                               struct dcpk_error *err)
{
    const struct cuda_driver *d = &c->device->driver;
    const bool is_timed = *c->busy != NULL;
    const unsigned flags = is_timed ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING;

    if (dcpk_cuda_check(d, d->event_create(&made->event, flags), "making an event", err))
        return err->status;
    if (is_timed &&
        dcpk_cuda_check(d, d->event_create(&made->begun, flags), "making an event", err)) {
        d->event_destroy(made->event);
        return err->status;
    }
    return DCPK_OK;
}

static dcpk_status call_new(struct nccl_channel *c, size_t *number, struct dcpk_error *err)
{
    struct nccl_call *made;

    for (*number = 0; *number < c->n_calls; ++*number)
        if (c->calls[*number]->phase == NCCL_CALL_FREE)
            return DCPK_OK;
    if (dcpk_grow(&c->calls, &c->capacity, c->n_calls, sizeof(struct nccl_call *), err))
        return err->status;
    made = dcpk_alloc(sizeof *made, err);
    if (made == NULL)
        return err->status;
    if (events_make(c, made, err)) {
        dcpk_free(made);
        return err->status;
    }
    c->calls[c->n_calls++] = made;
    return DCPK_OK;
}

dcpk_status dcpk_nccl_channel_add(struct nccl_channel *c, const struct nccl_call *call,
                                  size_t *number, struct dcpk_error *err)
{
    struct nccl_call *slot;
    CUevent begun, event;

    if (channel_open(c, err) || call_new(c, number, err)) {
        dcpk_free(call->parts);
        return err->status;
    }
    slot = c->calls[*number];
    begun = slot->begun;
    event = slot->event;
    *slot = *call;
    slot->begun = begun;
    slot->event = event;
    slot->number = c->n_numbers++;
    slot->phase = NCCL_CALL_QUEUED;
    return DCPK_OK;
}

/* The call of that phase with the lowest number, or NULL. */
static struct nccl_call *call_next(const struct nccl_channel *c, enum nccl_call_phase phase)
{
    struct nccl_call *first = NULL;

    for (size_t i = 0; i < c->n_calls; i++)
        if (c->calls[i]->phase == phase && (first == NULL || c->calls[i]->number < first->number))
            first = c->calls[i];
    return first;
}

/* ---- starting a call ---- */

static ncclDataType_t reduction_type(enum dcpk_reduction reduction)
{
    static const ncclDataType_t types[] = {
        [DCPK_SUM_I64] = ncclInt64,   [DCPK_SUM_F32] = ncclFloat32, [DCPK_SUM_BF16] = ncclBfloat16,
        [DCPK_SUM_F64] = ncclFloat64, [DCPK_MAX_F32] = ncclFloat32, [DCPK_MAX_F64] = ncclFloat64,
    };

    return types[reduction];
}

static ncclRedOp_t reduction_op(enum dcpk_reduction reduction)
{
    if (reduction == DCPK_MAX_F32 || reduction == DCPK_MAX_F64)
        return ncclMax;
    return ncclSum;
}

static bool is_under_way(ncclResult_t result)
{
    return result == ncclSuccess || result == ncclInProgress;
}

/* Messages to and from all ranks in one group: none waits for another. */
static ncclResult_t parts_start(const struct nccl_channel *c, const struct nccl_call *call)
{
    const struct nccl *nccl = &c->device->nccl;
    const size_t *to_bytes = call->parts, *from_bytes = call->parts + c->n_ranks;
    const uint8_t *from = call->from;
    uint8_t *to = call->to;
    ncclResult_t failed = nccl->group_start(), ended;

    for (int r = 0; r < c->n_ranks && is_under_way(failed); from += to_bytes[r++])
        if (to_bytes[r] > 0)
            failed = nccl->send(from, to_bytes[r], ncclUint8, r, c->comm, c->stream);
    for (int r = 0; r < c->n_ranks && is_under_way(failed); to += from_bytes[r++])
        if (from_bytes[r] > 0)
            failed = nccl->receive(to, from_bytes[r], ncclUint8, r, c->comm, c->stream);
    ended = nccl->group_end();
    if (!is_under_way(failed))
        return failed;
    return ended;
}

static ncclResult_t call_start(const struct nccl_channel *c, const struct nccl_call *call)
{
    const struct nccl *nccl = &c->device->nccl;
    const ncclDataType_t type = reduction_type(call->reduction);
    const ncclRedOp_t op = reduction_op(call->reduction);

    switch (call->kind) {
    case NCCL_CALL_ALL_GATHER:
        return nccl->all_gather(call->from, call->to, call->n, ncclUint8, c->comm, c->stream);
    case NCCL_CALL_ALL_REDUCE:
        return nccl->all_reduce(call->to, call->to, call->n, type, op, c->comm, c->stream);
    case NCCL_CALL_REDUCE_SCATTER:
        return nccl->reduce_scatter(call->from, call->to, call->n, type, op, c->comm, c->stream);
    case NCCL_CALL_ALL_TO_ALL:
        return parts_start(c, call);
    case NCCL_CALL_BROADCAST:
        return nccl->broadcast(call->to, call->to, call->n, ncclUint8, call->peer, c->comm,
                               c->stream);
    case NCCL_CALL_SEND:
        return nccl->send(call->from, call->n, ncclUint8, call->peer, c->comm, c->stream);
    case NCCL_CALL_RECEIVE:
        return nccl->receive(call->to, call->n, ncclUint8, call->peer, c->comm, c->stream);
    case NCCL_CALL_REGISTER:
        return nccl->comm_register(c->comm, call->to, call->n, call->handle);
    case NCCL_CALL_REGISTER_WINDOW:
        return nccl->window_register(c->comm, call->to, call->n, call->handle,
                                     NCCL_WINDOW_SYMMETRIC);
    }
    return ncclInternalError;
}

/* A rank alone: a gather and an exchange are copies, all else is what it has. */
static dcpk_status call_copy(const struct nccl_channel *c, const struct nccl_call *call,
                             struct dcpk_error *err)
{
    const struct cuda_driver *d = &c->device->driver;
    size_t n_bytes = 0;

    if (call->kind == NCCL_CALL_ALL_GATHER)
        n_bytes = call->n;
    else if (call->kind == NCCL_CALL_ALL_TO_ALL)
        n_bytes = call->parts[0];
    if (n_bytes == 0 || call->from == call->to)
        return DCPK_OK;
    return dcpk_cuda_check(d,
                           d->copy((CUdeviceptr)(uintptr_t)call->to,
                                   (CUdeviceptr)(uintptr_t)call->from, n_bytes, c->stream),
                           "copying", err);
}

/* ---- moving on ---- */

/* Ask to join the other ranks; true in c->is_joined once they are there. */
static dcpk_status channel_join(struct nccl_channel *c, struct dcpk_error *err)
{
    const struct nccl *nccl = &c->device->nccl;
    ncclConfig_t config = dcpk_nccl_config();

    if (c->is_joined || c->n_ranks == 1) {
        c->is_joined = true;
        return DCPK_OK;
    }
    if (c->comm == NULL &&
        dcpk_nccl_check(nccl, NULL, nccl->init(&c->comm, c->n_ranks, c->id, c->rank, &config),
                        "joining the other ranks", err))
        return err->status;
    return dcpk_nccl_poll(nccl, c->comm, &c->is_joined, err);
}

/* The next call to NCCL, which takes one at a time. */
static dcpk_status channel_start(struct nccl_channel *c, struct nccl_call *call,
                                 struct dcpk_error *err)
{
    const struct cuda_driver *d = &c->device->driver;

    call->phase = NCCL_CALL_STARTING;
    if (call->begun != NULL &&
        dcpk_cuda_check(d, d->event_record(call->begun, c->stream), "marking the stream", err))
        return err->status;
    if (c->n_ranks == 1)
        return call_copy(c, call, err);
    return dcpk_nccl_check(&c->device->nccl, c->comm, call_start(c, call), "queueing a call", err);
}

/* The event goes after a call that has reached the stream. */
static dcpk_status channel_mark(struct nccl_channel *c, struct nccl_call *call,
                                struct dcpk_error *err)
{
    const struct cuda_driver *d = &c->device->driver;
    bool is_there = c->n_ranks == 1;

    if (!is_there && dcpk_nccl_poll(&c->device->nccl, c->comm, &is_there, err))
        return err->status;
    if (!is_there)
        return DCPK_OK;
    if (dcpk_cuda_check(d, d->event_record(call->event, c->stream), "marking the stream", err))
        return err->status;
    call->phase = NCCL_CALL_RUNNING;
    return DCPK_OK;
}

dcpk_status dcpk_nccl_channel_pump(struct nccl_channel *c, struct dcpk_error *err)
{
    for (;;) {
        struct nccl_call *starting = call_next(c, NCCL_CALL_STARTING);
        struct nccl_call *queued = call_next(c, NCCL_CALL_QUEUED);

        if (starting != NULL) {
            if (channel_mark(c, starting, err))
                return err->status;
            if (starting->phase == NCCL_CALL_STARTING)
                return DCPK_OK;
        } else if (queued != NULL) {
            if (channel_join(c, err))
                return err->status;
            if (!c->is_joined)
                return DCPK_OK;
            if (channel_start(c, queued, err))
                return err->status;
        } else {
            return DCPK_OK;
        }
    }
}

/* Adds the time of a call that is done to what its group has of its kind. */
static dcpk_status channel_time(const struct nccl_channel *c, const struct nccl_call *call,
                                struct dcpk_error *err)
{
    const struct cuda_driver *d = &c->device->driver;
    struct dcpk_busy *busy = *c->busy;
    float milliseconds = 0;

    if (call->begun == NULL)
        return DCPK_OK;
    if (dcpk_cuda_check(d, d->event_elapsed(&milliseconds, call->begun, call->event),
                        "timing a call", err))
        return err->status;
    if (call->kind == NCCL_CALL_ALL_GATHER)
        busy->gather += 1e-3 * (double)milliseconds;
    else if (call->kind == NCCL_CALL_REDUCE_SCATTER || call->kind == NCCL_CALL_ALL_REDUCE)
        busy->reduce += 1e-3 * (double)milliseconds;
    return DCPK_OK;
}

dcpk_status dcpk_nccl_channel_poll(struct nccl_channel *c, size_t number, bool *done,
                                   struct dcpk_error *err)
{
    const struct cuda_driver *d = &c->device->driver;
    struct nccl_call *call;
    CUresult code;
    bool queued;

    assert(number < c->n_calls && c->calls[number]->phase != NCCL_CALL_FREE);
    call = c->calls[number];
    *done = false;
    if (call->phase != NCCL_CALL_RUNNING)
        return DCPK_OK;
    code = d->event_query(call->event);
    if (code == CUDA_ERROR_NOT_READY && c->n_ranks > 1)
        return dcpk_nccl_poll(&c->device->nccl, c->comm, &queued, err);
    if (code == CUDA_ERROR_NOT_READY)
        return DCPK_OK;
    if (dcpk_cuda_check(d, code, "waiting for other ranks", err) || channel_time(c, call, err))
        return err->status;
    *done = true;
    dcpk_free(call->parts);
    call->parts = NULL;
    call->phase = NCCL_CALL_FREE;
    return DCPK_OK;
}

/* A communicator whose calls are done is aborted, too: to destroy it would wait for others. */
void dcpk_nccl_channel_close(struct nccl_channel *c)
{
    if (c->comm != NULL)
        c->device->nccl.abort(c->comm);
    for (size_t i = 0; i < c->n_calls; i++) {
        if (c->calls[i]->begun != NULL)
            c->device->driver.event_destroy(c->calls[i]->begun);
        c->device->driver.event_destroy(c->calls[i]->event);
        dcpk_free(c->calls[i]->parts);
        dcpk_free(c->calls[i]);
    }
    dcpk_free(c->calls);
    if (c->stream != NULL)
        c->device->driver.stream_destroy(c->stream);
    *c = (struct nccl_channel){0};
}
