/* SPDX-License-Identifier: Apache-2.0 */
/* test_megatron_cut.c - how args and chunks tell the way a model was cut over ranks. */
#include "formats/megatron/buckets/megatron_blocks.h"
#include "formats/megatron/buckets/megatron_cut.h"
#include "tests/check.h"
#include "tests/unit/megatron_args.h"

/* --- layers on model chunks --- */

#define SIZES(pp, vpp, layers, world)                                                              \
    {"tensor_model_parallel_size", 1, NULL}, {"pipeline_model_parallel_size", pp, NULL},           \
        {"virtual_pipeline_model_parallel_size", vpp, NULL}, {"num_layers", layers, NULL},         \
    {                                                                                              \
        "world_size", world, NULL                                                                  \
    }
#define FIRST   "decoder_first_pipeline_num_layers"
#define LAST    "decoder_last_pipeline_num_layers"
#define COUNT   "account_for_embedding_in_pipeline_split"
#define LOSS    "account_for_loss_in_pipeline_split"
#define LAYOUT  "pipeline_model_parallel_layout"
#define PATTERN "hybrid_layer_pattern"
#define MTP     "mtp_num_layers"

static const struct {
    const char *label;
    struct setting settings[10];
    int64_t pp;
    /* By layer: stage * 10 + chunk. Megatron's docstrings (MC/transformer/transformer_block.py
     * get_num_layers_to_build, pipeline_parallel_layer_layout.py, hybrid_layer_allocation.py) have
     * most of them; the others follow its assertions. */
    int want[8];
    int norm, mtp; /* in the same way */
} cuts[] = {
    {"one stage", {SIZES(1, 1, 3, 1)}, 1, {0, 0, 0}, 0, 0},
    {"even", {SIZES(2, 1, 4, 2)}, 2, {0, 0, 10, 10}, 10, 10},
    {"8 layers, 2 stages, 4 chunks", {SIZES(2, 4, 8, 2)}, 2, {0, 10, 1, 11, 2, 12, 3, 13}, 13, 13},
    {"8 layers, 2 stages, 2 chunks", {SIZES(2, 2, 8, 2)}, 2, {0, 0, 10, 10, 1, 1, 11, 11}, 11, 11},
    {"short first stage",
     {SIZES(3, 1, 7, 3), {FIRST, 1, NULL}},
     3,
     {0, 10, 10, 10, 20, 20, 20},
     20,
     20},
    {"short ends",
     {SIZES(3, 1, 5, 3), {FIRST, 1, NULL}, {LAST, 2, NULL}},
     3,
     {0, 10, 10, 20, 20},
     20,
     20},
    {"all but the middle",
     {SIZES(2, 1, 4, 2), {FIRST, 3, NULL}, {LAST, 1, NULL}},
     2,
     {0, 0, 0, 10},
     10,
     10},
    {"embedding and loss count",
     {SIZES(2, 1, 6, 2), {COUNT, 0, "True"}, {LOSS, 0, "True"}},
     2,
     {0, 0, 0, 10, 10, 10},
     10,
     10},
    {"embedding counts",
     {SIZES(2, 1, 7, 2), {COUNT, 0, "True"}},
     2,
     {0, 0, 0, 10, 10, 10, 10},
     10,
     10},
    {"a layout: parts in parentheses, then characters",
     {SIZES(4, 1, 7, 4), {LAYOUT, 0, "Ettt|(tt|)*2,L"}},
     4,
     {0, 0, 0, 10, 10, 20, 20},
     30,
     30},
    {"the norm with the last layer, under multi-token prediction",
     {SIZES(4, 1, 4, 4), {LAYOUT, 0, "Et*3|t|m|L"}, {MTP, 1, NULL}},
     4,
     {0, 0, 0, 10},
     10,
     20},
    {"a layout of chunks",
     {SIZES(2, 2, 3, 2), {LAYOUT, 0, "Et|t|(m)*2t|L"}, {MTP, 2, NULL}},
     2,
     {0, 10, 1},
     1,
     1},
    {"an empty stage", {SIZES(2, 2, 2, 2), {LAYOUT, 0, "E|tt||L"}}, 2, {10, 10}, 11, 11},
    {"a hybrid's stages",
     {SIZES(2, 1, 8, 2), {PATTERN, 0, "M-M-M|M*-/MM/MM"}},
     2,
     {0, 0, 0, 0, 0, 10, 10, 10},
     10,
     10},
    {"a hybrid cut evenly",
     {SIZES(2, 1, 4, 2), {PATTERN, 0, "M-M*/M|M"}},
     2,
     {0, 0, 10, 10},
     10,
     10},
};

