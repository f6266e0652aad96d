/* SPDX-License-Identifier: Apache-2.0 */
/* run_gpt.c - one batch through a small GPT: its weights, tokens, loss and gradients, for
 * test_gpt.py. */
/*
 * run_gpt DEVICE DTYPE MODEL: to stdout a line "NAME ROWS COLUMNS" each, then the numbers in fp64.
 * MODEL: words with commas between: tied, qk, moe, sigmoid, pre (softmax before the choice),
 * shared, mtp. Exit 77: the device is not there.
 */
#include <stdio.h>

#include "tests/gpt_case.h"

static void give(const char *name, int64_t rows, int64_t columns, const double *numbers)
{
    const size_t n = (size_t)(rows * columns);

    printf("%s %d %d\n", name, (int)rows, (int)columns);
    if (fwrite(numbers, sizeof *numbers, n, stdout) != n)
        abort();
}

static void give_param(const struct gpt_whole *whole, const struct dcpk_train_param *p)
{
    const int64_t n = p->shape[0] * p->shape[1];
    struct dcpk_error err = DCPK_ERROR_INIT;
    double *numbers = dcpk_alloc_array((size_t)n, sizeof *numbers, &err);
    char name[256];

    CHECK(numbers != NULL, "memory");
    for (int64_t i = 0; i < n; i++)
        numbers[i] = (double)whole->values[p->first + i];
    snprintf(name, sizeof name, "weight:%s", p->canonical);
    give(name, p->shape[0], p->shape[1], numbers);
    for (int64_t i = 0; i < n; i++)
        numbers[i] = ldexp((double)whole->sums[p->first + i], -GPT_LSB);
    snprintf(name, sizeof name, "grad:%s", p->canonical);
    give(name, p->shape[0], p->shape[1], numbers);
    dcpk_free(numbers);
}

static void give_batch(const struct gpt_whole *whole)
{
    const int64_t rows = whole->config.data.global_batch, seq = whole->config.model.seq_length;
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new();
    double *numbers = dcpk_arena_array(arena, (size_t)(3 * rows * seq), sizeof *numbers, &err);
    int64_t n;
    const struct dcpk_gpt_batch *batches = gpt_batches(whole, &whole->config, 0, &n, arena);

    CHECK(numbers != NULL && n == rows, "batch");
    for (int64_t i = 0; i < rows * seq; i++) {
        numbers[i] = batches[i / seq].tokens[i % seq];
        numbers[rows * seq + i] = batches[i / seq].labels[i % seq];
        numbers[2 * rows * seq + i] = (double)batches[i / seq].mask[i % seq];
    }
    give("tokens", rows, seq, numbers);
    give("labels", rows, seq, numbers + rows * seq);
    give("mask", rows, seq, numbers + 2 * rows * seq);
    dcpk_arena_free(arena);
}

static void give_loss(const struct gpt_whole *whole)
{
    const double loss = ldexp((double)whole->loss.sum, -32);
    const double ahead = ldexp((double)whole->loss.mtp_sum, -32);

    give("loss", 1, 1, &loss);
    give("mtp_loss", 1, 1, &ahead);
}

static bool has_word(const char *words, const char *word)
{
    const char *at = strstr(words, word);

    return at != NULL && strchr(",", at[strlen(word)]) != NULL;
}

static struct dcpk_train_config config_of(const char *words, enum dcpk_dtype dtype)
{
    struct dcpk_train_config c = gpt_config();

    c.precision.compute = dtype;
    c.model.is_tied = has_word(words, "tied");
    c.model.has_qk_norm = has_word(words, "qk");
    c.model.experts = has_word(words, "moe") ? 4 : 0;
    c.model.has_sigmoid = c.model.has_expert_bias = has_word(words, "sigmoid");
    c.model.has_pre_softmax = has_word(words, "pre");
    c.model.shared_ffn = has_word(words, "shared") ? 16 : 0;
    c.model.mtp_layers = has_word(words, "mtp");
    c.model.mtp_loss_factor = 0.3;
    return c;
}

int main(int argc, char **argv)
{
    struct dcpk_train_config config;
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_group *alone = NULL;
    struct gpt_whole whole;
    size_t device = 0;

    if (argc != 4)
        return 2;
    while (dcpk_math_ops[device] != NULL && strcmp(dcpk_math_ops[device]->name, argv[1]) != 0)
        device++;
    if (dcpk_math_ops[device] == NULL)
        return 77;
    config = config_of(argv[3], dcpk_dtype_from_name(argv[2]));
    gpt_whole_init(&whole, &config);
    CHECK_OK(dcpk_collectives_alone.world(NULL, 0, &alone, &err), "world");
    gpt_run(&whole, &config, alone, dcpk_math_ops[device]);
    alone->by->free(alone);
    give_batch(&whole);
    give_loss(&whole);
    for (size_t i = 0; i < whole.params.n; i++)
        give_param(&whole, &whole.params.list[i]);
    gpt_whole_release(&whole);
    return 0;
}
