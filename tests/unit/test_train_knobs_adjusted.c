/* SPDX-License-Identifier: Apache-2.0 */
/* test_train_knobs_adjusted.c - what a run may ask for, what is adjusted, and the notices. A16. */
#include "lib/base/order.h"
#include "tests/unit/knobs_case.h"

/* ---- A, S, N, I: taken, with a notice ---- */

static const struct {
    const char *label, *line, *text;
    struct surroundings around;
} noticed[] = {
    {"the old name",
     TOY "--use-custom-fsdp",
     "use_custom_fsdp is deprecated: it is taken for use_megatron_fsdp",
     {0}},
    {"S4-07: in dist alone",
     TOY "dist.use_megatron_fsdp=true",
     "use_megatron_fsdp is set in one of dist and ddp: it counts for both",
     {0}},
    {"S4-07: in ddp alone",
     TOY "ddp.use_megatron_fsdp=true",
     "use_megatron_fsdp is set in one of dist and ddp: it counts for both",
     {0}},
    {"S1-06",
     FSDP,
     "use_distributed_optimizer is set to True: Megatron-FSDP is only compatible with it",
     {0}},
    {"S4-17",
     FSDP "--average-in-collective",
     "average_in_collective is not supported with Megatron FSDP: setting to False",
     {0}},
    {"S4-18",
     FSDP,
     "gradient_accumulation_fusion is not compatible with Megatron FSDP: setting to False",
     {0}},
    {"S4-19",
     FSDP "ddp.reuse_grad_buf_for_mxfp8_param_ag=true",
     "ddp.reuse_grad_buf_for_mxfp8_param_ag is disabled for Megatron FSDP: setting to False",
     {0}},
    {"S4-20",
     FSDP "optimizer.reuse_grad_buf_for_mxfp8_param_ag=true",
     "optimizer.reuse_grad_buf_for_mxfp8_param_ag is disabled for Megatron FSDP: setting to False",
     {0}},
    {"S1-14",
     FSDP "--use-nccl-ub",
     "FSDP double buffer and manual registration is enabled by default when nccl_ub is enabled",
     {0}},
    {"max pool",
     FSDP "--megatron-fsdp-max-pool-double-buffer",
     "fsdp_double_buffer is set to True: megatron_fsdp_max_pool_double_buffer is a form of it",
     {0}},
    {"user buffers on a CPU",
     FSDP "--use-nccl-ub",
     "nccl_ub has no effect here: no buffer is registered with NCCL; with Megatron-FSDP it brings "
     "the double buffer",
     {0}},
    {"user buffers on a GPU",
     FSDP "--use-nccl-ub",
     "nccl_ub has no effect here: no buffer is registered with NCCL; with Megatron-FSDP it brings "
     "the double buffer",
     {.gpu_major = 9}},
    {"user buffers without FSDP",
     TOY "--nccl-ub",
     "nccl_ub has no effect here: no buffer is registered with NCCL; with Megatron-FSDP it brings "
     "the double buffer",
     {.gpu_major = 9}},
    {"windows",
     FSDP "--disable-symmetric-registration",
     "disable_symmetric_registration has no effect here: no buffer is registered with NCCL",
     {.gpu_major = 9}},
    {"registration by hand",
     FSDP "--use-nccl-ub --fsdp-manual-registration",
     "fsdp_manual_registration has no effect here: no buffer is registered with NCCL",
     {.gpu_major = 9}},
    {"meta device",
     FSDP "--init-model-with-meta-device",
     "init_model_with_meta_device has no effect here: a rank makes the weights of its own shards "
     "alone, with and without it",
     {.gpu_major = 9}},
    {"TP and FSDP",
     FSDP "--tensor-model-parallel-size 2",
     "Using tensor model parallelism or context parallelism with Megatron-FSDP together: they "
     "require different CUDA_DEVICE_MAX_CONNECTIONS settings for best performance",
     {.connections = "8"}},
    {"fp16",
     TOY "--fp16",
     "Setting check_for_nan_in_loss_and_grad to False since dynamic loss scaling is being used",
     {0}},
    {"coarse sums",
     TOY "--exact-lsb 0",
     "exact_lsb is below 24: gradients of summed losses are rounded to coarse units of "
     "2^-exact_lsb",
     {0}},
    {"no look at gradients",
     TOY "ddp.check_for_nan_in_grad=false",
     "check_for_nan_in_grad is off: a gradient that is not finite still ends the run in this loop",
     {0}},
    {"PP",
     FSDP "--pipeline-model-parallel-size 2",
     "pipeline parallelism with Megatron FSDP is an extension of this loop: no release of "
     "Megatron runs it",
     {0}},
    {"S4-25: unsharded",
     FSDP "--data-parallel-sharding-strategy no_shard",
     "data_parallel_sharding_strategy is no_shard: nothing is sharded",
     {0}},
    {"S4-25: not set",
     FSDP,
     "data_parallel_sharding_strategy is not set: optim_grads_params, as Megatron-LM has it since "
     "core 0.18, where Megatron-Bridge has no_shard",
     {0}},
    {"blocking reduce",
     FSDP "--no-overlap-grad-reduce",
     "overlap_grad_reduce is set to True: gradients are sharded",
     {0}},
    {"blocking gather",
     FSDP "--overlap-param-gather false",
     "overlap_param_gather is set to True: weights are sharded",
     {0}},
    {"S1-11",
     FSDP "--grad-reduce-in-bf16",
     "grad_reduce_in_bf16 has no effect with Megatron FSDP since core 0.17: "
     "megatron_fsdp_main_grads_dtype and megatron_fsdp_grad_comm_dtype set the dtypes",
     {0}},
    {"the old dtype",
     FSDP "--preserve-fp32-weights",
     "preserve_fp32_weights is deprecated: it is taken for megatron_fsdp_main_params_dtype",
     {0}},
    {"offloading",
     TOY "--cpu-offloading",
     "cpu_offloading has no effect here: activations stay where they are",
     {0}},
    {"fused loss",
     TOY "--cross-entropy-loss-fusion",
     "cross_entropy_loss_fusion and tp_comm_overlap have no effect here",
     {0}},
    {"experts' overlap",
     TOY "--overlap-moe-expert-parallel-comm",
     "overlap_moe_expert_parallel_comm has no effect here: tokens travel between computations",
     {0}},
    {"S0-16",
     FSDP "--keep-fp8-transpose-cache",
     "keep_fp8_transpose_cache has no effect here: there is no FP8 compute in this loop",
     {0}},
    {"S0-31",
     TOY "--enable-cuda-graph",
     "enable_cuda_graph has no effect here: there are no CUDA graphs in this loop",
     {0}},
    {"div fusion",
     FSDP "ddp.gradient_reduce_div_fusion=false",
     "gradient_reduce_div_fusion has no effect here: gradients are scaled once, behind their sum",
     {0}},
    {"experts' dispatcher",
     TOY "--moe-token-dispatcher-type alltoall",
     "moe_token_dispatcher_type has no effect here: tokens travel to their experts in one way",
     {0}},
    {"fusion off",
     TOY "--no-rope-fusion",
     "rope_fusion has no effect here: there is one way to turn queries and keys",
     {0}},
};

