/* SPDX-License-Identifier: Apache-2.0 */
/* env.c - opens a checkpoint with what was built in; ranks compare what they have opened. */
#include "lib/exec/env.h"

#include <string.h>

#include "lib/base/text.h"
#include "lib/ckpt/seen.h"
#include "lib/exec/ranks.h"

dcpk_status dcpk_env_open(const struct dcpk_env *env, const char *path, const char *format,
                          struct dcpk_run *run, struct dcpk_checkpoint **ckpt,
                          struct dcpk_error *err)
{
    const struct dcpk_opening opening = {env->formats, env->open_file, env->open_url,
                                         &env->progress, env->is_stopped};
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
        dcpk_checkpoint_note(opened, "reading the checkpoint in this folder, '%s'", found.folder);
    *ckpt = opened;
    if (run != NULL)
        *run = found;
    else
        dcpk_run_release(&found);
    return DCPK_OK;
}

/* ---- the same checkpoint on all ranks ---- */

/* The handles that a rank has opened. */
struct opened {
    int64_t iteration;
    struct dcpk_hash files;
};

/* The files by name and length, and by what they were recognised by when they were opened. */
static void opened_hash_files(struct opened *opened, const struct dcpk_checkpoint *ckpt)
{
    struct dcpk_hasher hasher;

    dcpk_hasher_begin(&hasher);
    for (size_t i = 0; i < ckpt->n_files; i++) {
        const char *name = dcpk_name_last(dcpk_source_name(ckpt->files[i]));
        const uint64_t n_bytes = dcpk_source_bytes(ckpt->files[i]);

        dcpk_hasher_update(&hasher, name, strlen(name) + 1);
        dcpk_hasher_update(&hasher, &n_bytes, sizeof n_bytes);
    }
    for (size_t c = 0; c < ckpt->n_chunks; c++) {
        const struct dcpk_place *place = &ckpt->chunks[c].place;
        const uint64_t numbers[] = {ckpt->chunks[c].tensor, place->file, place->offset_bytes,
                                    place->n_bytes};

        dcpk_hasher_update(&hasher, numbers, sizeof numbers);
    }
    dcpk_hasher_update(&hasher, &ckpt->seen, sizeof ckpt->seen);
    dcpk_hasher_digest(&hasher, &opened->files);
}

static const char *iteration_text(int64_t iteration, char text[DCPK_ITERATION_TEXT_BYTES])
{
    if (iteration == DCPK_ITERATION_UNKNOWN)
        return "unknown";
    return dcpk_run_iteration_text(iteration, text);
}

/* Rank r has opened `other`, rank 0 `first`. */
static dcpk_status opened_compare(const struct opened *first, const struct opened *other, int r,
                                  int n_ranks, struct dcpk_error *err)
{
    char text[2][DCPK_ITERATION_TEXT_BYTES];

    if (first->iteration != other->iteration)
        return dcpk_fail(err, DCPK_EIO,
                         "ranks 0 and %d of %d do not see the same checkpoint: iteration %s and %s",
                         r, n_ranks, iteration_text(first->iteration, text[0]),
                         iteration_text(other->iteration, text[1]));
    if (memcmp(&first->files, &other->files, sizeof first->files) != 0)
        return dcpk_fail(
            err, DCPK_EIO,
            "ranks 0 and %d of %d do not see the same checkpoint: its files differ (is "
            "it on a file system that all share, and written to no more?)",
            r, n_ranks);
    return DCPK_OK;
}

dcpk_status dcpk_ranks_check_checkpoint(struct dcpk_ranks *ranks,
                                        const struct dcpk_checkpoint *ckpt, struct dcpk_error *err)
{
    const int n_ranks = dcpk_ranks_count(ranks);
    struct opened mine = {.iteration = ckpt->iteration}, first, other;
    struct dcpk_bytes all = {0};
    dcpk_status st;

    if (ranks == NULL)
        return DCPK_OK;
    opened_hash_files(&mine, ckpt);
    st = dcpk_ranks_share_each(ranks, &mine, sizeof mine, &all, DCPK_OK, err);
    for (int r = 1; r < n_ranks && st == DCPK_OK; r++) {
        memcpy(&first, all.data, sizeof first);
        memcpy(&other, all.data + (size_t)r * sizeof other, sizeof other);
        st = opened_compare(&first, &other, r, n_ranks, err);
    }
    dcpk_bytes_release(&all);
    return st;
}
