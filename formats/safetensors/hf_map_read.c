/* SPDX-License-Identifier: Apache-2.0 */
/* hf_map_read.c - the file of a map -> its rules; every key and word must be known. */
#include <string.h>

#include "formats/safetensors/hf_map.h"
#include "lib/base/order.h"
#include "lib/base/text.h"

size_t dcpk_hf_count(const struct dcpk_json *node)
{
    size_t n = 0;

    for (node = dcpk_json_first(node); node != NULL; node = dcpk_json_next(node))
        n++;
    return n;
}

dcpk_status dcpk_hf_read_text(struct dcpk_arena *arena, const struct dcpk_json *node,
                              const char *what, const char **text, struct dcpk_error *err)
{
    const char *found = dcpk_json_string(node);

    if (found == NULL || *found == '\0')
        return dcpk_fail(err, DCPK_EFORMAT, "%s is not a text", what);
    *text = dcpk_arena_strdup(arena, found, err);
    return dcpk_made(*text, err);
}

dcpk_status dcpk_hf_check_keys(const struct dcpk_json *object, const char *const *known,
                               struct dcpk_error *err)
{
    if (object == NULL || dcpk_json_kind(object) != DCPK_JSON_OBJECT)
        return dcpk_fail(err, DCPK_EFORMAT, "not an object");
    for (object = dcpk_json_first(object); object != NULL; object = dcpk_json_next(object)) {
        size_t i = 0;

        while (known[i] != NULL && strcmp(known[i], dcpk_json_key(object)) != 0)
            i++;
        if (known[i] == NULL)
            return dcpk_fail(err, DCPK_EFORMAT, "the key \"%.40s\" is not known",
                             dcpk_json_key(object));
    }
    return DCPK_OK;
}

static const char *const ops[] = {
    [DCPK_HF_TRANSPOSE] = "transpose",     [DCPK_HF_DEINTERLEAVE] = "deinterleave",
    [DCPK_HF_ROPE_HALVES] = "rope_halves", [DCPK_HF_QKV] = "qkv",
    [DCPK_HF_GROUPS] = "groups",           [DCPK_HF_CAT] = "cat",
    [DCPK_HF_DELTA_NET] = "delta_net",     [DCPK_HF_VOCAB] = "vocab",
    [DCPK_HF_ADD_ONE] = "add_one",
};

/* A text or a list of them, at most `most`. */
static dcpk_status read_texts(struct dcpk_arena *arena, const struct dcpk_json *node,
                              const char **texts, size_t most, size_t *n, struct dcpk_error *err)
{
    static const char what[] = "an op, a word, a name or a member of a list";

    *n = 0;
    if (node == NULL || dcpk_json_kind(node) != DCPK_JSON_ARRAY) {
        if (dcpk_hf_read_text(arena, node, what, texts, err))
            return err->status;
        *n = 1;
        return DCPK_OK;
    }
    for (node = dcpk_json_first(node); node != NULL; node = dcpk_json_next(node)) {
        if (*n == most)
            return dcpk_fail(err, DCPK_EFORMAT, "a list has more than %zu texts", most);
        if (dcpk_hf_read_text(arena, node, what, &texts[(*n)++], err))
            return err->status;
    }
    return DCPK_OK;
}

/* --- rules --- */

/* Checks that words in braces are known; {*} in patterns of "drop" alone. */
static dcpk_status check_captures(const char *name, bool is_pattern, struct dcpk_error *err)
{
    static const char *const known[] = {"{l}", "{m}", "{e}", "{m+num_layers}", NULL};

    for (const char *at = strchr(name, '{'); at != NULL; at = strchr(at + 1, '{')) {
        size_t i = 0;

        while (known[i] != NULL && !dcpk_starts_with(at, known[i]))
            i++;
        if (known[i] == NULL && !(is_pattern && dcpk_starts_with(at, "{*}")))
            return dcpk_fail(err, DCPK_EFORMAT, "'%.80s': the word in braces is not known", name);
    }
    return DCPK_OK;
}

