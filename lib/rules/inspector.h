/* SPDX-License-Identifier: Apache-2.0 */
/* inspector.h - torch_dist -> fsdp_dtensor key for key as Megatron's own Python tool does it, where
 * that tool works. */
#ifndef DCPK_LIB_RULES_INSPECTOR_H
#define DCPK_LIB_RULES_INSPECTOR_H

#include "lib/ckpt/output.h"

/* The tool's flags (conversion.md section 2), borrowed. */
struct dcpk_inspector_options {
    bool swiglu;
    const char *const *swiglu_modules; /* NULL: not given; wins over swiglu, even when empty */
    size_t n_swiglu_modules;
    const char *model_prefix; /* NULL: "model.module" */
    const char *state_prefix; /* NULL: "optimizer.state.module.module.module" */
    bool rename_mtp;
    bool has_group_map; /* a map was given: without meaning for a dense model, refused where the
                           tool would use it wrongly */
};

/*
 * Fill `out` with the tensors and objects that convert-torch-dist-to-fsdp-dtensor of
 * tools/checkpoint/checkpoint_inspector.py (core 0.18.0 to 0.19.0 and main) writes for out->source:
 * rules R0 to R16 of conversion.md 2.2. common: the common state, a dict. Errors: DCPK_EUNSUPPORTED
 * naming the trap (T1 to T15) where the tool crashes or scrambles.
 */
dcpk_status dcpk_inspector_map(struct dcpk_output *out, const struct dcpk_value *common,
                               const struct dcpk_inspector_options *options,
                               struct dcpk_error *err);

#endif
