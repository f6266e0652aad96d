/* SPDX-License-Identifier: Apache-2.0 */
/* run.c - run folders, iteration folders and the tracker between them. */
#include "lib/ckpt/run.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/base/path.h"
#include "lib/base/text.h"
#include "lib/ckpt/foreign.h"
#include "lib/ckpt/format.h"
#include "lib/ckpt/run_names.h"

#define MAX_ITERATION_DIGIT 18 /* below 2^63 whatever they are */
#define ITERATION_PREFIX    "iter_"
#define RELEASE_NAME        "release"
#define STEP_PREFIX         "global_step_" /* of verl, whose tracker has the same name */

void dcpk_run_release(struct dcpk_run *run)
{
    dcpk_free(run->folder);
    dcpk_free(run->tracker);
    dcpk_free(run->tracker_text);
    dcpk_free(run->inner);
    memset(run, 0, sizeof *run);
}

char *dcpk_run_text(struct dcpk_error *err, const char *fmt, ...)
{
    va_list ap;
    char *text;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    text = dcpk_alloc((size_t)n + 1, err);
    if (text == NULL)
        return NULL;
    va_start(ap, fmt);
    vsnprintf(text, (size_t)n + 1, fmt, ap);
    va_end(ap);
    return text;
}

int dcpk_run_trimmed(const char *path)
{
    size_t n = strlen(path);

    while (n > 1 && path[n - 1] == '/')
        n--;
    return (int)n;
}

const char *dcpk_run_last_name(const char *path, int n_path, int *n)
{
    int at = n_path;

    while (at > 0 && path[at - 1] != '/')
        at--;
    *n = n_path - at;
    return path + at;
}

static bool digits_to_int(const char *text, size_t n, int64_t *value)
{
    int64_t v = 0;

    if (n == 0 || n > MAX_ITERATION_DIGIT)
        return false;
    for (size_t i = 0; i < n; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        v = v * 10 + (text[i] - '0');
    }
    *value = v;
    return true;
}

int64_t dcpk_run_name_iteration(const char *name, int n)
{
    const int n_prefix = (int)strlen(ITERATION_PREFIX);
    int64_t iteration;

    if (n == (int)strlen(RELEASE_NAME) && memcmp(name, RELEASE_NAME, (size_t)n) == 0)
        return DCPK_ITERATION_RELEASE;
    if (n > n_prefix && memcmp(name, ITERATION_PREFIX, (size_t)n_prefix) == 0 &&
        digits_to_int(name + n_prefix, (size_t)(n - n_prefix), &iteration))
        return iteration;
    return DCPK_ITERATION_UNKNOWN;
}

int64_t dcpk_run_path_iteration(const char *path)
{
    char real[PATH_MAX];
    int n;
    const char *name = dcpk_run_last_name(path, dcpk_run_trimmed(path), &n);
    int64_t iteration = dcpk_run_name_iteration(name, n);

    if (iteration == DCPK_ITERATION_UNKNOWN && realpath(path, real) != NULL) {
        name = dcpk_run_last_name(real, dcpk_run_trimmed(real), &n);
        iteration = dcpk_run_name_iteration(name, n);
    }
    return iteration;
}

dcpk_status dcpk_run_look(const char *name, enum dcpk_path_kind *kind, struct dcpk_error *err)
{
    struct dcpk_path path = {DCPK_PATH_NOTHING, 0};
    const dcpk_status st = dcpk_path_look(AT_FDCWD, name, 0, &path, err);

    *kind = path.kind;
    return st;
}

dcpk_status dcpk_run_find_mark(const char *folder, const struct dcpk_format *const *formats,
                               bool *found, struct dcpk_error *err)
{
    const struct dcpk_mark *marks[DCPK_MAX_MARKS];
    const size_t n = dcpk_marks_list(formats, DCPK_MARK_INNER, marks);
    enum dcpk_path_kind kind = DCPK_PATH_NOTHING;
    dcpk_status st = DCPK_OK;

    for (size_t i = 0; i < n && st == DCPK_OK && kind != DCPK_PATH_FILE; i++) {
        char *path = dcpk_run_text(err, "%s/%s", folder, marks[i]->start);

        if (path == NULL)
            return err->status;
        st = dcpk_run_look(path, &kind, err);
        dcpk_free(path);
    }
    *found = kind == DCPK_PATH_FILE;
    return st;
}

