/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_write_priv.h - between the files that turn the canonical view into keys. */
#ifndef DCPK_FORMATS_MEGATRON_WRITE_PRIV_H
#define DCPK_FORMATS_MEGATRON_WRITE_PRIV_H

#include "formats/megatron/megatron.h"
#include "formats/megatron/megatron_slots.h"

/* "<module>._extra_state/...". */
dcpk_status dcpk_megatron_put_extra_states(const struct dcpk_model *model, struct dcpk_output *out,
                                           const struct dcpk_slots *slots, struct dcpk_error *err);

/* True if the optimizer's state is to be written in buckets (dp_reshardable). */
bool dcpk_megatron_has_buckets(const struct dcpk_model *model, const struct dcpk_output *out);

/* True if the folder is to be of generation A. */
bool dcpk_megatron_is_generation_a(const struct dcpk_output *out);

/* True if it is to be written as flattened blocks (fully_sharded_model_space, generation A). */
bool dcpk_megatron_flattens(const struct dcpk_model *model, const struct dcpk_output *out);

/* The common state, and with buckets what holds the optimizer's state next to it
 * (formats/torch_dist/FORMAT.md 6). */
dcpk_status dcpk_megatron_make_common(const struct dcpk_model *model, struct dcpk_output *out,
                                      const struct dcpk_slots *slots, bool is_rng_whole,
                                      const struct dcpk_value **common, struct dcpk_error *err);

#endif
