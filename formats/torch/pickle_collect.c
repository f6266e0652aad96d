/* SPDX-License-Identifier: Apache-2.0 */
/* pickle_collect.c - forget the values of a pickle that nothing refers to any more. */
#include <string.h>

#include "formats/torch/pickle_priv.h"
#include "lib/base/alloc.h"

#define KEPT_COLLECTIONS 4 /* memory of so many waits for the next ones */

/*
 * A copying collector: what the stack and the memo lead to is moved into a fresh arena, the old one
 * is cleared whole. A moved node leaves its new address in its place, so that sharing (and cycles)
 * survive. Names stay where they are, because objects point into them, and so do texts of the memo
 * until the last move. No recursion; the cost is that of what stays.
 */
#define MOVED ((enum dcpk_value_kind)255) /* as.items: the new place; in no finished value */

struct moving {
    struct dcpk_arena *to;
    bool is_last;             /* kept texts are moved, too: their nodes alone */
    struct dcpk_value **open; /* moved, their children not yet */
    size_t n_open, capacity;
};

/* Bytes of a node with what stands right after it. */
static size_t node_bytes(const struct dcpk_value *v)
{
    switch (v->kind) {
    case DCPK_V_STR:
        return sizeof(struct dcpk_text_node) +
               (((const struct dcpk_text_node *)v)->is_kept ? 0 : v->n + 1);
    case DCPK_V_BYTES:
    case DCPK_V_BIGINT:
        return sizeof *v + v->n + 1;
    case DCPK_V_TUPLE:
        return sizeof(struct dcpk_node) + v->n * sizeof *v->as.items;
    case DCPK_V_LIST:
    case DCPK_V_SET:
    case DCPK_V_DICT:
        return sizeof(struct dcpk_growing_node);
    case DCPK_V_NONE:
    case DCPK_V_BOOL:
    case DCPK_V_INT:
    case DCPK_V_FLOAT:
    case DCPK_V_TENSOR:
    case DCPK_V_GLOBAL:
    case DCPK_V_OBJECT:
        break;
    }
    return sizeof *v;
}

/* An OBJECT; a dict that became one has its content in another node. */
static struct dcpk_value *move_object(struct moving *m, struct dcpk_value *v,
                                      struct dcpk_error *err)
{
    struct dcpk_object_node *copy = dcpk_arena_alloc(m->to, sizeof *copy, err);

    if (copy == NULL)
        return NULL;
    copy->node = *dcpk_node_of(v);
    copy->content = *dcpk_node_object(v);
    copy->node.v.as.object = &copy->content.object;
    return &copy->node.v;
}

static struct dcpk_value *move_node(struct moving *m, struct dcpk_value *v, struct dcpk_error *err)
{
    const size_t n_bytes = node_bytes(v);
    struct dcpk_value *copy;

    if (v->kind == DCPK_V_OBJECT)
        return move_object(m, v, err);
    copy = dcpk_arena_copy(m->to, v, 1, n_bytes, err);
    if (copy == NULL)
        return NULL;
    if ((v->kind == DCPK_V_STR && !((const struct dcpk_text_node *)v)->is_kept) ||
        v->kind == DCPK_V_BYTES || v->kind == DCPK_V_BIGINT)
        copy->as.str = (char *)copy + (n_bytes - v->n - 1);
    if (v->kind == DCPK_V_TUPLE)
        copy->as.items =
            (const struct dcpk_value *const *)(const void *)((struct dcpk_node *)copy + 1);
    return copy;
}

/* Let *slot point at the node's new place. */
static dcpk_status move(struct moving *m, const struct dcpk_value **slot, struct dcpk_error *err)
{
    struct dcpk_value *v = dcpk_node_mutable(*slot), *copy;

    if (v == NULL || (dcpk_node_is_fixed(v) && !(m->is_last && v->kind == DCPK_V_STR)))
        return DCPK_OK;
    if (v->kind != MOVED) {
        copy = move_node(m, v, err);
        if (copy == NULL ||
            dcpk_grow(&m->open, &m->capacity, m->n_open, sizeof *m->open, err) != DCPK_OK)
            return err->status;
        if (dcpk_value_is_container(copy))
            m->open[m->n_open++] = copy;
        v->kind = MOVED;
        v->as.items = (const struct dcpk_value *const *)(const void *)copy;
    }
    *slot = (const struct dcpk_value *)(const void *)v->as.items;
    return DCPK_OK;
}

