/* SPDX-License-Identifier: Apache-2.0 */
/* mpi_plugin.c - the one symbol that the plug-in exports. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#include "kernels/mpi/mpi_load.h"
#include "kernels/mpi/plugin/mpi_priv.h"

static void mpi_version(char *text, size_t n_bytes)
{
    char all[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int n;

    (void)MPI_Get_library_version(all, &n);
    (void)snprintf(text, n_bytes, "%.*s", (int)strcspn(all, ",\n"),
                   all); /* "Open MPI v4.1.4, ..." */
}

extern const struct dcpk_mpi_plugin dcpkit_mpi_plugin;
__attribute__((visibility("default"))) const struct dcpk_mpi_plugin dcpkit_mpi_plugin = {
    .interface = DCPK_MPI_INTERFACE,
    .version = mpi_version,
    .transport = &dcpk_transport_mpi,
    .link = &dcpk_link_mpi,
    .collectives = &dcpk_collectives_mpi,
};
