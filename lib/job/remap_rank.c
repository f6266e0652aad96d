/* SPDX-License-Identifier: Apache-2.0 */
/* remap_rank.c - the device and the link of a rank, and the engine over them: planned, timed,
 * measured. */
#include <stdio.h>
#include <string.h>

#include "lib/base/order.h"
#include "lib/job/remap_checkpoint_priv.h"

dcpk_status dcpk_remap_rank_wait(struct dcpk_remap_rank *rank, struct dcpk_error *err)
{
    int timeout_ms = rank->job->options->timeout_ms;

    if (timeout_ms == 0)
        timeout_ms = DCPK_REMAP_TIMEOUT_MS;
    return dcpk_device_wait(rank->device, 0, timeout_ms, err);
}

static dcpk_status rank_open_device(struct dcpk_remap_rank *rank, struct dcpk_error *err)
{
    const struct dcpk_device_ops *ops = rank->job->options->device;
    struct dcpk_device_options options = {0};
    dcpk_status st = DCPK_OK;

    if (!ops->is_host)
        st = dcpk_ranks_ordinal(rank->ranks, &options.ordinal, err);
    if (st == DCPK_OK)
        st = ops->open(&options, &rank->device, err);
    if (st == DCPK_EUNSUPPORTED && options.ordinal > 0)
        dcpk_append(err, "; every process must see all devices of a machine, because each rank "
                         "takes a different one");
    return dcpk_ranks_agree(rank->ranks, st, err);
}

static dcpk_status rank_open_link(struct dcpk_remap_rank *rank, const char *note,
                                  struct dcpk_error *err)
{
    const struct dcpk_link_ops *ops = rank->job->options->link;
    dcpk_status st;

    st = ops->open(dcpk_ranks_comm(rank->ranks), rank->device, &rank->link, err);
    st = dcpk_ranks_agree(rank->ranks, st, err);
    if (st == DCPK_OK && rank->result != NULL) {
        rank->result->link = ops->name;
        memcpy(rank->result->note, note, strlen(note) + 1);
    }
    return st;
}

dcpk_status dcpk_remap_rank_open(struct dcpk_remap_rank *rank, struct dcpk_error *err)
{
    const struct dcpk_remap_job_options *o = rank->job->options;

    rank->link_bytes_a_second = o->link_bytes_a_second;
    if (rank_open_device(rank, err))
        return err->status;
    if (o->path == DCPK_REMAP_STAGED && o->link != NULL && rank->ranks != NULL)
        return rank_open_link(rank, "", err);
    return DCPK_OK;
}

void dcpk_remap_rank_close(struct dcpk_remap_rank *rank)
{
    if (rank->link != NULL)
        rank->link->ops->close(rank->link);
    if (rank->device != NULL)
        rank->device->ops->close(rank->device);
}

static struct dcpk_remap_options rank_options(const struct dcpk_remap_rank *rank)
{
    const struct dcpk_remap_job_options *o = rank->job->options;

    return (struct dcpk_remap_options){.ranks = rank->ranks,
                                       .device = rank->device,
                                       .link = rank->link,
                                       .path = o->path,
                                       .staging_bytes = o->staging_bytes,
                                       .unit_bytes = o->unit_bytes,
                                       .link_bytes_a_second = rank->link_bytes_a_second,
                                       .timeout_ms = o->timeout_ms,
                                       .checks = o->checks};
}

dcpk_status dcpk_remap_rank_plan(struct dcpk_remap_rank *rank,
                                 const struct dcpk_remap_shards *shards, struct dcpk_remap **remap,
                                 struct dcpk_error *err)
{
    const struct dcpk_remap_job_options *o = rank->job->options;
    struct dcpk_remap_options options = rank_options(rank);
    struct dcpk_error refusal = DCPK_ERROR_INIT;
    const bool may_open = o->path == DCPK_REMAP_AUTO && o->link != NULL && rank->link == NULL;
    dcpk_status st = dcpk_remap_new(&options, shards, remap, &refusal);

    if (st == DCPK_EUNSUPPORTED && may_open && rank->ranks != NULL) {
        if (rank_open_link(rank, refusal.text, err))
            return err->status;
        options.link = rank->link;
        return dcpk_remap_new(&options, shards, remap, err);
    }
    if (st != DCPK_OK)
        *err = refusal;
    return st;
}

