/* SPDX-License-Identifier: Apache-2.0 */
/* test_mesh.c - a model for another mesh: what must divide, args, RNG states, the vocabulary's
 * rows. */
#include "lib/rules/mesh.h"

#include "lib/model/registered.h"
#include "tests/fake_model.h"

/* A model of 4 layers, 6 experts, 8 heads and 2 query groups, with a vocabulary of 100 rows in 2
 * pieces. */
struct fixture {
    struct fake fake;
    struct dcpk_checkpoint *ckpt;
    struct dcpk_model *model;
};

#define N_ROWS    100
#define N_COLUMNS 4

/* Adds the stored tensor, of which the first piece has 60 rows. */
static void add_vocab(struct fixture *f, const char *name, enum dcpk_role role)
{
    fake_model_stored(f->model, fake_model_param(f->model, name), role, 0, 60);
}

static void set_arg(struct fixture *f, const char *name, int64_t v)
{
    struct dcpk_error err = DCPK_ERROR_INIT;

    CHECK_OK(dcpk_model_set_arg(f->model, name, v, &err), name);
}

static int64_t arg(const struct fixture *f, const char *name)
{
    int64_t v = -1;

    dcpk_value_as_int(dcpk_value_get(dcpk_value_attrs(f->model->args), name), &v);
    return v;
}

static void setup(struct fixture *f)
{
    static const struct fake_arg args[] = {
        {"num_attention_heads", .value = 8},
        {"num_query_groups", .value = 4},
        {"tensor_model_parallel_size", .value = 2},
        {"pipeline_model_parallel_size", .value = 1},
        {"vocab_size", .value = 90},
        {.name = NULL},
    };
    static const int64_t shape[] = {N_ROWS, N_COLUMNS};
    struct dcpk_error err = DCPK_ERROR_INIT;
    uint64_t seed = 1;

    memset(f, 0, sizeof *f);
    fake_add(&f->fake, DCPK_F32, 2, shape, 3, &seed);
    f->ckpt = fake_open(&f->fake, "fixture");
    f->model = fake_model_new(f->ckpt, "model");
    for (int layer = 0; layer < 4; layer++)
        for (int expert = 0; expert < 6; expert++) {
            char name[80];

            snprintf(name, sizeof name, "decoder.layers.%d.mlp.experts.linear_fc1.weight%d", layer,
                     expert);
            fake_model_param(f->model, name);
        }
    add_vocab(f, "embedding.word_embeddings.weight", DCPK_WEIGHT);
    add_vocab(f, "embedding.word_embeddings.weight", DCPK_EXP_AVG);
    add_vocab(f, "output_layer.weight", DCPK_MASTER);
    add_vocab(f, "embedding.position_embeddings.weight", DCPK_WEIGHT);
    f->model->args = fake_args(f->model->arena, args);
    dcpk_model_read_layout(f->model);
    CHECK_OK(dcpk_rules_parallel(f->model, DCPK_IMPL_ANY, &err), "parallel");
}

static void teardown(struct fixture *f)
{
    dcpk_model_free(f->model);
    dcpk_checkpoint_close(f->ckpt);
    fake_release(&f->fake);
}

