/* SPDX-License-Identifier: Apache-2.0 */
/* knobs_moe.c - which layers are MoE layers: a period, or a list as Python writes it. */
#include <inttypes.h>
#include <string.h>

#include "lib/model/moe_layers.h"
#include "lib/train/knobs_priv.h"

dcpk_status dcpk_knobs_read_moe_layers(struct dcpk_train_knobs *knobs, struct dcpk_error *err)
{
    struct dcpk_train_model *m = &knobs->config.model;
    uint8_t *moe_layers;
    bool *layers;

    m->moe_layers = NULL;
    m->is_moe_list = false;
    if (m->experts == 0 || strcmp(knobs->moe_layer_freq, "1") == 0)
        return DCPK_OK;
    layers = dcpk_arena_array(knobs->arena, (size_t)m->layers, sizeof *layers, err);
    moe_layers = dcpk_arena_array(knobs->arena, (size_t)m->layers, sizeof *moe_layers, err);
    if (layers == NULL || moe_layers == NULL)
        return err->status;
    if (!dcpk_moe_layers_parse(knobs->moe_layer_freq, layers, (size_t)m->layers))
        return dcpk_fail(err, DCPK_EUSAGE,
                         "Invalid pattern: moe_layer_freq is '%s'; give a period, or a list of a 1 "
                         "or 0 for each of %" PRId64 " layers",
                         knobs->moe_layer_freq, m->layers);
    for (int64_t i = 0; i < m->layers; i++)
        moe_layers[i] = layers[i];
    m->moe_layers = moe_layers;
    m->is_moe_list = true;
    return DCPK_OK;
}
