/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_merge.c - dcpkit merge: the weighted sum of the weights of several checkpoints. */
#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "lib/base/alloc.h"
#include "lib/exec/ranks.h"
#include "lib/job/merge.h"
#include "tools/bar.h"
#include "tools/convert_job.h"
#include "tools/run_args.h"

#define NAME "merge"

struct request {
    struct dcpk_convert_args args;
    struct dcpk_merge_input inputs[DCPK_MAX_MERGED];
    char (*places)[DCPK_RUN_PATH_BYTES]; /* by input: the iteration's, owned */
    struct dcpk_env env;
    const char *out;
    uint64_t n_different;
};

/* "0.5,0.3,0.2": as many as there are checkpoints. */
static dcpk_status parse_weights(struct request *r, struct dcpk_error *err)
{
    const char *at = r->args.weights;
    size_t n = 0;

    for (bool more = true; more; n++) {
        char *end = NULL;
        double weight;

        errno = 0;
        weight = strtod(at, &end);
        if (end == at || errno != 0 || !(fabs(weight) <= (double)FLT_MAX) ||
            (*end != ',' && *end != '\0'))
            return dcpk_fail(err, DCPK_EUSAGE,
                             "--weights '%s' is not a list of numbers such as 0.5,0.5",
                             r->args.weights);
        if (n < r->args.n_inputs)
            r->inputs[n].weight = weight;
        more = *end == ',';
        at = end + 1;
    }
    if (n != r->args.n_inputs)
        return dcpk_fail(err, DCPK_EUSAGE, "--weights has %zu numbers for %zu checkpoints", n,
                         r->args.n_inputs);
    return DCPK_OK;
}

/* --iteration holds for each checkpoint. */
static dcpk_status choose_inputs(struct request *r, struct dcpk_error *err)
{
    r->places = dcpk_alloc_array(r->args.n_inputs, sizeof *r->places, err);
    if (r->places == NULL)
        return err->status;
    for (size_t i = 0; i < r->args.n_inputs; i++) {
        if (dcpk_choose_iteration(r->args.inputs[i], r->args.iteration, r->places[i], err))
            return err->status;
        r->inputs[i].path = r->places[i];
    }
    return DCPK_OK;
}

/* The format to write: the named one, else the first checkpoint's. That of names on DCP must be
 * named: the sandbox lets the command write before they are read, and takes DCP for a run. */
static dcpk_status find_merge_target(struct request *r, const struct dcpk_format **to,
                                     struct dcpk_error *err)
{
    struct dcpk_checkpoint *first = NULL;

    if (r->args.to != NULL) {
        if (dcpk_cli_find_target(r->args.to, to, err))
            return err->status;
    } else {
        if (dcpk_cli_open(r->inputs[0].path, NULL, &r->args.verbosity, &first, NULL, err))
            return err->status;
        *to = first->format;
        dcpk_checkpoint_close(first);
        if ((*to)->is_model && (*to)->container != NULL && dcpk_format_is_target(*to))
            return dcpk_fail(err, DCPK_EUSAGE, "'%s' is %s: give --to %s, or another format",
                             r->args.inputs[0], (*to)->name, (*to)->name);
    }
    return dcpk_convert_choose_layout(&r->args, to, err);
}

static dcpk_status check_inputs_apart(const struct request *r, struct dcpk_error *err)
{
    for (size_t i = 0; i < r->args.n_inputs; i++)
        if (dcpk_run_check_apart(r->args.inputs[i], r->out, err) != DCPK_OK)
            return err->status;
    return DCPK_OK;
}

/* Write the sum as a conversion whose source it is. */
static dcpk_status write_sum(struct request *r, const struct dcpk_merge *merge,
                             struct dcpk_convert_options *options, struct dcpk_bar *bar,
                             struct dcpk_error *err)
{
    for (size_t i = 0; i < r->args.n_inputs; i++)
        dcpk_cli_keep_private(dcpk_merge_input(merge, i));
    options->env = dcpk_merge_env(merge);
    options->in = NULL;
    options->opened = dcpk_merge_checkpoint(merge);
    options->given =
        (struct dcpk_open_options){.decisions = options->given.decisions & DCPK_ACCEPT_GTP};
    options->flags |= DCPK_CONVERT_WEIGHTS_ONLY;
    options->flags &= ~(unsigned)DCPK_CONVERT_CHECK_INPUT; /* of the inputs, not of the sum */
    return dcpk_convert_job(&r->args, options, bar, err);
}

