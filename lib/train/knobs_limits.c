/* SPDX-License-Identifier: Apache-2.0 */
/* knobs_limits.c - rules that hold for every run: the environment, settings that exclude each
 * other, what this loop does not have. */
#include <string.h>

#include "lib/train/knobs_rules_priv.h"

/* Sums of smaller units are finer than the bits of the fp32 numbers in them. */
#define COARSE_LSB 24

/* ---- settings that exclude each other ---- */

static bool limit_dtypes(const struct dcpk_scene *s)
{
    return s->knobs->is_bf16 && s->knobs->is_fp16;
}
static bool limit_nan_check(const struct dcpk_scene *s)
{
    return s->knobs->is_fp16 && s->knobs->config.fsdp.checks_nan;
}
static void limit_clear_nan_check(struct dcpk_train_knobs *k)
{
    k->config.fsdp.checks_nan = false;
}
static bool limit_hybrid_cp(const struct dcpk_scene *s)
{
    return s->knobs->has_hybrid_cp && dcpk_scene_has_fsdp(s);
}
/* Before Blackwell, tensor- and context-parallel kernels wait for each other by one connection. */
static bool limit_shares_layers(const struct dcpk_scene *s)
{
    const struct dcpk_grid *l = &s->knobs->config.layout;

    return (l->tp > 1 || l->cp > 1) && s->environment->gpu_major < 10;
}
static bool limit_two_wishes(const struct dcpk_scene *s)
{
    return limit_shares_layers(s) && dcpk_scene_has_fsdp(s);
}
/* The documents speak of GPUs: where none computes, there is no such wait. */
static bool limit_many_connections(const struct dcpk_scene *s)
{
    return limit_shares_layers(s) && s->environment->gpu_major > 0 && !dcpk_scene_has_fsdp(s) &&
           !dcpk_rule_text_is(s->environment->max_connections, "1");
}
static bool limit_format(const struct dcpk_scene *s)
{
    return dcpk_scene_has_files(s) && !dcpk_scene_has_fsdp(s) &&
           dcpk_rule_text_is(s->knobs->config.files.ckpt_format, "fsdp_dtensor");
}
static bool limit_segments(const struct dcpk_scene *s)
{
    const char *at = s->environment->alloc_conf, *const word = "expandable_segments:True";

    if (!s->knobs->has_nccl_ub || at == NULL)
        return false;
    while (*at != '\0') {
        const size_t n = strcspn(at, ",");

        if (n == strlen(word) && memcmp(at, word, n) == 0)
            return true;
        at += n + (at[n] == ',');
    }
    return false;
}
static bool limit_outer(const struct dcpk_scene *s)
{
    return dcpk_scene_has_fsdp(s) && dcpk_rule_text_is(s->knobs->outer_strategy, "optim") &&
           s->knobs->config.layout.instances > 1 &&
           !dcpk_rule_text_is(s->knobs->strategy, "optim_grads_params");
}
static bool limit_expert_overlap(const struct dcpk_scene *s)
{
    return s->knobs->overlaps_experts && s->knobs->config.fsdp.has_double_buffer;
}
static bool limit_offload_pp(const struct dcpk_scene *s)
{
    return s->knobs->offloads_to_cpu && s->knobs->config.layout.pp > 1;
}
static bool limit_offload_recompute(const struct dcpk_scene *s)
{
    return s->knobs->offloads_to_cpu && s->knobs->recompute != NULL;
}
static bool limit_hf(const struct dcpk_scene *s)
{
    return s->knobs->saves_hf &&
           dcpk_rule_text_is(s->knobs->config.files.ckpt_format, "fsdp_dtensor");
}
static bool limit_async(const struct dcpk_scene *s)
{
    const char *format = s->knobs->config.files.ckpt_format;

    return s->knobs->config.files.is_async && !dcpk_rule_text_is(format, "torch_dist") &&
           !dcpk_rule_text_is(format, "fsdp_dtensor");
}
static bool limit_cross_entropy(const struct dcpk_scene *s)
{
    return s->knobs->is_deterministic && s->knobs->fuses_cross_entropy;
}
static bool limit_tp_overlap(const struct dcpk_scene *s)
{
    return s->knobs->is_deterministic && s->knobs->overlaps_tp;
}
static const char *limit_nccl_name(const struct dcpk_scene *s)
{
    return s->environment->nccl_algo;
}
static bool limit_nccl(const struct dcpk_scene *s)
{
    const char *at = s->environment->nccl_algo;

    if (!s->knobs->is_deterministic || at == NULL)
        return false;
    do {
        const size_t n = strcspn(at, ",");

        if (!dcpk_option_has_word("Ring CollnetDirect CollnetChain ^NVLS", at, n))
            return true;
        at += n;
    } while (*at++ == ',');
    return false;
}
static const char *limit_te_name(const struct dcpk_scene *s)
{
    return s->environment->te_algo;
}
static bool limit_te(const struct dcpk_scene *s)
{
    return s->knobs->is_deterministic && s->environment->te_algo != NULL &&
           !dcpk_rule_text_is(s->environment->te_algo, "0");
}
static const char *limit_cublas_name(const struct dcpk_scene *s)
{
    return s->environment->cublas_config;
}
static bool limit_cublas(const struct dcpk_scene *s)
{
    const char *text = s->environment->cublas_config;

    return s->knobs->is_deterministic && text != NULL &&
           !dcpk_option_has_word(":4096:8 :16:8", text, strlen(text));
}

