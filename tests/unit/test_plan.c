/* SPDX-License-Identifier: Apache-2.0 */
/* test_plan.c - what a plan refuses, what it decides, and that chunks are found by box. */
#include "lib/plan/box_tree.h"
#include "lib/plan/plan.h"
#include "lib/tensor/piece.h"
#include "tests/fake_ckpt.h"

/* A box [at, at + len) on each of two axes. */
static struct dcpk_box box2(int64_t at0, int64_t len0, int64_t at1, int64_t len1)
{
    return (struct dcpk_box){.rank = 2, .offset = {at0, at1}, .extent = {len0, len1}};
}

static struct fake fake;
static const int64_t shape_4_6[] = {4, 6};

/* How a case bends the layout or the output before or after it is made by rights. */
enum bend {
    NOTHING,
    OVERLAP,
    OVERLAP_OBJECT,
    PAST_FILE,
    NO_FILE,
    WRONG_SIZE,
    LARGER_SIZE,
    PAST_2_64,
};
static enum bend bend;

static dcpk_status bent_lay_out(struct dcpk_output *out, struct dcpk_error *err)
{
    dcpk_status st = fake_lay_out(out, err);

    switch (bend) {
    case NOTHING:
        break;
    case OVERLAP:
        out->chunks[1].offset_bytes--;
        break;
    case OVERLAP_OBJECT:
        out->payloads[0].n_bytes++;
        break;
    case PAST_FILE:
        out->files[0].n_bytes--;
        break;
    case NO_FILE:
        out->chunks[1].file = 1; /* the first that is none */
        break;
    case WRONG_SIZE:
        out->chunks[1].data_bytes--;
        break;
    case LARGER_SIZE:
        out->chunks[1].data_bytes++;
        break;
    case PAST_2_64:
        out->chunks[1].offset_bytes = UINT64_MAX - 3;
        break;
    }
    return st;
}

/* The second tensor is the lower half of a source, rows 2 to 4 of 6 columns: */
#define LOWER_HALF .src = 0, .from = {2, {2, 0}, {2, 6}}, .to_at = 2

static const struct build_case {
    const char *label;
    uint32_t src; /* of the second half's piece */
    struct dcpk_box from;
    int64_t to_at; /* first row of the second half */
    enum dcpk_dtype dtype;
    enum bend bend;
    dcpk_status status;
    const char *text;
} cases[] = {
    {"good", LOWER_HALF, .dtype = DCPK_F32},
    {"good cast", LOWER_HALF, .dtype = DCPK_BF16},
    {"pieces overlap", .src = 0, .from = {2, {2, 0}, {2, 6}}, .to_at = 1, .dtype = DCPK_F32,
     .status = DCPK_EFORMAT, .text = "'second'"},
    {"no such source", .src = 9, .from = {2, {2, 0}, {2, 6}}, .to_at = 2, .dtype = DCPK_F32,
     .status = DCPK_ERANGE, .text = "tensor 9 of 2"},
    {"behind the last source", .src = 2, .from = {2, {2, 0}, {2, 6}}, .to_at = 2, .dtype = DCPK_F32,
     .status = DCPK_ERANGE, .text = "2 of 2"},
    {"wrong rank of source", .src = 1, .from = {2, {2, 0}, {2, 6}}, .to_at = 2, .dtype = DCPK_F32,
     .status = DCPK_EMISMATCH, .text = "'tensor1', of rank 3, with rank 2"},
    {"outside the source", .src = 0, .from = {2, {3, 0}, {2, 6}}, .to_at = 2, .dtype = DCPK_F32,
     .status = DCPK_EMISMATCH, .text = "[3:5, 0:6] of 'tensor0', whose shape is [4, 6]"},
    {"no cast to an integer", LOWER_HALF, .dtype = DCPK_I64, .status = DCPK_EUNSUPPORTED,
     .text = "'tensor0' is float32, which is not cast to int64"},
    {"places overlap", LOWER_HALF, .dtype = DCPK_F32, .bend = OVERLAP, .status = DCPK_EMISMATCH,
     .text = "'first' and 'second' overlap at byte"},
    {"place of an object overlaps", LOWER_HALF, .dtype = DCPK_F32, .bend = OVERLAP_OBJECT,
     .status = DCPK_EMISMATCH, .text = "'thing' and 'first' overlap at byte"},
    {"past the file", LOWER_HALF, .dtype = DCPK_F32, .bend = PAST_FILE, .status = DCPK_EMISMATCH,
     .text = "'second' ends at byte"},
    {"no such file", LOWER_HALF, .dtype = DCPK_F32, .bend = NO_FILE, .status = DCPK_EMISMATCH,
     .text = "'second' is placed in file 1 of 1"},
    {"wrong size", LOWER_HALF, .dtype = DCPK_F32, .bend = WRONG_SIZE, .status = DCPK_EMISMATCH,
     .text = "laid out as 95 bytes"},
    {"larger size", LOWER_HALF, .dtype = DCPK_F32, .bend = LARGER_SIZE, .status = DCPK_EMISMATCH,
     .text = "laid out as 97 bytes"},
    {"place past 2^64", LOWER_HALF, .dtype = DCPK_F32, .bend = PAST_2_64, .status = DCPK_ERANGE,
     .text = "past 2^64"},
};

