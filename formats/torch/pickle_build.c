/* SPDX-License-Identifier: Apache-2.0 */
/* pickle_build.c - leaves and containers of the value that a pickle describes. */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "formats/torch/pickle_priv.h"
#include "lib/base/alloc.h"
#include "lib/base/json.h"
#include "lib/base/map.h"
#include "lib/base/order.h"

const char *dcpk_builder_kind_name(enum dcpk_value_kind kind)
{
    static const char *const names[] = {
        [DCPK_V_NONE] = "None",   [DCPK_V_BOOL] = "bool",     [DCPK_V_INT] = "int",
        [DCPK_V_BIGINT] = "int",  [DCPK_V_FLOAT] = "float",   [DCPK_V_STR] = "str",
        [DCPK_V_BYTES] = "bytes", [DCPK_V_TUPLE] = "tuple",   [DCPK_V_LIST] = "list",
        [DCPK_V_SET] = "set",     [DCPK_V_DICT] = "dict",     [DCPK_V_TENSOR] = "tensor",
        [DCPK_V_GLOBAL] = "name", [DCPK_V_OBJECT] = "object",
    };

    return names[kind];
}

/* Small enough to stay in a cache and for attack_pickle's bound on memory (72 MiB), large enough
 * that looking at the roots costs little. */
#define COLLECT_BYTES ((uint64_t)896 << 10)

void dcpk_builder_init(struct dcpk_builder *b, struct dcpk_arena *arena,
                       const struct dcpk_pickle_options *options, size_t n_bytes)
{
    const struct dcpk_pickle_limits *limits = &options->limits;

    assert(options->consumer == NULL || options->persistent == NULL);
    memset(b, 0, sizeof *b);
    b->names = arena;
    b->arena = arena;
    if (options->consumer != NULL) {
        b->collect_bytes = limits->collect_bytes == 0 ? COLLECT_BYTES : limits->collect_bytes;
        b->collect_at_bytes = b->collect_bytes;
        b->arena = dcpk_arena_new();
        b->next_arena = dcpk_arena_new();
        b->texts = dcpk_arena_new();
    }
    b->base_bytes = options->base_bytes;
    b->max_nodes = limits->max_nodes == 0 ? 64 * (uint64_t)n_bytes + 1024 : limits->max_nodes;
    b->max_depth = limits->max_depth == 0 ? 200 : limits->max_depth;
    if (b->max_depth > DCPK_PICKLE_MAX_DEPTH)
        b->max_depth = DCPK_PICKLE_MAX_DEPTH;
    b->max_unfolded = dcpk_unfold_limit(n_bytes);
}

void dcpk_builder_release(struct dcpk_builder *b)
{
    if (b->arena != b->names)
        dcpk_arena_free(b->arena);
    dcpk_arena_free(b->next_arena);
    dcpk_arena_free(b->texts);
    dcpk_free(b->frames);
}

void *dcpk_builder_make(struct dcpk_builder *b, enum dcpk_value_kind kind, size_t n_bytes,
                        struct dcpk_error *err)
{
    struct dcpk_arena *arena = b->arena;
    struct dcpk_value *v;

    if (kind == DCPK_V_STR && b->keeps_text && b->texts != NULL)
        arena = b->texts;
    else if (kind == DCPK_V_GLOBAL)
        arena = b->names;
    if (b->n_nodes >= b->max_nodes) {
        dcpk_fail(err, DCPK_ERANGE, "more than the limit of %" PRIu64 " values", b->max_nodes);
        return NULL;
    }
    v = dcpk_arena_alloc(arena, n_bytes, err);
    if (v == NULL)
        return NULL;
    b->n_nodes++;
    v->kind = kind;
    return v;
}

void *dcpk_builder_node(struct dcpk_builder *b, enum dcpk_value_kind kind, size_t n_bytes,
                        struct dcpk_error *err)
{
    struct dcpk_node *node = dcpk_builder_make(b, kind, n_bytes, err);

    if (node != NULL)
        node->at_bytes = b->at_bytes;
    return node;
}

/* ---- leaves ---- */

