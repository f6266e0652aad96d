/* SPDX-License-Identifier: Apache-2.0 */
/* knobs_rules.c - what Megatron refuses and adjusts, in its order, and what this loop lacks: one
 * row a rule. */
/*
 * Sentences are those of the documents that describe Megatron-FSDP (its user guide, the guides of
 * Megatron-Bridge), else those of validate_args (megatron/training/arguments.py @core_v0.19.0): who
 * searches for one finds their pages. A few name Megatron's own flags, as tests/layers.sh lists
 * them. lib/rules/forbidden.c has the same rules for args of a checkpoint that exists.
 *
 * knobs_priv.h describes conditions. Before Blackwell (GPU<10), tensor- and context-parallel
 * kernels wait for each other by one connection; where no GPU computes, there is no such wait.
 */
#include "lib/base/order.h"
#include "lib/knobs/knobs_priv.h"

#define REFUSE(id_, when_, text_, remedy_)                                                         \
    .id = id_, .when = when_, .text = text_, .remedy = remedy_
#define NOTICE(id_, when_, text_)       .id = id_, .when = when_, .text = text_
#define ADJUST(id_, when_, set_, text_) .id = id_, .when = when_, .set = set_, .text = text_

#define FSDP     "use_megatron_fsdp "
#define NO_FSDP  "!use_megatron_fsdp "
#define FSDP2    "use_torch_fsdp2 "
#define STRATEGY "data_parallel_sharding_strategy"

/* ---- which data parallelism ---- */

const struct dcpk_knob_rule dcpk_knob_rules_of_modes[] = {
    {ADJUST("old-name", "use_custom_fsdp", "use_megatron_fsdp=true",
            "use_custom_fsdp is deprecated: it is taken for use_megatron_fsdp"),
     .source = DCPK_OF_ARGUMENTS, .mend = "use_megatron_fsdp=true use_custom_fsdp=false"},
    {ADJUST("one-section",
            "dist.use_megatron_fsdp !ddp.use_megatron_fsdp | "
            "ddp.use_megatron_fsdp !dist.use_megatron_fsdp",
            "use_megatron_fsdp=true",
            "use_megatron_fsdp is set in one of dist and ddp: it counts for both"),
     .source = DCPK_OF_BRIDGE},
    {REFUSE("both-fsdps", FSDP FSDP2,
            "Using use_megatron_fsdp and use_torch_fsdp2 at the same time is not supported",
            "choose one FSDP implementation: either Megatron FSDP or Torch FSDP2"),
     .source = DCPK_OF_ARGUMENTS, .mend = "use_torch_fsdp2=false"},
    {REFUSE("strategy",
            "!" STRATEGY "=no_shard !" STRATEGY "=optim !" STRATEGY "=optim_grads !" STRATEGY
            "=optim_grads_params",
            "Invalid data_parallel_sharding_strategy: {}",
            "choose no_shard, optim, optim_grads or optim_grads_params"),
     .source = DCPK_OF_FSDP, .value = STRATEGY},
    {.id = NULL},
};

#define CONNECTIONS "FSDP always requires CUDA_DEVICE_MAX_CONNECTIONS value large than one"
#define NO_CONNECTIONS                                                                             \
    "unset CUDA_DEVICE_MAX_CONNECTIONS, so that communication and computation overlap"
#define NAMED_FSDP "Megatron FSDP"

/* The optimizer state of a distributed optimizer, saved as torch_dist. */
#define SAVES_STATES "save !no_save_optim ckpt_format=torch_dist use_distributed_optimizer "
#define ALONE        " has no effect without Megatron FSDP: "
#define EXACT        " has no effect with reduce exact, which adds integers; reduce native has it"

