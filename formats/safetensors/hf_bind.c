/* SPDX-License-Identifier: Apache-2.0 */
/* hf_bind.c - fills the captures of a map's rules in, for each layer and expert that args have. */
#include "formats/safetensors/hf_ops.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/safetensors/hf_config_priv.h"
#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/model/sizes.h"

#define MAX_LAYERS   (INT64_C(1) << 16)
#define MAX_EXPERTS  (INT64_C(1) << 16)
#define MAX_HEADS    (INT64_C(1) << 16)
#define MAX_BINDINGS ((size_t)1 << 20) /* ten times those of the largest models */
#define MAX_NAME     400

/* --- sizes --- */

/* The value of an arg as a number >= 0; absent or None: `by_default`. */
static dcpk_status value_read(const struct dcpk_value *value, const char *name, int64_t by_default,
                              int64_t *size, struct dcpk_error *err)
{
    *size = by_default;
    if (dcpk_value_is_none(value))
        return DCPK_OK;
    if (!dcpk_value_as_int(value, size) || *size < 0 || *size > INT32_MAX)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "args.%s is not a number from 0 to %d", name,
                         INT32_MAX);
    return DCPK_OK;
}

static dcpk_status size_read(const struct dcpk_value *attrs, const char *name, int64_t by_default,
                             int64_t *size, struct dcpk_error *err)
{
    return value_read(dcpk_value_get(attrs, name), name, by_default, size, err);
}

/* The same with the default of the table. */
static dcpk_status usual_read(const struct dcpk_value *attrs, const char *name, int64_t *size,
                              struct dcpk_error *err)
{
    return value_read(dcpk_arg_value(attrs, name), name, 0, size, err);
}

dcpk_status dcpk_hf_sizes_read(const struct dcpk_value *attrs, struct dcpk_arena *arena,
                               struct dcpk_hf_sizes *sizes, struct dcpk_error *err)
{
    struct dcpk_hf_sizes s = {.attrs = attrs};
    int64_t hidden;

    if (size_read(attrs, "num_layers", 0, &s.n_layers, err) ||
        size_read(attrs, "mtp_num_layers", 0, &s.n_mtp, err) ||
        size_read(attrs, "num_experts", 0, &s.n_experts, err) ||
        size_read(attrs, "hidden_size", 0, &hidden, err) ||
        size_read(attrs, "num_attention_heads", 0, &s.n_heads, err) ||
        value_read(dcpk_query_groups(attrs), "num_query_groups", s.n_heads, &s.n_groups, err))
        return err->status;
    if (s.n_layers < 1 || s.n_layers > MAX_LAYERS || s.n_mtp > MAX_LAYERS ||
        s.n_experts > MAX_EXPERTS || s.n_heads > MAX_HEADS || s.n_groups > MAX_HEADS)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "args have %" PRId64 " layers, %" PRId64 " MTP layers, %" PRId64
                         " experts and %" PRId64 " heads",
                         s.n_layers, s.n_mtp, s.n_experts, s.n_heads);
    s.has_gate = dcpk_value_is_true(attrs, "attention_output_gate");
    if (size_read(attrs, "kv_channels", hidden / dcpk_max_i64(s.n_heads, 1), &s.head_size, err) ||
        usual_read(attrs, "linear_num_key_heads", &s.n_key_heads, err) ||
        usual_read(attrs, "linear_num_value_heads", &s.n_value_heads, err) ||
        usual_read(attrs, "linear_key_head_dim", &s.key_size, err) ||
        usual_read(attrs, "linear_value_head_dim", &s.value_size, err) ||
        dcpk_hf_moe_layers(attrs, s.n_layers, arena, &s.is_moe, err) ||
        dcpk_hf_linear_layers(attrs, s.n_layers, arena, &s.is_linear, err) ||
        dcpk_hf_layer_symbols(attrs, s.n_layers, arena, &s.symbols, err))
        return err->status;
    if (s.n_key_heads > MAX_HEADS || s.n_value_heads > MAX_HEADS)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "args have %" PRId64 " key heads and %" PRId64
                         " value heads of linear attention",
                         s.n_key_heads, s.n_value_heads);
    *sizes = s;
    return DCPK_OK;
}

