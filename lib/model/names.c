/* SPDX-License-Identifier: Apache-2.0 */
/* names.c - spellings of Megatron's parameters. */
#include "lib/model/names.h"

#include <ctype.h>
#include <string.h>

#include "lib/base/order.h"
#include "lib/base/text.h"

#define MAX_SPELLINGS 8

/*
 * The inner layer of multi-token prediction: canonical first (formats/fsdp_dtensor/FORMAT.md 5.3).
 */
static const char *const mtp_layer[] = {"transformer_layer.", "mtp_model_layer."};

/*
 * Norms that Transformer Engine fuses into the linear layer after them; `needs`: a flag that the
 * layer must have for the pair to have this meaning, `unless`: a flag that it must not have.
 */
static const char delta_net_norm[] = "self_attention.in_proj.layer_norm_";
static const struct fused_norm {
    const char *te;
    const char *local;
    unsigned needs, unless;
} fused_norms[] = {
    {"self_attention.linear_qkv.layer_norm_", "input_layernorm.", DCPK_LAYER_QKV, 0},
    {"mlp.linear_fc1.layer_norm_", "pre_mlp_layernorm.", 0, DCPK_LAYER_MOE | DCPK_LAYER_LINEAR_MLP},
    {"self_attention.linear_q_up_proj.layer_norm_", "self_attention.q_layernorm.",
     DCPK_LAYER_Q_UP_PROJ, DCPK_LAYER_SPARSE},
    {"self_attention.linear_kv_up_proj.layer_norm_", "self_attention.kv_layernorm.",
     DCPK_LAYER_KV_UP_PROJ, DCPK_LAYER_SPARSE},
    /* hybrid_layer_specs.py, post_training/modelopt/hybrid/model_specs.py@0.19.0 and main. */
    {delta_net_norm, "input_layernorm.", DCPK_LAYER_DELTA_NET, DCPK_LAYER_QKV},
    {"mixer.in_proj.layer_norm_", "norm.", DCPK_LAYER_MIXER, 0},
    /* gpt/heterogeneous/heterogeneous_layer_specs.py@0.12 to main. */
    {"self_attention.layer_norm_", "input_layernorm.", DCPK_LAYER_LINEAR_ATTENTION, 0},
    {"mlp.layer_norm_", "pre_mlp_layernorm.", DCPK_LAYER_LINEAR_MLP, 0},
};
#define N_FUSED_NORMS DCPK_COUNT(fused_norms)

/*
 * Mamba's convolution: parameters of the mixer since core 0.19 (canonical), of a module before, and
 * in torch_dist always (megatron/core/ssm/mamba_mixer.py@0.18.2, @0.19.0 sharded_state_dict).
 */
static const char new_conv[] = "mixer.conv1d_", old_conv[] = "mixer.conv1d.";

/*
 * The fused down-projection of MLA takes the norm before it (gpt_layer_specs.py@0.18.2 to
 * main, mla_down_proj_fusion); main keeps it under the canonical name, except for its parameter
 * group.
 */
static const char mla_norm[] = "input_layernorm.",
                  fused_mla_norm[] = "self_attention.linear_qkv_down_proj.layer_norm_";

#define EXPERT_PREFIX "mlp.experts."
static const char sequential_prefix[] = EXPERT_PREFIX "local_experts.";

static size_t count_digits(const char *text)
{
    size_t n = 0;

    while (isdigit((unsigned char)text[n]))
        n++;
    return n;
}

size_t dcpk_name_layer(const char *name)
{
    size_t layer = 0;

    /* The last "layers.<n>." at the start of a component: vision towers and wrappers may stand
     * before it. */
    for (const char *p = name; (p = strstr(p, "layers.")) != NULL; p++) {
        const size_t digits = count_digits(p + strlen("layers."));

        if ((p == name || p[-1] == '.') && digits > 0 && p[strlen("layers.") + digits] == '.')
            layer = (size_t)(p - name) + strlen("layers.") + digits + 1;
    }
    for (size_t i = 0; layer > 0 && i < 2; i++)
        if (dcpk_starts_with(name + layer, mtp_layer[i]))
            return layer + strlen(mtp_layer[i]);
    return layer;
}

