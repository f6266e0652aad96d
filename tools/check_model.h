/* SPDX-License-Identifier: Apache-2.0 */
/* check_model.h - does a class of transformers load it, and what would make a folder load. */
#ifndef DCPK_TOOLS_CHECK_MODEL_H
#define DCPK_TOOLS_CHECK_MODEL_H

#include "lib/job/verdict.h"
#include "tools/checks.h"

/* The value of --loads-in that is not a release. */
#define DCPK_TRANSFORMERS "transformers"

/*
 * Adds the check "model". A model's folder must have the configuration and the tensors of its
 * family's map; otherwise every tensor that is missing, left or of another shape is named. A
 * checkpoint of a run does not load, and the check answers if such a folder can be made of it, with
 * notes. Reads metadata and small objects.
 */
void dcpk_check_model(struct dcpk_checkpoint *ckpt, const struct dcpk_env *env,
                      const struct dcpk_verbosity *verbosity, struct dcpk_checks *checks);

/*
 * Adds the check "model" of a format whose loaders' requests are not known: it answers if the
 * folder becomes one of torch_dist that a release loads, and which releases do. Reads metadata and
 * small objects.
 */
void dcpk_check_converted(struct dcpk_checkpoint *ckpt, const struct dcpk_env *env,
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
