/* SPDX-License-Identifier: Apache-2.0 */
/* sink_partial.c - partial folders: one run at a time works in one, and may leave a journal in
 * it. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/order.h"
#include "lib/base/path.h"
#include "lib/io/remove.h"
#include "lib/io/sink_priv.h"

#define PROBE_NAME ".dcpkit-probe"

/*
 * Lock for as long as fd is open. Where the file system has no locks (or, as NFS, none on folders)
 * that does nothing.
 */
static dcpk_status partial_lock(const struct dcpk_folder *folder, int fd, struct dcpk_error *err)
{
    if (flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EUSAGE, "another process is writing '%s'", folder->partial);
}

static dcpk_status fail_overtaken(const struct dcpk_folder *folder, struct dcpk_error *err)
{
    return dcpk_fail(err, DCPK_EUSAGE, "another process was writing '%s' just now",
                     folder->partial);
}

/* Sets *is_there if it is still the entry at its name. */
static dcpk_status look_at_partial(const struct dcpk_folder *folder, bool *is_there,
                                   struct dcpk_error *err)
{
    return dcpk_look_at(folder->parent_fd, dcpk_name_last(folder->partial), folder->dir_fd,
                        is_there, err);
}

/* Between our opening and locking it another run may have deleted, or published, what we opened. */
static dcpk_status check_still_there(const struct dcpk_folder *folder, struct dcpk_error *err)
{
    bool is_there;

    if (look_at_partial(folder, &is_there, err) != DCPK_OK)
        return err->status;
    if (is_there)
        return DCPK_OK;
    return fail_overtaken(folder, err);
}

/* Another run may have published between our looking for the output and our locking. */
static dcpk_status check_not_made(const struct dcpk_folder *folder, struct dcpk_error *err)
{
    bool is_made;

    if (folder->flags & DCPK_FOLDER_REPLACE)
        return DCPK_OK;
    if (dcpk_path_find(folder->path, &is_made, err) != DCPK_OK)
        return err->status;
    if (is_made)
        return dcpk_fail_exists(folder, err);
    return DCPK_OK;
}

/* True if the entry is of the type that we make. A link is not. */
static bool is_of_type(const struct stat *info, const struct dcpk_partial_ops *ops)
{
    return (info->st_mode & S_IFMT) == ops->type;
}

/* Make the partial folder or archive; *is_new: it was not there. */
static dcpk_status partial_make(const struct dcpk_folder *folder, bool *is_new,
                                struct dcpk_error *err)
{
    const struct dcpk_partial_ops *ops = folder->ops->partial;
    const char *name = dcpk_name_last(folder->partial);
    struct stat info;

