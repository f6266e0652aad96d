/* SPDX-License-Identifier: Apache-2.0 */
/* test_schedule.c - learning rates and weight decay are Megatron's, to the last bit; what is saved
 * is read back by its rules. */
#include "lib/train/schedule.h"

#include <math.h>

#include "tests/check.h"

/* What OptimizerParamScheduler of core 0.19.0 gives after `n` samples: batch 4, rates 1e-5, 1e-3,
 * 1e-4, warm-up 4 and decay 20 iterations, WSD 6, weight decay from 0.01 over 24. */
static const struct {
    const char *label, *lr_style, *wsd_style, *wd_style;
    int64_t n;
    double lr, wd;
} values[] = {
    {"warm-up", "cosine", "linear", "linear", 8, 0x1.08c3f3e0370cep-11, 0x1.1eb851eb851ecp-6},
    {"constant", "constant", "linear", "constant", 40, 0x1.0624dd2f1a9fcp-10, 0x1.47ae147ae147bp-7},
    {"linear", "linear", "linear", "linear", 40, 0x1.5b573eab367a1p-11, 0x1.851eb851eb853p-5},
    {"cosine", "cosine", "linear", "cosine", 40, 0x1.7aa50e4753f32p-11, 0x1.632621679269cp-5},
    {"inverse square root", "inverse-square-root", "linear", "constant", 40, 0x1.4b96be9c2da2cp-11,
     0x1.47ae147ae147bp-7},
    {"WSD before its end", "WSD", "linear", "linear", 40, 0x1.0624dd2f1a9fcp-10,
     0x1.851eb851eb853p-5},
    {"WSD linear", "WSD", "linear", "linear", 64, 0x1.6f0068db8bac8p-11, 0x1.1eb851eb851ecp-4},
    {"WSD cosine", "WSD", "cosine", "linear", 64, 0x1.9652bd3c36114p-11, 0x1.1eb851eb851ecp-4},
    {"WSD exponential", "WSD", "exponential", "linear", 64, 0x1.499971a73afc0p-11,
     0x1.1eb851eb851ecp-4},
    {"WSD minus square root", "WSD", "minus_sqrt", "linear", 64, 0x1.f7b84d2ee04ebp-12,
     0x1.1eb851eb851ecp-4},
    {"past both ends", "linear", "linear", "cosine", 104, 0x1.a36e2eb1c432dp-14,
     0x1.999999999999ap-4},
};

/* wd_style decides on the end. */
static struct dcpk_train_config config_of(const char *lr, const char *wsd, const char *wd)
{
    struct dcpk_train_config config = {0};

    config.optim = (struct dcpk_train_optim){
        .lr = 1e-3,
        .min_lr = 1e-4,
        .warmup_init_lr = 1e-5,
        .lr_style = lr,
        .wd_style = wd,
        .wsd_style = wsd,
        .warmup_iters = 4,
        .decay_iters = 20,
        .wsd_iters = 6,
        .start_wd = 0.01,
        .end_wd = 0.01,
    };
    if (strcmp(wd, "constant") != 0)
        config.optim.end_wd = 0.1;
    config.data.global_batch = 4;
    config.data.train_iters = 24;
    return config;
}

static void gives_megatrons_values(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        const struct dcpk_train_config config =
            config_of(values[i].lr_style, values[i].wsd_style, values[i].wd_style);
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_schedule schedule;

        CHECK_OK(dcpk_schedule_init(&config, &schedule, &err), values[i].label);
        dcpk_schedule_step(&schedule, values[i].n);
        CHECK(dcpk_schedule_lr(&schedule) == values[i].lr, values[i].label);
        CHECK(dcpk_schedule_wd(&schedule) == values[i].wd, values[i].label);
    }
}

/* decay_iters 0: train_iters; a fraction is of the decay. */
static void counts_in_samples(void **state)
{
    struct dcpk_train_config config = config_of("linear", "linear", "linear");
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_schedule schedule;

    (void)state;
    config.optim.decay_iters = 0;
    config.optim.warmup_fraction = 0.1;
    CHECK_OK(dcpk_schedule_init(&config, &schedule, &err), "fraction");
    CHECK_EQ_INT(schedule.lr_decay_steps, 96, "all iterations");
    CHECK(schedule.lr_warmup_steps == 96 * 0.1, "a tenth of them");
    CHECK_EQ_INT(schedule.wsd_decay_steps, 24, "WSD");
}

