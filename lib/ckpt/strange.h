/* SPDX-License-Identifier: Apache-2.0 */
/* strange.h - what Python would import or call, kept out of what is written. */
#ifndef DCPK_LIB_CKPT_STRANGE_H
#define DCPK_LIB_CKPT_STRANGE_H

#include "lib/ckpt/model.h"

/*
 * Drop from the training state (not args: portable.h) every value, or entry of a dict, that holds a
 * class, function or call which the format of model->ckpt does not know (dcpk_format, is_known),
 * and an iteration that is no integer: a pickle of it would run somebody's code when it is loaded.
 * Each is named as dropped. Extra states are looked at when they are taken over
 * (dcpk_output_add_payload). Errors: DCPK_ENOMEM; DCPK_ERANGE for values that unfold without end.
 */
dcpk_status dcpk_model_drop_strange(struct dcpk_model *model, struct dcpk_error *err);

#endif
