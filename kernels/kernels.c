/* SPDX-License-Identifier: Apache-2.0 */
/* kernels.c - the table of backends. The only place where an #ifdef asks what was built in. */
#include "kernels/kernels.h"

#include <stddef.h>

#include "kernels/cpu/cpu.h"

const struct dcpk_backend *const dcpk_backends[] = {
    &dcpk_backend_cpu,
    &dcpk_backend_cpu_plain,
    NULL,
};
