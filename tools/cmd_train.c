/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_train.c - dcpkit train: a small GPT, trained as Megatron-FSDP trains. */
#include <inttypes.h>
#include <limits.h>
#include <string.h>

#include "formats/formats.h"
#include "kernels/kernels.h"
#include "lib/exec/ranks.h"
#include "lib/train/explain.h"
#include "lib/train/fits.h"
#include "lib/train/train.h"
#include "tools/bar.h"
#include "tools/cmd.h"
#include "tools/print_doc.h"
#include "tools/train_args.h"
#include "tools/train_log.h"

#define NAME "train"

static dcpk_status find_math(const char *name, const struct dcpk_ops **ops, struct dcpk_error *err)
{
    size_t i = 0;

    while (name != NULL && dcpk_math_ops[i] != NULL && strcmp(dcpk_math_ops[i]->name, name) != 0)
        i++;
    *ops = dcpk_math_ops[i];
    if (*ops != NULL)
        return DCPK_OK;
    return dcpk_kernels_fail("device", name, err);
}

/* The first that move memory of the mathematics; of the processor, those of one process alone. */
static dcpk_status find_collectives(const struct dcpk_ops *ops, const struct dcpk_ranks *ranks,
                                    const struct dcpk_collectives **by, struct dcpk_error *err)
{
    size_t i = 0;

    *by = &dcpk_collectives_alone;
    if (ops->device->is_host && ranks == NULL)
        return DCPK_OK;
    while (dcpk_collectives_built[i] != NULL &&
           dcpk_collectives_built[i]->is_device == ops->device->is_host)
        i++;
    *by = dcpk_collectives_built[i];
    if (*by != NULL)
        return DCPK_OK;
    return dcpk_fail_fix(
        err, DCPK_EUNSUPPORTED, DCPK_FIX_LIST_BUILT,
        "no transport that moves memory of the device '%s' between ranks is built in", ops->name);
}

static dcpk_status job_open(const struct dcpk_ops *ops, int ordinal, struct dcpk_train_job *job,
                            struct dcpk_error *err)
{
    const struct dcpk_device_options first = {0};
    dcpk_status st = dcpk_math_open(ops, ordinal, &job->math, err);

    if (st == DCPK_EUNSUPPORTED && ordinal > 0)
        dcpk_append(err, "; every process must see all devices of a machine, because each rank "
                         "takes a different one");
    if (st != DCPK_OK)
        return st;
    return dcpk_devices[0]->open(&first, &job->host, err);
}

/*
 * Open the mathematics called `name` (NULL: the first), the collectives that move its memory, and
 * host memory as a device, into job->math, world and host: each rank of a machine takes a device of
 * its own. Collective; all ranks return the same status. Errors: DCPK_EUSAGE where there is no such
 * device, DCPK_EUNSUPPORTED where it, or what it needs, was not built in or is not there.
 */
static dcpk_status device_open(const char *name, struct dcpk_ranks *ranks,
                               struct dcpk_train_job *job, struct dcpk_error *err)
{
    const struct dcpk_collectives *by = NULL;
    const struct dcpk_ops *ops = NULL;
    struct dcpk_comm *comm = NULL;
    int ordinal = 0;
    dcpk_status st = find_math(name, &ops, err);

    if (st == DCPK_OK)
        st = find_collectives(ops, ranks, &by, err);
    if (st == DCPK_OK && !ops->device->is_host)
        st = dcpk_ranks_ordinal(ranks, &ordinal, err);
    if (st == DCPK_OK)
        st = job_open(ops, ordinal, job, err);
    st = dcpk_ranks_agree(ranks, st, err);
    if (ranks != NULL)
        comm = dcpk_ranks_comm(ranks);
    if (st == DCPK_OK)
        st = by->world(comm, ordinal, &job->world, err);
    return dcpk_ranks_agree(ranks, st, err);
}

