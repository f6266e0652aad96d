/* SPDX-License-Identifier: Apache-2.0 */
/* sink_priv.h - the insides of output folders, archives and files. */
#ifndef DCPK_LIB_IO_SINK_PRIV_H
#define DCPK_LIB_IO_SINK_PRIV_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

#include "lib/base/arena.h"
#include "lib/base/map.h"
#include "lib/base/text.h"
#include "lib/io/sink.h"

/* A file of the output at its creation; the published file is compared with it. */
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
    struct dcpk_map folders; /* the folders that they are in, except for the output's own */
    struct dcpk_written_file *files;
    size_t n, capacity;
};

#define DCPK_MARK_NAME ".dcpkit-mark" /* of a shared folder, for processes that join */

/* How a partial folder or archive itself is made, opened and deleted. */
struct dcpk_partial_ops {
    mode_t type;      /* S_IFDIR or S_IFREG */
    const char *noun; /* in messages, before its name */
    int open_flags;   /* of openat, besides those that both have */
    int unlink_flags; /* of unlinkat */
    bool has_journal; /* a run may leave one, and resume from it */
    /* Make an empty one. Returns 0, or -1 with errno. */
    int (*make)(int parent_fd, const char *name);
    /* True if the open file is this user's alone. info: of dir_fd, of that type. */
    bool (*is_own)(const struct dcpk_folder *folder, const struct stat *info);
    /* Delete what is in it, so that it can be unlinked; NULL: it can be as it is. */
    dcpk_status (*empty)(struct dcpk_folder *folder, struct dcpk_error *err);
};
extern const struct dcpk_partial_ops dcpk_partial_folder, dcpk_partial_archive;

/* Functions of a kind of output, a folder or an archive, for its files. NULL: nothing to do, unless
 * a line below adds to that. */
struct dcpk_folder_ops {
    const struct dcpk_partial_ops *partial;
    unsigned ignored_flags;    /* of enum dcpk_folder_flags */
    const char *hidden_suffix; /* of a file's name until it is shown */
    /* Open a file: set sink->fd and what else a sink of this kind has. how: O_CREAT, with O_EXCL or
     * not; 0 for a file that is there. Under the lock. */
    dcpk_status (*open)(struct dcpk_folder *folder, const char *name, int how,
                        struct dcpk_sink *sink, struct dcpk_error *err);
    /* Close the sink's descriptor, synced unless `syncs` is false or that comes later; NULL: it is
     * the folder's. */
    dcpk_status (*close)(struct dcpk_sink *sink, bool syncs, struct dcpk_error *err);
    /* Give a hidden file its name. */
    dcpk_status (*show)(struct dcpk_folder *folder, const char *name, struct dcpk_error *err);
    /* dcpk_folder_take; NULL: every file is taken. Under the lock. */
    dcpk_status (*take)(struct dcpk_folder *folder, const char *name, uint64_t n_bytes, bool *taken,
                        struct dcpk_error *err);
    /* Hard-link a source that is a file of its own into the output; NULL: the output has no links.
     * Under the lock. */
    dcpk_status (*link)(struct dcpk_folder *folder, const char *name,
                        const struct dcpk_source *source, bool *linked, struct dcpk_error *err);
    /* dcpk_folder_settle. */
    dcpk_status (*settle)(struct dcpk_folder *folder, struct dcpk_error *err);
    /* Bring all to disk, with nothing else in it. */
    dcpk_status (*seal)(struct dcpk_folder *folder, struct dcpk_error *err);
};
extern const struct dcpk_folder_ops dcpk_folder_kind, dcpk_archive_kind;

/*
 * From then on all work on the three uses their names in parent_fd, and all work in the partial
 * folder uses names in dir_fd, never a path: a user who may rename a folder on the way could
 * redirect a path.
 */
struct dcpk_folder {
    const struct dcpk_folder_ops *ops;
    char *path; /* without slashes at its end */
    char *partial;
    char *old;
    int parent_fd;  /* of the folder around the three; -1: begun by another process */
    int dir_fd;     /* of the partial folder, or of the partial archive */
    uid_t owner;    /* of the partial folder: this user, by its file system */
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
    /* For an archive: */
    char *inner;              /* the folder in it that names are in, NULL: its root */
    uint64_t end_bytes;       /* where the next member goes */
    struct dcpk_map reserved; /* name -> where its data goes */
};

