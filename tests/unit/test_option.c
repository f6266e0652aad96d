/* SPDX-License-Identifier: Apache-2.0 */
/* test_option.c - texts into fields: kinds, ranges, names, defaults. */
#include "lib/base/option.h"
#include "lib/base/order.h"
#include "tests/check.h"

static struct fields {
    bool flag;
    const char *text;
    struct dcpk_option_list list;
    int count;
    int64_t length;
    double number;
    uint64_t size;
} fields;

#define ROW(kind_, type, field)                                                                    \
    {                                                                                              \
        .kind = kind_, .name = #field "_of_it",                                                    \
        .at_bytes = DCPK_OPTION_AT(struct fields, type, field)                                     \
    }

enum { FLAG, TEXT, WORD, LIST, COUNT, LENGTH, NUMBER, SIZE };
static struct dcpk_option rows[] = {
    [FLAG] = ROW(DCPK_OPTION_FLAG, bool, flag),
    [TEXT] = ROW(DCPK_OPTION_OUT_FILE, const char *, text),
    [WORD] = ROW(DCPK_OPTION_WORD, const char *, text),
    [LIST] = ROW(DCPK_OPTION_LIST, struct dcpk_option_list, list),
    [COUNT] = ROW(DCPK_OPTION_COUNT, int, count),
    [LENGTH] = ROW(DCPK_OPTION_LENGTH, int64_t, length),
    [NUMBER] = ROW(DCPK_OPTION_NUMBER, double, number),
    [SIZE] = ROW(DCPK_OPTION_SIZE, uint64_t, size),
};

static const struct {
    int row;
    const char *text;
    bool is_read;
    double value; /* of numbers and flags */
} cases[] = {
    {FLAG, "true", true, 1},
    {FLAG, "False", true, 0},
    {FLAG, "yes", false, 0},
    {WORD, "one", true, 0},
    {WORD, "on", false, 0},
    {WORD, "one two", false, 0},
    {WORD, "", false, 0},
    {COUNT, "1", true, 1},
    {COUNT, "1000", true, 1000},
    {COUNT, "1001", false, 0},
    {COUNT, "0", false, 0},
    {COUNT, "-1", false, 0},
    {COUNT, "+1", false, 0},
    {COUNT, " 1", false, 0},
    {COUNT, "1x", false, 0},
    {COUNT, "", false, 0},
    {LENGTH, "0", true, 0},
    {LENGTH, "1099511627776", true, 0x1p40},
    {LENGTH, "1099511627777", false, 0},
    {LENGTH, "99999999999999999999", false, 0},
    {NUMBER, "0.5", true, 0.5},
    {NUMBER, "3e-4", true, 3e-4},
    {NUMBER, "-1", false, 0},
    {NUMBER, "nan", false, 0},
    {NUMBER, "inf", false, 0},
    {NUMBER, "1e999", false, 0},
    {NUMBER, "0x1p3", false, 0},
    {NUMBER, "", false, 0},
    {SIZE, "4096", true, 4096},
    {SIZE, "64M", true, 0x1p26},
    {SIZE, "1.5GiB", true, 0x1.8p30},
    {SIZE, "2kB", true, 2048},
    {SIZE, "1.5X", false, 0},
    {SIZE, "M", false, 0},
    {SIZE, "9999999999G", false, 0},
};

static double value_of(int row)
{
    const double values[] = {[FLAG] = fields.flag,
                             [COUNT] = fields.count,
                             [LENGTH] = (double)fields.length,
                             [NUMBER] = fields.number,
                             [SIZE] = (double)fields.size};

    return values[row];
}

static void kinds_and_ranges(void **state)
{
    (void)state;
    rows[WORD].words = "one two";
    rows[COUNT].least = 1;
    rows[COUNT].most = 1000;
    rows[LENGTH].most = INT64_C(1) << 40;
    for (size_t i = 0; i < DCPK_COUNT(cases); i++) {
        const int row = cases[i].row;

        fields = (struct fields){0};
        CHECK_EQ_INT(dcpk_option_read(&rows[row], cases[i].text, &fields), cases[i].is_read,
                     cases[i].text);
        if (row == WORD)
            CHECK((fields.text != NULL) == cases[i].is_read, cases[i].text);
        else
            CHECK(value_of(row) == cases[i].value, cases[i].text);
    }
}

static void lists_end(void **state)
{
    (void)state;
    fields = (struct fields){0};
    for (int i = 0; i < DCPK_OPTION_MAX_LIST; i++)
        CHECK(dcpk_option_read(&rows[LIST], "x", &fields), "room");
    CHECK(!dcpk_option_read(&rows[LIST], "x", &fields), "full");
    dcpk_option_reset(&rows[LIST], &fields);
    CHECK_EQ_INT(fields.list.n, 0, "reset");
}

static void defaults_and_words(void **state)
{
    char text[DCPK_OPTION_TAKES_BYTES];

    (void)state;
    rows[LENGTH].initial = "7";
    fields = (struct fields){.length = 3, .text = "x"};
    dcpk_option_reset(&rows[LENGTH], &fields);
    dcpk_option_reset(&rows[TEXT], &fields);
    CHECK_EQ_INT(fields.length, 7, "default");
    CHECK(fields.text == NULL, "no default");
    CHECK_EQ_STR(dcpk_option_takes(&rows[LENGTH], text), "a whole number from 0 to 2^40", "power");
    CHECK_EQ_STR(dcpk_option_takes(&rows[COUNT], text), "a whole number from 1 to 1000", "plain");
    CHECK_EQ_STR(dcpk_option_takes(&rows[WORD], text), "one two", "words");
    CHECK_EQ_STR(dcpk_option_takes(&rows[TEXT], text), "a text", "file");
}

static void names(void **state)
{
    static const struct {
        const char *text;
        enum dcpk_option_sense sense;
    } spelled[] = {
        {"load_it", DCPK_OPTION_SAME},       {"load-it", DCPK_OPTION_SAME},
        {"load", DCPK_OPTION_SAME},          {"no-load", DCPK_OPTION_OPPOSITE},
        {"load_i", DCPK_OPTION_OTHER},       {"load_it_", DCPK_OPTION_OTHER},
        {"load no-load", DCPK_OPTION_OTHER}, {"", DCPK_OPTION_OTHER},
    };
    const struct dcpk_option row = {.name = "load_it", .others = "load !no_load"};

    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(spelled); i++)
        CHECK_EQ_INT(dcpk_option_is_named(&row, spelled[i].text, strlen(spelled[i].text)),
                     spelled[i].sense, spelled[i].text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kinds_and_ranges),
        cmocka_unit_test(lists_end),
        cmocka_unit_test(defaults_and_words),
        cmocka_unit_test(names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
