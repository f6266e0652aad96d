/* SPDX-License-Identifier: Apache-2.0 */
/* footprint.c - buffers of a configuration, laid out without a run; formulas over their sizes. */
#include "lib/train/footprint.h"

#include <string.h>

#include "lib/base/order.h"
#include "lib/train/fsdp_shares.h"

/* Parameters of one rank, as the layout takes them, and where it puts them. */
struct measured {
    struct dcpk_arena *arena;
    const struct dcpk_train_config *config;
    struct dcpk_train_params table;
    struct dcpk_fsdp_param *params;
    struct dcpk_fsdp_place *places;
    size_t n;
};

static dcpk_status measured_lay_out(struct measured *m, int64_t pp, struct dcpk_error *err)
{
    const int64_t bucket_elems =
        dcpk_train_bucket_elems(m->config, pp, m->config->fsdp.overlaps_reduce);

    m->params = dcpk_arena_array(m->arena, m->table.n, sizeof *m->params, err);
    m->places = dcpk_arena_array(m->arena, m->table.n, sizeof *m->places, err);
    if (m->params == NULL || m->places == NULL)
        return err->status;
    for (size_t i = 0; i < m->table.n; i++) {
        if (!m->table.list[i].is_buffer)
            m->params[m->n++] = dcpk_fsdp_flat(m->config, &m->table.list[i]);
    }
    return dcpk_fsdp_layout(m->params, m->n, bucket_elems, m->places, err);
}

static int64_t measured_elems(const struct dcpk_fsdp_param *param)
{
    int64_t n = 1;

    for (int a = 0; a < param->rank; a++)
        n *= param->shape[a];
    return n;
}

/* Counts a buffer; n_elems: filled up, but whole (no_shard) as its parameters are. */
static void measured_add(const struct measured *m, const struct dcpk_fsdp_param *param,
                         int64_t n_elems, struct dcpk_train_sizes *s)
{
    const bool is_expert = (param->group & 1) != 0;
    const struct dcpk_fsdp_shares ranks = dcpk_fsdp_count_shares(m->config, is_expert);
    const int64_t sent = n_elems - n_elems / ranks.n_reduce;
    int64_t n_slice = n_elems;

    if (dcpk_fsdp_strategy(m->config) != DCPK_NO_SHARD)
        n_slice = n_elems / ranks.n_reduce;
    s->n_whole += n_elems;
    s->n_slices += n_slice;
    s->n_own += n_elems / ranks.n_shards;
    s->n_sent += sent;
    s->n_sent_outer += n_slice - n_slice / ranks.n_outer;
    if (param->is_in_unit)
        return;
    s->n_whole_outside += n_elems;
    s->n_sent_outside += sent;
}

/* A buffer is counted where its first parameter stands. Scratch, zeroed: elements by unit, buffers
 * that were met. */
static void measured_count(const struct measured *m, struct dcpk_train_sizes *s,
                           int64_t *unit_elems, bool *is_met)
{
    for (size_t i = 0; i < m->n; i++) {
        int64_t n_elems = measured_elems(&m->params[i]);

        s->n_params += n_elems;
        if (dcpk_fsdp_strategy(m->config) != DCPK_NO_SHARD) {
            if (is_met[m->places[i].bucket])
                continue;
            is_met[m->places[i].bucket] = true;
            n_elems = m->places[i].bucket_elems;
        }
        measured_add(m, &m->params[i], n_elems, s);
        if (m->params[i].is_in_unit)
            unit_elems[(m->params[i].group >> 2) - 1] += n_elems;
    }
    for (int64_t u = 0; u < m->table.n_units; u++) {
        s->n_units += unit_elems[u] > 0;
        s->n_largest_unit = dcpk_max_i64(s->n_largest_unit, unit_elems[u]);
    }
}

/* Parameters in the slices of rank r; a rank of fewer expert-parallel places repeats theirs. */
static int64_t measured_own(const struct measured *m, int64_t r)
{
    int64_t n = 0;

    for (size_t i = 0; i < m->n; i++) {
        const int64_t shards = m->params[i].n_shards, first = m->places[i].first;
        const int64_t slice = m->places[i].bucket_elems / shards, from = r % shards * slice;
        const int64_t end = first + measured_elems(&m->params[i]);

        if (shards == 1)
            n += end - first;
        else
            n += dcpk_max_i64(0, dcpk_min_i64(end, from + slice) - dcpk_max_i64(first, from));
    }
    return n;
}

