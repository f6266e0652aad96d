/* SPDX-License-Identifier: Apache-2.0 */
/* test_ops_gradients.c - gradients of every operation on every device, against differences of its
 * forward: (f(x + h) - f(x - h)) / 2h, element by element. */
#include <math.h>
#include <stdio.h>

#include "lib/base/order.h"
#include "tests/ops_bench.h"

#define MAX_INPUTS 3
#define MAX_ELEMS  256
#define STEP       0.0078125f /* 2^-7: x + h and x - h are exact enough */
#define TOLERANCE  1e-3

/* Numbers of one run, in the device's memory (F32): inputs, result, and gradients of both. */
struct run {
    struct ops_bench *bench;
    float *in[MAX_INPUTS], *d_in[MAX_INPUTS];
    float *out, *d_out;
};

struct operation {
    const char *label;
    int64_t sizes[MAX_INPUTS]; /* of inputs; 0: there is none */
    int64_t n_out;
    void (*forward)(const struct run *run);
    void (*backward)(const struct run *run); /* d_in of d_out */
    const float *first;                      /* the first input; NULL: random */
};

#define CALL(name, ...) run->bench->ops->name(run->bench->math, __VA_ARGS__)

/* x [3, 8], w [5, 8], in 2 slices of 2 parts. */
static void matmul_forward(const struct run *run)
{
    const struct dcpk_matmul shape = {DCPK_F32, DCPK_F32, 3, 5, 8, 2, 2};
    const struct dcpk_matrix sum = {DCPK_F32, 3, 5};
    float *partials = ops_room(run->bench, 2 * 15 * sizeof *partials);

    CALL(matmul, &shape, run->in[0], run->in[1], partials);
    CALL(add_slices, &sum, 2, partials, run->out);
}

static void matmul_backward(const struct run *run)
{
    const struct dcpk_matmul input = {DCPK_F32, DCPK_F32, 3, 8, 5, 1, 1};
    const struct dcpk_matmul weight = {DCPK_F32, DCPK_F32, 5, 8, 3, 1, 1};

    CALL(matmul_input, &input, run->d_out, run->in[1], run->d_in[0]);
    CALL(matmul_weight, &weight, run->d_out, run->in[0], run->d_in[1]);
}

/* x [6, 5], w [5]; two lanes, whose gradients are added here. */
static const struct dcpk_rmsnorm norm_shape = {DCPK_F32, 6, 5, 2, 1e-5f};

static void norm_forward(const struct run *run)
{
    CALL(rmsnorm, &norm_shape, run->in[0], run->in[1], run->out);
}

static void norm_backward(const struct run *run)
{
    float *lanes = ops_room(run->bench, 10 * sizeof *lanes);

    CALL(rmsnorm_input, &norm_shape, run->in[0], run->in[1], run->d_out, run->d_in[0]);
    CALL(rmsnorm_weight, &norm_shape, run->in[0], run->d_out, lanes);
    CALL(add, DCPK_F32, 5, lanes, lanes + 5, run->d_in[1]);
}

/* x [3, 2, 6] */
static const struct dcpk_rope rope_shape = {DCPK_F32, 3, 2, 6};

static float *rope_table(const struct run *run)
{
    float table[2 * 3 * 3];

    dcpk_rope_table(&rope_shape, 5, 10000.0, table);
    return ops_bytes_up(run->bench, table, sizeof table);
}

static void rope_forward(const struct run *run)
{
    CALL(rope, &rope_shape, rope_table(run), run->in[0], run->out);
}

static void rope_backward(const struct run *run)
{
    CALL(rope_backward, &rope_shape, rope_table(run), run->d_out, run->d_in[0]);
}

/* Queries 2, 3, 4 of 6 keys; 2 groups of 2 heads of 4. */
static const struct dcpk_attention attention_shape = {DCPK_F32, 3, 2, 6, 2, 2, 4, 0.5f};

static void attention_forward(const struct run *run)
{
    CALL(attention, &attention_shape, run->in[0], run->in[1], run->in[2], run->out);
}