static int64_t find(const struct dcpk_cut *cut, enum dcpk_section section, int64_t layer,
                    const char *label)
{
    const struct dcpk_registered reg = {.section = section, .layer = layer, .expert = -1};
    struct dcpk_error err = DCPK_ERROR_INIT;
    int64_t chunk = -1;

    CHECK_OK(dcpk_cut_find(cut, &reg, &chunk, &err), label);
    return chunk % cut->pp * 10 + chunk / cut->pp;
}

static void layers_are_on_their_chunks(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new(0, &err);

    (void)state;
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
        struct dcpk_registered past = {.section = DCPK_DECODER_LAYERS, .expert = -1};
        const char *label = cuts[i].label;
        struct dcpk_cut cut;
        int64_t chunk;

        CHECK_OK(dcpk_cut_read(make_args(arena, cuts[i].settings), arena, &cut, &err), label);
        CHECK_EQ_INT(cut.pp, cuts[i].pp, label);
        for (int64_t layer = 0; layer < cut.n_layers; layer++)
            CHECK_EQ_INT(find(&cut, DCPK_DECODER_LAYERS, layer, label), cuts[i].want[layer], label);
        CHECK_EQ_INT(find(&cut, DCPK_EMBEDDING, 0, label), 0, label);
        CHECK_EQ_INT(find(&cut, DCPK_FINAL_NORM, 0, label), cuts[i].norm, label);
        CHECK_EQ_INT(find(&cut, DCPK_MTP_LAYERS, 0, label), cuts[i].mtp, label);
        CHECK_EQ_INT(find(&cut, DCPK_OUTPUT_LAYER, 0, label), (cut.pp - 1) * 10 + cut.vpp - 1,
                     label);
        past.layer = cut.n_layers;
        CHECK_FAILS(dcpk_cut_find(&cut, &past, &chunk, &err), DCPK_EFORMAT, "args say", label);
        err = (struct dcpk_error)DCPK_ERROR_INIT;
    }
    dcpk_arena_free(arena);
}

static const struct {
    const char *label;
    struct setting settings[10];
    dcpk_status status;
    const char *text;
} bad_args[] = {
    {"no world size",
     {{"tensor_model_parallel_size", 1, NULL},
      {"pipeline_model_parallel_size", 1, NULL},
      {"num_layers", 4, NULL}},
     DCPK_EUNSUPPORTED,
     "args.world_size is not set"},
    {"no layers", {{"tensor_model_parallel_size", 1, NULL}}, DCPK_EUNSUPPORTED, "is not set"},
    {"uneven",
     {{"tensor_model_parallel_size", 1, NULL},
      {"pipeline_model_parallel_size", 3, NULL},
      {"num_layers", 4, NULL},
      {"world_size", 3, NULL}},
     DCPK_EFORMAT,
     "do not come out even"},
    {"a world that does not fit",
     {{"tensor_model_parallel_size", 2, NULL},
      {"pipeline_model_parallel_size", 2, NULL},
      {"num_layers", 4, NULL},
      {"world_size", 6, NULL}},
     DCPK_EFORMAT,
     "not a multiple"},
    {"a size of none", {{"tensor_model_parallel_size", 0, NULL}}, DCPK_EFORMAT, "is 0"},
    {"no number", {{"tensor_model_parallel_size", 0, "two"}}, DCPK_EFORMAT, "no number"},
    {"too many chunks",
     {{"tensor_model_parallel_size", 1, NULL},
      {"pipeline_model_parallel_size", 1000000, NULL},
      {"virtual_pipeline_model_parallel_size", 1000000, NULL},
      {"num_layers", 4, NULL}},
     DCPK_ERANGE,
     "pipeline stages"},
    {"a layout for other stages",
     {SIZES(2, 1, 4, 2), {LAYOUT, 0, "Et*3|t|L"}},
     DCPK_EFORMAT,
     "3 parts for 2 stages"},
    {"a layout of other layers",
     {SIZES(2, 1, 4, 2), {LAYOUT, 0, "Et*2|tL"}},
     DCPK_EFORMAT,
     "4 layers, the pipeline's stages hold 3"},
    {"a layout with encoders",
     {SIZES(2, 1, 4, 2), {LAYOUT, 0, "Eett|ttL"}},
     DCPK_EUNSUPPORTED,
     "'e' in the layout"},
    {"a layout that never ends",
     {SIZES(2, 1, 4, 2), {LAYOUT, 0, "(t*999999999)*999999999|L"}},
     DCPK_ERANGE,
     "pipeline layout of more than"},
    {"a layout that is not text",
     {SIZES(2, 1, 4, 2), {LAYOUT, 7, NULL}},
     DCPK_EUNSUPPORTED,
     "pipeline_model_parallel_layout is not text"},
    {"legacy experts",
     {GOOD_ARGS, {"moe_use_legacy_grouped_gemm", 0, "True"}},
     DCPK_EUNSUPPORTED,
     "legacy GroupedMLP"},
    {"experts that do not divide",
     {GOOD_ARGS, {"num_experts", 3, NULL}, {"expert_model_parallel_size", 2, NULL}},
     DCPK_EFORMAT,
     "3 experts on 2"},
};