static dcpk_status rule_read_ops(struct dcpk_arena *arena, const struct dcpk_json *node,
                                 struct dcpk_hf_rule *rule, struct dcpk_error *err)
{
    const char *list[DCPK_HF_MAX_WORDS];

    if (node == NULL)
        return DCPK_OK;
    if (read_texts(arena, node, list, DCPK_COUNT(list), &rule->n_ops, err))
        return err->status;
    for (size_t i = 0; i < rule->n_ops; i++) {
        size_t op = 0;

        while (op < DCPK_COUNT(ops) && strcmp(ops[op], list[i]) != 0)
            op++;
        if (op == DCPK_COUNT(ops))
            return dcpk_fail(err, DCPK_EFORMAT, "the op '%.40s' is not known", list[i]);
        rule->ops[i] = (enum dcpk_hf_op)op;
    }
    return DCPK_OK;
}

static const char *const layer_kinds[] = {
    [DCPK_HF_IF_MOE] = "moe",
    [DCPK_HF_IF_DENSE] = "dense",
    [DCPK_HF_IF_LINEAR] = "linear_attention",
    [DCPK_HF_IF_FULL] = "full_attention",
};

static dcpk_status rule_read_if(struct dcpk_arena *arena, const struct dcpk_json *node,
                                struct dcpk_hf_rule *rule, struct dcpk_error *err)
{
    const char *list[DCPK_HF_MAX_WORDS];

    if (node == NULL)
        return DCPK_OK;
    if (read_texts(arena, node, list, DCPK_COUNT(list), &rule->n_conditions, err))
        return err->status;
    for (size_t i = 0; i < rule->n_conditions; i++) {
        struct dcpk_hf_condition *c = &rule->conditions[i];

        *c = (struct dcpk_hf_condition){DCPK_HF_IF_ARG, list[i]};
        if (list[i][0] == '!')
            *c = (struct dcpk_hf_condition){DCPK_HF_IF_NO_ARG, list[i] + 1};
        for (size_t k = 0; k < DCPK_HF_IF_ARG; k++)
            if (strcmp(layer_kinds[k], list[i]) == 0)
                *c = (struct dcpk_hf_condition){(enum dcpk_hf_condition_kind)k, NULL};
    }
    return DCPK_OK;
}

static dcpk_status rule_read_marks(const struct dcpk_json *node, struct dcpk_hf_rule *rule,
                                   struct dcpk_error *err)
{
    const struct dcpk_json *read = dcpk_json_member(node, "read");
    const struct dcpk_json *copy = dcpk_json_member(node, "copy");
    const struct dcpk_json *dtype = dcpk_json_member(node, "dtype");
    static const struct {
        const char *word;
        unsigned flags;
    } reads[] = {{"only", DCPK_HF_READ_ONLY},
                 {"memory", DCPK_HF_READ_ONLY | DCPK_HF_IN_MEMORY},
                 {"state", DCPK_HF_READ_ONLY | DCPK_HF_OF_STATE}};
    bool is_copy = false;

    for (size_t i = 0; read != NULL && i < DCPK_COUNT(reads); i++)
        if (strcmp(dcpk_text_or(dcpk_json_string(read), ""), reads[i].word) == 0)
            rule->flags |= reads[i].flags;
    if (read != NULL && rule->flags == 0)
        return dcpk_fail(err, DCPK_EFORMAT, "\"read\" is not \"only\", \"memory\" or \"state\"");
    if (copy != NULL && (!dcpk_json_bool(copy, &is_copy) || !is_copy))
        return dcpk_fail(err, DCPK_EFORMAT, "\"copy\" is not true");
    if (is_copy)
        rule->flags |= DCPK_HF_COPY;
    rule->dtype = DCPK_DTYPE_NONE;
    if (dtype == NULL)
        return DCPK_OK;
    rule->dtype = dcpk_dtype_from_name(dcpk_text_or(dcpk_json_string(dtype), ""));
    if (rule->dtype == DCPK_DTYPE_NONE)
        return dcpk_fail(err, DCPK_EFORMAT, "the \"dtype\" is not known");
    return DCPK_OK;
}

