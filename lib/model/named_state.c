/* SPDX-License-Identifier: Apache-2.0 */
/* named_state.c - walks the common state, or the objects that stand for it, along a dotted name. */
#include "lib/model/named_state.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/text.h"
#include "lib/ckpt/format.h"

#define MAX_PARTS                                                                                  \
    16 /* levels that objects are put together to; what is left of a key is one name */

/* True if `name` begins with the n bytes of `part` as a whole part. Then *rest is the text after it
 * and its dot. */
static bool name_take_part(const char *name, const char *part, size_t n, const char **rest)
{
    if (strncmp(name, part, n) != 0 || (name[n] != '\0' && (name[n] != '.' || name[n + 1] == '\0')))
        return false;
    *rest = name + n + (name[n] == '.');
    return true;
}

/* The pairs that names of `value` choose from; NULL: it has none. */
static const struct dcpk_value *members(const struct dcpk_value *value)
{
    const struct dcpk_value *attrs = dcpk_value_attrs(value);

    if (attrs == NULL && value->kind == DCPK_V_DICT)
        return value;
    return attrs;
}

const char *dcpk_named_state_member(const struct dcpk_value *value, size_t n)
{
    const struct dcpk_value *dict = members(value);

    if (dict == NULL || n >= dict->n)
        return NULL;
    return dcpk_value_as_str(dict->as.pairs[n].key);
}

/* The child that the longest beginning of `name` names; NULL: none. */
static const struct dcpk_value *step(const struct dcpk_value *value, const char *name,
                                     const char **rest)
{
    const struct dcpk_value *dict = members(value), *child = NULL;
    const char *behind = name;
    int64_t index;

    for (size_t i = 0; dict != NULL && i < dict->n; i++) {
        const struct dcpk_value *key = dict->as.pairs[i].key;
        const char *after;

        if (key->kind == DCPK_V_STR &&
            name_take_part(name, key->as.str, strlen(key->as.str), &after) &&
            (child == NULL || after > *rest)) {
            child = dict->as.pairs[i].value;
            *rest = after;
        }
    }
    if (child != NULL)
        return child;
    index = dcpk_take_number(&behind);
    if (index < 0 || (*behind != '\0' && *behind != '.'))
        return NULL;
    *rest = behind + (*behind == '.');
    return dict != NULL ? dcpk_value_get_int(dict, index) : dcpk_value_at(value, (size_t)index);
}

/* From `value` along the rest of the name. */
static void walk(const struct dcpk_value *value, const char *name, const char *rest,
                 struct dcpk_named_state *state)
{
    while (value != NULL && *rest != '\0') {
        const char *before = rest;

        state->parent = value;
        state->n_parent_bytes = before > name ? (size_t)(before - name) - 1 : 0;
        value = step(value, before, &rest);
    }
    state->value = value;
}

/* ---- objects that stand for the common state ---- */

/* Dots come before all other bytes, so that what is under a name is together after it. */
static int rank_of(unsigned char c)
{
    if (c == '\0')
        return 0;
    return c == '.' ? 1 : c + 1;
}

static int compare_keys(const void *left, const void *right)
{
    const struct dcpk_object *const *a = left, *const *b = right;
    const unsigned char *x = (const unsigned char *)(*a)->key;
    const unsigned char *y = (const unsigned char *)(*b)->key;

    for (; *x != '\0' && *x == *y; x++, y++)
        ;
    return rank_of(*x) - rank_of(*y);
}

/* Objects whose keys share a prefix. */
struct group {
    const struct dcpk_object *const *objects;
    size_t n, n_prefix; /* bytes of each key before the part at hand */
    int depth;
};

/* The number of objects from the first on that share its part at hand; *n_part: its bytes. 1 and
 * the whole rest where a key ends here or the levels are used up. */
static size_t run_of(const struct group *g, size_t first, size_t *n_part)
{
    const char *part = g->objects[first]->key + g->n_prefix, *rest;
    size_t n = 1;

    *n_part = strcspn(part, ".");
    if (part[*n_part] == '\0' || g->depth == MAX_PARTS ||
        (first > 0 && strlen(g->objects[first - 1]->key) == g->n_prefix + *n_part &&
         name_take_part(part, g->objects[first - 1]->key + g->n_prefix, *n_part, &rest))) {
        *n_part = strlen(part);
        return 1;
    }
    while (first + n < g->n &&
           name_take_part(g->objects[first + n]->key + g->n_prefix, part, *n_part, &rest))
        n++;
    return n;
}

static dcpk_status group_gather(struct dcpk_checkpoint *ckpt, const struct group *g,
                                struct dcpk_arena *arena, const struct dcpk_value **value,
                                struct dcpk_error *err);

