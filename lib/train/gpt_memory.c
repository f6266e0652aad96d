/* SPDX-License-Identifier: Apache-2.0 */
/* gpt_memory.c - sizes of the model as one rank has it, and the memory of its activations. */
/*
 *   passes     a microbatch    a layer: input norm q k v attention middle norm fc1 act | next layer
 *              ...             P - s of them, as many as 1F1B has under way at once
 *   scratch                    what one layer at a time needs
 *   heads                      of the last stage: logits, losses
 *
 * P stages, this is stage s. With recomputation a pass keeps inputs alone, and all layers share the
 * rest. Everything is taken once, when the model is made.
 */
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/train/gpt_priv.h"

static dcpk_status check_divides(int64_t n, int64_t by, const char *what, struct dcpk_error *err)
{
    if (n % by == 0)
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EUSAGE, "%s: %lld is not a multiple of %lld", what, (long long)n,
                     (long long)by);
}

/* Checks that the contracted dimensions of products are whole slices on every rank. */
static dcpk_status check_slices(const struct dcpk_gpt *gpt, struct dcpk_error *err)
{
    const struct dcpk_train_model *m = gpt->model;
    const int64_t slices = gpt->size.slices, tp = gpt->options.config->layout.tp;
    const int64_t joined = (m->heads + 2 * m->groups) * m->head_dim;

    if (check_divides(slices, tp, "virtual slices over tensor-parallel ranks", err) ||
        check_divides(m->groups, tp, "query groups over tensor-parallel ranks", err) ||
        check_divides(m->heads, m->groups, "heads over query groups", err) ||
        check_divides(m->heads * m->head_dim, slices, "queries over virtual slices", err) ||
        check_divides(joined, slices, "queries, keys and values over virtual slices", err) ||
        check_divides(m->ffn, slices, "the MLP's size over virtual slices", err) ||
        check_divides(m->shared_ffn, slices, "shared experts' size over virtual slices", err) ||
        check_divides(m->padded_vocab, slices, "the padded vocabulary over virtual slices", err))
        return err->status;
    return DCPK_OK;
}

static dcpk_status check_cuts(const struct dcpk_gpt *gpt, struct dcpk_error *err)
{
    const struct dcpk_train_model *m = gpt->model;
    const struct dcpk_grid *layout = &gpt->options.config->layout;
    const struct gpt_sizes *s = &gpt->size;

    if (check_divides(m->seq_length, s->n_chunks * layout->cp, "the sequence over chunks", err) ||
        check_divides(s->chunk, s->leaf, "tokens of a chunk over leaves", err) ||
        check_divides(m->layers, layout->pp, "layers over stages", err) ||
        check_divides(m->experts, layout->ep, "experts over ranks", err) ||
        (m->mtp_layers > 0 &&
         check_divides(m->hidden, s->slices, "hidden over virtual slices", err)))
        return err->status;
    return DCPK_OK;
}

dcpk_status dcpk_gpt_measure(struct dcpk_gpt *gpt, struct dcpk_error *err)
{
    const struct dcpk_train_config *config = gpt->options.config;
    const struct dcpk_train_model *m = gpt->model;
    const int64_t tp = config->layout.tp, cp = config->layout.cp, n_chunks = cp > 1 ? 2 : 1;
    struct gpt_sizes *s = &gpt->size;

    *s = (struct gpt_sizes){.samples = config->data.micro_batch,
                            .seq = m->seq_length,
                            .tokens = m->seq_length / cp,
                            .n_chunks = n_chunks,
                            .chunk = m->seq_length / (n_chunks * cp),
                            .leaf = config->precision.leaf_tokens,
                            .hidden = m->hidden,
                            .head_dim = m->head_dim,
                            .groups = m->groups / tp,
                            .per_group = m->heads / m->groups,
                            .vocab = m->padded_vocab / tp,
                            .slices = config->precision.virtual_slices,
                            .my_slices = config->precision.virtual_slices / tp};
    if (s->leaf == 0)
        s->leaf = s->chunk;
    s->rows = s->samples * s->tokens;
    s->kv = s->groups * s->head_dim;
    s->q = s->kv * s->per_group;
    s->first_slice = gpt_group(gpt, DCPK_G_TP)->rank * s->my_slices;
    if (check_slices(gpt, err) || check_cuts(gpt, err))
        return err->status;
    return DCPK_OK;
}

