/* SPDX-License-Identifier: Apache-2.0 */
/* progress.h - how the library tells how far it is, and is asked to stop; it never prints. */
#ifndef DCPK_LIB_BASE_PROGRESS_H
#define DCPK_LIB_BASE_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

/*
 * update: called with bytes done of bytes in all, from any thread, one call at a time, at most some
 * ten times a second and once at the end. Returns false to stop the work (DCPK_ECANCELLED). A
 * zeroed struct is silent.
 */
struct dcpk_progress {
    bool (*update)(void *context, uint64_t done_bytes, uint64_t total_bytes);
    void *context;
};

#endif
