/* SPDX-License-Identifier: Apache-2.0 */
/* state_dict.c - the content of a DCP folder as the nested dict that torch rebuilds. */
#include "tools/state_dict_priv.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/torch/pickle.h"
#include "lib/base/alloc.h"
#include "lib/base/bytes.h"
#include "lib/ckpt/format.h"

#define MAX_LIST_GAP       1024
#define MAX_METADATA_BYTES (UINT64_C(1) << 30)

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
    struct dcpk_map nodes, paths; /* -> struct dcpk_state_node *; -> pair of planner_data */
    struct dcpk_map places;       /* -> struct loaded * */
    const struct dcpk_value *planner_data;
    int64_t max_items;      /* of a list */
    uint64_t stored_bytes;  /* of what was read, each byte once */
    uint64_t unfolded;      /* what the dict is written as: values, names and holes of lists */
    struct dcpk_bytes name; /* scratch: the address of a node, a byte of type, the name in it */
};

static void node_init(struct dcpk_state_node *node, enum dcpk_node_kind kind)
{
    node->kind = kind;
    node->first = NULL;
    node->end = &node->first;
}

/* planner_data of .metadata, the one part of it that the core does not keep: it is no matter of
 * conversions. */
static dcpk_status read_planner_data(struct dcpk_checkpoint *ckpt, struct builder *b,
                                     struct dcpk_error *err)
{
    const struct dcpk_pickle_options options = {0};
    const struct dcpk_value *root;
    struct dcpk_source *source;
    uint64_t found;
    bool existed;
    char *data;
    size_t n;
    dcpk_status st = dcpk_store_find(ckpt->store, ".metadata", &source, err);

    if (st == DCPK_OK)
        st = dcpk_source_slurp(source, MAX_METADATA_BYTES, &data, &n, err);
    if (st != DCPK_OK)
        return st;
    b->stored_bytes += n;
    st = dcpk_pickle_read(data, n, &options, b->arena, &root, err);
    dcpk_free(data);
    if (st != DCPK_OK)
        return st;
    b->planner_data = dcpk_value_get(dcpk_value_attrs(root), "planner_data");
    if (b->planner_data == NULL || b->planner_data->kind != DCPK_V_DICT)
        return DCPK_OK;
    for (size_t i = 0; i < b->planner_data->n && st == DCPK_OK; i++) {
        const struct dcpk_value *key = b->planner_data->as.pairs[i].key;

        if (key->kind == DCPK_V_STR)
            st = dcpk_map_put(&b->paths, key->as.str, key->n, i, &existed, &found, err);
    }
    return st;
}

/* The path of a flat key: a TUPLE of str and int; NULL: the key itself. */
static const struct dcpk_value *path_of(const struct builder *b, const char *key)
{
    uint64_t i;

    if (!dcpk_map_get(&b->paths, key, strlen(key), &i))
        return NULL;
    return b->planner_data->as.pairs[i].value;
}

static dcpk_status check_path(const struct builder *b, const struct dcpk_value *path,
                              struct dcpk_error *err)
{
    if (path->kind != DCPK_V_TUPLE || path->n == 0)
        return dcpk_fail(err, DCPK_EFORMAT, "its planner_data is no path");
    if (path->n > DCPK_MAX_PATH)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "its path has %zu parts, at most %d are read",
                         path->n, DCPK_MAX_PATH);
    for (size_t i = 0; i < path->n; i++) {
        const struct dcpk_value *part = path->as.items[i];
        const bool is_index = part->kind == DCPK_V_INT && i > 0;

        if (part->kind != DCPK_V_STR && !is_index)
            return dcpk_fail(err, DCPK_EFORMAT,
                             "part %zu of its path is neither a name nor an index", i);
        if (is_index && (part->as.i < 0 || part->as.i >= b->max_items))
            return dcpk_fail(err, DCPK_EUNSUPPORTED,
                             "index %" PRId64 " of its path is not in [0, %" PRId64 ")", part->as.i,
                             b->max_items);
        if (part->kind == DCPK_V_STR && strlen(part->as.str) != part->n)
            return dcpk_fail(err, DCPK_EUNSUPPORTED, "a name in its path holds a NUL");
    }
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
static dcpk_status step(struct builder *b, struct dcpk_state_node *parent,
                        const struct dcpk_value *part, enum dcpk_node_kind kind,
                        struct dcpk_state_node **child, struct dcpk_error *err)
{
    const bool is_index = part->kind == DCPK_V_INT;
    uint64_t found;
    dcpk_status st;

    if (parent->kind != (is_index ? DCPK_NODE_LIST : DCPK_NODE_DICT))
        return dcpk_fail(err, DCPK_EFORMAT, "its path takes a %s where another key's has none",
                         is_index ? "list" : "dict");
    st = name_child(b, parent, part, err);
    if (st != DCPK_OK)
        return st;
    if (dcpk_map_get(&b->nodes, (const char *)b->name.data, b->name.n_bytes, &found)) {
        *child = (struct dcpk_state_node *)(uintptr_t)found;
        return DCPK_OK;
    }
    st = make_child(b, parent, part, child, err);
    if (st == DCPK_OK)
        node_init(*child, kind);
    return st;
}

