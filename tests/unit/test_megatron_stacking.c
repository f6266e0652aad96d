/* SPDX-License-Identifier: Apache-2.0 */
/* test_megatron_stacking.c - keys of all layers and experts, and the names of single ones:
 * formats/torch_dist/FORMAT.md 4.2 and 4.5. */
#include "formats/megatron/megatron_stacking.h"
#include "tests/check.h"

static void names_of_layer_3_and_expert_5(void **state)
{
    static const struct {
        const char *key, *name;
        int rank, n_axes;
    } cases[] = {
        {"embedding.word_embeddings.weight", "embedding.word_embeddings.weight", 2, 0},
        {"decoder.layers.mlp.linear_fc2.weight", "decoder.layers.3.mlp.linear_fc2.weight", 3, 1},
        {"decoder.layers.mlp.experts.experts.linear_fc1.weight",
         "decoder.layers.3.mlp.experts.linear_fc1.weight5", 4, 2},
        {"decoder.layers.1.mlp.experts.experts.linear_fc1.weight",
         "decoder.layers.1.mlp.experts.linear_fc1.weight5", 3, 1},
        {"decoder.layers.mlp.experts.experts.linear_fc2._extra_state",
         "decoder.layers.3.mlp.experts.linear_fc2._extra_state5", 2, 2},
        {"mtp.layers.0.enorm.weight", "mtp.layers.0.enorm.weight", 1, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_arena *arena = dcpk_arena_new();
        struct dcpk_stacking s;

        CHECK_OK(dcpk_stacking_find(cases[i].key, cases[i].rank, &s, &err), cases[i].key);
        CHECK_EQ_INT(s.n_axes, cases[i].n_axes, cases[i].key);
        CHECK_EQ_STR(dcpk_stacking_name(arena, cases[i].key, &s, 3, 5, &err), cases[i].name,
                     cases[i].key);
        dcpk_arena_free(arena);
    }
}

static void what_has_no_axis_is_refused(void **state)
{
    static const struct {
        const char *key;
        int rank;
        dcpk_status status;
        const char *text;
    } cases[] = {
        {"decoder.layers.mlp.experts.experts.linear_fc1._extra_state", 1, DCPK_EFORMAT,
         "2 stacked axes, the item has 1"},
        {"a.layers.b.layers.c", 4, DCPK_EUNSUPPORTED, "two stacked layer axes"},
        {"decoder.layers.mlp.experts.experts.0.linear_fc1.weight", 4, DCPK_EUNSUPPORTED,
         "singleton_local_shards"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_stacking s;

        CHECK_FAILS(dcpk_stacking_find(cases[i].key, cases[i].rank, &s, &err), cases[i].status,
                    cases[i].text, cases[i].key);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_of_layer_3_and_expert_5),
        cmocka_unit_test(what_has_no_axis_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
