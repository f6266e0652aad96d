/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_padding.h - repairs fully_reshardable optimizer state that Megatron moved over the
 * padding of DDP buckets. */
#ifndef DCPK_FORMATS_MEGATRON_BUCKETS_MEGATRON_PADDING_H
#define DCPK_FORMATS_MEGATRON_BUCKETS_MEGATRON_PADDING_H

#include "lib/model/model.h"

/*
 * Makes every state of the view have its elements from where megatron_moved.h finds them; weights
 * and states must be in the model. A lost master is its stored weight, a lost exp_avg_sq the mean
 * of what is left of its tensor, any other lost state 0. Sets model->repaired. The result is
 * unproven: the caller compares masters with weights. Reads the second moments of parameters with
 * lost elements. Errors: DCPK_EUSAGE where no bucket is padded before another or the state is not
 * fully_reshardable; DCPK_EUNSUPPORTED for a layout of ranks that is not replayed, or chunks that
 * Megatron does not write; those of reading.
 */
dcpk_status dcpk_megatron_repair_padding(struct dcpk_model *model, struct dcpk_error *err);

#endif
