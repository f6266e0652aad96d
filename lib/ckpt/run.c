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
#include <unistd.h>

#include "lib/base/alloc.h"
#include "lib/base/path.h"
#include "lib/base/store.h"
#include "lib/base/text.h"
#include "lib/ckpt/run_priv.h"
#include "lib/ckpt/stranger.h"

#define MAX_ITERATION_DIGIT 18 /* below 2^63 whatever they are */
#define ITERATION_PREFIX    "iter_"
#define RELEASE_NAME        "release"
#define ARCHIVE_SUFFIX      ".tar"

/* A folder that holds one of these is a checkpoint itself (torch_dist.md 1, fsdp_dtensor.md 2,
 * zarr.md 1). */
const char *const dcpk_run_marks[DCPK_RUN_N_MARKS] = {".metadata", "metadata.json", ".zarray"};

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

/* The length of path without the slashes at its end; "/" stays. */
static int trimmed(const char *path)
{
    size_t n = strlen(path);

    while (n > 1 && path[n - 1] == '/')
        n--;
    return (int)n;
}

/* The last component of path[0 .. n_path) and its length. */
static const char *last_name(const char *path, int n_path, int *n)
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

/* The same of a path as it is spelled or, where that says nothing, of what it resolves to. */
static int64_t path_iteration(const char *path)
{
    char real[PATH_MAX];
    int n;
    const char *name = last_name(path, trimmed(path), &n);
    int64_t iteration = dcpk_run_name_iteration(name, n);

    if (iteration == DCPK_ITERATION_UNKNOWN && realpath(path, real) != NULL) {
        name = last_name(real, trimmed(real), &n);
        iteration = dcpk_run_name_iteration(name, n);
    }
    return iteration;
}

static dcpk_status look(const char *name, int flags, enum dcpk_path_kind *kind,
                        struct dcpk_error *err)
{
    struct dcpk_path path = {DCPK_PATH_NOTHING, 0};
    const dcpk_status st = dcpk_path_look(AT_FDCWD, name, flags, &path, err);

    *kind = path.kind;
    return st;
}

/* Is one of the marks a plain file in the folder? */
static dcpk_status find_mark(const char *folder, bool *found, struct dcpk_error *err)
{
    enum dcpk_path_kind kind = DCPK_PATH_NOTHING;
    dcpk_status st = DCPK_OK;

    for (size_t i = 0; i < DCPK_RUN_N_MARKS && st == DCPK_OK && kind != DCPK_PATH_FILE; i++) {
        char *path = dcpk_run_text(err, "%s/%s", folder, dcpk_run_marks[i]);

        st = path == NULL ? err->status : look(path, 0, &kind, err);
        dcpk_free(path);
    }
    *found = kind == DCPK_PATH_FILE;
    return st;
}

static char *iteration_text(int64_t iteration, struct dcpk_error *err)
{
    if (iteration == DCPK_ITERATION_RELEASE)
        return dcpk_run_text(err, "%s", RELEASE_NAME);
    return dcpk_run_text(err, "%" PRId64, iteration);
}

char *dcpk_run_iteration_path(const char *run, int64_t iteration, struct dcpk_error *err)
{
    const int n = trimmed(run);
    const char *slash = n == 1 && run[0] == '/' ? "" : "/";

    if (iteration == DCPK_ITERATION_RELEASE)
        return dcpk_run_text(err, "%.*s%s%s", n, run, slash, RELEASE_NAME);
    return dcpk_run_text(err, "%.*s%s%s%07" PRId64, n, run, slash, ITERATION_PREFIX, iteration);
}

/* The name of the newest iteration folder among the names, NULL when there is none. */
static const char *find_newest(char *const *names, size_t n)
{
    int64_t newest = DCPK_ITERATION_UNKNOWN;
    const char *name = NULL;

    for (size_t i = 0; i < n; i++) {
        const int64_t iteration = dcpk_run_name_iteration(names[i], (int)strlen(names[i]));

        if (iteration > newest) {
            newest = iteration;
            name = names[i];
        }
    }
    return name;
}

