/* SPDX-License-Identifier: Apache-2.0 */
/* expect_args.c - a model's sizes from args, and the settings that no table knows. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/checked.h"
#include "lib/base/order.h"
#include "lib/model/sizes.h"
#include "lib/rules/expect_priv.h"

dcpk_status dcpk_arch_unknown(struct dcpk_arch *arch, struct dcpk_error *err, const char *fmt, ...)
{
    char text[256];
    va_list ap;

    if (arch->expected->unknown != NULL)
        return DCPK_OK;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    arch->expected->unknown = dcpk_arena_strdup(arch->arena, text, err);
    if (arch->expected->unknown == NULL)
        return err->status;
    return DCPK_OK;
}

static dcpk_status arch_assume(struct dcpk_arch *arch, const char *text, struct dcpk_error *err)
{
    struct dcpk_note *note = dcpk_arena_alloc(arch->arena, sizeof *note, err);

    if (note == NULL)
        return err->status;
    *note = (struct dcpk_note){text, arch->expected->assumed};
    arch->expected->assumed = note;
    return DCPK_OK;
}

bool dcpk_arch_given(const struct dcpk_arch *arch, const char *name)
{
    const struct dcpk_value *v = dcpk_value_get(arch->attrs, name);
    double number;

    if (dcpk_value_is_none(v))
        return false;
    if (dcpk_value_as_float(v, &number))
        return number != 0;
    if (v->kind == DCPK_V_BOOL)
        return v->as.b;
    return dcpk_value_as_str(v) == NULL || v->n > 0;
}

int64_t dcpk_arch_int(const struct dcpk_arch *arch, const char *name, int64_t by_default)
{
    int64_t n;

    if (!dcpk_value_as_int(dcpk_value_get(arch->attrs, name), &n) || n <= 0)
        return by_default;
    return n;
}

const char *dcpk_arch_text(const struct dcpk_arch *arch, const char *name)
{
    return dcpk_value_as_str(dcpk_value_get(arch->attrs, name));
}

/* Products and sums of sizes; 0 where one is not known or the result is too large. */
static int64_t times(int64_t a, int64_t b)
{
    int64_t product;

    if (a <= 0 || b <= 0 || !dcpk_mul_i64(a, b, &product))
        return 0;
    return product;
}

static int64_t plus(int64_t a, int64_t b)
{
    int64_t sum;

    if (a <= 0 || b <= 0 || !dcpk_add_i64(a, b, &sum))
        return 0;
    return sum;
}

static int64_t query_groups(const struct dcpk_arch *arch, int64_t n_heads)
{
    int64_t n;

    if (!dcpk_value_as_int(dcpk_query_groups(arch->attrs), &n) || n <= 0)
        return n_heads;
    return n;
}

static void read_attention(struct dcpk_arch *arch)
{
    int64_t *size = arch->size;
    const int64_t n_heads = dcpk_arch_int(arch, "num_attention_heads", 0);
    const int64_t n_groups = query_groups(arch, n_heads);
    const int64_t n_queries = n_heads * (1 + dcpk_arch_given(arch, "attention_output_gate"));
    const int64_t head = n_heads > 0 ? size[DIM_HIDDEN] / n_heads : 0;
    const int64_t positions = dcpk_arch_int(arch, "qk_pos_emb_head_dim", 0);
    const int64_t query = plus(dcpk_arch_int(arch, "qk_head_dim", 0), positions);
    const int64_t value = dcpk_arch_int(arch, "v_head_dim", 0);

    size[DIM_HEADS] = n_heads;
    size[DIM_HEAD] = dcpk_arch_int(arch, "kv_channels", head);
    size[DIM_QKV] = times(plus(n_queries, times(2, n_groups)), size[DIM_HEAD]);
    size[DIM_CONTEXT] = times(n_heads, size[DIM_HEAD]);
    size[DIM_Q_LORA] = dcpk_arch_int(arch, "q_lora_rank", 0);
    size[DIM_KV_LORA] = dcpk_arch_int(arch, "kv_lora_rank", 0);
    size[DIM_Q_UP] = times(n_heads, query);
    size[DIM_KV_DOWN] = plus(size[DIM_KV_LORA], positions);
    size[DIM_KV_UP] = times(n_heads, plus(dcpk_arch_int(arch, "qk_head_dim", 0), value));
    size[DIM_MLA_CONTEXT] = times(n_heads, value);
    size[DIM_INDEX_HEADS] = dcpk_arch_int(arch, "dsa_indexer_n_heads", 0);
    size[DIM_INDEX_HEAD] = dcpk_arch_int(arch, "dsa_indexer_head_dim", 0);
    size[DIM_INDEX_QUERIES] = times(size[DIM_INDEX_HEADS], size[DIM_INDEX_HEAD]);
}

