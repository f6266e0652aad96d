/* SPDX-License-Identifier: Apache-2.0 */
/* footprint.c - what a step sends and holds, from sizes alone: a rank laid out without a run. */
/*
 * P elements, D ranks, m microbatches; w, c, g bytes of a weight, of a sum on its way, of a kept
 * sum; (D - 1) / D of each is sent:
 *
 *                        gathers                        reductions
 *   no_shard             none                           2 P c
 *   optim                P w                            P c
 *   optim_grads          P w                            m P c
 *   optim_grads_params   2 m P w of units, P w outside  m P c
 *
 *                        weights            main     grads            adam
 *   no_shard, optim      P w                4 own    P g + 4 own      8 of own elements
 *   optim_grads          P w                4 own    P g / D + 4 own  (fill-up has no moments)
 *   optim_grads_params   P w / D, P w out-  4 own    P g / D + 4 own
 *                        side units
 *
 * own: what is left for a rank's optimizer. Native sums in fp32 are the optimizer's gradients: no
 * second 4 own. Memory that is gathered and in flight at one time is found by a walk over the
 * schedule.
 * Megatron: the same without the second 4 own, which is on its way (comm) where dtypes differ.
 * HSDP: D are the inner ranks; a slice is added over O outer ones besides, 2 g P / D. HFSDP: g P /
 * D and w P / D, and own is cut over them, too. Source: megatron_fsdp/param_and_grad_buffer.py
 * @core_v0.19.0.
 */
#include "lib/train/footprint.h"

#include <inttypes.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/report/plain.h"
#include "lib/train/fsdp_priv.h"
#include "lib/train/gpt.h"

/* ---- traffic ---- */

static void predict_calls(struct dcpk_fsdp_traffic *traffic, enum dcpk_fsdp_action action,
                          int64_t n_calls, uint64_t n_bytes)
{
    traffic->n_calls[action] += (uint64_t)n_calls;
    traffic->n_bytes[action] += (uint64_t)n_calls * n_bytes;
}

static void predict_traffic(const struct dcpk_fsdp *f, int64_t n_microbatches,
                            struct dcpk_fsdp_traffic *traffic)
{
    *traffic = (struct dcpk_fsdp_traffic){0};
    for (size_t i = 0; i < f->n_buckets; i++) {
        const struct dcpk_fsdp_bucket *b = &f->buckets[i];
        int64_t n_gathers = 1, n_reductions = 1;

        if (f->strategy == DCPK_NO_SHARD)
            n_gathers = 0;
        if (dcpk_fsdp_cuts_weights(f) && b->unit >= 0)
            n_gathers = 2 * n_microbatches;
        if (dcpk_fsdp_cuts_grads(f))
            n_reductions = n_microbatches;
        predict_calls(traffic, DCPK_FSDP_GATHER, n_gathers, dcpk_fsdp_sent(f, DCPK_FSDP_GATHER, b));
        predict_calls(traffic, DCPK_FSDP_REDUCE, n_reductions,
                      dcpk_fsdp_sent(f, DCPK_FSDP_REDUCE, b));
        predict_calls(traffic, DCPK_FSDP_OUTER_REDUCE, b->outer != NULL,
                      dcpk_fsdp_sent(f, DCPK_FSDP_OUTER_REDUCE, b));
        predict_calls(traffic, DCPK_FSDP_OUTER_GATHER, b->n_own < b->n_slice,
                      dcpk_fsdp_sent(f, DCPK_FSDP_OUTER_GATHER, b));
    }
}

/* ---- memory ---- */

/* Bytes of a unit's whole weights in addition to the two buffers of the pool. */
static uint64_t unit_bytes_outside_pool(const struct dcpk_fsdp *f, size_t unit)
{
    const size_t n_bytes = (size_t)f->units[unit].n_elems * f->compute_bytes;
    const size_t pool_bytes = dcpk_fsdp_pool_bytes(f);

    if (pool_bytes > 0 && (f->options.config->fsdp.has_max_pool || n_bytes == pool_bytes))
        return 0;
    return n_bytes;
}

/* The same of all units that are gathered while a pass in one direction is at `unit`: it, and what
 * prefetch_units (fsdp_gather.c) asks for. Number 0 is before all others in either direction. */
