/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_compare.c - dcpkit compare-two-checkpoint: do two checkpoints hold the same. */
#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/base/alloc.h"
#include "lib/exec/ranks.h"
#include "lib/job/compare.h"
#include "lib/job/give_options.h"
#include "lib/job/settings_compare.h"
#include "lib/knobs/migrate.h"
#include "tools/args_from.h"
#include "tools/bar.h"
#include "tools/cmd.h"
#include "tools/compare_report.h"
#include "tools/print_doc.h"
#include "tools/run_args.h"
#include "tools/target_args.h"

#define NAME "compare-two-checkpoint"

/* The request to compare. */
struct request {
    const char *iteration, *args_path, *maps, *config, *html; /* args_path: --args-from */
    bool as_json, enable_msc, of_args, of_delta;              /* of_delta: for help */
    int top;
    int64_t bucket_elems;
    struct dcpk_tolerance tolerance; /* negative: not given */
    struct dcpk_compare_options options;
    struct dcpk_verbosity verbosity;
    struct dcpk_checkpoint *ckpt[2]; /* open until the answer is printed, which has keys of them */
    struct dcpk_args_from from;
};

/* Checks, on rank 0, that a page can be written, apart from both. */
static dcpk_status check_page(const struct request *r, char *const *paths, struct dcpk_error *err)
{
    if (dcpk_ranks_self(r->options.env.ranks) != 0)
        return DCPK_OK;
    if (dcpk_check_page(r->html, paths[0], err) || dcpk_check_page(r->html, paths[1], err))
        return err->status;
    return DCPK_OK;
}

/* Prints the answer; rank 0 writes the page. */
static dcpk_status print_answer(const struct request *r, const struct dcpk_compare_report *report,
                                const struct dcpk_compare_shown *shown, struct dcpk_error *err)
{
    struct dcpk_print_options way = {.as_json = r->as_json};
    struct dcpk_doc doc;

    if (dcpk_ranks_self(r->options.env.ranks) == 0)
        way.html = r->html;
    dcpk_doc_init(&doc, NAME, &dcpk_compare_style);
    dcpk_compare_report_put(report, shown, &doc);
    return dcpk_print_doc(&doc, &way, err);
}

/* Args only where the checkpoint has none. */
static dcpk_status give_options(const struct request *r, struct dcpk_checkpoint *ckpt,
                                const struct dcpk_value *args, struct dcpk_error *err)
{
    struct dcpk_open_options given = {
        .family.maps = r->maps, .family.config = r->config, .bucket_elems = r->bucket_elems};

    if (args != NULL && dcpk_lacks_args(ckpt))
        given.args = args;
    return dcpk_checkpoint_give(ckpt, &given, err);
}

#define MAX_BYTES (UINT64_C(4) << 20)

/* True if it is a mapping of sections and names. A script or a list of flags is not, except by
 * chance, and then with blanks in its names. */
static bool is_config(const struct dcpk_value *v)
{
    if (v == NULL || v->kind != DCPK_V_DICT)
        return false;
    for (size_t i = 0; i < v->n; i++) {
        const char *name = dcpk_value_as_str(v->as.pairs[i].key);

        if (name == NULL || name[strcspn(name, " \t\n")] != '\0' || *name == '-')
            return false;
    }
    return true;
}

/* A configuration; else flags, where there are some. */
static dcpk_status settings_parse(const char *path, const char *text, size_t n_bytes,
                                  struct dcpk_args_from *from, struct dcpk_run_settings *settings,
                                  struct dcpk_error *err)
{
    struct dcpk_settings flags = {.arena = from->arena};
    struct dcpk_error of_config = DCPK_ERROR_INIT;