struct dcpk_sink {
    const struct dcpk_folder_ops *ops;
    int fd;
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
/* Check "name" or "folder/name". Errors: DCPK_EFORMAT for what is not such a name, or one that is
 * kept for the journal. */
dcpk_status dcpk_name_check(const char *name, struct dcpk_error *err);
/*
 * Check a name, make the folder that it may begin with, and open what the file is in: *fd, borrowed
 * until the next call, and its name there. Under the lock. Errors: those of dcpk_name_check;
 * DCPK_EIO.
 */
dcpk_status dcpk_folder_enter_inner(struct dcpk_folder *folder, const char *name, int *fd,
                                    const char **last, struct dcpk_error *err);
/* Open what an existing file is in. Returns the descriptor, or -1 with errno. Under the lock. */
int dcpk_folder_find_inner(struct dcpk_folder *folder, const char *name, const char **last);

/* ---- files of the output ---- */

bool dcpk_is_same_file(const struct stat *a, const struct stat *b);
/* *is_at: this open file or folder is the one at a name of the folder, itself and not through a
 * link. Errors: DCPK_EIO. */
dcpk_status dcpk_look_at(int folder_fd, const char *name, int fd, bool *is_at,
                         struct dcpk_error *err);
/*
 * A plain file of the folder's owner, with no name besides: writing into it changes nothing else.
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

/* Sets *found if there is something at `path`, itself and not through a link. Errors: DCPK_EIO. */
dcpk_status dcpk_path_find(const char *path, bool *found, struct dcpk_error *err);
/* Sync a folder. EINVAL (the file system cannot sync folders) is not an error. Returns 0, or -1
 * with errno. */
int dcpk_sync_folder(int fd);
/* True if the folder's file system can sync all at once, and report errors of that. */
bool dcpk_can_sync_at_once(int fd);
/* A folder of which nothing is open yet. */
struct dcpk_folder *dcpk_folder_new(const char *path, const struct dcpk_folder_ops *ops,
                                    unsigned flags, struct dcpk_error *err);
void dcpk_folder_free(struct dcpk_folder *folder); /* closes what is open */

/*
 * Make the partial folder or archive, or open the one that is there where the flags allow it; lock
 * it; without DCPK_FOLDER_RESUME or a journal it is empty then. Sets dir_fd, journal_fd and owner;
 * the caller closes them, also on failure. Errors: DCPK_EUSAGE when another process works in it or
 * has made the output meanwhile, or when it is not this user's alone.
 */
dcpk_status dcpk_partial_begin(struct dcpk_folder *folder, struct dcpk_error *err);
/*
 * Delete a partial folder that no process works in and that holds no file but a journal: what a run
 * leaves that is killed while it proves its input. It stays where there are no locks. is_there:
 * there is a partial folder or archive still.
 */
dcpk_status dcpk_partial_sweep(struct dcpk_folder *folder, bool *is_there, struct dcpk_error *err);
/* Delete the partial folder or archive, if it is at its name still. */
dcpk_status dcpk_partial_delete(struct dcpk_folder *folder, struct dcpk_error *err);
/* Delete the journal, for good: the folder is in its place, and can no longer be kept. */
dcpk_status dcpk_partial_end(struct dcpk_folder *folder, struct dcpk_error *err);
/* Settles the files in the table of folders. */
dcpk_status dcpk_folder_settle_files(struct dcpk_folder *folder, struct dcpk_error *err);
dcpk_status dcpk_folder_seal_files(struct dcpk_folder *folder, struct dcpk_error *err);
dcpk_status dcpk_folder_link_file(struct dcpk_folder *folder, const char *name,
                                  const struct dcpk_source *source, bool *linked,
                                  struct dcpk_error *err);
dcpk_status dcpk_sink_close_file(struct dcpk_sink *sink, bool syncs, struct dcpk_error *err);

/* Write all n bytes; `path` is for the message. */
dcpk_status dcpk_sink_write_all(int fd, const char *path, uint64_t at, const uint8_t *data,
                                size_t n, struct dcpk_error *err);
/*
 * Give the file its blocks from `at` on, so that a full disk shows before hours of work.
 * File systems without fallocate get the size alone. Returns 0, or -1 with errno.
 */
int dcpk_sink_preallocate(int fd, uint64_t at, uint64_t n_bytes);

#endif