/* Gated activations have gate and up rows in one. */
static void read_mlp(struct dcpk_arch *arch)
{
    int64_t *size = arch->size;
    const int64_t n_rows = 1 + ((arch->common & WITH_GATE) != 0);

    size[DIM_FFN] = dcpk_arch_int(arch, "ffn_hidden_size", 0);
    size[DIM_FC1] = times(n_rows, size[DIM_FFN]);
    size[DIM_EXPERTS] = dcpk_arch_int(arch, "num_experts", 0);
    size[DIM_MOE_FFN] = dcpk_arch_int(arch, "moe_ffn_hidden_size", size[DIM_FFN]);
    size[DIM_MOE_FC1] = times(n_rows, size[DIM_MOE_FFN]);
    size[DIM_SHARED] = dcpk_arch_int(arch, "moe_shared_expert_intermediate_size", 0);
    size[DIM_SHARED_FC1] = times(n_rows, size[DIM_SHARED]);
}

/* The defaults are Mamba's (MC/ssm/mamba_mixer.py: expand, d_conv). */
static void read_state_space(struct dcpk_arch *arch)
{
    int64_t *size = arch->size;
    const int64_t n_keys = dcpk_arch_int(arch, "linear_num_key_heads", 0);
    const int64_t head = dcpk_arch_int(arch, "mamba_head_dim", 0);
    const int64_t inner = times(2, size[DIM_HIDDEN]);

    size[DIM_GDN_HEADS] = dcpk_arch_int(arch, "linear_num_value_heads", 0);
    size[DIM_GDN_HEAD] = dcpk_arch_int(arch, "linear_value_head_dim", 0);
    size[DIM_GDN_KEYS] = times(n_keys, dcpk_arch_int(arch, "linear_key_head_dim", 0));
    size[DIM_GDN_VALUES] = times(size[DIM_GDN_HEADS], size[DIM_GDN_HEAD]);
    size[DIM_GDN_CONV] = plus(times(2, size[DIM_GDN_KEYS]), size[DIM_GDN_VALUES]);
    size[DIM_GDN_IN] =
        plus(size[DIM_GDN_CONV], plus(size[DIM_GDN_VALUES], times(2, size[DIM_GDN_HEADS])));
    size[DIM_MAMBA_HEADS] = dcpk_arch_int(arch, "mamba_num_heads", head > 0 ? inner / head : 0);
    size[DIM_MAMBA_INNER] = times(size[DIM_MAMBA_HEADS], head);
    size[DIM_MAMBA_STATE] = times(dcpk_arch_int(arch, "mamba_num_groups", 0),
                                  dcpk_arch_int(arch, "mamba_state_dim", 0));
    size[DIM_MAMBA_CONV] = plus(size[DIM_MAMBA_INNER], times(2, size[DIM_MAMBA_STATE]));
    size[DIM_MAMBA_IN] =
        plus(size[DIM_MAMBA_CONV], plus(size[DIM_MAMBA_INNER], size[DIM_MAMBA_HEADS]));
    size[DIM_KERNEL] = dcpk_arch_int(arch, "linear_conv_kernel_dim", 4);
}

/*
 * Rows of the vocabulary on a mesh: args have those of the run that saved. With another tp they are
 * padded again (MC/tokenizers vocab_size_with_padding); args without the size or the multiple are
 * taken as they are.
 */
static void read_vocab(struct dcpk_arch *arch, const struct dcpk_grid *mesh)
{
    const int64_t saved_tp = dcpk_arch_int(arch, "tensor_model_parallel_size", 1);
    const int64_t n_tokens = dcpk_arch_int(arch, "vocab_size", 0);
    const int64_t tp = dcpk_max_i64(mesh->tp, 1);
    const int64_t multiple = times(dcpk_arch_int(arch, "make_vocab_size_divisible_by", 0), tp);
    int64_t n_rows = dcpk_arch_int(arch, "padded_vocab_size", 0);

    if (multiple > 0 && n_tokens > 0 && (n_rows == 0 || tp != saved_tp))
        n_rows = times((n_tokens - 1) / multiple + 1, multiple);
    arch->size[DIM_VOCAB] = arch->expected->vocab_rows = n_rows;
}

static void read_traits(struct dcpk_arch *arch)
{
    const char *norm = dcpk_arch_text(arch, "normalization");
    const char *softmax = dcpk_arch_text(arch, "softmax_type");
    const struct {
        bool holds;
        unsigned trait;
    } traits[] = {
        {dcpk_arch_given(arch, "q_lora_rank"), WITH_Q_LORA},
        {dcpk_arch_given(arch, "qk_layernorm"), WITH_QK_NORM},
        {dcpk_arch_given(arch, "add_bias_linear"), WITH_BIAS | WITH_QKV_BIAS},
        {dcpk_arch_given(arch, "add_qkv_bias"), WITH_QKV_BIAS},
        {norm == NULL || strcmp(norm, "LayerNorm") == 0, WITH_NORM_BIAS},
        {dcpk_arch_given(arch, "moe_shared_expert_intermediate_size"), WITH_SHARED},
        {dcpk_arch_given(arch, "moe_shared_expert_intermediate_size") &&
             dcpk_arch_given(arch, "moe_shared_expert_gate"),
         WITH_SHARED_GATE},
        {dcpk_arch_given(arch, "moe_router_enable_expert_bias"), WITH_EXPERT_BIAS},
        {softmax != NULL && strcmp(softmax, "learnable") == 0, WITH_SINK},
        {arch->expected->is_swiglu || dcpk_arch_given(arch, "gated_linear_unit") ||
             dcpk_arch_given(arch, "quick_geglu"),
         WITH_GATE},
        {!arch->expected->is_tied, WITH_OUTPUT},
        {arch->expected->is_hybrid, IS_HYBRID},
        {!arch->expected->is_hybrid, IS_DECODER},
        {!dcpk_arch_given(arch, "q_lora_rank"), WITHOUT_Q_LORA},
        {arch->expected->is_sparse, IS_SPARSE},
        {!arch->expected->is_sparse, IS_FUSED},
    };

    for (size_t i = 0; i < DCPK_COUNT(traits); i++)
        if (traits[i].holds)
            arch->common |= traits[i].trait;
}