char *dcpk_run_iteration_path(const char *run, int64_t iteration, struct dcpk_error *err)
{
    const int n = dcpk_run_trimmed(run);
    const char *slash = n == 1 && run[0] == '/' ? "" : "/";

    if (iteration == DCPK_ITERATION_RELEASE)
        return dcpk_run_text(err, "%.*s%s%s", n, run, slash, RELEASE_NAME);
    return dcpk_run_text(err, "%.*s%s%s%07" PRId64, n, run, slash, ITERATION_PREFIX, iteration);
}

/* The name of the newest iteration folder among the names that holds a checkpoint, NULL when there
 * is none: a save that did not end leaves a folder without a mark. */
static dcpk_status find_newest(const char *run, const struct dcpk_format *const *formats,
                               char *const *names, size_t n, const char **newest,
                               struct dcpk_error *err)
{
    int64_t highest = DCPK_ITERATION_UNKNOWN;

    *newest = NULL;
    for (size_t i = 0; i < n; i++) {
        const int64_t iteration = dcpk_run_name_iteration(names[i], (int)strlen(names[i]));
        bool is_checkpoint = false;
        char *folder;
        dcpk_status st;

        if (iteration <= highest)
            continue;
        folder = dcpk_run_text(err, "%s/%s", run, names[i]);
        if (folder == NULL)
            return err->status;
        st = dcpk_run_find_mark(folder, formats, &is_checkpoint, err);
        dcpk_free(folder);
        if (st != DCPK_OK)
            return st;
        if (is_checkpoint) {
            highest = iteration;
            *newest = names[i];
        }
    }
    return DCPK_OK;
}

/* Neither a tracker nor a checkpoint: names the newest iteration folder, or the contents of the
 * folder, or else the names that were searched for. */
static dcpk_status neither(const char *run, const struct dcpk_format *const *formats,
                           struct dcpk_error *err)
{
    struct dcpk_store *store = NULL;
    const char *newest;
    char marks[DCPK_MARKS_BYTES];
    char hint[DCPK_FOREIGN_BYTES];
    char **names = NULL;
    size_t n;
    dcpk_status st = dcpk_store_open(run, &store, err);

    if (st == DCPK_OK)
        st = dcpk_store_list(store, &names, &n, err);
    if (st == DCPK_OK)
        st = find_newest(run, formats, names, n, &newest, err);
    if (st != DCPK_OK)
        goto out;
    if (newest != NULL)
        snprintf(hint, sizeof hint, "; give its folder %s", newest);
    else
        dcpk_foreign_hint(store, formats, hint);
    if (*hint != '\0')
        st = dcpk_fail(err, DCPK_EFORMAT, "neither a checkpoint nor a run folder%s", hint);
    else
        st = dcpk_fail(err, DCPK_EFORMAT,
                       "neither a checkpoint (%s in it, or the name iter_NNNNNNN or release) nor a "
                       "run folder (%s in it)",
                       dcpk_marks_words(formats, DCPK_MARK_INNER, marks), DCPK_TRACKER_NAME);
out:
    dcpk_free(names);
    dcpk_store_close(store);
    return st;
}

/* Without a tracker: the one checkpoint of a trainer in it. */
static dcpk_status find_inside(const char *path, const struct dcpk_format *const *formats,
                               struct dcpk_run *run, struct dcpk_error *err)
{
    if (dcpk_run_find_below(path, formats, &run->folder, err))
        return err->status;
    run->is_below = run->folder != NULL;
    if (run->is_below)
        return DCPK_OK;
    return neither(path, formats, err);
}

/* The tracker of the run folder `path` names a missing folder: names the newest one that exists. */
static dcpk_status no_iteration(const char *path, const struct dcpk_format *const *formats,
                                const char *folder, struct dcpk_error *err)
{
    struct dcpk_store *store = NULL;
    const char *newest;
    char **names = NULL;
    size_t n = 0;
    dcpk_status st = dcpk_store_open(path, &store, err);

    if (st == DCPK_OK)
        st = dcpk_store_list(store, &names, &n, err);
    dcpk_store_close(store);
    if (st == DCPK_OK)
        st = find_newest(path, formats, names, n, &newest, err);
    if (st != DCPK_OK)
        goto out;
    st = dcpk_fail(err, DCPK_EFORMAT,
                   "%s names '%s', but there is no such folder; copy it there, or %s%s",
                   DCPK_TRACKER_NAME, folder,
                   newest == NULL ? "correct the number in that file" : "give the folder ",
                   dcpk_text_or(newest, ""));
out:
    dcpk_free(names);
    return st;
}

