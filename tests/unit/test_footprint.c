/* SPDX-License-Identifier: Apache-2.0 */
/* test_footprint.c - bytes of a rank by tag and strategy, bytes that it sends, from a configuration
 * alone. */
#include "lib/base/order.h"
#include "lib/train/footprint.h"
#include "tests/every_alloc.h"

/* Hidden 64, 4 layers, MLP 96, vocabulary 256, bf16 with fp32 masters and gradients. */
static struct dcpk_train_config toy(enum dcpk_strategy strategy, int64_t dp)
{
    return (struct dcpk_train_config){
        .model = {.layers = 4,
                  .hidden = 64,
                  .ffn = 96,
                  .heads = 4,
                  .groups = 4,
                  .head_dim = 16,
                  .vocab_size = 256,
                  .padded_vocab = 256,
                  .seq_length = 32,
                  .impl = DCPK_IMPL_LOCAL},
        .layout = {.tp = 1, .cp = 1, .ep = 1, .pp = 1, .dp = dp, .instances = 1},
        .fsdp = {.mode = DCPK_MODE_MEGATRON_FSDP, .strategy = strategy, .bucket_elems = -1},
        .precision = {.compute = DCPK_BF16,
                      .main_params = DCPK_F32,
                      .main_grads = DCPK_F32,
                      .comm = DCPK_F32},
        .data = {.micro_batch = 1, .global_batch = 3 * dp},
    };
}

static struct dcpk_train_sizes sizes_of(const struct dcpk_train_config *c, const char *label)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_train_sizes sizes;

    CHECK_OK(dcpk_train_measure(c, &(struct dcpk_train_place){0, 0, 0}, &sizes, &err), label);
    return sizes;
}

/*
 * What Megatron-FSDP's own functions make of this model (formats/fsdp_dtensor/FORMAT.md 8.3, and a
 * golden run on two ranks): 172608 parameters, 86336 elements of buffers on either rank, of which
 * rank 1 has 86272 that are parameters. Units of 34944 elements, 32896 outside.
 */
static void S4_31_sizes_of_two_ranks(void **state)
{
    const struct dcpk_train_config c = toy(DCPK_OPTIM_GRADS_PARAMS, 2);
    const struct dcpk_train_sizes s = sizes_of(&c, "toy");

    (void)state;
    CHECK_EQ_INT(s.n_params, 172608, "parameters");
    CHECK_EQ_INT(s.n_whole, 2 * 86336, "whole");
    CHECK_EQ_INT(s.n_slices, 86336, "slices");
    CHECK_EQ_INT(s.n_own, 86336, "own");
    CHECK_EQ_INT(s.n_own_most, 86336, "rank 0");
    CHECK_EQ_INT(s.n_own_least, 86272, "rank 1");
    CHECK_EQ_INT(s.n_units, 4, "units");
    CHECK_EQ_INT(s.n_largest_unit, 34944, "largest unit");
    CHECK_EQ_INT(s.n_whole_outside, 32896, "outside");
    CHECK_EQ_INT(s.n_sent, 86336, "sent");
}

#define P INT64_C(172608) /* parameters */
#define B INT64_C(172672) /* of buffers, filled up for two ranks */
#define R INT64_C(86336)  /* of the slices of rank 0 */
#define N INT64_C(32896)  /* outside units */
#define U INT64_C(34944)  /* of a unit */

/* Two ranks, three micro batches. The columns of the table: weights, main, grads, adam. */
static const struct {
    const char *label;
    enum dcpk_strategy strategy;
    int64_t weights, main, grads, adam, gathered, reduced;
} strategies[] = {
    {"no_shard", DCPK_NO_SHARD, 2 * P, 4 * P, 4 * P, 8 * P, 0, P / 2 * 2 * 4},
    {"optim", DCPK_OPTIM, 2 * B, 4 * R, 4 * B, 8 * R, B / 2 * 2, B / 2 * 4},
    {"optim_grads", DCPK_OPTIM_GRADS, 2 * B, 4 * R, 4 * R, 8 * R, B / 2 * 2, 3 * B / 2 * 4},
    {"optim_grads_params", DCPK_OPTIM_GRADS_PARAMS, 2 * R + 2 * N, 4 * R, 4 * R, 8 * R,
     2 * 3 * (B - N) / 2 * 2 + N / 2 * 2, 3 * B / 2 * 4},
};

