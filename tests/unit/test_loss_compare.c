/* SPDX-License-Identifier: Apache-2.0 */
/* test_loss_compare.c - which losses, norms and hashes count as equal. */
#include "lib/job/loss_compare.h"

#include <math.h>

#include "tests/check.h"

#define EXACT(v)                                                                                   \
    {                                                                                              \
        (v), 0, true                                                                               \
    }
#define PRINTED(v, r)                                                                              \
    {                                                                                              \
        (v), (r), true                                                                             \
    }
#define NONE                                                                                       \
    {                                                                                              \
        0, 0, false                                                                                \
    }

static const struct {
    const char *label;
    struct dcpk_logged a, b;
    double rtol;
    bool is_equal;
} numbers[] = {
    {"same bits", EXACT(0.1), EXACT(0.1), 0, true},
    {"one bit", EXACT(0.1), EXACT(0x1.999999999999bp-4), 0, false},
    {"two zeros", EXACT(0.0), EXACT(-0.0), 0, false},
    {"NaN", EXACT(NAN), EXACT(NAN), 0, false},
    {"NaN within", EXACT(NAN), EXACT(NAN), 0.5, false},
    {"NaN and a number", EXACT(NAN), EXACT(1), 0.5, false},
    {"infinity", EXACT(INFINITY), EXACT(INFINITY), 0, false},
    {"infinity and a number", EXACT(INFINITY), EXACT(1), 0.5, false},
    {"a number and infinity", EXACT(1), EXACT(INFINITY), 0.5, false},
    {"both infinities", EXACT(INFINITY), EXACT(-INFINITY), 0.5, false},
    {"a number and NaN", EXACT(1), EXACT(NAN), 0.5, false},
    {"within", EXACT(1.00001), EXACT(1), 1.1e-5, true},
    {"beyond", EXACT(1.00001), EXACT(1), 0.9e-5, false},
    {"printed with three digits", EXACT(2.7683), PRINTED(2.768, 5e-4), 0, true},
    {"another third digit", EXACT(2.7687), PRINTED(2.768, 5e-4), 0, false},
    {"both printed, neighbours", PRINTED(2.769, 5e-4), PRINTED(2.768, 5e-4), 0, false},
    {"both printed, equal", PRINTED(2.768, 5e-4), PRINTED(2.768, 5e-4), 0, true},
    {"tolerance and rounding", EXACT(2.7688), PRINTED(2.768, 5e-4), 2e-4, true},
};

static struct dcpk_loss_report compare(const struct dcpk_step_log *a, const struct dcpk_step_log *b,
                                       const struct dcpk_loss_options *options)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_loss_report report;

    CHECK_OK(dcpk_loss_compare(a, b, options, &report, &err), "compare");
    return report;
}

static void compares_numbers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct dcpk_step x = {.iteration = 1, .loss = numbers[i].a, .grad_norm = EXACT(1)};
        struct dcpk_step y = {.iteration = 1, .loss = numbers[i].b, .grad_norm = EXACT(1)};
        const struct dcpk_step_log a = {&x, 1, 0}, b = {&y, 1, 0};
        struct dcpk_loss_report report =
            compare(&a, &b, &(struct dcpk_loss_options){.rtol = numbers[i].rtol});

        CHECK_EQ_INT(report.is_equal, numbers[i].is_equal, numbers[i].label);
        CHECK_EQ_INT(report.n_differ[DCPK_LOSS], !numbers[i].is_equal, numbers[i].label);
        dcpk_loss_report_release(&report);
        x.loss = y.loss = (struct dcpk_logged)EXACT(1);
        x.grad_norm = numbers[i].a;
        y.grad_norm = numbers[i].b;
        report = compare(&a, &b, &(struct dcpk_loss_options){.norm_rtol = numbers[i].rtol});
        CHECK_EQ_INT(report.n_differ[DCPK_GRAD_NORM], !numbers[i].is_equal, numbers[i].label);
        dcpk_loss_report_release(&report);
    }
}