static void args_that_do_not_tell_are_refused(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new(0, &err);
    struct dcpk_cut cut;

    (void)state;
    for (size_t i = 0; i < sizeof bad_args / sizeof bad_args[0]; i++) {
        err = (struct dcpk_error)DCPK_ERROR_INIT;
        CHECK_FAILS(dcpk_cut_read(make_args(arena, bad_args[i].settings), arena, &cut, &err),
                    bad_args[i].status, bad_args[i].text, bad_args[i].label);
    }
    err = (struct dcpk_error)DCPK_ERROR_INIT;
    CHECK_FAILS(dcpk_cut_read(NULL, arena, &cut, &err), DCPK_EUNSUPPORTED, "no args", "none");
    dcpk_arena_free(arena);
}

/* --- blocks of tensor parallelism --- */

static const struct {
    const char *label;
    int64_t shape[3], extent[3]; /* of every chunk; they are laid along all axes */
    int64_t tp;
    int axis; /* -2: refused */
    int64_t n_ranks;
    bool is_gated;
} blocks[] = {
    /*
     * Chunks of the sample torch_dist_c_dp_reshardable_tp2dp2 (formats/torch_dist/FORMAT.md 4.4).
     */
    {"gated fc1, two ranks", {4, 192, 64}, {1, 48, 64}, 2, 0, 2, true},
    {"row parallel", {4, 64, 96}, {1, 64, 48}, 2, 1, 2, false},
    {"column parallel", {4, 128, 64}, {1, 64, 64}, 2, 0, 2, false},
    {"replicated", {4, 1, 64}, {1, 1, 64}, 2, -1, 1, false},
    {"gated fc1, one rank", {4, 192, 64}, {1, 96, 64}, 1, 0, 1, true},
    {"experts together", {4, 192, 64}, {2, 96, 64}, 1, 0, 1, true},
    {"whole", {4, 192, 64}, {1, 192, 64}, 1, -1, 1, false},
    {"three blocks for two ranks", {4, 192, 64}, {1, 64, 64}, 2, -2, 0, false},
    {"cut along two axes", {4, 192, 64}, {1, 96, 32}, 2, -2, 0, false},
    {"twice as many, but on axis 1", {4, 64, 192}, {1, 64, 48}, 2, -2, 0, false},
};

static void blocks_are_read_off_the_chunks(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_chunk chunks[64];
        int64_t spans[64][6], n = 0;
        const struct dcpk_checkpoint ckpt = {.chunks = chunks};
        struct dcpk_tensor tensor = {.key = "t", .rank = 3, .shape = blocks[i].shape};
        struct dcpk_blocks got;
        const int64_t *s = blocks[i].shape, *e = blocks[i].extent;
        dcpk_status st;

        for (int64_t a = 0; a < s[0]; a += e[0])
            for (int64_t b = 0; b < s[1]; b += e[1])
                for (int64_t c = 0; c < s[2]; c += e[2], n++) {
                    memcpy(spans[n], (int64_t[]){a, b, c, e[0], e[1], e[2]}, sizeof spans[n]);
                    chunks[n] = (struct dcpk_chunk){.span = spans[n]};
                }
        tensor.n_chunks = (size_t)n;
        st = dcpk_blocks_find(&ckpt, &tensor, 1, blocks[i].tp, &got, &err);
        if (blocks[i].axis == -2) {
            CHECK_EQ_INT(st, DCPK_EUNSUPPORTED, blocks[i].label);
            continue;
        }
        CHECK_OK(st, blocks[i].label);
        CHECK_EQ_INT(got.axis, blocks[i].axis, blocks[i].label);
        CHECK_EQ_INT(got.n_ranks, blocks[i].n_ranks, blocks[i].label);
        CHECK_EQ_INT(got.n_parts, blocks[i].is_gated ? 2 : 1, blocks[i].label);
    }
}

