/* SPDX-License-Identifier: Apache-2.0 */
/* mpi_collectives.h - collectives of a training step through MPI, from host memory. */
#ifndef DCPK_KERNELS_MPI_PLUGIN_MPI_COLLECTIVES_H
#define DCPK_KERNELS_MPI_PLUGIN_MPI_COLLECTIVES_H

#include "lib/device/collectives.h"

/* For ranks that dcpk_transport_mpi joined. */
extern const struct dcpk_collectives dcpk_collectives_mpi;

#endif