dcpk_status dcpk_train_measure(const struct dcpk_train_config *config,
                               const struct dcpk_train_place *place, struct dcpk_train_sizes *sizes,
                               struct dcpk_error *err)
{
    const int64_t n_ranks = dcpk_fsdp_count_shares(config, false).n_shards;
    struct measured m = {.arena = dcpk_arena_new(0, err), .config = config};
    int64_t *unit_elems;
    bool *is_met;

    *sizes = (struct dcpk_train_sizes){0};
    if (m.arena == NULL)
        return err->status;
    if (dcpk_train_params(config, place, m.arena, &m.table, err) ||
        measured_lay_out(&m, place->pp, err))
        goto out;
    unit_elems = dcpk_arena_array(m.arena, (size_t)m.table.n_units + 1, sizeof *unit_elems, err);
    is_met = dcpk_arena_array(m.arena, m.n, sizeof *is_met, err);
    if (unit_elems == NULL || is_met == NULL)
        goto out;
    measured_count(&m, sizes, unit_elems, is_met);
    sizes->n_own_least = INT64_MAX;
    for (int64_t r = 0; r < n_ranks; r++) {
        const int64_t n = measured_own(&m, r);

        sizes->n_own_least = dcpk_min_i64(sizes->n_own_least, n);
        sizes->n_own_most = dcpk_max_i64(sizes->n_own_most, n);
    }
out:
    dcpk_arena_free(m.arena);
    return err->status;
}

/* ---- formulas ---- */

/* Elements of one token that backward reads of a layer: both norms' inputs and outputs, queries,
 * keys and values, the attention's output; gate and up, and their product. */
static double act_of_layer(const struct dcpk_train_config *c, int64_t layer)
{
    const struct dcpk_train_model *m = &c->model;
    const double tp = (double)c->layout.tp;
    double mlp = 3 * (double)m->ffn / tp;

    if (dcpk_train_is_moe(m, layer))
        mlp = 3 * ((double)m->topk * (double)m->moe_ffn + (double)m->shared_ffn / tp);
    return 4 * (double)m->hidden + 2 * (double)((m->heads + m->groups) * m->head_dim) / tp + mlp;
}

static uint64_t act_bytes(const struct dcpk_train_config *c)
{
    const struct dcpk_train_model *m = &c->model;
    const double w = (double)dcpk_dtype_bytes(c->precision.compute);
    const double tokens = (double)(c->data.micro_batch * m->seq_length) / (double)c->layout.cp;
    double of_stage = 0, most = 0;
    int64_t first, last;

    dcpk_train_stage(c, 0, &first, &last);
    for (int64_t l = first; l < last; l++) {
        const double here = act_of_layer(c, l);

        of_stage += c->fsdp.recomputes ? (double)m->hidden : here;
        if (here > most)
            most = here;
    }
    if (c->fsdp.recomputes)
        of_stage += most;
    /* 1F1B: the first stage has as many micro batches under way as there are stages. Where there
     * is one, it has the logits, in the compute dtype and as fp32. */
    of_stage *= (double)c->layout.pp * w;
    if (c->layout.pp == 1)
        of_stage += (w + 4) * (double)m->padded_vocab / (double)c->layout.tp;
    return (uint64_t)(of_stage * tokens);
}

/* Elements that may wait to be reduced. */
static int64_t queue_elems(const struct dcpk_train_config *c, const struct dcpk_train_sizes *s)
{
    return dcpk_train_queue_elems(c, s->n_units, s->n_whole - s->n_whole_outside);
}

/* The most elements of gathered units: the current one, and those that are gathered ahead. */
static int64_t gathered_elems(const struct dcpk_train_config *c, const struct dcpk_train_sizes *s)
{
    const int64_t of_units = s->n_whole - s->n_whole_outside;
    int64_t n_live = 2;

    if (s->n_units == 0)
        return 0;
    if (!c->fsdp.has_double_buffer)
        n_live = 1 + (queue_elems(c, s) / 2 + s->n_largest_unit - 1) / s->n_largest_unit;
    return dcpk_min_i64(of_units, dcpk_min_i64(n_live, s->n_units) * s->n_largest_unit);
}

