/* SPDX-License-Identifier: Apache-2.0 */
/* test_train_knobs_long.c - hostile configurations and texts: memory and time grow with their
 * bytes. */
#include <time.h>

#include "lib/base/bytes.h"
#include "lib/base/json.h"
#include "lib/base/order.h"
#include "tests/unit/knobs_case.h"

/* Configurations and args of checkpoints are hostile: what they take grows with their bytes. */
static void long_configs_take_little(void **state)
{
    static const char *const ends[][2] = {
        {"{\"moe_layer_freq\": [1", "]}"},
        {"{\"speed\": null", "}"},
    };

    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(ends); i++) {
        struct dcpk_bytes text = {0};
        const struct dcpk_value *value;
        struct dcpk_json *doc;
        uint64_t before;

        dcpk_bytes_text(&text, ends[i][0]);
        for (int n = 1; n < 10000; n++) {
            if (i == 0)
                dcpk_bytes_text(&text, ",1");
            else
                dcpk_bytes_printf(&text, ",\"speed%d\": null", n);
        }
        dcpk_bytes_text(&text, ends[i][1]);
        dcpk_bytes_u8(&text, 0);
        dcpk_train_knobs_init(&knobs, arena);
        CHECK_OK(dcpk_json_parse((const char *)text.data, text.n_bytes - 1, &doc, &err), "JSON");
        value = dcpk_value_from_json(arena, doc, &err);
        CHECK(value != NULL, "value");
        before = dcpk_arena_used_bytes(arena);
        CHECK_OK(dcpk_train_knobs_take_config(&knobs, value, &err), ends[i][0]);
        CHECK(dcpk_arena_used_bytes(arena) - before < 4 * text.n_bytes, ends[i][0]);
        dcpk_json_free(doc);
        dcpk_bytes_release(&text);
        if (i == 0)
            CHECK_EQ_INT(strlen(knobs.moe_layer_freq), 2 * 10000 + 1, "all items");
    }
    CHECK(strstr(knobs.unread, "speed, speed1, ") == knobs.unread, "the first names");
    CHECK(strstr(knobs.unread, ", speed9999") != NULL, "the last name");
}

/* Nothing, repeated very often, takes no time. */
static void repeats_nothing(void **state)
{
    const clock_t begin = clock();
    struct dcpk_bytes text = {0};

    (void)state;
    dcpk_bytes_text(&text, TOY "--num-experts 4 --moe-layer-freq ");
    for (int i = 0; i < 100; i++)
        dcpk_bytes_text(&text, "[]*999999999+([])*999999999+");
    dcpk_bytes_text(&text, "[1]*4");
    dcpk_bytes_u8(&text, 0);
    CHECK_OK(check_line((const char *)text.data), "nothing");
    CHECK(clock() - begin < 10 * CLOCKS_PER_SEC, "seconds");
    dcpk_bytes_release(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_configs_take_little),
        cmocka_unit_test(repeats_nothing),
    };

    return cmocka_run_group_tests(tests, knobs_set_up, knobs_tear_down);
}
