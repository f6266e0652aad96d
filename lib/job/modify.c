/* SPDX-License-Identifier: Apache-2.0 */
/* modify.c - other keys for the same bytes, or the same keys for other bytes. */
#include "lib/job/modify.h"

#include <inttypes.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/text.h"
#include "lib/ckpt/integrity.h"
#include "lib/ckpt/places.h"
#include "lib/job/modify_priv.h"
#include "lib/job/space.h"
#include "lib/job/target.h"
#include "lib/model/run_state.h"
#include "lib/write/writing.h"

/* What is made on the way. */
struct making {
    struct dcpk_modification *m;
    struct dcpk_folder *folder;
    struct dcpk_exec *exec; /* this and the next: of an output that is rewritten */
    struct dcpk_writing *w;
};

static dcpk_status open_source(struct dcpk_modification *m, struct dcpk_error *err)
{
    const struct dcpk_modify_options *options = m->options;

    if (dcpk_run_check_apart(options->in, options->out, err) ||
        dcpk_env_open(&options->env, options->in, NULL, &m->source, &m->ckpt, err))
        return err->status;
    if (m->ckpt->format->editor == NULL)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "'%s' is %s, whose keys are not changed (convert it first)",
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
    m->is_rewritten = m->n_cast > 0;
    return st;
}

static unsigned folder_flags(const struct dcpk_modification *m)
{
    return (m->options->force ? DCPK_FOLDER_REPLACE : 0u) |
           (m->options->resume ? DCPK_FOLDER_RESUME : 0u);
}

/* The iteration for the output's name: the folder's or tracker's, else the one in the state. */
static dcpk_status find_target(struct dcpk_modification *m, struct dcpk_error *err)
{
    struct dcpk_target_wish wish = {.out = m->options->out,
                                    .iteration = m->source.iteration,
                                    .policy = m->options->tracker,
                                    .flags = folder_flags(m),
                                    .formats = m->options->env.formats};
    struct dcpk_run_state state;

    if (wish.iteration == DCPK_ITERATION_UNKNOWN) {
        dcpk_run_state_load(m->ckpt, m->out->arena, &state);
        if (!dcpk_value_as_int(state.iteration, &wish.iteration) || wish.iteration < 0)
            wish.iteration = DCPK_ITERATION_UNKNOWN;
    }
    if (dcpk_target_find(&wish, &m->target, err) != DCPK_OK)
        return err->status;
    return dcpk_target_check_apart(&m->target, m->options->in, &m->source, err);
}

/* What is written, and what is kept where it cannot be linked. */
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

/* Will it load, with the keys that it gets? */
static dcpk_status judge(struct dcpk_modification *m, struct dcpk_error *err)
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
    dcpk_status st;

    m->options = options;
    st = open_source(m, err);
    if (st == DCPK_OK)
        st = dcpk_output_new(m->ckpt, m->ckpt->format, &m->out, err);
    if (st == DCPK_OK && m->out->format->editor->inherit != NULL)
        m->out->format->editor->inherit(m->out);
    if (st == DCPK_OK)
        st = apply_edits(m, err);
    if (st == DCPK_OK)
        st = dcpk_check_places(m->ckpt, err);
    if (st == DCPK_OK)
        st = dcpk_modify_output(m, err);
    if (st == DCPK_OK)
        st = find_target(m, err);
    if (st != DCPK_OK)
        return st;
    m->out->identity = dcpk_output_identity(m->out);
    if (judge(m, err) != DCPK_OK)
        return err->status;
    st = m->is_rewritten ? dcpk_plan_build(m->out, err) : DCPK_OK;
    return st == DCPK_OK ? dcpk_check_space(&m->target, written_bytes(m), err) : st;
}

/* Copy a file that lies beside the tensors and objects, or say why not. */
static dcpk_status copy_beside(struct dcpk_modification *m, struct dcpk_folder *folder,
                               const char *name, struct dcpk_error *err)
{
    const bool is_integrity = strcmp(name, DCPK_INTEGRITY_NAME) == 0,
               is_journal = strcmp(name, DCPK_JOURNAL_NAME) == 0;
    struct dcpk_source *source;
    enum dcpk_path_kind kind;

    if (dcpk_store_look(m->ckpt->store, name, &kind, err) != DCPK_OK)
        return err->status;
    if (is_integrity || is_journal || kind != DCPK_PATH_FILE) {
        dcpk_checkpoint_note(m->ckpt, "'%s' is not carried over: %s", name,
                             is_integrity ? "its checksums no longer hold"
                             : is_journal ? "it is what a killed run of this program left"
                                          : "it is no plain file");
        return DCPK_OK;
    }
    if (dcpk_store_leads_to_private(m->ckpt->store, name)) {
        dcpk_checkpoint_note(m->ckpt,
                             "'%s' is not carried over: it is a link to what fewer may read than "
                             "the checkpoint",
                             name);
        return DCPK_OK;
    }
    if (dcpk_store_find(m->ckpt->store, name, &source, err) != DCPK_OK)
        return err->status;
    return dcpk_folder_copy(folder, name, source, err);
}

static dcpk_status copy_rest(struct dcpk_modification *m, struct dcpk_folder *folder,
                             struct dcpk_error *err)
{
    char **names = NULL;
    size_t n = 0;
    dcpk_status st = dcpk_store_list(m->ckpt->store, &names, &n, err);

