/* SPDX-License-Identifier: Apache-2.0 */
/* state_dict.c - the content of a DCP folder as the nested dict that torch rebuilds. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/base/map.h"
#include "lib/ckpt/format.h"
#include "lib/job/state_dict.h"

/* Together below the emitter's DCPK_JSON_MAX_DEPTH. */
#define MAX_PATH        32 /* parts of a planner_data path */
#define MAX_VALUE_DEPTH 24 /* containers inside a value */

enum node_kind { NODE_LEAF, NODE_DICT, NODE_LIST };

/* A dict or list under construction, or a leaf. Lists keep their items in order of arrival, each
 * with its index. */
struct state_node {
    enum node_kind kind;
    const char *name; /* in a dict */
    int64_t index;    /* in a list */
    const char *key;  /* a leaf's: the flat key, for messages */
    const struct dcpk_value *value;
    struct state_node *first, **end, *next;
    int64_t n_items; /* of a list: 1 + the largest index */
};

struct dcpk_state_dict {
    struct dcpk_arena *arena;
    struct state_node root;
};

#define MAX_LIST_GAP 1024 /* items more than there are objects */

/* The value at a place of the files, which many keys may name. */
struct loaded {
    const struct dcpk_value *value;
    uint64_t unfolded;
};

/* While it is built: nodes by the one around them and their name, paths by flat key, values by
 * place. */
struct builder {
    struct dcpk_arena *arena;
    struct state_node *root;
    struct dcpk_map nodes, paths; /* -> struct state_node *; -> const struct dcpk_value * */
    struct dcpk_map places;       /* -> struct loaded * */
    int64_t max_items;            /* of a list */
    uint64_t stored_bytes;        /* bytes read, each byte once */
    uint64_t unfolded;            /* written form of the dict: values, names and holes of lists */
    struct dcpk_bytes name; /* scratch: the address of a node, a byte of type, the name in it */
};

static void node_init(struct state_node *node, enum node_kind kind)
{
    node->kind = kind;
    node->first = NULL;
    node->end = &node->first;
}

/* Map the flat keys to the paths that the format records. */
static dcpk_status map_paths(struct dcpk_checkpoint *ckpt, struct builder *b,
                             struct dcpk_error *err)
{
    const struct dcpk_value *paths = NULL;
    uint64_t found;
    bool existed;

    if (ckpt->format->reader->load_paths == NULL)
        return DCPK_OK;
    if (ckpt->format->reader->load_paths(ckpt, b->arena, &paths, &b->stored_bytes, err) != DCPK_OK)
        return err->status;
    for (size_t i = 0; paths != NULL && i < paths->n; i++) {
        const struct dcpk_value_pair *pair = &paths->as.pairs[i];

        if (pair->key->kind == DCPK_V_STR &&
            dcpk_map_put(&b->paths, pair->key->as.str, pair->key->n, (uintptr_t)pair->value,
                         &existed, &found, err) != DCPK_OK)
            return err->status;
    }
    return DCPK_OK;
}

/* The path of a flat key: the recorded one, else the key itself. NULL: no memory. */
static const struct dcpk_value *path_of(const struct builder *b, const char *key,
                                        struct dcpk_error *err)
{
    const struct dcpk_value *part;
    uint64_t path;

    if (dcpk_map_get(&b->paths, key, strlen(key), &path))
        return (const struct dcpk_value *)(uintptr_t)path;
    part = dcpk_value_str(b->arena, key, err);
    if (part == NULL)
        return NULL;
    return dcpk_value_seq(b->arena, DCPK_V_TUPLE, &part, 1, err);
}

static dcpk_status check_part(const struct builder *b, const struct dcpk_value *part, size_t i,
                              struct dcpk_error *err)
{
    const bool is_index = part->kind == DCPK_V_INT && i > 0;

    if (part->kind != DCPK_V_STR && !is_index)
        return dcpk_fail(err, DCPK_EFORMAT, "part %zu of its path is neither a name nor an index",
                         i);
    if (is_index && (part->as.i < 0 || part->as.i >= b->max_items))
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "index %" PRId64 " of its path is not in [0, %" PRId64 ")", part->as.i,
                         b->max_items);
    if (part->kind == DCPK_V_STR && strlen(part->as.str) != part->n)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "a name in its path holds a NUL");
    return DCPK_OK;
}

static dcpk_status check_path(const struct builder *b, const struct dcpk_value *path,
                              struct dcpk_error *err)
{
    if (path->kind != DCPK_V_TUPLE || path->n == 0)
        return dcpk_fail(err, DCPK_EFORMAT, "its planner_data is not a path");
    if (path->n > MAX_PATH)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "its path has %zu parts, at most %d are read",
                         path->n, MAX_PATH);
    for (size_t i = 0; i < path->n; i++)
        if (check_part(b, path->as.items[i], i, err) != DCPK_OK)
            return err->status;
    return DCPK_OK;
}

