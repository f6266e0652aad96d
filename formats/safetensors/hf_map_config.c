/* SPDX-License-Identifier: Apache-2.0 */
/* hf_map_config.c - the part of a map that is about config.json. */
#include <string.h>

#include "formats/safetensors/hf_map.h"
#include "lib/base/order.h"

static dcpk_status value_read_text(struct dcpk_arena *arena, const char *text,
                                   const struct dcpk_value **value, struct dcpk_error *err)
{
    *value = dcpk_value_str(arena, text, err);
    return dcpk_made(*value, err);
}

static const struct dcpk_value *number_value(struct dcpk_arena *arena, const struct dcpk_json *node,
                                             struct dcpk_error *err)
{
    int64_t whole;
    double number = 0;

    if (!dcpk_json_is_float(node) && dcpk_json_int(node, &whole))
        return dcpk_value_int(arena, whole, err);
    (void)dcpk_json_double(node, &number);
    return dcpk_value_float(arena, number, err);
}

/* Arrays and objects: texts of a map nest to DCPK_JSON_MAX_DEPTH at most, which the parser
 * holds. */
static const struct dcpk_value *nested_value(struct dcpk_arena *arena, const struct dcpk_json *node,
                                             struct dcpk_error *err)
{
    const bool is_dict = dcpk_json_kind(node) == DCPK_JSON_OBJECT;
    const size_t n = dcpk_hf_count(node);
    const struct dcpk_value **items = dcpk_arena_array(arena, n, sizeof *items, err);
    struct dcpk_value_pair *pairs = dcpk_arena_array(arena, n, sizeof *pairs, err);
    size_t i = 0;

    if (items == NULL || pairs == NULL)
        return NULL;
    for (node = dcpk_json_first(node); node != NULL; node = dcpk_json_next(node), i++) {
        items[i] = dcpk_hf_value(arena, node, err);
        if (items[i] == NULL)
            return NULL;
        pairs[i].value = items[i];
        if (is_dict && value_read_text(arena, dcpk_json_key(node), &pairs[i].key, err))
            return NULL;
    }
    if (is_dict)
        return dcpk_value_dict(arena, pairs, n, err);
    return dcpk_value_seq(arena, DCPK_V_LIST, items, n, err);
}

const struct dcpk_value *dcpk_hf_value(struct dcpk_arena *arena, const struct dcpk_json *node,
                                       struct dcpk_error *err)
{
    bool b = false;

    switch (dcpk_json_kind(node)) {
    case DCPK_JSON_NULL:
        return dcpk_value_none();
    case DCPK_JSON_BOOL:
        (void)dcpk_json_bool(node, &b);
        return dcpk_value_bool(b);
    case DCPK_JSON_NUMBER:
        return number_value(arena, node, err);
    case DCPK_JSON_STRING:
        return dcpk_value_str(arena, dcpk_json_string(node), err);
    case DCPK_JSON_ARRAY:
    case DCPK_JSON_OBJECT:
        break;
    }
    return nested_value(arena, node, err);
}

/* --- rows --- */

/* The arguments of a row's word. */
enum word_takes {
    TAKES_NOTHING,
    TAKES_VALUE,
    TAKES_MAYBE_VALUE,
    TAKES_ARG_AND_DEFAULT, /* the second may lack */
    TAKES_ARG,
    TAKES_ARG_AND_FACTOR,
    TAKES_TABLE
};