static void device_close(struct dcpk_train_job *job)
{
    if (job->world != NULL)
        job->world->by->free(job->world);
    if (job->host != NULL)
        job->host->ops->close(job->host);
    if (job->math != NULL)
        job->math->device->ops->close(job->math->device);
}

struct train {
    bool as_json, explains_memory, explains_comm;
    int n_ranks;           /* to explain for; 0: those that run */
    uint64_t device_bytes; /* 0: not given */
    double link_rate;      /* GB/s; 0: not given */
    const char *device;    /* NULL: the processor */
    const char *html;      /* NULL: no page */
    const char *sweep;     /* sizes to change; NULL: none */
    struct dcpk_verbosity verbosity;
    struct dcpk_bar bar;              /* of the next save */
    const struct dcpk_ranges *ranges; /* NULL: none, because of no_ranges if they were wanted */
    struct dcpk_error no_ranges;
    struct dcpk_train_args asked;
    struct dcpk_env env;
    struct dcpk_train_log log;
};

/* ---- --explain: time and memory of a run ---- */

static const struct dcpk_doc_style style = {.label_columns = 22};

static dcpk_status train_explain(const struct train *t, struct dcpk_error *err)
{
    const struct dcpk_train_config *config = &t->asked.knobs.config;
    const struct dcpk_print_options way = {.as_json = t->as_json};
    struct dcpk_doc doc;

    unsigned axes = 0;

    if (t->sweep != NULL && dcpk_train_sweep_parse(t->sweep, &axes, err) != DCPK_OK)
        return err->status;
    dcpk_doc_init(&doc, NAME, &style);
    if ((t->explains_memory &&
         dcpk_train_explain_memory(config, t->device_bytes, &doc, err) != DCPK_OK) ||
        (t->explains_comm && dcpk_train_explain_comm(config, 1e9 * t->link_rate, &doc, err)) ||
        (axes != 0 && dcpk_train_explain_sweep(config, axes, t->device_bytes, &doc, err))) {
        dcpk_doc_release(&doc);
        return err->status;
    }
    dcpk_doc_set_count(&doc, "version", 1);
    return dcpk_print_doc(&doc, &way, err);
}

/* ---- the run ---- */

static void train_notes(void *context, const char *text, size_t n_bytes)
{
    const struct train *t = context;
    const char *const end = text + n_bytes;

    for (const char *next; text < end; text = next + 1) {
        next = memchr(text, '\n', (size_t)(end - text));
        if (next == NULL)
            next = end;
        dcpk_cli_note(&t->verbosity, "%.*s", (int)(next - text), text);
    }
}

/* Collective: checks that all ranks succeeded, and that none was asked to stop. of: the owner of
 * the iteration. */
static dcpk_status train_go_on(const struct train *t, dcpk_status st, int64_t iteration,
                               const char *of, struct dcpk_error *err)
{
    if (st == DCPK_OK && dcpk_cli_interrupted())
        st = dcpk_fail(err, DCPK_ECANCELLED, "stopped on request after iteration %" PRId64 "%s",
                       iteration, of);
    return dcpk_ranks_agree(t->env.ranks, st, err);
}

/* Collective. */
static dcpk_status train_step(void *context, const struct dcpk_step *step, struct dcpk_error *err)
{
    struct train *t = context;
    const dcpk_status st = dcpk_train_log_put(&t->log, step, err);

    t->env.progress = dcpk_bar_begin(&t->bar, "saving", &t->verbosity);
    return train_go_on(t, st, step->iteration, "", err);
}

static dcpk_status train_noisy_step(void *context, int64_t iteration, struct dcpk_error *err)
{
    return train_go_on(context, DCPK_OK, iteration, " of the run from noisy weights", err);
}

/* Collective. */
static dcpk_status train_measured(void *context, const struct dcpk_train_measured *measured,
                                  struct dcpk_error *err)
{
    struct train *t = context;
    struct dcpk_error differs = DCPK_ERROR_INIT;

