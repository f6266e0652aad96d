/* SPDX-License-Identifier: Apache-2.0 */
/* test_a14_golden_curve.c - A14: from Megatron's checkpoint of iteration 8, with its batches, the
 * losses and norms that Megatron logged of iterations 9 to 16; in fp16, the steps it skipped. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "lib/base/order.h"
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

/*
 * Megatron's own in fp16, from the weights of the same checkpoint: scale, loss, norm; a step that
 * it skipped has none. core 0.19.0 on a CPU, torch 2.11: tests/interop/megatron_train.py with
 * MODEL and FP16, the sample's tokens, and the flags `quiet` of megatron_resumes.sh.
 */
#define FP16                                                                                       \
    "--fp16", "--load", SAMPLE, "--finetune", "--no-load-optim", "--no-load-rng",                  \
        "--initial-loss-scale", "524288", "--loss-scale-window", "3", "--hysteresis", "1"
static const struct {
    double scale, loss, norm;
} in_fp16[] = {
    {0x1p19, 4.92455006, 0},          {0x1p18, 5.0140028, 0},
    {0x1p17, 5.02586985, 3.65803123}, {0x1p17, 5.0116291, 3.78527117},
    {0x1p17, 5.10125923, 3.07271791}, {0x1p18, 5.06991816, 2.31955433},
    {0x1p18, 5.06487179, 2.48030829}, {0x1p18, 5.08886909, 3.431777},
    {0x1p19, 4.95244408, 0},          {0x1p18, 4.90575457, 2.95032644},
    {0x1p18, 4.67765045, 0},          {0x1p17, 4.70808887, 4.29140806},
    {0x1p17, 5.11958694, 1.97952485}, {0x1p17, 4.75223255, 4.01388693},
    {0x1p18, 4.74184608, 0},          {0x1p17, 5.08892727, 3.36474752},
};

/* A loss that is scaled elsewhere than Megatron scales it overflows at other scales. */
static void skips_megatrons_steps_in_fp16(void **state)
{
    static const char *const words[] = {MODEL, FP16, "--exit-at", "16", NULL};
    static struct run_case run;

    (void)state;
    run_case(words, &run);
    CHECK_EQ_INT(run.n, DCPK_COUNT(in_fp16), "steps");
    for (size_t i = 0; i < run.n; i++) {
        const struct dcpk_step *got = &run.steps[i];
        const double loss = in_fp16[i].loss, norm = in_fp16[i].norm;

        print_message("iteration %d: scale %g, loss %.9f, norm %.6f; Megatron %g, %.9f, %.6f\n",
                      (int)got->iteration, got->loss_scale.value, got->loss.value,
                      got->grad_norm.value, in_fp16[i].scale, loss, norm);
        CHECK(got->loss_scale.value == in_fp16[i].scale, "scale");
        CHECK_EQ_INT(got->is_skipped, norm == 0, "skipped");
        CHECK(fabs(got->loss.value - loss) <= 5e-4 * loss, "loss");
        CHECK(fabs(got->grad_norm.value - norm) <= 1e-2 * norm, "norm");
    }
}

/*
 * Sizes that nothing of ours divides: an odd sequence, an MLP of 20, a vocabulary of 100. Losses of
 * 5 to 8: Megatron's (as above), resumed from what the run below had saved at 4.
 */
#define ODD                                                                                        \
    "--num-layers", "4", "--hidden-size", "64", "--num-attention-heads", "4",                      \
        "--group-query-attention", "--num-query-groups", "2", "--ffn-hidden-size", "20",           \
        "--vocab-size", "98", "--make-vocab-size-divisible-by", "4", "--seq-length", "15",         \
        "--max-position-embeddings", "15", "--transformer-impl", "local", "--micro-batch-size",    \
        "1", "--global-batch-size", "4", "--train-iters", "8", "--lr", "1e-3", "--lr-decay-style", \
        "cosine", "--min-lr", "1e-4", "--lr-warmup-iters", "2", "--weight-decay", "0.01",          \
        "--clip-grad", "1.0", "--untie-embeddings-and-output-weights"

static void write_odd_tokens(const char *path)
{
    FILE *file = fopen(path, "wb");

    CHECK(file != NULL, path);
    for (int32_t row = 0; row < 32; row++)
        for (int32_t i = 0; i < 16; i++) {
            const int32_t token = (row * 17 + i * i * (1 + row % 5)) % 97;

            CHECK(fwrite(&token, sizeof token, 1, file) == 1, path);
        }
    fclose(file);
}

static void trains_odd_sizes_as_megatron(void **state)
{
    static const double want[] = {4.59786224, 4.59049654, 4.60603523, 4.57550621};
    char path[] = "/tmp/dcpk_odd_XXXXXX";
    const char *const words[] = {ODD, "--token-file", path, NULL};
    const int fd = mkstemp(path);
    static struct run_case run;

    (void)state;
    CHECK(fd >= 0, path);
    write_odd_tokens(path);
    run_case(words, &run);
    CHECK_EQ_INT(run.n, 8, "steps");
    for (size_t i = 0; i < DCPK_COUNT(want); i++)
        CHECK(fabs(run.steps[4 + i].loss.value - want[i]) <= 1e-6 * want[i], "loss");
    close(fd);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(replays_megatrons_losses),
                                       cmocka_unit_test(skips_megatrons_steps_in_fp16),
                                       cmocka_unit_test(trains_odd_sizes_as_megatron)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