/* What Megatron's constructor asserts, and a style that it does not have. */
static void refuses_what_megatron_refuses(void **state)
{
    static const struct {
        const char *label;
        double lr, min_lr, start_wd;
        int64_t warmup_iters, wsd_iters;
        const char *lr_style, *wd_style, *text;
    } cases[] = {
        {"minimum", 1e-5, 1e-4, 0.01, 4, 6, "linear", "linear", "minimum 0.0001"},
        {"warm-up", 1e-3, 1e-4, 0.01, 20, 6, "linear", "linear", "warms up for 80 samples"},
        {"WSD", 1e-3, 1e-4, 0.01, 4, 0, "WSD", "linear", "needs the iterations of its decay"},
        {"falling decay", 1e-3, 1e-4, 0.2, 4, 6, "linear", "linear", "weight decay: 0.2 to 0.1"},
        {"decay moves", 1e-3, 1e-4, 0.005, 4, 6, "linear", "constant", "constant weight decay"},
        {"style", 1e-3, 1e-4, 0.01, 4, 6, "cosin", "linear", "'cosin' is not a style"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dcpk_train_config config = config_of(cases[i].lr_style, "linear", cases[i].wd_style);
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_schedule schedule;

        config.optim.lr = cases[i].lr;
        config.optim.min_lr = cases[i].min_lr;
        config.optim.start_wd = cases[i].start_wd;
        config.optim.warmup_iters = cases[i].warmup_iters;
        config.optim.wsd_iters = cases[i].wsd_iters;
        CHECK_FAILS(dcpk_schedule_init(&config, &schedule, &err), DCPK_EUSAGE, cases[i].text,
                    cases[i].label);
    }
}

/* Of a golden checkpoint of core 0.19.0 (torch_dist_c_dense_tp2pp2): the keys, in their order. */
static const char *const keys[] = {
    "max_lr", "lr_warmup_steps", "num_steps", "lr_decay_style", "lr_decay_steps",
    "min_lr", "start_wd",        "end_wd",    "wd_incr_style",  "wd_incr_steps"};

static void saves_megatrons_keys(void **state)
{
    const struct dcpk_train_config config = config_of("cosine", "linear", "linear");
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new();
    struct dcpk_schedule schedule;
    const struct dcpk_value *saved;
    int64_t n;

    (void)state;
    CHECK_OK(dcpk_schedule_init(&config, &schedule, &err), "init");
    dcpk_schedule_step(&schedule, 12);
    saved = dcpk_schedule_state(&schedule, arena, &err);
    CHECK(saved != NULL, err.text);
    CHECK_EQ_INT(saved->n, sizeof keys / sizeof *keys, "keys");
    for (size_t i = 0; i < saved->n; i++)
        CHECK_EQ_STR(dcpk_value_as_str(saved->as.pairs[i].key), keys[i], "key");
    CHECK(dcpk_value_as_int(dcpk_value_get(saved, "num_steps"), &n), "num_steps");
    CHECK_EQ_INT(n, 12, "num_steps");
    CHECK_EQ_INT(dcpk_value_get(saved, "lr_warmup_steps")->kind, DCPK_V_INT, "as Python has it");
    dcpk_arena_free(arena);
}

/* Saved by a schedule that ran 12 samples, loaded by one with another rate: the options decide. */
static void loads_by_the_options(void **state)
{
    static const struct {
        const char *label;
        bool uses, overrides;
        dcpk_status status;
        double lr; /* max_lr afterwards */
    } cases[] = {
        {"must be equal", false, false, DCPK_EMISMATCH, 1e-2},
        {"checkpoint's", true, false, DCPK_OK, 1e-3},
        {"own", false, true, DCPK_OK, 1e-2},
        {"both", true, true, DCPK_EUSAGE, 1e-2},
    };
    struct dcpk_train_config config = config_of("cosine", "linear", "linear");
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new();
    struct dcpk_schedule saved, loaded;
    const struct dcpk_value *dict;

    (void)state;
    CHECK_OK(dcpk_schedule_init(&config, &saved, &err), "init");
    dcpk_schedule_step(&saved, 12);
    dict = dcpk_schedule_state(&saved, arena, &err);
    config.optim.lr = 1e-2;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_OK(dcpk_schedule_init(&config, &loaded, &err), cases[i].label);
        config.optim.uses_saved_schedule = cases[i].uses;
        config.optim.overrides_schedule = cases[i].overrides;
        CHECK_EQ_INT(dcpk_schedule_load(dict, &config.optim, &loaded, &err), cases[i].status,
                     cases[i].label);
        CHECK(loaded.max_lr == cases[i].lr, cases[i].label);
        CHECK_EQ_INT(loaded.num_steps, 12 * (cases[i].status == DCPK_OK), cases[i].label);
    }
    dcpk_arena_free(arena);
}

