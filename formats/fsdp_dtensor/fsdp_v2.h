/* SPDX-License-Identifier: Apache-2.0 */
/* fsdp_v2.h - what Megatron-FSDP v2, experimental in main, keeps in other places than the first. */
#ifndef DCPK_FORMATS_FSDP_V2_H
#define DCPK_FORMATS_FSDP_V2_H

#include "lib/ckpt/output.h"
#include "lib/model/model.h"

/* Keys begin with it and the parameter's name: there is no wrapper around the model. */
#define FD_V2_MODEL "model."

/* True if the folder was written by its own save_checkpoint(). */
bool dcpk_fsdp_is_v2(const struct dcpk_checkpoint *ckpt);
/* True if Megatron wrote it with --ckpt-format torch_dcp (--use-torch-fsdp2), which numbers
 * optimizer state. */
bool dcpk_fsdp_is_torch_dcp(const struct dcpk_checkpoint *ckpt);
/* True if it is the target. */
bool dcpk_fsdp_wants_v2(const struct dcpk_output *out);

/* optimizer.param_groups.<g>.<field>, and .params: the names of the group's parameters. */
dcpk_status dcpk_fsdp_v2_add_groups(const struct dcpk_model *model, struct dcpk_output *out,
                                    struct dcpk_error *err);
/* The extra states, each None, that Megatron's local linear layers have. */
dcpk_status dcpk_fsdp_v2_add_extra_states(const struct dcpk_model *model, struct dcpk_output *out,
                                          struct dcpk_error *err);

#endif