static bool limit_bias(const struct dcpk_scene *s)
{
    return s->knobs->config.model.has_expert_bias &&
           !dcpk_rule_text_is(s->knobs->score_function, "sigmoid");
}

/* A softmax over one logit has no gradient. Source: TransformerConfig.__post_init__. */
static bool limit_one_expert(const struct dcpk_scene *s)
{
    const struct dcpk_train_model *m = &s->knobs->config.model;

    return m->experts > 0 && m->topk == 1 && !m->has_pre_softmax &&
           !dcpk_rule_text_is(s->knobs->score_function, "sigmoid");
}

const struct dcpk_knob_rule dcpk_knob_rules_of_combinations[] = {
    {DCPK_RULE_REFUSE, limit_dtypes, NULL, NULL, "bf16 and fp16 are both set", "choose one"},
    {DCPK_RULE_ADJUST, limit_nan_check, limit_clear_nan_check, NULL,
     "Setting check_for_nan_in_loss_and_grad to False since dynamic loss scaling is being used",
     NULL},
    {DCPK_RULE_REFUSE, limit_hybrid_cp, NULL, NULL,
     "Hybrid context parallelism not supported with Megatron FSDP",
     "leave hybrid_context_parallel out"},
    {DCPK_RULE_ADJUST, limit_two_wishes, NULL, NULL,
     "Using tensor model parallelism or context parallelism with Megatron-FSDP together: they "
     "require different CUDA_DEVICE_MAX_CONNECTIONS settings for best performance",
     NULL},
    {DCPK_RULE_REFUSE, limit_many_connections, NULL, NULL,
     "Using tensor model parallelism or context parallelism require setting the environment "
     "variable CUDA_DEVICE_MAX_CONNECTIONS to 1",
     "export CUDA_DEVICE_MAX_CONNECTIONS=1"},
    {DCPK_RULE_REFUSE, limit_format, NULL, NULL,
     "fsdp_dtensor checkpoint format only supports Megatron FSDP",
     "set use_megatron_fsdp, or checkpoint.ckpt_format=\"torch_dist\""},
    {DCPK_RULE_REFUSE, limit_segments, NULL, NULL,
     "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True is currently not supported with nccl_ub due "
     "to compatibility issue with torch.cuda.MemPool API.",
     "unset PYTORCH_CUDA_ALLOC_CONF, or leave nccl_ub out"},
    {DCPK_RULE_REFUSE, limit_outer, NULL, NULL,
     "Optimizer fully-sharded HFSDP is only supported with full-sharding on DP-Shard",
     "set data_parallel_sharding_strategy to optim_grads_params"},
    {DCPK_RULE_REFUSE, limit_expert_overlap, NULL, NULL,
     "1F1B overlap with FSDP does not support double buffer. Please set fsdp_double_buffer=False "
     "in the ddp config.",
     "or leave overlap_moe_expert_parallel_comm out"},
    {DCPK_RULE_REFUSE, limit_offload_pp, NULL, NULL,
     "Currently there is no support for Pipeline parallelism with CPU offloading",
     "set pipeline_model_parallel_size to 1"},
    {DCPK_RULE_REFUSE, limit_offload_recompute, NULL, NULL,
     "CPU offloading does not work when activation recomputation is enabled",
     "leave recompute_granularity out"},
    {DCPK_RULE_REFUSE, limit_hf, NULL, NULL,
     "also_save_hf_checkpoint is not supported with the fsdp_dtensor checkpoint format",
     "leave it out, and convert the checkpoint"},
    {DCPK_RULE_REFUSE, limit_one_expert, NULL, NULL,
     "a softmax over the one expert that moe_router_topk chooses has no gradient",
     "set moe_router_pre_softmax"},
    {DCPK_RULE_REFUSE, limit_bias, NULL, NULL,
     "Expert bias for aux-loss-free routing only supports 'sigmoid' and 'sqrtsoftplus' score "
     "functions.",
     "set moe_router_score_function to sigmoid; sqrtsoftplus is not modelled"},
    {DCPK_RULE_REFUSE, limit_async, NULL, NULL,
     "async_save is only supported with torch_dist and fsdp_dtensor checkpoints",
     "leave async_save out"},
    {DCPK_RULE_REFUSE, limit_cross_entropy, NULL, NULL,
     "--deterministic-mode requires: cross_entropy_loss_fusion=False (got True). Adjust these "
     "options to continue.",
     "set cross_entropy_loss_fusion to False"},
    {DCPK_RULE_REFUSE, limit_tp_overlap, NULL, NULL,
     "--deterministic-mode requires: tp_comm_overlap=False (got True). Adjust these options to "
     "continue.",
     "set tp_comm_overlap to False"},
    {DCPK_RULE_REFUSE, limit_nccl, NULL, limit_nccl_name,
     "NCCL_ALGO='{}': each token must be in ['CollnetChain', 'CollnetDirect', 'Ring', '^NVLS'].",
     "export NCCL_ALGO=Ring"},
    {DCPK_RULE_REFUSE, limit_te, NULL, limit_te_name,
     "NVTE_ALLOW_NONDETERMINISTIC_ALGO='{}' is not a deterministic setting. Accepted: ['0'].",
     "export NVTE_ALLOW_NONDETERMINISTIC_ALGO=0"},
    {DCPK_RULE_REFUSE, limit_cublas, NULL, limit_cublas_name,
     "CUBLAS_WORKSPACE_CONFIG='{}' is not a deterministic setting. Accepted: [':16:8', "
     "':4096:8'].",
     "export CUBLAS_WORKSPACE_CONFIG=:4096:8"},
    {.when = NULL},
};

