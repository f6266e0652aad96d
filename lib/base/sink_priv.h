/* SPDX-License-Identifier: Apache-2.0 */
/* sink_priv.h - what stands behind output folders, archives and files. */
#ifndef DCPK_LIB_BASE_SINK_PRIV_H
#define DCPK_LIB_BASE_SINK_PRIV_H

#include <pthread.h>
#include <stdatomic.h>

#include "lib/base/map.h"
#include "lib/base/sink.h"

struct dcpk_folder {
    char *path; /* without slashes at its end */
    char *partial;
    char *old;
    int dir_fd;     /* of the partial folder, or of the partial archive */
    int journal_fd; /* -1: an archive, or gone: it is about to be published */
    unsigned flags;
    int n_parents; /* folders around it that had to be made: they go again when it is abandoned */
    pthread_mutex_t mutex; /* of making files: has_folders, end_bytes */
    bool has_folders;      /* inside: to be synced as well */
    bool is_resumed;       /* there was a journal: files may be there as well */
    bool is_kept;          /* stays when it is abandoned */
    bool is_joined;        /* another process has begun it */
    bool syncs_at_once;    /* its file system, as DCPK_FOLDER_MANY has it */
    bool published;
    /* Of an archive: */
    char *inner;              /* the folder in it that names are in, NULL: its root */
    uint64_t end_bytes;       /* where the next member goes */
    struct dcpk_map reserved; /* name -> where its data goes */
};

struct dcpk_sink {
    int fd;
    bool is_member;    /* of an archive: fd is the folder's */
    bool is_compared;  /* as DCPK_FOLDER_COMPARE has it */
    bool syncs_later;  /* with its folder */
    bool leaves_cache; /* as DCPK_FOLDER_LARGE has it */
    _Atomic uint64_t n_flushed_bytes;
    uint64_t base_bytes; /* where the file begins in fd */
    uint64_t n_bytes;
    char path[]; /* for messages */
};

/* Owned copy of the first n bytes of a text with a suffix; NULL with err set. */
char *dcpk_name_join(const char *text, size_t n, const char *suffix, struct dcpk_error *err);

/* Check "name" or "folder/name" and make the folder. */
dcpk_status dcpk_folder_make_inner(struct dcpk_folder *folder, const char *name,
                                   struct dcpk_error *err);

#define DCPK_WALK_FDS 16 /* descriptors that a walk through a folder may use */

/* Does something stand at `path`, itself and not what a link leads to? Errors: DCPK_EIO. */
dcpk_status dcpk_path_find(const char *path, bool *found, struct dcpk_error *err);
/* Sync a folder; file systems that cannot (EINVAL) are none of our business. Returns 0, or -1 with
 * errno. */
int dcpk_sync_folder(int fd);
/* Can the folder's file system sync all at once, and tell what went wrong? */
bool dcpk_can_sync_at_once(int fd);
/* Sync the folder around `path`, so that a rename in it lasts. */
dcpk_status dcpk_sync_parent(const char *path, struct dcpk_error *err);
struct dcpk_folder *dcpk_folder_new(const char *path, unsigned flags, struct dcpk_error *err);
void dcpk_folder_free(struct dcpk_folder *folder); /* closes what is open */

/* Delete a file, a link (not what it points at) or a folder with all in it; nothing there is fine.
 */
dcpk_status dcpk_remove_tree(const char *path, struct dcpk_error *err);

/*
 * Make the partial folder or archive, or open the one that is there where the flags allow it; lock
 * it; without DCPK_FOLDER_RESUME or a journal it is empty then. Sets dir_fd and journal_fd, which
 * the caller closes, also on failure. Errors: DCPK_EUSAGE when another process works in it.
 */
dcpk_status dcpk_partial_begin(struct dcpk_folder *folder, struct dcpk_error *err);
/*
 * Delete a partial folder that nobody works in and that holds no file but a journal: what a run
 * leaves that is killed while it proves its input. Where locks do not tell that nobody works in it,
 * it stays. is_there: is there a partial folder or archive still?
 */
dcpk_status dcpk_partial_sweep(const struct dcpk_folder *folder, bool *is_there,
                               struct dcpk_error *err);
/* Remove the mark that a run which was killed may have left. */
void dcpk_partial_clean(struct dcpk_folder *folder);
/* Remove the journal: the folder is whole, and can no longer be kept. Returns 0, or -1 with errno.
 */
int dcpk_partial_end(struct dcpk_folder *folder);

/* Write all n bytes; `path` is for the message. */
dcpk_status dcpk_sink_write_all(int fd, const char *path, uint64_t at, const uint8_t *data,
                                size_t n, struct dcpk_error *err);

/* Compare all n bytes with those of a file that is there. Errors: DCPK_EUSAGE naming the first that
 * differs; DCPK_EIO. */
dcpk_status dcpk_sink_compare(int fd, const char *path, uint64_t at, const uint8_t *data, size_t n,
                              struct dcpk_error *err);
/* Open a file that is there, to be compared: set sink->fd. Errors: DCPK_EUSAGE when it is missing
 * or has another length than sink->n_bytes; DCPK_EIO. */
dcpk_status dcpk_sink_open_there(const struct dcpk_folder *folder, const char *name,
                                 struct dcpk_sink *sink, struct dcpk_error *err);
/* The archive that was compared ends where it should; a folder always does. Errors: DCPK_EUSAGE. */
dcpk_status dcpk_compare_end(const struct dcpk_folder *folder, struct dcpk_error *err);

/*
 * Give the file its blocks from `at` on, so that a full disk shows before hours of work.
 * File systems without fallocate get the size alone. Returns 0, or -1 with errno.
 */
int dcpk_sink_preallocate(int fd, uint64_t at, uint64_t n_bytes);

/* Of archives: where the data of a member goes, its header written. */
dcpk_status dcpk_tar_place(struct dcpk_folder *folder, const char *name, uint64_t n_bytes,
                           uint64_t *base_bytes, struct dcpk_error *err);

uint64_t dcpk_tar_end_bytes(const struct dcpk_folder *folder); /* of the whole archive */
/* Two empty blocks at least, and whole records. Nothing to do for a folder. Returns 0, or -1 with
 * errno. */
int dcpk_tar_end(const struct dcpk_folder *folder);

#endif