    if (dcpk_train_measured_check(measured, &differs) != DCPK_OK)
        dcpk_cli_note(&t->verbosity, "%s (--explain-memory, --explain-comm)", differs.text);
    return dcpk_ranks_agree(t->env.ranks, dcpk_train_log_end(&t->log, measured->most_held, err),
                            err);
}

static void train_saved(void *context)
{
    struct train *t = context;

    t->log.has_saved = true;
}

/* Collective, as the next. */
static dcpk_status train_times(void *context, int64_t iteration, const struct dcpk_times *times,
                               struct dcpk_error *err)
{
    struct train *t = context;

    return dcpk_ranks_agree(t->env.ranks, dcpk_train_log_times(&t->log, iteration, times, err),
                            err);
}

static dcpk_status train_times_of_run(void *context, int64_t n_iterations,
                                      const struct dcpk_times *mean, const struct dcpk_times *most,
                                      struct dcpk_error *err)
{
    struct train *t = context;

    return dcpk_ranks_agree(
        t->env.ranks, dcpk_train_log_times_of_run(&t->log, n_iterations, mean, most, err), err);
}

/* Rank 0's. */
static dcpk_status train_open_log(struct train *t, struct dcpk_error *err)
{
    const char *path = t->asked.knobs.config.files.log;

    if (dcpk_ranks_self(t->env.ranks) > 0)
        return DCPK_OK;
    t->log.as_json = t->as_json;
    if (dcpk_check_page(t->html, t->asked.knobs.config.files.load, err) != DCPK_OK)
        return err->status;
    t->log.page.path = t->html;
    t->log.is_printed = t->as_json || !t->verbosity.is_quiet;
    if (path != NULL && (dcpk_train_log_check(path, err) ||
                         dcpk_file_begin(path, DCPK_FILE_APPEND, &t->log.file, err)))
        return err->status;
    return dcpk_train_log_begin(&t->log, &t->asked, dcpk_ranks_count(t->env.ranks), err);
}

/* From where a run that ended early can be resumed. */
static void train_add_saved(const struct train *t, struct dcpk_error *err)
{
    const char *save = t->asked.knobs.config.files.save;
    struct dcpk_error ignored = DCPK_ERROR_INIT;
    struct dcpk_run run = {0};

    if (save == NULL || dcpk_run_find(save, dcpk_formats, &run, &ignored) != DCPK_OK)
        return;
    dcpk_append(err, "; '%s' has iteration %" PRId64, save, run.iteration);
    dcpk_run_release(&run);
}

/* Checks that the request makes sense, and that the run can be saved where it should; prints
 * notices. */
static dcpk_status train_check(struct train *t, int n_ranks, int gpu_major, struct dcpk_error *err)
{
    if (dcpk_train_args_add_saved(&t->asked, &t->verbosity, err) ||
        dcpk_train_args_check(&t->asked, n_ranks, gpu_major, err) ||
        dcpk_train_args_check_paths(&t->asked, err)) /* before the work */
        return err->status;
    for (size_t i = 0; i < t->asked.notices.n; i++)
        dcpk_cli_note(&t->verbosity, "%s", t->asked.notices.texts[i]);
    if (t->no_ranges.status != DCPK_OK)
        dcpk_cli_note(&t->verbosity, "no ranges: %s", t->no_ranges.text);
    return DCPK_OK;
}

/* Collective inside the work: configurations and args of checkpoints are read by each rank. */
static dcpk_status train_check_same(const struct train *t, struct dcpk_error *err)
{
    struct dcpk_hash hash;
    uint64_t number;

    dcpk_train_knobs_hash(&t->asked.knobs, &hash);
    memcpy(&number, hash.digest, sizeof number);
    return dcpk_ranks_check_same(t->env.ranks, number, "configuration", err);
}

/* Writes the page of a run that ended well or with err; a note holds why it cannot be written. */
static void train_end_page(struct train *t, const struct dcpk_error *err)
{
    struct dcpk_error failure = DCPK_ERROR_INIT;

    if (dcpk_train_page_end(&t->log.page, t->log.config, err, &failure) == DCPK_OK)
        return;
    dcpk_cli_note(&t->verbosity, "the page is not complete: %s", failure.text);
    t->log.page.path = NULL;
}

