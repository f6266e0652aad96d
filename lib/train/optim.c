/* SPDX-License-Identifier: Apache-2.0 */
/* optim.c - norm, clipping and update of the shards of a rank. */
#include "lib/train/optim.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/train/run_mesh.h"

dcpk_status dcpk_optim_init(const struct dcpk_train_config *config, struct dcpk_optim *optim,
                            struct dcpk_error *err)
{
    const struct dcpk_train_precision *precision = &config->precision;
    struct dcpk_optim o = {.loss_scale = {.scale = 1, .n_left = precision->hysteresis}};

    if (precision->compute == DCPK_F16)
        o.loss_scale.scale = precision->initial_scale;
    if (dcpk_schedule_init(config, &o.schedule, err) != DCPK_OK)
        return err->status;
    *optim = o;
    return DCPK_OK;
}

/* ---- norm ---- */

/* The sums of squares of a shard's slices, n of them, into the host's memory. */
static dcpk_status fetch_squares(const struct dcpk_train_state *state,
                                 const struct dcpk_train_shard *shard, int64_t n_slices,
                                 double *host, struct dcpk_error *err)
{
    const struct dcpk_matrix shape = {DCPK_F32, shard->n_rows,
                                      state->params->list[shard->param].shape[1]};
    const size_t n_bytes = (size_t)(shard->n_rows * n_slices) * sizeof *host;
    struct dcpk_device *device = state->math->device;
    void *sums;
    dcpk_status st;

    if (device->ops->alloc(device, DCPK_MEMORY_PRIVATE, n_bytes, &sums, err) != DCPK_OK)
        return err->status;
    state->math->ops->sum_squares(state->math, &shape, n_slices, shard->grad, sums);
    st = dcpk_math_copy(state->math, host, sums, n_bytes, err);
    device->ops->free(device, sums);
    return st;
}

static dcpk_status norm_add_shard(const struct dcpk_train_state *state,
                                  const struct dcpk_train_shard *shard, struct dcpk_exact_sum *sum,
                                  struct dcpk_error *err)
{
    const struct dcpk_train_param *param = &state->params->list[shard->param];
    int64_t first_slice;
    const int64_t n_slices = dcpk_train_slices(state->config, param, &first_slice);
    const size_t n = (size_t)(shard->n_rows * n_slices);
    double *host = dcpk_alloc_array(n, sizeof *host, err);
    dcpk_status st;

    if (host == NULL)
        return err->status;
    st = fetch_squares(state, shard, n_slices, host, err);
    for (size_t i = 0; st == DCPK_OK && i < n; i++) {
        if (isfinite(host[i]))
            dcpk_exact_sum_add(sum, host[i]);
        else
            st =
                dcpk_fail(err, DCPK_ERANGE, "the gradient of '%s' is not finite", param->canonical);
    }
    dcpk_free(host);
    return st;
}

static dcpk_status norm_add_shards(const struct dcpk_train_state *state, struct dcpk_exact_sum *sum,
                                   struct dcpk_error *err)
{
    for (size_t i = 0; i < state->shards->n; i++)
        if (state->shards->list[i].is_counted &&
            norm_add_shard(state, &state->shards->list[i], sum, err) != DCPK_OK)
            return err->status;
    dcpk_exact_sum_carry(sum);
    return DCPK_OK;
}

static dcpk_status norm_of_shards(const struct dcpk_train_state *state, double *norm,
                                  struct dcpk_error *err)
{
    struct dcpk_exact_sum sum = {0};
    const dcpk_status st = norm_add_shards(state, &sum, err);

    if (dcpk_totals_agree(state->mesh->group[DCPK_G_WORLD], state->math, st, sum.limb,
                          DCPK_EXACT_LIMBS, err) != DCPK_OK)
        return err->status;
    *norm = sqrt(dcpk_exact_sum_value(&sum));
    return DCPK_OK;
}

/* ---- update ---- */

static void clip_shards(const struct dcpk_train_state *state, double norm)
{
    const double clip = state->config->optim.clip, factor = clip / (norm + 1e-6);

    if (clip <= 0 || factor >= 1)
        return;
    for (size_t i = 0; i < state->shards->n; i++) {
        const struct dcpk_train_shard *shard = &state->shards->list[i];

        state->math->ops->scale(state->math, DCPK_F32, shard->n_elems, (float)factor, shard->grad);
    }
}

/* Weight decay of a parameter: none of vectors (params.h). */
static double decay_of(const struct dcpk_train_param *param, double weight_decay)
{
    if (param->is_decayed)
        return weight_decay;
    return 0;
}

static void update_shard(const struct dcpk_optim *optim, const struct dcpk_train_state *state,
                         const struct dcpk_train_shard *shard,
                         const struct dcpk_optim_result *result)
{
    const struct dcpk_train_optim *o = &state->config->optim;
    const double t = (double)optim->step + 1;
    const double decay = decay_of(&state->params->list[shard->param], result->weight_decay);
    const struct dcpk_optimizer_state arrays = {.n = shard->n_elems,
                                                .param = shard->main,
                                                .first = shard->exp_avg,
                                                .second = shard->exp_avg_sq,
                                                .grad = shard->grad};
    const struct dcpk_adam adam = {.is_torch_form = o->form == DCPK_ADAM_TORCH,
                                   .lr = result->lr,
                                   .beta1 = o->beta1,
                                   .beta2 = o->beta2,
                                   .epsilon = o->eps,
                                   .weight_decay = decay,
                                   .c1 = 1.0 - pow(o->beta1, t),
                                   .c2 = 1.0 - pow(o->beta2, t)};
    const struct dcpk_sgd sgd = {result->lr, o->momentum, decay};

    if (o->kind == DCPK_ADAM)
        state->math->ops->adam(state->math, &adam, &arrays);
    else
        state->math->ops->sgd(state->math, &sgd, &arrays);
}

