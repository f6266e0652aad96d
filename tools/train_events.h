/* SPDX-License-Identifier: Apache-2.0 */
/* train_events.h - the steps of a run as scalars that TensorBoard shows. */
/*
 * A file of events is a sequence of records: length (8 bytes) | masked CRC-32C of these 8 bytes
 * (4) | data | masked CRC-32C of the data (4), little-endian; data is a protobuf message Event.
 * Sources: tensorboard/compat/proto/{event,summary}.proto, tensorboard/summary/writer/
 * record_writer.py @2.21; tags: megatron/training/training.py @core_v0.19.0 training_log.
 */
#ifndef DCPK_TOOLS_TRAIN_EVENTS_H
#define DCPK_TOOLS_TRAIN_EVENTS_H

#include "lib/base/bytes.h"
#include "lib/io/file.h"
#include "lib/job/step_log.h"
#include "lib/train/config.h"

/* Zeroed: nothing is written. A value: dcpk_train_events_close. */
struct dcpk_train_events {
    struct dcpk_file *file;
    struct dcpk_bytes scalars, record; /* room */
};

/* Makes the folder, and in it a new file of events. Errors: DCPK_EIO, DCPK_ENOMEM. */
dcpk_status dcpk_train_events_begin(struct dcpk_train_events *events, const char *folder,
                                    struct dcpk_error *err);
/*
 * Appends the scalars of a step: Megatron's tags of training_log, by iteration and by samples.
 * seconds: the step took; tflops: of each rank in each second. Errors: DCPK_EIO, DCPK_ENOMEM.
 */
dcpk_status dcpk_train_events_put(struct dcpk_train_events *events,
                                  const struct dcpk_train_config *config,
                                  const struct dcpk_step *step, double seconds, double tflops,
                                  struct dcpk_error *err);
void dcpk_train_events_close(struct dcpk_train_events *events);

#endif
