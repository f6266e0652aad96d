/* SPDX-License-Identifier: Apache-2.0 */
/* run_args.h - run folders: opens what is in one; options about iterations and the tracker. */
#ifndef DCPK_TOOLS_RUN_ARGS_H
#define DCPK_TOOLS_RUN_ARGS_H

#include "lib/ckpt/run.h"
#include "lib/job/give_options.h"
#include "tools/cmd.h"
#include "tools/options.h"

/* The numbers of these words are values of dcpk_tracker_policy. */
#define DCPK_TRACKER_WORDS "newest set keep"
#define DCPK_OPT_TRACKER(field)                                                                    \
    DCPK_OPT_WORD("tracker", "WHEN", DCPK_TRACKER_WORDS, field,                                    \
                  "when to point OUT's tracker at the new iteration: newest, unless it names "     \
                  "a newer one (default), set, always, or keep, only where there is none "         \
                  "(default where OUT is an iteration's folder)")
#define DCPK_OPT_ITERATION(field)                                                                  \
    DCPK_OPT_TEXT("iteration", "N", field,                                                         \
                  "iteration to use of a run folder or an archive, or 'release' (default: "        \
                  "the one that its tracker names)")

/*
 * The path of iteration `iteration`, as --iteration spells it, of `path` (dcpk_run_choose); NULL:
 * the path itself. Errors: DCPK_EUSAGE when it is neither digits nor 'release'; those of
 * dcpk_run_choose.
 */
dcpk_status dcpk_choose_iteration(const char *path, const char *iteration,
                                  char chosen[DCPK_RUN_PATH_BYTES], struct dcpk_error *err);

/* NULL: the usual. */
enum dcpk_tracker_policy dcpk_tracker_policy_of(const char *word);

/* --force and --resume as dcpk_folder_flags. */
unsigned dcpk_folder_flags_of(bool force, bool resume);

/* Warns of a tracker that does not name the written iteration. */
void dcpk_note_tracker(const struct dcpk_verbosity *verbosity, const struct dcpk_run *target);
/* The tracker's fate, in a few words in brackets after the output's name; none: "". */
#define DCPK_TRACKER_WORDS_BYTES 96
const char *dcpk_tracker_words(const struct dcpk_run *target, char text[DCPK_TRACKER_WORDS_BYTES]);

/* Names the deed, done or planned: that the output was found complete, or `would` or `done`. */
const char *dcpk_deed(const struct dcpk_run *target, bool dry_run, const char *would,
                      const char *done);

/*
 * Open the checkpoint at `path`, an iteration folder, a run folder or an archive (dcpk_run_open),
 * in one of the built formats (format: by name, NULL: detected). ckpt: dcpk_checkpoint_close;
 * run: dcpk_run_release, may be NULL. Errors: DCPK_ECANCELLED after a signal; those of
 * opening.
 */
dcpk_status dcpk_cli_open(const char *path, const char *format,
                          const struct dcpk_verbosity *verbosity, struct dcpk_checkpoint **ckpt,
                          struct dcpk_run *run, struct dcpk_error *err);

/* ---- options of an input ---- */

/* The values of the options. */
struct dcpk_input_args {
    const char *model_prefix, *state_prefix;
    const char *trust, *repair;
    bool accept_gtp;
    int64_t bucket_elems;
    struct dcpk_option_list drops;
};

/* Options of a command's IN, and of the SRC of --against. */
extern const struct dcpk_option dcpk_input_rows[], dcpk_against_rows[];
#define DCPK_OPT_INPUT(field)   DCPK_OPT_ROWS(dcpk_input_rows, struct dcpk_input_args, field)
#define DCPK_OPT_AGAINST(field) DCPK_OPT_ROWS(dcpk_against_rows, struct dcpk_input_args, field)

/* Borrows `a`. */
struct dcpk_open_options dcpk_input_args_read(const struct dcpk_input_args *a);
/* True if any of them was given. */
bool dcpk_input_args_given(const struct dcpk_input_args *a);

#endif