/* What changes nothing in a run of this kind: TOY has neither FSDP nor floating-point sums. */
static const struct {
    const char *label, *line, *knob; /* knob NULL: no notice that something has no effect */
} idle[] = {
    {"exact: main gradients", FSDP "--bf16 --megatron-fsdp-main-grads-dtype bf16",
     "megatron_fsdp_main_grads_dtype"},
    {"exact: auto", FSDP "--bf16 --megatron-fsdp-main-grads-dtype auto",
     "megatron_fsdp_main_grads_dtype"},
    {"exact: auto is fp32", FSDP "--megatron-fsdp-main-grads-dtype auto", NULL},
    {"exact: communication", FSDP "--megatron-fsdp-grad-comm-dtype bf16",
     "megatron_fsdp_grad_comm_dtype"},
    {"exact: DDP", TOY "--bf16 --grad-reduce-in-bf16", "grad_reduce_in_bf16"},
    {"native: main gradients",
     FSDP "--reduce native --bf16 --megatron-fsdp-main-grads-dtype bf16 "
          "--megatron-fsdp-grad-comm-dtype fp32",
     NULL},
    {"native: DDP", TOY "--reduce native --bf16 --grad-reduce-in-bf16", NULL},
    {"DDP: main parameters", TOY "--bf16 --megatron-fsdp-main-params-dtype auto",
     "megatron_fsdp_main_params_dtype"},
    {"DDP: main parameters, old", TOY "--bf16 --no-preserve-fp32-weights",
     "megatron_fsdp_main_params_dtype"},
    {"DDP: main gradients", TOY "--bf16 --reduce native --megatron-fsdp-main-grads-dtype bf16",
     "megatron_fsdp_main_grads_dtype"},
    {"DDP: communication", TOY "--bf16 --reduce native --megatron-fsdp-grad-comm-dtype bf16",
     "megatron_fsdp_grad_comm_dtype"},
    {"DDP: as they are added up",
     TOY "--bf16 --reduce native --grad-reduce-in-bf16 --megatron-fsdp-grad-comm-dtype bf16", NULL},
    {"DDP: strategy", TOY "--data-parallel-sharding-strategy optim_grads_params",
     "data_parallel_sharding_strategy"},
    {"DDP: double buffer", TOY "--fsdp-double-buffer", "fsdp_double_buffer"},
    {"DDP: pool", TOY "--megatron-fsdp-max-pool-double-buffer", "fsdp_double_buffer"},
    {"DDP: average", TOY "--average-in-collective", "average_in_collective"},
    {"fine-grained", FSDP "--fine-grained-param-gather", "fine_grained_param_gather"},
    {"FSDP: strategy", FSDP "--data-parallel-sharding-strategy optim --fsdp-double-buffer", NULL},
    {"DDP: what Megatron-Bridge writes of its own accord",
     TOY "ddp.data_parallel_sharding_strategy=no_shard ddp.average_in_collective=false "
         "ddp.fsdp_double_buffer=false ddp.megatron_fsdp_main_params_dtype=fp32 "
         "ddp.megatron_fsdp_enable_fine_grained_param_gather=false "
         "ddp.megatron_fsdp_max_pool_double_buffer=false",
     NULL},
    {"DDP: daily", TOY "--bf16 --use-distributed-optimizer --overlap-grad-reduce", NULL},
};

