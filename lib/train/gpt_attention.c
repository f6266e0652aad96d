/* SPDX-License-Identifier: Apache-2.0 */
/* gpt_attention.c - attention with grouped queries and rotary positions, its gradients, and
 * context parallelism. */
/*
 * A row of the projection has its query groups one after the other, each with its heads:
 *
 *     | q0 q1 .. k v | q2 q3 .. k v | ...        per_group queries, one key, one value
 *
 * Context parallelism with C ranks cuts a sample into 2 C chunks; rank r has chunks r and
 * 2 C - 1 - r, so that all have the same work under the causal mask:
 *
 *     C = 2:   | rank 0 | rank 1 | rank 1 | rank 0 |
 *
 * Ranks gather keys and values of the whole sample. Backward, queries give gradients to all keys:
 * those of one leaf's queries are a part of their own, ranks gather all parts, and each adds them
 * leaf by leaf, in the order of tokens.
 * Source of the chunks: megatron/core/utils.py @core_v0.19.0, get_batch_on_this_cp_rank.
 */
#include <math.h>

#include "lib/train/gpt_priv.h"

/* The start of chunk 0 or 1 of this rank in the sample. */
static int64_t chunk_first(const struct dcpk_gpt *gpt, int64_t cp, int64_t which)
{
    const int64_t n_chunks = gpt->size.seq / gpt->size.chunk;

    return (which == 0 ? cp : n_chunks - 1 - cp) * gpt->size.chunk;
}

/* The columns of `heads` heads in each query group of the joined rows, into rows of their own. */
static struct dcpk_strided_rows group_columns(const struct dcpk_gpt *gpt, int64_t heads)
{
    const struct gpt_sizes *s = &gpt->size;

    return (struct dcpk_strided_rows){.dtype = gpt->dtype,
                                      .rows = s->rows * s->groups,
                                      .columns = heads * s->head_dim,
                                      .from_stride = (s->per_group + 2) * s->head_dim,
                                      .to_stride = heads * s->head_dim};
}

static void qkv_split(struct dcpk_gpt *gpt, void *q, void *k, void *v)
{
    const struct gpt_sizes *s = &gpt->size;
    const struct dcpk_strided_rows queries = group_columns(gpt, s->per_group);
    const struct dcpk_strided_rows keys = group_columns(gpt, 1);
    const void *joined = gpt->scratch.joined;

    gpt->ops->copy_rows(gpt->math, &queries, joined, q);
    gpt->ops->copy_rows(gpt->math, &keys, gpt_at(gpt, joined, s->per_group * s->head_dim), k);
    gpt->ops->copy_rows(gpt->math, &keys, gpt_at(gpt, joined, (s->per_group + 1) * s->head_dim), v);
}

static void qkv_join(struct dcpk_gpt *gpt, const void *q, const void *k, const void *v)
{
    const struct gpt_sizes *s = &gpt->size;
    struct dcpk_strided_rows queries = group_columns(gpt, s->per_group);
    struct dcpk_strided_rows keys = group_columns(gpt, 1);
    void *joined = gpt->scratch.joined;

    queries.to_stride = keys.to_stride = keys.from_stride;
    queries.from_stride = queries.columns;
    keys.from_stride = keys.columns;
    gpt->ops->copy_rows(gpt->math, &queries, q, joined);
    gpt->ops->copy_rows(gpt->math, &keys, k, gpt_at(gpt, joined, s->per_group * s->head_dim));
    gpt->ops->copy_rows(gpt->math, &keys, v, gpt_at(gpt, joined, (s->per_group + 1) * s->head_dim));
}

static struct dcpk_rope rope_shape(const struct dcpk_gpt *gpt, int64_t heads)
{
    return (struct dcpk_rope){.dtype = gpt->dtype,
                              .rows = gpt->size.rows,
                              .heads = heads,
                              .head_dim = gpt->size.head_dim};
}

