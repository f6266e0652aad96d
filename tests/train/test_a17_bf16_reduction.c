/* SPDX-License-Identifier: Apache-2.0 */
/* test_a17_bf16_reduction.c - what reducing gradients in bf16 costs, by the number of ranks: a
 * table, and a test of what it shows. */
/*
 * Each of 64 ranks has the gradient of one sample of a small GPT. 2, 4, ... 64 of them are added up
 *
 *   ring   reduce-scatter: a partial sum travels from rank to rank, rounded at each
 *   tree   pairs, pairs of pairs, ...: rounded at each join
 *
 * in bf16 and in fp32, each rank's own gradient being rounded to that dtype before. Error: length
 * of the difference to the sum in fp64, over the length of that. Cancellation: length of the sum of
 * |g|, over that of the sum of g: how much larger addends are than what they add up to.
 */
#include <stdio.h>

#include "tests/gpt_case.h"

#define N_RANKS 64
#define SEQ     16
#define VOCAB   64

struct gradients {
    size_t n;
    double *of_rank[N_RANKS];
};

/* What one addition leaves of a sum. */
typedef double (*rounding)(double x);

static double round_fp32(double x)
{
    return (double)(float)x;
}

/* Ties to even; x is nowhere near the ends of the range. */
static double round_bf16(double x)
{
    int exponent;
    const double mantissa = frexp(x, &exponent);

    return ldexp(nearbyint(ldexp(mantissa, 8)), exponent - 8);
}

/* ---- gradients ---- */

static struct dcpk_train_config config_of_samples(void)
{
    struct dcpk_train_config config = gpt_config();

    config.model.hidden = 32;
    config.model.ffn = 48;
    config.model.head_dim = 8;
    config.model.seq_length = SEQ;
    config.data.global_batch = 1;
    return config;
}

/* The mock data of tokens.h: straight lines modulo the vocabulary. */
static void fill_tokens(int32_t *tokens, int sample)
{
    for (int i = 0; i <= SEQ; i++)
        tokens[i] = (sample * 5 + i * (1 + sample % 2)) % VOCAB;
}

static void gradients_make(struct gradients *g)
{
    const struct dcpk_train_config config = config_of_samples();
    struct dcpk_error err = DCPK_ERROR_INIT;
    int32_t tokens[SEQ + 1];
    struct gpt_whole whole;

    gpt_whole_init(&whole, &config);
    whole.tokens = tokens;
    g->n = (size_t)whole.params.n_elems;
    for (int r = 0; r < N_RANKS; r++) {
        fill_tokens(tokens, r);
        gpt_run_alone(&whole, &config);
        g->of_rank[r] = dcpk_alloc_array(g->n, sizeof(double), &err);
        CHECK(g->of_rank[r] != NULL, "memory");
        for (size_t e = 0; e < g->n; e++)
            g->of_rank[r][e] = ldexp((double)whole.sums[e], -GPT_LSB) / SEQ;
    }
    gpt_whole_release(&whole);
}

static void gradients_release(struct gradients *g)
{
    for (int r = 0; r < N_RANKS; r++)
        dcpk_free(g->of_rank[r]);
}

/* ---- sums of element e over n ranks ---- */

static double sum_plain(const struct gradients *g, size_t e, int n)
{
    double sum = 0;

    for (int r = 0; r < n; r++)
        sum += g->of_rank[r][e];
    return sum;
}

/* Ranks share the elements out: what rank r gets starts at rank r + 1 and ends at it. */
static double sum_ring(const struct gradients *g, size_t e, int n, rounding round)
{
    const int owner = (int)(e * (size_t)n / g->n);
    double sum = round(g->of_rank[(owner + 1) % n][e]);

    for (int hop = 2; hop <= n; hop++)
        sum = round(sum + round(g->of_rank[(owner + hop) % n][e]));
    return sum;
}

static double sum_tree(const struct gradients *g, size_t e, int n, rounding round)
{
    double part[N_RANKS];

    for (int r = 0; r < n; r++)
        part[r] = round(g->of_rank[r][e]);
    for (int width = 1; width < n; width *= 2)
        for (int r = 0; r + width < n; r += 2 * width)
            part[r] = round(part[r] + part[r + width]);
    return part[0];
}

/* ---- the table ---- */

struct errors {
    double bf16_ring, bf16_tree, bf16_norm, fp32_ring, cancellation;
};

static struct errors errors_of(const struct gradients *g, int n)
{
    double length = 0, absolute = 0, norm = 0, ring = 0, tree = 0, wide = 0;

    for (size_t e = 0; e < g->n; e++) {
        const double exact = sum_plain(g, e, n), by_ring = sum_ring(g, e, n, round_bf16);
        double positive = 0;

        for (int r = 0; r < n; r++)
            positive += fabs(g->of_rank[r][e]);
        length += exact * exact;
        absolute += positive * positive;
        norm += by_ring * by_ring;
        ring += (by_ring - exact) * (by_ring - exact);
        tree += pow(sum_tree(g, e, n, round_bf16) - exact, 2);
        wide += pow(sum_ring(g, e, n, round_fp32) - exact, 2);
    }
    return (struct errors){.bf16_ring = sqrt(ring / length),
                           .bf16_tree = sqrt(tree / length),
                           .bf16_norm = fabs(sqrt(norm / length) - 1),
                           .fp32_ring = sqrt(wide / length),
                           .cancellation = sqrt(absolute / length)};
}

static void bf16_costs_what_the_table_has(void **state)
{
    struct gradients g;
    struct errors first = {0}, last = {0};

    (void)state;
    gradients_make(&g);
    print_message("| ranks | bf16 ring | bf16 tree | fp32 ring | bf16 ring: norm | cancellation |\n"
                  "|---|---|---|---|---|---|\n");
    for (int n = 2; n <= N_RANKS; n *= 2) {
        const struct errors now = errors_of(&g, n);

        print_message("| %d | %.2e | %.2e | %.2e | %.2e | %.1f |\n", n, now.bf16_ring,
                      now.bf16_tree, now.fp32_ring, now.bf16_norm, now.cancellation);
        /* n roundings of 2^-9 each, of sums that are at most the sum of |g|. */
        CHECK(now.bf16_ring <= n * 0x1p-9 * now.cancellation, "bf16 is bounded");
        CHECK(now.bf16_ring > 0x1p-11, "bf16 rounds");
        CHECK(now.fp32_ring < now.bf16_ring * 0x1p-14, "fp32 has 16 bits more");
        CHECK(now.bf16_norm < now.bf16_ring, "much of it does not add up");
        if (n == 2)
            first = now;
        last = now;
    }
    CHECK(last.bf16_ring > 2 * first.bf16_ring, "it grows with ranks in a ring");
    CHECK(last.bf16_tree < last.bf16_ring, "less in a tree");
    gradients_release(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(bf16_costs_what_the_table_has)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
