/* SPDX-License-Identifier: Apache-2.0 */
/* modify.c - other keys for the same bytes, or the same keys for other bytes. */
#include "lib/job/modify.h"

#include <string.h>

#include "lib/base/alloc.h"
#include "lib/ckpt/integrity.h"
#include "lib/ckpt/overlaps.h"
#include "lib/job/modify_priv.h"
#include "lib/job/output_job.h"
#include "lib/job/target.h"
#include "lib/model/named_state.h"

static dcpk_status modify_open_source(struct dcpk_modification *m, struct dcpk_error *err)
{
    const struct dcpk_modify_options *options = m->options;

    if (dcpk_run_check_apart(options->in, options->out, err) ||
        dcpk_env_open(&options->env, options->in, NULL, &m->source, &m->ckpt, err))
        return err->status;
    if (m->ckpt->format->editor == NULL)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "'%s' is %s: keys of that format are not changed (convert it first)",
                         m->source.folder, m->ckpt->format->name);
    return DCPK_OK;
}

static dcpk_status apply_edits(struct dcpk_modification *m, struct dcpk_error *err)
{
    const struct dcpk_checkpoint *ckpt = m->ckpt;
    dcpk_status st;

    m->n_items = ckpt->n_tensors + ckpt->n_objects;
    m->items = dcpk_alloc_array(m->n_items, sizeof *m->items, err);
    if (m->items == NULL)
        return err->status;
    for (size_t i = 0; i < ckpt->n_tensors; i++)
        m->items[i] =
            (struct dcpk_edit_item){.key = ckpt->tensors[i].key, .dtype = ckpt->tensors[i].dtype};
    for (size_t i = 0; i < ckpt->n_objects; i++)
        m->items[ckpt->n_tensors + i].key = ckpt->objects[i].key;
    st = dcpk_edits_parse(m->options->edits, m->options->n_edits, &m->edits, err);
    if (st == DCPK_OK)
        st = dcpk_edits_apply(m->edits, m->out->arena, m->items, m->n_items, err);
    for (size_t i = 0; i < m->n_items && st == DCPK_OK; i++) {
        const struct dcpk_edit_item *item = &m->items[i];

        m->n_removed += item->removed_by != NULL;
        m->n_renamed += item->removed_by == NULL && strcmp(item->key, item->name) != 0;
        m->n_cast += item->removed_by == NULL && item->to != item->dtype;
    }
    m->is_rewritten = m->n_cast > 0 || m->ckpt->format->editor->rewrites ||
                      (m->options->compacts && m->ckpt->format->editor->keep == NULL);
    return st;
}

/* The iteration for the output's name: the folder's or tracker's, else the one in the state. */
static int64_t modification_iteration(const struct dcpk_modification *m)
{
    int64_t iteration = m->source.iteration;
    struct dcpk_run_state state;

    if (iteration != DCPK_ITERATION_UNKNOWN)
        return iteration;
    dcpk_run_state_load(m->ckpt, m->out->arena, &state);
    if (!dcpk_value_as_int(state.iteration, &iteration) || iteration < 0)
        return DCPK_ITERATION_UNKNOWN;
    return iteration;
}

static dcpk_status modify_find_target(struct dcpk_modification *m, struct dcpk_error *err)
{
    const struct dcpk_modify_options *o = m->options;
    const struct dcpk_target_options where = {
        .in = o->in,
        .source = &m->source,
        .out = o->out,
        .is_model = m->ckpt->format->is_model &&
                    (m->ckpt->format->container == NULL || m->ckpt->format->container->is_model),
        .iteration = modification_iteration(m),
        .policy = o->tracker,
        .flags = o->folder_flags,
        .formats = o->env.formats};

    return dcpk_target_find(&where, &m->target, err);
}

/* Bytes that are written, or copied where they cannot be linked. */
static uint64_t written_bytes(const struct dcpk_modification *m)
{
    const bool copies = m->source.is_archive || m->target.is_archive ||
                        dcpk_is_across(m->source.folder, m->target.folder);
    uint64_t n_bytes = 0;

    for (size_t i = 0; m->is_rewritten && i < m->out->n_files; i++)
        n_bytes += m->out->files[i].n_bytes;
    for (size_t i = 0; copies && i < m->out->n_kept; i++)
        n_bytes += dcpk_source_bytes(m->out->kept[i].source);
    return n_bytes;
}

