/* SPDX-License-Identifier: Apache-2.0 */
/* knobs_take.c - knobs from the arguments of a program, and from a configuration. */
#include <inttypes.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/base/json.h"
#include "lib/base/text.h"
#include "lib/knobs/knobs_priv.h"

/* A name of Megatron's that no row has. */
static dcpk_status knob_refuse_absent(const char *name, struct dcpk_error *err)
{
    const char *reason = dcpk_knob_absence(name);

    if (reason == NULL)
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EUSAGE, "%s is not in this loop: %s", name, reason);
}

/* ---- arguments ---- */

struct arguments {
    struct dcpk_train_knobs *knobs;
    char **argv;
    int argc, at; /* at: the next one to look at */
};

static bool argument_is_truth(const char *text)
{
    return dcpk_option_has_word("true false True False", text, strlen(text));
}

/* The value of the flag in argv[at], which is past it then. NULL and err: it has none. */
static const char *argument_value(struct arguments *a, const struct dcpk_option *knob,
                                  const char *equals, struct dcpk_error *err)
{
    const char *next = NULL;

    if (++a->at < a->argc)
        next = a->argv[a->at];
    if (equals != NULL)
        return equals + 1;
    if (knob->kind == DCPK_OPTION_FLAG && (next == NULL || !argument_is_truth(next)))
        return "true";
    if (next == NULL || dcpk_starts_with(next, "--")) {
        dcpk_fail(err, DCPK_EUSAGE, "%s has no value", a->argv[a->at - 1]);
        return NULL;
    }
    a->at++;
    return next;
}

/* Takes argv[at] and its value where a row has its name; else leaves both. */
static dcpk_status argument_take(struct arguments *a, bool *is_taken, struct dcpk_error *err)
{
    const char *text = a->argv[a->at], *equals = strchr(text, '='), *value, *name = text;
    const bool is_flag = dcpk_starts_with(text, "--");
    struct dcpk_knob_walk walk;
    const struct dcpk_option *knob;

    *is_taken = false;
    if (!is_flag && (equals == NULL || memchr(text, '.', (size_t)(equals - text)) == NULL))
        return DCPK_OK;
    if (equals != NULL)
        name = dcpk_arena_strndup(a->knobs->arena, text, (size_t)(equals - text), err);
    if (name == NULL)
        return err->status;
    knob = dcpk_knob_find(name, &walk);
    if (knob == NULL)
        return knob_refuse_absent(name, err);
    *is_taken = true;
    value = argument_value(a, knob, equals, err);
    if (value == NULL)
        return err->status;
    return dcpk_train_knobs_set(a->knobs, name, value, err);
}

dcpk_status dcpk_train_knobs_take_args(struct dcpk_train_knobs *knobs, int *argc, char **argv,
                                       struct dcpk_error *err)
{
    struct arguments a = {.knobs = knobs, .argv = argv, .argc = *argc, .at = 1};
    bool is_over = false, is_taken = false;
    int n = 1;

    while (a.at < a.argc) {
        is_over = is_over || strcmp(argv[a.at], "--") == 0;
        if (!is_over && argument_take(&a, &is_taken, err) != DCPK_OK)
            return err->status;
        if (is_over || !is_taken)
            argv[n++] = argv[a.at++];
    }
    *argc = n;
    argv[n] = NULL;
    return DCPK_OK;
}

/* ---- a configuration ---- */

/* "bf16" for bfloat16; NULL: no knob takes it. */
static const char *config_dtype(const char *name)
{
    const enum dcpk_dtype dtype = dcpk_dtype_from_name(name);

    if (dtype == DCPK_F32)
        return "fp32";
    if (dtype == DCPK_BF16)
        return "bf16";
    if (dtype == DCPK_F16)
        return "fp16";
    return NULL;
}

/* A list of whole numbers or booleans, as Python writes it. NULL: of something else, or err. */
static const char *config_list(struct dcpk_arena *arena, const struct dcpk_value *list,
                               struct dcpk_error *err)
{
    struct dcpk_bytes text = {0};
    const char *comma = "";
    bool is_list = true;

    dcpk_bytes_text(&text, "[");
    for (size_t i = 0; is_list && i < list->n; i++, comma = ",") {
        int64_t number = 0;

        is_list = dcpk_value_as_int(list->as.items[i], &number);
        dcpk_bytes_printf(&text, "%s%" PRId64, comma, number);
    }
    dcpk_bytes_text(&text, "]");
    if (is_list)
        return dcpk_bytes_to_arena(&text, arena, err);
    dcpk_bytes_release(&text);
    return NULL;
}

const char *dcpk_knob_text(struct dcpk_arena *arena, const struct dcpk_value *v,
                           struct dcpk_error *err)
{
    const struct dcpk_value *target;
    const char *name;
    char digits[32];

