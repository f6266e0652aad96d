/* SPDX-License-Identifier: Apache-2.0 */
/* test_piece.c - pieces between ranks: made, clipped, mapped forward. */
#include <stdio.h>

#include "lib/tensor/piece.h"
#include "tests/check.h"

/* Boxes as text; NULL: the region does not meet the piece. */
static const struct {
    const char *label;
    struct dcpk_box from, to, region;
    const char *clipped_from, *clipped_to;
} clips[] = {
    {"layer out of a stack", .from = {3, {5, 0, 0}, {1, 8, 6}}, .to = {2, {0, 0}, {8, 6}},
     .region = {2, {2, 1}, {3, 4}}, .clipped_from = "[5:6, 2:5, 1:5]", .clipped_to = "[2:5, 1:5]"},
    {"expert of a stack of stacks", .from = {4, {2, 7, 0, 0}, {1, 1, 8, 6}},
     .to = {2, {0, 0}, {8, 6}}, .region = {2, {7, 0}, {1, 6}},
     .clipped_from = "[2:3, 7:8, 7:8, 0:6]", .clipped_to = "[7:8, 0:6]"},
    {"into a stack", .from = {2, {0, 0}, {8, 6}}, .to = {3, {5, 0, 0}, {1, 8, 6}},
     .region = {3, {0, 4, 0}, {9, 4, 3}}, .clipped_from = "[4:8, 0:3]",
     .clipped_to = "[5:6, 4:8, 0:3]"},
    {"second half to its own tensor", .from = {2, {8, 0}, {8, 6}}, .to = {2, {0, 0}, {8, 6}},
     .region = {2, {2, 0}, {2, 6}}, .clipped_from = "[10:12, 0:6]", .clipped_to = "[2:4, 0:6]"},
    {"real axis of length 1 on both sides", .from = {3, {3, 4, 0}, {1, 1, 6}},
     .to = {2, {9, 0}, {1, 6}}, .region = {2, {9, 2}, {1, 2}}, .clipped_from = "[3:4, 4:5, 2:4]",
     .clipped_to = "[9:10, 2:4]"},
    {"ones in other places", .from = {4, {0, 3, 0, 2}, {4, 1, 6, 1}},
     .to = {4, {1, 0, 5, 0}, {1, 4, 1, 6}}, .region = {4, {0, 1, 0, 2}, {9, 2, 9, 3}},
     .clipped_from = "[1:3, 3:4, 2:5, 2:3]", .clipped_to = "[1:2, 1:3, 5:6, 2:5]"},
    {"part of length 1 of an axis that is longer", .from = {3, {1, 0, 0}, {1, 2, 2}},
     .to = {3, {0, 0, 4}, {2, 2, 1}}, .region = {3, {0, 1, 0}, {2, 1, 9}},
     .clipped_from = "[1:2, 0:2, 1:2]", .clipped_to = "[0:2, 1:2, 4:5]"},
    {"scalar to vector", .from = {0, {0}, {0}}, .to = {1, {3}, {1}}, .region = {1, {0}, {9}},
     .clipped_from = "[]", .clipped_to = "[3:4]"},
    {"vector to scalar", .from = {1, {3}, {1}}, .to = {0, {0}, {0}}, .region = {0, {0}, {0}},
     .clipped_from = "[3:4]", .clipped_to = "[]"},
    {"touching", .from = {1, {0}, {4}}, .to = {1, {4}, {4}}, .region = {1, {0}, {4}}},
    {"beside a stacked layer", .from = {2, {0, 0}, {8, 6}}, .to = {3, {5, 0, 0}, {1, 8, 6}},
     .region = {3, {4, 0, 0}, {1, 8, 6}}},
    {"empty piece", .from = {2, {0, 0}, {0, 6}}, .to = {2, {0, 0}, {0, 6}},
     .region = {2, {0, 0}, {4, 6}}},
};

static void each_clip(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new();
    char text[256];

    (void)state;
    for (size_t i = 0; i < sizeof clips / sizeof clips[0]; i++) {
        const char *label = clips[i].label;
        struct dcpk_piece piece;
        struct dcpk_box from, to, forward;

        CHECK_OK(dcpk_piece_make(arena, 7, &clips[i].from, &clips[i].to, &piece, &err), label);
        CHECK_EQ_INT(piece.src, 7, label);
        CHECK_EQ_INT(dcpk_piece_clip(&piece, &clips[i].region, &from, &to),
                     clips[i].clipped_to != NULL, label);
        if (clips[i].clipped_to == NULL)
            continue;
        CHECK_EQ_STR(dcpk_box_format(&from, text, sizeof text), clips[i].clipped_from, label);
        CHECK_EQ_STR(dcpk_box_format(&to, text, sizeof text), clips[i].clipped_to, label);
        dcpk_piece_forward(&piece, &from, &forward); /* leads back to the output side */
        CHECK_EQ_STR(dcpk_box_format(&forward, text, sizeof text), clips[i].clipped_to, label);
    }
    dcpk_arena_free(arena);
}

static void round_trip(void **state)
{
    const struct dcpk_box from = {3, {5, 1, 2}, {1, 8, 6}}, to = {2, {3, 4}, {8, 6}};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new();
    struct dcpk_piece piece;
    struct dcpk_box got;
    char text[256];

    (void)state;
    CHECK_OK(dcpk_piece_make(arena, 0, &from, &to, &piece, &err), "make");
    dcpk_piece_from(&piece, &got);
    CHECK_EQ_STR(dcpk_box_format(&got, text, sizeof text), "[5:6, 1:9, 2:8]", "from");
    dcpk_piece_to(&piece, &got);
    CHECK_EQ_STR(dcpk_box_format(&got, text, sizeof text), "[3:11, 4:10]", "to");
    dcpk_arena_free(arena);
}