static void what_does_not_divide_is_named(void **state)
{
    static const struct {
        const char *label;
        struct dcpk_grid mesh;
        const char *message; /* NULL: fits */
    } cases[] = {
        {"as it is", {0}, NULL},
        {"all", {.tp = 4, .pp = 2, .ep = 3, .dp = 6}, NULL},
        {"fewer groups than ranks", {.tp = 8, .pp = 1, .ep = 1}, NULL},
        {"heads", {.tp = 3}, "tp=3 does not divide the 8 attention heads"},
        {"layers", {.tp = 1, .pp = 3}, "pp=3 does not divide the 4 layers"},
        {"experts", {.tp = 1, .ep = 4}, "ep=4 does not divide the 6 experts"},
        {"dp",
         {.tp = 1, .ep = 3, .dp = 4},
         "etp=1 times ep=3 does not divide the 4 ranks of a pipeline stage"},
        {"dp with cp", {.tp = 1, .ep = 2, .dp = 3, .cp = 2}, NULL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct fixture f;

        setup(&f);
        if (cases[i].message == NULL)
            CHECK_OK(dcpk_rules_mesh(f.model, &cases[i].mesh, &err), cases[i].label);
        else
            CHECK_FAILS(dcpk_rules_mesh(f.model, &cases[i].mesh, &err), DCPK_EMISMATCH,
                        cases[i].message, cases[i].label);
        teardown(&f);
    }
}

static void groups_that_would_be_torn_are_refused(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct fixture f;

    (void)state;
    setup(&f);
    set_arg(&f, "num_attention_heads", 12);
    set_arg(&f, "num_query_groups", 6);
    CHECK_FAILS(dcpk_rules_mesh(f.model, &(struct dcpk_grid){.tp = 4}, &err), DCPK_EMISMATCH,
                "tp=4 does not divide the 6 query groups", "groups");
    dcpk_error_clear(&err);
    set_arg(&f, "group_query_attention", 0);
    CHECK_OK(dcpk_rules_mesh(f.model, &(struct dcpk_grid){.tp = 4}, &err), "switched off");
    teardown(&f);
    setup(&f);
    set_arg(&f, "decoder_first_pipeline_num_layers", 2); /* stages of one's own choice */
    set_arg(&f, "pipeline_model_parallel_size", 3);
    dcpk_model_read_layout(f.model);
    CHECK_OK(dcpk_rules_mesh(f.model, &(struct dcpk_grid){.tp = 1, .pp = 3}, &err), "uneven");
    CHECK_EQ_INT(arg(&f, "decoder_first_pipeline_num_layers"), 2, "the source's own stages stay");
    teardown(&f);
}

/* 4 layers; what fits is what get_num_layers_to_build of core 0.15.3 and main accepts
 * (tests/interop/stages.py). */
static void stages_have_whole_layers(void **state)
{
    static const struct {
        const char *label;
        struct dcpk_grid mesh;
        const char *message; /* NULL: accepted */
    } cases[] = {
        {"even", {.pp = 2}, NULL},
        {"chunks", {.pp = 2, .vpp = 2}, NULL},
        {"first", {.pp = 3, .first = 2}, NULL},
        {"last", {.pp = 2, .last = 3}, NULL},
        {"both ends", {.pp = 2, .first = 1, .last = 3}, NULL},
        {"both ends and one between", {.pp = 3, .first = 1, .last = 1}, NULL},
        {"uneven", {.pp = 3}, "give first and last"},
        {"too many", {.pp = 2, .first = 5}, "leave -1 of the model's 4 layers"},
        {"none left over",
         {.pp = 2, .first = 1, .last = 2},
         "leave 1 of the model's 4 layers for 0"},
        {"nothing between",
         {.pp = 4, .first = 1, .last = 3},
         "leave 0 of the model's 4 layers for 2"},
        {"no stage between, and chunks",
         {.pp = 2, .vpp = 2, .first = 2, .last = 2},
         "leave no stage between them"},
        {"no pipeline", {.pp = 1, .first = 1}, "pp is 1"},
        {"chunks of one layer", {.pp = 4, .vpp = 2}, "vpp=2 does not divide the 1 layers"},
        {"experts cut otherwise", {.tp = 4, .pp = 1, .ep = 2, .dp = 1, .etp = 1}, NULL},
        {"too many for a stage",
         {.tp = 2, .pp = 1, .ep = 3, .dp = 1, .etp = 4},
         "etp=4 times ep=3 does not divide the 2 ranks"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct fixture f;

        setup(&f);
        set_arg(&f, "decoder_last_pipeline_num_layers", 1); /* of the source's pipeline */
        if (cases[i].message == NULL) {
            CHECK_OK(dcpk_rules_mesh(f.model, &cases[i].mesh, &err), cases[i].label);
            if (cases[i].mesh.pp > 1)
                CHECK_EQ_INT(arg(&f, "decoder_last_pipeline_num_layers"),
                             cases[i].mesh.last > 0 ? cases[i].mesh.last : -1 /* None */,
                             cases[i].label);
        } else {
            CHECK_FAILS(dcpk_rules_mesh(f.model, &cases[i].mesh, &err), DCPK_EMISMATCH,
                        cases[i].message, cases[i].label);
        }
        teardown(&f);
    }
}

static void args_follow_and_rng_goes(void **state)
{
    static const struct {
        const char *label;
        struct dcpk_grid mesh;
        size_t n_rng;
    } cases[] = {
        {"nothing", {0}, 1},
        {"same tp and pp", {.tp = 2, .pp = 1, .ep = 2, .dp = 4, .world = 8}, 1},
        {"tp", {.tp = 4, .pp = 1}, 0},
        {"pp", {.tp = 2, .pp = 2}, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        bool existed;
        struct fixture f;

        setup(&f);
        CHECK_OK(dcpk_model_add_rng(f.model, &(struct dcpk_rng){.pp = 0}, &existed, &err), "rng");
        CHECK_OK(dcpk_rules_mesh(f.model, &cases[i].mesh, &err), cases[i].label);
        CHECK_EQ_INT(f.model->n_rng, cases[i].n_rng, cases[i].label);
        CHECK_EQ_INT(arg(&f, "tensor_model_parallel_size"), i == 2 ? 4 : 2, cases[i].label);
        CHECK_EQ_INT(arg(&f, "pipeline_model_parallel_size"), i == 3 ? 2 : 1, cases[i].label);
        CHECK_EQ_INT(arg(&f, "world_size"), i == 1 ? 8 : -1, cases[i].label);
        CHECK_EQ_INT(f.model->layout.tp, i == 2 ? 4 : 2, cases[i].label);
        teardown(&f);
    }
}

/* Row `row` of the tensor: from which source row, -1: zero, -2: from nowhere or from several. */
static int64_t source_row(const struct dcpk_model_tensor *t, int64_t row)
{
    const struct dcpk_box region = {.rank = 2, .offset = {row, 0}, .extent = {1, N_COLUMNS}};
    int64_t found = -2;
    size_t n = 0;

    for (size_t i = 0; i < t->n_pieces; i++) {
        struct dcpk_box from, to;

        if (!dcpk_piece_clip(&t->pieces[i], &region, &from, &to))
            continue;
        found = t->pieces[i].src == DCPK_PIECE_FILL ? -1 : from.offset[0];
        n++;
    }
    return n == 1 ? found : -2;
}

/* Megatron's ceil(size / (M * tp)) * M * tp (lib/rules/RULES.md 4). */
static void the_vocabulary_is_padded_as_megatron_does(void **state)
{
    static const struct {
        const char *label;
        struct dcpk_vocab vocab;
        int64_t rows;
    } cases[] = {
        {"as stored", {0, 0, 4}, 100},   {"the same", {0, 50, 2}, 100},
        {"fewer", {0, 8, 3}, 96},        {"exactly the real ones", {90, 9, 2}, 90},
        {"into a piece", {0, 7, 1}, 91}, {"more", {95, 128, 4}, 512},
        {"all real", {100, 1, 1}, 100},
    };

    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct fixture f;

        setup(&f);
        CHECK_OK(dcpk_rules_vocab(f.model, &cases[c].vocab, &err), cases[c].label);
        for (size_t i = 0; i < f.model->n_tensors; i++) {
            const struct dcpk_model_tensor *t = &f.model->tensors[i];
            const bool has_rows = strstr(f.model->params[t->param].name, "position") == NULL;
            const int64_t rows = has_rows ? cases[c].rows : N_ROWS;

            CHECK_EQ_INT(t->shape[0], rows, cases[c].label);
            CHECK_EQ_INT(t->shape[1], N_COLUMNS, cases[c].label);
            for (int64_t row = 0; row < rows; row++)
                CHECK_EQ_INT(source_row(t, row), row < N_ROWS ? row : -1, cases[c].label);
        }
        CHECK_EQ_INT(arg(&f, "padded_vocab_size"),
                     cases[c].vocab.divisible_by == 0 ? -1 : cases[c].rows, cases[c].label);
        teardown(&f);
    }
}

static void real_rows_are_never_cut(void **state)
{
    static const struct {
        const char *label;
        int64_t in_args;
        struct dcpk_vocab vocab;
        dcpk_status status;
        const char *message;
    } cases[] = {
        {"fewer than args say", .in_args = 90, .vocab = {89, 1, 1}, .status = DCPK_EMISMATCH,
         .message = "would cut into the 90 tokens"},
        {"more than there are", .in_args = 90, .vocab = {101, 1, 1}, .status = DCPK_EMISMATCH,
         .message = "has 100 rows, a vocabulary of 101"},
        {"not known", .in_args = 0, .vocab = {0, 8, 1}, .status = DCPK_EUSAGE,
         .message = "args have no vocab_size"},
        {"overflow", .in_args = 90, .vocab = {90, INT64_MAX / 2, 4}, .status = DCPK_ERANGE,
         .message = "passes 2^63 rows"},
    };

    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct fixture f;

        setup(&f);
        set_arg(&f, "vocab_size", cases[c].in_args);
        CHECK_FAILS(dcpk_rules_vocab(f.model, &cases[c].vocab, &err), cases[c].status,
                    cases[c].message, cases[c].label);
        teardown(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_does_not_divide_is_named),
        cmocka_unit_test(stages_have_whole_layers),
        cmocka_unit_test(groups_that_would_be_torn_are_refused),
        cmocka_unit_test(args_follow_and_rng_goes),
        cmocka_unit_test(the_vocabulary_is_padded_as_megatron_does),
        cmocka_unit_test(real_rows_are_never_cut),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
