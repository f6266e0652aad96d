/* SPDX-License-Identifier: Apache-2.0 */
/* test_fsdp_layout.c - flat-buffer layouts that Megatron-FSDP's own functions gave
 * (formats/fsdp_dtensor/FORMAT.md 8.3). */
#include <stdio.h>

#include "lib/place/fsdp_layout.h"

#include "tests/check.h"

#define MAX_PARAMS 8
#define MAX_CUTS   5

/* A parameter in order of registration, and what is to become of it. */
struct vector {
    const char *name;
    int64_t rows, columns; /* columns 0: 1-D */
    int64_t first;
    int64_t cut[MAX_CUTS]; /* n_shards + 1 of them */
};

static const struct {
    const char *label;
    int64_t n_shards, bucket_elems, factor, size;
    bool is_in_unit;
    struct vector params[MAX_PARAMS];
} cases[] = {
    {"f=96, D=2, unit", .n_shards = 2, .factor = 192, .size = 34944, .is_in_unit = true,
     .params = {{"input_ln", 64, 0, 10240, {0, 64, 64}},
                {"proj", 64, 64, 6144, {0, 64, 64}},
                {"qkv", 192, 64, 10368, {0, 111, 192}},
                {"pre_mlp_ln", 64, 0, 10304, {0, 64, 64}},
                {"fc1", 192, 64, 22656, {0, 0, 192}},
                {"fc2", 64, 96, 0, {0, 64, 64}}}},
    {"f=96, D=4, unit", .n_shards = 4, .factor = 192, .size = 35328, .is_in_unit = true,
     .params = {{"input_ln", 64, 0, 10240, {0, 0, 64, 64, 64}},
                {"proj", 64, 64, 6144, {0, 42, 64, 64, 64}},
                {"qkv", 192, 64, 10368, {0, 0, 114, 192, 192}},
                {"pre_mlp_ln", 64, 0, 10304, {0, 0, 64, 64, 64}},
                {"fc1", 192, 64, 22656, {0, 0, 0, 60, 192}},
                {"fc2", 64, 96, 0, {0, 64, 64, 64, 64}}}},
    {"non-unit, D=2", .n_shards = 2, .factor = 64, .size = 32896,
     .params = {{"emb", 256, 64, 0, {0, 256, 256}},
                {"final_ln", 64, 0, 32768, {0, 0, 64}},
                {"out", 256, 64, 16384, {0, 1, 256}}}},
    {"non-unit, D=4", .n_shards = 4, .factor = 64, .size = 33024,
     .params = {{"emb", 256, 64, 0, {0, 129, 256, 256, 256}},
                {"final_ln", 64, 0, 32768, {0, 0, 0, 0, 64}},
                {"out", 256, 64, 16384, {0, 0, 2, 131, 256}}}},
    {"ng=2, f=160, D=2", .n_shards = 2, .factor = 320, .size = 43520, .is_in_unit = true,
     .params = {{"input_ln", 64, 0, 14336, {0, 64, 64}},
                {"proj", 64, 64, 10240, {0, 64, 64}},
                {"qkv", 128, 64, 14400, {0, 115, 128}},
                {"pre_mlp_ln", 64, 0, 22592, {0, 0, 64}},
                {"fc1", 320, 64, 22720, {0, 0, 320}},
                {"fc2", 64, 160, 0, {0, 64, 64}}}},
    {"TP2, 8 heads, ng=4, f=160, D=2", .n_shards = 2, .factor = 320, .size = 28160,
     .is_in_unit = true,
     .params = {{"input_ln", 64, 0, 9216, {0, 64, 64}},
                {"proj", 64, 64, 5120, {0, 64, 64}},
                {"qkv", 128, 64, 9280, {0, 75, 128}},
                {"pre_mlp_ln", 64, 0, 17472, {0, 0, 64}},
                {"fc1", 160, 64, 17600, {0, 0, 160}},
                {"fc2", 64, 80, 0, {0, 64, 64}}}},
    {"MoE, dense part, D=2", .n_shards = 2, .factor = 64, .size = 16768, .is_in_unit = true,
     .params = {{"input_ln", 64, 0, 16640, {0, 0, 64}},
                {"proj", 64, 64, 0, {0, 64, 64}},
                {"qkv", 192, 64, 4096, {0, 67, 192}},
                {"pre_mlp_ln", 64, 0, 16704, {0, 0, 64}},
                {"router", 4, 64, 16384, {0, 0, 4}}}},
    {"MoE, experts of one rank of EP2, D=2", .n_shards = 2, .factor = 192, .size = 18432,
     .is_in_unit = true,
     .params = {{"e0.fc1", 96, 64, 0, {0, 96, 96}},
                {"e0.fc2", 64, 48, 12288, {0, 0, 64}},
                {"e1.fc1", 96, 64, 6144, {0, 48, 96}},
                {"e1.fc2", 64, 48, 15360, {0, 0, 64}}}},
    {"golden native_dp2, each layer", .n_shards = 2, .factor = 192, .size = 31104,
     .is_in_unit = true,
     .params = {{"input_ln", 64, 0, 30720, {0, 0, 64}},
                {"proj", 64, 64, 6144, {0, 64, 64}},
                {"qkv", 128, 64, 10240, {0, 83, 128}},
                {"pre_mlp_ln", 64, 0, 30784, {0, 0, 64}},
                {"fc1", 192, 64, 18432, {0, 0, 192}},
                {"fc2", 64, 96, 0, {0, 64, 64}}}},
    {"golden native_moe_ep2dp4, dense part of a MoE layer", .n_shards = 4, .factor = 64,
     .size = 12800, .is_in_unit = true,
     .params = {{"input_ln", 64, 0, 12544, {0, 0, 0, 0, 64}},
                {"proj", 64, 64, 0, {0, 50, 64, 64, 64}},
                {"qkv", 128, 64, 4096, {0, 0, 36, 86, 128}},
                {"pre_mlp_ln", 64, 0, 12608, {0, 0, 0, 0, 64}},
                {"router", 4, 64, 12288, {0, 0, 0, 0, 4}}}},
};

