/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_check.c - dcpkit check: will it load. */
#include <string.h>

#include "kernels/kernels.h"
#include "lib/exec/finite.h"
#include "lib/job/verdict.h"
#include "tools/args_from.h"
#include "tools/bar.h"
#include "tools/check_report.h"
#include "tools/cmd.h"
#include "tools/target_args.h"

#define NAME "check"

struct check {
    const char *path, *format, *mesh, *fsdp_version, *args_path;
    bool as_json, finite, lists_all, no_optimizer, no_rng, finetune;
    struct dcpk_voice voice;
    struct dcpk_exec_options exec;
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

    c->exec.progress = dcpk_bar_begin(&bar, "reading", &c->voice);
    st = dcpk_exec_new(c->ckpt, &c->exec, &exec, &err);
    if (st == DCPK_OK)
        st = dcpk_exec_find_nonfinite(exec, &n_bad, place, &err);
    dcpk_bar_end(&bar);
    dcpk_exec_free(exec);
    if (st == DCPK_OK && n_bad > 0)
        st = dcpk_fail(&err, DCPK_EMISMATCH, "%llu tensors hold NaN or Inf, the first place: %s",
                       (unsigned long long)n_bad, place);
    dcpk_checks_add(&c->checks, "finite", st, &err, "no tensor holds NaN or Inf");
}

static int report(struct check *c)
{
    struct dcpk_check_report r = {.folder = c->run.folder,
                                  .ckpt = c->ckpt,
                                  .check = &c->answer,
                                  .checks = &c->checks,
                                  .lists_all = c->lists_all};
    struct dcpk_error err = DCPK_ERROR_INIT;
    dcpk_status st;

    dcpk_check_report_fill(&r);
    if (c->finite)
        check_finite(c);
    dcpk_cli_notes(&c->voice, c->ckpt);
    if (dcpk_cli_interrupted())
        st = dcpk_fail(&err, DCPK_ECANCELLED, "stopped on request");
    else if (c->as_json)
        st = dcpk_check_report_json(&r, &err);
    else
        st = dcpk_check_report_print(&r, &err);
    return st == DCPK_OK ? dcpk_checks_exit_code(&c->checks) : dcpk_cli_fail(NAME, &err);
}

static int check(struct check *c)
{
    struct dcpk_holding holding = {.format = NULL};
    struct dcpk_args_from from = {0};
    struct dcpk_error err = DCPK_ERROR_INIT;
    dcpk_status st = dcpk_cli_open(c->path, c->format, &c->voice, &c->ckpt, &c->run, &err);
    int code;

    if (st == DCPK_OK)
        st = dcpk_args_from_read(c->args_path, &c->voice, &from, &err);
    if (st == DCPK_OK) {
        c->ckpt->told_args = from.args;
        dcpk_checks_structure(&c->checks, c->ckpt);
        dcpk_holding_of_checkpoint(&holding, c->ckpt);
        if (c->run.iteration == DCPK_ITERATION_RELEASE) /* a run begins with it, as by --finetune */
            c->options.flags |= (unsigned)DCPK_LOADING_FINETUNE;
        st = dcpk_check_run(&holding, &c->options, &c->answer, &err);
        if (st != DCPK_OK)
            dcpk_context(&err, "'%s'", c->run.folder);
    }
    code = st == DCPK_OK ? report(c) : dcpk_cli_fail(NAME, &err);
    dcpk_holding_release(&holding);
    dcpk_verdict_release(&c->answer);
    dcpk_checkpoint_close(c->ckpt);
    dcpk_run_release(&c->run);
    dcpk_args_from_release(&from);
    return code;
}