/* Keys or values of one rank, to their places in whole samples. */
static void keys_place(struct dcpk_gpt *gpt, int64_t cp, const void *from, void *to)
{
    const struct gpt_sizes *s = &gpt->size;

    for (int64_t i = 0; i < s->samples; i++)
        for (int64_t c = 0; c < s->n_chunks; c++) {
            const int64_t row = i * s->seq + chunk_first(gpt, cp, c);

            gpt->ops->copy(gpt->math, gpt_at(gpt, to, row * s->kv),
                           gpt_at(gpt, from, (i * s->tokens + c * s->chunk) * s->kv),
                           gpt_bytes(gpt, s->chunk * s->kv));
        }
}

/* scratch.keys, this rank's, into whole samples. */
static dcpk_status keys_gather(struct dcpk_gpt *gpt, struct gpt_kept *kept, struct dcpk_error *err)
{
    struct dcpk_group *cp = gpt_group(gpt, DCPK_G_CP);
    const int64_t n = gpt->size.rows * gpt->size.kv;
    void *all = gpt->scratch.all_keys;
    void *mine = gpt_at(gpt, all, cp->rank * 2 * n);

    gpt->ops->copy(gpt->math, mine, gpt->scratch.keys[0], gpt_bytes(gpt, n));
    gpt->ops->copy(gpt->math, gpt_at(gpt, mine, n), gpt->scratch.keys[1], gpt_bytes(gpt, n));
    if (cp->n_ranks > 1)
        if (gpt->ops->wait(gpt->math, err) ||
            cp->by->all_gather(cp, mine, gpt_bytes(gpt, 2 * n), all, NULL, err))
            return err->status;
    for (int64_t r = 0; r < cp->n_ranks; r++) {
        keys_place(gpt, r, gpt_at(gpt, all, 2 * r * n), kept->k);
        keys_place(gpt, r, gpt_at(gpt, all, (2 * r + 1) * n), kept->v);
    }
    return DCPK_OK;
}

static struct dcpk_attention attention_shape(const struct dcpk_gpt *gpt, int64_t rows,
                                             int64_t first)
{
    const struct gpt_sizes *s = &gpt->size;

    return (struct dcpk_attention){.dtype = gpt->dtype,
                                   .rows = rows,
                                   .first = first,
                                   .n_keys = s->seq,
                                   .groups = s->groups,
                                   .per_group = s->per_group,
                                   .head_dim = s->head_dim,
                                   .scale = (float)(1 / sqrt((double)s->head_dim))};
}

static void heads_forward(struct dcpk_gpt *gpt, struct gpt_kept *kept)
{
    const struct gpt_sizes *s = &gpt->size;

    for (int64_t i = 0; i < s->samples; i++)
        for (int64_t c = 0; c < s->n_chunks; c++) {
            const struct dcpk_attention shape = attention_shape(
                gpt, s->chunk, chunk_first(gpt, gpt_group(gpt, DCPK_G_CP)->rank, c));
            const int64_t q = (i * s->tokens + c * s->chunk) * s->q, k = i * s->seq * s->kv;

            gpt->ops->attention(gpt->math, &shape, gpt_at(gpt, kept->q, q), gpt_at(gpt, kept->k, k),
                                gpt_at(gpt, kept->v, k), gpt_at(gpt, kept->attention, q));
        }
}

dcpk_status dcpk_gpt_attention(struct dcpk_gpt *gpt, const struct gpt_layer *layer,
                               struct gpt_kept *kept, struct dcpk_error *err)
{
    const struct gpt_sizes *s = &gpt->size;
    const int64_t heads = s->groups * s->per_group;
    const struct dcpk_rope q_shape = rope_shape(gpt, heads), k_shape = rope_shape(gpt, s->groups);
    struct gpt_scratch *scratch = &gpt->scratch;

