/* SPDX-License-Identifier: Apache-2.0 */
/* archive.h - a checkpoint inside a tar or zip archive, as a store. */
#ifndef DCPK_FORMATS_ARCHIVE_ARCHIVE_H
#define DCPK_FORMATS_ARCHIVE_ARCHIVE_H

#include "lib/ckpt/run.h"

/*
 * A dcpk_run_open_file: list the archive once, find the checkpoint in it, open it. Members of a
 * plain tar and stored members of a zip are read where they are; where one cannot be (compressed,
 * sparse) all are unpacked once into an unnamed temporary file in $TMPDIR, or /tmp, and the store
 * gets a note of it. opening->progress: of the compressed bytes, while unpacking.
 * run->folder: "<path>:<folder in it>", or the path. Errors: DCPK_EFORMAT for what is not an
 * archive, malformed, leaves its folder, names a file twice, or has a link or device among the
 * checkpoint's files; DCPK_ERANGE when it unpacks to more than FORMAT.md's limit; DCPK_EUNSUPPORTED
 * when it is encrypted; DCPK_EIO when the temporary file finds no space; DCPK_ECANCELLED; those of
 * dcpk_run_find_among.
 */
dcpk_run_open_file dcpk_archive_open;

#endif