/* --- names --- */

/* The captures of one binding. */
struct captures {
    int64_t l, m, e, m_last; /* m_last: m + num_layers */
};

/* Append `pattern` to text[0 .. *n) with its captures filled in. Returns false when it is too
 * long. */
static bool name_fill(const char *pattern, const struct captures *c, char *text, size_t *n)
{
    while (*pattern != '\0') {
        const char *end = strchr(pattern, '}');
        int64_t number = -1;
        int put;

        if (*pattern == '{' && pattern[1] == 'l')
            number = c->l;
        else if (*pattern == '{' && pattern[1] == 'e')
            number = c->e;
        else if (*pattern == '{' && pattern[1] == 'm')
            number = pattern[2] == '+' ? c->m_last : c->m;
        if (number >= 0 && end != NULL) {
            put = snprintf(text + *n, MAX_NAME - *n, "%" PRId64, number);
            pattern = end + 1;
        } else {
            put = snprintf(text + *n, MAX_NAME - *n, "%c", *pattern);
            pattern++;
        }
        *n += (size_t)put;
        if (*n >= MAX_NAME - 1)
            return false;
    }
    return true;
}

bool dcpk_hf_name_fits(const char *pattern, const char *name)
{
    const char *star = NULL, *star_name = NULL; /* after the last {*}, and where it ends so far */

    while (*name != '\0' || *pattern != '\0') {
        const char *number = name;

        if (dcpk_starts_with(pattern, "{*}")) {
            pattern += strlen("{*}");
            star = pattern;
            star_name = name;
        } else if (*pattern == '{' && dcpk_take_number(&number) >= 0) {
            pattern = strchr(pattern, '}') + 1;
            name = number;
        } else if (*pattern != '\0' && *pattern == *name) {
            pattern++;
            name++;
        } else if (star != NULL && *star_name != '\0') {
            pattern = star;
            name = ++star_name;
        } else {
            return false;
        }
    }
    return true;
}

static bool any_pattern_fits(const char *const *patterns, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (dcpk_hf_name_fits(patterns[i], name))
            return true;
    return false;
}

bool dcpk_hf_map_drops(const struct dcpk_hf_map *map, const char *name)
{
    return any_pattern_fits(map->drop, map->n_drop, name);
}

bool dcpk_hf_map_has_zero(const struct dcpk_hf_map *map, const char *name)
{
    return any_pattern_fits(map->zero, map->n_zero, name);
}

/* --- bindings --- */

/* Bindings under construction. */
struct binding_list {
    const struct dcpk_hf_sizes *sizes;
    const char *without;
    struct dcpk_arena *arena;
    struct dcpk_hf_binding *list; /* NULL: they are counted */
    size_t n;
};

/* The place of a rule: the names before its own, and the layer. */
struct standing {
    const char *mg, *hf; /* "" at the top */
    struct captures captures;
    bool is_moe, is_linear, has_indexer;
    char symbol; /* of the kind of a hybrid model's layer, which is one of them; 0: it has all */
};

static bool arg_is_true(const struct dcpk_value *attrs, const char *name)
{
    const struct dcpk_value *value = dcpk_value_get(attrs, name);

    if (dcpk_value_is_none(value))
        return false;
    if (value->kind == DCPK_V_BOOL)
        return value->as.b;
    if (value->kind == DCPK_V_FLOAT)
        return value->as.f != 0;
    return value->kind != DCPK_V_INT || value->as.i != 0;
}