/* No tracker, no checkpoint: say what was looked for, and the newest iteration folder if there is
 * one, else what it is instead. */
static dcpk_status neither(struct dcpk_store *store, struct dcpk_error *err)
{
    const char *newest;
    char hint[DCPK_STRANGER_BYTES];
    char **names;
    size_t n;
    dcpk_status st = dcpk_store_list(store, &names, &n, err);

    if (st != DCPK_OK)
        return st;
    newest = find_newest(names, n);
    st = dcpk_fail(err, DCPK_EFORMAT,
                   "neither a checkpoint (.metadata, metadata.json or .zarray in it, or the name "
                   "iter_NNNNNNN or release) nor a run folder (%s in it)%s%s",
                   DCPK_TRACKER_NAME,
                   newest == NULL ? dcpk_stranger_hint(store, hint) : "; give its folder ",
                   newest == NULL ? "" : newest);
    dcpk_free(names);
    return st;
}

/* The tracker of the run folder `path` leads nowhere: say where else to look. */
static dcpk_status no_iteration(const char *path, const char *folder, struct dcpk_error *err)
{
    struct dcpk_store *store = NULL;
    const char *newest;
    char **names = NULL;
    size_t n = 0;
    dcpk_status st = dcpk_store_open(path, &store, err);

    if (st == DCPK_OK)
        st = dcpk_store_list(store, &names, &n, err);
    dcpk_store_close(store);
    if (st != DCPK_OK)
        return st;
    newest = find_newest(names, n);
    st = dcpk_fail(err, DCPK_EFORMAT, "%s names '%s', but there is no such folder; %s%s",
                   DCPK_TRACKER_NAME, folder,
                   newest == NULL ? "copy it there, or correct the number in that file"
                                  : "copy it there, or give the folder ",
                   newest == NULL ? "" : newest);
    dcpk_free(names);
    return st;
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
                     DCPK_TRACKER_NAME, n > 40 ? 40 : (int)n, text);
}

static dcpk_status read_tracker(const char *path, int64_t *iteration, struct dcpk_error *err)
{
    struct dcpk_store *store = NULL;
    struct dcpk_source *source;
    char *text = NULL;
    size_t n;
    enum dcpk_path_kind kind;
    dcpk_status st = dcpk_store_open(path, &store, err);

    if (st == DCPK_OK)
        st = dcpk_store_look(store, DCPK_TRACKER_NAME, &kind, err);
    if (st == DCPK_OK && kind != DCPK_PATH_FILE)
        st = neither(store, err);
    if (st == DCPK_OK)
        st = dcpk_store_find(store, DCPK_TRACKER_NAME, &source, err);
    if (st == DCPK_OK)
        st = dcpk_source_slurp(source, DCPK_RUN_TRACKER_BYTES, &text, &n, err);
    if (st == DCPK_OK)
        st = dcpk_run_parse_tracker(text, n, iteration, err);
    dcpk_free(text);
    dcpk_store_close(store);
    return st;
}

dcpk_status dcpk_run_find(const char *path, struct dcpk_run *run, struct dcpk_error *err)
{
    struct dcpk_run found = {.iteration = DCPK_ITERATION_UNKNOWN};
    enum dcpk_path_kind kind;
    bool is_checkpoint = false;
    dcpk_status st = look(path, 0, &kind, err);

    if (st == DCPK_OK && kind == DCPK_PATH_NOTHING)
        st = dcpk_fail_errno(err, ENOENT, "the folder cannot be read");
    else if (st == DCPK_OK && kind != DCPK_PATH_FOLDER)
        st = dcpk_fail(err, DCPK_EIO, "not a folder; a checkpoint is one");
    if (st == DCPK_OK)
        st = find_mark(path, &is_checkpoint, err);
    if (st != DCPK_OK)
        goto out;
    found.iteration = path_iteration(path);
    if (found.iteration != DCPK_ITERATION_UNKNOWN || is_checkpoint) {
        found.folder = dcpk_run_text(err, "%.*s", trimmed(path), path);
    } else {
        st = read_tracker(path, &found.iteration, err);
        if (st != DCPK_OK)
            goto out;
        found.folder = dcpk_run_iteration_path(path, found.iteration, err);
    }
    st = found.folder == NULL ? err->status : look(found.folder, 0, &kind, err);
    if (st == DCPK_OK && kind != DCPK_PATH_FOLDER)
        st = no_iteration(path, found.folder, err);
out:
    if (st != DCPK_OK) {
        dcpk_run_release(&found);
        dcpk_context(err, "looking for a checkpoint in '%s'", path);
        return st;
    }
    *run = found;
    return DCPK_OK;
}

