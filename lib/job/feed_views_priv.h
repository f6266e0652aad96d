/* SPDX-License-Identifier: Apache-2.0 */
/* feed_views_priv.h - what views of a checkpoint are made of. */
#ifndef DCPK_LIB_JOB_FEED_VIEWS_PRIV_H
#define DCPK_LIB_JOB_FEED_VIEWS_PRIV_H

#include "lib/job/feed_views.h"
#include "lib/model/model.h"

struct dcpk_feed_views {
    struct dcpk_arena *arena;
    struct dcpk_model *model;      /* NULL: as stored */
    struct dcpk_output *output;    /* NULL where there is none; owns shapes and pieces */
    struct dcpk_feed_views *inner; /* that these are made of; NULL: none */
    struct dcpk_remap_view *views; /* owned */
    size_t n, capacity;
    const struct dcpk_out_tensor *
        *of;           /* by view, where there is an output; in the arena. NULL: none */
    bool is_of_rank;   /* names and shapes are those of one rank's modules */
    bool writes_zeros; /* fills of targets are written, not left alone */
    int64_t n_chunks;  /* of these modules, Megatron's (live_names.h); 0: names are as they are */
};

/* Views without any, with an arena. *views: dcpk_feed_views_free. */
dcpk_status dcpk_feed_views_begin(struct dcpk_feed_views **views, struct dcpk_error *err);
/* Append a view, which is copied. */
dcpk_status dcpk_feed_views_add(struct dcpk_feed_views *views, const struct dcpk_remap_view *view,
                                struct dcpk_error *err);
/* Forget masters of parameters that have a stored weight. */
void dcpk_feed_drop_masters(struct dcpk_model *model);

#endif
