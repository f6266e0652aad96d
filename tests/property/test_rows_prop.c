/* SPDX-License-Identifier: Apache-2.0 */
/* test_rows_prop.c - rows under names: taken apart and joined every row comes back to where it was.
 */
#include <stdio.h>

#include "lib/model/rows.h"
#include "tests/check.h"
#include "tests/random.h"

#define N_ROUNDS 500
#define MAX_ROWS 96
#define MAX_LIST 7

/*
 * A tensor of n_rows rows in random pieces, its rows shuffled, under random names in random blocks.
 */
struct round {
    char label[32];
    uint64_t seed;
    struct dcpk_arena *arena;
    int64_t n_rows, tp;
    int64_t source[MAX_ROWS]; /* the source's row of each row */
    struct dcpk_model_tensor tensor;
    struct dcpk_rows blocks[MAX_ROWS];
    struct dcpk_stored list[MAX_LIST];
    struct dcpk_split split;
};

static int64_t below(struct round *r, int64_t n)
{
    return (int64_t)random_below(&r->seed, (uint64_t)n);
}

/* Rows [row, row + n) of the tensor from some place of source tensor `src`. */
static void add_piece(struct round *r, struct dcpk_piece *piece, int64_t row, int64_t n)
{
    const struct dcpk_box to = {.rank = 2, .offset = {row, 0}, .extent = {n, 3}};
    struct dcpk_box from = to;
    struct dcpk_error err = DCPK_ERROR_INIT;

    from.offset[0] = 1000 * row;
    for (int64_t i = 0; i < n; i++)
        r->source[row + i] = from.offset[0] + i;
    CHECK_OK(dcpk_piece_make(r->arena, 0, &from, &to, piece, &err), r->label);
}

static void make_tensor(struct round *r)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    int64_t *shape = dcpk_arena_array(r->arena, 2, sizeof *shape, &err);
    struct dcpk_piece *pieces = dcpk_arena_array(r->arena, (size_t)r->n_rows, sizeof *pieces, &err);
    size_t n_pieces = 0;

    CHECK(shape != NULL && pieces != NULL, r->label);
    shape[0] = r->n_rows;
    shape[1] = 3;
    for (int64_t row = 0; row < r->n_rows;) {
        const int64_t n = 1 + below(r, r->n_rows - row);

        add_piece(r, &pieces[n_pieces++], row, n);
        row += n;
    }
    r->tensor = (struct dcpk_model_tensor){.role = DCPK_EXP_AVG,
                                           .dtype = DCPK_F32,
                                           .rank = 2,
                                           .shape = shape,
                                           .pieces = pieces,
                                           .n_pieces = n_pieces};
}

/* Blocks of multiples of tp rows that cover the tensor, in random order, dealt out to names; a name
 * may have none. */
static void make_split(struct round *r)
{
    static const char *const names[MAX_LIST] = {"q", "k", "v", "gate", "up", "z", "dt"};
    const size_t n = 1 + (size_t)below(r, MAX_LIST);
    size_t n_blocks = 0, dealt = 0;

    for (int64_t row = 0; row < r->n_rows;) {
        const int64_t n_rows = r->tp * (1 + below(r, (r->n_rows - row) / r->tp));

        r->blocks[n_blocks++] = (struct dcpk_rows){row, n_rows};
        row += n_rows;
    }
    for (size_t i = n_blocks; i > 1; i--) {
        const size_t k = (size_t)below(r, (int64_t)i);
        const struct dcpk_rows last = r->blocks[i - 1];

        r->blocks[i - 1] = r->blocks[k];
        r->blocks[k] = last;
    }
    for (size_t i = 0; i < n; i++) {
        const size_t left = n_blocks - dealt;
        const size_t mine = i + 1 == n ? left : (size_t)below(r, (int64_t)left + 1);

        r->list[i] = (struct dcpk_stored){names[i], r->blocks + dealt, mine};
        dealt += mine;
    }
    r->split = (struct dcpk_split){r->list, n};
}

static void make_round(struct round *r, uint64_t seed)
{

    memset(r, 0, sizeof *r);
    r->seed = seed;
    snprintf(r->label, sizeof r->label, "seed %" PRIu64, seed);
    r->arena = dcpk_arena_new();
    r->tp = 1 + below(r, 4);
    r->n_rows = r->tp * (1 + below(r, MAX_ROWS / 4));
    make_tensor(r);
    make_split(r);
}