/* Two tensors, the second one of two pieces: the upper half taken by rights, the lower as the case
 * says. */
static void add_tensors(struct dcpk_output *out, size_t c)
{
    static const char *const first[] = {"first"}, *const second[] = {"second", "alias"};
    struct dcpk_error err = DCPK_ERROR_INIT;
    const struct dcpk_box whole = box2(0, 4, 0, 6), upper = box2(0, 2, 0, 6);
    const struct dcpk_box lower = box2(cases[c].to_at, 2, 0, 6);
    struct dcpk_piece *pieces = dcpk_arena_array(out->arena, 3, sizeof *pieces, &err);
    struct dcpk_out_tensor tensor = {.keys = first,
                                     .n_keys = 1,
                                     .dtype = DCPK_F32,
                                     .rank = 2,
                                     .shape = shape_4_6,
                                     .pieces = pieces,
                                     .n_pieces = 1};
    uint32_t payload;

    CHECK_OK(dcpk_piece_make(out->arena, 0, &whole, &whole, &pieces[0], &err), cases[c].label);
    CHECK_OK(dcpk_piece_make(out->arena, 0, &upper, &upper, &pieces[1], &err), cases[c].label);
    CHECK_OK(dcpk_piece_make(out->arena, cases[c].src, &cases[c].from, &lower, &pieces[2], &err),
             cases[c].label);
    CHECK_OK(dcpk_output_add_tensor(out, &tensor, &err), cases[c].label);
    tensor.keys = second;
    tensor.n_keys = 2;
    tensor.dtype = cases[c].dtype;
    tensor.pieces = pieces + 1;
    tensor.n_pieces = 2;
    CHECK_OK(dcpk_output_add_tensor(out, &tensor, &err), cases[c].label);
    CHECK_OK(dcpk_output_add_payload(out, NULL, NULL, &payload, &err), cases[c].label);
    CHECK_OK(dcpk_output_add_object(out, "thing", payload, &err), cases[c].label);
    CHECK_OK(dcpk_output_add_object(out, "same thing", payload, &err), cases[c].label);
}

