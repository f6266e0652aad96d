/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_remap.c - dcpkit remap: a checkpoint into the memory of ranks, to another layout and back. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "kernels/kernels.h"
#include "lib/base/order.h"
#include "lib/ckpt/checkpoint.h"
#include "lib/ckpt/format.h"
#include "lib/exec/ranks.h"
#include "lib/job/remap_checkpoint.h"
#include "lib/place/grid.h"
#include "tools/bar.h"
#include "tools/cmd.h"
#include "tools/print_doc.h"
#include "tools/run_args.h"

#define NAME           "remap"
#define N_RUNS         3
#define MAX_TIMEOUT_MS 2000000000
#define FIGURE_BYTES   48
#define GIGA           1e9

struct remap {
    const char *path, *format, *iteration, *from, *to, *device, *transport;
    bool as_json, swiglu, no_swiglu;
    int n_ranks;
    double timeout_seconds, link_rate; /* link_rate: GB/s */
    struct dcpk_verbosity verbosity;
    struct dcpk_remap_job_options options;
    struct dcpk_checkpoint *ckpt;
    struct dcpk_remap_job *job;
    struct dcpk_remap_result result;
};

/* ---- options ---- */

static dcpk_status find_device(struct remap *r, struct dcpk_error *err)
{
    size_t i = 0;

    while (dcpk_devices[i] != NULL && strcmp(dcpk_devices[i]->name, r->device) != 0)
        i++;
    r->options.device = dcpk_devices[i];
    if (dcpk_devices[i] != NULL)
        return DCPK_OK;
    return dcpk_kernels_fail("device", r->device, err);
}

static const struct dcpk_link_ops *find_link(const char *name)
{
    for (size_t i = 0; dcpk_links[i] != NULL; i++)
        if (strcmp(dcpk_links[i]->name, name) == 0)
            return dcpk_links[i];
    return NULL;
}

/* The link that ranks like these take: threads their own, processes that of their device. */
static const struct dcpk_link_ops *usual_link(const struct remap *r)
{
    const struct dcpk_link_ops *link = NULL;

    if (r->options.env.ranks == NULL)
        return find_link("local");
    if (strcmp(r->device, "cuda") == 0)
        link = find_link("nccl");
    return link != NULL ? link : find_link("mpi");
}

static dcpk_status find_path(struct remap *r, struct dcpk_error *err)
{
    struct dcpk_remap_job_options *o = &r->options;

    o->link = usual_link(r);
    o->path = DCPK_REMAP_STAGED;
    if (strcmp(r->transport, "auto") == 0) {
        o->path = DCPK_REMAP_AUTO;
    } else if (strcmp(r->transport, "direct") == 0) {
        o->path = DCPK_REMAP_DIRECT;
        o->link = NULL;
    } else if (strcmp(r->transport, "staged") != 0) {
        o->link = find_link(r->transport);
        if (o->link == NULL)
            return dcpk_fail_fix(
                err, DCPK_EUSAGE, DCPK_FIX_LIST_BUILT,
                "--transport '%s' is neither auto, direct, staged nor a built-in link",
                r->transport);
    }
    return DCPK_OK;
}

/* The number of ranks: processes, or threads: as many as asked for, or as a layout has. */
static dcpk_status find_ranks(struct remap *r, struct dcpk_error *err)
{
    struct dcpk_remap_job_options *o = &r->options;
    const int n_processes = dcpk_ranks_count(o->env.ranks);

    if (o->env.ranks != NULL && r->n_ranks > 0 && r->n_ranks != n_processes)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "--ranks %d starts threads in one process, but here each of %d processes "
                         "is a rank: leave --ranks out",
                         r->n_ranks, n_processes);
    if (r->n_ranks > DCPK_MAX_THREAD_RANKS)
        return dcpk_fail(err, DCPK_EUSAGE, "--ranks %d: at most %d threads can be ranks",
                         r->n_ranks, DCPK_MAX_THREAD_RANKS);
    o->n_ranks = r->n_ranks;
    if (o->env.ranks != NULL)
        o->n_ranks = n_processes;
    if (dcpk_placing_parse("--from", r->from, o->n_ranks, &o->from, err) ||
        dcpk_placing_parse("--to", r->to, o->n_ranks, &o->to, err))
        return err->status;
    if (o->n_ranks == 0)
        o->n_ranks =
            (int)dcpk_min_i64(DCPK_MAX_THREAD_RANKS, dcpk_max_i64(dcpk_grid_ranks(&o->from.grid),
                                                                  dcpk_grid_ranks(&o->to.grid)));
    return DCPK_OK;
}