unsigned dcpk_name_layer_flags(const char *name)
{
    static const struct {
        const char *module;
        unsigned flag;
    } marks[] = {
        {EXPERT_PREFIX, DCPK_LAYER_MOE},
        {"mlp.router.", DCPK_LAYER_MOE},
        {"self_attention.linear_qkv.layer_norm_", 0}, /* before a DeltaNet, too: canonical_rest */
        {"self_attention.linear_qkv.", DCPK_LAYER_QKV},
        {"self_attention.linear_q_up_proj.", DCPK_LAYER_Q_UP_PROJ},
        {"self_attention.linear_kv_up_proj.", DCPK_LAYER_KV_UP_PROJ},
        {"self_attention.linear_q_down_proj.", DCPK_LAYER_Q_DOWN_PROJ},
        {"self_attention.in_proj.", DCPK_LAYER_DELTA_NET},
        {"mixer.in_proj.", DCPK_LAYER_MIXER},
        {"self_attention.core_attention.indexer.", DCPK_LAYER_SPARSE},
        {"self_attention.weight", DCPK_LAYER_LINEAR_ATTENTION},
        {"mlp.weight", DCPK_LAYER_LINEAR_MLP},
    };
    const size_t layer = dcpk_name_layer(name);

    for (size_t i = 0; layer > 0 && i < DCPK_COUNT(marks); i++)
        if (dcpk_starts_with(name + layer, marks[i].module))
            return marks[i].flag;
    return 0;
}

static bool norm_applies(const struct fused_norm *norm, unsigned flags)
{
    return (flags & norm->needs) == norm->needs && (flags & norm->unless) == 0;
}

/* "local_experts.7.linear_fc1.weight" -> "linear_fc1.weight7", after "mlp.experts."; NULL when it
 * is not of that form. */
static const char *group_expert(struct dcpk_arena *arena, const char *rest, struct dcpk_error *err)
{
    const char *number = rest + strlen(sequential_prefix);
    const size_t digits = count_digits(number);

    return dcpk_arena_printf(arena, err, "%s%s%.*s", EXPERT_PREFIX, number + digits + 1,
                             (int)digits, number);
}

/* The same name after its layer, in canonical spelling. */
static const char *canonical_rest(struct dcpk_arena *arena, const char *rest, unsigned flags,
                                  struct dcpk_error *err)
{
    if (dcpk_starts_with(rest, sequential_prefix)) {
        const size_t digits = count_digits(rest + strlen(sequential_prefix));

        if (digits > 0 && rest[strlen(sequential_prefix) + digits] == '.')
            return group_expert(arena, rest, err);
    }
    if (dcpk_starts_with(rest, fused_mla_norm))
        return dcpk_arena_printf(arena, err, "%s%s", mla_norm, rest + strlen(fused_mla_norm));
    if (dcpk_starts_with(rest, old_conv))
        return dcpk_arena_printf(arena, err, "%s%s", new_conv, rest + strlen(old_conv));
    /* torch_dist of the local spec calls a MoE layer's norm by the dense layer's fused name
     * (formats/torch_dist/FORMAT.md 4.3). */
    if ((flags & DCPK_LAYER_MOE) != 0 && dcpk_starts_with(rest, fused_norms[1].te))
        return dcpk_arena_printf(arena, err, "%s%s", fused_norms[1].local,
                                 rest + strlen(fused_norms[1].te));
    /* And the norm of a Gated DeltaNet by attention's (*measured*, the sample torch_dist_c_gdn). */
    if ((flags & (DCPK_LAYER_DELTA_NET | DCPK_LAYER_QKV)) == DCPK_LAYER_DELTA_NET &&
        dcpk_starts_with(rest, fused_norms[0].te))
        return dcpk_arena_printf(arena, err, "%s%s", delta_net_norm,
                                 rest + strlen(fused_norms[0].te));
    for (size_t i = 0; i < N_FUSED_NORMS; i++)
        if (norm_applies(&fused_norms[i], flags) && dcpk_starts_with(rest, fused_norms[i].local))
            return dcpk_arena_printf(arena, err, "%s%s", fused_norms[i].te,
                                     rest + strlen(fused_norms[i].local));
    return rest;
}

const char *dcpk_name_canonical(struct dcpk_arena *arena, const char *name, unsigned layer_flags,
                                struct dcpk_error *err)
{
    const size_t layer = dcpk_name_layer(name);
    const size_t inner = strlen(mtp_layer[1]);
    const char *rest;

    if (layer == 0)
        return name;
    rest = canonical_rest(arena, name + layer, layer_flags, err);
    if (rest == NULL)
        return NULL;
    if (layer > inner && strncmp(name + layer - inner, mtp_layer[1], inner) == 0)
        return dcpk_arena_printf(arena, err, "%.*s%s%s", (int)(layer - inner), name, mtp_layer[0],
                                 rest);
    if (rest == name + layer)
        return name;
    return dcpk_arena_printf(arena, err, "%.*s%s", (int)layer, name, rest);
}

/* "linear_fc1.weight7" -> "local_experts.7.linear_fc1.weight"; NULL when no number ends the name or
 * memory is out. */
static const char *sequential_rest(struct dcpk_arena *arena, const char *rest,
                                   struct dcpk_error *err)
{
    const char *name = rest + strlen(EXPERT_PREFIX);
    const char *number = rest + strlen(rest);

