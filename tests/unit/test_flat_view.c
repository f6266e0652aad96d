/* SPDX-License-Identifier: Apache-2.0 */
/* test_flat_view.c - runs of stored chunks in boxes of a view, against counting every element; runs
 * that do not fit. */
#include "tests/flat_fake.h"

#define MAX_ELEMS 4096

/* A run in a view, and the stored chunk it comes from. */
struct round {
    int rank;
    int64_t shape[6];
    struct dcpk_box block;
    int64_t start, n;   /* in the block */
    int64_t stored, at; /* elements of the stored tensor; where its second chunk begins */
    int64_t first;      /* in that chunk */
};

static void make_round(struct round *r, uint64_t seed)
{
    int64_t block_elems, chunk_elems;

    *r = (struct round){.rank = (int)fake_below(&seed, 6)};
    r->block.rank = r->rank;
    for (int a = 0; a < r->rank; a++) {
        r->shape[a] = 1 + fake_below(&seed, 5);
        r->block.extent[a] = 1 + fake_below(&seed, r->shape[a]);
        r->block.offset[a] = fake_below(&seed, r->shape[a] - r->block.extent[a] + 1);
    }
    block_elems = fake_elems(r->block.extent, r->rank);
    r->start = fake_below(&seed, block_elems + 1);
    r->n = fake_below(&seed, block_elems - r->start + 1);
    chunk_elems = r->n + fake_below(&seed, 10);
    r->first = fake_below(&seed, chunk_elems - r->n + 1);
    r->at = 1 + fake_below(&seed, 7);
    r->stored = r->at + chunk_elems;
}

/* A checkpoint with one 1-D tensor in two chunks, and a view with nothing in it. */
static struct dcpk_checkpoint *open_round(struct fake *fake, struct round *r, const char *label)
{
    const struct dcpk_box chunks[2] = {
        {.rank = 1, .offset = {0}, .extent = {r->at}},
        {.rank = 1, .offset = {r->at}, .extent = {r->stored - r->at}},
    };
    const struct dcpk_tensor view = {
        .key = "view", .dtype = DCPK_I64, .rank = r->rank, .shape = r->shape};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_checkpoint *ckpt;
    uint32_t index;

    flat_add(fake, 1, &r->stored, chunks, 2);
    ckpt = fake_open(fake, label);
    CHECK_OK(dcpk_checkpoint_add_view(ckpt, &view, &index, &err), label);
    CHECK_EQ_INT(index, 1, label);
    return ckpt;
}

/*
 * Put what the view's boxes hold into got, by the view's row-major index; -1 where there is none.
 */
static void read_view(struct dcpk_checkpoint *ckpt, int64_t *got, const char *label)
{
    const struct dcpk_tensor *view = &ckpt->tensors[1];

    for (int64_t i = 0; i < fake_elems(view->shape, view->rank); i++)
        got[i] = -1;
    for (size_t c = view->first_chunk; c < view->first_chunk + view->n_chunks; c++) {
        struct dcpk_box box;

        dcpk_box_unpack(ckpt->chunks[c].span, view->rank, &box);
        for (int64_t i = 0; i < fake_elems(box.extent, box.rank); i++) {
            int64_t *slot = &got[fake_index(view->shape, &box, i)];

            CHECK_EQ_INT(*slot, -1, label);
            *slot = flat_read(ckpt, &ckpt->chunks[c], i, label);
        }
    }
}

static void every_element_lands_where_the_formula_says(void **state)
{
    static int64_t got[MAX_ELEMS];

    (void)state;
    for (uint64_t seed = 1; seed <= 3000; seed++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct fake fake = {0};
        struct dcpk_checkpoint *ckpt;
        struct round r;
        char label[32];

        snprintf(label, sizeof label, "seed %" PRIu64, seed);
        make_round(&r, seed);
        ckpt = open_round(&fake, &r, label);
        CHECK_OK(dcpk_checkpoint_add_run(ckpt, &r.block, r.start, r.n,
                                         (struct dcpk_chunk_run){1, r.first}, &err),
                 label);
        CHECK(ckpt->tensors[1].n_chunks <= (r.rank == 0 ? 1 : 2 * (size_t)r.rank), label);
        read_view(ckpt, got, label);
        for (int64_t i = 0; i < fake_elems(r.block.extent, r.rank); i++) {
            int64_t *slot = &got[fake_index(r.shape, &r.block, i)];
            const bool is_in = i >= r.start && i < r.start + r.n;

            CHECK_EQ_INT(*slot, is_in ? r.at + r.first + i - r.start : -1, label);
            *slot = -1;
        }
        for (int64_t i = 0; i < fake_elems(r.shape, r.rank); i++) /* outside the block: nothing */
            CHECK_EQ_INT(got[i], -1, label);
        dcpk_checkpoint_close(ckpt);
        fake_release(&fake);
    }
}

/* In a view of 3 x 4 the block is rows 1 and 2 without their first element, 6 elements; the chunk
 * has 5. */