    if (strlen(text) < n_bytes)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "'%s' is not text: it has a NUL", path);
    if (text[strspn(text, " \t\r\n")] == '\0')
        return dcpk_fail(err, DCPK_EFORMAT, "'%s' is empty", path);
    *settings = (struct dcpk_run_settings){.form = DCPK_FORM_CONFIG};
    if (dcpk_config_parse(text, n_bytes, from, &of_config) == DCPK_OK && is_config(from->args)) {
        settings->all = from->args;
        return DCPK_OK;
    }
    settings->form = DCPK_FORM_FLAGS;
    if (dcpk_flags_list(text, n_bytes, &flags, err) != DCPK_OK)
        return err->status;
    if (flags.n > 0)
        return dcpk_flags_to_dict(&flags, &settings->all, err);
    if (of_config.status == DCPK_OK)
        dcpk_fail(&of_config, DCPK_EUNSUPPORTED, "it is not a mapping of names to values");
    return dcpk_fail(err, of_config.status,
                     "'%s' is not a command line (it has no flags), a configuration (%s) or a "
                     "checkpoint's folder",
                     path, of_config.text);
}

static dcpk_status settings_read(const char *path, const struct dcpk_verbosity *verbosity,
                                 struct dcpk_args_from *from, struct dcpk_run_settings *settings,
                                 struct dcpk_error *err)
{
    struct stat there;
    char *text = NULL;
    size_t n;

    if (stat(path, &there) != 0)
        return dcpk_fail_errno(err, errno, "'%s'", path);
    if (S_ISDIR(there.st_mode)) {
        if (dcpk_args_from_checkpoint(path, verbosity, from, err) == DCPK_OK &&
            dcpk_cli_keep_folder_private(path, err) == DCPK_OK)
            *settings =
                (struct dcpk_run_settings){DCPK_FORM_CHECKPOINT, dcpk_value_attrs(from->args)};
        return err->status;
    }
    from->arena = dcpk_arena_new();
    if (dcpk_cli_read_file(path, MAX_BYTES, &text, &n, err) == DCPK_OK)
        (void)settings_parse(path, text, n, from, settings, err);
    dcpk_free(text);
    return err->status;
}

/*
 * Read the settings of two runs, and compare them (dcpk_compare_settings). paths: of checkpoints,
 * files with flags, configurations. Errors: DCPK_EFORMAT for an empty file; DCPK_EUNSUPPORTED for
 * one that is neither, or a checkpoint without args; those of reading.
 */
static dcpk_status compare_settings(const char *const paths[2],
                                    const struct dcpk_verbosity *verbosity,
                                    const struct dcpk_compare_options *options,
                                    struct dcpk_compare_report *report, struct dcpk_error *err)
{
    struct dcpk_args_from from[2] = {{0}, {0}};
    struct dcpk_run_settings side[2];

    if (settings_read(paths[0], verbosity, &from[0], &side[0], err) == DCPK_OK &&
        settings_read(paths[1], verbosity, &from[1], &side[1], err) == DCPK_OK)
        (void)dcpk_compare_settings(side, options, report, err);
    dcpk_args_from_release(&from[0]);
    dcpk_args_from_release(&from[1]);
    return err->status;
}

/* Compares two checkpoints. paths: of their iterations. */
static dcpk_status compare_checkpoints(struct request *r, const char *const paths[2],
                                       struct dcpk_compare_report *report, struct dcpk_error *err)
{
    struct dcpk_bar bar;

    if (dcpk_cli_open(paths[0], NULL, &r->verbosity, &r->ckpt[0], NULL, err) ||
        dcpk_cli_open(paths[1], NULL, &r->verbosity, &r->ckpt[1], NULL, err) ||
        dcpk_args_from_read(r->args_path, &r->verbosity, &r->from, err) ||
        give_options(r, r->ckpt[0], r->from.args, err) ||
        give_options(r, r->ckpt[1], r->from.args, err))
        return err->status;
    r->options.env.progress = dcpk_bar_begin(&bar, "comparing", &r->verbosity);
    (void)dcpk_compare_checkpoints(r->ckpt[0], r->ckpt[1], &r->options, report, err);
    dcpk_bar_end(&bar);
    if (err->status != DCPK_OK)
        return err->status;
    dcpk_cli_keep_private(r->ckpt[0]);
    dcpk_cli_keep_private(r->ckpt[1]);
    return DCPK_OK;
}

