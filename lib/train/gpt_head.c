/* SPDX-License-Identifier: Apache-2.0 */
/* gpt_head.c - the ends of the model: the word embedding; logits and the loss. */
/*
 *   x[i]  = E[token i]                          dE[t] = sum of dx[i] over the i with token i = t
 *
 *   z     = norm(x) W^T                         one logit for each row of the vocabulary
 *   loss  = m + log(s) - z[label]               m = max of z, s = sum of exp(z[v] - m) over v
 *   dz[v] = (exp(z[v] - m) / s - [v = label]) * mask * factor
 *
 * Tensor-parallel ranks share out the rows of E and W, so each has some columns of z: m is the
 * maximum over ranks, s is made of slices (lib/device/ops.h), and z[label] is a sum to which one
 * rank adds and the others give 0.
 * Source: megatron/core/tensor_parallel/cross_entropy.py @core_v0.19.0, VocabParallelCrossEntropy.
 */
#include <math.h>
#include <stdlib.h>

#include "lib/base/order.h"
#include "lib/train/gpt_priv.h"

/* Every row is one rank's, and zeros of the others: sums are exact. The slices' memory is free. */
static dcpk_status embedding_join(struct dcpk_gpt *gpt, void *x, struct dcpk_error *err)
{
    struct dcpk_group *tp = gpt_group(gpt, DCPK_G_TP);
    const int64_t n = gpt->size.rows * gpt->size.hidden;
    void *all = gpt->scratch.slices;

    if (dcpk_math_copy(gpt->math, gpt_at(gpt, all, tp->rank * n), x, gpt_bytes(gpt, n), err) ||
        tp->by->all_gather(tp, gpt_at(gpt, all, tp->rank * n), gpt_bytes(gpt, n), all, NULL, err))
        return err->status;
    gpt->ops->zero(gpt->math, x, gpt_bytes(gpt, n));
    for (int64_t r = 0; r < tp->n_ranks; r++)
        gpt->ops->add(gpt->math, gpt->dtype, n, x, gpt_at(gpt, all, r * n), x);
    return DCPK_OK;
}

dcpk_status dcpk_gpt_embed(struct dcpk_gpt *gpt, const int32_t *tokens, void *x,
                           struct dcpk_error *err)
{
    const size_t param = gpt->outer.param[DCPK_P_EMBEDDING];
    const struct dcpk_train_param *p = gpt_param(gpt, param);
    const struct dcpk_embedding shape = {.dtype = gpt->dtype,
                                         .n_tokens = gpt->size.rows,
                                         .columns = gpt->size.hidden,
                                         .first = p->offset[0],
                                         .vocab_rows = p->shape[0]};

    gpt->ops->copy(gpt->math, gpt->scratch.tokens, tokens, (size_t)gpt->size.rows * sizeof *tokens);
    gpt->ops->embedding(gpt->math, &shape, gpt->scratch.tokens, gpt_weight(gpt, param), x);
    if (gpt_group(gpt, DCPK_G_TP)->n_ranks == 1)
        return DCPK_OK;
    return embedding_join(gpt, x, err);
}

static int compare_tokens(const void *a, const void *b)
{
    const int32_t *x = a, *y = b;

    return DCPK_THREE_WAY(*x, *y);
}

/*
 * Number the tokens of a leaf that this rank has the rows of by their order: `rows` are theirs,
 * ascending, `numbers` one for each token, -1 for another rank's. Returns how many rows.
 */
static int64_t tokens_number(const struct dcpk_train_param *p, const int32_t *tokens, int64_t n,
                             int32_t *rows, int32_t *numbers)
{
    int64_t n_mine = 0, n_rows = 0;

    for (int64_t i = 0; i < n; i++) {
        const int64_t row = tokens[i] - p->offset[0];

        if (row >= 0 && row < p->shape[0])
            rows[n_mine++] = (int32_t)row;
    }
    qsort(rows, (size_t)n_mine, sizeof *rows, compare_tokens);
    for (int64_t i = 0; i < n_mine; i++)
        if (i == 0 || rows[i] != rows[n_rows - 1])
            rows[n_rows++] = rows[i];
    for (int64_t i = 0; i < n; i++) {
        const int32_t row = (int32_t)(tokens[i] - p->offset[0]);
        const int32_t *found = bsearch(&row, rows, (size_t)n_rows, sizeof *rows, compare_tokens);

        numbers[i] = found == NULL ? -1 : (int32_t)(found - rows);
    }
    return n_rows;
}