/* Iterations 1 to 4 and 3 to 6; number 4 was skipped in one; hashes only where they are asked for;
 * a norm that one lacks. */
static void compares_what_both_have(void **state)
{
    struct dcpk_step x[4], y[4];
    const struct dcpk_step_log a = {x, 4, 0}, b = {y, 4, 0};
    struct dcpk_loss_report report;

    (void)state;
    for (int i = 0; i < 4; i++) {
        x[i] = (struct dcpk_step){.iteration = i + 1, .loss = EXACT(i + 1), .grad_norm = EXACT(1)};
        y[i] = (struct dcpk_step){.iteration = i + 3, .loss = EXACT(i + 3), .grad_norm = NONE};
        x[i].has_hash = y[i].has_hash = true;
        x[i].state_hash = 7;
        y[i].state_hash = 7 + (uint64_t)i;
    }
    report = compare(&a, &b, &(struct dcpk_loss_options){.rtol = 0});
    CHECK(report.is_equal, "equal without hashes");
    CHECK_EQ_INT(report.n, 2, "iterations");
    CHECK_EQ_INT(report.b_lacks.n_before, 2, "only in A");
    CHECK_EQ_INT(report.a_lacks.n_after, 2, "only in B");
    CHECK_EQ_INT(report.n_compared[DCPK_GRAD_NORM], 0, "norms");
    CHECK_EQ_INT(report.n_compared[DCPK_STATE_HASH], 0, "hashes");
    dcpk_loss_report_release(&report);
    y[1].is_skipped = true;
    report = compare(&a, &b, &(struct dcpk_loss_options){.has_hashes = true});
    CHECK_EQ_INT(report.n_compared[DCPK_STATE_HASH], 2, "hashes");
    CHECK_EQ_INT(report.n_differ[DCPK_STATE_HASH], 1, "one hash");
    CHECK_EQ_INT(report.n_differ[DCPK_SKIPPED], 1, "skipped");
    CHECK_EQ_INT(report.n_different, 1, "both of iteration 4");
    CHECK(!report.rows[0].differs[DCPK_STATE_HASH] && report.rows[1].differs[DCPK_STATE_HASH],
          "which");
    dcpk_loss_report_release(&report);
}

/* Ten times the larger noise of the two; norms are not compared then. */
static void allows_noise(void **state)
{
    struct dcpk_step x = {.iteration = 1, .loss = EXACT(1), .grad_norm = EXACT(1)};
    struct dcpk_step y = {.iteration = 1, .loss = EXACT(1.0009), .grad_norm = EXACT(2)};
    const struct dcpk_step_log a = {&x, 1, 0}, b = {&y, 1, 0};
    const struct dcpk_loss_options options = {.allows_noise = true};
    struct dcpk_loss_report report;

    (void)state;
    report = compare(&a, &b, &options);
    CHECK(!report.is_equal, "no noise was measured");
    dcpk_loss_report_release(&report);
    y.loss_noise = (struct dcpk_logged)EXACT(1e-4);
    report = compare(&a, &b, &options);
    CHECK(report.is_equal, "9 times the noise");
    CHECK_EQ_INT(report.n_compared[DCPK_GRAD_NORM], 0, "norms");
    dcpk_loss_report_release(&report);
    y.loss = (struct dcpk_logged)EXACT(1.0011);
    report = compare(&a, &b, &options);
    CHECK(!report.is_equal, "11 times the noise");
    dcpk_loss_report_release(&report);
    y.loss_noise = (struct dcpk_logged)EXACT(INFINITY);
    report = compare(&a, &b, &options);
    CHECK(!report.is_equal, "noise without end");
    CHECK_EQ_INT(report.n_loud, 1, "noise without end");
    dcpk_loss_report_release(&report);
    y.loss_noise = (struct dcpk_logged)EXACT(0.0101);
    report = compare(&a, &b, &options);
    CHECK(!report.is_equal, "more noise than a hundredth of the loss");
    dcpk_loss_report_release(&report);
    report = compare(&a, &b, &(struct dcpk_loss_options){.rtol = 0});
    CHECK(!report.is_equal, "noise that is not allowed");
    dcpk_loss_report_release(&report);
}

