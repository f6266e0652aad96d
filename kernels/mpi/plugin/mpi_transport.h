/* SPDX-License-Identifier: Apache-2.0 */
/* mpi_transport.h - messages between ranks through MPI. */
#ifndef DCPK_KERNELS_MPI_PLUGIN_MPI_TRANSPORT_H
#define DCPK_KERNELS_MPI_PLUGIN_MPI_TRANSPORT_H

#include "lib/device/transport.h"

extern const struct dcpk_transport dcpk_transport_mpi;

#endif
