/* SPDX-License-Identifier: Apache-2.0 */
/* test_arena.c - zeroed, aligned, apart from each other, limited, and every failure without a leak.
 */
#include "tests/every_alloc.h"

#include <stdbool.h>

#include "lib/base/alloc.h"
#include "lib/base/arena.h"

/* Sizes that cross blocks, and some that get a block of their own. */
static size_t size_of(size_t i)
{
    return i % 97 == 0 ? 300000 + i : i % 13 * (i % 7) + i % 3;
}

static void apart_and_zeroed(void **state)
{
    enum { N = 2000 };
    static uint8_t *runs[N];
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new();

    (void)state;
    for (size_t i = 0; i < N; i++) {
        CHECK(dcpk_arena_strndup(arena, "odd", i % 4, &err) != NULL, "text between");
        runs[i] = dcpk_arena_alloc(arena, size_of(i), &err);
        CHECK(runs[i] != NULL, "allocated");
        CHECK_EQ_INT((uintptr_t)runs[i] % 8, 0, "aligned");
        for (size_t k = 0; k < size_of(i); k++)
            CHECK_EQ_INT(runs[i][k], 0, "zeroed");
        memset(runs[i], (int)(i % 251) + 1, size_of(i));
    }
    for (size_t i = 0; i < N; i++) {
        for (size_t k = 0; k < size_of(i); k++)
            CHECK_EQ_INT(runs[i][k], i % 251 + 1, "not shared");
    }
    dcpk_arena_free(arena);
    dcpk_arena_free(NULL);
}

static void texts(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new();

    (void)state;
    CHECK_EQ_STR(dcpk_arena_strdup(arena, "weight", &err), "weight", "strdup");
    CHECK_EQ_STR(dcpk_arena_strndup(arena, "weight", 3, &err), "wei", "strndup");
    CHECK_EQ_STR(dcpk_arena_strndup(arena, NULL, 0, &err), "", "no text");
    CHECK_EQ_STR(dcpk_arena_printf(arena, &err, "layer.%d.%s", 7, "x"), "layer.7.x", "printf");
    CHECK_EQ_STR(dcpk_arena_join(arena, (const char *const[]){"a.", "", "bc", "."}, 4, &err),
                 "a.bc.", "join");
    CHECK_EQ_STR(dcpk_arena_join(arena, NULL, 0, &err), "", "nothing joined");
    CHECK_EQ_INT(dcpk_arena_used_bytes(arena), 7 + 4 + 1 + 10 + 6 + 1, "texts are packed");
    for (int n = 254; n <= 257; n++) { /* around what is formatted once */
        const char *text = dcpk_arena_printf(arena, &err, "%*d.", n, 7);

        CHECK(text != NULL && strlen(text) == (size_t)n + 1 && text[n] == '.', "long printf");
    }
    CHECK(dcpk_arena_strndup(arena, "", SIZE_MAX, &err) == NULL, "length overflows");
    CHECK_EQ_INT(err.status, DCPK_ERANGE, "length overflows");
    CHECK(dcpk_arena_array(arena, SIZE_MAX / 4, 8, &err) == NULL, "product overflows");
    CHECK_EQ_INT(err.status, DCPK_ERANGE, "product overflows");
    CHECK(dcpk_arena_alloc(arena, SIZE_MAX - 8, &err) == NULL, "block size overflows");
    CHECK_EQ_INT(err.status, DCPK_ENOMEM, "block size overflows");
    dcpk_arena_free(arena);
}

static dcpk_status fill(struct dcpk_error *err)
{
    struct dcpk_arena *arena = dcpk_arena_new();
    bool ok = true;

    for (size_t i = 0; ok && i < 200; i++)
        ok = dcpk_arena_alloc(arena, size_of(i), err) != NULL &&
             dcpk_arena_printf(arena, err, "%zu", i) != NULL;
    dcpk_arena_free(arena);
    CHECK(ok == (err->status == DCPK_OK), "a failure has its error");
    return err->status;
}

/* What comes after clearing is zeroed, and takes nothing from the heap but
 * for the large block, which is released each time. */
static void cleared(void **state)
{
    enum { N = 2000, LARGE = 1000 };
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new();
    uint64_t n_made = 0;

    (void)state;
    dcpk_arena_clear(arena, 0);
    for (int round = 0; round < 5; round++) {
        uint8_t *parts[N];

        dcpk_alloc_fail_nth(0);
        for (size_t i = 0; i < N; i++) {
            const size_t n = i == LARGE ? 2000000 : 900 + i;

            parts[i] = dcpk_arena_alloc(arena, n, &err);
            CHECK(parts[i] != NULL, "made");
            CHECK(parts[i][0] == 0 && memcmp(parts[i], parts[i] + 1, n - 1) == 0, "zeroed");
            memset(parts[i], (int)(i % 255) + 1, n);
        }
        for (size_t i = 0; i < N; i++)
            CHECK(parts[i][0] == i % 255 + 1 && parts[i][899] == i % 255 + 1, "apart");
        n_made = dcpk_alloc_fail_nth(0);
        dcpk_arena_clear(arena, 8 << 20);
        CHECK_EQ_INT(dcpk_arena_used_bytes(arena), 0, "nothing is used");
    }
    CHECK_EQ_INT(n_made, 1, "blocks are used again");
    CHECK(dcpk_arena_alloc(arena, 100, &err) != NULL, "from a kept block");
    dcpk_arena_clear(arena, 0);
    dcpk_alloc_fail_nth(0);
    CHECK(dcpk_arena_alloc(arena, 100, &err) != NULL, "made");
    CHECK_EQ_INT(dcpk_alloc_fail_nth(0), 0, "from another kept block");
    dcpk_arena_free(arena);
}

static void every_failure(void **state)
{
    (void)state;
    every_alloc_fails(fill, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(apart_and_zeroed),
        cmocka_unit_test(texts),
        cmocka_unit_test(cleared),
        cmocka_unit_test(every_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
