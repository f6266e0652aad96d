/* SPDX-License-Identifier: Apache-2.0 */
/* world_case.h - the group of all ranks that mpirun started, for tests of what they do together.
 * DCPK_COLLECTIVES: which collectives, by name; unset: the first. Those of GPUs need one for each
 * rank. */
#ifndef DCPK_TESTS_WORLD_CASE_H
#define DCPK_TESTS_WORLD_CASE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"

static struct dcpk_comm *world_comm;
static struct dcpk_group *world;
static struct dcpk_device *world_device; /* of memory that collectives of GPUs reach; else NULL */

static inline const struct dcpk_collectives *world_collectives(void)
{
    const char *name = getenv("DCPK_COLLECTIVES");
    size_t i = 0;

    while (name != NULL && dcpk_collectives_built[i] != NULL &&
           strcmp(dcpk_collectives_built[i]->name, name) != 0)
        i++;
    return dcpk_collectives_built[i];
}

/* Page-locked memory is the host's, and a GPU's, too. */
static inline dcpk_status world_open_device(struct dcpk_error *err)
{
    const struct dcpk_device_options options = {.ordinal = world_comm->rank};

    for (size_t i = 0; dcpk_devices[i] != NULL; i++)
        if (!dcpk_devices[i]->is_host)
            return dcpk_devices[i]->open(&options, &world_device, err);
    return dcpk_fail(err, DCPK_EUNSUPPORTED, "no GPUs were built in");
}

/* Memory for collectives, until the process ends; NULL on failure. */
static inline void *world_memory(size_t n_bytes)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    void *at = NULL;

    if (world_device == NULL)
        return malloc(n_bytes);
    if (world_device->ops->alloc(world_device, DCPK_MEMORY_HOST, n_bytes, &at, &err))
        fprintf(stderr, "%s\n", err.text);
    return at;
}

/* Returns 0, or what main exits with: 77 where no transport, or none of the collectives, was built,
 * 4 with the reason on stderr. */
static inline int world_join(void)
{
    const struct dcpk_collectives *collectives = world_collectives();
    struct dcpk_error err = DCPK_ERROR_INIT;

    if (collectives == NULL)
        return 77;
    if (dcpk_transports[0]->join(&world_comm, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return 4;
    }
    world_comm->timeout_ms = 60000;
    if ((collectives->is_device && world_open_device(&err)) ||
        collectives->world(world_comm, world_comm->rank, &world, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return 4;
    }
    return 0;
}

/* Not after a failed test: the launcher ends the others then. */
static inline void world_leave(void)
{
    world->by->free(world);
    world_comm->transport->leave(world_comm);
}

#endif