static bool has_notice(const char *text)
{
    for (size_t i = 0; i < notices.n; i++)
        if (strcmp(notices.texts[i], text) == 0)
            return true;
    return false;
}

static void A16_gives_notice(void **state)
{
    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(noticed); i++) {
        CHECK_OK(check_line(noticed[i].line, &noticed[i].around), noticed[i].label);
        if (!has_notice(noticed[i].text))
            fail_msg("%s: no notice '%s' among %zu", noticed[i].label, noticed[i].text, notices.n);
        CHECK_OK(check_line(TOY, &(struct surroundings){0}), "toy");
        CHECK(!has_notice(noticed[i].text), noticed[i].label);
    }
}

static void what_changes_nothing_is_noticed(void **state)
{
    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(idle); i++) {
        const char *knob = idle[i].knob, *first = NULL;
        size_t n = 0;

        CHECK_OK(check_line(idle[i].line, &(struct surroundings){0}), idle[i].label);
        for (size_t t = 0; t < notices.n; t++)
            if (strstr(notices.texts[t], " has no effect ") != NULL && n++ == 0)
                first = notices.texts[t];
        CHECK_EQ_INT(n, knob != NULL, idle[i].label);
        CHECK(knob == NULL || strncmp(first, knob, strlen(knob)) == 0, idle[i].label);
    }
}

/* Rules whose condition is not met: near misses of the refusals. */
static const struct {
    const char *label, *line;
    struct surroundings around;
} taken[] = {
    {"S0-18: no files, no rule of formats",
     TOY "--use-megatron-fsdp --ckpt-format torch_dist",
     {0}},
    {"FSDP, unset", FSDP, {0}},
    {"FSDP, 8 connections", FSDP, {.connections = "8"}},
    {"TP, one connection",
     TOY "--tensor-model-parallel-size 2",
     {.connections = "1", .gpu_major = 9}},
    {"TP without a GPU, unset", TOY "--tensor-model-parallel-size 2", {0}},
    {"TP on Blackwell", TOY "--tensor-model-parallel-size 2", {.gpu_major = 10}},
    {"other order without FSDP", TOY "--use-tp-pp-dp-mapping", {0}},
    {"expandable segments, no user buffers", FSDP, {.alloc_conf = "expandable_segments:True"}},
    {"segments that do not expand",
     FSDP "--use-nccl-ub",
     {.alloc_conf = "expandable_segments:False"}},
    {"HFSDP",
     FSDP "--num-distributed-optimizer-instances 2 --outer-dp-sharding-strategy optim",
     {0}},
    {"hashes of replicas",
     FSDP
     "--check-weight-hash-across-dp-replicas-interval 10 --data-parallel-sharding-strategy optim",
     {0}},
    {"sgd", FSDP "--optimizer sgd", {0}},
    {"deterministic",
     TOY "--deterministic-mode",
     {.nccl_algo = "CollnetDirect,^NVLS", .te_algo = "0", .cublas_config = ":16:8"}},
    {"not deterministic", TOY, {.nccl_algo = "Tree", .te_algo = "1", .cublas_config = ":8:8"}},
    {"asynchronous", SAVED "--async-save", {0}},
    {"a leaf is a sample", TOY "--leaf-tokens 32", {0}},
    {"zarr", TOY "--save OUT --ckpt-format zarr", {0}},
    {"S0-08: save without interval", SAVED, {0}},
};

