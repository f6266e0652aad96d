/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_verify.c - dcpkit verify: is a checkpoint whole; is it a true conversion of another. */
#include <inttypes.h>

#include "lib/ckpt/format.h"
#include "lib/ckpt/integrity.h"
#include "lib/ckpt/unknown.h"
#include "lib/exec/extras.h"
#include "lib/exec/ranks.h"
#include "lib/job/compare.h"
#include "tools/args_from.h"
#include "tools/bar.h"
#include "tools/checks.h"
#include "tools/cmd.h"
#include "tools/convert_report.h"
#include "tools/input_args.h"
#include "tools/run_args.h"

#define NAME      "verify"
#define MOST_TOLD 20 /* differences */

struct verify {
    const char *path, *against; /* against: NULL without --against */
    const char *args_path;      /* --args-from */
    const char *format, *iteration;
    bool as_json, weights_only;
    bool writes_integrity, force, has_written;
    int64_t vocab_size;
    struct dcpk_input_args input; /* of SRC */
    struct dcpk_voice voice;
    struct dcpk_env env;
    struct dcpk_checkpoint *ckpt, *source; /* source: NULL without --against */
    struct dcpk_checks checks;
    struct dcpk_compare_report proof; /* with --against */
};

static void check_pickles(struct verify *v)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_bar bar;
    const struct dcpk_progress progress = dcpk_bar_begin(&bar, "reading objects", &v->voice);
    dcpk_status st = dcpk_check_values(v->ckpt, v->ckpt->format->is_known, &progress, &err);

    if (st == DCPK_OK)
        st = dcpk_extras_check(v->ckpt->store, v->env.extras, &err);
    dcpk_bar_end(&bar);
    dcpk_checks_add(&v->checks, "pickles", st, &err,
                    "%zu objects readable, nothing but known classes in them", v->ckpt->n_objects);
}

static void check_items(struct verify *v)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_exec_stats stats = {0};
    struct dcpk_exec *exec = NULL;
    char size[DCPK_SIZE_TEXT_BYTES];
    struct dcpk_bar bar;
    dcpk_status st;

    v->env.progress = dcpk_bar_begin(&bar, "reading", &v->voice);
    st = dcpk_exec_new(v->ckpt, &v->env, &exec, &err);
    if (st == DCPK_OK)
        st = dcpk_exec_check_items(exec, &stats, &err);
    st = dcpk_ranks_agree(v->env.ranks, st, &err);
    dcpk_bar_end(&bar);
    dcpk_exec_free(exec);
    if (stats.read_bytes == 0 && v->ckpt->n_chunks > 0) /* zarr: nothing says what they were */
        dcpk_checks_add(
            &v->checks, "checksums", st, &err,
            "the format stores none of tensor bytes; what is compressed can be decoded");
    else
        dcpk_checks_add(&v->checks, "checksums", st, &err,
                        "the CRC-32 of every record is right, %s read",
                        dcpk_cli_size(stats.item_bytes, size));
}

/* Megatron's own list of checksums, where the folder has one. */
static void check_integrity(struct verify *v)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_exec *exec = NULL;
    struct dcpk_bar bar;
    bool is_there = false;
    size_t n_files = 0;
    dcpk_status st;

    v->env.progress = dcpk_bar_begin(&bar, "hashing files", &v->voice);
    st = dcpk_exec_new(v->ckpt, &v->env, &exec, &err);
    if (st == DCPK_OK)
        st = dcpk_exec_find_integrity(exec, &is_there, &err);
    if (st == DCPK_OK && is_there)
        st = dcpk_exec_check_integrity(exec, &n_files, NULL, &err);
    st = dcpk_ranks_agree(v->env.ranks, st, &err);
    dcpk_bar_end(&bar);
    dcpk_exec_free(exec);
    if (st != DCPK_OK || is_there)
        dcpk_checks_add(&v->checks, "integrity", st, &err,
                        "%zu files have the SHA-256 that '" DCPK_INTEGRITY_NAME "' lists", n_files);
}

/* Only of what all checks have found sound, so that the list vouches for nothing that is not. */
static void write_integrity(struct verify *v)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_exec *exec = NULL;
    struct dcpk_bar bar;
    size_t n_files = 0;
    dcpk_status st;

    v->env.progress = dcpk_bar_begin(&bar, "hashing files", &v->voice);
    st = dcpk_exec_new(v->ckpt, &v->env, &exec, &err);
    if (st == DCPK_OK)
        st = dcpk_exec_add_integrity(exec, &n_files, &err);
    st = dcpk_ranks_agree(v->env.ranks, st, &err);
    dcpk_bar_end(&bar);
    dcpk_exec_free(exec);
    v->has_written = st == DCPK_OK;
    dcpk_checks_add(&v->checks, "written", st, &err,
                    "'" DCPK_INTEGRITY_NAME "', with the SHA-256 of %zu files", n_files);
}