    dcpk_gpt_norm(gpt, layer->param[DCPK_P_INPUT_NORM], 1, kept->input, kept->attention_norm);
    dcpk_gpt_linear(gpt, layer->param[DCPK_P_QKV], s->rows, kept->attention_norm, scratch->joined);
    if (gpt->model->has_qk_norm) {
        qkv_split(gpt, kept->q_raw, kept->k_raw, scratch->keys[1]);
        dcpk_gpt_norm(gpt, layer->param[DCPK_P_Q_NORM], heads, kept->q_raw, kept->q);
        dcpk_gpt_norm(gpt, layer->param[DCPK_P_K_NORM], s->groups, kept->k_raw, scratch->keys[0]);
    } else {
        qkv_split(gpt, kept->q, scratch->keys[0], scratch->keys[1]);
    }
    gpt->ops->rope(gpt->math, &q_shape, gpt->rope, kept->q, kept->q);
    gpt->ops->rope(gpt->math, &k_shape, gpt->rope, scratch->keys[0], scratch->keys[0]);
    if (keys_gather(gpt, kept, err))
        return err->status;
    heads_forward(gpt, kept);
    if (dcpk_gpt_linear_cut(gpt, layer->param[DCPK_P_PROJ], kept->attention, scratch->hidden[0],
                            err))
        return err->status;
    gpt->ops->add(gpt->math, gpt->dtype, s->rows * s->hidden, kept->input, scratch->hidden[0],
                  kept->middle);
    return DCPK_OK;
}

/* Elements of one part of keys' and values' gradients. */
static int64_t part_elems(const struct gpt_sizes *s)
{
    return 2 * s->seq * s->kv;
}

/* Queries of this rank's leaves of a sample: d_q, and a part of keys' gradients from each. */
static void heads_backward(struct dcpk_gpt *gpt, const struct gpt_kept *kept, int64_t sample,
                           const void *d_out, void *d_q)
{
    const struct gpt_sizes *s = &gpt->size;
    const struct dcpk_group *cp = gpt_group(gpt, DCPK_G_CP);
    const int64_t n_parts = s->tokens / s->leaf;
    const int64_t k = sample * s->seq * s->kv;

    for (int64_t i = 0; i < n_parts; i++) {
        const int64_t token = i * s->leaf, q = (sample * s->tokens + token) * s->q;
        const int64_t c = token / s->chunk;
        const struct dcpk_attention shape =
            attention_shape(gpt, s->leaf, chunk_first(gpt, cp->rank, c) + token - c * s->chunk);
        float *part = gpt->scratch.key_parts + (cp->rank * n_parts + i) * part_elems(s);
        const struct dcpk_attention_backward data = {.q = gpt_at(gpt, kept->q, q),
                                                     .k = gpt_at(gpt, kept->k, k),
                                                     .v = gpt_at(gpt, kept->v, k),
                                                     .d_out = gpt_at(gpt, d_out, q),
                                                     .d_q = gpt_at(gpt, d_q, q),
                                                     .d_k = part,
                                                     .d_v = part + part_elems(s) / 2};

        gpt->ops->attention_backward(gpt->math, &shape, &data);
    }
}

/* The number of the gathered part that belongs to the leaf that begins with `token`. */
static int64_t part_of_token(const struct dcpk_gpt *gpt, int64_t token)
{
    const struct gpt_sizes *s = &gpt->size;
    const int64_t n_chunks = s->seq / s->chunk, chunk = token / s->chunk;
    const bool is_second = 2 * chunk >= n_chunks; /* of this rank's two; one alone is the first */
    const int64_t cp = is_second ? n_chunks - 1 - chunk : chunk;

    return cp * (s->tokens / s->leaf) + (is_second * s->chunk + token % s->chunk) / s->leaf;
}