static uint64_t gathered_at(const struct dcpk_fsdp *f, size_t unit, bool is_up)
{
    const bool has_pool = dcpk_fsdp_pool_bytes(f) > 0;
    uint64_t n_bytes = 0;
    int64_t ahead = 0;
    size_t n_live = 0, next = unit;

    if (unit > 0) {
        n_bytes = unit_bytes_outside_pool(f, unit);
        n_live = 1;
    } else if (!is_up) {
        next = f->n_units;
    }
    for (;;) {
        next = is_up ? next + 1 : next - 1;
        if (next == 0 || next >= f->n_units || ahead >= f->prefetch_elems ||
            (has_pool && n_live >= 2))
            return n_bytes;
        n_bytes += unit_bytes_outside_pool(f, next);
        n_live++;
        ahead += f->units[next].n_elems;
    }
}

static uint64_t predict_gathered(const struct dcpk_fsdp *f)
{
    uint64_t most = 0;

    if (!dcpk_fsdp_cuts_weights(f))
        return 0;
    for (size_t u = 0; u < 2 * f->n_units; u++)
        most = dcpk_max_u64(most, gathered_at(f, u / 2, u % 2 == 0));
    return most + 2 * dcpk_fsdp_pool_bytes(f);
}

/* Buckets in the order in which a backward pass reduces them: units downward, then the rest. */
struct backward_walk {
    size_t unit, i;
};

static struct backward_walk walk_begin(const struct dcpk_fsdp *f)
{
    return (struct backward_walk){f->n_units, 0};
}

/* The next bucket, or NULL. *is_new: the first of its unit. */
static const struct dcpk_fsdp_bucket *walk_next(const struct dcpk_fsdp *f, struct backward_walk *w,
                                                bool *is_new)
{
    *is_new = w->unit == f->n_units || w->i == f->units[w->unit].n;
    while (w->unit == f->n_units || w->i == f->units[w->unit].n) {
        if (w->unit == 0)
            return NULL;
        w->unit--;
        w->i = 0;
    }
    return &f->buckets[f->units[w->unit].first + w->i++];
}

/* Sums on their way during a backward pass. */
struct comm_walk {
    const struct dcpk_fsdp *f;
    struct backward_walk push, pop; /* the bucket that is queued, and reduced, next */
    uint64_t held, most;            /* bytes */
    int64_t queued;                 /* elements */
};

static void comm_hold(struct comm_walk *w, int64_t n_elems)
{
    w->held += (uint64_t)n_elems * w->f->comm_bytes;
    w->most = dcpk_max_u64(w->most, w->held);
}

/* Wait for the oldest reductions until at most n_elems are queued. The slice of one that this loop
 * adds to the kept sum is widened first where it is not fp32 (add_slice of fsdp_reduce.c). */
static void comm_drain(struct comm_walk *w, int64_t n_elems)
{
    const bool widens = !w->f->is_exact && !w->f->options.is_megatron &&
                        dcpk_fsdp_cuts_grads(w->f) && w->f->comm != DCPK_F32;

    while (w->queued > n_elems) {
        bool is_new;
        const struct dcpk_fsdp_bucket *b = walk_next(w->f, &w->pop, &is_new);

        if (widens)
            w->most = dcpk_max_u64(w->most, w->held + (uint64_t)b->n_slice * sizeof(float));
        w->held -= (uint64_t)b->n_elems * w->f->comm_bytes;
        w->queued -= b->n_elems;
    }
}

/* Gradients on their way: of the unit whose backward pass runs, and of those queued before it. */
static uint64_t predict_comm(const struct dcpk_fsdp *f)
{
    const bool cuts = dcpk_fsdp_cuts_grads(f);
    struct comm_walk w = {.f = f, .push = walk_begin(f), .pop = walk_begin(f)};
    const struct dcpk_fsdp_bucket *b;
    bool is_new;

    if (!cuts && !dcpk_fsdp_casts_grads(f))
        return 0;
    if (cuts) /* parameters outside units are entered first, and reduced last */
        comm_hold(&w, f->units[0].n_elems);
    while ((b = walk_next(f, &w.push, &is_new)) != NULL) {
        if (!cuts)
            comm_hold(&w, b->n_elems);
        else if (is_new && w.push.unit > 0)
            comm_hold(&w, f->units[w.push.unit].n_elems);
        w.queued += b->n_elems;
        comm_drain(&w, f->queue_elems);
    }
    comm_drain(&w, 0);
    return w.most;
}