/* Judges whether the output will load with its new keys. */
static dcpk_status judge_edits(struct dcpk_modification *m, struct dcpk_error *err)
{
    const struct dcpk_check_options options = {.release = NULL};
    struct dcpk_holding holding = {.format = NULL};
    dcpk_status st = dcpk_holding_of_edits(&holding, m->ckpt, m->items, err);

    if (st == DCPK_OK)
        st = dcpk_verdict_of_plan(&holding, &options, &m->verdict, err);
    dcpk_holding_release(&holding);
    return st;
}

dcpk_status dcpk_modification_plan(struct dcpk_modification *m,
                                   const struct dcpk_modify_options *options,
                                   struct dcpk_error *err)
{
    m->options = options;
    if (modify_open_source(m, err) || dcpk_output_new(m->ckpt, m->ckpt->format, &m->out, err))
        return err->status;
    if (m->out->format->editor->inherit != NULL)
        m->out->format->editor->inherit(m->out);
    if (apply_edits(m, err) || dcpk_check_overlaps(m->ckpt, err) || dcpk_modify_output(m, err) ||
        modify_find_target(m, err))
        return err->status;
    m->out->identity = dcpk_output_identity(m->out);
    if (judge_edits(m, err) || (m->is_rewritten && dcpk_plan_build(m->out, err)))
        return err->status;
    return dcpk_check_space(&m->target, written_bytes(m), err);
}

/* The reason why a file that is next to the data is not copied; NULL: it is copied. */
static const char *why_left(const struct dcpk_modification *m, const struct dcpk_folder *folder,
                            const char *name, enum dcpk_path_kind kind)
{
    if (strcmp(name, DCPK_INTEGRITY_NAME) == 0)
        return "its checksums no longer hold";
    if (strcmp(name, DCPK_JOURNAL_NAME) == 0)
        return "a killed run of this program left it";
    if (kind != DCPK_PATH_FILE)
        return "it is not a plain file";
    if (dcpk_store_leads_to_private(m->ckpt->store, name, folder))
        return "it links to a file that fewer users may read than the checkpoint";
    return NULL;
}

/* Copies a file that is next to the tensors and objects, or notes why not. In an output that is
 * there it must be the same. */
static dcpk_status carry_side_file(struct dcpk_output_job *job, const char *name,
                                   struct dcpk_error *err)
{
    struct dcpk_modification *m = job->context;
    struct dcpk_source *source;
    enum dcpk_path_kind kind;
    const char *why;

    if (dcpk_store_look(m->ckpt->store, name, &kind, err) != DCPK_OK)
        return err->status;
    why = why_left(m, job->folder, name, kind);
    if (why != NULL) {
        dcpk_checkpoint_note(m->ckpt, "'%s' is not copied: %s", name, why);
        return DCPK_OK;
    }
    if (dcpk_store_find(m->ckpt->store, name, &source, err) != DCPK_OK)
        return err->status;
    if (job->there != NULL)
        return dcpk_output_job_check_file(job, name, source, err);
    return dcpk_folder_copy(job->folder, name, source, err);
}

/* Copies the files next to the data. */
static dcpk_status modify_carry_rest(struct dcpk_output_job *job, struct dcpk_error *err)
{
    struct dcpk_modification *m = job->context;
    char **names = NULL;
    size_t n = 0;
    dcpk_status st = dcpk_store_list(m->ckpt->store, &names, &n, err);

    for (size_t i = 0; i < n && st == DCPK_OK; i++)
        if (!m->ckpt->format->reader->is_own(m->ckpt, names[i]))
            st = carry_side_file(job, names[i], err);
    dcpk_free(names);
    return st;
}

