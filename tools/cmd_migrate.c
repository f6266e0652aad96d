/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_migrate.c - dcpkit migrate: the configuration of a run for Megatron-FSDP, or back for DDP. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/formats.h"
#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/io/file.h"
#include "lib/knobs/migrate.h"
#include "tools/args_from.h"
#include "tools/cmd.h"
#include "tools/print_doc.h"

#define NAME          "migrate"
#define MAX_BYTES     (UINT64_C(4) << 20)
#define RANKS_OF_NODE 8 /* GPUs of a node, for the command that starts them */

enum migrate_form { FORM_FLAGS, FORM_CONFIG, FORM_CHECKPOINT };
static const char *const form_names[] = {"a command line", "a configuration", "a checkpoint"};

struct migrate {
    const char *to, *mesh, *out;
    bool as_json, may_replace;
    struct dcpk_verbosity verbosity;

    const char *path;
    enum migrate_form form;
    struct dcpk_arena *arena;
    char *read;              /* owned: the text of a file */
    struct dcpk_bytes flags; /* of a checkpoint */
    const char *text;
    size_t n_bytes;
    const char **left; /* args of a checkpoint that no flag makes; NULL after them */
    size_t n_left;
    struct dcpk_settings settings;
    struct dcpk_grid grid;
    struct dcpk_migration plan;
    struct dcpk_bytes result;
};

/* ---- the input ---- */

/* Bytes of the run folder in the path of it or of an iteration. */
static size_t migrate_run_bytes(const char *path)
{
    size_t n = strlen(path);

    while (n > 1 && path[n - 1] == '/')
        n--;
    for (size_t i = n; i-- > 1;)
        if (path[i] == '/')
            return dcpk_starts_with(path + i, "/iter_") ? i : n;
    return n;
}

/* Keeps the names that no flag makes. */
static dcpk_status migrate_keep_left(struct migrate *m, const struct dcpk_bytes *left,
                                     struct dcpk_error *err)
{
    const char *names = dcpk_arena_strndup(m->arena, (const char *)left->data, left->n_bytes, err);

    m->left = dcpk_arena_array(m->arena, left->n_bytes + 1, sizeof *m->left, err);
    if (names == NULL || m->left == NULL)
        return err->status;
    for (const char *end = names + left->n_bytes; names < end; names += strlen(names) + 1)
        m->left[m->n_left++] = names;
    return DCPK_OK;
}

static dcpk_status migrate_read_checkpoint(struct migrate *m, struct dcpk_error *err)
{
    struct dcpk_args_from from = {0};
    struct dcpk_bytes left = {0};
    const struct dcpk_value *attrs;
    const char *run;

    m->form = FORM_CHECKPOINT;
    if (dcpk_args_from_checkpoint(m->path, &m->verbosity, &from, err) == DCPK_OK) {
        attrs = dcpk_value_attrs(from.args);
        (void)dcpk_value_as_int(dcpk_value_get(attrs, "world_size"), &m->plan.n_ranks);
        run = dcpk_arena_strndup(m->arena, m->path, migrate_run_bytes(m->path), err);
        if (run != NULL &&
            dcpk_args_to_flags(attrs, run, m->arena, &m->flags, &left, err) == DCPK_OK)
            (void)migrate_keep_left(m, &left, err);
    }
    dcpk_bytes_u8(&m->flags, 0);
    m->text = (const char *)m->flags.data;
    m->n_bytes = m->flags.n_bytes - 1;
    dcpk_bytes_release(&left);
    dcpk_args_from_release(&from);
    if (err->status == DCPK_OK)
        (void)dcpk_bytes_status(&m->flags, err);
    return err->status;
}

static dcpk_status migrate_read(struct migrate *m, struct dcpk_error *err)
{
    struct stat there;

    m->arena = dcpk_arena_new();
    if (stat(m->path, &there) != 0)
        return dcpk_fail_errno(err, errno, "'%s'", m->path);
    if (S_ISDIR(there.st_mode))
        return migrate_read_checkpoint(m, err);
    if (dcpk_cli_read_file(m->path, MAX_BYTES, &m->read, &m->n_bytes, err) != DCPK_OK)
        return err->status;
    m->text = m->read;
    if (m->text[strspn(m->text, " \t\r\n")] == '\0')
        return dcpk_fail(err, DCPK_EFORMAT, "'%s' is empty", m->path);
    return DCPK_OK;
}