/* Elements of parameters in the parts of the optimizer's state that one rank has: of dense buckets
 * part `shard`; inner ranks that share out experts are neighbours. */
static int64_t own_elems(const struct dcpk_fsdp *f, int64_t n_shards, int64_t shard)
{
    const struct dcpk_train_params *params = f->options.params;
    int64_t n = 0;

    for (size_t i = 0; i < params->n; i++) {
        const struct dcpk_train_param *p = &params->list[i];
        const int64_t first = f->spots[i].first, end = first + p->shape[0] * p->shape[1];
        const struct dcpk_fsdp_bucket *b;
        int64_t from, n_outer = 1;

        if (p->is_buffer)
            continue;
        b = &f->buckets[f->spots[i].bucket];
        if (f->is_hfsdp && b->outer != NULL)
            n_outer = b->outer->n_ranks;
        from = (shard / n_outer / (n_shards / b->n_shards) * n_outer + shard % n_outer) * b->n_own;
        if (b->n_shards == 1)
            n += end - first;
        else
            n += dcpk_max_i64(0, dcpk_min_i64(end, from + b->n_own) - dcpk_max_i64(first, from));
    }
    return n;
}

/* A bucket without experts: every stage has one. */
static const struct dcpk_fsdp_bucket *dense_bucket(const struct dcpk_fsdp *f)
{
    const struct dcpk_fsdp_bucket *b = f->buckets;

    while (b->is_expert)
        b++;
    return b;
}

/* Parameters' elements in the optimizer's part of the rank that has most of them, of this stage. */
static int64_t most_own_elems(const struct dcpk_fsdp *f)
{
    const int64_t n_shards = dense_bucket(f)->n_shards;
    int64_t most = 0;

    for (int64_t shard = 0; shard < n_shards; shard++)
        most = dcpk_max_i64(most, own_elems(f, n_shards, shard));
    return most;
}

/* Predicts the memory that both keep over a step, and the memory that is gathered for a while. */
static void predict_kept(const struct dcpk_fsdp *f, uint64_t n_bytes[DCPK_N_TAGS])
{
    const struct dcpk_fsdp_bucket *dense = dense_bucket(f);
    const uint64_t n_moments = (uint64_t)dcpk_train_count_moments(&f->options.config->optim);

    memset(n_bytes, 0, DCPK_N_TAGS * sizeof *n_bytes);
    for (size_t i = 0; i < f->n_buckets; i++) {
        const struct dcpk_fsdp_bucket *b = &f->buckets[i];

        n_bytes[DCPK_TAG_WEIGHTS] += (uint64_t)b->n_weights * f->compute_bytes;
        if (dcpk_fsdp_cuts_weights(f) && b->unit < 0)
            n_bytes[DCPK_TAG_WEIGHTS] += (uint64_t)b->n_elems * f->compute_bytes;
        n_bytes[DCPK_TAG_MAIN] += 4 * (uint64_t)b->n_own;
        n_bytes[DCPK_TAG_GRADS] += (uint64_t)b->n_grads * f->grads_bytes;
    }
    n_bytes[DCPK_TAG_ADAM] = 4 * n_moments * (uint64_t)own_elems(f, dense->n_shards, dense->shard);
    n_bytes[DCPK_TAG_GATHER] = predict_gathered(f);
}

/* The memory of this loop. */
static void predict_memory(const struct dcpk_fsdp *f, uint64_t n_bytes[DCPK_N_TAGS])
{
    const struct dcpk_train_params *params = f->options.params;

    predict_kept(f, n_bytes);
    if (!dcpk_fsdp_shares_grad(f))
        n_bytes[DCPK_TAG_GRADS] += n_bytes[DCPK_TAG_MAIN];
    for (size_t i = 0; i < params->n; i++)
        if (params->list[i].is_buffer)
            n_bytes[DCPK_TAG_WEIGHTS] +=
                4 * (uint64_t)(params->list[i].shape[0] * params->list[i].shape[1]);
    n_bytes[DCPK_TAG_GRADS] += params->n * sizeof *f->bad + sizeof *f->worst;
    n_bytes[DCPK_TAG_COMM] = predict_comm(f);
}

