/* SPDX-License-Identifier: Apache-2.0 */
/* nccl_collectives.h - collectives of a training step between GPUs, through NVIDIA's NCCL. */
#ifndef DCPK_KERNELS_NCCL_NCCL_COLLECTIVES_H
#define DCPK_KERNELS_NCCL_NCCL_COLLECTIVES_H

#include "lib/device/collectives.h"

/*
 * Memory is a GPU's, or page-locked memory of the host; a GPU of its own for each rank. A group of
 * one rank copies, and needs no NCCL. libnccl.so.2 is loaded when a group has several: errors of
 * world are those of the link "nccl" then. Each group has a communicator for its collectives and
 * one for messages in each direction, joined at the first call: the first message of a group waits
 * until each of its ranks has asked for one.
 */
extern const struct dcpk_collectives dcpk_collectives_nccl;

#endif
