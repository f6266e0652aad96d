/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_check.c - dcpkit check: will it load. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/formats.h"
#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/exec/stats.h"
#include "lib/job/compare.h"
#include "lib/job/convert.h"
#include "lib/job/give_options.h"
#include "lib/job/verdict.h"
#include "lib/place/grid.h"
#include "tools/args_from.h"
#include "tools/bar.h"
#include "tools/check_report.h"
#include "tools/checks.h"
#include "tools/cmd.h"
#include "tools/print_doc.h"
#include "tools/run_args.h"
#include "tools/target_args.h"

#define NAME         "check"
#define TRANSFORMERS "transformers" /* the value of --loads-in that is not a release */
#define REMEDY_BYTES 4608

struct check {
    const char *path, *format, *mesh, *fsdp_version, *args_path, *config, *html;
    bool as_json, finite, lists_all, no_optimizer, no_rng, finetune;
    bool is_covered; /* by chunks, every tensor */
    struct dcpk_verbosity verbosity;
    struct dcpk_env env;
    struct dcpk_check_options options;
    struct dcpk_checkpoint *ckpt;
    struct dcpk_run run;
    struct dcpk_checks checks;
    struct dcpk_verdict answer;
};

/* The search for NaN and Inf reads every tensor. */
static void check_finite(struct check *c)
{
    char place[DCPK_PLACE_TEXT_BYTES];
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_exec *exec = NULL;
    struct dcpk_bar bar;
    uint64_t n_bad = 0;
    dcpk_status st;

    c->env.progress = dcpk_bar_begin(&bar, "reading", &c->verbosity);
    st = dcpk_exec_new(c->ckpt, &c->env, &exec, &err);
    if (st == DCPK_OK)
        st = dcpk_exec_find_nonfinite(exec, &n_bad, place, &err);
    dcpk_bar_end(&bar);
    dcpk_exec_free(exec);
    if (st == DCPK_OK && n_bad > 0)
        st = dcpk_fail(&err, DCPK_EMISMATCH, "%llu tensors hold NaN or Inf, first at: %s",
                       (unsigned long long)n_bad, place);
    dcpk_checks_add(&c->checks, "finite", st, &err, "no tensor holds NaN or Inf");
}

/* A resumed run would train masters that are not those of the weights. */
static void check_masters(struct check *c)
{
    const unsigned none = DCPK_LOADING_NO_OPTIMIZER | DCPK_LOADING_FINETUNE;
    struct dcpk_error err = DCPK_ERROR_INIT;

    if ((c->options.flags & none) == 0 && dcpk_look_at_masters(c->ckpt, &c->env, &err) != DCPK_OK)
        dcpk_checks_add(&c->checks, "values", err.status, &err, "%s", "");
}

static dcpk_status print_report(const struct check *c, const struct dcpk_check_report *r,
                                struct dcpk_error *err)
{
    struct dcpk_doc doc;

    dcpk_doc_init(&doc, NAME, &dcpk_checks_style);
    dcpk_check_report_put(r, &doc);
    dcpk_cli_keep_private(c->ckpt);
    return dcpk_print_doc(
        &doc, &(struct dcpk_print_options){.as_json = c->as_json, .html = c->html}, err);
}

/* ---- a model ---- */

/* Prints what a person should know of the model, but not of the folder that would be made. */
static void note_remarks(const struct dcpk_conversion *c, const struct dcpk_verbosity *verbosity)
{
    for (const struct dcpk_out_event *event = c->out->events; event != NULL; event = event->next)
        if (event->kind == DCPK_EVENT_NOTE && strcmp(event->key, "family") != 0 &&
            strcmp(event->key, "tokenizer") != 0)
            dcpk_cli_note(verbosity, "%s", event->text);
}