/* The same of Megatron, whose sums are floats (precision.is_exact is false then). */
static void predict_megatron(const struct dcpk_fsdp *f, uint64_t n_bytes[DCPK_N_TAGS])
{
    const struct dcpk_train_precision *p = &f->options.config->precision;

    predict_kept(f, n_bytes);
    if (p->main_grads != p->main_params) /* cast for the step */
        n_bytes[DCPK_TAG_COMM] = n_bytes[DCPK_TAG_MAIN];
    if (dcpk_fsdp_cuts_grads(f))
        n_bytes[DCPK_TAG_COMM] = dcpk_max_u64(n_bytes[DCPK_TAG_COMM], predict_comm(f));
    if (p->main_params != DCPK_F32)
        n_bytes[DCPK_TAG_MAIN] = 0;
}

void dcpk_fsdp_footprint(const struct dcpk_fsdp *f, enum dcpk_footprint_of of,
                         int64_t n_microbatches, struct dcpk_train_footprint *footprint)
{
    const uint64_t n_moments = (uint64_t)dcpk_train_count_moments(&f->options.config->optim);
    const uint64_t max_bytes = 4 * (uint64_t)most_own_elems(f);

    if (of == DCPK_OF_MEGATRON)
        predict_megatron(f, footprint->held);
    else
        predict_memory(f, footprint->held);
    footprint->max_adam_bytes = n_moments * max_bytes;
    footprint->save_copy_bytes = (1 + n_moments) * max_bytes;
    predict_traffic(f, n_microbatches, &footprint->sent);
}

/* ---- activations ---- */

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

/* ---- a rank ---- */

/* A rank that does not run. */
struct planned {
    const struct dcpk_train_config *config;
    struct dcpk_group groups[DCPK_N_GROUPS];
    struct dcpk_train_mesh mesh;
    struct dcpk_train_params params;
    struct dcpk_memory_account account;
    struct dcpk_fsdp *fsdp;
};

static dcpk_status planned_make(struct planned *p, int64_t rank, enum dcpk_footprint_of of,
                                struct dcpk_arena *arena, struct dcpk_error *err)
{
    const struct dcpk_fsdp_options options = {.config = p->config,
                                              .mesh = &p->mesh,
                                              .params = &p->params,
                                              .account = &p->account,
                                              .is_megatron = of == DCPK_OF_MEGATRON};

    if (dcpk_train_mesh_plan(&p->config->layout, rank, p->groups, &p->mesh, err))
        return err->status;
    if (dcpk_train_params(p->config, &p->mesh.at, arena, &p->params, err))
        return err->status;
    return dcpk_fsdp_plan(&options, &p->fsdp, err);
}

/* Megatron's numbers: exact sums are this loop's. */
static void as_asked(struct dcpk_train_precision *p)
{
    if (p->is_exact && p->asked_grads != DCPK_DTYPE_NONE) {
        p->main_grads = p->asked_grads;
        p->comm = p->asked_comm;
    }
    p->is_exact = false;
}

dcpk_status dcpk_train_footprint(const struct dcpk_train_config *config, int64_t rank,
                                 enum dcpk_footprint_of of, struct dcpk_train_footprint *footprint,
                                 struct dcpk_error *err)
{
    const struct dcpk_train_data *data = &config->data;
    struct dcpk_train_config asked = *config;
    struct planned p = {.config = &asked, .account.math = dcpk_memory_counted()};
    const struct dcpk_gpt_options gpt = {
        .config = &asked, .mesh = &p.mesh, .params = &p.params, .account = &p.account};
    struct dcpk_arena *arena = dcpk_arena_new();
    dcpk_status st;

    if (of == DCPK_OF_MEGATRON)
        as_asked(&asked.precision);
    st = planned_make(&p, rank, of, arena, err);
    if (st == DCPK_OK && of == DCPK_OF_THIS_RUN)
        st = dcpk_gpt_count(&gpt, err);
    if (st == DCPK_OK) {
        dcpk_fsdp_footprint(
            p.fsdp, of, data->global_batch / (data->micro_batch * config->layout.dp), footprint);
        footprint->held[DCPK_TAG_ACT] = p.account.most[DCPK_TAG_ACT];
        if (of == DCPK_OF_MEGATRON)
            footprint->held[DCPK_TAG_ACT] = act_bytes(config);
    }
    dcpk_fsdp_free(p.fsdp);
    dcpk_arena_free(arena);
    return st;
}

