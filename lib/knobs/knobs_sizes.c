/* SPDX-License-Identifier: Apache-2.0 */
/* knobs_sizes.c - sizes of the model, the mesh and the batch: defaults, and what divides what. */
/*
 *   ranks = tp * cp * pp * dp          micro batches = global batch / (micro batch * dp)
 *   stage = layers / pp                sample of a context-parallel rank = 2 chunks of seq / 2 cp
 */
#include <inttypes.h>
#include <string.h>

#include "lib/base/checked.h"
#include "lib/base/order.h"
#include "lib/device/ops.h"
#include "lib/knobs/knobs_priv.h"
#include "lib/model/sizes.h"

#define MAX_DEFAULT_SLICES 8
#define WANTED_BLOCK       64 /* validate_args makes ffn_hidden_size of swiglu a multiple of it */

/* Elements of all parameters, or of one array of activations: their bytes fit 64 bits. */
#define MAX_ELEMS (INT64_C(1) << 56)

/* ---- required sizes, and sizes computed from them ---- */

static dcpk_status sizes_need(const struct dcpk_train_knobs *knobs, struct dcpk_error *err)
{
    static const char *const names[] = {"num_layers", "hidden_size",      "num_attention_heads",
                                        "seq_length", "micro_batch_size", "train_iters"};

    for (size_t i = 0; i < DCPK_COUNT(names); i++)
        if (!dcpk_knobs_was_given(knobs, names[i]))
            return dcpk_fail(err, DCPK_EUSAGE,
                             "%s is not set; a run needs %s, %s, %s, %s, %s and %s", names[i],
                             names[0], names[1], names[2], names[3], names[4], names[5]);
    return DCPK_OK;
}

/* Source: validate_args (megatron/training/arguments.py), __post_init__ (transformer_config.py). */
static void sizes_fill(struct dcpk_train_knobs *knobs)
{
    struct dcpk_train_model *m = &knobs->config.model;

    if (m->ffn == 0)
        m->ffn = 4 * m->hidden * 2 / 3 / WANTED_BLOCK * WANTED_BLOCK;
    if (m->groups == 0 && knobs->is_group_query)
        m->groups = 1;
    if (m->groups == 0)
        m->groups = m->heads;
    if (m->head_dim == 0)
        m->head_dim = m->hidden / m->heads;
    if (m->max_positions == 0)
        m->max_positions = m->seq_length;
    if (m->moe_ffn == 0)
        m->moe_ffn = m->ffn;
}

/* Source: validate_args (megatron/training/arguments.py @core_v0.19.0). */
static dcpk_status sizes_of_heads(const struct dcpk_train_model *m, struct dcpk_error *err)
{
    if (m->head_dim == 0 && m->hidden % m->heads != 0)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "hidden_size (%" PRId64 ") must be a multiple of num_attention_heads "
                         "(%" PRId64 ") without kv_channels; set kv_channels, or choose sizes that "
                         "divide",
                         m->hidden, m->heads);
    return DCPK_OK;
}

/* ---- the mesh and the batch ---- */

static dcpk_status sizes_of_mesh(struct dcpk_train_knobs *knobs, int64_t n_ranks,
                                 struct dcpk_error *err)
{
    struct dcpk_grid *l = &knobs->config.layout;
    uint64_t model = 0;

    if (!dcpk_mul_u64((uint64_t)l->tp, (uint64_t)l->pp, &model) ||
        !dcpk_mul_u64(model, (uint64_t)l->cp, &model))
        model = UINT64_MAX;
    if ((uint64_t)n_ranks % model != 0)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "world size (%" PRId64
                         ") is not divisible by total_model_size (total_model_size=%" PRIu64
                         "); start a multiple of it, or choose other sizes of the mesh",
                         n_ranks, model);
    l->dp = n_ranks / (int64_t)model;
    return DCPK_OK;
}

