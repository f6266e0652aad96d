/* SPDX-License-Identifier: Apache-2.0 */
/* test_alloc.c - the heap: zeroes, overflow, alignment, growth, the n-th failure. */
#include "tests/check.h"

#include "lib/base/alloc.h"

static void zeroed_and_never_null(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    uint8_t *p = dcpk_alloc(1000, &err);
    void *none = dcpk_alloc(0, &err);

    (void)state;
    CHECK(p != NULL && none != NULL, "allocated");
    for (size_t i = 0; i < 1000; i++)
        CHECK_EQ_INT(p[i], 0, "zeroed");
    dcpk_free(p);
    dcpk_free(none);
    dcpk_free(NULL);
}

static void too_much(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    char *kept = dcpk_alloc(4, &err);

    (void)state;
    CHECK(dcpk_alloc_array(SIZE_MAX / 2, 3, &err) == NULL, "product overflows");
    CHECK_EQ_INT(err.status, DCPK_ENOMEM, "product overflows");
    err.status = DCPK_OK;
    dcpk_alloc_fail_nth(1); /* asking for real would trip the sanitizers */
    CHECK(dcpk_realloc(kept, 100, &err) == NULL, "realloc");
    CHECK_EQ_INT(err.status, DCPK_ENOMEM, "realloc");
    memcpy(kept, "old", 4);
    CHECK_EQ_STR(kept, "old", "the old memory stays");
    dcpk_free(kept);
}

static void aligned(void **state)
{
    static const size_t alignments[] = {1, 2, 8, 16, 64, 4096, 1 << 21};
    struct dcpk_error err = DCPK_ERROR_INIT;

    (void)state;
    for (size_t i = 0; i < sizeof alignments / sizeof *alignments; i++) {
        void *p = dcpk_alloc_aligned(alignments[i], 100, &err);
        CHECK(p != NULL, "aligned");
        CHECK_EQ_INT((uintptr_t)p % alignments[i], 0, "aligned");
        dcpk_free(p);
    }
}

static void grows(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    int64_t *items = NULL;
    size_t capacity = 0;
    size_t n_grown = 0;

    (void)state;
    for (size_t n = 0; n < 10000; n++) {
        const size_t before = capacity;
        CHECK_OK(dcpk_grow(&items, &capacity, n, sizeof *items, &err), "grow");
        CHECK(capacity > n, "room");
        n_grown += capacity != before;
        items[n] = (int64_t)n;
    }
    for (size_t n = 0; n < 10000; n++)
        CHECK_EQ_INT(items[n], n, "kept");
    CHECK(n_grown < 20, "doubles");
    dcpk_free(items);
    items = NULL;
    capacity = SIZE_MAX / 2 + 1;
    CHECK_FAILS(dcpk_grow(&items, &capacity, capacity, 8, &err), DCPK_ENOMEM, "out of memory",
                "doubling overflows");
    capacity = SIZE_MAX / 8;
    CHECK_FAILS(dcpk_grow(&items, &capacity, capacity, 8, &err), DCPK_ENOMEM, "out of memory",
                "bytes overflow");
    CHECK(items == NULL, "unchanged");
}

static void nth_fails_once(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;

    (void)state;
    dcpk_alloc_fail_nth(3);
    for (int i = 1; i <= 5; i++) {
        void *p = dcpk_alloc(1, &err);
        CHECK_EQ_INT(p == NULL, i == 3, "the third");
        dcpk_free(p);
    }
    CHECK_EQ_INT(dcpk_alloc_fail_nth(0), 5, "counted");
    for (int i = 0; i < 3; i++) {
        void *p = dcpk_alloc(1, &err);
        CHECK(p != NULL, "switched off");
        dcpk_free(p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zeroed_and_never_null),
        cmocka_unit_test(too_much),
        cmocka_unit_test(aligned),
        cmocka_unit_test(grows),
        cmocka_unit_test(nth_fails_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