static dcpk_status embed_leaf(struct dcpk_gpt *gpt, const int32_t *tokens, struct gpt_leaf leaf,
                              const void *dx, struct dcpk_error *err)
{
    const size_t param = gpt->outer.param[DCPK_P_EMBEDDING];
    struct dcpk_weights *weights = gpt->options.weights;
    const int64_t h = gpt->size.hidden;
    int32_t *rows = gpt->scratch.host_tokens, *numbers = rows + leaf.n;
    const int64_t n_rows =
        tokens_number(gpt_param(gpt, param), tokens + leaf.first, leaf.n, rows, numbers);
    const struct dcpk_embedding shape = {
        .dtype = gpt->dtype, .n_tokens = leaf.n, .columns = h, .vocab_rows = n_rows};
    float *dw = gpt->scratch.weight;

    if (n_rows == 0)
        return DCPK_OK;
    gpt->ops->copy(gpt->math, gpt->scratch.tokens, numbers, (size_t)leaf.n * sizeof *numbers);
    gpt->ops->zero(gpt->math, dw, (size_t)(n_rows * h) * sizeof *dw);
    gpt->ops->embedding_weight(gpt->math, &shape, gpt->scratch.tokens,
                               gpt_at(gpt, dx, leaf.first * h), dw);
    for (int64_t i = 0; i < n_rows; i++)
        weights->ops->add(weights, param, rows[i], 1, dw + i * h);
    return gpt->ops->wait(gpt->math, err); /* the host's numbers are used again */
}

/* The same with a gradient of all rows: a device passes over them sooner than it starts to work on
 * each. Zeros change no sum. */
static void embed_leaf_whole(struct dcpk_gpt *gpt, const int32_t *tokens, struct gpt_leaf leaf,
                             const void *dx)
{
    const size_t param = gpt->outer.param[DCPK_P_EMBEDDING];
    const struct dcpk_train_param *p = gpt_param(gpt, param);
    struct dcpk_weights *weights = gpt->options.weights;
    const struct dcpk_embedding shape = {.dtype = gpt->dtype,
                                         .n_tokens = leaf.n,
                                         .columns = gpt->size.hidden,
                                         .first = p->offset[0],
                                         .vocab_rows = p->shape[0]};
    float *dw = gpt->scratch.weight;

    gpt->ops->copy(gpt->math, gpt->scratch.tokens, tokens + leaf.first,
                   (size_t)leaf.n * sizeof *tokens);
    gpt->ops->zero(gpt->math, dw, (size_t)(p->shape[0] * p->shape[1]) * sizeof *dw);
    gpt->ops->embedding_weight(gpt->math, &shape, gpt->scratch.tokens,
                               gpt_at(gpt, dx, leaf.first * gpt->size.hidden), dw);
    weights->ops->add(weights, param, 0, p->shape[0], dw);
}

dcpk_status dcpk_gpt_embed_backward(struct dcpk_gpt *gpt, const int32_t *tokens, const void *dx,
                                    struct dcpk_error *err)
{
    for (int64_t i = 0; i < gpt->n_leaves; i++) {
        if (!gpt->math->device->ops->is_host)
            embed_leaf_whole(gpt, tokens, gpt->leaves[i], dx);
        else if (embed_leaf(gpt, tokens, gpt->leaves[i], dx, err))
            return err->status;
    }
    return DCPK_OK;
}

/* The output layer's weight; a tied model's is the word embedding where the rank has it. */
static size_t output_param(const struct dcpk_gpt *gpt)
{
    if (gpt->outer.param[DCPK_P_OUTPUT] != DCPK_NO_PARAM)
        return gpt->outer.param[DCPK_P_OUTPUT];
    return gpt->outer.param[DCPK_P_EMBEDDING];
}

static struct dcpk_cross_entropy loss_shape(const struct dcpk_gpt *gpt)
{
    return (struct dcpk_cross_entropy){.dtype = gpt->dtype,
                                       .rows = gpt->size.rows,
                                       .columns = gpt->size.vocab,
                                       .first = gpt_group(gpt, DCPK_G_TP)->rank * gpt->size.vocab,
                                       .n_slices = gpt->size.my_slices};
}

/* Losses of all rows from this rank's columns of their logits. */
static dcpk_status losses_of_logits(struct dcpk_gpt *gpt, struct gpt_head *head,
                                    struct dcpk_error *err)
{
    const struct dcpk_cross_entropy shape = loss_shape(gpt);
    struct dcpk_group *tp = gpt_group(gpt, DCPK_G_TP);
    const size_t n = (size_t)shape.rows;
    float *sums = gpt->scratch.row_sums;

    gpt->ops->cross_entropy_max(gpt->math, &shape, head->logits, head->max);
    gpt->ops->cross_entropy_labels(gpt->math, &shape, head->logits, head->labels, head->losses);
    if (tp->n_ranks > 1)
        if (gpt->ops->wait(gpt->math, err) ||
            tp->by->all_reduce(tp, DCPK_MAX_F32, head->max, n, NULL, err) ||
            tp->by->all_reduce(tp, DCPK_SUM_F32, head->losses, n, NULL, err))
            return err->status;
    gpt->ops->cross_entropy_sums(gpt->math, &shape, head->logits, head->max,
                                 sums + gpt->size.first_slice * shape.rows);
    if (dcpk_gpt_add_slices(gpt, 1, DCPK_F32, sums, head->sums, err))
        return err->status;
    gpt->ops->cross_entropy(gpt->math, shape.rows, head->max, head->sums, head->losses,
                            head->losses);
    return DCPK_OK;
}