static void attention_backward(const struct run *run)
{
    const struct dcpk_attention_backward data = {
        run->in[0], run->in[1], run->in[2], run->d_out, run->d_in[0], run->d_in[1], run->d_in[2]};

    CALL(attention_backward, &attention_shape, &data);
}

static const struct dcpk_matrix swiglu_shape = {DCPK_F32, 3, 4};

static void swiglu_forward(const struct run *run)
{
    CALL(swiglu, &swiglu_shape, run->in[0], run->out);
}

static void swiglu_backward(const struct run *run)
{
    CALL(swiglu_backward, &swiglu_shape, run->in[0], run->d_out, run->d_in[0]);
}

/* Tokens of a part of the vocabulary, 4 to 8; one is of another part, one comes twice. */
static const struct dcpk_embedding embedding_shape = {DCPK_F32, 5, 3, 4, 4};
static const int32_t tokens[] = {5, 7, 2, 5, 4};

static void embedding_forward(const struct run *run)
{
    const int32_t *at = ops_bytes_up(run->bench, tokens, sizeof tokens);

    CALL(embedding, &embedding_shape, at, run->in[0], run->out);
}

static void embedding_backward(const struct run *run)
{
    const int32_t *at = ops_bytes_up(run->bench, tokens, sizeof tokens);

    CALL(zero, run->d_in[0], 12 * sizeof(float));
    CALL(embedding_weight, &embedding_shape, at, run->d_out, run->d_in[0]);
}

/* logits [4, 5], so far apart that STEP does not change what is chosen. */
static const float router_logits[] = {
    0.5f,  -0.3f, 0.1f,  0.9f, -0.8f, -0.2f, 0.3f, 0.7f, -0.6f, 0.0f,
    -0.9f, -0.5f, -0.1f, 0.4f, 0.8f,  0.6f,  0.2f, 1.0f, -0.4f, -0.7f,
};
static const float bias[] = {0.5f, 0, 3.0f, 0, 2.0f};

static void router_forward_of(const struct run *run, enum dcpk_router_score score, int64_t topk)
{
    const struct dcpk_router shape = {score, 4, 5, topk};
    int32_t *chosen = ops_room(run->bench, 16 * sizeof *chosen);
    const float *added = NULL;

    if (score == DCPK_TOPK_OF_SIGMOID)
        added = ops_bytes_up(run->bench, bias, sizeof bias);
    CALL(router, &shape, run->in[0], added, chosen, run->out);
}

static void router_backward_of(const struct run *run, enum dcpk_router_score score, int64_t topk)
{
    const struct dcpk_router shape = {score, 4, 5, topk};
    int32_t *chosen = ops_room(run->bench, 16 * sizeof *chosen);
    float *probs = ops_room(run->bench, 16 * sizeof *probs);
    const float *added = NULL;

    if (score == DCPK_TOPK_OF_SIGMOID)
        added = ops_bytes_up(run->bench, bias, sizeof bias);
    CALL(router, &shape, run->in[0], added, chosen, probs);
    CALL(router_backward, &shape, run->in[0], chosen, run->d_out, run->d_in[0]);
}

static void router_forward(const struct run *run)
{
    router_forward_of(run, DCPK_SOFTMAX_OF_TOPK, 3);
}

static void router_backward(const struct run *run)
{
    router_backward_of(run, DCPK_SOFTMAX_OF_TOPK, 3);
}

static void pre_softmax_forward(const struct run *run)
{
    router_forward_of(run, DCPK_TOPK_OF_SOFTMAX, 2);
}

static void pre_softmax_backward(const struct run *run)
{
    router_backward_of(run, DCPK_TOPK_OF_SOFTMAX, 2);
}

static void sigmoid_forward(const struct run *run)
{
    router_forward_of(run, DCPK_TOPK_OF_SIGMOID, 2);
}

static void sigmoid_backward(const struct run *run)
{
    router_backward_of(run, DCPK_TOPK_OF_SIGMOID, 2);
}

static void sigmoid_one_forward(const struct run *run)
{
    router_forward_of(run, DCPK_TOPK_OF_SIGMOID, 1);
}

