/* SPDX-License-Identifier: Apache-2.0 */
/* test_megatron_rng.c - keys of RNG states of every form, and which states stand for a rank. */
#include "formats/megatron/megatron.h"

#include <stdio.h>

#include "tests/fake_model.h"

static void keys_are_taken_apart(void **state)
{
    static const struct {
        const char *numbers;
        bool is_key;
        struct dcpk_rng rank;
    } cases[] = {
        {"0.0_1.1", true, {.pp = 0}},
        {"1.3_2.4", true, {.pp = 1, .tp = 3}},
        {"0.1_2", true, {.tp = 1}}, /* core 0.4 to 0.7 lost the last size */
        {"1.0.1_2.1.2", true, {.pp = 1, .dp = 1, .n_dp = 2}}, /* the golden v016_moe_ep2pp2 */
        {"0.1.0_1.2.1", true, {.tp = 1, .dp = 0, .n_dp = 1}},
        {"0.1.2.3_1.2.3.4", true, {.tp = 1, .dp = 11, .n_dp = 12}},
        {"0_1", false, {0}},
        {"", false, {0}},
        {"0.0", false, {0}},
        {"0.0_", false, {0}},
        {"0.0_1.", false, {0}},
        {"0.0_1.1x", false, {0}},
        {"0.0_1.1.1", false, {0}},
        {"0.0.0_1.1", false, {0}},
        {"2.0_2.1", false, {0}},
        {"0.1_1.1", false, {0}},
        {"-1.0_1.1", false, {0}},
        {"0..0_1.1.1", false, {0}},
        {"0.0.0.0.0.0.0.0.0_1.1.1.1.1.1.1.1.1", false, {0}},
        {"0.0.0.0.0_9.9.999999999.999999999.999999999", false, {0}},
        {"0.9999999999_1.9999999999", false, {0}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dcpk_rng rank = {0};
        char key[128];

        snprintf(key, sizeof key, DCPK_MEGATRON_RNG "%s", cases[i].numbers);
        CHECK_EQ_INT(dcpk_megatron_rng_split(key, &rank), cases[i].is_key, key);
        if (!cases[i].is_key)
            continue;
        CHECK_EQ_INT(rank.pp, cases[i].rank.pp, key);
        CHECK_EQ_INT(rank.tp, cases[i].rank.tp, key);
        CHECK_EQ_INT(rank.dp, cases[i].rank.dp, key);
        CHECK_EQ_INT(rank.n_dp, cases[i].rank.n_dp, key);
    }
}

static struct dcpk_model *model_with(const struct dcpk_rng *rng, size_t n)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_model *model = fake_model_new(NULL, "model");
    bool existed;

    for (size_t i = 0; i < n; i++) {
        CHECK_OK(dcpk_model_add_rng(model, &rng[i], &existed, &err), "add");
        CHECK(!existed, "new");
    }
    return model;
}

static void states_stand_for_ranks(void **state)
{
    static const struct dcpk_rng have[] = {
        {.pp = 0, .tp = 0},                     /* 0: of all, */
        {.pp = 0, .tp = 0, .dp = 0, .n_dp = 2}, /* 1, 2: of each */
        {.pp = 0, .tp = 0, .dp = 1, .n_dp = 2}, /* and */
        {.pp = 1, .tp = 0, .dp = 1, .n_dp = 2}, /* 3, 4: of each alone, the first not first */
        {.pp = 1, .tp = 0, .dp = 0, .n_dp = 2}, /* and */
        {.pp = 2, .tp = 0, .dp = 1, .n_dp = 2}, /* 5: not of the first, and */
        {.pp = 3, .tp = 0},                     /* 6: of all alone. */
    };
    static const struct {
        const char *label;
        struct dcpk_rng rank;
        int want; /* of `have`; -1: none */
    } cases[] = {
        {"of all", {.pp = 0}, 0},
        {"its own", {.pp = 0, .dp = 1, .n_dp = 2}, 2},
        {"another number of ranks", {.pp = 0, .dp = 1, .n_dp = 4}, 0},
        {"all, where the first has its own", {.pp = 1}, 4},
        {"another number of ranks, where the first has its own", {.pp = 1, .dp = 3, .n_dp = 4}, 4},
        {"all, where the first has none", {.pp = 2}, -1},
        {"the first, which has none", {.pp = 2, .dp = 0, .n_dp = 2}, -1},
        {"its own, where the first has none", {.pp = 2, .dp = 1, .n_dp = 2}, 5},
        {"one of all", {.pp = 3, .dp = 7, .n_dp = 8}, 6},
        {"another stage", {.pp = 4}, -1},
        {"another tensor-parallel rank", {.pp = 0, .tp = 1}, -1},
    };
    struct dcpk_model *model = model_with(have, sizeof have / sizeof have[0]);
    struct dcpk_error err = DCPK_ERROR_INIT;
    bool existed = false;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct dcpk_rng *rng = dcpk_model_rng(model, &cases[i].rank);

        CHECK_EQ_INT(rng == NULL ? -1 : rng - model->rng, cases[i].want, cases[i].label);
    }
    CHECK_OK(dcpk_model_add_rng(model, &have[2], &existed, &err), "again");
    CHECK(existed, "again");
    CHECK_EQ_INT(model->n_rng, sizeof have / sizeof have[0], "again");
    dcpk_model_clear_rng(model);
    CHECK(dcpk_model_rng(model, &have[0]) == NULL, "cleared");
    dcpk_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_are_taken_apart),
        cmocka_unit_test(states_stand_for_ranks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
