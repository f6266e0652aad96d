/* SPDX-License-Identifier: Apache-2.0 */
/* fsdp_rows.h - what Megatron-FSDP calls which rows: SwiGLU halves, and the fused down-projection
 * of multi-latent attention (--mla-down-proj-fusion). */
#ifndef DCPK_FORMATS_FSDP_ROWS_H
#define DCPK_FORMATS_FSDP_ROWS_H

#include "lib/model/parts.h"

/* Gate and up as Megatron-FSDP calls them, after the parameter's name: "_w" and "_v"
 * (FORMAT.md 5.1). */
extern const struct dcpk_part_kind dcpk_fsdp_halves[];
/* The same of a part by its name: "_w" of "gate"; "" where it is one tensor with the other
 * parts. */
const char *dcpk_fsdp_part_end(const char *part);
/* The half that a parameter's name ends in: 0 or 1, -1: none. */
int dcpk_fsdp_half(const char *name);

/*
 * One live parameter: the rows of the query's projection, and those of the keys' and values' after
 * them (MC/transformer/multi_latent_attention.py@0.18.2 to main FusedMLASelfAttention). torch_dist
 * has the two in every release. Megatron-FSDP of 0.18 and 0.19 has the live name in all of its
 * keys; main has the two, except parameter groups, which it asks for by the live name
 * (MC/transformer/fsdp_dtensor_checkpoint.py@main handle_mla_down_proj_in_state_dict).
 */

/* *fused: the live name of which the projection called `name` is a part; NULL where it is none. */
dcpk_status dcpk_fsdp_fused_name(struct dcpk_arena *arena, const char *name, const char **fused,
                                 struct dcpk_error *err);
/* The parameters of the view whose group a live name stands for: its own, or those that it joins;
 * *n is 0 where there is none. */
dcpk_status dcpk_fsdp_group_params(const struct dcpk_model *model, const char *name,
                                   uint32_t params[2], size_t *n, struct dcpk_error *err);
/*
 * Add a tensor of the parameter `name`: its role, state, dtype, shape and pieces are set. A fused
 * one becomes those of the two parameters that it joins. Errors: DCPK_EUNSUPPORTED when args do not
 * determine where it must be cut; DCPK_EMISMATCH when its parts do not divide by their number of
 * ranks.
 */
dcpk_status dcpk_fsdp_add_named(struct dcpk_model *model, struct dcpk_model_tensor *tensor,
                                const char *name, struct dcpk_error *err);

#endif
