/* SPDX-License-Identifier: Apache-2.0 */
/* remote_folder.h - a folder on a server and the files that its listing shows. */
#ifndef DCPK_FORMATS_REMOTE_REMOTE_FOLDER_H
#define DCPK_FORMATS_REMOTE_REMOTE_FOLDER_H

#include <pthread.h>

#include "formats/remote/http.h"
#include "lib/base/arena.h"

struct remote_file {
    char *name;          /* relative to the folder */
    uint64_t n_bytes;    /* DCPK_REMOTE_UNKNOWN: the listing does not show it */
    const char *version; /* its ETag, or time of change; NULL: not known */
};
#define DCPK_REMOTE_UNKNOWN UINT64_MAX

/*
 * Bytes that were read, at a multiple of DCPK_REMOTE_BLOCK_BYTES of a file. Headers of chunks and
 * small tensors are next to each other, and a request takes as long as sending 256 KiB or more.
 */
#define DCPK_REMOTE_BLOCK_BYTES ((size_t)256 << 10)
#define DCPK_REMOTE_N_BLOCKS    32
struct remote_block {
    uint64_t id, at;    /* file, place in it */
    uint64_t last_used; /* by the clock of its folder; 0: empty */
    uint8_t *data;      /* owned */
};

struct remote {
    struct http *http;
    struct dcpk_arena *arena;
    const char *shown;  /* the URL as it was given, without a slash at its end */
    const char *base;   /* the URL of the folder, for requests, with a slash at its end */
    const char *bucket; /* of S3: the URL that listings are asked of; NULL: plain HTTP */
    const char *prefix; /* of S3: what all keys begin with: "", or text that ends in a slash */
    struct remote_file *files; /* owned; sorted by name, none twice */
    size_t n, capacity;
    int n_pages;          /* listings that were read */
    pthread_mutex_t lock; /* of the rest */
    struct remote_block blocks[DCPK_REMOTE_N_BLOCKS];
    uint64_t clock;
};

/* Append the URL, with a NUL, of `name` in `folder` ("" or a name with a slash at its end). Errors:
 * DCPK_ENOMEM. */
dcpk_status dcpk_remote_url(const struct remote *r, const char *folder, const char *name,
                            struct dcpk_bytes *url, struct dcpk_error *err);

/*
 * Add the files of `folder` ("" or a name with a slash at its end) to those that are known; `deep`:
 * with those of its folders. A folder that the server does not have has none. Errors:
 * DCPK_EFORMAT for a listing that makes no sense, DCPK_ERANGE for too many files; those of
 * http_fetch.
 */
dcpk_status dcpk_remote_list(struct remote *r, const char *folder, bool deep,
                             struct dcpk_error *err);

/* A part of a text. */
struct part {
    const char *at;
    size_t n;
};
/* The two parsers, of what a server sends. Add the files of a page of S3's; *token: where the next
 * one begins, in the arena; NULL: it is the last. Errors: DCPK_EFORMAT, DCPK_ERANGE. */
dcpk_status dcpk_remote_take_keys(struct remote *r, struct part page, char **token,
                                  struct dcpk_error *err);
/* Add the files that a page of `folder` has links to, and list its folders, n_levels of them. The
 * page ends in a NUL and is changed. Errors: DCPK_ERANGE; those of dcpk_remote_list. */
dcpk_status dcpk_remote_take_links(struct remote *r, const char *folder, char *page, int n_levels,
                                   struct dcpk_error *err);

#endif
