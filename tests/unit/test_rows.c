/* SPDX-License-Identifier: Apache-2.0 */
/* test_rows.c - rows taken out of a tensor and joined again. */
#include "lib/model/rows.h"
#include "tests/check.h"

/* The source's row that each row of a tensor comes from. */
static void rows_of(const struct dcpk_model_tensor *tensor, int64_t *rows)
{
    for (size_t i = 0; i < tensor->n_pieces; i++) {
        struct dcpk_box from, to;

        dcpk_piece_from(&tensor->pieces[i], &from);
        dcpk_piece_to(&tensor->pieces[i], &to);
        for (int64_t r = 0; r < from.extent[0]; r++)
            rows[to.offset[0] + r] = from.offset[0] + r;
    }
}

/* Rows 0 .. 7 of a tensor of shape (8, 3), in pieces of 5 and 3 rows. */
static void make_tensor(struct dcpk_arena *arena, struct dcpk_model_tensor *tensor)
{
    static const int64_t shape[] = {8, 3};
    static const int64_t rows[] = {0, 5, 8};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_piece *pieces = dcpk_arena_array(arena, 2, sizeof *pieces, &err);

    assert_non_null(pieces);
    *tensor = (struct dcpk_model_tensor){
        .dtype = DCPK_F32, .rank = 2, .shape = shape, .pieces = pieces, .n_pieces = 2};
    for (size_t i = 0; i < 2; i++) {
        const struct dcpk_box box = {
            .rank = 2, .offset = {rows[i], 0}, .extent = {rows[i + 1] - rows[i], 3}};

        CHECK_OK(dcpk_piece_make(arena, 0, &box, &box, &pieces[i], &err), "piece");
    }
}

/* Three parts of a tensor of 8 rows. */
static void make_parts(struct dcpk_arena *arena, const int64_t *n_rows, struct dcpk_split *parts)
{
    static const char *const names[] = {"z", "B", "dt"};
    struct dcpk_error err = DCPK_ERROR_INIT;

    CHECK_OK(dcpk_rows_behind(arena, names, n_rows, 3, parts, &err), "parts");
}

/* Two ranks hold half of each part: parts of 4, 2 and 2 rows. */
static void ranks_hold_a_block_of_every_part(void **state)
{
    static const struct {
        int64_t tp;
        bool is_joined; /* else taken */
        int64_t rows[8];
    } cases[] = {
        {2, false, {0, 1, 4, 6, 2, 3, 5, 7}},
        {2, true, {0, 1, 4, 5, 2, 6, 3, 7}},
        {1, false, {0, 1, 2, 3, 4, 5, 6, 7}},
    };
    static const int64_t n_rows[] = {4, 2, 2};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_arena *arena = dcpk_arena_new();
        struct dcpk_model_tensor tensor;
        struct dcpk_stored ranked;
        const struct dcpk_split by_rank = {&ranked, 1};
        struct dcpk_split parts;
        int64_t rows[8];
        dcpk_status st;

        assert_non_null(arena);
        make_tensor(arena, &tensor);
        make_parts(arena, n_rows, &parts);
        CHECK_OK(dcpk_rows_fit(&parts, &tensor, &err), "fit");
        CHECK_OK(dcpk_rows_by_rank(arena, &parts, cases[i].tp, &ranked, &err), "by rank");
        if (cases[i].is_joined)
            st = dcpk_rows_join(arena, &by_rank, &tensor, &tensor, &err);
        else
            st = dcpk_rows_take(arena, &tensor, &ranked, &tensor, &err);
        CHECK_OK(st, "there");
        CHECK_EQ_INT(tensor.shape[0], 8, "rows");
        CHECK_EQ_INT(tensor.shape[1], 3, "columns");
        rows_of(&tensor, rows);
        assert_memory_equal(rows, cases[i].rows, sizeof rows);
        dcpk_arena_free(arena);
    }
}

static void parts_that_ranks_cannot_hold_are_refused(void **state)
{
    static const int64_t n_rows[] = {4, 2, 2}, few[] = {2, 2, 2}, none[3] = {0};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new();
    struct dcpk_model_tensor tensor;
    struct dcpk_stored ranked;
    struct dcpk_split parts;

    (void)state;
    assert_non_null(arena);
    make_tensor(arena, &tensor);
    make_parts(arena, n_rows, &parts);
    CHECK_FAILS(dcpk_rows_by_rank(arena, &parts, 3, &ranked, &err), DCPK_EMISMATCH,
                "tp=3 does not divide the 4 rows of its part 'z'", "three ranks");
    CHECK_FAILS(dcpk_rows_by_rank(arena, &parts, 4, &ranked, &err), DCPK_EMISMATCH,
                "tp=4 does not divide the 2 rows of its part 'B'", "four ranks");
    make_parts(arena, none, &parts);
    dcpk_error_clear(&err);
    CHECK_OK(dcpk_rows_by_rank(arena, &parts, INT64_MAX, &ranked, &err), "no rows");
    CHECK_EQ_INT(ranked.n_rows, 0, "what has no rows costs nothing, whatever args say");
    make_parts(arena, few, &parts);
    CHECK_FAILS(dcpk_rows_fit(&parts, &tensor, &err), DCPK_EMISMATCH, "has not the 6 rows",
                "other rows");
    dcpk_arena_free(arena);
}

/* The example of rows.h: two groups, in each two query heads of one row, a key and a value. */
static void queries_keys_and_values_come_apart(void **state)
{
    static const struct dcpk_rows q[] = {{0, 2}, {4, 2}}, k[] = {{2, 1}, {6, 1}};
    static const struct dcpk_rows v[] = {{3, 1}, {7, 1}};
    static const struct dcpk_stored list[] = {{"q_proj", q, 2}, {"k_proj", k, 2}, {"v_proj", v, 2}};
    static const struct dcpk_split qkv = {list, 3};
    static const int64_t want[3][4] = {{0, 1, 4, 5}, {2, 6}, {3, 7}}, n_rows[] = {4, 2, 2};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new();
    struct dcpk_model_tensor tensor, parts[3], whole;
    int64_t rows[8];

    (void)state;
    assert_non_null(arena);
    make_tensor(arena, &tensor);
    for (size_t i = 0; i < 3; i++) {
        CHECK_OK(dcpk_rows_take(arena, &tensor, &list[i], &parts[i], &err), list[i].name);
        CHECK_EQ_INT(parts[i].shape[0], n_rows[i], list[i].name);
        rows_of(&parts[i], rows);
        assert_memory_equal(rows, want[i], (size_t)n_rows[i] * sizeof *rows);
    }
    CHECK_OK(dcpk_rows_join(arena, &qkv, parts, &whole, &err), "joined");
    CHECK_EQ_INT(whole.shape[0], 8, "rows");
    rows_of(&whole, rows);
    for (int64_t r = 0; r < 8; r++)
        CHECK_EQ_INT(rows[r], r, "joined");
    dcpk_arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_hold_a_block_of_every_part),
        cmocka_unit_test(parts_that_ranks_cannot_hold_are_refused),
        cmocka_unit_test(queries_keys_and_values_come_apart),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
