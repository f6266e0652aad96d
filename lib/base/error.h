/* SPDX-License-Identifier: Apache-2.0 */
/* error.h - the one error type: a status and the sentence that goes with it. */
#ifndef DCPK_LIB_BASE_ERROR_H
#define DCPK_LIB_BASE_ERROR_H

#include <stdbool.h>

/*
 * What went wrong, coarsely: tools map it to an exit code (dcpk_exit_code).
 * The sentence in dcpk_error says the rest.
 */
typedef enum dcpk_status {
    DCPK_OK = 0,
    DCPK_EUSAGE,       /* the caller's options do not fit together, or an output exists (exit 2) */
    DCPK_EFORMAT,      /* bytes that lie or are malformed (exit 3) */
    DCPK_EUNSUPPORTED, /* well formed, but not something we read or write (exit 3) */
    DCPK_ERANGE,       /* a number from a file passes a limit or overflows (exit 3) */
    DCPK_EMISMATCH,    /* two things that must agree do not (exit 3) */
    DCPK_ENOMEM,       /* (exit 4) */
    DCPK_EIO, /* the system refused: missing file, permission, no space, read error (exit 4) */
    DCPK_ECANCELLED, /* stopped by a signal or by another worker's failure (exit 4) */
} dcpk_status;

#define DCPK_ERROR_BYTES 2048

/*
 * An error under way. `text` holds the frames, outermost first, joined by ": ".
 * A plain value: zero it (or DCPK_ERROR_INIT) before use, nothing to release.
 */
struct dcpk_error {
    dcpk_status status;
    char text[DCPK_ERROR_BYTES];
};
#define DCPK_ERROR_INIT                                                                            \
    {                                                                                              \
        DCPK_OK, ""                                                                                \
    }

/*
 * Record a failure where it is seen; returns `status`, so that `return dcpk_fail(...)` reads well.
 * fmt: printf format of one clause without a final full stop or newline. Text that does not fit is
 * cut. Allocates nothing.
 */
dcpk_status dcpk_fail(struct dcpk_error *err, dcpk_status status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* As dcpk_fail with DCPK_EIO and the text of errno `code` (strerror_r) at the end. */
dcpk_status dcpk_fail_errno(struct dcpk_error *err, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Put "<fmt>: " in front of the text: what the calling function was doing to which object. */
void dcpk_context(struct dcpk_error *err, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* The exit code (tools/MANUAL.md) that belongs to a status: 0, 2, 3 or 4. */
int dcpk_exit_code(dcpk_status status);

/* Does the status say that content is not as it should be, and not that the system refused? */
bool dcpk_status_is_content(dcpk_status status);

#endif