/* The most elements of gradients on their way: what lies outside units is reduced last. */
static int64_t comm_elems(const struct dcpk_train_config *c, const struct dcpk_train_sizes *s)
{
    int64_t waiting = queue_elems(c, s);

    if (c->fsdp.has_double_buffer)
        waiting = dcpk_min_i64(waiting, s->n_largest_unit);
    return dcpk_min_i64(s->n_whole, s->n_whole_outside + s->n_largest_unit + waiting);
}

uint64_t dcpk_train_copy_bytes(const struct dcpk_train_config *config,
                               const struct dcpk_train_sizes *sizes)
{
    const uint64_t n_arrays = 1 + (uint64_t)dcpk_train_count_moments(&config->optim);

    return 4 * n_arrays * (uint64_t)sizes->n_own_most;
}

void dcpk_train_footprint(const struct dcpk_train_config *config,
                          const struct dcpk_train_sizes *sizes, uint64_t n_bytes[DCPK_N_TAGS])
{
    const struct dcpk_train_precision *p = &config->precision;
    const uint64_t w = dcpk_dtype_bytes(p->compute), g = dcpk_dtype_bytes(p->main_grads);
    const enum dcpk_strategy strategy = config->fsdp.strategy;
    const uint64_t n_moments = (uint64_t)dcpk_train_count_moments(&config->optim);
    uint64_t n_weights = (uint64_t)sizes->n_whole, n_grads = n_weights;

    if (strategy >= DCPK_OPTIM_GRADS)
        n_grads = (uint64_t)sizes->n_slices;
    if (strategy == DCPK_OPTIM_GRADS_PARAMS)
        n_weights = (uint64_t)(sizes->n_slices + sizes->n_whole_outside);
    memset(n_bytes, 0, DCPK_N_TAGS * sizeof *n_bytes);
    n_bytes[DCPK_TAG_WEIGHTS] = w * n_weights;
    n_bytes[DCPK_TAG_GRADS] = g * n_grads;
    if (p->main_params == DCPK_F32)
        n_bytes[DCPK_TAG_MAIN] = 4 * (uint64_t)sizes->n_own;
    n_bytes[DCPK_TAG_ADAM] = 4 * n_moments * (uint64_t)sizes->n_own_most;
    if (p->main_grads != p->main_params) /* cast for the step */
        n_bytes[DCPK_TAG_COMM] = 4 * (uint64_t)sizes->n_own;
    if (strategy == DCPK_OPTIM_GRADS_PARAMS)
        n_bytes[DCPK_TAG_GATHER] = w * (uint64_t)gathered_elems(config, sizes);
    if (strategy >= DCPK_OPTIM_GRADS)
        n_bytes[DCPK_TAG_COMM] =
            dcpk_max_u64(n_bytes[DCPK_TAG_COMM],
                         dcpk_dtype_bytes(p->comm) * (uint64_t)comm_elems(config, sizes));
    n_bytes[DCPK_TAG_ACT] = act_bytes(config);
}

void dcpk_train_volume(const struct dcpk_train_config *config, const struct dcpk_train_sizes *sizes,
                       struct dcpk_train_volume *volume)
{
    const struct dcpk_train_data *d = &config->data;
    const uint64_t w = dcpk_dtype_bytes(config->precision.compute);
    const uint64_t g = dcpk_dtype_bytes(config->precision.comm);
    const uint64_t kept = dcpk_dtype_bytes(config->precision.main_grads);
    const uint64_t outer = (uint64_t)sizes->n_sent_outer;
    const uint64_t all = (uint64_t)sizes->n_sent, outside = (uint64_t)sizes->n_sent_outside;
    const uint64_t m = (uint64_t)(d->global_batch / (d->micro_batch * config->layout.dp));

    switch (config->fsdp.strategy) {
    case DCPK_NO_SHARD:
        *volume = (struct dcpk_train_volume){0, 2 * all * g};
        break;
    case DCPK_OPTIM:
        *volume = (struct dcpk_train_volume){all * w, all * g};
        break;
    case DCPK_OPTIM_GRADS:
        *volume = (struct dcpk_train_volume){all * w, m * all * g};
        break;
    case DCPK_OPTIM_GRADS_PARAMS:
        *volume =
            (struct dcpk_train_volume){2 * m * (all - outside) * w + outside * w, m * all * g};
        break;
    }
    if (config->layout.is_outer_sharded) {
        volume->gather_bytes += outer * w;
        volume->reduce_bytes += outer * kept;
    } else {
        volume->reduce_bytes += 2 * outer * kept;
    }
}