static void check_totals(const struct dcpk_output *out, enum dcpk_dtype dtype, const char *label)
{
    const uint64_t data_bytes = 24 * 4 + 24 * dcpk_dtype_bytes(dtype);
    struct dcpk_plan_totals totals;

    dcpk_plan_totals(out, &totals);
    CHECK_EQ_INT(totals.n_tensors, 2, label);
    CHECK_EQ_INT(totals.n_keys, 3, label);
    CHECK_EQ_INT(totals.n_chunks, 2, label);
    CHECK_EQ_INT(totals.n_objects, 2, label);
    CHECK_EQ_INT(totals.n_payloads, 1, label);
    CHECK_EQ_INT(totals.n_pieces, 3, label);
    CHECK_EQ_INT(totals.n_files, 1, label);
    CHECK_EQ_INT(totals.tensor_bytes, data_bytes, label);
    CHECK_EQ_INT(totals.file_bytes, data_bytes + 2 * 12 + 1, label);
    CHECK(totals.metadata_bytes > 0, label);
}

static void test_build(void **state)
{
    static const int64_t shape_1_4_6[] = {1, 4, 6};
    struct dcpk_format_writer writer = fake_writer;
    struct dcpk_format bent = fake_format;
    struct dcpk_checkpoint *ckpt;
    uint64_t seed = 1;

    (void)state;
    writer.lay_out = bent_lay_out;
    bent.writer = &writer;
    fake_add(&fake, DCPK_F32, 2, shape_4_6, 0, &seed);
    fake_add(&fake, DCPK_F32, 3, shape_1_4_6, 0, &seed);
    ckpt = fake_open(&fake, "open");
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_output *out;

        CHECK_OK(dcpk_output_new(ckpt, &bent, &out, &err), cases[c].label);
        bend = cases[c].bend;
        add_tensors(out, c);
        if (cases[c].status == DCPK_OK) {
            CHECK_OK(dcpk_plan_build(out, &err), cases[c].label);
            check_totals(out, cases[c].dtype, cases[c].label);
        } else {
            CHECK_FAILS(dcpk_plan_build(out, &err), cases[c].status, cases[c].text, cases[c].label);
        }
        dcpk_output_free(out);
    }
    dcpk_checkpoint_close(ckpt);
    fake_release(&fake);
}

/* Boxes that a format asks for: rows [from, from + n) of [4, 6]. */
static const struct {
    const char *label;
    int64_t spans[2][4];
    const char *text; /* NULL: they cover it */
} span_cases[] = {
    {"covered", {{0, 0, 3, 6}, {3, 0, 1, 6}}, NULL},
    {"a gap", {{0, 0, 2, 6}, {3, 0, 1, 6}}, "element [2, 0] of shape [4, 6] is missing"},
    {"an overlap", {{0, 0, 3, 6}, {2, 0, 2, 6}}, "overlap at element [2, 0]"},
    {"outside", {{0, 0, 3, 6}, {3, 0, 2, 6}}, "lies outside the shape [4, 6]"},
};

static void test_spans(void **state)
{
    static const char *const keys[] = {"one"};
    const struct dcpk_box whole = box2(0, 4, 0, 6);
    struct dcpk_checkpoint *ckpt;
    uint64_t seed = 1;

    (void)state;
    fake_add(&fake, DCPK_F32, 2, shape_4_6, 0, &seed);
    ckpt = fake_open(&fake, "open");
    for (size_t c = 0; c < sizeof span_cases / sizeof *span_cases; c++) {
        const int64_t *const spans[] = {span_cases[c].spans[0], span_cases[c].spans[1]};
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_piece piece;
        struct dcpk_out_tensor tensor = {.keys = keys,
                                         .n_keys = 1,
                                         .dtype = DCPK_F32,
                                         .rank = 2,
                                         .shape = shape_4_6,
                                         .pieces = &piece,
                                         .n_pieces = 1,
                                         .spans = spans,
                                         .n_spans = 2};
        struct dcpk_output *out;

        CHECK_OK(dcpk_output_new(ckpt, &fake_format, &out, &err), span_cases[c].label);
        CHECK_OK(dcpk_piece_make(out->arena, 0, &whole, &whole, &piece, &err), span_cases[c].label);
        CHECK_OK(dcpk_output_add_tensor(out, &tensor, &err), span_cases[c].label);
        if (span_cases[c].text == NULL)
            CHECK_OK(dcpk_plan_build(out, &err), span_cases[c].label);
        else
            CHECK_FAILS(dcpk_plan_build(out, &err), DCPK_EFORMAT, span_cases[c].text,
                        span_cases[c].label);
        dcpk_output_free(out);
    }
    dcpk_checkpoint_close(ckpt);
    fake_release(&fake);
}