struct dcpk_value *dcpk_builder_none(struct dcpk_builder *b, struct dcpk_error *err)
{
    if (b->none == NULL)
        b->none = dcpk_builder_make(b, DCPK_V_NONE, sizeof *b->none, err);
    return b->none;
}

struct dcpk_value *dcpk_builder_bool(struct dcpk_builder *b, bool v, struct dcpk_error *err)
{
    struct dcpk_value **node = v ? &b->yes : &b->no;

    if (*node == NULL) {
        *node = dcpk_builder_make(b, DCPK_V_BOOL, sizeof **node, err);
        if (*node != NULL)
            (*node)->as.b = v;
    }
    return *node;
}

struct dcpk_value *dcpk_builder_int(struct dcpk_builder *b, int64_t i, struct dcpk_error *err)
{
    const size_t slot =
        ((uint64_t)i * UINT64_C(0x9e3779b97f4a7c15) >> 32) & (DCPK_PICKLE_RECENT_INTS - 1);
    struct dcpk_value *v = b->recent_ints[slot];

    if (v != NULL && v->as.i == i)
        return v;
    v = dcpk_builder_make(b, DCPK_V_INT, sizeof *v, err);
    if (v == NULL)
        return NULL;
    v->as.i = i;
    b->recent_ints[slot] = v;
    return v;
}

struct dcpk_value *dcpk_builder_long(struct dcpk_builder *b, const uint8_t *le, size_t n,
                                     struct dcpk_error *err)
{
    uint64_t bits = 0;
    struct dcpk_value *v;

    /* a byte that only repeats the sign of the one below it is redundant */
    while (n > 1 &&
           ((le[n - 1] == 0 && le[n - 2] < 0x80) || (le[n - 1] == 0xff && le[n - 2] >= 0x80)))
        n--;
    if (n > sizeof bits) {
        v = dcpk_builder_bytes(b, le, n, err);
        if (v != NULL)
            v->kind = DCPK_V_BIGINT;
        return v;
    }
    if (n > 0 && le[n - 1] >= 0x80)
        bits = UINT64_MAX;
    for (size_t i = n; i-- > 0;)
        bits = bits << 8 | le[i];
    return dcpk_builder_int(b, (int64_t)bits, err);
}

struct dcpk_value *dcpk_builder_float(struct dcpk_builder *b, double f, struct dcpk_error *err)
{
    struct dcpk_value *v = dcpk_builder_make(b, DCPK_V_FLOAT, sizeof *v, err);

    if (v != NULL)
        v->as.f = f;
    return v;
}

/* The first byte that is not UTF-8, or n. */
static size_t utf8_fault(const uint8_t *p, size_t n)
{
    size_t at = 0;

    while (at < n) {
        uint64_t eight;
        size_t n_used = 1;
        if (n - at >= sizeof eight) {
            memcpy(&eight, p + at, sizeof eight);
            if ((eight & UINT64_C(0x8080808080808080)) == 0) {
                at += sizeof eight;
                continue;
            }
        }
        if (p[at] >= 0x80 && dcpk_utf8_decode_python(p + at, n - at, &n_used) == DCPK_BAD_UTF8)
            return at;
        at += n_used;
    }
    return n;
}

/* A node with n bytes of content and a NUL after it. */
static void *make_bytes(struct dcpk_builder *b, enum dcpk_value_kind kind, size_t node_bytes,
                        const uint8_t *data, size_t n, struct dcpk_error *err)
{
    struct dcpk_value *v = dcpk_builder_make(b, kind, node_bytes + n + 1, err);

    if (v == NULL)
        return NULL;
    if (n > 0)
        memcpy((char *)v + node_bytes, data, n);
    v->n = n;
    v->as.str = (char *)v + node_bytes;
    return v;
}

struct dcpk_value *dcpk_builder_text(struct dcpk_builder *b, const uint8_t *text, size_t n,
                                     struct dcpk_error *err)
{
    const size_t fault = utf8_fault(text, n);
    const bool is_kept = b->keeps_text && b->texts != NULL;
    struct dcpk_text_node *node;

