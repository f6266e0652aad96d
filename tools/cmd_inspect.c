/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_inspect.c - dcpkit inspect: what a checkpoint is and what it holds. */
#include <limits.h>
#include <string.h>

#include "tools/inspect.h"
#include "tools/options.h"
#include "tools/run_args.h"

#define NAME "inspect"

#define DCPK_OPT_STRUCT struct dcpk_inspect_request
static const struct dcpk_option option_rows[] = {
    DCPK_OPT_FLAG("chunks", has_chunks,
                  "list every chunk: its box, file, offset and length in bytes"),
    DCPK_OPT_COUNT("top", "N", n_largest,
                   "list the N largest tensors alone, by the bytes of all keys of a row"),
    DCPK_OPT_TEXT("sort", "BY", sort, "order of tensors: key (default) or size, the largest first"),
    DCPK_OPT_FLAG("tree", is_tree,
                  "list names in levels, with the bytes of each, instead of whole keys"),
    DCPK_OPT_FLAG("stats", has_stats,
                  "read all tensors and print, of each, min, max, mean and L2 norm of the finite "
                  "elements and how many are NaN, infinite or zero, the worst tensor first"),
    DCPK_OPT_FLAG("fail-nonfinite", fails_nonfinite,
                  "like --stats; exit 1 if there is a NaN or an infinity"),
    DCPK_OPT_TEXT("keys", "RE", keys,
                  "list and read only keys that match RE (as Python's re.search); totals still "
                  "count all keys"),
    DCPK_OPT_FLAG("not-ignore-param-to-group-meta", lists_meta,
                  "accepted, without effect: keys of param_to_group_meta are always listed"),
    DCPK_OPT_MSC(enable_msc),
    DCPK_OPT_FORMAT(format),
    DCPK_OPT_ITERATION(iteration),
    DCPK_OPT_JSON(as_json),
    DCPK_OPT_HTML(html),
    DCPK_OPT_THREADS(env.n_threads),
    DCPK_OPT_MEMORY(env.memory_bytes),
    DCPK_OPT_VERBOSITY(verbosity),
    DCPK_OPT_END};

static int inspect_main(void *values, const struct dcpk_cli_args *args, struct dcpk_error *err)
{
    struct dcpk_inspect_request *r = values;

    (void)err;
    if (r->sort != NULL && strcmp(r->sort, "size") != 0 && strcmp(r->sort, "key") != 0)
        return dcpk_cli_usage(NAME, "--sort '%s' is neither key nor size", r->sort);
    if (r->sort != NULL && strcmp(r->sort, "size") == 0 && r->n_largest == 0)
        r->n_largest = INT_MAX;
    if (r->is_tree && r->n_largest > 0)
        return dcpk_cli_usage(NAME, "--tree is in order of keys: leave --top and --sort out");
    r->has_stats = r->has_stats || r->fails_nonfinite;
    if (r->enable_msc)
        dcpk_cli_note_msc(&r->verbosity);
    if (args->n > 1 && (r->as_json || r->html != NULL))
        return dcpk_cli_usage(NAME, "--json and --html take one DIR, not %d", args->n);
    return dcpk_cli_each(args, dcpk_inspect_path, r);
}

static struct dcpk_inspect_request values = {.verbosity = {.command = NAME}};
static char here[] = ".";
const struct dcpk_cli dcpk_cmd_inspect = {
    .name = NAME,
    .usage = "[options] [DIR...]",
    .summary = "Describe a checkpoint: format, iteration, layout, model, tensors, sizes. DIR: "
               "the current folder where none is given.",
    .options = option_rows,
    .everyday = "top sort tree chunks stats keys iteration json html",
    .values = &values,
    .env = &values.env,
    .example = "dcpkit inspect --chunks checkpoints/run/iter_0000004",
    .n_args = {0, INT_MAX},
    .by_default = here,
    .paths = DCPK_CLI_LISTS_RUN,
    .run = inspect_main,
};
