/* SPDX-License-Identifier: Apache-2.0 */
/* mpi_load.h - MPI by a plug-in: rows that load it when ranks join, and never before. */
#ifndef DCPK_KERNELS_MPI_MPI_LOAD_H
#define DCPK_KERNELS_MPI_MPI_LOAD_H

#include "lib/device/collectives.h"
#include "lib/device/link.h"
#include "lib/device/transport.h"

/*
 * The plug-in is a shared library that is built against the MPI of a site. It is the file that the
 * environment variable DCPKIT_MPI names, else libdcpkit-mpi.so where the system finds libraries of
 * this program. It stays loaded: MPI cannot be ended and begun again in a process.
 */
#define DCPK_MPI_PLUGIN_FILE "libdcpkit-mpi.so"

/* Exported by the plug-in as DCPK_MPI_PLUGIN_SYMBOL; every pointer lives as long as the process. */
struct dcpk_mpi_plugin {
    const char *interface; /* DCPK_MPI_INTERFACE of its build: other structs are never called */
    void (*version)(char *text, size_t n_bytes); /* of the MPI library, one line */
    const struct dcpk_transport *transport;
    const struct dcpk_link_ops *link;
    const struct dcpk_collectives *collectives;
};
#define DCPK_MPI_PLUGIN_SYMBOL "dcpkit_mpi_plugin"

/* Each row loads the plug-in in find, join, open or world. The object that it makes refers to the
 * plug-in's own row; the other members of these rows are NULL. A world of one process, comm NULL,
 * needs no plug-in. Errors: DCPK_EUSAGE with the reason: the file or its MPI is not there, or
 * it was built for another version of dcpkit. */
extern const struct dcpk_transport dcpk_transport_by_mpi;
extern const struct dcpk_link_ops dcpk_link_by_mpi;
extern const struct dcpk_collectives dcpk_collectives_by_mpi;

#endif
