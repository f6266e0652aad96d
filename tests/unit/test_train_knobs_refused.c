/* SPDX-License-Identifier: Apache-2.0 */
/* test_train_knobs_refused.c - what a run is refused for: every rule by its id, sizes and schedules
 * by a part of their sentence. A16. */
/*
 * S0 to S4 are the documents that describe Megatron-FSDP (skill, user guide, overview, pull request
 * 2397, Bridge guide); E1 to E6 the errors that they quote. tests/train/COVERAGE.md has the rows of
 * their statements.
 */
#include "lib/base/text.h"
#include "tests/unit/knobs_case.h"

/* The errors that the documents quote, with what mends them. */
static const char *const quoted[][2] = {
    {FSDP "--use-torch-fsdp2",
     "Using use_megatron_fsdp and use_torch_fsdp2 at the same time is not supported; choose one "
     "FSDP implementation: either Megatron FSDP or Torch FSDP2"},
    {FSDP "--save OUT --ckpt-format torch_dist",
     "Megatron FSDP only supports fsdp_dtensor checkpoint format; set "
     "checkpoint.ckpt_format=\"fsdp_dtensor\": other formats are not compatible with FSDP's "
     "sharded layout"},
    {TOY "--ckpt-format fsdp_dtensor --save OUT",
     "fsdp_dtensor checkpoint format only supports Megatron FSDP; set use_megatron_fsdp, or "
     "checkpoint.ckpt_format=\"torch_dist\""},
    {FSDP "--use-tp-pp-dp-mapping",
     "use_tp_pp_dp_mapping is not supported with Megatron FSDP; remove use_tp_pp_dp_mapping=True: "
     "FSDP requires standard rank initialization order"},
    {"CUDA_DEVICE_MAX_CONNECTIONS=1 " FSDP,
     "FSDP always requires CUDA_DEVICE_MAX_CONNECTIONS value large than one; unset "
     "CUDA_DEVICE_MAX_CONNECTIONS, so that communication and computation overlap"},
    {FSDP "--fsdp-manual-registration",
     "FSDP manual registration is only supported with nccl-ub option; set nccl_ub, or leave "
     "fsdp_manual_registration out"},
};

static void E1_to_E6_are_quoted(void **state)
{
    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(quoted); i++) {
        CHECK_EQ_INT(check_line(quoted[i][0]), DCPK_EUSAGE, quoted[i][0]);
        CHECK_EQ_STR(err.text, quoted[i][1], quoted[i][0]);
    }
}

/* ---- rules, by their ids ---- */

