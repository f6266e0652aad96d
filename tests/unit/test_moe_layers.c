/* SPDX-License-Identifier: Apache-2.0 */
/* test_moe_layers.c - which layers have experts: what CPython 3.12 makes of the texts
 * (moe_freq_type evaluates them), ints, lists. */
#include "lib/base/json.h"
#include "lib/model/sizes.h"

#include <stdio.h>

#include "lib/base/order.h"
#include "tests/check.h"

#define MOST 12

/* layers NULL: refused for n layers. */
static const struct {
    const char *text;
    size_t n;
    const char *layers;
} texts[] = {
    {"2", 4, "1010"},
    {"1", 3, "111"},
    {"[0]*1+[1]*3", 4, "0111"},
    {"([1]*3+[0]*1)*3", 12, "111011101110"},
    {"(([0]+[1])*2+[1])*2", 10, "0101101011"},
    {"[ 1, 0 ] * 2", 4, "1010"},
    {"[0,1,]*2", 4, "0101"},
    {"[1]*2*2", 4, "1111"},
    {"[1]*0+[0]*4", 4, "0000"},
    {"[]*9+[1]*2", 2, "11"},
    {"([1]*3+[0]*1)*3", 11, NULL},
    {"([1]*3+[0]*1)*2", 12, NULL},
    {"0", 4, NULL},
    {"-1", 4, NULL},
    {"", 4, NULL},
    {"2 layers", 4, NULL},
    {"[1]*4+", 4, NULL},
    {"([1]*4", 4, NULL},
    {"[1]*4)", 4, NULL},
    {"[1 0 1 0]", 4, NULL},
    {"[2]*4", 4, NULL},
    {"[1]*", 1, NULL},
    {"[1]*99999999999999999999", 4, NULL},
    {"(((((((((([1]))))))))))", 1, NULL}, /* deeper than is read */
};

static void texts_are_evaluated(void **state)
{
    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(texts); i++) {
        bool layers[MOST];
        const bool is_read = dcpk_moe_layers_parse(texts[i].text, layers, texts[i].n);

        CHECK_EQ_INT(is_read, texts[i].layers != NULL, texts[i].text);
        for (size_t l = 0; is_read && l < texts[i].n; l++)
            CHECK_EQ_INT(layers[l], texts[i].layers[l] == '1', texts[i].text);
    }
}

static void values_are_read(void **state)
{
    static const struct {
        const char *json, *layers; /* of 4; NULL: refused */
    } cases[] = {
        {"2", "1010"},
        {"\"2\"", "1010"},
        {"[0, 1, 1, 0]", "0110"},
        {"\"[0]*4\"", "0000"},
        {"0", NULL},
        {"[0, 1, 1]", NULL},
        {"[0, 1, 1, 2]", NULL},
        {"[0, 1, 1, \"1\"]", NULL},
        {"null", NULL},
        {"1.5", NULL},
        {"{}", NULL},
    };

    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(cases); i++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_arena *arena = dcpk_arena_new();
        struct dcpk_json *doc = NULL;
        char text[80];
        bool layers[4], is_read;

        (void)snprintf(text, sizeof text, "{\"freq\": %s}", cases[i].json);
        CHECK_OK(dcpk_json_parse(text, strlen(text), &doc, &err), text);
        is_read = dcpk_moe_layers_read(
            dcpk_value_get(dcpk_value_from_json(arena, doc, &err), "freq"), layers, 4);
        CHECK_EQ_INT(is_read, cases[i].layers != NULL, text);
        for (size_t l = 0; is_read && l < 4; l++)
            CHECK_EQ_INT(layers[l], cases[i].layers[l] == '1', text);
        dcpk_json_free(doc);
        dcpk_arena_free(arena);
    }
    CHECK(!dcpk_moe_layers_read(NULL, NULL, 4), "nothing");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_evaluated),
        cmocka_unit_test(values_are_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
