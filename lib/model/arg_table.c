/* SPDX-License-Identifier: Apache-2.0 */
/* arg_table.c - the table of args that describe a model, what they mean, and how two runs
 * differ. */
#include "lib/model/arg_table.h"

#include <string.h>

#include "lib/base/order.h"
#include "lib/model/norms.h"
#include "lib/model/sizes.h"

#define MAX_LAYERS  20000
#define MAX_EXPERTS 100000

#define NONE      DCPK_CONST_NONE
#define OFF       DCPK_CONST_TRUTH(false)
#define ON        DCPK_CONST_TRUTH(true)
#define WHOLE(x)  DCPK_CONST_WHOLE(x)
#define NUMBER(x) DCPK_CONST_NUMBER(x)
#define WORD(x)   DCPK_CONST_WORD(x)

#define ANY   DCPK_ARG_ANY
#define INT   DCPK_ARG_INT
#define FLOAT DCPK_ARG_FLOAT
#define BOOL  DCPK_ARG_BOOL
#define TEXT  DCPK_ARG_TEXT

#define ALL      DCPK_PART_ALL
#define GELU     DCPK_PART_GELU
#define ROPE     DCPK_PART_ROPE
#define SCALING  DCPK_PART_SCALING
#define YARN     DCPK_PART_YARN
#define GPT_YARN DCPK_PART_GPT_YARN
#define MLA      DCPK_PART_MLA
#define VARIANT  DCPK_PART_VARIANT
#define WINDOW   DCPK_PART_WINDOW
#define HYBRID   DCPK_PART_HYBRID
#define MOE      DCPK_PART_MOE
#define CAPACITY DCPK_PART_CAPACITY
#define MTP      DCPK_PART_MTP
#define MUP      DCPK_PART_MUP
#define MHC      DCPK_PART_MHC

#define SHOWN    DCPK_ARG_SHOWN
#define TRAINS   DCPK_ARG_TRAINS
#define LACK     DCPK_ARG_MAY_LACK
#define SIZE     DCPK_ARG_SIZE
#define NULLABLE DCPK_ARG_NULLABLE
#define MAY_BE_0 DCPK_ARG_MAY_BE_0

