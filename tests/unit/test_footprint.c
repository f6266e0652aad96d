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
                      .comm = DCPK_F32,
                      .virtual_slices = 8},
        .data = {.micro_batch = 1, .global_batch = 3 * dp},
    };
}

static struct dcpk_train_footprint footprint_of(const struct dcpk_train_config *c, int64_t rank,
                                                enum dcpk_footprint_of of, const char *label)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_train_footprint f;

    CHECK_OK(dcpk_train_footprint(c, rank, of, &f, &err), label);
    return f;
}

/* Of rank 0 of Megatron. */
static struct dcpk_train_footprint megatron(const struct dcpk_train_config *c, const char *label)
{
    return footprint_of(c, 0, DCPK_OF_MEGATRON, label);
}

static uint64_t gathered(const struct dcpk_train_footprint *f)
{
    return f->sent.n_bytes[DCPK_FSDP_GATHER] + f->sent.n_bytes[DCPK_FSDP_OUTER_GATHER];
}

static uint64_t reduced(const struct dcpk_train_footprint *f)
{
    return f->sent.n_bytes[DCPK_FSDP_REDUCE] + f->sent.n_bytes[DCPK_FSDP_OUTER_REDUCE];
}

/*
 * What Megatron-FSDP's own functions make of this model (formats/fsdp_dtensor/FORMAT.md 8.3, and a
 * golden run on two ranks): 172608 parameters, 86336 elements of buffers on either rank, of which
 * rank 1 has 86272 that are parameters. Units of 34944 elements, 32896 outside.
 */
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
        const struct dcpk_train_footprint f = megatron(&c, strategies[i].label);
        uint64_t kept = 0;

        CHECK_EQ_INT(f.held[DCPK_TAG_WEIGHTS], strategies[i].weights, strategies[i].label);
        CHECK_EQ_INT(f.held[DCPK_TAG_MAIN], strategies[i].main, strategies[i].label);
        CHECK_EQ_INT(f.held[DCPK_TAG_GRADS], strategies[i].grads, strategies[i].label);
        CHECK_EQ_INT(f.held[DCPK_TAG_ADAM], strategies[i].adam, strategies[i].label);
        CHECK_EQ_INT(gathered(&f), strategies[i].gathered, strategies[i].label);
        CHECK_EQ_INT(reduced(&f), strategies[i].reduced, strategies[i].label);
        for (int tag = DCPK_TAG_WEIGHTS; tag <= DCPK_TAG_ADAM; tag++)
            kept += f.held[tag];
        CHECK(kept < before, strategies[i].label);
        before = kept;
    }
}

/* Rank 1 has what fills buffers up, which has no moments. */
static void S4_31_sizes_of_two_ranks(void **state)
{
    const struct dcpk_train_config c = toy(DCPK_OPTIM_GRADS_PARAMS, 2);
    const struct dcpk_train_footprint f = footprint_of(&c, 1, DCPK_OF_MEGATRON, "rank 1");

    (void)state;
    CHECK_EQ_INT(f.held[DCPK_TAG_ADAM], 8 * 86272, "rank 1");
    CHECK_EQ_INT(f.max_adam_bytes, 8 * R, "rank 0");
    CHECK_EQ_INT(f.save_copy_bytes, 12 * R, "rank 0");
}

/* No more than two units with the double buffer, all of a small model without it. */
static void S1_13_double_buffer(void **state)
{
    struct dcpk_train_config c = toy(DCPK_OPTIM_GRADS_PARAMS, 2);
    struct dcpk_train_footprint f = megatron(&c, "toy");

    (void)state;
    CHECK_EQ_INT(f.held[DCPK_TAG_GATHER], 2 * 4 * U, "all units");
    CHECK_EQ_INT(f.held[DCPK_TAG_COMM], 4 * B, "all gradients");
    c.fsdp.has_double_buffer = true;
    f = megatron(&c, "double buffer");
    CHECK_EQ_INT(f.held[DCPK_TAG_GATHER], 2 * 2 * U, "two units");
    CHECK_EQ_INT(f.held[DCPK_TAG_COMM], 4 * (N + 2 * U), "two units' gradients");
    c.fsdp.strategy = DCPK_OPTIM_GRADS;
    f = megatron(&c, "without gathers");
    CHECK_EQ_INT(f.held[DCPK_TAG_GATHER], 0, "weights are whole");
    CHECK_EQ_INT(f.held[DCPK_TAG_COMM], 4 * (N + 2 * U), "two units' gradients");
    c.fsdp.strategy = DCPK_OPTIM_GRADS_PARAMS;
    c.fsdp.has_double_buffer = false;
    c.fsdp.unit_elems = U;
    f = megatron(&c, "small units of communication");
    CHECK_EQ_INT(f.held[DCPK_TAG_GATHER], 2 * 2 * U, "one unit ahead");
}

