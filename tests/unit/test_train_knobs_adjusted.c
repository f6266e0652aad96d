/* SPDX-License-Identifier: Apache-2.0 */
/* test_train_knobs_adjusted.c - what a run may ask for, what is adjusted, and the notices. A16. */
#include "lib/base/json.h"
#include "lib/base/text.h"
#include "tests/unit/knobs_case.h"

/* ---- A, S, N, I: taken, with a notice ---- */

/* A rule by its id, or a knob without effect by its name. */
static const struct {
    const char *label, *line, *id;
} noticed[] = {
    {"the old name", TOY "--use-custom-fsdp", "old-name"},
    {"S4-07: in dist alone", TOY "dist.use_megatron_fsdp=true", "one-section"},
    {"S4-07: in ddp alone", TOY "ddp.use_megatron_fsdp=true", "one-section"},
    {"S1-06", FSDP, "distributed-optimizer"},
    {"S4-17", FSDP "--average-in-collective", "fsdp-average"},
    {"S4-18", FSDP, "fusion"},
    {"S4-19", FSDP "ddp.reuse_grad_buf_for_mxfp8_param_ag=true", "ddp-reuse"},
    {"S4-20", FSDP "optimizer.reuse_grad_buf_for_mxfp8_param_ag=true", "optimizer-reuse"},
    {"S1-14", FSDP "--use-nccl-ub", "user-buffers"},
    {"HSDP with experts",
     FSDP "--num-distributed-optimizer-instances 2 --num-experts 4 --expert-model-parallel-size 2",
     "outer-experts"},
    {"max pool", FSDP "--megatron-fsdp-max-pool-double-buffer", "max-pool"},
    {"S1-17: user buffers on a CPU", FSDP "--use-nccl-ub", "no-gpu-buffers"},
    {"S1-17: of DDP", TOY "--nccl-ub", "no-gpu-buffers"},
    {"S1-19: no windows of nothing", FSDP "--disable-symmetric-registration", "lone-registration"},
    {"meta device", "GPU=9 " FSDP "--init-model-with-meta-device", "init_model_with_meta_device"},
    {"TP and FSDP", "CUDA_DEVICE_MAX_CONNECTIONS=8 " FSDP "--tensor-model-parallel-size 2",
     "two-wishes"},
    {"fp16", TOY "--fp16", "nan-check"},
    {"coarse sums", TOY "--exact-lsb 0", "coarse-sums"},
    {"no look at gradients", TOY "ddp.check_for_nan_in_grad=false", "unchecked"},
    {"PP", FSDP "--pipeline-model-parallel-size 2", "fsdp-pp"},
    {"S4-25: unsharded", FSDP "--data-parallel-sharding-strategy no_shard", "unsharded"},
    {"S4-25: not set", FSDP, "default-strategy"},
    {"blocking reduce", FSDP "--no-overlap-grad-reduce", "blocking-reduce"},
    {"blocking gather", FSDP "--overlap-param-gather false", "blocking-gather"},
    {"S1-11", FSDP "--grad-reduce-in-bf16", "bf16-reduce"},
    {"the old dtype", FSDP "--preserve-fp32-weights", "old-dtype"},
    {"offloading", TOY "--cpu-offloading", "offload"},
    {"fused loss", TOY "--cross-entropy-loss-fusion", "fused-loss"},
    {"experts' overlap", TOY "--overlap-moe-expert-parallel-comm", "experts-overlap"},
    {"S0-16", FSDP "--keep-fp8-transpose-cache", "keep_fp8_transpose_cache"},
    {"S0-31", TOY "--enable-cuda-graph", "enable_cuda_graph"},
    {"div fusion", FSDP "ddp.gradient_reduce_div_fusion=false", "gradient_reduce_div_fusion"},
    {"experts' dispatcher", TOY "--moe-token-dispatcher-type alltoall",
     "moe_token_dispatcher_type"},
    {"fusion off", TOY "--no-rope-fusion", "rope_fusion"},
    {"args of a checkpoint", TOY "--use-checkpoint-args", "saved-args"},
};