const struct dcpk_arg dcpk_args[] = {
    /* sizes */
    {"num_layers", NULL, NULL, INT, ALL, SHOWN, NONE, MAX_LAYERS},
    {"hidden_size", NULL, NULL, INT, ALL, SHOWN, NONE, 0},
    {"ffn_hidden_size", NULL, NULL, INT, ALL, SHOWN, NONE, 0},
    {"max_position_embeddings", NULL, NULL, INT, ALL, SHOWN, NONE, 0},
    {"untie_embeddings_and_output_weights", NULL, NULL, BOOL, ALL, SHOWN, OFF, 0},
    {"num_attention_heads", NULL, NULL, INT, ALL, SIZE | LACK, NONE, 0},
    {"num_query_groups", NULL, NULL, INT, ALL, SIZE | LACK, NONE, 0},
    {"kv_channels", NULL, NULL, INT, ALL, SIZE | LACK, NONE, 0},
    {"group_query_attention", NULL, NULL, BOOL, ALL, SHOWN, OFF, 0},
    {"heterogeneous_layers_config_path", NULL, NULL, TEXT, ALL, 0, NONE, 0},
    {"heterogeneous_layers_config_encoded_json", NULL, NULL, TEXT, ALL, 0, NONE, 0},
    {"heterogeneous_block_specs", NULL, NULL, BOOL, ALL, 0, OFF, 0},
    {"spec", NULL, NULL, ANY, ALL, 0, NONE, 0},

    /* norms, activations, residuals */
    {"normalization", NULL, NULL, TEXT, ALL, 0, WORD("LayerNorm"), 0},
    {"norm_epsilon", "layernorm_epsilon", NULL, FLOAT, ALL, 0, NUMBER(1e-5), 0},
    {DCPK_ARG_NORM_1P, DCPK_ARG_ZERO_CENTERED, NULL, BOOL, ALL, TRAINS, OFF, 0},
    {"apply_residual_connection_post_layernorm", NULL, NULL, BOOL, ALL, 0, OFF, 0},
    {"swiglu", NULL, NULL, BOOL, ALL, 0, OFF, 0},
    {"squared_relu", NULL, NULL, BOOL, ALL, 0, OFF, 0},
    {"quick_geglu", NULL, NULL, BOOL, ALL, 0, OFF, 0},
    {"activation_func", NULL, NULL, TEXT, ALL, 0, NONE, 0}, /* a configuration's, without args */
    {"bias_gelu_fusion", NULL, "bias_activation_fusion", BOOL, GELU, 0, ON, 0}, /* the tanh form */
    {"activation_func_clamp_value", NULL, NULL, FLOAT, ALL, 0, NONE, 0},
    {"glu_linear_offset", NULL, NULL, FLOAT, ALL, MAY_BE_0, NUMBER(0), 0},
    {"add_bias_linear", NULL, NULL, BOOL, ALL, SHOWN, ON, 0},
    {"enable_mhc_connections", NULL, NULL, BOOL, ALL, 0, OFF, 0},
    {"mhc_num_residual_streams", NULL, NULL, INT, MHC, 0, WHOLE(4), 0},
    {"mhc_sinkhorn_iterations", NULL, NULL, INT, MHC, 0, WHOLE(20), 0},

    /* attention */
    {"add_qkv_bias", NULL, NULL, BOOL, ALL, SHOWN, OFF, 0},
    {"qk_layernorm", NULL, NULL, BOOL, ALL, SHOWN, OFF, 0},
    {"qk_l2_norm", NULL, NULL, BOOL, ALL, 0, OFF, 0},
    {"softmax_scale", NULL, NULL, FLOAT, ALL, 0, NONE, 0}, /* a configuration's */
    {"softmax_type", NULL, NULL, TEXT, ALL, 0, WORD("vanilla"), 0},
    {"window_size", NULL, NULL, ANY, ALL, 0, NONE, 0},
    {"window_attn_skip_freq", NULL, NULL, ANY, WINDOW, 0, NONE, 0},
    {"attention_output_gate", NULL, NULL, BOOL, ALL, 0, OFF, 0},
    {"multi_latent_attention", NULL, NULL, BOOL, ALL, 0, OFF, 0},
    {"q_lora_rank", NULL, NULL, INT, MLA, SHOWN | NULLABLE, NONE, 0},
    {"kv_lora_rank", NULL, NULL, INT, MLA, SHOWN, WHOLE(32), 0},
    {"qk_head_dim", NULL, NULL, INT, MLA, LACK, WHOLE(128), 0},
    {"qk_pos_emb_head_dim", NULL, NULL, INT, MLA, LACK, WHOLE(64), 0},
    {"v_head_dim", NULL, NULL, INT, MLA, LACK, WHOLE(128), 0},
    {"experimental_attention_variant", NULL, NULL, TEXT, ALL, 0, NONE, 0},
    {"linear_attention_freq", NULL, NULL, ANY, VARIANT, 0, NONE, 0},
    {"linear_conv_kernel_dim", NULL, NULL, INT, VARIANT, SHOWN, WHOLE(4), 0},
    {"linear_num_key_heads", NULL, NULL, INT, VARIANT, LACK, WHOLE(16), 0},
    {"linear_key_head_dim", NULL, NULL, INT, VARIANT, LACK, WHOLE(128), 0},
    {"linear_num_value_heads", NULL, NULL, INT, VARIANT, LACK, WHOLE(32), 0},
    {"linear_value_head_dim", NULL, NULL, INT, VARIANT, LACK, WHOLE(128), 0},
    {"dsa_indexer_n_heads", NULL, NULL, INT, VARIANT, LACK, NONE, 0},
    {"dsa_indexer_head_dim", NULL, NULL, INT, VARIANT, LACK, NONE, 0},
    {"dsa_indexer_topk", NULL, NULL, INT, VARIANT, LACK, NONE, 0},
    {"dsa_indexer_topk_freq", NULL, NULL, INT, VARIANT, 0, WHOLE(1), 0},
    {"dsa_indexer_skip_topk_offset", NULL, NULL, INT, VARIANT, MAY_BE_0, WHOLE(0), 0},
    {"dsa_indexer_rope_interleaved", NULL, NULL, BOOL, VARIANT, LACK, OFF, 0},
    {"dsa_indexer_rotate_activation", NULL, NULL, BOOL, VARIANT, 0, ON, 0},
    {"dsa_indexer_scoring_relu", NULL, NULL, BOOL, VARIANT, 0, ON, 0},
    {"dsa_indexer_k_norm_epsilon", NULL, NULL, FLOAT, VARIANT, 0, NONE, 0},
    {"gdp_num_householder", NULL, NULL, INT, HYBRID, LACK, WHOLE(3), 0},

    /* layers of several kinds */
    {"is_hybrid_model", NULL, NULL, BOOL, ALL, 0, OFF, 0},
    {"hybrid_layer_pattern", NULL, NULL, TEXT, ALL, LACK, NONE, 0},
    {"hybrid_override_pattern", NULL, NULL, TEXT, ALL, LACK, NONE, 0},
    {"hybrid_attention_ratio", NULL, NULL, FLOAT, ALL, MAY_BE_0, NUMBER(0), 0},
    {"hybrid_mlp_ratio", NULL, NULL, FLOAT, ALL, MAY_BE_0, NUMBER(0), 0},
    {"mamba_state_dim", NULL, NULL, INT, HYBRID, 0, WHOLE(128), 0},
    {"mamba_head_dim", NULL, NULL, INT, HYBRID, 0, WHOLE(64), 0},
    {"mamba_num_groups", NULL, NULL, INT, HYBRID, 0, WHOLE(8), 0},
    {"mamba_num_heads", NULL, NULL, INT, HYBRID, LACK, NONE, 0},
    {"mtp_num_layers", NULL, NULL, INT, ALL, SHOWN | NULLABLE, NONE, MAX_LAYERS},
    {"mtp_use_repeated_layer", NULL, NULL, BOOL, MTP, 0, OFF, 0},
    {"mtp_hybrid_override_pattern", NULL, NULL, TEXT, MTP, LACK, NONE, 0},

    /* positions */
    {"position_embedding_type", NULL, NULL, TEXT, ALL, 0, WORD("learned_absolute"), 0},
    {"relative_attention_num_buckets", NULL, NULL, INT, ALL, 0, WHOLE(32), 0},
    {"relative_attention_max_distance", NULL, NULL, INT, ALL, 0, WHOLE(128), 0},
    {"rotary_base", NULL, NULL, ANY, ROPE, 0, WHOLE(10000), 0},
    {"rotary_percent", NULL, NULL, FLOAT, ROPE, 0, NUMBER(1), 0},
    {"rotary_interleaved", NULL, NULL, BOOL, ROPE, 0, OFF, 0},
    {"rotary_seq_len_interpolation_factor", NULL, "seq_len_interpolation_factor", INT, ROPE, 0,
     NONE, 0},
    {"no_rope_freq", NULL, NULL, ANY, ROPE, 0, NONE, 0},
    {"mrope_section", NULL, NULL, ANY, ROPE, 0, NONE, 0},
    {"use_rope_scaling", NULL, "rope_scaling", BOOL, ROPE, 0, OFF, 0},
    {"rope_scaling_factor", NULL, NULL, FLOAT, SCALING, 0, NUMBER(8), 0},
    {"rope_type", NULL, NULL, TEXT, MLA, 0, WORD("yarn"), 0},
    {"rotary_scaling_factor", NULL, "yarn_rotary_scaling_factor", FLOAT, YARN, 0, NUMBER(1), 0},
    {"mscale", NULL, "yarn_mscale", FLOAT, YARN, MAY_BE_0, NUMBER(1), 0},
    {"mscale_all_dim", NULL, "yarn_mscale_all_dim", FLOAT, YARN, MAY_BE_0, NUMBER(0), 0},
    {"original_max_position_embeddings", NULL, NULL, INT, MLA, 0, WHOLE(4096), 0},
    {"beta_fast", NULL, NULL, FLOAT, MLA, 0, NUMBER(32), 0},
    {"beta_slow", NULL, NULL, FLOAT, MLA, 0, NUMBER(1), 0},
    {"yarn_original_max_position_embeddings", NULL, NULL, INT, GPT_YARN, 0, NONE, 0},
    {"yarn_beta_fast", NULL, NULL, FLOAT, GPT_YARN, 0, NUMBER(32), 0},
    {"yarn_beta_slow", NULL, NULL, FLOAT, GPT_YARN, 0, NUMBER(1), 0},
    {"yarn_correction_range_round_to_int", NULL, NULL, BOOL, GPT_YARN, 0, ON, 0},

    /* experts */
    {"num_experts", NULL, "num_moe_experts", INT, ALL, 0, NONE, MAX_EXPERTS},
    {"moe_ffn_hidden_size", NULL, NULL, INT, MOE, SHOWN, NONE, 0},
    {"moe_layer_freq", NULL, NULL, ANY, MOE, SHOWN, WHOLE(1), 0},
    {"moe_shared_expert_intermediate_size", NULL, NULL, INT, MOE, 0, NONE, 0},
    {"moe_shared_expert_gate", NULL, NULL, BOOL, MOE, 0, OFF, 0},
    {"moe_latent_size", NULL, NULL, INT, MOE, NULLABLE, NONE, 0},
    {"moe_router_topk", NULL, NULL, INT, MOE, 0, WHOLE(2), 0},
    {"moe_router_topk_limited_devices", NULL, NULL, INT, MOE, 0, NONE, 0},
    {"moe_router_pre_softmax", NULL, NULL, BOOL, MOE, 0, OFF, 0},
    {"moe_router_score_function", NULL, NULL, TEXT, MOE, 0, WORD("softmax"), 0},
    {"moe_router_enable_expert_bias", NULL, NULL, BOOL, MOE, 0, OFF, 0},
    {"moe_router_topk_scaling_factor", NULL, NULL, FLOAT, MOE, 0, NUMBER(1), 0},
    {"moe_router_num_groups", NULL, NULL, INT, MOE, NULLABLE, NONE, 0},
    {"moe_router_group_topk", NULL, NULL, INT, MOE, NULLABLE, NONE, 0},
    {"moe_router_load_balancing_type", NULL, NULL, ANY, MOE, 0, WORD("aux_loss"), 0},
    {"moe_router_force_load_balancing", NULL, NULL, BOOL, MOE, 0, OFF, 0},
    {"moe_router_force_biased", NULL, NULL, FLOAT, MOE, MAY_BE_0, NONE, 0},
    {"moe_input_jitter_eps", NULL, NULL, FLOAT, MOE, MAY_BE_0, NONE, 0}, /* in evaluation too */
    {"moe_apply_probs_on_input", NULL, NULL, BOOL, MOE, 0, OFF, 0},
    {"moe_expert_capacity_factor", NULL, NULL, FLOAT, MOE, 0, NONE, 0},
    {"moe_token_drop_policy", NULL, NULL, TEXT, CAPACITY, 0, WORD("probs"), 0},
    {"moe_expert_rank_capacity_factor", NULL, NULL, FLOAT, MOE, 0, NONE, 0},
    {"moe_mlp_glu_interleave_size", NULL, NULL, INT, MOE, 0, NONE, 0},
    {"moe_shared_expert_glu_interleave_size", NULL, NULL, INT, MOE, 0, NONE, 0},

    /* muP */
    {"use_mup", NULL, NULL, BOOL, ALL, 0, OFF, 0},
    {"mup_embedding_mult", NULL, NULL, FLOAT, MUP, LACK, NUMBER(1), 0},
    {"mup_output_mult", NULL, NULL, FLOAT, MUP, LACK, NUMBER(1), 0},
    {"mup_attn_scale_power", NULL, NULL, FLOAT, MUP, LACK, NUMBER(1), 0},
    {"mup_width_mult", NULL, NULL, FLOAT, MUP, LACK, NUMBER(1), 0},
    {"mup_base_hidden_size", NULL, NULL, INT, MUP, LACK, NONE, 0},
    {"mup_base_head_dim", NULL, NULL, FLOAT, MUP, LACK, NONE, 0},

    /* of training, which configurations of other programs have too */
    {"init_method_std", NULL, NULL, FLOAT, ALL, TRAINS | MAY_BE_0, NUMBER(0.02), 0},
    {"attention_dropout", NULL, NULL, FLOAT, ALL, TRAINS | MAY_BE_0, NUMBER(0.1), 0},
    {"hidden_dropout", NULL, NULL, FLOAT, ALL, TRAINS | MAY_BE_0, NUMBER(0.1), 0},
    {"moe_aux_loss_coeff", NULL, NULL, FLOAT, MOE, TRAINS | MAY_BE_0, NUMBER(0), 0},
};
const size_t dcpk_n_args = DCPK_COUNT(dcpk_args);

