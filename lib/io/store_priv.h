/* SPDX-License-Identifier: Apache-2.0 */
/* store_priv.h - common parts of all kinds of stores: the table of functions, the structs. */
#ifndef DCPK_LIB_IO_STORE_PRIV_H
#define DCPK_LIB_IO_STORE_PRIV_H

#include <pthread.h>

#include "lib/base/bytes.h"
#include "lib/base/map.h"
#include "lib/base/path.h"
#include "lib/io/store.h"

#define DCPK_STORE_MAX_OPEN 256

/* Functions of a kind of store; all are called with checked names and ranges. */
struct dcpk_store_ops {
    /*
     * Finds the entry at a name that has no source yet; NULL: every file has one. The lock is held,
     * or not.
     */
    dcpk_status (*look)(const struct dcpk_store *store, const char *name, struct dcpk_path *path,
                        struct dcpk_error *err);
    /* dcpk_source_stamp; NULL: sources have no file of their own. */
    dcpk_status (*stamp)(const struct dcpk_source *source, uint64_t *stamp, struct dcpk_error *err);
    dcpk_status (*read)(struct dcpk_source *source, uint64_t at, uint8_t *out, size_t n,
                        struct dcpk_error *err);
    /* how: POSIX_FADV_...; NULL: advice means nothing. */
    void (*advise)(struct dcpk_source *source, uint64_t at, uint64_t n, int how);
    /* Append the names in a folder ("." the store itself) to `text`, each with its NUL. */
    dcpk_status (*list)(const struct dcpk_store *store, const char *folder, struct dcpk_bytes *text,
                        struct dcpk_error *err);
};

/*
 * A file of a folder, a run of memory (`data`), or a range of the store's one file.
 * fd, n_readers and last_used are of folders and under the store's lock; the rest never changes.
 */
struct dcpk_source {
    struct dcpk_store *store;
    struct dcpk_source *next;
    uint64_t n_bytes;
    const uint8_t *data;   /* NULL except for memory */
    uint8_t *copy;         /* owned: `data` where it was copied, else NULL */
    uint64_t offset_bytes; /* of ranges: its place in the file; of calls: its id */
    int fd;                /* -1: not open */
    unsigned n_readers;    /* reads under way: fd stays open as long as there is one */
    uint64_t last_used;
    uint64_t stamp; /* of a folder's file when it was first opened (ops->stamp); 0: it was not */
    char name[];
};

struct dcpk_store {
    const struct dcpk_store_ops *ops;
    char *path;
    char *note;           /* owned, or NULL */
    uint64_t value_bytes; /* limit of what becomes values of one source; 0: none */
    int fd;               /* of the folder or the one file; -1: memory */
    struct dcpk_store_calls calls;
    pthread_mutex_t lock;
    pthread_cond_t idle;     /* a source lost its last reader: its descriptor may be closed */
    struct dcpk_map by_name; /* -> pointer to the source; keys are the sources' names */
    struct dcpk_source *sources;
    struct dcpk_source *open[DCPK_STORE_MAX_OPEN];
    size_t n_open, max_open; /* half of what the process may open: outputs need some as well */
    uint64_t clock;          /* counts reads, for last_used */
};

/* fd is taken on success. */
dcpk_status dcpk_store_new(const struct dcpk_store_ops *ops, const char *path, int fd,
                           struct dcpk_store **store, struct dcpk_error *err);

/* Exactly n bytes from byte `at` of the source, which lies in fd from its offset_bytes on. */
dcpk_status dcpk_source_pread(const struct dcpk_source *source, int fd, uint64_t at, uint8_t *out,
                              size_t n, struct dcpk_error *err);

#endif
