/* SPDX-License-Identifier: Apache-2.0 */
/* sink_join.c - several processes, perhaps of several machines, make the files of one partial
 * folder. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/io/sink_priv.h"

#define PAUSE_NS 200000000 /* between two looks */

dcpk_status dcpk_folder_mark(struct dcpk_folder *folder, uint64_t *mark, struct dcpk_error *err)
{
    if (getrandom(mark, sizeof *mark, 0) != (ssize_t)sizeof *mark)
        return dcpk_fail_errno(err, errno, "getting a random number");
    return dcpk_folder_put(folder, DCPK_MARK_NAME, mark, sizeof *mark, err);
}

dcpk_status dcpk_folder_unmark(struct dcpk_folder *folder, struct dcpk_error *err)
{
    struct dcpk_written_file *file = dcpk_written_find(folder, DCPK_MARK_NAME);

    if (file != NULL)
        file->is_gone = true;
    if (unlinkat(folder->dir_fd, DCPK_MARK_NAME, 0) != 0 && errno != ENOENT)
        return dcpk_fail_errno(err, errno, "deleting '%s/" DCPK_MARK_NAME "'", folder->partial);
    return DCPK_OK;
}

/*
 * Open the folders around `path`, the outermost first. A client of NFS may remember for some 30 s
 * that there is nothing at a name; opening a folder makes it ask the server whether that has
 * changed (nfs(5), "close-to-open" and acdirmin). The text is changed and put back.
 */
static void open_parents(char *path)
{
    for (char *p = strchr(path + 1, '/'); p != NULL; p = strchr(p + 1, '/')) {
        int fd;

        *p = '\0';
        fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd >= 0)
            close(fd);
        *p = '/';
    }
}

/* Looks for this mark in the folder. Returns 0, or -1 with errno; ENOENT: another mark, or none. */
static int look_for_mark(const struct dcpk_folder *folder, uint64_t mark)
{
    const int fd = openat(folder->dir_fd, DCPK_MARK_NAME, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    uint64_t found = ~mark;
    ssize_t n;

    if (fd < 0)
        return -1;
    n = pread(fd, &found, sizeof found, 0);
    close(fd);
    if (n < 0)
        return -1;
    errno = ENOENT;
    return n == (ssize_t)sizeof found && found == mark ? 0 : -1;
}

/* Open the partial folder if it must be seen and has the mark. Returns 0, or -1 with errno. */
static int try_join(struct dcpk_folder *folder, uint64_t mark)
{
    struct stat info;
    int code;

    folder->dir_fd = open(folder->partial, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder->dir_fd < 0)
        return -1;
    if (fstat(folder->dir_fd, &info) == 0 && look_for_mark(folder, mark) == 0) {
        folder->owner = info.st_uid;
        return 0;
    }
    code = errno;
    close(folder->dir_fd);
    folder->dir_fd = -1;
    errno = code;
    return -1;
}

dcpk_status dcpk_folder_join(const char *path, unsigned flags, uint64_t mark, double wait_seconds,
                             struct dcpk_folder **folder, struct dcpk_error *err)
{
    const double end = dcpk_now_seconds() + wait_seconds;
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    struct dcpk_folder *f = dcpk_folder_new(path, &dcpk_folder_kind, flags, err);

    if (f == NULL)
        return err->status;
    f->is_joined = true;
    while (try_join(f, mark) != 0) {
        const int code = errno;

        if ((code != ENOENT && code != ESTALE) || dcpk_now_seconds() >= end) {
            dcpk_fail_errno(err, code,
                            "opening '%s', which another rank has made (is it on a file system "
                            "that all ranks share?)",
                            f->partial);
            dcpk_folder_free(f);
            return err->status;
        }
        (void)nanosleep(&pause, NULL);
        open_parents(f->partial);
    }
    f->syncs_at_once = (flags & DCPK_FOLDER_MANY) != 0 && dcpk_can_sync_at_once(f->dir_fd);
    *folder = f;
    return DCPK_OK;
}
