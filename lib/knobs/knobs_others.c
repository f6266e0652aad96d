/* SPDX-License-Identifier: Apache-2.0 */
/* knobs_others.c - flags of Megatron that change nothing here, and those that this loop lacks: why,
 * and what to do without them. */
/*
 * Accepting one of the latter silently would train another model, or other data, than was asked
 * for. Names: add_megatron_arguments (megatron/training/arguments.py @core_v0.19.0).
 */
#include <string.h>

#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/knobs/knobs_priv.h"

/* ---- accepted without effect ---- */

#define ARGUMENTS   DCPK_OF_ARGUMENTS
#define TRANSFORMER DCPK_OF_TRANSFORMER

const struct dcpk_knob_set dcpk_knobs_without_effect[] = {
    {"keep_fp8_transpose_cache=false", "ddp", DCPK_OF_DDP, "there is no FP8 compute in this loop"},
    {"fp8_param_gather=false,fp8_param", "ddp model mixed_precision", DCPK_OF_DDP,
     "there is no FP8 compute in this loop"},
    {"report_nan_in_param_grad=false", "ddp", DCPK_OF_FSDP,
     "a gradient that is not finite is named, with and without it"},
    {"no_load_rng=false,!load_rng", "checkpoint", ARGUMENTS,
     "no state of random generators is read"},
    {"gradient_reduce_div_fusion=true", "ddp", DCPK_OF_DDP,
     "gradients are scaled once, after their sum"},
    {"fsdp_db_use_persist_buf_on_alloc_fail=false", "ddp", DCPK_OF_DDP,
     "a unit that does not fit the double buffer has a buffer of its own"},
    {"create_all_gather_group=false", "dist", ARGUMENTS,
     "gathers always have a group of their own"},
    {"high_priority_stream_groups", "dist", ARGUMENTS, "streams have one priority"},
    {"fsdp_all_gather_in_start_param_sync=true", "ddp", DCPK_OF_DDP,
     "the first buffer is always gathered at the start of a step"},
    {"enable_cuda_graph=false cuda_graph_impl", "model", ARGUMENTS,
     "there are no CUDA graphs in this loop"},
    {"cuda_graph_scope cuda_graph_modules cuda_graph_warmup_steps external_cuda_graph=false",
     "model", TRANSFORMER, "there are no CUDA graphs in this loop"},
    {"use_precision_aware_optimizer=false", "optimizer", DCPK_OF_OPTIMIZER, "moments are fp32"},
    {"sequence_parallel=false", "model", TRANSFORMER,
     "norms are computed by every tensor-parallel rank"},
    {"accumulate_allreduce_grads_in_fp32=false", "run", ARGUMENTS,
     "gradients are added up in fp32 unless other knobs set another dtype"},
    {"recompute_method recompute_num_layers", "model", TRANSFORMER,
     "each layer is computed again by itself"},
    {"attention_backend masked_softmax_fusion=true", "model", ARGUMENTS,
     "there is one way to compute attention"},
    {"use_flash_attn=false", "run", ARGUMENTS, "there is one way to compute attention"},
    {"flash_attention_version", "model", TRANSFORMER, "there is one way to compute attention"},
    {"mock_data=false", "run", ARGUMENTS, "data are mock data if no file of tokens is given"},
    {"distributed_backend distributed_timeout_minutes distributed_timeout_seconds_after_init "
     "nccl_communicator_config_path pipeline_model_parallel_comm_backend flight_recorder_dump_path "
     "local_rank use_gloo_process_groups=true,!disable_gloo_process_groups use_sharp=false "
     "lazy_mpu_init=false",
     "dist", ARGUMENTS, "the launcher connects the ranks"},
    {"log_interval", "logger", ARGUMENTS, "every iteration is logged"},
    {"eval_interval eval_iters", "train validation", ARGUMENTS, "this loop does not evaluate"},
    {"tokenizer_type tokenizer_model tokenizer_metadata vocab_file merge_file tiktoken_pattern "
     "trust_remote_code=false",
     "tokenizer", ARGUMENTS, "data are numbers of tokens"},
    {"use_tokenizer_model_from_checkpoint_args=true,!disable", "checkpoint", ARGUMENTS,
     "data are numbers of tokens"},
    {"num_workers split data_cache_path num_dataset_builder_threads mmap_bin_files=true", "dataset",
     ARGUMENTS, "samples are read when they are needed"},
    {"moe_token_dispatcher_type moe_permute_fusion=false moe_router_fusion=false "
     "moe_shared_expert_overlap=false moe_enable_deepep=false moe_flex_dispatcher_backend",
     "model", TRANSFORMER, "there is one way to send tokens to experts"},
    {"persist_layer_norm=true", "model", ARGUMENTS, "there is one way to compute a norm"},
    {"rope_fusion=true,apply_rope_fusion", "model", ARGUMENTS,
     "there is one way to turn queries and keys"},
    {"bias_swiglu_fusion=true", "model", ARGUMENTS, "there is one way to compute SwiGLU"},
    {"bias_dropout_fusion=true", "model", ARGUMENTS, "there are neither biases nor dropout"},
    {"log_params_norm=false log_progress=false log_num_zeros_in_grad=false "
     "log_memory_to_tensorboard=false log_validation_ppl_to_tensorboard=false "
     "log_world_size_to_tensorboard=false log_device_memory_used=false log_energy=false "
     "log_straggler=false log_max_attention_logit=false tensorboard_queue_size wandb_project "
     "wandb_exp_name wandb_save_dir wandb_entity timing_log_level timing_log_option logging_level "
     "log_memory_interval one_logger=true one_logger_project one_logger_run_name app_tag_run_name "
     "app_tag_run_version one_logger_async=false",
     "logger", ARGUMENTS, "this loop logs a line of JSON for each iteration"},
    {"moe_per_layer_logging=false", "model", TRANSFORMER,
     "this loop logs a line of JSON for each iteration"},
    {"profile=false use_pytorch_profiler=false record_memory_history=false "
     "profile_step_start profile_step_end profile_ranks memory_snapshot_path",
     "run", ARGUMENTS,
     "note_times has the seconds of phases, nvtx_ranges shows them in Nsight Systems"},
    {"manual_gc=false manual_gc_interval manual_gc_eval=true,!disable", "train", ARGUMENTS,
     "there is no garbage to collect"},
    {"empty_unused_memory_level", "train", ARGUMENTS, "memory is allocated once"},
    {"train_sync_interval", "train", ARGUMENTS, "ranks wait for each other in every iteration"},
    {"exit_signal_handler=false exit_signal", "train", ARGUMENTS,
     "SIGINT and SIGTERM always end the run after the current iteration"},
    {"ckpt_fully_parallel_save=true,fully_parallel_save "
     "ckpt_fully_parallel_load=false,fully_parallel_load",
     "checkpoint", ARGUMENTS, "checkpoints are written and read by all ranks"},
    {"ckpt_assume_constant_structure=false", "checkpoint", ARGUMENTS,
     "each checkpoint is planned from scratch"},
    {"auto_detect_ckpt_format=false", "checkpoint", ARGUMENTS,
     "the format of a loaded checkpoint is always detected"},
    {"use_persistent_ckpt_worker=false async_strategy dist_ckpt_workers", "checkpoint", ARGUMENTS,
     "threads of the rank write a checkpoint while training continues"},
    {"use_dist_ckpt=false", "checkpoint", ARGUMENTS,
     "checkpoints are distributed ones unless ckpt_format differs"},
    {"ckpt_load_validate_sharding_integrity=true,!disable", "checkpoint", ARGUMENTS,
     "a loaded checkpoint is always checked for gaps and overlaps"},
    {"distrib_optim_fully_reshardable_mem_efficient=false", "checkpoint", ARGUMENTS,
     "optimizer state is never gathered on one rank"},
    {"create_attention_mask_in_dataloader=true", "dataset", ARGUMENTS,
     "attention is causal without a mask"},
    {"use_mcore_models=false enable_experimental=false", "model", ARGUMENTS, "there is one model"},
    {"use_cpu_initialization=false", "model", TRANSFORMER,
     "weights are the same wherever they are made"},
    {"perform_initialization=true,initialization", "model", TRANSFORMER,
     "weights are always made or loaded"},
    {"use_rotary_position_embeddings=false position_embedding=true", "model", ARGUMENTS,
     "positions are rotary"},
    {"attention_softmax_in_fp32=true", "model", TRANSFORMER, "softmax is always computed in fp32"},
    {"cp_comm_type", "model", TRANSFORMER, "keys and values are gathered"},
    {"bias_gelu_fusion=true", "model", ARGUMENTS, "there is no GELU"},
    {"cross_entropy_fusion_impl", "model", TRANSFORMER, "the loss is computed in one way"},
    {"jit_fuser=true,!disable", "dist", ARGUMENTS, "nothing is compiled when it runs"},
    {"delay_wgrad_compute=false", "model", TRANSFORMER, "products are computed in one order"},
    {"overlap_p2p_communication=true,overlap_p2p_comm", "model", TRANSFORMER,
     "pipeline stages send when they are done"},
    {"align_grad_reduce=true,!disable", "ddp", ARGUMENTS, "stages reduce when they are done"},
    {"align_param_gather=true", "ddp", ARGUMENTS, "stages gather when they need weights"},
    {"tp_comm_overlap_ag=true,!disable tp_comm_overlap_rs=true,!disable "
     "tp_comm_bulk_wgrad=true,!disable tp_comm_bulk_dgrad=true,!disable "
     "tp_comm_split_ag=true,!disable tp_comm_split_rs=true,!disable tp_comm_overlap_rs_dgrad=true "
     "tp_comm_bootstrap_backend",
     "model", TRANSFORMER, "tensor-parallel ranks exchange when products are done"},
    {"tp_comm_overlap_cfg", "run", ARGUMENTS,
     "tensor-parallel ranks exchange when products are done"},
    {"te_rng_tracker=false inference_rng_tracker=false", "rng model", ARGUMENTS,
     "random numbers are computed from the element's index"},
    {"enable_msc=true,!disable_msc", "checkpoint", ARGUMENTS,
     "folders are those of the file system"},
    {.names = NULL},
};

