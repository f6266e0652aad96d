/* SPDX-License-Identifier: Apache-2.0 */
/* expect_modules.c - a table of Megatron's modules: under which conditions they are there, and
 * the shapes of their parameters. */
#include <string.h>

#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/rules/expect_priv.h"

/* Part layouts (lib/model/parts.h). */
enum joined { UNJOINED, GDN_PROJ, GDN_CONV, MAMBA_PROJ, MAMBA_CONV };

enum {
    BUFFER = DCPK_EXPECTED_BUFFER,
    EXPERT = DCPK_EXPECTED_EXPERT,
    VOCAB = DCPK_EXPECTED_VOCAB,
    TE_ONLY = DCPK_EXPECTED_TE_ONLY,
    OLD_MTP = DCPK_EXPECTED_OLD_MTP,
    EXTRA = 32, /* the module keeps extra state */
    GATED = 64  /* rows are gate then up where the model is gated */
};

#define INDEXER "self_attention.core_attention.indexer."

/*
 * Sources: MC/transformer/{attention,multi_latent_attention,mlp}.py, moe/{experts,router,
 * shared_experts}.py, multi_token_prediction.py, MC/models/gpt/{gpt_model,gpt_layer_specs}.py
 * @core_v0.15.3 to main; MC/ssm/{mamba_mixer,gated_delta_net}, MC/models/hybrid @core_v0.16.1 to
 * main; MC/transformer/experimental_attention_variant/{absorbed_mla,dsa}.py @core_v0.19.0 and
 * main. A layer has what it has all traits of `when` for. Names are Transformer Engine's, as in
 * names.h, of experts after "mlp.experts.".
 */

/* "<name>weight" and of LayerNorm "<name>bias", [size]. local: the local spec's name; NULL: the
 * same. */
static const struct norm {
    const char *name, *local;
    unsigned when;
    enum dcpk_dim size;
} norms[] = {
    {"decoder.final_layernorm.", NULL, HAS_OUTER | IS_DECODER, DIM_HIDDEN},
    {"decoder.final_norm.", NULL, HAS_OUTER | IS_HYBRID, DIM_HIDDEN},
    {"self_attention.linear_qkv.layer_norm_", "input_layernorm.", HAS_QKV, DIM_HIDDEN},
    {"self_attention.q_layernorm.", NULL, HAS_QKV | WITH_QK_NORM, DIM_HEAD},
    {"self_attention.k_layernorm.", NULL, HAS_QKV | WITH_QK_NORM, DIM_HEAD},
    {"input_layernorm.", NULL, HAS_MLA, DIM_HIDDEN},
    {"self_attention.linear_q_up_proj.layer_norm_", "self_attention.q_layernorm.",
     HAS_MLA | IS_FUSED | WITH_Q_LORA | WITH_QK_NORM, DIM_Q_LORA},
    {"self_attention.linear_kv_up_proj.layer_norm_", "self_attention.kv_layernorm.",
     HAS_MLA | IS_FUSED | WITH_QK_NORM, DIM_KV_LORA},
    {"self_attention.q_layernorm.", NULL, HAS_MLA | IS_SPARSE | WITH_Q_LORA | WITH_QK_NORM,
     DIM_Q_LORA},
    {"self_attention.kv_layernorm.", NULL, HAS_MLA | IS_SPARSE | WITH_QK_NORM, DIM_KV_LORA},
    {"self_attention.in_proj.layer_norm_", "input_layernorm.", HAS_GDN, DIM_HIDDEN},
    {"self_attention.out_norm.", NULL, HAS_GDN, DIM_GDN_HEAD},
    {"mixer.in_proj.layer_norm_", "norm.", HAS_MAMBA, DIM_HIDDEN},
    {"mlp.linear_fc1.layer_norm_", "pre_mlp_layernorm.", HAS_DENSE, DIM_HIDDEN},
    {"pre_mlp_layernorm.", NULL, HAS_MOE, DIM_HIDDEN},
    {"enorm.", NULL, HAS_MTP, DIM_HIDDEN},
    {"hnorm.", NULL, HAS_MTP, DIM_HIDDEN},
    {"final_layernorm.", NULL, HAS_MTP, DIM_HIDDEN},
};

