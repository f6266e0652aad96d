/* SPDX-License-Identifier: Apache-2.0 */
/* test_run_values.c - what a checkpoint keeps of a run: operations done, the scale of fp16. */
#include <math.h>

#include "lib/train/run_values.h"
#include "tests/check.h"

static const uint8_t behind_the_first[] = {0, 1, 1, 1};

/* Runs of sample-data, whose checkpoints record what Megatron counted up to iteration 4. */
static const struct {
    const char *label;
    struct dcpk_train_model model;
    double flops;
} runs[] = {
    {"torch_dist_c_dense_tp2pp2", .model = {.ffn = 96, .groups = 2}, 452984832.0},
    {"torch_dist_c_moe_ep2pp2",
     .model = {.ffn = 96,
               .groups = 4,
               .experts = 4,
               .topk = 2,
               .moe_ffn = 48,
               .moe_layers = behind_the_first},
     503316480.0},
};

static void flops_are_megatrons(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        struct dcpk_train_config config = {.model = runs[i].model, .data = {.global_batch = 4}};

        config.model.layers = 4;
        config.model.hidden = 64;
        config.model.heads = 4;
        config.model.head_dim = 16;
        config.model.padded_vocab = 256;
        config.model.seq_length = 32;
        CHECK(4 * dcpk_train_step_flops(&config) == runs[i].flops, runs[i].label);
    }
}

static void scaler_comes_back(void **state)
{
    const struct dcpk_loss_scale scale = {.scale = 65536, .n_good = 7, .n_left = 1};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new();
    const struct dcpk_value *scaler;
    struct dcpk_loss_scale back = {0};

    (void)state;
    scaler = dcpk_train_scaler(&scale, arena, &err);
    CHECK(scaler != NULL, err.text);
    CHECK_EQ_INT(dcpk_value_get(scaler, "scale")->as.tensor->shape[0], 1, "as Megatron has it");
    CHECK_OK(dcpk_train_scaler_read(scaler, &back, &err), "read");
    CHECK(back.scale == scale.scale, "scale");
    CHECK_EQ_INT(back.n_good, 7, "growth_tracker");
    CHECK_EQ_INT(back.n_left, 1, "hysteresis_tracker");
    dcpk_arena_free(arena);
}

static void a_wrong_scaler_is_refused(void **state)
{
    const struct dcpk_loss_scale wrong = {.scale = INFINITY};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new();
    const struct dcpk_value *scaler;
    struct dcpk_loss_scale back = {.scale = 2};

    (void)state;
    scaler = dcpk_train_scaler(&wrong, arena, &err);
    CHECK(scaler != NULL, err.text);
    CHECK_EQ_INT(dcpk_train_scaler_read(scaler, &back, &err), DCPK_EFORMAT, "an infinite scale");
    scaler = dcpk_train_scaler(&(struct dcpk_loss_scale){1, INT64_MAX, 1}, arena, &err);
    dcpk_error_clear(&err);
    CHECK_EQ_INT(dcpk_train_scaler_read(scaler, &back, &err), DCPK_EFORMAT, "a tracker that ends");
    dcpk_error_clear(&err);
    scaler = dcpk_value_dict(arena, NULL, 0, &err);
    CHECK(scaler != NULL, err.text);
    CHECK_EQ_INT(dcpk_train_scaler_read(scaler, &back, &err), DCPK_EFORMAT, "nothing in it");
    CHECK(back.scale == 2, "untouched");
    dcpk_arena_free(arena);
}

/* A run by a checkpoint's schedule: OptimizerParamScheduler.get_lr (megatron/core/
 * optimizer_param_scheduler.py @core_v0.19.0) takes max_lr and min_lr of the group, if it has any.
 */
static void groups_have_the_rates_of_the_schedule(void **state)
{
    const struct dcpk_train_config config = {.optim = {.lr = 0.5, .min_lr = 0.25}};
    const struct dcpk_schedule schedule = {
        .max_lr = 0.01, .min_lr = 0.001, .lr_decay_steps = 8, .wd_incr_steps = 8};
    const struct dcpk_train_progress progress = {.adam_steps = 2};
    const struct dcpk_value *groups[DCPK_TRAIN_GROUPS];
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new();
    size_t n;

    (void)state;
    n = dcpk_train_groups(&config, &schedule, &progress, arena, groups, &err);
    CHECK_EQ_INT(n, 2, err.text);
    for (size_t g = 0; g < n; g++) {
        double max_lr = 0, min_lr = 0;

        CHECK(dcpk_value_as_float(dcpk_value_get(groups[g], "max_lr"), &max_lr), "max_lr");
        CHECK(dcpk_value_as_float(dcpk_value_get(groups[g], "min_lr"), &min_lr), "min_lr");
        CHECK(max_lr == 0.01 && min_lr == 0.001, "rates of the checkpoint's schedule");
    }
    dcpk_arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(flops_are_megatrons),
                                       cmocka_unit_test(groups_have_the_rates_of_the_schedule),
                                       cmocka_unit_test(scaler_comes_back),
                                       cmocka_unit_test(a_wrong_scaler_is_refused)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
