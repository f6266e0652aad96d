/* SPDX-License-Identifier: Apache-2.0 */
/* run_target.c - where an output goes, and what becomes of the tracker there. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/base/path.h"
#include "lib/base/text.h"
#include "lib/ckpt/foreign.h"
#include "lib/ckpt/run_names.h"

#define RELEASE_NAME   "release"
#define ARCHIVE_SUFFIX ".tar"

const char *dcpk_run_iteration_text(int64_t iteration, char text[DCPK_ITERATION_TEXT_BYTES])
{
    if (iteration == DCPK_ITERATION_RELEASE)
        snprintf(text, DCPK_ITERATION_TEXT_BYTES, "%s", RELEASE_NAME);
    else
        snprintf(text, DCPK_ITERATION_TEXT_BYTES, "%" PRId64, iteration);
    return text;
}

static char *iteration_text(int64_t iteration, struct dcpk_error *err)
{
    char text[DCPK_ITERATION_TEXT_BYTES];

    return dcpk_run_text(err, "%s", dcpk_run_iteration_text(iteration, text));
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

static dcpk_status check_run_folder(const char *out, int64_t iteration,
                                    const struct dcpk_format *const *formats,
                                    struct dcpk_error *err)
{
    enum dcpk_path_kind kind;
    bool is_checkpoint;

    if (dcpk_run_look(out, &kind, err) != DCPK_OK ||
        dcpk_run_find_mark(out, formats, &is_checkpoint, err) != DCPK_OK)
        return err->status;
    if (kind == DCPK_PATH_FILE || kind == DCPK_PATH_OTHER)
        return dcpk_fail(err, DCPK_EUSAGE, "it exists and is not a folder");
    if (is_checkpoint)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "it is itself a checkpoint; name a run folder, or a folder iter_NNNNNNN");
    if (iteration == DCPK_ITERATION_UNKNOWN)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "the iteration of the source is not known: name the output folder "
                         "iter_NNNNNNN or release");
    return DCPK_OK;
}

/* OUT is an iteration folder: its tracker is next to it. */
static void target_iteration(const char *out, int64_t iteration, struct dcpk_run *run,
                             struct dcpk_error *err)
{
    const int n_path = dcpk_run_trimmed(out);
    int n;

    dcpk_run_last_name(out, n_path, &n);
    run->folder = dcpk_run_text(err, "%.*s", n_path, out);
    run->tracker = dcpk_run_text(err, "%.*s%s", n_path - n, out, DCPK_TRACKER_NAME);
    run->tracker_text = iteration_text(iteration, err);
    run->iteration = iteration;
}

static void target_run(const char *out, int64_t iteration, struct dcpk_run *run,
                       struct dcpk_error *err)
{
    const int n = dcpk_run_trimmed(out);

    run->folder = dcpk_run_iteration_path(out, iteration, err);
    run->tracker =
        dcpk_run_text(err, "%.*s%s%s", n, out, out[n - 1] == '/' ? "" : "/", DCPK_TRACKER_NAME);
    run->tracker_text = iteration_text(iteration, err);
    run->iteration = iteration;
}

/* The folder that the tracker is in. */
static char *tracker_folder(const struct dcpk_run *run, struct dcpk_error *err)
{
    const char *slash = strrchr(run->tracker, '/');

    if (slash == NULL)
        return dcpk_run_text(err, ".");
    return dcpk_run_text(err, "%.*s", (int)(slash - run->tracker) + 1, run->tracker);
}

/* Sets *there if the folder exists that the tracker in `around` names. */
static dcpk_status is_there(const char *around, int64_t iteration, bool *there,
                            struct dcpk_error *err)
{
    char *folder = dcpk_run_iteration_path(around, iteration, err);
    enum dcpk_path_kind kind = DCPK_PATH_NOTHING;
    dcpk_status st;

    if (folder == NULL)
        return err->status;
    st = dcpk_run_look(folder, &kind, err);
    dcpk_free(folder);
    *there = kind == DCPK_PATH_FOLDER;
    return st;
}

/* Decides the fate of the tracker in the folder `around`. */
static dcpk_status judge_tracker(struct dcpk_run *run, const char *around, struct dcpk_error *err)
{
    struct dcpk_error why = DCPK_ERROR_INIT;
    bool leads_on = false;
    dcpk_status st = dcpk_run_read_tracker(around, &run->tracker_was, &why);

    if (st != DCPK_OK && st != DCPK_EFORMAT && run->policy == DCPK_TRACKER_NEWEST) {
        *err = why;
        return st;
    }
    if (st == DCPK_OK && run->tracker_was == run->iteration) {
        run->fate = DCPK_TRACKER_FITS;
        return DCPK_OK;
    }
    if (st == DCPK_OK && run->tracker_was > run->iteration &&
        is_there(around, run->tracker_was, &leads_on, err) != DCPK_OK)
        return err->status;
    if (run->policy == DCPK_TRACKER_KEEP ||
        (run->policy == DCPK_TRACKER_NEWEST && (st != DCPK_OK || leads_on)))
        run->fate = DCPK_TRACKER_KEPT;
    return DCPK_OK;
}