static dcpk_status read_options(struct remap *r, struct dcpk_error *err)
{
    struct dcpk_remap_job_options *o = &r->options;

    if (r->from == NULL || r->to == NULL)
        return dcpk_fail(err, DCPK_EUSAGE, "give the two layouts as --from and --to");
    if (r->swiglu && r->no_swiglu)
        return dcpk_fail(err, DCPK_EUSAGE, "--swiglu and --no-swiglu exclude each other");
    if (r->swiglu)
        o->swiglu = DCPK_SWIGLU_ON;
    else if (r->no_swiglu)
        o->swiglu = DCPK_SWIGLU_OFF;
    if (r->device == NULL)
        r->device = dcpk_devices[0]->name;
    if (r->transport == NULL)
        r->transport = "auto";
    if (o->n_runs == 0)
        o->n_runs = N_RUNS;
    if (r->timeout_seconds > MAX_TIMEOUT_MS / 1e3)
        return dcpk_fail(err, DCPK_EUSAGE, "--timeout is longer than %d s", MAX_TIMEOUT_MS / 1000);
    if (r->timeout_seconds > 0 && r->timeout_seconds < 1e-3)
        return dcpk_fail(err, DCPK_EUSAGE, "--timeout is shorter than 1 ms");
    o->timeout_ms = (int)(1e3 * r->timeout_seconds);
    o->link_bytes_a_second = 1e9 * r->link_rate;
    if (find_device(r, err) || find_path(r, err) || find_ranks(r, err))
        return err->status;
    return DCPK_OK;
}

/* ---- the report ---- */

static const char *const step_names[DCPK_N_STEPS] = {"load", "there", "back"};

/* Bytes that the rate of a step counts: into the rank that gets the most, from all files, or where
 * nothing leaves a rank within them. */
static uint64_t rated_bytes(const struct dcpk_remap_step *step, unsigned number)
{
    if (number == DCPK_STEP_LOAD)
        return step->moved_bytes;
    return step->moved_bytes > 0 ? step->most_in_bytes : step->local_bytes;
}

static double step_rate(const struct dcpk_remap_step *step, unsigned number)
{
    if (step->seconds <= 0)
        return 0;
    return (double)rated_bytes(step, number) / step->seconds / GIGA;
}

/* "12.3" in columns; "-" where there is none. */
static const char *put_figure(double value, const char *format, char text[FIGURE_BYTES])
{
    if (value <= 0)
        snprintf(text, FIGURE_BYTES, "-");
    else if (*format == 'm')
        snprintf(text, FIGURE_BYTES, "%.3f ms", 1e3 * value);
    else
        snprintf(text, FIGURE_BYTES, "%.2f", value);
    return text;
}

static void put_remap_difference(const void *context, struct dcpk_json_out *j)
{
    const struct dcpk_remap_difference *d = context;
    char digits[20];

    dcpk_json_begin_object(j);
    dcpk_json_add_int(j, "copy", d->copy);
    snprintf(digits, sizeof digits, "%016" PRIx64, d->found);
    dcpk_json_add_string(j, "found", digits);
    dcpk_json_add_int(j, "n_elems_found", (int64_t)d->n_elems_found);
    dcpk_json_add_int(j, "n_elems_wanted", (int64_t)d->n_elems_wanted);
    dcpk_json_add_string(j, "tensor", d->name);
    snprintf(digits, sizeof digits, "%016" PRIx64, d->wanted);
    dcpk_json_add_string(j, "wanted", digits);
    dcpk_json_end_object(j);
}

static struct dcpk_fact difference_fact(const struct dcpk_remap_step *step)
{
    if (step->n_different == 0)
        return dcpk_fact_null();
    return dcpk_fact_json(put_remap_difference, &step->first);
}

/* null: there is none, as of what crosses no link. */
static struct dcpk_fact positive_fact(double value)
{
    if (value <= 0)
        return dcpk_fact_null();
    return dcpk_fact_number(value);
}

