/* SPDX-License-Identifier: Apache-2.0 */
/* hf_flags.c - the command line that args need in addition to --use-checkpoint-args. */
#include <inttypes.h>

#include "formats/safetensors/hf_config_priv.h"
#include "lib/base/order.h"
#include "lib/base/text.h"

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

    if (value->kind == DCPK_V_TUPLE || value->kind == DCPK_V_LIST) {
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