/* The state of a schedule with another number under one of its keys. */
static const struct dcpk_value *state_with(const struct dcpk_value *state, const char *key,
                                           double number, struct dcpk_arena *arena)
{
    struct dcpk_value_pair pairs[sizeof keys / sizeof *keys];
    struct dcpk_error err = DCPK_ERROR_INIT;
    const struct dcpk_value *made;

    for (size_t i = 0; i < state->n; i++) {
        pairs[i] = state->as.pairs[i];
        if (strcmp(dcpk_value_as_str(pairs[i].key), key) == 0)
            pairs[i].value = dcpk_value_float(arena, number, &err);
    }
    made = dcpk_value_dict(arena, pairs, state->n, &err);
    CHECK(made != NULL, err.text);
    return made;
}

/* Of a checkpoint whose values are used: each number that would make a rate or a decay none. */
static void refuses_numbers_that_are_none(void **state)
{
    static const struct {
        const char *key;
        double number;
        dcpk_status status;
        const char *text;
    } cases[] = {
        {"max_lr", NAN, DCPK_EFORMAT, "'max_lr' is"},
        {"max_lr", INFINITY, DCPK_EFORMAT, "'max_lr' is"},
        {"min_lr", NAN, DCPK_EFORMAT, "'min_lr' is"},
        {"lr_warmup_steps", NAN, DCPK_EFORMAT, "'lr_warmup_steps' is"},
        {"lr_warmup_steps", -INFINITY, DCPK_EFORMAT, "'lr_warmup_steps' is"},
        {"lr_decay_steps", NAN, DCPK_EFORMAT, "'lr_decay_steps' is"},
        {"num_steps", NAN, DCPK_EFORMAT, "'num_steps' is"},
        {"start_wd", NAN, DCPK_EFORMAT, "'start_wd' is"},
        {"end_wd", INFINITY, DCPK_EFORMAT, "'end_wd' is"},
        {"wd_incr_steps", 0, DCPK_EUSAGE, "weight decay linear, but over 0 samples"},
    };
    struct dcpk_train_config config = config_of("cosine", "linear", "linear");
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new();
    struct dcpk_schedule schedule;
    const struct dcpk_value *saved;

    (void)state;
    config.optim.uses_saved_schedule = true;
    CHECK_OK(dcpk_schedule_init(&config, &schedule, &err), "init");
    saved = dcpk_schedule_state(&schedule, arena, &err);
    CHECK(saved != NULL, err.text);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK_FAILS(dcpk_schedule_load(state_with(saved, cases[i].key, cases[i].number, arena),
                                       &config.optim, &schedule, &err),
                    cases[i].status, cases[i].text, cases[i].key);
    dcpk_arena_free(arena);
}

/* Python keeps the kind of a number that a checkpoint has: saved again, the next run finds the same
 * one. */
