/* SPDX-License-Identifier: Apache-2.0 */
/* nccl.h - what kernels/nccl exports: tables that use NVIDIA's NCCL between GPUs. */
#ifndef DCPK_KERNELS_NCCL_NCCL_H
#define DCPK_KERNELS_NCCL_NCCL_H

#include "lib/device/collectives.h"
#include "lib/device/link.h"

/*
 * Messages between GPUs: of other hosts, or without peer access. The device is a "cuda" one, a GPU
 * of its own for each rank. libnccl.so.2 is found when a link is opened, not before: the copy that
 * the process has already (torch's), else the system's; `open` returns DCPK_EUNSUPPORTED where
 * there is none. All messages of an exchange are one group, so that they are under way at the same
 * time; NCCL wants large ones: 354 GB/s into each of two H200 in one message, 288 in messages of 64
 * MiB, 44 in messages of 512 KiB.
 */
extern const struct dcpk_link_ops dcpk_link_nccl;

/*
 * Collectives of a training step. Memory is a GPU's, or page-locked memory of the host; a GPU of
 * its own for each rank. A group of one rank copies, and needs no NCCL. libnccl.so.2 is loaded when
 * a group has several: errors of world are those of the link "nccl" then. Each group has a
 * communicator for its collectives and one for messages in each direction, joined at the first
 * call: the first message of a group waits until each of its ranks has asked for one.
 */
extern const struct dcpk_collectives dcpk_collectives_nccl;

#endif
