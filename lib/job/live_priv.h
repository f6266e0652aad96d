/* SPDX-License-Identifier: Apache-2.0 */
/* live_priv.h - lists the parameters of a rank under the names of a scheme. */
#ifndef DCPK_LIB_JOB_LIVE_PRIV_H
#define DCPK_LIB_JOB_LIVE_PRIV_H

#include "lib/job/feed_views_priv.h"
#include "lib/job/live_names.h"
#include "lib/job/serving_names.h"

/* A run whose modules are looked at. */
struct dcpk_live {
    struct dcpk_placing placing;
    int64_t rank;       /* of it; -1: none */
    const char *family; /* of Hugging Face's names; NULL: as a conversion chooses it */
    const char *layout; /* of its pipeline (lib/place/pipeline.h); NULL: by sizes of the grid */
    enum dcpk_server server; /* 0: none */
    const struct dcpk_live_options *options;
};

/* A tensor of a rank under construction. Zeroed except for `views`; pieces are dcpk_free's. */
struct dcpk_live_tensor {
    struct dcpk_feed_views *views; /* that it is for */
    struct dcpk_piece *pieces;     /* of the one under construction: n */
    size_t n, capacity;
    bool has_pairs; /* its axis 2 is of rows of axis 1 that take turns, which memory has as one */
};

/*
 * Append what `region` of a view takes: its elements end up from `at` on, which has n_lead
 * axes of length 1 before those of the region.
 */
dcpk_status dcpk_live_take(struct dcpk_live_tensor *tensor, const struct dcpk_view *from,
                           const struct dcpk_box *region, const int64_t *at, int n_lead,
                           struct dcpk_error *err);
/* A box of zeros. */
dcpk_status dcpk_live_zeros(struct dcpk_live_tensor *tensor, const struct dcpk_box *box,
                            struct dcpk_error *err);
/* Make room for n names, before the first one of a tensor that has pairs. */
dcpk_status dcpk_live_expect(struct dcpk_live_tensor *tensor, size_t n, struct dcpk_error *err);
/* Add it under a name, with all its pieces; they stay for a further name. shape: copied. */
dcpk_status dcpk_live_put(struct dcpk_live_tensor *tensor, const char *name, enum dcpk_dtype dtype,
                          const struct dcpk_box *shape, struct dcpk_error *err);

dcpk_status dcpk_live_megatron(struct dcpk_feed_views *views, struct dcpk_checkpoint *ckpt,
                               const struct dcpk_live *live, struct dcpk_error *err);
dcpk_status dcpk_live_serving(struct dcpk_feed_views *views, struct dcpk_checkpoint *ckpt,
                              const struct dcpk_live *live, struct dcpk_error *err);

#endif