static dcpk_status group_gather_part(struct dcpk_checkpoint *ckpt, const struct group *g,
                                     size_t n_part, struct dcpk_arena *arena,
                                     struct dcpk_dict *dict, struct dcpk_error *err)
{
    const char *part = g->objects[0]->key + g->n_prefix;
    const struct group inner = {g->objects, g->n, g->n_prefix + n_part + 1, g->depth + 1};
    char *name = dcpk_arena_strndup(arena, part, n_part, err);
    const struct dcpk_value *value;
    dcpk_status st;

    if (name == NULL)
        return err->status;
    if (part[n_part] == '\0')
        st = dcpk_checkpoint_show_object(ckpt, g->objects[0], arena, &value, err);
    else
        st = group_gather(ckpt, &inner, arena, &value, err);
    if (st == DCPK_OK)
        dcpk_dict_put(dict, name, value);
    return st;
}

/* The dict of a group: bounded in depth by MAX_PARTS. */
static dcpk_status group_gather(struct dcpk_checkpoint *ckpt, const struct group *g,
                                struct dcpk_arena *arena, const struct dcpk_value **value,
                                struct dcpk_error *err)
{
    struct dcpk_dict made = {.arena = arena, .err = err};

    for (size_t i = 0; i < g->n;) {
        size_t n_part;
        const size_t n = run_of(g, i, &n_part);
        const struct group part = {g->objects + i, n, g->n_prefix, g->depth};

        if (group_gather_part(ckpt, &part, n_part, arena, &made, err) != DCPK_OK)
            return err->status;
        i += n;
    }
    *value = dcpk_dict_end(&made);
    return dcpk_made(*value, err);
}

static dcpk_status sort_objects(struct dcpk_checkpoint *ckpt, const struct dcpk_object ***sorted,
                                struct dcpk_error *err)
{
    *sorted = dcpk_alloc_array(ckpt->n_objects, sizeof **sorted, err);
    if (*sorted == NULL)
        return err->status;
    for (size_t i = 0; i < ckpt->n_objects; i++)
        (*sorted)[i] = &ckpt->objects[i];
    qsort(*sorted, ckpt->n_objects, sizeof **sorted, compare_keys);
    return DCPK_OK;
}

/* The objects under `name`, "" for all, as a dict. */
static dcpk_status find_under(struct dcpk_checkpoint *ckpt, const char *name,
                              struct dcpk_arena *arena, struct dcpk_named_state *state,
                              struct dcpk_error *err)
{
    const size_t n_name = strlen(name);
    const struct dcpk_object **sorted;
    struct group group = {.n_prefix = n_name + (n_name > 0)};
    dcpk_status st = sort_objects(ckpt, &sorted, err);

    if (st != DCPK_OK)
        return st;
    for (size_t i = 0; i < ckpt->n_objects; i++) {
        const char *key = sorted[i]->key;

        if (n_name > 0 && (strncmp(key, name, n_name) != 0 || key[n_name] != '.'))
            continue;
        if (group.n++ == 0)
            group.objects = &sorted[i];
    }
    if (group.n > 0)
        st = group_gather(ckpt, &group, arena, &state->value, err);
    dcpk_free(sorted);
    return st;
}

/* The object whose key is the longest beginning of `name`, and what is in it; else what is under
 * the name. */
static dcpk_status find_object(struct dcpk_checkpoint *ckpt, const char *name,
                               struct dcpk_arena *arena, struct dcpk_named_state *state,
                               struct dcpk_error *err)
{
    const struct dcpk_object *best = NULL;
    const struct dcpk_value *value;
    const char *rest = name, *after;

    for (size_t i = 0; i < ckpt->n_objects; i++)
        if (name_take_part(name, ckpt->objects[i].key, strlen(ckpt->objects[i].key), &after) &&
            (best == NULL || after > rest)) {
            best = &ckpt->objects[i];
            rest = after;
        }
    if (best == NULL)
        return find_under(ckpt, name, arena, state, err);
    if (dcpk_checkpoint_show_object(ckpt, best, arena, &value, err) != DCPK_OK)
        return err->status;
    walk(value, name, rest, state);
    return DCPK_OK;
}

/* ---- public functions ---- */

dcpk_status dcpk_named_state_find(struct dcpk_checkpoint *ckpt, const char *name,
                                  struct dcpk_arena *arena, struct dcpk_named_state *state,
                                  struct dcpk_error *err)
{
    const struct dcpk_value *common = NULL;
    const char *rest = name;

    memset(state, 0, sizeof *state);
    if (*name == '\0')
        return DCPK_OK;
    (void)name_take_part(name, DCPK_COMMON_NAME, strlen(DCPK_COMMON_NAME), &rest);
    if (ckpt->format->load_common == NULL)
        return find_object(ckpt, rest, arena, state, err);
    if (dcpk_checkpoint_load_common(ckpt, arena, &common, err) != DCPK_OK)
        return err->status;
    if (common != NULL)
        walk(common, name, rest, state);
    return DCPK_OK;
}

