/* SPDX-License-Identifier: Apache-2.0 */
/* inspect_work.c - reads what inspect and view report, and prints it. */

#include <inttypes.h>
#include <string.h>

#include "formats/formats.h"
#include "lib/base/regex.h"
#include "lib/exec/find_layout.h"
#include "lib/job/compare.h"
#include "lib/rules/rules.h"
#include "tools/bar.h"
#include "tools/cmd.h"
#include "tools/inspect.h"
#include "tools/print_doc.h"
#include "tools/run_args.h"

/* Selects the tensors and objects that --keys finds, in the arena. */
static dcpk_status choose(const struct dcpk_checkpoint *ckpt, const char *keys,
                          struct dcpk_arena *arena, struct dcpk_chosen *chosen,
                          struct dcpk_error *err)
{
    bool *tensors = dcpk_arena_array(arena, ckpt->n_tensors, sizeof *tensors, err);
    bool *objects = dcpk_arena_array(arena, ckpt->n_objects, sizeof *objects, err);
    struct dcpk_regex *regex = NULL;
    dcpk_status st = DCPK_OK;
    size_t n = 0;

    if (tensors == NULL || objects == NULL)
        st = err->status;
    if (st == DCPK_OK)
        st = dcpk_regex_new(keys, strlen(keys), &regex, err);
    for (size_t i = 0; i < ckpt->n_tensors && st == DCPK_OK; i++) {
        st = dcpk_regex_search(regex, ckpt->tensors[i].key, &tensors[i], err);
        n += st == DCPK_OK && tensors[i];
    }
    for (size_t i = 0; i < ckpt->n_objects && st == DCPK_OK; i++) {
        st = dcpk_regex_search(regex, ckpt->objects[i].key, &objects[i], err);
        n += st == DCPK_OK && objects[i];
    }
    dcpk_regex_free(regex);
    *chosen = (struct dcpk_chosen){tensors, objects};
    if (st == DCPK_OK && n == 0)
        st = dcpk_fail(err, DCPK_EUSAGE, "no key matches");
    if (st != DCPK_OK)
        dcpk_context(err, "--keys '%s'", keys);
    return st;
}

/* Layers of the chosen tensors that have them in their first axis, for a page. */
static size_t inspect_count_layers(const struct dcpk_inspection *in)
{
    size_t n = 0;

    for (size_t i = 0; i < in->ckpt->n_tensors && in->has_page; i++)
        if (dcpk_inspect_lists(in, i) && dcpk_inspect_is_stacked(&in->ckpt->tensors[i]))
            n += (size_t)in->ckpt->tensors[i].shape[0];
    return n;
}

/* The view of a layer of a stacked tensor. */
static dcpk_status view_layer(const struct dcpk_checkpoint *ckpt, const struct dcpk_layer_stats *of,
                              struct dcpk_arena *arena, struct dcpk_view *view,
                              struct dcpk_error *err)
{
    const struct dcpk_tensor *t = &ckpt->tensors[of->tensor];
    int64_t *shape = dcpk_arena_copy(arena, t->shape, (size_t)t->rank, sizeof *shape, err);
    struct dcpk_piece *piece = dcpk_arena_alloc(arena, sizeof *piece, err);
    struct dcpk_box from, to;

    if (shape == NULL || piece == NULL)
        return err->status;
    shape[0] = 1;
    dcpk_box_whole(shape, t->rank, &to);
    from = to;
    from.offset[0] = of->layer;
    *view = (struct dcpk_view){
        .dtype = t->dtype, .rank = t->rank, .shape = shape, .pieces = piece, .n_pieces = 1};
    return dcpk_piece_make(arena, (uint32_t)of->tensor, &from, &to, piece, err);
}

/* Views of the chosen tensors; number[i]: the tensor that view i is of. After them those of
 * layers. */
static dcpk_status make_views(const struct dcpk_inspection *in, struct dcpk_arena *arena,
                              struct dcpk_view *views, size_t *number,
                              struct dcpk_layer_stats *layers, struct dcpk_error *err)
{
    dcpk_status st = DCPK_OK;
    size_t n = 0, n_layers = 0;

    for (size_t i = 0; i < in->ckpt->n_tensors && st == DCPK_OK; i++)
        if (dcpk_inspect_lists(in, i)) {
            st = dcpk_view_stored(in->ckpt, (uint32_t)i, arena, &views[n], err);
            number[n++] = i;
        }
    for (size_t i = 0; i < in->ckpt->n_tensors && in->has_page; i++) {
        const struct dcpk_tensor *t = &in->ckpt->tensors[i];

        if (!dcpk_inspect_lists(in, i) || !dcpk_inspect_is_stacked(t))
            continue;
        for (int64_t l = 0; l < t->shape[0] && st == DCPK_OK; l++, n_layers++) {
            layers[n_layers] = (struct dcpk_layer_stats){.tensor = i, .layer = l};
            st = view_layer(in->ckpt, &layers[n_layers], arena, &views[n + n_layers], err);
        }
    }
    return st;
}

