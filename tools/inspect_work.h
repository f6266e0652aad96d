/* SPDX-License-Identifier: Apache-2.0 */
/* inspect_work.h - the work of inspect and view. */
#ifndef DCPK_TOOLS_INSPECT_WORK_H
#define DCPK_TOOLS_INSPECT_WORK_H

#include "lib/ckpt/run_list.h"
#include "lib/exec/exec.h"
#include "tools/cmd.h"

/* The request of the command line. */
struct dcpk_inspect_request {
    bool as_json, is_tree, has_chunks, has_stats, fails_nonfinite;
    int n_largest;               /* 0: all tensors are listed */
    bool lists_meta, enable_msc; /* of Megatron's Python tool, without meaning here */
    const char *keys, *format, *iteration, *html;
    const char *sort;          /* key, size; NULL: key */
    bool is_silent;            /* nothing to stdout */
    struct dcpk_run_list list; /* of a run folder */
    struct dcpk_verbosity verbosity;
    struct dcpk_env env; /* of --stats */
};

/* Describe the checkpoint at `arg`, also as the page r->html. Returns the exit code. */
int dcpk_inspect_path(struct dcpk_inspect_request *r, const char *arg);

#endif
