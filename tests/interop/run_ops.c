/* SPDX-License-Identifier: Apache-2.0 */
/* run_ops.c - every operation of a device's mathematics on random numbers, for test_ops.py. */
/*
 * run_ops DEVICE DTYPE: to stdout, inputs and results alike: a line "NAME EXTENT...", then the
 * numbers in fp32. Names: OPERATION.WHAT. Exit 77: the device is not there.
 */
#include <stdio.h>
#include <stdlib.h>

#include "lib/base/alloc.h"
#include "tests/ops_bench.h"

#define OP(name, ...) b->ops->name(b->math, __VA_ARGS__)

enum { TOKENS = 12, HIDDEN = 32, GROUPS = 2, PER_GROUP = 3, HEAD = 8, KEYS = 16, EXPERTS = 6 };
enum { TOPK = 3, VOCAB = 40, STEPS = 3 };

/* An array of up to four axes; extents that are not used are 1. */
struct extents {
    int64_t e[4];
};

static int64_t extents_count(struct extents x)
{
    return x.e[0] * x.e[1] * x.e[2] * x.e[3];
}

static void print_floats(const char *name, struct extents extents, const float *x)
{
    const size_t n = (size_t)extents_count(extents);

    printf("%s %d %d %d %d\n", name, (int)extents.e[0], (int)extents.e[1], (int)extents.e[2],
           (int)extents.e[3]);
    if (fwrite(x, sizeof *x, n, stdout) != n)
        abort();
}

static void give(struct ops_bench *b, const char *name, enum dcpk_dtype dtype,
                 struct extents extents, const void *at)
{
    const int64_t n = extents_count(extents);
    struct dcpk_error err = DCPK_ERROR_INIT;
    float *x = dcpk_alloc((size_t)n * sizeof *x, &err);

    ops_down(b, dtype, at, x, n);
    print_floats(name, extents, x);
    dcpk_free(x);
}

/* Random numbers, given as well. The name makes the seed. */
static void *take(struct ops_bench *b, const char *name, enum dcpk_dtype dtype,
                  struct extents extents)
{
    const int64_t n = extents_count(extents);
    struct dcpk_error err = DCPK_ERROR_INIT;
    float *x = dcpk_alloc((size_t)n * sizeof *x, &err);
    uint64_t seed = 0;
    void *at;

    for (const char *c = name; *c != '\0'; c++)
        seed = random_mix(seed + (uint64_t)*c);
    ops_random(seed, x, n);
    at = ops_up(b, dtype, x, n);
    give(b, name, dtype, extents, at);
    dcpk_free(x);
    return at;
}

static void *room(struct ops_bench *b, struct extents extents)
{
    return ops_room(b, (size_t)extents_count(extents) * sizeof(float));
}

/* Whole numbers below `below`, given as well. */
static int32_t *take_ids(struct ops_bench *b, const char *name, uint64_t below, int n)
{
    int32_t ids[TOKENS * TOPK];
    float x[TOKENS * TOPK];
    uint64_t seed = below;

    for (int i = 0; i < n; i++) {
        ids[i] = (int32_t)random_below(&seed, below);
        x[i] = (float)ids[i];
    }
    print_floats(name, (struct extents){{n, 1, 1, 1}}, x);
    return ops_bytes_up(b, ids, (size_t)n * sizeof *ids);
}

static void run_matmul(struct ops_bench *b, enum dcpk_dtype dtype)
{
    const struct extents x = {{TOKENS, HIDDEN, 1, 1}}, w = {{VOCAB, HIDDEN, 1, 1}};
    const struct extents y = {{TOKENS, VOCAB, 1, 1}};
    const struct dcpk_matmul forward = {dtype, DCPK_F32, TOKENS, VOCAB, HIDDEN, 8, 1};
    const struct dcpk_matmul input = {dtype, dtype, TOKENS, HIDDEN, VOCAB, 1, 1};
    const struct dcpk_matmul weight = {dtype, DCPK_F32, VOCAB, HIDDEN, TOKENS, 1, 1};
    const struct dcpk_matrix sum = {dtype, TOKENS, VOCAB};
    void *at_x = take(b, "matmul.x", dtype, x), *at_w = take(b, "matmul.w", dtype, w);
    void *at_dy = take(b, "matmul.dy", dtype, y), *at_y = room(b, y), *at_dx = room(b, x);
    float *partials = ops_room(b, 8 * TOKENS * VOCAB * 4), *dw = room(b, w);

    OP(matmul, &forward, at_x, at_w, partials);
    OP(add_slices, &sum, 8, partials, at_y);
    OP(matmul_input, &input, at_dy, at_w, at_dx);
    OP(matmul_weight, &weight, at_dy, at_x, dw);
    give(b, "matmul.y", dtype, y, at_y);
    give(b, "matmul.dx", dtype, x, at_dx);
    give(b, "matmul.dw", DCPK_F32, w, dw);
}

