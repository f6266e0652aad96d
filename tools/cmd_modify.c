/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_modify.c - dcpkit modify-state-dict: keys renamed, removed, cast. */
#include <inttypes.h>
#include <string.h>

#include "lib/base/json.h"
#include "lib/job/modify.h"
#include "lib/job/target.h"
#include "tools/bar.h"
#include "tools/check_report.h"
#include "tools/cmd.h"
#include "tools/run_args.h"

#define NAME "modify-state-dict"

/* The values of the options. */
struct request {
    struct dcpk_option_list edits;
    const char *iteration, *tracker;
    bool force, resume, dry_run, as_json, enable_msc;
    struct dcpk_verbosity verbosity;
    struct dcpk_modify_options options;
};

/* "key -> name", "key: float32 -> bfloat16", "key: removed by ..." */
static void print_item(const struct dcpk_edit_item *item)
{
    if (item->removed_by == NULL && strcmp(item->name, item->key) == 0 && item->to == item->dtype)
        return;
    dcpk_cli_printf(stdout, "  ");
    dcpk_cli_put_text(stdout, item->key);
    if (item->removed_by != NULL) {
        dcpk_cli_printf(stdout, ": removed by '");
        dcpk_cli_put_text(stdout, item->removed_by);
        dcpk_cli_printf(stdout, "'");
    } else {
        if (strcmp(item->name, item->key) != 0) {
            dcpk_cli_printf(stdout, " -> ");
            dcpk_cli_put_text(stdout, item->name);
        }
        if (item->to != item->dtype)
            dcpk_cli_printf(stdout, ": %s -> %s", dcpk_dtype_name(item->dtype),
                            dcpk_dtype_name(item->to));
    }
    dcpk_cli_printf(stdout, "\n");
}

/* "3 tensors rewritten, 5 files linked, 0 copied" */
static void print_data(const struct dcpk_modification *m, bool dry_run)
{
    char count[DCPK_COUNT_TEXT_BYTES];

    dcpk_cli_printf(stdout, "data        ");
    if (m->target.is_there && !dry_run) {
        dcpk_cli_printf(stdout, "as it would be written\n");
        return;
    }
    if (m->is_rewritten)
        dcpk_cli_printf(stdout, "%s %srewritten, ",
                        dcpk_cli_count(m->out->n_tensors, "tensor", count),
                        dry_run ? "to be " : "");
    if (dry_run)
        dcpk_cli_printf(stdout, "%s to be %s\n", dcpk_cli_count(m->out->n_kept, "file", count),
                        m->source.is_archive || m->target.is_archive ? "copied" : "linked");
    else
        dcpk_cli_printf(stdout, "%s linked, %" PRIu64 " copied\n",
                        dcpk_cli_count(m->n_linked, "file", count), m->n_copied);
}

static dcpk_status print_modified(const struct dcpk_modification *m, bool dry_run,
                                  struct dcpk_error *err)
{
    char size[DCPK_SIZE_TEXT_BYTES], words[DCPK_TRACKER_WORDS_BYTES];

    dcpk_cli_printf(stdout, "%s ", dcpk_deed(&m->target, dry_run, "would write", "wrote"));
    dcpk_cli_put_text(stdout, m->target.folder);
    dcpk_cli_printf(stdout, " (%s)%s\n", m->ckpt->format->name,
                    dcpk_tracker_words(&m->target, words));
    for (size_t i = 0; dry_run && i < m->n_items; i++)
        print_item(&m->items[i]);
    dcpk_cli_printf(stdout,
                    "keys        %zu: %" PRIu64 " renamed, %" PRIu64 " removed, %" PRIu64 " cast\n",
                    m->n_items, m->n_renamed, m->n_removed, m->n_cast);
    print_data(m, dry_run);
    if (m->n_removed > 0 && m->unused_bytes > 0)
        dcpk_cli_printf(stdout,
                        "unused      %s in the files, of removed keys (--compact writes new files "
                        "without them)\n",
                        dcpk_cli_short_size(m->unused_bytes, size));
    if (dcpk_print_verdict("loads in    ", &m->verdict, err) != DCPK_OK)
        return err->status;
    if (m->resumed_bytes > 0)
        dcpk_cli_printf(stdout, "resumed     %s were written by an earlier run\n",
                        dcpk_cli_short_size(m->resumed_bytes, size));
    return dcpk_cli_flush(err);
}

