/* SPDX-License-Identifier: Apache-2.0 */
/* gpt_moe.c - a mixture of experts: router, tokens on their way to experts and back, gradients. */
/*
 * Every rank of expert parallelism has some experts, one after the other. A token's row goes to
 * each expert that it chose; rows are sent in the order of experts, then tokens:
 *
 *   rows sent by rank 0    | e0: t0 t3 | e1: t1 t2 | e2: t0 | e3: t1 t2 t3 |
 *                               \  to rank 0  /        \   to rank 1   /
 *   rows that rank 1 has   | from 0: e2: t0 | e3: t1 t2 t3 | from 1: e2: ... | e3: ... |
 *
 * A row's result comes back to the place that it was sent from, and a token adds what its slots
 * gave in their order. The choices of all ranks are gathered first, so that everyone knows how many
 * rows of which leaf come from whom.
 * Source: megatron/core/transformer/moe/{router,token_dispatcher,experts}.py @core_v0.19.0.
 */
#include <string.h>

#include "lib/train/gpt_priv.h"

static int64_t local_experts(const struct dcpk_gpt *gpt)
{
    return gpt->model->experts / gpt_group(gpt, DCPK_G_EP)->n_ranks;
}

static struct dcpk_router router_shape(const struct dcpk_gpt *gpt)
{
    const struct dcpk_train_model *m = gpt->model;
    struct dcpk_router shape = {.score = DCPK_SOFTMAX_OF_TOPK,
                                .rows = gpt->size.rows,
                                .experts = m->experts,
                                .topk = m->topk};

    if (m->has_sigmoid || m->has_expert_bias)
        shape.score = DCPK_TOPK_OF_SIGMOID;
    else if (m->has_pre_softmax)
        shape.score = DCPK_TOPK_OF_SOFTMAX;
    return shape;
}

/* The leaf that a row of the microbatch is in. Leaves are of one size, one after the other. */
static int64_t leaf_of_row(const struct dcpk_gpt *gpt, int64_t row)
{
    return row / gpt->leaves[0].n;
}

/* Counts the rows of each leaf that come here, by source and expert; `chosen` is of all ranks. */
static void routes_count(const struct dcpk_gpt *gpt, const int32_t *chosen,
                         struct gpt_routed *routed)
{
    const struct dcpk_group *ep = gpt_group(gpt, DCPK_G_EP);
    const int64_t topk = gpt->model->topk, n = local_experts(gpt),
                  n_choices = gpt->size.rows * topk;

    memset(routed->count, 0, (size_t)(ep->n_ranks * n * gpt->n_leaves) * sizeof *routed->count);
    memset(routed->sent, 0, (size_t)ep->n_ranks * sizeof *routed->sent);
    memset(routed->received, 0, (size_t)ep->n_ranks * sizeof *routed->received);
    for (int64_t from = 0; from < ep->n_ranks; from++)
        for (int64_t i = 0; i < n_choices; i++) {
            const int64_t expert = chosen[from * n_choices + i], to = expert / n;
            const int64_t slot = (from * n + expert % n) * gpt->n_leaves;

            if (from == ep->rank)
                routed->sent[to]++;
            if (to != ep->rank)
                continue;
            routed->received[from]++;
            routed->count[slot + leaf_of_row(gpt, i / topk)]++;
        }
}

/* The order in which this rank sends rows: experts ascending, then tokens, then slots. */
static void routes_order(const struct dcpk_gpt *gpt, const int32_t *chosen, int32_t *token,
                         int32_t *place)
{
    const int64_t topk = gpt->model->topk, n_choices = gpt->size.rows * topk;
    int32_t n = 0;

    for (int64_t expert = 0; expert < gpt->model->experts; expert++)
        for (int64_t i = 0; i < n_choices; i++)
            if (chosen[i] == expert) {
                token[n] = (int32_t)(i / topk);
                place[i] = n++;
            }
}

