/* SPDX-License-Identifier: Apache-2.0 */
/* test_train_numbers.c - knobs that change numbers change them as they are defined: scales of fp16,
 * dtypes, masks, clipping, weight decay, units of sums; and how far rounding moves a loss. */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "lib/base/order.h"
#include "lib/io/remove.h"
#include "lib/job/loss_compare.h"
#include "tests/train/run_case.h"

#define N_SAMPLES 160
#define SEQ       16

#define MODEL                                                                                      \
    "--num-layers 2 --hidden-size 32 --num-attention-heads 4 --group-query-attention "             \
    "--num-query-groups 2 --ffn-hidden-size 48 --swiglu --normalization RMSNorm "                  \
    "--position-embedding-type rope --untie-embeddings-and-output-weights --disable-bias-linear "  \
    "--vocab-size 128 --seq-length 16 --transformer-impl local --attention-dropout 0 "             \
    "--hidden-dropout 0 --micro-batch-size 2 --global-batch-size 8 --train-iters 20 --lr 1e-2 "    \
    "--min-lr 1e-3 --lr-decay-style cosine "
#define FSDP "--use-megatron-fsdp --ckpt-format fsdp_dtensor "

static struct run_case a, b;

/* The first step whose state differs; a.n: none does. */
static size_t first_difference(void)
{
    size_t i = 0;

    CHECK_EQ_INT(a.n, b.n, "steps");
    while (i < a.n && a.steps[i].state_hash == b.steps[i].state_hash)
        i++;
    return i;
}

/* ---- fp16 ---- */

/* Megatron's scaler, told of overflows by the log itself. */
static void check_scales(const struct run_case *run, double scale, int64_t window, int64_t left)
{
    const int64_t hysteresis = left;
    int64_t n_good = 0, n_steps = 0;

    for (size_t i = 0; i < run->n; i++) {
        const struct dcpk_step *step = &run->steps[i];

        CHECK(step->loss_scale.value == scale, "scale");
        CHECK_EQ_INT(step->consumed_samples, 8 * (i + 1), "skipped samples are consumed");
        CHECK_EQ_INT(step->grad_norm.is_there, !step->is_skipped, "norm");
        if (i > 0 && step->is_skipped)
            CHECK(step->state_hash == run->steps[i - 1].state_hash,
                  "a skipped step changes nothing");
        if (i > 0 && !step->is_skipped)
            CHECK(step->state_hash != run->steps[i - 1].state_hash, "another one does");
        n_steps += !step->is_skipped;
        if (step->is_skipped) {
            n_good = 0;
            left--;
            if (left <= 0)
                scale /= 2;
        } else if (++n_good == window) {
            n_good = 0;
            left = hysteresis;
            scale *= 2;
        }
    }
    CHECK(n_steps > 0 && n_steps < (int64_t)run->n, "some are skipped");
}

static void fp16_scales_the_loss(void **state)
{
    (void)state;
    run_case_flags(NULL, MODEL "--fp16 ",
                   "--initial-loss-scale 33554432 --loss-scale-window 4 --hysteresis 2", &a);
    check_scales(&a, 33554432, 4, 2);
    CHECK(a.steps[19].loss.value < a.steps[0].loss.value - 0.3, "it learns");
    for (size_t i = 1; i < a.n && a.steps[i].is_skipped; i++)
        CHECK(a.steps[i].lr.value == a.steps[0].lr.value, "the schedule waits");
    run_case_flags(NULL, MODEL "--fp16 " FSDP,
                   "--initial-loss-scale 33554432 --loss-scale-window 4 --hysteresis 2", &b);
    run_case_check_same(&a, &b, 0, "the same with FSDP");
    run_case_flags(NULL, MODEL "--fp16 --reduce native ",
                   "--initial-loss-scale 33554432 --loss-scale-window 4 --hysteresis 2", &a);
    check_scales(&a, 33554432, 4, 2);
}

/* The scale is a power of two: nothing but what vanishes in fp16 shows. */
static void fp16_is_near_fp32(void **state)
{
    (void)state;
    run_case_flags(NULL, MODEL, "", &a);
    run_case_flags(NULL, MODEL, "--fp16 --initial-loss-scale 1024", &b);
    CHECK(first_difference() == 0, "fp16 rounds");
    for (size_t i = 0; i < a.n; i++)
        CHECK(fabs(a.steps[i].loss.value - b.steps[i].loss.value) < 0.05, "loss");
}

