/* SPDX-License-Identifier: Apache-2.0 */
/* late_device.h - the CPU's device as unkind as a device may be: what is queued is done when its
 * queue is polled, and not at once; its memory is not the host's to write. */
#ifndef DCPK_TESTS_LATE_DEVICE_H
#define DCPK_TESTS_LATE_DEVICE_H

#include "kernels/kernels.h"
#include "tests/check.h"
#include "tests/random.h"

#define LATE_MAX 4096 /* operations of a queue that are not done */

/* A table to run, or bytes to copy. */
struct late_op {
    const struct dcpk_table *table; /* NULL: a copy */
    uint64_t *sums;
    void *to;
    const void *from;
    size_t n_bytes;
};

/* One rank's: a rank makes all calls from one thread. */
static _Thread_local struct {
    struct late_op ops[DCPK_N_QUEUES][LATE_MAX];
    uint64_t n_queued[DCPK_N_QUEUES], n_done[DCPK_N_QUEUES];
    uint64_t seed;
} late;

static inline void late_queue(int queue, const struct late_op *op)
{
    CHECK(late.n_queued[queue] - late.n_done[queue] < LATE_MAX, "room for late work");
    late.ops[queue][late.n_queued[queue]++ % LATE_MAX] = *op;
}

/* Do the next operation of a queue. */
static inline dcpk_status late_do(struct dcpk_device *device, int queue, struct dcpk_error *err)
{
    const struct late_op *op = &late.ops[queue][late.n_done[queue]++ % LATE_MAX];

    if (op->table != NULL)
        return dcpk_devices[0]->run(device, queue, op->table, op->sums, err);
    return dcpk_devices[0]->copy(device, queue, op->to, op->from, op->n_bytes, err);
}

static inline dcpk_status late_run(struct dcpk_device *device, int queue,
                                   const struct dcpk_table *table, uint64_t *sums,
                                   struct dcpk_error *err)
{
    const struct late_op op = {.table = table, .sums = sums};

    (void)device;
    (void)err;
    late_queue(queue, &op);
    return DCPK_OK;
}

static inline dcpk_status late_copy(struct dcpk_device *device, int queue, void *to,
                                    const void *from, size_t n_bytes, struct dcpk_error *err)
{
    const struct late_op op = {.to = to, .from = from, .n_bytes = n_bytes};

    (void)device;
    (void)err;
    late_queue(queue, &op);
    return DCPK_OK;
}

static inline dcpk_status late_ticket(struct dcpk_device *device, int queue, uint64_t *ticket,
                                      struct dcpk_error *err)
{
    (void)device;
    (void)err;
    *ticket = (uint64_t)queue << 56 | late.n_queued[queue];
    return DCPK_OK;
}

static inline dcpk_status late_poll(struct dcpk_device *device, uint64_t ticket, bool *done,
                                    struct dcpk_error *err)
{
    const int queue = (int)(ticket >> 56);
    const uint64_t wanted = ticket & ((UINT64_C(1) << 56) - 1);

    for (uint64_t n = random_below(&late.seed, 4); n > 0 && late.n_done[queue] < wanted; n--)
        if (late_do(device, queue, err))
            return err->status;
    *done = late.n_done[queue] >= wanted;
    return DCPK_OK;
}

static inline void late_close(struct dcpk_device *device)
{
    struct dcpk_error err = DCPK_ERROR_INIT;

    for (int queue = 0; queue < DCPK_N_QUEUES; queue++)
        while (late.n_done[queue] < late.n_queued[queue])
            CHECK_OK(late_do(device, queue, &err), "late work");
    dcpk_devices[0]->close(device);
}

static struct dcpk_device_ops late_ops; /* set by late_begin */

static inline dcpk_status late_open(const struct dcpk_device_options *options,
                                    struct dcpk_device **device, struct dcpk_error *err)
{
    struct dcpk_device_options only = *options;

    only.ordinal = 0; /* of as many devices as there are ranks */
    if (dcpk_devices[0]->open(&only, device, err))
        return err->status;
    (*device)->ops = &late_ops;
    return DCPK_OK;
}

static inline void late_begin(void)
{
    late_ops = *dcpk_devices[0];
    late_ops.is_host = false;
    late_ops.open = late_open;
    late_ops.close = late_close;
    late_ops.run = late_run;
    late_ops.copy = late_copy;
    late_ops.ticket = late_ticket;
    late_ops.poll = late_poll;
}

#endif