/* An item under its key in OUT, null when it was removed; `source` is its key in IN. */
static void put_item(struct dcpk_json_out *j, const struct dcpk_edit_item *item)
{
    const char *key = NULL, *dtype = NULL, *source_dtype = NULL;

    if (item->removed_by == NULL)
        key = item->name;
    if (item->dtype != DCPK_DTYPE_NONE) {
        dtype = dcpk_dtype_name(item->to);
        source_dtype = dcpk_dtype_name(item->dtype);
    }
    dcpk_json_begin_object(j);
    dcpk_json_add_string(j, "dtype", dtype);
    dcpk_json_add_string(j, "key", key);
    dcpk_json_add_string(j, "removed_by", item->removed_by);
    dcpk_json_add_string(j, "source", item->key);
    dcpk_json_add_string(j, "source_dtype", source_dtype);
    dcpk_json_end_object(j);
}

static dcpk_status print_modified_json(const struct dcpk_modification *m, bool dry_run,
                                       struct dcpk_error *err)
{
    struct dcpk_bytes bytes = {0};
    struct dcpk_json_out j;

    dcpk_json_out_init(&j, &bytes, 2);
    dcpk_json_begin_object(&j);
    dcpk_json_add_bool(&j, "already_complete", m->target.is_there && !dry_run);
    dcpk_json_put_key(&j, "counts");
    dcpk_json_begin_object(&j);
    dcpk_json_add_uint(&j, "n_cast", m->n_cast);
    dcpk_json_add_uint(&j, "n_removed", m->n_removed);
    dcpk_json_add_uint(&j, "n_renamed", m->n_renamed);
    dcpk_json_end_object(&j);
    dcpk_json_add_bool(&j, "dry_run", dry_run);
    dcpk_json_add_string(&j, "format", m->ckpt->format->name);
    dcpk_json_add_string(&j, "input", m->source.folder);
    dcpk_json_put_key(&j, "keys");
    dcpk_json_begin_array(&j);
    for (size_t i = 0; i < m->n_items; i++)
        put_item(&j, &m->items[i]);
    dcpk_json_end_array(&j);
    dcpk_json_put_key(&j, "loads");
    dcpk_verdict_json(&m->verdict, m->verdict.variants, &j);
    dcpk_json_add_uint(&j, "n_files_copied", m->n_copied);
    dcpk_json_add_uint(&j, "n_files_linked", m->n_linked);
    dcpk_json_add_string(&j, "output", m->target.folder);
    dcpk_json_add_uint(&j, "resumed_bytes", m->resumed_bytes);
    dcpk_json_add_bool(&j, "rewritten", m->is_rewritten);
    dcpk_target_put_tracker(&m->target, dry_run, &j);
    dcpk_json_add_uint(&j, "version", 1);
    dcpk_json_end_object(&j);
    return dcpk_cli_print_bytes(&bytes, err);
}

static dcpk_status modify(struct request *r, struct dcpk_error *err)
{
    const bool dry_run = r->dry_run, as_json = r->as_json;
    struct dcpk_modify_options *options = &r->options;
    const struct dcpk_verbosity *verbosity = &r->verbosity;
    struct dcpk_modification m = {0};
    struct dcpk_bar bar;
    bool is_there;
    dcpk_status st;

    options->env.progress = dcpk_bar_begin(&bar, "writing", verbosity);
    st = DCPK_OK;
    if (as_json || !verbosity->is_quiet)
        st = dcpk_cli_check_stdout(err);
    if (st == DCPK_OK)
        st = dcpk_modification_plan(&m, options, err);
    if (st == DCPK_OK)
        dcpk_warn_verdict(verbosity, &m.verdict);
    if (st == DCPK_OK)
        dcpk_cli_keep_private(m.ckpt);
    if (st == DCPK_OK && !dry_run)
        st = dcpk_modification_run(&m, err);
    is_there = st == DCPK_OK && !dry_run;
    dcpk_bar_end(&bar);
    if (st == DCPK_OK)
        dcpk_cli_notes(verbosity, m.ckpt);
    if (st == DCPK_OK && m.n_copied > 0 && !m.target.is_there && !m.source.is_archive &&
        !m.target.is_archive)
        dcpk_cli_note(verbosity,
                      "%" PRIu64
                      " data files were copied: the output's file system cannot link to them",
                      m.n_copied);
    if (st == DCPK_OK && as_json)
        st = print_modified_json(&m, dry_run, err);
    else if (st == DCPK_OK && (!verbosity->is_quiet || dry_run))
        st = print_modified(&m, dry_run, err);
    if (st == DCPK_OK)
        dcpk_note_tracker(verbosity, &m.target);
    else if (is_there)
        dcpk_context(err, "'%s' is in place, and then", m.target.folder);
    dcpk_modification_free(&m);
    return st;
}

