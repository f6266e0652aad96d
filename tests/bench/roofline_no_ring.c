/* SPDX-License-Identifier: Apache-2.0 */
/* roofline_no_ring.c - for a build without liburing: roofline leaves its lines out.
 */
#include <errno.h>

#include "tests/bench/roofline_ring.h"

bool ring_is_there(void)
{
    return false;
}

int ring_run(const struct ring_job *job)
{
    (void)job;
    return ENOSYS;
}
