/* SPDX-License-Identifier: Apache-2.0 */
/* rng_states.h - whether a value is the RNG states of a rank. */
#ifndef DCPK_LIB_MODEL_RNG_STATES_H
#define DCPK_LIB_MODEL_RNG_STATES_H

#include "lib/ckpt/value.h"

/*
 * The reason why a loader would not understand `states` (dcpk_rng.states), as the reason for a
 * drop; NULL: it would. RNG states are a list of dicts, one for each data-parallel rank or one for
 * all, of random_rng_state, np_rng_state (tuples), torch_rng_state, cuda_rng_state (bytes, one
 * axis) and rng_tracker_states (bytes or a generator by name, may be empty). A dict may have more
 * fields as long as each is one value. Every format can keep what passes, so none carries a part of
 * it. Source: megatron/training/checkpointing.py get_rng_state and load_checkpoint, core_v0.12.0 to
 * main; formats/torch_dist/FORMAT.md 8, formats/fsdp_dtensor/FORMAT.md 4.
 */
const char *dcpk_rng_states_fault(const struct dcpk_value *states);

#endif