static void remove_run(const char *folder)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    const int fd = open(folder, O_RDONLY | O_DIRECTORY);

    CHECK(fd >= 0, folder);
    CHECK_OK(dcpk_remove_at(fd, "run", folder, &err), folder);
    close(fd);
    rmdir(folder);
}

/* Saved among skipped steps, and between two doublings: the scale, and what it counts. Checkpoints
 * of Megatron-FSDP have no scaler: it starts anew. */
static void fp16_resumes_with_its_scale(void **state)
{
    static const char *const formats[] = {"--ckpt-format torch_dist", "--ckpt-format zarr", FSDP};
    static const int stops[] = {1, 2, 13};
    static const char *const scaler =
        "--fp16 --initial-loss-scale 33554432 --loss-scale-window 4 --hysteresis 2";
    char more[512];

    (void)state;
    for (size_t i = 0; i < 9; i++) {
        char folder[] = "/tmp/dcpk_scales_XXXXXX";

        CHECK(mkdtemp(folder) != NULL, folder);
        run_case_flags(NULL, MODEL, scaler, &a);
        snprintf(more, sizeof more, "%s %s --exit-at %d --save %s/run", scaler, formats[i % 3],
                 stops[i / 3], folder);
        run_case_flags(NULL, MODEL, more, &b);
        snprintf(more, sizeof more, "%s %s --load %s/run", scaler, formats[i % 3], folder);
        run_case_flags(NULL, MODEL, more, &b);
        if (i % 3 < 2)
            run_case_check_same(&a, &b, (size_t)stops[i / 3], more);
        else
            CHECK(b.steps[0].loss_scale.value == a.steps[0].loss_scale.value, more);
        remove_run(folder);
    }
}

/* ---- dtypes ---- */

/* main parameters x main gradients x gradients on their way: each trains, and resumes to the bit.
 */
static void dtypes_train_and_resume(void **state)
{
    static const char *const params[] = {"fp32", "auto"}, *const grads[] = {"fp32", "bf16", "auto"},
                             *const comm[] = {"fp32", "bf16", "auto"};
    char kind[256], more[512];

    (void)state;
    for (int i = 0; i < 18; i++) {
        char folder[] = "/tmp/dcpk_dtypes_XXXXXX";

        CHECK(mkdtemp(folder) != NULL, folder);
        snprintf(kind, sizeof kind,
                 "--bf16 --reduce native --megatron-fsdp-main-params-dtype %s "
                 "--megatron-fsdp-main-grads-dtype %s --megatron-fsdp-grad-comm-dtype %s",
                 params[i % 2], grads[i / 2 % 3], comm[i / 6]);
        run_case_flags(NULL, MODEL FSDP, kind, &a);
        CHECK(a.steps[19].loss.value < a.steps[0].loss.value - 0.3, kind);
        snprintf(more, sizeof more, "%s --exit-at 10 --save %s/run", kind, folder);
        run_case_flags(NULL, MODEL FSDP, more, &b);
        snprintf(more, sizeof more, "%s --load %s/run", kind, folder);
        run_case_flags(NULL, MODEL FSDP, more, &b);
        run_case_check_same(&a, &b, 10, kind);
        remove_run(folder);
    }
}

/* ---- masks ---- */

/* Samples of which more and more tokens have no loss. */
static void write_masked_tokens(const char *path)
{
    FILE *file = fopen(path, "wb");

    CHECK(file != NULL, path);
    for (int32_t s = 0; s < N_SAMPLES; s++)
        for (int32_t i = 0; i <= SEQ; i++) {
            int32_t token = (s * 7 + i * (1 + s % 3)) % 128;

            if (i > SEQ - s % 11)
                token = -1 - token;
            CHECK_EQ_INT(fwrite(&token, sizeof token, 1, file), 1, path);
        }
    CHECK_EQ_INT(fclose(file), 0, path);
}

/* The mean over tokens does not depend on how samples are put into micro batches; the mean over
 * micro batches of their means does, where masks differ. */
