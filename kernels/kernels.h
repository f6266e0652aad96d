/* SPDX-License-Identifier: Apache-2.0 */
/* kernels.h - the tables of what was built in. New host kernels, a new device, link,
 * transport or collectives are a folder here and one row in kernels.c. */
#ifndef DCPK_KERNELS_KERNELS_H
#define DCPK_KERNELS_KERNELS_H

#include "lib/device/collectives.h"
#include "lib/device/device.h"
#include "lib/device/host_kernels.h"
#include "lib/device/link.h"
#include "lib/device/ops.h"
#include "lib/device/ranges.h"
#include "lib/device/transport.h"

/* NULL-terminated; the first is the one to use. */
extern const struct dcpk_host_kernels *const dcpk_host_kernel_sets[];

/* NULL-terminated; the first is the processor's, the specification. A built-in device may still
 * find no hardware: `open` reports it. */
extern const struct dcpk_device_ops *const dcpk_devices[];

/* The plain one, the specification that twins are tested against. */
extern const struct dcpk_host_kernels dcpk_host_kernels_plain;

/* NULL-terminated; the first is the one to use. Its library may not be there: `find` reports it. */
extern const struct dcpk_transport *const dcpk_transports[];

/* NULL-terminated, in the order of preference; the first is that of threads, the specification. */
extern const struct dcpk_link_ops *const dcpk_links[];

/* NULL-terminated; the first whose memory is the mathematics', and whose world is made, is the one
 * to use. */
extern const struct dcpk_collectives *const dcpk_collectives_built[];

/* NULL-terminated: the mathematics of a training step; the first is the processor's, the
 * specification. A built-in device may still find no hardware: `open` reports it. */
extern const struct dcpk_ops *const dcpk_math_ops[];

/* NULL-terminated: ranges for profilers. `find` reports whether one listens. */
extern const struct dcpk_ranges *const dcpk_ranges_built[];

/* NULL-terminated: names of what an optional dependency would have brought. */
extern const char *const dcpk_kernels_absent[];

#endif