/* What changes nothing in a run of this kind: TOY has neither FSDP nor floating-point sums. */
static const struct {
    const char *label, *line, *id; /* id NULL: no notice that something has no effect */
} idle[] = {
    {"exact: main gradients", FSDP "--bf16 --megatron-fsdp-main-grads-dtype bf16",
     "exact-main-grads"},
    {"exact: auto", FSDP "--bf16 --megatron-fsdp-main-grads-dtype auto", "exact-main-grads"},
    {"exact: auto is fp32", FSDP "--megatron-fsdp-main-grads-dtype auto", NULL},
    {"exact: communication", FSDP "--megatron-fsdp-grad-comm-dtype bf16", "exact-comm"},
    {"exact: DDP", TOY "--bf16 --grad-reduce-in-bf16", "exact-bf16"},
    {"native: main gradients",
     FSDP "--reduce native --bf16 --megatron-fsdp-main-grads-dtype bf16 "
          "--megatron-fsdp-grad-comm-dtype fp32",
     NULL},
    {"native: DDP", TOY "--reduce native --bf16 --grad-reduce-in-bf16", NULL},
    {"DDP: main parameters", TOY "--bf16 --megatron-fsdp-main-params-dtype auto",
     "main-params-alone"},
    {"DDP: main parameters, old", TOY "--bf16 --no-preserve-fp32-weights", "main-params-alone"},
    {"DDP: main gradients", TOY "--bf16 --reduce native --megatron-fsdp-main-grads-dtype bf16",
     "main-grads-alone"},
    {"DDP: communication", TOY "--bf16 --reduce native --megatron-fsdp-grad-comm-dtype bf16",
     "comm-alone"},
    {"DDP: as they are added up",
     TOY "--bf16 --reduce native --grad-reduce-in-bf16 --megatron-fsdp-grad-comm-dtype bf16", NULL},
    {"DDP: strategy", TOY "--data-parallel-sharding-strategy optim_grads_params", "lone-strategy"},
    {"DDP: double buffer", TOY "--fsdp-double-buffer", "lone-buffer"},
    {"DDP: pool", TOY "--megatron-fsdp-max-pool-double-buffer", "lone-buffer"},
    {"DDP: average", TOY "--average-in-collective", "average"},
    {"S1-17: user buffers on a CPU", TOY "--use-nccl-ub", "no-gpu-buffers"},
    {"S1-17: user buffers on a GPU", "GPU=9 " FSDP "--use-nccl-ub", NULL},
    {"S1-17: of DDP", "GPU=9 " TOY "--nccl-ub", NULL},
    {"S1-19: without windows", "GPU=9 " FSDP "--use-nccl-ub --disable-symmetric-registration",
     NULL},
    {"fine-grained", FSDP "--fine-grained-param-gather", "fine-grained"},
    {"FSDP: strategy", FSDP "--data-parallel-sharding-strategy optim --fsdp-double-buffer", NULL},
    {"DDP: what Megatron-Bridge writes of its own accord",
     TOY "ddp.data_parallel_sharding_strategy=no_shard ddp.average_in_collective=false "
         "ddp.fsdp_double_buffer=false ddp.megatron_fsdp_main_params_dtype=fp32 "
         "ddp.megatron_fsdp_enable_fine_grained_param_gather=false "
         "ddp.megatron_fsdp_max_pool_double_buffer=false",
     NULL},
    {"DDP: daily", TOY "--bf16 --use-distributed-optimizer --overlap-grad-reduce", NULL},
};

/* The notice of a rule, or of a knob without effect; NULL: there is none. */
static const char *notice_of(const char *id)
{
    const struct dcpk_knob_rule *rule = reach_rule(id);
    const size_t n = strlen(id);

    for (size_t i = 0; i < notices.n; i++) {
        const char *text = notices.texts[i];

        if (rule != NULL && is_of_rule(text, rule))
            return text;
        if (rule == NULL && strncmp(text, id, n) == 0 &&
            dcpk_starts_with(text + n, " has no effect here: "))
            return text;
    }
    return NULL;
}