static void fill(void **state)
{
    const struct dcpk_box to = {2, {96, 0}, {32, 64}}, region = {2, {100, 0}, {64, 8}};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new();
    struct dcpk_piece piece;
    struct dcpk_box got_from, got_to;
    char text[256];

    (void)state;
    CHECK_OK(dcpk_piece_make(arena, DCPK_PIECE_FILL, NULL, &to, &piece, &err), "make");
    CHECK(dcpk_piece_clip(&piece, &region, &got_from, &got_to), "clip");
    CHECK_EQ_STR(dcpk_box_format(&got_to, text, sizeof text), "[100:128, 0:8]", "to");
    CHECK_EQ_INT(got_from.rank, 0, "a fill comes from nowhere");
    dcpk_arena_free(arena);
}

/* The parts of a piece that is flat: rows of [4, 6] from row 2 on, on elements 5 to 29 of a line.
 */
static const struct {
    const char *label;
    int64_t first, n;     /* the region */
    const char *parts[5]; /* "from -> to" */
} lines[] = {
    {"all of it", 0, 99, {"[2:6, 1:7] -> [5:29]"}},
    {"inside a row", 7, 3, {"[2:3, 3:6] -> [7:10]"}},
    {"two ends of rows", 9, 4, {"[2:3, 5:7] -> [9:11]", "[3:4, 1:3] -> [11:13]"}},
    {"rows between",
     10,
     15,
     {"[2:3, 6:7] -> [10:11]", "[3:5, 1:7] -> [11:23]", "[5:6, 1:3] -> [23:25]"}},
    {"beside it", 29, 4, {NULL}},
};

static void flat(void **state)
{
    const struct dcpk_box from = {2, {2, 1}, {4, 6}}, to = {2, {3, 5}, {1, 24}};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new();
    struct dcpk_piece piece;

    (void)state;
    CHECK_OK(dcpk_piece_make(arena, 0, &from, &to, &piece, &err), "make");
    CHECK(dcpk_piece_is_flat(&piece), "flat");
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        const struct dcpk_box region = {2, {3, lines[i].first}, {1, lines[i].n}};
        struct dcpk_box got_from, got_to;
        int64_t n_done = 0;
        size_t n = 0;

        while (dcpk_piece_next(&piece, &region, &n_done, &got_from, &got_to)) {
            char text[256], a[64], b[64];

            got_to = (struct dcpk_box){1, {got_to.offset[1]}, {got_to.extent[1]}};
            snprintf(text, sizeof text, "%s -> %s", dcpk_box_format(&got_from, a, sizeof a),
                     dcpk_box_format(&got_to, b, sizeof b));
            CHECK(lines[i].parts[n] != NULL, text);
            CHECK_EQ_STR(text, lines[i].parts[n++], lines[i].label);
        }
        CHECK(lines[i].parts[n] == NULL, lines[i].label);
    }
    dcpk_arena_free(arena);
}

/* Others have one part. */
static void next_of_a_box(void **state)
{
    const struct dcpk_box from = {2, {8, 0}, {8, 6}}, to = {2, {0, 0}, {8, 6}};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new();
    struct dcpk_box got_from, got_to;
    struct dcpk_piece piece;
    int64_t n_done = 0;

    (void)state;
    CHECK_OK(dcpk_piece_make(arena, 0, &from, &to, &piece, &err), "make");
    CHECK(!dcpk_piece_is_flat(&piece), "flat");
    CHECK(dcpk_piece_next(&piece, &to, &n_done, &got_from, &got_to), "the first");
    CHECK(!dcpk_piece_next(&piece, &to, &n_done, &got_from, &got_to), "and the last");
    dcpk_arena_free(arena);
}

/* A slice of a stack, transposed: any part of it comes from where its axes are. */
static void turned(void **unused)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new();
    const struct dcpk_piece_turn turn = {
        .src = 3,
        .from = {.rank = 4, .offset = {5, 0, 10, 1}, .extent = {1, 4, 6, 1}},
        .to = {.rank = 2, .offset = {20, 0}, .extent = {6, 4}},
        .axis = {2, 1},
    };
    const struct dcpk_box region = {.rank = 2, .offset = {21, 3}, .extent = {2, 9}};
    const struct dcpk_box behind = {.rank = 3, .offset = {7, 21, 3}, .extent = {1, 2, 1}};
    struct dcpk_box from, to;
    struct dcpk_piece piece, part;

    (void)unused;
    CHECK_OK(dcpk_piece_make_turned(arena, &turn, &piece, &err), "make");
    CHECK(piece.axes != 0 && !dcpk_piece_is_flat(&piece), "turned");
    CHECK(dcpk_piece_clip(&piece, &region, &from, &to), "clip");
    CHECK(from.offset[0] == 5 && from.offset[1] == 3 && from.offset[2] == 11 && from.offset[3] == 1,
          "from");
    CHECK(from.extent[1] == 1 && from.extent[2] == 2, "so many");
    CHECK_OK(dcpk_piece_like(arena, &piece, &from, &behind, &part, &err), "behind an axis");
    dcpk_piece_forward(&part, &from, &to);
    CHECK(to.offset[0] == 7 && to.offset[1] == 21 && to.extent[1] == 2 && to.offset[2] == 3,
          "forward");
    dcpk_arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_clip), cmocka_unit_test(round_trip),    cmocka_unit_test(fill),
        cmocka_unit_test(flat),      cmocka_unit_test(next_of_a_box), cmocka_unit_test(turned)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
