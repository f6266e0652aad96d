/* SPDX-License-Identifier: Apache-2.0 */
/* feed_views.h - the tensors of a checkpoint by the names that targets of a remap know them by. */
#ifndef DCPK_LIB_JOB_FEED_VIEWS_H
#define DCPK_LIB_JOB_FEED_VIEWS_H

#include "lib/exec/remap_files.h"

struct dcpk_feed_views;

enum dcpk_feed_flags {
    DCPK_FEED_WEIGHTS = 1 /* the stored weights, not their masters; no optimizer state */
};

/*
 * Views for dcpk_remap_files_options. as NULL: tensors as they are stored. A format: what a
 * conversion to it would write, stacked layers apart, gated parameters in its halves, masters as
 * weights where the target has them so; nothing is written, and its objects have no views. family:
 * of Hugging Face's names, where args fit several; NULL: as a conversion chooses it. ckpt:
 * borrowed until dcpk_feed_views_free; a conversion's view adds to it what lib/ckpt/checkpoint.h
 * calls views, so that what indexes its chunks has to come later (dcpk_remap_files_new does).
 * Errors: DCPK_EUSAGE for a format that is not a target; DCPK_EFORMAT when chunks do not cover
 * their tensors; those of reading the model and of the rules; DCPK_ENOMEM.
 */
dcpk_status dcpk_feed_views_new(struct dcpk_checkpoint *ckpt, const struct dcpk_format *as,
                                const char *family, unsigned flags, struct dcpk_feed_views **views,
                                struct dcpk_error *err);
void dcpk_feed_views_free(struct dcpk_feed_views *views); /* NULL is a no-op */

/* True if memory has other names or shapes than the views, or each rank its own: shards of these go
 * to a plan as boxes of stored tensors. */
bool dcpk_feed_views_are_local(const struct dcpk_feed_views *views);

/* All of them, in the order of the checkpoint or the output; borrowed. *n: how many. */
const struct dcpk_remap_view *dcpk_feed_views(const struct dcpk_feed_views *views, size_t *n);

#endif
