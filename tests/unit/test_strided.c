/* SPDX-License-Identifier: Apache-2.0 */
/* test_strided.c - copies between buffers, simplified. */
#include "lib/tensor/strided.h"
#include "tests/between.h"
#include "tests/check.h"

struct axis {
    int64_t extent, src, dst;
};

static void check_axes(const struct dcpk_copy *copy, int rank, const struct axis *want,
                       const char *label)
{
    CHECK_EQ_INT(copy->rank, rank, label);
    for (int a = 0; a < rank; a++) {
        CHECK_EQ_INT(copy->extent[a], want[a].extent, label);
        CHECK_EQ_INT(copy->src_stride_bytes[a], want[a].src, label);
        CHECK_EQ_INT(copy->dst_stride_bytes[a], want[a].dst, label);
    }
}

static const struct {
    const char *label;
    size_t elem_bytes;
    int64_t src_extent[4], dst_extent[4];
    struct dcpk_box from, to;
    uint64_t src_at, dst_at;
    int rank;
    struct axis want[3];
} betweens[] = {
    {"whole", .elem_bytes = 2, .src_extent = {4, 6}, .dst_extent = {4, 6},
     .from = {2, {0, 0}, {4, 6}}, .to = {2, {0, 0}, {4, 6}}, .rank = 1, .want = {{24, 2, 2}}},
    {"rows", .elem_bytes = 4, .src_extent = {8, 6}, .dst_extent = {3, 6},
     .from = {2, {2, 0}, {3, 6}}, .to = {2, {0, 0}, {3, 6}}, .src_at = 48, .rank = 1,
     .want = {{18, 4, 4}}},
    {"columns", .elem_bytes = 2, .src_extent = {4, 6}, .dst_extent = {4, 2},
     .from = {2, {0, 3}, {4, 2}}, .to = {2, {0, 0}, {4, 2}}, .src_at = 6, .rank = 2,
     .want = {{4, 12, 4}, {2, 2, 2}}},
    {"layer of a stack", .elem_bytes = 2, .src_extent = {3, 4, 6}, .dst_extent = {4, 6},
     .from = {3, {2, 0, 0}, {1, 4, 6}}, .to = {2, {0, 0}, {4, 6}}, .src_at = 96, .rank = 1,
     .want = {{24, 2, 2}}},
    {"one column of each layer", .elem_bytes = 1, .src_extent = {3, 4, 6}, .dst_extent = {3, 4},
     .from = {3, {0, 0, 5}, {3, 4, 1}}, .to = {2, {0, 0}, {3, 4}}, .src_at = 5, .rank = 1,
     .want = {{12, 6, 1}}},
    {"block into a corner", .elem_bytes = 8, .src_extent = {2, 2, 2}, .dst_extent = {4, 4, 4},
     .from = {3, {0, 0, 0}, {2, 2, 2}}, .to = {3, {2, 2, 2}, {2, 2, 2}}, .dst_at = 8 * (32 + 8 + 2),
     .rank = 3, .want = {{2, 32, 128}, {2, 16, 32}, {2, 8, 8}}},
    {"one element", .elem_bytes = 4, .src_extent = {3, 3}, .dst_extent = {5},
     .from = {2, {1, 1}, {1, 1}}, .to = {1, {4}, {1}}, .src_at = 16, .dst_at = 16, .rank = 0},
    {"scalar to element", .elem_bytes = 4, .dst_extent = {5}, .from = {0, {0}, {0}},
     .to = {1, {2}, {1}}, .dst_at = 8, .rank = 0},
    {"empty", .elem_bytes = 4, .src_extent = {3, 0}, .dst_extent = {3, 0},
     .from = {2, {0, 0}, {3, 0}}, .to = {2, {0, 0}, {3, 0}}, .rank = 1, .want = {{0, 4, 4}}},
};

static void boxes_are_paired(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof betweens / sizeof betweens[0]; i++) {
        struct dcpk_copy copy;
        uint64_t src_at, dst_at;

        between(betweens[i].elem_bytes,
                &(struct between_side){betweens[i].src_extent, betweens[i].from},
                &(struct between_side){betweens[i].dst_extent, betweens[i].to}, &src_at, &dst_at,
                &copy);
        CHECK_EQ_INT(src_at, betweens[i].src_at, betweens[i].label);
        CHECK_EQ_INT(dst_at, betweens[i].dst_at, betweens[i].label);
        CHECK_EQ_INT(copy.elem_bytes, betweens[i].elem_bytes, betweens[i].label);
        check_axes(&copy, betweens[i].rank, betweens[i].want, betweens[i].label);
    }
}

static const struct {
    const char *label;
    int rank;
    struct axis given[3];
    int want_rank;
    struct axis want[3];
} simples[] = {
    {"dense on one side only", 2, {{4, 12, 24}, {3, 4, 4}}, 2, {{4, 12, 24}, {3, 4, 4}}},
    {"dense on both", 3, {{2, 48, 48}, {4, 12, 12}, {3, 4, 4}}, 1, {{24, 4, 4}}},
    {"outer pair", 3, {{2, 80, 160}, {4, 20, 40}, {3, 4, 4}}, 2, {{8, 20, 40}, {3, 4, 4}}},
    {"one between", 3, {{4, 12, 12}, {1, 999, -7}, {3, 4, 4}}, 1, {{12, 4, 4}}},
    {"all ones", 2, {{1, 12, 12}, {1, 4, 4}}, 0, {{0}}},
    {"transposed", 2, {{4, 4, 12}, {3, 16, 4}}, 2, {{4, 4, 12}, {3, 16, 4}}},
    {"broadcast", 2, {{4, 0, 12}, {3, 0, 4}}, 1, {{12, 0, 4}}},
    {"backwards", 2, {{4, -12, -12}, {3, -4, -4}}, 1, {{12, -4, -4}}},
    {"empty", 2, {{4, 12, 12}, {0, 4, 4}}, 1, {{0, 4, 4}}},
    {"strides that overflow", 2, {{2, 4, 4}, {3, INT64_MAX, 4}}, 2, {{2, 4, 4}, {3, INT64_MAX, 4}}},
};

static void simplify(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof simples / sizeof simples[0]; i++) {
        struct dcpk_copy copy = {.rank = simples[i].rank, .elem_bytes = 4};

        for (int a = 0; a < copy.rank; a++) {
            copy.extent[a] = simples[i].given[a].extent;
            copy.src_stride_bytes[a] = simples[i].given[a].src;
            copy.dst_stride_bytes[a] = simples[i].given[a].dst;
        }
        dcpk_copy_simplify(&copy);
        check_axes(&copy, simples[i].want_rank, simples[i].want, simples[i].label);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(boxes_are_paired),
                                       cmocka_unit_test(simplify)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
