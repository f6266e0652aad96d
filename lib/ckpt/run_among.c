/* SPDX-License-Identifier: Apache-2.0 */
/* run_among.c - finds the checkpoint among the files of an archive. */
#include <stdlib.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/bytes.h"
#include "lib/ckpt/run_names.h"

#define MAX_SHOWN 5 /* folders that a message names */

/* A folder in the archive: the first n bytes of a file's path, without the slash behind it. */
struct folder {
    const char *path;
    size_t n;
};

struct candidates {
    struct folder list[MAX_SHOWN]; /* the first ones */
    struct folder last;
    size_t n;
};

/* The place of the first name that is not below text[0 .. n). */
static size_t lower_bound(const struct dcpk_run_files *files, const char *text, size_t n)
{
    size_t low = 0, high = files->n;

    while (low < high) {
        const size_t middle = low + (high - low) / 2;

        if (strncmp(files->names[middle], text, n) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Is there a file "<folder>/<name>"? scratch: room for it. */
static bool holds(const struct dcpk_run_files *files, const struct folder *folder, const char *name,
                  char *scratch)
{
    const size_t n_name = strlen(name), n_folder = folder->n == 0 ? 0 : folder->n + 1;
    size_t at;

    memcpy(scratch, folder->path, folder->n);
    if (n_folder > 0)
        scratch[folder->n] = '/';
    memcpy(scratch + n_folder, name, n_name + 1);
    at = lower_bound(files, scratch, n_folder + n_name + 1);
    return at < files->n && strcmp(files->names[at], scratch) == 0;
}

static bool has_mark(const struct dcpk_run_files *files, const struct folder *folder, char *scratch)
{
    for (size_t i = 0; i < DCPK_RUN_N_MARKS; i++)
        if (holds(files, folder, dcpk_run_marks[i], scratch))
            return true;
    return false;
}

static int64_t folder_iteration(const struct folder *folder)
{
    size_t at = folder->n;

    while (at > 0 && folder->path[at - 1] != '/')
        at--;
    return dcpk_run_name_iteration(folder->path + at, (int)(folder->n - at));
}

/* The outermost folder around the file that is a checkpoint: by a mark in it, or by its name. */
static bool find_outermost(const struct dcpk_run_files *files, const char *file, bool by_name,
                           char *scratch, struct folder *found)
{
    const char *slash = file;

    found->path = file;
    found->n = 0;
    while (slash != NULL) {
        if (by_name ? folder_iteration(found) != DCPK_ITERATION_UNKNOWN
                    : has_mark(files, found, scratch))
            return true;
        slash = strchr(file + found->n + (found->n > 0), '/');
        if (slash != NULL)
            found->n = (size_t)(slash - file);
    }
    return false;
}

static bool same(const struct folder *a, const struct folder *b)
{
    return a->n == b->n && memcmp(a->path, b->path, a->n) == 0;
}

/* Does the folder's path end with `inner`, a whole one? Slashes around it do not count. */
static bool is_meant(const struct folder *folder, const char *inner)
{
    size_t n;

    inner += strspn(inner, "/");
    n = strlen(inner);
    while (n > 0 && inner[n - 1] == '/')
        n--;
    if (n == 0 || n > folder->n)
        return n == folder->n;
    return memcmp(folder->path + folder->n - n, inner, n) == 0 &&
           (n == folder->n || folder->path[folder->n - n - 1] == '/');
}

/* Those that `inner` means, NULL: all. The files of one folder follow each other, so that a new
 * folder differs from the last one. */
static void collect(const struct dcpk_run_files *files, bool by_name, const char *inner,
                    char *scratch, struct candidates *c)
{
    struct folder folder;

    for (size_t i = 0; i < files->n; i++) {
        if (!find_outermost(files, files->names[i], by_name, scratch, &folder) ||
            (inner != NULL && !is_meant(&folder, inner)) || (c->n > 0 && same(&folder, &c->last)))
            continue;
        if (c->n < MAX_SHOWN)
            c->list[c->n] = folder;
        c->last = folder;
        c->n++;
    }
}

/* Is the file a tracker outside of all checkpoints? */
static bool is_tracker(const struct dcpk_run_files *files, const char *file, char *scratch)
{
    const char *slash = strrchr(file, '/');
    struct folder folder;

    return strcmp(slash == NULL ? file : slash + 1, DCPK_TRACKER_NAME) == 0 &&
           !find_outermost(files, file, false, scratch, &folder);
}

/* Not one that is meant: those that are there. */
static dcpk_status not_one(const struct candidates *c, const char *inner, struct dcpk_error *err)
{
    struct dcpk_bytes text = {0};
    dcpk_status st;

    for (size_t i = 0; i < c->n && i < MAX_SHOWN; i++)
        dcpk_bytes_printf(&text, "%s'%.*s'", i == 0 ? "" : ", ", (int)c->list[i].n,
                          c->list[i].path);
    dcpk_bytes_u8(&text, 0);
    st = dcpk_bytes_status(&text, err);
    if (st == DCPK_OK)
        st = dcpk_fail(err, DCPK_EFORMAT,
                       "the archive holds %zu checkpoint%s and not one %s%s%s: %s%s; name the one "
                       "you mean behind a colon, ARCHIVE:FOLDER",
                       c->n, c->n == 1 ? "" : "s",
                       inner == NULL ? "tracker (" DCPK_TRACKER_NAME : "called '",
                       inner == NULL ? "" : inner, inner == NULL ? ") that chooses" : "'",
                       (const char *)text.data, c->n > MAX_SHOWN ? ", ..." : "");
    dcpk_bytes_release(&text);
    return st;
}

static dcpk_status by_tracker(const struct dcpk_run_files *files, size_t tracker,
                              struct dcpk_run *run, struct dcpk_error *err)
{
    const char *name = files->names[tracker], *slash = strrchr(name, '/');
    char text[DCPK_RUN_TRACKER_BYTES];
    char *around = NULL, *path = NULL;
    size_t n, at;
    dcpk_status st = files->read(files->context, tracker, text, sizeof text, &n, err);

    if (st == DCPK_OK)
        st = dcpk_run_parse_tracker(text, n, &run->iteration, err);
    if (st != DCPK_OK)
        return st;
    around = dcpk_run_text(err, "%.*s", slash == NULL ? 0 : (int)(slash - name), name);
    path = around == NULL ? NULL : dcpk_run_iteration_path(around, run->iteration, err);
    if (path == NULL) {
        st = err->status;
        goto out;
    }
    run->folder = dcpk_run_text(err, "%s", path + (path[0] == '/')); /* of a tracker in the root */
    if (run->folder == NULL) {
        st = err->status;
        goto out;
    }
    n = strlen(run->folder);
    at = lower_bound(files, run->folder, n);
    while (at < files->n && strncmp(files->names[at], run->folder, n) == 0 &&
           files->names[at][n] != '/')
        at++; /* "iter_0000004.json" and such */
    if (at == files->n || strncmp(files->names[at], run->folder, n) != 0)
        st = dcpk_fail(err, DCPK_EFORMAT, "'%s' names '%s', but the archive has no such folder",
                       name, run->folder);
out:
    dcpk_free(path);
    dcpk_free(around);
    return st;
}

static dcpk_status by_looking(const struct dcpk_run_files *files, const char *inner, char *scratch,
                              struct dcpk_run *run, struct dcpk_error *err)
{
    struct candidates c = {.n = 0};
    bool is_other;

    collect(files, false, inner, scratch, &c);
    if (c.n == 0)
        collect(files, true, inner, scratch, &c);
    is_other = c.n == 0 && inner != NULL;
    if (is_other)
        collect(files, false, NULL, scratch, &c);
    if (c.n > 1 || (c.n == 1 && is_other))
        return not_one(&c, inner, err);
    if (c.n == 0)
        return dcpk_fail(err, DCPK_EFORMAT,
                         "no checkpoint among the %zu files of the archive (looked for a folder "
                         "with .metadata, metadata.json or .zarray in it, or called iter_NNNNNNN "
                         "or release, and for %s)",
                         files->n, DCPK_TRACKER_NAME);
    run->iteration = folder_iteration(&c.last);
    run->folder = dcpk_run_text(err, "%.*s", (int)c.last.n, c.last.path);
    return run->folder == NULL ? err->status : DCPK_OK;
}

dcpk_status dcpk_run_find_among(const struct dcpk_run_files *files, const char *inner,
                                struct dcpk_run *run, struct dcpk_error *err)
{
    struct dcpk_run found = {.iteration = DCPK_ITERATION_UNKNOWN};
    size_t longest = 0, n_trackers = 0, tracker = 0;
    char *scratch;
    dcpk_status st;

    for (size_t i = 0; i < files->n; i++)
        if (strlen(files->names[i]) > longest)
            longest = strlen(files->names[i]);
    scratch = dcpk_alloc(longest + sizeof "/metadata.json", err);
    if (scratch == NULL)
        return err->status;
    for (size_t i = 0; i < files->n; i++)
        if (is_tracker(files, files->names[i], scratch)) {
            n_trackers++;
            tracker = i;
        }
    if (n_trackers == 1 && inner == NULL)
        st = by_tracker(files, tracker, &found, err);
    else
        st = by_looking(files, inner, scratch, &found, err);
    dcpk_free(scratch);
    if (st == DCPK_OK)
        *run = found;
    else
        dcpk_run_release(&found);
    return st;
}
