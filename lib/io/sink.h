/* SPDX-License-Identifier: Apache-2.0 */
/* sink.h - output files, and folders that appear whole or not at all. */
#ifndef DCPK_LIB_IO_SINK_H
#define DCPK_LIB_IO_SINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/bytes.h"
#include "lib/base/error.h"

/*
 * Make the folders around `path` that are not there, each synced into its own; *n_made counts them,
 * also when a later one fails. The text is changed and put back. Errors: DCPK_EIO.
 */
dcpk_status dcpk_parents_make(char *path, int *n_made, struct dcpk_error *err);
/* Remove n_made folders around `path`, the innermost first; one that is not empty stays, with those
 * around it. The text is cut. */
void dcpk_parents_remove(char *path, int n_made);

#define DCPK_PARTIAL_SUFFIX ".dcpkit-partial"
/*
 * An output folder under construction: everything is written to "<path>.dcpkit-partial" and renamed
 * to <path> by dcpk_folder_publish. Parents of <path> are made as needed. As long as it exists no
 * other process can begin it: the partial folder and the journal in it are locked (flock; a lock
 * goes with its process; file systems without locks leave it to the user).
 */
struct dcpk_folder;

enum dcpk_folder_flags {
    /* an existing <path> is moved aside, replaced, then deleted */
    DCPK_FOLDER_REPLACE = 1,
    /* <path> is a tar archive, files are its members (lib/io/tar.h), none of them links; no
     * journal; SHARED and MANY mean nothing */
    DCPK_FOLDER_TAR = 2,
    /* Continue a partial folder that has something in its journal; any other one, and a partial
     * archive, is emptied. The caller takes the files that it knows (dcpk_folder_take), and has the
     * rest deleted (dcpk_folder_settle) before it makes a file. */
    DCPK_FOLDER_RESUME = 4,
    /* other processes join it and make files in it too: one that is there already is opened */
    DCPK_FOLDER_SHARED = 8,
    /* For many small files: where the system can report that it worked they are synced all at once
     * (dcpk_folder_sync), not each by itself. */
    DCPK_FOLDER_MANY = 16,
    /* Too large for the page cache: what dcpk_sink_flush has brought to disk leaves it, so that
     * memory is found without reclaim. */
    DCPK_FOLDER_LARGE = 32,
};

/*
 * Begin. Errors: DCPK_EUSAGE when <path> exists and DCPK_FOLDER_REPLACE is not set (names --force),
 * when a partial folder is in the way without that and DCPK_FOLDER_RESUME (one that holds nothing
 * but a journal, and that no process has locked, is deleted), when another process
 * works in it or makes the output meanwhile, or when it, its journal or archive is a link or
 * another user's (with DCPK_FOLDER_REPLACE that gives way); DCPK_EIO for permission, no space, a
 * missing file system.
 */
dcpk_status dcpk_folder_begin(const char *path, unsigned flags, struct dcpk_folder **folder,
                              struct dcpk_error *err);

/*
 * Writing an output at `path` neither moves nor deletes `input`, a folder or a file, and `path`
 * does not lie in it, whatever paths lead there (bind mounts; an input called as what an earlier
 * run left). Errors: DCPK_EUSAGE naming both; DCPK_EIO when a path cannot be resolved.
 */
dcpk_status dcpk_folder_check_apart(const char *path, const char *input, struct dcpk_error *err);

/*
 * Mark a shared folder, so that those who join recognise it: a folder of their own machine may
 * have the same path. mark: what to give them. dcpk_folder_unmark when all have joined.
 */
dcpk_status dcpk_folder_mark(struct dcpk_folder *folder, uint64_t *mark, struct dcpk_error *err);
dcpk_status dcpk_folder_unmark(struct dcpk_folder *folder, struct dcpk_error *err);
/*
 * Join a folder that another process, perhaps of another machine, has begun as shared and publishes
 * or abandons: here files are made, no more, and abandoning closes it. Network file systems may
 * show it late: it is waited for, wait_seconds at the most. Errors: DCPK_EIO when it is not to be
 * seen, or is not the one of that mark. flags: as those who began it, of SHARED and MANY;
 * LARGE as suits this machine.
 */
dcpk_status dcpk_folder_join(const char *path, unsigned flags, uint64_t mark, double wait_seconds,
                             struct dcpk_folder **folder, struct dcpk_error *err);

/*
 * A file in the folder, of n_bytes (preallocated: no space shows here). A plain name, or one in a
 * folder, "folder/name", which is made as needed; not the journal's. No link is followed, neither
 * of a file nor of a folder. It is made again, but in a shared folder, where another process may
 * have made it. Thread-safe, as are the two after it. Errors: DCPK_EFORMAT for such a name;
 * DCPK_EIO, also when what is there is not a plain file of this user under this name alone.
 */
struct dcpk_sink;
dcpk_status dcpk_folder_create(struct dcpk_folder *folder, const char *name, uint64_t n_bytes,
                               struct dcpk_sink **sink, struct dcpk_error *err);
/* The same file again, after it was closed, or one that was taken. Errors: DCPK_EIO, also when a
 * different file is there. */
dcpk_status dcpk_folder_reopen(struct dcpk_folder *folder, const char *name, uint64_t n_bytes,
                               struct dcpk_sink **sink, struct dcpk_error *err);