static void put_step(struct dcpk_doc_rows *rows, const struct dcpk_remap_result *result,
                     unsigned number)
{
    const struct dcpk_remap_step *s = &result->steps[number];
    const double limit =
        number == DCPK_STEP_LOAD || s->moved_bytes == 0 ? 0 : result->link_bytes_a_second / GIGA;
    char seconds[FIGURE_BYTES], rate[FIGURE_BYTES], predicted[FIGURE_BYTES], top[FIGURE_BYTES];

    DCPK_DOC_PUT(
        rows, DCPK_MEMBER("difference", difference_fact(s)),
        DCPK_MEMBER("gb_per_s", positive_fact(step_rate(s, number))),
        DCPK_MEMBER("limit_gb_per_s", positive_fact(limit)),
        DCPK_MEMBER("local_bytes", dcpk_fact_count(s->local_bytes)),
        DCPK_MEMBER("most_in_bytes", dcpk_fact_count(s->most_in_bytes)),
        DCPK_MEMBER("most_out_bytes", dcpk_fact_count(s->most_out_bytes)),
        DCPK_MEMBER("moved_bytes", dcpk_fact_count(s->moved_bytes)),
        DCPK_MEMBER("n_different", dcpk_fact_count(s->n_different)),
        DCPK_MEMBER("n_messages", dcpk_fact_count(s->n_messages)),
        DCPK_MEMBER("n_tiles", dcpk_fact_count(s->n_tiles)),
        DCPK_MEMBER("n_units", dcpk_fact_count(s->n_units)),
        {"name", "step", .fact = dcpk_fact_text(step_names[number]), .width = 5},
        DCPK_MEMBER("ok", dcpk_fact_flag(s->n_different == 0)),
        DCPK_MEMBER("predicted_seconds", positive_fact(s->predicted_seconds)),
        DCPK_MEMBER("seconds", dcpk_fact_number(s->seconds)),
        DCPK_MEMBER("staging_bytes", dcpk_fact_count(s->staging_bytes)),
        DCPK_MEMBER("table_bytes", dcpk_fact_count(s->table_bytes)),
        {.title = "between ranks", .fact = dcpk_fact_bytes(s->moved_bytes), .width = 13},
        {.title = "within", .fact = dcpk_fact_bytes(s->local_bytes), .width = 11},
        {.title = "time",
         .fact = dcpk_fact_text(put_figure(s->seconds, "ms", seconds)),
         .width = 12},
        {.title = "GB/s",
         .fact = dcpk_fact_text(put_figure(step_rate(s, number), "", rate)),
         .width = 8},
        {.title = "predicted",
         .fact = dcpk_fact_text(put_figure(s->predicted_seconds, "ms", predicted)),
         .width = 12},
        {.title = "limit", .fact = dcpk_fact_text(put_figure(limit, "", top)), .width = 8},
        {.title = "proof", .fact = dcpk_fact_text(s->n_different == 0 ? "ok" : "DIFFERS")});
}

static void fill_steps(const void *context, struct dcpk_doc_rows *rows)
{
    const struct dcpk_remap_result *result = context;

    for (unsigned i = 0; i < DCPK_N_STEPS; i++)
        if (result->steps[i].is_made)
            put_step(rows, result, i);
}

static void report_link(const struct dcpk_remap_result *r, struct dcpk_doc *doc)
{
    const char *how = "given";

    if (r->is_link_measured && r->n_ranks == 1)
        how = "measured, within the rank";
    else if (r->is_link_measured)
        how = "measured, from each rank to the next";
    dcpk_doc_row(doc, "limit", "%.2f GB/s into a rank (%s)", r->link_bytes_a_second / GIGA, how);
    if (r->link != NULL && r->note[0] != '\0')
        dcpk_doc_row(doc, "link", "%s: %s", r->link, r->note);
    else if (r->link != NULL)
        dcpk_doc_row(doc, "link", "%s", r->link);
    dcpk_doc_set_text(doc, "link.name", r->link);
    dcpk_doc_set_text(doc, "link.why", r->note[0] == '\0' ? NULL : r->note);
    dcpk_doc_set(doc, "link.gb_per_s", dcpk_fact_number(r->link_bytes_a_second / GIGA));
    dcpk_doc_set_flag(doc, "link.is_measured", r->is_link_measured);
}