/* The bound of a rank's sum, so that the sum over the last stage is an integer, too. */
static int64_t losses_limit(const struct dcpk_gpt *gpt)
{
    return INT64_MAX / (gpt->options.mesh->n_ranks / gpt->options.config->layout.pp);
}

/* Integers, so that no order of adding changes the sum. A loss that has no place in it is noted:
 * this rank finishes the step, for which others wait. */
static void loss_add(struct dcpk_gpt *gpt, int64_t row, double loss, int64_t *sum)
{
    const int64_t limit = losses_limit(gpt);
    const double units = ldexp(loss, 32);
    int64_t all;

    /* A NaN fails as well. */
    if (units > -(double)limit && units < (double)limit &&
        !__builtin_add_overflow(*sum, llrint(units), &all) && all > -limit && all < limit)
        *sum = all;
    else if (!gpt->bad_loss.is_there)
        gpt->bad_loss = (struct gpt_bad_loss){true, row, loss};
}

dcpk_status dcpk_gpt_check_losses(const struct dcpk_gpt *gpt, struct dcpk_error *err)
{
    const struct gpt_bad_loss *bad = &gpt->bad_loss;

    if (!bad->is_there)
        return DCPK_OK;
    if (!isfinite(bad->value))
        return dcpk_fail(err, DCPK_ERANGE, "the loss of token %lld of a microbatch is %g",
                         (long long)bad->row, bad->value);
    return dcpk_fail(err, DCPK_ERANGE,
                     "the loss of token %lld of a microbatch is %g: a rank's losses of a step pass "
                     "%g, the most that are added",
                     (long long)bad->row, bad->value, ldexp((double)losses_limit(gpt), -32));
}

static dcpk_status losses_add(struct dcpk_gpt *gpt, const struct gpt_head *head,
                              const struct gpt_pass *pass, int64_t *sum, struct dcpk_error *err)
{
    const float *losses = gpt->scratch.host_rows;

    if (dcpk_math_copy(gpt->math, gpt->scratch.host_rows, head->losses,
                       (size_t)gpt->size.rows * sizeof *losses, err))
        return err->status;
    for (int64_t i = 0; i < gpt->size.rows; i++)
        loss_add(gpt, i, (double)losses[i] * (double)pass->mask[i], sum);
    return DCPK_OK;
}

dcpk_status dcpk_gpt_head(struct dcpk_gpt *gpt, struct gpt_head *head, const struct gpt_pass *pass,
                          int64_t *sum, struct dcpk_error *err)
{
    gpt->ops->copy(gpt->math, head->labels, pass->labels,
                   (size_t)gpt->size.rows * sizeof *pass->labels);
    dcpk_gpt_norm(gpt, head->norm, 1, head->input, head->normed);
    dcpk_gpt_linear(gpt, output_param(gpt), gpt->size.rows, head->normed, head->logits);
    if (losses_of_logits(gpt, head, err))
        return err->status;
    return losses_add(gpt, head, pass, sum, err);
}

dcpk_status dcpk_gpt_head_backward(struct dcpk_gpt *gpt, struct gpt_head *head,
                                   const struct gpt_pass *pass, const void *more, void *d,
                                   struct dcpk_error *err)
{
    const struct dcpk_cross_entropy shape = loss_shape(gpt);
    const struct dcpk_cross_entropy_backward data = {.logits = head->logits,
                                                     .labels = head->labels,
                                                     .max = head->max,
                                                     .sum = head->sums,
                                                     .factor = head->factor,
                                                     .d_logits = head->logits};
    float *factor = gpt->scratch.host_rows;

    for (int64_t i = 0; i < gpt->size.rows; i++)
        factor[i] = pass->mask[i] * pass->factor;
    if (dcpk_math_copy(gpt->math, head->factor, factor, (size_t)gpt->size.rows * sizeof *factor,
                       err))
        return err->status;
    gpt->ops->cross_entropy_backward(gpt->math, &shape, &data);
    dcpk_gpt_linear_weight(gpt, output_param(gpt), head->logits, head->normed);
    if (dcpk_gpt_linear_input_cut(gpt, output_param(gpt), head->logits, d, err))
        return err->status;
    if (more != NULL)
        gpt->ops->add(gpt->math, gpt->dtype, shape.rows * gpt->size.hidden, d, more, d);
    dcpk_gpt_norm_backward(gpt, head->norm, 1, head->input, d);
    return DCPK_OK;
}