/* "<name>weight" [rows, columns], and where any trait of `bias` holds "<name>bias" [rows]. */
static const struct linear {
    const char *name;
    unsigned when;
    enum dcpk_dim rows, columns;
    unsigned bias, flags;
} linears[] = {
    {"embedding.word_embeddings.", HAS_OUTER, DIM_VOCAB, DIM_HIDDEN, 0, VOCAB},
    {"embedding.position_embeddings.", HAS_OUTER | WITH_POSITIONS, DIM_POSITIONS, DIM_HIDDEN, 0, 0},
    {"output_layer.", HAS_OUTER | WITH_OUTPUT, DIM_VOCAB, DIM_HIDDEN, 0, VOCAB},
    {"self_attention.linear_qkv.", HAS_QKV, DIM_QKV, DIM_HIDDEN, WITH_QKV_BIAS, EXTRA},
    {"self_attention.linear_proj.", HAS_QKV, DIM_HIDDEN, DIM_CONTEXT, WITH_BIAS, EXTRA},
    {"self_attention.linear_q_proj.", HAS_MLA | WITHOUT_Q_LORA, DIM_Q_UP, DIM_HIDDEN, 0, EXTRA},
    {"self_attention.linear_q_down_proj.", HAS_MLA | WITH_Q_LORA, DIM_Q_LORA, DIM_HIDDEN, 0, EXTRA},
    {"self_attention.linear_q_up_proj.", HAS_MLA | WITH_Q_LORA, DIM_Q_UP, DIM_Q_LORA, 0, EXTRA},
    {"self_attention.linear_kv_down_proj.", HAS_MLA, DIM_KV_DOWN, DIM_HIDDEN, 0, EXTRA},
    {"self_attention.linear_kv_up_proj.", HAS_MLA, DIM_KV_UP, DIM_KV_LORA, 0, EXTRA},
    {"self_attention.linear_proj.", HAS_MLA, DIM_HIDDEN, DIM_MLA_CONTEXT, WITH_BIAS, EXTRA},
    {INDEXER "linear_wq_b.", HAS_INDEXER, DIM_INDEX_QUERIES, DIM_Q_LORA, 0, EXTRA},
    {INDEXER "linear_wk.", HAS_INDEXER, DIM_INDEX_HEAD, DIM_HIDDEN, 0, EXTRA},
    {INDEXER "linear_weights_proj.", HAS_INDEXER, DIM_INDEX_HEADS, DIM_HIDDEN, 0, EXTRA},
    {"self_attention.out_proj.", HAS_GDN, DIM_HIDDEN, DIM_GDN_VALUES, 0, EXTRA},
    {"mixer.out_proj.", HAS_MAMBA, DIM_HIDDEN, DIM_MAMBA_INNER, 0, EXTRA},
    {"mlp.linear_fc1.", HAS_DENSE, DIM_FC1, DIM_HIDDEN, WITH_BIAS, EXTRA | GATED},
    {"mlp.linear_fc2.", HAS_DENSE, DIM_HIDDEN, DIM_FFN, WITH_BIAS, EXTRA},
    {"mlp.router.", HAS_MOE, DIM_EXPERTS, DIM_HIDDEN, WITH_BIAS, 0},
    {"linear_fc1.", HAS_MOE, DIM_MOE_FC1, DIM_HIDDEN, WITH_BIAS, EXPERT | EXTRA | GATED},
    {"linear_fc2.", HAS_MOE, DIM_HIDDEN, DIM_MOE_FFN, WITH_BIAS, EXPERT | EXTRA},
    {"mlp.shared_experts.linear_fc1.", HAS_MOE | WITH_SHARED, DIM_SHARED_FC1, DIM_HIDDEN, WITH_BIAS,
     EXTRA | GATED},
    {"mlp.shared_experts.linear_fc2.", HAS_MOE | WITH_SHARED, DIM_HIDDEN, DIM_SHARED, WITH_BIAS,
     EXTRA},
    {"eh_proj.", HAS_MTP, DIM_HIDDEN, DIM_TWO_HIDDEN, 0, EXTRA},
};