static dcpk_status sizes_of_batch(struct dcpk_train_knobs *knobs, struct dcpk_error *err)
{
    struct dcpk_train_data *d = &knobs->config.data;
    const int64_t dp = knobs->config.layout.dp;

    d->batch_follows_ranks = d->global_batch == 0;
    if (d->batch_follows_ranks)
        d->global_batch = d->micro_batch * dp;
    if (d->global_batch % (d->micro_batch * dp) != 0)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "global batch size (%" PRId64
                         ") is not divisible by micro batch size (%" PRId64
                         ") times data parallel size (%" PRId64
                         "); choose a global_batch_size that is a multiple of %" PRId64,
                         d->global_batch, d->micro_batch, dp, d->micro_batch * dp);
    return DCPK_OK;
}

/* ---- divisibility ---- */

struct division {
    const char *whole_name, *part_name;
    int64_t whole, part;
};

static dcpk_status sizes_divide(const struct division *list, size_t n, struct dcpk_error *err)
{
    for (size_t i = 0; i < n; i++)
        if (list[i].whole % list[i].part != 0)
            return dcpk_fail(err, DCPK_EUSAGE,
                             "%s (%" PRId64 ") must be a multiple of %s (%" PRId64
                             ").; choose sizes that divide",
                             list[i].whole_name, list[i].whole, list[i].part_name, list[i].part);
    return DCPK_OK;
}

static dcpk_status sizes_of_layers(const struct dcpk_train_config *c, struct dcpk_error *err)
{
    const struct dcpk_train_model *m = &c->model;
    const struct dcpk_grid *l = &c->layout;
    const struct division all[] = {
        {"num_attention_heads", "tensor_model_parallel_size", m->heads, l->tp},
        {"num_query_groups", "tensor_model_parallel_size", m->groups, l->tp},
        {"num_attention_heads", "num_query_groups", m->heads, m->groups},
        {"ffn_hidden_size", "tensor_model_parallel_size", m->ffn, l->tp},
        {"hidden_size", "tensor_model_parallel_size", m->hidden, l->tp},
        {"moe_shared_expert_intermediate_size", "tensor_model_parallel_size", m->shared_ffn, l->tp},
        {"data-parallel times context-parallel size", "num_distributed_optimizer_instances",
         l->dp * l->cp, l->instances},
        {"data-parallel times context-parallel size", "expert_model_parallel_size", l->dp * l->cp,
         l->ep},
        {"data-parallel times context-parallel size",
         "expert_model_parallel_size times num_distributed_optimizer_instances", l->dp * l->cp,
         l->ep * l->instances},
    };

    if (m->layers % l->pp != 0)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "Number of layers should be divisible by the pipeline-model-parallel "
                         "size; %" PRId64 " layers do not make %" PRId64 " equal stages",
                         m->layers, l->pp);
    return sizes_divide(all, DCPK_COUNT(all), err);
}

/*
 * A sum is cut into the same slices on every layout of ranks: by default into 8, or as many fewer
 * as its sizes need. Tensor-parallel ranks divide these sizes, and so the default does not depend
 * on them.
 */
static dcpk_status sizes_of_slices(struct dcpk_train_config *c, struct dcpk_error *err)
{
    const struct dcpk_train_model *m = &c->model;
    const int64_t queries = m->heads * m->head_dim, joined = queries + 2 * m->groups * m->head_dim;
    const int64_t hidden = m->mtp_layers > 0 ? m->hidden : 0;
    int64_t n = MAX_DEFAULT_SLICES;

    while ((queries | joined | m->ffn | m->shared_ffn | m->padded_vocab | hidden) % n != 0)
        n /= 2;
    if (c->precision.virtual_slices == 0)
        c->precision.virtual_slices = n;
    n = c->precision.virtual_slices;
    if (n > DCPK_MAX_SLICES)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "virtual_slices (%" PRId64
                         ") must be at most %d; products are not cut finer",
                         n, DCPK_MAX_SLICES);
    return sizes_divide(
        (const struct division[]){
            {"virtual_slices", "tensor_model_parallel_size", n, c->layout.tp},
            {"num_attention_heads times kv_channels", "virtual_slices", queries, n},
            {"queries, keys and values", "virtual_slices", joined, n},
            {"ffn_hidden_size", "virtual_slices", m->ffn, n},
            {"moe_shared_expert_intermediate_size", "virtual_slices", m->shared_ffn, n},
            {"the padded vocabulary", "virtual_slices", m->padded_vocab, n},
            {"hidden_size with mtp_num_layers", "virtual_slices", hidden, n},
        },
        7, err);
}

