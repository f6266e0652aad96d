/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_verify.c - dcpkit verify: is a checkpoint whole; is it a true conversion of another. */
#include <inttypes.h>

#include "lib/ckpt/format.h"
#include "lib/ckpt/integrity.h"
#include "lib/exec/ranks.h"
#include "lib/job/give_options.h"
#include "lib/job/verify.h"
#include "tools/args_from.h"
#include "tools/bar.h"
#include "tools/checks.h"
#include "tools/cmd.h"
#include "tools/run_args.h"
#include "tools/target_args.h"

#define NAME                  "verify"
#define MAX_DIFFERENCES_SHOWN 20

struct verify {
    const char *path, *against; /* against: NULL without --against */
    const char *args_path;      /* --args-from */
    const char *format, *iteration, *maps, *config;
    bool as_json, weights_only;
    bool writes_integrity, force;
    int64_t vocab_size;
    struct dcpk_input_args input; /* of SRC */
    struct dcpk_verbosity verbosity;
    struct dcpk_env env;
    struct dcpk_checkpoint *ckpt, *source; /* source: NULL without --against */
    struct dcpk_checks checks;
    struct dcpk_verification result;
};

/*
 * Differences go into the JSON, else to stderr, one a line: the list is long when the answer is a
 * clear no, and is cut.
 */
static void print_differences(const struct dcpk_differences *differences)
{
    const struct dcpk_verbosity result = {.command = NAME}; /* part of it: also with --quiet */
    const struct dcpk_difference *d = differences->first;

    for (unsigned n = 1; d != NULL && n < MAX_DIFFERENCES_SHOWN; n++) {
        d = d->next; /* the first is the answer's */
        if (d != NULL)
            dcpk_cli_note(&result, "difference: %s", d->sentence);
    }
    if (differences->n > MAX_DIFFERENCES_SHOWN)
        dcpk_cli_note(&result, "%" PRIu64 " more; compare-two-checkpoint lists differences",
                      differences->n - MAX_DIFFERENCES_SHOWN);
}

/* The exit code of rank 0, which has seen all checks, for all. */
static int share_code(struct dcpk_ranks *ranks, int code)
{
    struct dcpk_error err = DCPK_ERROR_INIT;

    (void)dcpk_ranks_first(ranks, &code, sizeof code, DCPK_OK, &err);
    return code;
}

static bool has_written(const struct verify *v)
{
    const struct dcpk_outcome *written = &v->result.outcomes[DCPK_VERIFY_WRITTEN];

    return written->is_made && written->err.status == DCPK_OK;
}

static int report_verify(struct verify *v)
{
    const struct dcpk_compare_report *proof = v->source == NULL ? NULL : &v->result.proof;
    struct dcpk_error err = DCPK_ERROR_INIT;

    dcpk_checks_verified(&v->checks, v->ckpt, &v->result, v->against);
    if (v->result.is_compared && !v->as_json)
        print_differences(&v->result.proof.differences);
    dcpk_cli_notes(&v->verbosity, v->ckpt);
    if (v->source != NULL)
        dcpk_cli_notes(&v->verbosity, v->source);
    if (dcpk_cli_interrupted())
        dcpk_fail(&err, DCPK_ECANCELLED, "stopped on request");
    else
        dcpk_checks_print(&v->checks, v->ckpt->format->name, proof, v->as_json, &err);
    if (err.status == DCPK_OK)
        return dcpk_checks_exit_code(&v->checks);
    if (has_written(v) && err.status != DCPK_ECANCELLED)
        dcpk_context(&err, "'" DCPK_INTEGRITY_NAME "' is in place, and then");
    return dcpk_cli_fail(NAME, &err);
}

static int run_verify(struct verify *v)
{
    struct dcpk_verify_options options = {
        .source = v->source, .source_name = v->against, .vocab_size = v->vocab_size, .env = v->env};
    struct dcpk_bar bar;

    if (v->weights_only)
        options.flags |= DCPK_VERIFY_WEIGHTS_ONLY;
    if (v->writes_integrity)
        options.flags |= DCPK_VERIFY_WRITE_LIST;
    options.env.progress = dcpk_bar_begin(&bar, "verifying", &v->verbosity);
    dcpk_verify(v->ckpt, &options, &v->result);
    dcpk_bar_end(&bar);
    return report_verify(v);
}

/* Checks, before the work, that --write-integrity is possible. */
static dcpk_status check_writable(const struct verify *v, struct dcpk_error *err)
{
    bool is_there = false;

    if (!v->writes_integrity)
        return DCPK_OK;
    if ((dcpk_ranks_self(v->env.ranks) == 0 && dcpk_cli_check_stdout(err) != DCPK_OK) ||
        dcpk_exec_may_add_integrity(v->ckpt, &is_there, err))
        return err->status;
    if (is_there && !v->force)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "'%s' has an '" DCPK_INTEGRITY_NAME
                         "', which verify checks without --write-integrity (--force replaces it)",
                         dcpk_store_path(v->ckpt->store));
    return DCPK_OK;
}

/* The maps are for both, the rest is of SRC. */
static dcpk_status verify_give(struct verify *v, const struct dcpk_value *args,
                               struct dcpk_error *err)
{
    const struct dcpk_open_options maps = {.family.maps = v->maps, .family.config = v->config};
    struct dcpk_open_options given = dcpk_input_args_read(&v->input);

