/* SPDX-License-Identifier: Apache-2.0 */
/* knobs_absent.c - flags of Megatron that this loop lacks: why, and what to do without them. */
/*
 * Accepting one of them silently would train another model, or other data, than was asked for.
 * Names: add_megatron_arguments (megatron/training/arguments.py @core_v0.19.0).
 */
#include <string.h>

#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/train/knobs_priv.h"

#define ABSENT_LEAVE "; leave it out, or train such a model with Megatron"

static const struct {
    const char *names; /* parted by blanks; "*" at the end of one stands for any text */
    const char *reason;
} absences[] = {
    {"moe_z_loss_coeff moe_input_jitter_eps moe_router_force_* moe_router_quantile_* "
     "moe_router_dtype moe_router_num_groups moe_router_group_topk moe_router_topk_scaling_factor "
     "moe_router_padding_* moe_enable_routing_replay",
     "experts are chosen by the scores of the router alone" ABSENT_LEAVE},
    {"moe_expert_capacity_factor moe_expert_rank_capacity_factor moe_pad_expert_* "
     "moe_pad_experts_* "
     "moe_token_drop_policy",
     "an expert takes every token that is routed to it" ABSENT_LEAVE},
    {"moe_shared_expert_gate moe_shared_expert_glu_* moe_latent_size moe_apply_probs_on_input "
     "moe_mlp_glu_* moe_use_upcycling moe_upcycling_granularity",
     "experts are gated MLPs of the width of the model" ABSENT_LEAVE},
    {"multi_latent_attention q_lora_rank kv_lora_rank qk_head_dim qk_pos_emb_head_dim v_head_dim "
     "mscale mscale_all_dim rotary_scaling_factor cache_mla_latents mla_* "
     "experimental_attention_variant dsa_* linear_*",
     "attention is that of query groups" ABSENT_LEAVE},
    {"window_size window_attn_skip_freq softmax_type qk_l2_norm qk_clip qk_clip_* "
     "attention_output_gate add_qkv_bias apply_query_key_layer_scaling",
     "attention is full and causal, and has no bias" ABSENT_LEAVE},
    {"use_rope_scaling rope_scaling_factor rotary_interleaved "
     "rotary_seq_len_interpolation_factor yarn_* mrope_section no_rope_freq "
     "relative_attention_*",
     "positions are rotary ones of one base over all of a head" ABSENT_LEAVE},
    {"squared_relu quick_geglu openai_gelu glu_linear_offset activation_func_clamp_value "
     "apply_residual_connection_post_layernorm apply_layernorm_1p fp32_residual_connection "
     "fused_residual_rmsnorm use_fused_weighted_* use_te_activation_func",
     "a layer is RMSNorm, attention, RMSNorm and SwiGLU" ABSENT_LEAVE},
    {"mamba_* hybrid_* is_hybrid_model mtp_hybrid_* mtp_use_repeated_layer mtp_detach_heads "
     "mtp_standalone heterogeneous_* spec encoder_num_layers decoder_num_layers use_mup mup_* "
     "embedding_init_method_std init_method_xavier_uniform",
     "the model is a GPT of equal layers, or of dense and MoE layers" ABSENT_LEAVE},
    {"fp8_* fp4_* first_last_layers_bf16 num_layers_at_* te_precision_* kitchen_* "
     "use_kitchen_attention use_transformer_engine_op_fuser",
     "there is no compute in FP8 or FP4" ABSENT_LEAVE},
    {"loss_scale", "the loss scale of fp16 is a dynamic one; set initial_loss_scale instead"},
    {"fp16_lm_cross_entropy disable_bf16_reduced_precision_matmul main_grads_dtype "
     "main_params_dtype exp_avg_dtype exp_avg_sq_dtype",
     "sums and moments are fp32; with Megatron FSDP set megatron_fsdp_main_params_dtype or "
     "megatron_fsdp_main_grads_dtype instead"},
    {"num_layers_per_virtual_pipeline_stage num_virtual_stages_per_pipeline_rank "
     "virtual_pipeline_model_parallel_size pipeline_model_parallel_layout "
     "decoder_first_pipeline_num_layers decoder_last_pipeline_num_layers "
     "account_for_embedding_* account_for_loss_* "
     "microbatch_group_size_* model_parallel_size tensor_parallel_num_weight_shards "
     "expert_tensor_parallel_num_weight_shards hierarchical_context_parallel_sizes "
     "max_seqlen_per_dp_cp_rank",
     "pipeline stages have equal numbers of layers and one chunk each; set "
     "pipeline_model_parallel_size and tensor_model_parallel_size alone"},
    {"use_mp_args_from_checkpoint_args",
     "ranks are laid out as asked for, whatever layout the checkpoint had; leave it out"},
    {"train_samples lr_decay_samples lr_warmup_samples lr_wsd_decay_samples rampup_batch_size "
     "step_batch_size_schedule decrease_batch_size_if_needed batch_size iter_per_epoch",
     "a run is counted in iterations of one batch size; set train_iters, lr_decay_iters, "
     "lr_warmup_iters and global_batch_size instead"},
    {"exit_duration_in_mins iterations_to_skip skip_train",
     "a run ends behind an iteration; set exit_interval or train_iters instead"},
    {"data_path train_data_path valid_data_path test_data_path data_args_path "
     "per_split_data_args_path per_dataset_sequences_path fim_* sft sft_* reset_position_ids "
     "reset_attention_mask eod_mask_loss dataloader_inter_document_masking "
     "phase_transition_iterations",
     "data are mock data or a file of tokens in their order; set token_file instead"},
    {"padded_vocab_size pad_vocab_size vocab_extra_ids",
     "the vocabulary is padded for tensor parallelism; set vocab_size and "
     "make_vocab_size_divisible_by instead"},
    {"ckpt_step", "a checkpoint is named by its folder; load its iter_* instead"},
    {"pretrained_checkpoint", "a run starts from one checkpoint; set load and finetune instead"},
    {"ckpt_convert_*", "a run saves in one format; convert the checkpoint instead"},
    {"non_persistent_* persistent_save_interval save_params_interval save_activations_interval "
     "save_tokens_per_expert_interval save_wgrads_interval save_dgrads_interval "
     "save_retain_interval dist_ckpt_format dist_ckpt_save_pre_* override_ckpt_iteration "
     "load_main_params_from_ckpt replication replication_*",
     "a run saves whole checkpoints; set save_interval, ckpt_format and generation instead"},
    {"ddp_average_in_collective ddp_num_buckets ddp_pad_* ddp_reduce_scatter_* ddp_param_name_* "
     "overlap_param_gather_with_optimizer_step enable_full_sharding_in_hsdp torch_fsdp2_*",
     "buckets are Megatron FSDP's, or one of all parameters; set average_in_collective, "
     "ddp_bucket_size or outer_dp_sharding_strategy instead"},
    {"optimizer_cpu_offload optimizer_offload_fraction optimizer_cuda_graph "
     "use_torch_optimizer_for_* overlap_cpu_optimizer_* pin_cpu_* cpu_offloading_* "
     "fine_grained_* offload_modules min_offloaded_* delay_offload_* delta_offload_* "
     "activation_offload_* moe_paged_* distribute_saved_activations",
     "optimizer state and activations stay on the device; leave it out"},
    {"checkpoint_activations recompute_activations recompute_modules moe_layer_recompute",
     "activations of whole layers are computed again; set recompute_granularity to full instead"},
    {"muon_* lion_* decoupled_lr decoupled_min_lr head_lr_mult freeze_all_layers "
     "no_weight_decay_cond_type weight_decay_cond_type use_layer_wise_param_layout",
     "all parameters have one learning rate, by adam or sgd; leave it out"},
    {"perform_rl_step rl_* grpo_* langrl_* refit_method",
     "there is no reinforcement learning; leave it out"},
    {"inference_* decode_only_* enable_chunked_prefill num_speculative_tokens flash_decode "
     "max_tokens_to_oom output_bert_embeddings use_legacy_static_engine mlp_chunks_* "
     "nccl_all_reduce_for_prefill use_same_sampling_* symmetric_ar_type batch_invariant_mode",
     "there is no inference; leave it out"},
    {"logits_* moe_routing_trace_*", "logits and routes are not kept; leave it out"},
    {"bert_* ict_* biencoder_* titles_* query_in_* use_one_sent_* evidence_* retriever_* block_* "
     "embedding_path indexer_* num_classes img_* num_channels patch_dim classes_* "
     "data_per_class_* data_sharding vision_* swin_* mask_* dino_* sample_rate short_seq_prob "
     "encoder_seq_length decoder_seq_length",
     "the model is a decoder of texts; leave it out"},
    {"adlr_* inprocess_* enable_ft_package calc_ft_* ft_* rerun_mode error_injection_* "
     "fault_injector_* result_rejected_* check_for_spiky_loss check_for_large_grads "
     "exit_on_missing_checkpoint verify_integrity test_mode fake_process_group gpu_sniff_*",
     "a run is not started again by itself and injects no faults; leave it out"},
    {"data_parallel_random_init warmup yaml_cfg onnx_safe",
     "all data-parallel ranks begin alike, by the knobs; leave it out"},
    {"full_validation multiple_validation_sets validation_set_names eval_global_batch_size "
     "eval_micro_batch_size start_eval_at_iter",
     "this loop does not evaluate; leave it out"},
    {"use_ring_exchange_p2p defer_embedding_wgrad_compute wgrad_deferral_limit "
     "overlap_p2p_communication_warmup_flush overlap_dispatch_* ep_overlap_*",
     "pipeline stages run one forward and one backward; leave it out"},
    {"async_ckpt_* ckpt_fully_parallel_* stream_ckpt_dequant clone_scatter_* high_priority_a2a_* "
     "moe_deepep_* moe_flex_* moe_hybridep_* moe_ncclep_* moe_permute_* use_grouped_gemm_* "
     "allow_ambiguous_* chat_template config_logger_dir dataloader_* flight_recorder_* straggler_* "
     "exit_signal_handler_* mid_level_* barrier_with_* null_tokenizer_* object_storage_* "
     "pytorch_profiler_* record_shapes run_workload_* sharp_* tiktoken_* tokenizer_*",
     "it tunes a part of Megatron that this loop does without; leave it out"},
};