static const struct {
    const char *word;
    enum word_takes takes;
} words[] = {
    [DCPK_HF_HOW_COPY] = {"", TAKES_NOTHING},
    [DCPK_HF_HOW_OR] = {"or", TAKES_VALUE},
    [DCPK_HF_HOW_OR_ARG] = {"or_arg", TAKES_ARG_AND_DEFAULT},
    [DCPK_HF_HOW_OR_MUL] = {"or_mul", TAKES_ARG_AND_FACTOR},
    [DCPK_HF_HOW_OR_NONE] = {"or_none", TAKES_MAYBE_VALUE},
    [DCPK_HF_HOW_NOT] = {"not", TAKES_VALUE},
    [DCPK_HF_HOW_HEAD_DIM] = {"head_dim", TAKES_NOTHING},
    [DCPK_HF_HOW_WINDOW] = {"window", TAKES_NOTHING},
    [DCPK_HF_HOW_TIMES] = {"times", TAKES_ARG},
    [DCPK_HF_HOW_LEADING] = {"leading", TAKES_NOTHING},
    [DCPK_HF_HOW_SPARSE] = {"sparse", TAKES_NOTHING},
    [DCPK_HF_HOW_LINEAR] = {"linear", TAKES_VALUE},
    [DCPK_HF_HOW_ROPE_LAYERS] = {"rope_layers", TAKES_VALUE},
    [DCPK_HF_HOW_GROUPS] = {"groups", TAKES_NOTHING},
    [DCPK_HF_HOW_ENUM] = {"enum", TAKES_TABLE},
    [DCPK_HF_HOW_PATTERN] = {"pattern", TAKES_NOTHING},
    [DCPK_HF_HOW_MAMBA_HEADS] = {"mamba_heads", TAKES_NOTHING},
    [DCPK_HF_HOW_HF_ONLY] = {"hf_only", TAKES_NOTHING},
};

/* The names between separators of `text`. */
static dcpk_status split_names(struct dcpk_arena *arena, const char *text, const char *separators,
                               const char **names, size_t *n, struct dcpk_error *err)
{
    *n = 0;
    for (const char *end;; text = end + 1) {
        end = text + strcspn(text, separators);
        if (end == text || *n == DCPK_HF_MAX_PARTS)
            return dcpk_fail(err, DCPK_EFORMAT, "an empty name, or more than %d",
                             DCPK_HF_MAX_PARTS);
        names[*n] = dcpk_arena_strndup(arena, text, (size_t)(end - text), err);
        if (names[(*n)++] == NULL)
            return err->status;
        if (*end == '\0')
            return DCPK_OK;
    }
}

static dcpk_status row_read_word(const struct dcpk_json *node, struct dcpk_hf_row *row,
                                 struct dcpk_error *err)
{
    const char *word = dcpk_json_string(node);

    if (node == NULL)
        return DCPK_OK;
    for (size_t i = 1; word != NULL && i < DCPK_COUNT(words); i++)
        if (strcmp(words[i].word, word) == 0) {
            row->how = (enum dcpk_hf_how)i;
            return DCPK_OK;
        }
    return dcpk_fail(err, DCPK_EFORMAT, "the word '%.40s' is not known", word == NULL ? "?" : word);
}

/* Reads the arguments of a word; *node: the first node after them. */
static dcpk_status row_read_rest(struct dcpk_arena *arena, const struct dcpk_json **node,
                                 struct dcpk_hf_row *row, struct dcpk_error *err)
{
    const enum word_takes takes = words[row->how].takes;
    const struct dcpk_json *at = *node;

    if (takes == TAKES_NOTHING || (takes == TAKES_MAYBE_VALUE && at == NULL))
        return DCPK_OK;
    if (at == NULL || (takes == TAKES_TABLE && dcpk_json_kind(at) != DCPK_JSON_OBJECT))
        return dcpk_fail(err, DCPK_EFORMAT, "'%s' lacks its argument", words[row->how].word);
    *node = dcpk_json_next(at);
    if (takes == TAKES_VALUE || takes == TAKES_MAYBE_VALUE || takes == TAKES_TABLE) {
        row->value = dcpk_hf_value(arena, at, err);
        return dcpk_made(row->value, err);
    }
    if (dcpk_hf_read_text(arena, at, words[row->how].word, &row->arg, err))
        return err->status;
    if (takes == TAKES_ARG_AND_DEFAULT && *node != NULL) {
        row->value = dcpk_hf_value(arena, *node, err);
        *node = dcpk_json_next(*node);
        return dcpk_made(row->value, err);
    }
    if (takes == TAKES_ARG || takes == TAKES_ARG_AND_DEFAULT)
        return DCPK_OK;
    if (!dcpk_json_int(*node, &row->factor) || row->factor < 1)
        return dcpk_fail(err, DCPK_EFORMAT, "'%s' lacks a whole number", words[row->how].word);
    *node = dcpk_json_next(*node);
    return DCPK_OK;
}

