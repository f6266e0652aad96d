/* SPDX-License-Identifier: Apache-2.0 */
/* state_dict_json.c - renaming the outermost keys, and JSON as Python's json module writes it. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/job/state_dict_priv.h"

#define OLD_PREFIX "module.module"

/* Python's str.replace: every occurrence, from the left, not overlapping. */
static char *replaced(struct dcpk_arena *arena, const char *text, const char *replacement,
                      struct dcpk_error *err)
{
    struct dcpk_bytes out = {0};
    const char *hit;
    char *kept = NULL;

    for (; (hit = strstr(text, OLD_PREFIX)) != NULL; text = hit + strlen(OLD_PREFIX)) {
        dcpk_bytes_put(&out, text, (size_t)(hit - text));
        dcpk_bytes_text(&out, replacement);
    }
    dcpk_bytes_text(&out, text);
    if (dcpk_bytes_status(&out, err) == DCPK_OK)
        kept = dcpk_arena_strndup(arena, (const char *)out.data, out.n_bytes, err);
    dcpk_bytes_release(&out);
    return kept;
}

dcpk_status dcpk_state_dict_rename(struct dcpk_state_dict *dict, const char *replacement,
                                   struct dcpk_error *err)
{
    struct dcpk_state_node **link = &dict->root.first, *node;
    struct dcpk_map seen = {0};

    while ((node = *link) != NULL) {
        struct dcpk_state_node *first, *after;
        bool existed = false;
        uint64_t found;

        node->name = replaced(dict->arena, node->name, replacement, err);
        if (node->name == NULL || dcpk_map_put(&seen, node->name, strlen(node->name),
                                               (uintptr_t)node, &existed, &found, err) != DCPK_OK)
            goto out;
        if (!existed) {
            link = &node->next;
            continue;
        }
        *link = node->next; /* first: it may be the first's own link */
        first = (struct dcpk_state_node *)(uintptr_t)found;
        after = first->next;
        *first = *node;
        first->next = after;
    }
    dict->root.end = link;
out:
    dcpk_map_release(&seen);
    return err->status;
}

static dcpk_status refuse_value(const struct dcpk_value *v, struct dcpk_error *err)
{
    static const char *const kinds[] = {
        [DCPK_V_BIGINT] = "an int past 64 bits",
        [DCPK_V_BYTES] = "bytes",
        [DCPK_V_SET] = "a set",
        [DCPK_V_TENSOR] = "a Tensor",
    };

    if (v->kind == DCPK_V_OBJECT)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "an object of %s.%s, which JSON cannot hold",
                         v->as.object->module, v->as.object->name);
    if (v->kind == DCPK_V_GLOBAL)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "%s.%s, which JSON cannot hold",
                         v->as.global.module, v->as.global.name);
    return dcpk_fail(err, DCPK_EUNSUPPORTED, "%s, which JSON cannot hold", kinds[v->kind]);
}

/* A dict key as json writes it: a string, also of numbers, booleans and None. */
static dcpk_status put_dict_key(struct dcpk_json_out *j, const struct dcpk_value *key,
                                struct dcpk_error *err)
{
    char text[32];

    switch (key->kind) {
    case DCPK_V_STR:
        if (strlen(key->as.str) != key->n)
            return dcpk_fail(err, DCPK_EUNSUPPORTED, "a dict key holds a NUL");
        dcpk_json_put_key(j, key->as.str);
        return DCPK_OK;
    case DCPK_V_INT:
        snprintf(text, sizeof text, "%" PRId64, key->as.i);
        dcpk_json_put_key(j, text);
        return DCPK_OK;
    case DCPK_V_FLOAT:
        dcpk_format_double(key->as.f, text);
        dcpk_json_put_key(j, text);
        return DCPK_OK;
    case DCPK_V_BOOL:
        dcpk_json_put_key(j, key->as.b ? "true" : "false");
        return DCPK_OK;
    case DCPK_V_NONE:
        dcpk_json_put_key(j, "null");
        return DCPK_OK;
    case DCPK_V_BIGINT:
    case DCPK_V_BYTES:
    case DCPK_V_TUPLE:
    case DCPK_V_LIST:
    case DCPK_V_SET:
    case DCPK_V_DICT:
    case DCPK_V_TENSOR:
    case DCPK_V_GLOBAL:
    case DCPK_V_OBJECT:
        break;
    }
    return dcpk_fail(
        err, DCPK_EUNSUPPORTED,
        "a dict key that is not str, int, float, bool or None, which JSON cannot hold");
}

static dcpk_status put_value(struct dcpk_json_out *j, const struct dcpk_value *v, int depth,
                             struct dcpk_error *err);