/*
 * A file, with a plain name, that is to be there only when others are, but can be written before
 * them: it has a name that no reader knows until dcpk_folder_show, after it was closed, gives it
 * its own. In an archive it has its own from the start: no reader takes one that has no end.
 */
dcpk_status dcpk_folder_create_hidden(struct dcpk_folder *folder, const char *name,
                                      uint64_t n_bytes, struct dcpk_sink **sink,
                                      struct dcpk_error *err);
dcpk_status dcpk_folder_show(struct dcpk_folder *folder, const char *name, struct dcpk_error *err);
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
/* Write n_bytes at offset_bytes; thread-safe. DCPK_EIO names the file and the system's reason, or
 * that another program has cut the file short. */
dcpk_status dcpk_sink_write(struct dcpk_sink *sink, uint64_t offset_bytes, const void *data,
                            size_t n_bytes, struct dcpk_error *err);
/* Read what was written there; thread-safe. Errors: DCPK_EIO. */
dcpk_status dcpk_sink_read(struct dcpk_sink *sink, uint64_t offset_bytes, void *data,
                           size_t n_bytes, struct dcpk_error *err);
/* Sync the bytes written so far; the file stays open. Thread-safe. Does nothing with
 * DCPK_FOLDER_MANY, as dcpk_sink_close. */
dcpk_status dcpk_sink_sync(struct dcpk_sink *sink, struct dcpk_error *err);
/*
 * Start writing a range back to disk without waiting (sync_file_range); never fails. Thread-safe.
 */
void dcpk_sink_flush(struct dcpk_sink *sink, uint64_t offset_bytes, uint64_t n_bytes);
/* Sync the file's data to disk and close it. Frees sink in every case. (Of DCPK_FOLDER_MANY: close
 * it.) */
dcpk_status dcpk_sink_close(struct dcpk_sink *sink, struct dcpk_error *err);
void dcpk_sink_abandon(struct dcpk_sink *sink); /* close without syncing; NULL is a no-op */

/* The files that were synced or closed are on disk with their names; the names of those in folders
 * inside only with DCPK_FOLDER_MANY, else when it is published. Thread-safe. */
dcpk_status dcpk_folder_sync(struct dcpk_folder *folder, struct dcpk_error *err);

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

#define DCPK_JOURNAL_NAME ".dcpkit-journal"
/*
 * The journal: a file in the partial folder for its writer's own use, which publishing removes.
 * Folders only. dcpk_folder_is_resumed: there is an earlier run's. dcpk_folder_write_journal
 * returns when its bytes are on disk; files in folders inside whose data was synced before may
 * still be missing after a crash of the system, which dcpk_folder_take shows.
 */
bool dcpk_folder_is_resumed(const struct dcpk_folder *folder);
/* Room for a journal of n_bytes, so that it can be written when the disk is full; where the file
 * system can. */
void dcpk_folder_reserve_journal(struct dcpk_folder *folder, uint64_t n_bytes);
/* Its first limit_bytes, or fewer. */
dcpk_status dcpk_folder_read_journal(struct dcpk_folder *folder, uint64_t limit_bytes,
                                     struct dcpk_bytes *journal, struct dcpk_error *err);
dcpk_status dcpk_folder_write_journal(struct dcpk_folder *folder, uint64_t offset_bytes,
                                      const void *data, size_t n_bytes, struct dcpk_error *err);
/*
 * A file that is there, by an earlier run or by another process of a shared folder, belongs to the
 * output from now on, as those that are made. *taken: it is a plain file of this user's, under this
 * name alone, n_bytes long. Thread-safe. Errors: DCPK_ENOMEM; DCPK_EFORMAT as dcpk_folder_create.
 */
dcpk_status dcpk_folder_take(struct dcpk_folder *folder, const char *name, uint64_t n_bytes,
                             bool *taken, struct dcpk_error *err);
/*
 * Delete what is in the folder besides the journal and the files that were made or taken, and see
 * that these are what they were then, by device, inode and length. Publishing does that as well.
 * Nothing to do for an archive. Errors: DCPK_EIO naming the file that
 * another program has deleted, replaced or changed.
 */
dcpk_status dcpk_folder_settle(struct dcpk_folder *folder, struct dcpk_error *err);
/* Delete the journal in the output at `path`: a run that was killed after its last rename left
 * it. */
dcpk_status dcpk_folder_drop_journal(const char *path, struct dcpk_error *err);
/* Begin again: delete all that is in the folder, and empty its journal. */
dcpk_status dcpk_folder_clear(struct dcpk_folder *folder, struct dcpk_error *err);
/* Let the partial folder stay when it is abandoned, as one that was resumed does in any case.
 * Returns false when that is of no use: it is published, or not at its place. */
bool dcpk_folder_keep(struct dcpk_folder *folder);

/*
 * Settle and sync the folder, rename it into place, sync its parent, then delete the journal: until
 * the folder is in its place it can be kept and resumed. A replaced output is never missing: the
 * two folders change places at once where the file system can (RENAME_EXCHANGE). Frees folder on
 * success only. Errors: DCPK_EUSAGE when another process has made the output meanwhile; those of
 * dcpk_folder_settle; DCPK_EIO.
 */
dcpk_status dcpk_folder_publish(struct dcpk_folder *folder, struct dcpk_error *err);
/* Delete what was written, unless it is kept, and free; NULL is a no-op. */
void dcpk_folder_abandon(struct dcpk_folder *folder);

#endif