static dcpk_status row_read(struct dcpk_arena *arena, const struct dcpk_json *node,
                            struct dcpk_hf_row *row, struct dcpk_error *err)
{
    const char *key, *arg;
    bool has_two_keys;

    if (dcpk_json_kind(node) != DCPK_JSON_ARRAY)
        return dcpk_fail(err, DCPK_EFORMAT, "not a list of a key, an arg and a word");
    node = dcpk_json_first(node);
    if (dcpk_hf_read_text(arena, node, "the key", &key, err))
        return err->status;
    node = dcpk_json_next(node);
    if (dcpk_hf_read_text(arena, node, "the arg", &arg, err))
        return err->status;
    node = dcpk_json_next(node);
    if (row_read_word(node, row, err))
        return err->status;
    if (node != NULL)
        node = dcpk_json_next(node);
    has_two_keys = row->how == DCPK_HF_HOW_SPARSE || row->how == DCPK_HF_HOW_LINEAR ||
                   row->how == DCPK_HF_HOW_ROPE_LAYERS;
    if (row_read_rest(arena, &node, row, err) ||
        split_names(arena, key, has_two_keys ? "," : "|", row->keys, &row->n_keys, err) ||
        split_names(arena, arg, "|", row->args, &row->n_args, err))
        return err->status;
    if (node != NULL)
        return dcpk_fail(err, DCPK_EFORMAT, "more than its word takes");
    if (has_two_keys && row->n_keys != 2)
        return dcpk_fail(err, DCPK_EFORMAT, "'%s' takes two keys, a step and a list",
                         words[row->how].word);
    return DCPK_OK;
}

static dcpk_status read_rows(const struct dcpk_json *list, struct dcpk_arena *arena,
                             struct dcpk_hf_map *map, struct dcpk_error *err)
{
    struct dcpk_hf_row *rows;

    if (list == NULL || dcpk_json_kind(list) != DCPK_JSON_ARRAY)
        return dcpk_fail(err, DCPK_EFORMAT, "\"config\" is not a list");
    rows = dcpk_arena_array(arena, dcpk_hf_count(list), sizeof *rows, err);
    if (rows == NULL)
        return err->status;
    map->config = rows;
    for (list = dcpk_json_first(list); list != NULL; list = dcpk_json_next(list)) {
        if (row_read(arena, list, &rows[map->n_config], err))
            return dcpk_context(err, "\"config\"[%zu]", map->n_config);
        map->n_config++;
    }
    return DCPK_OK;
}

/* --- rope --- */

static dcpk_status rope_row_read(struct dcpk_arena *arena, const struct dcpk_json *node,
                                 struct dcpk_hf_rope_row *row, struct dcpk_error *err)
{
    const size_t n = dcpk_json_kind(node) == DCPK_JSON_ARRAY ? dcpk_hf_count(node) : 0;

    if (n < 2 || n > 3)
        return dcpk_fail(err, DCPK_EFORMAT, "not a list of a key, an arg and a default");
    node = dcpk_json_first(node);
    if (dcpk_hf_read_text(arena, node, "the key", &row->key, err))
        return err->status;
    node = dcpk_json_next(node);
    if (dcpk_hf_read_text(arena, node, "the arg", &row->arg, err))
        return err->status;
    if (n == 2)
        return DCPK_OK;
    row->by_default = dcpk_hf_value(arena, dcpk_json_next(node), err);
    return dcpk_made(row->by_default, err);
}

/* An object as a DICT, empty where there is none. */
static dcpk_status read_dict(struct dcpk_arena *arena, const struct dcpk_json *doc, const char *key,
                             const struct dcpk_value **dict, struct dcpk_error *err)
{
    const struct dcpk_json *node = dcpk_json_member(doc, key);

    if (node != NULL && dcpk_json_kind(node) != DCPK_JSON_OBJECT)
        return dcpk_fail(err, DCPK_EFORMAT, "\"%s\" is not an object", key);
    if (node == NULL)
        *dict = dcpk_value_dict(arena, NULL, 0, err);
    else
        *dict = dcpk_hf_value(arena, node, err);
    return dcpk_made(*dict, err);
}