dcpk_status dcpk_optim_step(struct dcpk_optim *optim, const struct dcpk_train_state *state,
                            struct dcpk_optim_result *result, struct dcpk_error *err)
{
    struct dcpk_optim_result r = {.lr = dcpk_schedule_lr(&optim->schedule),
                                  .weight_decay = dcpk_schedule_wd(&optim->schedule)};

    if (norm_of_shards(state, &r.norm, err) != DCPK_OK)
        return err->status;
    clip_shards(state, r.norm);
    for (size_t i = 0; i < state->shards->n; i++)
        update_shard(optim, state, &state->shards->list[i], &r);
    if (state->math->ops->wait(state->math, err) != DCPK_OK)
        return err->status;
    optim->step++;
    dcpk_schedule_step(&optim->schedule, state->config->data.global_batch);
    *result = r;
    return DCPK_OK;
}

/* ---- the scale of fp16 ---- */

void dcpk_loss_scale_update(struct dcpk_loss_scale *loss_scale,
                            const struct dcpk_train_precision *precision, bool has_overflow)
{
    if (has_overflow) {
        loss_scale->n_good = 0;
        loss_scale->n_left--;
        if (loss_scale->n_left <= 0)
            loss_scale->scale = fmax(loss_scale->scale / 2, precision->min_scale);
        return;
    }
    loss_scale->n_good++;
    if (loss_scale->n_good < precision->scale_window)
        return;
    loss_scale->n_good = 0;
    loss_scale->n_left = precision->hysteresis;
    loss_scale->scale *= 2;
}

/* ---- sums that no order changes ---- */

#define LOWEST_BIT    (-320) /* of limb 0 */
#define MAX_UNCARRIED (UINT32_C(1) << 30)

void dcpk_exact_sum_carry(struct dcpk_exact_sum *sum)
{
    for (int i = 0; i + 1 < DCPK_EXACT_LIMBS; i++) {
        sum->limb[i + 1] += sum->limb[i] >> 32;
        sum->limb[i] &= UINT32_MAX;
    }
    sum->n_added = 0;
}

void dcpk_exact_sum_add(struct dcpk_exact_sum *sum, double v)
{
    int exponent, at;
    uint64_t bits;

    assert(v >= 0 && v < 0x1p319);
    if (v == 0)
        return;
    bits = (uint64_t)ldexp(frexp(v, &exponent), 53); /* v = bits * 2^(exponent - 53) */
    at = exponent - 53 - LOWEST_BIT;
    if (at < 0) {
        assert(at > -53 && (bits & ((UINT64_C(1) << -at) - 1)) == 0);
        bits >>= -at;
        at = 0;
    }
    for (int i = at / 32, shift = at % 32; bits != 0; i++, shift = 0) {
        sum->limb[i] += (int64_t)((bits << shift) & UINT32_MAX);
        bits >>= 32 - shift;
    }
    if (++sum->n_added == MAX_UNCARRIED)
        dcpk_exact_sum_carry(sum);
}

double dcpk_exact_sum_value(const struct dcpk_exact_sum *sum)
{
    struct dcpk_exact_sum carried = *sum;
    double value = 0;

    dcpk_exact_sum_carry(&carried);
    for (int i = DCPK_EXACT_LIMBS - 1; i >= 0; i--)
        value += ldexp((double)carried.limb[i], LOWEST_BIT + 32 * i);
    return value;
}

/* ---- routers' biases ---- */

/* Counts of a layer among those of all layers: the decoder's, then multi-token prediction's. */
static int64_t *layer_counts(const struct dcpk_train_model *m, int64_t *counts, int64_t layer)
{
    if (layer >= DCPK_TRAIN_MTP)
        layer = layer - DCPK_TRAIN_MTP + m->layers;
    return counts + layer * m->experts;
}

/* Counts the choices of this rank's tokens. Layers of other stages stay 0; tensor-parallel ranks
 * all count the same tokens, which changes no sign. */
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
    st = dcpk_math_copy(state->math, host, buffer, n_bytes, err);
    if (st == DCPK_OK) {
        biases_move(counts, m->experts, m->expert_bias_rate, host);
        st = dcpk_math_copy(state->math, buffer, host, n_bytes, err);
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

/* ---- factors of losses and gradients ---- */

static double batch_places(const struct dcpk_train_config *config)
{
    return (double)(config->data.global_batch * config->model.seq_length);
}

double dcpk_loss_divisor(const struct dcpk_train_config *config)
{
    if (config->precision.compute != DCPK_F16 || config->precision.is_per_token_loss)
        return 1;
    return batch_places(config);
}

float dcpk_loss_factor(const struct dcpk_train_config *config, double scale, const float *mask,
                       size_t n)
{
    double n_tokens = 0, weight = 1;

    for (size_t i = 0; i < n; i++)
        n_tokens += (double)mask[i];
    if (!config->precision.is_per_token_loss && n_tokens > 0)
        weight = (double)n / n_tokens;
    return (float)(weight * scale / dcpk_loss_divisor(config));
}

double dcpk_gradient_factor(const struct dcpk_train_config *config, double scale, int64_t n_tokens)
{
    double n = batch_places(config);

    if (config->precision.is_per_token_loss && n_tokens > 0)
        n = (double)n_tokens;
    return dcpk_loss_divisor(config) / (n * scale);
}