static bool is_section_name(const char *name)
{
    struct dcpk_knob_walk walk = {0};
    const struct dcpk_option *row;

    while ((row = dcpk_knob_next(&walk)) != NULL)
        if (row->sections != NULL && dcpk_option_has_word(row->sections, name, strlen(name)))
            return dcpk_knob_find(name, &walk) == NULL;
    return false;
}

/* The settings of a configuration. A name outside of sections has its own before a dot. */
static dcpk_status migrate_list_config(const struct migrate *m, const char *text, size_t n_bytes,
                                       struct dcpk_settings *list, struct dcpk_error *err)
{
    if (dcpk_yaml_settings(text, n_bytes, list, err) != DCPK_OK)
        return err->status;
    for (size_t i = 0; i < list->n; i++) {
        struct dcpk_setting *s = &list->all[i];
        const char *dot = strrchr(s->name, '.');

        if (s->section == NULL && is_section_name(s->name))
            return dcpk_fail(err, DCPK_EUNSUPPORTED,
                             "'%s' is a section: write a mapping of names to values, or leave it "
                             "out",
                             s->name);
        if (s->section != NULL || dot == NULL)
            continue;
        s->section = dcpk_arena_strndup(m->arena, s->name, (size_t)(dot - s->name), err);
        if (s->section == NULL)
            return err->status;
        s->name = dot + 1;
    }
    return DCPK_OK;
}

static dcpk_status migrate_list_form(const struct migrate *m, const char *text, size_t n_bytes,
                                     struct dcpk_settings *list, struct dcpk_error *err)
{
    if (m->form == FORM_CONFIG)
        return migrate_list_config(m, text, n_bytes, list, err);
    return dcpk_flags_list(text, n_bytes, list, err);
}

static dcpk_status migrate_edit(const struct migrate *m, struct dcpk_text_edit **edits, size_t *n,
                                struct dcpk_error *err)
{
    if (m->form == FORM_CONFIG)
        return dcpk_config_edit(&m->plan, edits, n, err);
    return dcpk_flags_edit(&m->plan, m->text, edits, n, err);
}

/* Lists the settings of a text: flags where it has some, else YAML or JSON. */
static dcpk_status migrate_list(struct migrate *m, const char *text, size_t n_bytes,
                                struct dcpk_error *err)
{
    struct dcpk_error of_yaml = DCPK_ERROR_INIT;

    m->settings = (struct dcpk_settings){.arena = m->arena};
    m->plan.from = &m->settings;
    if (m->form != FORM_CONFIG && dcpk_flags_list(text, n_bytes, &m->settings, err) != DCPK_OK)
        return err->status;
    if (m->settings.n > 0)
        return DCPK_OK;
    m->form = FORM_CONFIG;
    if (dcpk_yaml_settings == NULL)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "'%s' has no flags, and YAML and JSON are not read: this program was "
                         "built without libyaml",
                         m->path);
    m->settings = (struct dcpk_settings){.arena = m->arena};
    if (migrate_list_config(m, text, n_bytes, &m->settings, &of_yaml) != DCPK_OK)
        return dcpk_fail(err, of_yaml.status,
                         "'%s' is not a command line (it has no flags), a configuration (%s) or a "
                         "checkpoint's folder",
                         m->path, of_yaml.text);
    for (size_t i = 0; i < m->settings.n; i++)
        m->plan.has_sections |= m->settings.all[i].section != NULL;
    m->plan.is_flat = m->settings.n_rooms == 1;
    return DCPK_OK;
}

static dcpk_status migrate_parse_mesh(struct migrate *m, struct dcpk_error *err)
{
    const struct dcpk_grid *g = &m->grid;

    if (strcmp(m->to, "megatron-fsdp") != 0 && strcmp(m->to, "ddp") != 0)
        return dcpk_fail(err, DCPK_EUSAGE, "--to takes megatron-fsdp or ddp, not '%s'", m->to);
    m->plan.to_fsdp = *m->to == 'm';
    if (m->mesh == NULL)
        return DCPK_OK;
    if (dcpk_grid_parse("--mesh", m->mesh, &m->grid, err) != DCPK_OK)
        return err->status;
    if (g->vpp > 0 || g->first > 0 || g->last > 0)
        return dcpk_fail(err, DCPK_EUSAGE, "--mesh takes tp, pp, dp, ep, cp and etp");
    m->plan.mesh = g;
    m->plan.n_ranks = g->tp * g->pp * g->cp * g->dp; /* 0: dp is not given */
    return DCPK_OK;
}

/* ---- the result ---- */