/* Statistics of every chosen tensor, in the arena. */
static dcpk_status survey(struct dcpk_checkpoint *ckpt, struct dcpk_inspection *in,
                          struct dcpk_inspect_request *r, struct dcpk_arena *arena,
                          struct dcpk_error *err)
{
    const size_t n_layers = inspect_count_layers(in);
    const size_t most = ckpt->n_tensors + n_layers;
    struct dcpk_view *views = dcpk_arena_array(arena, most, sizeof *views, err);
    struct dcpk_stats *made = dcpk_arena_array(arena, most, sizeof *made, err);
    struct dcpk_stats *all = dcpk_arena_array(arena, ckpt->n_tensors, sizeof *all, err);
    struct dcpk_layer_stats *layers = dcpk_arena_array(arena, n_layers, sizeof *layers, err);
    size_t *number = dcpk_arena_array(arena, ckpt->n_tensors, sizeof *number, err), n = 0;
    struct dcpk_exec *exec = NULL;
    struct dcpk_bar bar;
    dcpk_status st;

    if (views == NULL || made == NULL || all == NULL || layers == NULL || number == NULL)
        return err->status;
    for (size_t i = 0; i < ckpt->n_tensors; i++)
        n += dcpk_inspect_lists(in, i);
    st = make_views(in, arena, views, number, layers, err);
    r->env.progress = dcpk_bar_begin(&bar, "reading", &r->verbosity);
    if (st == DCPK_OK)
        st = dcpk_exec_new(ckpt, &r->env, &exec, err);
    if (st == DCPK_OK)
        st = dcpk_exec_stats_of(exec, views, n + n_layers, made, err);
    dcpk_bar_end(&bar);
    dcpk_exec_free(exec);
    if (st != DCPK_OK)
        return st;
    for (size_t i = 0; i < n; i++)
        all[number[i]] = made[i];
    for (size_t i = 0; i < n_layers; i++)
        layers[i].stats = made[n + i];
    in->stats = all;
    in->layers = layers;
    in->n_layers = n_layers;
    return DCPK_OK;
}

/* The exit code: 1 if the checkpoint holds NaN or Inf, where that was asked. */
static int find_code(const struct dcpk_inspect_request *r, const struct dcpk_inspection *in)
{
    struct dcpk_stats_findings found;

    if (!r->fails_nonfinite)
        return DCPK_EXIT_OK;
    dcpk_inspect_findings(in, &found);
    return found.n_not_finite > 0 ? DCPK_EXIT_NO : DCPK_EXIT_OK;
}

static dcpk_status print_inspection(const struct dcpk_inspection *in,
                                    const struct dcpk_inspect_request *r, struct dcpk_error *err)
{
    struct dcpk_doc doc;

    dcpk_doc_init(&doc, r->verbosity.command, &dcpk_inspect_style);
    dcpk_inspect_report(in, &doc);
    dcpk_cli_keep_private(in->ckpt);
    return dcpk_print_doc(&doc,
                          &(struct dcpk_print_options){.is_silent = r->is_silent,
                                                       .as_json = r->as_json,
                                                       .html = r->html,
                                                       .replaces_links = r->is_silent},
                          err);
}

/* Notes known faults of Megatron itself; they stop nothing. */
static void note_faults(struct dcpk_checkpoint *ckpt, const struct dcpk_inspection *in,
                        const struct dcpk_env *env)
{
    struct dcpk_error err = DCPK_ERROR_INIT;

    if (dcpk_rules_check_rows(in->state->args, &err) != DCPK_OK)
        dcpk_checkpoint_note(ckpt, "%s", err.text);
    dcpk_error_clear(&err);
    if (strcmp(in->state->optimizer_layout, "fully_reshardable") == 0 &&
        dcpk_look_at_masters(ckpt, env, &err) == DCPK_EMISMATCH &&
        (err.fixes & DCPK_FIX_REPAIR) != 0)
        dcpk_checkpoint_note(ckpt, "%s", err.text);
}

/* The document that configures a model, in the arena. A note holds why it cannot be read. */
static const struct dcpk_value *load_config(struct dcpk_checkpoint *ckpt, struct dcpk_arena *arena)
{
    const struct dcpk_format_mapping *mapping = ckpt->format->mapping;
    struct dcpk_error err = DCPK_ERROR_INIT;
    const struct dcpk_value *config = NULL;

    if (mapping == NULL || mapping->load_config == NULL)
        return NULL;
    if (mapping->load_config(ckpt, arena, &config, &err) != DCPK_OK)
        dcpk_checkpoint_note(ckpt, "%s", err.text);
    return config;
}

