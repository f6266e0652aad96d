/* SPDX-License-Identifier: Apache-2.0 */
/* run_args.c - opens what is in a run folder; options about it, messages about the tracker. */
#include "tools/run_args.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/formats.h"
#include "tools/bar.h"

enum dcpk_tracker_policy dcpk_tracker_policy_of(const char *word)
{
    return (enum dcpk_tracker_policy)dcpk_option_number(DCPK_TRACKER_WORDS, word);
}

dcpk_status dcpk_choose_iteration(const char *path, const char *iteration,
                                  char chosen[DCPK_RUN_PATH_BYTES], struct dcpk_error *err)
{
    int64_t n = DCPK_ITERATION_RELEASE;
    char *end = NULL;

    if (strlen(path) >= DCPK_RUN_PATH_BYTES)
        return dcpk_fail(err, DCPK_EUSAGE, "the path '%.100s...' is too long", path);
    snprintf(chosen, DCPK_RUN_PATH_BYTES, "%s", path);
    if (iteration == NULL)
        return DCPK_OK;
    if (strcmp(iteration, "release") != 0) {
        errno = 0;
        n = strtoll(iteration, &end, 10);
        if (!isdigit((unsigned char)*iteration) || *end != '\0' || errno != 0)
            return dcpk_fail(err, DCPK_EUSAGE,
                             "--iteration '%s' is neither a number nor the word release",
                             iteration);
    }
    return dcpk_run_choose(path, n, dcpk_formats, chosen, err);
}

unsigned dcpk_folder_flags_of(bool force, bool resume)
{
    unsigned flags = 0;

    if (force)
        flags |= DCPK_FOLDER_REPLACE;
    if (resume)
        flags |= DCPK_FOLDER_RESUME;
    return flags;
}

void dcpk_note_tracker(const struct dcpk_verbosity *verbosity, const struct dcpk_run *target)
{
    char was[DCPK_ITERATION_TEXT_BYTES];

    if (target->fate != DCPK_TRACKER_KEPT)
        return;
    if (target->tracker_was == DCPK_ITERATION_UNKNOWN)
        dcpk_cli_note(verbosity,
                      "'%s' names no iteration and is not changed, so nothing loads '%s' from "
                      "there; --tracker set makes it name %s",
                      target->tracker, target->folder, target->tracker_text);
    else
        dcpk_cli_note(verbosity,
                      "'%s' still names %s, so that what loads from there does not load '%s'; "
                      "--tracker set makes it name %s",
                      target->tracker, dcpk_run_iteration_text(target->tracker_was, was),
                      target->folder, target->tracker_text);
}

const char *dcpk_tracker_words(const struct dcpk_run *target, char text[DCPK_TRACKER_WORDS_BYTES])
{
    const bool was_known = target->tracker_was != DCPK_ITERATION_UNKNOWN;
    char was[DCPK_ITERATION_TEXT_BYTES];

    dcpk_run_iteration_text(target->tracker_was, was);
    text[0] = '\0';
    if (target->fate == DCPK_TRACKER_KEPT && was_known)
        snprintf(text, DCPK_TRACKER_WORDS_BYTES, " (the tracker still names %s)", was);
    else if (target->fate == DCPK_TRACKER_KEPT)
        snprintf(text, DCPK_TRACKER_WORDS_BYTES, " (the tracker names no iteration still)");
    else if (target->fate == DCPK_TRACKER_WRITTEN && was_known)
        snprintf(text, DCPK_TRACKER_WORDS_BYTES, " (the tracker named %s before)", was);
    return text;
}

const char *dcpk_deed(const struct dcpk_run *target, bool dry_run, const char *would,
                      const char *done)
{
    if (!target->is_there)
        return dry_run ? would : done;
    return dry_run ? "would compare with the existing output:" : "already complete:";
}

/* Where another format is there than `name`, which was asked for: the command that makes it. */
static void suggest_conversion(const char *path, const char *name, struct dcpk_error *err)
{
    const struct dcpk_format *format;

    if ((err->fixes & DCPK_FIX_DETECT) == 0)
        return;
    format = dcpk_format_find(name);
    if (format != NULL && dcpk_format_is_target(format))
        dcpk_append(err, "; 'dcpkit convert --to %s %s OUT' makes that", format->name, path);
}

