/* SPDX-License-Identifier: Apache-2.0 */
/* target.h - the run folder or archive that a command writes: found, begun, published with its
 * tracker. */
#ifndef DCPK_LIB_JOB_TARGET_H
#define DCPK_LIB_JOB_TARGET_H

#include "lib/base/json.h"
#include "lib/ckpt/output.h"
#include "lib/ckpt/run.h"
#include "lib/io/sink.h"

/* The place of an output, and the input that must stay untouched. Borrowed. */
struct dcpk_target_options {
    const char *in; /* path of the input, of whose run `source` was opened; NULL: it has none */
    const struct dcpk_run *source;
    const char *out;
    bool is_model; /* OUT is the folder itself (format.h) */
    int64_t iteration;
    enum dcpk_tracker_policy policy;
    unsigned flags;                           /* of DCPK_FOLDER_REPLACE and _RESUME */
    const struct dcpk_format *const *formats; /* formats whose marks count (lib/ckpt/run.h) */
};

/*
 * Resolves `out` (dcpk_run_target or dcpk_run_target_model, for a name that ends in .tar
 * dcpk_run_target_archive); touches nothing. With DCPK_FOLDER_RESUME alone an existing output is
 * taken for the work of an earlier run (is_there). target: dcpk_run_release, set on success only.
 * Errors: those of the two, and of dcpk_folder_check_apart; DCPK_EUSAGE when it exists and is
 * neither to be replaced nor to be resumed.
 */
dcpk_status dcpk_target_find(const struct dcpk_target_options *options, struct dcpk_run *target,
                             struct dcpk_error *err);

/*
 * Returns the flags that apply to a planned output: DCPK_FOLDER_MANY if its files are so small that
 * syncing each would take longer than writing it; DCPK_FOLDER_LARGE if it is larger than a quarter
 * of this machine's memory, so that the next reader would find only its end in the page cache.
 */
#ifndef DCPK_MANY_FILES /* the program of the fault tests asks for fewer */
#define DCPK_MANY_FILES 1000
#endif
unsigned dcpk_target_flags(const struct dcpk_output *out);
/* The same of any n_files with n_bytes together. */
unsigned dcpk_target_flags_of(size_t n_files, uint64_t n_bytes);

/* Begin it, an archive with its tracker and the iteration's folder. Errors: dcpk_folder_begin. */
dcpk_status dcpk_target_begin(const struct dcpk_run *target, unsigned flags,
                              struct dcpk_folder **folder, struct dcpk_error *err);

/* The outermost words about a failure to write it, or to compare it. is_kept: it can be resumed. */
void dcpk_target_context(const struct dcpk_run *target, bool is_kept, struct dcpk_error *err);

/* Publish the folder, then write the tracker, unless what it names by then keeps it
 * (dcpk_run_judge_tracker); *folder is NULL once it is published. */
dcpk_status dcpk_target_publish(struct dcpk_run *target, struct dcpk_folder **folder,
                                struct dcpk_error *err);

/* Instead, for an output that is_there: delete the journal of a run that was killed after its last
 * rename, then write the tracker. */
dcpk_status dcpk_target_settle(struct dcpk_run *target, struct dcpk_error *err);

/* The member "tracker" of a report: what it named and names, and whether it was written; null for
 * an archive. is_planned: nothing was, and it names what it did. */
void dcpk_target_put_tracker(const struct dcpk_run *target, bool is_planned,
                             struct dcpk_json_out *j);

/* ---- space ---- */

/*
 * n_bytes of files must be written to `target`; checks that its file system has that much free.
 * Space that a partial folder takes counts as free, because it is resumed or deleted; an output to
 * replace does not, because it stays until the end. File systems that do not report it, or whose
 * server may find more (NFS, SMB, FUSE, 9P), are not trusted, and quotas show only in writing.
 * Errors: DCPK_EIO naming both figures.
 */
dcpk_status dcpk_check_space(const struct dcpk_run *target, uint64_t n_bytes,
                             struct dcpk_error *err);
/* True if the two paths are on different file systems, or that cannot be known. A path that does
 * not exist yet counts as the folder around it. */
bool dcpk_is_across(const char *a, const char *b);

#endif
