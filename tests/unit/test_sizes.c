/* SPDX-License-Identifier: Apache-2.0 */
/* test_sizes.c - sizes that several attributes give, as Megatron's parser and configurations have
 * them. */
#include "lib/base/json.h"
#include "lib/base/order.h"
#include "lib/model/sizes.h"
#include "tests/check.h"

static void groups_count_unless_switched_off(void **state)
{
    static const struct {
        const char *label, *attrs;
        int64_t want; /* -1: nothing */
    } cases[] = {
        {"switched on",
         "{\"group_query_attention\": true, \"num_query_groups\": 2, "
         "\"num_attention_heads\": 4}",
         2},
        {"switched off",
         "{\"group_query_attention\": false, \"num_query_groups\": 1, "
         "\"num_attention_heads\": 4}",
         4},
        {"a configuration", "{\"num_query_groups\": 2, \"num_attention_heads\": 4}", 2},
        {"a switch of None",
         "{\"group_query_attention\": null, \"num_query_groups\": 1, "
         "\"num_attention_heads\": 4}",
         4},
        {"a switch of 1",
         "{\"group_query_attention\": 1, \"num_query_groups\": 2, "
         "\"num_attention_heads\": 4}",
         2},
        {"a switch of 0",
         "{\"group_query_attention\": 0, \"num_query_groups\": 2, "
         "\"num_attention_heads\": 4}",
         4},
        {"groups of None",
         "{\"group_query_attention\": true, \"num_query_groups\": null, "
         "\"num_attention_heads\": 4}",
         4},
        {"no groups", "{\"num_attention_heads\": 4}", 4},
        {"nothing", "{}", -1},
    };

    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(cases); i++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_arena *arena = dcpk_arena_new();
        struct dcpk_json *doc = NULL;
        const struct dcpk_value *attrs;
        int64_t n = -1;

        CHECK_OK(dcpk_json_parse(cases[i].attrs, strlen(cases[i].attrs), &doc, &err),
                 cases[i].label);
        attrs = dcpk_value_from_json(arena, doc, &err);
        CHECK(attrs != NULL, cases[i].label);
        (void)dcpk_value_as_int(dcpk_query_groups(attrs), &n);
        CHECK_EQ_INT(n, cases[i].want, cases[i].label);
        dcpk_json_free(doc);
        dcpk_arena_free(arena);
    }
    CHECK(dcpk_query_groups(NULL) == NULL, "no args");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_count_unless_switched_off),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
