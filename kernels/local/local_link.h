/* SPDX-License-Identifier: Apache-2.0 */
/* local_link.h - what kernels/local exports. */
#ifndef DCPK_KERNELS_LOCAL_LOCAL_LINK_H
#define DCPK_KERNELS_LOCAL_LOCAL_LINK_H

#include "lib/device/link.h"

/* Ranks that are threads of one process. */
extern const struct dcpk_link_ops dcpk_link_local;

#endif
