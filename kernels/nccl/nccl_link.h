/* SPDX-License-Identifier: Apache-2.0 */
/* nccl_link.h - messages between GPUs through NVIDIA's NCCL: other hosts, or no peer access. */
#ifndef DCPK_KERNELS_NCCL_NCCL_LINK_H
#define DCPK_KERNELS_NCCL_NCCL_LINK_H

#include "lib/device/link.h"

/*
 * The space is a "cuda" one, a GPU of its own for each rank. libnccl.so.2 is found when a link is
 * opened, not before: the copy that the process has already (torch's), else the system's; `open`
 * returns DCPK_EUNSUPPORTED where there is none. All messages of an exchange are one group, so that
 * they are under way at the same time; NCCL wants large ones: 354 GB/s into each of two H200 in one
 * message, 288 in messages of 64 MiB, 44 in messages of 512 KiB.
 */
extern const struct dcpk_link_ops dcpk_link_nccl;

#endif
