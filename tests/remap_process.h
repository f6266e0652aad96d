/* SPDX-License-Identifier: Apache-2.0 */
/* remap_process.h - a case of remap_case.h of which this process of an MPI job has one rank's
 * memory. */
#ifndef DCPK_TESTS_REMAP_PROCESS_H
#define DCPK_TESTS_REMAP_PROCESS_H

#include "tests/remap_job.h"

struct remap_process {
    int self;
    struct dcpk_ranks *ranks;
    struct dcpk_device *device;
    struct dcpk_link *link;
    struct remap_case *c;
    uint8_t *unshared[2]; /* what stood in the place of this rank's memory */
};

/* NULL: built without. */
static inline const struct dcpk_link_ops *process_find_mpi(void)
{
    for (const struct dcpk_link_ops *const *l = dcpk_links; *l != NULL; l++)
        if (strcmp((*l)->name, "mpi") == 0)
            return *l;
    return NULL;
}

/* Join the others; memory of this rank is the device's, so that they reach it. */
static inline dcpk_status
process_begin(struct remap_process *p, const struct dcpk_device_ops *device, struct dcpk_error *err)
{
    const struct dcpk_device_options first = {0};

    *p = (struct remap_process){.ranks = NULL};
    if (dcpk_ranks_join(dcpk_transports, &p->ranks, err) || device->open(&first, &p->device, err) ||
        process_find_mpi()->open(dcpk_ranks_comm(p->ranks), p->device, &p->link, err))
        return err->status;
    p->self = dcpk_ranks_self(p->ranks);
    p->c = case_new();
    for (int side = 0; side < 2; side++) {
        void *at;

        if (device->alloc(p->device, DCPK_MEMORY_DEVICE, CASE_BYTES, &at, err))
            return err->status;
        p->unshared[side] = p->c->sides[side].memory[p->self];
        p->c->sides[side].memory[p->self] = at;
    }
    return DCPK_OK;
}

/* The shards of this rank. */
static inline struct dcpk_remap_shards process_shards(const struct remap_process *p)
{
    struct dcpk_remap_shards mine;

    mine.sources = case_shards(&p->c->sides[0], p->self, &mine.n_sources);
    mine.targets = case_shards(&p->c->sides[1], p->self, &mine.n_targets);
    return mine;
}

/* Give all back, but for ranks, which leave last or not at all. */
static inline void process_end(struct remap_process *p)
{
    for (int side = 0; side < 2; side++) {
        p->device->ops->free(p->device, p->c->sides[side].memory[p->self]);
        p->c->sides[side].memory[p->self] = p->unshared[side];
    }
    case_free(p->c);
    p->link->ops->close(p->link);
    p->device->ops->close(p->device);
}

#endif
