/* SPDX-License-Identifier: Apache-2.0 */
/* test_parts_find.c - the parts of Mamba's and Gated DeltaNet's projections, by names. */
#include <stdio.h>

#include "lib/model/parts.h"
#include "tests/check.h"

#define MAX_TENSORS 10
#define M           "decoder.layers.0.mixer."
#define G           "decoder.layers.0.self_attention."
#define O           "optimizer.state.exp_avg."

/* A checkpoint of these keys; tensor i has shape (2, i + 1, 5). */
struct keyed {
    struct dcpk_tensor tensors[MAX_TENSORS];
    int64_t shapes[MAX_TENSORS][3];
    struct dcpk_checkpoint ckpt;
    struct dcpk_model *model;
};

static void keyed_release(struct keyed *keyed)
{
    dcpk_model_free(keyed->model);
    dcpk_map_release(&keyed->ckpt.tensor_by_key);
    dcpk_arena_free(keyed->ckpt.arena);
}

static void keyed_make(struct keyed *keyed, const char *const *keys, const char *label)
{
    struct dcpk_error err = DCPK_ERROR_INIT;

    memset(keyed, 0, sizeof *keyed);
    keyed->ckpt.arena = dcpk_arena_new();
    CHECK_OK(dcpk_model_new(&keyed->ckpt, &keyed->model, &err), label);
    keyed->ckpt.tensors = keyed->tensors;
    for (size_t i = 0; i < MAX_TENSORS && keys[i] != NULL; i++) {
        bool existed;
        uint64_t found;

        keyed->shapes[i][0] = 2;
        keyed->shapes[i][1] = (int64_t)i + 1;
        keyed->shapes[i][2] = 5;
        keyed->tensors[i] = (struct dcpk_tensor){
            .key = keys[i], .dtype = DCPK_F32, .rank = 3, .shape = keyed->shapes[i]};
        keyed->ckpt.n_tensors++;
        CHECK_OK(dcpk_map_put(&keyed->ckpt.tensor_by_key, keys[i], strlen(keys[i]), i, &existed,
                              &found, &err),
                 label);
    }
}

/* Ask for the parts that key `ask` belongs to. */
static void find(struct keyed *keyed, size_t ask, struct dcpk_found_parts *found)
{
    const struct dcpk_part_key key = {.prefix = "", .name = keyed->tensors[ask].key, .tail = ""};
    struct dcpk_error err = DCPK_ERROR_INIT;

    CHECK_OK(dcpk_parts_find(keyed->model, (uint32_t)ask, &key, found, &err), key.name);
}

/* The order of the parts is that of megatron/core/ssm at the tags that parts.c names. */
static void parts_are_found_in_order(void **state)
{
    static const struct {
        const char *label;
        const char *keys[MAX_TENSORS];
        size_t ask;       /* the key that is asked for */
        const char *want; /* numbers of the keys that are the parts, in order */
        const char *whole;
    } cases[] = {
        {"by the first part", .ask = 4, .want = "4 1 2 3 0", .whole = M "in_proj.weight",
         .keys = {M "in_proj.weight.dt", M "in_proj.weight.x", M "in_proj.weight.B",
                  M "in_proj.weight.C", M "in_proj.weight.z"}},
        {"by another part", .ask = 1, .want = "4 1 2 3 0", .whole = M "in_proj.weight",
         .keys = {M "in_proj.weight.dt", M "in_proj.weight.x", M "in_proj.weight.B",
                  M "in_proj.weight.C", M "in_proj.weight.z"}},
        {"a moment of a bias, not the bias", .ask = 2, .want = "2 1 0", .whole = O M "conv1d.bias",
         .keys = {O M "conv1d.bias.C", O M "conv1d.bias.B", O M "conv1d.bias.x",
                  M "conv1d.bias.x"}},
        {"Gated DeltaNet", .ask = 0, .want = "0 1 2 3 4 5", .whole = G "in_proj.weight",
         .keys = {G "in_proj.weight.query", G "in_proj.weight.key", G "in_proj.weight.value",
                  G "in_proj.weight.z", G "in_proj.weight.beta", G "in_proj.weight.alpha"}},
        {"its second form", .ask = 0, .want = "0 1 2 3 4 5 6", .whole = G "in_proj.weight",
         .keys = {G "in_proj.weight.query", G "in_proj.weight.key", G "in_proj.weight.value",
                  G "in_proj.weight.z", G "in_proj.weight.f", G "in_proj.weight.b",
                  G "in_proj.weight.w"}},
        {"its convolution", .ask = 1, .want = "1 2 0", .whole = G "conv1d.weight",
         .keys = {G "conv1d.weight.value", G "conv1d.weight.query", G "conv1d.weight.key"}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *key = cases[i].keys[cases[i].ask], *label = cases[i].label;
        struct dcpk_found_parts found;
        struct keyed keyed;
        char text[64] = "";

        keyed_make(&keyed, cases[i].keys, label);
        find(&keyed, cases[i].ask, &found);
        for (size_t k = 0; k < found.n; k++)
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s%d", k > 0 ? " " : "",
                     (int)found.tensor[k]);
        CHECK_EQ_STR(text, cases[i].want, label);
        CHECK_EQ_INT(found.whole_bytes, strlen(cases[i].whole), label);
        CHECK(strncmp(key, cases[i].whole, found.whole_bytes) == 0, label);
        keyed_release(&keyed);
    }
}

