/* SPDX-License-Identifier: Apache-2.0 */
/* remote.h - a checkpoint on a server, s3:// or http(s)://, as a store that is read by ranges. */
#ifndef DCPK_FORMATS_REMOTE_REMOTE_H
#define DCPK_FORMATS_REMOTE_REMOTE_H

#include "lib/ckpt/run.h"

/*
 * A dcpk_run_open_file: list what is below the URL, find the checkpoint among it, open it. Of a run
 * with a tracker the iteration that it names is listed alone. No byte of a file is read but the
 * tracker's; of http the length of each file of the checkpoint is asked for. run->folder: the URL
 * of the checkpoint; run->is_archive: it has no path. FORMAT.md lists requests, limits, variables.
 * Errors: DCPK_EUSAGE for a URL that names no bucket or server; DCPK_EUNSUPPORTED without libcurl;
 * DCPK_EFORMAT for a listing that makes no sense; DCPK_EIO; those of dcpk_run_find_among.
 */
dcpk_run_open_file dcpk_remote_open;

#endif
