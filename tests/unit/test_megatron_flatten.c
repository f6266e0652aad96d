/* SPDX-License-Identifier: Apache-2.0 */
/* test_megatron_flatten.c - every element of a tensor is in its block's row, whatever pieces the
 * tensor comes in. */
#include "formats/megatron/megatron_flatten.h"

#include "tests/check.h"

enum { ROWS = 6, COLUMNS = 8, N_ELEMS = ROWS * COLUMNS };

static const struct {
    const char *label;
    int64_t rows, columns;             /* of a block */
    int64_t piece_rows, piece_columns; /* of the pieces that the tensor comes in */
} cases[] = {
    {"one block", ROWS, COLUMNS, ROWS, COLUMNS},
    {"rows", 2, COLUMNS, ROWS, COLUMNS},
    {"columns", ROWS, 4, ROWS, COLUMNS},
    {"both", 3, 2, ROWS, COLUMNS},
    {"pieces of rows that end inside blocks", 3, 4, 2, COLUMNS},
    {"pieces of columns that end inside blocks", 2, 4, ROWS, 3},
    {"small pieces", 3, 4, 2, 3},
    {"single elements", 1, 1, 4, 5},
};

/* Boxes of this size, those at the ends smaller, that cover the tensor. Returns how many. */
static size_t cover(int64_t n_rows, int64_t n_columns, struct dcpk_box boxes[N_ELEMS])
{
    size_t n = 0;

    for (int64_t r = 0; r < ROWS; r += n_rows)
        for (int64_t c = 0; c < COLUMNS; c += n_columns) {
            boxes[n] = (struct dcpk_box){.rank = 2, .offset = {r, c}};
            boxes[n].extent[0] = r + n_rows < ROWS ? n_rows : ROWS - r;
            boxes[n].extent[1] = c + n_columns < COLUMNS ? n_columns : COLUMNS - c;
            n++;
        }
    return n;
}

/* The tensor in pieces of the source 7, whose shape is its own, cut into blocks. */
static void make(struct dcpk_arena *arena, size_t i, struct dcpk_out_tensor *tensor)
{
    static const int64_t shape[] = {ROWS, COLUMNS};
    static const char *const keys[] = {"key"};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_box boxes[N_ELEMS];
    struct dcpk_piece *pieces = dcpk_arena_array(arena, N_ELEMS, sizeof *pieces, &err);
    int64_t **spans = dcpk_arena_array(arena, N_ELEMS, sizeof *spans, &err);

    CHECK(pieces != NULL && spans != NULL, err.text);
    *tensor = (struct dcpk_out_tensor){.keys = keys,
                                       .n_keys = 1,
                                       .dtype = DCPK_F32,
                                       .rank = 2,
                                       .shape = shape,
                                       .pieces = pieces,
                                       .spans = (const int64_t *const *)spans};
    tensor->n_pieces = cover(cases[i].piece_rows, cases[i].piece_columns, boxes);
    for (size_t p = 0; p < tensor->n_pieces; p++)
        CHECK_OK(dcpk_piece_make(arena, 7, &boxes[p], &boxes[p], &pieces[p], &err), "piece");
    tensor->n_spans = cover(cases[i].rows, cases[i].columns, boxes);
    for (size_t s = 0; s < tensor->n_spans; s++) {
        spans[s] = dcpk_arena_array(arena, 4, sizeof **spans, &err);
        CHECK(spans[s] != NULL, err.text);
        dcpk_box_pack(&boxes[s], spans[s]);
    }
}

/* What the pieces put at each element of the output: the number of the source's, -1: nothing. */
static void gather(const struct dcpk_out_tensor *tensor, int64_t got[N_ELEMS])
{
    const struct dcpk_box all = {.rank = 3,
                                 .extent = {tensor->shape[0], tensor->shape[1], tensor->shape[2]}};

    for (size_t p = 0; p < tensor->n_pieces; p++) {
        struct dcpk_box from, to;
        int64_t n_done = 0;

        while (dcpk_piece_next(&tensor->pieces[p], &all, &n_done, &from, &to)) {
            int64_t at = (to.offset[0] * all.extent[1] + to.offset[1]) * all.extent[2];

            at += to.offset[2];
            for (int64_t r = 0; r < from.extent[0]; r++)
                for (int64_t c = 0; c < from.extent[1]; c++) {
                    CHECK_EQ_INT(got[at], -1, "once");
                    got[at++] = (from.offset[0] + r) * COLUMNS + from.offset[1] + c;
                }
        }
    }
}

static void elements_follow_in_their_blocks(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_arena *arena = dcpk_arena_new();
        const int64_t n = cases[i].rows * cases[i].columns;
        struct dcpk_out_tensor tensor;
        int64_t got[N_ELEMS], at = 0;

        make(arena, i, &tensor);
        CHECK_OK(dcpk_megatron_flatten(arena, &tensor, &err), cases[i].label);
        CHECK_EQ_INT(tensor.rank, 3, cases[i].label);
        CHECK_EQ_INT(tensor.shape[0], ROWS / cases[i].rows, cases[i].label);
        CHECK_EQ_INT(tensor.shape[1], COLUMNS / cases[i].columns, cases[i].label);
        CHECK_EQ_INT(tensor.shape[2], n, cases[i].label);
        CHECK_EQ_INT(tensor.model_rank, 2, cases[i].label);
        CHECK_EQ_INT(tensor.model_shape[1], COLUMNS, cases[i].label);
        for (size_t e = 0; e < N_ELEMS; e++)
            got[e] = -1;
        gather(&tensor, got);
        for (int64_t r = 0; r < ROWS; r += cases[i].rows)
            for (int64_t c = 0; c < COLUMNS; c += cases[i].columns)
                for (int64_t e = 0; e < n; e++, at++)
                    CHECK_EQ_INT(got[at],
                                 (r + e / cases[i].columns) * COLUMNS + c + e % cases[i].columns,
                                 cases[i].label);
        for (size_t s = 0; s < tensor.n_spans; s++) { /* in the order of the blocks */
            const int64_t n_across = tensor.shape[1], number = (int64_t)s;
            const int64_t want[] = {number / n_across, number % n_across, 0, 1, 1, n};

            CHECK(memcmp(tensor.spans[s], want, sizeof want) == 0, cases[i].label);
        }
        dcpk_arena_free(arena);
    }
}

static void too_many_axes_are_refused(void **state)
{
    static const char *const keys[] = {"key"};
    struct dcpk_out_tensor tensor = {.keys = keys, .n_keys = 1, .rank = DCPK_MAX_RANK};
    struct dcpk_error err = DCPK_ERROR_INIT;

    (void)state;
    CHECK_EQ_INT(dcpk_megatron_flatten(NULL, &tensor, &err), DCPK_EUNSUPPORTED, "axes");
    CHECK(strstr(err.text, "'key' would have 17 axes") != NULL, err.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(elements_follow_in_their_blocks),
                                       cmocka_unit_test(too_many_axes_are_refused)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
