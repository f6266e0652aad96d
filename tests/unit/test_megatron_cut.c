/* SPDX-License-Identifier: Apache-2.0 */
/* test_megatron_cut.c - how args and chunks show the way a model was cut over ranks. */
#include "formats/megatron/buckets/megatron_cut.h"
#include "lib/base/order.h"
#include "tests/fake_model.h"

/* --- layers on model chunks --- */

#define FIRST   "decoder_first_pipeline_num_layers"
#define LAST    "decoder_last_pipeline_num_layers"
#define COUNT   "account_for_embedding_in_pipeline_split"
#define LOSS    "account_for_loss_in_pipeline_split"
#define LAYOUT  "pipeline_model_parallel_layout"
#define PATTERN "hybrid_layer_pattern"
#define MTP     "mtp_num_layers"

/*
 * Where the pipeline has layers, final norm and multi-token prediction: "stage.chunk". Megatron's
 * docstrings (MC/transformer/transformer_block.py get_num_layers_to_build,
 * pipeline_parallel_layer_layout.py, hybrid_layer_allocation.py) have most of them; the others
 * follow its assertions.
 */
static const struct {
    const char *label;
    int64_t pp, vpp; /* stages, chunks of each; vpp 0: one */
    const char *layers, *norm, *mtp;
    struct fake_arg args[2]; /* beside the sizes */
} cuts[] = {
    {"one stage", .pp = 1, .layers = "0.0 0.0 0.0", .norm = "0.0", .mtp = "0.0"},
    {"even", .pp = 2, .layers = "0.0 0.0 1.0 1.0", .norm = "1.0", .mtp = "1.0"},
    {"8 layers, 2 stages, 4 chunks", .pp = 2, .vpp = 4, .layers = "0.0 1.0 0.1 1.1 0.2 1.2 0.3 1.3",
     .norm = "1.3", .mtp = "1.3"},
    {"8 layers, 2 stages, 2 chunks", .pp = 2, .vpp = 2, .layers = "0.0 0.0 1.0 1.0 0.1 0.1 1.1 1.1",
     .norm = "1.1", .mtp = "1.1"},
    {"short first stage", .pp = 3, .args = {{FIRST, .value = 1}},
     .layers = "0.0 1.0 1.0 1.0 2.0 2.0 2.0", .norm = "2.0", .mtp = "2.0"},
    {"short ends", .pp = 3, .args = {{FIRST, .value = 1}, {LAST, .value = 2}},
     .layers = "0.0 1.0 1.0 2.0 2.0", .norm = "2.0", .mtp = "2.0"},
    {"all but the middle", .pp = 2, .args = {{FIRST, .value = 3}, {LAST, .value = 1}},
     .layers = "0.0 0.0 0.0 1.0", .norm = "1.0", .mtp = "1.0"},
    {"embedding and loss count", .pp = 2, .args = {{COUNT, .text = "True"}, {LOSS, .text = "True"}},
     .layers = "0.0 0.0 0.0 1.0 1.0 1.0", .norm = "1.0", .mtp = "1.0"},
    {"embedding counts", .pp = 2, .args = {{COUNT, .text = "True"}},
     .layers = "0.0 0.0 0.0 1.0 1.0 1.0 1.0", .norm = "1.0", .mtp = "1.0"},
    {"a layout: parts in parentheses, then characters", .pp = 4,
     .args = {{LAYOUT, .text = "Ettt|(tt|)*2,L"}}, .layers = "0.0 0.0 0.0 1.0 1.0 2.0 2.0",
     .norm = "3.0", .mtp = "3.0"},
    {"the norm with the last layer, under multi-token prediction", .pp = 4,
     .args = {{LAYOUT, .text = "Et*3|t|m|L"}, {MTP, .value = 1}}, .layers = "0.0 0.0 0.0 1.0",
     .norm = "1.0", .mtp = "2.0"},
    {"a layout of chunks", .pp = 2, .vpp = 2,
     .args = {{LAYOUT, .text = "Et|t|(m)*2t|L"}, {MTP, .value = 2}}, .layers = "0.0 1.0 0.1",
     .norm = "0.1", .mtp = "0.1"},
    {"an empty stage", .pp = 2, .vpp = 2, .args = {{LAYOUT, .text = "E|tt||L"}},
     .layers = "1.0 1.0", .norm = "1.1", .mtp = "1.1"},
    {"a hybrid's stages", .pp = 2, .args = {{PATTERN, .text = "M-M-M|M*-/MM/MM"}},
     .layers = "0.0 0.0 0.0 0.0 0.0 1.0 1.0 1.0", .norm = "1.0", .mtp = "1.0"},
    {"a hybrid cut evenly", .pp = 2, .args = {{PATTERN, .text = "M-M*/M|M"}},
     .layers = "0.0 0.0 1.0 1.0", .norm = "1.0", .mtp = "1.0"},
};

