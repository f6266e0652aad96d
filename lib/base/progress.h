/* SPDX-License-Identifier: Apache-2.0 */
/* progress.h - reports progress to the caller and asks whether to stop; the library never
 * prints. */
#ifndef DCPK_LIB_BASE_PROGRESS_H
#define DCPK_LIB_BASE_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A zeroed struct is silent. */
struct dcpk_progress {
    /*
     * Called with bytes done of bytes in all, from any thread, one call at a time, at most some ten
     * times a second and once at the end. Returns false to stop the work (DCPK_ECANCELLED).
     */
    bool (*update)(void *context, uint64_t done_bytes, uint64_t total_bytes);
    void *context;
    /* A stage of the work begins, which is counted by itself. label: static, "converting". NULL:
     * not wanted. */
    void (*begin)(void *context, const char *label);
};

static inline void dcpk_progress_begin(const struct dcpk_progress *progress, const char *label)
{
    if (progress->begin != NULL)
        progress->begin(progress->context, label);
}

#endif