/* n_elems into the pointer at `address`, released by dcpk_gpt_release. */
static dcpk_status gpt_take(struct dcpk_gpt *gpt, void *address, int64_t n_elems, size_t elem_bytes,
                            struct dcpk_error *err)
{
    const size_t n_bytes = (size_t)n_elems * elem_bytes;
    void *at;

    if (dcpk_grow(&gpt->memory, &gpt->memory_capacity, gpt->n_memory, sizeof *gpt->memory, err) ||
        dcpk_memory_account_alloc(gpt->options.account, DCPK_TAG_ACT, n_bytes, &at, err))
        return err->status;
    gpt->memory[gpt->n_memory++] = (struct gpt_memory){at, n_bytes};
    memcpy(address, &at, sizeof at);
    return DCPK_OK;
}

/* A pointer and what it is to point at. elem_bytes 0: activations of the compute dtype. */
struct want {
    void *address;
    int64_t n_elems;
    size_t elem_bytes;
};

static dcpk_status gpt_take_all(struct dcpk_gpt *gpt, const struct want *wants, size_t n,
                                struct dcpk_error *err)
{
    const size_t bytes = dcpk_dtype_bytes(gpt->dtype);

    for (size_t i = 0; i < n; i++) {
        const size_t elem_bytes = wants[i].elem_bytes != 0 ? wants[i].elem_bytes : bytes;

        if (wants[i].n_elems > 0 &&
            gpt_take(gpt, wants[i].address, wants[i].n_elems, elem_bytes, err))
            return err->status;
    }
    return DCPK_OK;
}

/* The dense MLP's part, or that of shared experts: the larger one that a layer may have. */
static int64_t mlp_columns(const struct dcpk_gpt *gpt)
{
    return dcpk_max_i64(gpt->model->ffn, gpt->model->shared_ffn) / gpt->options.config->layout.tp;
}

/* The most rows that one rank gets for its experts: tokens choose an expert once. */
static int64_t most_received(const struct dcpk_gpt *gpt)
{
    const int64_t ep = gpt->options.config->layout.ep;
    const int64_t n_local = gpt->model->experts / ep;
    const int64_t topk = gpt->model->topk;

    return ep * gpt->size.rows * dcpk_min_i64(topk, n_local);
}

static dcpk_status routed_take(struct dcpk_gpt *gpt, struct gpt_routed *routed,
                               struct dcpk_error *err)
{
    const struct dcpk_train_model *m = gpt->model;
    const int64_t ep = gpt->options.config->layout.ep, n_choices = gpt->size.rows * m->topk;
    const int64_t n_rows = most_received(gpt);
    const struct want wants[] = {
        {&routed->logits, gpt->size.rows * m->experts, sizeof(float)},
        {&routed->probs, n_choices, sizeof(float)},
        {&routed->chosen, n_choices, sizeof(int32_t)},
        {&routed->token, n_choices, sizeof(int32_t)},
        {&routed->place, n_choices, sizeof(int32_t)},
        {&routed->rows, n_rows * m->hidden, 0},
        {&routed->fc1, n_rows * 2 * m->moe_ffn, 0},
        {&routed->act, n_rows * m->moe_ffn, 0},
        {&routed->result, n_choices * m->hidden, 0},
    };

