/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline.h - the layout of a pipeline as a text: which layers its model chunks have. */
/*
 *   Et*3|(tt|)*2,mL     parts of 3, 2, 2 and 0 layers; the last one has multi-token prediction
 *
 * Bars separate the parts: chunk 0 of all stages first, then chunk 1. "x*3" repeats a character,
 * "(xy)*3" a group. E, L and commas do not count; a '/' ends the text.
 * Source: megatron/core/transformer/pipeline_parallel_layer_layout.py@core_v0.19.0
 * (parse_str_to_list).
 */
#ifndef DCPK_LIB_PLACE_PIPELINE_H
#define DCPK_LIB_PLACE_PIPELINE_H

#include "lib/base/arena.h"

/* The text with its repetitions written out. Errors: DCPK_ERANGE for one that is too long;
 * DCPK_ENOMEM. */
const char *dcpk_pipeline_unroll(struct dcpk_arena *arena, const char *text,
                                 struct dcpk_error *err);

/* The number of parts of a text that was written out. */
int64_t dcpk_pipeline_parts(const char *unrolled);

/* Parts of a pipeline; both are the caller's. */
struct dcpk_pipeline {
    int64_t *layers; /* of each part */
    int64_t mtp;     /* the part with multi-token prediction; as before where there is none */
};

/* Count the layers of each part of such a text. kinds: characters that stand for layers; NULL: all
 * but the others. Errors: DCPK_EUNSUPPORTED for a character without a meaning. */
dcpk_status dcpk_pipeline_count(const char *unrolled, const char *kinds,
                                struct dcpk_pipeline *pipeline, struct dcpk_error *err);

#endif
