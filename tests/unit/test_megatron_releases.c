/* SPDX-License-Identifier: Apache-2.0 */
/* test_megatron_releases.c - which release's rules args ask for, and what they round:
 * MC/distributed/param_and_grad_buffer.py and MT/arguments.py of the releases. */
#include "formats/megatron/buckets/megatron_replay.h"
#include "tests/fake_model.h"

static void options_tell_the_release(void **state)
{
    static const struct {
        const char *newest; /* of the options that args have */
        const char *releases;
    } cases[] = {
        {NULL, "core 0.6"},
        {"ddp_bucket_size", "core 0.7"},
        {"dist_ckpt_strictness", "core 0.8 and 0.9"},
        {"expert_tensor_parallel_size", "core 0.10 to 0.12"},
        {"pipeline_model_parallel_layout", "core 0.13 and later"},
    };
    const size_t n = sizeof cases / sizeof cases[0];

    (void)state;
    for (size_t i = 0; i < n; i++) {
        struct fake_arg settings[sizeof cases / sizeof cases[0] + 1] = {{"num_layers", .value = 4}};
        struct dcpk_arena *arena = dcpk_arena_new();

        for (size_t k = 1; k <= i; k++)
            settings[k] = (struct fake_arg){cases[k].newest, .text = "None"};
        CHECK_EQ_STR(dcpk_replay_rules_find(fake_args(arena, settings))->releases,
                     cases[i].releases, cases[i].releases);
        dcpk_arena_free(arena);
    }
    CHECK_EQ_STR(dcpk_replay_rules_find(NULL)->releases, "core 0.6", "no args");
}

static void ends_are_rounded(void **state)
{
    static const struct {
        const char *label;
        size_t rules; /* the newest first */
        int64_t n_slices, multiple;
    } cases[] = {
        {"main, one rank", 0, 1, 128},
        {"main, 4 ranks", 0, 4, 128},
        {"main, 96 ranks: lcm(96, 128)", 0, 96, 384},
        {"0.7, 3 ranks", 3, 3, 384},
        {"0.7, 256 ranks", 3, 256, 256},
        {"0.6, 3 ranks", 4, 3, 3},
        {"0.6, one rank", 4, 1, 1},
    };
    static const struct {
        int64_t at, multiple, want;
    } starts[] = {{0, 64, 0}, {1, 64, 64}, {64, 64, 64}, {65, 64, 128}, {65, 1, 65}, {7, 3, 9}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        CHECK_EQ_INT(
            dcpk_replay_end_multiple(&dcpk_replay_rules[cases[i].rules], cases[i].n_slices),
            cases[i].multiple, cases[i].label);
    for (size_t i = 0; i < sizeof starts / sizeof starts[0]; i++)
        CHECK_EQ_INT(dcpk_replay_round_up(starts[i].at, starts[i].multiple), starts[i].want,
                     "a start");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_tell_the_release),
        cmocka_unit_test(ends_are_rounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