/* ---- what this loop does not have, and what may surprise ---- */

static bool limit_normalization(const struct dcpk_scene *s)
{
    return !dcpk_rule_text_is(s->knobs->normalization, "RMSNorm");
}
static bool limit_positions(const struct dcpk_scene *s)
{
    return !dcpk_rule_text_is(s->knobs->position_embedding, "rope");
}
static bool limit_mlp(const struct dcpk_scene *s)
{
    return !s->knobs->is_swiglu;
}
static bool limit_biases(const struct dcpk_scene *s)
{
    return s->knobs->adds_bias;
}
/* What args of a checkpoint say of these counts before flags (knobs_take.c). */
static const char *limit_saved_name(const struct dcpk_scene *s)
{
    if (limit_normalization(s))
        return "LayerNorm is";
    if (limit_positions(s))
        return "positions other than rotary ones are";
    if (limit_mlp(s))
        return "an MLP that is not gated is";
    if (limit_biases(s))
        return "biases of linear layers are";
    return NULL;
}
static bool limit_saved_model(const struct dcpk_scene *s)
{
    return s->knobs->takes_saved_args && limit_saved_name(s) != NULL;
}
static bool limit_dropout(const struct dcpk_scene *s)
{
    return s->knobs->hidden_dropout > 0 || s->knobs->attention_dropout > 0;
}
static bool limit_expert_tp(const struct dcpk_scene *s)
{
    return s->knobs->expert_tp != 1;
}
static bool limit_aux_loss(const struct dcpk_scene *s)
{
    return s->knobs->aux_loss > 0;
}
static bool limit_sinkhorn(const struct dcpk_scene *s)
{
    return strcmp(s->knobs->balancing, "sinkhorn") == 0;
}
static bool limit_saved_args(const struct dcpk_scene *s)
{
    return s->knobs->takes_saved_args;
}
static bool limit_plain_hybrid_cp(const struct dcpk_scene *s)
{
    return s->knobs->has_hybrid_cp;
}
static bool limit_single_grouped(const struct dcpk_scene *s)
{
    return s->knobs->has_single_grouped_weight || s->knobs->has_single_grouped_bias;
}
static bool limit_selective(const struct dcpk_scene *s)
{
    return dcpk_rule_text_is(s->knobs->recompute, "selective");
}
static bool limit_saves_torch(const struct dcpk_scene *s)
{
    const char *format = s->knobs->config.files.ckpt_format;

    return dcpk_scene_has_files(s) &&
           (dcpk_rule_text_is(format, "torch") || dcpk_rule_text_is(format, "torch_dcp"));
}
/* Of a run that saves the state of a distributed optimizer as torch_dist. */
static bool limit_saves_states(const struct dcpk_scene *s)
{
    const struct dcpk_train_files *f = &s->knobs->config.files;

    return f->save != NULL && !f->no_save_optim &&
           dcpk_rule_text_is(f->ckpt_format, "torch_dist") &&
           s->knobs->config.fsdp.has_distributed_optimizer;
}
/* Megatron's zarr has one form: no release wrote the optimizer state of generation A into it. */
static bool limit_zarr_generation(const struct dcpk_scene *s)
{
    const struct dcpk_train_files *f = &s->knobs->config.files;

    return f->save != NULL && dcpk_rule_text_is(f->ckpt_format, "zarr") &&
           !dcpk_rule_text_is(f->generation, "C");
}
static bool limit_coarse_sums(const struct dcpk_scene *s)
{
    return !dcpk_rule_text_is(s->knobs->reduce, "native") && s->knobs->exact_lsb < COARSE_LSB;
}
static bool limit_old_generation(const struct dcpk_scene *s)
{
    const char *layout = s->knobs->optimizer_layout;

    if (!limit_saves_states(s) || !dcpk_rule_text_is(s->knobs->config.files.generation, "A"))
        return false;
    if (layout == NULL)
        return s->knobs->is_fully_reshardable;
    return !dcpk_rule_text_is(layout, "flattened");
}
/* How GroupedMLP keeps its state: formats/torch_dist/FORMAT.md 4.5. */
static bool limit_old_experts(const struct dcpk_scene *s)
{
    const struct dcpk_train_model *m = &s->knobs->config.model;

    return limit_saves_states(s) && dcpk_rule_text_is(s->knobs->config.files.generation, "A") &&
           m->experts > 0 && m->is_grouped && dcpk_rule_text_is(s->knobs->impl, "local");
}
static bool limit_flattened(const struct dcpk_scene *s)
{
    return limit_saves_states(s) && dcpk_rule_text_is(s->knobs->optimizer_layout, "flattened") &&
           !dcpk_rule_text_is(s->knobs->config.files.generation, "A");
}
static bool limit_saves_hf(const struct dcpk_scene *s)
{
    return s->knobs->saves_hf;
}
static bool limit_plain_optimizer(const struct dcpk_scene *s)
{
    const char *text = s->knobs->optimizer;

    return !dcpk_option_has_word("adam sgd", text, strlen(text));
}
static bool limit_outer_experts(const struct dcpk_scene *s)
{
    return s->knobs->config.layout.instances > 1 && s->knobs->config.layout.ep > 1;
}
static bool limit_pp(const struct dcpk_scene *s)
{
    return dcpk_scene_has_fsdp(s) && s->knobs->config.layout.pp > 1;
}
static bool limit_unsharded(const struct dcpk_scene *s)
{
    return dcpk_scene_has_fsdp(s) && dcpk_rule_text_is(s->knobs->strategy, "no_shard");
}
static bool limit_default_strategy(const struct dcpk_scene *s)
{
    return dcpk_scene_has_fsdp(s) &&
           !dcpk_knobs_was_given(s->knobs, "data_parallel_sharding_strategy");
}
/* no_shard is what Megatron-Bridge writes into every configuration. */
static bool limit_lone_strategy(const struct dcpk_scene *s)
{
    return !dcpk_scene_has_fsdp(s) &&
           dcpk_knobs_was_given(s->knobs, "data_parallel_sharding_strategy") &&
           !dcpk_rule_text_is(s->knobs->strategy, "no_shard");
}
static bool limit_lone_buffer(const struct dcpk_scene *s)
{
    const struct dcpk_train_fsdp *f = &s->knobs->config.fsdp;

    return !dcpk_scene_has_fsdp(s) && (f->has_double_buffer || f->has_max_pool);
}
static void limit_clear_buffer(struct dcpk_train_knobs *k)
{
    k->config.fsdp.has_double_buffer = false;
    k->config.fsdp.has_max_pool = false;
}
static bool limit_average(const struct dcpk_scene *s)
{
    return s->knobs->config.fsdp.averages_in_collective;
}
static bool limit_fine_grained(const struct dcpk_scene *s)
{
    return s->knobs->config.fsdp.is_fine_grained;
}
static bool limit_blocking_reduce(const struct dcpk_scene *s)
{
    return dcpk_scene_has_fsdp(s) && dcpk_knobs_was_given(s->knobs, "overlap_grad_reduce") &&
           !s->knobs->config.fsdp.overlaps_reduce &&
           dcpk_option_has_word("optim_grads optim_grads_params", s->knobs->strategy,
                                strlen(s->knobs->strategy));
}
static bool limit_blocking_gather(const struct dcpk_scene *s)
{
    return dcpk_scene_has_fsdp(s) && dcpk_knobs_was_given(s->knobs, "overlap_param_gather") &&
           !s->knobs->config.fsdp.overlaps_gather &&
           dcpk_rule_text_is(s->knobs->strategy, "optim_grads_params");
}
static bool limit_bf16_reduce(const struct dcpk_scene *s)
{
    return dcpk_scene_has_fsdp(s) && s->knobs->reduces_in_bf16;
}
static bool limit_old_dtype(const struct dcpk_scene *s)
{
    return dcpk_knobs_was_given(s->knobs, "preserve_fp32_weights");
}
static bool limit_offload(const struct dcpk_scene *s)
{
    return s->knobs->offloads_to_cpu;
}
static bool limit_fused_loss(const struct dcpk_scene *s)
{
    return s->knobs->fuses_cross_entropy || s->knobs->overlaps_tp;
}
static bool limit_overlaps_experts(const struct dcpk_scene *s)
{
    return s->knobs->overlaps_experts;
}
static bool limit_unchecked(const struct dcpk_scene *s)
{
    return !s->knobs->is_fp16 && !s->knobs->config.fsdp.checks_nan;
}
static bool limit_unread(const struct dcpk_scene *s)
{
    return s->knobs->unread != NULL;
}
static const char *limit_unread_names(const struct dcpk_scene *s)
{
    return s->knobs->unread;
}