/* Where n layers of a section are, as `cuts` has it, into text. */
static const char *places(char text[64], const struct dcpk_cut *cut, enum dcpk_section section,
                          int64_t n)
{
    size_t used = 0;

    for (int64_t layer = 0; layer < n; layer++) {
        const struct dcpk_registered reg = {.section = section, .layer = layer, .expert = -1};
        struct dcpk_error err = DCPK_ERROR_INIT;
        int64_t chunk = -1;

        CHECK_OK(dcpk_cut_find(cut, &reg, &chunk, &err), "find");
        used += (size_t)snprintf(text + used, 64 - used, "%s%d.%d", layer > 0 ? " " : "",
                                 (int)(chunk % cut->pp), (int)(chunk / cut->pp));
    }
    return text;
}

static void layers_are_on_their_chunks(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new();

    (void)state;
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
        const int64_t n_layers = (int64_t)(strlen(cuts[i].layers) + 1) / 4;
        const int64_t vpp = dcpk_max_i64(cuts[i].vpp, 1);
        const struct fake_arg args[] = {{"tensor_model_parallel_size", .value = 1},
                                        {"pipeline_model_parallel_size", .value = cuts[i].pp},
                                        {"virtual_pipeline_model_parallel_size", .value = vpp},
                                        {"num_layers", .value = n_layers},
                                        {"world_size", .value = cuts[i].pp},
                                        cuts[i].args[0],
                                        cuts[i].args[1],
                                        {.name = NULL}};
        struct dcpk_registered past = {.section = DCPK_DECODER_LAYERS, .expert = -1};
        const char *label = cuts[i].label;
        char text[64], last[16];
        struct dcpk_cut cut;
        int64_t chunk;

        snprintf(last, sizeof last, "%d.%d", (int)cuts[i].pp - 1, (int)vpp - 1);
        CHECK_OK(dcpk_cut_read(fake_args(arena, args), arena, &cut, &err), label);
        CHECK_EQ_INT(cut.pp, cuts[i].pp, label);
        CHECK_EQ_INT(cut.n_layers, n_layers, label);
        CHECK_EQ_STR(places(text, &cut, DCPK_DECODER_LAYERS, n_layers), cuts[i].layers, label);
        CHECK_EQ_STR(places(text, &cut, DCPK_EMBEDDING, 1), "0.0", label);
        CHECK_EQ_STR(places(text, &cut, DCPK_FINAL_NORM, 1), cuts[i].norm, label);
        CHECK_EQ_STR(places(text, &cut, DCPK_MTP_LAYERS, 1), cuts[i].mtp, label);
        CHECK_EQ_STR(places(text, &cut, DCPK_OUTPUT_LAYER, 1), last, label);
        past.layer = cut.n_layers;
        CHECK_FAILS(dcpk_cut_find(&cut, &past, &chunk, &err), DCPK_EFORMAT, "args say", label);
        dcpk_error_clear(&err);
    }
    dcpk_arena_free(arena);
}

/* A run of 4 layers on so many stages. */
#define ON_STAGES(pp)                                                                              \
    {"tensor_model_parallel_size", .value = 1}, {"pipeline_model_parallel_size", .value = (pp)},   \
        {"num_layers", .value = 4},                                                                \
    {                                                                                              \
        "world_size", .value = (pp)                                                                \
    }

static const struct {
    const char *label;
    dcpk_status status;
    const char *text;
    struct fake_arg settings[9];
} bad_args[] = {
    {"no world size", DCPK_EUNSUPPORTED, "args.world_size is not set",
     .settings = {{"tensor_model_parallel_size", .value = 1},
                  {"pipeline_model_parallel_size", .value = 1},
                  {"num_layers", .value = 4}}},
    {"no layers", DCPK_EUNSUPPORTED, "is not set",
     .settings = {{"tensor_model_parallel_size", .value = 1}}},
    {"uneven", DCPK_EFORMAT, "cannot be cut evenly", .settings = {ON_STAGES(3)}},
    {"a world that does not fit", DCPK_EFORMAT, "not a multiple",
     .settings = {{"tensor_model_parallel_size", .value = 2},
                  {"pipeline_model_parallel_size", .value = 2},
                  {"num_layers", .value = 4},
                  {"world_size", .value = 6}}},
    {"a size of none", DCPK_EFORMAT, "is 0",
     .settings = {{"tensor_model_parallel_size", .value = 0}}},
    {"no number", DCPK_EFORMAT, "no number",
     .settings = {{"tensor_model_parallel_size", .text = "two"}}},
    {"too many chunks", DCPK_ERANGE, "pipeline stages",
     .settings = {{"tensor_model_parallel_size", .value = 1},
                  {"pipeline_model_parallel_size", .value = 1000000},
                  {"virtual_pipeline_model_parallel_size", .value = 1000000},
                  {"num_layers", .value = 4}}},
    {"a layout for other stages", DCPK_EFORMAT, "3 parts for 2 stages",
     .settings = {ON_STAGES(2), {LAYOUT, .text = "Et*3|t|L"}}},
    {"a layout of other layers", DCPK_EFORMAT, "4 layers, the pipeline's stages hold 3",
     .settings = {ON_STAGES(2), {LAYOUT, .text = "Et*2|tL"}}},
    {"a layout with encoders", DCPK_EUNSUPPORTED, "'e' in the layout",
     .settings = {ON_STAGES(2), {LAYOUT, .text = "Eett|ttL"}}},
    {"a layout that never ends", DCPK_ERANGE, "pipeline layout of more than",
     .settings = {ON_STAGES(2), {LAYOUT, .text = "(t*999999999)*999999999|L"}}},
    {"a layout that is not text", DCPK_EUNSUPPORTED, "pipeline_model_parallel_layout is not text",
     .settings = {ON_STAGES(2), {LAYOUT, .value = 7}}},
    {"legacy experts", DCPK_EUNSUPPORTED, "legacy GroupedMLP",
     .settings = {FAKE_ARGS, {"moe_use_legacy_grouped_gemm", .text = "True"}}},
    {"experts that do not divide", DCPK_EFORMAT, "3 experts on 2",
     .settings = {FAKE_ARGS,
                  {"num_experts", .value = 3},
                  {"expert_model_parallel_size", .value = 2}}},
};

