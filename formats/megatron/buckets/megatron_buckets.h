/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_buckets.h - optimizer state that lies in DDP buckets (dp_reshardable,
 * fully_sharded_bucket_space and dp_zero_gather_scatter), as tensors of parameters. */
#ifndef DCPK_FORMATS_MEGATRON_BUCKETS_MEGATRON_BUCKETS_H
#define DCPK_FORMATS_MEGATRON_BUCKETS_MEGATRON_BUCKETS_H

#include "lib/model/model.h"

/*
 * Add master, moments and other states of every parameter to the model, seen through the buckets,
 * and the parameter groups. Weights must be in the model. Sets model->needs_proof. Nothing happens
 * when there are no buckets.
 */
dcpk_status dcpk_megatron_decode_buckets(struct dcpk_model *model, struct dcpk_error *err);

#endif