static dcpk_status inspect(struct dcpk_checkpoint *ckpt, const struct dcpk_run *run,
                           struct dcpk_inspect_request *r, int *code, struct dcpk_error *err)
{
    struct dcpk_arena *arena = dcpk_arena_new();
    struct dcpk_summary *summary = NULL;
    struct dcpk_run_state state;
    struct dcpk_saved_layout saved;
    struct dcpk_chosen chosen;
    struct dcpk_inspection in = {.ckpt = ckpt,
                                 .run = run,
                                 .list = &r->list,
                                 .state = &state,
                                 .saved = &saved,
                                 .iteration = run->iteration,
                                 .has_chunks = r->has_chunks,
                                 .is_tree = r->is_tree,
                                 .n_largest = r->n_largest,
                                 .has_page = r->html != NULL,
                                 .keys = r->keys};
    dcpk_status st = DCPK_OK;

    dcpk_run_state_load(ckpt, arena, &state);
    in.config = load_config(ckpt, arena);
    if (dcpk_value_as_int(state.iteration, &in.iteration) && run->iteration >= 0 &&
        in.iteration != run->iteration)
        dcpk_checkpoint_note(ckpt, "the folder says iteration %" PRId64 ", the checkpoint %" PRId64,
                             run->iteration, in.iteration);
    if (r->keys != NULL) {
        in.chosen = &chosen;
        st = choose(ckpt, r->keys, arena, &chosen, err);
    }
    if (st == DCPK_OK)
        st = dcpk_find_layout(ckpt, &saved, err);
    if (st == DCPK_OK)
        note_faults(ckpt, &in, &r->env);
    if (st == DCPK_OK)
        st = dcpk_summary_new(ckpt, in.chosen, &summary, err);
    in.summary = summary;
    if (st == DCPK_OK && r->has_stats)
        st = survey(ckpt, &in, r, arena, err);
    if (st == DCPK_OK)
        st = print_inspection(&in, r, err);
    if (st == DCPK_OK)
        *code = find_code(r, &in);
    dcpk_summary_free(summary);
    dcpk_arena_free(arena);
    return st;
}

static dcpk_status print_iterations(const char *path, const struct dcpk_inspect_request *r,
                                    struct dcpk_error *err)
{
    const struct dcpk_doc_table table = dcpk_inspect_iterations(&r->list);
    struct dcpk_doc doc;

    dcpk_doc_init(&doc, r->verbosity.command, &dcpk_inspect_style);
    dcpk_doc_row(&doc, "iterations", "%zu in %s", r->list.n, path);
    dcpk_doc_show(&doc, &table);
    dcpk_doc_line(&doc, "%s", "");
    return dcpk_print_doc(&doc, &(struct dcpk_print_options){.as_json = false}, err);
}

/*
 * The iterations of a run folder: in JSON, and as text where there are several, also when none of
 * them can be opened then. A folder that cannot be listed may still be opened.
 */
static void list_iterations(const char *path, struct dcpk_inspect_request *r)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    dcpk_status st;

    if (r->as_json)
        st = dcpk_run_list(path, dcpk_formats, &r->list, &err);
    else
        st = dcpk_run_list_names(path, dcpk_formats, &r->list, &err);
    if (st == DCPK_OK && !r->as_json && r->list.n > 1) {
        dcpk_run_list_release(&r->list);
        st = dcpk_run_list(path, dcpk_formats, &r->list, &err);
        if (st == DCPK_OK && !r->is_silent)
            st = print_iterations(path, r, &err);
    }
    if (st != DCPK_OK)
        dcpk_cli_note(&r->verbosity, "the iterations are not listed: %s", err.text);
}

int dcpk_inspect_path(void *request, const char *arg)
{
    struct dcpk_inspect_request *r = request;
    char path[DCPK_RUN_PATH_BYTES];
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_checkpoint *ckpt = NULL;
    struct dcpk_run run = {0};
    int code = DCPK_EXIT_OK;
    dcpk_status st = dcpk_choose_iteration(arg, r->iteration, path, &err);

    if (st == DCPK_OK)
        st = dcpk_check_page(r->html, arg, &err);
    if (st == DCPK_OK && r->iteration == NULL)
        list_iterations(arg, r);
    if (st == DCPK_OK)
        st = dcpk_cli_open(path, r->format, &r->verbosity, &ckpt, &run, &err);
    if (st == DCPK_OK)
        st = inspect(ckpt, &run, r, &code, &err);
    if (st == DCPK_OK)
        dcpk_cli_notes(&r->verbosity, ckpt);
    dcpk_run_list_release(&r->list);
    dcpk_run_release(&run);
    dcpk_checkpoint_close(ckpt);
    if (st != DCPK_OK)
        return dcpk_cli_fail(r->verbosity.command, &err);
    return code;
}
