/* SPDX-License-Identifier: Apache-2.0 */
/* sink.c - output folders: built beside their place, synced, then renamed into it. */
#include "lib/base/sink.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/alloc.h"
#include "lib/base/path.h"
#include "lib/base/sink_priv.h"

#define OLD_SUFFIX ".dcpkit-old"
#define TMP_SUFFIX ".dcpkit-tmp"
/*
 * Of one pwrite. From 2 MiB on, file systems with large folios take huge pages for the page cache;
 * those are the ones that a virtual machine has given back to its host (free page reporting), who
 * must find and clear them anew: four times the time (tests/bench/README.md).
 */
#define MAX_WRITE_BYTES ((size_t)1 << 20)
#define DROP_BYTES      (UINT64_C(64) << 20) /* flushed between two looks for what can be dropped */

/* Owned copy of the first n bytes of text with a suffix. */
static char *join(const char *text, size_t n, const char *suffix, struct dcpk_error *err)
{
    const size_t suffix_bytes = strlen(suffix) + 1;
    char *joined = dcpk_alloc(n + suffix_bytes, err);

    if (joined == NULL)
        return NULL;
    memcpy(joined, text, n);
    memcpy(joined + n, suffix, suffix_bytes);
    return joined;
}

dcpk_status dcpk_sync_parent(const char *path, struct dcpk_error *err)
{
    const char *slash = strrchr(path, '/');
    const size_t n = slash == NULL ? 0 : (size_t)(slash - path) + 1;
    char *parent = n == 0 ? join(".", 1, "", err) : join(path, n, "", err);
    dcpk_status st = DCPK_OK;
    int fd;

    if (parent == NULL)
        return err->status;
    fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || dcpk_sync_folder(fd) != 0)
        st = dcpk_fail_errno(err, errno, "syncing folder '%s'", parent);
    if (fd >= 0)
        close(fd);
    dcpk_free(parent);
    return st;
}

dcpk_status dcpk_path_find(const char *path, bool *found, struct dcpk_error *err)
{
    struct dcpk_path there;

    if (dcpk_path_look(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, &there, err) != DCPK_OK)
        return err->status;
    *found = there.kind != DCPK_PATH_NOTHING;
    return DCPK_OK;
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *walk)
{
    (void)info;
    (void)kind;
    (void)walk;
    return remove(path);
}

dcpk_status dcpk_remove_tree(const char *path, struct dcpk_error *err)
{
    bool found;

    if (dcpk_path_find(path, &found, err) != DCPK_OK)
        return err->status;
    if (!found || nftw(path, remove_entry, DCPK_WALK_FDS, FTW_DEPTH | FTW_PHYS) == 0)
        return DCPK_OK;
    return dcpk_fail_errno(err, errno, "deleting '%s'", path);
}

dcpk_status dcpk_parents_make(char *path, int *n_made, struct dcpk_error *err)
{
    struct stat info;
    dcpk_status st = DCPK_OK;

    for (char *p = strchr(path + 1, '/'); p != NULL && st == DCPK_OK; p = strchr(p + 1, '/')) {
        *p = '\0';
        /* a folder that is there may answer EACCES or EROFS as well as EEXIST */
        if (mkdir(path, 0777) == 0) {
            ++*n_made;
            st = dcpk_sync_parent(path, err);
        } else {
            const int code = errno;
            if (stat(path, &info) != 0)
                st =
                    dcpk_fail_errno(err, code == EEXIST ? errno : code, "making folder '%s'", path);
            else if (!S_ISDIR(info.st_mode))
                st = dcpk_fail_errno(err, ENOTDIR, "making folder '%s'", path);
        }
        *p = '/';
    }
    return st;
}

void dcpk_parents_remove(char *path, int n_made)
{
    char *slash;

    for (; n_made > 0 && (slash = strrchr(path, '/')) != NULL; n_made--) {
        *slash = '\0';
        if (rmdir(path) != 0)
            return;
    }
}

void dcpk_folder_free(struct dcpk_folder *folder)
{
    if (folder->journal_fd >= 0)
        close(folder->journal_fd);
    if (folder->dir_fd >= 0)
        close(folder->dir_fd);
    dcpk_free(folder->path);
    dcpk_free(folder->partial);
    dcpk_free(folder->old);
    dcpk_free(folder->inner);
    dcpk_map_release(&folder->reserved);
    pthread_mutex_destroy(&folder->mutex);
    dcpk_free(folder);
}

