/* SPDX-License-Identifier: Apache-2.0 */
/* hf_traps.c - remarks on models that both sides load and compute differently (MAPS.md, "traps"),
 * and on the flags that a run needs. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "formats/safetensors/hf_config_priv.h"
#include "lib/base/order.h"
#include "lib/base/text.h"

/* ---- traps ---- */

#define LATENT_EPSILON 1e-6 /* of transformers' norms of MLA latents, whatever rms_norm_eps is */
#define MIXER_EPSILON  1e-5 /* of the norm in Megatron's Mamba mixer, whatever norm_epsilon is */
#define FIXED_FACTOR   8.0  /* of rope scaling in every run of pretrain_gpt.py */

static void trap_remark(const struct dcpk_hf_traps *t, const char *key, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void trap_remark(const struct dcpk_hf_traps *t, const char *key, const char *fmt, ...)
{
    char text[400];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    t->remark(t->context, key, text);
}

static double number_of(const struct dcpk_hf_traps *t, const char *arg)
{
    double number = 0;

    (void)dcpk_value_as_float(dcpk_arg_value(t->attrs, arg), &number);
    return number;
}

static void remark_latents(const struct dcpk_hf_traps *t)
{
    const char *name = "layernorm_epsilon";

    if (dcpk_value_is_none(dcpk_value_get(t->attrs, name)))
        name = "norm_epsilon";
    if (number_of(t, name) != LATENT_EPSILON)
        trap_remark(t, name,
                    "is %g; transformers always uses 1e-06 in norms of latents, Megatron uses this "
                    "value: the models differ slightly",
                    number_of(t, name));
    if (t->is_import && dcpk_value_is_none(dcpk_value_get(t->attrs, "q_lora_rank")))
        trap_remark(t, "q_lora_rank",
                    "is None; core 0.19 and later then put a norm before linear_q_proj, which this "
                    "model lacks: load it with core 0.18 or before");
}

/* megatron/core/ssm/mamba_mixer.py@core_v0.19.0; modeling_nemotron_h.py@5.23.0, time_step_limit. */
static void remark_mamba(const struct dcpk_hf_traps *t)
{
    const char *pattern = dcpk_value_as_str(dcpk_value_get(t->attrs, "hybrid_layer_pattern"));

    if (pattern == NULL)
        pattern = dcpk_value_as_str(dcpk_value_get(t->attrs, "hybrid_override_pattern"));
    if (pattern == NULL || strchr(pattern, DCPK_HF_MAMBA) == NULL)
        return;
    trap_remark(t, "time_step_min",
                "is 0.001 unless config.json has another one; transformers raises time steps to "
                "it, Megatron does not: the models differ slightly");
    if (number_of(t, "norm_epsilon") != MIXER_EPSILON)
        trap_remark(t, "norm_epsilon",
                    "is %g; Megatron always uses 1e-05 in the norm of Mamba's mixer, transformers "
                    "this value: the models differ slightly",
                    number_of(t, "norm_epsilon"));
}

static void remark_groups(const struct dcpk_hf_traps *t)
{
    const double topk = number_of(t, "moe_router_topk");
    const double group_topk = number_of(t, "moe_router_group_topk");

    if (!dcpk_value_is_none(dcpk_value_get(t->attrs, "moe_router_num_groups")) &&
        topk != 2 * group_topk)
        trap_remark(t, "moe_router_group_topk",
                    "is %g for a top-k of %g; transformers ranks a group by its best two experts, "
                    "Megatron by its best top-k / group top-k: tokens may go to other experts",
                    group_topk, topk);
}

static void remark_scaling(const struct dcpk_hf_traps *t)
{
    const double factor = number_of(t, "rope_scaling_factor");

    if (!dcpk_value_is_true(t->attrs, "use_rope_scaling") || factor == FIXED_FACTOR)
        return;
    if (t->is_import)
        trap_remark(t, "rope_scaling_factor",
                    "is %g, but pretrain_gpt.py always scales by 8 (core 0.12 to main): give it to "
                    "GPTModel",
                    factor);
    else
        trap_remark(t, "rope_scaling_factor",
                    "is %g and goes into config.json; a run of pretrain_gpt.py scaled by 8",
                    factor);
}

/* megatron/training/argument_utils.py@core_v0.19.0 gpt_config_from_args has it, gpt_builders.py of
 * no release. */
static void remark_interpolation(const struct dcpk_hf_traps *t)
{
    static const char arg[] = "rotary_seq_len_interpolation_factor";

    if (dcpk_value_is_none(dcpk_value_get(t->attrs, arg)))
        return;
    if (t->is_import)
        trap_remark(t, arg,
                    "is %g, and pretrain_gpt.py scales by it only from core 0.19 on: before, give "
                    "it to GPTModel",
                    number_of(t, arg));
    else
        trap_remark(
            t, arg,
            "is %g and goes into config.json; a run of pretrain_gpt.py before core 0.19 did "
            "not scale",
            number_of(t, arg));
}

/* The tanh form of GELU comes through the fused kernel alone. */
static void remark_gelu(const struct dcpk_hf_traps *t)
{
    if (dcpk_value_is_true(t->attrs, "openai_gelu"))
        trap_remark(t, "openai_gelu",
                    "has no effect in Megatron core: GELU is the tanh form by bias_gelu_fusion");
}

/* Values that core has attributes of a configuration for, and a parser no flag. */
static void remark_flags(const struct dcpk_hf_traps *t)
{
    static const char *const args[] = {"original_max_position_embeddings", "beta_fast",
                                       "beta_slow"};

    for (size_t i = 0; i < sizeof args / sizeof *args; i++) {
        const struct dcpk_value *value = dcpk_value_get(t->attrs, args[i]);

        if (!dcpk_value_is_none(value) &&
            !dcpk_value_same(value, &dcpk_arg_find(args[i])->by_default))
            trap_remark(t, args[i],
                        "is %s, and no release has a flag for it: set it in the model's "
                        "configuration",
                        dcpk_hf_show(t->arena, value));
    }
    if (!dcpk_value_is_none(dcpk_value_get(t->attrs, "yarn_original_max_position_embeddings")))
        trap_remark(t, "yarn_original_max_position_embeddings",
                    "and its like have flags from core 0.19 on: before, set them in the model's "
                    "configuration");
}

void dcpk_hf_traps_remark(const struct dcpk_hf_traps *t)
{
    if (t->remark == NULL)
        return;
    if (dcpk_value_is_true(t->attrs, "multi_latent_attention"))
        remark_latents(t);
    remark_mamba(t);
    remark_groups(t);
    remark_scaling(t);
    remark_interpolation(t);
    remark_gelu(t);
    if (t->is_import)
        remark_flags(t);
}

/* ---- the command line that args need in addition to --use-checkpoint-args ---- */

/*
 * Args that load_args_from_checkpoint does not take over
 * (megatron/training/checkpointing.py@core_v0.19.0; the same in core_v0.18.2 and main) and a parser
 * has a flag for: the flag without its dashes, and the value for which it is not needed.
 * `is_switch`: it stands for `switched`, and has no value.
 */
static const struct {
    const char *arg, *flag;
    struct dcpk_value by_default;
    bool is_switch, switched;
} flags[] = {
    {"qk_layernorm", "qk-layernorm", DCPK_HF_TRUTH(false), true, true},
    {"layernorm_epsilon", "norm-epsilon", DCPK_HF_NUMBER(1e-5), false, false},
    {"layernorm_zero_centered_gamma", "apply-layernorm-1p", DCPK_HF_TRUTH(false), true, true},
    {"use_rope_scaling", "use-rope-scaling", DCPK_HF_TRUTH(false), true, true},
    {"rope_scaling_factor", "rope-scaling-factor", DCPK_HF_NUMBER(8), false, false},
    {"rotary_seq_len_interpolation_factor", "rotary-seq-len-interpolation-factor", DCPK_HF_NONE,
     false, false},
    {"window_size", "window-size", DCPK_HF_NONE, false, false},
    {"window_attn_skip_freq", "window-attn-skip-freq", DCPK_HF_NONE, false, false},
    {"no_rope_freq", "no-rope-freq", DCPK_HF_NONE, false, false},
    {"softmax_type", "softmax-type", DCPK_HF_WORD("vanilla"), false, false},
    {"quick_geglu", "quick-geglu", DCPK_HF_TRUTH(false), true, true},
    {"bias_gelu_fusion", "no-bias-gelu-fusion", DCPK_HF_TRUTH(true), true, false},
    {"activation_func_clamp_value", "activation-func-clamp-value", DCPK_HF_NONE, false, false},
    {"glu_linear_offset", "glu-linear-offset", DCPK_HF_NUMBER(0), false, false},
    {"multi_latent_attention", "multi-latent-attention", DCPK_HF_TRUTH(false), true, true},
    {"q_lora_rank", "q-lora-rank", DCPK_HF_NONE, false, false},
    {"kv_lora_rank", "kv-lora-rank", DCPK_HF_NUMBER(32), false, false},
    {"qk_head_dim", "qk-head-dim", DCPK_HF_NUMBER(128), false, false},
    {"qk_pos_emb_head_dim", "qk-pos-emb-head-dim", DCPK_HF_NUMBER(64), false, false},
    {"v_head_dim", "v-head-dim", DCPK_HF_NUMBER(128), false, false},
    {"rotary_scaling_factor", "rotary-scaling-factor", DCPK_HF_NUMBER(1), false, false},
    {"mscale", "mscale", DCPK_HF_NUMBER(1), false, false},
    {"mscale_all_dim", "mscale-all-dim", DCPK_HF_NUMBER(0), false, false},
    {"rope_type", "rope-type", DCPK_HF_NONE, false, false},
    {"yarn_original_max_position_embeddings", "yarn-original-max-position-embeddings", DCPK_HF_NONE,
     false, false},
    {"yarn_beta_fast", "yarn-beta-fast", DCPK_HF_NONE, false, false},
    {"yarn_beta_slow", "yarn-beta-slow", DCPK_HF_NONE, false, false},
    {"yarn_correction_range_round_to_int", "yarn-correction-range-round-to-int", DCPK_HF_NONE, true,
     true},
    {"yarn_correction_range_round_to_int", "no-yarn-correction-range-round-to-int", DCPK_HF_NONE,
     true, false},
    {"attention_output_gate", "attention-output-gate", DCPK_HF_TRUTH(false), true, true},
    {"experimental_attention_variant", "experimental-attention-variant", DCPK_HF_NONE, false,
     false},
    {"linear_attention_freq", "linear-attention-freq", DCPK_HF_NONE, false, false},
    {"linear_conv_kernel_dim", "linear-conv-kernel-dim", DCPK_HF_NONE, false, false},
    {"linear_key_head_dim", "linear-key-head-dim", DCPK_HF_NONE, false, false},
    {"linear_value_head_dim", "linear-value-head-dim", DCPK_HF_NONE, false, false},
    {"linear_num_key_heads", "linear-num-key-heads", DCPK_HF_NONE, false, false},
    {"linear_num_value_heads", "linear-num-value-heads", DCPK_HF_NONE, false, false},
    {"dsa_indexer_n_heads", "dsa-indexer-n-heads", DCPK_HF_NONE, false, false},
    {"dsa_indexer_head_dim", "dsa-indexer-head-dim", DCPK_HF_NONE, false, false},
    {"dsa_indexer_topk", "dsa-indexer-topk", DCPK_HF_NONE, false, false},
    {"dsa_indexer_topk_freq", "dsa-indexer-topk-freq", DCPK_HF_NUMBER(1), false, false},
    {"dsa_indexer_skip_topk_offset", "dsa-indexer-skip-topk-offset", DCPK_HF_NUMBER(0), false,
     false},
    {"dsa_indexer_rope_interleaved", "dsa-indexer-rope-interleaved", DCPK_HF_TRUTH(false), true,
     true},
    {"dsa_indexer_rotate_activation", "no-dsa-indexer-rotate-activation", DCPK_HF_NONE, true,
     false},
    {"dsa_indexer_k_norm_epsilon", "dsa-indexer-k-norm-epsilon", DCPK_HF_NONE, false, false},
    {"apply_rope_fusion", "no-rope-fusion", DCPK_HF_NONE, true, false},
    {"moe_router_num_groups", "moe-router-num-groups", DCPK_HF_NONE, false, false},
    {"moe_router_group_topk", "moe-router-group-topk", DCPK_HF_NONE, false, false},
    {"moe_shared_expert_gate", "moe-shared-expert-gate", DCPK_HF_TRUTH(false), true, true},
    {"moe_router_dtype", "moe-router-dtype", DCPK_HF_NONE, false, false},
    {"is_hybrid_model", "spec megatron.core.models.mamba.mamba_layer_specs mamba_stack_spec",
     DCPK_HF_TRUTH(false), true, true},
    {"mtp_num_layers", "mtp-num-layers", DCPK_HF_NONE, false, false},
};

/* As Python's str: "15,0" of a window, "[1,0]" of layers, "1e-06", "fp32". */
static void hf_put_value(const struct dcpk_value *value, struct dcpk_bytes *text)
{
    char number[32];
    int64_t i;

    if (dcpk_value_is_list(value)) {
        if (value->kind == DCPK_V_LIST)
            dcpk_bytes_u8(text, '[');
        for (size_t k = 0; k < value->n; k++)
            if (dcpk_value_as_int(value->as.items[k], &i))
                dcpk_bytes_printf(text, "%s%" PRId64, dcpk_joint(k > 0, ","), i);
        if (value->kind == DCPK_V_LIST)
            dcpk_bytes_u8(text, ']');
    } else if (value->kind == DCPK_V_FLOAT) {
        dcpk_format_double(value->as.f, number);
        dcpk_bytes_text(text, number);
    } else if (dcpk_value_as_int(value, &i))
        dcpk_bytes_printf(text, "%" PRId64, i);
    else if (dcpk_value_as_str(value) != NULL)
        dcpk_bytes_text(text, dcpk_value_as_str(value));
}

dcpk_status dcpk_hf_flags_write(const struct dcpk_value *args, struct dcpk_bytes *text,
                                struct dcpk_error *err)
{
    const char *space = "";

    for (size_t i = 0; i < DCPK_COUNT(flags); i++) {
        const struct dcpk_value *value = dcpk_value_get(args, flags[i].arg);
        bool switched = false;

        if (dcpk_value_is_none(value) ||
            (flags[i].by_default.kind != DCPK_V_NONE &&
             dcpk_value_same(value, &flags[i].by_default)) ||
            (flags[i].is_switch &&
             (!dcpk_value_as_bool(value, &switched) || switched != flags[i].switched)))
            continue;
        dcpk_bytes_printf(text, "%s--%s", space, flags[i].flag);
        if (!flags[i].is_switch) {
            dcpk_bytes_u8(text, ' ');
            hf_put_value(value, text);
        }
        space = " ";
    }
    dcpk_bytes_u8(text, '\n');
    return dcpk_bytes_status(text, err);
}