    routed->count = dcpk_arena_array(gpt->arena, (size_t)(m->experts * gpt->n_leaves),
                                     sizeof *routed->count, err);
    routed->sent = dcpk_arena_array(gpt->arena, (size_t)ep, sizeof *routed->sent, err);
    routed->received = dcpk_arena_array(gpt->arena, (size_t)ep, sizeof *routed->received, err);
    if (routed->count == NULL || routed->sent == NULL || routed->received == NULL)
        return err->status;
    return gpt_take_all(gpt, wants, DCPK_COUNT(wants), err);
}

/* Takes the memory that a layer keeps, except its input. */
static dcpk_status kept_take(struct dcpk_gpt *gpt, struct gpt_kept *kept, bool is_moe,
                             struct dcpk_error *err)
{
    const struct gpt_sizes *s = &gpt->size;
    const int64_t raw = gpt->model->has_qk_norm, n = mlp_columns(gpt);
    const struct want wants[] = {
        {&kept->attention_norm, s->rows * s->hidden, 0},
        {&kept->q_raw, raw * s->rows * s->q, 0},
        {&kept->k_raw, raw * s->rows * s->kv, 0},
        {&kept->q, s->rows * s->q, 0},
        {&kept->k, s->samples * s->seq * s->kv, 0},
        {&kept->v, s->samples * s->seq * s->kv, 0},
        {&kept->attention, s->rows * s->q, 0},
        {&kept->middle, s->rows * s->hidden, 0},
        {&kept->mlp_norm, s->rows * s->hidden, 0},
        {&kept->fc1, s->rows * 2 * n, 0},
        {&kept->act, s->rows * n, 0},
    };

    if (gpt_take_all(gpt, wants, DCPK_COUNT(wants), err))
        return err->status;
    if (is_moe)
        return routed_take(gpt, &kept->routed, err);
    return DCPK_OK;
}

static dcpk_status pass_take_rows(struct dcpk_gpt *gpt, struct gpt_pass *pass,
                                  struct dcpk_error *err)
{
    const size_t n = (size_t)gpt->size.rows;

    pass->tokens = dcpk_arena_array(gpt->arena, n, sizeof *pass->tokens, err);
    pass->labels = dcpk_arena_array(gpt->arena, n, sizeof *pass->labels, err);
    pass->mask = dcpk_arena_array(gpt->arena, n, sizeof *pass->mask, err);
    if (pass->tokens == NULL || pass->labels == NULL || pass->mask == NULL)
        return err->status;
    return DCPK_OK;
}

/* Takes the layers of a pass. Those that are computed again share all but their inputs. */
static dcpk_status pass_take(struct dcpk_gpt *gpt, struct gpt_pass *pass, struct dcpk_error *err)
{
    const struct gpt_sizes *s = &gpt->size;
    const bool recomputes = gpt->options.config->fsdp.recomputes;

    pass->kept = dcpk_arena_array(gpt->arena, (size_t)gpt->n_layers, sizeof *pass->kept, err);
    pass->ahead = dcpk_arena_array(gpt->arena, (size_t)gpt->n_mtp, sizeof *pass->ahead, err);
    if (pass->kept == NULL || pass->ahead == NULL || pass_take_rows(gpt, pass, err))
        return err->status;
    for (int64_t i = 0; i < gpt->n_mtp; i++)
        if (pass_take_rows(gpt, &pass->ahead[i], err))
            return err->status;
    for (int64_t i = 0; i < gpt->n_layers; i++) {
        if (recomputes)
            pass->kept[i] = gpt->again;
        else if (kept_take(gpt, &pass->kept[i], gpt->layers[i].experts != NULL, err))
            return err->status;
        if (gpt_take(gpt, &pass->kept[i].input, s->rows * s->hidden, dcpk_dtype_bytes(gpt->dtype),
                     err))
            return err->status;
    }
    return DCPK_OK;
}