const struct dcpk_knob_rule dcpk_knob_rules[] = {
    /* ---- overlap without FSDP, and PyTorch's FSDP2 ---- */
    {REFUSE("gather-alone", NO_FSDP "overlap_param_gather !use_distributed_optimizer",
            "--overlap-param-gather only supported with distributed optimizer, megatron fsdp, or "
            "dist_muon",
            "set use_distributed_optimizer"),
     .source = DCPK_OF_ARGUMENTS, .mend = "use_distributed_optimizer=true"},
    {REFUSE("gather-unreduced", NO_FSDP "overlap_param_gather !overlap_grad_reduce",
            "Must use --overlap-param-gather with --overlap-grad-reduce",
            "set overlap_grad_reduce"),
     .source = DCPK_OF_ARGUMENTS, .mend = "overlap_grad_reduce=true"},
    {REFUSE("fsdp2-pp", FSDP2 "pipeline_model_parallel_size>1",
            "--use-torch-fsdp2 is not supported with pipeline parallelism",
            "set pipeline_model_parallel_size to 1")},
    {REFUSE("fsdp2-ep", FSDP2 "expert_model_parallel_size>1",
            "--use-torch-fsdp2 is not supported with expert parallelism",
            "set expert_model_parallel_size to 1")},
    {REFUSE("fsdp2-optimizer", FSDP2 "use_distributed_optimizer",
            "--use-torch-fsdp2 is not supported with MCore's distributed optimizer",
            "leave use_distributed_optimizer out")},
    {REFUSE("fsdp2-fusion", FSDP2 "gradient_accumulation_fusion",
            "--use-torch-fsdp2 is not supported with gradient accumulation fusion",
            "set gradient_accumulation_fusion to False")},
    {REFUSE("fsdp2-format", FSDP2 "!ckpt_format=torch_dist !ckpt_format=torch_dcp",
            "--use-torch-fsdp2 requires --ckpt-format torch_dist or torch_dcp",
            "set checkpoint.ckpt_format to torch_dist")},
    {REFUSE("fsdp2-tied", FSDP2 "!untie_embeddings_and_output_weights",
            "--use-torch-fsdp2 requires --untie-embeddings-and-output-weights",
            "set untie_embeddings_and_output_weights")},
    {REFUSE("fsdp2-fp16", FSDP2 "fp16", "--use-torch-fsdp2 not supported with fp16 yet",
            "train in bf16 or fp32")},
    {REFUSE("fsdp2-connections", FSDP2 "CUDA_DEVICE_MAX_CONNECTIONS=1", CONNECTIONS,
            NO_CONNECTIONS)},
    {REFUSE("fsdp2", FSDP2, "use_torch_fsdp2 is not implemented; FSDP2 is experimental upstream",
            "use Megatron FSDP")},

    /* ---- Megatron-FSDP ---- */
    {REFUSE("version", FSDP "!megatron_fsdp_version=1", "MFSDP v2 layouts are not modelled",
            "set megatron_fsdp_version to 1")},
    {REFUSE("mapping", FSDP "use_tp_pp_dp_mapping",
            "use_tp_pp_dp_mapping is not supported with " NAMED_FSDP,
            "remove use_tp_pp_dp_mapping=True: FSDP requires standard rank initialization order"),
     .source = DCPK_OF_BRIDGE, .mend = "use_tp_pp_dp_mapping=false"},
    {ADJUST("distributed-optimizer", FSDP "!use_distributed_optimizer",
            "use_distributed_optimizer=true",
            "use_distributed_optimizer is set to True: Megatron-FSDP is only compatible with it"),
     .source = DCPK_OF_ARGUMENTS},
    {ADJUST("fsdp-average", FSDP "average_in_collective", "average_in_collective=false",
            "average_in_collective is not supported with " NAMED_FSDP ": setting to False"),
     .source = DCPK_OF_BRIDGE},
    {ADJUST("fusion", FSDP "gradient_accumulation_fusion", "gradient_accumulation_fusion=false",
            "gradient_accumulation_fusion is not compatible with " NAMED_FSDP ": setting to False"),
     .source = DCPK_OF_ADAPTER_019},
    {ADJUST("ddp-reuse", FSDP "ddp.reuse_grad_buf_for_mxfp8_param_ag",
            "ddp.reuse_grad_buf_for_mxfp8_param_ag=false",
            "ddp.reuse_grad_buf_for_mxfp8_param_ag is disabled for " NAMED_FSDP
            ": setting to False"),
     .source = DCPK_OF_ARGUMENTS},
    {ADJUST("optimizer-reuse", FSDP "optimizer.reuse_grad_buf_for_mxfp8_param_ag",
            "optimizer.reuse_grad_buf_for_mxfp8_param_ag=false",
            "optimizer.reuse_grad_buf_for_mxfp8_param_ag is disabled for " NAMED_FSDP
            ": setting to False"),
     .source = DCPK_OF_ARGUMENTS},
    {REFUSE("fsdp-grouped", FSDP "moe_single_grouped_weight | " FSDP "moe_single_grouped_bias",
            "Megatron-FSDP does not currently support moe_single_grouped_weight or "
            "moe_single_grouped_bias",
            "disable single grouped MoE parameters, or use the distributed optimizer"),
     .source = DCPK_OF_ARGUMENTS,
     .mend = "moe_single_grouped_weight=false moe_single_grouped_bias=false"},
    {REFUSE("fsdp-optimizer", FSDP "!optimizer=adam !optimizer=sgd",
            "Megatron-FSDP does not support the {} optimizer yet.", "choose adam or sgd"),
     .source = DCPK_OF_ARGUMENTS, .value = "optimizer"},
    {REFUSE("weight-hash",
            FSDP "check_weight_hash_across_dp_replicas_interval " STRATEGY "=optim_grads_params",
            "check_weight_hash_across_dp_replicas_interval is not supported with "
            "optim_grads_params",
            "leave it out: nothing is replicated"),
     .source = DCPK_OF_ARGUMENTS, .mend = "check_weight_hash_across_dp_replicas_interval=None"},
    {REFUSE("connections", FSDP "CUDA_DEVICE_MAX_CONNECTIONS=1", CONNECTIONS, NO_CONNECTIONS),
     .source = DCPK_OF_ARGUMENTS, .mend = "CUDA_DEVICE_MAX_CONNECTIONS=8"},
    {REFUSE("fsdp-format",
            FSDP "save !ckpt_format=fsdp_dtensor | " FSDP "load !ckpt_format=fsdp_dtensor",
            NAMED_FSDP " only supports fsdp_dtensor checkpoint format",
            "set checkpoint.ckpt_format=\"fsdp_dtensor\": other formats are not compatible with "
            "FSDP's sharded layout")},
    {ADJUST("user-buffers",
            FSDP "nccl_ub !fsdp_manual_registration | " FSDP "nccl_ub !fsdp_double_buffer",
            "fsdp_manual_registration=true fsdp_double_buffer=true",
            "FSDP double buffer and manual registration is enabled by default when nccl_ub is "
            "enabled")},
    {ADJUST("max-pool", FSDP "megatron_fsdp_max_pool_double_buffer !fsdp_double_buffer",
            "fsdp_double_buffer=true",
            "fsdp_double_buffer is set to True: megatron_fsdp_max_pool_double_buffer is a form of "
            "it")},
    {REFUSE("meta-init", FSDP "init_model_with_meta_device " STRATEGY "=no_shard",
            "Meta device initialization (init_model_with_meta_device=True) is not supported or "
            "necessary for the 'no_shard' / 0 sharding strategy.",
            "leave init_model_with_meta_device out, or choose another strategy"),
     .source = DCPK_OF_ARGUMENTS},
    {REFUSE("registration-alone", NO_FSDP "fsdp_manual_registration",
            "FSDP manual registration is only supported with " NAMED_FSDP ".",
            "set use_megatron_fsdp, or leave fsdp_manual_registration out")},
    {REFUSE("registration", "fsdp_manual_registration !nccl_ub",
            "FSDP manual registration is only supported with nccl-ub option",
            "set nccl_ub, or leave fsdp_manual_registration out"),
     .source = DCPK_OF_ARGUMENTS, .mend = "fsdp_manual_registration=false"},

    /* ---- settings that exclude each other, and the environment ---- */
    {REFUSE("two-dtypes", "bf16 fp16", "bf16 and fp16 are both set", "choose one")},
    {ADJUST("nan-check", "fp16 check_for_nan_in_grad", "check_for_nan_in_grad=false",
            "Setting check_for_nan_in_loss_and_grad to False since dynamic loss scaling is being "
            "used")},
    {REFUSE("fsdp-hybrid-cp", FSDP "hybrid_context_parallel",
            "Hybrid context parallelism not supported with Megatron FSDP",
            "leave hybrid_context_parallel out"),
     .source = DCPK_OF_ARGUMENTS, .mend = "hybrid_context_parallel=false"},
    {NOTICE("two-wishes",
            FSDP "tensor_model_parallel_size>1 GPU<10 | " FSDP "context_parallel_size>1 GPU<10",
            "Using tensor model parallelism or context parallelism with Megatron-FSDP together: "
            "they require different CUDA_DEVICE_MAX_CONNECTIONS settings for best performance"),
     .source = DCPK_OF_ARGUMENTS},
    {REFUSE("many-connections",
            NO_FSDP
            "tensor_model_parallel_size>1 GPU GPU<10 !CUDA_DEVICE_MAX_CONNECTIONS=1 | " NO_FSDP
            "context_parallel_size>1 GPU GPU<10 !CUDA_DEVICE_MAX_CONNECTIONS=1",
            "Using tensor model parallelism or context parallelism require setting the environment "
            "variable CUDA_DEVICE_MAX_CONNECTIONS to 1",
            "export CUDA_DEVICE_MAX_CONNECTIONS=1"),
     .source = DCPK_OF_ARGUMENTS, .mend = "CUDA_DEVICE_MAX_CONNECTIONS=1"},
    {REFUSE("format",
            NO_FSDP "save ckpt_format=fsdp_dtensor | " NO_FSDP "load ckpt_format=fsdp_dtensor",
            "fsdp_dtensor checkpoint format only supports Megatron FSDP",
            "set use_megatron_fsdp, or checkpoint.ckpt_format=\"torch_dist\"")},
    {REFUSE("segments", "nccl_ub CUDA_SEGMENTS",
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True is currently not supported with "
            "nccl_ub due to compatibility issue with torch.cuda.MemPool API.",
            "unset PYTORCH_CUDA_ALLOC_CONF, or leave nccl_ub out")},
    {REFUSE("any-segments", "nccl_ub ANY_SEGMENTS",
            "PYTORCH_ALLOC_CONF=expandable_segments:True is PYTORCH_CUDA_ALLOC_CONF by another "
            "name, which nccl_ub does not work with",
            "unset PYTORCH_ALLOC_CONF, or leave nccl_ub out")},
    {REFUSE("hfsdp",
            FSDP "outer_dp_sharding_strategy=optim num_distributed_optimizer_instances>1 "
                 "!" STRATEGY "=optim_grads_params",
            "Optimizer fully-sharded HFSDP is only supported with full-sharding on DP-Shard",
            "set data_parallel_sharding_strategy to optim_grads_params"),
     .source = DCPK_OF_FSDP, .mend = "data_parallel_sharding_strategy=optim_grads_params"},
    {REFUSE("expert-overlap", "overlap_moe_expert_parallel_comm fsdp_double_buffer",
            "1F1B overlap with FSDP does not support double buffer. Please set "
            "fsdp_double_buffer=False in the ddp config.",
            "or leave overlap_moe_expert_parallel_comm out"),
     .source = DCPK_OF_ADAPTER_019, .mend = "fsdp_double_buffer=false"},
    {REFUSE("offload-pp", "cpu_offloading pipeline_model_parallel_size>1",
            "Currently there is no support for Pipeline parallelism with CPU offloading",
            "set pipeline_model_parallel_size to 1")},
    {REFUSE("offload-recompute", "cpu_offloading recompute_granularity",
            "CPU offloading does not work when activation recomputation is enabled",
            "leave recompute_granularity out")},
    {REFUSE("fsdp-hf", "also_save_hf_checkpoint ckpt_format=fsdp_dtensor",
            "also_save_hf_checkpoint is not supported with the fsdp_dtensor checkpoint format",
            "leave it out, and convert the checkpoint"),
     .source = DCPK_OF_BRIDGE, .mend = "also_save_hf_checkpoint=false"},
    /* A softmax over one logit has no gradient. Source: TransformerConfig.__post_init__. */
    {REFUSE("one-expert",
            "num_experts moe_router_topk=1 !moe_router_pre_softmax "
            "!moe_router_score_function=sigmoid",
            "a softmax over the one expert that moe_router_topk chooses has no gradient",
            "set moe_router_pre_softmax")},
    {REFUSE("expert-bias", "moe_router_enable_expert_bias !moe_router_score_function=sigmoid",
            "Expert bias for aux-loss-free routing only supports 'sigmoid' and 'sqrtsoftplus' "
            "score functions.",
            "set moe_router_score_function to sigmoid; sqrtsoftplus is not modelled")},
    {REFUSE("async", "async_save !ckpt_format=torch_dist !ckpt_format=fsdp_dtensor",
            "async_save is only supported with torch_dist and fsdp_dtensor checkpoints",
            "leave async_save out")},
    {REFUSE("deterministic-loss", "deterministic_mode cross_entropy_loss_fusion",
            "--deterministic-mode requires: cross_entropy_loss_fusion=False (got True). Adjust "
            "these options to continue.",
            "set cross_entropy_loss_fusion to False")},
    {REFUSE("deterministic-overlap", "deterministic_mode tp_comm_overlap",
            "--deterministic-mode requires: tp_comm_overlap=False (got True). Adjust these options "
            "to continue.",
            "set tp_comm_overlap to False")},
    {REFUSE("deterministic-nccl", "deterministic_mode OTHER_NCCL_ALGO",
            "NCCL_ALGO='{}': each token must be in ['CollnetChain', 'CollnetDirect', 'Ring', "
            "'^NVLS'].",
            "export NCCL_ALGO=Ring"),
     .value = "OTHER_NCCL_ALGO"},
    {REFUSE("deterministic-te",
            "deterministic_mode NVTE_ALLOW_NONDETERMINISTIC_ALGO "
            "!NVTE_ALLOW_NONDETERMINISTIC_ALGO=0",
            "NVTE_ALLOW_NONDETERMINISTIC_ALGO='{}' is not a deterministic setting. Accepted: "
            "['0'].",
            "export NVTE_ALLOW_NONDETERMINISTIC_ALGO=0"),
     .value = "NVTE_ALLOW_NONDETERMINISTIC_ALGO"},
    {REFUSE("deterministic-cublas",
            "deterministic_mode CUBLAS_WORKSPACE_CONFIG !CUBLAS_WORKSPACE_CONFIG=:4096:8 "
            "!CUBLAS_WORKSPACE_CONFIG=:16:8",
            "CUBLAS_WORKSPACE_CONFIG='{}' is not a deterministic setting. Accepted: [':16:8', "
            "':4096:8'].",
            "export CUBLAS_WORKSPACE_CONFIG=:4096:8"),
     .value = "CUBLAS_WORKSPACE_CONFIG"},

    /* ---- features that this loop does not have ---- */
    {REFUSE("saved-model", "use_checkpoint_args LACKING",
            "use_checkpoint_args takes a model that this loop lacks: {} not modelled",
            "load a checkpoint of another model: its args count before flags"),
     .value = "LACKING"},
    {REFUSE("norms", "!normalization=RMSNorm", "LayerNorm is not modelled",
            "set normalization to RMSNorm")},
    {REFUSE("positions", "!position_embedding_type=rope", "only rotary positions are modelled",
            "set position_embedding_type to rope")},
    {REFUSE("mlp", "!swiglu", "an MLP that is not gated is not modelled", "set swiglu")},
    {REFUSE("biases", "add_bias_linear", "biases of linear layers are not modelled",
            "set add_bias_linear to False")},
    {REFUSE("dropout", "hidden_dropout | attention_dropout", "dropout is not modelled",
            "set hidden_dropout and attention_dropout to 0")},
    {REFUSE("expert-tp", "!expert_tensor_parallel_size=1",
            "tensor parallelism inside experts is not modelled",
            "set expert_tensor_parallel_size to 1")},
    {REFUSE("aux-loss", "moe_aux_loss_coeff",
            "moe_aux_loss_coeff: losses that balance experts are not modelled",
            "set it to 0, or balance by moe_router_enable_expert_bias")},
    {REFUSE("sinkhorn", "moe_router_load_balancing_type=sinkhorn",
            "moe_router_load_balancing_type: sinkhorn is not modelled",
            "set it to none, or balance by moe_router_enable_expert_bias")},
    {NOTICE("saved-args", "use_checkpoint_args",
            "use_checkpoint_args: the model is that of the checkpoint")},
    {REFUSE("hybrid-cp", "hybrid_context_parallel", "hybrid context parallelism is not modelled",
            "leave hybrid_context_parallel out")},
    {REFUSE("grouped", "moe_single_grouped_weight | moe_single_grouped_bias",
            "experts in one grouped tensor are not modelled",
            "leave moe_single_grouped_weight and moe_single_grouped_bias out")},
    {REFUSE("selective", "recompute_granularity=selective",
            "selective recomputation of activations is not modelled",
            "set recompute_granularity to full")},
    {REFUSE("torch",
            "save ckpt_format=torch | load ckpt_format=torch | "
            "save ckpt_format=torch_dcp | load ckpt_format=torch_dcp",
            "checkpoints of the formats torch and torch_dcp are not written",
            "set checkpoint.ckpt_format to torch_dist or zarr")},
    /* Megatron's zarr has one form: no release wrote the optimizer state of generation A into it.
     */
    {REFUSE("zarr-generation", "save ckpt_format=zarr !generation=C",
            "generation is for torch_dist, not for zarr, which is written as core 0.15 reads it",
            "leave generation out; for an older release, set checkpoint.ckpt_format to "
            "torch_dist")},
    {REFUSE("old-generation",
            SAVES_STATES
            "generation=A !optimizer_layout dist_ckpt_optim_fully_reshardable | " SAVES_STATES
            "generation=A optimizer_layout !optimizer_layout=flattened",
            "torch_dist of generation A has optimizer state flattened, in no other layout",
            "leave optimizer_layout and dist_ckpt_optim_fully_reshardable out")},
    /* How GroupedMLP keeps its state: formats/torch_dist/FORMAT.md 4.5. */
    {REFUSE("old-experts",
            SAVES_STATES "generation=A num_experts moe_grouped_gemm transformer_impl=local",
            "the flattened optimizer state of GroupedMLP, which local modules make of "
            "moe_grouped_gemm, is not written",
            "set transformer_impl to transformer_engine, or leave moe_grouped_gemm out")},
    {REFUSE("flattened", SAVES_STATES "optimizer_layout=flattened !generation=A",
            "only torch_dist of generation A has optimizer state flattened",
            "set generation to A, or leave optimizer_layout out")},
    {REFUSE("hf", "also_save_hf_checkpoint",
            "also_save_hf_checkpoint: a run does not write Hugging Face's format",
            "leave it out, and convert the checkpoint")},
    {REFUSE("optimizer", "!optimizer=adam !optimizer=sgd", "the optimizer is neither adam nor sgd",
            "choose one of them")},

    /* ---- settings that may surprise ---- */
    {NOTICE("fsdp-pp", FSDP "pipeline_model_parallel_size>1",
            "pipeline parallelism with Megatron FSDP is an extension of this loop: no release of "
            "Megatron runs it")},
    {NOTICE("outer-experts",
            FSDP "num_distributed_optimizer_instances>1 expert_model_parallel_size>1",
            "several instances of the distributed optimizer with expert parallelism: Megatron-FSDP "
            "has a mesh of experts for them from core 0.17 on, and none in 0.16")},
    {NOTICE("unsharded", FSDP STRATEGY "=no_shard",
            "data_parallel_sharding_strategy is no_shard: nothing is sharded")},
    {NOTICE("default-strategy", FSDP "!?" STRATEGY,
            "data_parallel_sharding_strategy is not set: optim_grads_params, as Megatron-LM has it "
            "since core 0.18, where Megatron-Bridge has no_shard")},
    /* no_shard is what Megatron-Bridge writes into every configuration. */
    {NOTICE("lone-strategy", NO_FSDP "?" STRATEGY " !" STRATEGY "=no_shard",
            "data_parallel_sharding_strategy has no effect without Megatron FSDP: set "
            "use_megatron_fsdp for it")},
    {ADJUST("lone-buffer",
            NO_FSDP "fsdp_double_buffer | " NO_FSDP "megatron_fsdp_max_pool_double_buffer",
            "fsdp_double_buffer=false megatron_fsdp_max_pool_double_buffer=false",
            "fsdp_double_buffer has no effect without Megatron FSDP, nor has "
            "megatron_fsdp_max_pool_double_buffer: set use_megatron_fsdp for them")},
    {NOTICE("no-gpu-buffers", "nccl_ub !GPU",
            "nccl_ub has no effect without GPUs: NCCL has no buffers there")},
    {NOTICE("lone-registration", "disable_symmetric_registration !nccl_ub",
            "disable_symmetric_registration has no effect without nccl_ub")},
    {NOTICE(
        "average", "average_in_collective",
        "average_in_collective has no effect here: gradients are scaled once, after their sum")},
    {NOTICE("fine-grained", "fine_grained_param_gather",
            "fine_grained_param_gather has no effect here: weights are gathered by layer")},
    {NOTICE("blocking-reduce",
            FSDP "?overlap_grad_reduce !overlap_grad_reduce " STRATEGY "=optim_grads | " FSDP
                 "?overlap_grad_reduce !overlap_grad_reduce " STRATEGY "=optim_grads_params",
            "overlap_grad_reduce is set to True: gradients are sharded")},
    {NOTICE("blocking-gather",
            FSDP "?overlap_param_gather !overlap_param_gather " STRATEGY "=optim_grads_params",
            "overlap_param_gather is set to True: weights are sharded")},
    {NOTICE("bf16-reduce", FSDP "grad_reduce_in_bf16",
            "grad_reduce_in_bf16 has no effect with Megatron FSDP since core 0.17: "
            "megatron_fsdp_main_grads_dtype and megatron_fsdp_grad_comm_dtype set the dtypes")},
    {NOTICE("old-dtype", "?preserve_fp32_weights",
            "preserve_fp32_weights is deprecated: it is taken for "
            "megatron_fsdp_main_params_dtype")},
    {NOTICE("offload", "cpu_offloading",
            "cpu_offloading has no effect here: activations stay where they are")},
    {NOTICE("fused-loss", "cross_entropy_loss_fusion | tp_comm_overlap",
            "cross_entropy_loss_fusion and tp_comm_overlap have no effect here")},
    {NOTICE("experts-overlap", "overlap_moe_expert_parallel_comm",
            "overlap_moe_expert_parallel_comm has no effect here: tokens travel between "
            "computations")},
    {NOTICE("unchecked", "!fp16 !check_for_nan_in_grad",
            "check_for_nan_in_grad is off: a gradient that is not finite still ends the run in "
            "this loop")},
    /* Sums of smaller units are finer than the bits of the fp32 numbers in them. */
    {NOTICE("coarse-sums", "!reduce=native exact_lsb<24",
            "exact_lsb is below 24: gradients of summed losses are rounded to coarse units of "
            "2^-exact_lsb")},
    {NOTICE("unread", "UNREAD", "not read from the configuration: {}"), .value = "UNREAD"},

    /* ---- dtypes ---- */
    {REFUSE("main-params",
            FSDP "preserve_fp32_weights megatron_fsdp_main_params_dtype=bf16 !bf16 | " FSDP
                 "preserve_fp32_weights megatron_fsdp_main_params_dtype=fp16 !fp16",
            "megatron_fsdp_main_params_dtype is {}, neither fp32 nor the dtype of the model",
            "set it to fp32 or auto"),
     .value = "megatron_fsdp_main_params_dtype"},
    {NOTICE("main-params-alone", NO_FSDP "!MAIN_PARAMS=fp32",
            "megatron_fsdp_main_params_dtype" ALONE "the optimizer changes weights in fp32")},
    {NOTICE("main-grads-alone", NO_FSDP "!MAIN_GRADS=fp32",
            "megatron_fsdp_main_grads_dtype" ALONE "grad_reduce_in_bf16 sets the dtype")},
    {NOTICE("comm-alone",
            NO_FSDP "!grad_reduce_in_bf16 !megatron_fsdp_grad_comm_dtype=auto "
                    "!megatron_fsdp_grad_comm_dtype=fp32 | " NO_FSDP
                    "grad_reduce_in_bf16 !megatron_fsdp_grad_comm_dtype=auto "
                    "!megatron_fsdp_grad_comm_dtype=bf16",
            "megatron_fsdp_grad_comm_dtype" ALONE "gradients travel as they are added up")},
    {ADJUST("exact-main-grads", FSDP "reduce=exact !MAIN_GRADS=fp32",
            "megatron_fsdp_main_grads_dtype=fp32", "megatron_fsdp_main_grads_dtype" EXACT)},
    {ADJUST("exact-comm",
            FSDP
            "reduce=exact !megatron_fsdp_grad_comm_dtype=auto !megatron_fsdp_grad_comm_dtype=fp32",
            "megatron_fsdp_grad_comm_dtype=auto", "megatron_fsdp_grad_comm_dtype" EXACT)},
    {ADJUST("exact-bf16", NO_FSDP "reduce=exact grad_reduce_in_bf16", "grad_reduce_in_bf16=false",
            "grad_reduce_in_bf16" EXACT)},
    {.id = NULL},
};

const struct dcpk_knob_rule *dcpk_knob_rule_at(size_t i)
{
    const struct dcpk_knob_rule *rule = dcpk_knob_rules_of_modes;

    if (i >= DCPK_COUNT(dcpk_knob_rules_of_modes) - 1) {
        i -= DCPK_COUNT(dcpk_knob_rules_of_modes) - 1;
        rule = dcpk_knob_rules;
    }
    if (i >= DCPK_COUNT(dcpk_knob_rules) - 1)
        return NULL;
    return &rule[i];
}
