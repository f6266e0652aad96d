/* SPDX-License-Identifier: Apache-2.0 */
/* write_journal.c - records what is done once it is on disk, for a run that resumes later. */
#include <assert.h>
#include <inttypes.h>

#include "lib/base/alloc.h"
#include "lib/base/clock.h"
#include "lib/write/write_priv.h"

/* A commit waits for the disk: rare enough not to be felt, and this much work is at stake. */
#define COMMIT_UNITS   16 /* a GiB */
#define COMMIT_SECONDS 5

/* Takes the units that the journal has. */
static void take_found(struct dcpk_writing *w)
{
    const struct dcpk_journal *journal = &w->keeping.journal;

    for (size_t i = 0; i < journal->n_found; i++) {
        const struct dcpk_journal_record *record = &journal->found[i];

        if (record->unit < w->units.n)
            w->states[record->unit] =
                (struct dcpk_unit_state){.crc32 = record->crc32, .is_done = !record->is_lost};
    }
}

/* Undo what the journal has of a unit. */
static dcpk_status add_lost(struct dcpk_writing *w, size_t unit, struct dcpk_error *err)
{
    struct dcpk_keeping *k = &w->keeping;

    w->states[unit] = (struct dcpk_unit_state){0};
    if (dcpk_grow(&k->records, &k->capacity, k->n_records, sizeof *k->records, err) != DCPK_OK)
        return err->status;
    k->records[k->n_records++] = (struct dcpk_journal_record){.unit = unit, .is_lost = true};
    return DCPK_OK;
}

/*
 * Units count as done where their file is there: plain, whole, and of this user alone. All else in
 * the folder goes: it would be rewritten, or is not of this output.
 */
static dcpk_status take_files(struct dcpk_writing *w, struct dcpk_error *err)
{
    uint32_t file = UINT32_MAX;
    bool is_there = false;

    for (size_t i = 0; i < w->units.n; i++) {
        const struct dcpk_out_file *out = &w->out->files[dcpk_unit_file(&w->units, i)];

        if (!w->states[i].is_done)
            continue;
        if (dcpk_unit_file(&w->units, i) != file &&
            dcpk_folder_take(w->folder, out->name, out->n_bytes, &is_there, err) != DCPK_OK)
            return err->status;
        file = dcpk_unit_file(&w->units, i);
        if (is_there)
            dcpk_writing_set_result(w, i, w->states[i].crc32);
        else if (add_lost(w, i, err) != DCPK_OK)
            return err->status;
    }
    return dcpk_folder_settle(w->folder, err);
}

/*
 * Keeps the journal's records that are still valid. Others are recorded as lost before their file
 * is created again; without that, a killed run would leave a file that looks complete.
 */
static dcpk_status check_found(struct dcpk_writing *w, struct dcpk_error *err)
{
    struct dcpk_keeping *k = &w->keeping;
    uint64_t bad_bytes;

    if (take_files(w, err) != DCPK_OK)
        return err->status;
    for (size_t i = 0; i < w->units.n; i++)
        if (w->states[i].is_done)
            k->recorded_bytes += dcpk_unit_bytes(&w->units, i);
    if (dcpk_write_check_found(w, &bad_bytes, err) != DCPK_OK)
        return err->status;
    k->recorded_bytes -= bad_bytes;
    for (size_t i = 0; i < w->units.n; i++) {
        w->states[i].is_recorded = w->states[i].is_done;
        if (w->states[i].is_on_disk && !w->states[i].is_done && add_lost(w, i, err) != DCPK_OK)
            return err->status;
    }
    if (bad_bytes > 0)
        dcpk_checkpoint_note(w->out->source,
                             "%" PRIu64
                             " bytes of an earlier run have changed since and are written again",
                             bad_bytes);
    if (k->n_records == 0)
        return DCPK_OK;
    return dcpk_journal_append(&k->journal, k->records, k->n_records, err);
}

