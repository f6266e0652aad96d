/* SPDX-License-Identifier: Apache-2.0 */
/* generation.h - a checkpoint's generation and the releases that write it, for people and as
 * JSON. */
#ifndef DCPK_LIB_CKPT_GENERATION_H
#define DCPK_LIB_CKPT_GENERATION_H

#include "lib/base/json.h"
#include "lib/ckpt/checkpoint.h"

#define DCPK_GENERATION_TEXT_BYTES 64

/*
 * "generation B (core 0.13 to 0.18)", "generation C (core 0.19 and later)"; "" when nothing is
 * known. Returns text.
 */
const char *dcpk_generation_text(const struct dcpk_checkpoint *ckpt,
                                 char text[DCPK_GENERATION_TEXT_BYTES]);

/* The key "generation": a name or null. */
void dcpk_generation_add_json(const struct dcpk_checkpoint *ckpt, struct dcpk_json_out *j);

/* The key "releases": {"from", "to"}, null where it is not known; "to" is null where no end is. */
void dcpk_releases_add_json(const struct dcpk_checkpoint *ckpt, struct dcpk_json_out *j);

#endif
