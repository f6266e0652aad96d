/* SPDX-License-Identifier: Apache-2.0 */
/* trust.h - which of weights and masters are right, where the caller knows. */
#ifndef DCPK_LIB_MODEL_TRUST_H
#define DCPK_LIB_MODEL_TRUST_H

#include "lib/model/model.h"

/*
 * Make each master of its weight, or each weight of its master, where the checkpoint's decisions
 * have it (enum dcpk_decision): the elements of one side become those of the other, cast. Moments
 * stay. Nothing happens without such a decision. Errors: DCPK_EUSAGE where masters were found by
 * inference, which only equal weights prove; DCPK_EMISMATCH for a master of another shape.
 */
dcpk_status dcpk_model_trust(struct dcpk_model *model, struct dcpk_error *err);

#endif