    switch (v->kind) {
    case DCPK_V_BOOL:
        if (v->as.b)
            return "true";
        return "false";
    case DCPK_V_INT:
        return dcpk_arena_printf(arena, err, "%" PRId64, v->as.i);
    case DCPK_V_FLOAT:
        dcpk_format_double(v->as.f, digits);
        return dcpk_arena_strdup(arena, digits, err);
    case DCPK_V_STR:
        return v->as.str;
    case DCPK_V_LIST:
        return config_list(arena, v, err);
    case DCPK_V_GLOBAL:
        return config_dtype(v->as.global.name);
    case DCPK_V_DICT:
        target = dcpk_value_get(v, "_target_");
        name = dcpk_value_as_str(target);
        if (name != NULL && dcpk_starts_with(name, "torch."))
            return config_dtype(name + strlen("torch."));
        if (target != NULL && target->kind == DCPK_V_GLOBAL) /* in JSON */
            return config_dtype(target->as.global.name);
        break;
    case DCPK_V_NONE:
    case DCPK_V_BIGINT:
    case DCPK_V_BYTES:
    case DCPK_V_TUPLE:
    case DCPK_V_SET:
    case DCPK_V_TENSOR:
    case DCPK_V_OBJECT:
        break;
    }
    return NULL;
}

/* Adds the name to those that no row has. Their room doubles: there may be very many. */
static dcpk_status config_leave(struct dcpk_train_knobs *knobs, const char *name,
                                struct dcpk_error *err)
{
    const char *comma = dcpk_joint(knobs->unread_bytes > 0, ", ");
    const size_t n_comma = strlen(comma), n_name = strlen(name);
    const size_t n_bytes = knobs->unread_bytes + n_comma + n_name;

    if (n_bytes >= knobs->unread_capacity) {
        knobs->unread = dcpk_arena_extend(knobs->arena, knobs->unread, knobs->unread_bytes,
                                          2 * (n_bytes + 1), 1, err);
        if (knobs->unread == NULL)
            return err->status;
        knobs->unread_capacity = 2 * (n_bytes + 1);
    }
    memcpy(knobs->unread + knobs->unread_bytes, comma, n_comma);
    memcpy(knobs->unread + knobs->unread_bytes + n_comma, name, n_name + 1);
    knobs->unread_bytes = n_bytes;
    return DCPK_OK;
}

static bool config_has_section(const char *section)
{
    struct dcpk_knob_walk walk = {0};
    const struct dcpk_option *knob;

    while ((knob = dcpk_knob_next(&walk)) != NULL)
        if (dcpk_option_has_word(knob->sections, section, strlen(section)))
            return true;
    return false;
}

/* Takes a name that no row knows: an object, or something that is off, is ignored; others may be
 * misspelt. */
static dcpk_status config_unknown(struct dcpk_train_knobs *knobs, const char *name,
                                  const struct dcpk_value *v, struct dcpk_error *err)
{
    const char *dot = strchr(name, '.');
    const struct dcpk_option *elsewhere = NULL, *near = NULL;
    struct dcpk_knob_walk walk;

    if (v->kind == DCPK_V_NONE || v->kind == DCPK_V_DICT || (v->kind == DCPK_V_BOOL && !v->as.b))
        return config_leave(knobs, name, err);
    if (knob_refuse_absent(name, err) != DCPK_OK)
        return err->status;
    if (dot != NULL)
        elsewhere = dcpk_knob_find(dot + 1, &walk);
    if (dot == NULL && config_has_section(name))
        return dcpk_fail(err, DCPK_EUSAGE, "%s is a section: a mapping of names to values", name);
    if (elsewhere != NULL)
        return dcpk_fail(err, DCPK_EUSAGE, "unknown key %s; %s belongs to the section %s", name,
                         dot + 1, elsewhere->sections);
    if (dot != NULL)
        near = dcpk_knob_find_near(dot + 1, name, (size_t)(dot - name), &walk);
    if (near != NULL)
        return dcpk_fail(err, DCPK_EUSAGE, "unknown key %s; did you mean %.*s%s?", name,
                         (int)(dot + 1 - name), name, near->name);
    return dcpk_fail(err, DCPK_EUSAGE, "unknown key %s; leave it out, or correct its name", name);
}

static dcpk_status config_take(struct dcpk_train_knobs *knobs, const char *name,
                               const struct dcpk_value *v, struct dcpk_error *err)
{
    struct dcpk_knob_walk walk;
    const char *text;

    if (dcpk_knob_find(name, &walk) == NULL)
        return config_unknown(knobs, name, v, err);
    if (v->kind == DCPK_V_NONE)
        return dcpk_train_knobs_set(knobs, name, NULL, err);
    text = dcpk_knob_text(knobs->arena, v, err);
    if (text == NULL && err->status != DCPK_OK)
        return err->status;
    if (text == NULL)
        return dcpk_fail(err, DCPK_EUSAGE, "%s is neither a number, a text nor a list", name);
    return dcpk_train_knobs_set(knobs, name, text, err);
}