static const struct {
    const char *label, *line, *id;
} refused[] = {
    {"E1, S0-11, S4-41", FSDP "--use-torch-fsdp2", "both-fsdps"},
    {"E1 by the old name", TOY "--use-custom-fsdp --use-torch-fsdp2", "both-fsdps"},
    {"E2, S4-40: torch_dist", TOY "--use-megatron-fsdp --save OUT --ckpt-format torch_dist",
     "fsdp-format"},
    {"E2, S2-20: zarr", TOY "--use-megatron-fsdp --load IN --ckpt-format zarr", "fsdp-format"},
    {"E3", TOY "--ckpt-format fsdp_dtensor --save OUT", "format"},
    {"E4, S0-12, S4-39", FSDP "--use-tp-pp-dp-mapping", "mapping"},
    {"E5, S1-08", "CUDA_DEVICE_MAX_CONNECTIONS=1 " FSDP, "connections"},
    {"E6", FSDP "--fsdp-manual-registration", "registration"},
    {"E6 without FSDP", TOY "--fsdp-manual-registration --use-nccl-ub", "registration-alone"},
    {"version 2", FSDP "--megatron-fsdp-version 2", "version"},
    {"losses of balance", TOY "--moe-aux-loss-coeff 1e-2", "aux-loss"},
    {"sinkhorn", TOY "--moe-router-load-balancing-type sinkhorn", "sinkhorn"},
    {"unknown strategy", FSDP "--data-parallel-sharding-strategy optim_params", "strategy"},
    {"HFSDP",
     FSDP "--num-distributed-optimizer-instances 2 --outer-dp-sharding-strategy optim "
          "--data-parallel-sharding-strategy optim_grads",
     "hfsdp"},
    {"grouped weight", FSDP "--moe-single-grouped-weight", "fsdp-grouped"},
    {"grouped bias", FSDP "--moe-single-grouped-bias", "fsdp-grouped"},
    {"grouped bias without FSDP", TOY "--moe-single-grouped-bias", "grouped"},
    {"optimizer", FSDP "--optimizer muon", "fsdp-optimizer"},
    {"optimizer without FSDP", TOY "--optimizer muon", "optimizer"},
    {"S0-33", FSDP "--hybrid-context-parallel", "fsdp-hybrid-cp"},
    {"hybrid CP without FSDP", TOY "--hybrid-context-parallel", "hybrid-cp"},
    {"hashes of replicas", FSDP "--check-weight-hash-across-dp-replicas-interval 10",
     "weight-hash"},
    {"meta device", FSDP "--init-model-with-meta-device --data-parallel-sharding-strategy no_shard",
     "meta-init"},
    {"S1-20",
     "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:64,expandable_segments:True " FSDP "--use-nccl-ub",
     "segments"},
    {"the other name", "PYTORCH_ALLOC_CONF=expandable_segments:True " FSDP "--use-nccl-ub",
     "any-segments"},
    {"S0-32", FSDP "--overlap-moe-expert-parallel-comm --fsdp-double-buffer", "expert-overlap"},
    {"S0-20: pipeline", TOY "--cpu-offloading --pipeline-model-parallel-size 2", "offload-pp"},
    {"S0-20: recomputation", TOY "--cpu-offloading --recompute-granularity full",
     "offload-recompute"},
    {"Hugging Face", SAVED "--also-save-hf-checkpoint", "fsdp-hf"},
    {"Hugging Face without FSDP", TOY "--also-save-hf-checkpoint", "hf"},
    {"asynchronous zarr", TOY "--save OUT --ckpt-format zarr --async-save", "async"},
    {"gather alone", TOY "--overlap-param-gather", "gather-alone"},
    {"gather without reduce", TOY "--overlap-param-gather --use-distributed-optimizer",
     "gather-unreduced"},
    /* FSDP2's rules, then that it is refused. */
    {"S0-10, S4-30: FSDP2 and PP", FSDP2 "--pipeline-model-parallel-size 2", "fsdp2-pp"},
    {"FSDP2 and EP", FSDP2 "--expert-model-parallel-size 2 --num-experts 4", "fsdp2-ep"},
    {"FSDP2 and distributed optimizer", FSDP2 "--use-distributed-optimizer", "fsdp2-optimizer"},
    {"FSDP2 and fusion", TOY "--use-torch-fsdp2", "fsdp2-fusion"},
    {"FSDP2 and zarr", FSDP2 "--ckpt-format zarr", "fsdp2-format"},
    {"FSDP2, tied", FSDP2, "fsdp2-tied"},
    {"FSDP2 and fp16", FSDP2 "--untie-embeddings-and-output-weights --fp16", "fsdp2-fp16"},
    {"FSDP2, one connection",
     "CUDA_DEVICE_MAX_CONNECTIONS=1 " FSDP2 "--untie-embeddings-and-output-weights",
     "fsdp2-connections"},
    {"S0-19, S4-29: FSDP2", FSDP2 "--untie-embeddings-and-output-weights", "fsdp2"},
    /* The environment: layouts that share layers need one connection, but not on Blackwell. */
    {"TP, unset", "GPU=9 " TOY "--tensor-model-parallel-size 2", "many-connections"},
    {"CP, 8 connections", "CUDA_DEVICE_MAX_CONNECTIONS=8 GPU=9 " TOY "--context-parallel-size 2",
     "many-connections"},
    {"TP and FSDP, one connection",
     "CUDA_DEVICE_MAX_CONNECTIONS=1 " FSDP "--tensor-model-parallel-size 2", "connections"},
    {"deterministic: loss", TOY "--deterministic-mode --cross-entropy-loss-fusion",
     "deterministic-loss"},
    {"deterministic: overlap", TOY "--deterministic-mode --tp-comm-overlap",
     "deterministic-overlap"},
    {"deterministic: NCCL", "NCCL_ALGO=Ring,Tree " TOY "--deterministic-mode",
     "deterministic-nccl"},
    {"deterministic: no NCCL algorithm", "NCCL_ALGO= " TOY "--deterministic-mode",
     "deterministic-nccl"},
    {"deterministic: Transformer Engine",
     "NVTE_ALLOW_NONDETERMINISTIC_ALGO=1 " TOY "--deterministic-mode", "deterministic-te"},
    {"deterministic: cuBLAS", "CUBLAS_WORKSPACE_CONFIG=:8:8 " TOY "--deterministic-mode",
     "deterministic-cublas"},
    {"zarr of an old release", TOY "--save x --ckpt-format zarr --generation A", "zarr-generation"},
    {"zarr of generation B", TOY "--save x --ckpt-format zarr --generation B", "zarr-generation"},
    {"expert bias", TOY "--num-experts 4 --moe-router-enable-expert-bias", "expert-bias"},
    {"one expert of a softmax", TOY "--num-experts 4 --moe-router-topk 1", "one-expert"},
    /* What the loop does not model. */
    {"LayerNorm", TOY "--normalization LayerNorm", "norms"},
    {"positions", TOY "--position-embedding-type learned_absolute", "positions"},
    {"plain MLP", TOY "--no-swiglu", "mlp"},
    {"biases", TOY "--add-bias-linear", "biases"},
    {"plain MLP of a checkpoint", TOY "--no-swiglu --use-checkpoint-args", "saved-model"},
    {"biases of a checkpoint", TOY "--add-bias-linear --use-checkpoint-args", "saved-model"},
    {"main parameters of no dtype of the model", FSDP "--megatron-fsdp-main-params-dtype bf16",
     "main-params"},
    {"main parameters of another dtype", FSDP "--bf16 --megatron-fsdp-main-params-dtype fp16",
     "main-params"},
    {"dropout", TOY "--hidden-dropout 0.1", "dropout"},
    {"dropout of attention", TOY "--attention-dropout 0.1", "dropout"},
    {"expert TP", TOY "--expert-tensor-parallel-size 2", "expert-tp"},
    {"selective", TOY "--recompute-granularity selective", "selective"},
    {"torch", TOY "--save OUT --ckpt-format torch", "torch"},
    {"generation A in buckets",
     TOY "--save OUT --use-distributed-optimizer --generation A --optimizer-layout dp_reshardable",
     "old-generation"},
    {"generation A for every layout",
     TOY
     "--save OUT --use-distributed-optimizer --generation A --dist-ckpt-optim-fully-reshardable",
     "old-generation"},
    {"flattened, of GroupedMLP",
     TOY "--save OUT --use-distributed-optimizer --generation A --num-experts 4 --moe-grouped-gemm "
         "--transformer-impl local",
     "old-experts"},
    {"flattened, of a later generation",
     TOY "--save OUT --use-distributed-optimizer --optimizer-layout flattened", "flattened"},
    {"two dtypes", TOY "--bf16 --fp16", "two-dtypes"},
};

