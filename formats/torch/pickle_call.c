/* SPDX-License-Identifier: Apache-2.0 */
/* pickle_call.c - objects and calls of a pickle, none of them made: kept by name, or turned into
 * the plain value. */
#include <string.h>

#include "formats/torch/pickle_priv.h"
#include "lib/base/order.h"

#define MAX_SIZE_RANK                                                                              \
    64 /* torch.Size with more axes stays an object: its items are checked on every call */

/* Calls that have a plain value as their result; "The writer" in pickle_write.c makes the same
 * ones. */
static const struct {
    const char *module, *name;
    enum dcpk_call call;
} plain_calls[] = {
    {"torch", "Size", DCPK_CALL_SIZE},
    {"collections", "OrderedDict", DCPK_CALL_ORDERED_DICT},
    {"builtins", "set", DCPK_CALL_SET},
    {"builtins", "frozenset", DCPK_CALL_SET},
    {"_codecs", "encode", DCPK_CALL_ENCODE},
    {"builtins", "bytes", DCPK_CALL_BYTES},
    {"builtins", "getattr", DCPK_CALL_GETATTR},
};

void dcpk_builder_classify(struct dcpk_global_node *g)
{
    for (size_t i = 0; i < DCPK_COUNT(plain_calls); i++)
        if (strcmp(g->v.as.global.module, plain_calls[i].module) == 0 &&
            strcmp(g->v.as.global.name, plain_calls[i].name) == 0)
            g->call = plain_calls[i].call;
    g->is_known = dcpk_pickle_is_known(g->v.as.global.module, g->v.as.global.name);
}

static struct dcpk_value *make_object(struct dcpk_builder *b, const struct dcpk_value *cls,
                                      struct dcpk_value *args, bool is_reduce,
                                      struct dcpk_error *err)
{
    struct dcpk_object_node *o = dcpk_builder_node(b, DCPK_V_OBJECT, sizeof *o, err);

    if (o == NULL)
        return NULL;
    o->node.v.as.object = &o->content.object;
    o->content.object.module = cls->as.global.module;
    o->content.object.name = cls->as.global.name;
    o->content.object.is_known = ((const struct dcpk_global_node *)cls)->is_known;
    if (!o->content.object.is_known && b->unknown == NULL)
        b->unknown = (const struct dcpk_global_node *)cls;
    o->content.object.is_reduce = is_reduce;
    o->content.object.args = args;
    return &o->node.v;
}

/* The callable is itself an object (a functools.partial): keep both, named "". */
static struct dcpk_value *make_nameless(struct dcpk_builder *b, struct dcpk_value *callable,
                                        struct dcpk_value *args, bool is_reduce,
                                        struct dcpk_error *err)
{
    static const struct dcpk_global_node nameless = {
        .v = {.kind = DCPK_V_GLOBAL, .as.global = {.module = "", .name = ""}}};
    struct dcpk_value *const both[] = {callable, args};
    struct dcpk_value *pair = dcpk_builder_fixed(b, DCPK_V_TUPLE, both, 2, err);

    if (b->unknown == NULL)
        b->unknown = &nameless;
    if (pair == NULL)
        return NULL;
    return make_object(b, &nameless.v, pair, is_reduce, err);
}

static dcpk_status check_args(const struct dcpk_value *callable, const struct dcpk_value *args,
                              struct dcpk_error *err)
{
    if (args->kind != DCPK_V_TUPLE || dcpk_node_is_foreign(args))
        return dcpk_fail(err, DCPK_EFORMAT, "arguments of a call are a %s, not a tuple",
                         dcpk_builder_kind_name(args->kind));
    if (callable->kind != DCPK_V_GLOBAL && callable->kind != DCPK_V_OBJECT)
        return dcpk_fail(err, DCPK_EFORMAT, "calls a %s", dcpk_builder_kind_name(callable->kind));
    return DCPK_OK;
}