/*
 * Differences go into the JSON, else to stderr, one a line: the list is long when the answer is a
 * clear no, and is cut.
 */
static void record_proof(struct verify *v)
{
    const struct dcpk_compare_report *report = &v->proof;
    const struct dcpk_voice result = {.command = NAME}; /* part of it: said also with --quiet */
    struct dcpk_error err = DCPK_ERROR_INIT;
    char text[DCPK_PROOF_TEXT_BYTES];
    dcpk_status st = DCPK_OK;
    unsigned n = 1; /* the first is the answer's */

    if (!report->equal)
        st = dcpk_fail(&err, DCPK_EMISMATCH, "%" PRIu64 " differences from '%s', the first: %s",
                       report->differences.n, v->against, report->differences.first->sentence);
    dcpk_checks_add(&v->checks, "against", st, &err, "equal to '%s': %s", v->against,
                    dcpk_proof_text(report, text));
    if (v->as_json)
        return;
    for (const struct dcpk_difference *d = report->differences.first; d != NULL && n < MOST_TOLD;
         n++) {
        d = d->next;
        if (d != NULL)
            dcpk_cli_note(&result, "difference: %s", d->sentence);
    }
    if (report->differences.n > MOST_TOLD)
        dcpk_cli_note(&result, "%" PRIu64 " more; compare-two-checkpoint lists differences",
                      report->differences.n - MOST_TOLD);
}

static void check_against(struct verify *v)
{
    struct dcpk_compare_options options = {.policy = DCPK_COMPARE_FAITHFUL,
                                           .weights_only = v->weights_only,
                                           .vocab_size = v->vocab_size,
                                           .env = v->env};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_bar bar;
    dcpk_status st;

    options.env.progress = dcpk_bar_begin(&bar, "comparing", &v->voice);
    st = dcpk_compare_checkpoints(v->ckpt, v->source, &options, &v->proof, &err);
    st = dcpk_ranks_agree(v->env.ranks, st, &err);
    dcpk_bar_end(&bar);
    if (st == DCPK_OK)
        record_proof(v);
    else
        dcpk_checks_add(&v->checks, "against", st, &err, "%s", "");
}

/* The exit code of rank 0, which has seen all checks, for all. */
static int share_code(struct dcpk_ranks *ranks, int code)
{
    const uint8_t mine = (uint8_t)code;
    const size_t n_bytes = dcpk_ranks_self(ranks) == 0 ? sizeof mine : 0;
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_bytes all = {0};

    if (dcpk_ranks_share(ranks, &mine, n_bytes, &all, DCPK_OK, &err) == DCPK_OK)
        code = all.data[0];
    dcpk_bytes_release(&all);
    return code;
}

/* All checks, also when one has failed: each answers another question. What reads little is not
 * shared with other processes. */
static int check(struct verify *v)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    dcpk_status st;

    if (dcpk_ranks_self(v->env.ranks) == 0) {
        dcpk_checks_structure(&v->checks, v->ckpt);
        check_pickles(v);
    }
    check_items(v);
    if (!v->writes_integrity) /* else an old one is replaced */
        check_integrity(v);
    if (v->source != NULL)
        check_against(v);
    if (v->writes_integrity &&
        share_code(v->env.ranks, dcpk_checks_exit_code(&v->checks)) == DCPK_EXIT_OK)
        write_integrity(v);
    dcpk_cli_notes(&v->voice, v->ckpt);
    if (v->source != NULL)
        dcpk_cli_notes(&v->voice, v->source);
    if (dcpk_cli_interrupted()) {
        dcpk_fail(&err, DCPK_ECANCELLED, "stopped on request");
        return dcpk_cli_fail(NAME, &err);
    }
    st = dcpk_checks_print(&v->checks, v->ckpt->format->name, v->source == NULL ? NULL : &v->proof,
                           v->as_json, &err);
    if (st != DCPK_OK && v->has_written)
        dcpk_context(&err, "'" DCPK_INTEGRITY_NAME "' is in place, and then");
    return st == DCPK_OK ? dcpk_checks_exit_code(&v->checks) : dcpk_cli_fail(NAME, &err);
}

/* What stands against --write-integrity shows before the work. */
static dcpk_status check_writable(const struct verify *v, struct dcpk_error *err)
{
    bool is_there = false;
    dcpk_status st = DCPK_OK;

    if (v->writes_integrity && dcpk_ranks_self(v->env.ranks) == 0)
        st = dcpk_cli_check_stdout(err);
    if (st == DCPK_OK && v->writes_integrity)
        st = dcpk_exec_may_add_integrity(v->ckpt, &is_there, err);
    if (st == DCPK_OK && is_there && !v->force)
        st = dcpk_fail(err, DCPK_EUSAGE,
                       "'%s' has an '" DCPK_INTEGRITY_NAME
                       "', which verify checks without --write-integrity (--force writes it anew)",
                       dcpk_store_path(v->ckpt->store));
    return st;
}

