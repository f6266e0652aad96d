/* SPDX-License-Identifier: Apache-2.0 */
/* test_marks.c - names that mark a checkpoint, over several formats. */
#include "lib/ckpt/foreign.h"

#include "lib/ckpt/format.h"
#include "tests/check.h"

static const struct dcpk_mark one_marks[] = {
    {DCPK_MARK_CHECKPOINT, "index", NULL, NULL},
    {DCPK_MARK_PART, "", ".data", "data alone"},
    {0},
};
static const struct dcpk_mark two_marks[] = {
    {DCPK_MARK_CHECKPOINT, "list", NULL, NULL},
    {DCPK_MARK_CHECKPOINT, "index", NULL, NULL},
    {DCPK_MARK_INNER, ".array", NULL, "an array"},
    {DCPK_MARK_OTHER, "old_", "", "old"},
    {0},
};
static const struct dcpk_format one = {.marks = one_marks}, none = {.marks = NULL},
                                two = {.marks = two_marks};
static const struct dcpk_format *const formats[] = {&one, &none, &two, NULL};

static const struct {
    const char *name;
    const struct dcpk_format *format;
    const struct dcpk_mark *mark;
} names[] = {
    {"index", &one, &one_marks[0]},  {"index2", &one, NULL},         {".index", &one, NULL},
    {"a.data", &one, &one_marks[1]}, {".data", &one, &one_marks[1]}, {"a.data2", &one, NULL},
    {"index", &two, &two_marks[1]},  {"old_1", &two, &two_marks[3]}, {"index", &none, NULL},
};

static void names_fit(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        CHECK(dcpk_mark_of(names[i].format, names[i].name) == names[i].mark, names[i].name);
}

static void folders_are_listed(void **state)
{
    const struct dcpk_mark *list[DCPK_MAX_MARKS];
    char text[DCPK_MARKS_BYTES];

    (void)state;
    CHECK_EQ_INT(dcpk_marks_list(formats, DCPK_MARK_INNER, list), 3, "each once");
    CHECK(list[0] == &one_marks[0] && list[1] == &two_marks[0] && list[2] == &two_marks[2],
          "in the order of the formats");
    CHECK_EQ_STR(dcpk_marks_words(formats, DCPK_MARK_INNER, text), "index, list or .array",
                 "words");
    CHECK_EQ_STR(dcpk_marks_words(formats, DCPK_MARK_CHECKPOINT, text), "index or list", "whole");
    CHECK_EQ_STR(dcpk_marks_words(formats + 3, DCPK_MARK_INNER, text), "", "no format");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(names_fit),
                                       cmocka_unit_test(folders_are_listed)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
