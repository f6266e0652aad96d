/* SPDX-License-Identifier: Apache-2.0 */
/* hf_moe_layers.c - which layers of a run have experts. */
#include <inttypes.h>

#include "formats/safetensors/hf_config_priv.h"
#include "lib/model/sizes.h"

/* A number of experts that is 0 is none. */
static bool has_experts(const struct dcpk_value *attrs)
{
    const struct dcpk_value *value = dcpk_value_get(attrs, "num_experts");
    int64_t n;

    return !dcpk_value_is_none(value) && (!dcpk_value_as_int(value, &n) || n != 0);
}

dcpk_status dcpk_hf_moe_layers(const struct dcpk_value *attrs, int64_t n_layers,
                               struct dcpk_arena *arena, const bool **is_moe,
                               struct dcpk_error *err)
{
    const struct dcpk_value *freq = dcpk_arg_value(attrs, "moe_layer_freq");
    const int64_t most = dcpk_arg_find("num_layers")->most;
    bool *layers;

    if (n_layers < 1 || n_layers > most)
        return dcpk_fail(err, DCPK_EFORMAT, "num_layers is %" PRId64 ", not from 1 to %" PRId64,
                         n_layers, most);
    layers = dcpk_arena_array(arena, (size_t)n_layers, sizeof *layers, err);
    if (layers == NULL)
        return err->status;
    *is_moe = layers;
    if (has_experts(attrs) && !dcpk_moe_layers_read(freq, layers, (size_t)n_layers))
        return dcpk_fail(err, DCPK_EFORMAT,
                         "moe_layer_freq is %s, which is not of %" PRId64 " layers",
                         dcpk_hf_show(arena, freq), n_layers);
    return DCPK_OK;
}