    if (fault < n) {
        dcpk_fail(err, DCPK_EFORMAT, "text of %zu bytes is not UTF-8: 0x%02x at byte %zu of it", n,
                  (unsigned)text[fault], fault);
        return NULL;
    }
    if (is_kept)
        node = dcpk_builder_make(b, DCPK_V_STR, sizeof *node, err);
    else
        node = make_bytes(b, DCPK_V_STR, sizeof *node, text, n, err);
    if (node == NULL)
        return NULL;
    if (is_kept) {
        node->is_kept = true;
        node->v.n = n;
        node->v.as.str = dcpk_arena_strndup(b->names, (const char *)text, n, err);
    }
    return node->v.as.str == NULL ? NULL : &node->v;
}

struct dcpk_value *dcpk_builder_bytes(struct dcpk_builder *b, const uint8_t *data, size_t n,
                                      struct dcpk_error *err)
{
    return make_bytes(b, DCPK_V_BYTES, sizeof(struct dcpk_value), data, n, err);
}

struct dcpk_value *dcpk_builder_old_str(struct dcpk_builder *b, const uint8_t *data, size_t n,
                                        struct dcpk_error *err)
{
    if (utf8_fault(data, n) == n)
        return dcpk_builder_text(b, data, n, err);
    return dcpk_builder_bytes(b, data, n, err);
}

/* Python 2's names, which protocols 0 to 2 use. Source: CPython 3.11 Lib/_compat_pickle.py; name
 * NULL: any. */
static const struct {
    const char *module, *name, *new_module, *new_name;
} renamed[] = {
    {"__builtin__", "xrange", "builtins", "range"},
    {"__builtin__", "reduce", "functools", "reduce"},
    {"__builtin__", "unicode", "builtins", "str"},
    {"__builtin__", "unichr", "builtins", "chr"},
    {"__builtin__", "long", "builtins", "int"},
    {"__builtin__", NULL, "builtins", NULL},
    {"copy_reg", NULL, "copyreg", NULL},
};

struct span {
    const char *text;
    size_t n;
};

static bool spells(struct span s, const char *word)
{
    return s.n == strlen(word) && memcmp(s.text, word, s.n) == 0;
}

static void modernise(struct span *module, struct span *name)
{
    for (size_t i = 0; i < DCPK_COUNT(renamed); i++) {
        if (!spells(*module, renamed[i].module) ||
            (renamed[i].name != NULL && !spells(*name, renamed[i].name)))
            continue;
        *module = (struct span){renamed[i].new_module, strlen(renamed[i].new_module)};
        if (renamed[i].name != NULL)
            *name = (struct span){renamed[i].new_name, strlen(renamed[i].new_name)};
        return;
    }
}

static dcpk_status check_name(const char *what, const char *text, size_t n, struct dcpk_error *err)
{
    if (n == 0)
        return dcpk_fail(err, DCPK_EFORMAT, "%s name is empty", what);
    if (n > DCPK_PICKLE_MAX_NAME)
        return dcpk_fail(err, DCPK_ERANGE, "%s name of %zu bytes, at most %d are read", what, n,
                         DCPK_PICKLE_MAX_NAME);
    if (memchr(text, '\0', n) != NULL || memchr(text, '\n', n) != NULL ||
        utf8_fault((const uint8_t *)text, n) != n)
        return dcpk_fail(err, DCPK_EFORMAT,
                         "%s name holds a NUL, a newline or bytes that are not UTF-8", what);
    if (text[0] == '.' || text[n - 1] == '.' || memmem(text, n, "..", 2) != NULL)
        return dcpk_fail(err, DCPK_EFORMAT, "%s name '%.*s' has an empty part", what, (int)n, text);
    return DCPK_OK;
}

/* STACK_GLOBAL takes names out of the memo: five bytes that make the same one again and again,
 * where the collector leaves them. */
static struct dcpk_value **recent_global(struct dcpk_builder *b, struct span module,
                                         struct span name)
{
    const uint64_t hash = dcpk_map_hash(module.text, module.n, 0);

    return &b->recent_globals[dcpk_map_hash(name.text, name.n, hash) &
                              (DCPK_PICKLE_RECENT_GLOBALS - 1)];
}

