/* SPDX-License-Identifier: Apache-2.0 */
/* test_chunks.c - blocks and rows of a tensor as boxes. */
#include "lib/tensor/chunks.h"

#include <string.h>

#include "lib/base/order.h"
#include "tests/check.h"

static const char *join(const int64_t *const *spans, size_t n, int rank, char *text, size_t n_bytes)
{
    size_t used = 0;

    text[0] = '\0';
    for (size_t i = 0; i < n; i++) {
        struct dcpk_box box;

        dcpk_box_unpack(spans[i], rank, &box);
        dcpk_box_format(&box, text + used, n_bytes - used);
        used += strlen(text + used);
    }
    return text;
}

static const struct {
    const char *label;
    int rank;
    int64_t shape[3], step[3];
    const char *want;
} blocks[] = {
    {"one", .rank = 2, .shape = {4, 8}, .step = {4, 8}, .want = "[0:4, 0:8]"},
    {"the last is shorter", .rank = 1, .shape = {5}, .step = {2}, .want = "[0:2][2:4][4:5]"},
    {"the last axis is fastest", .rank = 3, .shape = {2, 2, 4}, .step = {1, 2, 2},
     .want = "[0:1, 0:2, 0:2][0:1, 0:2, 2:4][1:2, 0:2, 0:2][1:2, 0:2, 2:4]"},
    {"scalar", .rank = 0, .want = "[]"},
    {"empty", .rank = 2, .shape = {2, 0}, .step = {1, 1}, .want = ""},
};

static void block_chunks(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new();
    struct dcpk_span_list list;
    char text[1024];

    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(blocks); i++) {
        CHECK_OK(
            dcpk_block_chunks(blocks[i].shape, blocks[i].rank, blocks[i].step, arena, &list, &err),
            blocks[i].label);
        CHECK_EQ_STR(join(list.spans, list.n, blocks[i].rank, text, sizeof text), blocks[i].want,
                     blocks[i].label);
    }
    dcpk_arena_free(arena);
}

static const struct {
    const char *label;
    int rank;
    int64_t shape[3];
    size_t elem_bytes;
    uint64_t limit_bytes;
    const char *want;
} rows[] = {
    {"fits", .rank = 2, .shape = {4, 8}, .elem_bytes = 2, .limit_bytes = 64, .want = "[0:4, 0:8]"},
    {"a byte too large", .rank = 2, .shape = {4, 8}, .elem_bytes = 2, .limit_bytes = 63,
     .want = "[0:3, 0:8][3:4, 0:8]"},
    {"a row each", .rank = 2, .shape = {3, 8}, .elem_bytes = 2, .limit_bytes = 31,
     .want = "[0:1, 0:8][1:2, 0:8][2:3, 0:8]"},
    {"row too large", .rank = 2, .shape = {2, 8}, .elem_bytes = 2, .limit_bytes = 15,
     .want = "[0:1, 0:7][0:1, 7:8][1:2, 0:7][1:2, 7:8]"},
    {"element too large", .rank = 1, .shape = {2}, .elem_bytes = 16, .limit_bytes = 8,
     .want = "[0:1][1:2]"},
    {"limit 0", .rank = 1, .shape = {2}, .elem_bytes = 2, .limit_bytes = 0, .want = "[0:1][1:2]"},
    {"middle axis", .rank = 3, .shape = {2, 4, 2}, .elem_bytes = 1, .limit_bytes = 5,
     .want = "[0:1, 0:2, 0:2][0:1, 2:4, 0:2][1:2, 0:2, 0:2][1:2, 2:4, 0:2]"},
    {"scalar", .rank = 0, .elem_bytes = 8, .limit_bytes = 4, .want = "[]"},
    {"empty", .rank = 2, .shape = {0, 8}, .elem_bytes = 2, .limit_bytes = 4, .want = "[0:0, 0:8]"},
    {"no limit", .rank = 1, .shape = {1000}, .elem_bytes = 8, .limit_bytes = UINT64_MAX,
     .want = "[0:1000]"},
};

static void row_chunks(void **state)
{
    const int64_t huge[] = {INT64_MAX / 2, 3};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new();
    struct dcpk_span_list list;
    char text[1024];

    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(rows); i++) {
        CHECK_OK(dcpk_row_chunks(rows[i].shape, rows[i].rank,
                                 rows[i].limit_bytes / rows[i].elem_bytes, arena, &list, &err),
                 rows[i].label);
        CHECK_EQ_STR(join(list.spans, list.n, rows[i].rank, text, sizeof text), rows[i].want,
                     rows[i].label);
    }
    CHECK_FAILS(dcpk_row_chunks(huge, 2, 1 << 20, arena, &list, &err), DCPK_ERANGE, "elements",
                "elements overflow");
    dcpk_arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(block_chunks),
                                       cmocka_unit_test(row_chunks)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
