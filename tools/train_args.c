/* SPDX-License-Identifier: Apache-2.0 */
/* train_args.c - knobs of a configuration, of the command line and of the environment. */
#include "tools/train_args.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/formats.h"
#include "lib/base/order.h"

/* ---- tables ---- */

#define DCPK_OPT_STRUCT struct dcpk_train_args
const struct dcpk_option dcpk_train_rows[] = {
    DCPK_OPT_FILE("config", "FILE", config,
                  "knobs as Megatron-Bridge has them, YAML or JSON with sections; the command line "
                  "overrides them"),
    DCPK_OPT_END};

static void each_knob(void (*visit)(void *context, const struct dcpk_option *row, const char *part),
                      void *context)
{
    struct dcpk_knob_walk walk = {0};
    const struct dcpk_option *knob;

    while ((knob = dcpk_knob_next(&walk)) != NULL)
        visit(context, knob, walk.begins_part ? walk.part : NULL);
}

const struct dcpk_cli_more dcpk_train_flags = {
    .title = "knobs, which 'dcpkit help knob NAME' explains", .each = each_knob};

/* ---- words ---- */

/* The words once more, for what changes their order. NULL and err. */
static char **copy_words(struct dcpk_train_args *args, struct dcpk_error *err)
{
    char **copy = dcpk_arena_array(args->arena, (size_t)args->n_words + 1, sizeof *copy, err);

    for (int i = 0; copy != NULL && i < args->n_words; i++)
        copy[i] = args->words[i];
    return copy;
}

dcpk_status dcpk_train_args_begin(struct dcpk_train_args *args, int argc, char **argv, char ***rest,
                                  int *n_rest, struct dcpk_error *err)
{
    args->n_words = *n_rest = argc;
    args->words = argv;
    args->arena = dcpk_arena_new();
    *rest = copy_words(args, err);
    if (*rest == NULL)
        return err->status;
    dcpk_train_knobs_init(&args->knobs, args->arena);
    return dcpk_train_knobs_take_args(&args->knobs, n_rest, *rest, err);
}

dcpk_status dcpk_train_args_settle(struct dcpk_train_args *args, struct dcpk_error *err)
{
    int n = args->n_words;
    char **words;

    if (args->config == NULL)
        return DCPK_OK;
    words = copy_words(args, err);
    if (words == NULL || dcpk_config_read(args->config, &args->from, err) != DCPK_OK)
        return err->status;
    dcpk_train_knobs_init(&args->knobs, args->arena);
    if (dcpk_train_knobs_take_config(&args->knobs, args->from.args, err) != DCPK_OK)
        return dcpk_context(err, "configuration '%s'", args->config);
    return dcpk_train_knobs_take_args(&args->knobs, &n, words, err);
}

dcpk_status dcpk_train_args_add_saved(struct dcpk_train_args *args,
                                      const struct dcpk_verbosity *verbosity,
                                      struct dcpk_error *err)
{
    const char *const load = args->knobs.config.files.load;

    if (!args->knobs.takes_saved_args)
        return DCPK_OK;
    if (load == NULL)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "use_checkpoint_args takes the model from the checkpoint to resume from: "
                         "set load");
    if (dcpk_args_from_checkpoint(load, verbosity, &args->saved, err) != DCPK_OK)
        return err->status;
    if (dcpk_train_knobs_take_saved(&args->knobs, args->saved.args, err) != DCPK_OK)
        dcpk_context(err, "args of '%s'", load);
    return err->status;
}

dcpk_status dcpk_train_args_check(struct dcpk_train_args *args, int64_t n_ranks, int gpu_major,
                                  struct dcpk_error *err)
{
    const struct dcpk_train_environment environment = {
        .max_connections = getenv("CUDA_DEVICE_MAX_CONNECTIONS"),
        .alloc_conf = getenv("PYTORCH_CUDA_ALLOC_CONF"),
        .alloc_any = getenv("PYTORCH_ALLOC_CONF"),
        .nccl_algo = getenv("NCCL_ALGO"),
        .te_algo = getenv("NVTE_ALLOW_NONDETERMINISTIC_ALGO"),
        .cublas_config = getenv("CUBLAS_WORKSPACE_CONFIG"),
        .gpu_major = gpu_major,
        .n_ranks = n_ranks};