/* Learned position embeddings are Megatron's default, so that real args always name the kind. */
static dcpk_status read_positions(struct dcpk_arch *arch, struct dcpk_error *err)
{
    const char *kind = dcpk_arch_text(arch, "position_embedding_type");

    arch->size[DIM_POSITIONS] = dcpk_arch_int(arch, "max_position_embeddings", 0);
    if (kind == NULL)
        return arch_assume(
            arch, "no learned position embeddings (args do not name position_embedding_type)", err);
    if (strcmp(kind, "learned_absolute") == 0)
        arch->common |= WITH_POSITIONS;
    return DCPK_OK;
}

/* Options that give a model parameters which no row of the modules' table has. */
static dcpk_status find_unknown(struct dcpk_arch *arch, struct dcpk_error *err)
{
    static const char *const options[] = {
        "retro_add_retriever",
        "use_legacy_models",
        "spec",
        "decoder_num_layers",
        "moe_latent_size",
        "enable_mhc_connections",
        "mtp_hsm",
        "heterogeneous_layers_config_path",
        "moe_single_grouped_weight",
        "heterogeneous_layers_config_encoded_json",
        "moe_use_legacy_grouped_gemm",
        "post_attention_layernorm",
    };
    static const char *const variants[] = {"gated_delta_net", "gdn", "dsa"};
    const char *variant = dcpk_arch_text(arch, "experimental_attention_variant");
    bool is_known = variant == NULL;
    dcpk_status st = DCPK_OK;

    for (size_t i = 0; i < DCPK_COUNT(variants) && variant != NULL; i++)
        is_known |= strcmp(variant, variants[i]) == 0;
    if (!is_known)
        st = dcpk_arch_unknown(arch, err, "args.experimental_attention_variant '%s'", variant);
    for (size_t i = 0; i < DCPK_COUNT(options) && st == DCPK_OK; i++)
        if (dcpk_arch_given(arch, options[i]))
            st = dcpk_arch_unknown(arch, err, "args.%s", options[i]);
    return st;
}

/* Sizes without which there is no model. */
static dcpk_status find_missing(struct dcpk_arch *arch, struct dcpk_error *err)
{
    static const char *const sizes[] = {"num_layers", "hidden_size", "num_attention_heads"};

    for (size_t i = 0; i < DCPK_COUNT(sizes); i++)
        if (dcpk_arch_int(arch, sizes[i], 0) == 0 &&
            dcpk_arch_unknown(arch, err, "a model without args.%s", sizes[i]) != DCPK_OK)
            return err->status;
    return DCPK_OK;
}

dcpk_status dcpk_arch_read(struct dcpk_arch *arch, const struct dcpk_grid *mesh,
                           struct dcpk_error *err)
{
    struct dcpk_expected *e = arch->expected;
    bool is_untied = true;

    dcpk_value_as_bool(dcpk_value_get(arch->attrs, "untie_embeddings_and_output_weights"),
                       &is_untied);
    e->is_tied = !is_untied;
    e->is_swiglu = dcpk_arch_given(arch, "swiglu");
    e->is_mla = dcpk_arch_given(arch, "multi_latent_attention");
    e->is_sparse =
        dcpk_value_is_str(dcpk_value_get(arch->attrs, "experimental_attention_variant"), "dsa");
    e->is_mla_fused = e->is_mla && dcpk_arch_given(arch, "mla_down_proj_fusion");
    e->is_grouped = dcpk_arch_given(arch, "moe_grouped_gemm");
    e->is_fp32 = !dcpk_arch_given(arch, "bf16") && !dcpk_arch_given(arch, "fp16");
    e->optimizer = dcpk_arch_text(arch, "optimizer");
    if (e->optimizer == NULL)
        e->optimizer = "adam";
    arch->size[DIM_ONE] = 1;
    arch->size[DIM_HIDDEN] = dcpk_arch_int(arch, "hidden_size", 0);
    arch->size[DIM_TWO_HIDDEN] = times(2, arch->size[DIM_HIDDEN]);
    read_traits(arch);
    read_attention(arch);
    read_mlp(arch);
    read_state_space(arch);
    read_vocab(arch, mesh);
    e->n_experts = arch->size[DIM_EXPERTS];
    if (find_missing(arch, err) != DCPK_OK || find_unknown(arch, err) != DCPK_OK)
        return err->status;
    return read_positions(arch, err);
}
