/* SPDX-License-Identifier: Apache-2.0 */
/* fsdp_keys.c - takes keys apart: Megatron-FSDP's own, and those that Megatron's converter leaves;
 * finds the prefixes of keys by looking for the modules that Megatron's models have. */

#include <ctype.h>
#include <string.h>

#include "formats/fsdp_dtensor/fsdp_dtensor_priv.h"
#include "lib/base/order.h"
#include "lib/base/text.h"

enum dcpk_role dcpk_fsdp_role(const char *state)
{
    static const struct {
        const char *name;
        enum dcpk_role role;
    } roles[] = {{"exp_avg", DCPK_EXP_AVG},  {"exp_avg_sq", DCPK_EXP_AVG_SQ},
                 {"step", DCPK_STEP},        {"master_param", DCPK_MASTER},
                 {"param", DCPK_MASTER}, /* Megatron's converter (FORMAT.md 12.2, T5) */
                 {"fp32_param", DCPK_MASTER}};

    for (size_t i = 0; i < DCPK_COUNT(roles); i++)
        if (strcmp(state, roles[i].name) == 0)
            return roles[i].role;
    return DCPK_STATE;
}

const char *dcpk_fsdp_skip_q(const char *rest)
{
    if (dcpk_starts_with(rest, FD_Q_LOW))
        return rest + strlen(FD_Q_LOW);
    if (dcpk_starts_with(rest, FD_Q_FP32))
        return rest + strlen(FD_Q_FP32);
    return rest;
}

const char *dcpk_fsdp_skip_optimizer(const char *key, int64_t *optimizer)
{
    const char *rest;

    *optimizer = 0;
    if (!dcpk_starts_with(key, "optimizer."))
        return NULL;
    rest = key + strlen("optimizer.");
    if (!isdigit((unsigned char)*rest))
        return rest;
    *optimizer = dcpk_take_number(&rest);
    return *optimizer >= 0 && *rest == '.' ? rest + 1 : NULL;
}

bool dcpk_fsdp_split_listed(const char *key, struct dcpk_fsdp_listed *listed)
{
    static const char list[] = "param_groups.";
    const char *rest = dcpk_fsdp_skip_optimizer(key, &listed->optimizer);

    if (rest != NULL && dcpk_starts_with(rest, "optimizer."))
        rest += strlen("optimizer.");
    if (rest == NULL || !dcpk_starts_with(rest, list))
        return false;
    rest += strlen(list);
    listed->group = dcpk_take_number(&rest);
    listed->field = rest + 1;
    return listed->group >= 0 && *rest == '.';
}

bool dcpk_fsdp_is_listed_group(const char *key)
{
    struct dcpk_fsdp_listed listed;

    return dcpk_fsdp_split_listed(key, &listed);
}

bool dcpk_fsdp_is_left_over(const char *key)
{
    int64_t optimizer;
    const char *rest = dcpk_fsdp_skip_optimizer(key, &optimizer);

    return dcpk_starts_with(key, "content_metadata.") ||
           dcpk_starts_with(key, "rerun_state_machine.") ||
           (rest != NULL && strcmp(rest, "param_state_sharding_type") == 0);
}

bool dcpk_fsdp_is_converted(const struct dcpk_checkpoint *ckpt)
{
    for (size_t i = 0; i < ckpt->n_objects; i++)
        if (dcpk_fsdp_is_left_over(ckpt->objects[i].key) ||
            dcpk_fsdp_is_listed_group(ckpt->objects[i].key))
            return true;
    return false;
}

bool dcpk_fsdp_is_misplaced(const char *name)
{
    static const char experts[] = "mlp.experts.";
    const char *single = strstr(name, experts);

    return dcpk_starts_with(name, "optimizer.") ||
           (dcpk_starts_with(name, "chained_") && strstr(name, ".optimizer.") != NULL) ||
           (single != NULL && isdigit((unsigned char)single[strlen(experts)]));
}

/* ---- prefixes ---- */

/* The first components of parameters' names (MC/models/gpt/gpt_model.py, mamba, multimodal, T5,
 * BERT
 * @0.15 to main). */
static const char *const modules[] = {
    "embedding.", "decoder.",        "encoder.",        "output_layer.",
    "mtp.",       "language_model.", "vision_model.",   "vision_projection.",
    "lm_head.",   "pooler.",         "rotary_pos_emb.", "position_embeddings."};

/* Ends of keys of optimizer state: Adam's, and what Megatron's converter leaves. */
static const char *const states[] = {".exp_avg",    ".exp_avg_sq",      ".master_param", ".param",
                                     ".fp32_param", ".momentum_buffer", ".step"};

size_t dcpk_fsdp_prefix_bytes(const char *key)
{
    for (const char *p = key; p != NULL; p = strchr(p, '.'), p += p != NULL)
        for (size_t i = 0; i < DCPK_COUNT(modules); i++)
            if (dcpk_starts_with(p, modules[i]))
                return (size_t)(p - key);
    return SIZE_MAX;
}

static bool fsdp_is_state(const char *key)
{
    for (size_t i = 0; i < DCPK_COUNT(states); i++)
        if (dcpk_ends_with(key, states[i]))
            return true;
    return false;
}