/* Parameters by their whole names. */
static const struct whole {
    const char *name;
    unsigned when;
    enum dcpk_dim dims[DCPK_EXPECTED_RANK];
    unsigned flags;
    enum joined joined;
} wholes[] = {
    {"self_attention.core_attention.softmax_offset", HAS_QKV | WITH_SINK, {DIM_HEADS}, 0, UNJOINED},
    {INDEXER "k_norm.weight", HAS_INDEXER, {DIM_INDEX_HEAD}, 0, UNJOINED},
    {INDEXER "k_norm.bias", HAS_INDEXER, {DIM_INDEX_HEAD}, 0, UNJOINED},
    {"self_attention.dt_bias", HAS_GDN, {DIM_GDN_HEADS}, 0, UNJOINED},
    {"self_attention.A_log", HAS_GDN, {DIM_GDN_HEADS}, 0, UNJOINED},
    {"self_attention.in_proj.weight", HAS_GDN, {DIM_GDN_IN, DIM_HIDDEN}, 0, GDN_PROJ},
    {"self_attention.conv1d.weight", HAS_GDN, {DIM_GDN_CONV, DIM_ONE, DIM_KERNEL}, 0, GDN_CONV},
    {"mixer.conv1d_weight", HAS_MAMBA, {DIM_MAMBA_CONV, DIM_ONE, DIM_KERNEL}, 0, MAMBA_CONV},
    {"mixer.conv1d_bias", HAS_MAMBA, {DIM_MAMBA_CONV}, 0, MAMBA_CONV},
    {"mixer.dt_bias", HAS_MAMBA, {DIM_MAMBA_HEADS}, 0, UNJOINED},
    {"mixer.A_log", HAS_MAMBA, {DIM_MAMBA_HEADS}, 0, UNJOINED},
    {"mixer.D", HAS_MAMBA, {DIM_MAMBA_HEADS}, 0, UNJOINED},
    {"mixer.in_proj.weight", HAS_MAMBA, {DIM_MAMBA_IN, DIM_HIDDEN}, 0, MAMBA_PROJ},
    {"mixer.norm.weight", HAS_MAMBA, {DIM_MAMBA_INNER}, 0, UNJOINED},
    {"mlp.router.expert_bias", HAS_MOE | WITH_EXPERT_BIAS, {DIM_EXPERTS}, BUFFER, UNJOINED},
    {"mlp.shared_experts.gate_weight",
     HAS_MOE | WITH_SHARED_GATE,
     {DIM_ONE, DIM_HIDDEN},
     0,
     UNJOINED},
};

/* Modules that keep extra state, besides the linear ones and the norms. */
static const struct stateful {
    const char *name;
    unsigned when, flags;
} statefuls[] = {
    {"self_attention.core_attention", HAS_QKV, TE_ONLY | OLD_MTP},
    {INDEXER "k_norm", HAS_INDEXER, TE_ONLY},
    {"self_attention.in_proj", HAS_GDN, 0},
    {"mixer.in_proj", HAS_MAMBA, 0},
    {"output_layer", HAS_OUTER | IS_HYBRID, 0}, /* GPT leaves its own out */
};

#define MAX_PARAMS  (2 * DCPK_COUNT(norms) + 2 * DCPK_COUNT(linears) + DCPK_COUNT(wholes))
#define MAX_MODULES (DCPK_COUNT(norms) + DCPK_COUNT(linears) + DCPK_COUNT(statefuls))