/* Between a prefix and an end, as Megatron-FSDP's optimizer keys have the name. */
static void the_name_stands_inside_the_key(void **state)
{
    static const char *const keys[MAX_TENSORS] = {"o.conv1d.bias.C.exp_avg",
                                                  "o.conv1d.bias.B.exp_avg",
                                                  "o.conv1d.bias.x.exp_avg", "o.conv1d.bias.x"};
    struct dcpk_part_key key = {.prefix = "o", .name = ".conv1d.bias.B", .tail = ".exp_avg"};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_found_parts found;
    struct keyed keyed;

    (void)state;
    keyed_make(&keyed, keys, "keys");
    CHECK_OK(dcpk_parts_find(keyed.model, 1, &key, &found, &err), "find");
    CHECK_EQ_INT(found.n, 3, "parts");
    CHECK_EQ_INT(found.tensor[0], 2, "x");
    CHECK_EQ_INT(found.tensor[2], 0, "C");
    key.tail = ".exp_avg_sq";
    CHECK_OK(dcpk_parts_find(keyed.model, 1, &key, &found, &err), "find");
    CHECK_EQ_INT(found.n, 0, "another end");
    CHECK(strstr(found.missing, "exp_avg_sq") != NULL, "which is missing");
    keyed_release(&keyed);
}

static void other_names_are_no_parts(void **state)
{
    static const struct {
        const char *keys[MAX_TENSORS];
        bool is_whole;
        const char *label;
    } cases[] = {
        {{M "in_proj.weight"}, true, "the whole"},
        {{M "in_proj.layer_norm_weight"}, true, "a norm"},
        {{M "in_proj.weight.z", M "in_proj.weight.x", M "in_proj.weight.B", M "in_proj.weight.C"},
         false,
         "one is missing"},
        {{M "in_proj.weight.k_0", M "in_proj.weight.z", M "in_proj.weight.x", M "in_proj.weight.B",
          M "in_proj.weight.C", M "in_proj.weight.dt"},
         false,
         "one too many"},
        {{M "conv1d.weight.z", M "conv1d.weight.x"}, false, "another module's"},
        {{M "conv1d.weight."}, false, "no name"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dcpk_found_parts found;
        struct keyed keyed;

        keyed_make(&keyed, cases[i].keys, cases[i].label);
        find(&keyed, 0, &found);
        CHECK_EQ_INT(found.whole_bytes == strlen(cases[i].keys[0]), cases[i].is_whole,
                     cases[i].label);
        CHECK_EQ_INT(found.n, cases[i].is_whole ? 1 : 0, cases[i].label);
        keyed_release(&keyed);
    }
}

/* Behind the stacked axes rows add up; all else must be the same. */
static void rows_add_up(void **state)
{
    static const char *const keys[MAX_TENSORS] = {M "conv1d.weight.x", M "conv1d.weight.B",
                                                  M "conv1d.weight.C"};
    const uint32_t tensors[] = {0, 1, 2};
    const int64_t at[] = {1};
    struct dcpk_sources sources = {tensors, 3, at, 1};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_model_tensor whole = {.role = DCPK_WEIGHT};
    struct dcpk_box from, to;
    struct keyed keyed;

    (void)state;
    keyed_make(&keyed, keys, "conv");
    CHECK_OK(dcpk_rows_read(keyed.model, &sources, &whole, &err), "stacked");
    CHECK_EQ_INT(whole.rank, 2, "axes");
    CHECK_EQ_INT(whole.shape[0], 1 + 2 + 3, "rows");
    CHECK_EQ_INT(whole.shape[1], 5, "columns");
    CHECK_EQ_INT(whole.n_pieces, 3, "pieces");
    dcpk_piece_from(&whole.pieces[2], &from);
    dcpk_piece_to(&whole.pieces[2], &to);
    CHECK_EQ_INT(from.offset[0], 1, "its layer");
    CHECK_EQ_INT(from.extent[1], 3, "its rows");
    CHECK_EQ_INT(to.offset[0], 1 + 2, "behind the others");
    sources.n_lead = 0;
    CHECK_FAILS(dcpk_rows_read(keyed.model, &sources, &whole, &err), DCPK_EFORMAT,
                "differ in dtype or shape", "columns differ");
    sources.n_lead = 1;
    keyed.tensors[2].dtype = DCPK_BF16;
    CHECK_FAILS(dcpk_rows_read(keyed.model, &sources, &whole, &err), DCPK_EFORMAT,
                M "conv1d.weight.C", "dtype");
    keyed.tensors[2].dtype = DCPK_F32;
    keyed.shapes[2][1] = INT64_MAX;
    CHECK_FAILS(dcpk_rows_read(keyed.model, &sources, &whole, &err), DCPK_EFORMAT,
                M "conv1d.weight.C", "too many rows");
    keyed_release(&keyed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_are_found_in_order),
        cmocka_unit_test(the_name_stands_inside_the_key),
        cmocka_unit_test(other_names_are_no_parts),
        cmocka_unit_test(rows_add_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