dcpk_status dcpk_remap_rank_time(struct dcpk_remap_rank *rank, struct dcpk_remap *remap,
                                 double *seconds, struct dcpk_error *err)
{
    uint64_t slowest_ns;
    dcpk_status st;

    if (dcpk_remap_run(remap, NULL, NULL, err))
        return err->status;
    slowest_ns = dcpk_max_u64((uint64_t)(dcpk_remap_stats(remap)->seconds * 1e9), 1);
    st = dcpk_ranks_most(rank->ranks, &slowest_ns, 1, DCPK_OK, err);
    if (dcpk_ranks_agree(rank->ranks, st, err))
        return err->status;
    if (*seconds == 0 || (double)slowest_ns / 1e9 < *seconds)
        *seconds = (double)slowest_ns / 1e9;
    return DCPK_OK;
}

/* ---- the link ---- */

/* bytes of the probe that measures a link, for each rank */
#define MIN_PROBE_BYTES ((size_t)16 << 20)
#define MAX_PROBE_BYTES (UINT64_C(1) << 30)
#define N_PROBES        3

struct probe {
    char names[2][32]; /* of this rank's tensor, and of the one that it gets */
    int64_t shape[1], span[2], stride_bytes[1];
    struct dcpk_shard source, target;
};

static void probe_make(struct probe *p, const struct dcpk_remap_rank *rank, uint64_t n_bytes,
                       const uint8_t *from, uint8_t *to)
{
    const int n = dcpk_ranks_count(rank->ranks), self = dcpk_ranks_self(rank->ranks);

    snprintf(p->names[0], sizeof p->names[0], "probe of rank %d", self);
    snprintf(p->names[1], sizeof p->names[1], "probe of rank %d", (self + n - 1) % n);
    p->shape[0] = p->span[1] = (int64_t)n_bytes;
    p->span[0] = 0;
    p->stride_bytes[0] = 1;
    p->source = (struct dcpk_shard){.name = p->names[0],
                                    .dtype = DCPK_U8,
                                    .rank = 1,
                                    .holder = self,
                                    .shape = p->shape,
                                    .span = p->span,
                                    .stride_bytes = p->stride_bytes,
                                    .at = (uint64_t)(uintptr_t)from};
    p->target = p->source;
    p->target.name = p->names[1];
    p->target.at = (uint64_t)(uintptr_t)to;
}

static dcpk_status probe_time(struct dcpk_remap_rank *rank, const struct probe *p, double *seconds,
                              struct dcpk_error *err)
{
    const struct dcpk_remap_shards shards = {&p->source, &p->target, 1, 1};
    struct dcpk_remap *remap = NULL;
    dcpk_status st = dcpk_remap_rank_plan(rank, &shards, &remap, err);

    for (int i = 0; i < N_PROBES && st == DCPK_OK; i++)
        st = dcpk_remap_rank_time(rank, remap, seconds, err);
    dcpk_remap_free(remap);
    return st;
}

dcpk_status dcpk_remap_rank_measure(struct dcpk_remap_rank *rank, const uint8_t *from, uint8_t *to,
                                    uint64_t n_bytes, struct dcpk_error *err)
{
    struct dcpk_device *device = rank->device;
    double seconds = 0;
    struct probe p;
    void *at = NULL;
    dcpk_status st =
        dcpk_ranks_agree(rank->ranks, dcpk_ranks_least(rank->ranks, &n_bytes, err), err);

    if (st == DCPK_OK && n_bytes < MIN_PROBE_BYTES) { /* on all ranks, or on none */
        n_bytes = MIN_PROBE_BYTES;
        st = device->ops->alloc(device, DCPK_MEMORY_DEVICE, 2 * MIN_PROBE_BYTES, &at, err);
        from = at;
    }
    n_bytes = dcpk_min_u64(n_bytes, MAX_PROBE_BYTES);
    st = dcpk_ranks_agree(rank->ranks, st, err);
    if (st == DCPK_OK && at != NULL)
        to = (uint8_t *)at + n_bytes;
    if (st == DCPK_OK) {
        probe_make(&p, rank, n_bytes, from, to);
        st = probe_time(rank, &p, &seconds, err);
    }
    if (st == DCPK_OK && seconds > 0)
        rank->link_bytes_a_second = (double)n_bytes / seconds;
    device->ops->free(device, at);
    return st;
}
