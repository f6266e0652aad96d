/* SPDX-License-Identifier: Apache-2.0 */
/* env.c - opens a checkpoint with what was built in. */
#include "lib/exec/env.h"

dcpk_status dcpk_env_open(const struct dcpk_env *env, const char *path, const char *format,
                          struct dcpk_run *run, struct dcpk_checkpoint **ckpt,
                          struct dcpk_error *err)
{
    const struct dcpk_opening opening = {env->formats, env->open_file, &env->progress};
    struct dcpk_run found = {0};
    struct dcpk_store *store;

    if (dcpk_run_open(path, &opening, &found, &store, err) != DCPK_OK)
        return err->status;
    if (dcpk_checkpoint_open(store, env->formats, format, ckpt, err) != DCPK_OK) {
        dcpk_run_release(&found);
        return err->status;
    }
    (*ckpt)->iteration = found.iteration;
    if (run != NULL)
        *run = found;
    else
        dcpk_run_release(&found);
    return DCPK_OK;
}