/* The child of `parent` that `part` names, in the scratch. */
static dcpk_status name_child(struct builder *b, const struct state_node *parent,
                              const struct dcpk_value *part, struct dcpk_error *err)
{
    b->name.n_bytes = 0;
    dcpk_bytes_put(&b->name, &parent, sizeof parent);
    dcpk_bytes_u8(&b->name, (uint8_t)part->kind);
    if (part->kind == DCPK_V_INT)
        dcpk_bytes_u64(&b->name, (uint64_t)part->as.i);
    else
        dcpk_bytes_put(&b->name, part->as.str, part->n);
    return dcpk_bytes_status(&b->name, err);
}

static dcpk_status make_child(struct builder *b, struct state_node *parent,
                              const struct dcpk_value *part, struct state_node **child,
                              struct dcpk_error *err)
{
    struct state_node *node = dcpk_arena_alloc(b->arena, sizeof *node, err);
    const char *name =
        dcpk_arena_strndup(b->arena, (const char *)b->name.data, b->name.n_bytes, err);
    uint64_t found;
    bool existed;

    if (node == NULL || name == NULL)
        return err->status;
    b->unfolded += dcpk_value_unfolded_node(part);
    if (part->kind == DCPK_V_STR) {
        node->name = part->as.str;
    } else {
        node->index = part->as.i;
        if (part->as.i >= parent->n_items) {
            b->unfolded += (uint64_t)(part->as.i - parent->n_items);
            parent->n_items = part->as.i + 1;
        }
    }
    *parent->end = *child = node;
    parent->end = &node->next;
    return dcpk_map_put(&b->nodes, name, b->name.n_bytes, (uintptr_t)node, &existed, &found, err);
}

/* The child of `parent` that `part` names, made as `kind` when it is new. */
static dcpk_status find_child(struct builder *b, struct state_node *parent,
                              const struct dcpk_value *part, enum node_kind kind,
                              struct state_node **child, struct dcpk_error *err)
{
    const bool is_index = part->kind == DCPK_V_INT;
    uint64_t found;

    if (parent->kind != (is_index ? NODE_LIST : NODE_DICT))
        return dcpk_fail(err, DCPK_EFORMAT, "its path needs a %s where another key's path has none",
                         is_index ? "list" : "dict");
    if (name_child(b, parent, part, err) != DCPK_OK)
        return err->status;
    if (dcpk_map_get(&b->nodes, (const char *)b->name.data, b->name.n_bytes, &found)) {
        *child = (struct state_node *)(uintptr_t)found;
        return DCPK_OK;
    }
    if (make_child(b, parent, part, child, err) != DCPK_OK)
        return err->status;
    node_init(*child, kind);
    return DCPK_OK;
}

/* The kind of node after part i of a path: a list where the next part is an index. */
static enum node_kind kind_at(const struct dcpk_value *path, size_t i)
{
    if (i + 1 == path->n)
        return NODE_LEAF;
    return path->as.items[i + 1]->kind == DCPK_V_INT ? NODE_LIST : NODE_DICT;
}

/* set_element of torch: containers on the way are made. */
static dcpk_status set_element(struct builder *b, const struct dcpk_value *path, const char *key,
                               const struct dcpk_value *value, struct dcpk_error *err)
{
    struct state_node *node = b->root;

    if (check_path(b, path, err) != DCPK_OK)
        return err->status;
    for (size_t i = 0; i < path->n; i++)
        if (find_child(b, node, path->as.items[i], kind_at(path, i), &node, err) != DCPK_OK)
            return err->status;
    if (node->kind != NODE_LEAF || node->key != NULL)
        return dcpk_fail(err, DCPK_EFORMAT, "another key has the same path");
    node->key = key;
    node->value = value;
    return DCPK_OK;
}

/* Keys that share an item share its value. */
static dcpk_status load_value(struct dcpk_checkpoint *ckpt, const struct dcpk_object *object,
                              struct builder *b, const struct dcpk_value **value,
                              struct dcpk_error *err)
{
    const uint64_t place[] = {object->place.file, object->place.offset_bytes,
                              object->place.n_bytes};
    struct loaded *loaded;
    const char *key;
    uint64_t found;
    bool existed;

    if (dcpk_map_get(&b->places, (const char *)place, sizeof place, &found)) {
        loaded = (struct loaded *)(uintptr_t)found;
    } else {
        key = dcpk_arena_strndup(b->arena, (const char *)place, sizeof place, err);
        loaded = dcpk_arena_alloc(b->arena, sizeof *loaded, err);
        if (key == NULL || loaded == NULL ||
            dcpk_checkpoint_load_item(ckpt, object, b->arena, &loaded->value, err) ||
            dcpk_map_put(&b->places, key, sizeof place, (uintptr_t)loaded, &existed, &found, err))
            return err->status;
        loaded->unfolded = dcpk_value_unfolded(loaded->value);
        b->stored_bytes += object->place.n_bytes;
    }
    *value = loaded->value;
    b->unfolded += loaded->unfolded;
    return DCPK_OK;
}

static dcpk_status add_object(struct dcpk_checkpoint *ckpt, const struct dcpk_object *object,
                              struct builder *b, struct dcpk_error *err)
{
    const struct dcpk_value *value, *path = path_of(b, object->key, err);

