/* SPDX-License-Identifier: Apache-2.0 */
/* sink.h - output files, and folders that appear whole or not at all. */
#ifndef DCPK_LIB_BASE_SINK_H
#define DCPK_LIB_BASE_SINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/error.h"

/*
 * An output folder under construction: everything is written to "<path>.dcpkit-partial" and renamed
 * to <path> by dcpk_folder_publish. Parents of <path> are made as needed.
 */
struct dcpk_folder;

enum dcpk_folder_flags {
    DCPK_FOLDER_REPLACE = 1, /* what exists at <path> is moved aside, replaced, then deleted */
    DCPK_FOLDER_TAR = 2, /* <path> is a tar archive, files are its members (lib/base/tar.h), none
                            of them links */
};

/*
 * Begin. Errors: DCPK_EUSAGE when <path> exists and DCPK_FOLDER_REPLACE is not set (names --force),
 * or when a partial folder of another run is in the way without it; DCPK_EIO for permission, no
 * space, a missing file system.
 */
dcpk_status dcpk_folder_begin(const char *path, unsigned flags, struct dcpk_folder **folder,
                              struct dcpk_error *err);

/* A file in the folder, of n_bytes (preallocated: no space shows here). A plain name, or one in a
 * folder, "folder/name", which is made as needed. */
struct dcpk_sink;
dcpk_status dcpk_folder_create(struct dcpk_folder *folder, const char *name, uint64_t n_bytes,
                               struct dcpk_sink **sink, struct dcpk_error *err);
/* The same file again, after it was closed. */
dcpk_status dcpk_folder_reopen(struct dcpk_folder *folder, const char *name, uint64_t n_bytes,
                               struct dcpk_sink **sink, struct dcpk_error *err);
/*
 * Fix a file's place before it is created, so that an archive does not depend on the order in which
 * threads create; nothing to do for a folder. name: borrowed until the folder ends; n_bytes as in
 * dcpk_folder_create.
 */
dcpk_status dcpk_folder_reserve(struct dcpk_folder *folder, const char *name, uint64_t n_bytes,
                                struct dcpk_error *err);
/* Names are from now on in this folder of the archive. Once, of archives only (asserted). */
dcpk_status dcpk_folder_enter(struct dcpk_folder *folder, const char *inner,
                              struct dcpk_error *err);
/* Write n_bytes at offset_bytes; thread-safe. DCPK_EIO names the file and the system's reason. */
dcpk_status dcpk_sink_write(struct dcpk_sink *sink, uint64_t offset_bytes, const void *data,
                            size_t n_bytes, struct dcpk_error *err);
/* Start writing a range back to disk without waiting (sync_file_range); never fails. */
void dcpk_sink_flush(struct dcpk_sink *sink, uint64_t offset_bytes, uint64_t n_bytes);
/* Sync the file's data to disk and close it. Frees sink in every case. */
dcpk_status dcpk_sink_close(struct dcpk_sink *sink, struct dcpk_error *err);
void dcpk_sink_abandon(struct dcpk_sink *sink); /* close without syncing; NULL is a no-op */

/* A small file at once: created, written, synced, closed. */
dcpk_status dcpk_folder_put(struct dcpk_folder *folder, const char *name, const void *data,
                            size_t n_bytes, struct dcpk_error *err);

/*
 * Put a source into the folder as `name`: as a further name of the same file (hard link, both then
 * share its bytes) where it is one and the file systems allow it, else as a copy. *linked: which it
 * was.
 */
struct dcpk_source;
dcpk_status dcpk_folder_link(struct dcpk_folder *folder, const char *name,
                             struct dcpk_source *source, bool *linked, struct dcpk_error *err);
/* A copy of the source, synced. */
dcpk_status dcpk_folder_copy(struct dcpk_folder *folder, const char *name,
                             struct dcpk_source *source, struct dcpk_error *err);

/* The path of the folder until it is published; borrowed. */
const char *dcpk_folder_partial(const struct dcpk_folder *folder);

/* Sync the folder, rename it into place, sync its parent. Frees folder on success only. */
dcpk_status dcpk_folder_publish(struct dcpk_folder *folder, struct dcpk_error *err);
/* Delete what was written and free; NULL is a no-op. */
void dcpk_folder_abandon(struct dcpk_folder *folder);

/*
 * Replace a small file atomically (temporary name, sync, rename, sync of the folder): trackers and
 * reports.
 */
dcpk_status dcpk_file_replace(const char *path, const void *data, size_t n_bytes,
                              struct dcpk_error *err);

#endif