/* Two diverged runs prove nothing, unless bits are what is asked for. */
static void takes_what_is_not_finite(void **state)
{
    struct dcpk_step x = {.iteration = 1, .loss = EXACT(NAN), .grad_norm = EXACT(INFINITY)}, y = x;
    const struct dcpk_step_log a = {&x, 1, 0}, b = {&y, 1, 0};
    const struct dcpk_loss_options bits = {.takes_nonfinite = true};
    struct dcpk_loss_report report = compare(&a, &b, &(struct dcpk_loss_options){.rtol = 0});

    (void)state;
    CHECK(report.rows[0].differs[DCPK_LOSS] && report.rows[0].differs[DCPK_GRAD_NORM], "both");
    CHECK_EQ_INT(report.n_nonfinite, 1, "noted");
    dcpk_loss_report_release(&report);
    report = compare(&a, &b, &bits);
    CHECK(report.is_equal && report.n_nonfinite == 1, "equal bits, noted");
    dcpk_loss_report_release(&report);
    y.grad_norm = (struct dcpk_logged)EXACT(-INFINITY);
    report = compare(&a, &b, &bits);
    CHECK(!report.is_equal, "other bits");
    dcpk_loss_report_release(&report);
}

/* A schedule that is a step late, a run that took other samples, another scale. */
static void compares_what_a_step_used(void **state)
{
    const struct dcpk_step step = {.iteration = 1,
                                   .loss = EXACT(1),
                                   .consumed_samples = 8,
                                   .lr = EXACT(1e-3),
                                   .loss_scale = EXACT(1)};
    struct dcpk_step x = step, y = step;
    const struct dcpk_step_log a = {&x, 1, 0}, b = {&y, 1, 0};
    struct dcpk_loss_report report;

    (void)state;
    y.consumed_samples = 9;
    y.lr = (struct dcpk_logged)EXACT(1.001e-3);
    y.loss_scale = (struct dcpk_logged)EXACT(2);
    report = compare(&a, &b, &(struct dcpk_loss_options){.rtol = 1e-5});
    CHECK_EQ_INT(report.n_differ[DCPK_CONSUMED_SAMPLES], 1, "samples");
    CHECK_EQ_INT(report.n_differ[DCPK_LR], 1, "rate");
    CHECK_EQ_INT(report.n_differ[DCPK_LOSS_SCALE], 1, "scale");
    CHECK_EQ_INT(report.n_different, 1, "one iteration");
    dcpk_loss_report_release(&report);
    y = step;
    y.lr = (struct dcpk_logged)PRINTED(1.000000047e-3, 6e-11); /* what Megatron prints of 0.001 */
    y.consumed_samples = 0;
    report = compare(&a, &b, &(struct dcpk_loss_options){.rtol = 0});
    CHECK(report.is_equal, "a float32, no samples");
    CHECK_EQ_INT(report.n_compared[DCPK_CONSUMED_SAMPLES], 0, "samples");
    dcpk_loss_report_release(&report);
}

/* Iterations of A and of B, "-" for one that is lacking, and what is missing without and with a
 * question for all of them. */
static const struct {
    const char *label, *a, *b;
    size_t n_missing, n_missing_of_all;
} ranges[] = {
    {"the same", "12345", "12345", 0, 0},
    {"resumed at 3", "12345", "--345", 0, 0},
    {"ended at 3", "12345", "123--", 0, 2},
    {"resumed at 3, ended at 4", "12345", "--34-", 0, 1},
    {"a gap", "12345", "12-45", 1, 1},
    {"a gap on each side", "1-345", "12-45", 2, 2},
    {"a gap and an end", "1234-", "1-3-5", 1, 3},
    {"both lack it", "12-45", "12-45", 0, 0},
};