    while (number > name && isdigit((unsigned char)number[-1]))
        number--;
    if (*number == '\0' || strchr(name, '.') == NULL)
        return rest;
    return dcpk_arena_printf(arena, err, "%s%s.%.*s", sequential_prefix, number,
                             (int)(number - name), name);
}

/* The other spelling of what follows the layer, or `rest` itself when it has only one. */
static const char *local_rest(struct dcpk_arena *arena, const char *rest, unsigned flags,
                              enum dcpk_impl impl, struct dcpk_error *err)
{
    /* Matters of the release, as MTP's names: under one implementation there is only main's. */
    if (dcpk_starts_with(rest, new_conv) && impl == DCPK_IMPL_ANY)
        return dcpk_arena_printf(arena, err, "%s%s", old_conv, rest + strlen(new_conv));
    if (dcpk_starts_with(rest, mla_norm) && (flags & DCPK_LAYER_Q_DOWN_PROJ) != 0 &&
        impl == DCPK_IMPL_ANY)
        return dcpk_arena_printf(arena, err, "%s%s", fused_mla_norm, rest + strlen(mla_norm));
    if (dcpk_starts_with(rest, EXPERT_PREFIX))
        return sequential_rest(arena, rest, err);
    for (size_t i = 0; i < N_FUSED_NORMS; i++)
        if (norm_applies(&fused_norms[i], flags) && dcpk_starts_with(rest, fused_norms[i].te))
            return dcpk_arena_printf(arena, err, "%s%s", fused_norms[i].local,
                                     rest + strlen(fused_norms[i].te));
    return rest;
}

dcpk_status dcpk_name_spellings(struct dcpk_arena *arena, const char *canonical,
                                unsigned layer_flags, enum dcpk_impl impl,
                                struct dcpk_spellings *spellings, struct dcpk_error *err)
{
    const size_t layer = dcpk_name_layer(canonical);
    const size_t inner = strlen(mtp_layer[0]);
    const bool is_mtp =
        layer > inner && strncmp(canonical + layer - inner, mtp_layer[0], inner) == 0;
    const char *rest[2] = {canonical + layer, canonical + layer};
    const char **list = dcpk_arena_array(arena, MAX_SPELLINGS, sizeof *list, err);
    size_t n_list = 0;

    if (list == NULL)
        return err->status;
    if (layer > 0)
        rest[1] = local_rest(arena, rest[0], layer_flags, impl, err);
    if (rest[1] == NULL)
        return err->status;
    for (int local = 0; local < 2; local++) {
        if ((local == 1 && rest[1] == rest[0]) || (impl == DCPK_IMPL_TE && local == 1) ||
            (impl == DCPK_IMPL_LOCAL && local == 0 && rest[1] != rest[0]))
            continue;
        list[n_list] = dcpk_arena_printf(arena, err, "%.*s%s", (int)layer, canonical, rest[local]);
        if (list[n_list++] == NULL)
            return err->status;
        if (!is_mtp || impl != DCPK_IMPL_ANY)
            continue;
        list[n_list] = dcpk_arena_printf(arena, err, "%.*s%s%s", (int)(layer - inner), canonical,
                                         mtp_layer[1], rest[local]);
        if (list[n_list++] == NULL)
            return err->status;
    }
    *spellings = (struct dcpk_spellings){list, n_list};
    return DCPK_OK;
}

bool dcpk_name_is_fc1(const char *canonical)
{
    static const char *const fc1[] = {"mlp.linear_fc1.", "mlp.experts.linear_fc1.",
                                      "mlp.shared_experts.linear_fc1."};
    const char *rest = canonical + dcpk_name_layer(canonical);

    for (size_t i = 0; i < DCPK_COUNT(fc1); i++) {
        const char *p = strstr(rest, fc1[i]);

        if (p == NULL || (p != rest && p[-1] != '.'))
            continue;
        p += strlen(fc1[i]);
        if (dcpk_starts_with(p, "weight"))
            p += strlen("weight");
        else if (dcpk_starts_with(p, "bias"))
            p += strlen("bias");
        else
            continue;
        if (i == 1) /* the number of the expert */
            p += count_digits(p);
        if (*p == '\0')
            return true;
    }
    return false;
}

bool dcpk_name_is_expert(const char *canonical)
{
    return strstr(canonical, ".mlp.experts.") != NULL;
}

bool dcpk_name_in_module(const char *name, const char *module)
{
    const size_t n = strlen(module);

    if (strncmp(name, module, n) == 0 && name[n] == '.')
        return true;
    for (const char *p = name; (p = strstr(p, module)) != NULL; p++)
        if (p > name && p[-1] == '.' && p[n] == '.')
            return true;
    return false;
}