/* ---- next to the double buffer ---- */

/* The layer that is unit number `unit`. */
static int64_t layer_of_unit(const struct dcpk_train_params *params, size_t unit)
{
    const struct dcpk_train_param *p = params->list;

    while (p->unit + 1 != (int64_t)unit)
        p++;
    return p->layer;
}

/* Lists layers that do not fit; consecutive ones of one size are one entry. */
static void put_layers_apart(const struct planned *p, struct dcpk_bytes *text)
{
    const struct dcpk_fsdp *f = p->fsdp;
    const char *before = ". Apart, because of another size: ";
    char size[DCPK_PLAIN_SIZE_BYTES];

    for (size_t u = 1, end; u < f->n_units; u = end) {
        const uint64_t n_bytes = unit_bytes_outside_pool(f, u);
        const int64_t first = layer_of_unit(&p->params, u);
        const bool is_mtp = first >= DCPK_TRAIN_MTP;

        for (end = u + 1; end < f->n_units && unit_bytes_outside_pool(f, end) == n_bytes &&
                          layer_of_unit(&p->params, end) == first + (int64_t)(end - u);)
            end++;
        if (n_bytes == 0)
            continue;
        dcpk_bytes_printf(text, "%s%slayer%s %" PRId64, before, is_mtp ? "MTP " : "",
                          end > u + 1 ? "s" : "", first % DCPK_TRAIN_MTP);
        if (end > u + 1)
            dcpk_bytes_printf(text, "-%" PRId64, first % DCPK_TRAIN_MTP + (int64_t)(end - u) - 1);
        dcpk_bytes_printf(text, " (%s%s)", dcpk_plain_size(n_bytes, size),
                          end > u + 1 ? " each" : "");
        before = ", ";
    }
}

static void put_apart(const struct planned *p, const struct dcpk_train_apart *apart,
                      struct dcpk_bytes *text)
{
    const bool has_max = p->config->fsdp.has_max_pool;
    char size[DCPK_PLAIN_SIZE_BYTES];

    if (p->config->layout.pp > 1)
        dcpk_bytes_printf(text, "stage %" PRId64 ": ", p->mesh.at.pp);
    dcpk_bytes_printf(text, "the double buffer is two of %s, the size %s",
                      dcpk_plain_size(apart->buffer_bytes, size),
                      has_max ? "of the largest layer" : "that most layers have");
    put_layers_apart(p, text);
    if (apart->layer_bytes > 0)
        dcpk_bytes_printf(text, "; at most %s of them at one time",
                          dcpk_plain_size(apart->layer_bytes, size));
    if (apart->outside_bytes > 0)
        dcpk_bytes_printf(text,
                          ". Outside layers (embedding, norms, head) %s stay whole, in no buffer",
                          dcpk_plain_size(apart->outside_bytes, size));
    if (!has_max)
        dcpk_bytes_text(text, ". Megatron-FSDP has the same limit (FixedPoolAllocator)");
}

dcpk_status dcpk_train_apart(const struct dcpk_train_config *config, int64_t stage,
                             struct dcpk_train_apart *apart, struct dcpk_bytes *text,
                             struct dcpk_error *err)
{
    struct planned p = {.config = config, .account.math = dcpk_memory_counted()};
    struct dcpk_arena *arena = dcpk_arena_new();
    dcpk_status st;

    *apart = (struct dcpk_train_apart){0};
    st = planned_make(&p, dcpk_grid_stage_rank(&config->layout, stage), DCPK_OF_THIS_RUN, arena,
                      err);
    if (st == DCPK_OK && dcpk_fsdp_pool_bytes(p.fsdp) > 0) {
        apart->buffer_bytes = dcpk_fsdp_pool_bytes(p.fsdp);
        apart->layer_bytes = predict_gathered(p.fsdp) - 2 * apart->buffer_bytes;
        apart->outside_bytes = (uint64_t)p.fsdp->units[0].n_elems * p.fsdp->compute_bytes;
        put_apart(&p, apart, text);
        st = dcpk_bytes_status(text, err);
    }
    dcpk_fsdp_free(p.fsdp);
    dcpk_arena_free(arena);
    return st;
}