static dcpk_status train_run(struct train *t, struct dcpk_error *err)
{
    struct dcpk_train_job job = {.config = &t->asked.knobs.config,
                                 .env = &t->env,
                                 .step = train_step,
                                 .noisy_step = train_noisy_step,
                                 .notes = train_notes,
                                 .saved = train_saved,
                                 .measured = train_measured,
                                 .times = train_times,
                                 .times_of_run = train_times_of_run,
                                 .ranges = t->ranges,
                                 .context = t};
    const int n_ranks = dcpk_ranks_count(t->env.ranks);
    dcpk_status st = device_open(t->device, t->env.ranks, &job, err);

    if (st == DCPK_OK &&
        (train_check(t, n_ranks, job.math->device->gpu_major, err) != DCPK_OK ||
         train_check_same(t, err) != DCPK_OK ||
         dcpk_train_check_leaves(job.config, err) != DCPK_OK || train_open_log(t, err) != DCPK_OK))
        st = err->status;
    st = dcpk_ranks_agree(t->env.ranks, st, err);
    if (st == DCPK_OK) {
        st = dcpk_ranks_agree(t->env.ranks, dcpk_train_run(&job, err), err);
        train_end_page(t, err);
        if (st != DCPK_OK)
            train_add_saved(t, err);
        else
            st = dcpk_train_log_written(&t->log, err);
    }
    device_close(&job);
    return st;
}

/* The first option without effect in this request, and the request that it is for; NULL: there is
 * none. */
static const char *train_idle_option(const struct train *t, bool is_run)
{
    if (t->html != NULL && !is_run)
        return "--html is the page of a run: leave it out, or --explain-memory, --explain-comm and "
               "--sweep";
    if (t->n_ranks > 0 && is_run)
        return "--ranks is for --explain-memory, --explain-comm or --sweep; a run has the ranks "
               "that mpirun, srun or torchrun start";
    if (t->device_bytes > 0 && !t->explains_memory && t->sweep == NULL)
        return "--device-memory is for --explain-memory or --sweep";
    if (t->link_rate > 0 && !t->explains_comm)
        return "--link-rate is for --explain-comm";
    return NULL;
}

static int train(struct train *t)
{
    const int n_ranks = t->n_ranks > 0 ? t->n_ranks : dcpk_ranks_count(t->env.ranks);
    const bool is_run = !t->explains_memory && !t->explains_comm && t->sweep == NULL;
    const char *idle = train_idle_option(t, is_run);
    struct dcpk_error err = DCPK_ERROR_INIT;

    if (idle != NULL)
        return dcpk_cli_usage(NAME, "%s", idle);
    t->env.progress = dcpk_bar_begin(&t->bar, "saving", &t->verbosity);
    if (is_run)
        (void)train_run(t, &err);
    else if (train_check(t, n_ranks, 0, &err) == DCPK_OK)
        (void)train_explain(t, &err);
    dcpk_bar_end(&t->bar);
    if (err.status != DCPK_OK)
        return dcpk_cli_fail(NAME, &err);
    return DCPK_EXIT_OK;
}