/* Requirements of a canonical name on args, so that maps need no condition for it. */
static const struct {
    const char *part;
    bool is_moe; /* of a layer with experts */
    const char *arg;
    char symbol; /* of the kind of layers in a hybrid model; 0: any */
} implied[] = {
    {".mlp.experts.", true, NULL, 0},
    {".mlp.router.", true, NULL, 0},
    {".mlp.shared_experts.", true, "moe_shared_expert_intermediate_size", 0},
    {".mlp.fc1_latent_proj.", true, "moe_latent_size", 0},
    {".mlp.fc2_latent_proj.", true, "moe_latent_size", 0},
    {".self_attention.linear_q_down_proj.", false, "q_lora_rank", 0},
    {".self_attention.linear_q_up_proj.", false, "q_lora_rank", 0},
    {".mixer.", false, NULL, DCPK_HF_MAMBA},
    {".self_attention.", false, NULL, DCPK_HF_ATTENTION},
    {".mlp.linear_fc", false, NULL, DCPK_HF_MLP},
};

static bool binding_applies(const struct binding_list *l, const struct dcpk_hf_rule *rule,
                            const struct standing *at, const char *mg)
{
    const struct dcpk_value *attrs = l->sizes->attrs;

    for (size_t i = 0; i < rule->n_conditions; i++) {
        const struct dcpk_hf_condition *c = &rule->conditions[i];

        if ((c->kind == DCPK_HF_IF_MOE && !at->is_moe) ||
            (c->kind == DCPK_HF_IF_DENSE && at->is_moe) ||
            (c->kind == DCPK_HF_IF_LINEAR && !at->is_linear) ||
            (c->kind == DCPK_HF_IF_FULL && at->is_linear) ||
            (c->kind == DCPK_HF_IF_ARG && !arg_is_true(attrs, c->arg)) ||
            (c->kind == DCPK_HF_IF_NO_ARG && arg_is_true(attrs, c->arg)))
            return false;
    }
    for (size_t i = 0; i < DCPK_COUNT(implied); i++)
        if (strstr(mg, implied[i].part) != NULL &&
            ((implied[i].is_moe && !at->is_moe) ||
             (implied[i].symbol != 0 && at->symbol != 0 && implied[i].symbol != at->symbol) ||
             (implied[i].arg != NULL && !arg_is_true(attrs, implied[i].arg))))
            return false;
    return at->has_indexer || strstr(mg, ".core_attention.indexer.") == NULL;
}

static dcpk_status fill_name(const struct binding_list *l, const char *before, const char *pattern,
                             const struct captures *c, const char **name, struct dcpk_error *err)
{
    char text[MAX_NAME];
    const char *from = text;
    size_t n = 0;

    if (!name_fill(before, c, text, &n) || !name_fill(pattern, c, text, &n))
        return dcpk_fail(err, DCPK_EFORMAT, "the name '%.80s' is too long", pattern);
    if (l->without != NULL && dcpk_starts_with(text, l->without))
        from = text + strlen(l->without);
    *name = dcpk_arena_strndup(l->arena, from, n - (size_t)(from - text), err);
    return dcpk_made(*name, err);
}

static dcpk_status binding_fill(const struct binding_list *l, const struct dcpk_hf_rule *rule,
                                const struct standing *at, struct dcpk_hf_binding *b,
                                struct dcpk_error *err)
{
    b->rule = rule;
    if (fill_name(l, at->mg, rule->mg, &at->captures, &b->mg, err))
        return err->status;
    for (size_t i = 0; i < rule->n_hf; i++)
        if (fill_name(l, at->hf, rule->hf[i], &at->captures, &b->hf[i], err))
            return err->status;
    b->expert = strstr(rule->hf[0], "{e}") == NULL ? at->captures.e : -1;
    b->is_mtp = at->captures.m >= 0;
    b->place = dcpk_starts_with(b->mg, "embedding.") ? DCPK_HF_FIRST : DCPK_HF_LAST;
    if (at->captures.l >= 0)
        b->place = at->captures.l;
    if (at->captures.m >= 0)
        b->place = at->captures.m_last;
    b->applies = binding_applies(l, rule, at, b->mg);
    return DCPK_OK;
}

