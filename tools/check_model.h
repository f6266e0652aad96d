/* SPDX-License-Identifier: Apache-2.0 */
/* check_model.h - does a class of transformers load it, and what would make a folder load. */
#ifndef DCPK_TOOLS_CHECK_MODEL_H
#define DCPK_TOOLS_CHECK_MODEL_H

#include "lib/job/verdict.h"
#include "tools/checks.h"

/* What --loads-in takes other than releases. */
#define DCPK_TRANSFORMERS "transformers"

/*
 * Add the check "model". A model's folder: its configuration and its tensors are what the map of
 * its family has, else every tensor that is missing, left or of another shape is named. A
 * checkpoint of a run does not load; can such a folder be made of it? What a user should know of
 * that is noted. Reads metadata and small objects.
 */
void dcpk_check_model(struct dcpk_checkpoint *ckpt, const struct dcpk_env *env,
                      const struct dcpk_verbosity *verbosity, struct dcpk_checks *checks);

/*
 * The command that makes a folder of which the verdict's release loads more, planned to the end and
 * judged: "dcpkit convert ...", and what the run has to leave out. False: there is none. Reads
 * metadata and small objects.
 */
#define DCPK_REMEDY_BYTES 4608
bool dcpk_check_remedy(struct dcpk_checkpoint *ckpt, const struct dcpk_env *env,
                       const struct dcpk_verdict *verdict, char text[DCPK_REMEDY_BYTES]);

#endif
