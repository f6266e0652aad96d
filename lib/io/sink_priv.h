/* SPDX-License-Identifier: Apache-2.0 */
/* sink_priv.h - what stands behind output folders, archives and files. */
#ifndef DCPK_LIB_IO_SINK_PRIV_H
#define DCPK_LIB_IO_SINK_PRIV_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

#include "lib/base/arena.h"
#include "lib/base/map.h"
#include "lib/io/sink.h"

/* A file of the output, as it was made: what is published is compared with it. */
struct dcpk_written_file {
    const char *name;
    dev_t dev;
    ino_t ino;
    uint64_t n_bytes;
    bool is_gone; /* deleted since, or renamed */
    bool is_seen; /* by dcpk_folder_settle */
};

/* The files of a folder, in the order in which they were made. Zeroed = empty. */
struct dcpk_written {
    struct dcpk_arena *names;
    struct dcpk_map by_name; /* -> index */
    struct dcpk_map folders; /* the folders that they are in, but for the output's own */
    struct dcpk_written_file *files;
    size_t n, capacity;
};

/*
 * Once it has begun all that is done to the three is done by their names in parent_fd, and all that
 * is done in the partial folder by names in dir_fd, never by a path: whoever may rename a folder on
 * the way would lead it elsewhere.
 */
struct dcpk_folder {
    char *path; /* without slashes at its end */
    char *partial;
    char *old;
    int parent_fd;  /* of the folder around the three; -1: begun by another process, or compared */
    int dir_fd;     /* of the partial folder, or of the partial archive */
    uid_t owner;    /* of the partial folder: this user, as its file system says */
    int journal_fd; /* -1: an archive, or gone: it is about to be published */
    unsigned flags;
    int n_parents; /* folders around it that had to be made: they go again when it is abandoned */
    pthread_mutex_t mutex; /* of making files: what follows, and `written` */
    struct dcpk_written written;
    int deep_fd;        /* of the folder inside that was used last; -1: none */
    char *deep;         /* its name */
    bool is_resumed;    /* there was a journal: files may be there as well */
    bool is_kept;       /* stays when it is abandoned */
    bool is_joined;     /* another process has begun it */
    bool syncs_at_once; /* its file system, as DCPK_FOLDER_MANY has it */
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

/* ---- names ---- */

/* Owned copy of the first n bytes of a text with a suffix; NULL with err set. */
char *dcpk_name_join(const char *text, size_t n, const char *suffix, struct dcpk_error *err);
/* A descriptor of the folder around `path`, -1 with err set. */
int dcpk_open_parent(const char *path, struct dcpk_error *err);
/* The part of a path behind its last slash. */
const char *dcpk_name_last(const char *path);
/*
 * Check "name" or "folder/name", make the folder, and open what the file is in: *fd, borrowed until
 * the next call, and its name there. Under the lock. Errors: DCPK_EFORMAT for what is no such name,
 * or one that is kept for the journal; DCPK_EIO.
 */
dcpk_status dcpk_folder_enter_inner(struct dcpk_folder *folder, const char *name, int *fd,
                                    const char **last, struct dcpk_error *err);
/* Open what an existing file is in. Returns the descriptor, or -1 with errno. Under the lock. */
int dcpk_folder_find_inner(struct dcpk_folder *folder, const char *name, const char **last);

/* ---- what was written ---- */

bool dcpk_is_same_file(const struct stat *a, const struct stat *b);
/* *is_at: is this open file or folder the one that stands at a name of the folder, itself and not
 * behind a link? Errors: DCPK_EIO. */
dcpk_status dcpk_look_at(int folder_fd, const char *name, int fd, bool *is_at,
                         struct dcpk_error *err);
/* A plain file of the folder's owner, with no name besides: writing into it changes nothing else.
 */
bool dcpk_is_own_file(const struct dcpk_folder *folder, const struct stat *info);
/* The file of that name is this one, n_bytes long when all is written. Under the lock. */
dcpk_status dcpk_written_put(struct dcpk_folder *folder, const char *name, const struct stat *info,
                             uint64_t n_bytes, struct dcpk_error *err);
/* NULL: none of that name was made. Under the lock. */
struct dcpk_written_file *dcpk_written_find(const struct dcpk_folder *folder, const char *name);
/* Nothing is in the folder; releases what is known. */
void dcpk_written_clear(struct dcpk_folder *folder);
/* DCPK_EUSAGE: the output is there, and was not when the folder was begun. */
dcpk_status dcpk_fail_exists(const struct dcpk_folder *folder, struct dcpk_error *err);

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
/* Set parent_fd. */
dcpk_status dcpk_folder_open_parent(struct dcpk_folder *folder, struct dcpk_error *err);

/*
 * Make the partial folder or archive, or open the one that is there where the flags allow it; lock
 * it; without DCPK_FOLDER_RESUME or a journal it is empty then. Sets dir_fd, journal_fd and owner;
 * the caller closes them, also on failure. Errors: DCPK_EUSAGE when another process works in it or
 * has made the output meanwhile, or when it is not this user's alone.
 */
dcpk_status dcpk_partial_begin(struct dcpk_folder *folder, struct dcpk_error *err);
/*
 * Delete a partial folder that nobody works in and that holds no file but a journal: what a run
 * leaves that is killed while it proves its input. Where locks do not tell that nobody works in it,
 * it stays. is_there: is there a partial folder or archive still?
 */
dcpk_status dcpk_partial_sweep(struct dcpk_folder *folder, bool *is_there, struct dcpk_error *err);
/* Delete the partial folder or archive, if it is at its name still. */
dcpk_status dcpk_partial_delete(struct dcpk_folder *folder, struct dcpk_error *err);
/* Remove the mark that a run which was killed may have left. */
void dcpk_partial_clean(struct dcpk_folder *folder);
/* Delete the journal, for good: the folder is in its place, and can no longer be kept. */
dcpk_status dcpk_partial_end(struct dcpk_folder *folder, struct dcpk_error *err);
/* As dcpk_folder_settle. It also syncs the folders inside where that is not done at once. */
dcpk_status dcpk_folder_seal(struct dcpk_folder *folder, struct dcpk_error *err);

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
/* The archive that was compared ends where it should; a folder is left without a journal. Errors:
 * DCPK_EUSAGE; DCPK_EIO. */
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