#define HELP_OF_OP                                                                                 \
    "may be given many times, applied in this order; RE is a regular\n"                            \
    "expression as in Python (by PCRE2):\n"                                                        \
    "  \"rename RE NEW\"  matches in a key become NEW; \\1 and \\g<name>\n"                        \
    "                   are groups, '' is no text\n"                                               \
    "  \"remove RE\"      removes keys that match\n"                                               \
    "  \"keep RE\"        removes keys that do not match\n"                                        \
    "  \"cast RE DTYPE\"  tensors that match become DTYPE (zarr rewrites\n"                        \
    "                   these alone, the other formats all data)"

#define DCPK_OPT_STRUCT struct request
static const struct dcpk_option option_rows[] = {
    DCPK_OPT_LIST("op", "OP", edits, HELP_OF_OP),
    DCPK_OPT_FLAG("compact", options.compacts,
                  "write new files, without the bytes of removed tensors (default: hard links)"),
    DCPK_OPT_FLAG("force", force, "replace an output that exists"),
    DCPK_OPT_FLAG("resume", resume,
                  "continue a run that was killed or failed, if there is one; an existing output "
                  "is compared with what would be written, and accepted if it is equal"),
    DCPK_OPT_ITERATION(iteration),
    DCPK_OPT_TRACKER(tracker),
    DCPK_OPT_FLAG("dry-run", dry_run, "list what would happen, write nothing"),
    DCPK_OPT_MSC(enable_msc),
    DCPK_OPT_JSON(as_json),
    DCPK_OPT_THREADS(options.env.n_threads),
    DCPK_OPT_MEMORY(options.env.memory_bytes),
    DCPK_OPT_VERBOSITY(verbosity),
    DCPK_OPT_END};

static int modify_main(void *values, const struct dcpk_cli_args *args, struct dcpk_error *err)
{
    struct request *r = values;

    if (r->edits.n == 0)
        return dcpk_cli_usage(NAME, "--op is missing: it names the operation");
    if (dcpk_parse_tracker(r->tracker, &r->options.tracker, err) != DCPK_OK)
        return DCPK_EXIT_USAGE;
    if (r->enable_msc)
        dcpk_cli_note_msc(&r->verbosity);
    r->options.folder_flags = dcpk_folder_flags_of(r->force, r->resume);
    r->options.in = args->words[0];
    r->options.out = args->words[1];
    r->options.edits = r->edits.texts;
    r->options.n_edits = r->edits.n;
    (void)modify(r, err);
    return DCPK_EXIT_OK;
}

static struct request values = {.verbosity = {.command = NAME}};
const struct dcpk_cli dcpk_cmd_modify = {
    .name = NAME,
    .usage = "--op OP [options] IN OUT",
    .summary = "Rename, remove or cast keys of a checkpoint. IN, a folder or an archive, is "
               "never changed; its files are hard-linked unless a tensor in them is cast. An "
               "OUT that ends in .tar becomes an archive.",
    .options = option_rows,
    .values = &values,
    .env = &values.options.env,
    .example = "dcpkit modify-state-dict --op 'remove ^optimizer' checkpoints/run converted",
    .n_args = {2, 2},
    .paths = DCPK_CLI_LAST_IS_OUT | DCPK_CLI_LINKS_IN,
    .is_dry = &values.dry_run,
    .iteration = &values.iteration,
    .run = modify_main,
};
