/* SPDX-License-Identifier: Apache-2.0 */
/* file.h - one file, written from its beginning to its end, that appears whole or not at all. */
#ifndef DCPK_LIB_BASE_FILE_H
#define DCPK_LIB_BASE_FILE_H

#include <stddef.h>

#include "lib/base/error.h"

struct dcpk_file;

/* Begin a file under a temporary name beside `path`; what stands at `path` stays until it is
 * published. */
dcpk_status dcpk_file_begin(const char *path, struct dcpk_file **file, struct dcpk_error *err);
/* Append n_bytes. */
dcpk_status dcpk_file_put(struct dcpk_file *file, const void *data, size_t n_bytes,
                          struct dcpk_error *err);
/* Sync it, give it its name and sync the folder. Frees the file, also on failure. */
dcpk_status dcpk_file_publish(struct dcpk_file *file, struct dcpk_error *err);
/* Delete what was written, and free; NULL is a no-op. */
void dcpk_file_abandon(struct dcpk_file *file);

/* A small file at once: trackers and reports. */
dcpk_status dcpk_file_replace(const char *path, const void *data, size_t n_bytes,
                              struct dcpk_error *err);

#endif