static void sigmoid_one_backward(const struct run *run)
{
    router_backward_of(run, DCPK_TOPK_OF_SIGMOID, 1);
}

/* Two tokens, two slots each: y [4, 3], probs [2, 2]. */
static const int32_t places[] = {3, 0, 1, 2};
static const struct dcpk_combine combine_shape = {DCPK_F32, 2, 3, 2};

static void combine_forward(const struct run *run)
{
    const int32_t *place = ops_bytes_up(run->bench, places, sizeof places);

    CALL(combine, &combine_shape, place, run->in[1], run->in[0], run->out);
}

static void combine_backward(const struct run *run)
{
    const int32_t *place = ops_bytes_up(run->bench, places, sizeof places);

    CALL(combine_rows, &combine_shape, place, run->in[1], run->d_out, run->d_in[0]);
    CALL(combine_probs, &combine_shape, place, run->in[0], run->d_out, run->d_in[1]);
}

/* x [2, 3]; every row goes to two places. */
static void gather_forward(const struct run *run)
{
    static const int32_t rows[] = {1, 0, 0, 1}; /* the token whose slot has the place */
    const struct dcpk_matrix shape = {DCPK_F32, 4, 3};

    CALL(gather_rows, &shape, ops_bytes_up(run->bench, rows, sizeof rows), run->in[0], run->out);
}

static void gather_backward(const struct run *run)
{
    static const int32_t slots[] = {1, 2, 0, 3};
    const int32_t *place = ops_bytes_up(run->bench, slots, sizeof slots);

    CALL(combine, &combine_shape, place, NULL, run->d_out, run->d_in[0]);
}

/* logits [3, 8], the whole vocabulary, in 4 slices. Rows have factors, which are d_out. */
static const struct dcpk_cross_entropy loss_shape = {DCPK_F32, 3, 8, 0, 4};
static const int32_t labels[] = {7, 0, 3};

struct loss {
    float *max, *sum, *label;
    const int32_t *labels;
};

static struct loss loss_parts(const struct run *run)
{
    const struct dcpk_matrix rows = {DCPK_F32, 3, 1};
    float *sums = ops_room(run->bench, 12 * sizeof *sums);
    struct loss loss;

    loss.max = ops_room(run->bench, 3 * sizeof(float));
    loss.sum = ops_room(run->bench, 3 * sizeof(float));
    loss.label = ops_room(run->bench, 3 * sizeof(float));
    loss.labels = ops_bytes_up(run->bench, labels, sizeof labels);
    CALL(cross_entropy_max, &loss_shape, run->in[0], loss.max);
    CALL(cross_entropy_sums, &loss_shape, run->in[0], loss.max, sums);
    CALL(add_slices, &rows, 4, sums, loss.sum);
    CALL(cross_entropy_labels, &loss_shape, run->in[0], loss.labels, loss.label);
    return loss;
}

static void loss_forward(const struct run *run)
{
    const struct loss loss = loss_parts(run);

    CALL(cross_entropy, 3, loss.max, loss.sum, loss.label, run->out);
}

static void loss_backward(const struct run *run)
{
    const struct loss loss = loss_parts(run);
    const struct dcpk_cross_entropy_backward data = {run->in[0], loss.labels, loss.max,
                                                     loss.sum,   run->d_out,  run->d_in[0]};

    CALL(cross_entropy_backward, &loss_shape, &data);
}