/* Weights next to the double buffer of a stage: a text that names them, bytes that add up to those
 * that a run holds. */
static void check_apart(const struct dcpk_train_config *c, int64_t stage, const char *wanted)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_bytes text = {0};
    struct dcpk_train_apart apart;

    CHECK_OK(dcpk_train_apart(c, stage, &apart, &text, &err), wanted);
    CHECK_EQ_INT(text.n_bytes > 0, wanted[0] != 0, wanted);
    if (apart.buffer_bytes > 0)
        CHECK_EQ_INT(
            footprint_of(c, dcpk_grid_stage_rank(&c->layout, stage), DCPK_OF_THIS_RUN, wanted)
                .held[DCPK_TAG_GATHER],
            2 * apart.buffer_bytes + apart.layer_bytes, wanted);
    dcpk_bytes_u8(&text, 0);
    CHECK(strstr((const char *)text.data, wanted) != NULL, (const char *)text.data);
    dcpk_bytes_release(&text);
}

/* S1-15: of experts, layers 1 to 3 are larger than layer 0: it has memory of its own next to the
 * two buffers, and is gathered while both are in use. In bf16, a layer of experts: qkv 192 x 64,
 * proj 64 x 64, two norms, router 4 x 64, 4 x (192 + 96) x 64; outside: 32896
 * (formats/fsdp_dtensor/FORMAT.md 8.3). */
static void S1_15_units_of_two_sizes(void **state)
{
    static const uint8_t layers[] = {0, 1, 1, 1}, last[] = {0, 0, 1, 1};
    struct dcpk_train_config c = toy(DCPK_OPTIM_GRADS_PARAMS, 2);
    struct dcpk_train_footprint f;

    (void)state;
    c.model.experts = 4;
    c.model.topk = 1;
    c.model.moe_ffn = 96;
    c.model.moe_layers = layers;
    c.fsdp.has_max_pool = true;
    f = megatron(&c, "the longest");
    c.fsdp.has_max_pool = false;
    c.fsdp.has_double_buffer = true;
    CHECK_EQ_INT(megatron(&c, "experts").held[DCPK_TAG_GATHER], f.held[DCPK_TAG_GATHER] + 2 * U,
                 "the dense layer");
    check_apart(&c, 0,
                "the double buffer is two of 176.75 KiB, the size that most layers have. Apart, "
                "because of another size: layer 0 (68.25 KiB); at most 68.25 KiB of them at one "
                "time. Outside layers (embedding, norms, head) 64.25 KiB stay whole, in no buffer. "
                "Megatron-FSDP has the same limit (FixedPoolAllocator)");
    c.model.moe_layers = last;
    check_apart(&c, 0, "because of another size: layers 2-3 (176.75 KiB each); at most 353.50 KiB");
    c.layout.pp = 2;
    check_apart(&c, 0,
                "stage 0: the double buffer is two of 68.25 KiB, the size that most layers have. "
                "Outside");
    check_apart(&c, 1, "stage 1: the double buffer is two of 176.75 KiB");
    c.layout.pp = 1;
    c.fsdp.has_max_pool = true;
    check_apart(&c, 0, "the size of the largest layer. Outside");
    c.fsdp.has_double_buffer = c.fsdp.has_max_pool = false;
    check_apart(&c, 0, "");
}

/* The sums of this run are integers of 8 bytes, and its optimizer has fp32 gradients next to them;
 * a flag of each of 27 parameters, and a number. All else is Megatron's, but for what layers use.
 */
