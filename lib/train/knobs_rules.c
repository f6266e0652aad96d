/* SPDX-License-Identifier: Apache-2.0 */
/* knobs_rules.c - what Megatron refuses and adjusts, in its order: one row a rule. */
/*
 * Sentences are those of the documents that describe Megatron-FSDP (its user guide, the guides of
 * Megatron-Bridge), else those of validate_args (megatron/training/arguments.py @core_v0.19.0): who
 * searches for one finds their pages. A few name Megatron's own flags, as tests/layers.sh lists
 * them. lib/rules/forbidden.c has the same rules for args of a checkpoint that exists.
 */
#include <string.h>

#include "lib/train/knobs_rules_priv.h"

#define RULE_FSDP "Megatron FSDP"

bool dcpk_rule_text_is(const char *text, const char *word)
{
    return text != NULL && strcmp(text, word) == 0;
}

bool dcpk_scene_has_fsdp(const struct dcpk_scene *s)
{
    return s->knobs->use_fsdp_in_dist || s->knobs->use_fsdp_in_ddp;
}

bool dcpk_scene_has_files(const struct dcpk_scene *s)
{
    const struct dcpk_train_files *f = &s->knobs->config.files;

    return f->save != NULL || f->load != NULL;
}

static bool rule_has_one_connection(const struct dcpk_scene *s)
{
    return dcpk_rule_text_is(s->environment->max_connections, "1");
}

/* ---- which data parallelism ---- */

static bool rule_custom(const struct dcpk_scene *s)
{
    return s->knobs->use_custom_fsdp;
}
static void rule_set_fsdp(struct dcpk_train_knobs *k)
{
    k->use_fsdp_in_dist = true;
    k->use_fsdp_in_ddp = true;
}
static bool rule_one_section(const struct dcpk_scene *s)
{
    return s->knobs->use_fsdp_in_dist != s->knobs->use_fsdp_in_ddp;
}
static bool rule_both_fsdps(const struct dcpk_scene *s)
{
    return dcpk_scene_has_fsdp(s) && s->knobs->use_torch_fsdp2;
}
static bool rule_strategy(const struct dcpk_scene *s)
{
    const char *text = s->knobs->strategy;

    return !dcpk_option_has_word("no_shard optim optim_grads optim_grads_params", text,
                                 strlen(text));
}
static const char *rule_strategy_name(const struct dcpk_scene *s)
{
    return s->knobs->strategy;
}

const struct dcpk_knob_rule dcpk_knob_rules_of_modes[] = {
    {DCPK_RULE_ADJUST, rule_custom, rule_set_fsdp, NULL,
     "use_custom_fsdp is deprecated: it is taken for use_megatron_fsdp", NULL},
    {DCPK_RULE_ADJUST, rule_one_section, rule_set_fsdp, NULL,
     "use_megatron_fsdp is set in one of dist and ddp: it counts for both", NULL},
    {DCPK_RULE_REFUSE, rule_both_fsdps, NULL, NULL,
     "Using use_megatron_fsdp and use_torch_fsdp2 at the same time is not supported",
     "choose one FSDP implementation: either Megatron FSDP or Torch FSDP2"},
    {DCPK_RULE_REFUSE, rule_strategy, NULL, rule_strategy_name,
     "Invalid data_parallel_sharding_strategy: {}",
     "choose no_shard, optim, optim_grads or optim_grads_params"},
    {.when = NULL},
};

/* ---- overlap without FSDP, and PyTorch's FSDP2 ---- */