struct dcpk_value *dcpk_builder_new(struct dcpk_builder *b, struct dcpk_value *cls,
                                    struct dcpk_value *args, struct dcpk_error *err)
{
    if (check_args(cls, args, err) != DCPK_OK)
        return NULL;
    if (cls->kind == DCPK_V_GLOBAL)
        return make_object(b, cls, args, false, err);
    return make_nameless(b, cls, args, false, err);
}

struct dcpk_value *dcpk_builder_new_ex(struct dcpk_builder *b, struct dcpk_value *cls,
                                       struct dcpk_value *args, struct dcpk_value *keywords,
                                       struct dcpk_error *err)
{
    struct dcpk_value *const all[] = {cls, args, keywords};
    struct dcpk_value *function, *tuple;

    if (check_args(cls, args, err) != DCPK_OK)
        return NULL;
    if (keywords->kind != DCPK_V_DICT) {
        dcpk_fail(err, DCPK_EFORMAT, "keywords of a call are a %s, not a dict",
                  dcpk_builder_kind_name(keywords->kind));
        return NULL;
    }
    if (keywords->n == 0)
        return dcpk_builder_new(b, cls, args, err);
    tuple = dcpk_builder_fixed(b, DCPK_V_TUPLE, all, 3, err);
    if (tuple == NULL)
        return NULL;
    function = dcpk_builder_global(b, "copyreg", 7, "__newobj_ex__", 13, err);
    if (function == NULL)
        return NULL;
    return make_object(b, function, tuple, true, err);
}

struct dcpk_value *dcpk_builder_bytearray(struct dcpk_builder *b, const uint8_t *data, size_t n,
                                          struct dcpk_error *err)
{
    struct dcpk_value *bytes = dcpk_builder_bytes(b, data, n, err);
    struct dcpk_value *args, *cls;

    if (bytes == NULL)
        return NULL;
    args = dcpk_builder_fixed(b, DCPK_V_TUPLE, &bytes, 1, err);
    if (args == NULL)
        return NULL;
    cls = dcpk_builder_global(b, "builtins", 8, "bytearray", 9, err);
    if (cls == NULL)
        return NULL;
    return make_object(b, cls, args, true, err);
}

/* torch.Size((1, 2)) is the tuple itself. */
static struct dcpk_value *call_size(const struct dcpk_value *args)
{
    struct dcpk_value *size;

    if (args->n != 1)
        return NULL;
    size = dcpk_node_mutable(args->as.items[0]);
    if (size->kind != DCPK_V_TUPLE || dcpk_node_is_foreign(size) || size->n > MAX_SIZE_RANK)
        return NULL;
    for (size_t i = 0; i < size->n; i++)
        if (size->as.items[i]->kind != DCPK_V_INT)
            return NULL;
    return size;
}

/* set(list) shares the items that the list has now; a list never changes those, it only grows. The
 * collector would copy them for each set. (The check walks them for each, up to its limit.) */
static struct dcpk_value *call_set(struct dcpk_builder *b, const struct dcpk_value *args,
                                   struct dcpk_error *err)
{
    const struct dcpk_value *list = args->n == 1 ? args->as.items[0] : NULL;
    struct dcpk_growing_node *set;

    if (b->collect_bytes != 0 || args->n > 1 ||
        (list != NULL &&
         ((list->kind != DCPK_V_LIST && list->kind != DCPK_V_TUPLE) || dcpk_node_is_foreign(list))))
        return NULL;
    set = dcpk_builder_node(b, DCPK_V_SET, sizeof *set, err);
    if (set == NULL)
        return NULL;
    set->capacity = DCPK_NODE_FIXED;
    if (list != NULL) {
        set->node.v.n = list->n;
        set->node.v.as.items = list->as.items;
    }
    return &set->node.v;
}

static bool is_latin1_name(const struct dcpk_value *v)
{
    return v->kind == DCPK_V_STR &&
           (strcmp(v->as.str, "latin1") == 0 || strcmp(v->as.str, "latin-1") == 0);
}