static dcpk_status tell_source(struct verify *v, struct dcpk_error *err)
{
    struct dcpk_told told;

    dcpk_input_args_apply(&v->input, &told);
    return dcpk_told_apply(&told, v->source, err);
}

/* Both checkpoints are opened first: what cannot be opened is no answer. */
static int verify(struct verify *v)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_args_from from = {0};
    dcpk_status st = dcpk_cli_open(v->path, v->format, &v->voice, &v->ckpt, NULL, &err);
    int code;

    if (st == DCPK_OK && v->against != NULL)
        st = dcpk_cli_open(v->against, NULL, &v->voice, &v->source, NULL, &err);
    if (st == DCPK_OK && v->source != NULL)
        st = tell_source(v, &err);
    if (st == DCPK_OK)
        st = check_writable(v, &err);
    if (st == DCPK_OK)
        st = dcpk_args_from_read(v->args_path, &v->voice, &from, &err);
    if (st == DCPK_OK && v->source != NULL)
        v->source->told_args = from.args;
    if (st == DCPK_OK && v->source != NULL && from.args == NULL && dcpk_lacks_args(v->source))
        dcpk_cli_note(&v->voice,
                      "'%s' has no args: what 'convert' was told with --args-from is "
                      "needed here, too",
                      v->against);
    st = dcpk_ranks_agree(v->env.ranks, st, &err);
    code = st == DCPK_OK ? share_code(v->env.ranks, check(v)) : dcpk_cli_fail(NAME, &err);
    dcpk_compare_release(&v->proof);
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
        return dcpk_cli_usage(NAME, "--args-from is for --against SRC, as convert was told");
    return -1;
}

#define DCPK_OPT_STRUCT struct verify
static const struct dcpk_cli_option option_rows[] = {
    DCPK_OPT_CHECKPOINT(
        "against", "SRC", against,
        "prove that DIR is a faithful conversion of SRC: every logical tensor bit for bit, "
        "weights against their rounded masters, training state by value"),
    DCPK_OPT_FLAG("weights-only", weights_only,
                  "with --against: DIR was converted without optimizer state"),
    DCPK_OPT_LENGTH("vocab-size", "N", vocab_size,
                    "with --against: tokens of the vocabulary, where its padding differs (default: "
                    "args.vocab_size)"),
    DCPK_OPT_AGAINST(input),
    DCPK_OPT_FLAG(
        "write-integrity", writes_integrity,
        "when all is ok, add Megatron's integrity.json (SHA-256 of every file) to DIR, before a "
        "copy; a folder on disk with all files directly in it"),
    DCPK_OPT_FLAG("force", force, "with --write-integrity: write one anew that is there"),
    DCPK_OPT_ARGS_FROM(args_path),
    DCPK_OPT_FORMAT(format),
    DCPK_OPT_ITERATION(iteration),
    DCPK_OPT_JSON(as_json),
    DCPK_OPT_THREADS(env.n_threads),
    DCPK_OPT_MEMORY(env.memory_bytes),
    DCPK_OPT_VOICE(voice),
    DCPK_OPT_END};

int dcpk_cmd_verify(int argc, char **argv, struct dcpk_ranks *ranks)
{
    struct verify v = {.voice = {.command = NAME}, .env = dcpk_cli_env(ranks)};
    struct dcpk_error err = DCPK_ERROR_INIT;
    char places[2][DCPK_RUN_PATH_BYTES];
    const struct dcpk_cli cli = {
        .name = NAME,
        .usage = "[options] DIR",
        .summary = "Check structure, exact cover, overlaps, pickled classes and checksums.",
        .options = option_rows,
        .values = &v,
        .example = "dcpkit verify checkpoints/run/iter_0000004",
        .min_args = 1,
        .max_args = 1,
        .writes_in = &v.writes_integrity,
    };
    char **args;
    int n_args;
    int code = dcpk_cli_parse(&cli, argc, argv, &args, &n_args);

    if (code < 0)
        code = check_usage(&v);
    if (code >= 0)
        return code;
    v.path = places[0];
    if (dcpk_choose_iteration(args[0], v.iteration, places[0], &err) != DCPK_OK ||
        (v.against != NULL &&
         dcpk_choose_iteration(v.against, v.iteration, places[1], &err) != DCPK_OK))
        return dcpk_cli_fail(NAME, &err);
    if (v.against != NULL)
        v.against = places[1];
    return verify(&v);
}