static void A16_gives_notice(void **state)
{
    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(noticed); i++) {
        CHECK_OK(check_line(noticed[i].line), noticed[i].label);
        if (notice_of(noticed[i].id) == NULL)
            fail_msg("%s: no notice of %s among %zu", noticed[i].label, noticed[i].id, notices.n);
        CHECK_OK(check_line(TOY), "toy");
        CHECK(notice_of(noticed[i].id) == NULL, noticed[i].label);
    }
}

static void what_changes_nothing_is_noticed(void **state)
{
    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(idle); i++) {
        size_t n = 0;

        CHECK_OK(check_line(idle[i].line), idle[i].label);
        for (size_t t = 0; t < notices.n; t++)
            n += strstr(notices.texts[t], " has no effect ") != NULL;
        CHECK_EQ_INT(n, idle[i].id != NULL, idle[i].label);
        CHECK(idle[i].id == NULL || notice_of(idle[i].id) != NULL, idle[i].label);
    }
}

/* Sections and names that no row has. */
static void A16_names_what_it_does_not_read(void **state)
{
    const struct dcpk_train_environment environment = {.n_ranks = 1};
    const char *text = "{\"profiling\": {\"use\": true}, \"model\": {\"fp8\": null}}";
    const struct dcpk_value *value;
    struct dcpk_json *doc;

    (void)state;
    CHECK_OK(check_line(TOY), "toy");
    CHECK_OK(dcpk_json_parse(text, strlen(text), &doc, &err), "JSON");
    value = dcpk_value_from_json(arena, doc, &err);
    dcpk_json_free(doc);
    CHECK_OK(dcpk_train_knobs_take_config(&knobs, value, &err), "configuration");
    notices.n = 0;
    CHECK_OK(dcpk_train_knobs_check(&knobs, &environment, &notices, &err), "configuration");
    CHECK_EQ_STR(notice_of("unread"), "not read from the configuration: profiling, model.fp8",
                 "unread");
}

/* After the tests above. */
static void every_notice_is_reached(void **state)
{
    (void)state;
    check_all_reached(false);
}

/* Rules whose condition is not met: near misses of the refusals. */
static const struct {
    const char *label, *line;
} taken[] = {
    {"S0-18: no files, no rule of formats", TOY "--use-megatron-fsdp --ckpt-format torch_dist"},
    {"FSDP, unset", FSDP},
    {"FSDP, 8 connections", "CUDA_DEVICE_MAX_CONNECTIONS=8 " FSDP},
    {"TP, one connection",
     "CUDA_DEVICE_MAX_CONNECTIONS=1 GPU=9 " TOY "--tensor-model-parallel-size 2"},
    {"TP without a GPU, unset", TOY "--tensor-model-parallel-size 2"},
    {"TP on Blackwell", "GPU=10 " TOY "--tensor-model-parallel-size 2"},
    {"other order without FSDP", TOY "--use-tp-pp-dp-mapping"},
    {"expandable segments, no user buffers",
     "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True " FSDP},
    {"segments that do not expand",
     "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False " FSDP "--use-nccl-ub"},
    {"HFSDP", FSDP "--num-distributed-optimizer-instances 2 --outer-dp-sharding-strategy optim"},
    {"hashes of replicas", FSDP
     "--check-weight-hash-across-dp-replicas-interval 10 --data-parallel-sharding-strategy optim"},
    {"sgd", FSDP "--optimizer sgd"},
    {"deterministic", "NCCL_ALGO=CollnetDirect,^NVLS NVTE_ALLOW_NONDETERMINISTIC_ALGO=0 "
                      "CUBLAS_WORKSPACE_CONFIG=:16:8 " TOY "--deterministic-mode"},
    {"not deterministic",
     "NCCL_ALGO=Tree NVTE_ALLOW_NONDETERMINISTIC_ALGO=1 CUBLAS_WORKSPACE_CONFIG=:8:8 " TOY},
    {"asynchronous", SAVED "--async-save"},
    {"a leaf is a sample", TOY "--leaf-tokens 32"},
    {"zarr", TOY "--save OUT --ckpt-format zarr"},
    {"S0-08: save without interval", SAVED},
};