/* `pattern` of n_bytes: a name, or its beginning and "*". */
static bool absence_covers(const char *pattern, size_t n_bytes, const char *name)
{
    const bool is_open = pattern[n_bytes - 1] == '*';
    const size_t n = n_bytes - is_open;

    for (size_t i = 0; i < n; i++)
        if (name[i] != pattern[i] && (name[i] != '-' || pattern[i] != '_'))
            return false;
    return is_open || name[n] == '\0';
}

static const char *absence_of(const char *name)
{
    for (size_t i = 0; i < DCPK_COUNT(absences); i++)
        for (const char *at = absences[i].names; *at != '\0';) {
            const size_t n = strcspn(at, " ");

            if (absence_covers(at, n, name))
                return absences[i].reason;
            at += n + strspn(at + n, " ");
        }
    return NULL;
}

const char *dcpk_knob_absence(const char *name)
{
    static const char *const opposites[] = {"no-", "no_", "disable-", "disable_"};
    const char *dot, *reason;

    if (dcpk_knob_find(name) != NULL)
        return NULL;
    if (dcpk_starts_with(name, "--"))
        name += 2;
    dot = strchr(name, '.');
    if (dot != NULL)
        name = dot + 1;
    reason = absence_of(name);
    for (size_t i = 0; i < DCPK_COUNT(opposites) && reason == NULL; i++)
        if (dcpk_starts_with(name, opposites[i]))
            reason = absence_of(name + strlen(opposites[i]));
    return reason;
}