static const struct operation operations[] = {
    {"matmul", {24, 40}, 15, matmul_forward, matmul_backward, NULL},
    {"rmsnorm", {30, 5}, 30, norm_forward, norm_backward, NULL},
    {"rope", {36}, 36, rope_forward, rope_backward, NULL},
    {"attention", {48, 48, 48}, 48, attention_forward, attention_backward, NULL},
    {"swiglu", {24}, 12, swiglu_forward, swiglu_backward, NULL},
    {"embedding", {12}, 15, embedding_forward, embedding_backward, NULL},
    {"router", {20}, 12, router_forward, router_backward, router_logits},
    {"router, pre-softmax", {20}, 8, pre_softmax_forward, pre_softmax_backward, router_logits},
    {"router, sigmoid", {20}, 8, sigmoid_forward, sigmoid_backward, router_logits},
    {"router, sigmoid, topk 1", {20}, 4, sigmoid_one_forward, sigmoid_one_backward, router_logits},
    {"combine", {12, 4}, 6, combine_forward, combine_backward, NULL},
    {"gather_rows", {6}, 12, gather_forward, gather_backward, NULL},
    {"cross entropy", {24}, 3, loss_forward, loss_backward, NULL},
};

/* The sum of d_out x out for inputs as they are in `in`. */
static double value_of(struct ops_bench *b, const struct operation *o, float in[][MAX_ELEMS],
                       const float *d_out)
{
    struct run run = {.bench = b};
    float out[MAX_ELEMS];
    double sum = 0;

    for (int i = 0; i < MAX_INPUTS; i++)
        run.in[i] = ops_bytes_up(b, in[i], (size_t)o->sizes[i] * sizeof(float));
    run.out = ops_room(b, (size_t)o->n_out * sizeof(float));
    o->forward(&run);
    ops_bytes_down(b, run.out, out, (size_t)o->n_out * sizeof(float));
    for (int64_t i = 0; i < o->n_out; i++)
        sum += (double)d_out[i] * (double)out[i];
    ops_clear(b);
    return sum;
}

static void gradients_of(struct ops_bench *b, const struct operation *o, float in[][MAX_ELEMS],
                         const float *d_out, float d_in[][MAX_ELEMS])
{
    struct run run = {.bench = b};

    for (int i = 0; i < MAX_INPUTS; i++) {
        run.in[i] = ops_bytes_up(b, in[i], (size_t)o->sizes[i] * sizeof(float));
        run.d_in[i] = ops_room(b, (size_t)o->sizes[i] * sizeof(float));
    }
    run.d_out = ops_bytes_up(b, d_out, (size_t)o->n_out * sizeof(float));
    o->backward(&run);
    for (int i = 0; i < MAX_INPUTS; i++)
        ops_bytes_down(b, run.d_in[i], d_in[i], (size_t)o->sizes[i] * sizeof(float));
    ops_clear(b);
}

static void operation_check(struct ops_bench *b, const struct operation *o)
{
    float in[MAX_INPUTS][MAX_ELEMS], d_in[MAX_INPUTS][MAX_ELEMS], d_out[MAX_ELEMS];
    char label[96];

    for (int i = 0; i < MAX_INPUTS; i++)
        ops_random((uint64_t)i + 1, in[i], o->sizes[i]);
    if (o->first != NULL)
        memcpy(in[0], o->first, (size_t)o->sizes[0] * sizeof(float));
    ops_random(11, d_out, o->n_out);
    gradients_of(b, o, in, d_out, d_in);
    for (int i = 0; i < MAX_INPUTS; i++)
        for (int64_t e = 0; e < o->sizes[i]; e++) {
            const float x = in[i][e];
            double above, below, want;

            in[i][e] = x + STEP;
            above = value_of(b, o, in, d_out);
            in[i][e] = x - STEP;
            below = value_of(b, o, in, d_out);
            in[i][e] = x;
            want = (above - below) / (2.0 * (double)STEP);
            snprintf(label, sizeof label, "%s, %s, input %d, element %d: %g, wanted %g",
                     b->ops->name, o->label, i, (int)e, (double)d_in[i][e], want);
            CHECK(fabs((double)d_in[i][e] - want) <= TOLERANCE * (1.0 + fabs(want)), label);
        }
}

static void gradients_are_differences(void **state)
{
    (void)state;
    for (size_t i = 0; dcpk_math_ops[i] != NULL; i++) {
        struct ops_bench b;

        if (!ops_open(&b, dcpk_math_ops[i]))
            continue;
        for (size_t o = 0; o < DCPK_COUNT(operations); o++)
            operation_check(&b, &operations[o]);
        ops_close(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_differences),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