/* Args that switch a part on: not absent, None, False, 0 or empty. */
static const char *const switches[] = {
    [DCPK_PART_SCALING] = "use_rope_scaling",
    [DCPK_PART_MLA] = "multi_latent_attention",
    [DCPK_PART_VARIANT] = "experimental_attention_variant",
    [DCPK_PART_WINDOW] = "window_size",
    [DCPK_PART_MOE] = "num_experts",
    [DCPK_PART_CAPACITY] = "moe_expert_capacity_factor",
    [DCPK_PART_MTP] = "mtp_num_layers",
    [DCPK_PART_MUP] = "use_mup",
    [DCPK_PART_MHC] = "enable_mhc_connections",
};

/* ---- values ---- */

const struct dcpk_arg *dcpk_arg_find(const char *name)
{
    for (size_t i = 0; i < dcpk_n_args; i++)
        if (strcmp(dcpk_args[i].name, name) == 0 ||
            (dcpk_args[i].twin != NULL && strcmp(dcpk_args[i].twin, name) == 0))
            return &dcpk_args[i];
    return NULL;
}

dcpk_status dcpk_arg_of_field(const struct dcpk_value *members, const char *field,
                              const char **name, struct dcpk_error *err)
{
    *name = field;
    for (size_t i = 0; i < dcpk_n_args; i++) {
        const struct dcpk_arg *arg = &dcpk_args[i];
        const struct dcpk_value *own, *other;

        if (arg->config == NULL ||
            (strcmp(arg->name, field) != 0 && strcmp(arg->config, field) != 0))
            continue;
        own = dcpk_value_get(members, arg->name);
        other = dcpk_value_get(members, arg->config);
        *name = arg->name;
        if (own == NULL || other == NULL)
            return DCPK_OK;
        if (own->kind != DCPK_V_NONE && other->kind != DCPK_V_NONE && !dcpk_value_same(own, other))
            return dcpk_fail(err, DCPK_EFORMAT, "'%s' and '%s' differ: keep one of them", arg->name,
                             arg->config);
        /* The spelling that is not null counts, its own before the other. */
        if ((strcmp(arg->name, field) == 0) ==
            (own->kind == DCPK_V_NONE && other->kind != DCPK_V_NONE))
            *name = NULL;
        return DCPK_OK;
    }
    return DCPK_OK;
}