/* Two layers of 128 rows; chunks that no tensor parallelism of two ranks leaves behind. */
static void irregular_blocks_are_refused(void **state)
{
    static const struct {
        const char *label;
        int64_t spans[4][4];
        size_t n;
        const char *text;
    } cases[] = {
        {"one layer cut, one not",
         {{0, 0, 1, 64}, {0, 64, 1, 64}, {1, 0, 1, 128}},
         3,
         "some of its chunks are cut by tensor parallelism and some are not"},
        {"the whole one first",
         {{1, 0, 1, 128}, {0, 0, 1, 64}, {0, 64, 1, 64}},
         3,
         "some of its chunks are cut by tensor parallelism and some are not"},
        {"off the grid",
         {{0, 0, 1, 64}, {0, 32, 1, 64}, {1, 0, 1, 64}, {1, 64, 1, 64}},
         4,
         "the chunk [0:1, 32:96] is not a block of tensor parallelism"},
        {"of two sizes",
         {{0, 0, 1, 64}, {0, 64, 1, 64}, {1, 0, 1, 32}, {1, 32, 1, 96}},
         4,
         "the chunk [1:2, 0:32] is not a block"},
        {"no part of the rows",
         {{0, 0, 1, 48}, {0, 48, 1, 80}},
         2,
         "the chunk [0:1, 0:48] is not a"},
    };
    static const int64_t shape[] = {2, 128};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_chunk chunks[4];
        const struct dcpk_checkpoint ckpt = {.chunks = chunks};
        const struct dcpk_tensor tensor = {
            .key = "t", .rank = 2, .shape = shape, .n_chunks = cases[i].n};
        struct dcpk_blocks got;

        for (size_t c = 0; c < cases[i].n; c++)
            chunks[c] = (struct dcpk_chunk){.span = cases[i].spans[c]};
        CHECK_FAILS(dcpk_blocks_find(&ckpt, &tensor, 1, 2, &got, &err), DCPK_EUNSUPPORTED,
                    cases[i].text, cases[i].label);
    }
}

/*
 * Parts of 4 and 8 rows on two ranks, and the gate and up rows of formats/torch_dist/FORMAT.md 4.4.
 */
static const struct {
    const char *label;
    struct dcpk_blocks blocks;
    int64_t rows[2][2][2]; /* of rank r's block of a part: first, n */
} parts[] = {
    {"gated", {0, 2, 2, {{0, 96}, {96, 96}}}, {{{0, 48}, {96, 48}}, {{48, 48}, {144, 48}}}},
    {"unequal parts", {0, 2, 2, {{0, 4}, {4, 8}}}, {{{0, 2}, {4, 4}}, {{2, 2}, {8, 4}}}},
};

static void a_rank_holds_its_block_of_every_part(void **state)
{
    const int64_t shape[] = {192, 64};

    (void)state;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        for (int r = 0; r < 2; r++)
            for (int part = 0; part < 2; part++) {
                struct dcpk_box box;

                dcpk_blocks_box(&parts[i].blocks, shape, 2, r, part, &box);
                CHECK_EQ_INT(box.offset[0], parts[i].rows[r][part][0], parts[i].label);
                CHECK_EQ_INT(box.extent[0], parts[i].rows[r][part][1], parts[i].label);
                CHECK_EQ_INT(box.extent[1], 64, parts[i].label);
            }
}

static void parts_follow_each_other(void **state)
{
    const struct dcpk_blocks four = {0, 2, 1, {{0, 4}}}, eight = {0, 2, 1, {{0, 8}}};
    const struct dcpk_blocks whole = {-1, 1, 1, {{0, 0}}}, columns = {1, 2, 1, {{0, 4}}};
    const struct dcpk_blocks of_four_ranks = {0, 4, 1, {{0, 8}}};
    struct dcpk_blocks got = four;
    struct dcpk_error err = DCPK_ERROR_INIT;

    (void)state;
    CHECK_OK(dcpk_blocks_append(&got, &eight, &err), "cut alike");
    CHECK_EQ_INT(got.n_parts, 2, "parts");
    CHECK_EQ_INT(got.part[1].row, 4, "first row");
    CHECK_EQ_INT(got.part[1].n_rows, 8, "rows");
    CHECK_FAILS(dcpk_blocks_append(&got, &whole, &err), DCPK_EUNSUPPORTED, "not cut alike",
                "one part is whole");
    CHECK_FAILS(dcpk_blocks_append(&got, &of_four_ranks, &err), DCPK_EUNSUPPORTED, "not cut alike",
                "other ranks");
    got = columns;
    CHECK_FAILS(dcpk_blocks_append(&got, &columns, &err), DCPK_EUNSUPPORTED, "not cut alike",
                "columns do not follow each other");
    got = whole;
    err = (struct dcpk_error)DCPK_ERROR_INIT;
    CHECK_OK(dcpk_blocks_append(&got, &whole, &err), "none is cut");
    CHECK_EQ_INT(got.n_parts, 1, "one block of all");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_are_on_their_chunks),
        cmocka_unit_test(args_that_do_not_tell_are_refused),
        cmocka_unit_test(blocks_are_read_off_the_chunks),
        cmocka_unit_test(irregular_blocks_are_refused),
        cmocka_unit_test(a_rank_holds_its_block_of_every_part),
        cmocka_unit_test(parts_follow_each_other),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