static void A16_takes(void **state)
{
    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(taken); i++)
        CHECK_OK(check_line(taken[i].line, &taken[i].around), taken[i].label);
}

/* The documents' own override, checkpoint.load=None, in each spelling: as if it were not given. */
static void S0_08_none_is_not_a_path(void **state)
{
    static const char *const lines[] = {
        TOY "--load elsewhere checkpoint.load=None", TOY "--load elsewhere checkpoint.load=null",
        TOY "--load elsewhere --load None", TOY "--load None", TOY "--num-query-groups None"};

    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(lines); i++) {
        CHECK_OK(check_line(lines[i], &(struct surroundings){0}), lines[i]);
        CHECK(knobs.config.files.load == NULL, lines[i]);
    }
    CHECK_OK(check_line(TOY "--load ./None", &(struct surroundings){0}), "a folder of that name");
    CHECK_EQ_STR(knobs.config.files.load, "./None", "a folder of that name");
}

/* ---- what is adjusted ---- */

static void A16_adjusts(void **state)
{
    const struct dcpk_train_config *c = &knobs.config;

    (void)state;
    CHECK_OK(check_line(FSDP "--average-in-collective --no-overlap-grad-reduce --use-nccl-ub",
                        &(struct surroundings){0}),
             "FSDP");
    CHECK(!c->fsdp.averages_in_collective, "averages_in_collective");
    CHECK(!knobs.fuses_accumulation, "fuses_accumulation");
    CHECK(c->fsdp.has_distributed_optimizer, "has_distributed_optimizer");
    CHECK(c->fsdp.overlaps_reduce && c->fsdp.overlaps_gather, "overlap");
    CHECK(c->fsdp.has_double_buffer && knobs.registers_by_hand, "user buffers");
    CHECK_OK(check_line(TOY "--average-in-collective", &(struct surroundings){0}), "DDP");
    CHECK(c->fsdp.averages_in_collective, "of DDP");
}

/* Megatron's flag and its two places in a configuration ask for the same run. */
static void S4_07_spellings_are_one(void **state)
{
    static const char *const lines[] = {
        FSDP,
        TOY "--ckpt-format fsdp_dtensor --use_megatron_fsdp true",
        TOY "checkpoint.ckpt_format=fsdp_dtensor dist.use_megatron_fsdp=True",
        TOY "checkpoint.ckpt_format=fsdp_dtensor ddp.use_megatron_fsdp=true",
        TOY "--ckpt-format fsdp_dtensor --use-custom-fsdp",
    };
    struct dcpk_train_config first;

    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(lines); i++) {
        CHECK_OK(check_line(lines[i], &(struct surroundings){0}), lines[i]);
        if (i == 0)
            first = knobs.config;
        CHECK_EQ_INT(knobs.config.fsdp.mode, DCPK_MODE_MEGATRON_FSDP, lines[i]);
        CHECK_EQ_INT(knobs.config.fsdp.strategy, first.fsdp.strategy, lines[i]);
        CHECK_EQ_INT(knobs.config.fsdp.overlaps_reduce, first.fsdp.overlaps_reduce, lines[i]);
        CHECK_EQ_INT(knobs.config.precision.main_grads, first.precision.main_grads, lines[i]);
        CHECK(knobs.config.fsdp.has_distributed_optimizer, lines[i]);
    }
}