static int64_t largest_gradient(const struct dcpk_gpt *gpt)
{
    int64_t n = dcpk_max_i64(gpt->size.leaf * gpt->size.hidden, gpt->size.q);

    for (size_t i = 0; i < gpt->options.params->n; i++) {
        const struct dcpk_train_param *p = gpt_param(gpt, i);

        n = dcpk_max_i64(n, p->shape[0] * p->shape[1]);
    }
    return n;
}

static dcpk_status scratch_take(struct dcpk_gpt *gpt, struct dcpk_error *err)
{
    const struct gpt_sizes *s = &gpt->size;
    const int64_t cp = gpt->options.config->layout.cp;
    const int64_t widest = gpt->n_mtp > 0 ? 2 * s->hidden : s->hidden;
    const int64_t part = 2 * s->seq * s->kv, wide = dcpk_max_i64(s->q, mlp_columns(gpt));
    struct gpt_scratch *scratch = &gpt->scratch;
    const struct want wants[] = {
        {&scratch->slices, s->slices * s->rows * widest, sizeof(float)},
        {&scratch->joined, s->rows * (s->q + 2 * s->kv), 0},
        {&scratch->wide[0], s->rows * wide, 0},
        {&scratch->wide[1], s->rows * wide, 0},
        {&scratch->hidden[0], s->rows * s->hidden, 0},
        {&scratch->hidden[1], s->rows * s->hidden, 0},
        {&scratch->keys[0], s->rows * s->kv, 0},
        {&scratch->keys[1], s->rows * s->kv, 0},
        {&scratch->all_keys, cp * 2 * s->rows * s->kv, 0},
        {&scratch->key_parts, s->seq / s->leaf * part, sizeof(float)},
        {&scratch->key_sums, part, sizeof(float)},
        {&scratch->weight, largest_gradient(gpt), sizeof(float)},
        {&scratch->row_sums, s->slices * s->rows, sizeof(float)},
        {&scratch->tokens, s->rows, sizeof(int32_t)},
        {&gpt->rope, s->rows * s->head_dim, sizeof(float)},
        {&gpt->out, s->rows * s->hidden, 0},
        {&gpt->d, s->rows * s->hidden, 0},
    };

    scratch->host_tokens = dcpk_arena_array(gpt->arena, 2 * (size_t)s->leaf, sizeof(int32_t), err);
    scratch->host_rows = dcpk_arena_array(gpt->arena, (size_t)s->rows, sizeof(float), err);
    if (scratch->host_tokens == NULL || scratch->host_rows == NULL)
        return err->status;
    return gpt_take_all(gpt, wants, DCPK_COUNT(wants), err);
}

static dcpk_status scratch_take_experts(struct dcpk_gpt *gpt, struct dcpk_error *err)
{
    const struct gpt_sizes *s = &gpt->size;
    const struct dcpk_train_model *m = gpt->model;
    const int64_t ep = gpt->options.config->layout.ep, n_choices = s->rows * m->topk;
    struct gpt_scratch *scratch = &gpt->scratch;
    const struct want wants[] = {
        {&scratch->sent, dcpk_max_i64(n_choices * s->hidden, s->rows * m->experts), 0},
        {&scratch->back, most_received(gpt) * s->hidden, 0},
        {&scratch->expert_act, s->rows * m->moe_ffn, 0},
        {&scratch->d_probs, n_choices, sizeof(float)},
        {&scratch->d_logits, s->rows * m->experts, sizeof(float)},
        {&scratch->all_chosen, ep * n_choices, sizeof(int32_t)},
    };

    scratch->host_chosen =
        dcpk_arena_array(gpt->arena, (size_t)((ep + 2) * n_choices), sizeof(int32_t), err);
    scratch->part_bytes = dcpk_arena_array(gpt->arena, 2 * (size_t)ep, sizeof(size_t), err);
    if (scratch->host_chosen == NULL || scratch->part_bytes == NULL)
        return err->status;
    return gpt_take_all(gpt, wants, DCPK_COUNT(wants), err);
}