/* Adds the check of the class that loads the format: of config.json, or of an adapter. */
static void check_class(struct check *check, const char *name)
{
    const struct dcpk_format_mapping *mapping = check->ckpt->format->mapping;
    struct dcpk_error err = DCPK_ERROR_INIT;
    const char *found = NULL;

    if (mapping == NULL || mapping->check_class == NULL)
        return;
    if (mapping->check_class(check->ckpt, &found, &err) != DCPK_OK || found != NULL)
        dcpk_checks_add(&check->checks, name, err.status, &err, "%s", dcpk_text_or(found, ""));
}

/*
 * Adds the check "model". A model's folder must have the configuration and the tensors of its
 * family's map; otherwise every tensor that is missing, left or of another shape is named. A
 * checkpoint of a run does not load, and the check answers if such a folder can be made of it, with
 * notes. Reads metadata and small objects.
 */
static void check_model(struct check *check)
{
    struct dcpk_checkpoint *ckpt = check->ckpt;
    const bool is_folder = ckpt->format->is_model && ckpt->format->container == NULL;
    const char *to = is_folder ? "torch_dist" : "huggingface";
    const struct dcpk_convert_options options = {
        .env = check->env, .to = dcpk_format_find(to), .opened = ckpt};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_conversion c = {0};
    dcpk_status st;

    st = dcpk_conversion_plan(&c, &options, &err);
    if (st == DCPK_OK && !is_folder) {
        note_remarks(&c, &check->verbosity);
        st = dcpk_fail(&err, DCPK_EMISMATCH,
                       "it does not load as stored: 'dcpkit convert --to huggingface %s OUT' makes "
                       "%" PRIu64 " tensors of it; the family is %s",
                       dcpk_store_path(ckpt->store), c.totals.n_tensors, c.out->family);
    }
    if (st == DCPK_OK)
        dcpk_checks_add(&check->checks, "model", st, &err,
                        "the family is %s; its %zu tensors are what config.json asks for",
                        c.model->family, ckpt->n_tensors);
    else
        dcpk_checks_add(&check->checks, "model", st, &err, "%s", "");
    dcpk_conversion_free(&c);
}

/* True if a run of some release loads it, in part at least. */
static bool any_release_loads(const struct dcpk_verdict *verdict)
{
    unsigned r = 0;

    while (r < DCPK_N_RELEASES &&
           dcpk_verdict_loads(verdict, verdict->variants & dcpk_loaders_of((enum dcpk_release)r,
                                                                           (enum dcpk_release)r)) ==
               DCPK_LOADS_NOT)
        r++;
    return r < DCPK_N_RELEASES;
}

/*
 * Adds the check "model" of a format whose loaders' requests are not known: it answers if the
 * folder becomes one of torch_dist that a release loads, and which releases do. Reads metadata and
 * small objects.
 */
static void check_converted(struct check *check)
{
    const struct dcpk_convert_options options = {
        .env = check->env, .to = dcpk_format_find("torch_dist"), .opened = check->ckpt};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_conversion c = {0};
    const char *text = NULL;

    if (dcpk_conversion_plan(&c, &options, &err) == DCPK_OK) {
        note_remarks(&c, &check->verbosity);
        text = dcpk_verdict_sentence(&c.verdict, &err);
        if (text != NULL && !any_release_loads(&c.verdict))
            (void)dcpk_fail(&err, DCPK_EMISMATCH, "made torch_dist it loads in %s", text);
    }
    dcpk_checks_add(&check->checks, "model", err.status, &err,
                    "the requests of the loaders of %s are not known; 'dcpkit convert --to "
                    "torch_dist %s OUT' makes a folder that loads in %s",
                    check->ckpt->format->name, dcpk_store_path(check->ckpt->store),
                    dcpk_text_or(text, ""));
    dcpk_conversion_free(&c);
}

/* Conversions that mend a folder: where one to its own format does, no other one is tried. */
static const struct way {
    const char *to, *generation, *option;
} ways[] = {{"torch_dist", "B", " --target-generation B"}, {"fsdp_dtensor", NULL, ""}};

