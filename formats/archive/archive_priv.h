/* SPDX-License-Identifier: Apache-2.0 */
/* archive_priv.h - the list of an archive's members, shared by scanning and opening. */
#ifndef DCPK_FORMATS_ARCHIVE_ARCHIVE_PRIV_H
#define DCPK_FORMATS_ARCHIVE_ARCHIVE_PRIV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/arena.h"
#include "lib/base/map.h"
#include "lib/base/progress.h"

#define DCPK_ARCHIVE_NAME_BYTES 4096 /* the longest path of a member, with its NUL */

/* One member that is not a folder. */
struct dcpk_member {
    char *name;         /* relative, without "." and empty parts; in the list's arena */
    const char *oddity; /* its kind, unless it is a plain file: "a link"; NULL: a plain file */
    uint64_t offset_bytes, n_bytes; /* its data in the list's fd */
};

/* All members, and the file that their data is in. Zeroed except path, progress and fd = -1. */
struct dcpk_member_list {
    const char *path;
    const struct dcpk_progress *progress; /* NULL: silent */
    struct dcpk_arena *arena;
    struct dcpk_member *members;
    size_t n, capacity;
    struct dcpk_map by_name;
    uint64_t kept_bytes; /* of memory for members */
    uint64_t archive_bytes;
    uint64_t unpacked_bytes; /* of the temporary file */
    bool is_unpacked;        /* fd is the temporary file, not the archive */
    const char *temporary;   /* the folder it is in */
    int fd;                  /* owned; -1: none */
};

/* Fill the list: first by looking where members lie; where that does not do, by unpacking. */
dcpk_status dcpk_archive_scan(struct dcpk_member_list *list, struct dcpk_error *err);
void dcpk_archive_release(struct dcpk_member_list *list); /* closes fd unless it is -1 */

/* The kind of an entry, which decides the place of its data. */
enum dcpk_member_kind { DCPK_ARCHIVE_TAR, DCPK_ARCHIVE_ZIP };

/*
 * For a file packed with gzip: inflates it and compares CRC-32 and length of each of its members.
 * Errors: DCPK_EFORMAT with the place of the damage; DCPK_EIO, DCPK_ENOMEM, DCPK_ECANCELLED.
 */
dcpk_status dcpk_archive_check_gzip(int fd, const struct dcpk_progress *progress,
                                    struct dcpk_error *err);

#endif