/* As many parts as the ops take: qkv three or one, with rope_halves three, cat two or more,
 * delta_net two or four, all else one. rope_halves needs heads. */
static dcpk_status rule_check_parts(const struct dcpk_hf_rule *rule, struct dcpk_error *err)
{
    size_t n_joins = 0;
    bool fits = rule->n_hf == 1, has_halves = false, has_heads = false;

    for (size_t i = 0; i < rule->n_ops; i++) {
        const bool is_qkv = rule->ops[i] == DCPK_HF_QKV, is_cat = rule->ops[i] == DCPK_HF_CAT;
        const bool is_delta_net = rule->ops[i] == DCPK_HF_DELTA_NET;

        has_heads |= (is_qkv && rule->n_hf == 3) || rule->ops[i] == DCPK_HF_GROUPS;
        has_halves |= rule->ops[i] == DCPK_HF_ROPE_HALVES;
        n_joins += is_qkv || is_cat || is_delta_net;
        if (is_qkv)
            fits = rule->n_hf == 3 || rule->n_hf == 1;
        if (is_cat)
            fits = rule->n_hf >= 2;
        if (is_delta_net)
            fits = rule->n_hf == 2 || rule->n_hf == 4;
    }
    if (n_joins > 1 || !fits || (has_halves && !has_heads))
        return dcpk_fail(err, DCPK_EFORMAT, "%zu names in \"hf\" do not fit its ops", rule->n_hf);
    return DCPK_OK;
}

static dcpk_status rule_read(struct dcpk_arena *arena, const struct dcpk_json *node,
                             struct dcpk_hf_rule *rule, struct dcpk_error *err)
{
    static const char *const known[] = {"mg", "hf", "op", "if", "read", "copy", "dtype", NULL};

    if (dcpk_hf_check_keys(node, known, err) ||
        dcpk_hf_read_text(arena, dcpk_json_member(node, "mg"), "\"mg\"", &rule->mg, err) ||
        read_texts(arena, dcpk_json_member(node, "hf"), rule->hf, DCPK_COUNT(rule->hf), &rule->n_hf,
                   err) ||
        check_captures(rule->mg, false, err) ||
        rule_read_ops(arena, dcpk_json_member(node, "op"), rule, err) ||
        rule_read_if(arena, dcpk_json_member(node, "if"), rule, err) ||
        rule_read_marks(node, rule, err) || rule_check_parts(rule, err))
        return err->status;
    for (size_t i = 0; i < rule->n_hf; i++)
        if (check_captures(rule->hf[i], false, err))
            return err->status;
    return DCPK_OK;
}

static dcpk_status read_rules(const struct dcpk_json *doc, const char *key,
                              struct dcpk_arena *arena, struct dcpk_hf_rules *rules,
                              struct dcpk_error *err)
{
    const struct dcpk_json *list = dcpk_json_member(doc, key);
    struct dcpk_hf_rule *made;

    if (list == NULL || dcpk_json_kind(list) != DCPK_JSON_ARRAY)
        return dcpk_fail(err, DCPK_EFORMAT, "\"%s\" is not a list", key);
    made = dcpk_arena_array(arena, dcpk_hf_count(list), sizeof *made, err);
    if (made == NULL)
        return err->status;
    rules->list = made;
    for (list = dcpk_json_first(list); list != NULL; list = dcpk_json_next(list)) {
        if (rule_read(arena, list, &made[rules->n], err))
            return dcpk_context(err, "\"%s\"[%zu] ('%.80s')", key, rules->n,
                                dcpk_text_or(dcpk_json_string(dcpk_json_member(list, "mg")), ""));
        rules->n++;
    }
    return DCPK_OK;
}