static dcpk_status put_items(struct dcpk_json_out *j, const struct dcpk_value *v, int depth,
                             struct dcpk_error *err)
{
    dcpk_json_begin_array(j);
    for (size_t i = 0; i < v->n; i++)
        if (put_value(j, v->as.items[i], depth + 1, err) != DCPK_OK)
            return err->status;
    dcpk_json_end_array(j);
    return DCPK_OK;
}

static dcpk_status put_pairs(struct dcpk_json_out *j, const struct dcpk_value *v, int depth,
                             struct dcpk_error *err)
{
    dcpk_json_begin_object(j);
    for (size_t i = 0; i < v->n; i++)
        if (put_dict_key(j, v->as.pairs[i].key, err) ||
            put_value(j, v->as.pairs[i].value, depth + 1, err))
            return err->status;
    dcpk_json_end_object(j);
    return DCPK_OK;
}

/* Recursion no deeper than DCPK_MAX_VALUE_DEPTH. */
static dcpk_status put_value(struct dcpk_json_out *j, const struct dcpk_value *v, int depth,
                             struct dcpk_error *err)
{
    if (depth > DCPK_MAX_VALUE_DEPTH)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "nested deeper than %d", DCPK_MAX_VALUE_DEPTH);
    switch (v->kind) {
    case DCPK_V_NONE:
        dcpk_json_put_null(j);
        return DCPK_OK;
    case DCPK_V_BOOL:
        dcpk_json_put_bool(j, v->as.b);
        return DCPK_OK;
    case DCPK_V_INT:
        dcpk_json_put_int(j, v->as.i);
        return DCPK_OK;
    case DCPK_V_FLOAT:
        dcpk_json_put_double(j, v->as.f);
        return DCPK_OK;
    case DCPK_V_STR:
        dcpk_json_put_text(j, v->as.str, v->n);
        return DCPK_OK;
    case DCPK_V_TUPLE:
    case DCPK_V_LIST:
        return put_items(j, v, depth, err);
    case DCPK_V_DICT:
        return put_pairs(j, v, depth, err);
    case DCPK_V_BIGINT:
    case DCPK_V_BYTES:
    case DCPK_V_SET:
    case DCPK_V_TENSOR:
    case DCPK_V_GLOBAL:
    case DCPK_V_OBJECT:
        break;
    }
    return refuse_value(v, err);
}

static dcpk_status put_node(struct dcpk_json_out *j, const struct dcpk_state_node *node,
                            struct dcpk_arena *arena, struct dcpk_error *err);

/* A list's items arrive in the order of the metadata; holes are None, as torch fills them. */
static dcpk_status put_list(struct dcpk_json_out *j, const struct dcpk_state_node *list,
                            struct dcpk_arena *arena, struct dcpk_error *err)
{
    const size_t n = (size_t)list->n_items;
    const struct dcpk_state_node **items = dcpk_arena_array(arena, n, sizeof *items, err);

    if (items == NULL)
        return err->status;
    for (const struct dcpk_state_node *c = list->first; c != NULL; c = c->next)
        items[c->index] = c;
    dcpk_json_begin_array(j);
    for (size_t i = 0; i < n; i++)
        if (items[i] == NULL)
            dcpk_json_put_null(j);
        else if (put_node(j, items[i], arena, err) != DCPK_OK)
            return err->status;
    dcpk_json_end_array(j);
    return DCPK_OK;
}

/* Recursion no deeper than DCPK_MAX_PATH. */
static dcpk_status put_node(struct dcpk_json_out *j, const struct dcpk_state_node *node,
                            struct dcpk_arena *arena, struct dcpk_error *err)
{
    if (node->kind == DCPK_NODE_LEAF) {
        if (put_value(j, node->value, 1, err) != DCPK_OK)
            dcpk_context(err, "'%s'", node->key);
        return err->status;
    }
    if (node->kind == DCPK_NODE_LIST)
        return put_list(j, node, arena, err);
    dcpk_json_begin_object(j);
    for (const struct dcpk_state_node *c = node->first; c != NULL; c = c->next) {
        dcpk_json_put_key(j, c->name);
        if (put_node(j, c, arena, err) != DCPK_OK)
            return err->status;
    }
    dcpk_json_end_object(j);
    return DCPK_OK;
}

dcpk_status dcpk_state_dict_to_json(const struct dcpk_state_dict *dict, int indent,
                                    struct dcpk_bytes *out, struct dcpk_error *err)
{
    struct dcpk_json_out j;

    dcpk_json_out_init(&j, out, indent);
    j.is_python = true;
    if (put_node(&j, &dict->root, dict->arena, err) != DCPK_OK)
        return err->status;
    return dcpk_bytes_status(out, err);
}