/* Finds how a run of the verdict's release would load the folder once it is converted. */
static enum dcpk_loads try_way(struct check *check, const struct way *way)
{
    const enum dcpk_release release = check->answer.release;
    const struct dcpk_convert_options options = {.env = check->env,
                                                 .to = dcpk_format_find(way->to),
                                                 .target.generation = way->generation,
                                                 .opened = check->ckpt};
    struct dcpk_error err = DCPK_ERROR_INIT;
    enum dcpk_loads loads = DCPK_LOADS_NOT;
    struct dcpk_conversion c = {0};

    if (dcpk_conversion_plan(&c, &options, &err) == DCPK_OK && c.verdict.arena != NULL)
        loads =
            dcpk_verdict_loads(&c.verdict, dcpk_loaders_of(release, release) & c.verdict.variants);
    dcpk_conversion_free(&c);
    return loads;
}

/*
 * The command that makes a folder of which the verdict's release loads more, planned to the end and
 * judged: "dcpkit convert ...", and what the run has to leave out. False: there is none. Reads
 * metadata and small objects.
 */
static bool find_remedy(struct check *check, char text[REMEDY_BYTES])
{
    enum dcpk_loads best = dcpk_verdict_loads(&check->answer, check->answer.loader);
    const struct way *found = NULL;

    for (int own = 1; own >= 0 && found == NULL; own--)
        for (size_t i = 0; i < DCPK_COUNT(ways) && best != DCPK_LOADS; i++) {
            enum dcpk_loads loads;

            if ((strcmp(ways[i].to, check->ckpt->format->name) == 0) != own)
                continue;
            loads = try_way(check, &ways[i]);
            if (loads >= best)
                continue;
            best = loads;
            found = &ways[i];
        }
    if (found == NULL)
        return false;
    snprintf(text, REMEDY_BYTES, "dcpkit convert --to %s%s %s OUT", found->to, found->option,
             dcpk_store_path(check->ckpt->store));
    if (best != DCPK_LOADS)
        snprintf(text + strlen(text), REMEDY_BYTES - strlen(text), "; load that with %s",
                 dcpk_loads_text(best));
    return true;
}

/* ---- the answer ---- */

/* A conversion makes a folder for the layers, the Adam and the mesh that args name. */
static bool is_plain(const struct dcpk_check_options *o)
{
    return o->impl == NULL && o->adam == NULL && o->mesh.tp == 0;
}

static int report_check(struct check *c, struct dcpk_error *err)
{
    struct dcpk_check_report r = {.folder = c->run.folder,
                                  .ckpt = c->ckpt,
                                  .check = &c->answer,
                                  .checks = &c->checks,
                                  .lists_all = c->lists_all};
    char remedy[REMEDY_BYTES];

    dcpk_check_report_fill(&r);
    check_masters(c);
    if (c->args_path == NULL && is_plain(&c->options) && find_remedy(c, remedy))
        r.remedy = remedy;
    if (c->finite)
        check_finite(c);
    if (!c->is_covered && c->answer.unknown == NULL) /* loaders are asked by keys and shapes */
        c->answer.unknown = "the chunks of a tensor do not cover it";
    dcpk_cli_notes(&c->verbosity, c->ckpt);
    if (dcpk_cli_interrupted())
        dcpk_fail(err, DCPK_ECANCELLED, "stopped on request");
    else
        (void)print_report(c, &r, err);
    return dcpk_checks_exit_code(&c->checks);
}

static bool is_for_transformers(const struct check *c)
{
    return c->options.release != NULL && strcmp(c->options.release, TRANSFORMERS) == 0;
}

/* A format that is read alone: the requests of its own loaders are not known. */
static bool is_read_only(const struct check *c)
{
    const struct dcpk_format *format = c->ckpt->format;

    return c->options.release == NULL && !format->is_model && format->mapping != NULL &&
           !dcpk_format_has_loaders(format);
}