static void report_remap_verdict(const struct dcpk_remap_result *r, struct dcpk_doc *doc)
{
    for (unsigned i = 0; i < DCPK_N_STEPS; i++) {
        const struct dcpk_remap_step *s = &r->steps[i];

        if (s->n_different == 0)
            continue;
        dcpk_doc_row(doc, "differs",
                     "%s: '%s', copy %" PRId64 ": fingerprint %016" PRIx64 " of %" PRIu64
                     " elements, the files have %016" PRIx64 " of %" PRIu64 "; %" PRIu64
                     " copies of tensors differ",
                     step_names[i], s->first.name, s->first.copy, s->first.found,
                     s->first.n_elems_found, s->first.wanted, s->first.n_elems_wanted,
                     s->n_different);
    }
    if (r->ok)
        dcpk_doc_verdict(doc, true,
                         "ok: %" PRIu64 " tensors are what the files have, loaded, there and back",
                         r->n_tensors);
    else
        dcpk_doc_verdict(doc, false, "NOT ok: the ranks do not hold what the files hold");
    dcpk_doc_set_flag(doc, "ok", r->ok);
}

static void report_remap(const struct remap *remap, struct dcpk_doc *doc)
{
    const struct dcpk_remap_result *r = &remap->result;
    char size[DCPK_SIZE_TEXT_BYTES], most[DCPK_SIZE_TEXT_BYTES], ranks[DCPK_COUNT_TEXT_BYTES];

    dcpk_doc_fact(doc, "checkpoint", "folder", dcpk_fact_text(remap->path));
    dcpk_doc_row(doc, "tensors", "%" PRIu64 ", %s, by %s in the memory of %s", r->n_tensors,
                 dcpk_cli_short_size(r->tensor_bytes, size),
                 dcpk_cli_count((uint64_t)r->n_ranks, "rank", ranks), remap->device);
    dcpk_doc_row(doc, "from", "%s, at most %s a rank", remap->from,
                 dcpk_cli_short_size(r->from_bytes, most));
    dcpk_doc_row(doc, "to", "%s, at most %s a rank", remap->to,
                 dcpk_cli_short_size(r->to_bytes, most));
    dcpk_doc_set_text(doc, "device", remap->device);
    dcpk_doc_set_text(doc, "format", remap->ckpt->format->name);
    dcpk_doc_set_text(doc, "from.layout", remap->from);
    dcpk_doc_set_count(doc, "from.most_bytes", r->from_bytes);
    dcpk_doc_set_count(doc, "n_ranks", (uint64_t)r->n_ranks);
    dcpk_doc_set_count(doc, "n_tensors", r->n_tensors);
    dcpk_doc_set_count(doc, "tensor_bytes", r->tensor_bytes);
    dcpk_doc_set_text(doc, "to.layout", remap->to);
    dcpk_doc_set_count(doc, "to.most_bytes", r->to_bytes);
    dcpk_doc_set_count(doc, "version", 1);
    report_link(r, doc);
    dcpk_doc_line(doc, "  step   between ranks  within       time          GB/s      predicted     "
                       "limit     proof");
    dcpk_doc_table(doc, "steps",
                   &(struct dcpk_doc_table){.indent = 2, .fill = fill_steps, .context = r});
    report_remap_verdict(r, doc);
}

static dcpk_status print_remap(const struct remap *remap, struct dcpk_error *err)
{
    const struct dcpk_doc_style style = {.label_columns = 12};
    struct dcpk_doc doc;

    dcpk_doc_init(&doc, NAME, &style);
    report_remap(remap, &doc);
    return dcpk_print_doc(&doc, &(struct dcpk_print_options){.as_json = remap->as_json}, err);
}

/* ---- the work ---- */

static dcpk_status remap_work(struct remap *r, struct dcpk_error *err)
{
    struct dcpk_bar bar;

    r->options.env.progress = dcpk_bar_begin(&bar, "summing up the files", &r->verbosity);
    if (dcpk_remap_job_new(r->ckpt, &r->options, &r->job, err) == DCPK_OK)
        (void)dcpk_remap_job_run(r->job, &r->result, err);
    dcpk_bar_end(&bar);
    return err->status;
}

static int remap_run(struct remap *r, struct dcpk_error *err)
{
    struct dcpk_ranks *ranks = r->options.env.ranks;
    dcpk_status st = dcpk_cli_open(r->path, r->format, &r->verbosity, &r->ckpt, NULL, err);

    st = dcpk_ranks_agree(ranks, st, err);
    if (st == DCPK_OK)
        st = remap_work(r, err);
    if (st == DCPK_OK && dcpk_ranks_self(ranks) == 0) {
        dcpk_cli_notes(&r->verbosity, r->ckpt);
        st = print_remap(r, err);
    }
    (void)dcpk_ranks_agree(ranks, st, err);
    dcpk_remap_job_free(r->job);
    dcpk_checkpoint_close(r->ckpt);
    return r->result.ok ? DCPK_EXIT_OK : DCPK_EXIT_NO;
}

