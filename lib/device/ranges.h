/* SPDX-License-Identifier: Apache-2.0 */
/* ranges.h - named ranges of a thread's time, which a profiler shows next to what it measures. A
 * new way is a folder in kernels/ and one row in kernels.c. */
#ifndef DCPK_LIB_DEVICE_RANGES_H
#define DCPK_LIB_DEVICE_RANGES_H

#include "lib/base/error.h"

/* Ranges nest: `pop` ends what the same thread pushed last. */
struct dcpk_ranges {
    const char *name, *summary;
    /* Checks that a profiler listens. Errors: DCPK_EUNSUPPORTED with the reason; `push` and `pop`
     * then do nothing. */
    dcpk_status (*find)(struct dcpk_error *err);
    void (*push)(const char *name);
    void (*pop)(void);
};

#endif