struct dcpk_folder *dcpk_folder_new(const char *path, unsigned flags, struct dcpk_error *err)
{
    struct dcpk_folder *folder = dcpk_alloc(sizeof *folder, err);
    size_t n = strlen(path);

    if (folder == NULL)
        return NULL;
    while (n > 1 && path[n - 1] == '/')
        n--;
    pthread_mutex_init(&folder->mutex, NULL);
    folder->dir_fd = folder->journal_fd = -1;
    folder->flags = flags;
    folder->path = join(path, n, "", err);
    folder->partial = folder->path == NULL ? NULL : join(path, n, DCPK_PARTIAL_SUFFIX, err);
    folder->old = folder->partial == NULL ? NULL : join(path, n, OLD_SUFFIX, err);
    if (folder->old == NULL) {
        dcpk_folder_free(folder);
        return NULL;
    }
    return folder;
}

/* ".", ".." and "/" have no name that a neighbour's could be built from. */
static bool has_own_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *last = slash == NULL ? path : slash + 1;

    return last[0] != '\0' && strcmp(last, ".") != 0 && strcmp(last, "..") != 0;
}

/* Is nothing in the way, or may it be replaced? */
static dcpk_status check_way(const struct dcpk_folder *folder, struct dcpk_error *err)
{
    bool output, partial, old;

    if (folder->flags & DCPK_FOLDER_REPLACE)
        return DCPK_OK;
    if (dcpk_path_find(folder->path, &output, err) != DCPK_OK ||
        dcpk_path_find(folder->old, &old, err) != DCPK_OK)
        return err->status;
    if (output)
        return dcpk_fail(err, DCPK_EUSAGE, "output '%s' exists; --force replaces it", folder->path);
    if (old)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "'%s' is what a killed run was replacing; move it back, or --force "
                         "replaces it",
                         folder->old);
    if ((folder->flags & DCPK_FOLDER_RESUME) != 0)
        return DCPK_OK;
    if (dcpk_partial_sweep(folder, &partial, err) != DCPK_OK)
        return err->status;
    if (partial)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "'%s' is in the way, of a run that was killed or still goes on; %s--force "
                         "deletes it",
                         folder->partial,
                         folder->flags & DCPK_FOLDER_TAR
                             ? ""
                             : "--resume goes on with it where that can be done, ");
    return DCPK_OK;
}

static dcpk_status begin(struct dcpk_folder *folder, struct dcpk_error *err)
{
    dcpk_status st = check_way(folder, err);

    if (st == DCPK_OK)
        st = dcpk_parents_make(folder->path, &folder->n_parents, err);
    return st == DCPK_OK ? dcpk_partial_begin(folder, err) : st;
}

dcpk_status dcpk_folder_begin(const char *path, unsigned flags, struct dcpk_folder **folder,
                              struct dcpk_error *err)
{
    struct dcpk_folder *f = dcpk_folder_new(path, flags, err);
    dcpk_status st;

    if (f == NULL)
        return err->status;
    if (!has_own_name(f->path)) {
        st = dcpk_fail(err, DCPK_EUSAGE, "output '%s' is not the name of a folder to make", path);
        goto out;
    }
    st = begin(f, err);
    f->syncs_at_once = st == DCPK_OK &&
                       (flags & (DCPK_FOLDER_MANY | DCPK_FOLDER_TAR)) == DCPK_FOLDER_MANY &&
                       dcpk_can_sync_at_once(f->dir_fd);
    if (st == DCPK_OK)
        *folder = f;
out:
    if (st != DCPK_OK) {
        dcpk_parents_remove(f->path, f->n_parents);
        dcpk_folder_free(f);
    }
    return st;
}

int dcpk_sink_preallocate(int fd, uint64_t at, uint64_t n_bytes)
{
    int rc;

    if (n_bytes == 0)
        return 0;
    if (n_bytes > INT64_MAX || at > INT64_MAX - n_bytes) {
        errno = EFBIG;
        return -1;
    }
    do {
        rc = fallocate(fd, 0, (off_t)at, (off_t)n_bytes);
    } while (rc != 0 && errno == EINTR);
    if (rc == 0 || (errno != EOPNOTSUPP && errno != ENOSYS))
        return rc;
    do {
        rc = ftruncate(fd, (off_t)(at + n_bytes));
    } while (rc != 0 && errno == EINTR);
    return rc;
}

