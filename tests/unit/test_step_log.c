/* SPDX-License-Identifier: Apache-2.0 */
/* test_step_log.c - steps to lines and back; lines of Megatron's log. */
#include "lib/job/step_log.h"

#include <float.h>
#include <math.h>

#include "tests/every_alloc.h"

static void read_text(const char *text, struct dcpk_step_log *log)
{
    struct dcpk_error err = DCPK_ERROR_INIT;

    CHECK_OK(dcpk_step_log_read(text, strlen(text), log, &err), text);
}

/* All bits, also of numbers that JSON does not have. */
static void reads_what_it_puts(void **state)
{
    static const double numbers[] = {
        5.128260135650635, 0x1.fffffffffffffp+1023, 0x1p-1074, 0.0, -0.0, INFINITY, NAN, 1. / 3};

    (void)state;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const struct dcpk_step step = {.iteration = 9,
                                       .consumed_samples = 18,
                                       .loss = {numbers[i], 0, true},
                                       .grad_norm = {numbers[i], 0, i % 2 == 0},
                                       .loss_noise = {0.25, 0, i % 2 == 1},
                                       .lr = {0.001, 0, true},
                                       .loss_scale = {4096, 0, true},
                                       .is_skipped = i % 3 == 0,
                                       .has_hash = true,
                                       .state_hash = UINT64_C(0x0123456789abcdef) + i};
        struct dcpk_step_log log = {0};
        struct dcpk_bytes line = {0};

        dcpk_step_put(&step, &line);
        dcpk_bytes_u8(&line, 0);
        read_text((const char *)line.data, &log);
        CHECK_EQ_INT(log.n, 1, "steps");
        CHECK(memcmp(&log.steps[0].loss.value, &numbers[i], sizeof(double)) == 0 ||
                  (isnan(numbers[i]) && isnan(log.steps[0].loss.value)),
              (const char *)line.data);
        CHECK_EQ_INT(log.steps[0].grad_norm.is_there, i % 2 == 0, "norm");
        CHECK(log.steps[0].loss_noise.value == (i % 2 == 1 ? 0.25 : 0), "noise");
        CHECK(log.steps[0].lr.value == 0.001 && log.steps[0].loss_scale.value == 4096, "decimals");
        CHECK_EQ_INT(log.steps[0].is_skipped, i % 3 == 0, "skipped");
        CHECK(log.steps[0].has_hash && log.steps[0].state_hash == step.state_hash, "hash");
        CHECK_EQ_INT(log.steps[0].consumed_samples, 18, "samples");
        dcpk_step_log_release(&log);
        dcpk_bytes_release(&line);
    }
}

/* A line of core 0.19.0, as it stood in its log. */
static const char megatron[] =
    " [2026-11-22 12:35:09.791032] iteration        9/      24 | consumed samples:           18 | "
    "elapsed time per iteration (ms): 47.7 | learning rate: 1.000000047E-03 | global batch size:   "
    "  2 | lm loss: 5.128260136E+00 | loss scale: 1.0 | grad norm: 2.768 | number of skipped "
    "iterations:   0 | number of nan iterations:   0 |\n";

static void reads_megatrons_line(void **state)
{
    struct dcpk_step_log log = {0};

    (void)state;
    read_text(megatron, &log);
    CHECK_EQ_INT(log.n, 1, "steps");
    CHECK_EQ_INT(log.steps[0].iteration, 9, "iteration");
    CHECK_EQ_INT(log.steps[0].consumed_samples, 18, "samples");
    CHECK(log.steps[0].loss.value == 5.128260136, "loss");
    CHECK(fabs(log.steps[0].loss.rounded - 5e-10) < 1e-18, "half a unit of its last digit");
    CHECK(log.steps[0].grad_norm.value == 2.768, "norm");
    CHECK(fabs(log.steps[0].grad_norm.rounded - 5e-4) < 1e-12, "half a unit");
    CHECK(!log.steps[0].lr.is_there && !log.steps[0].loss_scale.is_there, "of the next one");
    CHECK(!log.steps[0].is_skipped && !log.steps[0].has_hash, "flags");
    dcpk_step_log_release(&log);
}

/* Megatron prints both after the step of its scheduler and of its scaler, the rate as a float32. */
static void rate_and_scale_are_those_of_the_next(void **state)
{
    static const char text[] =
        " [x] iteration 1/ 8 | learning rate: 1.000000047E-03 | lm loss: 5.1 | loss scale: 8.0 |\n"
        " [x] iteration 2/ 8 | learning rate: 5.000000E-04 | lm loss: 5.1 | loss scale: 4.0 |\n"
        " [x] iteration 4/ 8 | learning rate: 2.000000E-04 | lm loss: 5.1 | loss scale: 2.0 |\n";
    struct dcpk_step_log log = {0};

    (void)state;
    read_text(text, &log);
    CHECK_EQ_INT(log.n, 3, "steps");
    CHECK(log.steps[1].lr.value == 1.000000047E-03 && log.steps[1].loss_scale.value == 8, "2");
    CHECK(fabs(log.steps[1].lr.value - 1e-3) <= log.steps[1].lr.rounded, "a float32 of 0.001");
    CHECK(!log.steps[2].lr.is_there && !log.steps[2].loss_scale.is_there, "3 is missing");
    dcpk_step_log_release(&log);
}