bool dcpk_arg_is_given(const struct dcpk_value *given, const char *name)
{
    const struct dcpk_arg *arg = dcpk_arg_find(name);

    if (arg == NULL)
        return dcpk_value_get(given, name) != NULL;
    return dcpk_value_get(given, arg->name) != NULL ||
           (arg->twin != NULL && dcpk_value_get(given, arg->twin) != NULL);
}

/* The attribute by the arg's name, else by its twin; NULL: neither is there. A switch that is off
 * under one name may be on under the other. */
static const struct dcpk_value *arg_stored(const struct dcpk_arg *arg,
                                           const struct dcpk_value *attrs, const char **name)
{
    const struct dcpk_value *value = dcpk_value_get(attrs, arg->name), *other;

    *name = arg->name;
    if (dcpk_value_is_none(value))
        value = NULL;
    if (arg->twin == NULL || (value != NULL && arg->kind != DCPK_ARG_BOOL) ||
        dcpk_value_is_true(attrs, arg->name))
        return value;
    other = dcpk_value_get(attrs, arg->twin);
    if (dcpk_value_is_none(other))
        return value;
    *name = arg->twin;
    return other;
}

/* A kind of balancing that adds a loss and routes no token elsewhere
 * (megatron/core/transformer/moe/router.py@core_v0.19.0, TopKRouter.routing). */
