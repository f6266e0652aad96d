/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_convert.c - dcpkit convert, and the subcommand named as Megatron's Python tool names it. */
#include "formats/formats.h"
#include "kernels/kernels.h"
#include "tools/bar.h"
#include "tools/convert_args.h"
#include "tools/convert_report.h"

/* Remarks on flags that are accepted because the Python tool has them. */
#define TARGETS "fsdp_dtensor, torch_dist or zarr"

static void remark(const struct dcpk_convert_args *a)
{
    if (a->oom_traceback)
        dcpk_cli_note(&a->voice, "--oom-traceback has no meaning here: no GPU memory is used");
    if (a->enable_msc)
        dcpk_cli_note(
            &a->voice,
            "--enable-msc has no meaning here: folders of a file system are read and written");
    if (a->rename_mtp && !a->like_inspector)
        dcpk_cli_note(
            &a->voice,
            "--rename-mtp-keys is not needed: both names of MTP's inner layer are written");
}

static dcpk_status check_paths(const struct dcpk_convert_args *a, struct dcpk_error *err)
{
    dcpk_status st = DCPK_OK;

    if (a->report_path != NULL)
        st = dcpk_check_file_path("report", a->report_path, err);
    if (st == DCPK_OK && a->hashes_path != NULL)
        st = dcpk_check_file_path("list of hashes", a->hashes_path, err);
    return st;
}

/* Plan, run, tell. */
static dcpk_status convert(const struct dcpk_convert_args *a,
                           const struct dcpk_convert_options *options, struct dcpk_error *err)
{
    struct dcpk_conversion c = {0};
    dcpk_status st = check_paths(a, err);

    if (st == DCPK_OK)
        st = dcpk_conversion_plan(&c, options, err);
    if (c.ckpt != NULL && dcpk_store_note(c.ckpt->store) != NULL)
        dcpk_cli_note(&a->voice, "%s", dcpk_store_note(c.ckpt->store));
    if (st == DCPK_OK && !a->dry_run)
        st = dcpk_conversion_run(&c, err);
    if (st == DCPK_OK && a->hashes_path != NULL && !a->dry_run)
        st = dcpk_file_replace(a->hashes_path, c.hashes.data, c.hashes.n_bytes, err);
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

static int run(struct dcpk_convert_args *a, const struct dcpk_format *to, const char *in,
               const char *out)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_convert_options options = {.formats = dcpk_formats,
                                           .open_file = dcpk_archive_opener,
                                           .to = to,
                                           .backend = dcpk_backends[0]};
    struct dcpk_convert_parsed parsed = {0};
    struct dcpk_bar bar;
    dcpk_status st = dcpk_convert_args_apply(a, in, out, &options, &parsed, &err);

    if (st == DCPK_OK) {
        remark(a);
        options.exec.progress = dcpk_bar_begin(&bar, "reading metadata", &a->voice);
        st = convert(a, &options, &err);
        dcpk_bar_end(&bar);
    }
    dcpk_convert_parsed_release(&parsed);
    return st == DCPK_OK ? DCPK_EXIT_OK : dcpk_cli_fail(a->voice.command, &err);
}

int dcpk_cmd_convert(int argc, char **argv)
{
    struct dcpk_convert_args a = {.voice = {.command = "convert"}};
    const struct dcpk_cli_option options[] = {
        {"to", 0, DCPK_CLI_TEXT, &a.to, "FORMAT",
         "format to write: fsdp_dtensor, torch_dist, zarr"},
        {"from", 0, DCPK_CLI_TEXT, &a.from, "FORMAT", "format to read (default: found by looking)"},
        DCPK_CONVERT_OPTIONS(a),
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
        return dcpk_cli_usage("convert", "--to says which format to write: " TARGETS);
    to = dcpk_format_find(a.to);
    if (to == NULL)
        return dcpk_cli_usage("convert", "no format is called '%s'; --to takes " TARGETS, a.to);
    return run(&a, to, args[0], args[1]);
}

int dcpk_cmd_convert_torch_dist(int argc, char **argv)
{
    static const char command[] = "convert-torch-dist-to-fsdp-dtensor";
    struct dcpk_convert_args a = {.from = "torch_dist", .voice = {.command = command}};
    const struct dcpk_cli_option options[] = {
        DCPK_CONVERT_OPTIONS(a),
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
    return run(&a, dcpk_format_find("fsdp_dtensor"), args[0], args[1]);
}