static void this_run_adds_integers(void **state)
{
    struct dcpk_train_config c = toy(DCPK_OPTIM_GRADS_PARAMS, 2);
    const struct dcpk_train_footprint other = megatron(&c, "Megatron");
    struct dcpk_train_footprint f;

    (void)state;
    c.precision.is_exact = true;
    f = footprint_of(&c, 0, DCPK_OF_THIS_RUN, "integers");
    CHECK_EQ_INT(f.held[DCPK_TAG_GRADS], 8 * R + 4 * R + 8 * 27 + 8, "integers");
    CHECK_EQ_INT(f.held[DCPK_TAG_COMM], 8 * B, "integers");
    CHECK_EQ_INT(reduced(&f), 2 * reduced(&other), "integers");
    CHECK_EQ_INT(gathered(&f), gathered(&other), "weights");
    CHECK(f.held[DCPK_TAG_ACT] > other.held[DCPK_TAG_ACT], "with room to compute");
    c.precision.is_exact = false;
    f = footprint_of(&c, 0, DCPK_OF_THIS_RUN, "floats");
    CHECK_EQ_INT(f.held[DCPK_TAG_GRADS], other.held[DCPK_TAG_GRADS] + 8 * 27 + 8, "floats");
    for (int tag = 0; tag < DCPK_TAG_ACT; tag++)
        if (tag != DCPK_TAG_GRADS)
            CHECK_EQ_INT(f.held[tag], other.held[tag], dcpk_memory_tag_names[tag]);
}

/* Activations do not change with data parallelism, and grow with the micro batch. */
static void S2_25_activations(void **state)
{
    struct dcpk_train_config c = toy(DCPK_OPTIM_GRADS_PARAMS, 2);
    const struct dcpk_train_footprint one = megatron(&c, "DP 2");
    struct dcpk_train_footprint other;

    (void)state;
    c.layout.dp = 4;
    other = megatron(&c, "DP 4");
    CHECK_EQ_INT(one.held[DCPK_TAG_ACT], other.held[DCPK_TAG_ACT], "DP 4");
    CHECK(other.held[DCPK_TAG_ADAM] < one.held[DCPK_TAG_ADAM], "DP 4");
    c.data.micro_batch = 3;
    other = megatron(&c, "micro batch 3");
    CHECK_EQ_INT(3 * one.held[DCPK_TAG_ACT], other.held[DCPK_TAG_ACT], "micro batch 3");
    /* 32 tokens of 4 layers: 4 h + 2 q + 2 kv + 3 f elements of 2 bytes; 256 logits twice. */
    CHECK_EQ_INT(one.held[DCPK_TAG_ACT], 32 * (4 * (4 * 64 + 4 * 64 + 3 * 96) * 2 + 6 * 256),
                 "toy");
    c.fsdp.recomputes = true;
    other = megatron(&c, "recomputation");
    CHECK(other.held[DCPK_TAG_ACT] < 3 * one.held[DCPK_TAG_ACT], "recomputation");
}

/* HSDP keeps what the inner ranks have; HFSDP cuts the optimizer's part once more. */
static void outer_ranks(void **state)
{
    const int64_t whole = 4 * 35328 + 33024; /* for four ranks: formats/fsdp_dtensor/FORMAT.md 8 */
    struct dcpk_train_config c = toy(DCPK_OPTIM_GRADS_PARAMS, 4);
    const struct dcpk_train_config two = toy(DCPK_OPTIM_GRADS_PARAMS, 2);
    const struct dcpk_train_footprint inner = megatron(&two, "DP 2");
    struct dcpk_train_footprint f;

    (void)state;
    c.layout.instances = 2;
    f = megatron(&c, "HSDP");
    for (int tag = 0; tag < DCPK_N_TAGS; tag++)
        CHECK_EQ_INT(f.held[tag], inner.held[tag], dcpk_memory_tag_names[tag]);
    c.fsdp.is_outer_sharded = true;
    f = megatron(&c, "HFSDP");
    CHECK_EQ_INT(f.held[DCPK_TAG_WEIGHTS], 2 * (whole / 2 + 33024), "HFSDP");
    CHECK_EQ_INT(f.held[DCPK_TAG_MAIN], 4 * whole / 4, "HFSDP");
}

/* Ranks of an instance share out experts: they hold what they would without others, and add what
 * they own (4 bytes each, over two) to the other instance's. */
