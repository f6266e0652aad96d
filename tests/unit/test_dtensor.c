/* SPDX-License-Identifier: Apache-2.0 */
/* test_dtensor.c - boxes of ranks by placements, and shards that are opened without memory. */
#include <stdio.h>
#include <stdlib.h>

#include "formats/fsdp_shards/dtensor.h"
#include "formats/fsdp_shards/fsdp_shards.h"
#include "lib/base/alloc.h"
#include "lib/base/cursor.h"
#include "lib/base/order.h"
#include "tests/every_alloc.h"

/* Sizes that torch gave ranks, or that its rules give: rows of axis 0. */
static const struct {
    const char *label;
    int64_t rows, n_mesh, mesh[2], kind[2], n_cuts, cuts[2];
    const char *want; /* of ranks in the order of the mesh, the last dimension fastest */
} cases[] = {
    {"131 on 3", 131, 1, {3}, {DCPK_SHARD}, 1, {0}, "0+44 44+44 88+43"},
    {"5 on 3", 5, 1, {3}, {DCPK_SHARD}, 1, {0}, "0+2 2+2 4+1"},
    {"2 on 4", 2, 1, {4}, {DCPK_SHARD}, 1, {0}, "0+1 1+1 2+0 2+0"},
    {"9 on 8", 9, 1, {8}, {DCPK_SHARD}, 1, {0}, "0+2 2+2 4+2 6+2 8+1 9+0 9+0 9+0"},
    {"none on 2", 0, 1, {2}, {DCPK_SHARD}, 1, {0}, "0+0 0+0"},
    {"2^62 on 3",
     INT64_C(1) << 62,
     1,
     {3},
     {DCPK_SHARD},
     1,
     {0},
     "0+1537228672809129302 1537228672809129302+1537228672809129302 "
     "3074457345618258604+1537228672809129300"},
    {"replicas", 4, 2, {2, 2}, {DCPK_REPLICATE, DCPK_SHARD}, 1, {1}, "0+2 2+2 0+2 2+2"},
    {"in the mesh's order", 8, 2, {2, 2}, {DCPK_SHARD, DCPK_SHARD}, 2, {0, 1}, "0+2 2+2 4+2 6+2"},
    {"FSDP after TP", 8, 2, {2, 2}, {DCPK_STRIDED_SHARD, DCPK_SHARD}, 2, {1, 0}, "0+2 4+2 2+2 6+2"},
    {"odd rows of TP",
     7,
     2,
     {2, 2},
     {DCPK_STRIDED_SHARD, DCPK_SHARD},
     2,
     {1, 0},
     "0+2 4+2 2+2 6+1"},
};

static void ranks_have_their_rows(void **state)
{
    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(cases); i++) {
        const int64_t n_last = cases[i].n_mesh == 2 ? cases[i].mesh[1] : 1;
        const char *want = cases[i].want;

        for (int64_t rank = 0; rank < cases[i].mesh[0] * n_last; rank++) {
            struct dcpk_error err = DCPK_ERROR_INIT;
            char *end;
            const int64_t at = strtoll(want, &end, 10), n = strtoll(end + 1, &end, 10);
            const int64_t extent[] = {n};
            const struct dcpk_value_tensor local = {.rank = 1, .shape = extent};
            struct dcpk_dtensor tensor = {.layout = {.rank = 1,
                                                     .shape = {cases[i].rows},
                                                     .n_mesh = cases[i].n_mesh,
                                                     .n_cuts = cases[i].n_cuts},
                                          .at = {rank / n_last, rank % n_last},
                                          .local = &local};
            struct dcpk_box box;

            for (int d = 0; d < 2; d++) {
                tensor.layout.mesh[d] = cases[i].mesh[d];
                tensor.layout.kind[d] = cases[i].kind[d];
                tensor.layout.cuts[d] = cases[i].cuts[d];
            }
            CHECK_OK(dcpk_dtensor_place(&tensor, &box, &err), cases[i].label);
            CHECK_EQ_INT(box.offset[0], at, cases[i].label);
            want = end;
        }
        CHECK(*want == '\0', cases[i].label);
    }
}

/* The seed of the fuzz target: the files of two ranks, with an optimizer. */
static uint8_t seed[16384];
static size_t n_seed;

static dcpk_status add_file(struct dcpk_store *store, const char *prefix, int rank, size_t at,
                            size_t n, struct dcpk_error *err)
{
    char name[64];

    snprintf(name, sizeof name, "%s_world_size_2_rank_%d.pt", prefix, rank);
    return dcpk_store_add_borrowed(store, name, seed + at, n, err);
}

static dcpk_status open_and_compare(struct dcpk_error *err)
{
    static const struct dcpk_format *const formats[] = {&dcpk_format_fsdp_shards, NULL};
    static const char config[] = "{\"FSDP_version\": 2, \"world_size\": 2}";
    const size_t n_model = dcpk_load_u32le(seed + 1);
    struct dcpk_checkpoint *ckpt = NULL;
    struct dcpk_store *store = NULL;

    if (dcpk_store_new_memory("seed", &store, err))
        return err->status;
    (void)dcpk_store_add_borrowed(store, "fsdp_config.json", config, sizeof config - 1, err);
    for (int rank = 0; rank < 2 && err->status == DCPK_OK; rank++)
        if (add_file(store, "model", rank, 5, n_model, err) == DCPK_OK)
            (void)add_file(store, "optim", rank, 5 + n_model, n_seed - 5 - n_model, err);
    if (err->status != DCPK_OK) {
        dcpk_store_close(store);
        return err->status;
    }
    if (dcpk_checkpoint_open(store, formats, NULL, &ckpt, err) == DCPK_OK)
        (void)ckpt->format->check_copies(ckpt, err);
    if (err->status == DCPK_OK) {
        CHECK_EQ_INT(ckpt->n_tensors, 4, "a weight and its states");
        CHECK_EQ_INT(ckpt->n_chunks, 7, "two of each, and one step");
        CHECK_EQ_INT(ckpt->n_objects, 4, "lr, betas, fused, params");
    }
    dcpk_checkpoint_close(ckpt);
    return err->status;
}

static void every_allocation(void **state)
{
    FILE *f = fopen(DCPK_SOURCE_DIR "/tests/fuzz/corpus/shards/optimizer", "rb");

    (void)state;
    CHECK(f != NULL, "the seed");
    n_seed = fread(seed, 1, sizeof seed, f);
    fclose(f);
    every_alloc_fails(open_and_compare, 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_have_their_rows),
        cmocka_unit_test(every_allocation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