/* The sets of the user guide, word by word. */
static void S1_03_required_set(void **state)
{
    (void)state;
    CHECK_OK(check_line(TOY
                        "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params "
                        "--no-gradient-accumulation-fusion --use-distributed-optimizer "
                        "--ckpt-format fsdp_dtensor",
                        &(struct surroundings){0}),
             "required");
    CHECK_EQ_INT(notices.n, 0, "required: notices");
    CHECK_EQ_INT(knobs.config.fsdp.mode, DCPK_MODE_MEGATRON_FSDP, "mode");
    CHECK_EQ_INT(knobs.config.fsdp.strategy, DCPK_OPTIM_GRADS_PARAMS, "strategy");
}

static void S1_09_recommended_set(void **state)
{
    const struct dcpk_train_config *c = &knobs.config;

    (void)state;
    CHECK_OK(check_line(FSDP "--calculate-per-token-loss --init-model-with-meta-device "
                             "--grad-reduce-in-bf16 --fsdp-double-buffer --use-nccl-ub",
                        &(struct surroundings){.gpu_major = 9}),
             "recommended");
    CHECK(c->precision.is_per_token_loss && knobs.asks_meta_init, "loss and initialization");
    CHECK(c->fsdp.has_double_buffer && knobs.has_nccl_ub, "buffers");
}

/* compute, main weights, main gradients, communication. */
static const struct {
    const char *line;
    enum dcpk_dtype dtypes[4];
} precisions[] = {
    {FSDP, {DCPK_F32, DCPK_F32, DCPK_F32, DCPK_F32}},
    {FSDP "--bf16", {DCPK_BF16, DCPK_F32, DCPK_F32, DCPK_F32}},
    {FSDP "--bf16 --reduce native --megatron-fsdp-main-grads-dtype auto",
     {DCPK_BF16, DCPK_F32, DCPK_BF16, DCPK_BF16}},
    {FSDP "--bf16 --reduce native --megatron-fsdp-main-params-dtype auto "
          "--megatron-fsdp-grad-comm-dtype bf16",
     {DCPK_BF16, DCPK_BF16, DCPK_F32, DCPK_BF16}},
    {FSDP "--bf16 --megatron-fsdp-main-params-dtype auto --megatron-fsdp-main-grads-dtype auto "
          "--megatron-fsdp-grad-comm-dtype bf16",
     {DCPK_BF16, DCPK_BF16, DCPK_F32, DCPK_F32}},
    {FSDP "--fp16", {DCPK_F16, DCPK_F32, DCPK_F32, DCPK_F32}},
    {FSDP "--bf16 --no-preserve-fp32-weights", {DCPK_BF16, DCPK_BF16, DCPK_F32, DCPK_F32}},
    {FSDP "--bf16 --grad-reduce-in-bf16", {DCPK_BF16, DCPK_F32, DCPK_F32, DCPK_F32}},
    {TOY "--bf16 --reduce native --grad-reduce-in-bf16",
     {DCPK_BF16, DCPK_F32, DCPK_BF16, DCPK_BF16}},
    {TOY "--bf16 --grad-reduce-in-bf16", {DCPK_BF16, DCPK_F32, DCPK_F32, DCPK_F32}},
    {TOY "--bf16 --reduce native --megatron-fsdp-grad-comm-dtype bf16",
     {DCPK_BF16, DCPK_F32, DCPK_F32, DCPK_F32}},
    {TOY "--bf16", {DCPK_BF16, DCPK_F32, DCPK_F32, DCPK_F32}},
};

static void resolves_dtypes(void **state)
{
    const struct dcpk_train_precision *p = &knobs.config.precision;

    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(precisions); i++) {
        const char *label = precisions[i].line + sizeof TOY - 1;

        CHECK_OK(check_line(precisions[i].line, &(struct surroundings){0}), label);
        CHECK_EQ_INT(p->compute, precisions[i].dtypes[0], label);
        CHECK_EQ_INT(p->main_params, precisions[i].dtypes[1], label);
        CHECK_EQ_INT(p->main_grads, precisions[i].dtypes[2], label);
        CHECK_EQ_INT(p->comm, precisions[i].dtypes[3], label);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(A16_gives_notice),
        cmocka_unit_test(A16_takes),
        cmocka_unit_test(S0_08_none_is_not_a_path),
        cmocka_unit_test(what_changes_nothing_is_noticed),
        cmocka_unit_test(A16_adjusts),
        cmocka_unit_test(S4_07_spellings_are_one),
        cmocka_unit_test(S1_03_required_set),
        cmocka_unit_test(S1_09_recommended_set),
        cmocka_unit_test(resolves_dtypes),
    };

    return cmocka_run_group_tests(tests, knobs_set_up, knobs_tear_down);
}
