/* SPDX-License-Identifier: Apache-2.0 */
/* train_measured.c - a run is held against the footprint of its configuration. */
#include <inttypes.h>

#include "lib/train/train.h"

dcpk_status dcpk_train_measured_check(const struct dcpk_train_measured *m, struct dcpk_error *err)
{
    const struct dcpk_train_footprint *explained = &m->explained;

    for (int tag = 0; tag < DCPK_N_TAGS; tag++)
        if (m->held[tag] != explained->held[tag])
            return dcpk_fail(
                err, DCPK_EMISMATCH,
                "rank %" PRId64 " held %" PRIu64 " bytes of '%s', explained are %" PRIu64, m->rank,
                m->held[tag], dcpk_memory_tag_names[tag], explained->held[tag]);
    for (int a = 0; a < DCPK_FSDP_N_ACTIONS; a++)
        if (m->sent.n_bytes[a] != explained->sent.n_bytes[a])
            return dcpk_fail(err, DCPK_EMISMATCH,
                             "rank %" PRId64 " sent %" PRIu64 " bytes a step for '%s', explained "
                             "are %" PRIu64,
                             m->rank, m->sent.n_bytes[a], dcpk_fsdp_action_names[a],
                             explained->sent.n_bytes[a]);
    return DCPK_OK;
}