static bool rule_gather_alone(const struct dcpk_scene *s)
{
    const struct dcpk_train_fsdp *f = &s->knobs->config.fsdp;

    return f->overlaps_gather && !dcpk_scene_has_fsdp(s) && !f->has_distributed_optimizer;
}
static bool rule_gather_unreduced(const struct dcpk_scene *s)
{
    const struct dcpk_train_fsdp *f = &s->knobs->config.fsdp;

    return f->overlaps_gather && !dcpk_scene_has_fsdp(s) && !f->overlaps_reduce;
}
static bool rule_fsdp2_pp(const struct dcpk_scene *s)
{
    return s->knobs->use_torch_fsdp2 && s->knobs->config.layout.pp > 1;
}
static bool rule_fsdp2_ep(const struct dcpk_scene *s)
{
    return s->knobs->use_torch_fsdp2 && s->knobs->config.layout.ep > 1;
}
static bool rule_fsdp2_optimizer(const struct dcpk_scene *s)
{
    return s->knobs->use_torch_fsdp2 && s->knobs->config.fsdp.has_distributed_optimizer;
}
static bool rule_fsdp2_fusion(const struct dcpk_scene *s)
{
    return s->knobs->use_torch_fsdp2 && s->knobs->fuses_accumulation;
}
static bool rule_fsdp2_format(const struct dcpk_scene *s)
{
    const char *format = s->knobs->config.files.ckpt_format;

    return s->knobs->use_torch_fsdp2 && !dcpk_rule_text_is(format, "torch_dist") &&
           !dcpk_rule_text_is(format, "torch_dcp");
}
static bool rule_fsdp2_tied(const struct dcpk_scene *s)
{
    return s->knobs->use_torch_fsdp2 && !s->knobs->is_untied;
}
static bool rule_fsdp2_fp16(const struct dcpk_scene *s)
{
    return s->knobs->use_torch_fsdp2 && s->knobs->is_fp16;
}
static bool rule_fsdp2_connections(const struct dcpk_scene *s)
{
    return s->knobs->use_torch_fsdp2 && rule_has_one_connection(s);
}
static bool rule_fsdp2(const struct dcpk_scene *s)
{
    return s->knobs->use_torch_fsdp2;
}

#define RULE_CONNECTIONS "FSDP always requires CUDA_DEVICE_MAX_CONNECTIONS value large than one"
#define RULE_NO_CONNECTIONS                                                                        \
    "unset CUDA_DEVICE_MAX_CONNECTIONS, so that communication and computation overlap"

const struct dcpk_knob_rule dcpk_knob_rules_of_others[] = {
    {DCPK_RULE_REFUSE, rule_gather_alone, NULL, NULL,
     "--overlap-param-gather only supported with distributed optimizer, megatron fsdp, or "
     "dist_muon",
     "set use_distributed_optimizer"},
    {DCPK_RULE_REFUSE, rule_gather_unreduced, NULL, NULL,
     "Must use --overlap-param-gather with --overlap-grad-reduce", "set overlap_grad_reduce"},
    {DCPK_RULE_REFUSE, rule_fsdp2_pp, NULL, NULL,
     "--use-torch-fsdp2 is not supported with pipeline parallelism",
     "set pipeline_model_parallel_size to 1"},
    {DCPK_RULE_REFUSE, rule_fsdp2_ep, NULL, NULL,
     "--use-torch-fsdp2 is not supported with expert parallelism",
     "set expert_model_parallel_size to 1"},
    {DCPK_RULE_REFUSE, rule_fsdp2_optimizer, NULL, NULL,
     "--use-torch-fsdp2 is not supported with MCore's distributed optimizer",
     "leave use_distributed_optimizer out"},
    {DCPK_RULE_REFUSE, rule_fsdp2_fusion, NULL, NULL,
     "--use-torch-fsdp2 is not supported with gradient accumulation fusion",
     "set gradient_accumulation_fusion to False"},
    {DCPK_RULE_REFUSE, rule_fsdp2_format, NULL, NULL,
     "--use-torch-fsdp2 requires --ckpt-format torch_dist or torch_dcp",
     "set checkpoint.ckpt_format to torch_dist"},
    {DCPK_RULE_REFUSE, rule_fsdp2_tied, NULL, NULL,
     "--use-torch-fsdp2 requires --untie-embeddings-and-output-weights",
     "set untie_embeddings_and_output_weights"},
    {DCPK_RULE_REFUSE, rule_fsdp2_fp16, NULL, NULL, "--use-torch-fsdp2 not supported with fp16 yet",
     "train in bf16 or fp32"},
    {DCPK_RULE_REFUSE, rule_fsdp2_connections, NULL, NULL, RULE_CONNECTIONS, RULE_NO_CONNECTIONS},
    {DCPK_RULE_REFUSE, rule_fsdp2, NULL, NULL,
     "use_torch_fsdp2 is not implemented; FSDP2 is experimental upstream", "use Megatron FSDP"},
    {.when = NULL},
};

/* ---- Megatron-FSDP ---- */

