/* SPDX-License-Identifier: Apache-2.0 */
/* unknown.c - look through values for classes and functions that are not on a list. */
#include "lib/ckpt/unknown.h"

#include "lib/base/alloc.h"
#include "lib/ckpt/format.h"
#include "lib/ckpt/overlaps.h"

/* Values still to be looked at; a stack on the heap, because its depth follows the input. */
struct todo {
    const struct dcpk_value **values;
    size_t n, capacity;
    dcpk_status status; /* sticky */
};

static void push(struct todo *todo, const struct dcpk_value *value, struct dcpk_error *err)
{
    if (value == NULL || todo->status != DCPK_OK)
        return;
    todo->status = dcpk_grow(&todo->values, &todo->capacity, todo->n, sizeof *todo->values, err);
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

/* Look through the outline of one object, or through the common state (NULL). */
static dcpk_status check_value(struct dcpk_checkpoint *ckpt, const struct dcpk_object *object,
                               dcpk_is_known *is_known, struct dcpk_error *err)
{
    const char *what = object == NULL ? "common state" : object->key;
    struct dcpk_arena *arena = dcpk_arena_new();
    const struct dcpk_value *value = NULL;
    const char *module, *name;
    bool found = false;
    dcpk_status st;

    if (object == NULL)
        st = dcpk_checkpoint_load_common(ckpt, arena, &value, err);
    else
        st = dcpk_checkpoint_outline_item(ckpt, object, arena, &value, err);
    if (st == DCPK_OK && value != NULL)
        st = dcpk_value_find_unknown(value, is_known, &found, &module, &name, err);
    if (st == DCPK_OK && found)
        st = dcpk_fail(err, DCPK_EFORMAT,
                       "'%s.%s' is not a class or function that checkpoints hold; Python would "
                       "import it on loading",
                       module, name);
    if (st != DCPK_OK)
        dcpk_context(err, "'%s'", what);
    dcpk_arena_free(arena);
    return st;
}

dcpk_status dcpk_check_values(struct dcpk_checkpoint *ckpt, dcpk_is_known *is_known,
                              const struct dcpk_progress *progress, struct dcpk_error *err)
{
    uint64_t done_bytes = 0, total_bytes = 0;
    bool *is_alias = dcpk_alloc(ckpt->n_chunks + ckpt->n_objects, err);
    dcpk_status st;

    if (is_alias == NULL)
        return err->status;
    st = dcpk_find_aliases(ckpt, is_alias, err);
    if (st == DCPK_OK && ckpt->unknown_class != NULL)
        st = dcpk_fail(err, DCPK_EFORMAT,
                       "the metadata names '%s', which no release writes; Python would import or "
                       "call it on loading",
                       ckpt->unknown_class);
    for (size_t i = 0; i < ckpt->n_objects; i++)
        total_bytes += ckpt->objects[i].place.n_bytes;
    if (st == DCPK_OK)
        st = check_value(ckpt, NULL, is_known, err);
    for (size_t i = 0; i < ckpt->n_objects && st == DCPK_OK; i++) {
        done_bytes += ckpt->objects[i].place.n_bytes;
        if (is_alias[ckpt->n_chunks + i])
            continue;
        st = check_value(ckpt, &ckpt->objects[i], is_known, err);
        if (st == DCPK_OK && progress->update != NULL &&
            !progress->update(progress->context, done_bytes, total_bytes))
            st = dcpk_fail(err, DCPK_ECANCELLED, "stopped on request");
    }
    dcpk_free(is_alias);
    return st;
}