static void a_warm_up_is_saved_as_it_was_loaded(void **state)
{
    static const struct {
        const char *label;
        double saved, own; /* fractions of 80 samples; 0: 4 iterations */
        bool overrides;
        enum dcpk_value_kind kind;
        double steps;
    } cases[] = {
        {"checkpoint's fraction", 0.033, 0, false, DCPK_V_FLOAT, 80 * 0.033},
        {"checkpoint's iterations", 0, 0.033, false, DCPK_V_INT, 16},
        {"own fraction", 0, 0.033, true, DCPK_V_FLOAT, 80 * 0.033},
        {"own iterations", 0.033, 0, true, DCPK_V_INT, 16},
    };
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new();

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dcpk_train_config config = config_of("cosine", "linear", "linear");
        struct dcpk_schedule schedule;
        const struct dcpk_value *dict;
        double steps = 0;

        config.optim.warmup_fraction = cases[i].saved;
        CHECK_OK(dcpk_schedule_init(&config, &schedule, &err), cases[i].label);
        dict = dcpk_schedule_state(&schedule, arena, &err);
        CHECK(dict != NULL, err.text);
        config.optim.warmup_fraction = cases[i].own;
        config.optim.overrides_schedule = cases[i].overrides;
        config.optim.uses_saved_schedule = !cases[i].overrides;
        CHECK_OK(dcpk_schedule_init(&config, &schedule, &err), cases[i].label);
        CHECK_OK(dcpk_schedule_load(dict, &config.optim, &schedule, &err), cases[i].label);
        dict = dcpk_schedule_state(&schedule, arena, &err);
        CHECK(dict != NULL, err.text);
        CHECK_EQ_INT(dcpk_value_get(dict, "lr_warmup_steps")->kind, cases[i].kind, cases[i].label);
        CHECK(dcpk_value_as_float(dcpk_value_get(dict, "lr_warmup_steps"), &steps), "steps");
        CHECK(steps == cases[i].steps, cases[i].label);
    }
    dcpk_arena_free(arena);
}

/* Megatron before core 0.1 spelled the keys in other ways, and saved no weight decay. */
static void loads_older_keys(void **state)
{
    static const char *const old[] = {"start_lr", "min_lr",      "warmup_iter",
                                      "end_iter", "decay_style", "num_iters"};
    struct dcpk_train_config config = config_of("cosine", "linear", "linear");
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new();
    const struct dcpk_value *values_of[] = {
        dcpk_value_float(arena, 0.5, &err),    dcpk_value_float(arena, 0.25, &err),
        dcpk_value_int(arena, 8, &err),        dcpk_value_int(arena, 40, &err),
        dcpk_value_str(arena, "linear", &err), dcpk_value_int(arena, 24, &err)};
    struct dcpk_value_pair pairs[sizeof old / sizeof *old];
    const struct dcpk_value *dict;
    struct dcpk_schedule schedule;

    (void)state;
    for (size_t i = 0; i < sizeof old / sizeof *old; i++)
        pairs[i] = (struct dcpk_value_pair){dcpk_value_str(arena, old[i], &err), values_of[i]};
    config.optim.uses_saved_schedule = true;
    CHECK_OK(dcpk_schedule_init(&config, &schedule, &err), "init");
    dict = dcpk_value_dict(arena, pairs, sizeof old / sizeof *old, &err);
    CHECK_OK(dcpk_schedule_load(dict, &config.optim, &schedule, &err), "load");
    CHECK(dcpk_schedule_lr(&schedule) == 0.375, "half of the way from 8 to 40");
    dict = dcpk_value_dict(arena, pairs, sizeof old / sizeof *old - 1, &err);
    CHECK_FAILS(dcpk_schedule_load(dict, &config.optim, &schedule, &err), DCPK_EFORMAT,
                "no number 'num_steps'", "without its place");
    dcpk_arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses_numbers_that_are_none),
        cmocka_unit_test(a_warm_up_is_saved_as_it_was_loaded),
        cmocka_unit_test(gives_megatrons_values),
        cmocka_unit_test(counts_in_samples),
        cmocka_unit_test(refuses_what_megatron_refuses),
        cmocka_unit_test(saves_megatrons_keys),
        cmocka_unit_test(loads_by_the_options),
        cmocka_unit_test(loads_older_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