/* A file of settings has no iterations. */
static dcpk_status choose_side(const struct request *r, const char *path,
                               char chosen[DCPK_RUN_PATH_BYTES], struct dcpk_error *err)
{
    const char *iteration = r->iteration;
    struct stat there;

    if (r->of_args && stat(path, &there) == 0 && !S_ISDIR(there.st_mode))
        iteration = NULL;
    return dcpk_choose_iteration(path, iteration, chosen, err);
}

/* paths: of the two. */
static int compare(struct request *r, char *const *paths, struct dcpk_error *err)
{
    struct dcpk_compare_report report = {0};
    char left[DCPK_RUN_PATH_BYTES], right[DCPK_RUN_PATH_BYTES];
    const char *const chosen[2] = {left, right};
    bool is_equal;
    dcpk_status st = choose_side(r, paths[0], left, err);

    if (st == DCPK_OK)
        st = choose_side(r, paths[1], right, err);
    if (st == DCPK_OK)
        st = check_page(r, paths, err);
    if (st == DCPK_OK && r->of_args)
        st = compare_settings(chosen, &r->verbosity, &r->options, &report, err);
    else if (st == DCPK_OK)
        st = compare_checkpoints(r, chosen, &report, err);
    st = dcpk_ranks_agree(r->options.env.ranks, st, err);
    if (st == DCPK_OK)
        st = print_answer(
            r, &report,
            &(struct dcpk_compare_shown){left, right, (uint64_t)r->top, r->html != NULL}, err);
    (void)dcpk_ranks_agree(r->options.env.ranks, st, err);
    is_equal = report.equal;
    dcpk_compare_release(&report);
    dcpk_checkpoint_close(r->ckpt[1]);
    dcpk_checkpoint_close(r->ckpt[0]);
    dcpk_args_from_release(&r->from);
    return is_equal ? DCPK_EXIT_OK : DCPK_EXIT_NO;
}

/* Refuses what --args has no use for. */
static dcpk_status check_args_alone(const struct request *r, struct dcpk_error *err)
{
    const struct dcpk_compare_options *o = &r->options;

    if (r->of_args &&
        (r->tolerance.rtol >= 0 || r->tolerance.atol >= 0 || o->casts || o->weights_only ||
         o->tensors_only || o->as_stored || o->vocab_size > 0 || r->bucket_elems > 0 ||
         r->args_path != NULL || r->maps != NULL || r->config != NULL))
        return dcpk_fail(err, DCPK_EUSAGE,
                         "--args compares no tensors: it takes --strict, --top, --iteration, "
                         "--json and --html, and no other option of a comparison");
    return DCPK_OK;
}

/* One of --rtol and --atol that is given alone has 0 for the other. */
static void take_tolerance(struct dcpk_compare_options *options, struct dcpk_tolerance *tolerance)
{
    if (tolerance->rtol < 0 && tolerance->atol < 0)
        return;
    tolerance->rtol = fmax(tolerance->rtol, 0);
    tolerance->atol = fmax(tolerance->atol, 0);
    options->tolerance = tolerance;
    options->casts = true;
}