/* Collective. */
static dcpk_status merge(struct request *r, struct dcpk_convert_options *options,
                         struct dcpk_error *err)
{
    struct dcpk_merge_options what = {.inputs = r->inputs,
                                      .n_inputs = r->args.n_inputs,
                                      .weights_only = r->args.weights_only,
                                      .given = options->given,
                                      .vocab_size = options->rules.vocab.size};
    struct dcpk_merge *made = NULL;
    struct dcpk_bar bar;
    dcpk_status st;

    options->env.progress = dcpk_bar_begin(&bar, "reading metadata", &r->args.verbosity);
    what.env = options->env;
    st = dcpk_ranks_agree(r->env.ranks, dcpk_merge_open(&what, &made, &r->n_different, err), err);
    if (st == DCPK_OK && !r->args.dry_run)
        st = dcpk_ranks_agree(r->env.ranks, dcpk_merge_prove(made, err), err);
    if (st == DCPK_OK && !r->args.dry_run && (options->flags & DCPK_CONVERT_CHECK_INPUT) != 0)
        st = dcpk_ranks_agree(r->env.ranks, dcpk_merge_check_inputs(made, err), err);
    if (st == DCPK_OK)
        st = write_sum(r, made, options, &bar, err);
    dcpk_bar_end(&bar);
    dcpk_merge_close(made);
    return st;
}

static int run_merge(struct request *r)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_convert_options options = {.env = r->env};
    struct dcpk_convert_parsed parsed = {0};
    dcpk_status st = DCPK_OK;
    int code;

    if (parse_weights(r, &err) || choose_inputs(r, &err) || check_inputs_apart(r, &err) ||
        find_merge_target(r, &options.to, &err))
        st = err.status;
    if (st == DCPK_OK)
        st = dcpk_convert_args_apply(&r->args, r->out, &options, &parsed, &err);
    st = dcpk_ranks_agree(r->env.ranks, st, &err);
    if (st == DCPK_OK)
        st = merge(r, &options, &err);
    dcpk_convert_parsed_release(&parsed);
    dcpk_free(r->places);
    if (st == DCPK_OK)
        return DCPK_EXIT_OK;
    code = dcpk_cli_fail(NAME, &err);
    return r->n_different > 0 ? DCPK_EXIT_NO : code;
}

static int merge_main(void *values, const struct dcpk_cli_args *args, struct dcpk_error *err)
{
    struct request *r = values;

    (void)err;
    if (r->args.weights == NULL)
        return dcpk_cli_usage(NAME, "--weights is missing: give a number for each checkpoint");
    r->args.inputs = args->words;
    r->args.n_inputs = (size_t)args->n - 1;
    r->out = args->words[args->n - 1];
    return run_merge(r);
}

static struct request values = {.args.verbosity = {.command = NAME}};
const struct dcpk_cli dcpk_cmd_merge = {
    .name = NAME,
    .usage = "--weights W,W,... [options] A B... OUT",
    .summary =
        "Write the weighted sum of the weights of 2 to 64 checkpoints of one model, in any "
        "formats: W * A + W * B + ... in float32, from masters if there are any, rounded once. "
        "Args are A's; optimizer state is left out. Exit 1: the models differ.",
    .options = dcpk_merge_rows,
    .everyday = "weights to dtype verify dry-run force resume report",
    .values = &values,
    .env = &values.env,
    .example = "dcpkit merge --weights 0.5,0.5 checkpoints/run checkpoints/fsdp converted",
    .n_args = {3, DCPK_MAX_MERGED + 1},
    .paths = DCPK_CLI_LAST_IS_OUT,
    .is_dry = &values.args.dry_run,
    .to = &values.args.to,
    .run = merge_main,
};
