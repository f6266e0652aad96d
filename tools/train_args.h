/* SPDX-License-Identifier: Apache-2.0 */
/* train_args.h - the request for a run: knobs on the command line, a configuration, the
 * environment. */
#ifndef DCPK_TOOLS_TRAIN_ARGS_H
#define DCPK_TOOLS_TRAIN_ARGS_H

#include "lib/knobs/knobs.h"
#include "tools/args_from.h"

struct dcpk_train_args {
    const char *config; /* the file that --config names; NULL: none */
    int n_words;        /* of the command line, the command's name first; borrowed */
    char **words;
    struct dcpk_arena *arena;          /* of texts */
    struct dcpk_args_from from, saved; /* the configuration; the checkpoint to resume from */
    struct dcpk_train_knobs knobs;
    struct dcpk_train_notices notices;
};

extern const struct dcpk_option dcpk_train_rows[]; /* --config */
extern const struct dcpk_cli_more dcpk_train_flags;

/*
 * Begin with argv's words, of which those that name no knob are left in *rest, *n_rest of them, for
 * dcpk_cli_parse. dcpk_train_args_release in any case. Errors: DCPK_EUSAGE; DCPK_ENOMEM.
 */
dcpk_status dcpk_train_args_begin(struct dcpk_train_args *args, int argc, char **argv, char ***rest,
                                  int *n_rest, struct dcpk_error *err);
/* With --config: knobs of the configuration, then those of the command line again. Errors:
 * DCPK_EUSAGE; those of dcpk_config_read. */
dcpk_status dcpk_train_args_settle(struct dcpk_train_args *args, struct dcpk_error *err);
/* With use_checkpoint_args: what describes the model in the checkpoint to resume from. Errors:
 * DCPK_EUSAGE where none is named; of dcpk_args_from_checkpoint, dcpk_train_knobs_take_saved. */
dcpk_status dcpk_train_args_add_saved(struct dcpk_train_args *args,
                                      const struct dcpk_verbosity *verbosity,
                                      struct dcpk_error *err);
/* Check all of it, as a run of n_ranks on GPUs of this capability (0: none), and collect notices.
 * Errors: DCPK_EUSAGE. */
dcpk_status dcpk_train_args_check(struct dcpk_train_args *args, int64_t n_ranks, int gpu_major,
                                  struct dcpk_error *err);
/* Checks that outputs can be written, and are neither in the checkpoint to resume from nor, except
 * for the checkpoints, where they go. Touches nothing. Errors: DCPK_EUSAGE, DCPK_EIO. */
dcpk_status dcpk_train_args_check_paths(const struct dcpk_train_args *args, struct dcpk_error *err);
void dcpk_train_args_release(struct dcpk_train_args *args); /* a zeroed one is a no-op */

/* Name in `err` what the unknown word on the command line is near to. */
dcpk_status dcpk_train_unknown_word(const char *word, struct dcpk_error *err);

#endif