dcpk_status dcpk_writing_resume(struct dcpk_writing *w, const struct dcpk_journal_subject *subject,
                                uint64_t *resumed_bytes, struct dcpk_error *err)
{
    struct dcpk_keeping *k = &w->keeping;

    if (dcpk_journal_open(w->folder, subject, &k->journal, err) != DCPK_OK)
        return err->status;
    take_found(w);
    if (check_found(w, err) != DCPK_OK)
        return err->status;
    k->waiting_bytes = 0;
    k->is_on = true;
    k->next_seconds = dcpk_now_seconds() + COMMIT_SECONDS;
    *resumed_bytes = k->recorded_bytes;
    return DCPK_OK;
}

dcpk_status dcpk_writing_resume_or_clear(struct dcpk_writing *w,
                                         const struct dcpk_journal_subject *subject,
                                         uint64_t *resumed_bytes, struct dcpk_error *err)
{
    struct dcpk_error why = DCPK_ERROR_INIT;
    dcpk_status st = dcpk_writing_resume(w, subject, resumed_bytes, &why);

    if (st == DCPK_EUSAGE) {
        st = dcpk_folder_clear(w->folder, &why);
        if (st == DCPK_OK)
            st = dcpk_writing_resume(w, subject, resumed_bytes, &why);
    }
    if (st != DCPK_OK)
        *err = why;
    return st;
}

void dcpk_writing_report(struct dcpk_writing *w, dcpk_writing_done *done, void *context)
{
    w->keeping.done = done;
    w->keeping.context = context;
    w->keeping.is_on = true;
    w->keeping.next_seconds = dcpk_now_seconds() + COMMIT_SECONDS;
}

void dcpk_write_note_done(struct dcpk_writing *w, size_t unit)
{
    struct dcpk_keeping *k = &w->keeping;

    k->end = unit >= k->end ? unit + 1 : k->end;
    k->waiting_bytes += dcpk_unit_bytes(&w->units, unit);
}

void dcpk_writing_set_result(struct dcpk_writing *w, size_t unit, uint32_t crc32)
{
    pthread_mutex_lock(&w->mutex);
    w->states[unit] = (struct dcpk_unit_state){.crc32 = crc32, .is_done = true, .is_on_disk = true};
    w->files[dcpk_unit_file(&w->units, unit)].was_opened = true; /* by any rank or thread */
    dcpk_write_note_done(w, unit);
    pthread_mutex_unlock(&w->mutex);
}

bool dcpk_write_commit_is_due(struct dcpk_writing *w)
{
    struct dcpk_keeping *k = &w->keeping;

    if (!k->is_on || k->is_committing ||
        (k->waiting_bytes < COMMIT_UNITS * w->units.limit_bytes &&
         dcpk_now_seconds() < k->next_seconds))
        return false;
    k->is_committing = true;
    return true;
}

/*
 * List the units that are done but not written down, and hold their files open; those of a file
 * that is being closed just now wait for the next time. Under the lock.
 */
static dcpk_status collect(struct dcpk_writing *w, struct dcpk_error *err)
{
    struct dcpk_keeping *k = &w->keeping;

    k->n_records = 0;
    k->waiting_bytes = 0;
    for (size_t i = k->first; i < k->end; i++) {
        struct dcpk_unit_state *state = &w->states[i];
        struct dcpk_open_file *f = &w->files[dcpk_unit_file(&w->units, i)];

        if (!state->is_done || state->is_recorded ||
            (!state->is_on_disk && f->sink == NULL && !f->is_synced))
            continue;
        if (dcpk_grow(&k->records, &k->capacity, k->n_records, sizeof *k->records, err) != DCPK_OK)
            return err->status;
        k->records[k->n_records++] = (struct dcpk_journal_record){.unit = i, .crc32 = state->crc32};
        state->is_recorded = true;
        if (!state->is_on_disk && f->sink != NULL && !f->is_held) {
            f->is_held = true;
            f->n_users++;
        }
    }
    while (k->first < k->end && w->states[k->first].is_recorded)
        k->first++;
    return DCPK_OK;
}