static void runs_that_do_not_fit_are_refused(void **state)
{
    static const struct {
        const char *label;
        int64_t row, rows; /* of the block */
        int64_t start, n, first;
        bool is_good;
    } cases[] = {
        {"all of the chunk", .row = 1, .rows = 2, .start = 0, .n = 5, .is_good = true},
        {"to the block's end", .row = 1, .rows = 2, .start = 1, .n = 5, .is_good = true},
        {"nothing at the end", .row = 1, .rows = 2, .start = 6, .n = 0, .first = 5,
         .is_good = true},
        {"past the block's end", .row = 1, .rows = 2, .start = 2, .n = 5},
        {"behind the block", .row = 1, .rows = 2, .start = 7, .n = 0},
        {"past the chunk's end", .row = 1, .rows = 2, .start = 0, .n = 5, .first = 1},
        {"behind the chunk", .row = 1, .rows = 2, .start = 0, .n = 0, .first = 6},
        {"a negative start", .row = 1, .rows = 2, .start = -1, .n = 2},
        {"a negative length", .row = 1, .rows = 2, .start = 2, .n = -1},
        {"a negative place", .row = 1, .rows = 2, .start = 0, .n = 2, .first = -1},
        {"a start that overflows", .row = 1, .rows = 2, .start = INT64_MAX, .n = 2},
        {"a length that overflows", .row = 1, .rows = 2, .start = 1, .n = INT64_MAX},
        {"a block past the view", .row = 2, .rows = 2, .start = 0, .n = 5},
        {"a block behind the view", .row = 3, .rows = 1, .start = 0, .n = 1},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct round r = {.rank = 2, .shape = {3, 4}, .stored = 7, .at = 2};
        const struct dcpk_box block = {
            .rank = 2, .offset = {cases[i].row, 1}, .extent = {cases[i].rows, 3}};
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct fake fake = {0};
        struct dcpk_checkpoint *ckpt = open_round(&fake, &r, cases[i].label);
        const struct dcpk_chunk_run run = {1, cases[i].first};

        if (cases[i].is_good)
            CHECK_OK(dcpk_checkpoint_add_run(ckpt, &block, cases[i].start, cases[i].n, run, &err),
                     cases[i].label);
        else
            CHECK_FAILS(
                dcpk_checkpoint_add_run(ckpt, &block, cases[i].start, cases[i].n, run, &err),
                DCPK_EFORMAT, "do not fit into 'view'", cases[i].label);
        dcpk_checkpoint_close(ckpt);
        fake_release(&fake);
    }
}

/* Bytes 8 to 56 of an object are six numbers: seen as they are, and three of them through a run. */
static void tensors_inside_objects_are_seen(void **state)
{
    static const int64_t shape[] = {6}, part[] = {3};
    const struct dcpk_tensor inner = {.key = "inner", .dtype = DCPK_I64, .rank = 1, .shape = shape};
    const struct dcpk_tensor view = {.key = "view", .dtype = DCPK_I64, .rank = 1, .shape = part};
    const struct dcpk_box block = {.rank = 1, .extent = {3}};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct fake fake = {0};
    struct dcpk_checkpoint *ckpt;
    struct dcpk_place place;
    uint32_t index;
    size_t chunk;

    (void)state;
    fake_add_object(&fake, "object", 56);
    place = fake.objects[0].place;
    place.offset_bytes += 8;
    place.n_bytes = 48;
    for (int64_t i = 0; i < 6; i++)
        memcpy(fake.files[0].data + place.offset_bytes + (size_t)i * sizeof i, &i, sizeof i);
    ckpt = fake_open(&fake, "inner");
    CHECK_OK(dcpk_checkpoint_add_inner(ckpt, &inner, &place, &index, &chunk, &err), "inner");
    for (int64_t i = 0; i < 6; i++)
        CHECK_EQ_INT(flat_read(ckpt, &ckpt->chunks[chunk], i, "inner"), i, "inner");
    CHECK_EQ_INT(ckpt->tensors[index].n_chunks, 1, "inner");
    CHECK_OK(dcpk_checkpoint_add_view(ckpt, &view, &index, &err), "view");
    CHECK_OK(dcpk_checkpoint_add_run(ckpt, &block, 0, 3, (struct dcpk_chunk_run){chunk, 2}, &err),
             "run");
    for (int64_t i = 0; i < 3; i++)
        CHECK_EQ_INT(flat_read(ckpt, &ckpt->chunks[ckpt->tensors[index].first_chunk], i, "run"),
                     i + 2, "run");
    CHECK_FAILS(
        dcpk_checkpoint_add_run(ckpt, &block, 0, 3, (struct dcpk_chunk_run){chunk, 4}, &err),
        DCPK_EFORMAT, "do not fit into 'view'", "past the end of the inner tensor");
    place.n_bytes = 40;
    CHECK_FAILS(dcpk_checkpoint_add_inner(ckpt, &inner, &place, &index, &chunk, &err), DCPK_EFORMAT,
                "'inner': 40 bytes at byte 8 of ", "other than its bytes");
    place = (struct dcpk_place){0, 16, 48};
    CHECK_FAILS(dcpk_checkpoint_add_inner(ckpt, &inner, &place, &index, &chunk, &err), DCPK_EFORMAT,
                "are not its 6 elements", "past the end of the file");
    dcpk_checkpoint_close(ckpt);
    fake_release(&fake);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_inside_objects_are_seen),
        cmocka_unit_test(every_element_lands_where_the_formula_says),
        cmocka_unit_test(runs_that_do_not_fit_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
