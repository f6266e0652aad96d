/* SPDX-License-Identifier: Apache-2.0 */
/* train_log.h - the steps of a run as lines: of JSON into its log, as Megatron's to stdout; and as
 * scalars that TensorBoard shows. */
#ifndef DCPK_TOOLS_TRAIN_LOG_H
#define DCPK_TOOLS_TRAIN_LOG_H

#include "lib/base/bytes.h"
#include "lib/io/file.h"
#include "lib/job/step_log.h"
#include "lib/knobs/config.h"
#include "lib/train/memory_account.h"
#include "lib/train/phases.h"
#include "tools/train_args.h"
#include "tools/train_page.h"

/* ---- TensorBoard ---- */

/*
 * A file of events is a sequence of records: length (8 bytes) | masked CRC-32C of these 8 bytes
 * (4) | data | masked CRC-32C of the data (4), little-endian; data is a protobuf message Event.
 * Sources: tensorboard/compat/proto/{event,summary}.proto, tensorboard/summary/writer/
 * record_writer.py @2.21; tags: megatron/training/training.py @core_v0.19.0 training_log.
 */

/* Zeroed: nothing is written. A value: dcpk_train_events_close. */
struct dcpk_train_events {
    struct dcpk_file *file;
    struct dcpk_bytes scalars, record; /* room */
};

/* ---- the log ---- */

/* Zeroed: nothing is logged, as on all ranks but the first. */
struct dcpk_train_log {
    bool is_printed; /* on stdout: as Megatron prints steps, or as the file has them */
    bool as_json;
    const struct dcpk_train_config *config;
    int n_ranks;
    bool has_saved; /* the run has saved a checkpoint */
    struct dcpk_train_events events;
    struct dcpk_train_page page;
    double before; /* seconds (lib/base/clock.h) when the last step was added, or the log began */
    struct dcpk_file *file; /* lines of JSON are appended to it; NULL: none */
    struct dcpk_bytes line; /* room */
};

/* Checks that `path` is a log, empty, or nothing: only such a file is appended to. Errors:
 * DCPK_EUSAGE, DCPK_EIO. */
dcpk_status dcpk_train_log_check(const char *path, struct dcpk_error *err);
/* The line of the file that names the request. Errors: DCPK_EIO. */
dcpk_status dcpk_train_log_begin(struct dcpk_train_log *log, const struct dcpk_train_args *asked,
                                 int n_ranks, struct dcpk_error *err);
/* Appends a step; it is in the file when the call returns. Errors: DCPK_EIO. */
dcpk_status dcpk_train_log_put(struct dcpk_train_log *log, const struct dcpk_step *step,
                               struct dcpk_error *err);
/* The last line: bytes that the rank that held most held, by tag. Errors: DCPK_EIO. */
dcpk_status dcpk_train_log_end(struct dcpk_train_log *log, const uint64_t held[DCPK_N_TAGS],
                               struct dcpk_error *err);
/* Where the time of this rank went until the iteration was done. Errors: DCPK_EIO. */
dcpk_status dcpk_train_log_times(struct dcpk_train_log *log, int64_t iteration,
                                 const struct dcpk_times *times, struct dcpk_error *err);
/* The same of the run. mean, most: of all ranks. Errors: DCPK_EIO. */
dcpk_status dcpk_train_log_times_of_run(struct dcpk_train_log *log, int64_t n_iterations,
                                        const struct dcpk_times *mean,
                                        const struct dcpk_times *most, struct dcpk_error *err);
/* Names on stdout all that the run has written: its newest checkpoint, log, page, map of groups,
 * events. Errors: DCPK_EIO, DCPK_ENOMEM. */
dcpk_status dcpk_train_log_written(struct dcpk_train_log *log, struct dcpk_error *err);
void dcpk_train_log_close(struct dcpk_train_log *log); /* appended lines stay */

#endif
