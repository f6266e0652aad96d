/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_convert.c - dcpkit convert, and the subcommand named as Megatron's Python tool names it. */
#include <string.h>

#include "formats/formats.h"
#include "kernels/kernels.h"
#include "lib/base/alloc.h"
#include "lib/base/text.h"
#include "tools/cmd.h"
#include "tools/convert_report.h"

#define MAX_MODULES   64
#define MAX_MAP_BYTES (UINT64_C(1) << 30)

/* What the command line says. */
struct arguments {
    const char *from, *to, *impl, *modules, *map_path, *report_path, *model_prefix, *state_prefix;
    bool swiglu, no_swiglu, weights_only, like_inspector, rename_mtp, dry_run, force, json,
        progress;
    bool oom_traceback, enable_msc; /* of the Python tool; without meaning here */
    int n_threads;
    uint64_t memory_bytes;
};

/* The parts of --swiglu-modules a,b. */
struct modules {
    char *text;
    const char *list[MAX_MODULES];
    size_t n;
};

#define COMMON_OPTIONS(a)                                                                          \
    {"swiglu",    0,    DCPK_CLI_FLAG,                                                             \
     &(a).swiglu, NULL, "fc1 holds gate and up rows (default: as the checkpoint's args say)"},     \
        {"no-swiglu", 0, DCPK_CLI_FLAG, &(a).no_swiglu, NULL, "fc1 is a single matrix"},           \
        {"swiglu-modules", 0,     DCPK_CLI_TEXT,                                                   \
         &(a).modules,     "A,B", "only fc1 of these modules holds gate and up rows"},             \
        {"param-to-param-group-map-json",                                                          \
         0,                                                                                        \
         DCPK_CLI_TEXT,                                                                            \
         &(a).map_path,                                                                            \
         "FILE",                                                                                   \
         "parameter groups as Megatron dumped them (default: derived by Megatron's rule)"},        \
        {"output-model-weight-prefix",                                                             \
         0,                                                                                        \
         DCPK_CLI_TEXT,                                                                            \
         &(a).model_prefix,                                                                        \
         "P",                                                                                      \
         "prefix of weight keys (default: model.module)"},                                         \
        {"output-optimizer-state-prefix",                                                          \
         0,                                                                                        \
         DCPK_CLI_TEXT,                                                                            \
         &(a).state_prefix,                                                                        \
         "P",                                                                                      \
         "prefix of optimizer keys (default: optimizer.state.module.module.module;\n"              \
         "fp32 runs one module less)"},                                                            \
        {"rename-mtp-keys",                                                                        \
         0,                                                                                        \
         DCPK_CLI_FLAG,                                                                            \
         &(a).rename_mtp,                                                                          \
         NULL,                                                                                     \
         "with --like-megatron-inspector: name MTP's inner layer mtp_model_layer\n"                \
         "(otherwise both names are written)"},                                                    \
        {"like-megatron-inspector",                                                                \
         0,                                                                                        \
         DCPK_CLI_FLAG,                                                                            \
         &(a).like_inspector,                                                                      \
         NULL,                                                                                     \
         "write key for key what Megatron's Python tool writes, where it works"},                  \
        {"target-impl",                                                                            \
         0,                                                                                        \
         DCPK_CLI_TEXT,                                                                            \
         &(a).impl,                                                                                \
         "any|te|local",                                                                           \
         "spelling of the target run's names (default: any, all of them as aliases)"},             \
        {"weights-only", 0, DCPK_CLI_FLAG, &(a).weights_only, NULL, "leave the optimizer out"},    \
        {"force", 0, DCPK_CLI_FLAG, &(a).force, NULL, "replace an output that exists"},            \
        {"dry-run", 0, DCPK_CLI_FLAG, &(a).dry_run, NULL, "print the plan, write nothing"},        \
        {"report",         0,      DCPK_CLI_TEXT,                                                  \
         &(a).report_path, "FILE", "write the report with every key as JSON"},                     \
        DCPK_CLI_JSON((a).json), DCPK_CLI_THREADS((a).n_threads),                                  \
        DCPK_CLI_MEMORY((a).memory_bytes), DCPK_CLI_PROGRESS((a).progress)

static dcpk_status parse_impl(const char *text, enum dcpk_impl *impl, struct dcpk_error *err)
{
    static const char *const names[] = {
        [DCPK_IMPL_ANY] = "any", [DCPK_IMPL_TE] = "te", [DCPK_IMPL_LOCAL] = "local"};

    *impl = DCPK_IMPL_ANY;
    for (int i = 0; text != NULL && i < 3; i++)
        if (strcmp(text, names[i]) == 0) {
            *impl = (enum dcpk_impl)i;
            return DCPK_OK;
        }
    return text == NULL
               ? DCPK_OK
               : dcpk_fail(err, DCPK_EUSAGE, "--target-impl '%s' is none of any, te, local", text);
}