/* Protocols 0 to 2 spell bytes as _codecs.encode(text, "latin1"): each character is one byte. */
static struct dcpk_value *call_encode(struct dcpk_builder *b, const struct dcpk_value *args,
                                      struct dcpk_error *err)
{
    struct dcpk_text_node *text;
    struct dcpk_value *bytes;
    size_t n = 0;

    if (args->n != 2 || args->as.items[0]->kind != DCPK_V_STR || !is_latin1_name(args->as.items[1]))
        return NULL;
    text = (struct dcpk_text_node *)dcpk_node_mutable(args->as.items[0]);
    if (text->latin1 != NULL && (uint32_t)text->latin1_made == b->n_collections)
        return text->latin1;
    bytes = dcpk_builder_bytes(b, (const uint8_t *)text->v.as.str, text->v.n, err);
    if (bytes == NULL)
        return NULL;
    for (size_t i = 0; i < text->v.n; i++) {
        const uint8_t c = (uint8_t)text->v.as.str[i];
        uint8_t *to = (uint8_t *)(uintptr_t)bytes->as.str + n++;
        if (c > 0xc3) {
            dcpk_fail(err, DCPK_EFORMAT, "_codecs.encode of text with a character past latin-1");
            return NULL;
        }
        *to = c < 0x80 ? c : (uint8_t)((c & 3) << 6 | ((uint8_t)text->v.as.str[++i] & 0x3f));
    }
    memset((char *)(uintptr_t)bytes->as.str + n, 0, bytes->n - n);
    bytes->n = n;
    text->latin1 = bytes;
    text->latin1_made = b->n_collections & INT32_MAX;
    return bytes;
}

/* Protocols 0 to 3 spell the nested class Outer.Inner as getattr(Outer, "Inner"). */
static struct dcpk_value *call_getattr(struct dcpk_builder *b, const struct dcpk_value *args,
                                       struct dcpk_error *err)
{
    const struct dcpk_value *of, *part;
    char name[2 * DCPK_PICKLE_MAX_NAME + 2];
    size_t n;

    if (args->n != 2 || args->as.items[0]->kind != DCPK_V_GLOBAL ||
        args->as.items[1]->kind != DCPK_V_STR)
        return NULL;
    of = args->as.items[0];
    part = args->as.items[1];
    n = strlen(of->as.global.name) + 1 + part->n;
    if (part->n == 0 || n > DCPK_PICKLE_MAX_NAME || memchr(part->as.str, '.', part->n) != NULL ||
        memchr(part->as.str, '\n', part->n) != NULL || memchr(part->as.str, 0, part->n) != NULL)
        return NULL;
    memcpy(name, of->as.global.name, n - part->n - 1);
    name[n - part->n - 1] = '.';
    memcpy(name + n - part->n, part->as.str, part->n);
    return dcpk_builder_global(b, of->as.global.module, strlen(of->as.global.module), name, n, err);
}

/* The plain value of a call, or NULL: err->status then separates a failure from a call that stays
 * an object. */
static struct dcpk_value *plain_result(struct dcpk_builder *b, enum dcpk_call call,
                                       const struct dcpk_value *args, struct dcpk_error *err)
{
    struct dcpk_value *v = NULL;

    switch (call) {
    case DCPK_CALL_SIZE:
        return call_size(args);
    case DCPK_CALL_SET:
        return call_set(b, args, err);
    case DCPK_CALL_ENCODE:
        return call_encode(b, args, err);
    case DCPK_CALL_GETATTR:
        return call_getattr(b, args, err);
    case DCPK_CALL_BYTES:
        if (args->n != 0)
            return NULL;
        return dcpk_builder_bytes(b, NULL, 0, err);
    case DCPK_CALL_ORDERED_DICT:
        if (args->n == 0)
            v = dcpk_builder_empty(b, DCPK_V_DICT, err);
        if (v != NULL)
            dcpk_node_of(v)->flags |= DCPK_NODE_ORDERED;
        return v;
    case DCPK_CALL_OTHER:
        break;
    }
    return NULL;
}