/* What CPython's json.dumps writes; the same words within a text stay. */
static void reads_pythons_literals(void **state)
{
    static const char text[] =
        "{\"iteration\": 1, \"loss\": NaN, \"loss_hex\": \"nan\", \"grad_norm\": -Infinity}\n"
        "{\"iteration\": 2, \"loss\": Infinity, \"said\": \"a \\\" NaN, \\\\\", \"lr\": NaN}\n";
    struct dcpk_step_log log = {0};

    (void)state;
    read_text(text, &log);
    CHECK_EQ_INT(log.n, 2, "steps");
    CHECK(isnan(log.steps[0].loss.value) && log.steps[0].grad_norm.value == -INFINITY, "1");
    CHECK(log.steps[1].loss.value == INFINITY && isnan(log.steps[1].lr.value), "2");
    dcpk_step_log_release(&log);
}

/* Resumed after iteration 2: 3 and 4 were made anew. Other lines are passed over. */
static void takes_the_last_of_each(void **state)
{
    static const char text[] = "{\"log\": \"dcpkit train\", \"version\": 1}\n"
                               "{\"iteration\": 1, \"loss\": 5.0}\n"
                               "{\"iteration\": 2, \"loss\": 4.0}\n"
                               "{\"iteration\": 3, \"loss\": 3.5}\n"
                               "{\"iteration\": 4, \"loss\": 3.25}\n"
                               "\n"
                               "saved iteration 2\n"
                               "{\"iteration\": 3, \"loss\": 3.0}\n";
    static const double want[] = {5, 4, 3};
    struct dcpk_step_log log = {0};

    (void)state;
    read_text(text, &log);
    CHECK_EQ_INT(log.n, 3, "steps");
    CHECK_EQ_INT(log.n_replaced, 2, "replaced");
    for (size_t i = 0; i < 3; i++)
        CHECK(log.steps[i].iteration == (int64_t)i + 1 && log.steps[i].loss.value == want[i],
              "the last one");
    dcpk_step_log_release(&log);
}

static void refuses_what_is_malformed(void **state)
{
    static const struct {
        const char *label, *text, *said;
    } cases[] = {
        {"nothing", "", "holds no step"},
        {"other lines", "loading\nsaved\n", "holds no step"},
        {"JSON", "{\"iteration\": 1, \"loss\": }\n", "the line at byte 0"},
        {"a text", "{\"iteration\": 1, \"loss\": \"5.0 \"}\n", "a value of the step is malformed"},
        {"hex", "{\"iteration\": 1, \"loss\": 5, \"loss_hex\": \"0x\"}\n", "is malformed"},
        {"hash", "{\"iteration\": 1, \"state_hash\": \"12\"}\n", "is malformed"},
        {"iteration", "{\"iteration\": 1.5}\n", "is malformed"},
        {"no iteration", "{\"iteration\": NaN}\n", "is malformed"},
        {"a part of a literal", "{\"iteration\": 1, \"loss\": Nan}\n", "the line at byte 0"},
        {"Megatron's", " [x] iteration 9/ 24 | lm loss: 5.1f |\n", "a number of the step"},
        {"Megatron's iteration", " [x] iteration nine/ 24 | lm loss: 5.1 |\n", "a number of"},
        {"past a double", " [x] iteration 9/ 24 | lm loss: 5.1E+999 |\n", "a number of"},
        {"a hex past a double", "{\"iteration\": 1, \"loss\": 5, \"loss_hex\": \"0x1p9999\"}\n",
         "is malformed"},
        {"zeros that leave all open", " [x] iteration 9/ 24 | lm loss: 0.0E+300 |\n",
         "a number of"},
        {"more digits than are read",
         " [x] iteration 9/ 24 | lm loss: 1"
         "0000000000000000000000000000000000000000000000000000000000000000000000 |\n",
         "a number of"},
        {"second line", "{\"iteration\": 1}\n{]\n", "the line at byte 17"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_step_log log = {0};

        CHECK_FAILS(dcpk_step_log_read(cases[i].text, strlen(cases[i].text), &log, &err),
                    DCPK_EFORMAT, cases[i].said, cases[i].label);
    }
}

static dcpk_status read_once(struct dcpk_error *err)
{
    struct dcpk_step_log log = {0};
    const dcpk_status st = dcpk_step_log_read(megatron, strlen(megatron), &log, err);

    dcpk_step_log_release(&log);
    return st;
}

static void fails_without_memory(void **state)
{
    (void)state;
    every_alloc_fails(read_once, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_it_puts),
        cmocka_unit_test(reads_megatrons_line),
        cmocka_unit_test(takes_the_last_of_each),
        cmocka_unit_test(refuses_what_is_malformed),
        cmocka_unit_test(fails_without_memory),
        cmocka_unit_test(reads_pythons_literals),
        cmocka_unit_test(rate_and_scale_are_those_of_the_next),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
