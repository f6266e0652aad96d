/* SPDX-License-Identifier: Apache-2.0 */
/* drop_unknown.h - what Python would import or call, or no format has a form for, kept out of what
 * is written. */
#ifndef DCPK_LIB_MODEL_DROP_UNKNOWN_H
#define DCPK_LIB_MODEL_DROP_UNKNOWN_H

#include "lib/model/model.h"

/*
 * Drop from the training state (not args: portable.h) every value, or entry of a dict, that holds a
 * class, function or call which the format of model->ckpt does not know (dcpk_format, is_known),
 * for a pickle of it would run foreign code when it is loaded; an iteration that is not an integer;
 * and of the scheduler what is not a single value under a plain name, the whole where it is not a
 * dict: formats that keep each setting by itself would take it apart. Each is named as dropped.
 * Extra states are looked at when they are taken over (dcpk_output_add_payload). Errors:
 * DCPK_ENOMEM.
 */
dcpk_status dcpk_model_drop_unknown(struct dcpk_model *model, struct dcpk_error *err);

#endif
