/* SPDX-License-Identifier: Apache-2.0 */
/* disk_model.h - what a disk may hold after the power failed at some point of a program's run. */
/*
 * Each file has its bytes as programs see them and those that are on disk for certain; each folder
 * its names likewise, and the changes in between. A sync makes the first the second. A power
 * failure leaves, of what was not synced, anything that a file system may make of it:
 *
 *   bytes   each block of a file is the old or the new one; a file is as long as it was, or is, or
 *           in between; blocks that never came are zeros
 *   names   each change of a name took place or did not, but none without those of the same names
 *           before it; a rename is one change
 *
 * Neither waits for the other: a new name may lead to a file without its bytes, and bytes may be
 * there without a name.
 */
#ifndef DCPK_TESTS_FAULT_DISK_MODEL_H
#define DCPK_TESTS_FAULT_DISK_MODEL_H

#include <stddef.h>
#include <stdint.h>

struct disk;

/* All that stands in the folder `root`, taken for synced. */
struct disk *disk_scan(const char *root);
/* What stands elsewhere, and files of `root` may become links to. */
void disk_know(struct disk *disk, const char *elsewhere);
void disk_free(struct disk *disk);
/* How many entries a log (disk_log.h) has. */
size_t disk_log_count(const char *log);
/* Do what the first n entries say; those about other files and folders say nothing. */
void disk_replay(struct disk *disk, const char *log, size_t n);
enum disk_fate {
    DISK_LOSES, /* anything that was not synced */
    /* Bytes, but no name, and no file gets shorter: they wait longest for the disk. */
    DISK_IS_HOLLOW,
    DISK_KEEPS, /* nothing */
};
/* Make the empty folder `root` what is left after a power failure. The same seed makes the same. */
void disk_crash(const struct disk *disk, enum disk_fate fate, uint64_t seed, const char *root);

#endif