#define DCPK_OPT_STRUCT struct request
static const struct dcpk_option option_rows[] = {
    DCPK_OPT_NUMBER("rtol", "X", tolerance.rtol,
                    "elements are equal when |a - b| <= atol + rtol * |b|, as numpy.isclose "
                    "(default: bit for bit; 0 when --atol is given)"),
    DCPK_OPT_NUMBER("atol", "X", tolerance.atol, "see --rtol (0 when --rtol is given)"),
    DCPK_OPT_FLAG("cast", options.casts,
                  "compare floats of two dtypes in the narrower one (default: they differ, except "
                  "with --rtol or --atol)"),
    DCPK_OPT_FLAG("weights-only", options.weights_only, "leave optimizer state out"),
    DCPK_OPT_FLAG("tensors-only", options.tensors_only,
                  "leave args, scheduler, parameter groups, RNG states and other objects out"),
    DCPK_OPT_FLAG(
        "args", of_args,
        "compare the settings of two runs and nothing else, those of Megatron-FSDP first; A and B "
        "are each a checkpoint, for its args, a file with flags of Megatron (a shell script, or "
        "flags alone), or a configuration of Megatron-Bridge (YAML or JSON)"),
    DCPK_OPT_FLAG("delta", of_delta,
                  "write what changed from A to B to a folder OUT after them: 'dcpkit delta'"),
    DCPK_OPT_FLAG(
        "as-stored", options.as_stored,
        "key by key as stored (default: by the model's parameters, where both hold a model)"),
    DCPK_OPT_COUNT("top", "N", top,
                   "list the N tensors that differ most, by relative difference, and N differences "
                   "of each other kind (default: 20; --json lists all)"),
    DCPK_OPT_FLAG("strict", options.strict,
                  "also count differences that only the parallel layout makes (sizes of the mesh, "
                  "padding of the vocabulary, RNG states of other ranks), values that only one of "
                  "the formats keeps (classes in args, defaults in parameter groups), and all "
                  "outside the model: extra states, other objects, files next to the tensors"),
    DCPK_OPT_LENGTH("vocab-size", "N", options.vocab_size,
                    "tokens of the vocabulary, if its padding differs (default: args.vocab_size)"),
    DCPK_OPT_LENGTH("ddp-bucket-size", "N", bucket_elems,
                    "elements of a DDP bucket in the runs that wrote A and B, as for 'convert'"),
    DCPK_OPT_ITERATION(iteration),
    DCPK_OPT_ARGS_FROM(args_path),
    DCPK_OPT_CHECKPOINT("maps", "DIR", maps,
                        "maps of Hugging Face model families, in addition to the built-in ones"),
    DCPK_OPT_HF_CONFIG(config),
    DCPK_OPT_MSC(enable_msc),
    DCPK_OPT_JSON(as_json),
    DCPK_OPT_HTML(html),
    DCPK_OPT_THREADS(options.env.n_threads),
    DCPK_OPT_MEMORY(options.env.memory_bytes),
    DCPK_OPT_VERBOSITY(verbosity),
    DCPK_OPT_END};

static int compare_main(void *values, const struct dcpk_cli_args *args, struct dcpk_error *err)
{
    struct request *r = values;

    if (check_args_alone(r, err) != DCPK_OK)
        return DCPK_EXIT_USAGE;
    if (r->enable_msc)
        dcpk_cli_note_msc(&r->verbosity);
    take_tolerance(&r->options, &r->tolerance);
    return compare(r, args->words, err);
}

static bool asks_delta(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--delta") == 0)
            return true;
    return false;
}

/* --delta is for another command. */
static int compare_begin(const struct dcpk_cli *cli, int argc, char **argv)
{
    if (!asks_delta(argc, argv))
        return dcpk_cli_perform(cli, argc, argv);
    if (cli->env->ranks != NULL)
        return dcpk_cli_usage(NAME, "--delta works in one process");
    return dcpk_cli_main(&dcpk_cmd_delta, argc, argv, NULL);
}

static struct request values = {.top = 20, .tolerance = {-1, -1}, .verbosity = {.command = NAME}};
const struct dcpk_cli dcpk_cmd_compare = {
    .name = NAME,
    .usage = "[options] A B",
    .summary = "Compare two checkpoints across formats, layouts and names; exit 0: they hold "
               "the same, 1: they differ.",
    .options = option_rows,
    .everyday = "rtol cast weights-only tensors-only args top strict json html",
    .values = &values,
    .env = &values.options.env,
    .example = "dcpkit compare-two-checkpoint checkpoints/run checkpoints/run/iter_0000004",
    .n_args = {2, 2},
    .begin = compare_begin,
    .run = compare_main,
};