/* A model's folder is for transformers, unless a release is asked for. */
static dcpk_status choose_loader(struct check *c, struct dcpk_error *err)
{
    if (c->options.release == NULL && c->ckpt->format->is_model)
        c->options.release = TRANSFORMERS;
    if (is_for_transformers(c) && c->html != NULL)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "--html cannot show --loads-in transformers: leave one of them out");
    if (is_read_only(c) && c->html != NULL)
        return dcpk_fail(err, DCPK_EUSAGE, "--html cannot show the check of %s: leave it out",
                         c->ckpt->format->name);
    return DCPK_OK;
}

/* The answer of a class of transformers, or what a conversion finds: there is no loader of
 * Megatron's to report. */
static int report_checks_alone(struct check *c, struct dcpk_error *err)
{
    if (is_read_only(c)) {
        check_converted(c);
        check_masters(c);
    } else if (dcpk_format_is_called(c->ckpt->format, "peft")) {
        check_class(c, "adapter");
    } else {
        check_class(c, "config");
        check_model(c);
    }
    if (c->finite)
        check_finite(c);
    dcpk_cli_notes(&c->verbosity, c->ckpt);
    (void)dcpk_checks_print(&c->checks, c->ckpt->format->name, NULL, c->as_json, err);
    return dcpk_checks_exit_code(&c->checks);
}

static int run_check(struct check *c, struct dcpk_error *err)
{
    struct dcpk_outcome outcomes[DCPK_N_VERIFY_CHECKS] = {0};
    struct dcpk_holding holding = {.format = NULL};
    struct dcpk_args_from from = {0};
    dcpk_status st = dcpk_check_page(c->html, c->path, err);
    int code = DCPK_EXIT_OK;

    if (st == DCPK_OK)
        st = dcpk_cli_open(c->path, c->format, &c->verbosity, &c->ckpt, &c->run, err);
    if (st == DCPK_OK)
        st = choose_loader(c, err);
    if (st == DCPK_OK)
        st = dcpk_args_from_read(c->args_path, &c->verbosity, &from, err);
    if (st == DCPK_OK)
        st = dcpk_checkpoint_give(
            c->ckpt, &(struct dcpk_open_options){.args = from.args, .family.config = c->config},
            err);
    if (st == DCPK_OK) {
        dcpk_verify_metadata(c->ckpt, outcomes);
        dcpk_checks_structure(&c->checks, c->ckpt, outcomes);
        c->is_covered = outcomes[DCPK_VERIFY_COVER].err.status == DCPK_OK;
    }
    if (st == DCPK_OK && !is_for_transformers(c) && !is_read_only(c)) {
        dcpk_holding_of_checkpoint(&holding, c->ckpt);
        if (c->run.iteration == DCPK_ITERATION_RELEASE) /* a run begins with it, as by --finetune */
            c->options.flags |= (unsigned)DCPK_LOADING_FINETUNE;
        st = dcpk_check_run(&holding, &c->options, &c->answer, err);
        if (st != DCPK_OK)
            dcpk_context(err, "'%s'", c->run.folder);
    }
    if (st == DCPK_OK && (is_for_transformers(c) || is_read_only(c)))
        code = report_checks_alone(c, err);
    else if (st == DCPK_OK)
        code = report_check(c, err);
    dcpk_holding_release(&holding);
    dcpk_verdict_release(&c->answer);
    dcpk_checkpoint_close(c->ckpt);
    dcpk_run_release(&c->run);
    dcpk_args_from_release(&from);
    return code;
}

