/* SPDX-License-Identifier: Apache-2.0 */
/* kernels.h - the tables of what was built in. A new backend is a folder here and one row in
 * kernels.c. */
#ifndef DCPK_KERNELS_KERNELS_H
#define DCPK_KERNELS_KERNELS_H

#include "lib/exec/backend.h"

/* NULL-terminated; the first is the one to use. */
extern const struct dcpk_backend *const dcpk_backends[];

/* The plain one, the specification that twins are tested against. */
extern const struct dcpk_backend dcpk_backend_cpu_plain;

#endif
