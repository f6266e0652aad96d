/* SPDX-License-Identifier: Apache-2.0 */
/* disk_log.h - the list of what a program did to its file systems: written by disk_log.c, preloaded
 * into it, read by disk_model.c. */
#ifndef DCPK_TESTS_FAULT_DISK_LOG_H
#define DCPK_TESTS_FAULT_DISK_LOG_H

#include <stdint.h>

#define DISK_LOG_VARIABLE "DCPK_DISK_LOG" /* the path of the log, which exists */

enum disk_op {
    DISK_MAKE,        /* names[0] of folders[0] is the new file `node` */
    DISK_MAKE_FOLDER, /* ... the new folder `node` */
    DISK_LINK,        /* ... the file `node` too */
    DISK_UNLINK,      /* names[0] of folders[0] is gone */
    DISK_RENAME,      /* names[0] of folders[0] is names[1] of folders[1] from now on */
    DISK_EXCHANGE,    /* the two change places */
    DISK_WRITE,       /* n_bytes at offset_bytes of `node`, which follow */
    DISK_SIZE,        /* `node` is offset_bytes long */
    DISK_SYNC,        /* `node`: a file's data, a folder's names */
    DISK_SYNC_ALL,
};

/* One entry; behind it the names without an end, then the data of DISK_WRITE. Nodes and folders are
 * inode numbers. */
struct disk_record {
    uint32_t op;
    uint32_t name_bytes[2];
    uint32_t unused;
    uint64_t folders[2];
    uint64_t node;
    uint64_t offset_bytes, n_bytes;
};

#endif