static dcpk_status list_members(const struct dcpk_value *dict, struct dcpk_arena *arena,
                                const char *const **names, struct dcpk_error *err)
{
    const size_t n_members = dict == NULL ? 0 : dict->n;
    const char **list = dcpk_arena_array(arena, n_members + 1, sizeof *list, err);
    size_t n = 0;

    if (list == NULL)
        return err->status;
    for (size_t i = 0; i < n_members; i++)
        if (dcpk_named_state_member(dict, i) != NULL)
            list[n++] = dcpk_named_state_member(dict, i);
    *names = list;
    return DCPK_OK;
}

static dcpk_status list_objects(struct dcpk_checkpoint *ckpt, struct dcpk_arena *arena,
                                const char *const **names, struct dcpk_error *err)
{
    const char **list = dcpk_arena_array(arena, ckpt->n_objects + 1, sizeof *list, err);
    const struct dcpk_object **sorted;
    size_t n = 0;

    if (list == NULL || sort_objects(ckpt, &sorted, err) != DCPK_OK)
        return err->status;
    for (size_t i = 0; i < ckpt->n_objects; i++) {
        const char *key = sorted[i]->key;
        const size_t n_part = strcspn(key, ".");

        if (n > 0 && strlen(list[n - 1]) == n_part && strncmp(list[n - 1], key, n_part) == 0)
            continue;
        list[n] = dcpk_arena_strndup(arena, key, n_part, err);
        if (list[n++] == NULL)
            break;
    }
    dcpk_free(sorted);
    *names = list;
    return err->status;
}

dcpk_status dcpk_named_state_list(struct dcpk_checkpoint *ckpt, struct dcpk_arena *arena,
                                  const char *const **names, struct dcpk_error *err)
{
    const struct dcpk_value *common = NULL;

    if (ckpt->format->load_common == NULL)
        return list_objects(ckpt, arena, names, err);
    if (dcpk_checkpoint_load_common(ckpt, arena, &common, err) != DCPK_OK)
        return err->status;
    return list_members(common, arena, names, err);
}

/* ---- the run that wrote a checkpoint ---- */

/* Nothing is known of the keys of a plain container. */
static const char *optimizer_layout(const struct dcpk_checkpoint *ckpt,
                                    const struct dcpk_value *common)
{
    const struct dcpk_format_mapping *mapping = ckpt->format->mapping;

    if (mapping == NULL || mapping->optimizer_layout == NULL)
        return "unknown";
    return mapping->optimizer_layout(ckpt, common);
}

/* The value of an object item, NULL when there is none or it cannot be read (then a note holds
 * why). */
static const struct dcpk_value *load_item(struct dcpk_checkpoint *ckpt, const char *key,
                                          struct dcpk_arena *arena)
{
    const struct dcpk_object *object = dcpk_checkpoint_object(ckpt, key);
    const struct dcpk_value *value = NULL;
    struct dcpk_error err = DCPK_ERROR_INIT;

    if (object == NULL)
        return NULL;
    if (dcpk_checkpoint_load_item(ckpt, object, arena, &value, &err) != DCPK_OK) {
        dcpk_checkpoint_note(ckpt, "'%s' cannot be read: %s", key, err.text);
        return NULL;
    }
    return value;
}

static const struct dcpk_value *load_common(struct dcpk_checkpoint *ckpt, struct dcpk_arena *arena)
{
    const struct dcpk_value *value = NULL;
    struct dcpk_error err = DCPK_ERROR_INIT;

    if (dcpk_checkpoint_load_common(ckpt, arena, &value, &err) != DCPK_OK) {
        dcpk_checkpoint_note(ckpt, "the common state cannot be read: %s", err.text);
        return NULL;
    }
    return value;
}

/* A checkpoint that cannot be read has been noted, and has no names. */
static const char *const *list_names(struct dcpk_checkpoint *ckpt, struct dcpk_arena *arena)
{
    static const char *const none[] = {NULL};
    struct dcpk_error ignored = DCPK_ERROR_INIT;
    const char *const *names;

    if (dcpk_named_state_list(ckpt, arena, &names, &ignored) != DCPK_OK)
        return none;
    return names;
}

void dcpk_run_state_load(struct dcpk_checkpoint *ckpt, struct dcpk_arena *arena,
                         struct dcpk_run_state *state)
{
    const struct dcpk_value *common = load_common(ckpt, arena);
    const struct dcpk_value *args;

    memset(state, 0, sizeof *state);
    args = dcpk_value_get(common, "args");
    state->iteration = dcpk_value_get(common, "iteration");
    state->version = dcpk_value_get(common, "checkpoint_version");
    if (common == NULL) {
        args = load_item(ckpt, "args", arena);
        state->iteration = load_item(ckpt, "iteration", arena);
        state->version = load_item(ckpt, "checkpoint_version", arena);
    }
    state->args = args = dcpk_value_attrs(args);
    dcpk_layout_read(args, &state->layout);
    state->optimizer_layout = optimizer_layout(ckpt, common);
    state->names = list_names(ckpt, arena);
}
