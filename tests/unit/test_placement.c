/* SPDX-License-Identifier: Apache-2.0 */
/* test_placement.c - boxes of meshes and placements against torch, and row chunks. */
#include "lib/tensor/placement.h"
#include "tests/check.h"

#define SHARD(a)                                                                                   \
    {                                                                                              \
        DCPK_SHARD, a, 0, NULL                                                                     \
    }
#define COPY                                                                                       \
    {                                                                                              \
        DCPK_REPLICATE, -1, 0, NULL                                                                \
    }

static const int64_t cuts[] = {0, 1, 1, 10}, short_cuts[] = {0, 4, 9},
                     falling_cuts[] = {0, 7, 3, 10}, late_cuts[] = {1, 4, 10};

/*
 * Offsets and lengths of SHARD cases as torch 2.11 computes them:
 * torch.distributed.tensor._utils._compute_local_shape_and_global_offset(shape, mesh, coordinate,
 * placements).
 */
static const struct {
    const char *label;
    int rank;
    int64_t shape[2];
    int n_dims;
    int64_t mesh[3];
    struct dcpk_placement placement[3];
    const char *want; /* boxes in order, or the words of the error */
    dcpk_status status;
} cases[] = {
    {"torch: 10 in 4", .rank = 1, .shape = {10}, .n_dims = 1, .mesh = {4}, .placement = {SHARD(0)},
     .want = "[0:3][3:6][6:9][9:10]"},
    {"torch: 5 in 4, the last is empty", .rank = 1, .shape = {5}, .n_dims = 1, .mesh = {4},
     .placement = {SHARD(0)}, .want = "[0:2][2:4][4:5]"},
    {"torch: 1 in 3", .rank = 1, .shape = {1}, .n_dims = 1, .mesh = {3}, .placement = {SHARD(0)},
     .want = "[0:1]"},
    {"torch: 9 in 4", .rank = 1, .shape = {9}, .n_dims = 1, .mesh = {4}, .placement = {SHARD(0)},
     .want = "[0:3][3:6][6:9]"},
    {"torch: axis 0 twice", .rank = 2, .shape = {10, 6}, .n_dims = 2, .mesh = {2, 3},
     .placement = {SHARD(0), SHARD(0)},
     .want = "[0:2, 0:6][2:4, 0:6][4:5, 0:6][5:7, 0:6][7:9, 0:6][9:10, 0:6]"},
    {"torch: both axes", .rank = 2, .shape = {10, 6}, .n_dims = 2, .mesh = {2, 2},
     .placement = {SHARD(0), SHARD(1)}, .want = "[0:5, 0:3][0:5, 3:6][5:10, 0:3][5:10, 3:6]"},
    {"torch: axis 0 three times", .rank = 1, .shape = {13}, .n_dims = 3, .mesh = {2, 2, 2},
     .placement = {SHARD(0), SHARD(0), SHARD(0)},
     .want = "[0:2][2:4][4:6][6:7][7:9][9:10][10:12][12:13]"},
    {"replicas once", .rank = 1, .shape = {4}, .n_dims = 3, .mesh = {3, 2, 2},
     .placement = {COPY, SHARD(0), COPY}, .want = "[0:2][2:4]"},
    {"all replicas", .rank = 2, .shape = {4, 6}, .n_dims = 1, .mesh = {8}, .placement = {COPY},
     .want = "[0:4, 0:6]"},
    {"no mesh", .rank = 2, .shape = {4, 6}, .n_dims = 0, .placement = {COPY}, .want = "[0:4, 0:6]"},
    {"scalar", .rank = 0, .n_dims = 1, .mesh = {2}, .placement = {COPY}, .want = "[]"},
    {"empty tensor", .rank = 2, .shape = {4, 0}, .n_dims = 1, .mesh = {2}, .placement = {SHARD(0)},
     .want = ""},
    {"gate and up halves", .rank = 1, .shape = {8}, .n_dims = 1, .mesh = {2},
     .placement = {{DCPK_STRIDED, 0, 2, NULL}}, .want = "[0:2][4:6][2:4][6:8]"},
    {"halves over one rank", .rank = 1, .shape = {8}, .n_dims = 1, .mesh = {1},
     .placement = {{DCPK_STRIDED, 0, 2, NULL}}, .want = "[0:8]"},
    {"halves, then cut again", .rank = 1, .shape = {8}, .n_dims = 2, .mesh = {2, 2},
     .placement = {{DCPK_STRIDED, 0, 2, NULL}, SHARD(0)}, .want = "[0:2][4:6][2:4][6:8]"},
    {"halves, then cut across the runs", .rank = 1, .shape = {12}, .n_dims = 2, .mesh = {2, 3},
     .placement = {{DCPK_STRIDED, 0, 2, NULL}, SHARD(0)},
     .want = "[0:2][2:3][6:7][7:9][3:5][5:6][9:10][10:12]"},
    {"halves on two axes", .rank = 2, .shape = {4, 4}, .n_dims = 2, .mesh = {2, 2},
     .placement = {{DCPK_STRIDED, 0, 2, NULL}, {DCPK_STRIDED, 1, 2, NULL}},
     .want = "[0:1, 0:1][0:1, 2:3][2:3, 0:1][2:3, 2:3][0:1, 1:2][0:1, 3:4][2:3, 1:2][2:3, 3:4]"
             "[1:2, 0:1][1:2, 2:3][3:4, 0:1][3:4, 2:3][1:2, 1:2][1:2, 3:4][3:4, 1:2][3:4, 3:4]"},
    {"odd halves", .rank = 1, .shape = {7}, .n_dims = 1, .mesh = {2},
     .placement = {{DCPK_STRIDED, 0, 2, NULL}},
     .want = "7 rows of axis 0 do not split into 2 equal blocks", .status = DCPK_EMISMATCH},
    {"uneven", .rank = 1, .shape = {10}, .n_dims = 1, .mesh = {3},
     .placement = {{DCPK_UNEVEN, 0, 0, cuts}}, .want = "[0:1][1:10]"},
    {"uneven, too short", .rank = 1, .shape = {10}, .n_dims = 1, .mesh = {2},
     .placement = {{DCPK_UNEVEN, 0, 0, short_cuts}},
     .want = "cuts of axis 0 must ascend from 0 to its 10 rows", .status = DCPK_EMISMATCH},
    {"uneven, without row 0", .rank = 1, .shape = {10}, .n_dims = 1, .mesh = {2},
     .placement = {{DCPK_UNEVEN, 0, 0, late_cuts}}, .want = "to its 10 rows, but go from 1 to 10",
     .status = DCPK_EMISMATCH},
    {"uneven, falling", .rank = 1, .shape = {10}, .n_dims = 1, .mesh = {3},
     .placement = {{DCPK_UNEVEN, 0, 0, falling_cuts}}, .want = "with 7 to 3 for part 1",
     .status = DCPK_EMISMATCH},
    {"partial", .rank = 1, .shape = {4}, .n_dims = 1, .mesh = {2},
     .placement = {{DCPK_PARTIAL, 0, 0, NULL}}, .want = "'d0' holds partial sums",
     .status = DCPK_EUNSUPPORTED},
    {"too many ranks", .rank = 1, .shape = {4}, .n_dims = 2, .mesh = {INT64_MAX, 2},
     .placement = {COPY, COPY}, .want = "at dimension 'd1' of size 2", .status = DCPK_ERANGE},
};

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

static void meshes(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new(0, &err);

    (void)state;
    CHECK(arena != NULL, err.text);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dcpk_mesh mesh = {cases[i].n_dims, {"d0", "d1", "d2"}, {0}};
        const struct dcpk_placed placed = {&mesh, cases[i].placement, cases[i].shape,
                                           cases[i].rank};
        struct dcpk_span_list list;
        char text[1024];

        memcpy(mesh.size, cases[i].mesh, sizeof cases[i].mesh);
        if (cases[i].status != DCPK_OK) {
            CHECK_FAILS(dcpk_placement_chunks(&placed, arena, &list, &err), cases[i].status,
                        cases[i].want, cases[i].label);
            continue;
        }
        CHECK_OK(dcpk_placement_chunks(&placed, arena, &list, &err), cases[i].label);
        CHECK_EQ_STR(join(list.spans, list.n, cases[i].rank, text, sizeof text), cases[i].want,
                     cases[i].label);
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
    struct dcpk_arena *arena = dcpk_arena_new(0, &err);
    struct dcpk_span_list list;
    char text[1024];

    (void)state;
    CHECK(arena != NULL, err.text);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(meshes), cmocka_unit_test(row_chunks)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