dcpk_status dcpk_cli_open(const char *path, const char *format,
                          const struct dcpk_verbosity *verbosity, struct dcpk_checkpoint **ckpt,
                          struct dcpk_run *run, struct dcpk_error *err)
{
    struct dcpk_env env = dcpk_cli_env(NULL);
    struct dcpk_checkpoint *opened = NULL;
    struct dcpk_bar bar;
    dcpk_status st;

    env.progress = dcpk_bar_begin(&bar, "unpacking", verbosity);
    st = dcpk_env_open(&env, path, format, run, &opened, err);
    dcpk_bar_end(&bar);
    if (st != DCPK_OK) {
        suggest_conversion(path, format, err);
        return st;
    }
    if (dcpk_cli_interrupted()) {
        dcpk_checkpoint_close(opened);
        if (run != NULL)
            dcpk_run_release(run);
        return dcpk_fail(err, DCPK_ECANCELLED, "stopped on request");
    }
    *ckpt = opened;
    return DCPK_OK;
}

/* ---- options of an input ---- */

#define TRUST_WORDS "weights masters"
/* `when` begins each help text; `name`: the checkpoint's. */
#define ROWS(when, name)                                                                           \
    DCPK_OPT_TEXT("input-model-weight-prefix", "P", model_prefix,                                  \
                  when "prefix of weight keys in " name                                            \
                       ", fsdp_dtensor (default: model.module, else detected)"),                   \
        DCPK_OPT_TEXT("input-optimizer-state-prefix", "P", state_prefix,                           \
                      when "prefix of optimizer keys in " name ", fsdp_dtensor (default: "         \
                           "optimizer.state.module.module.module, else detected)"),                \
        DCPK_OPT_LIST("drop", "RE", drops,                                                         \
                      when "leave keys of " name " out that match, as if they did not exist; "     \
                           "may be given several times"),                                          \
        DCPK_OPT_LENGTH("ddp-bucket-size", "N", bucket_elems,                                      \
                        when "elements of a DDP bucket in the run that wrote " name ", if "        \
                             "optimizer state gathered by data-parallel rank 0 "                   \
                             "(dp_zero_gather_scatter) does not fit args.ddp_bucket_size"),        \
        DCPK_OPT_WORD("trust", "weights|masters", TRUST_WORDS, trust,                              \
                      when "if weights of " name " are not its rounded masters, or have none, "    \
                           "trust these and derive the others (default: that is an error)"),       \
        DCPK_OPT_WORD("repair", "bucket-padding", "bucket-padding", repair,                        \
                      when "move optimizer state of " name " back that core 0.15 to 0.19.2 moved " \
                           "over the padding of DDP buckets; lost masters become their weights, "  \
                           "exp_avg 0, exp_avg_sq the mean of its tensor"),                        \
        DCPK_OPT_FLAG("accept-gtp", accept_gtp,                                                    \
                      when                                                                         \
                      "accept weights of generalized tensor parallelism or of an interleaved "     \
                      "GLU as " name " stores them: you know that its release wrote them "         \
                      "right"),                                                                    \
        DCPK_OPT_END

#define DCPK_OPT_STRUCT struct dcpk_input_args
const struct dcpk_option dcpk_input_rows[] = {ROWS("", "IN")};
const struct dcpk_option dcpk_against_rows[] = {ROWS("with --against: ", "SRC")};

struct dcpk_open_options dcpk_input_args_read(const struct dcpk_input_args *a)
{
    static const unsigned trusted[] = {0, DCPK_TRUST_WEIGHTS, DCPK_TRUST_MASTERS};
    struct dcpk_open_options given = {.decisions =
                                          trusted[dcpk_option_number(TRUST_WORDS, a->trust)],
                                      .bucket_elems = a->bucket_elems,
                                      .model_prefix = a->model_prefix,
                                      .state_prefix = a->state_prefix,
                                      .drops = a->drops.texts,
                                      .n_drops = a->drops.n};

    if (a->accept_gtp)
        given.decisions |= DCPK_ACCEPT_GTP;
    if (a->repair != NULL)
        given.decisions |= DCPK_REPAIR_PADDING;
    return given;
}

bool dcpk_input_args_given(const struct dcpk_input_args *a)
{
    return a->bucket_elems != 0 || a->model_prefix != NULL || a->state_prefix != NULL ||
           a->trust != NULL || a->repair != NULL || a->accept_gtp || a->drops.n > 0;
}