dcpk_status dcpk_run_judge_tracker(struct dcpk_run *run, struct dcpk_error *err)
{
    enum dcpk_path_kind kind;
    char *around;
    dcpk_status st;

    run->tracker_was = DCPK_ITERATION_UNKNOWN;
    run->fate = DCPK_TRACKER_NONE;
    if (run->tracker == NULL)
        return DCPK_OK;
    run->fate = DCPK_TRACKER_WRITTEN;
    st = dcpk_run_look(run->tracker, &kind, err);
    if (st != DCPK_OK || kind == DCPK_PATH_NOTHING)
        return st;
    around = tracker_folder(run, err);
    if (around == NULL)
        return err->status;
    st = judge_tracker(run, around, err);
    dcpk_free(around);
    return st;
}

dcpk_status dcpk_run_target(const char *out, int64_t iteration, enum dcpk_tracker_policy policy,
                            const struct dcpk_format *const *formats, struct dcpk_run *run,
                            struct dcpk_error *err)
{
    struct dcpk_run target = {.policy = policy};
    bool is_iteration;
    dcpk_status st;
    int n;
    const char *name = dcpk_run_last_name(out, dcpk_run_trimmed(out), &n);
    const int64_t named = dcpk_run_name_iteration(name, n);

    is_iteration = named != DCPK_ITERATION_UNKNOWN;
    if (policy == DCPK_TRACKER_USUAL)
        target.policy = is_iteration ? DCPK_TRACKER_KEEP : DCPK_TRACKER_NEWEST;
    if (n == 0)
        st = dcpk_fail(err, DCPK_EUSAGE, "the name of the output folder is empty");
    else if (dcpk_foreign_check_address(out, err) != DCPK_OK)
        st = err->status;
    else if (is_iteration)
        st = check_spelling(name, n, named, err);
    else
        st = check_run_folder(out, iteration, formats, err);
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
    st = dcpk_run_judge_tracker(&target, err);
out:
    if (st != DCPK_OK) {
        dcpk_run_release(&target);
        dcpk_context(err, "output '%s'", out);
        return st;
    }
    *run = target;
    return DCPK_OK;
}

dcpk_status dcpk_run_target_model(const char *out, struct dcpk_run *run, struct dcpk_error *err)
{
    struct dcpk_run target = {.iteration = DCPK_ITERATION_UNKNOWN,
                              .tracker_was = DCPK_ITERATION_UNKNOWN};
    enum dcpk_path_kind kind;

    if (dcpk_run_look(out, &kind, err))
        goto out;
    if (out[0] == '\0') {
        dcpk_fail(err, DCPK_EUSAGE, "the name of the output folder is empty");
        goto out;
    }
    if (kind == DCPK_PATH_FILE || kind == DCPK_PATH_OTHER) {
        dcpk_fail(err, DCPK_EUSAGE, "it exists and is not a folder");
        goto out;
    }
    target.folder = dcpk_run_text(err, "%.*s", dcpk_run_trimmed(out), out);
    if (target.folder == NULL)
        goto out;
    *run = target;
    return DCPK_OK;
out:
    dcpk_context(err, "output '%s'", out);
    return err->status;
}

dcpk_status dcpk_run_is_archive(const char *out, bool *is_archive, struct dcpk_error *err)
{
    static const char *const others[] = {".zip",     ".tgz",     ".tar.gz",
                                         ".tar.zst", ".tar.bz2", ".tar.xz"};
    const bool is_tar = dcpk_ends_with(out, ARCHIVE_SUFFIX);
    bool is_other = false;
    enum dcpk_path_kind kind;
    int n;

    dcpk_run_last_name(out, dcpk_run_trimmed(out), &n);
    *is_archive = false;
    if (dcpk_foreign_check_address(out, err) != DCPK_OK)
        return err->status;
    for (size_t i = 0; i < DCPK_COUNT(others); i++)
        is_other = is_other || dcpk_ends_with(out, others[i]);
    if ((!is_tar && !is_other) || n == (int)strlen(ARCHIVE_SUFFIX))
        return DCPK_OK;
    if (dcpk_run_look(out, &kind, err) != DCPK_OK)
        return err->status;
    if (is_other && kind != DCPK_PATH_FOLDER)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "output '%s': the only archive that is written is .tar; give a name that "
                         "ends with .tar, or a folder",
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
        if (rooted != NULL)
            target.inner = dcpk_run_text(err, "%s", rooted + 1);
        if (target.inner != NULL)
            target.tracker_text = iteration_text(iteration, err);
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
static dcpk_status resolve_path(const char *path, char real[PATH_MAX], struct dcpk_error *err)
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

/* True if `inner` is the folder `outer` or inside it. Both are absolute and resolved. */
static bool is_inside(const char *outer, const char *inner)
{
    const size_t n = strlen(outer);

    return strncmp(outer, inner, n) == 0 && (n == 1 || inner[n] == '/' || inner[n] == '\0');
}

dcpk_status dcpk_run_check_apart(const char *in, const char *out, struct dcpk_error *err)
{
    char real_in[PATH_MAX], real_out[PATH_MAX], archive[DCPK_RUN_PATH_BYTES];
    const char *file = in, *how;

    if (*in == '\0') /* resolved it would be the current folder */
        return dcpk_fail(err, DCPK_EUSAGE, "the name of the input is empty");
    if (dcpk_run_is_remote(in))
        return DCPK_OK;
    if (dcpk_run_split(in, archive) != NULL)
        file = archive;
    if (resolve_path(file, real_in, err) || resolve_path(out, real_out, err))
        return err->status;
    if (strcmp(real_in, real_out) == 0)
        how = "is";
    else if (is_inside(real_in, real_out))
        how = "is inside";
    else if (is_inside(real_out, real_in))
        how = "contains";
    else
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EUSAGE, "the output '%s' %s the input '%s'; write to another folder",
                     out, how, in);
}
