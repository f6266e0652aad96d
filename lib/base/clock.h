/* SPDX-License-Identifier: Apache-2.0 */
/* clock.h - elapsed time, for progress and periodic work; a pause between two polls. */
#ifndef DCPK_LIB_BASE_CLOCK_H
#define DCPK_LIB_BASE_CLOCK_H

#include <sched.h>
#include <time.h>

/* Seconds of a clock that only goes forward; where it began means nothing. */
static inline double dcpk_now_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* waited: seconds so far. At first the other threads' turn, then short sleeps. */
static inline void dcpk_pause(double waited)
{
    const struct timespec nap = {.tv_nsec = 20000};

    if (waited < 0.002)
        sched_yield();
    else
        nanosleep(&nap, NULL);
}

#endif
