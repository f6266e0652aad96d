/* SPDX-License-Identifier: Apache-2.0 */
/* args_from.h - args for a checkpoint that was written without: --args-from. */
#ifndef DCPK_TOOLS_ARGS_FROM_H
#define DCPK_TOOLS_ARGS_FROM_H

#include "lib/base/bytes.h"
#include "lib/ckpt/value.h"
#include "tools/cmd.h"

#define DCPK_OPT_ARGS_FROM(field)                                                                  \
    DCPK_OPT_CHECKPOINT(                                                                           \
        "args-from", "FROM", field,                                                                \
        "args for a checkpoint that has none, or to replace its own: a JSON object, the "          \
        "run_config.yaml of Megatron-Bridge, or a checkpoint (its args, or its "                   \
        "run_config.yaml)")

/* Owned: its arena goes with dcpk_args_from_release. */
struct dcpk_args_from {
    struct dcpk_arena *arena;
    const struct dcpk_value *args; /* argparse.Namespace; NULL: the option was not given */
};

/*
 * Read what --args-from names; path NULL: nothing, args stays NULL. Errors: DCPK_EFORMAT,
 * DCPK_EUNSUPPORTED for what does not hold args, or YAML in a build without libyaml; DCPK_EIO.
 */
dcpk_status dcpk_args_from_read(const char *path, const struct dcpk_verbosity *verbosity,
                                struct dcpk_args_from *from, struct dcpk_error *err);
/* The same of a checkpoint, a folder or an archive. */
dcpk_status dcpk_args_from_checkpoint(const char *path, const struct dcpk_verbosity *verbosity,
                                      struct dcpk_args_from *from, struct dcpk_error *err);
/*
 * Read a configuration, JSON or YAML, as it is: from->args is then a DICT of sections
 * (dcpk_train_knobs_take_config). Errors: as dcpk_args_from_read. Release it in any case.
 */
dcpk_status dcpk_config_read(const char *path, struct dcpk_args_from *from, struct dcpk_error *err);
/* The same of a text, which ends with a NUL, into the arena of `from`. */
dcpk_status dcpk_config_parse(const char *text, size_t n_bytes, struct dcpk_args_from *from,
                              struct dcpk_error *err);
void dcpk_args_from_release(struct dcpk_args_from *from); /* zeroed: a no-op */

/* True if the checkpoint lacks args of its own. */
bool dcpk_lacks_args(struct dcpk_checkpoint *ckpt);

/* ---- args as flags ---- */

/*
 * Append the flags of Megatron that make these attributes of args, a line each, and load and save
 * in a folder. left: the names of
 * attributes that are set and that no known flag makes, a NUL after each. Errors: DCPK_ENOMEM.
 */
dcpk_status dcpk_args_to_flags(const struct dcpk_value *attrs, const char *folder,
                               struct dcpk_arena *arena, struct dcpk_bytes *out,
                               struct dcpk_bytes *left, struct dcpk_error *err);

#endif
