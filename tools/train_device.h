/* SPDX-License-Identifier: Apache-2.0 */
/* train_device.h - what a run computes on, and what carries its tensors between ranks. */
#ifndef DCPK_TOOLS_TRAIN_DEVICE_H
#define DCPK_TOOLS_TRAIN_DEVICE_H

#include "lib/exec/ranks.h"
#include "lib/train/train.h"

/*
 * Open the mathematics called `name` (NULL: the first), the collectives that move its memory, and
 * host memory as a device, into job->math, world and host: each rank of a machine takes a device of
 * its own. Collective; all ranks return the same status. Errors: DCPK_EUSAGE where there is no such
 * device, DCPK_EUNSUPPORTED where it, or what it needs, was not built in or is not there.
 */
dcpk_status dcpk_train_device_open(const char *name, struct dcpk_ranks *ranks,
                                   struct dcpk_train_job *job, struct dcpk_error *err);
void dcpk_train_device_close(struct dcpk_train_job *job); /* also after a failure */

#endif