static size_t count_params(const struct vector *v)
{
    size_t n = 0;

    while (n < MAX_PARAMS && v[n].name != NULL)
        n++;
    return n;
}

static void make_params(const struct vector *v, size_t n, int64_t n_shards, bool is_in_unit,
                        int64_t shapes[][2], struct dcpk_fsdp_param *params)
{
    for (size_t i = 0; i < n; i++) {
        shapes[i][0] = v[i].rows;
        shapes[i][1] = v[i].columns;
        params[i] = (struct dcpk_fsdp_param){.name = v[i].name,
                                             .shape = shapes[i],
                                             .rank = v[i].columns == 0 ? 1 : 2,
                                             .is_in_unit = is_in_unit,
                                             .n_shards = n_shards};
    }
}

/* Sets cut[r] to the rows of the parameter that ranks before r hold. */
static void find_cuts(const struct dcpk_fsdp_param *param, const struct dcpk_fsdp_place *place,
                      int64_t *cut, const char *label)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_box box;
    int64_t first;

    CHECK_OK(dcpk_fsdp_check_rows(param, place, &err), label);
    cut[0] = 0;
    for (int64_t r = 0; r < param->n_shards; r++) {
        CHECK_OK(dcpk_fsdp_shard(param, place, r, &box, &first, &err), label);
        cut[r + 1] = cut[r] + box.extent[0];
    }
}

/* Shards hold the rows between cuts, and lie where the flat buffer, cut into slices, has them. */
static void check_shards(const struct dcpk_fsdp_param *param, const struct dcpk_fsdp_place *place,
                         const int64_t *cut, const char *label)
{
    const int64_t slice = place->bucket_elems / param->n_shards;
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_box box;
    int64_t first, row = 1, holder, end;

    dcpk_fsdp_holders(param, place, &holder, &end);
    for (int a = 1; a < param->rank; a++)
        row *= param->shape[a];
    for (int64_t r = 0; r < param->n_shards; r++) {
        CHECK_OK(dcpk_fsdp_shard(param, place, r, &box, &first, &err), label);
        CHECK_EQ_INT(box.offset[0], cut[r], label);
        CHECK_EQ_INT(box.extent[0], cut[r + 1] - cut[r], label);
        CHECK_EQ_INT(box.extent[param->rank - 1], param->rank > 1 ? row : box.extent[0], label);
        CHECK_EQ_INT(box.extent[0] > 0, r >= holder && r < end, label);
        if (box.extent[0] == 0)
            continue;
        CHECK_EQ_INT(r * slice + first, place->first + cut[r] * row, label);
        CHECK(first >= 0 && first + box.extent[0] * row <= slice, label);
    }
}

static void layouts_are_megatrons(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        const size_t n = count_params(cases[c].params);
        struct dcpk_fsdp_param params[MAX_PARAMS];
        struct dcpk_fsdp_place places[MAX_PARAMS];
        int64_t shapes[MAX_PARAMS][2], cut[MAX_CUTS];

        make_params(cases[c].params, n, cases[c].n_shards, cases[c].is_in_unit, shapes, params);
        CHECK_OK(dcpk_fsdp_layout(params, n, cases[c].bucket_elems, places, &err), cases[c].label);
        for (size_t i = 0; i < n; i++) {
            char label[200];

            snprintf(label, sizeof label, "%s: %s", cases[c].label, params[i].name);
            CHECK_EQ_INT(places[i].first, cases[c].params[i].first, label);
            CHECK_EQ_INT(places[i].factor, cases[c].factor, label);
            CHECK_EQ_INT(places[i].bucket_elems, cases[c].size, label);
            CHECK_EQ_INT(places[i].bucket, places[0].bucket, label);
            find_cuts(&params[i], &places[i], cut, label);
            for (int64_t r = 0; r <= cases[c].n_shards; r++)
                CHECK_EQ_INT(cut[r], cases[c].params[i].cut[r], label);
            check_shards(&params[i], &places[i], cut, label);
        }
    }
}

