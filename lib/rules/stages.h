/* SPDX-License-Identifier: Apache-2.0 */
/* stages.h - attributes of args that cut a pipeline into stages. */
#ifndef DCPK_LIB_RULES_STAGES_H
#define DCPK_LIB_RULES_STAGES_H

#include "lib/model/model.h"

/* True if the source's args cut its pipeline in a way of their own, which `mesh` leaves unchanged:
 * lib/place/grid.h need not be able to cut it then. */
bool dcpk_stages_are_own(const struct dcpk_model *model, const struct dcpk_grid *mesh);

/* If the pipeline changes, unsets attributes of args that cut the source's and are not sizes of
 * `mesh`. model->layout is the source's still. */
dcpk_status dcpk_stages_set_args(struct dcpk_model *model, const struct dcpk_grid *mesh,
                                 struct dcpk_error *err);

/* True for an attribute of args that cuts a pipeline into stages and chunks. */
bool dcpk_stages_is_arg(const char *name);

#endif