struct dcpk_value *dcpk_builder_global(struct dcpk_builder *b, const char *module,
                                       size_t module_bytes, const char *name, size_t name_bytes,
                                       struct dcpk_error *err)
{
    struct span m = {module, module_bytes}, n = {name, name_bytes};
    struct dcpk_value **slot;
    struct dcpk_global_node *g;
    char *text;

    modernise(&m, &n);
    if (check_name("module", m.text, m.n, err) != DCPK_OK ||
        check_name("class or function", n.text, n.n, err) != DCPK_OK)
        return NULL;
    slot = recent_global(b, m, n);
    if (*slot != NULL && spells(m, (*slot)->as.global.module) && spells(n, (*slot)->as.global.name))
        return *slot;
    g = dcpk_builder_make(b, DCPK_V_GLOBAL, sizeof *g + m.n + 1 + n.n + 1, err);
    if (g == NULL)
        return NULL;
    *slot = &g->v;
    text = (char *)(g + 1);
    memcpy(text, m.text, m.n);
    memcpy(text + m.n + 1, n.text, n.n);
    g->v.as.global.module = text;
    g->v.as.global.name = text + m.n + 1;
    dcpk_builder_classify(g);
    if (!g->is_known && g->call != DCPK_CALL_GETATTR && b->unknown == NULL)
        b->unknown = g;
    return &g->v;
}

/* ---- containers ---- */

struct dcpk_value *dcpk_builder_empty(struct dcpk_builder *b, enum dcpk_value_kind kind,
                                      struct dcpk_error *err)
{
    return dcpk_builder_node(b, kind, sizeof(struct dcpk_growing_node), err);
}

struct dcpk_value *dcpk_builder_fixed(struct dcpk_builder *b, enum dcpk_value_kind kind,
                                      struct dcpk_value *const *items, size_t n,
                                      struct dcpk_error *err)
{
    const bool is_set = kind == DCPK_V_SET;
    const size_t head_bytes = is_set ? sizeof(struct dcpk_growing_node) : sizeof(struct dcpk_node);
    struct dcpk_value *v;

    if (n == 0 && !is_set && b->empty_tuple != NULL)
        return b->empty_tuple;
    v = dcpk_builder_node(b, kind, head_bytes + n * sizeof *items, err);
    if (v == NULL)
        return NULL;
    v->n = n;
    v->as.items = (const struct dcpk_value *const *)(const void *)((char *)v + head_bytes);
    if (n > 0)
        memcpy((char *)v + head_bytes, items, n * sizeof *items);
    if (is_set)
        ((struct dcpk_growing_node *)v)->capacity = DCPK_NODE_FIXED;
    if (n == 0 && !is_set)
        b->empty_tuple = v;
    return v;
}

/* An array of a value under construction, that of a list or a dict. */
struct growing {
    const void *old;
    size_t n, item_bytes;
    size_t *capacity;
};

/*
 * Room for n_more items; the old array, or its copy. The first batch gets what it needs, since most
 * lists and dicts come in one; after that capacity doubles. Old arrays stay in the arena: a factor
 * of two at most.
 */
static void *growing_extend(struct dcpk_builder *b, const struct growing *g, size_t n_more,
                            struct dcpk_error *err)
{
    const size_t need = g->n + n_more; /* both are counts of pointers in memory */
    const size_t room = dcpk_max_size(need, 2 * *g->capacity);
    void *array;

    if (need <= *g->capacity)
        return (void *)(uintptr_t)g->old;
    array = dcpk_arena_extend(b->arena, g->old, g->n, room, g->item_bytes, err);
    if (array != NULL)
        *g->capacity = room;
    return array;
}

/* The values that an opcode gives to a container: n of them, for a dict keys and values by
 * turns. */
struct batch {
    struct dcpk_value *const *items;
    size_t n;
};

static dcpk_status builder_put_items(struct dcpk_builder *b, const struct dcpk_value *const **array,
                                     size_t *n_items, size_t *capacity, const struct batch *more,
                                     struct dcpk_error *err)
{
    const struct growing old = {*array, *n_items, sizeof **array, capacity};
    const struct dcpk_value **room;

    if (more->n == 0)
        return DCPK_OK;
    room = growing_extend(b, &old, more->n, err);
    if (room == NULL)
        return err->status;
    for (size_t i = 0; i < more->n; i++)
        room[*n_items + i] = more->items[i];
    *array = room;
    *n_items += more->n;
    return DCPK_OK;
}