    for (size_t i = 0; i < n && st == DCPK_OK; i++)
        if (!m->ckpt->format->reader->is_own(m->ckpt, names[i]))
            st = copy_beside(m, folder, names[i], err);
    dcpk_free(names);
    return st;
}

/* The data files that stay as they are. */
static dcpk_status link_kept(struct dcpk_modification *m, struct dcpk_folder *folder,
                             struct dcpk_error *err)
{
    const struct dcpk_progress *progress = &m->options->env.progress;
    uint64_t done_bytes = 0, total_bytes = 0;
    dcpk_status st = DCPK_OK;

    for (size_t i = 0; i < m->out->n_kept; i++)
        total_bytes += dcpk_source_bytes(m->out->kept[i].source);

    for (size_t i = 0; i < m->out->n_kept && st == DCPK_OK; i++) {
        const struct dcpk_kept_file *kept = &m->out->kept[i];
        bool linked = false;

        st = dcpk_folder_link(folder, kept->name, kept->source, &linked, err);
        m->n_linked += st == DCPK_OK && linked;
        m->n_copied += st == DCPK_OK && !linked;
        done_bytes += dcpk_source_bytes(kept->source);
        if (st == DCPK_OK && progress->update != NULL &&
            !progress->update(progress->context, done_bytes, total_bytes))
            st = dcpk_fail(err, DCPK_ECANCELLED, "stopped on request");
    }
    return st;
}

/* The writer of what is cast; of a folder with a journal, gone on from what is in it. */
static dcpk_status begin_rewriting(struct making *making, struct dcpk_error *err)
{
    struct dcpk_modification *m = making->m;
    struct dcpk_journal_subject subject;
    dcpk_status st = dcpk_exec_new(m->ckpt, &m->options->env, &making->exec, err);

    if (st == DCPK_OK)
        st = dcpk_writing_new(making->exec, m->out, making->folder, &making->w, err);
    if (st != DCPK_OK || m->target.is_archive || m->target.is_there)
        return st;
    st = dcpk_journal_describe(dcpk_writing_units(making->w), m->options->in, &subject, err);
    if (st != DCPK_OK)
        return st;
    return m->options->force
               ? dcpk_writing_resume_or_clear(making->w, &subject, &m->resumed_bytes, err)
               : dcpk_writing_resume(making->w, &subject, &m->resumed_bytes, err);
}

static dcpk_status rewrite(const struct making *making, struct dcpk_error *err)
{
    const dcpk_status st = dcpk_writing_run_all(making->w, err);

    return st == DCPK_OK ? dcpk_writing_finish(making->w, &making->m->stats, err) : st;
}

/* No data is written: only what makes the folder readable. */
static dcpk_status finish(const struct making *making, struct dcpk_error *err)
{
    struct dcpk_output *out = making->m->out;
    dcpk_status st = DCPK_OK;

    if (out->format->writer->write_ahead != NULL)
        st = out->format->writer->write_ahead(out, making->folder, err);
    return st == DCPK_OK ? out->format->writer->finish(out, making->folder, err) : st;
}

/* The folder: a new one, one to go on with, or one that is there and to be compared. */
static dcpk_status begin(struct making *making, struct dcpk_error *err)
{
    const struct dcpk_modification *m = making->m;

    if (m->target.is_there)
        return dcpk_target_compare(&m->target, m->out, &making->folder, err);
    return dcpk_target_begin(&m->target, folder_flags(m) | dcpk_target_flags(m->out),
                             &making->folder, err);
}

/* What is only linked leaves no journal: there is another run's, and nothing to go on from. */
static dcpk_status begin_linking(const struct making *making, struct dcpk_error *err)
{
    if (!dcpk_folder_is_resumed(making->folder))
        return DCPK_OK;
    if (making->m->options->force)
        return dcpk_folder_clear(making->folder, err);
    return dcpk_fail(err, DCPK_EUSAGE,
                     "what is to be resumed was begun with other options: it can only be begun "
                     "anew");
}

static dcpk_status make(struct making *making, struct dcpk_error *err)
{
    struct dcpk_modification *m = making->m;
    dcpk_status st = begin(making, err);

    if (st == DCPK_OK && m->is_rewritten)
        st = begin_rewriting(making, err);
    else if (st == DCPK_OK)
        st = begin_linking(making, err);
    if (st == DCPK_OK)
        st = copy_rest(m, making->folder, err);
    if (st == DCPK_OK)
        st = link_kept(m, making->folder, err);
    if (st == DCPK_OK)
        st = m->is_rewritten ? rewrite(making, err) : finish(making, err);
    return st == DCPK_OK ? dcpk_target_publish(&m->target, &making->folder, err) : st;
}

dcpk_status dcpk_modification_run(struct dcpk_modification *m, struct dcpk_error *err)
{
    struct making making = {.m = m};
    const dcpk_status st = make(&making, err);
    const bool is_kept = st != DCPK_OK && making.w != NULL && making.folder != NULL &&
                         !m->target.is_there && dcpk_writing_keep(making.w);

    dcpk_writing_free(making.w);
    dcpk_exec_free(making.exec);
    dcpk_folder_abandon(making.folder);
    if (st != DCPK_OK)
        dcpk_target_context(&m->target, is_kept, err);
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
