/* SPDX-License-Identifier: Apache-2.0 */
/* run_among.c - finds the checkpoint among the files of an archive. */
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/bytes.h"
#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/ckpt/format.h"
#include "lib/ckpt/run_names.h"

#define MAX_SHOWN 5 /* folders that a message names */

/* A folder in the archive: the first n bytes of a file's path, without the slash after it. */
struct folder {
    const char *path;
    size_t n;
};

struct candidates {
    struct folder list[MAX_SHOWN]; /* the first ones */
    struct folder last;
    size_t n;
};

/* Looking through the files of an archive. */
struct search {
    const struct dcpk_run_files *files;
    char *scratch; /* room for a path of them, and a mark after it */
    const struct dcpk_mark *marks[DCPK_MAX_MARKS];
    size_t n_marks;
};

/* The place of the first name that is not below text[0 .. n). */
static size_t lower_bound(const struct dcpk_run_files *files, const char *text, size_t n)
{
    size_t low = 0, high = files->n;

    for (size_t i; dcpk_bisect(low, high, &i);)
        if (strncmp(files->names[i], text, n) < 0)
            low = i + 1;
        else
            high = i;
    return low;
}

/* True if there is a file "<folder>/<name>". */
static bool folder_holds(const struct search *s, const struct folder *folder, const char *name)
{
    const struct dcpk_run_files *files = s->files;
    char *scratch = s->scratch;
    const size_t n_name = strlen(name), n_folder = folder->n == 0 ? 0 : folder->n + 1;
    size_t at;

    memcpy(scratch, folder->path, folder->n);
    if (n_folder > 0)
        scratch[folder->n] = '/';
    memcpy(scratch + n_folder, name, n_name + 1);
    at = lower_bound(files, scratch, n_folder + n_name + 1);
    return at < files->n && strcmp(files->names[at], scratch) == 0;
}

static bool has_mark(const struct search *s, const struct folder *folder)
{
    for (size_t i = 0; i < s->n_marks; i++)
        if (folder_holds(s, folder, s->marks[i]->start))
            return true;
    return false;
}

/* Where the folder's name begins in its path. */
static size_t name_at(const struct folder *folder)
{
    size_t at = folder->n;

    while (at > 0 && folder->path[at - 1] != '/')
        at--;
    return at;
}

static int64_t folder_iteration(const struct folder *folder)
{
    const size_t at = name_at(folder);

    return dcpk_run_name_iteration(folder->path + at, (int)(folder->n - at));
}

/* The outermost folder around the file that is a checkpoint: by a mark in it, or by its name. */
static bool find_outermost(const struct search *s, const char *file, bool by_name,
                           struct folder *found)
{
    const char *slash = file;

    found->path = file;
    found->n = 0;
    while (slash != NULL) {
        if (by_name && folder_iteration(found) != DCPK_ITERATION_UNKNOWN)
            return true;
        if (!by_name && has_mark(s, found))
            return true;
        slash = strchr(file + found->n + (found->n > 0), '/');
        if (slash != NULL)
            found->n = (size_t)(slash - file);
    }
    return false;
}

static bool same_folder(const struct folder *a, const struct folder *b)
{
    return a->n == b->n && memcmp(a->path, b->path, a->n) == 0;
}

/* The folder that the file is in. */
static struct folder folder_around(const char *file)
{
    return (struct folder){file,
                           (size_t)(dcpk_name_last(file) - file) - (strchr(file, '/') != NULL)};
}

/* True if the folder's path ends with `inner`, a whole one. Slashes around it do not count. */
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

/* Collects the folders that `inner` means, NULL: all. The files of one folder follow each other, so
 * that a new folder differs from the last one. */
static void candidates_collect(const struct search *s, bool by_name, const char *inner,
                               struct candidates *c)
{
    const struct dcpk_run_files *files = s->files;
    struct folder folder, before = {NULL, 0};

    for (size_t i = 0; i < files->n; i++) {
        const struct folder around = folder_around(files->names[i]);
        const bool is_seen = i > 0 && same_folder(&around, &before);

        before = around;
        if (is_seen || !find_outermost(s, files->names[i], by_name, &folder) ||
            (inner != NULL && !is_meant(&folder, inner)) ||
            (c->n > 0 && same_folder(&folder, &c->last)))
            continue;
        if (c->n < MAX_SHOWN)
            c->list[c->n] = folder;
        c->last = folder;
        c->n++;
    }
}

