/* SPDX-License-Identifier: Apache-2.0 */
/* run_line.h - of the first line of a log: what a run's layout and numbers depend on. */
/*
 *   "run": {"data_parallelism": "Megatron-FSDP", "data_parallel_sharding_strategy": "optim_grads",
 *           "tensor_model_parallel_size": 2, ..., "reduce": "exact", "exact_lsb": 44, ...}
 *
 * Names are those of knobs (knobs.h), values what rules and defaults made of them.
 */
#ifndef DCPK_LIB_TRAIN_RUN_LINE_H
#define DCPK_LIB_TRAIN_RUN_LINE_H

#include "lib/base/json.h"
#include "lib/train/config.h"

/* Add the member to the object that `j` is in. config: checked (knobs.h). */
void dcpk_run_line_put(const struct dcpk_train_config *config, struct dcpk_json_out *j);

#endif