static void tokens_count(const struct dcpk_gpt *gpt, const int32_t *chosen, int64_t *expert_tokens)
{
    for (int64_t i = 0; i < gpt->size.rows * gpt->model->topk; i++)
        expert_tokens[chosen[i]]++;
}

/* Makes this rank's plan from the choices of every rank. */
static dcpk_status routes_plan(struct dcpk_gpt *gpt, const struct gpt_layer *layer,
                               struct gpt_routed *routed, struct dcpk_error *err)
{
    struct dcpk_group *ep = gpt_group(gpt, DCPK_G_EP);
    const int64_t n = gpt->size.rows * gpt->model->topk;
    const size_t n_bytes = (size_t)n * sizeof *routed->chosen;
    int32_t *all = gpt->scratch.all_chosen, *host = gpt->scratch.host_chosen;
    int32_t *token = host + ep->n_ranks * n, *place = token + n;

    gpt->ops->copy(gpt->math, all + ep->rank * n, routed->chosen, n_bytes);
    if (ep->n_ranks > 1)
        if (gpt->ops->wait(gpt->math, err) ||
            ep->by->all_gather(ep, all + ep->rank * n, n_bytes, all, NULL, err))
            return err->status;
    if (dcpk_math_copy(gpt->math, host, all, (size_t)ep->n_ranks * n_bytes, err))
        return err->status;
    routes_count(gpt, host, routed);
    routes_order(gpt, host + ep->rank * n, token, place);
    if (gpt->pass == DCPK_FORWARD)
        tokens_count(gpt, host + ep->rank * n, layer->expert_tokens);
    gpt->ops->copy(gpt->math, routed->token, token, n_bytes);
    return dcpk_math_copy(gpt->math, routed->place, place, n_bytes, err);
}

/* Rows of hidden to experts, or the other way. One rank: they are there. */
static dcpk_status rows_exchange(struct dcpk_gpt *gpt, const void *send, const size_t *n_send,
                                 void *receive, const size_t *n_receive, struct dcpk_error *err)
{
    struct dcpk_group *ep = gpt_group(gpt, DCPK_G_EP);
    size_t *n_bytes = gpt->scratch.part_bytes;
    struct dcpk_parts sent = {.at = gpt_at(gpt, send, 0), .n_bytes = n_bytes};
    struct dcpk_parts received = {.at = receive, .n_bytes = n_bytes + ep->n_ranks};

    for (int r = 0; r < ep->n_ranks; r++) {
        n_bytes[r] = n_send[r] * gpt_bytes(gpt, gpt->size.hidden);
        n_bytes[ep->n_ranks + r] = n_receive[r] * gpt_bytes(gpt, gpt->size.hidden);
    }
    if (gpt->ops->wait(gpt->math, err))
        return err->status;
    return ep->by->all_to_all(ep, &sent, &received, NULL, err);
}

/* Rows [first, first + n) that one source sent to one expert: fc1, SwiGLU, fc2. */
static void expert_forward(struct dcpk_gpt *gpt, const size_t *weights,
                           const struct gpt_routed *routed, struct gpt_leaf rows, void *out)
{
    const int64_t h = gpt->size.hidden, f = gpt->model->moe_ffn;
    const struct dcpk_matrix shape = {gpt->dtype, rows.n, f};
    void *fc1 = gpt_at(gpt, routed->fc1, rows.first * 2 * f);
    void *act = gpt_at(gpt, routed->act, rows.first * f);

    dcpk_gpt_linear(gpt, weights[0], rows.n, gpt_at(gpt, routed->rows, rows.first * h), fc1);
    gpt->ops->swiglu(gpt->math, &shape, fc1, act);
    dcpk_gpt_linear(gpt, weights[1], rows.n, act, gpt_at(gpt, out, rows.first * h));
}