/* Are the first n bytes of `name` the name of an entry of a folder? */
static bool is_plain_part(const char *name, size_t n)
{
    return n > 0 && memchr(name, '/', n) == NULL && (n > 2 || memcmp(name, "..", n) != 0);
}

static bool is_plain_name(const char *name)
{
    return is_plain_part(name, strlen(name));
}

dcpk_status dcpk_folder_make_inner(struct dcpk_folder *folder, const char *name,
                                   struct dcpk_error *err)
{
    const char *slash = strchr(name, '/'), *last = slash == NULL ? name : slash + 1;
    const size_t n = slash == NULL ? 0 : (size_t)(slash - name);
    dcpk_status st = DCPK_OK;
    char *inner;

    if (!is_plain_name(last) || (slash != NULL && !is_plain_part(name, n)))
        return dcpk_fail(err, DCPK_EFORMAT, "'%.200s' is not a plain file name", name);
    if (slash == NULL || (folder->flags & (DCPK_FOLDER_TAR | DCPK_FOLDER_COMPARE)) != 0)
        return DCPK_OK;
    inner = join(name, n, "", err);
    if (inner == NULL)
        return err->status;
    if (mkdirat(folder->dir_fd, inner, 0777) != 0 && errno != EEXIST)
        st = dcpk_fail_errno(err, errno, "making folder '%s/%s'", folder->path, inner);
    folder->has_folders = true;
    dcpk_free(inner);
    return st;
}

dcpk_status dcpk_sink_write_all(int fd, const char *path, uint64_t at, const uint8_t *data,
                                size_t n, struct dcpk_error *err)
{
    while (n > 0) {
        const size_t part = n < MAX_WRITE_BYTES ? n : MAX_WRITE_BYTES;
        const ssize_t put = pwrite(fd, data, part, (off_t)at);
        if (put < 0 && errno == EINTR)
            continue;
        /* POSIX never returns 0 here for part > 0; without this it would be an endless loop */
        if (put <= 0)
            return dcpk_fail_errno(err, put < 0 ? errno : EIO,
                                   "writing %zu bytes at byte %" PRIu64 " of '%s'", n, at, path);
        at += (uint64_t)put;
        data += put;
        n -= (size_t)put;
    }
    return DCPK_OK;
}

/* A sink without a descriptor yet, with the path that messages tell. */
static struct dcpk_sink *new_sink(const struct dcpk_folder *folder, const char *name,
                                  uint64_t n_bytes, struct dcpk_error *err)
{
    const size_t path_bytes = strlen(folder->path) + strlen(name) + 2;
    struct dcpk_sink *sink = dcpk_alloc(sizeof *sink + path_bytes, err);

    if (sink == NULL)
        return NULL;
    snprintf(sink->path, path_bytes, "%s/%s", folder->path, name);
    sink->n_bytes = n_bytes;
    sink->leaves_cache = (folder->flags & DCPK_FOLDER_LARGE) != 0;
    sink->is_compared = (folder->flags & DCPK_FOLDER_COMPARE) != 0;
    return sink;
}

/* Open a member of an archive: give it its place if it has none yet. */
static dcpk_status open_member(struct dcpk_folder *folder, const char *name, struct dcpk_sink *sink,
                               struct dcpk_error *err)
{
    sink->fd = folder->dir_fd;
    sink->is_member = sink->syncs_later = true; /* once, when the archive is published */
    return dcpk_tar_place(folder, name, sink->n_bytes, &sink->base_bytes, err);
}

/* Give a file its room: one that an earlier run left may be too long. Returns 0, or -1 with errno.
 */
static int give_room(const struct dcpk_folder *folder, const struct dcpk_sink *sink)
{
    struct stat info;

    if (folder->is_resumed &&
        (fstat(sink->fd, &info) != 0 || ((uint64_t)info.st_size > sink->n_bytes &&
                                         ftruncate(sink->fd, (off_t)sink->n_bytes) != 0)))
        return -1;
    return dcpk_sink_preallocate(sink->fd, 0, sink->n_bytes);
}

