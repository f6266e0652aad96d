/* SPDX-License-Identifier: Apache-2.0 */
/* make_tensors.c - the tensors of a Llama-like model and the chunks that TP2 PP2 ranks write. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "tests/bench/make_priv.h"

/* How tensor parallelism cuts a parameter. */
enum cut { WHOLE, ROWS, COLUMNS, GATED_ROWS };

static const struct param {
    const char *name;
    enum cut cut;
    bool is_layer;
} params[] = {
    {"embedding.word_embeddings.weight", ROWS, false},
    {"self_attention.linear_qkv.layer_norm_weight", WHOLE, true},
    {"self_attention.linear_proj.weight", COLUMNS, true},
    {"self_attention.linear_qkv.weight", ROWS, true},
    {"mlp.linear_fc1.layer_norm_weight", WHOLE, true},
    {"mlp.linear_fc1.weight", GATED_ROWS, true},
    {"mlp.linear_fc2.weight", COLUMNS, true},
    {"decoder.final_layernorm.weight", WHOLE, false},
    {"output_layer.weight", ROWS, false},
};
#define N_PARAMS (sizeof params / sizeof *params)

static const char *const prefixes[DCPK_N_BENCH_KINDS] = {
    "", "optimizer.state.param.", "optimizer.state.exp_avg.", "optimizer.state.exp_avg_sq."};

/* The full shape of one layer's parameter; returns its rank. */
static int param_shape(const struct dcpk_bench_sizes *s, size_t p, int64_t shape[2])
{
    const int64_t head = s->hidden / s->heads;
    const int64_t rows[N_PARAMS] = {
        s->vocab,  s->hidden, s->hidden, (s->heads + 2 * s->groups) * head, s->hidden, 2 * s->ffn,
        s->hidden, s->hidden, s->vocab};
    const int64_t columns[N_PARAMS] = {s->hidden, 0, s->heads * head, s->hidden, 0, s->hidden,
                                       s->ffn,    0, s->hidden};

    shape[0] = rows[p];
    shape[1] = columns[p];
    return columns[p] == 0 ? 1 : 2;
}

static int64_t param_elems(const struct dcpk_bench_sizes *s, size_t p)
{
    int64_t shape[2];

    return param_shape(s, p, shape) == 1 ? shape[0] : shape[0] * shape[1];
}

/* Parameters in one layer, or outside the layers. */
int64_t dcpk_bench_count_elems(const struct dcpk_bench_sizes *s, bool in_layer)
{
    int64_t n = 0;

    for (size_t p = 0; p < N_PARAMS; p++)
        if (params[p].is_layer == in_layer)
            n += param_elems(s, p);
    return n;
}

/* Which of the generation's files a chunk goes to: B has two a rank. */
static uint32_t file_of(const struct dcpk_making *m, int pp, int tp)
{
    const uint32_t rank = (uint32_t)(pp * N_TP + tp);

    return m->has_common_file ? 2 * rank + (uint32_t)(m->out->n_chunks % 2) : rank;
}

static dcpk_status add_chunk(struct dcpk_making *m, uint32_t tensor, int rank, const int64_t *span,
                             uint32_t file, struct dcpk_recipe recipe, struct dcpk_error *err)
{
    struct dcpk_output *out = m->out;
    int64_t *kept = dcpk_arena_array(out->arena, 2 * (size_t)rank, sizeof *kept, err);
    dcpk_status st;

    if (kept == NULL)
        return err->status;
    st = dcpk_grow(&out->chunks, &out->chunks_capacity, out->n_chunks, sizeof *out->chunks, err);
    if (st == DCPK_OK)
        st = dcpk_grow(&m->recipes, &m->recipes_capacity, out->n_chunks, sizeof *m->recipes, err);
    if (st != DCPK_OK)
        return st;
    memcpy(kept, span, 2 * (size_t)rank * sizeof *kept);
    recipe.key = recipe.key * 1000003 + (uint64_t)out->tensors[tensor].n_chunks;
    m->recipes[out->n_chunks] = recipe;
    out->chunks[out->n_chunks++] =
        (struct dcpk_out_chunk){.tensor = tensor, .file = file, .span = kept};
    out->tensors[tensor].n_chunks++;
    return DCPK_OK;
}

/*
 * The chunks of one layer's parameter. In a stacked tensor they lie at index `layer` of axis 0.
 *
 *     ROWS   tp0   COLUMNS  tp0 tp1   GATED_ROWS  gate tp0
 *            tp1            tp0 tp1               gate tp1
 *                                                 up tp0
 *                                                 up tp1
 */