/* The parts of joined rows: a layout of parts.h, and what its sizes are. */
static const struct joint {
    int layout; /* of dcpk_part_layouts */
    bool is_conv;
    enum dcpk_dim sizes[3]; /* by enum dcpk_part_size */
} joints[] = {
    [GDN_PROJ] = {1, false, {DIM_GDN_VALUES, DIM_GDN_KEYS, DIM_GDN_HEADS}},
    [GDN_CONV] = {1, true, {DIM_GDN_VALUES, DIM_GDN_KEYS, DIM_GDN_HEADS}},
    [MAMBA_PROJ] = {0, false, {DIM_MAMBA_INNER, DIM_MAMBA_STATE, DIM_MAMBA_HEADS}},
    [MAMBA_CONV] = {0, true, {DIM_MAMBA_INNER, DIM_MAMBA_STATE, DIM_MAMBA_HEADS}},
};

static bool applies(unsigned when, unsigned traits)
{
    return (traits & when) == when;
}

static dcpk_status add_parts(struct dcpk_arch *arch, enum joined joined,
                             struct dcpk_expected_param *p, struct dcpk_error *err)
{
    const struct joint *joint = &joints[joined];
    const struct dcpk_part_layout *layout = &dcpk_part_layouts[joint->layout];
    int64_t size[DCPK_N_PART_SIZES] = {0};

    for (size_t i = 0; i < DCPK_COUNT(joint->sizes); i++)
        size[i] = arch->size[joint->sizes[i]];
    return dcpk_parts_size(arch->arena, joint->is_conv ? layout->conv : layout->proj, size,
                           &p->parts, err);
}

static dcpk_status add_halves(struct dcpk_arch *arch, struct dcpk_expected_param *p,
                              struct dcpk_error *err)
{
    const int64_t size[DCPK_N_PART_SIZES] = {[DCPK_PART_HALF] = p->shape[0] / 2};

    return dcpk_parts_size(arch->arena, dcpk_gate_up, size, &p->parts, err);
}

/* A parameter to be added: its name is name and leaf together. */
struct adding {
    const char *name, *local, *leaf;
    enum dcpk_dim dims[DCPK_EXPECTED_RANK];
    unsigned flags;
    enum joined joined;
};

static const char *join(struct dcpk_arch *arch, const char *name, const char *leaf,
                        struct dcpk_error *err)
{
    const char *const texts[] = {name, leaf};

    return dcpk_arena_join(arch->arena, texts, 2, err);
}

static dcpk_status add_param(struct dcpk_arch *arch, const struct adding *a,
                             struct dcpk_expected_kind *kind, struct dcpk_error *err)
{
    struct dcpk_expected_param *p = &kind->params[kind->n_params++];

    p->flags = a->flags & ~(unsigned)(EXTRA | GATED);
    p->te = join(arch, a->name, a->leaf, err);
    if (p->te == NULL)
        return err->status;
    p->local = p->te;
    if (a->local != NULL && (p->local = join(arch, a->local, a->leaf, err)) == NULL)
        return err->status;
    for (p->rank = 0; p->rank < DCPK_EXPECTED_RANK && a->dims[p->rank] != DIM_NONE; p->rank++) {
        p->shape[p->rank] = arch->size[a->dims[p->rank]];
        if (p->shape[p->rank] <= 0 &&
            dcpk_arch_unknown(arch, err, "the shape of '%s' (a size is missing in args)", p->te) !=
                DCPK_OK)
            return err->status;
    }
    if ((a->flags & GATED) != 0 && (arch->common & WITH_GATE) != 0)
        return add_halves(arch, p, err);
    if (a->joined == UNJOINED)
        return DCPK_OK;
    return add_parts(arch, a->joined, p, err);
}

/* A module that keeps extra state, by its name with a dot after it. */
static dcpk_status add_module(struct dcpk_arch *arch, const char *name, unsigned flags,
                              struct dcpk_expected_kind *kind, struct dcpk_error *err)
{
    struct dcpk_expected_module *module = &kind->modules[kind->n_modules++];

    module->flags = flags;
    module->te = dcpk_arena_strndup(arch->arena, name, strlen(name) - 1, err);
    if (module->te == NULL)
        return err->status;
    return DCPK_OK;
}

