/* SPDX-License-Identifier: Apache-2.0 */
/* run_state.h - what a checkpoint records about the run that wrote it. */
#ifndef DCPK_LIB_MODEL_RUN_STATE_H
#define DCPK_LIB_MODEL_RUN_STATE_H

#include "lib/ckpt/checkpoint.h"
#include "lib/model/layout.h"

/*
 * Facts about the run, from common state (format->load_common) or, where there is none, the objects
 * args, iteration, checkpoint_version. Values live in `arena`. A failing read becomes a note of the
 * checkpoint, the fields stay empty: a checkpoint that cannot be converted can still be looked at.
 */
struct dcpk_run_state {
    const struct dcpk_value *args;      /* the attributes of args: a DICT; NULL: unknown */
    const struct dcpk_value *iteration; /* INT or NULL */
    const struct dcpk_value *version;   /* checkpoint_version, or NULL */
    struct dcpk_grid layout;            /* 0: not known */
    const char *optimizer_layout;       /* of the format's mapping; "unknown": it has none */
    const char *const *names; /* of the state (lib/model/named_state.h); NULL-terminated */
};
void dcpk_run_state_load(struct dcpk_checkpoint *ckpt, struct dcpk_arena *arena,
                         struct dcpk_run_state *state);

#endif