static bool rule_version(const struct dcpk_scene *s)
{
    return dcpk_scene_has_fsdp(s) && s->knobs->fsdp_version != 1;
}
static bool rule_mapping(const struct dcpk_scene *s)
{
    return dcpk_scene_has_fsdp(s) && s->knobs->config.layout.is_tp_pp_dp;
}
static bool rule_no_optimizer(const struct dcpk_scene *s)
{
    return dcpk_scene_has_fsdp(s) && !s->knobs->config.fsdp.has_distributed_optimizer;
}
static void rule_set_optimizer(struct dcpk_train_knobs *k)
{
    k->config.fsdp.has_distributed_optimizer = true;
}
static bool rule_average(const struct dcpk_scene *s)
{
    return dcpk_scene_has_fsdp(s) && s->knobs->config.fsdp.averages_in_collective;
}
static void rule_clear_average(struct dcpk_train_knobs *k)
{
    k->config.fsdp.averages_in_collective = false;
}
static bool rule_fusion(const struct dcpk_scene *s)
{
    return dcpk_scene_has_fsdp(s) && s->knobs->fuses_accumulation;
}
static void rule_clear_fusion(struct dcpk_train_knobs *k)
{
    k->fuses_accumulation = false;
}
static bool rule_ddp_reuse(const struct dcpk_scene *s)
{
    return dcpk_scene_has_fsdp(s) && s->knobs->reuses_grad_buf_in_ddp;
}
static void rule_clear_ddp_reuse(struct dcpk_train_knobs *k)
{
    k->reuses_grad_buf_in_ddp = false;
}
static bool rule_optimizer_reuse(const struct dcpk_scene *s)
{
    return dcpk_scene_has_fsdp(s) && s->knobs->reuses_grad_buf_in_optimizer;
}
static void rule_clear_optimizer_reuse(struct dcpk_train_knobs *k)
{
    k->reuses_grad_buf_in_optimizer = false;
}
static bool rule_grouped(const struct dcpk_scene *s)
{
    return dcpk_scene_has_fsdp(s) &&
           (s->knobs->has_single_grouped_weight || s->knobs->has_single_grouped_bias);
}
static bool rule_optimizer(const struct dcpk_scene *s)
{
    const char *text = s->knobs->optimizer;

    return dcpk_scene_has_fsdp(s) && !dcpk_option_has_word("adam sgd", text, strlen(text));
}
static const char *rule_optimizer_name(const struct dcpk_scene *s)
{
    return s->knobs->optimizer;
}
static bool rule_weight_hash(const struct dcpk_scene *s)
{
    return dcpk_scene_has_fsdp(s) && s->knobs->config.fsdp.hash_interval > 0 &&
           dcpk_rule_text_is(s->knobs->strategy, "optim_grads_params");
}
static bool rule_connections(const struct dcpk_scene *s)
{
    return dcpk_scene_has_fsdp(s) && rule_has_one_connection(s);
}
static bool rule_format(const struct dcpk_scene *s)
{
    return dcpk_scene_has_fsdp(s) && dcpk_scene_has_files(s) &&
           !dcpk_rule_text_is(s->knobs->config.files.ckpt_format, "fsdp_dtensor");
}
static bool rule_buffers(const struct dcpk_scene *s)
{
    const struct dcpk_train_fsdp *f = &s->knobs->config.fsdp;

    return dcpk_scene_has_fsdp(s) && s->knobs->has_nccl_ub &&
           !(s->knobs->registers_by_hand && f->has_double_buffer);
}
static void rule_set_buffers(struct dcpk_train_knobs *k)
{
    k->registers_by_hand = true;
    k->config.fsdp.has_double_buffer = true;
}
static bool rule_max_pool(const struct dcpk_scene *s)
{
    const struct dcpk_train_fsdp *f = &s->knobs->config.fsdp;

    return dcpk_scene_has_fsdp(s) && f->has_max_pool && !f->has_double_buffer;
}
static void rule_set_double_buffer(struct dcpk_train_knobs *k)
{
    k->config.fsdp.has_double_buffer = true;
}
static bool rule_meta_init(const struct dcpk_scene *s)
{
    return dcpk_scene_has_fsdp(s) && s->knobs->asks_meta_init &&
           dcpk_rule_text_is(s->knobs->strategy, "no_shard");
}
static bool rule_registration_alone(const struct dcpk_scene *s)
{
    return s->knobs->registers_by_hand && !dcpk_scene_has_fsdp(s);
}
static bool rule_registration(const struct dcpk_scene *s)
{
    return s->knobs->registers_by_hand && !s->knobs->has_nccl_ub;
}

