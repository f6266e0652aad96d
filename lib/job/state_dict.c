/* SPDX-License-Identifier: Apache-2.0 */
/* state_dict.c - the content of a DCP folder as the nested dict that torch rebuilds. */
#include "lib/job/state_dict_priv.h"

#include <inttypes.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/base/map.h"
#include "lib/ckpt/format.h"

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
    struct dcpk_state_node *root;
    struct dcpk_map nodes, paths; /* -> struct dcpk_state_node *; -> const struct dcpk_value * */
    struct dcpk_map places;       /* -> struct loaded * */
    int64_t max_items;            /* of a list */
    uint64_t stored_bytes;        /* bytes read, each byte once */
    uint64_t unfolded;            /* written form of the dict: values, names and holes of lists */
    struct dcpk_bytes name; /* scratch: the address of a node, a byte of type, the name in it */
};

static void node_init(struct dcpk_state_node *node, enum dcpk_node_kind kind)
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
    if (path->n > DCPK_MAX_PATH)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "its path has %zu parts, at most %d are read",
                         path->n, DCPK_MAX_PATH);
    for (size_t i = 0; i < path->n; i++)
        if (check_part(b, path->as.items[i], i, err) != DCPK_OK)
            return err->status;
    return DCPK_OK;
}

/* The child of `parent` that `part` names, in the scratch. */
static dcpk_status name_child(struct builder *b, const struct dcpk_state_node *parent,
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

static dcpk_status make_child(struct builder *b, struct dcpk_state_node *parent,
                              const struct dcpk_value *part, struct dcpk_state_node **child,
                              struct dcpk_error *err)
{
    struct dcpk_state_node *node = dcpk_arena_alloc(b->arena, sizeof *node, err);
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
static dcpk_status find_child(struct builder *b, struct dcpk_state_node *parent,
                              const struct dcpk_value *part, enum dcpk_node_kind kind,
                              struct dcpk_state_node **child, struct dcpk_error *err)
{
    const bool is_index = part->kind == DCPK_V_INT;
    uint64_t found;

    if (parent->kind != (is_index ? DCPK_NODE_LIST : DCPK_NODE_DICT))
        return dcpk_fail(err, DCPK_EFORMAT, "its path needs a %s where another key's path has none",
                         is_index ? "list" : "dict");
    if (name_child(b, parent, part, err) != DCPK_OK)
        return err->status;
    if (dcpk_map_get(&b->nodes, (const char *)b->name.data, b->name.n_bytes, &found)) {
        *child = (struct dcpk_state_node *)(uintptr_t)found;
        return DCPK_OK;
    }
    if (make_child(b, parent, part, child, err) != DCPK_OK)
        return err->status;
    node_init(*child, kind);
    return DCPK_OK;
}

/* The kind of node after part i of a path: a list where the next part is an index. */
static enum dcpk_node_kind kind_at(const struct dcpk_value *path, size_t i)
{
    if (i + 1 == path->n)
        return DCPK_NODE_LEAF;
    return path->as.items[i + 1]->kind == DCPK_V_INT ? DCPK_NODE_LIST : DCPK_NODE_DICT;
}

/* set_element of torch: containers on the way are made. */
static dcpk_status set_element(struct builder *b, const struct dcpk_value *path, const char *key,
                               const struct dcpk_value *value, struct dcpk_error *err)
{
    struct dcpk_state_node *node = b->root;

    if (check_path(b, path, err) != DCPK_OK)
        return err->status;
    for (size_t i = 0; i < path->n; i++)
        if (find_child(b, node, path->as.items[i], kind_at(path, i), &node, err) != DCPK_OK)
            return err->status;
    if (node->kind != DCPK_NODE_LEAF || node->key != NULL)
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
    node_init(&d->root, DCPK_NODE_DICT);
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
