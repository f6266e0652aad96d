/* SPDX-License-Identifier: Apache-2.0 */
/* kernels.h - the tables of what was built in. A new device, space, link, transport or collectives
 * is a folder here and one row in kernels.c. */
#ifndef DCPK_KERNELS_KERNELS_H
#define DCPK_KERNELS_KERNELS_H

#include "lib/device/collectives.h"
#include "lib/device/device.h"
#include "lib/device/device_space.h"
#include "lib/device/link.h"
#include "lib/device/ops.h"
#include "lib/device/transport.h"

/* NULL-terminated; the first is the one to use. */
extern const struct dcpk_device *const dcpk_devices[];

/* NULL-terminated; the first is the processor's, the specification. A built-in device may still
 * find no hardware: `open` reports it. */
extern const struct dcpk_space_ops *const dcpk_spaces[];

/* The plain one, the specification that twins are tested against. */
extern const struct dcpk_device dcpk_device_cpu_plain;

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

/* NULL-terminated: names of what an optional dependency would have brought. */
extern const char *const dcpk_kernels_absent[];

#endif