    if ((folder->flags & DCPK_FOLDER_REPLACE) &&
        fstatat(folder->parent_fd, name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
        !is_of_type(&info, ops) &&
        dcpk_remove_at(folder->parent_fd, name, folder->partial, err) != DCPK_OK)
        return err->status;
    *is_new = ops->make(folder->parent_fd, name) == 0;
    if (*is_new ||
        (errno == EEXIST && (folder->flags & (DCPK_FOLDER_REPLACE | DCPK_FOLDER_RESUME))))
        return DCPK_OK;
    if (errno == EEXIST || errno == ENOENT) /* it, or the folder around it, was not so before */
        return fail_overtaken(folder, err);
    return dcpk_fail_errno(err, errno, "making %s'%s'", ops->noun, folder->partial);
}

/*
 * True if the entry is this user's. Some file systems show all files as another's (NFS of root's,
 * SMB, FUSE): then the owner of a file that we make there counts.
 */
static bool is_own(int folder_fd, const struct stat *info)
{
    struct stat made;
    bool same;
    int fd;

    if (info->st_uid == geteuid())
        return true;
    fd = openat(folder_fd, PROBE_NAME, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return false;
    same = fstat(fd, &made) == 0 && made.st_uid == info->st_uid;
    close(fd);
    (void)unlinkat(folder_fd, PROBE_NAME, 0);
    return same;
}

static bool is_own_folder(const struct dcpk_folder *folder, const struct stat *info)
{
    return is_own(folder->dir_fd, info);
}

static bool is_own_archive(const struct dcpk_folder *folder, const struct stat *info)
{
    return info->st_nlink == 1 && is_own(folder->parent_fd, info);
}

static int make_folder(int parent_fd, const char *name)
{
    return mkdirat(parent_fd, name, 0777);
}

static int make_archive(int parent_fd, const char *name)
{
    const int fd = openat(parent_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);

    if (fd < 0)
        return -1;
    (void)close(fd); /* nothing was written yet */
    return 0;
}

static dcpk_status empty_folder(struct dcpk_folder *folder, struct dcpk_error *err)
{
    return dcpk_remove_inside(folder->dir_fd, NULL, folder->partial, err);
}

const struct dcpk_partial_ops dcpk_partial_folder = {
    .type = S_IFDIR,
    .noun = "folder ",
    .open_flags = O_RDONLY | O_DIRECTORY,
    .unlink_flags = AT_REMOVEDIR,
    .has_journal = true,
    .make = make_folder,
    .is_own = is_own_folder,
    .empty = empty_folder,
};

const struct dcpk_partial_ops dcpk_partial_archive = {
    .type = S_IFREG,
    .noun = "",
    .open_flags = O_RDWR | O_NONBLOCK | O_NOCTTY,
    .make = make_archive,
    .is_own = is_own_archive,
};

/* Checks that it is this user's alone, so that no other can change the published files. */
static dcpk_status check_owner(struct dcpk_folder *folder, struct dcpk_error *err)
{
    const struct dcpk_partial_ops *ops = folder->ops->partial;
    struct stat info;

    if (fstat(folder->dir_fd, &info) != 0)
        return dcpk_fail_errno(err, errno, "opening '%s'", folder->partial);
    folder->owner = info.st_uid;
    if (is_of_type(&info, ops) && ops->is_own(folder, &info))
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EUSAGE,
                     "'%s' does not belong to this user alone: changes by another user, or through "
                     "another name, would be published",
                     folder->partial);
}

static dcpk_status open_journal(struct dcpk_folder *folder, struct dcpk_error *err)
{
    struct stat info;

    folder->journal_fd =
        openat(folder->dir_fd, DCPK_JOURNAL_NAME,
               O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0666);
    if (folder->journal_fd < 0 && errno != ELOOP && errno != EISDIR && errno != ENXIO)
        return dcpk_fail_errno(err, errno, "making '%s/" DCPK_JOURNAL_NAME "'", folder->partial);
    if (folder->journal_fd >= 0 && fstat(folder->journal_fd, &info) != 0)
        return dcpk_fail_errno(err, errno, "opening '%s/" DCPK_JOURNAL_NAME "'", folder->partial);
    if (folder->journal_fd >= 0 && dcpk_is_own_file(folder, &info))
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EUSAGE,
                     "'%s/" DCPK_JOURNAL_NAME "' is not a plain file of this user's alone",
                     folder->partial);
}

/* Open and lock the partial folder or archive, and the journal of a folder. *is_not_ours: it is not
 * one that this program has made. */
static dcpk_status open_partial_locked(struct dcpk_folder *folder, bool *is_not_ours,
                                       struct dcpk_error *err)
{
    const struct dcpk_partial_ops *ops = folder->ops->partial;
    dcpk_status st;

    folder->dir_fd = openat(folder->parent_fd, dcpk_name_last(folder->partial),
                            ops->open_flags | O_NOFOLLOW | O_CLOEXEC);
    if (folder->dir_fd < 0 && errno == ENOENT)
        return fail_overtaken(folder, err);
    if (folder->dir_fd < 0)
        return dcpk_fail_errno(err, errno, "opening '%s'", folder->partial);
    st = partial_lock(folder, folder->dir_fd, err);
    if (st == DCPK_OK)
        st = check_still_there(folder, err);
    if (st != DCPK_OK)
        return st;
    st = check_owner(folder, err);
    if (st == DCPK_OK && ops->has_journal)
        st = open_journal(folder, err);
    *is_not_ours = st == DCPK_EUSAGE;
    if (st == DCPK_OK && ops->has_journal)
        st = partial_lock(folder, folder->journal_fd, err);
    return st;
}

