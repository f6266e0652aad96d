/* SPDX-License-Identifier: Apache-2.0 */
/* file.h - one file, written from its beginning to its end, that appears whole or not at all. */
#ifndef DCPK_LIB_IO_FILE_H
#define DCPK_LIB_IO_FILE_H

#include <stddef.h>

#include "lib/base/error.h"

struct dcpk_file;

enum dcpk_file_flags {
    /* A person named it: a device, a pipe or a link at `path` is written into, at once, and stays
     * what it is. A pipe that has no reader is an error. */
    DCPK_FILE_INTO = 1,
    /* Appends at once to the file at `path`, made where there is nothing. */
    DCPK_FILE_APPEND = 2,
};

/*
 * Begin a file under a name next to `path` that no other process has; a file or link at `path`
 * stays until it is published, and is replaced then. Files that a killed process left under such a
 * name are deleted, if they are ours and no process has them open. Errors: DCPK_EIO.
 */
dcpk_status dcpk_file_begin(const char *path, unsigned flags, struct dcpk_file **file,
                            struct dcpk_error *err);
/* Append n_bytes. */
dcpk_status dcpk_file_put(struct dcpk_file *file, const void *data, size_t n_bytes,
                          struct dcpk_error *err);
/* Sync it, give it its name and sync the folder. Frees the file, also on failure. */
dcpk_status dcpk_file_publish(struct dcpk_file *file, struct dcpk_error *err);
/* Delete what was written, and free; NULL is a no-op. */
void dcpk_file_abandon(struct dcpk_file *file);

/* A small file at once: trackers and reports. */
dcpk_status dcpk_file_write(const char *path, unsigned flags, const void *data, size_t n_bytes,
                            struct dcpk_error *err);

/*
 * Wait until no other process holds the lock of the folder around `path`, and take it. Returns what
 * dcpk_file_unlock wants; -1 where the file system has no such lock, or it was held for all of
 * wait_seconds: a caller that continues without it may be one of two.
 */
int dcpk_file_lock_parent(const char *path, double wait_seconds);
void dcpk_file_unlock(int lock); /* -1 is a no-op */

#endif
