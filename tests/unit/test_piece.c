/* SPDX-License-Identifier: Apache-2.0 */
/* test_piece.c - pieces between ranks: made, clipped, mapped forward. */
#include "lib/tensor/piece.h"
#include "tests/check.h"

/* Boxes as text; NULL: the region does not meet the piece. */
static const struct {
    const char *label;
    struct dcpk_box from, to, region;
    const char *clipped_from, *clipped_to;
} clips[] = {
    {"layer out of a stack",
     {3, {5, 0, 0}, {1, 8, 6}},
     {2, {0, 0}, {8, 6}},
     {2, {2, 1}, {3, 4}},
     "[5:6, 2:5, 1:5]",
     "[2:5, 1:5]"},
    {"expert of a stack of stacks",
     {4, {2, 7, 0, 0}, {1, 1, 8, 6}},
     {2, {0, 0}, {8, 6}},
     {2, {7, 0}, {1, 6}},
     "[2:3, 7:8, 7:8, 0:6]",
     "[7:8, 0:6]"},
    {"into a stack",
     {2, {0, 0}, {8, 6}},
     {3, {5, 0, 0}, {1, 8, 6}},
     {3, {0, 4, 0}, {9, 4, 3}},
     "[4:8, 0:3]",
     "[5:6, 4:8, 0:3]"},
    {"second half to its own tensor",
     {2, {8, 0}, {8, 6}},
     {2, {0, 0}, {8, 6}},
     {2, {2, 0}, {2, 6}},
     "[10:12, 0:6]",
     "[2:4, 0:6]"},
    {"real axis of length 1 on both sides",
     {3, {3, 4, 0}, {1, 1, 6}},
     {2, {9, 0}, {1, 6}},
     {2, {9, 2}, {1, 2}},
     "[3:4, 4:5, 2:4]",
     "[9:10, 2:4]"},
    {"ones in other places",
     {4, {0, 3, 0, 2}, {4, 1, 6, 1}},
     {4, {1, 0, 5, 0}, {1, 4, 1, 6}},
     {4, {0, 1, 0, 2}, {9, 2, 9, 3}},
     "[1:3, 3:4, 2:5, 2:3]",
     "[1:2, 1:3, 5:6, 2:5]"},
    {"part of length 1 of an axis that is longer",
     {3, {1, 0, 0}, {1, 2, 2}},
     {3, {0, 0, 4}, {2, 2, 1}},
     {3, {0, 1, 0}, {2, 1, 9}},
     "[1:2, 0:2, 1:2]",
     "[0:2, 1:2, 4:5]"},
    {"scalar to vector", {0, {0}, {0}}, {1, {3}, {1}}, {1, {0}, {9}}, "[]", "[3:4]"},
    {"vector to scalar", {1, {3}, {1}}, {0, {0}, {0}}, {0, {0}, {0}}, "[3:4]", "[]"},
    {"touching", {1, {0}, {4}}, {1, {4}, {4}}, {1, {0}, {4}}, NULL, NULL},
    {"beside a stacked layer",
     {2, {0, 0}, {8, 6}},
     {3, {5, 0, 0}, {1, 8, 6}},
     {3, {4, 0, 0}, {1, 8, 6}},
     NULL,
     NULL},
    {"empty piece", {2, {0, 0}, {0, 6}}, {2, {0, 0}, {0, 6}}, {2, {0, 0}, {4, 6}}, NULL, NULL},
};

static void each_clip(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new(0, &err);
    char text[256];

    (void)state;
    CHECK(arena != NULL, err.text);
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
    struct dcpk_arena *arena = dcpk_arena_new(0, &err);
    struct dcpk_piece piece;
    struct dcpk_box got;
    char text[256];

    (void)state;
    CHECK(arena != NULL, err.text);
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
    struct dcpk_arena *arena = dcpk_arena_new(0, &err);
    struct dcpk_piece piece;
    struct dcpk_box got_from, got_to;
    char text[256];

    (void)state;
    CHECK(arena != NULL, err.text);
    CHECK_OK(dcpk_piece_make(arena, DCPK_PIECE_FILL, NULL, &to, &piece, &err), "make");
    CHECK(dcpk_piece_clip(&piece, &region, &got_from, &got_to), "clip");
    CHECK_EQ_STR(dcpk_box_format(&got_to, text, sizeof text), "[100:128, 0:8]", "to");
    CHECK_EQ_INT(got_from.rank, 0, "a fill comes from nowhere");
    dcpk_arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_clip), cmocka_unit_test(round_trip),
                                       cmocka_unit_test(fill)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
