/* SPDX-License-Identifier: Apache-2.0 */
/* kernels.h - the tables of what was built in. A new backend or transport is a folder here and
 * one row in kernels.c. */
#ifndef DCPK_KERNELS_KERNELS_H
#define DCPK_KERNELS_KERNELS_H

#include "lib/exec/backend.h"
#include "lib/exec/transport.h"

/* NULL-terminated; the first is the one to use. */
extern const struct dcpk_backend *const dcpk_backends[];

/* The plain one, the specification that twins are tested against. */
extern const struct dcpk_backend dcpk_backend_cpu_plain;

/* NULL-terminated; the first is the one to use. Empty where none was built in. */
extern const struct dcpk_transport *const dcpk_transports[];

#endif