/* The data files that stay as they are. */
static dcpk_status modify_link_kept(struct dcpk_output_job *job, struct dcpk_error *err)
{
    struct dcpk_modification *m = job->context;
    const struct dcpk_progress *progress = &job->env->progress;
    uint64_t done_bytes = 0, total_bytes = 0;

    for (size_t i = 0; i < m->out->n_kept; i++)
        total_bytes += dcpk_source_bytes(m->out->kept[i].source);

    for (size_t i = 0; i < m->out->n_kept; i++) {
        const struct dcpk_kept_file *kept = &m->out->kept[i];
        bool linked = false;

        if (dcpk_folder_link(job->folder, kept->name, kept->source, &linked, err) != DCPK_OK)
            return err->status;
        m->n_linked += linked;
        m->n_copied += !linked;
        done_bytes += dcpk_source_bytes(kept->source);
        if (progress->update != NULL &&
            !progress->update(progress->context, done_bytes, total_bytes))
            return dcpk_fail(err, DCPK_ECANCELLED, "stopped on request");
    }
    return DCPK_OK;
}

/* An output of links leaves no journal: an existing one is another run's. */
static dcpk_status modify_refuse_resumed(struct dcpk_output_job *job, struct dcpk_error *err)
{
    if (!dcpk_folder_is_resumed(job->folder))
        return DCPK_OK;
    if ((job->folder_flags & DCPK_FOLDER_REPLACE) != 0)
        return dcpk_folder_clear(job->folder, err);
    return dcpk_fail_fix(err, DCPK_EUSAGE, DCPK_FIX_REPLACE,
                         "the run to resume was begun with other options");
}

/* No data is written: only what makes the folder readable. */
static dcpk_status modify_finish_linked(struct dcpk_output_job *job, struct dcpk_error *err)
{
    const struct dcpk_format_writer *writer = job->out->format->writer;

    if (writer->write_ahead != NULL && writer->write_ahead(job->out, job->folder, err) != DCPK_OK)
        return err->status;
    return writer->finish(job->out, job->folder, err);
}

static const struct dcpk_output_step linking[] = {{dcpk_output_job_begin_folder, false},
                                                  {modify_refuse_resumed, false},
                                                  {modify_carry_rest, false},
                                                  {modify_link_kept, false},
                                                  {modify_finish_linked, false},
                                                  {dcpk_output_job_publish, false},
                                                  {NULL, false}};

static const struct dcpk_output_step rewriting[] = {{dcpk_output_job_begin_folder, false},
                                                    {dcpk_output_job_begin_exec, false},
                                                    {dcpk_output_job_begin_writing, false},
                                                    {dcpk_output_job_resume, false},
                                                    {modify_carry_rest, false},
                                                    {modify_link_kept, false},
                                                    {dcpk_output_job_write, false},
                                                    {dcpk_output_job_finish, false},
                                                    {dcpk_output_job_publish, false},
                                                    {NULL, false}};

static const struct dcpk_output_step there_steps[] = {
    {dcpk_output_job_begin_exec, false},    {dcpk_output_job_open_there, false},
    {dcpk_output_job_compare_there, false}, {modify_carry_rest, false},
    {dcpk_output_job_settle_there, false},  {NULL, false}};

dcpk_status dcpk_modification_run(struct dcpk_modification *m, struct dcpk_error *err)
{
    struct dcpk_output_job job = {.env = &m->options->env,
                                  .in = m->options->in,
                                  .ckpt = m->ckpt,
                                  .out = m->out,
                                  .target = &m->target,
                                  .folder_flags = m->options->folder_flags,
                                  .label = "writing",
                                  .context = m,
                                  .there_steps = there_steps,
                                  .n_keys = m->n_items - m->n_removed};
    const dcpk_status st = dcpk_output_job_run(&job, m->is_rewritten ? rewriting : linking, err);

    m->stats = job.stats;
    m->resumed_bytes = job.resumed_bytes;
    return st;
}

void dcpk_modification_free(struct dcpk_modification *m)
{
    dcpk_verdict_release(&m->verdict);
    dcpk_edits_free(m->edits);
    dcpk_free(m->items);
    dcpk_output_free(m->out);
    dcpk_checkpoint_close(m->ckpt);
    dcpk_run_release(&m->target);
    dcpk_run_release(&m->source);
}
