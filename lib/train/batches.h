/* SPDX-License-Identifier: Apache-2.0 */
/* batches.h - the microbatches of a step that one rank trains on. */
#ifndef DCPK_LIB_TRAIN_BATCHES_H
#define DCPK_LIB_TRAIN_BATCHES_H

#include "lib/base/arena.h"
#include "lib/train/gpt.h"
#include "lib/train/tokens.h"

/* In an arena; tokens, labels and mask of all microbatches, one after the other. */
struct dcpk_batches {
    int64_t n;
    struct dcpk_gpt_batch *list;
    int32_t *tokens, *labels;
    float *mask;
};

/* Room for the microbatches of one step. Errors: DCPK_ENOMEM. */
dcpk_status dcpk_batches_make(const struct dcpk_train_config *config, struct dcpk_arena *arena,
                              struct dcpk_batches *batches, struct dcpk_error *err);

/* Read them, beginning with `first`; their factors are those of the loss scale `scale`. Errors:
 * those of dcpk_tokens_read. */
dcpk_status dcpk_batches_read(const struct dcpk_batches *batches,
                              const struct dcpk_train_config *config,
                              const struct dcpk_tokens *tokens, const struct dcpk_microbatch *first,
                              double scale, struct dcpk_error *err);

#endif