static dcpk_status head_take(struct dcpk_gpt *gpt, struct gpt_head *head, struct dcpk_error *err)
{
    const struct gpt_sizes *s = &gpt->size;
    const struct want wants[] = {
        {&head->input, s->rows * s->hidden, 0},  {&head->normed, s->rows * s->hidden, 0},
        {&head->logits, s->rows * s->vocab, 0},  {&head->max, s->rows, sizeof(float)},
        {&head->sums, s->rows, sizeof(float)},   {&head->losses, s->rows, sizeof(float)},
        {&head->factor, s->rows, sizeof(float)}, {&head->labels, s->rows, sizeof(int32_t)},
    };

    return gpt_take_all(gpt, wants, DCPK_COUNT(wants), err);
}

static dcpk_status mtp_take(struct dcpk_gpt *gpt, struct gpt_mtp *mtp, bool is_moe,
                            struct dcpk_error *err)
{
    const int64_t n = gpt->size.rows * gpt->size.hidden;
    const struct want wants[] = {
        {&mtp->embedded, n, 0}, {&mtp->joined, 2 * n, 0}, {&mtp->kept.input, n, 0}};

    if (gpt_take_all(gpt, wants, DCPK_COUNT(wants), err))
        return err->status;
    return kept_take(gpt, &mtp->kept, is_moe, err);
}

/* The last stage's: a head for each token that is predicted. */
static dcpk_status heads_take(struct dcpk_gpt *gpt, struct dcpk_error *err)
{
    const int64_t n = gpt->size.rows * gpt->size.hidden;
    struct gpt_scratch *scratch = &gpt->scratch;
    const struct want wants[] = {
        {&scratch->d_joined, 2 * n, 0}, {&scratch->d_ahead[0], n, 0}, {&scratch->d_ahead[1], n, 0}};

    gpt->heads = dcpk_arena_array(gpt->arena, (size_t)gpt->n_mtp + 1, sizeof *gpt->heads, err);
    gpt->mtp = dcpk_arena_array(gpt->arena, (size_t)gpt->n_mtp, sizeof *gpt->mtp, err);
    if (gpt->heads == NULL || gpt->mtp == NULL || head_take(gpt, &gpt->heads[0], err))
        return err->status;
    gpt->heads[0].norm = gpt->outer.param[DCPK_P_FINAL_NORM];
    if (gpt->n_mtp > 0 && gpt_take_all(gpt, wants, DCPK_COUNT(wants), err))
        return err->status;
    for (int64_t i = 0; i < gpt->n_mtp; i++) {
        const struct gpt_layer *layer = &gpt->layers[gpt->n_layers + i];

        gpt->heads[i + 1].norm = layer->param[DCPK_P_MTP_NORM];
        if (head_take(gpt, &gpt->heads[i + 1], err) ||
            mtp_take(gpt, &gpt->mtp[i], layer->experts != NULL, err))
            return err->status;
    }
    return DCPK_OK;
}

dcpk_status dcpk_gpt_allocate(struct dcpk_gpt *gpt, struct dcpk_error *err)
{
    const bool has_experts = gpt->model->experts > 0;

    if (scratch_take(gpt, err) || (has_experts && scratch_take_experts(gpt, err)) ||
        (gpt->is_last && heads_take(gpt, err)) ||
        (gpt->options.config->fsdp.recomputes && kept_take(gpt, &gpt->again, has_experts, err)))
        return err->status;
    for (int64_t i = 0; i < gpt->n_passes; i++)
        if (pass_take(gpt, &gpt->passes[i], err))
            return err->status;
    return DCPK_OK;
}

void dcpk_gpt_release(struct dcpk_gpt *gpt)
{
    for (size_t i = 0; i < gpt->n_memory; i++)
        dcpk_memory_account_free(gpt->options.account, DCPK_TAG_ACT, gpt->memory[i].n_bytes,
                                 gpt->memory[i].at);
    dcpk_free(gpt->memory);
}
