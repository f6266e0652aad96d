/* SPDX-License-Identifier: Apache-2.0 */
/* run_list.c - looks through a run folder: what iterations there are, and which one is meant. */
#include "lib/ckpt/run_list.h"

#include <errno.h>
#include <fts.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/base/alloc.h"
#include "lib/base/bytes.h"
#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/ckpt/checkpoint.h"
#include "lib/ckpt/overlaps.h"
#include "lib/ckpt/run_names.h"
#include "lib/io/sink.h"

#define MAX_SHOWN 8 /* iterations that a message names */

void dcpk_run_list_release(struct dcpk_run_list *list)
{
    for (size_t i = 0; i < list->n; i++)
        dcpk_free(list->entries[i].name);
    dcpk_free(list->entries);
    *list = (struct dcpk_run_list){0};
}

/* Count the plain files in a folder, at any depth. */
static dcpk_status entry_measure(char *folder, struct dcpk_run_entry *entry, struct dcpk_error *err)
{
    char *const roots[] = {folder, NULL};
    FTS *walk = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR | FTS_COMFOLLOW, NULL);
    FTSENT *e;

    if (walk == NULL)
        return dcpk_fail_errno(err, errno, "looking through '%s'", folder);
    while ((e = fts_read(walk)) != NULL) {
        if (e->fts_info != FTS_F)
            continue;
        entry->n_files++;
        entry->n_bytes += (uint64_t)e->fts_statp->st_size;
    }
    fts_close(walk);
    return DCPK_OK;
}

/* Open it as a reader would; what is in the way of that is why it is not complete. */
static void entry_open(const char *folder, const struct dcpk_format *const *formats,
                       struct dcpk_run_entry *entry)
{
    struct dcpk_error why = DCPK_ERROR_INIT;
    struct dcpk_checkpoint *ckpt = NULL;
    struct dcpk_store *store = NULL;
    size_t n;
    dcpk_status st = dcpk_store_open(folder, &store, &why);

    if (st == DCPK_OK)
        st = dcpk_checkpoint_open(store, formats, NULL, &ckpt, &why);
    if (st == DCPK_OK)
        entry->format = ckpt->format->name;
    if (st == DCPK_OK)
        st = dcpk_check_overlaps(ckpt, &why);
    if (st == DCPK_OK && ckpt->format->check_whole != NULL)
        st = ckpt->format->check_whole(ckpt, &why);
    entry->is_complete = st == DCPK_OK;
    if (st != DCPK_OK) {
        snprintf(entry->why, sizeof entry->why, "opening '%s': ", folder);
        n = strlen(entry->why);
        if (strncmp(why.text, entry->why, n) != 0)
            n = 0;
        /* The folder's name is next to the text. */
        snprintf(entry->why, sizeof entry->why, "%s", why.text + n);
    }
    dcpk_checkpoint_close(ckpt);
}

static dcpk_status entry_fill(const char *run, const struct dcpk_format *const *formats,
                              struct dcpk_run_entry *entry, struct dcpk_error *err)
{
    char *folder = dcpk_run_text(err, "%.*s/%s", dcpk_run_trimmed(run), run, entry->name);
    dcpk_status st;

    if (folder == NULL)
        return err->status;
    st = entry_measure(folder, entry, err);
    if (st == DCPK_OK && !entry->is_partial)
        entry_open(folder, formats, entry);
    else
        snprintf(entry->why, sizeof entry->why,
                 "a run of this program was cut short, or is still running");
    dcpk_free(folder);
    return st;
}

/* The iteration that a name stands for, and whether it is a partial one. */
static int64_t entry_iteration(const char *name, bool *is_partial)
{
    size_t n = strlen(name);

    *is_partial = dcpk_ends_with(name, DCPK_PARTIAL_SUFFIX);
    if (*is_partial)
        n -= strlen(DCPK_PARTIAL_SUFFIX);
    return dcpk_run_name_iteration(name, (int)n);
}

static int compare_iterations(const void *left, const void *right)
{
    const struct dcpk_run_entry *a = left, *b = right;

    if (a->iteration != b->iteration)
        return DCPK_THREE_WAY(a->iteration, b->iteration);
    return strcmp(a->name, b->name);
}

