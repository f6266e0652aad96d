/* SPDX-License-Identifier: Apache-2.0 */
/* faulty_device.h - a device and a link, of which each call first asks a function of the test. */
#ifndef DCPK_TESTS_FAULTY_DEVICE_H
#define DCPK_TESTS_FAULTY_DEVICE_H

#include "kernels/kernels.h"

/* Called before each call of the two, but for open and those that cannot fail, in the thread of the
 * call; of an exchange for its first poll alone. Not DCPK_OK: the call fails with that. */
static dcpk_status (*faulty_ask)(struct dcpk_error *err);

static struct dcpk_device_ops faulty_ops; /* open gives a device of dcpk_devices[0] with it */
static const struct dcpk_device_ops *faulty_real; /* what it calls */
static struct dcpk_link_ops faulty_link_ops;      /* for the ops of an opened link */
static const struct dcpk_link_ops *faulty_real_link;
static _Thread_local bool faulty_has_polled; /* the exchange under way */

static inline dcpk_status faulty_export(struct dcpk_device *device, const void *at, size_t n_bytes,
                                        struct dcpk_memory_id *id, struct dcpk_error *err)
{
    if (faulty_ask(err))
        return err->status;
    return faulty_real->export_memory(device, at, n_bytes, id, err);
}

static inline dcpk_status faulty_import(struct dcpk_device *device, const struct dcpk_memory_id *id,
                                        void **at, struct dcpk_error *err)
{
    if (faulty_ask(err))
        return err->status;
    return faulty_real->import_memory(device, id, at, err);
}

static inline dcpk_status faulty_alloc(struct dcpk_device *device, enum dcpk_memory_kind kind,
                                       size_t n_bytes, void **at, struct dcpk_error *err)
{
    if (faulty_ask(err))
        return err->status;
    return faulty_real->alloc(device, kind, n_bytes, at, err);
}

static inline dcpk_status faulty_load(struct dcpk_device *device, const struct dcpk_tiles *tiles,
                                      struct dcpk_table **table, struct dcpk_error *err)
{
    if (faulty_ask(err))
        return err->status;
    return faulty_real->load(device, tiles, table, err);
}

static inline dcpk_status faulty_run(struct dcpk_device *device, int queue,
                                     const struct dcpk_table *table, uint64_t *sums,
                                     struct dcpk_error *err)
{
    if (faulty_ask(err))
        return err->status;
    return faulty_real->run(device, queue, table, sums, err);
}

static inline dcpk_status faulty_copy(struct dcpk_device *device, int queue, void *to,
                                      const void *from, size_t n_bytes, struct dcpk_error *err)
{
    if (faulty_ask(err))
        return err->status;
    return faulty_real->copy(device, queue, to, from, n_bytes, err);
}

static inline dcpk_status faulty_poll(struct dcpk_device *device, uint64_t ticket, bool *done,
                                      struct dcpk_error *err)
{
    if (faulty_ask(err))
        return err->status;
    return faulty_real->poll(device, ticket, done, err);
}

/* Devices know the real operations by their own table: give them this one. */
static inline dcpk_status faulty_open(const struct dcpk_device_options *options,
                                      struct dcpk_device **device, struct dcpk_error *err)
{
    const dcpk_status st = faulty_real->open(options, device, err);

    if (st == DCPK_OK)
        (*device)->ops = &faulty_ops;
    return st;
}

static inline dcpk_status faulty_link_begin(struct dcpk_link *link,
                                            const struct dcpk_exchange *exchange,
                                            struct dcpk_error *err)
{
    faulty_has_polled = false;
    if (faulty_ask(err))
        return err->status;
    return faulty_real_link->begin(link, exchange, err);
}

static inline dcpk_status faulty_link_poll(struct dcpk_link *link, bool *done,
                                           struct dcpk_error *err)
{
    const bool has_polled = faulty_has_polled;

    faulty_has_polled = true;
    if (!has_polled && faulty_ask(err))
        return err->status;
    return faulty_real_link->poll(link, done, err);
}

static inline void faulty_begin(dcpk_status (*ask)(struct dcpk_error *err),
                                const struct dcpk_link_ops *link)
{
    faulty_ask = ask;
    faulty_real = dcpk_devices[0];
    faulty_ops = *faulty_real;
    faulty_ops.open = faulty_open;
    faulty_ops.alloc = faulty_alloc;
    faulty_ops.export_memory = faulty_export;
    faulty_ops.import_memory = faulty_import;
    faulty_ops.load = faulty_load;
    faulty_ops.run = faulty_run;
    faulty_ops.copy = faulty_copy;
    faulty_ops.poll = faulty_poll;
    faulty_real_link = link;
    faulty_link_ops = *link;
    faulty_link_ops.begin = faulty_link_begin;
    faulty_link_ops.poll = faulty_link_poll;
}

#endif
