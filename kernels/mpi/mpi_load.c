/* SPDX-License-Identifier: Apache-2.0 */
/* mpi_load.c - the plug-in for MPI, by dlopen. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/mpi/mpi_load.h"

static dcpk_status plugin_load(const struct dcpk_mpi_plugin **plugin, struct dcpk_error *err)
{
    const char *given = getenv("DCPKIT_MPI");
    const char *file = given == NULL || given[0] == '\0' ? DCPK_MPI_PLUGIN_FILE : given;
    const struct dcpk_mpi_plugin *found;
    /* Global: components of Open MPI look for its symbols in the whole process. */
    void *library = dlopen(file, RTLD_NOW | RTLD_GLOBAL);

    if (library == NULL)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "the plug-in for MPI cannot be loaded: %s (install it, or name its file "
                         "in DCPKIT_MPI)",
                         dlerror());
    found = dlsym(library, DCPK_MPI_PLUGIN_SYMBOL);
    if (found == NULL)
        return dcpk_fail(err, DCPK_EUSAGE, "'%s' is not a plug-in of dcpkit: it lacks %s", file,
                         DCPK_MPI_PLUGIN_SYMBOL);
    if (strcmp(found->interface, DCPK_MPI_INTERFACE) != 0)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "the plug-in '%s' was built for another version of dcpkit: use the one "
                         "that came with this program",
                         file);
    *plugin = found;
    return DCPK_OK;
}

static dcpk_status load_find(char *version, size_t n_bytes, struct dcpk_error *err)
{
    const struct dcpk_mpi_plugin *plugin;

    if (plugin_load(&plugin, err))
        return err->status;
    plugin->version(version, n_bytes);
    return DCPK_OK;
}

static dcpk_status load_join(struct dcpk_comm **comm, struct dcpk_error *err)
{
    const struct dcpk_mpi_plugin *plugin;

    if (plugin_load(&plugin, err))
        return err->status;
    return plugin->transport->join(comm, err);
}

static dcpk_status load_open(struct dcpk_comm *comm, struct dcpk_device *device,
                             struct dcpk_link **link, struct dcpk_error *err)
{
    const struct dcpk_mpi_plugin *plugin;

    if (plugin_load(&plugin, err))
        return err->status;
    return plugin->link->open(comm, device, link, err);
}

static dcpk_status load_world(struct dcpk_comm *comm, int ordinal, struct dcpk_group **world,
                              struct dcpk_error *err)
{
    const struct dcpk_mpi_plugin *plugin;

    if (comm == NULL)
        return dcpk_collectives_alone.world(NULL, ordinal, world, err);
    if (plugin_load(&plugin, err))
        return err->status;
    return plugin->collectives->world(comm, ordinal, world, err);
}

const struct dcpk_transport dcpk_transport_by_mpi = {
    .name = "mpi",
    .summary = "processes that mpirun or srun started",
    .find = load_find,
    .join = load_join,
};

const struct dcpk_link_ops dcpk_link_by_mpi = {
    .name = "mpi",
    .summary = "processes of one MPI job, from host memory",
    .memory = DCPK_MEMORY_HOST,
    .n_under_way = 1,
    .open = load_open,
};

const struct dcpk_collectives dcpk_collectives_by_mpi = {
    .name = "mpi",
    .summary = "processes of one MPI job, from host memory",
    .is_device = false,
    .world = load_world,
};