static dcpk_status read_at(const struct dcpk_json *doc, struct dcpk_arena *arena,
                           struct dcpk_hf_map *map, struct dcpk_error *err)
{
    static const char *const known[] = {"mg", "hf", NULL};
    const struct dcpk_json *list = dcpk_json_member(doc, "at");
    struct dcpk_hf_at *made;

    if (list == NULL || dcpk_json_kind(list) != DCPK_JSON_ARRAY)
        return dcpk_fail(err, DCPK_EFORMAT, "\"at\" is not a list");
    made = dcpk_arena_array(arena, dcpk_hf_count(list), sizeof *made, err);
    if (made == NULL)
        return err->status;
    map->at = made;
    for (list = dcpk_json_first(list); list != NULL; list = dcpk_json_next(list)) {
        struct dcpk_hf_at *at = &made[map->n_at++];

        if (dcpk_hf_check_keys(list, known, err) ||
            dcpk_hf_read_text(arena, dcpk_json_member(list, "mg"), "\"mg\"", &at->mg, err) ||
            dcpk_hf_read_text(arena, dcpk_json_member(list, "hf"), "\"hf\"", &at->hf, err) ||
            check_captures(at->mg, false, err) || check_captures(at->hf, false, err))
            return dcpk_context(err, "\"at\"[%zu]", map->n_at - 1);
    }
    return DCPK_OK;
}

/* A list of texts of any length. */
static dcpk_status read_list(const struct dcpk_json *doc, const char *key, struct dcpk_arena *arena,
                             const char *const **list, size_t *n, struct dcpk_error *err)
{
    const struct dcpk_json *node = dcpk_json_member(doc, key);
    size_t most;
    const char **made;

    *n = 0;
    if (node == NULL)
        return DCPK_OK;
    if (dcpk_json_kind(node) != DCPK_JSON_ARRAY)
        return dcpk_fail(err, DCPK_EFORMAT, "\"%s\" is not a list", key);
    most = dcpk_hf_count(node);
    made = dcpk_arena_array(arena, most, sizeof *made, err);
    if (made == NULL || read_texts(arena, node, made, most, n, err))
        return err->status;
    *list = made;
    return DCPK_OK;
}

/* Reads the scales of a map: for values of 8 bits the key with the size of their blocks, for 4 bits
 * the ends of their names. */
static dcpk_status map_read_scales(const struct dcpk_json *scales, struct dcpk_arena *arena,
                                   struct dcpk_hf_map *map, struct dcpk_error *err)
{
    static const char *const known[] = {"suffix", "block", "values", NULL};
    const struct dcpk_json *block, *values;

    if (dcpk_hf_check_keys(scales, known, err) ||
        dcpk_hf_read_text(arena, dcpk_json_member(scales, "suffix"), "\"suffix\"",
                          &map->scales_suffix, err))
        return err->status;
    block = dcpk_json_member(scales, "block");
    values = dcpk_json_member(scales, "values");
    if ((block == NULL) == (values == NULL))
        return dcpk_fail(err, DCPK_EFORMAT, "either \"block\" or \"values\" is asked for");
    map->scales_values = "";
    if (block != NULL)
        return dcpk_hf_read_text(arena, block, "\"block\"", &map->scales_block, err);
    return dcpk_hf_read_text(arena, values, "\"values\"", &map->scales_values, err);
}

/* Members that few families have. */
static dcpk_status read_rare(const struct dcpk_json *doc, struct dcpk_arena *arena,
                             struct dcpk_hf_map *map, struct dcpk_error *err)
{
    const struct dcpk_json *scales = dcpk_json_member(doc, "scales");
    const struct dcpk_json *prefix = dcpk_json_member(doc, "prefix");
    const struct dcpk_json *memory = dcpk_json_member(doc, "memory");
    size_t n_memory = 0;
    const struct dcpk_json *foreign = dcpk_json_member(doc, "foreign");

