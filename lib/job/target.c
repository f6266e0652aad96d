/* SPDX-License-Identifier: Apache-2.0 */
/* target.c - where an output goes: its place, its folder or archive, its tracker, the space it
 * takes. */
#include "lib/job/target.h"

#include <fcntl.h>
#include <fts.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "lib/base/path.h"
#include "lib/io/file.h"

/* ---- space ---- */

#define STAT_BLOCK_BYTES 512 /* of st_blocks, not st_blksize */
#define MAGIC_9P         0x01021997
#define MAGIC_SMB        0x517b
#define MAGIC_CIFS       0xff534d42
#define MAGIC_SMB2       0xfe534d42
#define MAGIC_FUSE       0x65735546

/* Finds the part of `path` that exists: the path itself or the nearest folder around it. */
static void find_existing(const char *path, char found[PATH_MAX])
{
    struct stat info;
    char *slash;

    snprintf(found, PATH_MAX, "%s", path);
    while (stat(found, &info) != 0 && strcmp(found, ".") != 0 && strcmp(found, "/") != 0) {
        slash = strrchr(found, '/');
        if (slash == NULL)
            snprintf(found, PATH_MAX, ".");
        else
            slash[slash == found] = '\0';
    }
}

/* True if the file system may have more room than it reports. */
static bool is_vague(const struct statfs *info)
{
    static const unsigned long kinds[] = {NFS_SUPER_MAGIC, MAGIC_9P,   MAGIC_SMB,
                                          MAGIC_CIFS,      MAGIC_SMB2, MAGIC_FUSE};

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if ((uint32_t)info->f_type == kinds[i])
            return true;
    return info->f_blocks == 0;
}

/* Bytes on disk of the partial folder or archive. */
static uint64_t partial_bytes(const char *folder)
{
    char partial[PATH_MAX];
    char *const roots[] = {partial, NULL};
    uint64_t n_bytes = 0;
    FTSENT *e;
    FTS *walk;
    const int n = snprintf(partial, sizeof partial, "%s" DCPK_PARTIAL_SUFFIX, folder);

    if (n < 0 || (size_t)n >= sizeof partial)
        return 0;
    walk = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    if (walk == NULL)
        return 0;
    while ((e = fts_read(walk)) != NULL)
        if (e->fts_info == FTS_F && e->fts_statp->st_nlink == 1)
            n_bytes += (uint64_t)e->fts_statp->st_blocks * STAT_BLOCK_BYTES;
    fts_close(walk);
    return n_bytes;
}

dcpk_status dcpk_check_space(const struct dcpk_run *target, uint64_t n_bytes,
                             struct dcpk_error *err)
{
    char place[PATH_MAX];
    struct statfs info;
    uint64_t free_bytes;
    long block_bytes;

    find_existing(target->folder, place);
    if (target->is_there || statfs(place, &info) != 0 || is_vague(&info))
        return DCPK_OK;
    block_bytes = info.f_frsize > 0 ? info.f_frsize : info.f_bsize;
    free_bytes = (uint64_t)info.f_bavail * (uint64_t)block_bytes;
    if (n_bytes > free_bytes)
        free_bytes += partial_bytes(target->folder);
    if (n_bytes <= free_bytes)
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EIO,
                     "the output '%s' needs %" PRIu64 " bytes, and its file system has %" PRIu64
                     " free: No space left on device",
                     target->folder, n_bytes, free_bytes);
}

bool dcpk_is_across(const char *a, const char *b)
{
    char at_a[PATH_MAX], at_b[PATH_MAX];
    struct stat info_a, info_b;

    find_existing(a, at_a);
    find_existing(b, at_b);
    return stat(at_a, &info_a) != 0 || stat(at_b, &info_b) != 0 || info_a.st_dev != info_b.st_dev;
}

/* ---- the target ---- */

/* Writing it leaves the input alone. */
static dcpk_status check_apart(const struct dcpk_run *target,
                               const struct dcpk_target_options *options, struct dcpk_error *err)
{
    char archive[DCPK_RUN_PATH_BYTES];

    if (options->in == NULL || dcpk_run_is_remote(options->in))
        return DCPK_OK;
    (void)dcpk_run_split(options->in, archive);
    if (dcpk_folder_check_apart(target->folder, archive, err) != DCPK_OK)
        return err->status;
    if (options->source->is_archive) /* its folder has no path of its own */
        return DCPK_OK;
    return dcpk_folder_check_apart(target->folder, options->source->folder, err);
}

static dcpk_status find_run(const struct dcpk_target_options *options, struct dcpk_run *found,
                            struct dcpk_error *err)
{
    bool is_archive;

    if (dcpk_run_is_archive(options->out, &is_archive, err) != DCPK_OK)
        return err->status;
    if (is_archive && options->is_model) /* a model's folder has no iterations */
        return dcpk_run_target_archive(options->out, DCPK_ITERATION_UNKNOWN, found, err);
    if (is_archive)
        return dcpk_run_target_archive(options->out, options->iteration, found, err);
    if (options->is_model)
        return dcpk_run_target_model(options->out, found, err);
    return dcpk_run_target(options->out, options->iteration, options->policy, options->formats,
                           found, err);
}

/* Sets found->is_there. */
static dcpk_status look_there(const struct dcpk_target_options *options, struct dcpk_run *found,
                              struct dcpk_error *err)
{
    struct dcpk_path there;

    if (dcpk_path_look(AT_FDCWD, found->folder, AT_SYMLINK_NOFOLLOW, &there, err) != DCPK_OK)
        return err->status;
    if (there.kind != DCPK_PATH_NOTHING && options->flags == 0)
        return dcpk_fail_fix(err, DCPK_EUSAGE, DCPK_FIX_REPLACE, "the output '%s' exists",
                             found->folder);
    found->is_there = there.kind != DCPK_PATH_NOTHING && options->flags == DCPK_FOLDER_RESUME;
    return DCPK_OK;
}