static bool is_loss(const struct dcpk_value *type)
{
    return dcpk_value_is_str(type, "aux_loss") || dcpk_value_is_str(type, "seq_aux_loss") ||
           dcpk_value_is_str(type, "global_aux_loss") || dcpk_value_is_str(type, "none");
}

/* One kind of balancing, or a list of them, as the parser takes it. */
static bool are_losses(const struct dcpk_value *types)
{
    const struct dcpk_value *type;
    size_t n = 0;

    for (; (type = dcpk_value_at(types, n)) != NULL; n++)
        if (!is_loss(type))
            return false;
    return n > 0 || is_loss(types);
}

/* The one stack of hybrid models, by its names in core 0.12 to main: the pattern gives its layers.
 */
static bool is_hybrid_stack(const struct dcpk_value *spec)
{
    const struct dcpk_value *name = dcpk_value_at(spec, 1);

    return dcpk_value_is_str(name, "mamba_stack_spec") ||
           dcpk_value_is_str(name, "hybrid_stack_spec");
}

/* The meaning of the attribute; NULL: it is absent. */
static const struct dcpk_value *arg_meaning(const struct dcpk_arg *arg,
                                            const struct dcpk_value *attrs, const char **name)
{
    const struct dcpk_value *value = arg_stored(arg, attrs, name);

    if (strcmp(arg->name, "num_query_groups") == 0)
        value = dcpk_query_groups(attrs);
    if (value == NULL && strcmp(arg->name, "moe_ffn_hidden_size") == 0)
        value = dcpk_value_get(attrs, "ffn_hidden_size");
    if (strcmp(arg->name, "moe_router_load_balancing_type") == 0 && are_losses(value))
        value = &arg->by_default;
    if (strcmp(arg->name, "spec") == 0 && is_hybrid_stack(value))
        value = NULL;
    /* The parser takes one for each kind of loss. */
    if (strcmp(arg->name, "moe_aux_loss_coeff") == 0 && dcpk_value_at(value, 0) != NULL)
        value = dcpk_value_at(value, 0);
    return dcpk_value_is_none(value) ? NULL : value;
}

