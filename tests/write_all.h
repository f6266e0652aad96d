/* SPDX-License-Identifier: Apache-2.0 */
/* write_all.h - all steps of writing a planned output (lib/write/writing.h) in one call. */
#ifndef DCPK_TESTS_WRITE_ALL_H
#define DCPK_TESTS_WRITE_ALL_H

#include "lib/write/writing.h"

/* Tensors and payloads, then the format's finish. On failure the caller abandons the folder. */
static inline dcpk_status write_all(struct dcpk_exec *exec, struct dcpk_output *out,
                                    struct dcpk_folder *folder, struct dcpk_exec_stats *stats,
                                    struct dcpk_error *err)
{
    struct dcpk_writing *w = NULL;

    if (dcpk_writing_new(exec, out, folder, &w, err) == DCPK_OK &&
        dcpk_writing_run_all(w, err) == DCPK_OK)
        (void)dcpk_writing_finish(w, stats, err);
    dcpk_writing_free(w);
    return err->status;
}

#endif