static void loss_per_token_ignores_micro_batches(void **state)
{
    char path[] = "/tmp/dcpk_tokens_XXXXXX", one[256], four[256];
    const int fd = mkstemp(path);

    (void)state;
    CHECK(fd >= 0, path);
    close(fd);
    write_masked_tokens(path);
    snprintf(one, sizeof one, "--token-file %s --micro-batch-size 1", path);
    snprintf(four, sizeof four, "--token-file %s --micro-batch-size 4", path);
    run_case_flags(NULL, MODEL "--calculate-per-token-loss ", one, &a);
    run_case_flags(NULL, MODEL "--calculate-per-token-loss ", four, &b);
    run_case_check_same(&a, &b, 0, "per token");
    run_case_flags(NULL, MODEL, one, &a);
    run_case_flags(NULL, MODEL, four, &b);
    CHECK_EQ_INT(first_difference(), 0, "per micro batch");
    CHECK(a.steps[0].loss.value == b.steps[0].loss.value, "the logged loss is that of all tokens");
    unlink(path);
}

/* ---- the rest ---- */

/* Each changes the run, in its first step or later, and little of its loss. */
static void numeric_knobs_change_numbers(void **state)
{
    static const struct {
        const char *flags;
        size_t first; /* step whose state differs */
        double gap;   /* of any loss, at most */
    } rows[] = {
        {"--exact-lsb 24", 0, 1e-3},
        {"--virtual-slices 4", 0, 1e-3},
        {"--leaf-tokens 2", 0, 1e-3},
        {"--reduce native", 0, 1e-3},
        {"--adam-form torch", 0, 1e-2},
        {"--adam-beta2 0.95", 0, 2},
        {"--adam-eps 1e-6", 0, 0.5},
        {"--clip-grad 0", 1, 2},
        {"--clip-grad 0.1", 0, 2},
        {"--weight-decay 0", 0, 0.5},
        {"--weight-decay-incr-style linear --start-weight-decay 0.01 --end-weight-decay 0.5", 1, 1},
        {"--weight-decay-incr-style cosine --start-weight-decay 0.01 --end-weight-decay 0.5", 1, 1},
        {"--lr-warmup-iters 5", 0, 4},
        {"--optimizer sgd", 0, 4},
        {"--bf16", 0, 0.2},
        {"--bf16 --grad-reduce-in-bf16 --reduce native", 0, 0.2},
        {"--seed 5", 0, 4},
    };

    (void)state;
    run_case_flags(NULL, MODEL, "", &a);
    for (size_t i = 0; i < DCPK_COUNT(rows); i++) {
        run_case_flags(NULL, MODEL, rows[i].flags, &b);
        CHECK_EQ_INT(first_difference(), rows[i].first, rows[i].flags);
        for (size_t s = 0; s < a.n; s++)
            CHECK(fabs(a.steps[s].loss.value - b.steps[s].loss.value) <= rows[i].gap,
                  rows[i].flags);
    }
}

static void clipping_stops_at_the_norm(void **state)
{
    (void)state;
    run_case_flags(NULL, MODEL, "--clip-grad 1000000", &a);
    run_case_flags(NULL, MODEL, "--clip-grad 0", &b);
    run_case_check_same(&a, &b, 0, "a clip that no norm reaches is none");
    run_case_flags(NULL, MODEL, "--clip-grad 0.25", &b);
    CHECK(b.steps[0].grad_norm.value == a.steps[0].grad_norm.value, "the norm before clipping");
    CHECK(b.steps[0].grad_norm.value > 0.25, "it is clipped");
}

/* Looked at or not: sums of integers take none, and neither does the norm of floats. */
static void what_is_not_finite_ends_the_run(void **state)
{
    static const char *const rows[] = {
        "--lr 1e30 --min-lr 1e30",
        "--lr 1e30 --min-lr 1e30 ddp.check_for_nan_in_grad=false",
        "--lr 1e30 --min-lr 1e30 --reduce native",
        "--lr 1e30 --min-lr 1e30 --reduce native ddp.check_for_nan_in_grad=false",
    };
    static const struct run_place alone = {NULL, NULL};

    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(rows); i++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        int iteration = 0;

        CHECK_EQ_INT(run_case_try(&alone, MODEL, rows[i], &a, &err), DCPK_ERANGE, rows[i]);
        CHECK(sscanf(err.text, "iteration %d: ", &iteration) == 1, err.text);
        CHECK_EQ_INT(iteration, a.n + 1, "the iteration after the last whole one");
        CHECK(strstr(err.text, "not finite") != NULL, err.text);
        CHECK_EQ_INT(strstr(err.text, "2^") != NULL, i < 2, err.text);
        CHECK(a.n >= 1 && a.n < 20, "after the first step");
    }
}

