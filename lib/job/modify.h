/* SPDX-License-Identifier: Apache-2.0 */
/* modify.h - a checkpoint with other keys or dtypes in the format it has: rename, remove,
 * cast. */
#ifndef DCPK_LIB_JOB_MODIFY_H
#define DCPK_LIB_JOB_MODIFY_H

#include "lib/ckpt/format.h"
#include "lib/ckpt/run.h"
#include "lib/exec/exec.h"
#include "lib/job/verdict.h"
#include "lib/rules/edit.h"

/* Everything is borrowed until dcpk_modification_free. */
struct dcpk_modify_options {
    struct dcpk_env env;
    const char *in, *out; /* run or iteration folder, or archive (lib/ckpt/run.h); out: or .tar */
    const char *const *edits; /* operations (lib/rules/edit.h) */
    size_t n_edits;
    enum dcpk_tracker_policy tracker; /* of out */
    unsigned folder_flags;            /* of DCPK_FOLDER_REPLACE and _RESUME (lib/io/sink.h) */
    bool compacts;                    /* rewrite all data where files would keep removed tensors */
};

/* A modification under way. All but `options` is owned by it; zero it before use. */
struct dcpk_modification {
    const struct dcpk_modify_options *options;
    struct dcpk_run source, target;
    struct dcpk_checkpoint *ckpt;
    struct dcpk_edits *edits;
    struct dcpk_edit_item *items; /* every tensor, then every object of ckpt */
    size_t n_items;
    struct dcpk_output *out;
    struct dcpk_verdict verdict; /* releases that load it; not for a plain container */
    uint64_t unused_bytes;       /* in files that stay whole, and named by no key of the output */
    bool is_rewritten;           /* something is cast: what shares files with it is rewritten */
    uint64_t n_renamed, n_removed, n_cast;
    uint64_t n_linked, n_copied;  /* data files that stay as they are, after run */
    struct dcpk_exec_stats stats; /* after run, when rewritten */
    uint64_t resumed_bytes;       /* of tensor data that an earlier run had written; after run */
};

/*
 * Decide everything; writes nothing. Errors: DCPK_EUSAGE for operations that cannot be
 * (lib/rules/edit.h), keys that the format cannot have, IN and OUT not apart, OUT existing without
 * REPLACE; DCPK_EIO where there is no room for it (lib/job/target.h); DCPK_EUNSUPPORTED for a
 * format whose keys are not changed.
 */
dcpk_status dcpk_modification_plan(struct dcpk_modification *m,
                                   const struct dcpk_modify_options *options,
                                   struct dcpk_error *err);
/*
 * Write the output, publish it, then the tracker; with RESUME alone an existing output is checked
 * (target.is_there; dcpk_conversion_run). On failure nothing is left that looks whole; if tensors
 * are cast, the partial folder stays for a resume (dcpk_conversion_run). Files next to the data
 * (common.pt, metadata.json) are copied, except integrity.json, whose checksums no longer hold;
 * other files that are not copied become a note of the checkpoint.
 */
dcpk_status dcpk_modification_run(struct dcpk_modification *m, struct dcpk_error *err);
void dcpk_modification_free(struct dcpk_modification *m); /* a zeroed one is a no-op */

#endif