/* set_element of torch: containers on the way are made, a list where the next part is an index. */
static dcpk_status set_element(struct builder *b, const struct dcpk_value *path, const char *key,
                               const struct dcpk_value *value, struct dcpk_error *err)
{
    struct dcpk_state_node *node = b->root;
    dcpk_status st = check_path(b, path, err);

    for (size_t i = 0; i < path->n && st == DCPK_OK; i++) {
        const bool is_last = i + 1 == path->n;
        const enum dcpk_node_kind kind = is_last ? DCPK_NODE_LEAF
                                         : path->as.items[i + 1]->kind == DCPK_V_INT
                                             ? DCPK_NODE_LIST
                                             : DCPK_NODE_DICT;

        st = step(b, node, path->as.items[i], kind, &node, err);
    }
    if (st != DCPK_OK)
        return st;
    if (node->kind != DCPK_NODE_LEAF || node->key != NULL)
        return dcpk_fail(err, DCPK_EFORMAT, "its path is another key's, too");
    node->key = key;
    node->value = value;
    return DCPK_OK;
}

/* Keys that share an item share its value. */
static dcpk_status load_value(struct dcpk_checkpoint *ckpt, const struct dcpk_object *object,
                              struct builder *b, const struct dcpk_value **value,
                              struct dcpk_error *err)
{
    const uint64_t key[] = {object->place.file, object->place.offset_bytes, object->place.n_bytes};
    uint64_t *own, found;
    struct loaded *loaded;
    bool existed;

    if (dcpk_map_get(&b->places, (const char *)key, sizeof key, &found)) {
        loaded = (struct loaded *)(uintptr_t)found;
        *value = loaded->value;
        b->unfolded += loaded->unfolded;
        return DCPK_OK;
    }
    own = dcpk_arena_alloc(b->arena, sizeof key, err);
    loaded = own == NULL ? NULL : dcpk_arena_alloc(b->arena, sizeof *loaded, err);
    if (loaded == NULL ||
        dcpk_checkpoint_load_object(ckpt, object, b->arena, &loaded->value, err) != DCPK_OK)
        return err->status;
    memcpy(own, key, sizeof key);
    *value = loaded->value;
    loaded->unfolded = dcpk_value_unfolded(loaded->value);
    b->unfolded += loaded->unfolded;
    b->stored_bytes += object->place.n_bytes;
    return dcpk_map_put(&b->places, (const char *)own, sizeof key, (uintptr_t)loaded, &existed,
                        &found, err);
}

static dcpk_status add_object(struct dcpk_checkpoint *ckpt, const struct dcpk_object *object,
                              struct builder *b, struct dcpk_error *err)
{
    const struct dcpk_value *value, *path = path_of(b, object->key);
    dcpk_status st = load_value(ckpt, object, b, &value, err);

    if (st == DCPK_OK && path == NULL) {
        const struct dcpk_value *part = dcpk_value_str(b->arena, object->key, err);

        if (part != NULL)
            path = dcpk_value_seq(b->arena, DCPK_V_TUPLE, &part, 1, err);
        if (path == NULL)
            st = err->status;
    }
    if (st == DCPK_OK)
        st = set_element(b, path, object->key, value, err);
    if (st != DCPK_OK)
        dcpk_context(err, "'%s'", object->key);
    return st;
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

dcpk_status dcpk_state_dict_load(struct dcpk_checkpoint *ckpt, struct dcpk_arena *arena,
                                 struct dcpk_state_dict **dict, struct dcpk_error *err)
{
    struct dcpk_state_dict *d = dcpk_arena_alloc(arena, sizeof *d, err);
    struct builder b = {.arena = arena};
    dcpk_status st;

    if (d == NULL)
        return err->status;
    if (ckpt->n_tensors > 0)
        return dcpk_fail(
            err, DCPK_EUNSUPPORTED,
            "'%s' is a tensor, which JSON cannot hold (Python: Object of type Tensor is "
            "not JSON serializable); this command is for folders of objects alone, "
            "such as --dump-param-to-param-group-map writes",
            ckpt->tensors[0].key);
    d->arena = arena;
    node_init(&d->root, DCPK_NODE_DICT);
    b.root = &d->root;
    b.max_items = (int64_t)ckpt->n_objects + MAX_LIST_GAP;
    st = read_planner_data(ckpt, &b, err);
    for (size_t i = 0; i < ckpt->n_objects && st == DCPK_OK; i++)
        st = add_object(ckpt, &ckpt->objects[i], &b, err);
    if (st == DCPK_OK)
        st = check_unfolded(&b, err);
    dcpk_map_release(&b.nodes);
    dcpk_map_release(&b.paths);
    dcpk_map_release(&b.places);
    dcpk_bytes_release(&b.name);
    if (st == DCPK_OK)
        *dict = d;
    return st;
}
