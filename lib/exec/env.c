/* SPDX-License-Identifier: Apache-2.0 */
/* env.c - opens a checkpoint with what was built in. */
#include "lib/exec/env.h"

#include "lib/ckpt/seen.h"
#include "lib/exec/ranks.h"

dcpk_status dcpk_env_open(const struct dcpk_env *env, const char *path, const char *format,
                          struct dcpk_run *run, struct dcpk_checkpoint **ckpt,
                          struct dcpk_error *err)
{
    const struct dcpk_opening opening = {env->formats, env->open_file, &env->progress};
    const bool is_one_of_several = env->ranks != NULL || dcpk_ranks_launched() > 1;
    struct dcpk_checkpoint *opened = NULL;
    struct dcpk_run found = {0};
    struct dcpk_store *store;

    if (dcpk_run_open(path, &opening, &found, &store, err) != DCPK_OK)
        return err->status;
    if (dcpk_checkpoint_open(store, env->formats, format, &opened, err) ||
        (is_one_of_several && dcpk_checkpoint_see(opened, path, err))) {
        dcpk_checkpoint_close(opened);
        dcpk_run_release(&found);
        return err->status;
    }
    opened->iteration = found.iteration;
    if (found.is_below)
        dcpk_checkpoint_note(opened, "the checkpoint in this folder is '%s'", found.folder);
    *ckpt = opened;
    if (run != NULL)
        *run = found;
    else
        dcpk_run_release(&found);
    return DCPK_OK;
}