const struct dcpk_value *dcpk_arg_value(const struct dcpk_value *attrs, const char *name)
{
    const struct dcpk_arg *arg = dcpk_arg_find(name);
    const struct dcpk_value *value;
    const char *found;

    if (arg == NULL) {
        value = dcpk_value_get(attrs, name);
        return value == NULL ? dcpk_value_none() : value;
    }
    value = arg_meaning(arg, attrs, &found);
    return value == NULL ? &arg->by_default : value;
}

/* ---- parts ---- */

static bool is_on(const struct dcpk_value *attrs, const char *name)
{
    const struct dcpk_value *value = dcpk_value_get(attrs, name);
    bool truth;
    double number;

    if (dcpk_value_is_none(value) || dcpk_value_is_str(value, ""))
        return false;
    if (dcpk_value_as_bool(value, &truth))
        return truth;
    return !dcpk_value_as_float(value, &number) || number != 0;
}

static bool has_gelu(const struct dcpk_value *attrs)
{
    return !is_on(attrs, "swiglu") && !is_on(attrs, "squared_relu") && !is_on(attrs, "quick_geglu");
}

static bool has_rope(const struct dcpk_value *attrs)
{
    const struct dcpk_value *kind = dcpk_value_get(attrs, "position_embedding_type");

    return is_on(attrs, "multi_latent_attention") ||
           !(dcpk_value_is_none(kind) || dcpk_value_is_str(kind, "learned_absolute") ||
             dcpk_value_is_str(kind, "none"));
}

