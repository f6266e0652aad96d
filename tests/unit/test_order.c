/* SPDX-License-Identifier: Apache-2.0 */
/* test_order.c - smaller, larger and order at the ends of the ranges; the length of an array. */
#include <math.h>

#include "lib/base/order.h"
#include "tests/check.h"

static void ends_of_the_ranges_are_ordered(void **state)
{
    static const char *const names[] = {"a", "b", "c"};
    static const uint8_t rows[2][5];

    (void)state;
    CHECK(dcpk_min_u64(UINT64_MAX, 0) == 0 && dcpk_max_u64(0, UINT64_MAX) == UINT64_MAX, "u64");
    CHECK(dcpk_min_i64(INT64_MAX, INT64_MIN) == INT64_MIN, "i64");
    CHECK(dcpk_max_i64(INT64_MAX, INT64_MIN) == INT64_MAX, "i64");
    CHECK(dcpk_min_size(SIZE_MAX, 7) == 7 && dcpk_max_size(7, SIZE_MAX) == SIZE_MAX, "size");
    CHECK_EQ_INT(DCPK_THREE_WAY(INT64_MIN, INT64_MAX), -1, "a difference would overflow");
    CHECK_EQ_INT(DCPK_THREE_WAY(UINT64_MAX, UINT64_C(1)), 1, "a difference would be cut");
    CHECK_EQ_INT(DCPK_THREE_WAY(&rows[1], &rows[0]), 1, "pointers");
    CHECK_EQ_INT(DCPK_THREE_WAY(-0.0, 0.0), 0, "zeros");
    CHECK_EQ_INT(DCPK_THREE_WAY((double)NAN, 1.0), 0, "NaN");
    CHECK_EQ_INT(DCPK_COUNT(names), 3, "pointers");
    CHECK_EQ_INT(DCPK_COUNT(rows), 2, "rows");
    CHECK_EQ_INT(DCPK_COUNT(rows[0]), 5, "columns");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(ends_of_the_ranges_are_ordered)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