/* The prefix of one of the two kinds of keys, as far as it has been looked for. */
struct search {
    bool wants_states;
    const char *own; /* the format's prefix */
    bool has_own;    /* some key begins with it */
    const char *key; /* the first with another one: its first n_bytes */
    size_t n_bytes;
    bool is_unique;
};

static void fsdp_look_at(struct search *s, const char *key)
{
    size_t n_bytes;

    if (dcpk_starts_with(key, FD_RNG) || fsdp_is_state(key) != s->wants_states)
        return;
    s->has_own |= dcpk_starts_with(key, s->own);
    n_bytes = dcpk_fsdp_prefix_bytes(key);
    if (n_bytes == SIZE_MAX || n_bytes == 0)
        return;
    if (s->key == NULL) {
        s->key = key;
        s->n_bytes = n_bytes;
        s->is_unique = true;
    } else if (s->n_bytes != n_bytes || strncmp(s->key, key, n_bytes) != 0) {
        s->is_unique = false;
    }
}

/* *prefix: given, found, or the format's own. */
static dcpk_status find(struct dcpk_model *model, struct search *s, const char *given,
                        const char *what, const char **prefix, struct dcpk_error *err)
{
    *prefix = s->own;
    if (given != NULL) {
        *prefix = dcpk_arena_printf(model->arena, err, "%s.", given);
        model->needs_rewrite = true;
        return dcpk_made(*prefix, err);
    }
    for (size_t t = 0; t < model->ckpt->n_tensors; t++)
        if (dcpk_checkpoint_tensor_left_out(model->ckpt, t) == NULL)
            fsdp_look_at(s, model->ckpt->tensors[t].key);
    if (s->has_own || !s->is_unique)
        return DCPK_OK;
    *prefix = dcpk_arena_strndup(model->arena, s->key, s->n_bytes, err);
    if (*prefix == NULL)
        return err->status;
    model->needs_rewrite = true;
    if (!dcpk_fsdp_is_v2(model->ckpt) && !dcpk_fsdp_is_torch_dcp(model->ckpt))
        dcpk_checkpoint_note_once(model->ckpt, "the keys of %s begin with '%.*s' and not '%.*s'",
                                  what, (int)s->n_bytes - 1, s->key, (int)strlen(s->own) - 1,
                                  s->own);
    return DCPK_OK;
}

dcpk_status dcpk_fsdp_find_prefixes(struct dcpk_model *model, struct dcpk_fsdp_prefixes *prefixes,
                                    struct dcpk_error *err)
{
    const struct dcpk_checkpoint *ckpt = model->ckpt;
    struct search weights = {.own = FD_MODEL}, moments = {.own = FD_STATE, .wants_states = true};

    if (find(model, &weights, ckpt->given.model_prefix, "weights", &prefixes->weight, err) ||
        find(model, &moments, ckpt->given.state_prefix, "optimizer state", &prefixes->state, err))
        return err->status;
    prefixes->has_q = strcmp(prefixes->state, FD_STATE) == 0;
    return DCPK_OK;
}

const char *dcpk_fsdp_optimizer_layout(const struct dcpk_checkpoint *ckpt,
                                       const struct dcpk_value *common)
{
    (void)common;
    for (size_t t = 0; t < ckpt->n_tensors; t++) {
        const char *key = ckpt->tensors[t].key, *state = strrchr(key, '.');

        if (dcpk_checkpoint_tensor_left_out(ckpt, t) == NULL && state != NULL &&
            (dcpk_starts_with(key, FD_STATE) || fsdp_is_state(key)) &&
            dcpk_fsdp_role(state + 1) != DCPK_MASTER)
            return dcpk_fsdp_is_torch_dcp(ckpt) ? "model-shaped" : "fsdp_dtensor";
    }
    return "none";
}

/* A key of torch_dist that has lost its metadata.json has a state's name before the parameter's. */
static bool is_stacked_state(const char *text, const char *name)
{
    const char *start = name;

    while (start > text && isprint((unsigned char)start[-1]))
        start--;
    return memmem(start, (size_t)(name - start), "optimizer.state.", 16) != NULL ||
           memmem(start, (size_t)(name - start), "chained_", 8) != NULL;
}

bool dcpk_fsdp_has_prefixed_key(const char *text, size_t n_bytes)
{
    /* Hugging Face's OPT and BART have decoder.layers.0, too, with self_attn and fc1. */
    static const char *const names[] = {
        ".embedding.word_embeddings.weight", ".decoder.layers.0.self_attention.",
        ".decoder.layers.0.mlp.linear_fc", ".decoder.layers.0.mixer."};
    static const char tensor[] = "TensorStorageMetadata"; /* a dumped map of groups has none */

    if (memmem(text, n_bytes, tensor, strlen(tensor)) == NULL)
        return false;
    for (size_t i = 0; i < DCPK_COUNT(names); i++) {
        const char *p = text;

        while ((p = memmem(p, n_bytes - (size_t)(p - text), names[i], strlen(names[i]))) != NULL) {
            if (!is_stacked_state(text, p))
                return true;
            p++;
        }
    }
    return false;
}
