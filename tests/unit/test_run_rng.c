/* SPDX-License-Identifier: Apache-2.0 */
/* test_run_rng.c - states of generators as Python, NumPy and torch seed them, and which seeds have
 * some. */
#include "lib/train/run_rng.h"

#include "lib/base/cursor.h"
#include "lib/model/model.h"
#include "tests/check.h"

enum { N_WORDS = 624 };

/* What random.seed(N) and numpy.random.seed(N) leave: CPython 3.11, NumPy 2.4. */
static const struct {
    uint64_t seed;
    int64_t python[3], numpy[3]; /* words 1, 311, 623 */
} seeded[] = {
    {1234, {0x28a573a8, 0xbeaf1265, 0x147e0e14}, {0xbc5448db, 0x035b5c4c, 0xb6a83c43}},
    {4294967295, {0x80bbc95e, 0xc499c90c, 0x89186098}, {0x4fe1da6d, 0xa1e17718, 0xcb76e730}},
};
static const size_t places[] = {1, 311, 623};

static void words_are_those_of_the_seed(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof seeded / sizeof seeded[0]; i++) {
        struct dcpk_train_config config = {.layout = {.tp = 1, .pp = 1},
                                           .data.seed = seeded[i].seed};
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_arena *arena = dcpk_arena_new();
        const struct dcpk_value *states, *python, *array;
        const uint8_t *numpy, *torch;
        struct dcpk_rng *list;
        size_t n;

        CHECK_OK(dcpk_train_rng(&config, arena, &list, &n, &err), err.text);
        CHECK_EQ_INT(n, 1, "ranks");
        CHECK(dcpk_rng_states_fault(list->states) == NULL, "a loader understands them");
        states = dcpk_value_at(list->states, 0);
        python = dcpk_value_at(dcpk_value_get(states, "random_rng_state"), 1);
        array = dcpk_value_at(dcpk_value_get(states, "np_rng_state"), 1);
        numpy = (const uint8_t *)dcpk_value_at(array->as.object->state, 4)->as.str;
        torch = dcpk_value_get(states, "torch_rng_state")->as.tensor->data;
        CHECK_EQ_INT(python->n, N_WORDS + 1, "words and an index");
        CHECK_EQ_INT(dcpk_load_u64le(torch), seeded[i].seed, "the seed of torch");
        for (size_t p = 0; p < sizeof places / sizeof places[0]; p++) {
            int64_t word = 0;

            dcpk_value_as_int(dcpk_value_at(python, places[p]), &word);
            CHECK_EQ_INT(word, seeded[i].python[p], "Python");
            CHECK_EQ_INT(dcpk_load_u32le(numpy + 4 * places[p]), seeded[i].numpy[p], "NumPy");
            CHECK_EQ_INT(dcpk_load_u64le(torch + 24 + 8 * places[p]), seeded[i].numpy[p], "torch");
        }
        dcpk_arena_free(arena);
    }
}

static int64_t tracked_seed(const struct dcpk_rng *rng, const char *name)
{
    const struct dcpk_value *trackers =
        dcpk_value_get(dcpk_value_at(rng->states, 0), "rng_tracker_states");

    return (int64_t)dcpk_load_u64le(dcpk_value_get(trackers, name)->as.tensor->data);
}

static void each_rank_has_its_own(void **state)
{
    const struct dcpk_train_config config = {.layout = {.tp = 2, .pp = 3}, .data.seed = 1234};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new();
    struct dcpk_rng *list;
    size_t n;

    (void)state;
    CHECK_OK(dcpk_train_rng(&config, arena, &list, &n, &err), err.text);
    CHECK_EQ_INT(n, 6, "ranks");
    CHECK_EQ_INT(list[5].pp, 2, "the last stage");
    CHECK_EQ_INT(list[5].tp, 1, "its last rank");
    CHECK_EQ_INT(tracked_seed(&list[5], "data-parallel-rng"), 1434, "stages differ");
    CHECK_EQ_INT(tracked_seed(&list[5], "model-parallel-rng"), 1434 + 2718 + 1, "ranks, too");
    CHECK_EQ_INT(tracked_seed(&list[5], "expert-parallel-rng"), 1434 + 1024, "experts");
    dcpk_arena_free(arena);
}

static void some_runs_have_none(void **state)
{
    static const struct {
        const char *label;
        struct dcpk_train_config config;
    } none[] = {
        {"not asked for",
         {.layout = {.tp = 1, .pp = 1}, .data.seed = 1, .files.no_save_rng = true}},
        {"Megatron refuses 0", {.layout = {.tp = 1, .pp = 1}}},
        {"NumPy refuses 2^32", {.layout = {.tp = 1, .pp = 1}, .data.seed = (uint64_t)1 << 32}},
        {"that of the last stage", {.layout = {.tp = 1, .pp = 2}, .data.seed = UINT32_MAX - 99}},
    };
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new();
    struct dcpk_rng *list;

    (void)state;
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        size_t n = 1;

        CHECK_OK(dcpk_train_rng(&none[i].config, arena, &list, &n, &err), none[i].label);
        CHECK_EQ_INT(n, 0, none[i].label);
    }
    dcpk_arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(words_are_those_of_the_seed),
                                       cmocka_unit_test(each_rank_has_its_own),
                                       cmocka_unit_test(some_runs_have_none)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
