/* SPDX-License-Identifier: Apache-2.0 */
/* stages.h - which layers the stages of a target's pipeline have, and the args that follow. */
#ifndef DCPK_LIB_RULES_STAGES_H
#define DCPK_LIB_RULES_STAGES_H

#include "lib/model/model.h"

/*
 * Do n_layers of the decoder come out on mesh->pp stages of mesh->vpp chunks, the first and last
 * stage having mesh->first and mesh->last of them (0: as many as the others)? A source whose args
 * cut its own pipeline otherwise, for the same pp, is left as it is. Source:
 * get_num_layers_to_build of megatron/core/transformer/transformer_block.py @core_v0.15.3 to main.
 * Errors: DCPK_EMISMATCH with the sizes that do not fit.
 */
dcpk_status dcpk_stages_check(const struct dcpk_model *model, const struct dcpk_layout *mesh,
                              int64_t n_layers, struct dcpk_error *err);

/* Where the pipeline becomes another one: attributes of args that cut the source's and are not
 * sizes of `mesh` are unset. model->layout is the source's still. */
dcpk_status dcpk_stages_set_args(struct dcpk_model *model, const struct dcpk_layout *mesh,
                                 struct dcpk_error *err);

/* Is it an attribute of args that cuts a pipeline into stages and chunks? */
bool dcpk_stages_is_arg(const char *name);

#endif
