/* SPDX-License-Identifier: Apache-2.0 */
/* clock.h - elapsed time, for progress and periodic work. */
#ifndef DCPK_LIB_BASE_CLOCK_H
#define DCPK_LIB_BASE_CLOCK_H

#include <time.h>

/* Seconds of a clock that only goes forward; where it began means nothing. */
static inline double dcpk_now_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

#endif