uint64_t dcpk_train_held_sum(const uint64_t held[DCPK_N_TAGS])
{
    uint64_t sum = 0;

    for (int tag = 0; tag < DCPK_N_TAGS; tag++)
        sum += held[tag];
    return sum;
}

/* Ranks of a stage differ in their parts of the optimizer's state alone. The rank that saves most
 * may differ. */
dcpk_status dcpk_train_footprint_most(const struct dcpk_train_config *config,
                                      enum dcpk_footprint_of of,
                                      struct dcpk_train_footprint *footprint,
                                      struct dcpk_error *err)
{
    struct dcpk_train_footprint most = {.max_adam_bytes = 0}, here;
    uint64_t copy_bytes = 0;

    for (int64_t pp = 0; pp < config->layout.pp; pp++) {
        const int64_t rank = dcpk_grid_stage_rank(&config->layout, pp);

        if (dcpk_train_footprint(config, rank, of, &here, err))
            return err->status;
        here.held[DCPK_TAG_ADAM] = here.max_adam_bytes;
        copy_bytes = dcpk_max_u64(copy_bytes, here.save_copy_bytes);
        if (dcpk_train_held_sum(here.held) > dcpk_train_held_sum(most.held))
            most = here;
    }
    most.save_copy_bytes = copy_bytes;
    *footprint = most;
    return DCPK_OK;
}

/* ---- a run against it ---- */

/* Finds the memory of the rank that held most. held: DCPK_N_TAGS numbers of each rank. */
static void measured_find_most(struct dcpk_train_measured *m, const int64_t *held, int n_ranks)
{
    for (int r = 0; r < n_ranks; r++) {
        uint64_t here[DCPK_N_TAGS];

        for (int tag = 0; tag < DCPK_N_TAGS; tag++)
            here[tag] = (uint64_t)held[r * DCPK_N_TAGS + tag];
        if (dcpk_train_held_sum(here) > dcpk_train_held_sum(m->most_held))
            memcpy(m->most_held, here, sizeof here);
    }
}

dcpk_status dcpk_train_measured_complete(struct dcpk_train_measured *m,
                                         const struct dcpk_train_config *config,
                                         struct dcpk_group *world, struct dcpk_math *math,
                                         struct dcpk_error *err)
{
    const size_t n = (size_t)world->n_ranks * DCPK_N_TAGS;
    int64_t *held = dcpk_alloc_array(n, sizeof *held, err);
    dcpk_status st = err->status;

    if (held != NULL)
        st = dcpk_train_footprint(config, m->rank, DCPK_OF_THIS_RUN, &m->explained, err);
    for (int tag = 0; held != NULL && tag < DCPK_N_TAGS; tag++)
        held[m->rank * DCPK_N_TAGS + tag] = (int64_t)m->held[tag];
    st = dcpk_totals_agree(world, math, st, NULL, 0, err);
    if (st == DCPK_OK)
        st = dcpk_totals_agree(world, math, DCPK_OK, held, n, err);
    if (st == DCPK_OK)
        measured_find_most(m, held, world->n_ranks);
    dcpk_free(held);
    return st;
}

dcpk_status dcpk_train_measured_check(const struct dcpk_train_measured *m, struct dcpk_error *err)
{
    const struct dcpk_train_footprint *explained = &m->explained;

    for (int tag = 0; tag < DCPK_N_TAGS; tag++)
        if (m->held[tag] != explained->held[tag])
            return dcpk_fail(
                err, DCPK_EMISMATCH,
                "rank %" PRId64 " held %" PRIu64 " bytes of '%s', explained are %" PRIu64, m->rank,
                m->held[tag], dcpk_memory_tag_names[tag], explained->held[tag]);
    for (int a = 0; a < DCPK_FSDP_N_ACTIONS; a++)
        if (m->sent.n_bytes[a] != explained->sent.n_bytes[a])
            return dcpk_fail(err, DCPK_EMISMATCH,
                             "rank %" PRId64 " sent %" PRIu64 " bytes a step for '%s', explained "
                             "are %" PRIu64,
                             m->rank, m->sent.n_bytes[a], dcpk_fsdp_action_names[a],
                             explained->sent.n_bytes[a]);
    return DCPK_OK;
}