/* Rows that came from `source` for local expert `expert`. */
static int64_t count_rows(const struct dcpk_gpt *gpt, const struct gpt_routed *routed,
                          int64_t source, int64_t expert)
{
    const int64_t *count = routed->count + (source * local_experts(gpt) + expert) * gpt->n_leaves;
    int64_t n = 0;

    for (int64_t i = 0; i < gpt->n_leaves; i++)
        n += count[i];
    return n;
}

static void experts_forward(struct dcpk_gpt *gpt, const struct gpt_layer *layer,
                            const struct gpt_routed *routed, void *out)
{
    struct gpt_leaf rows = {0};

    for (int64_t source = 0; source < gpt_group(gpt, DCPK_G_EP)->n_ranks; source++)
        for (int64_t e = 0; e < local_experts(gpt); e++, rows.first += rows.n) {
            rows.n = count_rows(gpt, routed, source, e);
            if (rows.n > 0)
                expert_forward(gpt, layer->experts[e], routed, rows, out);
        }
}

static struct dcpk_combine combine_shape(const struct dcpk_gpt *gpt)
{
    return (struct dcpk_combine){.dtype = gpt->dtype,
                                 .rows = gpt->size.rows,
                                 .columns = gpt->size.hidden,
                                 .topk = gpt->model->topk};
}

static void router_forward(struct dcpk_gpt *gpt, const struct gpt_layer *layer,
                           struct gpt_kept *kept)
{
    const struct dcpk_router shape = router_shape(gpt);
    const size_t bias = layer->param[DCPK_P_EXPERT_BIAS];
    void *logits = gpt->scratch.sent;

    dcpk_gpt_linear(gpt, layer->param[DCPK_P_ROUTER], shape.rows, kept->mlp_norm, logits);
    gpt->ops->cast(gpt->math, gpt->dtype, DCPK_F32, shape.rows * shape.experts, logits,
                   kept->routed.logits);
    gpt->ops->router(gpt->math, &shape, kept->routed.logits,
                     bias == DCPK_NO_PARAM ? NULL : gpt_weight(gpt, bias), kept->routed.chosen,
                     kept->routed.probs);
}

dcpk_status dcpk_gpt_moe(struct dcpk_gpt *gpt, const struct gpt_layer *layer, struct gpt_kept *kept,
                         void *y, struct dcpk_error *err)
{
    struct gpt_routed *routed = &kept->routed;
    const int64_t n_sent = gpt->size.rows * gpt->model->topk;
    const struct dcpk_matrix sent = {gpt->dtype, n_sent, gpt->size.hidden};
    const struct dcpk_combine shape = combine_shape(gpt);
    struct gpt_scratch *scratch = &gpt->scratch;

    router_forward(gpt, layer, kept);
    if (routes_plan(gpt, layer, routed, err))
        return err->status;
    gpt->ops->gather_rows(gpt->math, &sent, routed->token, kept->mlp_norm, scratch->sent);
    if (rows_exchange(gpt, scratch->sent, routed->sent, routed->rows, routed->received, err))
        return err->status;
    experts_forward(gpt, layer, routed, scratch->back);
    if (rows_exchange(gpt, scratch->back, routed->received, routed->result, routed->sent, err))
        return err->status;
    gpt->ops->combine(gpt->math, &shape, routed->place, routed->probs, routed->result, y);
    return DCPK_OK;
}

/* Rows of one source for one expert: `counts` of each leaf, from row `first` on. */
struct routed_rows {
    int64_t first, n;
    const int64_t *counts;
};

static void expert_weight(struct dcpk_gpt *gpt, size_t param, const struct routed_rows *rows,
                          const void *dy, const void *x)
{
    struct gpt_leaf leaf = {.first = rows->first};

    for (int64_t i = 0; i < gpt->n_leaves; i++, leaf.first += leaf.n) {
        leaf.n = rows->counts[i];
        dcpk_gpt_linear_leaf(gpt, param, leaf, dy, x);
    }
}