    if (dcpk_checkpoint_give(v->ckpt, &maps, err) || v->source == NULL)
        return err->status;
    given.family = maps.family;
    given.args = args;
    return dcpk_checkpoint_give(v->source, &given, err);
}

/* Opens both checkpoints before any work: what cannot be opened is not an answer. */
static dcpk_status open_both(struct verify *v, struct dcpk_args_from *from, struct dcpk_error *err)
{
    if (dcpk_cli_open(v->path, v->format, &v->verbosity, &v->ckpt, NULL, err) ||
        (v->against != NULL &&
         dcpk_cli_open(v->against, NULL, &v->verbosity, &v->source, NULL, err)) ||
        check_writable(v, err) || dcpk_args_from_read(v->args_path, &v->verbosity, from, err) ||
        verify_give(v, from->args, err))
        return err->status;
    if (v->source != NULL && from->args == NULL && !v->source->format->is_model &&
        dcpk_lacks_args(v->source))
        dcpk_cli_note(&v->verbosity, "'%s' has no args: give --args-from, as to 'convert'",
                      v->against);
    return DCPK_OK;
}

static int verify(struct verify *v, struct dcpk_error *err)
{
    struct dcpk_args_from from = {0};
    int code = DCPK_EXIT_OK;

    (void)open_both(v, &from, err);
    if (dcpk_ranks_agree(v->env.ranks, err->status, err) == DCPK_OK)
        code = share_code(v->env.ranks, run_verify(v));
    dcpk_verification_release(&v->result);
    dcpk_checkpoint_close(v->source);
    dcpk_checkpoint_close(v->ckpt);
    dcpk_args_from_release(&from);
    return code;
}

/* Options that mean nothing without another one: an exit code, or -1 when all is well. */
static int check_usage(const struct verify *v)
{
    if (v->against == NULL &&
        (v->weights_only || v->vocab_size != 0 || dcpk_input_args_given(&v->input)))
        return dcpk_cli_usage(NAME, "--weights-only, --vocab-size, --drop, --ddp-bucket-size and "
                                    "prefixes of keys are for --against SRC");
    if (v->force && !v->writes_integrity)
        return dcpk_cli_usage(NAME, "--force is for --write-integrity");
    if (v->against == NULL && v->args_path != NULL)
        return dcpk_cli_usage(NAME, "--args-from is for --against SRC, as for 'convert'");
    if (v->against == NULL && (v->maps != NULL || v->config != NULL))
        return dcpk_cli_usage(NAME,
                              "--maps and --hf-config are for --against SRC, as for 'convert'");
    return -1;
}

#define DCPK_OPT_STRUCT struct verify
static const struct dcpk_option option_rows[] = {
    DCPK_OPT_CHECKPOINT(
        "against", "SRC", against,
        "prove that DIR is a faithful conversion of SRC: every logical tensor bit for bit, "
        "weights against their rounded masters, training state by value"),
    DCPK_OPT_FLAG("weights-only", weights_only,
                  "with --against: DIR was converted without optimizer state"),
    DCPK_OPT_LENGTH("vocab-size", "N", vocab_size,
                    "with --against: tokens of the vocabulary, if its padding differs (default: "
                    "args.vocab_size)"),
    DCPK_OPT_AGAINST(input),
    DCPK_OPT_FLAG("write-integrity", writes_integrity,
                  "if all checks pass, add Megatron's integrity.json (SHA-256 of every file) to "
                  "DIR, a folder on disk without subfolders"),
    DCPK_OPT_FLAG("force", force, "with --write-integrity: replace an existing one"),
    DCPK_OPT_ARGS_FROM(args_path),
    DCPK_OPT_CHECKPOINT(
        "maps", "DIR", maps,
        "with --against: maps of Hugging Face model families, in addition to the built-in ones"),
    DCPK_OPT_HF_CONFIG(config),
    DCPK_OPT_FORMAT(format),
    DCPK_OPT_ITERATION(iteration),
    DCPK_OPT_JSON(as_json),
    DCPK_OPT_THREADS(env.n_threads),
    DCPK_OPT_MEMORY(env.memory_bytes),
    DCPK_OPT_VERBOSITY(verbosity),
    DCPK_OPT_END};

static int verify_main(void *values, const struct dcpk_cli_args *args, struct dcpk_error *err)
{
    char against[DCPK_RUN_PATH_BYTES];
    struct verify *v = values;
    const int code = check_usage(v);

    if (code >= 0)
        return code;
    v->path = args->words[0];
    if (v->against != NULL &&
        dcpk_choose_iteration(v->against, v->iteration, against, err) != DCPK_OK)
        return DCPK_EXIT_USAGE;
    if (v->against != NULL)
        v->against = against;
    return verify(v, err);
}

static struct verify values = {.verbosity = {.command = NAME}};
const struct dcpk_cli dcpk_cmd_verify = {
    .name = NAME,
    .usage = "[options] DIR",
    .summary = "Check structure, exact cover, overlaps, pickled classes and checksums.",
    .options = option_rows,
    .everyday = "against weights-only write-integrity json quiet",
    .values = &values,
    .env = &values.env,
    .example = "dcpkit verify checkpoints/run/iter_0000004",
    .n_args = {1, 1},
    .if_more = "; 'dcpkit verify --against SRC DIR' proves DIR against SRC",
    .writes_in = &values.writes_integrity,
    .iteration = &values.iteration,
    .run = verify_main,
};
