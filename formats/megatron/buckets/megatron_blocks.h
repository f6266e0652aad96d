/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_blocks.h - how tensor parallelism cut a weight. */
#ifndef DCPK_FORMATS_MEGATRON_BUCKETS_MEGATRON_BLOCKS_H
#define DCPK_FORMATS_MEGATRON_BUCKETS_MEGATRON_BLOCKS_H

#include "lib/model/parts.h"

/*
 * A parameter is made of parts, rows of it one after the other, each cut into as many blocks as
 * there are ranks: a rank holds its block of every part in that order (dcpk_rows_of_rank). Most
 * have one part; a gated fc1 has the gate and the up rows (formats/torch_dist/FORMAT.md 4.4),
 * parts.h has the others.
 */
struct dcpk_blocks {
    int axis;        /* that is cut, -1: every rank holds all of it */
    int64_t n_ranks; /* that hold different blocks; 1 when axis is -1 */
    int n_parts;
    struct dcpk_rows part[DCPK_MAX_PARTS]; /* on that axis, which may be that of columns */
};

/*
 * Read them off the chunks that a weight is stored in: Megatron stores each rank's block of a part
 * as a chunk. n_lead: stacked axes (layers, experts) in front of the parameter's own. tp: the size
 * of the group that may cut it. Errors: DCPK_EUNSUPPORTED for chunks that are not such blocks.
 */
dcpk_status dcpk_blocks_find(const struct dcpk_checkpoint *ckpt, const struct dcpk_tensor *stored,
                             int n_lead, int64_t tp, struct dcpk_blocks *blocks,
                             struct dcpk_error *err);
/* Put the rows of `part` after those of `blocks`. Errors: DCPK_EUNSUPPORTED when they are not cut
 * alike. */
dcpk_status dcpk_blocks_append(struct dcpk_blocks *blocks, const struct dcpk_blocks *part,
                               struct dcpk_error *err);
/* Rank r's block of a part, in a parameter of that shape. */
void dcpk_blocks_box(const struct dcpk_blocks *blocks, const int64_t *shape, int rank, int64_t r,
                     int part, struct dcpk_box *box);

#endif
