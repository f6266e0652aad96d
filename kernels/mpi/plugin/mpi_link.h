/* SPDX-License-Identifier: Apache-2.0 */
/* mpi_link.h - tensors between processes through MPI. */
#ifndef DCPK_KERNELS_MPI_PLUGIN_MPI_LINK_H
#define DCPK_KERNELS_MPI_PLUGIN_MPI_LINK_H

#include "lib/device/link.h"

/* For ranks that dcpk_transport_mpi joined. After an abort MPI may still read the messages that
 * were under way: the process has to end. */
extern const struct dcpk_link_ops dcpk_link_mpi;

#endif