/* Records are in the order of the files. The file of record i, if it is held; else NULL. */
static struct dcpk_open_file *held_file(const struct dcpk_writing *w, size_t i, uint32_t *file)
{
    *file = dcpk_unit_file(&w->units, (size_t)w->keeping.records[i].unit);
    return w->files[*file].is_held ? &w->files[*file] : NULL;
}

/* Sync the files that are held. */
static dcpk_status sync_held(struct dcpk_writing *w, struct dcpk_error *err)
{
    const struct dcpk_open_file *last = NULL;
    uint32_t file;

    for (size_t i = 0; i < w->keeping.n_records; i++) {
        const struct dcpk_open_file *f = held_file(w, i, &file);

        if (f != NULL && f != last && dcpk_sink_sync(f->sink, err) != DCPK_OK)
            return err->status;
        last = f;
    }
    return DCPK_OK;
}

/* Release the files that are held. Returns st, or the first failure. */
static dcpk_status leave_held(struct dcpk_writing *w, dcpk_status st, struct dcpk_error *err)
{
    struct dcpk_error ignored = DCPK_ERROR_INIT;
    uint32_t file;

    for (size_t i = 0; i < w->keeping.n_records; i++) {
        struct dcpk_open_file *f = held_file(w, i, &file);

        if (f == NULL)
            continue;
        f->is_held = false;
        if (dcpk_write_leave(w, file, st == DCPK_OK ? err : &ignored) != DCPK_OK && st == DCPK_OK)
            st = err->status;
    }
    return st;
}

/* Record, or report, what a commit has collected. */
static dcpk_status record_commit(struct dcpk_keeping *k, struct dcpk_error *err)
{
    dcpk_status st = DCPK_OK;

    if (k->done == NULL && k->n_records > 0)
        return dcpk_journal_append(&k->journal, k->records, k->n_records, err);
    for (size_t i = 0; i < k->n_records && st == DCPK_OK; i++)
        st = k->done(k->context, k->records[i].unit, k->records[i].crc32, err);
    return st;
}

dcpk_status dcpk_write_commit(struct dcpk_writing *w, struct dcpk_error *err)
{
    struct dcpk_keeping *k = &w->keeping;
    dcpk_status st;

    assert(k->is_on && k->is_committing);
    pthread_mutex_lock(&w->mutex);
    st = collect(w, err);
    pthread_mutex_unlock(&w->mutex);
    if (st == DCPK_OK)
        st = sync_held(w, err);
    if (st == DCPK_OK && k->n_records > 0)
        st = dcpk_folder_sync(w->folder, err);
    if (st == DCPK_OK)
        st = record_commit(k, err);
    for (size_t i = 0; st == DCPK_OK && i < k->n_records; i++)
        k->recorded_bytes += dcpk_unit_bytes(&w->units, (size_t)k->records[i].unit);
    st = leave_held(w, st, err);
    pthread_mutex_lock(&w->mutex);
    k->is_committing = false;
    k->is_on = st == DCPK_OK; /* after a failed sync another one may succeed without the data */
    k->next_seconds = dcpk_now_seconds() + COMMIT_SECONDS;
    pthread_mutex_unlock(&w->mutex);
    return st;
}

dcpk_status dcpk_writing_record(struct dcpk_writing *w, struct dcpk_error *err)
{
    bool is_due;

    pthread_mutex_lock(&w->mutex);
    is_due = dcpk_write_commit_is_due(w);
    if (w->keeping.is_on && w->keeping.done != NULL) /* others wait for it */
        is_due = w->keeping.is_committing = true;
    pthread_mutex_unlock(&w->mutex);
    if (!is_due)
        return DCPK_OK;
    return dcpk_write_commit(w, err);
}

bool dcpk_writing_keep(struct dcpk_writing *w)
{
    struct dcpk_keeping *k = &w->keeping;
    struct dcpk_error ignored = DCPK_ERROR_INIT;

    if (k->is_on) {
        k->is_committing = true;
        (void)dcpk_write_commit(w, &ignored);
    }
    return k->recorded_bytes > 0 &&
           (k->recorded_bytes >= w->units.limit_bytes || dcpk_folder_is_resumed(w->folder)) &&
           dcpk_folder_keep(w->folder);
}