/* The tracker of `path` may be verl's, which names global_step_N: a folder for each of the models
 * that it trains. Errors: those of no_iteration, too. */
static dcpk_status find_step(const char *path, const struct dcpk_format *const *formats,
                             struct dcpk_run *run, struct dcpk_error *err)
{
    char *step = dcpk_run_text(err, "%.*s/" STEP_PREFIX "%" PRId64, dcpk_run_trimmed(path), path,
                               run->iteration);
    enum dcpk_path_kind kind = DCPK_PATH_NOTHING;
    char *folder = NULL;

    if (step == NULL || dcpk_run_look(step, &kind, err) != DCPK_OK)
        goto out;
    if (kind != DCPK_PATH_FOLDER) {
        (void)no_iteration(path, formats, run->folder, err);
    } else if (dcpk_run_find_below(step, formats, &folder, err) == DCPK_OK && folder == NULL) {
        (void)neither(step, formats, err);
    } else if (folder != NULL) {
        dcpk_free(run->folder);
        *run = (struct dcpk_run){
            .folder = folder, .iteration = DCPK_ITERATION_UNKNOWN, .is_below = true};
    }
out:
    dcpk_free(step);
    return err->status;
}

dcpk_status dcpk_run_parse_tracker(const char *text, size_t n, int64_t *iteration,
                                   struct dcpk_error *err)
{
    while (n > 0 && isspace((unsigned char)text[n - 1]))
        n--;
    while (n > 0 && isspace((unsigned char)*text)) {
        text++;
        n--;
    }
    if (n == strlen(RELEASE_NAME) && memcmp(text, RELEASE_NAME, n) == 0) {
        *iteration = DCPK_ITERATION_RELEASE;
        return DCPK_OK;
    }
    if (digits_to_int(text, n, iteration))
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EFORMAT,
                     "%s holds '%.*s', neither an iteration (digits) nor the word release",
                     DCPK_TRACKER_NAME, (int)dcpk_min_size(n, 40), text);
}

dcpk_status dcpk_run_read_tracker(const char *path, int64_t *iteration, struct dcpk_error *err)
{
    struct dcpk_store *store = NULL;
    struct dcpk_source *source;
    char *text = NULL;
    size_t n;
    enum dcpk_path_kind kind;
    dcpk_status st = dcpk_store_open(path, &store, err);

    if (st == DCPK_OK)
        st = dcpk_store_look(store, DCPK_TRACKER_NAME, &kind, err);
    if (st != DCPK_OK)
        goto out;
    if (kind != DCPK_PATH_FILE) {
        *iteration = DCPK_ITERATION_UNKNOWN;
        goto out;
    }
    st = dcpk_store_find(store, DCPK_TRACKER_NAME, &source, err);
    if (st == DCPK_OK)
        st = dcpk_source_slurp(source, DCPK_RUN_TRACKER_BYTES, &text, &n, err);
    if (st == DCPK_OK)
        st = dcpk_run_parse_tracker(text, n, iteration, err);
out:
    dcpk_free(text);
    dcpk_store_close(store);
    return st;
}

dcpk_status dcpk_run_find(const char *path, const struct dcpk_format *const *formats,
                          struct dcpk_run *run, struct dcpk_error *err)
{
    struct dcpk_run found = {.iteration = DCPK_ITERATION_UNKNOWN};
    enum dcpk_path_kind kind;
    bool is_checkpoint = false;
    dcpk_status st = dcpk_run_look(path, &kind, err);