/* Weights so large that the losses of a step pass the integers in which they are added, 2^31. */
static void losses_out_of_range_end_the_run(void **state)
{
    static const struct run_place alone = {NULL, NULL};
    struct dcpk_error err = DCPK_ERROR_INIT;

    (void)state;
    CHECK_EQ_INT(run_case_try(&alone,
                              MODEL
                              "--reduce native --optimizer sgd --sgd-momentum 0 --clip-grad 0 "
                              "--min-lr 0 --lr-decay-style constant --weight-decay 0 ",
                              "--lr 3e6", &a, &err),
                 DCPK_ERANGE, "losses");
    CHECK(strstr(err.text, "a rank's losses of a step pass 2.14748e+09") != NULL, err.text);
    CHECK_EQ_INT(a.n, 1, "no step has a wrong loss");
}

/* ---- noise ---- */

static double most_noise(const struct run_case *run)
{
    double most = 0;

    for (size_t i = 0; i < run->n; i++) {
        CHECK(run->steps[i].loss_noise.is_there, "noise");
        most = fmax(most, run->steps[i].loss_noise.value);
    }
    return most;
}

/* a: with noise; do its losses and those of b agree within it? */
static bool agree_within_noise(double rtol)
{
    const struct dcpk_step_log of_a = {.steps = a.steps, .n = a.n},
                               of_b = {.steps = b.steps, .n = b.n};
    const struct dcpk_loss_options options = {.rtol = rtol, .allows_noise = true};
    struct dcpk_loss_report report = {0};
    struct dcpk_error err = DCPK_ERROR_INIT;
    bool is_equal;

    CHECK_OK(dcpk_loss_compare(&of_a, &of_b, &options, &report, &err), "compare");
    is_equal = report.is_equal;
    dcpk_loss_report_release(&report);
    return is_equal;
}

static void noise_is_measured(void **state)
{
    (void)state;
    run_case_flags(NULL, MODEL, "", &b);
    CHECK(!b.steps[0].loss_noise.is_there, "not without being asked for");
    run_case_flags(NULL, MODEL, "--noise-floor", &a);
    run_case_check_same(&b, &a, 0, "measuring changes nothing");
    print_message("noise of 20 steps: fp32 %.2g", most_noise(&a));
    CHECK(most_noise(&a) > 0 && most_noise(&a) <= 1e-5, "fp32");
    run_case_flags(NULL, MODEL, "--adam-form torch", &b);
    CHECK(agree_within_noise(1e-6), "another order of operations");
    run_case_flags(NULL, MODEL, "--weight-decay 0.02", &b);
    CHECK(!agree_within_noise(1e-6), "another run");
    run_case_flags(NULL, MODEL, "--noise-floor --bf16", &a);
    print_message(", bf16 %.2g\n", most_noise(&a));
    CHECK(most_noise(&a) > 0 && most_noise(&a) <= 2e-2, "bf16");
}

/* A17: eight micro batches added up in bf16, against fp32. */
static void A17_bf16_sums_move_the_loss_little(void **state)
{
    double gap = 0;

    (void)state;
    run_case_flags(NULL, MODEL "--bf16 --reduce native --micro-batch-size 1 ", "--noise-floor", &a);
    run_case_flags(NULL, MODEL "--bf16 --reduce native --micro-batch-size 1 ",
                   "--grad-reduce-in-bf16", &b);
    CHECK_EQ_INT(first_difference(), 0, "sums in bf16");
    for (size_t i = 0; i < a.n; i++)
        gap = fmax(gap, fabs(a.steps[i].loss.value - b.steps[i].loss.value));
    print_message("loss with gradients in bf16: %.2g away, noise %.2g\n", gap, most_noise(&a));
    CHECK(gap < 0.05, "gap");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fp16_scales_the_loss),
        cmocka_unit_test(fp16_is_near_fp32),
        cmocka_unit_test(fp16_resumes_with_its_scale),
        cmocka_unit_test(dtypes_train_and_resume),
        cmocka_unit_test(loss_per_token_ignores_micro_batches),
        cmocka_unit_test(numeric_knobs_change_numbers),
        cmocka_unit_test(clipping_stops_at_the_norm),
        cmocka_unit_test(what_is_not_finite_ends_the_run),
        cmocka_unit_test(losses_out_of_range_end_the_run),
        cmocka_unit_test(noise_is_measured),
        cmocka_unit_test(A17_bf16_sums_move_the_loss_little),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
