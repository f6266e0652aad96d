/* SPDX-License-Identifier: Apache-2.0 */
/* unknown.c - look through a value for classes and functions that nobody vouches for. */
#include "lib/base/alloc.h"
#include "lib/ckpt/summary.h"

#define MAX_NODES 10000000

/* Values still to be looked at; a stack on the heap, because its depth follows the input. */
struct todo {
    const struct dcpk_value **values;
    size_t n, capacity;
    uint64_t n_pushed;
    dcpk_status status; /* sticky */
};

static void push(struct todo *todo, const struct dcpk_value *value, struct dcpk_error *err)
{
    if (value == NULL || todo->status != DCPK_OK)
        return;
    if (++todo->n_pushed > MAX_NODES)
        todo->status = dcpk_fail(err, DCPK_ERANGE, "the value has more than %d nodes", MAX_NODES);
    else
        todo->status =
            dcpk_grow(&todo->values, &todo->capacity, todo->n, sizeof *todo->values, err);
    if (todo->status == DCPK_OK)
        todo->values[todo->n++] = value;
}

/* The last pushed is looked at first, so go backwards. */
static void push_items(struct todo *todo, const struct dcpk_value *const *items, size_t n,
                       struct dcpk_error *err)
{
    while (n > 0)
        push(todo, items[--n], err);
}

static void push_pairs(struct todo *todo, const struct dcpk_value_pair *pairs, size_t n,
                       struct dcpk_error *err)
{
    while (n > 0) {
        n--;
        push(todo, pairs[n].value, err);
        push(todo, pairs[n].key, err);
    }
}

static void push_children(struct todo *todo, const struct dcpk_value *v, struct dcpk_error *err)
{
    if (v->kind == DCPK_V_TUPLE || v->kind == DCPK_V_LIST || v->kind == DCPK_V_SET) {
        push_items(todo, v->as.items, v->n, err);
    } else if (v->kind == DCPK_V_DICT) {
        push_pairs(todo, v->as.pairs, v->n, err);
    } else if (v->kind == DCPK_V_OBJECT) {
        push_pairs(todo, v->as.object->pairs, v->as.object->n_pairs, err);
        push_items(todo, v->as.object->items, v->as.object->n_items, err);
        push(todo, v->as.object->state, err);
        push(todo, v->as.object->args, err);
    }
}

dcpk_status dcpk_value_find_unknown(const struct dcpk_value *value, dcpk_is_known *is_known,
                                    bool *found, const char **module, const char **name,
                                    struct dcpk_error *err)
{
    struct todo todo = {0};

    *found = false;
    push(&todo, value, err);
    while (todo.n > 0 && todo.status == DCPK_OK && !*found) {
        const struct dcpk_value *v = todo.values[--todo.n];

        if (v->kind == DCPK_V_OBJECT && !v->as.object->is_known) {
            *module = v->as.object->module;
            *name = v->as.object->name;
            *found = true;
        } else if (v->kind == DCPK_V_GLOBAL && !is_known(v->as.global.module, v->as.global.name)) {
            *module = v->as.global.module;
            *name = v->as.global.name;
            *found = true;
        } else {
            push_children(&todo, v, err);
        }
    }
    dcpk_free(todo.values);
    return todo.status;
}