/* Open a file of the folder, with the flags `how`. */
static dcpk_status open_file(struct dcpk_folder *folder, const char *name, int how,
                             struct dcpk_sink *sink, struct dcpk_error *err)
{
    if (sink->is_compared)
        return dcpk_sink_open_there(folder, name, sink, err);
    sink->syncs_later = folder->syncs_at_once;
    sink->fd = openat(folder->dir_fd, name, O_WRONLY | O_NOFOLLOW | O_CLOEXEC | how, 0666);
    if (sink->fd < 0)
        return dcpk_fail_errno(err, errno, "%s file '%s'", how == 0 ? "opening" : "making",
                               sink->path);
    if (how == 0 || give_room(folder, sink) == 0)
        return DCPK_OK;
    dcpk_fail_errno(err, errno, "giving file '%s' %" PRIu64 " bytes", sink->path, sink->n_bytes);
    close(sink->fd);
    if (how & O_EXCL)
        (void)unlinkat(folder->dir_fd, name, 0); /* the folder's end would delete it as well */
    return err->status;
}

/* how: O_CREAT, with O_EXCL or not, and its folder as needed; 0 for a file that is there. */
static dcpk_status open_sink(struct dcpk_folder *folder, const char *name, uint64_t n_bytes,
                             int how, struct dcpk_sink **sink, struct dcpk_error *err)
{
    struct dcpk_sink *s = new_sink(folder, name, n_bytes, err);
    dcpk_status st;

    if (s == NULL)
        return err->status;
    pthread_mutex_lock(&folder->mutex);
    st = how == 0 ? DCPK_OK : dcpk_folder_make_inner(folder, name, err);
    if (st == DCPK_OK)
        st = folder->flags & DCPK_FOLDER_TAR ? open_member(folder, name, s, err)
                                             : open_file(folder, name, how, s, err);
    pthread_mutex_unlock(&folder->mutex);
    if (st == DCPK_OK)
        *sink = s;
    else
        dcpk_free(s);
    return st;
}

dcpk_status dcpk_folder_create(struct dcpk_folder *folder, const char *name, uint64_t n_bytes,
                               struct dcpk_sink **sink, struct dcpk_error *err)
{
    const bool may_be_there = folder->is_resumed || (folder->flags & DCPK_FOLDER_SHARED);

    return open_sink(folder, name, n_bytes, may_be_there ? O_CREAT : O_CREAT | O_EXCL, sink, err);
}

dcpk_status dcpk_folder_reopen(struct dcpk_folder *folder, const char *name, uint64_t n_bytes,
                               struct dcpk_sink **sink, struct dcpk_error *err)
{
    return open_sink(folder, name, n_bytes, 0, sink, err);
}

dcpk_status dcpk_folder_create_hidden(struct dcpk_folder *folder, const char *name,
                                      uint64_t n_bytes, struct dcpk_sink **sink,
                                      struct dcpk_error *err)
{
    const unsigned shown = DCPK_FOLDER_TAR | DCPK_FOLDER_COMPARE;
    const char *suffix = (folder->flags & shown) != 0 ? "" : TMP_SUFFIX;
    char *hidden = join(name, strlen(name), suffix, err);
    dcpk_status st;

    if (hidden == NULL)
        return err->status;
    st = dcpk_folder_create(folder, hidden, n_bytes, sink, err);
    dcpk_free(hidden);
    return st;
}

dcpk_status dcpk_folder_show(struct dcpk_folder *folder, const char *name, struct dcpk_error *err)
{
    dcpk_status st = DCPK_OK;
    char *hidden;

    if ((folder->flags & (DCPK_FOLDER_TAR | DCPK_FOLDER_COMPARE)) != 0)
        return DCPK_OK;
    hidden = join(name, strlen(name), TMP_SUFFIX, err);
    if (hidden == NULL)
        return err->status;
    if (renameat(folder->dir_fd, hidden, folder->dir_fd, name) != 0)
        st = dcpk_fail_errno(err, errno, "naming file '%s/%s'", folder->path, name);
    dcpk_free(hidden);
    return st;
}

