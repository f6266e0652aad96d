/* SPDX-License-Identifier: Apache-2.0 */
/* gather_link.h - tensors through the collective call that every transport has. */
#ifndef DCPK_KERNELS_GATHER_GATHER_LINK_H
#define DCPK_KERNELS_GATHER_GATHER_LINK_H

#include "lib/device/link.h"

/*
 * For ranks that have nothing better: whatever the transport is, its all_gather carries the
 * messages from host memory, and every rank gets those of all others, too. An exchange ends in the
 * first poll, which takes as long as the calls of all_gather; how long one may take is the
 * transport's to say.
 */
extern const struct dcpk_link_ops dcpk_link_gather;

#endif