static void A16_takes(void **state)
{
    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(taken); i++)
        CHECK_OK(check_line(taken[i].line), taken[i].label);
}

/* The documents' own override, checkpoint.load=None, in each spelling: as if it were not given. */
static void S0_08_none_is_not_a_path(void **state)
{
    static const char *const lines[] = {
        TOY "--load elsewhere checkpoint.load=None", TOY "--load elsewhere checkpoint.load=null",
        TOY "--load elsewhere --load None", TOY "--load None", TOY "--num-query-groups None"};

    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(lines); i++) {
        CHECK_OK(check_line(lines[i]), lines[i]);
        CHECK(knobs.config.files.load == NULL, lines[i]);
    }
    CHECK_OK(check_line(TOY "--load ./None"), "a folder of that name");
    CHECK_EQ_STR(knobs.config.files.load, "./None", "a folder of that name");
}

/* ---- what is adjusted ---- */

static void A16_adjusts(void **state)
{
    const struct dcpk_train_config *c = &knobs.config;

    (void)state;
    CHECK_OK(check_line(FSDP "--average-in-collective --no-overlap-grad-reduce --use-nccl-ub"),
             "FSDP");
    CHECK(!c->fsdp.averages_in_collective, "averages_in_collective");
    CHECK(!knobs.fuses_accumulation, "fuses_accumulation");
    CHECK(c->fsdp.has_distributed_optimizer, "has_distributed_optimizer");
    CHECK(c->fsdp.overlaps_reduce && c->fsdp.overlaps_gather, "overlap");
    CHECK(c->fsdp.has_double_buffer && c->fsdp.registers_by_hand, "user buffers");
    CHECK(c->fsdp.has_user_buffers && !c->fsdp.has_local_registration, "windows");
    CHECK_OK(check_line(TOY "--average-in-collective"), "DDP");
    CHECK(c->fsdp.averages_in_collective, "of DDP");
    CHECK_OK(check_line(TOY "--nccl-ub --disable-symmetric-registration"), "DDP");
    CHECK(c->fsdp.has_user_buffers && c->fsdp.has_local_registration, "user buffers of DDP");
    CHECK(!c->fsdp.registers_by_hand && !c->fsdp.has_double_buffer, "registered when made");
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
        CHECK_OK(check_line(lines[i]), lines[i]);
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
                        "--ckpt-format fsdp_dtensor"),
             "required");
    CHECK_EQ_INT(notices.n, 0, "required: notices");
    CHECK_EQ_INT(knobs.config.fsdp.mode, DCPK_MODE_MEGATRON_FSDP, "mode");
    CHECK_EQ_INT(knobs.config.fsdp.strategy, DCPK_OPTIM_GRADS_PARAMS, "strategy");
}

static void S1_09_recommended_set(void **state)
{
    const struct dcpk_train_config *c = &knobs.config;

    (void)state;
    CHECK_OK(check_line("GPU=9 " FSDP "--calculate-per-token-loss --init-model-with-meta-device "
                        "--grad-reduce-in-bf16 --fsdp-double-buffer --use-nccl-ub"),
             "recommended");
    CHECK(c->precision.is_per_token_loss && knobs.asks_meta_init, "loss and initialization");
    CHECK(c->fsdp.has_double_buffer && c->fsdp.has_user_buffers, "buffers");
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

        CHECK_OK(check_line(precisions[i].line), label);
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
        cmocka_unit_test(A16_names_what_it_does_not_read),
        cmocka_unit_test(every_notice_is_reached),
        cmocka_unit_test(A16_adjusts),
        cmocka_unit_test(S4_07_spellings_are_one),
        cmocka_unit_test(S1_03_required_set),
        cmocka_unit_test(S1_09_recommended_set),
        cmocka_unit_test(resolves_dtypes),
    };

    return cmocka_run_group_tests(tests, knobs_set_up, knobs_tear_down);
}