static dcpk_status sizes_of_samples(const struct dcpk_train_config *c, struct dcpk_error *err)
{
    const struct dcpk_train_model *m = &c->model;
    const int64_t cp = c->layout.cp, leaf = c->precision.leaf_tokens;
    int64_t chunk = m->seq_length;

    if (cp > 1 && m->seq_length % (2 * cp) != 0)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "seq-length should be a multiple of 2 * context-parallel-size if "
                         "context-parallel-size > 1.; %" PRId64 " is not a multiple of %" PRId64,
                         m->seq_length, 2 * cp);
    if (m->max_positions < m->seq_length)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "max_position_embeddings (%" PRId64
                         ") must be greater than or equal to seq_length (%" PRId64
                         "); leave it out, or raise it",
                         m->max_positions, m->seq_length);
    if (cp > 1)
        chunk = m->seq_length / (2 * cp);
    if (leaf > 0 && chunk % leaf != 0)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "leaf_tokens (%" PRId64 ") does not divide the %" PRId64
                         " tokens that a rank has in a row; choose a divisor of it",
                         leaf, chunk);
    return DCPK_OK;
}

static dcpk_status sizes_of_experts(const struct dcpk_train_config *c, struct dcpk_error *err)
{
    const struct dcpk_train_model *m = &c->model;
    const int64_t ep = c->layout.ep;

    if (m->experts == 0 && ep > 1)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "num_moe_experts must be non None to use expert-parallel.; set "
                         "num_experts, or expert_model_parallel_size to 1");
    if (m->experts % ep != 0)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "Number of experts should be a multiple of expert model parallel_size.; "
                         "%" PRId64 " experts, expert_model_parallel_size %" PRId64,
                         m->experts, ep);
    if (m->experts > 0 && m->topk > m->experts)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "moe_router_topk (%" PRId64 ") is more than num_experts (%" PRId64
                         "); choose fewer",
                         m->topk, m->experts);
    return DCPK_OK;
}

/* Sizes that defaults made of others. */
static dcpk_status sizes_of_width(const struct dcpk_train_model *m, struct dcpk_error *err)
{
    if (m->ffn < 1)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "hidden_size (%" PRId64 ") is too small for a default ffn_hidden_size; "
                         "set ffn_hidden_size",
                         m->hidden);
    if (m->head_dim % 2 != 0)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "kv_channels (%" PRId64 ") must be even: rotary positions turn pairs; "
                         "choose an even one",
                         m->head_dim);
    return DCPK_OK;
}

/* ---- limits of 64 bits ---- */

/* Sizes that a run multiplies; a factor of 0 ends them. */
struct product {
    const char *what;
    int64_t most, factors[5];
};

static dcpk_status sizes_multiply(const struct product *list, size_t n, struct dcpk_error *err)
{
    for (size_t i = 0; i < n; i++) {
        int64_t product = 1;

        for (size_t f = 0; f < DCPK_COUNT(list[i].factors) && list[i].factors[f] != 0; f++)
            if (!dcpk_mul_i64(product, list[i].factors[f], &product) || product > list[i].most)
                return dcpk_fail(err, DCPK_EUSAGE, "%s: more than %" PRId64 "; choose smaller ones",
                                 list[i].what, list[i].most);
    }
    return DCPK_OK;
}

/* The widest rows of parameters and of activations; queries fit. */
static int64_t sizes_widest(const struct dcpk_train_model *m)
{
    int64_t n = dcpk_max_i64(3 * m->heads * m->head_dim, 2 * m->hidden);

    n = dcpk_max_i64(n, 2 * dcpk_max_i64(m->ffn, dcpk_max_i64(m->moe_ffn, m->shared_ffn)));
    return dcpk_max_i64(n, dcpk_max_i64(m->padded_vocab, m->experts));
}