static dcpk_status builder_put_pairs(struct dcpk_builder *b, const struct dcpk_value_pair **array,
                                     size_t *n_pairs, size_t *capacity, const struct batch *more,
                                     struct dcpk_error *err)
{
    const struct growing old = {*array, *n_pairs, sizeof **array, capacity};
    struct dcpk_value_pair *room;

    if (more->n == 0)
        return DCPK_OK;
    room = growing_extend(b, &old, more->n / 2, err);
    if (room == NULL)
        return err->status;
    for (size_t i = 0; i < more->n; i += 2)
        room[*n_pairs + i / 2] = (struct dcpk_value_pair){more->items[i], more->items[i + 1]};
    *array = room;
    *n_pairs += more->n / 2;
    return DCPK_OK;
}

dcpk_status dcpk_node_check_target(const struct dcpk_value *to, enum dcpk_value_kind kind,
                                   enum dcpk_value_kind or_kind, struct dcpk_error *err)
{
    if ((to->kind != kind && to->kind != or_kind) || dcpk_node_is_foreign(to))
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "cannot be done to a %s",
                         dcpk_builder_kind_name(to->kind));
    if (dcpk_node_of(to)->height != 0)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "changes a %s after it was used",
                         dcpk_builder_kind_name(to->kind));
    return DCPK_OK;
}

dcpk_status dcpk_builder_append(struct dcpk_builder *b, struct dcpk_value *to,
                                struct dcpk_value *const *items, size_t n, struct dcpk_error *err)
{
    const struct batch more = {items, n};
    struct dcpk_growing_object *o;
    size_t capacity;

    if (dcpk_node_check_target(to, DCPK_V_LIST, DCPK_V_OBJECT, err) != DCPK_OK)
        return err->status;
    if (to->kind == DCPK_V_LIST)
        return builder_put_items(b, &to->as.items, &to->n,
                                 &((struct dcpk_growing_node *)to)->capacity, &more, err);
    o = dcpk_node_object(to);
    capacity = o->item_capacity;
    if (builder_put_items(b, &o->object.items, &o->object.n_items, &capacity, &more, err))
        return err->status;
    o->item_capacity = (uint32_t)dcpk_min_size(capacity, UINT32_MAX);
    return DCPK_OK;
}

dcpk_status dcpk_builder_add(struct dcpk_builder *b, struct dcpk_value *to,
                             struct dcpk_value *const *items, size_t n, struct dcpk_error *err)
{
    const struct batch more = {items, n};
    struct dcpk_growing_node *set = (struct dcpk_growing_node *)to;

    if (dcpk_node_check_target(to, DCPK_V_SET, DCPK_V_SET, err) != DCPK_OK)
        return err->status;
    if (set->capacity == DCPK_NODE_FIXED)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "adds to a frozenset or to a set made by a call");
    return builder_put_items(b, &to->as.items, &to->n, &set->capacity, &more, err);
}

dcpk_status dcpk_builder_set_items(struct dcpk_builder *b, struct dcpk_value *to,
                                   struct dcpk_value *const *items, size_t n,
                                   struct dcpk_error *err)
{
    const struct batch more = {items, n};
    struct dcpk_growing_object *o;
    size_t capacity;

    if (n % 2 != 0)
        return dcpk_fail(err, DCPK_EFORMAT, "%zu values are not pairs of keys and values", n);
    if (dcpk_node_check_target(to, DCPK_V_DICT, DCPK_V_OBJECT, err) != DCPK_OK)
        return err->status;
    if (to->kind == DCPK_V_DICT)
        return builder_put_pairs(b, &to->as.pairs, &to->n,
                                 &((struct dcpk_growing_node *)to)->capacity, &more, err);
    o = dcpk_node_object(to);
    capacity = o->pair_capacity;
    if (builder_put_pairs(b, &o->object.pairs, &o->object.n_pairs, &capacity, &more, err))
        return err->status;
    o->pair_capacity = (uint32_t)dcpk_min_size(capacity, UINT32_MAX);
    return DCPK_OK;
}