static bool has_gpt_yarn(const struct dcpk_value *attrs)
{
    return dcpk_value_is_str(dcpk_value_get(attrs, "position_embedding_type"), "yarn") &&
           !is_on(attrs, "multi_latent_attention");
}

static bool has_part(const struct dcpk_value *attrs, enum dcpk_arg_part part)
{
    switch (part) {
    case DCPK_PART_ALL:
        return true;
    case DCPK_PART_GELU:
        return has_gelu(attrs);
    case DCPK_PART_ROPE:
        return has_rope(attrs);
    case DCPK_PART_YARN:
        return has_gpt_yarn(attrs) || is_on(attrs, "multi_latent_attention");
    case DCPK_PART_GPT_YARN:
        return has_gpt_yarn(attrs);
    case DCPK_PART_HYBRID:
        return is_on(attrs, "is_hybrid_model") || is_on(attrs, "hybrid_layer_pattern") ||
               is_on(attrs, "hybrid_override_pattern");
    case DCPK_PART_SCALING:
    case DCPK_PART_MLA:
    case DCPK_PART_VARIANT:
    case DCPK_PART_WINDOW:
    case DCPK_PART_MOE:
    case DCPK_PART_CAPACITY:
    case DCPK_PART_MTP:
    case DCPK_PART_MUP:
    case DCPK_PART_MHC:
        break;
    }
    return is_on(attrs, switches[part]);
}

bool dcpk_arg_is_off(const struct dcpk_arg *arg, const struct dcpk_value *attrs)
{
    const char *name;
    const struct dcpk_value *value = arg_meaning(arg, attrs, &name);

    return value != NULL && !(arg->flags & (SHOWN | TRAINS | SIZE)) && has_part(attrs, arg->part) &&
           !dcpk_value_same(value, &arg->by_default);
}

/* ---- two runs ---- */

/* The name under which two runs differ in it, NULL: they do not. */
static const char *arg_differs(const struct dcpk_arg *arg, const struct dcpk_value *a,
                               const struct dcpk_value *b)
{
    const char *name, *other_name;
    const struct dcpk_value *of_a = arg_meaning(arg, a, &name);
    const struct dcpk_value *of_b = arg_meaning(arg, b, &other_name);

    if ((arg->flags & (SHOWN | TRAINS)) || (!has_part(a, arg->part) && !has_part(b, arg->part)))
        return NULL;
    if ((of_a == NULL || of_b == NULL) && (arg->flags & LACK))
        return NULL;
    if (of_a == NULL) {
        of_a = &arg->by_default;
        name = other_name;
    }
    if (of_b == NULL)
        of_b = &arg->by_default;
    return dcpk_value_same(of_a, of_b) ? NULL : name;
}

const char *dcpk_args_next_difference(const struct dcpk_value *a, const struct dcpk_value *b,
                                      size_t *at)
{
    while (*at < dcpk_n_args) {
        const char *name = arg_differs(&dcpk_args[(*at)++], a, b);

        if (name != NULL)
            return name;
    }
    return NULL;
}

/* Blocks of experts' rows in which gate and up take turns
 * (megatron/core/transformer/transformer_config.py@core_v0.19.0). */
const char *dcpk_ordering_arg(const struct dcpk_value *a, const struct dcpk_value *b)
{
    static const char *const names[] = {"moe_mlp_glu_interleave_size",
                                        "moe_shared_expert_glu_interleave_size"};

    for (size_t i = 0; i < DCPK_COUNT(names); i++)
        if (arg_differs(dcpk_arg_find(names[i]), a, b) != NULL)
            return names[i];
    return NULL;
}

enum dcpk_dtype dcpk_args_working_dtype(const struct dcpk_value *attrs)
{
    if (dcpk_value_is_true(attrs, "bf16"))
        return DCPK_BF16;
    return dcpk_value_is_true(attrs, "fp16") ? DCPK_F16 : DCPK_F32;
}