static void A16_rules_refuse(void **state)
{
    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(refused); i++) {
        const struct dcpk_knob_rule *rule = reach_rule(refused[i].id);

        CHECK(rule != NULL && rule->remedy != NULL, refused[i].id);
        CHECK_EQ_INT(check_line(refused[i].line), DCPK_EUSAGE, refused[i].label);
        if (!is_of_rule(err.text, rule) || !dcpk_ends_with(err.text, rule->remedy))
            fail_msg("%s: '%s' is not of the rule %s", refused[i].label, err.text, rule->id);
    }
    check_all_reached(true);
}

/* "{}" in a sentence is the value that a rule names. */
static void values_stand_in_sentences(void **state)
{
    static const char *const lines[][2] = {
        {FSDP "--optimizer muon", "support the muon optimizer yet."},
        {TOY "--no-swiglu --use-checkpoint-args", "lacks: an MLP that is not gated is not"},
        {"NCCL_ALGO=Ring,Tree " TOY "--deterministic-mode", "NCCL_ALGO='Ring,Tree': each"},
    };

    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(lines); i++)
        CHECK_FAILS(check_line(lines[i][0]), DCPK_EUSAGE, lines[i][1], lines[i][0]);
}

/* ---- sizes and schedules ---- */

static const struct {
    const char *label, *line, *text;
} faults[] = {
    {"queries", TOY "--num-attention-heads 2147483646 --kv-channels 1099511627776",
     "elements of a layer's queries: more than 24019198012642645;"},
    {"parameters", TOY "--ffn-hidden-size 1099511627776 --num-layers 2147483647",
     "elements of all parameters: more than 72057594037927936;"},
    {"activations", TOY "--seq-length 2147483646 --micro-batch-size 2147483647",
     "activations of a micro batch: more than"},
    {"samples", TOY "--train-iters 1099511627776 --global-batch-size 1099511627776",
     "samples of the run: more than 9007199254740992;"},
    {"decay", TOY "--lr-decay-iters 1099511627776 --global-batch-size 1073741824",
     "samples of the decay: more"},
    {"world", TOY "--tensor-model-parallel-size 3",
     "world size (8) is not divisible by total_model_size (total_model_size=3)"},
    {"world that overflows",
     TOY "--tensor-model-parallel-size 2147483647 --pipeline-model-parallel-size 2147483647 "
         "--context-parallel-size 2147483647",
     "world size (8) is not divisible"},
    {"batch", TOY "--global-batch-size 12 --micro-batch-size 2", "a multiple of 16"},
    {"stages", TOY "--pipeline-model-parallel-size 8", "; 4 layers do not make 8"},
    {"heads", TOY "--tensor-model-parallel-size 8",
     "num_attention_heads (4) must be a multiple of tensor_model_parallel_size (8)."},
    {"groups", TOY "--num-query-groups 2 --tensor-model-parallel-size 4",
     "num_query_groups (2) must"},
    {"groups of heads", TOY "--num-query-groups 3", "multiple of num_query_groups (3)."},
    {"width", TOY "--ffn-hidden-size 97 --tensor-model-parallel-size 2",
     "ffn_hidden_size (97) must"},
    {"slices", TOY "--virtual-slices 3 --tensor-model-parallel-size 2",
     "virtual_slices (3) must be a multiple of tensor"},
    {"fine slices", TOY "--virtual-slices 128", "virtual_slices (128) must be at most 64;"},
    {"slices of the MLP", TOY "--virtual-slices 8 --ffn-hidden-size 20",
     "ffn_hidden_size (20) must"},
    {"slices of the vocabulary",
     TOY "--virtual-slices 8 --vocab-size 100 --make-vocab-size-divisible-by 4",
     "the padded vocabulary (100)"},
    {"slices of queries",
     TOY "--virtual-slices 8 --num-attention-heads 6 --num-query-groups 6 --kv-channels 2",
     "num_attention_heads times kv_channels (12)"},
    {"sequence", TOY "--seq-length 34 --context-parallel-size 4", "34 is not a multiple of 8"},
    {"positions", TOY "--max-position-embeddings 16", "max_position_embeddings (16) must be"},
    {"leaves", TOY "--leaf-tokens 5", "leaf_tokens (5) does not divide the 32 tokens"},
    {"leaves of chunks", TOY "--leaf-tokens 16 --context-parallel-size 2",
     "leaf_tokens (16) does not divide the 8 tokens"},
    {"experts", TOY "--num-experts 6 --expert-model-parallel-size 4", "parallel_size.; 6 experts"},
    {"no experts", TOY "--expert-model-parallel-size 2", "num_moe_experts must be non None"},
    {"top k", TOY "--num-experts 2 --moe-router-topk 4", "moe_router_topk (4) is more than num"},
    {"experts' ranks", TOY "--num-experts 16 --expert-model-parallel-size 16",
     "context-parallel size (8) must be a multiple of expert_model_parallel_size (16)."},
    {"instances", FSDP "--num-distributed-optimizer-instances 3",
     "num_distributed_optimizer_instances (3)."},
    {"instances and experts' ranks",
     FSDP "--num-distributed-optimizer-instances 4 --num-experts 4 --expert-model-parallel-size 4",
     "expert_model_parallel_size times num_distributed_optimizer_instances (16)."},
    {"width of heads", TOY "--kv-channels 3", "kv_channels (3) must be even"},
    {"narrow", TOY "--hidden-size 2", "hidden_size (2) must be a multiple of"},
    {"heads of a hidden size", TOY "--hidden-size 66", "hidden_size (66) must be a multiple"},
    {"narrow MLP",
     "train --num-layers 1 --hidden-size 8 --num-attention-heads 1 --seq-length 8 "
     "--micro-batch-size 1 --train-iters 1",
     "hidden_size (8) is too small"},
    {"nothing", "train --num-layers 4",
     "hidden_size is not set; a run needs num_layers, hidden_size"},
    {"rates", TOY "--lr 1e-5 --min-lr 1e-4", "min_lr is above lr"},
    {"two warm-ups", TOY "--lr-warmup-iters 2 --lr-warmup-fraction 0.1",
     "one of lr-warmup-fraction"},
    {"long warm-up", TOY "--lr-warmup-fraction 2", "lr_warmup_fraction is above 1"},
    {"WSD", TOY "--lr-decay-style WSD", "WSD without lr_wsd_decay_iters"},
    {"constant decay", TOY "--start-weight-decay 0.1", "for a weight decay that changes"},
    {"decay without ends", TOY "--weight-decay-incr-style cosine", "weight_decay_incr_style needs"},
    {"two schedules", TOY "--override-opt-param-scheduler --use-checkpoint-opt-param-scheduler",
     "both override and use-checkpoint"},
    {"beta", TOY "--adam-beta2 1", "adam_beta2 is 1 or more"},
    {"unit", TOY "--exact-lsb 63", "exact_lsb is above 62"},
    {"end", TOY "--exit-at 21", "exit_at is above train_iters"},
    {"scale", TOY "--min-loss-scale 0", "initial_loss_scale is below"},
};

static void A16_sizes_refuse(void **state)
{
    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(faults); i++)
        CHECK_FAILS(check_line(faults[i].line), DCPK_EUSAGE, faults[i].text, faults[i].label);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(E1_to_E6_are_quoted),
        cmocka_unit_test(A16_rules_refuse),
        cmocka_unit_test(values_stand_in_sentences),
        cmocka_unit_test(A16_sizes_refuse),
    };

    return cmocka_run_group_tests(tests, knobs_set_up, knobs_tear_down);
}