const struct dcpk_knob_rule dcpk_knob_rules_of_fsdp[] = {
    {DCPK_RULE_REFUSE, rule_version, NULL, NULL, "MFSDP v2 layouts are not modelled",
     "set megatron_fsdp_version to 1"},
    {DCPK_RULE_REFUSE, rule_mapping, NULL, NULL,
     "use_tp_pp_dp_mapping is not supported with " RULE_FSDP,
     "remove use_tp_pp_dp_mapping=True: FSDP requires standard rank initialization order"},
    {DCPK_RULE_ADJUST, rule_no_optimizer, rule_set_optimizer, NULL,
     "use_distributed_optimizer is set to True: Megatron-FSDP is only compatible with it", NULL},
    {DCPK_RULE_ADJUST, rule_average, rule_clear_average, NULL,
     "average_in_collective is not supported with " RULE_FSDP ": setting to False", NULL},
    {DCPK_RULE_ADJUST, rule_fusion, rule_clear_fusion, NULL,
     "gradient_accumulation_fusion is not compatible with " RULE_FSDP ": setting to False", NULL},
    {DCPK_RULE_ADJUST, rule_ddp_reuse, rule_clear_ddp_reuse, NULL,
     "ddp.reuse_grad_buf_for_mxfp8_param_ag is disabled for " RULE_FSDP ": setting to False", NULL},
    {DCPK_RULE_ADJUST, rule_optimizer_reuse, rule_clear_optimizer_reuse, NULL,
     "optimizer.reuse_grad_buf_for_mxfp8_param_ag is disabled for " RULE_FSDP ": setting to "
     "False",
     NULL},
    {DCPK_RULE_REFUSE, rule_grouped, NULL, NULL,
     "Megatron-FSDP does not currently support moe_single_grouped_weight or "
     "moe_single_grouped_bias",
     "disable single grouped MoE parameters, or use the distributed optimizer"},
    {DCPK_RULE_REFUSE, rule_optimizer, NULL, rule_optimizer_name,
     "Megatron-FSDP does not support the {} optimizer yet.", "choose adam or sgd"},
    {DCPK_RULE_REFUSE, rule_weight_hash, NULL, NULL,
     "check_weight_hash_across_dp_replicas_interval is not supported with optim_grads_params",
     "leave it out: nothing is replicated"},
    {DCPK_RULE_REFUSE, rule_connections, NULL, NULL, RULE_CONNECTIONS, RULE_NO_CONNECTIONS},
    {DCPK_RULE_REFUSE, rule_format, NULL, NULL,
     RULE_FSDP " only supports fsdp_dtensor checkpoint format",
     "set checkpoint.ckpt_format=\"fsdp_dtensor\": other formats are not compatible with FSDP's "
     "sharded layout"},
    {DCPK_RULE_ADJUST, rule_buffers, rule_set_buffers, NULL,
     "FSDP double buffer and manual registration is enabled by default when nccl_ub is enabled",
     NULL},
    {DCPK_RULE_ADJUST, rule_max_pool, rule_set_double_buffer, NULL,
     "fsdp_double_buffer is set to True: megatron_fsdp_max_pool_double_buffer is a form of it",
     NULL},
    {DCPK_RULE_REFUSE, rule_meta_init, NULL, NULL,
     "Meta device initialization (init_model_with_meta_device=True) is not supported or necessary "
     "for the 'no_shard' / 0 sharding strategy.",
     "leave init_model_with_meta_device out, or choose another strategy"},
    {DCPK_RULE_REFUSE, rule_registration_alone, NULL, NULL,
     "FSDP manual registration is only supported with " RULE_FSDP ".",
     "set use_megatron_fsdp, or leave fsdp_manual_registration out"},
    {DCPK_RULE_REFUSE, rule_registration, NULL, NULL,
     "FSDP manual registration is only supported with nccl-ub option",
     "set nccl_ub, or leave fsdp_manual_registration out"},
    {.when = NULL},
};
