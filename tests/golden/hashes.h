/* SPDX-License-Identifier: Apache-2.0 */
/* hashes.h - the hashes of a checkpoint's tensors. */
#ifndef DCPK_TESTS_GOLDEN_HASHES_H
#define DCPK_TESTS_GOLDEN_HASHES_H

#include <stdlib.h>

#include "kernels/kernels.h"
#include "lib/base/digest.h"
#include "lib/exec/exec.h"
#include "tests/check.h"

/* The hash of every stored tensor, in the checkpoint's order; free() it. */
static inline struct dcpk_hash *hash_all(struct dcpk_checkpoint *ckpt, struct dcpk_arena *arena,
                                         const char *label)
{
    const struct dcpk_env env = {.kernels = dcpk_host_kernel_sets[0], .n_threads = 2};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_hash *hashes = calloc(ckpt->n_tensors + 1, sizeof *hashes);
    struct dcpk_view *views = calloc(ckpt->n_tensors + 1, sizeof *views);
    struct dcpk_exec *exec = NULL;
    struct dcpk_exec_stats stats;

    CHECK(hashes != NULL && views != NULL, label);
    for (uint32_t i = 0; i < ckpt->n_tensors; i++)
        CHECK_OK(dcpk_view_stored(ckpt, i, arena, &views[i], &err), label);
    CHECK_OK(dcpk_exec_new(ckpt, &env, &exec, &err), label);
    CHECK_OK(dcpk_exec_hash(exec, views, ckpt->n_tensors, hashes, &stats, &err), label);
    dcpk_exec_free(exec);
    free(views);
    return hashes;
}

#endif
