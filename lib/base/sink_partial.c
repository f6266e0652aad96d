/* SPDX-License-Identifier: Apache-2.0 */
/* sink_partial.c - partial folders: one run at a time works in one, and may leave a journal in it.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/alloc.h"
#include "lib/base/sink_priv.h"
#include "lib/base/store.h"

/*
 * Lock for as long as fd is open. Where the file system has no locks (or, as NFS, none on folders)
 * that does nothing.
 */
static dcpk_status lock(const struct dcpk_folder *folder, int fd, struct dcpk_error *err)
{
    if (flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EUSAGE, "another process is writing '%s'", folder->partial);
}

/* Between our opening and locking it another run may have deleted, or published, what we opened. */
static dcpk_status check_still_there(const struct dcpk_folder *folder, struct dcpk_error *err)
{
    struct stat ours, there = {0};

    if (fstat(folder->dir_fd, &ours) != 0 ||
        (lstat(folder->partial, &there) != 0 && errno != ENOENT))
        return dcpk_fail_errno(err, errno, "opening '%s'", folder->partial);
    if (ours.st_dev == there.st_dev && ours.st_ino == there.st_ino)
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EUSAGE, "another process was writing '%s' just now",
                     folder->partial);
}

/* Does what is there have the kind that we make? Links count as none. */
static bool is_of_kind(const struct stat *info, unsigned flags)
{
    return flags & DCPK_FOLDER_TAR ? S_ISREG(info->st_mode) : S_ISDIR(info->st_mode);
}