static void run_norm(struct ops_bench *b, enum dcpk_dtype dtype)
{
    const struct extents x = {{TOKENS, HIDDEN, 1, 1}}, w = {{HIDDEN, 1, 1, 1}};
    const struct dcpk_rmsnorm shape = {dtype, TOKENS, HIDDEN, 1, 1e-5f};
    void *at_x = take(b, "rmsnorm.x", dtype, x), *at_w = take(b, "rmsnorm.w", dtype, w);
    void *at_dy = take(b, "rmsnorm.dy", dtype, x), *y = room(b, x), *dx = room(b, x);
    float *dw = room(b, w);

    OP(rmsnorm, &shape, at_x, at_w, y);
    OP(rmsnorm_input, &shape, at_x, at_w, at_dy, dx);
    OP(rmsnorm_weight, &shape, at_x, at_dy, dw);
    give(b, "rmsnorm.y", dtype, x, y);
    give(b, "rmsnorm.dx", dtype, x, dx);
    give(b, "rmsnorm.dw", DCPK_F32, w, dw);
}

static void run_rope(struct ops_bench *b, enum dcpk_dtype dtype)
{
    const struct extents x = {{TOKENS, PER_GROUP, HEAD, 1}};
    const struct dcpk_rope shape = {dtype, TOKENS, PER_GROUP, HEAD};
    void *at_x = take(b, "rope.x", dtype, x), *at_dy = take(b, "rope.dy", dtype, x);
    void *y = room(b, x), *dx = room(b, x);
    float table[TOKENS * HEAD], *at_table;

    dcpk_rope_table(&shape, 100, 10000.0, table);
    at_table = ops_bytes_up(b, table, sizeof table);
    OP(rope, &shape, at_table, at_x, y);
    OP(rope_backward, &shape, at_table, at_dy, dx);
    give(b, "rope.y", dtype, x, y);
    give(b, "rope.dx", dtype, x, dx);
}

/* Queries 4 to 15 of 16 keys. */
static void run_attention(struct ops_bench *b, enum dcpk_dtype dtype)
{
    const struct extents q = {{TOKENS, GROUPS, PER_GROUP, HEAD}}, k = {{KEYS, GROUPS, HEAD, 1}};
    const struct dcpk_attention shape = {dtype,  TOKENS,    KEYS - TOKENS, KEYS,
                                         GROUPS, PER_GROUP, HEAD,          0.35355339f};
    void *at_q = take(b, "attention.q", dtype, q), *at_k = take(b, "attention.k", dtype, k);
    void *at_v = take(b, "attention.v", dtype, k), *dy = take(b, "attention.dy", dtype, q);
    void *y = room(b, q), *dq = room(b, q);
    float *dk = room(b, k), *dv = room(b, k);

    OP(attention, &shape, at_q, at_k, at_v, y);
    OP(attention_backward, &shape,
       &(struct dcpk_attention_backward){at_q, at_k, at_v, dy, dq, dk, dv});
    give(b, "attention.y", dtype, q, y);
    give(b, "attention.dq", dtype, q, dq);
    give(b, "attention.dk", DCPK_F32, k, dk);
    give(b, "attention.dv", DCPK_F32, k, dv);
}

static void run_swiglu(struct ops_bench *b, enum dcpk_dtype dtype)
{
    const struct extents x = {{TOKENS, 2 * HIDDEN, 1, 1}}, y = {{TOKENS, HIDDEN, 1, 1}};
    const struct dcpk_matrix shape = {dtype, TOKENS, HIDDEN};
    void *at_x = take(b, "swiglu.x", dtype, x), *at_dy = take(b, "swiglu.dy", dtype, y);
    void *at_y = room(b, y), *dx = room(b, x);

    OP(swiglu, &shape, at_x, at_y);
    OP(swiglu_backward, &shape, at_x, at_dy, dx);
    give(b, "swiglu.y", dtype, y, at_y);
    give(b, "swiglu.dx", dtype, x, dx);
}