static dcpk_status add_layer_chunks(struct dcpk_making *m, uint32_t tensor, size_t p,
                                    enum dcpk_bench_kind kind, int64_t layer, int pp,
                                    struct dcpk_error *err)
{
    const struct dcpk_out_tensor *t = &m->out->tensors[tensor];
    const int lead = m->sizes.is_stacked && params[p].is_layer ? 1 : 0;
    const int axis = lead + (params[p].cut == COLUMNS ? 1 : 0);
    const int64_t n_halves = params[p].cut == GATED_ROWS ? 2 : 1;
    const int n_tp = params[p].cut == WHOLE ? 1 : N_TP;
    const int64_t part = t->shape[axis] / n_halves / n_tp;
    const struct dcpk_recipe recipe = {.kind = kind, .key = (uint64_t)layer * N_PARAMS + p};
    dcpk_status st = DCPK_OK;

    for (int64_t half = 0; half < n_halves; half++)
        for (int tp = 0; tp < n_tp && st == DCPK_OK; tp++) {
            int64_t span[6] = {0};

            if (lead)
                span[0] = layer;
            memcpy(span + t->rank, t->shape, (size_t)t->rank * sizeof *span);
            if (lead)
                span[t->rank] = 1;
            span[axis] = (half * n_tp + tp) * part;
            span[t->rank + axis] = part;
            st = add_chunk(m, tensor, t->rank, span, file_of(m, pp, tp), recipe, err);
        }
    return st;
}

static int stage_of_layer(const struct dcpk_bench_sizes *s, int64_t layer)
{
    return (int)(layer / (s->layers / N_PP));
}

/* An output tensor called prefix + key, without chunks; stacked: a layer axis in front. */
static dcpk_status add_tensor(struct dcpk_making *m, size_t p, enum dcpk_bench_kind kind,
                              const char *key, bool stacked, uint32_t *tensor,
                              struct dcpk_error *err)
{
    struct dcpk_arena *arena = m->out->arena;
    const char **keys = dcpk_arena_alloc(arena, sizeof *keys, err);
    int64_t *shape = dcpk_arena_array(arena, 3, sizeof *shape, err);
    int rank = 0;

    if (keys == NULL || shape == NULL)
        return err->status;
    keys[0] = dcpk_arena_printf(arena, err, "%s%s", prefixes[kind], key);
    if (keys[0] == NULL)
        return err->status;
    if (stacked)
        shape[rank++] = m->sizes.layers;
    rank += param_shape(&m->sizes, p, shape + rank);
    *tensor = (uint32_t)m->out->n_tensors;
    return dcpk_output_add_tensor(m->out,
                                  &(struct dcpk_out_tensor){
                                      .keys = keys,
                                      .n_keys = 1,
                                      .dtype = kind == DCPK_BENCH_WEIGHT ? DCPK_BF16 : DCPK_F32,
                                      .rank = rank,
                                      .shape = shape,
                                      .first_chunk = m->out->n_chunks,
                                  },
                                  err);
}

static dcpk_status describe_stacked(struct dcpk_making *m, size_t p, enum dcpk_bench_kind kind,
                                    struct dcpk_error *err)
{
    char key[128];
    uint32_t tensor;
    dcpk_status st;

    snprintf(key, sizeof key, "decoder.layers.%s", params[p].name);
    st = add_tensor(m, p, kind, key, true, &tensor, err);
    for (int64_t i = 0; i < m->sizes.layers && st == DCPK_OK; i++)
        st = add_layer_chunks(m, tensor, p, kind, i, stage_of_layer(&m->sizes, i), err);
    return st;
}

static dcpk_status describe_each_layer(struct dcpk_making *m, size_t p, enum dcpk_bench_kind kind,
                                       struct dcpk_error *err)
{
    dcpk_status st = DCPK_OK;

    for (int64_t i = 0; i < m->sizes.layers && st == DCPK_OK; i++) {
        char key[128];
        uint32_t tensor;

        snprintf(key, sizeof key, "decoder.layers.%" PRId64 ".%s", i, params[p].name);
        st = add_tensor(m, p, kind, key, false, &tensor, err);
        if (st == DCPK_OK)
            st = add_layer_chunks(m, tensor, p, kind, i, stage_of_layer(&m->sizes, i), err);
    }
    return st;
}

dcpk_status dcpk_bench_describe_tensors(struct dcpk_making *m, struct dcpk_error *err)
{
    dcpk_status st = DCPK_OK;

    for (int k = 0; k < DCPK_N_BENCH_KINDS; k++)
        for (size_t p = 0; p < N_PARAMS && st == DCPK_OK; p++) {
            const enum dcpk_bench_kind kind = (enum dcpk_bench_kind)k;
            uint32_t tensor;

            if (params[p].is_layer) {
                st = m->sizes.is_stacked ? describe_stacked(m, p, kind, err)
                                         : describe_each_layer(m, p, kind, err);
                continue;
            }
            st = add_tensor(m, p, kind, params[p].name, false, &tensor, err);
            if (st == DCPK_OK)
                st = add_layer_chunks(m, tensor, p, kind, m->sizes.layers, p == 0 ? 0 : N_PP - 1,
                                      err);
        }
    return st;
}