/* Make the partial folder or archive; *is_new: it was not there. */
static dcpk_status make(const struct dcpk_folder *folder, bool *is_new, struct dcpk_error *err)
{
    const bool is_tar = folder->flags & DCPK_FOLDER_TAR;
    struct stat info;
    int fd;

    if ((folder->flags & DCPK_FOLDER_REPLACE) && lstat(folder->partial, &info) == 0 &&
        !is_of_kind(&info, folder->flags) && dcpk_remove_tree(folder->partial, err) != DCPK_OK)
        return err->status;
    if (is_tar) {
        fd = open(folder->partial, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        *is_new = fd >= 0;
        if (*is_new)
            (void)close(fd); /* nothing was written yet */
    } else {
        *is_new = mkdir(folder->partial, 0777) == 0;
    }
    if (*is_new ||
        (errno == EEXIST && (folder->flags & (DCPK_FOLDER_REPLACE | DCPK_FOLDER_RESUME))))
        return DCPK_OK;
    return dcpk_fail_errno(err, errno, "making %s'%s'", is_tar ? "" : "folder ", folder->partial);
}

/* Open and lock the partial folder or archive, and the journal of a folder. */
static dcpk_status open_locked(struct dcpk_folder *folder, struct dcpk_error *err)
{
    const bool is_tar = folder->flags & DCPK_FOLDER_TAR;
    dcpk_status st;

    folder->dir_fd = open(folder->partial,
                          (is_tar ? O_WRONLY : O_RDONLY | O_DIRECTORY) | O_NOFOLLOW | O_CLOEXEC);
    if (folder->dir_fd < 0)
        return dcpk_fail_errno(err, errno, "opening '%s'", folder->partial);
    st = lock(folder, folder->dir_fd, err);
    if (st == DCPK_OK)
        st = check_still_there(folder, err);
    if (st != DCPK_OK || is_tar)
        return st;
    folder->journal_fd =
        openat(folder->dir_fd, DCPK_JOURNAL_NAME, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (folder->journal_fd < 0)
        return dcpk_fail_errno(err, errno, "making '%s/" DCPK_JOURNAL_NAME "'", folder->partial);
    return lock(folder, folder->journal_fd, err);
}

/* Does the folder hold nothing but perhaps a journal? */
static dcpk_status look_bare(const char *path, bool *is_bare, struct dcpk_error *err)
{
    struct dcpk_store *store = NULL;
    char **names = NULL;
    size_t n = 0;
    dcpk_status st = dcpk_store_open(path, &store, err);

    if (st == DCPK_OK)
        st = dcpk_store_list(store, &names, &n, err);
    *is_bare = st == DCPK_OK && (n == 0 || (n == 1 && strcmp(names[0], DCPK_JOURNAL_NAME) == 0));
    dcpk_free(names);
    dcpk_store_close(store);
    return st;
}

/* Lock it in truth: a file system without locks cannot say that nobody works in it. */
static bool is_ours(int fd)
{
    return fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0;
}

dcpk_status dcpk_partial_sweep(const struct dcpk_folder *folder, bool *is_there,
                               struct dcpk_error *err)
{
    int dir_fd, journal_fd = -1;
    bool is_bare = false;
    dcpk_status st = dcpk_path_find(folder->partial, is_there, err);

    if (st != DCPK_OK || !*is_there || (folder->flags & DCPK_FOLDER_TAR))
        return st;
    dir_fd = open(folder->partial, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir_fd >= 0)
        journal_fd = openat(dir_fd, DCPK_JOURNAL_NAME, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (is_ours(dir_fd) && is_ours(journal_fd))
        st = look_bare(folder->partial, &is_bare, err);
    if (is_bare) {
        st = dcpk_remove_tree(folder->partial, err);
        *is_there = false;
    }
    if (journal_fd >= 0)
        close(journal_fd);
    if (dir_fd >= 0)
        close(dir_fd);
    return st;
}

/* Is there anything in the journal? Also where the system does not say: reading it tells why. */
static bool has_journal(const struct dcpk_folder *folder)
{
    struct stat info;

    return folder->journal_fd >= 0 && (fstat(folder->journal_fd, &info) != 0 || info.st_size > 0);
}

dcpk_status dcpk_partial_begin(struct dcpk_folder *folder, struct dcpk_error *err)
{
    struct dcpk_error ignored;
    bool is_new = false;
    dcpk_status st = make(folder, &is_new, err);

    if (st != DCPK_OK)
        return st;
    st = open_locked(folder, err);
    if (is_new && st != DCPK_OK && st != DCPK_EUSAGE)
        (void)dcpk_remove_tree(folder->partial, &ignored); /* the first error is the one to tell */
    if (st != DCPK_OK || is_new)
        return st;
    folder->is_resumed = (folder->flags & DCPK_FOLDER_RESUME) && has_journal(folder);
    folder->is_kept = folder->has_folders = folder->is_resumed;
    if (!folder->is_resumed)
        return dcpk_folder_clear(folder, err);
    dcpk_partial_clean(folder);
    return DCPK_OK;
}

int dcpk_partial_end(struct dcpk_folder *folder)
{
    if (folder->journal_fd < 0)
        return 0;
    if (unlinkat(folder->dir_fd, DCPK_JOURNAL_NAME, 0) != 0)
        return -1;
    close(folder->journal_fd); /* the lock on the folder itself remains */
    folder->journal_fd = -1;
    folder->is_kept = false;
    return 0;
}

dcpk_status dcpk_folder_remove(struct dcpk_folder *folder, const char *name, struct dcpk_error *err)
{
    assert((folder->flags & DCPK_FOLDER_COMPARE) == 0);
    if (unlinkat(folder->dir_fd, name, 0) == 0 || errno == ENOENT)
        return DCPK_OK;
    return dcpk_fail_errno(err, errno, "deleting '%s/%s'", folder->partial, name);
}

/* An entry of a walk goes, but for the root and the journal in it, which is locked. */
static int clear_entry(const char *path, const struct stat *info, int kind, struct FTW *walk)
{
    (void)info;
    (void)kind;
    if (walk->level == 0 || (walk->level == 1 && strcmp(path + walk->base, DCPK_JOURNAL_NAME) == 0))
        return 0;
    return remove(path);
}

dcpk_status dcpk_folder_clear(struct dcpk_folder *folder, struct dcpk_error *err)
{
    const int emptied = folder->journal_fd < 0 ? folder->dir_fd : folder->journal_fd;

    assert((folder->flags & DCPK_FOLDER_COMPARE) == 0);
    /* a journal that came back after a crash would speak of files that are others by then */
    if (ftruncate(emptied, 0) != 0 || fsync(emptied) != 0 ||
        (folder->journal_fd >= 0 &&
         nftw(folder->partial, clear_entry, DCPK_WALK_FDS, FTW_DEPTH | FTW_PHYS) != 0))
        return dcpk_fail_errno(err, errno, "emptying '%s'", folder->partial);
    folder->is_resumed = folder->is_kept = folder->has_folders = false;
    return DCPK_OK;
}

bool dcpk_folder_is_resumed(const struct dcpk_folder *folder)
{
    return folder->is_resumed;
}

bool dcpk_folder_keep(struct dcpk_folder *folder)
{
    folder->is_kept = folder->journal_fd >= 0;
    return folder->is_kept;
}

bool dcpk_folder_has(const struct dcpk_folder *folder, const char *name, uint64_t n_bytes)
{
    struct stat info;

    return fstatat(folder->dir_fd, name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISREG(info.st_mode) && (uint64_t)info.st_size == n_bytes;
}

void dcpk_folder_reserve_journal(struct dcpk_folder *folder, uint64_t n_bytes)
{
    (void)fallocate(folder->journal_fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)n_bytes);
}

dcpk_status dcpk_folder_read_journal(struct dcpk_folder *folder, uint64_t limit_bytes,
                                     struct dcpk_bytes *journal, struct dcpk_error *err)
{
    uint8_t block[4096];

    while (journal->n_bytes < limit_bytes) {
        const uint64_t left = limit_bytes - journal->n_bytes;
        const ssize_t n =
            pread(folder->journal_fd, block, left < sizeof block ? (size_t)left : sizeof block,
                  (off_t)journal->n_bytes);

        if (n == 0)
            break;
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return dcpk_fail_errno(err, errno, "reading '%s/" DCPK_JOURNAL_NAME "'",
                                   folder->partial);
        dcpk_bytes_put(journal, block, (size_t)n);
        if (dcpk_bytes_status(journal, err) != DCPK_OK)
            return err->status;
    }
    return DCPK_OK;
}

dcpk_status dcpk_folder_write_journal(struct dcpk_folder *folder, uint64_t offset_bytes,
                                      const void *data, size_t n_bytes, struct dcpk_error *err)
{
    dcpk_status st =
        dcpk_sink_write_all(folder->journal_fd, folder->partial, offset_bytes, data, n_bytes, err);

    while (st == DCPK_OK && fdatasync(folder->journal_fd) != 0)
        if (errno != EINTR)
            st = dcpk_fail_errno(err, errno, "syncing '%s/" DCPK_JOURNAL_NAME "'", folder->partial);
    return st;
}