/* The folders among the names that stand for an iteration, in order. */
static dcpk_status entries_collect(struct dcpk_store *store, struct dcpk_run_list *list,
                                   struct dcpk_error *err)
{
    char **names = NULL;
    size_t n = 0;
    dcpk_status st = dcpk_store_list(store, &names, &n, err);

    if (st != DCPK_OK)
        return st;
    list->entries = dcpk_alloc_array(n, sizeof *list->entries, err);
    if (list->entries == NULL) {
        st = err->status;
        goto out;
    }
    for (size_t i = 0; i < n && st == DCPK_OK; i++) {
        struct dcpk_run_entry entry = {0};
        enum dcpk_path_kind kind = DCPK_PATH_NOTHING;

        entry.iteration = entry_iteration(names[i], &entry.is_partial);
        if (entry.iteration != DCPK_ITERATION_UNKNOWN)
            st = dcpk_store_look(store, names[i], &kind, err);
        if (st != DCPK_OK || kind != DCPK_PATH_FOLDER)
            continue;
        entry.name = dcpk_run_text(err, "%s", names[i]);
        if (entry.name == NULL)
            st = err->status;
        else
            list->entries[list->n++] = entry;
    }
    if (list->n > 1)
        qsort(list->entries, list->n, sizeof *list->entries, compare_iterations);
out:
    dcpk_free(names);
    return st;
}

/* Sets *yes if it is a folder that holds iterations and is not a checkpoint itself. */
static dcpk_status is_run(const char *path, const struct dcpk_format *const *formats, bool *yes,
                          struct dcpk_error *err)
{
    enum dcpk_path_kind kind;
    bool is_checkpoint = false;
    dcpk_status st = dcpk_run_look(path, &kind, err);

    if (st == DCPK_OK && kind == DCPK_PATH_FOLDER)
        st = dcpk_run_find_mark(path, formats, &is_checkpoint, err);
    *yes = st == DCPK_OK && kind == DCPK_PATH_FOLDER && !is_checkpoint &&
           dcpk_run_path_iteration(path) == DCPK_ITERATION_UNKNOWN;
    return st;
}

/* A part of the list is the caller's also after a failure. */
static dcpk_status look_through(const char *path, const struct dcpk_format *const *formats,
                                struct dcpk_run_list *list, struct dcpk_error *err)
{
    struct dcpk_store *store = NULL;
    bool yes;
    dcpk_status st = is_run(path, formats, &yes, err);

    if (st != DCPK_OK || !yes)
        return st;
    st = dcpk_store_open(path, &store, err);
    if (st == DCPK_OK)
        st = entries_collect(store, list, err);
    dcpk_store_close(store);
    return st;
}

dcpk_status dcpk_run_list_names(const char *path, const struct dcpk_format *const *formats,
                                struct dcpk_run_list *list, struct dcpk_error *err)
{
    struct dcpk_run_list found = {0};
    const dcpk_status st = look_through(path, formats, &found, err);

    if (st == DCPK_OK)
        *list = found;
    else
        dcpk_run_list_release(&found);
    return st;
}

dcpk_status dcpk_run_list(const char *path, const struct dcpk_format *const *formats,
                          struct dcpk_run_list *list, struct dcpk_error *err)
{
    struct dcpk_run_list found = {0};
    struct dcpk_error ignored = DCPK_ERROR_INIT;
    int64_t named = DCPK_ITERATION_UNKNOWN;
    dcpk_status st = look_through(path, formats, &found, err);

    if (st == DCPK_OK && found.n > 0 && dcpk_run_read_tracker(path, &named, &ignored) != DCPK_OK)
        named = DCPK_ITERATION_UNKNOWN;
    for (size_t i = 0; i < found.n && st == DCPK_OK; i++) {
        found.entries[i].is_named =
            !found.entries[i].is_partial && found.entries[i].iteration == named;
        st = entry_fill(path, formats, &found.entries[i], err);
    }
    if (st == DCPK_OK)
        *list = found;
    else
        dcpk_run_list_release(&found);
    return st;
}