static dcpk_status sizes_of_parameters(const struct dcpk_train_model *m, struct dcpk_error *err)
{
    const struct product queries = {
        "elements of a layer's queries", MAX_ELEMS / 3, {m->heads, m->head_dim}};
    struct product all = {
        "elements of all parameters",
        MAX_ELEMS,
        {m->layers + m->mtp_layers, DCPK_TRAIN_MAX_LAYER_PARAMS + 2 * m->experts, m->hidden}};

    if (sizes_multiply(&queries, 1, err) != DCPK_OK)
        return err->status;
    all.factors[3] = sizes_widest(m);
    return sizes_multiply(&all, 1, err);
}

/* Checks sizes that the run computes later without a check. */
static dcpk_status sizes_of_work(const struct dcpk_train_config *c, struct dcpk_error *err)
{
    const struct dcpk_train_model *m = &c->model;
    const struct dcpk_train_data *d = &c->data;
    const struct dcpk_train_optim *o = &c->optim;
    const int64_t leaf = c->precision.leaf_tokens, widest = sizes_widest(m);
    const int64_t n_leaves = leaf > 0 ? m->seq_length / leaf : 2 * c->layout.cp;
    const struct product all[] = {
        {"activations of a micro batch",
         MAX_ELEMS,
         {d->micro_batch, m->seq_length, widest, c->precision.virtual_slices}},
        {"activations of a micro batch in experts",
         MAX_ELEMS,
         {c->layout.ep, d->micro_batch, m->seq_length, m->topk, widest}},
        {"gradients of a sample's keys",
         MAX_ELEMS,
         {n_leaves, m->seq_length, m->heads, m->head_dim, 2}},
        {"tokens of an iteration", DCPK_MAX_SAMPLES, {d->global_batch, m->seq_length}},
        {"samples of the run", DCPK_MAX_SAMPLES, {d->global_batch, d->train_iters}},
        {"samples of the decay", DCPK_MAX_SAMPLES, {d->global_batch, o->decay_iters}},
        {"samples of the warm-up", DCPK_MAX_SAMPLES, {d->global_batch, o->warmup_iters}},
        {"samples of WSD's decay", DCPK_MAX_SAMPLES, {d->global_batch, o->wsd_iters}},
    };

    return sizes_multiply(all, DCPK_COUNT(all), err);
}

/* Finds the MoE layers: a period, or a list as Python writes it. */
static dcpk_status sizes_of_moe_layers(struct dcpk_train_knobs *knobs, struct dcpk_error *err)
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

dcpk_status dcpk_knobs_check_sizes(struct dcpk_train_knobs *knobs,
                                   const struct dcpk_train_environment *environment,
                                   struct dcpk_error *err)
{
    struct dcpk_train_config *c = &knobs->config;

    if (sizes_need(knobs, err) || sizes_of_mesh(knobs, environment->n_ranks, err) ||
        sizes_of_batch(knobs, err) || sizes_of_heads(&c->model, err))
        return err->status;
    sizes_fill(knobs);
    if (sizes_of_width(&c->model, err) || sizes_of_layers(c, err) || sizes_of_samples(c, err) ||
        sizes_of_experts(c, err))
        return err->status;
    c->model.padded_vocab = dcpk_train_padded_vocab(&c->model, c->layout.tp);
    if (sizes_of_parameters(&c->model, err) || sizes_of_slices(c, err) || sizes_of_work(c, err))
        return err->status;
    return sizes_of_moe_layers(knobs, err);
}

dcpk_status dcpk_train_check_leaves(const struct dcpk_train_config *c, struct dcpk_error *err)
{
    if (c->layout.cp == 1 || c->precision.leaf_tokens > 0 || !c->precision.is_exact)
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EUSAGE,
                     "context_parallel_size is %" PRId64 " and leaf_tokens is not set: gradients "
                     "of a sample would be added in other parts than on one rank; set leaf_tokens "
                     "to %" PRId64 ", or a divisor of it, here and in the run to compare with",
                     c->layout.cp, c->model.seq_length / (2 * c->layout.cp));
}
