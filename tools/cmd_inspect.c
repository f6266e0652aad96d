/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_inspect.c - dcpkit inspect: what a checkpoint is and what it holds. */
#include <inttypes.h>

#include "kernels/kernels.h"
#include "lib/exec/find_layout.h"
#include "tools/bar.h"
#include "tools/cmd.h"
#include "tools/inspect.h"

#define NAME "inspect"

/* What the command line asks for. */
struct request {
    bool as_json, has_chunks, has_stats;
    struct dcpk_voice voice;
    struct dcpk_exec_options options; /* of --stats */
};

/* Statistics of every stored tensor, in the arena. */
static dcpk_status survey(struct dcpk_checkpoint *ckpt, struct request *r, struct dcpk_arena *arena,
                          const struct dcpk_stats **stats, struct dcpk_error *err)
{
    struct dcpk_view *views = dcpk_arena_array(arena, ckpt->n_tensors, sizeof *views, err);
    struct dcpk_stats *made = dcpk_arena_array(arena, ckpt->n_tensors, sizeof *made, err);
    struct dcpk_exec *exec = NULL;
    struct dcpk_bar bar;
    dcpk_status st = views == NULL || made == NULL ? err->status : DCPK_OK;

    for (size_t i = 0; i < ckpt->n_tensors && st == DCPK_OK; i++)
        st = dcpk_view_stored(ckpt, (uint32_t)i, arena, &views[i], err);
    r->options.progress = dcpk_bar_begin(&bar, "reading", &r->voice);
    if (st == DCPK_OK)
        st = dcpk_exec_new(ckpt, dcpk_backends[0], &r->options, &exec, err);
    if (st == DCPK_OK)
        st = dcpk_exec_stats_of(exec, views, ckpt->n_tensors, made, err);
    dcpk_bar_end(&bar);
    dcpk_exec_free(exec);
    *stats = made;
    return st;
}

static dcpk_status inspect(struct dcpk_checkpoint *ckpt, const struct dcpk_run *run,
                           struct request *r, struct dcpk_error *err)
{
    struct dcpk_arena *arena = dcpk_arena_new(0, err);
    struct dcpk_summary *summary = NULL;
    struct dcpk_run_state state;
    struct dcpk_saved_layout saved;
    struct dcpk_inspection in = {.ckpt = ckpt,
                                 .run = run,
                                 .state = &state,
                                 .saved = &saved,
                                 .iteration = run->iteration,
                                 .has_chunks = r->has_chunks};
    dcpk_status st;

    if (arena == NULL)
        return err->status;
    dcpk_run_state_load(ckpt, arena, &state);
    if (dcpk_value_as_int(state.iteration, &in.iteration) && run->iteration >= 0 &&
        in.iteration != run->iteration)
        dcpk_checkpoint_note(ckpt, "the folder says iteration %" PRId64 ", the checkpoint %" PRId64,
                             run->iteration, in.iteration);
    st = dcpk_find_layout(ckpt, &saved, err);
    if (st == DCPK_OK)
        st = dcpk_summary_new(ckpt, &summary, err);
    in.summary = summary;
    if (st == DCPK_OK && r->has_stats)
        st = survey(ckpt, r, arena, &in.stats, err);
    if (st == DCPK_OK)
        st = r->as_json ? dcpk_inspect_print_json(&in, err) : dcpk_inspect_print(&in, err);
    dcpk_summary_free(summary);
    dcpk_arena_free(arena);
    return st;
}

int dcpk_cmd_inspect(int argc, char **argv)
{
    struct request r = {.voice = {.command = NAME}};
    const char *format = NULL;
    bool lists_meta = false, enable_msc = false; /* of Megatron's Python tool */
    const struct dcpk_cli_option rows[] = {
        {"chunks", 0, DCPK_CLI_FLAG, &r.has_chunks, NULL,
         "list every chunk: its box, file, offset and length in bytes"},
        {"stats", 0, DCPK_CLI_FLAG, &r.has_stats, NULL,
         "read all tensors: min, max, mean and L2 norm of the finite elements of each, and how "
         "many are NaN, infinite or zero"},
        {"not-ignore-param-to-group-meta", 0, DCPK_CLI_FLAG, &lists_meta, NULL,
         "accepted: keys of param_to_group_meta are always listed here"},
        DCPK_CLI_MSC(enable_msc),
        DCPK_CLI_FORMAT(format),
        DCPK_CLI_JSON(r.as_json),
        DCPK_CLI_THREADS(r.options.n_threads),
        DCPK_CLI_MEMORY(r.options.memory_bytes),
        DCPK_CLI_VOICE(r.voice),
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
    if (enable_msc)
        dcpk_cli_note_msc(&r.voice);
    st = dcpk_cli_open(args[0], format, &r.voice, &ckpt, &run, &err);
    if (st == DCPK_OK)
        st = inspect(ckpt, &run, &r, &err);
    if (st == DCPK_OK)
        dcpk_cli_notes(&r.voice, ckpt);
    dcpk_run_release(&run);
    dcpk_checkpoint_close(ckpt);
    return st == DCPK_OK ? DCPK_EXIT_OK : dcpk_cli_fail(NAME, &err);
}