dcpk_status dcpk_target_find(const struct dcpk_target_options *options, struct dcpk_run *target,
                             struct dcpk_error *err)
{
    struct dcpk_run found = {0};

    if (find_run(options, &found, err) || look_there(options, &found, err) ||
        check_apart(&found, options, err)) {
        dcpk_run_release(&found);
        return err->status;
    }
    *target = found;
    return DCPK_OK;
}

#define TRACKER_SECONDS 10         /* another process writes a few bytes meanwhile */
#define SMALL_BYTES     (1u << 20) /* of a file on average: larger ones are worth a sync each */

unsigned dcpk_target_flags_of(size_t n_files, uint64_t n_bytes)
{
    const int64_t memory_bytes = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    unsigned flags = 0;

    if (n_files >= DCPK_MANY_FILES && n_bytes / n_files < SMALL_BYTES)
        flags |= DCPK_FOLDER_MANY;
    if (memory_bytes > 0 && n_bytes > (uint64_t)memory_bytes / 4)
        flags |= DCPK_FOLDER_LARGE;
    return flags;
}

unsigned dcpk_target_flags(const struct dcpk_output *out)
{
    uint64_t n_bytes = 0;

    for (size_t i = 0; i < out->n_files; i++)
        n_bytes += out->files[i].n_bytes;
    return dcpk_target_flags_of(out->n_files, n_bytes);
}

/* An archive holds what a run folder does: the tracker, and the iteration's folder. */
static dcpk_status begin_archive(const struct dcpk_run *target, struct dcpk_folder *folder,
                                 struct dcpk_error *err)
{
    if (target->inner == NULL)
        return DCPK_OK;
    if (dcpk_folder_put(folder, DCPK_TRACKER_NAME, target->tracker_text,
                        strlen(target->tracker_text), err) != DCPK_OK)
        return err->status;
    return dcpk_folder_enter(folder, target->inner, err);
}

static unsigned kind_flags(const struct dcpk_run *target)
{
    return target->is_archive ? DCPK_FOLDER_TAR : 0;
}

dcpk_status dcpk_target_begin(const struct dcpk_run *target, unsigned flags,
                              struct dcpk_folder **folder, struct dcpk_error *err)
{
    if (dcpk_folder_begin(target->folder, flags | kind_flags(target), folder, err) != DCPK_OK)
        return err->status;
    return begin_archive(target, *folder, err);
}

void dcpk_target_context(const struct dcpk_run *target, bool is_kept, struct dcpk_error *err)
{
    if (target->is_there && err->status == DCPK_EUSAGE) {
        dcpk_context(
            err,
            "the output '%s' exists, and differs from the output of this input and these options",
            target->folder);
        err->fixes |= DCPK_FIX_REPLACE;
    } else if (target->is_there) {
        dcpk_context(err, "comparing with '%s'", target->folder);
    } else if (is_kept) {
        dcpk_context(err, "writing '%s' (finished parts are kept)", target->folder);
        err->fixes |= DCPK_FIX_RESUME | DCPK_FIX_REPLACE;
    } else {
        dcpk_context(err, "writing '%s'", target->folder);
    }
}

/* Several iterations may be written into one run folder at once: one at a time reads the tracker
 * and changes it. */
static dcpk_status write_tracker(struct dcpk_run *target, struct dcpk_error *err)
{
    dcpk_status st;
    int lock = -1;

    if (target->tracker != NULL)
        lock = dcpk_file_lock_parent(target->tracker, TRACKER_SECONDS);
    st = dcpk_run_judge_tracker(target, err);
    if (st == DCPK_OK && target->fate == DCPK_TRACKER_WRITTEN)
        st = dcpk_file_write(target->tracker, 0, target->tracker_text, strlen(target->tracker_text),
                             err);
    dcpk_file_unlock(lock);
    return st;
}

dcpk_status dcpk_target_publish(struct dcpk_run *target, struct dcpk_folder **folder,
                                struct dcpk_error *err)
{
    if (dcpk_folder_publish(*folder, err) != DCPK_OK)
        return err->status;
    *folder = NULL; /* published and freed */
    if (write_tracker(target, err) != DCPK_OK)
        return dcpk_context(err, "'%s' is in place, and then", target->folder);
    return DCPK_OK;
}

dcpk_status dcpk_target_settle(struct dcpk_run *target, struct dcpk_error *err)
{
    if (!target->is_archive && dcpk_folder_drop_journal(target->folder, err) != DCPK_OK)
        return err->status;
    return write_tracker(target, err);
}

void dcpk_target_put_tracker(const struct dcpk_run *target, bool is_planned,
                             struct dcpk_json_out *j)
{
    const bool is_as_before = is_planned || target->fate == DCPK_TRACKER_KEPT;
    char was[DCPK_ITERATION_TEXT_BYTES];
    const char *before = target->tracker_was != DCPK_ITERATION_UNKNOWN ? was : NULL;

    dcpk_json_put_key(j, "tracker");
    if (target->fate == DCPK_TRACKER_NONE) {
        dcpk_json_put_null(j);
        return;
    }
    dcpk_run_iteration_text(target->tracker_was, was);
    dcpk_json_begin_object(j);
    dcpk_json_add_string(j, "file", target->tracker);
    if (is_as_before)
        dcpk_json_add_string(j, "names", before);
    else
        dcpk_json_add_string(j, "names", target->tracker_text);
    dcpk_json_add_string(j, "was", before);
    dcpk_json_add_bool(j, "written", target->fate == DCPK_TRACKER_WRITTEN && !is_planned);
    dcpk_json_end_object(j);
}