/* Is it a file of a checkpoint's folder, or its tracker, by name? */
static bool is_part(const char *name)
{
    for (size_t i = 0; i < DCPK_RUN_N_MARKS; i++)
        if (strcmp(name, dcpk_run_marks[i]) == 0)
            return true;
    return strcmp(name, DCPK_TRACKER_NAME) == 0 || strcmp(name, "common.pt") == 0 ||
           dcpk_ends_with(name, ".distcp");
}

static dcpk_status open_plain_file(const char *path, dcpk_run_open_file *open_file,
                                   const struct dcpk_progress *progress, struct dcpk_run *run,
                                   struct dcpk_store **store, struct dcpk_error *err)
{
    int n;

    if (is_part(last_name(path, trimmed(path), &n)))
        return dcpk_fail(err, DCPK_EUSAGE, "'%s' is a file of a checkpoint: give its folder", path);
    if (open_file != NULL)
        return open_file(path, progress, run, store, err);
    return dcpk_fail(err, DCPK_EUNSUPPORTED,
                     "'%s' is a plain file: this program was built without libarchive, which "
                     "reads archives; unpack it and give the folder",
                     path);
}

dcpk_status dcpk_run_open(const char *path, dcpk_run_open_file *open_file,
                          const struct dcpk_progress *progress, struct dcpk_run *run,
                          struct dcpk_store **store, struct dcpk_error *err)
{
    struct dcpk_run found = {0};
    enum dcpk_path_kind kind;
    dcpk_status st = look(path, 0, &kind, err);

    if (st != DCPK_OK)
        return st;
    if (kind == DCPK_PATH_FILE)
        return open_plain_file(path, open_file, progress, run, store, err);
    st = dcpk_run_find(path, &found, err);
    if (st == DCPK_OK)
        st = dcpk_store_open(found.folder, store, err);
    if (st == DCPK_OK)
        *run = found;
    else
        dcpk_run_release(&found);
    return st;
}

/* OUT is named as an iteration folder: it must be Megatron's spelling, or the tracker would not
 * lead to it. */
static dcpk_status check_spelling(const char *name, int n, int64_t iteration,
                                  struct dcpk_error *err)
{
    char *right = dcpk_run_iteration_path("", iteration, err);
    dcpk_status st = DCPK_OK;

    if (right == NULL)
        return err->status;
    if (strlen(right + 1) != (size_t)n || memcmp(right + 1, name, (size_t)n) != 0)
        st = dcpk_fail(err, DCPK_EUSAGE, "Megatron calls the folder of iteration %" PRId64 " '%s'",
                       iteration, right + 1);
    dcpk_free(right);
    return st;
}

static dcpk_status check_run_folder(const char *out, int64_t iteration, struct dcpk_error *err)
{
    enum dcpk_path_kind kind;
    bool is_checkpoint;

    if (look(out, 0, &kind, err) != DCPK_OK || find_mark(out, &is_checkpoint, err) != DCPK_OK)
        return err->status;
    if (kind == DCPK_PATH_FILE || kind == DCPK_PATH_OTHER)
        return dcpk_fail(err, DCPK_EUSAGE, "it exists and is no folder");
    if (is_checkpoint)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "it is itself a checkpoint; name a run folder, or a folder iter_NNNNNNN");
    if (iteration == DCPK_ITERATION_UNKNOWN)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "the iteration of the source is not known: name the output folder "
                         "iter_NNNNNNN or release");
    return DCPK_OK;
}

