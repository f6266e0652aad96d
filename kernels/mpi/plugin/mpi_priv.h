/* SPDX-License-Identifier: Apache-2.0 */
/* mpi_priv.h - the tables of the plug-in, and what they share. */
#ifndef DCPK_KERNELS_MPI_PLUGIN_MPI_PRIV_H
#define DCPK_KERNELS_MPI_PLUGIN_MPI_PRIV_H

#include <mpi.h>

#include "lib/device/collectives.h"
#include "lib/device/link.h"
#include "lib/device/transport.h"

/* Messages between ranks. */
extern const struct dcpk_transport dcpk_transport_mpi;
/* Tensors between ranks that dcpk_transport_mpi joined. After an abort MPI may still read the
 * messages that were under way: the process has to end. */
extern const struct dcpk_link_ops dcpk_link_mpi;
/* Collectives of a training step, from host memory; for ranks that dcpk_transport_mpi joined. */
extern const struct dcpk_collectives dcpk_collectives_mpi;

/* The communicator of ranks that dcpk_transport_mpi joined; its errors are returned. */
MPI_Comm dcpk_mpi_world(struct dcpk_comm *comm);

/* DCPK_OK, or DCPK_EIO with MPI's own words. */
dcpk_status dcpk_mpi_check(int code, const char *what, struct dcpk_error *err);

#endif
