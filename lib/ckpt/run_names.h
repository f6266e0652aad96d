/* SPDX-License-Identifier: Apache-2.0 */
/* run_names.h - the spelling of run folders, shared by those on disk and those in archives. */
#ifndef DCPK_LIB_CKPT_RUN_NAMES_H
#define DCPK_LIB_CKPT_RUN_NAMES_H

#include "lib/base/path.h"
#include "lib/ckpt/run.h"

#define DCPK_RUN_TRACKER_BYTES 4096 /* the most that a tracker may have */

/* The length of path without the slashes at its end; "/" stays. */
int dcpk_run_trimmed(const char *path);
/* The last component of path[0 .. n_path) and its length. */
const char *dcpk_run_last_name(const char *path, int n_path, int *n);
/* Finds the kind of entry at a path, of a link that of its target. Errors: DCPK_EIO. */
dcpk_status dcpk_run_look(const char *name, enum dcpk_path_kind *kind, struct dcpk_error *err);
/* Finds a file in the folder that marks a checkpoint, or a folder of one. */
dcpk_status dcpk_run_find_mark(const char *folder, const struct dcpk_format *const *formats,
                               bool *found, struct dcpk_error *err);

/* printf into new memory; NULL and err on failure. */
char *dcpk_run_text(struct dcpk_error *err, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* The iteration in a folder's name of n bytes: >= 0, RELEASE or UNKNOWN. */
int64_t dcpk_run_name_iteration(const char *name, int n);

/* The same of a path as it is spelled or, without one in it, of the path it resolves to. */
int64_t dcpk_run_path_iteration(const char *path);

/* "<run>/iter_0000004" or "<run>/release", owned by the caller. */
char *dcpk_run_iteration_path(const char *run, int64_t iteration, struct dcpk_error *err);

/* The text of a tracker -> iteration. Python's strip() and int(), except signs and underscores. */
dcpk_status dcpk_run_parse_tracker(const char *text, size_t n, int64_t *iteration,
                                   struct dcpk_error *err);
/* The same of the tracker in the run folder `path`; DCPK_ITERATION_UNKNOWN: there is none. Errors:
 * DCPK_EFORMAT when it holds neither; DCPK_EIO. */
dcpk_status dcpk_run_read_tracker(const char *path, int64_t *iteration, struct dcpk_error *err);

/*
 * Find the one checkpoint below a folder that is none itself, down to three levels: of a format
 * with another one's container (lib/ckpt/format.h), as trainers nest theirs. *folder: owned; NULL:
 * there is none, or there is a run of Megatron's. Folders that cannot be read are passed over.
 * Errors: DCPK_EFORMAT with several, or with one that has data and not the file that makes it a
 * checkpoint (a save that was cut short); DCPK_ENOMEM.
 */
dcpk_status dcpk_run_find_below(const char *path, const struct dcpk_format *const *formats,
                                char **folder, struct dcpk_error *err);

#endif