/* There is no such iteration: name those that are there. */
static dcpk_status no_such(const char *path, int64_t iteration,
                           const struct dcpk_format *const *formats, struct dcpk_error *err)
{
    struct dcpk_run_list list = {0};
    struct dcpk_bytes text = {0};
    char number[DCPK_ITERATION_TEXT_BYTES];
    size_t n = 0;
    dcpk_status st = look_through(path, formats, &list, err);

    for (size_t i = 0; i < list.n; i++)
        if (!list.entries[i].is_partial && n++ < MAX_SHOWN)
            dcpk_bytes_printf(&text, "%s%s", n == 1 ? "" : ", ",
                              dcpk_run_iteration_text(list.entries[i].iteration, number));
    dcpk_bytes_u8(&text, 0);
    if (st == DCPK_OK)
        st = dcpk_bytes_status(&text, err);
    if (st == DCPK_OK)
        st = dcpk_fail(err, DCPK_EFORMAT, "'%s' has no iteration %s%s%s%s", path,
                       dcpk_run_iteration_text(iteration, number), n == 0 ? "" : "; it has ",
                       (const char *)text.data, n > MAX_SHOWN ? ", ..." : "");
    dcpk_bytes_release(&text);
    dcpk_run_list_release(&list);
    return st;
}

/* A checkpoint itself: it can only be that iteration already. */
static dcpk_status check_is(const char *path, int64_t iteration, struct dcpk_error *err)
{
    char number[DCPK_ITERATION_TEXT_BYTES];

    if (dcpk_run_path_iteration(path) == iteration)
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EUSAGE, "'%s' is itself a checkpoint, and not called iteration %s",
                     path, dcpk_run_iteration_text(iteration, number));
}

/* Opening it reports what is missing there. */
static dcpk_status choose_remote(const char *url, int64_t iteration,
                                 char chosen[DCPK_RUN_PATH_BYTES], struct dcpk_error *err)
{
    char *folder = dcpk_run_iteration_path(url, iteration, err);

    if (folder == NULL)
        return err->status;
    if (strlen(folder) >= DCPK_RUN_PATH_BYTES)
        dcpk_fail(err, DCPK_EUSAGE, "the URL '%.100s...' is too long", url);
    else
        memcpy(chosen, folder, strlen(folder) + 1);
    dcpk_free(folder);
    return err->status;
}

dcpk_status dcpk_run_choose(const char *path, int64_t iteration,
                            const struct dcpk_format *const *formats,
                            char chosen[DCPK_RUN_PATH_BYTES], struct dcpk_error *err)
{
    enum dcpk_path_kind kind;
    bool is_run_folder, is_inner;
    char *folder = NULL;
    dcpk_status st = dcpk_run_look(path, &kind, err);

    if (st == DCPK_OK && dcpk_run_is_remote(path))
        return choose_remote(path, iteration, chosen, err);
    if (st == DCPK_OK && strlen(path) >= DCPK_RUN_PATH_BYTES - sizeof "/iter_" - 20)
        st = dcpk_fail(err, DCPK_EUSAGE, "the path '%.100s...' is too long", path);
    if (st != DCPK_OK)
        return st;
    is_inner = kind == DCPK_PATH_NOTHING && dcpk_run_split(path, chosen) != NULL;
    snprintf(chosen, DCPK_RUN_PATH_BYTES, "%s", path);
    if (kind == DCPK_PATH_NOTHING && !is_inner) /* opening it reports what is wrong */
        return DCPK_OK;
    is_run_folder = is_inner && dcpk_run_path_iteration(path) == DCPK_ITERATION_UNKNOWN;
    if (kind == DCPK_PATH_FOLDER)
        st = is_run(path, formats, &is_run_folder, err);
    if (st == DCPK_OK && kind != DCPK_PATH_FILE && !is_run_folder)
        st = check_is(path, iteration, err);
    if (st != DCPK_OK || (kind != DCPK_PATH_FILE && !is_run_folder))
        return st;
    folder = dcpk_run_iteration_path(kind == DCPK_PATH_FILE ? "" : path, iteration, err);
    if (folder == NULL)
        return err->status;
    if (kind == DCPK_PATH_FILE) {
        snprintf(chosen, DCPK_RUN_PATH_BYTES, "%s:%s", path, folder + 1);
    } else {
        snprintf(chosen, DCPK_RUN_PATH_BYTES, "%s", folder);
        if (!is_inner) /* opening an archive reports what is missing in it */
            st = dcpk_run_look(folder, &kind, err);
        if (st == DCPK_OK && !is_inner && kind != DCPK_PATH_FOLDER)
            st = no_such(path, iteration, formats, err);
    }
    dcpk_free(folder);
    return st;
}