/* A model and its optimizer in a folder each, and no other one, become the folder around them. */
static void join_parts(const struct search *s, struct candidates *c)
{
    const struct folder a = c->list[0], b = c->list[1];
    size_t at;

    if (c->n != 2 || name_at(&a) != name_at(&b) || strncmp(a.path, b.path, name_at(&a)) != 0)
        return;
    at = name_at(&a);
    for (const struct dcpk_format *const *f = s->files->formats; *f != NULL; f++)
        if ((*f)->part_folder != NULL && folder_holds(s, &a, (*f)->marks[0].start) &&
            folder_holds(s, &b, (*f)->marks[0].start) &&
            dcpk_starts_with(a.path + at, (*f)->part_folder) !=
                dcpk_starts_with(b.path + at, (*f)->part_folder))
            *c = (struct candidates){.last = {a.path, at - (at > 0)}, .n = 1};
}

/* True if the file is a tracker outside of all checkpoints. */
static bool is_tracker_file(const struct search *s, const char *file)
{
    struct folder folder;

    return strcmp(dcpk_name_last(file), DCPK_TRACKER_NAME) == 0 &&
           !find_outermost(s, file, false, &folder);
}

/* There is not exactly one checkpoint: names the candidates. */
static dcpk_status not_one(const struct candidates *c, const char *inner, struct dcpk_error *err)
{
    struct dcpk_bytes text = {0};
    dcpk_status st;

    for (size_t i = 0; i < c->n && i < MAX_SHOWN; i++)
        dcpk_bytes_printf(&text, "%s'%.*s'", dcpk_joint(i > 0, ", "), (int)c->list[i].n,
                          c->list[i].path);
    dcpk_bytes_u8(&text, 0);
    st = dcpk_bytes_status(&text, err);
    if (st == DCPK_OK)
        st = dcpk_fail(err, DCPK_EFORMAT,
                       "the archive holds %zu checkpoint%s and not one %s%s%s: %s%s; add the "
                       "folder of one after a colon, ARCHIVE:FOLDER",
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
    if (around != NULL)
        path = dcpk_run_iteration_path(around, run->iteration, err);
    if (path != NULL) /* the path of a tracker in the root begins with '/' */
        run->folder = dcpk_run_text(err, "%s", path + (path[0] == '/'));
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

static dcpk_status by_looking(const struct search *s, const char *inner, struct dcpk_run *run,
                              struct dcpk_error *err)
{
    struct candidates c = {.n = 0};
    char marks[DCPK_MARKS_BYTES];
    bool is_other;

    candidates_collect(s, false, inner, &c);
    if (c.n == 0)
        candidates_collect(s, true, inner, &c);
    if (inner == NULL)
        join_parts(s, &c);
    is_other = c.n == 0 && inner != NULL;
    if (is_other)
        candidates_collect(s, false, NULL, &c);
    if (c.n > 1 || (c.n == 1 && is_other))
        return not_one(&c, inner, err);
    if (c.n == 0)
        return dcpk_fail(err, DCPK_EFORMAT,
                         "no checkpoint among the %zu files (looked for a folder "
                         "with %s in it, or called iter_NNNNNNN or release, and for %s)",
                         s->files->n, dcpk_marks_words(s->files->formats, DCPK_MARK_INNER, marks),
                         DCPK_TRACKER_NAME);
    run->iteration = folder_iteration(&c.last);
    run->folder = dcpk_run_text(err, "%.*s", (int)c.last.n, c.last.path);
    if (run->folder == NULL)
        return err->status;
    return DCPK_OK;
}

dcpk_status dcpk_run_find_among(const struct dcpk_run_files *files, const char *inner,
                                struct dcpk_run *run, struct dcpk_error *err)
{
    struct dcpk_run found = {.iteration = DCPK_ITERATION_UNKNOWN};
    struct search s = {.files = files};
    size_t longest = 0, longest_mark = 0, n_trackers = 0, tracker = 0;
    dcpk_status st;

    s.n_marks = dcpk_marks_list(files->formats, DCPK_MARK_INNER, s.marks);
    for (size_t i = 0; i < s.n_marks; i++)
        if (strlen(s.marks[i]->start) > longest_mark)
            longest_mark = strlen(s.marks[i]->start);
    for (size_t i = 0; i < files->n; i++)
        if (strlen(files->names[i]) > longest)
            longest = strlen(files->names[i]);
    s.scratch = dcpk_alloc(longest + longest_mark + sizeof "/", err);
    if (s.scratch == NULL)
        return err->status;
    for (size_t i = 0; i < files->n; i++)
        if (is_tracker_file(&s, files->names[i])) {
            n_trackers++;
            tracker = i;
        }
    if (n_trackers == 1 && inner == NULL)
        st = by_tracker(files, tracker, &found, err);
    else
        st = by_looking(&s, inner, &found, err);
    dcpk_free(s.scratch);
    if (st == DCPK_OK)
        *run = found;
    else
        dcpk_run_release(&found);
    return st;
}