/* Norms that are modules of their own keep extra state in Transformer Engine (1.13 and later). */
static dcpk_status add_norm(struct dcpk_arch *arch, const struct norm *norm,
                            struct dcpk_expected_kind *kind, struct dcpk_error *err)
{
    struct adding a = {
        .name = norm->name, .local = norm->local, .leaf = "weight", .dims = {norm->size}};

    if (add_param(arch, &a, kind, err) != DCPK_OK)
        return err->status;
    a.leaf = "bias";
    if ((kind->traits & WITH_NORM_BIAS) != 0 && add_param(arch, &a, kind, err) != DCPK_OK)
        return err->status;
    if (!dcpk_ends_with(norm->name, "."))
        return DCPK_OK;
    return add_module(arch, norm->name, TE_ONLY, kind, err);
}

static dcpk_status add_linear(struct dcpk_arch *arch, const struct linear *linear,
                              struct dcpk_expected_kind *kind, struct dcpk_error *err)
{
    struct adding a = {.name = linear->name,
                       .leaf = "weight",
                       .dims = {linear->rows, linear->columns},
                       .flags = linear->flags};

    if (add_param(arch, &a, kind, err) != DCPK_OK)
        return err->status;
    a.leaf = "bias";
    a.dims[1] = DIM_NONE;
    if ((kind->traits & linear->bias) != 0 && add_param(arch, &a, kind, err) != DCPK_OK)
        return err->status;
    if ((linear->flags & EXTRA) == 0)
        return DCPK_OK;
    return add_module(arch, linear->name, linear->flags & (unsigned)EXPERT, kind, err);
}

static dcpk_status add_whole(struct dcpk_arch *arch, const struct whole *whole,
                             struct dcpk_expected_kind *kind, struct dcpk_error *err)
{
    struct adding a = {
        .name = whole->name, .leaf = "", .flags = whole->flags, .joined = whole->joined};

    memcpy(a.dims, whole->dims, sizeof a.dims);
    return add_param(arch, &a, kind, err);
}

/* Everything that the tables have for these traits. */
static dcpk_status fill_kind(struct dcpk_arch *arch, struct dcpk_expected_kind *kind,
                             struct dcpk_error *err)
{
    const unsigned traits = kind->traits;
    dcpk_status st = DCPK_OK;

    for (size_t i = 0; i < DCPK_COUNT(norms) && st == DCPK_OK; i++)
        if (applies(norms[i].when, traits))
            st = add_norm(arch, &norms[i], kind, err);
    for (size_t i = 0; i < DCPK_COUNT(linears) && st == DCPK_OK; i++)
        if (applies(linears[i].when, traits))
            st = add_linear(arch, &linears[i], kind, err);
    for (size_t i = 0; i < DCPK_COUNT(wholes) && st == DCPK_OK; i++)
        if (applies(wholes[i].when, traits))
            st = add_whole(arch, &wholes[i], kind, err);
    for (size_t i = 0; i < DCPK_COUNT(statefuls) && st == DCPK_OK; i++)
        if (applies(statefuls[i].when, traits))
            kind->modules[kind->n_modules++] =
                (struct dcpk_expected_module){statefuls[i].name, statefuls[i].flags};
    return st;
}

dcpk_status dcpk_arch_kind(struct dcpk_arch *arch, unsigned traits,
                           const struct dcpk_expected_kind **kind, struct dcpk_error *err)
{
    struct dcpk_expected_kind *made;

    traits |= arch->common;
    for (size_t i = 0; i < arch->n_kinds; i++)
        if (arch->kinds[i].traits == traits) {
            *kind = &arch->kinds[i];
            return DCPK_OK;
        }
    made = &arch->kinds[arch->n_kinds++];
    made->traits = traits;
    made->params = dcpk_arena_array(arch->arena, MAX_PARAMS, sizeof *made->params, err);
    made->modules = dcpk_arena_array(arch->arena, MAX_MODULES, sizeof *made->modules, err);
    if (made->params == NULL || made->modules == NULL)
        return err->status;
    *kind = made;
    return fill_kind(arch, made, err);
}