#define DCPK_OPT_STRUCT struct remap
static const struct dcpk_option option_rows[] = {
    DCPK_OPT_TEXT("from", "LAYOUT", from,
                  "the layout that loads IN: tp=T,pp=P,ep=E,dp=D,cp=C,etp=E,vpp=V,first=N,last=N "
                  "as in --target-mesh of convert (default of each: 1; of dp: as many replicas as "
                  "there are ranks for), or fsdp=N,tp=T,ep=E,hsdp=K,bucket=B as in --target-dp"),
    DCPK_OPT_TEXT("to", "LAYOUT", to, "the layout to remap to, and back from, written like --from"),
    DCPK_OPT_TEXT(
        "device", "NAME", device,
        "device that holds the shards: cpu (default), or cuda, one GPU for each rank of a machine"),
    DCPK_OPT_COUNT("ranks", "N", n_ranks,
                   "without mpirun: number of threads that act as ranks (default: the ranks of the "
                   "larger layout, at most 64)"),
    DCPK_OPT_TEXT("transport", "WAY", transport,
                  "direct: into the memory of other ranks; staged: through messages over nccl, mpi "
                  "or (between threads) local, or one of these by name; auto (default): direct if "
                  "possible, else staged"),
    DCPK_OPT_FLAG("check", options.checks,
                  "also compare fingerprints of sent and received data within each remap"),
    DCPK_OPT_FLAG("swiglu", swiglu, "fc1 holds gate and up rows (default: as args say)"),
    DCPK_OPT_FLAG("no-swiglu", no_swiglu, "fc1 is a single matrix"),
    DCPK_OPT_FLAG("weights-only", options.weights_only, "leave optimizer state out"),
    DCPK_OPT(DCPK_OPTION_SIZE, 0, "staging", "SIZE", uint64_t, options.staging_bytes,
             "memory for all messages of a rank (default: 512M)"),
    DCPK_OPT(DCPK_OPTION_SIZE, 0, "unit", "SIZE", uint64_t, options.unit_bytes,
             "ranks meet whenever each has received this many bytes (default: once, at the end)"),
    DCPK_OPT_COUNT("runs", "N", options.n_runs,
                   "number of runs of each remap; the best one counts (default: 3)"),
    DCPK_OPT_NUMBER("timeout", "SECONDS", timeout_seconds,
                    "limit of each wait for a device (default: 120, and 1 more for each GB)"),
    DCPK_OPT_NUMBER("link-rate", "GB/S", link_rate,
                    "bandwidth into a rank, for prediction and limit (default: measured before the "
                    "load, with a block from each rank to the next)"),
    /* --from is another thing here */
    DCPK_OPT_TEXT("format", "NAME", format, "read IN as this format (default: detected)"),
    DCPK_OPT_ITERATION(iteration), DCPK_OPT_JSON(as_json), DCPK_OPT_THREADS(options.env.n_threads),
    DCPK_OPT_MEMORY(options.env.memory_bytes), DCPK_OPT_VERBOSITY(verbosity), DCPK_OPT_END};

static int remap_main(void *values, const struct dcpk_cli_args *args, struct dcpk_error *err)
{
    struct remap *r = values;

    if (read_options(r, err) != DCPK_OK)
        return DCPK_EXIT_USAGE;
    r->path = args->words[0];
    return remap_run(r, err);
}

static struct remap values = {.verbosity = {.command = NAME}};
const struct dcpk_cli dcpk_cmd_remap = {
    .name = NAME,
    .usage = "--from LAYOUT --to LAYOUT [options] IN",
    .summary = "Load a checkpoint into the memory of ranks under one layout, remap it to the "
               "other layout and back, check every copy of every tensor against the files by "
               "its fingerprint after each step, and report the speed.",
    .options = option_rows,
    .everyday = "from to device runs check json",
    .values = &values,
    .env = &values.options.env,
    .example = "dcpkit remap --from tp=2 --to fsdp=2 checkpoints/run/iter_0000004",
    .n_args = {1, 1},
    .iteration = &values.iteration,
    .run = remap_main,
};