/* True if the folder holds nothing but perhaps a journal. */
static bool is_bare(int dir_fd)
{
    DIR *dir = dcpk_dir_open(dir_fd, ".", 0);
    const struct dirent *entry;
    bool found = false;

    if (dir == NULL)
        return false;
    errno = 0;
    while ((entry = readdir(dir)) != NULL)
        found = found || (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
                          strcmp(entry->d_name, DCPK_JOURNAL_NAME) != 0);
    found = found || errno != 0;
    closedir(dir);
    return !found;
}

/* Takes the lock itself: without locks, a file system cannot show that no process works in it. */
static bool is_ours(int fd)
{
    return fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0;
}

dcpk_status dcpk_partial_sweep(struct dcpk_folder *folder, bool *is_there, struct dcpk_error *err)
{
    int journal_fd = -1;
    dcpk_status st = dcpk_path_find(folder->partial, is_there, err);

    if (st != DCPK_OK || !*is_there || !folder->ops->partial->has_journal)
        return st;
    folder->dir_fd = openat(folder->parent_fd, dcpk_name_last(folder->partial),
                            O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder->dir_fd >= 0)
        journal_fd = openat(folder->dir_fd, DCPK_JOURNAL_NAME,
                            O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (is_ours(folder->dir_fd) && is_ours(journal_fd) && is_bare(folder->dir_fd)) {
        st = dcpk_partial_delete(folder, err);
        *is_there = false;
    }
    if (journal_fd >= 0)
        close(journal_fd);
    if (folder->dir_fd >= 0)
        close(folder->dir_fd);
    folder->dir_fd = -1;
    return st;
}

dcpk_status dcpk_partial_delete(struct dcpk_folder *folder, struct dcpk_error *err)
{
    const struct dcpk_partial_ops *ops = folder->ops->partial;
    const char *name = dcpk_name_last(folder->partial);
    bool is_there;

    if (look_at_partial(folder, &is_there, err) != DCPK_OK)
        return err->status;
    if (!is_there)
        return DCPK_OK; /* taken away, perhaps to be kept */
    /* a file that is deleted while it is open stays in its folder on NFS, and the folder too */
    if (folder->journal_fd >= 0)
        close(folder->journal_fd);
    folder->journal_fd = -1;
    if (ops->empty != NULL && ops->empty(folder, err) != DCPK_OK)
        return err->status;
    if (unlinkat(folder->parent_fd, name, ops->unlink_flags) == 0 || errno == ENOENT)
        return DCPK_OK;
    return dcpk_fail_errno(err, errno, "deleting '%s'", folder->partial);
}

/* True if there is anything in the journal, and where the system does not show it: reading reports
 * the reason. */
static bool has_journal(const struct dcpk_folder *folder)
{
    struct stat info;

    return folder->journal_fd >= 0 && (fstat(folder->journal_fd, &info) != 0 || info.st_size > 0);
}

/* Make what is not there, and open it. Another user's gives way where it may be replaced. */
static dcpk_status make_and_open(struct dcpk_folder *folder, bool *is_new, struct dcpk_error *err)
{
    const bool replaces = folder->flags & DCPK_FOLDER_REPLACE;
    bool is_not_ours = false;
    dcpk_status st = partial_make(folder, is_new, err);

    if (st == DCPK_OK)
        st = open_partial_locked(folder, &is_not_ours, err);
    if (!is_not_ours || !replaces || *is_new)
        return st;
    if (folder->journal_fd >= 0)
        close(folder->journal_fd);
    close(folder->dir_fd);
    folder->dir_fd = folder->journal_fd = -1;
    if (dcpk_remove_at(folder->parent_fd, dcpk_name_last(folder->partial), folder->partial, err) ||
        partial_make(folder, is_new, err))
        return err->status;
    return open_partial_locked(folder, &is_not_ours, err);
}

/* Removes the mark that a killed run may have left; dcpk_folder_mark reports failures. */
static void clean_partial(struct dcpk_folder *folder)
{
    (void)unlinkat(folder->dir_fd, DCPK_MARK_NAME, 0);
}

dcpk_status dcpk_partial_begin(struct dcpk_folder *folder, struct dcpk_error *err)
{
    struct dcpk_error ignored;
    bool is_new = false, is_held;
    dcpk_status st = make_and_open(folder, &is_new, err);

    is_held = st != DCPK_EUSAGE; /* else another process does */
    if (st == DCPK_OK)
        st = check_not_made(folder, err);
    /* the first error is reported */
    if (st != DCPK_OK && is_new && is_held && folder->dir_fd >= 0)
        (void)dcpk_partial_delete(folder, &ignored);
    else if (st != DCPK_OK && is_new && is_held)
        (void)unlinkat(folder->parent_fd, dcpk_name_last(folder->partial),
                       folder->ops->partial->unlink_flags);
    if (st != DCPK_OK || is_new)
        return st;
    folder->is_resumed = (folder->flags & DCPK_FOLDER_RESUME) && has_journal(folder);
    folder->is_kept = folder->is_resumed;
    if (!folder->is_resumed)
        return dcpk_folder_clear(folder, err);
    clean_partial(folder);
    return DCPK_OK;
}

dcpk_status dcpk_partial_end(struct dcpk_folder *folder, struct dcpk_error *err)
{
    if (folder->journal_fd < 0)
        return DCPK_OK;
    if (unlinkat(folder->dir_fd, DCPK_JOURNAL_NAME, 0) != 0 && errno != ENOENT)
        return dcpk_fail_errno(err, errno, "deleting '%s/" DCPK_JOURNAL_NAME "'", folder->path);
    close(folder->journal_fd); /* the lock on the folder itself remains */
    folder->journal_fd = -1;
    if (dcpk_sync_folder(folder->dir_fd) != 0)
        return dcpk_fail_errno(err, errno, "syncing '%s'", folder->path);
    return DCPK_OK;
}

dcpk_status dcpk_folder_drop_journal(const char *path, struct dcpk_error *err)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    dcpk_status st = DCPK_OK;

    if (fd < 0)
        return dcpk_fail_errno(err, errno, "opening '%s'", path);
    if (unlinkat(fd, DCPK_JOURNAL_NAME, 0) != 0 && errno != ENOENT)
        st = dcpk_fail_errno(err, errno, "deleting '%s/" DCPK_JOURNAL_NAME "'", path);
    close(fd);
    return st;
}

