/* SPDX-License-Identifier: Apache-2.0 */
/* env.h - what a job is given: what was built in, and what it may use. */
#ifndef DCPK_LIB_EXEC_ENV_H
#define DCPK_LIB_EXEC_ENV_H

#include "lib/base/codec.h"
#include "lib/base/progress.h"
#include "lib/ckpt/format.h"
#include "lib/ckpt/run.h"
#include "lib/device/host_kernels.h"

struct dcpk_ranks;

/*
 * Made once where the tables are joined (tools/cmd.c), then given to every job. A value: copy it
 * freely; what it points to is borrowed as long as a job runs.
 */
struct dcpk_env {
    /* The tables of what is built in. Only code that opens and writes checkpoints needs the first
     * three. */
    const struct dcpk_format *const *formats; /* NULL-terminated */
    dcpk_run_open_file *open_file;            /* reads archives; NULL: none */
    dcpk_run_open_file *open_url;             /* reads from servers; NULL: none */
    /* True: a server that does not answer is waited for no more; from any thread; NULL: never. */
    bool (*is_stopped)(void);
    /* Files next to a checkpoint that belong to it; the last has no name; NULL: none. */
    const struct dcpk_side_file *side_files;
    const struct dcpk_host_kernels *kernels;
    const struct dcpk_codec *codec; /* packs blocks of a delta (lib/base/codec.h); NULL: none */

    /* The resources of a job. */
    int n_threads; /* 0: the CPUs this process may use, at most 16 */
    /* 0: 256 MiB. Bounds all buffers of all threads; at least 16 MiB in all and 1 MiB a thread
     * (fewer threads run where it is small). */
    uint64_t memory_bytes;
    /* of a unit of a conversion (lib/write/units.h); 0: DCPK_UNIT_BYTES, tests take less. */
    uint64_t unit_bytes;
    struct dcpk_progress progress;
    /*
     * The processes that share the work (lib/exec/ranks.h); NULL: this one alone. With ranks,
     * functions that hash, compare, measure, check or write are collective, each rank has its own
     * executor over the same checkpoints, and all get the same results. A failure of one rank is a
     * failure of all, as dcpk_ranks_share does: dcpk_ranks_agree comes next.
     */
    struct dcpk_ranks *ranks;
};

/*
 * Open the checkpoint at `path`, an iteration folder, a run folder or an archive (dcpk_run_open),
 * in one of the formats (format: by name, NULL: detected). run, which may be NULL, and ckpt are
 * set on success only: dcpk_run_release, dcpk_checkpoint_close. Progress is that of unpacking.
 * Errors: those of opening.
 */
dcpk_status dcpk_env_open(const struct dcpk_env *env, const char *path, const char *format,
                          struct dcpk_run *run, struct dcpk_checkpoint **ckpt,
                          struct dcpk_error *err);

/* ---- the same checkpoint on all ranks ---- */

/*
 * Collective inside the work: checks that all ranks have the same iteration, names and sizes of
 * files, places of chunks in them, and identities of the files when they were opened
 * (dcpk_checkpoint_see). A run folder that is still written to may be opened at one iteration by
 * some ranks and at the next one by others; ranks on other hosts may have copies that differ.
 * Folders may have other paths on other ranks. Nothing is read. ranks NULL: DCPK_OK. Errors, the
 * same on all ranks: DCPK_EIO with the lowest rank that differs from rank 0, and both iterations
 * where these differ; DCPK_ENOMEM.
 */
dcpk_status dcpk_ranks_check_checkpoint(struct dcpk_ranks *ranks,
                                        const struct dcpk_checkpoint *ckpt, struct dcpk_error *err);

#endif
