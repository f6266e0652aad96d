/* SPDX-License-Identifier: Apache-2.0 */
/* named_state.h - the state next to the tensors (args, iteration, ...) by one spelling in every
 * format. */
#ifndef DCPK_LIB_MODEL_NAMED_STATE_H
#define DCPK_LIB_MODEL_NAMED_STATE_H

#include "lib/ckpt/checkpoint.h"
#include "lib/ckpt/value.h"
#include "lib/model/sizes.h"

/* All of it; also an optional first part of every name, "common.args.lr". */
#define DCPK_COMMON_NAME "common"

/* The state that a name leads to. */
struct dcpk_named_state {
    const struct dcpk_value *value; /* NULL: nowhere */
    /* Then: the part of the name up to here led to `parent`, which has no more of it. */
    size_t n_parent_bytes;
    const struct dcpk_value *parent; /* NULL: not even the first part is there */
};

/*
 * Look `name` up: names of dicts, attributes of objects and numbers in lists, with dots between
 * them, from the common state of torch_dist and zarr on, or from the objects of a format that keeps
 * no common state (fsdp_dtensor), whose keys have dots for the same. There the objects under a name
 * are put together to a dict: "opt_param_scheduler". Values live in `arena`; objects past
 * DCPK_MAX_LOADED_BYTES are outlined. Errors: those of reading.
 */
dcpk_status dcpk_named_state_find(struct dcpk_checkpoint *ckpt, const char *name,
                                  struct dcpk_arena *arena, struct dcpk_named_state *state,
                                  struct dcpk_error *err);

/*
 * The first parts of all names, in their order; NULL-terminated, in `arena`. Reads the common state
 * or keys alone. Errors: those of reading.
 */
dcpk_status dcpk_named_state_list(struct dcpk_checkpoint *ckpt, struct dcpk_arena *arena,
                                  const char *const **names, struct dcpk_error *err);

/* The names in a value, for a message: of the n-th pair or attribute; NULL past the end and for
 * what has no names. */
const char *dcpk_named_state_member(const struct dcpk_value *value, size_t n);

/* ---- the run that wrote a checkpoint ---- */

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
    const char *const *names;           /* as dcpk_named_state_list has them */
};
void dcpk_run_state_load(struct dcpk_checkpoint *ckpt, struct dcpk_arena *arena,
                         struct dcpk_run_state *state);

#endif
