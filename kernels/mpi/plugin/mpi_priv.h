/* SPDX-License-Identifier: Apache-2.0 */
/* mpi_priv.h - what the transport and the link of MPI share. */
#ifndef DCPK_KERNELS_MPI_PLUGIN_MPI_PRIV_H
#define DCPK_KERNELS_MPI_PLUGIN_MPI_PRIV_H

#include <mpi.h>

#include "lib/device/transport.h"

/* The communicator of ranks that dcpk_transport_mpi joined; its errors are returned. */
MPI_Comm dcpk_mpi_world(struct dcpk_comm *comm);

/* DCPK_OK, or DCPK_EIO with MPI's own words. */
dcpk_status dcpk_mpi_check(int code, const char *what, struct dcpk_error *err);

#endif