static dcpk_status config_take_section(struct dcpk_train_knobs *knobs, const char *section,
                                       const struct dcpk_value *members, struct dcpk_error *err)
{
    if (!config_has_section(section))
        return config_leave(knobs, section, err);
    for (size_t i = 0; i < members->n; i++) {
        const char *key = dcpk_value_as_str(members->as.pairs[i].key), *name;

        if (key == NULL || key[0] == '_')
            continue;
        name = dcpk_arena_printf(knobs->arena, err, "%s.%s", section, key);
        if (name == NULL || config_take(knobs, name, members->as.pairs[i].value, err) != DCPK_OK)
            return err->status;
    }
    return DCPK_OK;
}

dcpk_status dcpk_train_knobs_take_config(struct dcpk_train_knobs *knobs,
                                         const struct dcpk_value *config, struct dcpk_error *err)
{
    if (config->kind != DCPK_V_DICT)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "it is not a mapping of names to values");
    for (size_t i = 0; i < config->n; i++) {
        const char *key = dcpk_value_as_str(config->as.pairs[i].key);
        const struct dcpk_value *v = config->as.pairs[i].value;

        if (key == NULL || key[0] == '_')
            continue;
        if (v->kind == DCPK_V_DICT && config_take_section(knobs, key, v, err) != DCPK_OK)
            return err->status;
        if (v->kind != DCPK_V_DICT && config_take(knobs, key, v, err) != DCPK_OK)
            return err->status;
    }
    return DCPK_OK;
}

/* ---- args of a checkpoint ---- */

/* Args that load_args_from_checkpoint sets in any case, and others that make another model of the
 * same sizes. */
static const char saved_forced[] =
    "num_query_groups group_query_attention position_embedding_type rotary_base rotary_interleaved "
    "add_bias_linear add_qkv_bias squared_relu swiglu untie_embeddings_and_output_weights "
    "apply_layernorm_1p normalization apply_query_key_layer_scaling mtp_num_layers num_experts "
    "moe_layer_freq moe_ffn_hidden_size moe_router_topk moe_router_pre_softmax moe_grouped_gemm "
    "moe_shared_expert_intermediate_size moe_router_score_function moe_router_enable_expert_bias "
    "moe_router_topk_scaling_factor multi_latent_attention";
/* Values of args that were not given. Megatron forces dropout; weights do not depend on it. */
static const char saved_kept[] =
    "num_layers hidden_size ffn_hidden_size seq_length num_attention_heads kv_channels "
    "max_position_embeddings attention_dropout hidden_dropout norm_epsilon qk_layernorm "
    "make_vocab_size_divisible_by vocab_size";

static const struct dcpk_value *saved_arg(const struct dcpk_value *attrs, const char *name)
{
    const struct dcpk_value *v = dcpk_value_get(attrs, name);

    if (dcpk_value_is_none(v) && strcmp(name, "norm_epsilon") == 0)
        v = dcpk_value_get(attrs, "layernorm_epsilon");
    if (dcpk_value_is_none(v) && strcmp(name, "vocab_size") == 0)
        v = dcpk_value_get(attrs, "padded_vocab_size"); /* rows of padding are rows, too */
    return v;
}

/* names: separated by blanks. */
static dcpk_status saved_take(struct dcpk_train_knobs *knobs, const struct dcpk_value *attrs,
                              const char *names, bool is_forced, struct dcpk_error *err)
{
    struct dcpk_knob_walk walk;
    const char *word;
    size_t n;

    while ((word = dcpk_take_word(&names, &n)) != NULL) {
        const char *name = dcpk_arena_strndup(knobs->arena, word, n, err);
        const struct dcpk_value *v;

        if (name == NULL)
            return err->status;
        v = saved_arg(attrs, name);
        if (dcpk_value_is_none(v) || (!is_forced && dcpk_knobs_was_given(knobs, name)) ||
            (v->kind == DCPK_V_BOOL && !v->as.b && dcpk_knob_find(name, &walk) == NULL))
            continue;
        if (config_take(knobs, name, v, err) != DCPK_OK)
            return err->status;
    }
    return DCPK_OK;
}

dcpk_status dcpk_train_knobs_take_saved(struct dcpk_train_knobs *knobs,
                                        const struct dcpk_value *args, struct dcpk_error *err)
{
    const struct dcpk_value *attrs = dcpk_value_attrs(args);

    if (saved_take(knobs, attrs, saved_forced, true, err))
        return err->status;
    return saved_take(knobs, attrs, saved_kept, false, err);
}