/* Makes the new text, and checks it: read again, it needs no change. */
static dcpk_status migrate_write(struct migrate *m, struct dcpk_error *err)
{
    struct dcpk_migration again = m->plan;
    struct dcpk_text_edit *edits;
    size_t n;

    if (migrate_edit(m, &edits, &n, err) != DCPK_OK ||
        dcpk_text_edit_apply(m->text, m->n_bytes, edits, n, &m->result, err) != DCPK_OK)
        return dcpk_context(err, "'%s'", m->path);
    dcpk_bytes_u8(&m->result, 0);
    if (dcpk_bytes_status(&m->result, err) != DCPK_OK)
        return err->status;
    m->result.n_bytes--;
    again.keeps_folders = true;
    again.from = &(struct dcpk_settings){.arena = m->arena};
    if (migrate_list_form(m, (const char *)m->result.data, m->result.n_bytes, again.from, err) !=
            DCPK_OK ||
        dcpk_migrate(&again, err) != DCPK_OK)
        return dcpk_context(err, "the changed text of '%s'", m->path);
    for (size_t i = 0; i < again.n_changes; i++)
        if (!again.changes[i].is_environment)
            return dcpk_fail(err, DCPK_EUNSUPPORTED,
                             "'%s' sets %s in a form that is not changed; write it out in a line "
                             "of its own",
                             m->path, again.changes[i].name);
    return DCPK_OK;
}

/* ---- the report ---- */

static void fill_changes(const void *context, struct dcpk_doc_rows *rows)
{
    const struct migrate *m = context;
    char head[512];

    for (size_t i = 0; i < m->plan.n_changes; i++) {
        const struct dcpk_change *c = &m->plan.changes[i];
        char place[DCPK_KNOB_NAME_BYTES] = "";

        if (c->section != NULL)
            snprintf(place, sizeof place, "%s.", c->section);
        snprintf(head, sizeof head, "%s%s: %s -> %s", place, c->name,
                 dcpk_text_or(c->from, "not set"), dcpk_text_or(c->to, "not set"));
        DCPK_DOC_PUT(rows, {.title = "change", .fact = dcpk_fact_text(head)},
                     {"reason", "reason", .fact = dcpk_fact_text(c->reason)},
                     {"source", "source", .fact = dcpk_fact_text(c->source)},
                     DCPK_MEMBER("name", dcpk_fact_text(c->name)),
                     DCPK_MEMBER("section", dcpk_fact_text(c->section)),
                     DCPK_MEMBER("from", dcpk_fact_text(c->from)),
                     DCPK_MEMBER("to", dcpk_fact_text(c->to)));
    }
}

static void fill_texts(const void *context, struct dcpk_doc_rows *rows)
{
    for (const char *const *text = context; *text != NULL; text++)
        DCPK_DOC_PUT(rows, {"text", "text", .fact = dcpk_fact_text(*text)});
}

/* A path as a shell takes it: a variable stays one. */
static const char *step_path(const char *path, struct dcpk_doc *doc)
{
    struct dcpk_bytes word = {0};
    const char *kept = NULL;

    dcpk_bytes_shell_word(&word, path, true);
    dcpk_bytes_u8(&word, 0);
    if (word.status == DCPK_OK)
        kept = dcpk_doc_keep(doc, word.data, word.n_bytes);
    dcpk_bytes_release(&word);
    return dcpk_text_or(kept, "");
}

/* The launcher: torchrun with the ranks that are known, and what the environment needs. */
static const char *step_launch(const struct migrate *m, const char *script, struct dcpk_doc *doc)
{
    const int64_t n = m->plan.n_ranks, nodes = (n + RANKS_OF_NODE - 1) / RANKS_OF_NODE;
    const char *file = step_path(dcpk_text_or(m->out, "FILE"), doc), *ranks = "gpu", *hosts = "",
               *env = "";
    const struct dcpk_grid *g = &m->plan.grid;

    if (n > 0)
        ranks = dcpk_doc_format(doc, "%" PRId64, dcpk_min_i64(n, RANKS_OF_NODE));
    if (nodes > 1)
        hosts = dcpk_doc_format(doc,
                                " --nnodes %" PRId64 " --node-rank \"$NODE_RANK\" "
                                "--master-addr \"$MASTER_ADDR\"",
                                nodes);
    if (m->plan.to_fsdp)
        env = "env -u CUDA_DEVICE_MAX_CONNECTIONS ";
    else if (g->tp > 1 || g->cp > 1)
        env = "CUDA_DEVICE_MAX_CONNECTIONS=1 ";
    if (m->form == FORM_FLAGS &&
        (strstr(m->text, "torchrun") != NULL || strstr(m->text, ".py") != NULL))
        return dcpk_doc_format(doc, "%sbash %s", env, file);
    if (m->form != FORM_CONFIG) /* which takes quotes off, as a shell does */
        env = dcpk_doc_format(doc, "%sxargs -a %s ", env, file);
    return dcpk_doc_format(doc, "%storchrun --nproc-per-node %s%s %s", env, ranks, hosts, script);
}