    return dcpk_train_knobs_check(&args->knobs, &environment, &args->notices, err);
}

/* ---- paths ---- */

/* Checks that outputs are outside the checkpoint that the run resumes from, which may be an earlier
 * save of the same run. */
static dcpk_status check_apart_from(const struct dcpk_run *from,
                                    const struct dcpk_train_files *files, struct dcpk_error *err)
{
    /* A finetuning run can reach the iteration that it was loaded from. */
    const int64_t next = from->iteration + !files->is_finetune;
    const char *const others[] = {files->log, files->map_folder, files->logger.folder};
    struct dcpk_run saved = {0};
    dcpk_status st = DCPK_OK;

    for (size_t i = 0; i < DCPK_COUNT(others) && st == DCPK_OK; i++)
        if (others[i] != NULL)
            st = dcpk_run_check_apart(from->folder, others[i], err);
    if (st == DCPK_OK && files->save != NULL && from->iteration >= 0) {
        st = dcpk_run_target(files->save, next, DCPK_TRACKER_SET, dcpk_formats, &saved, err);
        if (st == DCPK_OK)
            st = dcpk_run_check_apart(from->folder, saved.folder, err);
    }
    dcpk_run_release(&saved);
    return st;
}

/* Nothing is saved yet: whatever the iteration. */
static dcpk_status check_saved(const struct dcpk_train_files *files, struct dcpk_error *err)
{
    struct dcpk_run saved = {0};
    dcpk_status st;

    if (files->save == NULL)
        return DCPK_OK;
    st = dcpk_run_target(files->save, 0, DCPK_TRACKER_SET, dcpk_formats, &saved, err);
    if (st == DCPK_OK && files->map_folder != NULL)
        st = dcpk_run_check_apart(files->map_folder, saved.folder, err);
    dcpk_run_release(&saved);
    return st;
}

dcpk_status dcpk_train_args_check_paths(const struct dcpk_train_args *args, struct dcpk_error *err)
{
    const struct dcpk_train_files *files = &args->knobs.config.files;
    struct dcpk_error ignored = DCPK_ERROR_INIT; /* resuming fails of it, and names it */
    struct dcpk_run from = {0};

    if (check_saved(files, err))
        return err->status;
    if (files->load != NULL && dcpk_run_find(files->load, dcpk_formats, &from, &ignored) == DCPK_OK)
        (void)check_apart_from(&from, files, err);
    dcpk_run_release(&from);
    return err->status;
}

void dcpk_train_args_release(struct dcpk_train_args *args)
{
    dcpk_args_from_release(&args->from);
    dcpk_args_from_release(&args->saved);
    dcpk_arena_free(args->arena);
    args->arena = NULL;
}

dcpk_status dcpk_train_unknown_word(const char *word, struct dcpk_error *err)
{
    const char *dot = strchr(word, '.');
    const size_t n = strcspn(word, "=");
    const struct dcpk_option *near = NULL;
    char name[DCPK_KNOB_NAME_BYTES];
    struct dcpk_knob_walk walk;

    if (dot == NULL || word[n] == '\0')
        return dcpk_fail(err, DCPK_EUSAGE, "'%s' is neither a knob nor section.name=value", word);
    if (n < sizeof name && dot < word + n) {
        snprintf(name, sizeof name, "%.*s", (int)(word + n - dot - 1), dot + 1);
        near = dcpk_knob_find_near(name, NULL, 0, &walk);
    }
    if (near == NULL)
        return dcpk_fail(err, DCPK_EUSAGE, "there is no knob '%.*s'", (int)n, word);
    return dcpk_fail(err, DCPK_EUSAGE, "there is no knob '%.*s'; did you mean '%.*s.%s'?", (int)n,
                     word, (int)strcspn(near->sections, " "), near->sections, near->name);
}