/* scratch->back has the gradient of these rows' results; it gets that of the rows themselves. */
static void expert_backward(struct dcpk_gpt *gpt, const size_t *weights,
                            const struct gpt_routed *routed, const struct routed_rows *rows)
{
    const int64_t h = gpt->size.hidden, f = gpt->model->moe_ffn;
    const struct dcpk_matrix shape = {gpt->dtype, rows->n, f};
    void *d = gpt_at(gpt, gpt->scratch.back, rows->first * h);
    void *fc1 = gpt_at(gpt, routed->fc1, rows->first * 2 * f);
    void *d_act = gpt->scratch.expert_act;

    expert_weight(gpt, weights[1], rows, gpt->scratch.back, routed->act);
    dcpk_gpt_linear_input(gpt, weights[1], rows->n, d, d_act);
    gpt->ops->swiglu_backward(gpt->math, &shape, fc1, d_act, fc1);
    expert_weight(gpt, weights[0], rows, routed->fc1, routed->rows);
    dcpk_gpt_linear_input(gpt, weights[0], rows->n, fc1, d);
}

static void experts_backward(struct dcpk_gpt *gpt, const struct gpt_layer *layer,
                             const struct gpt_routed *routed)
{
    struct routed_rows rows = {.counts = routed->count};

    for (int64_t source = 0; source < gpt_group(gpt, DCPK_G_EP)->n_ranks; source++)
        for (int64_t e = 0; e < local_experts(gpt); e++) {
            rows.n = count_rows(gpt, routed, source, e);
            if (rows.n > 0)
                expert_backward(gpt, layer->experts[e], routed, &rows);
            rows.first += rows.n;
            rows.counts += gpt->n_leaves;
        }
}

/* scratch->d_probs to the router's weight, and into d_input. */
static void router_backward(struct dcpk_gpt *gpt, const struct gpt_layer *layer,
                            const struct gpt_kept *kept, void *d_input)
{
    const struct dcpk_router shape = router_shape(gpt);
    const size_t param = layer->param[DCPK_P_ROUTER];
    struct gpt_scratch *scratch = &gpt->scratch;
    void *d_logits = scratch->sent;

    gpt->ops->router_backward(gpt->math, &shape, kept->routed.logits, kept->routed.chosen,
                              scratch->d_probs, scratch->d_logits);
    gpt->ops->cast(gpt->math, DCPK_F32, gpt->dtype, shape.rows * shape.experts, scratch->d_logits,
                   d_logits);
    dcpk_gpt_linear_weight(gpt, param, d_logits, kept->mlp_norm);
    dcpk_gpt_linear_input(gpt, param, shape.rows, d_logits, d_input);
}

dcpk_status dcpk_gpt_moe_backward(struct dcpk_gpt *gpt, const struct gpt_layer *layer,
                                  const struct gpt_kept *kept, const void *dy, void *dx,
                                  struct dcpk_error *err)
{
    const struct gpt_routed *routed = &kept->routed;
    const struct dcpk_combine shape = combine_shape(gpt);
    struct gpt_scratch *scratch = &gpt->scratch;
    void *d_input = scratch->hidden[1];

    gpt->ops->combine_probs(gpt->math, &shape, routed->place, routed->result, dy, scratch->d_probs);
    gpt->ops->combine_rows(gpt->math, &shape, routed->place, routed->probs, dy, scratch->sent);
    if (rows_exchange(gpt, scratch->sent, routed->sent, scratch->back, routed->received, err))
        return err->status;
    experts_backward(gpt, layer, routed);
    if (rows_exchange(gpt, scratch->back, routed->received, scratch->sent, routed->sent, err))
        return err->status;
    gpt->ops->combine(gpt->math, &shape, routed->place, NULL, scratch->sent, dx);
    router_backward(gpt, layer, kept, d_input);
    gpt->ops->add(gpt->math, gpt->dtype, shape.rows * shape.columns, dx, d_input, dx);
    return DCPK_OK;
}