/* Add the parts of a sample, and take the gradients of this rank's keys and values. */
static dcpk_status parts_add(struct dcpk_gpt *gpt, int64_t sample, struct dcpk_error *err)
{
    const struct gpt_sizes *s = &gpt->size;
    struct dcpk_group *cp = gpt_group(gpt, DCPK_G_CP);
    const int64_t n = part_elems(s), mine = s->tokens / s->leaf * n;
    float *parts = gpt->scratch.key_parts, *sums = gpt->scratch.key_sums;

    if (cp->n_ranks > 1)
        if (gpt->ops->wait(gpt->math, err) ||
            cp->by->all_gather(cp, parts + cp->rank * mine, (size_t)mine * sizeof *parts, parts,
                               NULL, err))
            return err->status;
    gpt->ops->zero(gpt->math, sums, (size_t)n * sizeof *sums);
    for (int64_t token = 0; token < s->seq; token += s->leaf)
        gpt->ops->accumulate(gpt->math, DCPK_F32, n, parts + part_of_token(gpt, token) * n, sums);
    for (int64_t c = 0; c < 2 * s->n_chunks; c++) {
        const int64_t number = c % s->n_chunks, is_value = c / s->n_chunks;
        const int64_t from = chunk_first(gpt, cp->rank, number);
        const int64_t to = sample * s->tokens + number * s->chunk;

        gpt->ops->cast(gpt->math, DCPK_F32, gpt->dtype, s->chunk * s->kv,
                       sums + is_value * n / 2 + from * s->kv,
                       gpt_at(gpt, gpt->scratch.keys[is_value], to * s->kv));
    }
    return DCPK_OK;
}

/* d_q and scratch.keys become gradients of what the projection gave. */
static void rotation_backward(struct dcpk_gpt *gpt, const struct gpt_layer *layer,
                              const struct gpt_kept *kept, void *d_q)
{
    const int64_t heads = gpt->size.groups * gpt->size.per_group;
    const struct dcpk_rope q_shape = rope_shape(gpt, heads);
    const struct dcpk_rope k_shape = rope_shape(gpt, gpt->size.groups);
    void *d_k = gpt->scratch.keys[0];

    gpt->ops->rope_backward(gpt->math, &q_shape, gpt->rope, d_q, d_q);
    gpt->ops->rope_backward(gpt->math, &k_shape, gpt->rope, d_k, d_k);
    if (!gpt->model->has_qk_norm)
        return;
    dcpk_gpt_norm_backward(gpt, layer->param[DCPK_P_Q_NORM], heads, kept->q_raw, d_q);
    dcpk_gpt_norm_backward(gpt, layer->param[DCPK_P_K_NORM], gpt->size.groups, kept->k_raw, d_k);
}

dcpk_status dcpk_gpt_attention_backward(struct dcpk_gpt *gpt, const struct gpt_layer *layer,
                                        const struct gpt_kept *kept, void *d,
                                        struct dcpk_error *err)
{
    const size_t proj = layer->param[DCPK_P_PROJ], qkv = layer->param[DCPK_P_QKV];
    struct gpt_scratch *scratch = &gpt->scratch;
    void *d_out = scratch->wide[0], *d_q = scratch->wide[1], *d_input = scratch->hidden[0];

    dcpk_gpt_linear_weight(gpt, proj, d, kept->attention);
    dcpk_gpt_linear_input(gpt, proj, gpt->size.rows, d, d_out);
    for (int64_t i = 0; i < gpt->size.samples; i++) {
        heads_backward(gpt, kept, i, d_out, d_q);
        if (parts_add(gpt, i, err))
            return err->status;
    }
    rotation_backward(gpt, layer, kept, d_q);
    qkv_join(gpt, d_q, scratch->keys[0], scratch->keys[1]);
    dcpk_gpt_linear_weight(gpt, qkv, scratch->joined, kept->attention_norm);
    if (dcpk_gpt_linear_input_cut(gpt, qkv, scratch->joined, d_input, err))
        return err->status;
    dcpk_gpt_norm_backward(gpt, layer->param[DCPK_P_INPUT_NORM], 1, kept->input, d_input);
    gpt->ops->add(gpt->math, gpt->dtype, gpt->size.rows * gpt->size.hidden, d, d_input, d);
    return DCPK_OK;
}
