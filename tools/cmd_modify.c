/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_modify.c - dcpkit modify-state-dict: keys renamed, removed, cast. */
#include <inttypes.h>
#include <string.h>

#include "lib/job/modify.h"
#include "tools/bar.h"
#include "tools/check_report.h"
#include "tools/cmd.h"
#include "tools/print_doc.h"
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

/* "key -> name", "key: float32 -> bfloat16", "key: removed by ..."; nothing for an item that stays
 * as it is. */
static void put_change(const struct dcpk_edit_item *item, struct dcpk_bytes *line)
{
    const bool is_renamed = strcmp(item->name, item->key) != 0;

    line->n_bytes = 0;
    if (item->removed_by != NULL) {
        dcpk_bytes_printf(line, "%s: removed by '%s'", item->key, item->removed_by);
        return;
    }
    if (is_renamed)
        dcpk_bytes_printf(line, "%s -> %s", item->key, item->name);
    else if (item->to != item->dtype)
        dcpk_bytes_text(line, item->key);
    if (item->to != item->dtype)
        dcpk_bytes_printf(line, ": %s -> %s", dcpk_dtype_name(item->dtype),
                          dcpk_dtype_name(item->to));
}

/* An item under its key in OUT, null when it was removed; `source` is its key in IN. */
static void fill_items(const void *context, struct dcpk_doc_rows *rows)
{
    const struct dcpk_modification *m = context;
    struct dcpk_bytes line = {0};

    for (size_t i = 0; i < m->n_items; i++) {
        const struct dcpk_edit_item *item = &m->items[i];
        const char *key = NULL, *dtype = NULL, *source_dtype = NULL;

        if (item->removed_by == NULL)
            key = item->name;
        if (item->dtype != DCPK_DTYPE_NONE) {
            dtype = dcpk_dtype_name(item->to);
            source_dtype = dcpk_dtype_name(item->dtype);
        }
        put_change(item, &line);
        DCPK_DOC_PUT(rows,
                     DCPK_DOC_SHOWN(line.n_bytes > 0, .title = "change",
                                    .fact = dcpk_fact_part((const char *)line.data, line.n_bytes)),
                     DCPK_MEMBER("dtype", dcpk_fact_text(dtype)),
                     DCPK_MEMBER("key", dcpk_fact_text(key)),
                     DCPK_MEMBER("removed_by", dcpk_fact_text(item->removed_by)),
                     DCPK_MEMBER("source", dcpk_fact_text(item->key)),
                     DCPK_MEMBER("source_dtype", dcpk_fact_text(source_dtype)));
    }
    dcpk_bytes_status(&line, rows->err);
    dcpk_bytes_release(&line);
}

/* "3 tensors rewritten, 5 files linked, 0 copied" */
static void report_data(const struct dcpk_modification *m, bool dry_run, struct dcpk_doc *doc)
{
    const char *rewritten = "", *be = dry_run ? "to be " : "";
    char count[DCPK_COUNT_TEXT_BYTES];

    if (m->is_rewritten)
        rewritten = dcpk_doc_format(doc, "%s %srewritten, ",
                                    dcpk_cli_count(m->out->n_tensors, "tensor", count), be);
    if (m->target.is_there && !dry_run)
        dcpk_doc_row(doc, "data", "as it would be written");
    else if (dry_run)
        dcpk_doc_row(doc, "data", "%s%s to be %s", rewritten,
                     dcpk_cli_count(m->out->n_kept, "file", count),
                     m->source.is_archive || m->target.is_archive ? "copied" : "linked");
    else
        dcpk_doc_row(doc, "data", "%s%s linked, %" PRIu64 " copied", rewritten,
                     dcpk_cli_count(m->n_linked, "file", count), m->n_copied);
}

static void report_modified(const struct dcpk_modification *m, bool dry_run, struct dcpk_doc *doc)
{
    const struct dcpk_doc_table items = {
        .flags = DCPK_DOC_LINES, .indent = 2, .fill = fill_items, .context = m};
    char size[DCPK_SIZE_TEXT_BYTES], words[DCPK_TRACKER_WORDS_BYTES];

    dcpk_doc_line(doc, "%s %s (%s)%s", dcpk_deed(&m->target, dry_run, "would write", "wrote"),
                  m->target.folder, m->ckpt->format->name, dcpk_tracker_words(&m->target, words));
    dcpk_doc_set_table(doc, "keys", &items);
    if (dry_run)
        dcpk_doc_show(doc, &items);
    dcpk_doc_row(doc, "keys", "%zu: %" PRIu64 " renamed, %" PRIu64 " removed, %" PRIu64 " cast",
                 m->n_items, m->n_renamed, m->n_removed, m->n_cast);
    report_data(m, dry_run, doc);
    if (m->n_removed > 0 && m->unused_bytes > 0)
        dcpk_doc_row(doc, "unused",
                     "%s in the files, of removed keys (--compact writes new files without them)",
                     dcpk_cli_short_size(m->unused_bytes, size));
    dcpk_report_loads(&m->verdict, doc);
    if (m->resumed_bytes > 0)
        dcpk_doc_row(doc, "resumed", "%s were written by an earlier run",
                     dcpk_cli_short_size(m->resumed_bytes, size));
    dcpk_doc_set_flag(doc, "already_complete", m->target.is_there && !dry_run);
    dcpk_doc_set_count(doc, "counts.n_cast", m->n_cast);
    dcpk_doc_set_count(doc, "counts.n_removed", m->n_removed);
    dcpk_doc_set_count(doc, "counts.n_renamed", m->n_renamed);
    dcpk_doc_set_flag(doc, "dry_run", dry_run);
    dcpk_doc_set_text(doc, "format", m->ckpt->format->name);
    dcpk_doc_set_text(doc, "input", m->source.folder);
    dcpk_doc_set_count(doc, "n_files_copied", m->n_copied);
    dcpk_doc_set_count(doc, "n_files_linked", m->n_linked);
    dcpk_doc_set_text(doc, "output", m->target.folder);
    dcpk_doc_set_count(doc, "resumed_bytes", m->resumed_bytes);
    dcpk_doc_set_flag(doc, "rewritten", m->is_rewritten);
    dcpk_doc_set_tracker(doc, &m->target, dry_run);
    dcpk_doc_set_count(doc, "version", 1);
}

static dcpk_status print_modified(const struct dcpk_modification *m, const struct request *r,
                                  struct dcpk_error *err)
{
    const struct dcpk_print_options way = {
        .is_silent = r->verbosity.is_quiet && !r->dry_run && !r->as_json, .as_json = r->as_json};
    const struct dcpk_doc_style style = {.label_columns = 12};
    struct dcpk_doc doc;

    dcpk_doc_init(&doc, NAME, &style);
    report_modified(m, r->dry_run, &doc);
    return dcpk_print_doc(&doc, &way, err);
}

static dcpk_status modify(struct request *r, struct dcpk_error *err)
{
    const bool dry_run = r->dry_run;
    struct dcpk_modify_options *options = &r->options;
    const struct dcpk_verbosity *verbosity = &r->verbosity;
    struct dcpk_modification m = {0};
    struct dcpk_bar bar;
    bool is_there;
    dcpk_status st;

    options->env.progress = dcpk_bar_begin(&bar, "writing", verbosity);
    st = DCPK_OK;
    if (r->as_json || !verbosity->is_quiet)
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
    if (st == DCPK_OK)
        st = print_modified(&m, r, err);
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
    if (r->enable_msc)
        dcpk_cli_note_msc(&r->verbosity);
    r->options.tracker = dcpk_tracker_policy_of(r->tracker);
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