dcpk_status dcpk_sink_write(struct dcpk_sink *sink, uint64_t offset_bytes, const void *data,
                            size_t n_bytes, struct dcpk_error *err)
{
    assert(offset_bytes <= sink->n_bytes && n_bytes <= sink->n_bytes - offset_bytes);
    return (sink->is_compared ? dcpk_sink_compare : dcpk_sink_write_all)(
        sink->fd, sink->path, sink->base_bytes + offset_bytes, data, n_bytes, err);
}

void dcpk_sink_flush(struct dcpk_sink *sink, uint64_t offset_bytes, uint64_t n_bytes)
{
    uint64_t before;

    if (n_bytes == 0 || sink->syncs_later) /* 0 would mean "to the end" */
        return;
    (void)sync_file_range(sink->fd, (off_t)(sink->base_bytes + offset_bytes), (off_t)n_bytes,
                          SYNC_FILE_RANGE_WRITE);
    if (!sink->leaves_cache)
        return;
    before = atomic_fetch_add(&sink->n_flushed_bytes, n_bytes);
    if (before / DROP_BYTES != (before + n_bytes) / DROP_BYTES)
        (void)posix_fadvise(sink->fd, 0, 0, POSIX_FADV_DONTNEED); /* not what is still on its way */
}

dcpk_status dcpk_sink_sync(struct dcpk_sink *sink, struct dcpk_error *err)
{
    while (!sink->syncs_later && fdatasync(sink->fd) != 0)
        if (errno != EINTR)
            return dcpk_fail_errno(err, errno, "syncing file '%s'", sink->path);
    return DCPK_OK;
}

/* Sync, unless that comes later, and close fd; it is closed in every case. */
static dcpk_status sync_and_close(int fd, bool syncs_later, const char *path,
                                  struct dcpk_error *err)
{
    int code = 0;

    while (!syncs_later && fsync(fd) != 0) {
        if (errno != EINTR) {
            code = errno;
            break;
        }
    }
    /* network file systems tell of lost writes here; after EINTR the descriptor is gone on Linux */
    if (close(fd) != 0 && errno != EINTR && code == 0)
        code = errno;
    return code == 0 ? DCPK_OK : dcpk_fail_errno(err, code, "syncing file '%s'", path);
}

dcpk_status dcpk_sink_close(struct dcpk_sink *sink, struct dcpk_error *err)
{
    /* an archive is synced once, when it is published */
    const dcpk_status st =
        sink->is_member ? DCPK_OK : sync_and_close(sink->fd, sink->syncs_later, sink->path, err);

    dcpk_free(sink);
    return st;
}

void dcpk_sink_abandon(struct dcpk_sink *sink)
{
    if (sink == NULL)
        return;
    if (!sink->is_member)
        close(sink->fd);
    dcpk_free(sink);
}

dcpk_status dcpk_folder_put(struct dcpk_folder *folder, const char *name, const void *data,
                            size_t n_bytes, struct dcpk_error *err)
{
    struct dcpk_sink *sink = NULL;
    dcpk_status st;

    st = dcpk_folder_create(folder, name, n_bytes, &sink, err);
    if (st != DCPK_OK)
        return st;
    st = dcpk_sink_write(sink, 0, data, n_bytes, err);
    if (st != DCPK_OK) {
        dcpk_sink_abandon(sink);
        return st;
    }
    return dcpk_sink_close(sink, err);
}

const char *dcpk_folder_partial(const struct dcpk_folder *folder)
{
    return (folder->flags & DCPK_FOLDER_COMPARE) != 0 ? folder->path : folder->partial;
}

void dcpk_folder_abandon(struct dcpk_folder *folder)
{
    struct dcpk_error ignored;

    if (folder == NULL)
        return;
    if (!folder->published && !folder->is_kept && !folder->is_joined &&
        (folder->flags & DCPK_FOLDER_COMPARE) == 0) {
        /* a file that is deleted while it is open stays in its folder on NFS, and the folder too */
        if (folder->journal_fd >= 0)
            close(folder->journal_fd);
        folder->journal_fd = -1;
        (void)dcpk_remove_tree(folder->partial, &ignored); /* what stays is called partial */
        dcpk_parents_remove(folder->path, folder->n_parents);
    }
    dcpk_folder_free(folder);
}