/* The change of a folder that is converted. NULL: there is none. */
static const struct dcpk_change *step_folder(const struct migrate *m)
{
    for (size_t i = 0; i < m->plan.n_changes; i++)
        if (m->plan.changes[i].suffix != NULL && strcmp(m->plan.changes[i].name, "save") != 0)
            return &m->plan.changes[i];
    return NULL;
}

/* True if only the run's shell knows the folder. */
static bool folder_is_open(const struct dcpk_change *folder)
{
    return strpbrk(folder->from, "$`") != NULL;
}

static const char *const *migrate_steps(const struct migrate *m, struct dcpk_doc *doc)
{
    const struct dcpk_change *folder = step_folder(m);
    const char **steps = dcpk_doc_take(doc, 4, sizeof *steps);
    const char *script = "pretrain_gpt.py";
    size_t n = 0;

    if (steps == NULL)
        return NULL;
    if (folder != NULL) {
        const char *old = step_path(folder->from, doc), *new = step_path(folder->to, doc);

        if (folder_is_open(folder)) {
            old = "RUN";
            new = dcpk_doc_format(doc, "RUN%s", folder->suffix);
        }
        steps[n++] = dcpk_doc_format(doc, "dcpkit convert --verify --to %s %s %s",
                                     DCPK_MIGRATE_SUFFIX(m->plan.to_fsdp) + 1, old, new);
        steps[n++] = dcpk_doc_format(doc, "dcpkit check %s", new);
    }
    if (m->form == FORM_CONFIG)
        script = dcpk_doc_format(doc, "pretrain.py --config-file %s",
                                 step_path(dcpk_text_or(m->out, "FILE"), doc));
    steps[n] = step_launch(m, script, doc);
    return steps;
}

static void put_texts(const void *context, struct dcpk_json_out *j)
{
    dcpk_json_begin_array(j);
    for (const char *const *text = context; *text != NULL; text++)
        dcpk_json_put_string(j, *text);
    dcpk_json_end_array(j);
}

static const struct dcpk_doc_style style = {.label_columns = 12};

/* Adds the sentences about args that are left out and about a folder that steps cannot name, and a
 * NULL after all notes. */
static dcpk_status migrate_end_notes(struct migrate *m, struct dcpk_error *err)
{
    const struct dcpk_change *folder = step_folder(m);
    struct dcpk_train_notices *notes = &m->plan.notes;
    const char *text;

    if (m->n_left > 0) {
        text = dcpk_arena_printf(m->arena, err,
                                 "%zu args have no flag that is known here, and keep Megatron's "
                                 "defaults (--json lists them)",
                                 m->n_left);
        if (text == NULL || dcpk_train_notices_add(notes, text, err) != DCPK_OK)
            return err->status;
    }
    if (folder != NULL && folder_is_open(folder)) {
        text = dcpk_arena_printf(m->arena, err,
                                 "RUN in the steps is the folder of --%s, %s; its variables are "
                                 "not set here, so replace RUN by that folder",
                                 folder->name, folder->from);
        if (text == NULL || dcpk_train_notices_add(notes, text, err) != DCPK_OK)
            return err->status;
    }
    if (dcpk_train_notices_add(notes, NULL, err) == DCPK_OK)
        notes->n--;
    return err->status;
}

