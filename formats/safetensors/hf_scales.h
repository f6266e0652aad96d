/* SPDX-License-Identifier: Apache-2.0 */
/* hf_scales.h - weights of 8 and 4 bits, and the scales that stand next to them. */
#ifndef DCPK_FORMATS_SAFETENSORS_HF_SCALES_H
#define DCPK_FORMATS_SAFETENSORS_HF_SCALES_H

#include "formats/safetensors/hf_config_priv.h"
#include "formats/safetensors/hf_map.h"
#include "lib/ckpt/checkpoint.h"
#include "lib/model/model.h"

/* The role of a stored tensor for scales. */
struct dcpk_hf_scaled {
    /* Read instead of a weight that has scales, or an adapter; DCPK_NO_TENSOR: none. */
    uint32_t view;
    uint32_t scales; /* of such a weight; of scales: themselves; DCPK_NO_TENSOR: neither */
};

/* All borrowed; faults are added to. */
struct dcpk_hf_scales_input {
    const struct dcpk_hf_map *map;
    const struct dcpk_json *config;
    const char *const *names; /* by stored tensor: NULL in it: not of the model; NULL: the keys */
    struct dcpk_checkpoint *ckpt;
    struct dcpk_arena *arena;
    struct dcpk_hf_faults *faults;
    bool takes_alone; /* a value without scales is fine: a rule that takes one refuses it */
};

/*
 * Find the scales of a folder's weights by the map's "scales", and make a view of each such weight.
 * *of: by stored tensor, in the arena; the views are the checkpoint's.
 * Faults: values of less than 16 bits without scales and scales without a weight, unless the map
 * drops their names; shapes that do not
 * fit each other, or the size of the blocks in config.json. Errors: DCPK_ENOMEM, DCPK_ERANGE.
 */
dcpk_status dcpk_hf_scales_read(const struct dcpk_hf_scales_input *input,
                                struct dcpk_hf_scaled **of, struct dcpk_error *err);

#endif