static dcpk_status rope_kind_read(struct dcpk_arena *arena, const struct dcpk_json *node,
                                  struct dcpk_hf_rope_kind *kind, struct dcpk_error *err)
{
    static const char *const known[] = {"args", "map", "require", NULL};
    const struct dcpk_json *list;
    struct dcpk_hf_rope_row *rows;

    kind->name = dcpk_arena_strdup(arena, dcpk_json_key(node), err);
    if (kind->name == NULL || dcpk_hf_check_keys(node, known, err) ||
        read_dict(arena, node, "args", &kind->args, err) ||
        read_dict(arena, node, "require", &kind->require, err))
        return err->status;
    list = dcpk_json_member(node, "map");
    if (list == NULL)
        return DCPK_OK;
    if (dcpk_json_kind(list) != DCPK_JSON_ARRAY)
        return dcpk_fail(err, DCPK_EFORMAT, "\"map\" is not a list");
    rows = dcpk_arena_array(arena, dcpk_hf_count(list), sizeof *rows, err);
    if (rows == NULL)
        return err->status;
    kind->rows = rows;
    for (list = dcpk_json_first(list); list != NULL; list = dcpk_json_next(list))
        if (rope_row_read(arena, list, &rows[kind->n_rows++], err))
            return err->status;
    return DCPK_OK;
}

/* transformers' default_theta is 10000 except in a few families. */
static dcpk_status read_usual_theta(const struct dcpk_json *node, double *theta,
                                    struct dcpk_error *err)
{
    *theta = 10000;
    if (node != NULL &&
        (!dcpk_json_double(node, theta) || !(*theta >= 1) || *theta > DCPK_HF_MAX_THETA))
        return dcpk_fail(err, DCPK_EFORMAT, "\"usual_theta\" is not a number from 1 to %g",
                         DCPK_HF_MAX_THETA);
    return DCPK_OK;
}

static dcpk_status read_rope(const struct dcpk_json *rope, struct dcpk_arena *arena,
                             struct dcpk_hf_map *map, struct dcpk_error *err)
{
    static const char *const known[] = {"theta", "usual_theta", "kinds", NULL};
    const struct dcpk_json *list;
    struct dcpk_hf_rope_kind *kinds;

    if (rope == NULL)
        return DCPK_OK;
    if (dcpk_hf_check_keys(rope, known, err) ||
        dcpk_hf_read_text(arena, dcpk_json_member(rope, "theta"), "\"theta\"", &map->rope_theta,
                          err) ||
        read_usual_theta(dcpk_json_member(rope, "usual_theta"), &map->usual_theta, err))
        return err->status;
    list = dcpk_json_member(rope, "kinds");
    if (list == NULL || dcpk_json_kind(list) != DCPK_JSON_OBJECT || dcpk_json_first(list) == NULL)
        return dcpk_fail(err, DCPK_EFORMAT, "\"kinds\" is not an object with a kind");
    kinds = dcpk_arena_array(arena, dcpk_hf_count(list), sizeof *kinds, err);
    if (kinds == NULL)
        return err->status;
    map->rope_kinds = kinds;
    for (list = dcpk_json_first(list); list != NULL; list = dcpk_json_next(list))
        if (rope_kind_read(arena, list, &kinds[map->n_rope_kinds++], err))
            return dcpk_context(err, "'%s'", dcpk_json_key(list));
    return DCPK_OK;
}

dcpk_status dcpk_hf_map_read_config(const struct dcpk_json *doc, struct dcpk_arena *arena,
                                    struct dcpk_hf_map *map, struct dcpk_error *err)
{
    if (read_rows(dcpk_json_member(doc, "config"), arena, map, err) ||
        read_dict(arena, doc, "args", &map->args, err) ||
        read_dict(arena, doc, "set", &map->set, err) ||
        read_dict(arena, doc, "hf", &map->hf, err) ||
        read_dict(arena, doc, "usual", &map->usual, err))
        return err->status;
    if (read_rope(dcpk_json_member(doc, "rope"), arena, map, err))
        dcpk_context(err, "\"rope\"");
    return err->status;
}