static void run_embedding(struct ops_bench *b, enum dcpk_dtype dtype)
{
    const struct extents w = {{VOCAB, HIDDEN, 1, 1}}, y = {{TOKENS, HIDDEN, 1, 1}};
    const struct dcpk_embedding shape = {dtype, TOKENS, HIDDEN, 0, VOCAB};
    void *at_w = take(b, "embedding.w", dtype, w), *dy = take(b, "embedding.dy", dtype, y);
    const int32_t *tokens = take_ids(b, "embedding.tokens", VOCAB / 8, TOKENS);
    void *at_y = room(b, y);
    float *dw = room(b, w);

    OP(embedding, &shape, tokens, at_w, at_y);
    OP(zero, dw, VOCAB * HIDDEN * sizeof *dw);
    OP(embedding_weight, &shape, tokens, dy, dw);
    give(b, "embedding.y", dtype, y, at_y);
    give(b, "embedding.dw", DCPK_F32, w, dw);
}

static void run_router(struct ops_bench *b, enum dcpk_router_score score)
{
    const struct extents logits = {{TOKENS, EXPERTS, 1, 1}}, probs = {{TOKENS, TOPK, 1, 1}};
    const struct dcpk_router shape = {score, TOKENS, EXPERTS, TOPK};
    const char names[4] = {'0', '1', '2', '\0'};
    const float *bias = NULL, *at_logits, *d_probs;
    float *at_probs = room(b, probs), *d_logits = room(b, logits), ids[TOKENS * TOPK];
    int32_t *at_chosen = room(b, probs), chosen[TOKENS * TOPK];
    char name[32];

    snprintf(name, sizeof name, "router%c.logits", names[score]);
    at_logits = take(b, name, DCPK_F32, logits);
    snprintf(name, sizeof name, "router%c.dy", names[score]);
    d_probs = take(b, name, DCPK_F32, probs);
    snprintf(name, sizeof name, "router%c.bias", names[score]);
    if (score == DCPK_TOPK_OF_SIGMOID)
        bias = take(b, name, DCPK_F32, (struct extents){{EXPERTS, 1, 1, 1}});
    OP(router, &shape, at_logits, bias, at_chosen, at_probs);
    OP(router_backward, &shape, at_logits, at_chosen, d_probs, d_logits);
    ops_bytes_down(b, at_chosen, chosen, sizeof chosen);
    for (int i = 0; i < TOKENS * TOPK; i++)
        ids[i] = (float)chosen[i];
    snprintf(name, sizeof name, "router%c.chosen", names[score]);
    print_floats(name, probs, ids);
    snprintf(name, sizeof name, "router%c.y", names[score]);
    give(b, name, DCPK_F32, probs, at_probs);
    snprintf(name, sizeof name, "router%c.dx", names[score]);
    give(b, name, DCPK_F32, logits, d_logits);
}

/* Slot t of token r has the place t * TOKENS + r. */
static void run_combine(struct ops_bench *b, enum dcpk_dtype dtype)
{
    const struct extents rows = {{TOPK, TOKENS, HIDDEN, 1}}, out = {{TOKENS, HIDDEN, 1, 1}};
    const struct extents probs = {{TOKENS, TOPK, 1, 1}};
    const struct dcpk_combine shape = {dtype, TOKENS, HIDDEN, TOPK};
    void *x = take(b, "combine.x", dtype, rows), *d_out = take(b, "combine.dy", dtype, out);
    const float *at_probs = take(b, "combine.probs", DCPK_F32, probs);
    void *y = room(b, out), *dx = room(b, rows);
    float *d_probs = room(b, probs);
    int32_t place[TOKENS * TOPK], *at_place;

    for (int i = 0; i < TOKENS * TOPK; i++)
        place[i] = i % TOPK * TOKENS + i / TOPK;
    at_place = ops_bytes_up(b, place, sizeof place);
    OP(combine, &shape, at_place, at_probs, x, y);
    OP(combine_rows, &shape, at_place, at_probs, d_out, dx);
    OP(combine_probs, &shape, at_place, x, d_out, d_probs);
    give(b, "combine.y", dtype, out, y);
    give(b, "combine.dx", dtype, rows, dx);
    give(b, "combine.d_probs", DCPK_F32, probs, d_probs);
}