static void outer_ranks_of_experts(void **state)
{
    static const uint8_t layers[] = {1, 0, 1, 1};
    struct dcpk_train_config c = toy(DCPK_OPTIM_GRADS_PARAMS, 4);
    struct dcpk_train_footprint inner, f;

    (void)state;
    c.model.experts = 4;
    c.model.topk = 1;
    c.model.moe_ffn = 96;
    c.model.moe_layers = layers;
    c.layout.ep = 2;
    inner = megatron(&c, "an instance");
    c.layout.dp = 8;
    c.data.global_batch *= 2;
    c.layout.instances = 2;
    f = megatron(&c, "two instances");
    for (int tag = 0; tag < DCPK_N_TAGS; tag++)
        CHECK_EQ_INT(f.held[tag], inner.held[tag], dcpk_memory_tag_names[tag]);
    CHECK_EQ_INT(gathered(&f), gathered(&inner), "gathered");
    CHECK_EQ_INT(reduced(&f), reduced(&inner) + f.held[DCPK_TAG_MAIN], "reduced");
}

/* Four instances: nothing is sharded among inner ranks, all is added over outer ones. Without
 * sharding there are no such slices, and gradients are reduced over all ranks. */
static void outer_traffic(void **state)
{
    const int64_t whole = 4 * 35328 + 33024;
    struct dcpk_train_config c = toy(DCPK_NO_SHARD, 4);
    struct dcpk_train_footprint f;

    (void)state;
    c.layout.instances = 4;
    f = megatron(&c, "no_shard");
    CHECK_EQ_INT(reduced(&f), 2 * P / 4 * 3 * 4, "no_shard");
    CHECK_EQ_INT(gathered(&f), 0, "no_shard");
    c.fsdp.strategy = DCPK_OPTIM_GRADS_PARAMS;
    f = megatron(&c, "HSDP");
    CHECK_EQ_INT(reduced(&f), 2 * P / 4 * 3 * 4, "HSDP");
    CHECK_EQ_INT(gathered(&f), 0, "HSDP");
    c.layout.instances = 2;
    c.fsdp.is_outer_sharded = true;
    f = megatron(&c, "HFSDP");
    /* Three micro batches over two inner ranks, then the slices over two outer ones. */
    CHECK_EQ_INT(reduced(&f), 3 * whole / 2 * 4 + whole / 4 * 4, "HFSDP");
    CHECK_EQ_INT(gathered(&f), (6 * (whole - 33024) + 33024) / 2 * 2 + whole / 4 * 2, "HFSDP");
}

/* An embedding that both stages have is a buffer of its own: the last norm next to it is filled up
 * alone, to 64 elements for each of three ranks that share it out, not to a row. */
static void copied_embedding(void **state)
{
    struct dcpk_train_config c = toy(DCPK_OPTIM, 3);
    uint64_t whole, cut;

    (void)state;
    c.layout.pp = 2;
    c.model.is_tied = true;
    whole = footprint_of(&c, 3, DCPK_OF_MEGATRON, "last stage").held[DCPK_TAG_WEIGHTS];
    c.fsdp.strategy = DCPK_OPTIM_GRADS_PARAMS;
    cut = footprint_of(&c, 3, DCPK_OF_MEGATRON, "last stage").held[DCPK_TAG_WEIGHTS];
    CHECK_EQ_INT(cut - whole / 3, 2 * (258 * 64 + 66),
                 "outside units: 258 rows of 256; 22 of the norm on each rank");
}

static dcpk_status explain_toy(struct dcpk_error *err)
{
    const struct dcpk_train_config c = toy(DCPK_OPTIM_GRADS_PARAMS, 2);
    struct dcpk_train_footprint f;

    return dcpk_train_footprint_most(&c, DCPK_OF_THIS_RUN, &f, err);
}

static void without_memory(void **state)
{
    (void)state;
    every_alloc_fails(explain_toy, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(S4_31_sizes_of_two_ranks),
        cmocka_unit_test(S2_02_strategies_by_tag),
        cmocka_unit_test(S1_13_double_buffer),
        cmocka_unit_test(S1_15_units_of_two_sizes),
        cmocka_unit_test(this_run_adds_integers),
        cmocka_unit_test(S2_25_activations),
        cmocka_unit_test(outer_ranks),
        cmocka_unit_test(outer_ranks_of_experts),
        cmocka_unit_test(outer_traffic),
        cmocka_unit_test(copied_embedding),
        cmocka_unit_test(without_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
