/* SPDX-License-Identifier: Apache-2.0 */
/* test_box.c - single boxes and shapes. */
#include "lib/tensor/box.h"
#include "tests/check.h"

static const struct {
    const char *label;
    int64_t a_at, a_len, b_at, b_len; /* one axis, elements */
    int64_t at, len;                  /* expected; len 0: disjoint */
} overlaps[] = {
    {"overlap", 0, 4, 2, 4, 2, 2},
    {"touching", 0, 4, 4, 4, 0, 0},
    {"apart", 0, 1, 5, 2, 0, 0},
    {"inside", 0, 9, 3, 2, 3, 2},
    {"same", 2, 3, 2, 3, 2, 3},
    {"empty in", 0, 4, 2, 0, 0, 0},
    {"one", 3, 1, 0, 4, 3, 1},
    {"both empty", 2, 0, 2, 0, 0, 0},
    {"far end", INT64_MAX - 2, 2, INT64_MAX - 1, 1, INT64_MAX - 1, 1},
};

static struct dcpk_box plane(int64_t at, int64_t len)
{
    return (struct dcpk_box){2, {5, at}, {2, len}};
}

static void intersects(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof overlaps / sizeof overlaps[0]; i++) {
        const struct dcpk_box a = plane(overlaps[i].a_at, overlaps[i].a_len);
        struct dcpk_box b = plane(overlaps[i].b_at, overlaps[i].b_len);
        struct dcpk_box swapped = a, untouched = plane(77, 78);
        const char *label = overlaps[i].label;

        CHECK_EQ_INT(dcpk_box_intersect(&b, &swapped, &swapped), overlaps[i].len > 0, label);
        if (overlaps[i].len > 0) {
            CHECK(dcpk_box_intersect(&a, &b, &b), label); /* result over an input */
            CHECK_EQ_INT(b.offset[1], overlaps[i].at, label);
            CHECK_EQ_INT(b.extent[1], overlaps[i].len, label);
            CHECK_EQ_INT(b.offset[0], 5, label);
            CHECK_EQ_INT(b.extent[0], 2, label);
            CHECK_EQ_INT(swapped.offset[1], overlaps[i].at, label);
        } else {
            CHECK(!dcpk_box_intersect(&a, &b, &untouched), label);
            CHECK_EQ_INT(untouched.offset[1], 77, label);
        }
    }
}

static const struct {
    const char *label;
    int64_t at, len;
    bool held; /* by [2, 6) */
} insides[] = {
    {"same", 2, 4, true},           {"low part", 2, 1, true},     {"high part", 5, 1, true},
    {"below", 1, 2, false},         {"above", 5, 2, false},       {"around", 0, 9, false},
    {"empty at start", 2, 0, true}, {"empty at end", 6, 0, true}, {"empty past", 7, 0, false},
    {"empty before", 1, 0, false},
};

static void contains(void **state)
{
    const struct dcpk_box outer = plane(2, 4), scalar = {.rank = 0};
    struct dcpk_box empty = {2, {5, 4}, {0, 99}};

    (void)state;
    for (size_t i = 0; i < sizeof insides / sizeof insides[0]; i++) {
        const struct dcpk_box inner = plane(insides[i].at, insides[i].len);

        CHECK_EQ_INT(dcpk_box_contains(&outer, &inner), insides[i].held, insides[i].label);
    }
    CHECK(dcpk_box_contains(&outer, &empty), "empty by another axis: only the corner counts");
    CHECK(dcpk_box_contains(&scalar, &scalar), "scalar");
}

static const struct {
    const char *label;
    int rank;
    int64_t shape[3];
    int64_t want; /* elements, or -1: fails */
    dcpk_status status;
    const char *text;
} counts[] = {
    {"scalar", 0, {0}, 1, DCPK_OK, "[]"},
    {"vector", 1, {7}, 7, DCPK_OK, "[7]"},
    {"block", 3, {2, 3, 4}, 24, DCPK_OK, "[2, 3, 4]"},
    {"empty", 3, {2, 0, 4}, 0, DCPK_OK, "[2, 0, 4]"},
    {"largest", 1, {INT64_MAX}, INT64_MAX, DCPK_OK, "[9223372036854775807]"},
    {"too large",
     2,
     {INT64_C(1) << 32, INT64_C(1) << 31},
     -1,
     DCPK_ERANGE,
     "[4294967296, 2147483648]"},
    {"large but empty", 3, {INT64_MAX, INT64_MAX, 0}, 0, DCPK_OK, "0]"},
    {"negative", 2, {4, -1}, -1, DCPK_EFORMAT, "[4, -1]"},
    {"negative and empty", 2, {0, -1}, -1, DCPK_EFORMAT, "[0, -1]"},
};

static void counts_elements(void **state)
{
    char text[256];

    (void)state;
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        int64_t n = -1;
        const char *label = counts[i].label;

        if (counts[i].status == DCPK_OK)
            CHECK_OK(dcpk_shape_count(counts[i].shape, counts[i].rank, &n, &err), label);
        else
            CHECK_FAILS(dcpk_shape_count(counts[i].shape, counts[i].rank, &n, &err),
                        counts[i].status, counts[i].text, label);
        CHECK_EQ_INT(n, counts[i].want, label);
        CHECK(strstr(dcpk_shape_format(counts[i].shape, counts[i].rank, text, sizeof text),
                     counts[i].text) != NULL,
              label);
    }
}

static void packs_and_prints(void **state)
{
    const int64_t shape[] = {4, 192, 64}, span[] = {0, 96, 0, 4, 96, 64};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_box box;
    int64_t packed[6], n;
    char text[64], small[9];

    (void)state;
    dcpk_box_unpack(span, 3, &box);
    CHECK_EQ_STR(dcpk_box_format(&box, text, sizeof text), "[0:4, 96:192, 0:64]", "box");
    CHECK_EQ_STR(dcpk_box_format(&box, small, sizeof small), "[0:4, 96", "cut");
    CHECK_OK(dcpk_box_count(&box, &n, &err), "count");
    CHECK_EQ_INT(n, 4 * 96 * 64, "count");
    dcpk_box_pack(&box, packed);
    CHECK(memcmp(packed, span, sizeof span) == 0, "pack is the inverse of unpack");
    dcpk_box_whole(shape, 3, &box);
    CHECK_EQ_STR(dcpk_box_format(&box, text, sizeof text), "[0:4, 0:192, 0:64]", "whole");
    dcpk_box_whole(NULL, 0, &box);
    CHECK_EQ_STR(dcpk_box_format(&box, text, sizeof text), "[]", "scalar");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(intersects), cmocka_unit_test(contains),
                                       cmocka_unit_test(counts_elements),
                                       cmocka_unit_test(packs_and_prints)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
