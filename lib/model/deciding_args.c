/* SPDX-License-Identifier: Apache-2.0 */
/* deciding_args.c - the table of args that decide what weights compute, and how two runs differ. */
#include "lib/model/deciding_args.h"

#include <string.h>

#include "lib/base/order.h"

#define NONE      DCPK_CONST_NONE
#define OFF       DCPK_CONST_TRUTH(false)
#define ON        DCPK_CONST_TRUTH(true)
#define WHOLE(x)  DCPK_CONST_WHOLE(x)
#define NUMBER(x) DCPK_CONST_NUMBER(x)
#define WORD(x)   DCPK_CONST_WORD(x)

#define ANY     DCPK_DECIDES
#define GELU    DCPK_DECIDES_GELU
#define ROPE    DCPK_DECIDES_ROPE
#define SCALING DCPK_DECIDES_SCALING
#define YARN    DCPK_DECIDES_YARN
#define MOE     DCPK_DECIDES_MOE
#define WINDOW  DCPK_DECIDES_WINDOW
#define MUP     DCPK_DECIDES_MUP

const struct dcpk_deciding_arg dcpk_deciding_args[] = {
    {"normalization", NULL, ANY, WORD("LayerNorm"), false},
    {"norm_epsilon", "layernorm_epsilon", ANY, NUMBER(1e-5), false},
    {"apply_residual_connection_post_layernorm", NULL, ANY, OFF, false},
    {"swiglu", NULL, ANY, OFF, false},
    {"squared_relu", NULL, ANY, OFF, false},
    {"quick_geglu", NULL, ANY, OFF, false},
    {"bias_gelu_fusion", NULL, GELU, ON, false}, /* the tanh form */
    {"activation_func_clamp_value", NULL, ANY, NONE, false},
    {"glu_linear_offset", NULL, ANY, NUMBER(0), false},

    {"num_attention_heads", NULL, ANY, NONE, true},
    {"kv_channels", NULL, ANY, NONE, true},
    {"qk_l2_norm", NULL, ANY, OFF, false},
    {"softmax_type", NULL, ANY, WORD("vanilla"), false},
    {"window_size", NULL, ANY, NONE, false},
    {"window_attn_skip_freq", NULL, WINDOW, NONE, false},
    {"attention_output_gate", NULL, ANY, OFF, false},
    {"experimental_attention_variant", NULL, ANY, NONE, false},
    {"multi_latent_attention", NULL, ANY, OFF, false},
    {"qk_head_dim", NULL, YARN, NONE, true},
    {"qk_pos_emb_head_dim", NULL, YARN, NONE, true},
    {"v_head_dim", NULL, YARN, NONE, true},
    {"linear_num_key_heads", NULL, ANY, NONE, true},
    {"linear_key_head_dim", NULL, ANY, NONE, true},
    {"dsa_indexer_topk", NULL, ANY, NONE, true},
    {"dsa_indexer_rope_interleaved", NULL, ANY, NONE, true},
    {"mamba_state_dim", NULL, ANY, WHOLE(128), false},
    {"mamba_head_dim", NULL, ANY, WHOLE(64), false},
    {"mamba_num_groups", NULL, ANY, WHOLE(8), false},

    {"position_embedding_type", NULL, ANY, WORD("learned_absolute"), false},
    {"relative_attention_max_distance", NULL, ANY, WHOLE(128), false},
    {"rotary_base", NULL, ROPE, WHOLE(10000), false},
    {"rotary_percent", NULL, ROPE, NUMBER(1), false},
    {"rotary_interleaved", NULL, ROPE, OFF, false},
    {"rotary_seq_len_interpolation_factor", "seq_len_interpolation_factor", ROPE, NONE, false},
    {"no_rope_freq", NULL, ROPE, NONE, false},
    {"mrope_section", NULL, ROPE, NONE, false},
    {"use_rope_scaling", NULL, ROPE, OFF, false},
    {"rope_scaling_factor", NULL, SCALING, NUMBER(8), false},
    {"rope_type", NULL, YARN, WORD("yarn"), false},
    {"rotary_scaling_factor", NULL, YARN, NUMBER(1), false},
    {"mscale", NULL, YARN, NUMBER(1), false},
    {"mscale_all_dim", NULL, YARN, NUMBER(0), false},
    {"original_max_position_embeddings", NULL, YARN, WHOLE(4096), false},
    {"beta_fast", NULL, YARN, NUMBER(32), false},
    {"beta_slow", NULL, YARN, NUMBER(1), false},
    {"yarn_rotary_scaling_factor", NULL, YARN, NONE, true},
    {"yarn_original_max_position_embeddings", NULL, YARN, NONE, false},
    {"yarn_beta_fast", NULL, YARN, NUMBER(32), false},
    {"yarn_beta_slow", NULL, YARN, NUMBER(1), false},
    {"yarn_mscale", NULL, YARN, NONE, true},
    {"yarn_mscale_all_dim", NULL, YARN, NONE, true},
    {"yarn_correction_range_round_to_int", NULL, YARN, ON, false},

    {"moe_router_topk", NULL, MOE, WHOLE(2), false},
    {"moe_router_pre_softmax", NULL, MOE, OFF, false},
    {"moe_router_score_function", NULL, MOE, WORD("softmax"), false},
    {"moe_router_enable_expert_bias", NULL, MOE, OFF, false},
    {"moe_router_topk_scaling_factor", NULL, MOE, NUMBER(1), false},
    {"moe_router_num_groups", NULL, MOE, NONE, false},
    {"moe_router_group_topk", NULL, MOE, NONE, false},
    {"moe_shared_expert_gate", NULL, MOE, OFF, false},
    {"moe_apply_probs_on_input", NULL, MOE, OFF, false},
    {"moe_expert_capacity_factor", NULL, MOE, NONE, false},
    {"moe_token_drop_policy", NULL, MOE, WORD("probs"), false},

    {"use_mup", NULL, ANY, OFF, false},
    {"mup_embedding_mult", NULL, MUP, NONE, true},
    {"mup_output_mult", NULL, MUP, NONE, true},
    {"mup_attn_scale_power", NULL, MUP, NONE, true},
    {"mup_width_mult", NULL, MUP, NONE, true},
    {"mup_base_hidden_size", NULL, MUP, NONE, true},
    {"mup_base_head_dim", NULL, MUP, NONE, true},
};
const size_t dcpk_deciding_n_args = DCPK_COUNT(dcpk_deciding_args);