/*
 * A tensor of 5 TiB is cut into row-aligned chunks of at most 64 MiB; nothing of it is allocated.
 */
static void test_chunks(void **state)
{
    static const char *const keys[] = {"huge"};
    static const int64_t shape[] = {1000000, 1400000};
    const struct dcpk_box whole = box2(0, 1000000, 0, 1400000);
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_piece piece;
    const struct dcpk_out_tensor tensor = {.keys = keys,
                                           .n_keys = 1,
                                           .dtype = DCPK_F32,
                                           .rank = 2,
                                           .shape = shape,
                                           .pieces = &piece,
                                           .n_pieces = 1};
    struct dcpk_checkpoint *ckpt = fake_open(&fake, "open");
    struct dcpk_output *out;
    int64_t next = 0;

    (void)state;
    CHECK_OK(dcpk_output_new(ckpt, &fake_format, &out, &err), "huge");
    CHECK_OK(dcpk_piece_make(out->arena, DCPK_PIECE_FILL, NULL, &whole, &piece, &err), "huge");
    CHECK_OK(dcpk_output_add_tensor(out, &tensor, &err), "huge");
    CHECK_OK(dcpk_plan_build(out, &err), "huge");
    CHECK_EQ_INT(out->tensors[0].first_chunk, 0, "huge");
    CHECK_EQ_INT(out->tensors[0].n_chunks, out->n_chunks, "huge");
    for (size_t i = 0; i < out->n_chunks; i++) {
        const int64_t *span = out->chunks[i].span;

        CHECK_EQ_INT(span[0], next, "huge");
        CHECK_EQ_INT(span[1], 0, "huge");
        CHECK_EQ_INT(span[3], 1400000, "huge");
        CHECK(span[2] > 0 && out->chunks[i].data_bytes <= DCPK_CHUNK_BYTES, "huge");
        next += span[2];
    }
    CHECK_EQ_INT(next, 1000000, "huge");
    dcpk_output_free(out);
    dcpk_checkpoint_close(ckpt);
}

struct boxes {
    int64_t (*span)[6];
    size_t n;
};

static const int64_t *span_of(const void *items, size_t i)
{
    return ((const struct boxes *)items)->span[i];
}

static int compare_spans(const int64_t *a, const int64_t *b)
{
    for (int axis = 0; axis < 3; axis++)
        if (a[axis] != b[axis])
            return a[axis] < b[axis] ? -1 : 1;
    return 0;
}

/*
 * All that meet `box`, in the order of their offsets, found by looking at each; returns how many.
 */
static size_t naive_find(const struct boxes *boxes, const struct dcpk_box *box, size_t *found)
{
    size_t n = 0;

    for (size_t i = 0; i < boxes->n; i++) {
        struct dcpk_box other, common;
        size_t at = n;

        dcpk_box_unpack(boxes->span[i], 3, &other);
        if (!dcpk_box_intersect(box, &other, &common))
            continue;
        for (n++; at > 0 && compare_spans(boxes->span[found[at - 1]], boxes->span[i]) > 0; at--)
            found[at] = found[at - 1];
        found[at] = i;
    }
    return n;
}

static const struct {
    const char *label;
    size_t n;
    int64_t size; /* of the space, each axis */
    int64_t longest;
    bool sorted;
} tree_cases[] = {
    {"none", 0, 10, 3, false},
    {"one", 1, 10, 3, false},
    {"sixteen", 16, 10, 3, false},
    {"seventeen", 17, 10, 3, false},
    {"257", 257, 20, 4, false},
    {"a grid's worth", 4097, 40, 3, false},
    {"long ones", 600, 40, 40, false},
    {"in order", 5000, 5000, 1, true},
    {"all at one place", 300, 1, 1, false},
};

