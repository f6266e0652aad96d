/* SPDX-License-Identifier: Apache-2.0 */
/* formats.h - the table of all formats that were built. A new format is a folder here and one row
 * in formats.c. */
#ifndef DCPK_FORMATS_FORMATS_H
#define DCPK_FORMATS_FORMATS_H

#include "lib/ckpt/format.h"
#include "lib/ckpt/run.h"

/* NULL-terminated. */
extern const struct dcpk_format *const dcpk_formats[];

/* Optional parts of formats that this build lacks, for people; NULL-terminated. */
extern const char *const *const dcpk_formats_absent;

/* Opens a checkpoint inside an archive (formats/archive); NULL when this build lacks libarchive. */
extern dcpk_run_open_file *const dcpk_archive_opener;

/* The format of that name, or NULL. */
const struct dcpk_format *dcpk_format_find(const char *name);

#endif
