/* SPDX-License-Identifier: Apache-2.0 */
/* train_device.c - finds mathematics by name, and collectives by the memory that they move. */
#include "tools/train_device.h"

#include <string.h>

#include "kernels/kernels.h"

static dcpk_status find_math(const char *name, const struct dcpk_ops **ops, struct dcpk_error *err)
{
    size_t i = 0;

    while (name != NULL && dcpk_math_ops[i] != NULL && strcmp(dcpk_math_ops[i]->name, name) != 0)
        i++;
    *ops = dcpk_math_ops[i];
    if (*ops != NULL)
        return DCPK_OK;
    for (i = 0; dcpk_kernels_absent[i] != NULL; i++)
        if (strcmp(dcpk_kernels_absent[i], name) == 0)
            return dcpk_fail_fix(
                err, DCPK_EUNSUPPORTED, DCPK_FIX_LIST_BUILT,
                "the device '%s' is not built in: its libraries were missing when dcpkit was built",
                name);
    return dcpk_fail_fix(err, DCPK_EUSAGE, DCPK_FIX_LIST_BUILT, "there is no device '%s'", name);
}

/* The first that move memory of the mathematics; of the processor, those of one process alone. */
static dcpk_status find_collectives(const struct dcpk_ops *ops, const struct dcpk_ranks *ranks,
                                    const struct dcpk_collectives **by, struct dcpk_error *err)
{
    size_t i = 0;

    *by = &dcpk_collectives_alone;
    if (ops->device->is_host && ranks == NULL)
        return DCPK_OK;
    while (dcpk_collectives_built[i] != NULL &&
           dcpk_collectives_built[i]->is_device == ops->device->is_host)
        i++;
    *by = dcpk_collectives_built[i];
    if (*by != NULL)
        return DCPK_OK;
    return dcpk_fail_fix(
        err, DCPK_EUNSUPPORTED, DCPK_FIX_LIST_BUILT,
        "no transport that moves memory of the device '%s' between ranks is built in", ops->name);
}

static dcpk_status job_open(const struct dcpk_ops *ops, int ordinal, struct dcpk_train_job *job,
                            struct dcpk_error *err)
{
    const struct dcpk_device_options first = {0};
    dcpk_status st = dcpk_math_open(ops, ordinal, &job->math, err);

    if (st == DCPK_EUNSUPPORTED && ordinal > 0)
        dcpk_append(err, "; every process must see all devices of a machine, because each rank "
                         "takes a different one");
    if (st != DCPK_OK)
        return st;
    return dcpk_devices[0]->open(&first, &job->host, err);
}

dcpk_status dcpk_train_device_open(const char *name, struct dcpk_ranks *ranks,
                                   struct dcpk_train_job *job, struct dcpk_error *err)
{
    const struct dcpk_collectives *by = NULL;
    const struct dcpk_ops *ops = NULL;
    struct dcpk_comm *comm = NULL;
    int ordinal = 0;
    dcpk_status st = find_math(name, &ops, err);

    if (st == DCPK_OK)
        st = find_collectives(ops, ranks, &by, err);
    if (st == DCPK_OK && !ops->device->is_host)
        st = dcpk_ranks_ordinal(ranks, &ordinal, err);
    if (st == DCPK_OK)
        st = job_open(ops, ordinal, job, err);
    st = dcpk_ranks_agree(ranks, st, err);
    if (ranks != NULL)
        comm = dcpk_ranks_comm(ranks);
    if (st == DCPK_OK)
        st = by->world(comm, ordinal, &job->world, err);
    return dcpk_ranks_agree(ranks, st, err);
}

void dcpk_train_device_close(struct dcpk_train_job *job)
{
    if (job->world != NULL)
        job->world->by->free(job->world);
    if (job->host != NULL)
        job->host->ops->close(job->host);
    if (job->math != NULL)
        job->math->device->ops->close(job->math->device);
}