/* OUT is an iteration folder: its tracker lies beside it. */
static void target_iteration(const char *out, int64_t iteration, struct dcpk_run *run,
                             struct dcpk_error *err)
{
    const int n_path = trimmed(out);
    int n;

    last_name(out, n_path, &n);
    run->folder = dcpk_run_text(err, "%.*s", n_path, out);
    run->tracker = dcpk_run_text(err, "%.*s%s", n_path - n, out, DCPK_TRACKER_NAME);
    run->tracker_text = iteration_text(iteration, err);
    run->iteration = iteration;
}

static void target_run(const char *out, int64_t iteration, struct dcpk_run *run,
                       struct dcpk_error *err)
{
    const int n = trimmed(out);

    run->folder = dcpk_run_iteration_path(out, iteration, err);
    run->tracker =
        dcpk_run_text(err, "%.*s%s%s", n, out, out[n - 1] == '/' ? "" : "/", DCPK_TRACKER_NAME);
    run->tracker_text = iteration_text(iteration, err);
    run->iteration = iteration;
}

/* What the run folder's tracker names so far. */
static int64_t tracker_was(const char *out)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    int64_t iteration;

    return read_tracker(out, &iteration, &err) == DCPK_OK ? iteration : DCPK_ITERATION_UNKNOWN;
}

dcpk_status dcpk_run_target(const char *out, int64_t iteration, struct dcpk_run *run,
                            struct dcpk_error *err)
{
    struct dcpk_run target = {.tracker_was = DCPK_ITERATION_UNKNOWN};
    enum dcpk_path_kind kind;
    bool is_iteration;
    dcpk_status st;
    int n;
    const char *name = last_name(out, trimmed(out), &n);
    const int64_t named = dcpk_run_name_iteration(name, n);

    is_iteration = named != DCPK_ITERATION_UNKNOWN;
    if (n == 0)
        st = dcpk_fail(err, DCPK_EUSAGE, "the name of the output folder is empty");
    else if (is_iteration)
        st = check_spelling(name, n, named, err);
    else
        st = check_run_folder(out, iteration, err);
    if (st != DCPK_OK)
        goto out;
    if (is_iteration)
        target_iteration(out, named, &target, err);
    else
        target_run(out, iteration, &target, err);
    if (target.folder == NULL || target.tracker == NULL || target.tracker_text == NULL) {
        st = err->status;
        goto out;
    }
    st = look(target.tracker, 0, &kind, err);
    target.has_tracker = st == DCPK_OK && kind != DCPK_PATH_NOTHING;
    target.writes_tracker = !is_iteration || !target.has_tracker;
    if (target.has_tracker && !is_iteration)
        target.tracker_was = tracker_was(out);
out:
    if (st != DCPK_OK) {
        dcpk_run_release(&target);
        dcpk_context(err, "output '%s'", out);
        return st;
    }
    *run = target;
    return DCPK_OK;
}

dcpk_status dcpk_run_is_archive(const char *out, bool *is_archive, struct dcpk_error *err)
{
    static const char *const others[] = {".zip",     ".tgz",     ".tar.gz",
                                         ".tar.zst", ".tar.bz2", ".tar.xz"};
    const bool is_tar = dcpk_ends_with(out, ARCHIVE_SUFFIX);
    bool is_other = false;
    enum dcpk_path_kind kind;
    int n;

    last_name(out, trimmed(out), &n);
    *is_archive = false;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        is_other = is_other || dcpk_ends_with(out, others[i]);
    if ((!is_tar && !is_other) || n == (int)strlen(ARCHIVE_SUFFIX))
        return DCPK_OK;
    if (look(out, 0, &kind, err) != DCPK_OK)
        return err->status;
    if (is_other && kind != DCPK_PATH_FOLDER)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "output '%s': of archives only .tar is written, without packing; name it "
                         "so, or name a folder",
                         out);
    *is_archive = kind != DCPK_PATH_FOLDER;
    return DCPK_OK;
}

dcpk_status dcpk_run_target_archive(const char *out, int64_t iteration, struct dcpk_run *run,
                                    struct dcpk_error *err)
{
    struct dcpk_run target = {
        .iteration = iteration, .is_archive = true, .tracker_was = DCPK_ITERATION_UNKNOWN};
    char *rooted = NULL;
    dcpk_status st = DCPK_OK;