int dcpk_cmd_check(int argc, char **argv)
{
    struct check c = {.voice = {.command = NAME}, .exec = {.device = dcpk_devices[0]}};
    const struct dcpk_cli_option rows[] = {
        {"loads-in", 0, DCPK_CLI_TEXT, &c.options.release, "RELEASE",
         "core-0.15 to core-0.19, main (default: the release that args show)"},
        {"as", 0, DCPK_CLI_TEXT, &c.format, "FORMAT",
         "torch_dist, fsdp_dtensor, zarr (default: found by looking)"},
        {"impl", 0, DCPK_CLI_TEXT, &c.options.impl, "te|local",
         "layers of Transformer Engine or Megatron's own (default: args.transformer_impl)"},
        {"mesh", 0, DCPK_CLI_TEXT, &c.mesh, "DIMS",
         "the run that loads: tp=T,pp=P,ep=E,dp=D,cp=C (default: the run that saved)"},
        {"optimizer", 0, DCPK_CLI_TEXT, &c.options.adam, "te|torch",
         "whose Adam the run has (default: by the fields of its groups, else te)"},
        {"no-load-optim", 0, DCPK_CLI_FLAG, &c.no_optimizer, NULL,
         "the run loads no optimizer state"},
        {"no-load-rng", 0, DCPK_CLI_FLAG, &c.no_rng, NULL, "the run loads no RNG state"},
        {"finetune", 0, DCPK_CLI_FLAG, &c.finetune, NULL, "the run loads neither"},
        {"megatron-fsdp-version", 0, DCPK_CLI_TEXT, &c.fsdp_version, "1|2",
         "of the run that loads fsdp_dtensor (default: args.megatron_fsdp_version, else 1)"},
        {"finite", 0, DCPK_CLI_FLAG, &c.finite, NULL,
         "look for NaN and Inf as well, which reads every tensor"},
        {"all", 0, DCPK_CLI_FLAG, &c.lists_all, NULL, "list every key that is missing"},
        DCPK_CLI_ARGS_FROM(c.args_path),
        DCPK_CLI_JSON(c.as_json),
        DCPK_CLI_THREADS(c.exec.n_threads),
        DCPK_CLI_MEMORY(c.exec.memory_bytes),
        DCPK_CLI_VOICE(c.voice),
    };
    const struct dcpk_cli cli = {
        .name = NAME,
        .usage = "[options] DIR",
        .summary = "Say whether a release of Megatron loads a checkpoint: every key, shape and "
                   "object that its loader asks for, by args, and the structure of the folder.",
        .options = rows,
        .n_options = sizeof rows / sizeof *rows,
        .example = "dcpkit check --loads-in core-0.19 sample-data/torch_dist_c_dense_tp2pp2",
        .min_args = 1,
        .max_args = 1,
    };
    struct dcpk_error err = DCPK_ERROR_INIT;
    char **args;
    int n_args;
    const int code = dcpk_cli_parse(&cli, argc, argv, &args, &n_args);

    if (code >= 0)
        return code;
    if (c.mesh != NULL && dcpk_mesh_parse("--mesh", c.mesh, &c.options.mesh, &err) != DCPK_OK)
        return dcpk_cli_fail(NAME, &err);
    c.options.flags = (c.no_optimizer ? (unsigned)DCPK_LOADING_NO_OPTIMIZER : 0U) |
                      (c.no_rng ? (unsigned)DCPK_LOADING_NO_RNG : 0U) |
                      (c.finetune ? (unsigned)DCPK_LOADING_FINETUNE : 0U);
    if (c.fsdp_version != NULL && strcmp(c.fsdp_version, "1") != 0 &&
        strcmp(c.fsdp_version, "2") != 0) {
        dcpk_fail(&err, DCPK_EUSAGE, "--megatron-fsdp-version '%s' is neither 1 nor 2",
                  c.fsdp_version);
        return dcpk_cli_fail(NAME, &err);
    }
    if (c.fsdp_version != NULL)
        c.options.flags |= *c.fsdp_version == '2' ? DCPK_LOADING_FSDP_V2 : DCPK_LOADING_FSDP_V1;
    c.path = args[0];
    return check(&c);
}