dcpk_status dcpk_folder_clear(struct dcpk_folder *folder, struct dcpk_error *err)
{
    const int emptied = folder->journal_fd < 0 ? folder->dir_fd : folder->journal_fd;

    /* a journal that came back after a crash would name files that are others by then */
    if (ftruncate(emptied, 0) != 0 || fsync(emptied) != 0)
        return dcpk_fail_errno(err, errno, "emptying '%s'", folder->partial);
    if (folder->journal_fd >= 0 &&
        dcpk_remove_inside(folder->dir_fd, DCPK_JOURNAL_NAME, folder->partial, err) != DCPK_OK)
        return err->status;
    dcpk_written_clear(folder);
    folder->is_resumed = folder->is_kept = false;
    return DCPK_OK;
}

bool dcpk_folder_is_resumed(const struct dcpk_folder *folder)
{
    return folder->is_resumed;
}

bool dcpk_folder_keep(struct dcpk_folder *folder)
{
    struct dcpk_error ignored;
    bool is_there = true;

    if (look_at_partial(folder, &is_there, &ignored) != DCPK_OK)
        is_there = true; /* nothing shows that it is not */
    folder->is_kept = folder->journal_fd >= 0 && !folder->published && is_there;
    return folder->is_kept;
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
        const ssize_t n = pread(folder->journal_fd, block, (size_t)dcpk_min_u64(left, sizeof block),
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