    if (st == DCPK_OK && kind == DCPK_PATH_NOTHING)
        st = dcpk_foreign_check_address(path, err);
    if (st == DCPK_OK && kind == DCPK_PATH_NOTHING)
        st = dcpk_fail_errno(err, ENOENT, "the folder cannot be read");
    else if (st == DCPK_OK && kind != DCPK_PATH_FOLDER)
        st = dcpk_fail(err, DCPK_EIO, "not a folder; a checkpoint is one");
    if (st == DCPK_OK)
        st = dcpk_run_find_mark(path, formats, &is_checkpoint, err);
    if (st != DCPK_OK)
        goto out;
    found.iteration = dcpk_run_path_iteration(path);
    if (found.iteration != DCPK_ITERATION_UNKNOWN || is_checkpoint) {
        found.folder = dcpk_run_text(err, "%.*s", dcpk_run_trimmed(path), path);
    } else {
        st = dcpk_run_read_tracker(path, &found.iteration, err);
        if (st == DCPK_OK && found.iteration == DCPK_ITERATION_UNKNOWN)
            st = find_inside(path, formats, &found, err);
        if (st != DCPK_OK)
            goto out;
        if (found.folder == NULL)
            found.folder = dcpk_run_iteration_path(path, found.iteration, err);
    }
    if (found.folder == NULL) {
        st = err->status;
        goto out;
    }
    st = dcpk_run_look(found.folder, &kind, err);
    if (st == DCPK_OK && kind != DCPK_PATH_FOLDER)
        st = find_step(path, formats, &found, err);
out:
    if (st != DCPK_OK) {
        dcpk_run_release(&found);
        dcpk_context(err, "looking for a checkpoint in '%s'", path);
        return st;
    }
    *run = found;
    return DCPK_OK;
}

bool dcpk_run_is_remote(const char *path)
{
    struct dcpk_error ignored = DCPK_ERROR_INIT;
    enum dcpk_path_kind kind;

    if (!dcpk_starts_with(path, "s3://") && !dcpk_starts_with(path, "https://") &&
        !dcpk_starts_with(path, "http://"))
        return false;
    return dcpk_run_look(path, &kind, &ignored) == DCPK_OK && kind == DCPK_PATH_NOTHING;
}

const char *dcpk_run_split(const char *path, char archive[DCPK_RUN_PATH_BYTES])
{
    struct dcpk_error ignored = DCPK_ERROR_INIT;
    enum dcpk_path_kind kind;

    if (strlen(path) >= DCPK_RUN_PATH_BYTES) {
        snprintf(archive, DCPK_RUN_PATH_BYTES, "%s", "");
        return NULL;
    }
    snprintf(archive, DCPK_RUN_PATH_BYTES, "%s", path);
    if (dcpk_run_look(path, &kind, &ignored) == DCPK_OK && kind != DCPK_PATH_NOTHING)
        return NULL;
    for (char *colon = strchr(archive, ':'); colon != NULL; colon = strchr(colon + 1, ':')) {
        *colon = '\0';
        if (dcpk_run_look(archive, &kind, &ignored) == DCPK_OK && kind == DCPK_PATH_FILE)
            return path + (colon - archive) + 1;
        *colon = ':';
    }
    return NULL;
}

/* True if, by its name, it is a file of a checkpoint's folder, or its tracker. */
static bool is_part(const struct dcpk_format *const *formats, const char *name)
{
    for (; *formats != NULL; formats++) {
        const struct dcpk_mark *mark = dcpk_mark_of(*formats, name);

        if (mark != NULL && mark->kind != DCPK_MARK_OTHER)
            return true;
    }
    return strcmp(name, DCPK_TRACKER_NAME) == 0;
}

/* The format of which a file of that name is a checkpoint by itself; NULL: of none. */
static const struct dcpk_format *format_of_file(const struct dcpk_format *const *formats,
                                                const char *name)
{
    for (; *formats != NULL; formats++)
        if ((*formats)->file_ending != NULL && dcpk_ends_with(name, (*formats)->file_ending))
            return *formats;
    return NULL;
}

/* The store of one file, its only source. */
static dcpk_status open_whole_file(const char *path, const char *name, struct dcpk_run *run,
                                   struct dcpk_store **store, struct dcpk_error *err)
{
    struct dcpk_run found = {.iteration = DCPK_ITERATION_UNKNOWN, .is_archive = true};
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    struct dcpk_store *made = NULL;
    struct stat info;