/* ---- not in this loop ---- */

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
     "moe_pad_experts_* moe_token_drop_policy",
     "an expert takes every token that is routed to it" ABSENT_LEAVE},
    {"moe_shared_expert_gate moe_shared_expert_glu_* moe_latent_size moe_apply_probs_on_input "
     "moe_mlp_glu_* moe_use_upcycling moe_upcycling_granularity",
     "experts are gated MLPs of the width of the model" ABSENT_LEAVE},
    {"multi_latent_attention q_lora_rank kv_lora_rank qk_head_dim qk_pos_emb_head_dim v_head_dim "
     "mscale mscale_all_dim rotary_scaling_factor cache_mla_latents mla_* "
     "experimental_attention_variant dsa_* linear_*",
     "attention is by query groups" ABSENT_LEAVE},
    {"window_size window_attn_skip_freq softmax_type qk_l2_norm qk_clip qk_clip_* "
     "attention_output_gate add_qkv_bias apply_query_key_layer_scaling",
     "attention is full and causal, and has no bias" ABSENT_LEAVE},
    {"use_rope_scaling rope_scaling_factor rotary_interleaved rotary_seq_len_interpolation_factor "
     "yarn_* mrope_section no_rope_freq relative_attention_*",
     "positions are rotary, with one base over the whole head" ABSENT_LEAVE},
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
    {"loss_scale", "the loss scale of fp16 is dynamic; set initial_loss_scale instead"},
    {"fp16_lm_cross_entropy disable_bf16_reduced_precision_matmul main_grads_dtype "
     "main_params_dtype exp_avg_dtype exp_avg_sq_dtype",
     "sums and moments are fp32; with Megatron FSDP set megatron_fsdp_main_params_dtype or "
     "megatron_fsdp_main_grads_dtype instead"},
    {"num_layers_per_virtual_pipeline_stage num_virtual_stages_per_pipeline_rank "
     "virtual_pipeline_model_parallel_size pipeline_model_parallel_layout "
     "decoder_first_pipeline_num_layers decoder_last_pipeline_num_layers account_for_embedding_* "
     "account_for_loss_* microbatch_group_size_* model_parallel_size "
     "tensor_parallel_num_weight_shards expert_tensor_parallel_num_weight_shards "
     "hierarchical_context_parallel_sizes max_seqlen_per_dp_cp_rank",
     "pipeline stages have equal numbers of layers and one chunk each; set "
     "pipeline_model_parallel_size and tensor_model_parallel_size alone"},
    {"use_mp_args_from_checkpoint_args",
     "the layout of ranks is that of the knobs, not that of the checkpoint; leave it out"},
    {"train_samples lr_decay_samples lr_warmup_samples lr_wsd_decay_samples rampup_batch_size "
     "step_batch_size_schedule decrease_batch_size_if_needed batch_size iter_per_epoch",
     "a run is counted in iterations of one batch size; set train_iters, lr_decay_iters, "
     "lr_warmup_iters and global_batch_size instead"},
    {"exit_duration_in_mins iterations_to_skip skip_train",
     "a run ends after an iteration; set exit_interval or train_iters instead"},
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
    {"ddp_num_buckets ddp_pad_* ddp_reduce_scatter_* ddp_param_name_* "
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
     "a run does not restart itself and injects no faults; leave it out"},
    {"data_parallel_random_init warmup yaml_cfg onnx_safe",
     "all data-parallel ranks start from the same weights; leave it out"},
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
     "it tunes a part of Megatron that this loop does not have; leave it out"},
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
    for (size_t i = 0; i < DCPK_COUNT(absences); i++) {
        const char *at = absences[i].names, *pattern;
        size_t n;

        while ((pattern = dcpk_take_word(&at, &n)) != NULL)
            if (absence_covers(pattern, n, name))
                return absences[i].reason;
    }
    return NULL;
}

const char *dcpk_knob_absence(const char *name)
{
    static const char *const opposites[] = {"no-", "no_", "disable-", "disable_"};
    struct dcpk_knob_walk walk;
    const char *dot, *reason;

    if (dcpk_knob_find(name, &walk) != NULL)
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