    if (read_list(doc, "other_model_types", arena, &map->other_types, &map->n_other_types, err) ||
        (foreign != NULL && dcpk_hf_read_text(arena, foreign, "\"foreign\"", &map->foreign, err)))
        return err->status;
    if (prefix != NULL && dcpk_hf_read_text(arena, prefix, "\"prefix\"", &map->prefix, err))
        return err->status;
    if (memory != NULL && read_texts(arena, memory, map->memory, 2, &n_memory, err))
        return err->status;
    if (memory != NULL && n_memory != 2)
        return dcpk_fail(err, DCPK_EFORMAT, "\"memory\" is not a list of two prefixes");
    if (scales != NULL && map_read_scales(scales, arena, map, err))
        dcpk_context(err, "\"scales\"");
    return err->status;
}

/* Reads the members that names of another scheme do not have. */
static dcpk_status read_family(const struct dcpk_json *doc, struct dcpk_arena *arena,
                               struct dcpk_hf_map *map, struct dcpk_error *err)
{
    if (dcpk_hf_read_text(arena, dcpk_json_member(doc, "model_type"), "\"model_type\"",
                          &map->model_type, err) ||
        read_list(doc, "architectures", arena, &map->architectures, &map->n_architectures, err) ||
        dcpk_hf_map_read_config(doc, arena, map, err) || read_rare(doc, arena, map, err))
        return err->status;
    if (map->n_architectures == 0)
        return dcpk_fail(err, DCPK_EFORMAT, "\"architectures\" names none");
    return DCPK_OK;
}

static dcpk_status map_fill(const struct dcpk_json *doc, struct dcpk_arena *arena,
                            struct dcpk_hf_map *map, struct dcpk_error *err)
{
    static const char *const known[] = {"family",
                                        "architectures",
                                        "model_type",
                                        "memory",
                                        "config",
                                        "args",
                                        "set",
                                        "hf",
                                        "usual",
                                        "rope",
                                        "scales",
                                        "prefix",
                                        "top",
                                        "at",
                                        "layer",
                                        "drop",
                                        "zero",
                                        "foreign",
                                        "other_model_types",
                                        NULL};
    static const char *const known_of_scheme[] = {"family", "scheme", "top",  "at",
                                                  "layer",  "drop",   "zero", NULL};
    const struct dcpk_json *scheme = dcpk_json_member(doc, "scheme");

    if (dcpk_hf_check_keys(doc, scheme == NULL ? known : known_of_scheme, err) ||
        dcpk_hf_read_text(arena, dcpk_json_member(doc, "family"), "\"family\"", &map->family,
                          err) ||
        (scheme != NULL && dcpk_hf_read_text(arena, scheme, "\"scheme\"", &map->scheme, err)) ||
        (scheme == NULL && read_family(doc, arena, map, err)) ||
        read_list(doc, "zero", arena, &map->zero, &map->n_zero, err) ||
        read_rules(doc, "top", arena, &map->top, err) || read_at(doc, arena, map, err) ||
        read_rules(doc, "layer", arena, &map->layer, err) ||
        read_list(doc, "drop", arena, &map->drop, &map->n_drop, err))
        return err->status;
    for (size_t i = 0; i < map->n_drop; i++)
        if (check_captures(map->drop[i], true, err))
            return dcpk_context(err, "\"drop\"[%zu]", i);
    return DCPK_OK;
}

dcpk_status dcpk_hf_map_read(const char *file, const char *text, size_t n_bytes,
                             struct dcpk_arena *arena, const struct dcpk_hf_map **map,
                             struct dcpk_error *err)
{
    struct dcpk_hf_map *made = dcpk_arena_alloc(arena, sizeof *made, err);
    struct dcpk_json *doc = NULL;

    if (made == NULL)
        return err->status;
    made->file = dcpk_arena_strdup(arena, file, err);
    if (made->file == NULL || dcpk_json_parse(text, n_bytes, &doc, err) ||
        map_fill(doc, arena, made, err))
        goto out;
    *map = made;
out:
    dcpk_json_free(doc);
    if (err->status != DCPK_OK)
        dcpk_context(err, "the map '%s'", file);
    return err->status;
}