static void test_tree(void **state)
{
    static int64_t spans[5000][6];
    static size_t found[5000];
    uint64_t seed = 7;

    (void)state;
    for (size_t c = 0; c < sizeof tree_cases / sizeof *tree_cases; c++) {
        const struct boxes boxes = {spans, tree_cases[c].n};
        struct dcpk_box_tree tree = {.items = &boxes, .span = span_of, .n = boxes.n, .rank = 3};
        struct dcpk_error err = DCPK_ERROR_INIT;

        for (size_t i = 0; i < boxes.n; i++)
            for (int axis = 0; axis < 3; axis++) {
                spans[i][axis] = fake_below(&seed, tree_cases[c].size);
                spans[i][3 + axis] = fake_below(&seed, tree_cases[c].longest + 1);
                if (tree_cases[c].sorted && axis == 0)
                    spans[i][0] = (int64_t)i;
            }
        CHECK_OK(dcpk_box_tree_build(&tree, &err), tree_cases[c].label);
        CHECK(!tree_cases[c].sorted || tree.order == NULL, tree_cases[c].label);
        for (int query = 0; query < 20; query++) {
            size_t at = 0, item, n_found, n = 0;
            struct dcpk_box box = {.rank = 3};

            for (int axis = 0; axis < 3; axis++) {
                box.offset[axis] = fake_below(&seed, tree_cases[c].size);
                box.extent[axis] = fake_below(&seed, 6);
            }
            n_found = naive_find(&boxes, &box, found);
            for (; dcpk_box_tree_next(&tree, &box, &at, &item); n++) {
                CHECK(n < n_found, tree_cases[c].label);
                CHECK_EQ_INT(item, found[n], tree_cases[c].label);
            }
            CHECK_EQ_INT(n, n_found, tree_cases[c].label);
        }
        dcpk_box_tree_release(&tree);
    }
}

static size_t n_looks;

static const int64_t *counting_span(const void *items, size_t i)
{
    n_looks++;
    return ((const struct boxes *)items)->span[i];
}

/* Stacked layers and experts, one box each: finding one of 16384 looks at a few only. */
static void test_tree_is_fast(void **state)
{
    enum { LAYERS = 64, EXPERTS = 256 };
    static int64_t spans[LAYERS * EXPERTS][6];
    const struct boxes boxes = {spans, LAYERS * EXPERTS};
    struct dcpk_box_tree tree = {.items = &boxes, .span = counting_span, .n = boxes.n, .rank = 3};
    struct dcpk_error err = DCPK_ERROR_INIT;

    (void)state;
    for (int64_t i = 0; i < LAYERS * EXPERTS; i++) {
        const int64_t span[6] = {i / EXPERTS, i % EXPERTS, 0, 1, 1, 10};

        memcpy(spans[i], span, sizeof span);
    }
    CHECK_OK(dcpk_box_tree_build(&tree, &err), "experts");
    for (int64_t i = 0; i < LAYERS * EXPERTS; i += 997) {
        struct dcpk_box box;
        size_t at = 0, item;

        dcpk_box_unpack(spans[i], 3, &box);
        n_looks = 0;
        CHECK(dcpk_box_tree_next(&tree, &box, &at, &item), "experts");
        CHECK_EQ_INT(item, i, "experts");
        CHECK(!dcpk_box_tree_next(&tree, &box, &at, &item), "experts");
        CHECK(n_looks <= 16, "experts");
    }
    dcpk_box_tree_release(&tree);
}

