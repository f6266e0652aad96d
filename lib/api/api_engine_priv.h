/* SPDX-License-Identifier: Apache-2.0 */
/* api_engine_priv.h - what stands behind an engine and its maps. */
#ifndef DCPK_LIB_API_API_ENGINE_PRIV_H
#define DCPK_LIB_API_API_ENGINE_PRIV_H

#include "lib/api/api_priv.h"
#include "lib/exec/remap.h"

struct dcpkit_engine {
    dcpkit *session;
    struct dcpk_remap_options options; /* ranks, space and link are owned */
    int link;                          /* the only row of dcpk_links that is wanted; -1: any */
    bool has_tried_links;
    size_t n_holders; /* its maps, and who opened it */
};

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