#define DCPK_OPT_STRUCT struct check
static const struct dcpk_option option_rows[] = {
    DCPK_OPT_TEXT(
        "loads-in", "RELEASE", options.release,
        "core-0.15 to core-0.19, main-2026-08-22, main (since 2026-08-25) or transformers "
        "(default: the release that args show; of a Hugging Face folder transformers). "
        "transformers checks a Hugging Face folder by the map of its family; for another "
        "checkpoint it answers no and says what 'convert --to huggingface' would write, or why it "
        "cannot. Its --json is that of 'verify'"),
    DCPK_OPT_FORMAT(format),
    DCPK_OPT_TEXT(
        "impl", "te|local", options.impl,
        "layers of Transformer Engine or Megatron's own (default: args.transformer_impl)"),
    DCPK_OPT_TEXT("mesh", "DIMS", mesh,
                  "mesh of the run that loads: tp=T,pp=P,ep=E,dp=D,cp=C (default: that of the run "
                  "that saved)"),
    DCPK_OPT_TEXT(
        "optimizer", "te|torch", options.adam,
        "implementation of the run's Adam (default: by the fields of its parameter groups, or te)"),
    DCPK_OPT_FLAG("no-load-optim", no_optimizer, "the run loads no optimizer state"),
    DCPK_OPT_FLAG("no-load-rng", no_rng, "the run loads no RNG state"),
    DCPK_OPT_FLAG("finetune", finetune, "the run loads neither of them"),
    DCPK_OPT_TEXT("megatron-fsdp-version", "1|2", fsdp_version,
                  "version of Megatron-FSDP that loads fsdp_dtensor (default: "
                  "args.megatron_fsdp_version, or 1)"),
    DCPK_OPT_FLAG("finite", finite, "also look for NaN and Inf; this reads every tensor"),
    DCPK_OPT_FLAG("all", lists_all, "list every key that is missing"),
    DCPK_OPT_ARGS_FROM(args_path),
    DCPK_OPT_HF_CONFIG(config),
    DCPK_OPT_JSON(as_json),
    DCPK_OPT_HTML(html),
    DCPK_OPT_THREADS(env.n_threads),
    DCPK_OPT_MEMORY(env.memory_bytes),
    DCPK_OPT_VERBOSITY(verbosity),
    DCPK_OPT_END};

static int check_main(void *values, const struct dcpk_cli_args *args, struct dcpk_error *err)
{
    struct check *c = values;

    if (c->mesh != NULL && dcpk_grid_parse("--mesh", c->mesh, &c->options.mesh, err) != DCPK_OK)
        return DCPK_EXIT_USAGE;
    if (c->no_optimizer)
        c->options.flags |= DCPK_LOADING_NO_OPTIMIZER;
    if (c->no_rng)
        c->options.flags |= DCPK_LOADING_NO_RNG;
    if (c->finetune)
        c->options.flags |= DCPK_LOADING_FINETUNE;
    if (c->fsdp_version != NULL && strcmp(c->fsdp_version, "1") != 0 &&
        strcmp(c->fsdp_version, "2") != 0)
        return dcpk_cli_usage(NAME, "--megatron-fsdp-version '%s' is neither 1 nor 2",
                              c->fsdp_version);
    if (c->fsdp_version != NULL)
        c->options.flags |= *c->fsdp_version == '2' ? DCPK_LOADING_FSDP_V2 : DCPK_LOADING_FSDP_V1;
    c->path = args->words[0];
    return run_check(c, err);
}

static struct check values = {.verbosity = {.command = NAME}};
const struct dcpk_cli dcpk_cmd_check = {
    .name = NAME,
    .usage = "[options] DIR",
    .summary =
        "Check whether a release of Megatron loads a checkpoint: every key, shape and object "
        "that its loader asks for, computed from args, and the structure of the folder.",
    .options = option_rows,
    .everyday = "loads-in mesh optimizer args-from json html",
    .values = &values,
    .env = &values.env,
    .example = "dcpkit check --loads-in core-0.19 sample-data/torch_dist_c_dense_tp2pp2",
    .n_args = {1, 1},
    .run = check_main,
};