static bool is_word(const struct dcpk_value *value, const char *word)
{
    const char *text = dcpk_value_as_str(value);

    return text != NULL && strcmp(text, word) == 0;
}

static bool has_rope(const struct dcpk_value *attrs)
{
    const struct dcpk_value *kind = dcpk_value_get(attrs, "position_embedding_type");

    return dcpk_value_is_true(attrs, "multi_latent_attention") ||
           !(dcpk_value_is_none(kind) || is_word(kind, "learned_absolute") ||
             is_word(kind, "none"));
}

static bool has_gelu(const struct dcpk_value *attrs)
{
    return !dcpk_value_is_true(attrs, "swiglu") && !dcpk_value_is_true(attrs, "squared_relu") &&
           !dcpk_value_is_true(attrs, "quick_geglu");
}

static bool has_part(const struct dcpk_value *attrs, enum dcpk_deciding_part part)
{
    switch (part) {
    case DCPK_DECIDES_GELU:
        return has_gelu(attrs);
    case DCPK_DECIDES_ROPE:
        return has_rope(attrs);
    case DCPK_DECIDES_SCALING:
        return dcpk_value_is_true(attrs, "use_rope_scaling");
    case DCPK_DECIDES_YARN:
        return dcpk_value_is_true(attrs, "multi_latent_attention") ||
               is_word(dcpk_value_get(attrs, "position_embedding_type"), "yarn");
    case DCPK_DECIDES_MOE:
        return !dcpk_value_is_none(dcpk_value_get(attrs, "num_experts"));
    case DCPK_DECIDES_WINDOW:
        return !dcpk_value_is_none(dcpk_value_get(attrs, "window_size"));
    case DCPK_DECIDES_MUP:
        return dcpk_value_is_true(attrs, "use_mup");
    case DCPK_DECIDES:
        break;
    }
    return true;
}

/* What the run has it as, by either name; NULL: neither is there. */
static const struct dcpk_value *arg_find(const struct dcpk_deciding_arg *arg,
                                         const struct dcpk_value *attrs, const char **name)
{
    const struct dcpk_value *value = dcpk_value_get(attrs, arg->name);

    *name = arg->name;
    if (!dcpk_value_is_none(value) || arg->twin == NULL)
        return dcpk_value_is_none(value) ? NULL : value;
    value = dcpk_value_get(attrs, arg->twin);
    if (dcpk_value_is_none(value))
        return NULL;
    *name = arg->twin;
    return value;
}

/* The name under which two runs differ in it, NULL: they do not. */
static const char *arg_differs(const struct dcpk_deciding_arg *arg, const struct dcpk_value *a,
                               const struct dcpk_value *b)
{
    const char *name, *other_name;
    const struct dcpk_value *of_a = arg_find(arg, a, &name);
    const struct dcpk_value *of_b = arg_find(arg, b, &other_name);

    if (!has_part(a, arg->part) && !has_part(b, arg->part))
        return NULL;
    if ((of_a == NULL || of_b == NULL) && arg->may_lack)
        return NULL;
    if (of_a == NULL) {
        of_a = &arg->otherwise;
        name = other_name;
    }
    if (of_b == NULL)
        of_b = &arg->otherwise;
    return dcpk_value_same(of_a, of_b) ? NULL : name;
}

const char *dcpk_deciding_args_next(const struct dcpk_value *a, const struct dcpk_value *b,
                                    size_t *at)
{
    while (*at < dcpk_deciding_n_args) {
        const char *name = arg_differs(&dcpk_deciding_args[(*at)++], a, b);

        if (name != NULL)
            return name;
    }
    return NULL;
}

/* Of experts: rows of gate and up take turns in blocks of it
 * (megatron/core/transformer/transformer_config.py@core_v0.19.0). */
const char *dcpk_ordering_arg(const struct dcpk_value *a, const struct dcpk_value *b)
{
    static const char *const names[] = {"moe_mlp_glu_interleave_size",
                                        "moe_shared_expert_glu_interleave_size"};

    if (!has_part(a, MOE) && !has_part(b, MOE))
        return NULL;
    for (size_t i = 0; i < DCPK_COUNT(names); i++)
        if (!dcpk_value_same(dcpk_value_get(a, names[i]), dcpk_value_get(b, names[i])))
            return names[i];
    return NULL;
}
