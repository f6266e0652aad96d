/* SPDX-License-Identifier: Apache-2.0 */
/* fsdp_inspector.h - torch_dist -> fsdp_dtensor key for key as Megatron's own Python tool does it,
 * where that tool works. */
#ifndef DCPK_FORMATS_FSDP_INSPECTOR_H
#define DCPK_FORMATS_FSDP_INSPECTOR_H

#include "lib/ckpt/format.h"

/* The tool's flags (FORMAT.md 12.1), borrowed; prefixes are the output's. */
struct dcpk_fsdp_inspector_options {
    bool swiglu;
    const char *const *swiglu_modules; /* NULL: not given; wins over swiglu, even when empty */
    size_t n_swiglu_modules;
    bool rename_mtp;
    /* A map was given: without meaning for a dense model, refused where the tool would use it
     * wrongly. */
    bool has_group_map;
};

/*
 * Another mapping of fsdp_dtensor, by from_keys with such options: the tensors and objects that
 * convert-torch-dist-to-fsdp-dtensor of tools/checkpoint/checkpoint_inspector.py (core 0.18.0 to
 * 0.19.0 and main) writes, rules R0 to R16 of FORMAT.md 12.1. Errors: DCPK_EUNSUPPORTED naming the
 * trap (T1 to T15) where the tool crashes or scrambles, and for a source without common state.
 */
extern const struct dcpk_format_mapping dcpk_fsdp_inspector;

#endif