const struct dcpk_knob_rule dcpk_knob_rules_of_this_loop[] = {
    {DCPK_RULE_REFUSE, limit_saved_model, NULL, limit_saved_name,
     "use_checkpoint_args takes a model that this loop lacks: {} not modelled",
     "load a checkpoint of another model: its args count before flags"},
    {DCPK_RULE_REFUSE, limit_normalization, NULL, NULL, "LayerNorm is not modelled",
     "set normalization to RMSNorm"},
    {DCPK_RULE_REFUSE, limit_positions, NULL, NULL,
     "positions other than rotary ones are not modelled", "set position_embedding_type to rope"},
    {DCPK_RULE_REFUSE, limit_mlp, NULL, NULL, "an MLP that is not gated is not modelled",
     "set swiglu"},
    {DCPK_RULE_REFUSE, limit_biases, NULL, NULL, "biases of linear layers are not modelled",
     "set add_bias_linear to False"},
    {DCPK_RULE_REFUSE, limit_dropout, NULL, NULL, "dropout is not modelled",
     "set hidden_dropout and attention_dropout to 0"},
    {DCPK_RULE_REFUSE, limit_expert_tp, NULL, NULL,
     "tensor parallelism inside experts is not modelled", "set expert_tensor_parallel_size to 1"},
    {DCPK_RULE_REFUSE, limit_aux_loss, NULL, NULL,
     "moe_aux_loss_coeff: losses that balance experts are not modelled",
     "set it to 0, or balance by moe_router_enable_expert_bias"},
    {DCPK_RULE_REFUSE, limit_sinkhorn, NULL, NULL,
     "moe_router_load_balancing_type: sinkhorn is not modelled",
     "set it to none, or balance by moe_router_enable_expert_bias"},
    {DCPK_RULE_ADJUST, limit_saved_args, NULL, NULL,
     "use_checkpoint_args: the model is that of the checkpoint", NULL},
    {DCPK_RULE_REFUSE, limit_plain_hybrid_cp, NULL, NULL,
     "hybrid context parallelism is not modelled", "leave hybrid_context_parallel out"},
    {DCPK_RULE_REFUSE, limit_single_grouped, NULL, NULL,
     "experts in one grouped tensor are not modelled",
     "leave moe_single_grouped_weight and moe_single_grouped_bias out"},
    {DCPK_RULE_REFUSE, limit_selective, NULL, NULL,
     "selective recomputation of activations is not modelled", "set recompute_granularity to full"},
    {DCPK_RULE_REFUSE, limit_saves_torch, NULL, NULL,
     "checkpoints of the formats torch and torch_dcp are not written",
     "set checkpoint.ckpt_format to torch_dist or zarr"},
    {DCPK_RULE_REFUSE, limit_zarr_generation, NULL, NULL,
     "generation is for torch_dist, not for zarr, which is written as core 0.15 reads it",
     "leave generation out; for an older release, set checkpoint.ckpt_format to torch_dist"},
    {DCPK_RULE_REFUSE, limit_old_generation, NULL, NULL,
     "torch_dist of generation A has optimizer state flattened, in no other layout",
     "leave optimizer_layout and dist_ckpt_optim_fully_reshardable out"},
    {DCPK_RULE_REFUSE, limit_old_experts, NULL, NULL,
     "the flattened optimizer state of GroupedMLP, which local modules make of moe_grouped_gemm, "
     "is not written",
     "set transformer_impl to transformer_engine, or leave moe_grouped_gemm out"},
    {DCPK_RULE_REFUSE, limit_flattened, NULL, NULL,
     "only torch_dist of generation A has optimizer state flattened",
     "set generation to A, or leave optimizer_layout out"},
    {DCPK_RULE_REFUSE, limit_saves_hf, NULL, NULL,
     "also_save_hf_checkpoint: a run does not write Hugging Face's format",
     "leave it out, and convert the checkpoint"},
    {DCPK_RULE_REFUSE, limit_plain_optimizer, NULL, NULL, "the optimizer is neither adam nor sgd",
     "choose one of them"},
    {DCPK_RULE_REFUSE, limit_outer_experts, NULL, NULL,
     "several instances of the distributed optimizer are not modelled with expert parallelism",
     "set num_distributed_optimizer_instances or expert_model_parallel_size to 1"},
    {DCPK_RULE_ADJUST, limit_pp, NULL, NULL,
     "pipeline parallelism with Megatron FSDP is an extension of this loop: no release of Megatron "
     "runs it",
     NULL},
    {DCPK_RULE_ADJUST, limit_unsharded, NULL, NULL,
     "data_parallel_sharding_strategy is no_shard: nothing is sharded", NULL},
    {DCPK_RULE_ADJUST, limit_default_strategy, NULL, NULL,
     "data_parallel_sharding_strategy is not set: optim_grads_params, as Megatron-LM has it since "
     "core 0.18, where Megatron-Bridge has no_shard",
     NULL},
    {DCPK_RULE_ADJUST, limit_lone_strategy, NULL, NULL,
     "data_parallel_sharding_strategy has no effect without Megatron FSDP: set use_megatron_fsdp "
     "for it",
     NULL},
    {DCPK_RULE_ADJUST, limit_lone_buffer, limit_clear_buffer, NULL,
     "fsdp_double_buffer has no effect without Megatron FSDP, nor has "
     "megatron_fsdp_max_pool_double_buffer: set use_megatron_fsdp for them",
     NULL},
    {DCPK_RULE_ADJUST, limit_average, NULL, NULL,
     "average_in_collective has no effect here: gradients are scaled once, behind their sum", NULL},
    {DCPK_RULE_ADJUST, limit_fine_grained, NULL, NULL,
     "fine_grained_param_gather has no effect here: weights are gathered by layer", NULL},
    {DCPK_RULE_ADJUST, limit_blocking_reduce, NULL, NULL,
     "overlap_grad_reduce is set to True: gradients are sharded", NULL},
    {DCPK_RULE_ADJUST, limit_blocking_gather, NULL, NULL,
     "overlap_param_gather is set to True: weights are sharded", NULL},
    {DCPK_RULE_ADJUST, limit_bf16_reduce, NULL, NULL,
     "grad_reduce_in_bf16 has no effect with Megatron FSDP since core 0.17: "
     "megatron_fsdp_main_grads_dtype and megatron_fsdp_grad_comm_dtype set the dtypes",
     NULL},
    {DCPK_RULE_ADJUST, limit_old_dtype, NULL, NULL,
     "preserve_fp32_weights is deprecated: it is taken for megatron_fsdp_main_params_dtype", NULL},
    {DCPK_RULE_ADJUST, limit_offload, NULL, NULL,
     "cpu_offloading has no effect here: activations stay where they are", NULL},
    {DCPK_RULE_ADJUST, limit_fused_loss, NULL, NULL,
     "cross_entropy_loss_fusion and tp_comm_overlap have no effect here", NULL},
    {DCPK_RULE_ADJUST, limit_overlaps_experts, NULL, NULL,
     "overlap_moe_expert_parallel_comm has no effect here: tokens travel between computations",
     NULL},
    {DCPK_RULE_ADJUST, limit_unchecked, NULL, NULL,
     "check_for_nan_in_grad is off: a gradient that is not finite still ends the run in this loop",
     NULL},
    {DCPK_RULE_ADJUST, limit_coarse_sums, NULL, NULL,
     "exact_lsb is below 24: gradients of summed losses are rounded to coarse units of "
     "2^-exact_lsb",
     NULL},
    {DCPK_RULE_ADJUST, limit_unread, NULL, limit_unread_names,
     "not read from the configuration: {}", NULL},
    {.when = NULL},
};