static void S2_02_strategies_by_tag(void **state)
{
    uint64_t before = UINT64_MAX;

    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(strategies); i++) {
        const struct dcpk_train_config c = toy(strategies[i].strategy, 2);
        const struct dcpk_train_sizes s = sizes_of(&c, strategies[i].label);
        struct dcpk_train_volume volume;
        uint64_t bytes[DCPK_N_TAGS], kept = 0;

        dcpk_train_footprint(&c, &s, bytes);
        dcpk_train_volume(&c, &s, &volume);
        CHECK_EQ_INT(bytes[DCPK_TAG_WEIGHTS], strategies[i].weights, strategies[i].label);
        CHECK_EQ_INT(bytes[DCPK_TAG_MAIN], strategies[i].main, strategies[i].label);
        CHECK_EQ_INT(bytes[DCPK_TAG_GRADS], strategies[i].grads, strategies[i].label);
        CHECK_EQ_INT(bytes[DCPK_TAG_ADAM], strategies[i].adam, strategies[i].label);
        CHECK_EQ_INT(volume.gather_bytes, strategies[i].gathered, strategies[i].label);
        CHECK_EQ_INT(volume.reduce_bytes, strategies[i].reduced, strategies[i].label);
        for (int tag = DCPK_TAG_WEIGHTS; tag <= DCPK_TAG_ADAM; tag++)
            kept += bytes[tag];
        CHECK(kept < before, strategies[i].label);
        before = kept;
    }
}

/* No more than two units with the double buffer, all of a small model without it. */
static void S1_13_double_buffer(void **state)
{
    struct dcpk_train_config c = toy(DCPK_OPTIM_GRADS_PARAMS, 2);
    const struct dcpk_train_sizes s = sizes_of(&c, "toy");
    uint64_t bytes[DCPK_N_TAGS];

    (void)state;
    dcpk_train_footprint(&c, &s, bytes);
    CHECK_EQ_INT(bytes[DCPK_TAG_GATHER], 2 * 4 * U, "all units");
    CHECK_EQ_INT(bytes[DCPK_TAG_COMM], 4 * B, "all gradients");
    c.fsdp.has_double_buffer = true;
    dcpk_train_footprint(&c, &s, bytes);
    CHECK_EQ_INT(bytes[DCPK_TAG_GATHER], 2 * 2 * U, "two units");
    CHECK_EQ_INT(bytes[DCPK_TAG_COMM], 4 * (N + 2 * U), "two units' gradients");
    c.fsdp.has_double_buffer = false;
    c.fsdp.unit_elems = U;
    dcpk_train_footprint(&c, &s, bytes);
    CHECK_EQ_INT(bytes[DCPK_TAG_GATHER], 2 * 2 * U, "one unit ahead");
}

/* Activations do not change with data parallelism, and grow with the micro batch. */
static void S2_25_activations(void **state)
{
    uint64_t one[DCPK_N_TAGS], other[DCPK_N_TAGS];
    struct dcpk_train_config c = toy(DCPK_OPTIM_GRADS_PARAMS, 2);
    struct dcpk_train_sizes s = sizes_of(&c, "DP 2");

    (void)state;
    dcpk_train_footprint(&c, &s, one);
    c.layout.dp = 4;
    s = sizes_of(&c, "DP 4");
    dcpk_train_footprint(&c, &s, other);
    CHECK_EQ_INT(one[DCPK_TAG_ACT], other[DCPK_TAG_ACT], "DP 4");
    CHECK(other[DCPK_TAG_ADAM] < one[DCPK_TAG_ADAM], "DP 4");
    c.data.micro_batch = 3;
    dcpk_train_footprint(&c, &s, other);
    CHECK_EQ_INT(3 * one[DCPK_TAG_ACT], other[DCPK_TAG_ACT], "micro batch 3");
    /* 32 tokens of 4 layers: 4 h + 2 q + 2 kv + 3 f elements of 2 bytes; 256 logits twice. */
    CHECK_EQ_INT(one[DCPK_TAG_ACT], 32 * (4 * (4 * 64 + 4 * 64 + 3 * 96) * 2 + 6 * 256), "toy");
    c.fsdp.recomputes = true;
    dcpk_train_footprint(&c, &s, other);
    CHECK(other[DCPK_TAG_ACT] < 3 * one[DCPK_TAG_ACT], "recomputation");
}

