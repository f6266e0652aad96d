/* SPDX-License-Identifier: Apache-2.0 */
/* expert_bias.c - counts of all layers in one sum over ranks, then each layer's biases. */
#include "lib/train/expert_bias.h"

#include <string.h>

#include "lib/base/alloc.h"
#include "lib/train/totals.h"

/* Counts of a layer among those of all layers: the decoder's, then multi-token prediction's. */
static int64_t *layer_counts(const struct dcpk_train_model *m, int64_t *counts, int64_t layer)
{
    if (layer >= DCPK_TRAIN_MTP)
        layer = layer - DCPK_TRAIN_MTP + m->layers;
    return counts + layer * m->experts;
}

/* What this rank's tokens chose. Layers of other stages stay 0; tensor-parallel ranks all count
 * the same tokens, which changes no sign. */
static void counts_take(const struct dcpk_train_state *state, const struct dcpk_gpt *gpt,
                        int64_t *counts)
{
    const struct dcpk_train_model *m = &state->config->model;

    for (size_t i = 0; i < state->params->n; i++) {
        const struct dcpk_train_param *p = &state->params->list[i];

        if (p->kind == DCPK_P_EXPERT_BIAS)
            memcpy(layer_counts(m, counts, p->layer), dcpk_gpt_expert_tokens(gpt, i),
                   (size_t)m->experts * sizeof *counts);
    }
}

static void biases_move(const int64_t *counts, int64_t n, double rate, float *biases)
{
    int64_t sum = 0;

    for (int64_t e = 0; e < n; e++)
        sum += counts[e];
    for (int64_t e = 0; e < n; e++) {
        if (sum > n * counts[e])
            biases[e] += (float)rate;
        else if (sum < n * counts[e])
            biases[e] -= (float)rate;
    }
}

static dcpk_status layer_update(const struct dcpk_train_state *state, const int64_t *counts,
                                float *buffer, struct dcpk_error *err)
{
    const struct dcpk_train_model *m = &state->config->model;
    const size_t n_bytes = (size_t)m->experts * sizeof(float);
    float *host = dcpk_alloc(n_bytes, err);
    dcpk_status st = err->status;

    if (host == NULL)
        return st;
    state->math->ops->copy(state->math, host, buffer, n_bytes);
    st = state->math->ops->wait(state->math, err);
    if (st == DCPK_OK) {
        biases_move(counts, m->experts, m->expert_bias_rate, host);
        state->math->ops->copy(state->math, buffer, host, n_bytes);
        st = state->math->ops->wait(state->math, err);
    }
    dcpk_free(host);
    return st;
}

static dcpk_status layers_update(const struct dcpk_train_state *state, int64_t *counts,
                                 struct dcpk_error *err)
{
    for (size_t i = 0; i < state->params->n; i++) {
        const struct dcpk_train_param *p = &state->params->list[i];

        if (p->kind == DCPK_P_EXPERT_BIAS &&
            layer_update(state, layer_counts(&state->config->model, counts, p->layer),
                         state->buffers[i], err) != DCPK_OK)
            return err->status;
    }
    return DCPK_OK;
}

dcpk_status dcpk_expert_bias_update(const struct dcpk_train_state *state,
                                    const struct dcpk_gpt *gpt, struct dcpk_error *err)
{
    const struct dcpk_train_model *m = &state->config->model;
    const size_t n = (size_t)((m->layers + m->mtp_layers) * m->experts);
    int64_t *counts;
    dcpk_status st;

    if (!m->has_expert_bias || n == 0)
        return DCPK_OK;
    counts = dcpk_alloc_array(n, sizeof *counts, err); /* zeroed */
    if (counts == NULL)
        return err->status;
    counts_take(state, gpt, counts);
    st = dcpk_totals_agree(state->mesh->group[DCPK_G_WORLD], state->math, DCPK_OK, counts, n, err);
    if (st == DCPK_OK)
        st = layers_update(state, counts, err);
    dcpk_free(counts);
    return st;
}
