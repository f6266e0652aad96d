/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_inspect.c - dcpkit inspect: what a checkpoint is and what it holds. */
#include <inttypes.h>

#include "tools/cmd.h"
#include "tools/inspect.h"

#define NAME "inspect"

static dcpk_status inspect(struct dcpk_checkpoint *ckpt, const struct dcpk_run *run, bool as_json,
                           bool has_chunks, struct dcpk_error *err)
{
    struct dcpk_arena *arena = dcpk_arena_new(0, err);
    struct dcpk_summary *summary = NULL;
    struct dcpk_run_state state;
    struct dcpk_inspection in = {ckpt, run, &state, NULL, run->iteration, has_chunks};
    dcpk_status st;

    if (arena == NULL)
        return err->status;
    dcpk_run_state_load(ckpt, arena, &state);
    if (dcpk_value_as_int(state.iteration, &in.iteration) && run->iteration >= 0 &&
        in.iteration != run->iteration)
        dcpk_checkpoint_note(ckpt, "the folder says iteration %" PRId64 ", the checkpoint %" PRId64,
                             run->iteration, in.iteration);
    st = dcpk_summary_new(ckpt, &summary, err);
    in.summary = summary;
    if (st == DCPK_OK)
        st = as_json ? dcpk_inspect_print_json(&in, err) : dcpk_inspect_print(&in, err);
    dcpk_summary_free(summary);
    dcpk_arena_free(arena);
    return st;
}

int dcpk_cmd_inspect(int argc, char **argv)
{
    bool as_json = false, has_chunks = false;
    const char *format = NULL;
    const struct dcpk_cli_option rows[] = {
        {"chunks", 0, DCPK_CLI_FLAG, &has_chunks, NULL,
         "list every chunk: its box, file, offset and length in bytes"},
        {"format", 0, DCPK_CLI_TEXT, &format, "NAME",
         "read DIR as this format (default: found by looking)"},
        DCPK_CLI_JSON(as_json),
    };
    const struct dcpk_cli cli = {
        .name = NAME,
        .usage = "[options] DIR",
        .summary = "Say what a checkpoint is: format, iteration, layout, model, tensors, sizes.",
        .options = rows,
        .n_options = sizeof rows / sizeof *rows,
        .example = "dcpkit inspect --chunks checkpoints/run/iter_0000004",
        .min_args = 1,
        .max_args = 1,
    };
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_checkpoint *ckpt = NULL;
    struct dcpk_run run = {0};
    char **args;
    int n_args;
    const int code = dcpk_cli_parse(&cli, argc, argv, &args, &n_args);
    dcpk_status st;

    if (code >= 0)
        return code;
    st = dcpk_cli_open(args[0], format, &ckpt, &run, &err);
    if (st == DCPK_OK)
        st = inspect(ckpt, &run, as_json, has_chunks, &err);
    if (st == DCPK_OK)
        dcpk_cli_notes(NAME, ckpt);
    dcpk_run_release(&run);
    dcpk_checkpoint_close(ckpt);
    return st == DCPK_OK ? DCPK_EXIT_OK : dcpk_cli_fail(NAME, &err);
}