static dcpk_status move_items(struct moving *m, const struct dcpk_value **items, size_t n,
                              struct dcpk_error *err)
{
    for (size_t i = 0; i < n; i++)
        if (move(m, &items[i], err))
            return err->status;
    return DCPK_OK;
}

/* A copy of n pointers at *array, moved; *array points there then. */
static dcpk_status move_array(struct moving *m, const void **array, size_t n,
                              struct dcpk_error *err)
{
    const struct dcpk_value **copy;

    if (n == 0) {
        *array = NULL;
        return DCPK_OK;
    }
    copy = dcpk_arena_copy(m->to, *array, n, sizeof *copy, err);
    if (copy == NULL)
        return err->status;
    *array = copy;
    return move_items(m, copy, n, err);
}

static dcpk_status move_content(struct moving *m, struct dcpk_growing_object *content,
                                struct dcpk_error *err)
{
    struct dcpk_value_object *o = &content->object;
    const void *items = o->items, *pairs = o->pairs;

    if (move(m, &o->args, err) || move(m, &o->state, err) ||
        move_array(m, &items, o->n_items, err) || move_array(m, &pairs, 2 * o->n_pairs, err))
        return err->status;
    o->items = items;
    o->pairs = pairs;
    content->item_capacity = (uint32_t)o->n_items;
    content->pair_capacity = (uint32_t)o->n_pairs;
    return DCPK_OK;
}

/* The children of a moved container. */
static dcpk_status move_children(struct moving *m, struct dcpk_value *v, struct dcpk_error *err)
{
    struct dcpk_growing_node *node = (struct dcpk_growing_node *)v;
    const void *array = v->as.items;

    if (v->kind == DCPK_V_OBJECT)
        return move_content(m, dcpk_node_object(v), err);
    if (v->kind == DCPK_V_TUPLE)
        return move_items(m, (const struct dcpk_value **)(uintptr_t)v->as.items, v->n, err);
    if (move_array(m, &array, v->kind == DCPK_V_DICT ? 2 * v->n : v->n, err))
        return err->status;
    v->as.items = array;
    if (node->capacity != DCPK_NODE_FIXED)
        node->capacity = v->n;
    return DCPK_OK;
}

static dcpk_status move_all(struct moving *m, const struct dcpk_roots *roots,
                            struct dcpk_error *err)
{
    for (size_t i = 0; i < roots->n; i++) {
        struct dcpk_value **value = &roots->values[roots->which == NULL ? i : roots->which[i]];
        const struct dcpk_value *root = *value;

        if (move(m, &root, err))
            return err->status;
        *value = dcpk_node_mutable(root);
    }
    while (m->n_open > 0)
        if (move_children(m, m->open[--m->n_open], err))
            return err->status;
    return DCPK_OK;
}

static dcpk_status move_roots(struct dcpk_builder *b, struct moving *m,
                              const struct dcpk_roots *roots, size_t n_roots,
                              struct dcpk_error *err)
{
    b->none = b->no = b->yes = b->empty_tuple = NULL;
    memset(b->recent_ints, 0, sizeof b->recent_ints);
    for (size_t i = 0; i < n_roots && err->status == DCPK_OK; i++)
        (void)move_all(m, &roots[i], err);
    dcpk_free(m->open);
    return err->status;
}

dcpk_status dcpk_builder_move(struct dcpk_builder *b, struct dcpk_arena *to,
                              const struct dcpk_roots *roots, size_t n_roots,
                              struct dcpk_error *err)
{
    struct moving m = {.to = to, .is_last = true};

    return move_roots(b, &m, roots, n_roots, err);
}

dcpk_status dcpk_builder_collect(struct dcpk_builder *b, const struct dcpk_roots *roots,
                                 size_t n_roots, struct dcpk_error *err)
{
    struct dcpk_arena *old = b->arena;
    struct moving m = {.to = b->next_arena};
    uint64_t n_slots = 0;

    if (move_roots(b, &m, roots, n_roots, err) != DCPK_OK)
        return err->status;
    b->arena = b->next_arena;
    b->next_arena = old;
    b->n_collections++;
    dcpk_arena_clear(old, KEPT_COLLECTIONS * (size_t)b->collect_bytes);
    /* as much again as was looked at now, so that the work stays linear in what is allocated */
    for (size_t i = 0; i < n_roots; i++)
        n_slots += roots[i].n;
    b->collect_at_bytes =
        2 * (dcpk_arena_used_bytes(b->arena) + n_slots * sizeof(void *)) + b->collect_bytes;
    return DCPK_OK;
}
