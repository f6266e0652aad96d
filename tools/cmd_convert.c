/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_convert.c - dcpkit convert, and the subcommand named as Megatron's Python tool names it. */

#include "tools/bar.h"
#include "tools/convert_job.h"

struct conversion {
    struct dcpk_convert_args args; /* first: the tables of options fill it */
    struct dcpk_env env;
};

/* Remarks on flags that are accepted because the Python tool has them. */
static void remark(const struct dcpk_convert_args *a)
{
    if (a->oom_traceback)
        dcpk_cli_note(&a->verbosity, "--oom-traceback has no effect: no GPU memory is used");
    if (a->enable_msc)
        dcpk_cli_note_msc(&a->verbosity);
    if (a->rename_mtp && !a->like_inspector)
        dcpk_cli_note(
            &a->verbosity,
            "--rename-mtp-keys is not needed: both names of MTP's inner layer are written");
}

static dcpk_status run_convert(struct conversion *c, const struct dcpk_format *to,
                               struct dcpk_error *err)
{
    struct dcpk_convert_options options = {.to = to, .env = c->env};
    struct dcpk_convert_args *a = &c->args;
    struct dcpk_convert_parsed parsed = {0};
    struct dcpk_bar bar;
    dcpk_status st = dcpk_convert_args_apply(a, a->inputs[1], &options, &parsed, err);

    st = dcpk_ranks_agree(c->env.ranks, st,
                          err); /* a file that it reads may be missing on one node */
    if (st == DCPK_OK) {
        remark(a);
        options.env.progress = dcpk_bar_begin(&bar, "reading metadata", &a->verbosity);
        st = dcpk_convert_job(a, &options, &bar, err);
    }
    dcpk_convert_parsed_release(&parsed);
    return st;
}

/* Before the sandbox, which asks what is written. */
static dcpk_status convert_settle(void *values, struct dcpk_error *err)
{
    struct conversion *c = values;

    (void)err;
    if (c->args.to == NULL && c->args.lora.merges)
        c->args.to = "huggingface";
    return DCPK_OK;
}

static int convert_main(void *values, const struct dcpk_cli_args *args, struct dcpk_error *err)
{
    struct conversion *c = values;
    const struct dcpk_format *to;

    if (c->args.to == NULL)
        return dcpk_cli_usage("convert", "give the target format as --to: " DCPK_CLI_TARGETS);
    c->args.inputs = args->words;
    c->args.n_inputs = 1;
    if (c->args.base != NULL)
        c->args.lora.adapter = args->words[0];
    if (dcpk_cli_find_target(c->args.to, &to, err) == DCPK_OK &&
        dcpk_convert_choose_layout(&c->args, &to, err) == DCPK_OK)
        (void)run_convert(c, to, err);
    return DCPK_EXIT_OK;
}

static struct conversion convert_values = {.args.verbosity = {.command = "convert"}};
const struct dcpk_cli dcpk_cmd_convert = {
    .name = "convert",
    .usage = "--to FORMAT [options] IN OUT",
    .summary = "Convert a checkpoint to another format. IN is a run folder, an iteration's "
               "folder, or an archive of one; it is never changed. OUT is a run folder, a "
               "folder iter_NNNNNNN, or a name that ends in .tar.",
    .options = dcpk_convert_rows,
    .everyday = "to verify dry-run force resume weights-only target-mesh hf-assets merge-lora base "
                "report html",
    .values = &convert_values,
    .env = &convert_values.env,
    .example = "dcpkit convert --to fsdp_dtensor sample-data/torch_dist_c_dense_tp2pp2 converted",
    .n_args = {2, 2},
    .paths = DCPK_CLI_LAST_IS_OUT,
    .is_dry = &convert_values.args.dry_run,
    .to = &convert_values.args.to,
    .settle = convert_settle,
    .run = convert_main,
};

/* Runs a command that names both formats, with the flags of Megatron's Python tool. */
static int named_main(void *values, const struct dcpk_cli_args *args, struct dcpk_error *err)
{
    const struct conversion *c = values;
    const int code = convert_main(values, args, err);

    if ((err->fixes & DCPK_FIX_DETECT) != 0) /* it has no --from */
        dcpk_append(err, "; 'dcpkit convert --to %s' takes every format", c->args.to);
    err->fixes &= ~(unsigned)DCPK_FIX_DETECT;
    return code;
}

#define TO_FSDP "convert-torch-dist-to-fsdp-dtensor"
static struct conversion to_fsdp_values = {
    .args = {.from = "torch_dist", .to = "fsdp_dtensor", .verbosity = {.command = TO_FSDP}}};
const struct dcpk_cli dcpk_cmd_convert_torch_dist = {
    .name = TO_FSDP,
    .usage = "[options] IN OUT",
    .summary = "Convert torch_dist to fsdp_dtensor with the flags of Megatron's Python tool.",
    .options = dcpk_named_convert_rows,
    .everyday = "swiglu verify dry-run force resume report quiet",
    .values = &to_fsdp_values,
    .env = &to_fsdp_values.env,
    .example = "dcpkit " TO_FSDP " --swiglu sample-data/torch_dist_c_dense_tp2pp2 converted",
    .n_args = {2, 2},
    .paths = DCPK_CLI_LAST_IS_OUT,
    .is_dry = &to_fsdp_values.args.dry_run,
    .run = named_main,
};

#define TO_TORCH_DIST "convert-fsdp-dtensor-to-torch-dist"
static struct conversion to_torch_dist_values = {
    .args = {.from = "fsdp_dtensor", .to = "torch_dist", .verbosity = {.command = TO_TORCH_DIST}}};
const struct dcpk_cli dcpk_cmd_convert_fsdp_dtensor = {
    .name = TO_TORCH_DIST,
    .usage = "[options] IN OUT",
    .summary = "Convert fsdp_dtensor to torch_dist: the reverse of " TO_FSDP ".",
    .options = dcpk_named_convert_rows,
    .everyday = "swiglu verify dry-run force resume report quiet",
    .values = &to_torch_dist_values,
    .env = &to_torch_dist_values.env,
    .example = "dcpkit " TO_TORCH_DIST " checkpoints/fsdp converted",
    .n_args = {2, 2},
    .paths = DCPK_CLI_LAST_IS_OUT,
    .is_dry = &to_torch_dist_values.args.dry_run,
    .run = named_main,
};
