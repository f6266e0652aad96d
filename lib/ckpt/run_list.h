/* SPDX-License-Identifier: Apache-2.0 */
/* run_list.h - the iterations in a run folder, and whether each is whole. */
#ifndef DCPK_LIB_CKPT_RUN_LIST_H
#define DCPK_LIB_CKPT_RUN_LIST_H

#include "lib/ckpt/format.h"
#include "lib/ckpt/run.h"

#define DCPK_RUN_WHY_BYTES 512

/* A folder called iter_<digits> or release, or what a run of this program has begun to write. */
struct dcpk_run_entry {
    char *name; /* in the run folder */
    int64_t iteration;
    bool is_partial;    /* begun by this program, and not published */
    bool is_complete;   /* its metadata can be read, and what it names is there */
    bool is_named;      /* by the tracker */
    const char *format; /* NULL: none that is known */
    uint64_t n_files, n_bytes;
    char why[DCPK_RUN_WHY_BYTES]; /* it is not complete; else "" */
};

struct dcpk_run_list {
    struct dcpk_run_entry *entries; /* by iteration; owned */
    size_t n;
};

/*
 * List the iterations in the run folder `path`; anything else (a checkpoint itself, an archive,
 * nothing) has none. Opens each: reads its metadata, no data. formats: NULL-terminated. list: set
 * on success only; dcpk_run_list_release. Errors: DCPK_EIO when the folder cannot be read.
 */
dcpk_status dcpk_run_list(const char *path, const struct dcpk_format *const *formats,
                          struct dcpk_run_list *list, struct dcpk_error *err);
/* The same without opening them: names and numbers alone. */
dcpk_status dcpk_run_list_names(const char *path, const struct dcpk_format *const *formats,
                                struct dcpk_run_list *list, struct dcpk_error *err);
void dcpk_run_list_release(struct dcpk_run_list *list); /* a zeroed one is a no-op */

#endif
