/* SPDX-License-Identifier: Apache-2.0 */
/* fsdp_converted.h - what Megatron's converter from torch_dist leaves, which no loader asks for. */
#ifndef DCPK_FORMATS_FSDP_DTENSOR_CONVERTED_H
#define DCPK_FORMATS_FSDP_DTENSOR_CONVERTED_H

#include "formats/fsdp_dtensor/fsdp_dtensor_priv.h"

/*
 * tools/checkpoint/checkpoint_inspector.py of core 0.14 to main, rule by rule in FORMAT.md 12. It
 * keeps the parameter groups as a list, masters as a state `.param`, experts of homogeneous MoE
 * layers in one tensor, the moments of expert biases under a number after the state, parts of
 * projections apart, and whatever it does not know under the prefix of weights.
 */

/* "<expert's bias>.exp_avg3" (T13): the number goes to the name. */
dcpk_status dcpk_fsdp_split_numbered(struct dcpk_arena *arena, struct dcpk_fsdp_key *parts,
                                     struct dcpk_error *err);
/*
 * Add what is one tensor of several parameters (experts, T3) or one of several of a parameter
 * (parts of projections, T14). *is_done: it was one, or comes with another. tensor: all but pieces
 * and the shape is set.
 */
dcpk_status dcpk_fsdp_add_converted(struct dcpk_fsdp_reader *r, uint32_t source,
                                    const struct dcpk_fsdp_key *parts,
                                    const struct dcpk_model_tensor *tensor, bool *is_done,
                                    struct dcpk_error *err);
/* A tensor that does not belong to a parameter: torch AdamW's step by number, the loss scaler's. */
dcpk_status dcpk_fsdp_map_scalar(struct dcpk_fsdp_reader *r, uint32_t source, bool *is_known,
                                 struct dcpk_error *err);
/* The listed groups "optimizer.param_groups.<g>.<field>", of several optimizers
 * "optimizer.<i>.optimizer.param_groups.<g>.<field>", as the groups of the model. */
dcpk_status dcpk_fsdp_read_listed_groups(struct dcpk_fsdp_reader *r, struct dcpk_error *err);

#endif