#define DCPK_OPT_STRUCT struct train
static const struct dcpk_option option_rows[] = {
    DCPK_OPT_ROWS(dcpk_train_rows, struct dcpk_train_args, asked),
    DCPK_OPT_TEXT("device", "NAME", device,
                  "device: cpu (default); cuda, a GPU for each rank, with the same sums in every "
                  "layout; cublas, the same with the faster products of cuBLAS"),
    DCPK_OPT_FLAG("explain-memory", explains_memory,
                  "train nothing: print the memory of a rank, in this run and in Megatron under "
                  "each sharding strategy, and how to lower it"),
    DCPK_OPT_FLAG(
        "explain-comm", explains_comm,
        "train nothing: print how much a rank would send to data-parallel ranks in each step"),
    DCPK_OPT_TEXT("sweep", "SIZES", sweep,
                  "train nothing: print Megatron's memory for every layout of the ranks that "
                  "differs in SIZES, one or more of tp,pp,dp"),
    DCPK_OPT_COUNT("ranks", "N", n_ranks,
                   "number of ranks to explain for (default: those that run)"),
    DCPK_OPT(DCPK_OPTION_SIZE, 0, "device-memory", "SIZE", uint64_t, device_bytes,
             "memory of a rank: also explain what fits into it"),
    DCPK_OPT_NUMBER("link-rate", "GB/S", link_rate,
                    "bandwidth: also explain how long sending would take"),
    DCPK_OPT_FLAG("json", as_json,
                  "print a line of JSON for each iteration, as in the log, instead of text; "
                  "explanations as one document"),
    DCPK_OPT_HTML(html),
    DCPK_OPT_THREADS(env.n_threads),
    DCPK_OPT_MEMORY(env.memory_bytes),
    DCPK_OPT_VERBOSITY(verbosity),
    DCPK_OPT_END};

static const struct dcpk_option settled_rows[] = {
    DCPK_OPT_ROWS(dcpk_knobs_of_run, struct dcpk_train_knobs, asked.knobs), DCPK_OPT_END};

/* The ranges that a profiler takes. It is loaded here, before the sandbox is entered. */
static void train_find_ranges(struct train *t)
{
    if (!t->asked.knobs.config.files.has_ranges)
        return;
    if (dcpk_ranges_built[0] == NULL)
        dcpk_fail(&t->no_ranges, DCPK_EUNSUPPORTED, "NVTX is not built in");
    else if (dcpk_ranges_built[0]->find(&t->no_ranges) == DCPK_OK)
        t->ranges = dcpk_ranges_built[0];
}

static dcpk_status train_settle(void *values, struct dcpk_error *err)
{
    struct train *t = values;

    if (dcpk_train_args_settle(&t->asked, err) == DCPK_OK)
        train_find_ranges(t);
    return err->status;
}

/* Returns -1 to continue, else the exit code. */
static int train_parse(const struct dcpk_cli *cli, int argc, char **argv)
{
    struct train *t = cli->values;
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_cli_args args;
    char **rest;
    int n, code;

    if (dcpk_train_args_begin(&t->asked, argc, argv, &rest, &n, &err) != DCPK_OK)
        return dcpk_cli_fail(NAME, &err);
    code = dcpk_cli_parse(cli, n, rest, &args);
    if (code >= 0 || args.n == 0)
        return code;
    (void)dcpk_train_unknown_word(args.words[0], &err);
    return dcpk_cli_fail(NAME, &err);
}

static int train_begin(const struct dcpk_cli *cli, int argc, char **argv)
{
    struct train *t = cli->values;
    int code = train_parse(cli, argc, argv);

    if (code < 0)
        code = train(t);
    dcpk_train_log_close(&t->log);
    dcpk_train_args_release(&t->asked);
    return code;
}

static struct train values = {.verbosity = {.command = NAME}, .no_ranges = DCPK_ERROR_INIT};
const struct dcpk_cli dcpk_cmd_train = {
    .name = NAME,
    .usage = "[options] [KNOBS]",
    .summary = "Train a small GPT as Megatron does, with Megatron-FSDP or without, on mock "
               "data or tokens; resume from any checkpoint of the model, save in any "
               "format.\nKNOBS are flags as Megatron spells them, or section.name=value as "
               "Megatron-Bridge does.",
    .options = option_rows,
    .everyday = "config device explain-memory explain-comm sweep ranks json",
    .values = &values,
    .env = &values.env,
    .example = "dcpkit train --config logs/tiny.yaml --exit-at 3 --log logs/tiny.jsonl",
    .n_args = {0, INT_MAX},
    .paths = DCPK_CLI_NO_PATHS,
    .settle = train_settle,
    .settled = settled_rows,
    .more = &dcpk_train_flags,
    .begin = train_begin,
};