static dcpk_status split_modules(const char *text, struct modules *m, struct dcpk_error *err)
{
    char *rest;

    m->text = dcpk_alloc(strlen(text) + 1, err);
    if (m->text == NULL)
        return err->status;
    memcpy(m->text, text, strlen(text) + 1);
    rest = m->text;
    for (char *name; (name = strsep(&rest, ",")) != NULL;) {
        if (*name == '\0')
            continue;
        if (m->n == MAX_MODULES)
            return dcpk_fail(err, DCPK_EUSAGE, "--swiglu-modules names more than %d modules",
                             MAX_MODULES);
        m->list[m->n++] = name;
    }
    return DCPK_OK;
}

/* Read the file at `path` whole; owned by the caller. */
static dcpk_status read_file(const char *path, char **text, size_t *n, struct dcpk_error *err)
{
    const char *slash = strrchr(path, '/'), *name = slash == NULL ? path : slash + 1;
    char *folder = dcpk_alloc(strlen(path) + 2, err);
    struct dcpk_store *store = NULL;
    struct dcpk_source *source;
    dcpk_status st;

    if (folder == NULL)
        return err->status;
    if (slash == NULL)
        folder[0] = '.';
    else
        memcpy(folder, path, (size_t)(slash - path) + 1);
    st = dcpk_store_open(folder, &store, err);
    if (st == DCPK_OK)
        st = dcpk_store_find(store, name, &source, err);
    if (st == DCPK_OK)
        st = dcpk_source_slurp(source, MAX_MAP_BYTES, text, n, err);
    dcpk_store_close(store);
    dcpk_free(folder);
    return st;
}

/* Remarks on flags that are accepted because the Python tool has them. */
static void remark(const char *command, const struct arguments *a)
{
    if (a->oom_traceback)
        dcpk_cli_note(command, "--oom-traceback has no meaning here: no GPU memory is used");
    if (a->enable_msc)
        dcpk_cli_note(
            command,
            "--enable-msc has no meaning here: folders of a file system are read and written");
    if (a->rename_mtp && !a->like_inspector)
        dcpk_cli_note(
            command,
            "--rename-mtp-keys is not needed: both names of MTP's inner layer are written");
}

static dcpk_status check_arguments(const struct arguments *a, const char *in, const char *out,
                                   struct dcpk_error *err)
{
    if (dcpk_starts_with(in, "msc://") || dcpk_starts_with(out, "msc://"))
        return dcpk_fail(err, DCPK_EUSAGE,
                         "'%s' is a Multi-Storage Client URL: this program reads and writes "
                         "folders; mount the storage or "
                         "copy the checkpoint",
                         dcpk_starts_with(in, "msc://") ? in : out);
    if (a->swiglu && a->no_swiglu)
        return dcpk_fail(err, DCPK_EUSAGE, "--swiglu and --no-swiglu exclude each other");
    if (a->no_swiglu && a->modules != NULL)
        return dcpk_fail(err, DCPK_EUSAGE, "--no-swiglu and --swiglu-modules exclude each other");
    if (a->like_inspector && (a->weights_only || a->impl != NULL))
        return dcpk_fail(err, DCPK_EUSAGE,
                         "--like-megatron-inspector excludes --weights-only and --target-impl");
    return DCPK_OK;
}

/* Plan, run, tell. */
static dcpk_status convert(const struct arguments *a, const struct dcpk_convert_options *options,
                           struct dcpk_error *err)
{
    struct dcpk_conversion c = {0};
    dcpk_status st = dcpk_conversion_plan(&c, options, err);

    if (st == DCPK_OK && !a->dry_run)
        st = dcpk_conversion_run(&c, err);
    if (st == DCPK_OK && a->report_path != NULL)
        st = dcpk_write_conversion(&c, a->report_path, err);
    if (st == DCPK_OK && a->json)
        st = dcpk_write_conversion(&c, NULL, err);
    if (st == DCPK_OK && !a->json) {
        dcpk_print_conversion(&c, a->dry_run);
        st = dcpk_cli_flush(err);
    }
    dcpk_conversion_free(&c);
    return st;
}

