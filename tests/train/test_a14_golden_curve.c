/* SPDX-License-Identifier: Apache-2.0 */
/* test_a14_golden_curve.c - A14: from Megatron's checkpoint of iteration 8, with its batches, the
 * losses and norms that Megatron logged of iterations 9 to 16; from our own save again. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/train/run_case.h"

#define SAMPLE DCPK_SAMPLES "/fp32_curve_nodropout"
#define FIRST  9
#define LAST   16

#define MODEL                                                                                      \
    "--num-layers", "4", "--hidden-size", "64", "--num-attention-heads", "4",                      \
        "--group-query-attention", "--num-query-groups", "2", "--ffn-hidden-size", "96",           \
        "--swiglu", "--normalization", "RMSNorm", "--position-embedding-type", "rope",             \
        "--untie-embeddings-and-output-weights", "--disable-bias-linear", "--vocab-size", "255",   \
        "--seq-length", "32", "--max-position-embeddings", "32", "--transformer-impl", "local",    \
        "--attention-dropout", "0", "--hidden-dropout", "0", "--micro-batch-size", "1",            \
        "--global-batch-size", "2", "--train-iters", "24", "--lr", "1e-3", "--lr-decay-style",     \
        "constant", "--weight-decay", "0.01", "--min-lr", "1e-3", "--adam-beta2", "0.999",         \
        "--clip-grad", "1.0", "--adam-form", "torch", "--token-file", SAMPLE "/tokens.i32",        \
        "--ckpt-format", "torch_dist", "--data-parallel-sharding-strategy", "no_shard"

/* Megatron's log of the run. */
static void read_golden(struct dcpk_step_log *log)
{
    static char text[1 << 16];
    struct dcpk_error err = DCPK_ERROR_INIT;
    FILE *file = fopen(SAMPLE "/log.txt", "rb");

    CHECK(file != NULL, SAMPLE "/log.txt");
    CHECK_OK(dcpk_step_log_read(text, fread(text, 1, sizeof text, file), log, &err), "log.txt");
    fclose(file);
    CHECK_EQ_INT(log->n, LAST, "iterations");
}

static void replays_megatrons_losses(void **state)
{
    static const char *const words[] = {MODEL, "--load", SAMPLE, "--exit-at", "16", NULL};
    static struct run_case run;
    struct dcpk_step_log golden = {0};

    (void)state;
    read_golden(&golden);
    run_case(words, &run);
    CHECK_EQ_INT(run.n, LAST - FIRST + 1, "steps");
    for (size_t i = 0; i < run.n; i++) {
        const struct dcpk_step *want = &golden.steps[FIRST - 1 + i], *got = &run.steps[i];

        print_message("iteration %d: loss %.9f, Megatron %.9f; norm %.6f, %.3f\n",
                      (int)got->iteration, got->loss.value, want->loss.value, got->grad_norm.value,
                      want->grad_norm.value);
        CHECK_EQ_INT(got->iteration, want->iteration, "iteration");
        CHECK_EQ_INT(got->consumed_samples, want->consumed_samples, "samples");
        CHECK(fabs(got->loss.value - want->loss.value) <= 1e-5 * want->loss.value, "loss");
        CHECK(fabs(got->grad_norm.value - want->grad_norm.value) <= 5.01e-4, "norm as printed");
    }
    dcpk_step_log_release(&golden);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(replays_megatrons_losses)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