/* The vector "bucket_size 16000, D=2": only what is outside units is cut. */
static void large_buckets_are_cut_outside_units(void **state)
{
    static const struct vector v[] = {{"emb", 256, 64, 0, {0, 128, 256}},
                                      {"final_ln", 64, 0, 16384, {0, 0, 64}},
                                      {"out", 256, 64, 0, {0, 129, 256}}};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_fsdp_param params[3];
    struct dcpk_fsdp_place places[3];
    int64_t shapes[3][2], cut[3];

    (void)state;
    make_params(v, 3, 2, false, shapes, params);
    CHECK_OK(dcpk_fsdp_layout(params, 3, 16000, places, &err), "outside");
    CHECK_EQ_INT(places[0].bucket_elems, 16384, "emb");
    CHECK_EQ_INT(places[1].bucket_elems, 16512, "final_ln");
    CHECK_EQ_INT(places[2].bucket_elems, 16512, "out");
    CHECK(places[0].bucket != places[1].bucket && places[1].bucket == places[2].bucket, "buckets");
    for (size_t i = 0; i < 3; i++) {
        CHECK_EQ_INT(places[i].first, v[i].first, v[i].name);
        find_cuts(&params[i], &places[i], cut, v[i].name);
        CHECK_EQ_INT(cut[1], v[i].cut[1], v[i].name);
    }
    make_params(v, 3, 2, true, shapes, params);
    CHECK_OK(dcpk_fsdp_layout(params, 3, 16000, places, &err), "unit");
    CHECK(places[0].bucket == places[2].bucket, "a unit stays whole");
}

/* (1,96), (2,64), (48,) over 4 ranks: size 768, (2,64) at 96 would be cut behind 96 elements. */
static void a_row_that_would_be_cut_is_named(void **state)
{
    static const struct vector v[] = {
        {"a", 1, 96, 0, {0}}, {"b", 2, 64, 0, {0}}, {"c", 48, 0, 0, {0}}};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_fsdp_param params[3];
    struct dcpk_fsdp_place places[3];
    int64_t shapes[3][2];

    (void)state;
    make_params(v, 3, 4, true, shapes, params);
    CHECK_OK(dcpk_fsdp_layout(params, 3, 0, places, &err), "layout");
    CHECK_EQ_INT(places[1].factor, 192, "factor");
    CHECK_EQ_INT(places[1].bucket_elems, 768, "size");
    CHECK_EQ_INT(places[1].first, 96, "b");
    CHECK_FAILS(dcpk_fsdp_check_rows(&params[1], &places[1], &err), DCPK_EUNSUPPORTED,
                "fsdp-layout: row of 'b' would be cut: 96 of its elements", "hazard");
}

static void hostile_shapes_are_refused(void **state)
{
    static const int64_t huge[] = {INT64_C(1) << 31, INT64_C(1) << 31},
                         prime[] = {1, (INT64_C(1) << 61) - 1}, even[] = {2, INT64_C(1) << 60},
                         none[] = {4, 0};
    static const struct {
        const char *label, *message;
        struct dcpk_fsdp_param params[2];
        size_t n;
        dcpk_status status;
    } bad[] = {
        {"buffer", .message = "'x' passes 2^62", .params = {{"x", huge, 2, 0, true, 8}}, .n = 1,
         .status = DCPK_ERANGE},
        {"sum", .message = "'x' passes 2^6",
         .params = {{"x", huge, 2, 0, true, 1}, {"x", huge, 2, 0, true, 1}}, .n = 2,
         .status = DCPK_ERANGE},
        {"factor", .message = "no common multiple",
         .params = {{"p", prime, 2, 0, true, 1}, {"e", even, 2, 0, true, 1}}, .n = 2,
         .status = DCPK_ERANGE},
        {"scalar", .message = "'s' is a scalar", .params = {{"s", huge, 0, 0, true, 1}}, .n = 1,
         .status = DCPK_EUNSUPPORTED},
        {"empty rows", .message = "'n' has rows without elements",
         .params = {{"n", none, 2, 0, true, 1}}, .n = 1, .status = DCPK_EUNSUPPORTED},
    };

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_fsdp_place places[2];

        CHECK_FAILS(dcpk_fsdp_layout(bad[i].params, bad[i].n, 0, places, &err), bad[i].status,
                    bad[i].message, bad[i].label);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layouts_are_megatrons),
        cmocka_unit_test(large_buckets_are_cut_outside_units),
        cmocka_unit_test(a_row_that_would_be_cut_is_named),
        cmocka_unit_test(hostile_shapes_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