static void test_view_and_index(void **state)
{
    static const int64_t shape[] = {10, 8};
    const struct dcpk_box corner = box2(9, 1, 7, 1);
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_chunk_index *index;
    const struct dcpk_chunk *chunk;
    struct dcpk_checkpoint *ckpt;
    struct dcpk_arena *arena = dcpk_arena_new();
    struct dcpk_view view;
    struct dcpk_box from;
    uint64_t seed = 3;
    size_t at = 0;

    (void)state;
    fake_add(&fake, DCPK_I64, 2, shape, 20, &seed);
    fake_add(&fake, DCPK_BF16, 2, shape, 20, &seed);
    ckpt = fake_open(&fake, "index");
    CHECK_OK(dcpk_view_stored(ckpt, 1, arena, &view, &err), "view");
    CHECK(view.dtype == DCPK_BF16 && view.rank == 2 && view.n_pieces == 1, "view");
    dcpk_piece_from(&view.pieces[0], &from);
    CHECK(from.offset[0] == 0 && from.extent[0] == 10 && from.extent[1] == 8, "view");
    CHECK_OK(dcpk_chunk_index_new(ckpt, &index, &err), "index");
    chunk = dcpk_chunk_index_next(index, 1, &corner, &at);
    CHECK(chunk != NULL && chunk->tensor == 1, "index");
    CHECK(chunk->span[0] + chunk->span[2] == 10 && chunk->span[1] + chunk->span[3] == 8, "index");
    CHECK(dcpk_chunk_index_next(index, 1, &corner, &at) == NULL, "index");
    dcpk_chunk_index_free(index);
    dcpk_arena_free(arena);
    dcpk_checkpoint_close(ckpt);
    fake_release(&fake);
}

/* Views of tensors of which some lie where another one does. */
static void test_views_fold(void **state)
{
    static const int64_t tall[] = {10, 8}, wide[] = {8, 10};
    static const struct {
        const char *label;
        enum dcpk_dtype dtype;
        const int64_t *shape;
        size_t place_of; /* tensor */
        size_t first;
    } tensors[] = {
        {"a tensor", DCPK_I64, tall, 0, 0},
        {"another name of it", DCPK_I64, tall, 0, 0},
        {"another tensor", DCPK_I64, tall, 2, 2},
        {"another name of that", DCPK_I64, tall, 2, 2},
        {"its bytes in another shape", DCPK_I64, wide, 2, 4},
        {"its bytes in another dtype", DCPK_F64, wide, 2, 5},
        {"without bytes", DCPK_I64, tall, 6, 6},
        {"without bytes too", DCPK_I64, tall, 6, 7},
    };
    enum { N = sizeof tensors / sizeof tensors[0] };
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new();
    struct dcpk_checkpoint *ckpt;
    struct dcpk_view views[N + 1];
    size_t first[N + 1];
    uint64_t seed = 3;

    (void)state;
    for (size_t t = 0; t < N; t++) {
        fake_add(&fake, tensors[t].dtype, 2, tensors[t].shape, 0, &seed);
        fake.chunks[t].place = fake.chunks[tensors[t].place_of].place;
    }
    fake.chunks[6].place.n_bytes = fake.chunks[7].place.n_bytes = 0;
    ckpt = fake_open(&fake, "fold");
    for (uint32_t t = 0; t < N; t++)
        CHECK_OK(dcpk_view_stored(ckpt, t, arena, &views[t], &err), tensors[t].label);
    views[N] = views[0];
    views[N].literal = &seed;
    CHECK_OK(dcpk_views_fold(ckpt, views, N + 1, first, &err), "fold");
    for (size_t t = 0; t < N; t++)
        CHECK_EQ_INT(first[t], tensors[t].first, tensors[t].label);
    CHECK_EQ_INT(first[N], N, "a literal");
    dcpk_arena_free(arena);
    dcpk_checkpoint_close(ckpt);
    fake_release(&fake);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_build),        cmocka_unit_test(test_spans),
        cmocka_unit_test(test_chunks),       cmocka_unit_test(test_tree),
        cmocka_unit_test(test_tree_is_fast), cmocka_unit_test(test_view_and_index),
        cmocka_unit_test(test_views_fold),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