    target.folder = dcpk_run_text(err, "%s", out);
    if (target.folder != NULL && iteration != DCPK_ITERATION_UNKNOWN) {
        rooted = dcpk_run_iteration_path("", iteration, err); /* "/iter_0000004" */
        target.inner = rooted == NULL ? NULL : dcpk_run_text(err, "%s", rooted + 1);
        target.tracker_text = target.inner == NULL ? NULL : iteration_text(iteration, err);
    }
    dcpk_free(rooted);
    if (target.folder == NULL ||
        (iteration != DCPK_ITERATION_UNKNOWN && target.tracker_text == NULL)) {
        st = err->status;
        dcpk_run_release(&target);
    } else {
        *run = target;
    }
    return st;
}

/* Append the components of `rest` to the absolute path `real`, "." and ".." as text. */
static bool append_components(char real[PATH_MAX], const char *rest)
{
    size_t n_real = strlen(real);

    while (*rest != '\0') {
        const size_t n = strcspn(rest, "/");

        if (n == 2 && memcmp(rest, "..", 2) == 0) {
            while (n_real > 1 && real[--n_real] != '/')
                continue;
        } else if (n > 0 && !(n == 1 && *rest == '.')) {
            if (n_real + n + 2 > PATH_MAX)
                return false;
            if (n_real > 1)
                real[n_real++] = '/';
            memcpy(real + n_real, rest, n);
            n_real += n;
        }
        real[n_real] = '\0';
        rest += n;
        rest += strspn(rest, "/");
    }
    return true;
}

/* The real path of what exists of `path`, and the rest as it is spelled. */
static dcpk_status resolve(const char *path, char real[PATH_MAX], struct dcpk_error *err)
{
    char full[PATH_MAX] = "", head[PATH_MAX];
    size_t n = 0;

    if (path[0] != '/') {
        if (getcwd(full, sizeof full) == NULL)
            return dcpk_fail_errno(err, errno, "the current folder has no name");
        n = strlen(full);
    }
    if (n + strlen(path) + 2 > sizeof full)
        return dcpk_fail(err, DCPK_EIO, "the path '%s' is longer than %d bytes", path, PATH_MAX);
    snprintf(full + n, sizeof full - n, "/%s", path);
    memcpy(head, full, sizeof head);
    while (realpath(head, real) == NULL) {
        char *slash = strrchr(head, '/');

        if (errno != ENOENT || slash == NULL)
            return dcpk_fail_errno(err, errno, "the path '%s' cannot be resolved", path);
        if (slash == head)
            slash++; /* the root stays */
        *slash = '\0';
    }
    if (!append_components(real, full + strlen(head)))
        return dcpk_fail(err, DCPK_EIO, "the path '%s' is longer than %d bytes", path, PATH_MAX);
    return DCPK_OK;
}

/* Is `inner` the folder `outer` or inside it? Both are absolute and resolved. */
static bool is_inside(const char *outer, const char *inner)
{
    const size_t n = strlen(outer);

    return strncmp(outer, inner, n) == 0 && (n == 1 || inner[n] == '/' || inner[n] == '\0');
}

dcpk_status dcpk_run_check_apart(const char *in, const char *out, struct dcpk_error *err)
{
    char real_in[PATH_MAX], real_out[PATH_MAX];
    const char *how;
    dcpk_status st;

    if (*in == '\0') /* resolved it would be the current folder */
        return dcpk_fail(err, DCPK_EUSAGE, "the name of the input is empty");
    st = resolve(in, real_in, err);
    if (st == DCPK_OK)
        st = resolve(out, real_out, err);
    if (st != DCPK_OK)
        return st;
    if (strcmp(real_in, real_out) == 0)
        how = "is";
    else if (is_inside(real_in, real_out))
        how = "lies inside";
    else if (is_inside(real_out, real_in))
        how = "lies around";
    else
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EUSAGE,
                     "the output '%s' %s the input '%s'; write to a folder apart from it", out, how,
                     in);
}