/* The rule where it stands, for each expert where it has {e}. */
static dcpk_status bind_rule(struct binding_list *l, const struct dcpk_hf_rule *rule,
                             struct standing at, struct dcpk_error *err)
{
    const bool is_expert = strstr(rule->mg, "{e}") != NULL;
    const int64_t n = is_expert ? l->sizes->n_experts : 1;

    for (int64_t e = 0; e < n; e++, l->n++) {
        if (l->n == MAX_BINDINGS)
            return dcpk_fail(err, DCPK_ERANGE, "args have too many layers and experts");
        at.captures.e = is_expert ? e : -1;
        if (l->list != NULL && binding_fill(l, rule, &at, &l->list[l->n], err))
            return err->status;
    }
    return DCPK_OK;
}

/* A rule or a prefix pair stands once, or for each {l} or {m} of its names. */
static dcpk_status bind_rules(struct binding_list *l, const struct dcpk_hf_rules *rules,
                              const struct dcpk_hf_at *pair, size_t r, struct dcpk_error *err)
{
    const struct dcpk_hf_sizes *s = l->sizes;
    const char *names[] = {pair->hf, rules->list[r].hf[0]};
    struct standing at = {pair->mg, pair->hf, {-1, -1, -1, -1}, false, false, false, 0};
    bool by_layer = false, by_mtp = false;
    int64_t n = 1;

    for (size_t i = 0; i < DCPK_COUNT(names); i++) {
        by_layer = by_layer || strstr(names[i], "{l}") != NULL;
        by_mtp = by_mtp || strstr(names[i], "{m") != NULL;
    }
    if (!by_mtp && strstr(rules->list[r].mg, "{m") != NULL) {
        by_mtp = true;
        if (s->n_mtp > 1)
            return dcpk_fail(err, DCPK_EUNSUPPORTED,
                             "args have %" PRId64 " MTP layers, and '%s' is of one", s->n_mtp,
                             rules->list[r].hf[0]);
    }
    if (by_layer || by_mtp)
        n = by_layer ? s->n_layers : s->n_mtp;
    for (int64_t i = 0; i < n; i++) {
        const int64_t like = by_mtp && !by_layer ? s->n_layers - 1 : i;

        if (by_layer) {
            at.captures.l = i;
            if (s->symbols != NULL)
                at.symbol = s->symbols[i];
        } else if (by_mtp) {
            at.captures.m = i;
            at.captures.m_last = i + s->n_layers;
        }
        at.is_moe = (by_layer || by_mtp) && s->is_moe[like];
        at.is_linear = (by_layer || by_mtp) && s->is_linear[like];
        at.has_indexer = dcpk_layer_has_indexer(s->attrs, i); /* MTP counts its own layers */
        if (bind_rule(l, &rules->list[r], at, err))
            return err->status;
    }
    return DCPK_OK;
}

static dcpk_status bind_all(struct binding_list *l, const struct dcpk_hf_map *map,
                            struct dcpk_error *err)
{
    static const struct dcpk_hf_at top = {"", ""};

    l->n = 0;
    for (size_t r = 0; r < map->top.n; r++)
        if (bind_rules(l, &map->top, &top, r, err))
            return err->status;
    for (size_t a = 0; a < map->n_at; a++)
        for (size_t r = 0; r < map->layer.n; r++)
            if (bind_rules(l, &map->layer, &map->at[a], r, err))
                return err->status;
    return DCPK_OK;
}

dcpk_status dcpk_hf_bind(const struct dcpk_hf_map *map, const struct dcpk_hf_sizes *sizes,
                         const char *without, struct dcpk_arena *arena,
                         struct dcpk_hf_bindings *bindings, struct dcpk_error *err)
{
    struct binding_list l = {.sizes = sizes, .without = without, .arena = arena};

    if (bind_all(&l, map, err))
        return err->status;
    l.list = dcpk_arena_array(arena, l.n, sizeof *l.list, err);
    if (l.list == NULL || bind_all(&l, map, err))
        return err->status;
    *bindings = (struct dcpk_hf_bindings){l.list, l.n};
    return DCPK_OK;
}
