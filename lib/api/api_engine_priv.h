/* SPDX-License-Identifier: Apache-2.0 */
/* api_engine_priv.h - the structs of an engine and its maps. */
#ifndef DCPK_LIB_API_API_ENGINE_PRIV_H
#define DCPK_LIB_API_API_ENGINE_PRIV_H

#include "lib/api/api_priv.h"
#include "lib/exec/remap.h"
#include "lib/job/feed_views.h"

struct dcpkit_engine {
    dcpkit *session;
    struct dcpk_remap_options options; /* ranks, device and link are owned */
    int link;                          /* the only row of dcpk_links that is wanted; -1: any */
    bool has_tried_links;
    size_t n_holders; /* its maps, and who opened it */
};

struct map_side {
    struct dcpk_shard *shards; /* owned, what they point to is in the arena */
    size_t n, capacity;
};

/* A checkpoint whose tensors are the sources. All but env is NULL in a map without. */
struct map_checkpoint {
    struct dcpk_env env; /* the session's, with the engine's ranks */
    struct dcpk_checkpoint *ckpt;
    struct dcpk_feed_views *views;
    struct dcpk_remap_files *files;
};

/* A checkpoint whose names sources and targets have. All are NULL in a map without. */
struct map_names {
    struct dcpk_checkpoint *ckpt;
    struct dcpk_feed_views *stored, *sides[2]; /* enum dcpkit_side */
    void *zero;                                /* memory of the device, for targets that are 0 */
};

struct dcpkit_map {
    dcpkit_engine *engine;
    struct dcpk_arena *arena;
    struct map_side sides[2]; /* enum dcpkit_side */
    struct map_checkpoint from;
    struct map_names names;
    struct dcpk_error failed; /* of listing shards: what the plan returns on all ranks */
    /* NULL until there is a plan. Where sources are a checkpoint's: from targets to themselves, for
     * the list of tensors and their fingerprints. */
    struct dcpk_remap *remap;
    const char *note; /* in the arena */
    void (*done)(void *, size_t, size_t, size_t);
    void *context;
};

/*
 * Collective: plan from the map's checkpoint, and make both `remap` and `from.files`. Errors as of
 * dcpk_remap_files_new.
 */
dcpk_status api_checkpoint_plan(dcpkit_map *map, struct dcpk_error *err);
/* Collective: what came of the plan. */
dcpk_status api_checkpoint_totals(const dcpkit_map *map, struct dcpkit_map_totals *totals,
                                  struct dcpk_error *err);
/* Collective. stats is set on failure as well. */
dcpk_status api_checkpoint_run(dcpkit_map *map, struct dcpkit_map_stats *stats,
                               struct dcpk_error *err);
/* Collective: differs[i]: whether a target of tensor i of the plan is not what the files have. */
dcpk_status api_checkpoint_verify(dcpkit_map *map, uint64_t *differs, struct dcpk_error *err);
void api_checkpoint_release(dcpkit_map *map);
/* The sources under the names of the targets, where the map has both; not collective. */
dcpk_status api_names_apply(dcpkit_map *map, struct dcpk_error *err);
void api_names_release(dcpkit_map *map);

/* One holder less; the last one frees the engine. */
void api_engine_drop(dcpkit_engine *engine);

/*
 * Collective, once: open the link that is wanted, or the first one that all ranks can have; NULL is
 * what is left when any would do and none is there. Errors, the same on all ranks:
 * DCPK_EUNSUPPORTED with the reason for one that was asked for by name; DCPK_ENOMEM; DCPK_EIO.
 */
dcpk_status api_engine_find_link(dcpkit_engine *engine, struct dcpk_error *err);

/* Ranks over a caller's world, which is copied; dcpk_ranks_abandon. *ranks: NULL for one that is
 * alone. Errors: DCPK_EUSAGE; DCPK_ENOMEM. */
dcpk_status api_ranks_over(const struct dcpkit_world *world, struct dcpk_ranks **ranks,
                           struct dcpk_error *err);

#endif