static void args_that_do_not_tell_are_refused(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new();
    struct dcpk_cut cut;

    (void)state;
    for (size_t i = 0; i < sizeof bad_args / sizeof bad_args[0]; i++) {
        dcpk_error_clear(&err);
        CHECK_FAILS(dcpk_cut_read(fake_args(arena, bad_args[i].settings), arena, &cut, &err),
                    bad_args[i].status, bad_args[i].text, bad_args[i].label);
    }
    dcpk_error_clear(&err);
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
    /* Chunks of torch_dist_c_dp_reshardable_tp2dp2 (formats/torch_dist/FORMAT.md 4.4). */
    {"gated fc1, two ranks", .shape = {4, 192, 64}, .extent = {1, 48, 64}, .tp = 2, .axis = 0,
     .n_ranks = 2, .is_gated = true},
    {"row parallel", .shape = {4, 64, 96}, .extent = {1, 64, 48}, .tp = 2, .axis = 1, .n_ranks = 2},
    {"column parallel", .shape = {4, 128, 64}, .extent = {1, 64, 64}, .tp = 2, .axis = 0,
     .n_ranks = 2},
    {"replicated", .shape = {4, 1, 64}, .extent = {1, 1, 64}, .tp = 2, .axis = -1, .n_ranks = 1},
    {"gated fc1, one rank", .shape = {4, 192, 64}, .extent = {1, 96, 64}, .tp = 1, .axis = 0,
     .n_ranks = 1, .is_gated = true},
    {"experts together", .shape = {4, 192, 64}, .extent = {2, 96, 64}, .tp = 1, .axis = 0,
     .n_ranks = 1, .is_gated = true},
    {"whole", .shape = {4, 192, 64}, .extent = {1, 192, 64}, .tp = 1, .axis = -1, .n_ranks = 1},
    {"three blocks for two ranks", .shape = {4, 192, 64}, .extent = {1, 64, 64}, .tp = 2,
     .axis = -2},
    {"cut along two axes", .shape = {4, 192, 64}, .extent = {1, 96, 32}, .tp = 2, .axis = -2},
    {"twice as many, but on axis 1", .shape = {4, 64, 192}, .extent = {1, 64, 48}, .tp = 2,
     .axis = -2},
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
        {"one layer cut, one not", .spans = {{0, 0, 1, 64}, {0, 64, 1, 64}, {1, 0, 1, 128}}, .n = 3,
         .text = "some of its chunks are cut by tensor parallelism and some are not"},
        {"the whole one first", .spans = {{1, 0, 1, 128}, {0, 0, 1, 64}, {0, 64, 1, 64}}, .n = 3,
         .text = "some of its chunks are cut by tensor parallelism and some are not"},
        {"off the grid", .spans = {{0, 0, 1, 64}, {0, 32, 1, 64}, {1, 0, 1, 64}, {1, 64, 1, 64}},
         .n = 4, .text = "the chunk [0:1, 32:96] is not a block of tensor parallelism"},
        {"of two sizes", .spans = {{0, 0, 1, 64}, {0, 64, 1, 64}, {1, 0, 1, 32}, {1, 32, 1, 96}},
         .n = 4, .text = "the chunk [1:2, 0:32] is not a block"},
        {"no part of the rows", .spans = {{0, 0, 1, 48}, {0, 48, 1, 80}}, .n = 2,
         .text = "the chunk [0:1, 0:48] is not a"},
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
    dcpk_error_clear(&err);
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
