/* SPDX-License-Identifier: Apache-2.0 */
/* pause.h - between two polls: work takes from microseconds to seconds. */
#ifndef DCPK_LIB_DEVICE_PAUSE_H
#define DCPK_LIB_DEVICE_PAUSE_H

#include <sched.h>
#include <time.h>

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