/* Put the source's row of each row of `tensor` into rows[]; every row must have exactly one. */
static void read_rows(const struct round *r, const struct dcpk_model_tensor *tensor, int64_t *rows)
{
    for (int64_t i = 0; i < tensor->shape[0]; i++)
        rows[i] = -1;
    for (size_t i = 0; i < tensor->n_pieces; i++) {
        struct dcpk_box from, to;

        dcpk_piece_from(&tensor->pieces[i], &from);
        dcpk_piece_to(&tensor->pieces[i], &to);
        CHECK(to.offset[0] >= 0 && to.offset[0] + to.extent[0] <= tensor->shape[0], r->label);
        CHECK_EQ_INT(to.extent[1], 3, r->label);
        for (int64_t k = 0; k < to.extent[0]; k++) {
            CHECK_EQ_INT(rows[to.offset[0] + k], -1, r->label);
            rows[to.offset[0] + k] = from.offset[0] + k;
        }
    }
    for (int64_t i = 0; i < tensor->shape[0]; i++)
        CHECK(rows[i] >= 0, r->label);
}

/* Is it the tensor that the round began with? */
static void check_same(const struct round *r, const struct dcpk_model_tensor *tensor)
{
    int64_t rows[MAX_ROWS];

    CHECK_EQ_INT(tensor->shape[0], r->n_rows, r->label);
    CHECK_EQ_INT(tensor->shape[1], 3, r->label);
    CHECK_EQ_INT(tensor->role, DCPK_EXP_AVG, r->label);
    read_rows(r, tensor, rows);
    for (int64_t i = 0; i < r->n_rows; i++)
        CHECK_EQ_INT(rows[i], r->source[i], r->label);
}

/* Each name has the rows of its blocks in their order; together they have every row once. */
static void what_is_taken_apart_joins_again(void **state)
{
    static struct round r;

    (void)state;
    for (uint64_t seed = 1; seed <= N_ROUNDS; seed++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_model_tensor parts[MAX_LIST], whole;
        bool is_taken[MAX_ROWS] = {false};

        make_round(&r, seed);
        CHECK_OK(dcpk_rows_fit(&r.split, &r.tensor, &err), r.label);
        for (size_t i = 0; i < r.split.n; i++) {
            const struct dcpk_stored *stored = &r.list[i];
            int64_t rows[MAX_ROWS], at = 0;

            CHECK_OK(dcpk_rows_take(r.arena, &r.tensor, stored, &parts[i], &err), r.label);
            read_rows(&r, &parts[i], rows);
            for (size_t b = 0; b < stored->n_rows; b++)
                for (int64_t k = 0; k < stored->rows[b].n_rows; k++, at++) {
                    const int64_t row = stored->rows[b].row + k;

                    CHECK_EQ_INT(rows[at], r.source[row], r.label);
                    CHECK(!is_taken[row], r.label);
                    is_taken[row] = true;
                }
            CHECK_EQ_INT(parts[i].shape[0], at, r.label);
        }
        for (int64_t row = 0; row < r.n_rows; row++)
            CHECK(is_taken[row], r.label);
        CHECK_OK(dcpk_rows_join(r.arena, &r.split, parts, &whole, &err), r.label);
        check_same(&r, &whole);
        dcpk_arena_free(r.arena);
    }
}

/* A rank's rows are its block of every block; the ranks together have every row once. */
static void what_ranks_hold_joins_again(void **state)
{
    static struct round r;

    (void)state;
    for (uint64_t seed = 1; seed <= N_ROUNDS; seed++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_model_tensor by_rank, whole;
        struct dcpk_stored ranked;
        const struct dcpk_split one = {&ranked, 1};
        int64_t rows[MAX_ROWS], at = 0;

        make_round(&r, seed);
        CHECK_OK(dcpk_rows_by_rank(r.arena, &r.split, r.tp, &ranked, &err), r.label);
        CHECK_OK(dcpk_rows_take(r.arena, &r.tensor, &ranked, &by_rank, &err), r.label);
        read_rows(&r, &by_rank, rows);
        for (int64_t rank = 0; rank < r.tp; rank++)
            for (size_t i = 0; i < r.split.n; i++)
                for (size_t b = 0; b < r.list[i].n_rows; b++) {
                    const struct dcpk_rows block = r.list[i].rows[b];
                    const int64_t n = block.n_rows / r.tp;

                    for (int64_t k = 0; k < n; k++, at++)
                        CHECK_EQ_INT(rows[at], r.source[block.row + rank * n + k], r.label);
                }
        CHECK_EQ_INT(at, r.n_rows, r.label);
        CHECK_OK(dcpk_rows_join(r.arena, &one, &by_rank, &whole, &err), r.label);
        check_same(&r, &whole);
        dcpk_arena_free(r.arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_taken_apart_joins_again),
        cmocka_unit_test(what_ranks_hold_joins_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