struct dcpk_value *dcpk_builder_reduce(struct dcpk_builder *b, struct dcpk_value *callable,
                                       struct dcpk_value *args, struct dcpk_error *err)
{
    struct dcpk_value *v;

    if (check_args(callable, args, err) != DCPK_OK)
        return NULL;
    if (callable->kind != DCPK_V_GLOBAL)
        return make_nameless(b, callable, args, true, err);
    err->status = DCPK_OK;
    v = plain_result(b, ((struct dcpk_global_node *)callable)->call, args, err);
    if (v != NULL || err->status != DCPK_OK)
        return v;
    return make_object(b, callable, args, true, err);
}

/* An OrderedDict with attributes is an object with pairs; in place, so that every holder sees
 * that. */
static dcpk_status ordered_to_object(struct dcpk_builder *b, struct dcpk_value *dict,
                                     struct dcpk_error *err)
{
    struct dcpk_value *cls = dcpk_builder_global(b, "collections", 11, "OrderedDict", 11, err);
    struct dcpk_growing_object *content;
    struct dcpk_value *args, *made;

    if (cls == NULL)
        return err->status;
    args = dcpk_builder_fixed(b, DCPK_V_TUPLE, NULL, 0, err);
    if (args == NULL)
        return err->status;
    made = make_object(b, cls, args, true, err);
    if (made == NULL)
        return err->status;
    content = dcpk_node_object(made);
    content->object.pairs = dict->as.pairs;
    content->object.n_pairs = dict->n;
    content->pair_capacity = (uint32_t)dcpk_min_size(dict->n, UINT32_MAX);
    dict->kind = DCPK_V_OBJECT;
    dict->n = 0;
    dict->as.object = made->as.object;
    return DCPK_OK;
}

dcpk_status dcpk_builder_set_state(struct dcpk_builder *b, struct dcpk_value *to,
                                   struct dcpk_value *state, struct dcpk_error *err)
{
    struct dcpk_value_object *object;

    if ((to->kind == DCPK_V_DICT && (dcpk_node_of(to)->flags & DCPK_NODE_ORDERED) != 0 &&
         ordered_to_object(b, to, err)) ||
        dcpk_node_check_target(to, DCPK_V_OBJECT, DCPK_V_OBJECT, err))
        return err->status;
    object = &dcpk_node_object(to)->object;
    if (object->state != NULL)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "gives an object of %s.%s a second state",
                         object->module, object->name);
    object->state = state;
    return DCPK_OK;
}

struct dcpk_value *dcpk_builder_adopt(struct dcpk_builder *b, const struct dcpk_value *foreign,
                                      struct dcpk_error *err)
{
    struct dcpk_node *node;
    struct dcpk_value *v;

    if (foreign->kind == DCPK_V_STR)
        return dcpk_builder_text(b, (const uint8_t *)foreign->as.str, foreign->n, err);
    if (foreign->kind == DCPK_V_GLOBAL)
        return dcpk_builder_global(b, foreign->as.global.module, strlen(foreign->as.global.module),
                                   foreign->as.global.name, strlen(foreign->as.global.name), err);
    if (!dcpk_value_is_container(foreign)) {
        v = dcpk_builder_make(b, foreign->kind, sizeof *v, err);
        if (v != NULL)
            *v = *foreign;
        return v;
    }
    node = dcpk_builder_node(b, foreign->kind, sizeof *node, err);
    if (node == NULL)
        return NULL;
    node->v = *foreign;
    node->flags = DCPK_NODE_FOREIGN;
    node->height = 1; /* the final check walks no further; what hangs on it is flat */
    node->unfolded = (uint32_t)foreign->n + 1;
    return &node->v;
}