static void run_loss(struct ops_bench *b, enum dcpk_dtype dtype)
{
    const struct extents logits = {{TOKENS, VOCAB, 1, 1}}, rows = {{TOKENS, 1, 1, 1}};
    const struct dcpk_cross_entropy shape = {dtype, TOKENS, VOCAB, 0, 8};
    const struct dcpk_matrix sum_rows = {DCPK_F32, TOKENS, 1};
    void *x = take(b, "loss.x", dtype, logits), *dx = room(b, logits);
    const float *factor = take(b, "loss.dy", DCPK_F32, rows);
    const int32_t *labels = take_ids(b, "loss.labels", VOCAB, TOKENS);
    float *max = room(b, rows), *sums = ops_room(b, 8 * TOKENS * 4), *sum = room(b, rows);
    float *y = room(b, rows);

    OP(cross_entropy_max, &shape, x, max);
    OP(cross_entropy_sums, &shape, x, max, sums);
    OP(add_slices, &sum_rows, 8, sums, sum);
    OP(cross_entropy_labels, &shape, x, labels, y);
    OP(cross_entropy, TOKENS, max, sum, y, y);
    OP(cross_entropy_backward, &shape,
       &(struct dcpk_cross_entropy_backward){x, labels, max, sum, factor, dx});
    give(b, "loss.y", DCPK_F32, rows, y);
    give(b, "loss.dx", dtype, logits, dx);
}

/* STEPS steps of each optimizer, with one gradient: 0 TE's Adam, 1 torch's, 2 and 3 sgd. */
static void run_optimizer(struct ops_bench *b, int which)
{
    static const char *const names[] = {"adam_te", "adam_torch", "sgd", "sgd_momentum"};
    const struct extents n = {{HIDDEN, 1, 1, 1}};
    const struct dcpk_sgd sgd = {0.1, 0.9, 0.01};
    struct dcpk_optimizer_state state = {.n = HIDDEN};
    double power1 = 1, power2 = 1;
    char name[32];

    snprintf(name, sizeof name, "%s.p", names[which]);
    state.param = take(b, name, DCPK_F32, n);
    snprintf(name, sizeof name, "%s.g", names[which]);
    state.grad = take(b, name, DCPK_F32, n);
    state.first = room(b, n);
    state.second = room(b, n);
    OP(zero, state.first, HIDDEN * sizeof(float));
    OP(zero, state.second, HIDDEN * sizeof(float));
    if (which == 2)
        state.first = NULL;
    for (int step = 0; step < STEPS; step++) {
        struct dcpk_adam adam = {which == 1, 0.01, 0.9, 0.95, 1e-8, 0.1, 0, 0};

        adam.c1 = 1 - (power1 *= adam.beta1);
        adam.c2 = 1 - (power2 *= adam.beta2);
        if (which < 2)
            OP(adam, &adam, &state);
        else
            OP(sgd, &sgd, &state);
    }
    snprintf(name, sizeof name, "%s.y", names[which]);
    give(b, name, DCPK_F32, n, state.param);
}

int main(int argc, char **argv)
{
    const enum dcpk_dtype dtype = dcpk_dtype_from_name(argc == 3 ? argv[2] : "");
    struct ops_bench bench, *b = &bench;
    size_t device = 0;

    if (dtype == DCPK_DTYPE_NONE)
        return 2;
    while (dcpk_math_ops[device] != NULL && strcmp(dcpk_math_ops[device]->name, argv[1]) != 0)
        device++;
    if (dcpk_math_ops[device] == NULL || !ops_open(b, dcpk_math_ops[device]))
        return 77;
    run_matmul(b, dtype);
    run_norm(b, dtype);
    run_rope(b, dtype);
    run_attention(b, dtype);
    run_swiglu(b, dtype);
    run_embedding(b, dtype);
    ops_clear(b);
    for (int score = 0; score < 3; score++)
        run_router(b, (enum dcpk_router_score)score);
    run_combine(b, dtype);
    run_loss(b, dtype);
    ops_clear(b);
    for (int which = 0; which < 4; which++)
        run_optimizer(b, which);
    ops_close(b);
    return 0;
}