static int run(const char *command, struct arguments *a, const struct dcpk_format *to,
               const char *in, const char *out)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_convert_options options = {
        .formats = dcpk_formats,
        .from = a->from,
        .to = to,
        .backend = dcpk_backends[0],
        .in = in,
        .out = out,
        .exec = {.n_threads = a->n_threads, .memory_bytes = a->memory_bytes},
        .model_prefix = a->model_prefix,
        .state_prefix = a->state_prefix};
    struct modules modules = {0};
    struct dcpk_bar bar;
    char *map = NULL;
    size_t map_bytes = 0;
    dcpk_status st = check_arguments(a, in, out, &err);

    options.flags = (a->force ? DCPK_CONVERT_FORCE : 0u) |
                    (a->weights_only ? DCPK_CONVERT_WEIGHTS_ONLY : 0u) |
                    (a->like_inspector ? DCPK_CONVERT_LIKE_INSPECTOR : 0u) |
                    (a->rename_mtp ? DCPK_CONVERT_RENAME_MTP : 0u);
    options.rules.swiglu = a->swiglu || a->modules != NULL ? DCPK_SWIGLU_ON
                           : a->no_swiglu                  ? DCPK_SWIGLU_OFF
                                                           : DCPK_SWIGLU_AUTO;
    if (st == DCPK_OK)
        st = parse_impl(a->impl, &options.rules.impl, &err);
    if (st == DCPK_OK && a->modules != NULL) {
        st = split_modules(a->modules, &modules, &err);
        options.rules.swiglu_modules = modules.list;
        options.rules.n_swiglu_modules = modules.n;
    }
    if (st == DCPK_OK && a->map_path != NULL) {
        st = read_file(a->map_path, &map, &map_bytes, &err);
        options.rules.group_map = map;
        options.rules.group_map_bytes = map_bytes;
    }
    if (st == DCPK_OK) {
        remark(command, a);
        options.exec.progress = dcpk_bar_begin(&bar, "converting", a->progress);
        st = convert(a, &options, &err);
        dcpk_bar_end(&bar);
    }
    dcpk_free(map);
    dcpk_free(modules.text);
    return st == DCPK_OK ? DCPK_EXIT_OK : dcpk_cli_fail(command, &err);
}

int dcpk_cmd_convert(int argc, char **argv)
{
    struct arguments a = {0};
    const struct dcpk_cli_option options[] = {
        {"to", 0, DCPK_CLI_TEXT, &a.to, "FORMAT", "format to write: fsdp_dtensor"},
        {"from", 0, DCPK_CLI_TEXT, &a.from, "FORMAT", "format to read (default: found by looking)"},
        COMMON_OPTIONS(a),
    };
    const struct dcpk_cli cli = {
        "convert",
        "--to FORMAT [options] IN OUT",
        "Convert a checkpoint to another format; IN is never touched.",
        options,
        sizeof options / sizeof options[0],
        "dcpkit convert --to fsdp_dtensor sample-data/torch_dist_c_dense_tp2pp2 converted",
        2,
        2};
    const struct dcpk_format *to;
    char **args;
    int n_args, exit_code = dcpk_cli_parse(&cli, argc, argv, &args, &n_args);

    if (exit_code >= 0)
        return exit_code;
    if (a.to == NULL)
        return dcpk_cli_usage("convert", "--to says which format to write: fsdp_dtensor");
    to = dcpk_format_find(a.to);
    if (to == NULL)
        return dcpk_cli_usage("convert", "no format is called '%s'", a.to);
    return run("convert", &a, to, args[0], args[1]);
}

int dcpk_cmd_convert_torch_dist(int argc, char **argv)
{
    static const char command[] = "convert-torch-dist-to-fsdp-dtensor";
    struct arguments a = {.from = "torch_dist"};
    const struct dcpk_cli_option options[] = {
        COMMON_OPTIONS(a),
        {"oom-traceback", 0, DCPK_CLI_FLAG, &a.oom_traceback, NULL,
         "accepted, without meaning here"},
        {"enable-msc", 0, DCPK_CLI_FLAG, &a.enable_msc, NULL, "accepted, without meaning here"},
    };
    const struct dcpk_cli cli = {
        command,
        "[options] IN OUT",
        "Convert torch_dist to fsdp_dtensor with the flags of Megatron's Python tool.",
        options,
        sizeof options / sizeof options[0],
        "dcpkit convert-torch-dist-to-fsdp-dtensor --swiglu sample-data/torch_dist_c_dense_tp2pp2 "
        "converted",
        2,
        2};
    char **args;
    int n_args, exit_code = dcpk_cli_parse(&cli, argc, argv, &args, &n_args);

    if (exit_code >= 0)
        return exit_code;
    return run(command, &a, dcpk_format_find("fsdp_dtensor"), args[0], args[1]);
}
