/* SPDX-License-Identifier: Apache-2.0 */
/* train_measured.c - what a run sent and held is what the formulas give. */
#include <inttypes.h>

#include "lib/train/train.h"

dcpk_status dcpk_train_measured_check(const struct dcpk_train_measured *m, struct dcpk_error *err)
{
    for (int tag = 0; tag < DCPK_N_TAGS; tag++)
        if (m->held[tag] != m->predicted_held[tag])
            return dcpk_fail(err, DCPK_EMISMATCH,
                             "memory of '%s' was %" PRIu64 " bytes, the formulas give %" PRIu64,
                             dcpk_memory_tag_names[tag], m->held[tag], m->predicted_held[tag]);
    for (int a = 0; a < DCPK_FSDP_N_ACTIONS; a++)
        if (m->sent.n_bytes[a] != m->predicted_sent.n_bytes[a])
            return dcpk_fail(err, DCPK_EMISMATCH,
                             "'%s' sent %" PRIu64 " bytes in a step, the formulas give %" PRIu64,
                             dcpk_fsdp_action_names[a], m->sent.n_bytes[a],
                             m->predicted_sent.n_bytes[a]);
    return DCPK_OK;
}