/* HSDP keeps what the inner ranks have; HFSDP cuts the optimizer's part once more. */
static void outer_ranks(void **state)
{
    struct dcpk_train_config c = toy(DCPK_OPTIM_GRADS_PARAMS, 4);
    const struct dcpk_train_config two = toy(DCPK_OPTIM_GRADS_PARAMS, 2);
    const struct dcpk_train_sizes inner = sizes_of(&two, "DP 2");
    struct dcpk_train_sizes s;

    (void)state;
    c.layout.instances = 2;
    s = sizes_of(&c, "HSDP");
    CHECK_EQ_INT(s.n_slices, inner.n_slices, "HSDP");
    CHECK_EQ_INT(s.n_own, inner.n_own, "HSDP");
    c.layout.is_outer_sharded = true;
    s = sizes_of(&c, "HFSDP");
    CHECK_EQ_INT(s.n_slices, 2 * s.n_own, "HFSDP");
    /* Filled up for four ranks: 4 x 35328 and 33024 elements (formats/fsdp_dtensor/FORMAT.md 8). */
    CHECK_EQ_INT(s.n_whole, 4 * 35328 + 33024, "HFSDP");
}

/* Four instances: nothing is sharded among inner ranks, all is added over outer ones. Without
 * sharding there are no such slices, and gradients are reduced over all ranks. */
static void outer_traffic(void **state)
{
    struct dcpk_train_config c = toy(DCPK_NO_SHARD, 4);
    struct dcpk_train_volume volume;
    struct dcpk_train_sizes s;

    (void)state;
    c.layout.instances = 4;
    s = sizes_of(&c, "no_shard");
    dcpk_train_volume(&c, &s, &volume);
    CHECK_EQ_INT(volume.reduce_bytes, 2 * P / 4 * 3 * 4, "no_shard");
    CHECK_EQ_INT(volume.gather_bytes, 0, "no_shard");
    c.fsdp.strategy = DCPK_OPTIM_GRADS_PARAMS;
    s = sizes_of(&c, "HSDP");
    dcpk_train_volume(&c, &s, &volume);
    CHECK_EQ_INT(volume.reduce_bytes, 2 * s.n_whole / 4 * 3 * 4, "HSDP");
    CHECK_EQ_INT(volume.gather_bytes, 0, "HSDP");
    c.layout.instances = 2;
    c.layout.is_outer_sharded = true;
    s = sizes_of(&c, "HFSDP");
    dcpk_train_volume(&c, &s, &volume);
    /* Three micro batches over two inner ranks, then the slices over two outer ones. */
    CHECK_EQ_INT(volume.reduce_bytes, 3 * s.n_whole / 2 * 4 + s.n_whole / 4 * 4, "HFSDP");
    CHECK_EQ_INT(volume.gather_bytes,
                 (6 * (s.n_whole - s.n_whole_outside) + s.n_whole_outside) / 2 * 2 +
                     s.n_whole / 4 * 2,
                 "HFSDP");
}

/* An embedding that both stages have is a buffer of its own: the last norm beside it is filled up
 * alone, to 64 elements for each of three ranks that share it out, not to a row. */
static void copied_embedding(void **state)
{
    struct dcpk_train_config c = toy(DCPK_OPTIM_GRADS_PARAMS, 3);
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_train_sizes s;

    (void)state;
    c.layout.pp = 2;
    c.model.is_tied = true;
    CHECK_OK(dcpk_train_measure(&c, &(struct dcpk_train_place){.pp = 1}, &s, &err), "last stage");
    CHECK_EQ_INT(s.n_whole_outside, 258 * 64 + 66, "258 rows of 256; 22 of the norm on each rank");
}

static dcpk_status measure_toy(struct dcpk_error *err)
{
    const struct dcpk_train_config c = toy(DCPK_OPTIM_GRADS_PARAMS, 2);
    struct dcpk_train_sizes sizes;

    return dcpk_train_measure(&c, &(struct dcpk_train_place){0, 0, 0}, &sizes, err);
}

static void without_memory(void **state)
{
    (void)state;
    every_alloc_fails(measure_toy, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(S4_31_sizes_of_two_ranks),
        cmocka_unit_test(S2_02_strategies_by_tag),
        cmocka_unit_test(S1_13_double_buffer),
        cmocka_unit_test(S2_25_activations),
        cmocka_unit_test(outer_ranks),
        cmocka_unit_test(outer_traffic),
        cmocka_unit_test(copied_embedding),
        cmocka_unit_test(without_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