static size_t steps_of(const char *text, struct dcpk_step *steps)
{
    size_t n = 0;

    for (size_t i = 0; text[i] != '\0'; i++)
        if (text[i] != '-')
            steps[n++] = (struct dcpk_step){.iteration = text[i] - '0', .loss = EXACT(1)};
    return n;
}

static void misses_iterations(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        struct dcpk_step x[5], y[5];
        const struct dcpk_step_log a = {x, steps_of(ranges[i].a, x), 0};
        const struct dcpk_step_log b = {y, steps_of(ranges[i].b, y), 0};

        for (int all = 0; all < 2; all++) {
            const size_t want = all ? ranges[i].n_missing_of_all : ranges[i].n_missing;
            struct dcpk_loss_report report =
                compare(&a, &b, &(struct dcpk_loss_options){.asks_all = all});

            CHECK_EQ_INT(report.n_missing, want, ranges[i].label);
            CHECK_EQ_INT(report.is_equal, want == 0, ranges[i].label);
            CHECK_EQ_INT(report.n_different, 0, ranges[i].label);
            dcpk_loss_report_release(&report);
        }
    }
}

/* "lm loss: 5" is anything from 4.5 to 5.5, and says nothing; two of four digits are compared. */
static void passes_over_coarse_losses(void **state)
{
    struct dcpk_step x[2] = {{.iteration = 1, .loss = EXACT(4.716)},
                             {.iteration = 2, .loss = EXACT(5.12826)}};
    struct dcpk_step y[2] = {{.iteration = 1, .loss = PRINTED(5, 0.5)},
                             {.iteration = 2, .loss = PRINTED(5.128, 5e-4)}};
    const struct dcpk_step_log a = {x, 2, 0}, b = {y, 2, 0}, one = {x, 1, 0}, other = {y, 1, 0};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_loss_report report = compare(&a, &b, &(struct dcpk_loss_options){.rtol = 1e-5});

    (void)state;
    CHECK_EQ_INT(report.n_coarse, 1, "coarse");
    CHECK_EQ_INT(report.n_compared[DCPK_LOSS], 1, "compared");
    CHECK(report.is_equal && report.is_rounded, "the other one");
    dcpk_loss_report_release(&report);
    CHECK_FAILS(
        dcpk_loss_compare(&one, &other, &(struct dcpk_loss_options){.rtol = 1e-5}, &report, &err),
        DCPK_EUSAGE, "no iteration has a loss of at least 4 digits in both", "alone");
}

/* An answer that rests on nothing is none. */
static void refuses_to_compare_nothing(void **state)
{
    struct dcpk_step x = {.iteration = 1, .loss = EXACT(1)}, y = {.iteration = 2, .loss = EXACT(1)};
    const struct dcpk_step_log a = {&x, 1, 0}, b = {&y, 1, 0};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_loss_report report;

    (void)state;
    CHECK_FAILS(dcpk_loss_compare(&a, &b, &(struct dcpk_loss_options){.rtol = 1}, &report, &err),
                DCPK_EUSAGE, "share no iteration: A has 1 to 1, B 2 to 2", "iterations");
    y.iteration = 1;
    y.loss.is_there = false;
    CHECK_FAILS(dcpk_loss_compare(&a, &b, &(struct dcpk_loss_options){.rtol = 1}, &report, &err),
                DCPK_EUSAGE, "no iteration has a loss in both", "losses");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(compares_numbers),
        cmocka_unit_test(compares_what_both_have),
        cmocka_unit_test(allows_noise),
        cmocka_unit_test(takes_what_is_not_finite),
        cmocka_unit_test(compares_what_a_step_used),
        cmocka_unit_test(misses_iterations),
        cmocka_unit_test(passes_over_coarse_losses),
        cmocka_unit_test(refuses_to_compare_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
