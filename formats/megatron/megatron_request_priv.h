/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_request_priv.h - parts of what loaders of 3D-parallel checkpoints ask for. */
#ifndef DCPK_FORMATS_MEGATRON_REQUEST_PRIV_H
#define DCPK_FORMATS_MEGATRON_REQUEST_PRIV_H

#include "lib/model/request.h"

/* How the optimizer's state is kept: by content_metadata or the state itself. */
enum dcpk_optimizer_kind {
    DCPK_OPTIMIZER_NONE,        /* nothing is asked for */
    DCPK_OPTIMIZER_RESHARDABLE, /* fully_reshardable */
    DCPK_OPTIMIZER_FLATTENED,   /* fully_sharded_model_space */
    DCPK_OPTIMIZER_BUCKETS,     /* dp_reshardable */
    DCPK_OPTIMIZER_GATHERED,    /* dp_zero_gather_scatter */
    DCPK_OPTIMIZER_WHOLE,       /* not distributed */
    DCPK_OPTIMIZER_UNREADABLE,  /* fully_sharded_bucket_space, or a name that no release knows */
};

/* The optimizer of the run that loads. A value. */
struct dcpk_optimizer_asked {
    enum dcpk_optimizer_kind kind;
    const char *type; /* the kind's name, for messages */
    bool is_split;    /* experts have an optimizer of their own */
    bool has_prefix;  /* "chained_<i>." before the keys of each of two */
    uint32_t loaders; /* that ask for it */
};

void dcpk_optimizer_asked_find(const struct dcpk_loading *loading,
                               struct dcpk_optimizer_asked *asked);

/* Everything but weights, masters, moments and extra states. */
dcpk_status dcpk_megatron_request_state(const struct dcpk_loading *loading,
                                        const struct dcpk_optimizer_asked *asked,
                                        struct dcpk_error *err);

#endif