static dcpk_status migrate_report(struct migrate *m, struct dcpk_error *err)
{
    const struct dcpk_doc_table changes = {
        .flags = DCPK_DOC_PARAGRAPHS, .indent = 2, .fill = fill_changes, .context = m};
    const struct dcpk_print_options way = {.as_json = m->as_json,
                                           .text_to_stderr = m->out == NULL,
                                           .is_silent = m->verbosity.is_quiet && m->out == NULL &&
                                                        !m->as_json};
    const struct dcpk_train_notices *notes = &m->plan.notes;
    struct dcpk_doc doc;
    const char *const *steps;

    if (migrate_end_notes(m, err) != DCPK_OK)
        return err->status;
    dcpk_doc_init(&doc, NAME, &style);
    steps = migrate_steps(m, &doc);
    dcpk_doc_fact(&doc, "input", "input", dcpk_fact_text(form_names[m->form]));
    dcpk_doc_fact(&doc, "to", "to", dcpk_fact_text(m->to));
    if (m->out != NULL)
        dcpk_doc_fact(&doc, "written", "written", dcpk_fact_text(m->out));
    else
        dcpk_doc_set_text(&doc, "configuration", (const char *)m->result.data);
    if (m->plan.n_changes == 0)
        dcpk_doc_row(&doc, "changes", "none: it is for %s already", m->to);
    else
        dcpk_doc_heading(&doc, "changes");
    dcpk_doc_table(&doc, "changes", &changes);
    for (size_t i = 0; i < notes->n; i++)
        dcpk_doc_note(&doc, "note", notes->texts[i]);
    if (m->left != NULL)
        dcpk_doc_set(&doc, "left_out", dcpk_fact_json(put_texts, m->left));
    dcpk_doc_set(&doc, "notes", dcpk_fact_json(put_texts, notes->texts));
    dcpk_doc_heading(&doc, "steps");
    if (steps != NULL)
        dcpk_doc_show(
            &doc, &(struct dcpk_doc_table){
                      .flags = DCPK_DOC_LINES, .indent = 2, .fill = fill_texts, .context = steps});
    dcpk_doc_set(&doc, "steps", dcpk_fact_json(put_texts, steps));
    dcpk_doc_set_count(&doc, "version", 1);
    return dcpk_print_doc(&doc, &way, err);
}

/* ---- the command ---- */

static dcpk_status migrate(struct migrate *m, struct dcpk_error *err)
{
    if (migrate_parse_mesh(m, err) ||
        (m->out != NULL &&
         dcpk_check_file_path("configuration", m->out, m->may_replace, err) != DCPK_OK) ||
        migrate_read(m, err) || migrate_list(m, m->text, m->n_bytes, err))
        return err->status;
    if (dcpk_migrate(&m->plan, err) != DCPK_OK)
        return dcpk_context(err, "'%s'", m->path);
    if (migrate_write(m, err) != DCPK_OK)
        return err->status;
    if (m->out != NULL)
        (void)dcpk_file_write(m->out, DCPK_FILE_INTO, m->result.data, m->result.n_bytes, err);
    else if (!m->as_json)
        dcpk_cli_put_plain(stdout, (const char *)m->result.data, m->result.n_bytes); /* its bytes */
    if (err->status != DCPK_OK || dcpk_cli_flush(err) != DCPK_OK)
        return err->status;
    return migrate_report(m, err);
}

#define DCPK_OPT_STRUCT struct migrate
static const struct dcpk_option option_rows[] = {
    DCPK_OPT_TEXT("to", "WHAT", to,
                  "megatron-fsdp (default); or ddp, back to tensor, pipeline and data parallelism"),
    DCPK_OPT_TEXT("mesh", "DIMS", mesh,
                  "the new sizes tp=T,pp=P,cp=C,ep=E (left out: 1), etp=E (of experts), dp=D "
                  "(default: those of IN; of megatron-fsdp pp is always 1)"),
    DCPK_OPT(DCPK_OPTION_OUT_FILE, 'o', "out", "FILE", const char *, out,
             "write the configuration to FILE (default: to stdout, with the report on stderr)"),
    DCPK_OPT_FLAG("force", may_replace, "replace FILE where it exists"),
    DCPK_OPT_JSON(as_json),
    DCPK_OPT_VERBOSITY(verbosity),
    DCPK_OPT_END};

static int migrate_main(void *values, const struct dcpk_cli_args *args, struct dcpk_error *err)
{
    struct migrate *m = values;

    m->path = args->words[0];
    (void)migrate(m, err);
    dcpk_bytes_release(&m->result);
    dcpk_bytes_release(&m->flags);
    dcpk_free(m->read);
    dcpk_arena_free(m->arena);
    return DCPK_EXIT_OK;
}

static struct migrate values = {.to = "megatron-fsdp", .verbosity = {.command = NAME}};
const struct dcpk_cli dcpk_cmd_migrate = {
    .name = NAME,
    .usage = "--to megatron-fsdp|ddp [options] IN",
    .summary = "Change the configuration of a run for Megatron-FSDP, or back for DDP: what "
               "the other mode needs is set, what it refuses goes, and all else stays. IN: a "
               "file with flags of Megatron (a shell script, or flags alone), a configuration "
               "of Megatron-Bridge (YAML or JSON), or a checkpoint, for its args. Prints each "
               "change with its reason and source, and the commands that follow.",
    .options = option_rows,
    .everyday = "to mesh out force json",
    .values = &values,
    .example = "dcpkit migrate --to megatron-fsdp checkpoints/run",
    .n_args = {1, 1},
    .run = migrate_main,
};