    if (fd < 0 || fstat(fd, &info) != 0) {
        dcpk_fail_errno(err, errno, "'%s' cannot be read", path);
        goto out;
    }
    if (!S_ISREG(info.st_mode)) {
        dcpk_fail(err, DCPK_EIO, "'%s' is not a plain file", path);
        goto out;
    }
    found.folder = dcpk_run_text(err, "%s", path);
    if (found.folder == NULL || dcpk_store_new_ranges(path, fd, &made, err))
        goto out;
    if (dcpk_store_add_range(made, name, 0, (uint64_t)info.st_size, err)) {
        dcpk_store_close(made);
        dcpk_run_release(&found);
        return err->status;
    }
    *store = made;
    *run = found;
    return DCPK_OK;
out:
    if (fd >= 0)
        close(fd);
    dcpk_run_release(&found);
    return err->status;
}

static dcpk_status open_plain_file(const char *path, const struct dcpk_opening *opening,
                                   struct dcpk_run *run, struct dcpk_store **store,
                                   struct dcpk_error *err)
{
    int n;
    const char *name = dcpk_run_last_name(path, dcpk_run_trimmed(path), &n);

    if (format_of_file(opening->formats, name) != NULL)
        return open_whole_file(path, name, run, store, err);
    if (is_part(opening->formats, name))
        return dcpk_fail(err, DCPK_EUSAGE, "'%s' is a file of a checkpoint: give its folder", path);
    if (opening->open_file != NULL)
        return opening->open_file(path, NULL, opening, run, store, err);
    return dcpk_fail(err, DCPK_EUNSUPPORTED,
                     "'%s' is a plain file: this program was built without libarchive, which "
                     "reads archives; unpack it and give the folder",
                     path);
}

dcpk_status dcpk_run_open(const char *path, const struct dcpk_opening *opening,
                          struct dcpk_run *run, struct dcpk_store **store, struct dcpk_error *err)
{
    struct dcpk_run found = {0};
    const char *inner = NULL;
    char archive[DCPK_RUN_PATH_BYTES];
    enum dcpk_path_kind kind;
    dcpk_status st;

    if (dcpk_run_is_remote(path) && opening->open_url != NULL)
        return opening->open_url(path, NULL, opening, run, store, err);
    st = dcpk_run_look(path, &kind, err);
    if (st == DCPK_OK && kind == DCPK_PATH_NOTHING)
        inner = dcpk_run_split(path, archive);
    if (st == DCPK_OK && inner != NULL && opening->open_file != NULL)
        return opening->open_file(archive, inner, opening, run, store, err);
    if (st != DCPK_OK)
        return st;
    if (kind == DCPK_PATH_FILE || inner != NULL)
        return open_plain_file(path, opening, run, store, err);
    st = dcpk_run_find(path, opening->formats, &found, err);
    if (st == DCPK_OK)
        st = dcpk_store_open(found.folder, store, err);
    if (st == DCPK_OK)
        *run = found;
    else
        dcpk_run_release(&found);
    return st;
}

/* True if the folder has one of the files that mark the format. */
static bool has_mark_of(const char *folder, const struct dcpk_format *format)
{
    struct dcpk_error ignored = DCPK_ERROR_INIT;
    const struct dcpk_format *const alone[] = {format, NULL};
    bool found = false;

    return dcpk_run_find_mark(folder, alone, &found, &ignored) == DCPK_OK && found;
}

bool dcpk_run_is_model(const char *path, const struct dcpk_format *const *formats)
{
    struct dcpk_error ignored = DCPK_ERROR_INIT;
    bool is_model = false, is_other = false;
    enum dcpk_path_kind kind;
    struct dcpk_run run;
    int n;

    if (dcpk_run_look(path, &kind, &ignored) != DCPK_OK)
        return false;
    if (kind == DCPK_PATH_FILE) {
        const struct dcpk_format *format =
            format_of_file(formats, dcpk_run_last_name(path, dcpk_run_trimmed(path), &n));

        return format != NULL && format->is_model;
    }
    if (dcpk_run_find(path, formats, &run, &ignored) != DCPK_OK)
        return false;
    for (; *formats != NULL; formats++)
        if (has_mark_of(run.folder, *formats)) {
            is_model = is_model || (*formats)->is_model;
            is_other = is_other || !(*formats)->is_model;
        }
    dcpk_run_release(&run);
    return is_model && !is_other;
}