    if (path == NULL || load_value(ckpt, object, b, &value, err) ||
        set_element(b, path, object->key, value, err))
        dcpk_context(err, "'%s'", object->key);
    return err->status;
}

/* All together are bounded as one value is. */
static dcpk_status check_unfolded(const struct builder *b, struct dcpk_error *err)
{
    const uint32_t limit = dcpk_unfold_limit(b->stored_bytes);

    if (b->unfolded <= limit)
        return DCPK_OK;
    return dcpk_fail(err, DCPK_ERANGE,
                     "the objects share their items, or leave holes in their lists, so often that "
                     "they unfold to %" PRIu64 " values: the limit for their %" PRIu64
                     " bytes is %" PRIu32,
                     b->unfolded, b->stored_bytes, limit);
}

static dcpk_status build(struct dcpk_checkpoint *ckpt, struct builder *b, struct dcpk_error *err)
{
    if (map_paths(ckpt, b, err) != DCPK_OK)
        return err->status;
    for (size_t i = 0; i < ckpt->n_objects; i++)
        if (add_object(ckpt, &ckpt->objects[i], b, err) != DCPK_OK)
            return err->status;
    return check_unfolded(b, err);
}

dcpk_status dcpk_state_dict_load(struct dcpk_checkpoint *ckpt, struct dcpk_arena *arena,
                                 struct dcpk_state_dict **dict, struct dcpk_error *err)
{
    struct dcpk_state_dict *d = dcpk_arena_alloc(arena, sizeof *d, err);
    struct builder b = {.arena = arena};

    if (d == NULL)
        return err->status;
    if (ckpt->n_tensors > 0)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "'%s' is a tensor, which JSON cannot hold (Python: Object of type Tensor "
                         "is not JSON serializable)",
                         ckpt->tensors[0].key);
    d->arena = arena;
    node_init(&d->root, NODE_DICT);
    b.root = &d->root;
    b.max_items = (int64_t)ckpt->n_objects + MAX_LIST_GAP;
    if (build(ckpt, &b, err) == DCPK_OK)
        *dict = d;
    dcpk_map_release(&b.nodes);
    dcpk_map_release(&b.paths);
    dcpk_map_release(&b.places);
    dcpk_bytes_release(&b.name);
    return err->status;
}

/* ---- JSON ---- */

#define OLD_PREFIX "module.module"

/* Python's str.replace: every occurrence, from the left, not overlapping. */
static const char *replaced(struct dcpk_arena *arena, const char *text, const char *replacement,
                            struct dcpk_error *err)
{
    struct dcpk_bytes out = {0};
    const char *hit;

    for (; (hit = strstr(text, OLD_PREFIX)) != NULL; text = hit + strlen(OLD_PREFIX)) {
        dcpk_bytes_put(&out, text, (size_t)(hit - text));
        dcpk_bytes_text(&out, replacement);
    }
    dcpk_bytes_text(&out, text);
    return dcpk_bytes_to_arena(&out, arena, err);
}

dcpk_status dcpk_state_dict_rename(struct dcpk_state_dict *dict, const char *replacement,
                                   struct dcpk_error *err)
{
    struct state_node **link = &dict->root.first, *node;
    struct dcpk_map seen = {0};

    while ((node = *link) != NULL) {
        struct state_node *first, *after;
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
        first = (struct state_node *)(uintptr_t)found;
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

/* Recursion no deeper than MAX_VALUE_DEPTH. */
static dcpk_status put_value(struct dcpk_json_out *j, const struct dcpk_value *v, int depth,
                             struct dcpk_error *err)
{
    if (depth > MAX_VALUE_DEPTH)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "nested deeper than %d", MAX_VALUE_DEPTH);
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

static dcpk_status put_node(struct dcpk_json_out *j, const struct state_node *node,
                            struct dcpk_arena *arena, struct dcpk_error *err);

/* A list's items arrive in the order of the metadata; holes are None, as torch fills them. */
static dcpk_status put_list(struct dcpk_json_out *j, const struct state_node *list,
                            struct dcpk_arena *arena, struct dcpk_error *err)
{
    const size_t n = (size_t)list->n_items;
    const struct state_node **items = dcpk_arena_array(arena, n, sizeof *items, err);

    if (items == NULL)
        return err->status;
    for (const struct state_node *c = list->first; c != NULL; c = c->next)
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

/* Recursion no deeper than MAX_PATH. */
static dcpk_status put_node(struct dcpk_json_out *j, const struct state_node *node,
                            struct dcpk_arena *arena, struct dcpk_error *err)
{
    if (node->kind == NODE_LEAF) {
        if (put_value(j, node->value, 1, err) != DCPK_OK)
            dcpk_context(err, "'%s'", node->key);
        return err->status;
    }
    if (node->kind == NODE_LIST)
        return put_list(j, node, arena, err);
    dcpk_json_begin_object(j);
    for (const struct state_node *c = node->first; c != NULL; c = c->next) {
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
