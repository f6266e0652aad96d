/* SPDX-License-Identifier: Apache-2.0 */
/* pickle_write.c - values as pickles of protocol 2 or 4. */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "formats/torch/pickle.h"
#include "lib/base/alloc.h"
#include "lib/base/cursor.h"
#include "lib/base/map.h"
#include "lib/base/order.h"

#define MAX_DEPTH       1000 /* the reader stops at 200; guards the C stack against hand-made trees */
#define MAX_SHARED_TEXT 65536 /* longer text is not looked up by content */
#define MAX_PLAIN_INT   32    /* bytes; longer integers are memoised, CPython memoises none */
#define BATCH           1000 /* items or pairs after one MARK, as CPython: Lib/pickle.py _BATCHSIZE */

/* Opcodes that only this file needs; pickletools' names. */
enum {
    OP_PROTO = 0x80,
    OP_LONG1 = 0x8a,
    OP_LONG4 = 0x8b,
    OP_BINFLOAT = 'G',
    OP_BINUNICODE = 'X',
    OP_SHORT_BINUNICODE = 0x8c,
    OP_BINUNICODE8 = 0x8d,
    OP_SHORT_BINBYTES = 'C',
    OP_BINBYTES = 'B',
    OP_BINBYTES8 = 0x8e,
    OP_GLOBAL = 'c',
    OP_STACK_GLOBAL = 0x93,
    OP_BINPUT = 'q',
    OP_LONG_BINPUT = 'r',
    OP_MEMOIZE = 0x94,
    OP_EMPTY_SET = 0x8f,
    OP_ADDITEMS = 0x90,
};

struct dcpk_pickle_writer {
    struct dcpk_bytes *out; /* borrowed */
    int protocol;
    uint32_t n_memo;
    struct dcpk_arena *arena; /* keys of the maps */
    struct dcpk_map texts;    /* content -> memo number */
    struct dcpk_map globals;  /* "module\nname" -> memo number */
    struct dcpk_map nodes;    /* address of a value -> memo number */
    dcpk_pickle_put_tensor *tensor;
    void *context;
};

/* ---- the pieces ---- */

struct dcpk_pickle_writer *dcpk_pickle_writer_new(struct dcpk_bytes *out, int protocol,
                                                  struct dcpk_error *err)
{
    struct dcpk_pickle_writer *w = dcpk_alloc(sizeof *w, err);

    assert(protocol == 2 || protocol == 4);
    if (w == NULL)
        return NULL;
    w->arena = dcpk_arena_new();
    w->out = out;
    w->protocol = protocol;
    dcpk_bytes_u8(out, OP_PROTO);
    dcpk_bytes_u8(out, (uint8_t)protocol);
    return w;
}

void dcpk_pickle_writer_free(struct dcpk_pickle_writer *w)
{
    if (w == NULL)
        return;
    dcpk_map_release(&w->texts);
    dcpk_map_release(&w->globals);
    dcpk_map_release(&w->nodes);
    dcpk_arena_free(w->arena);
    dcpk_free(w);
}

/* Map key -> the number of the next memo entry. A failure sticks to the bytes. */
static void remember(struct dcpk_pickle_writer *w, struct dcpk_map *map, const void *key, size_t n)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    const char *copy = dcpk_arena_strndup(w->arena, key, n, &err);
    bool existed;
    uint64_t found;

    if (copy == NULL || dcpk_map_put(map, copy, n, w->n_memo, &existed, &found, &err) != DCPK_OK) {
        if (w->out->status == DCPK_OK)
            w->out->status = err.status;
        return;
    }
    dcpk_pickle_put_memo(w);
}

void dcpk_pickle_put_op(struct dcpk_pickle_writer *w, uint8_t opcode)
{
    dcpk_bytes_u8(w->out, opcode);
}

/* LONG1 of the fewest bytes that keep the sign. */
void dcpk_pickle_append_long(struct dcpk_bytes *out, int64_t v)
{
    uint8_t le[8];
    uint8_t n = sizeof le;

    dcpk_store_u64le(le, (uint64_t)v);
    while (n > 1 &&
           ((le[n - 1] == 0 && le[n - 2] < 0x80) || (le[n - 1] == 0xff && le[n - 2] >= 0x80)))
        n--;
    dcpk_bytes_u8(out, OP_LONG1);
    dcpk_bytes_u8(out, n);
    dcpk_bytes_put(out, le, n);
}

void dcpk_pickle_put_int(struct dcpk_pickle_writer *w, int64_t v)
{
    dcpk_pickle_append_int(w->out, v);
}

void dcpk_pickle_put_float(struct dcpk_pickle_writer *w, double v)
{
    uint64_t bits;
    uint8_t be[8];

    memcpy(&bits, &v, sizeof bits);
    dcpk_store_u64be(be, bits);
    dcpk_bytes_u8(w->out, OP_BINFLOAT);
    dcpk_bytes_put(w->out, be, sizeof be);
}

/* A length and that many bytes, under the shortest of three opcodes. short_op 0: protocol 2 has
 * none. */
static void put_counted(struct dcpk_pickle_writer *w, uint8_t short_op, uint8_t op, uint8_t long_op,
                        const char *data, size_t n)
{
    if (short_op != 0 && n <= UINT8_MAX) {
        dcpk_bytes_u8(w->out, short_op);
        dcpk_bytes_u8(w->out, (uint8_t)n);
    } else if (n <= UINT32_MAX) {
        dcpk_bytes_u8(w->out, op);
        dcpk_bytes_u32(w->out, (uint32_t)n);
    } else {
        dcpk_bytes_u8(w->out, long_op);
        dcpk_bytes_u64(w->out, n);
    }
    dcpk_bytes_put(w->out, data, n);
}

static void put_plain_text(struct dcpk_pickle_writer *w, const char *text, size_t n)
{
    put_counted(w, w->protocol >= 4 ? OP_SHORT_BINUNICODE : 0, OP_BINUNICODE, OP_BINUNICODE8, text,
                n);
}

uint32_t dcpk_pickle_put_new_text(struct dcpk_pickle_writer *w, const char *text, size_t n)
{
    put_plain_text(w, text, n);
    return dcpk_pickle_put_memo(w);
}

void dcpk_pickle_put_text(struct dcpk_pickle_writer *w, const char *text, size_t n)
{
    uint64_t memo;

    if (dcpk_map_get(&w->texts, text, n, &memo)) {
        dcpk_pickle_put_get(w, (uint32_t)memo);
        return;
    }
    put_plain_text(w, text, n);
    if (n <= MAX_SHARED_TEXT)
        remember(w, &w->texts, text, n);
}

uint32_t dcpk_pickle_put_memo(struct dcpk_pickle_writer *w)
{
    assert(w->n_memo <
           UINT32_MAX); /* each entry takes a byte of a pickle that is far below 4 GiB */
    if (w->protocol >= 4) {
        dcpk_bytes_u8(w->out, OP_MEMOIZE);
    } else if (w->n_memo <= UINT8_MAX) {
        dcpk_bytes_u8(w->out, OP_BINPUT);
        dcpk_bytes_u8(w->out, (uint8_t)w->n_memo);
    } else {
        dcpk_bytes_u8(w->out, OP_LONG_BINPUT);
        dcpk_bytes_u32(w->out, w->n_memo);
    }
    return w->n_memo++;
}

void dcpk_pickle_put_get(struct dcpk_pickle_writer *w, uint32_t memo)
{
    dcpk_pickle_append_get(w->out, memo);
}

/* Names that meant something else in Python 2's __builtin__: Python 3 would not map them back as
 * they are. */
static bool is_python2_builtin(const char *name, size_t name_bytes)
{
    static const char *const names[] = {"xrange", "reduce", "unicode", "unichr", "long"};

    for (size_t i = 0; i < DCPK_COUNT(names); i++)
        if (strlen(names[i]) == name_bytes && memcmp(names[i], name, name_bytes) == 0)
            return true;
    return false;
}

/* Protocol 2 has Python 2's module names; Python 3 maps them back. _compat_pickle.py,
 * REVERSE_IMPORT_MAPPING. */
static const char *old_module(const char *module, const char *name, size_t name_bytes)
{
    if (strcmp(module, "builtins") == 0)
        return is_python2_builtin(name, name_bytes) ? module : "__builtin__";
    return strcmp(module, "copyreg") == 0 ? "copy_reg" : module;
}

static void put_plain_global(struct dcpk_pickle_writer *w, const char *module, const char *name,
                             size_t name_bytes)
{
    assert(strchr(module, '\n') == NULL && memchr(name, '\n', name_bytes) == NULL);
    dcpk_bytes_u8(w->out, OP_GLOBAL);
    dcpk_bytes_text(w->out, old_module(module, name, name_bytes));
    dcpk_bytes_u8(w->out, '\n');
    dcpk_bytes_put(w->out, name, name_bytes);
    dcpk_bytes_u8(w->out, '\n');
}

/* GLOBAL knows no dots: Outer.Inner is getattr(Outer, "Inner"), as in CPython's save_global before
 * protocol 4. */
static void put_nested_global(struct dcpk_pickle_writer *w, const char *module, const char *name)
{
    const size_t outer_bytes = strcspn(name, ".");

    for (const char *dot = strchr(name, '.'); dot != NULL; dot = strchr(dot + 1, '.'))
        put_plain_global(w, "builtins", "getattr", strlen("getattr"));
    put_plain_global(w, module, name, outer_bytes);
    for (const char *part = name + outer_bytes; *part != '\0';) {
        const size_t n = strcspn(part + 1, ".");
        dcpk_pickle_put_text(w, part + 1, n);
        dcpk_pickle_put_op(w, DCPK_OP_TUPLE2);
        dcpk_pickle_put_op(w, DCPK_OP_REDUCE);
        part += 1 + n;
    }
}

void dcpk_pickle_put_global(struct dcpk_pickle_writer *w, const char *module, const char *name)
{
    if (w->protocol < 4) {
        put_nested_global(w, module, name);
        return;
    }
    dcpk_pickle_put_text(w, module, strlen(module));
    dcpk_pickle_put_text(w, name, strlen(name));
    dcpk_bytes_u8(w->out, OP_STACK_GLOBAL);
}

/* ---- values ---- */

static dcpk_status pickle_put_value(struct dcpk_pickle_writer *w, const struct dcpk_value *v,
                                    int depth, struct dcpk_error *err);

/* A global from the memo, or written and memoised. */
static void put_shared_global(struct dcpk_pickle_writer *w, const char *module, const char *name)
{
    struct dcpk_bytes key = {0};
    uint64_t memo;

    dcpk_bytes_printf(&key, "%s\n%s", module, name);
    if (key.status != DCPK_OK) {
        w->out->status = key.status;
    } else if (dcpk_map_get(&w->globals, (const char *)key.data, key.n_bytes, &memo)) {
        dcpk_pickle_put_get(w, (uint32_t)memo);
    } else {
        dcpk_pickle_put_global(w, module, name);
        remember(w, &w->globals, key.data, key.n_bytes);
    }
    dcpk_bytes_release(&key);
}

static void remember_node(struct dcpk_pickle_writer *w, const struct dcpk_value *v)
{
    remember(w, &w->nodes, &v, sizeof v);
}

static void put_bigint(struct dcpk_pickle_writer *w, const struct dcpk_value *v)
{
    if (v->n <= UINT8_MAX) {
        dcpk_bytes_u8(w->out, OP_LONG1);
        dcpk_bytes_u8(w->out, (uint8_t)v->n);
    } else {
        dcpk_bytes_u8(w->out, OP_LONG4);
        dcpk_bytes_u32(w->out, (uint32_t)v->n);
    }
    dcpk_bytes_put(w->out, v->as.str, v->n);
}

/* Protocol 2 has no bytes: _codecs.encode of the text whose characters are the bytes, as CPython's
 * save_bytes. */
static void put_old_bytes(struct dcpk_pickle_writer *w, const struct dcpk_value *v)
{
    struct dcpk_bytes text = {0};

    for (size_t i = 0; i < v->n; i++) {
        const uint8_t c = (uint8_t)v->as.str[i];
        if (c >= 0x80)
            dcpk_bytes_u8(&text, (uint8_t)(0xc0 | c >> 6));
        dcpk_bytes_u8(&text, c < 0x80 ? c : (uint8_t)(0x80 | (c & 0x3f)));
    }
    if (text.status != DCPK_OK)
        w->out->status = text.status;
    put_shared_global(w, "_codecs", "encode");
    put_counted(w, 0, OP_BINUNICODE, OP_BINUNICODE8, (const char *)text.data, text.n_bytes);
    dcpk_pickle_put_text(w, "latin1", strlen("latin1"));
    dcpk_pickle_put_op(w, DCPK_OP_TUPLE2);
    dcpk_pickle_put_op(w, DCPK_OP_REDUCE);
    dcpk_bytes_release(&text);
}

static void put_bytes(struct dcpk_pickle_writer *w, const struct dcpk_value *v)
{
    if (w->protocol < 4)
        put_old_bytes(w, v);
    else
        put_counted(w, OP_SHORT_BINBYTES, OP_BINBYTES, OP_BINBYTES8, v->as.str, v->n);
}

/* The opcodes that add one item, or all after a MARK; single 0: one stands after a MARK too. */
struct item_ops {
    uint8_t single, marked;
};
static const struct item_ops list_ops = {DCPK_OP_APPEND, DCPK_OP_APPENDS};
static const struct item_ops set_ops = {0, OP_ADDITEMS};

/* Writes items after a container on the stack, in batches. */
static dcpk_status put_items(struct dcpk_pickle_writer *w, const struct dcpk_value *const *items,
                             size_t n, struct item_ops ops, int depth, struct dcpk_error *err)
{
    for (size_t at = 0; at < n; at += BATCH) {
        const size_t end = dcpk_min_size(n, at + BATCH);
        const bool is_single = ops.single != 0 && end - at == 1;

        if (!is_single)
            dcpk_pickle_put_op(w, DCPK_OP_MARK);
        for (size_t i = at; i < end; i++)
            if (pickle_put_value(w, items[i], depth, err))
                return err->status;
        dcpk_pickle_put_op(w, is_single ? ops.single : ops.marked);
    }
    return DCPK_OK;
}

static dcpk_status put_pairs(struct dcpk_pickle_writer *w, const struct dcpk_value_pair *pairs,
                             size_t n, int depth, struct dcpk_error *err)
{
    for (size_t at = 0; at < n; at += BATCH) {
        const size_t end = dcpk_min_size(n, at + BATCH);

        if (end - at > 1)
            dcpk_pickle_put_op(w, DCPK_OP_MARK);
        for (size_t i = at; i < end; i++)
            if (pickle_put_value(w, pairs[i].key, depth, err) ||
                pickle_put_value(w, pairs[i].value, depth, err))
                return err->status;
        dcpk_pickle_put_op(w, end - at > 1 ? DCPK_OP_SETITEMS : DCPK_OP_SETITEM);
    }
    return DCPK_OK;
}

static dcpk_status put_tuple(struct dcpk_pickle_writer *w, const struct dcpk_value *v, int depth,
                             struct dcpk_error *err)
{
    static const uint8_t ops[] = {DCPK_OP_EMPTY_TUPLE, DCPK_OP_TUPLE1, DCPK_OP_TUPLE2,
                                  DCPK_OP_TUPLE3, DCPK_OP_TUPLE};
    const size_t form = dcpk_min_size(v->n, 4);

    if (form == 4)
        dcpk_pickle_put_op(w, DCPK_OP_MARK);
    for (size_t i = 0; i < v->n; i++)
        if (pickle_put_value(w, v->as.items[i], depth, err))
            return err->status;
    dcpk_pickle_put_op(w, ops[form]);
    if (form > 0)
        remember_node(w, v);
    return DCPK_OK;
}

/* Protocol 2: set([...]). */
static dcpk_status put_set(struct dcpk_pickle_writer *w, const struct dcpk_value *v, int depth,
                           struct dcpk_error *err)
{
    if (w->protocol >= 4) {
        dcpk_pickle_put_op(w, OP_EMPTY_SET);
        remember_node(w, v);
        return put_items(w, v->as.items, v->n, set_ops, depth, err);
    }
    put_shared_global(w, "builtins", "set");
    dcpk_pickle_put_op(w, DCPK_OP_EMPTY_LIST);
    if (put_items(w, v->as.items, v->n, list_ops, depth, err))
        return err->status;
    dcpk_pickle_put_op(w, DCPK_OP_TUPLE1);
    dcpk_pickle_put_op(w, DCPK_OP_REDUCE);
    remember_node(w, v);
    return DCPK_OK;
}

static dcpk_status put_object(struct dcpk_pickle_writer *w, const struct dcpk_value *v, int depth,
                              struct dcpk_error *err)
{
    const struct dcpk_value_object *o = v->as.object;

    if (o->module[0] == '\0') {
        /* see value.h: the callable is args[0] */
        assert(o->args->n == 2);
        if (pickle_put_value(w, o->args->as.items[0], depth, err) ||
            pickle_put_value(w, o->args->as.items[1], depth, err))
            return err->status;
    } else {
        put_shared_global(w, o->module, o->name);
        if (pickle_put_value(w, o->args, depth, err))
            return err->status;
    }
    dcpk_pickle_put_op(w, o->is_reduce ? DCPK_OP_REDUCE : DCPK_OP_NEWOBJ);
    remember_node(w, v);
    if (put_items(w, o->items, o->n_items, list_ops, depth, err) ||
        put_pairs(w, o->pairs, o->n_pairs, depth, err))
        return err->status;
    if (o->state != NULL) {
        if (pickle_put_value(w, o->state, depth, err))
            return err->status;
        dcpk_pickle_put_op(w, DCPK_OP_BUILD);
    }
    return DCPK_OK;
}

static dcpk_status put_tensor(struct dcpk_pickle_writer *w, const struct dcpk_value *v,
                              struct dcpk_error *err)
{
    if (w->tensor == NULL)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "a %s tensor has no place in this pickle",
                         dcpk_dtype_name(v->as.tensor->dtype));
    if (w->tensor(w->context, w, v->as.tensor, err))
        return err->status;
    remember_node(w, v);
    return DCPK_OK;
}

/* Text is shared by content; what else is long or has an identity is written once. */
static bool is_memoised(const struct dcpk_value *v)
{
    return (v->kind == DCPK_V_BIGINT && v->n > MAX_PLAIN_INT) || v->kind == DCPK_V_BYTES ||
           (v->kind == DCPK_V_STR && v->n > MAX_SHARED_TEXT) ||
           (v->kind >= DCPK_V_TUPLE && v->kind != DCPK_V_GLOBAL);
}

static dcpk_status put_new(struct dcpk_pickle_writer *w, const struct dcpk_value *v, int depth,
                           struct dcpk_error *err)
{
    switch (v->kind) {
    case DCPK_V_NONE:
        dcpk_pickle_put_op(w, DCPK_OP_NONE);
        return DCPK_OK;
    case DCPK_V_BOOL:
        dcpk_pickle_put_op(w, v->as.b ? DCPK_OP_NEWTRUE : DCPK_OP_NEWFALSE);
        return DCPK_OK;
    case DCPK_V_INT:
        dcpk_pickle_put_int(w, v->as.i);
        return DCPK_OK;
    case DCPK_V_BIGINT:
        put_bigint(w, v);
        if (v->n > MAX_PLAIN_INT)
            remember_node(w, v);
        return DCPK_OK;
    case DCPK_V_FLOAT:
        dcpk_pickle_put_float(w, v->as.f);
        return DCPK_OK;
    case DCPK_V_STR:
        dcpk_pickle_put_text(w, v->as.str, v->n);
        if (v->n > MAX_SHARED_TEXT)
            remember_node(w, v);
        return DCPK_OK;
    case DCPK_V_BYTES:
        put_bytes(w, v);
        remember_node(w, v);
        return DCPK_OK;
    case DCPK_V_TUPLE:
        return put_tuple(w, v, depth, err);
    case DCPK_V_LIST:
        dcpk_pickle_put_op(w, DCPK_OP_EMPTY_LIST);
        remember_node(w, v);
        return put_items(w, v->as.items, v->n, list_ops, depth, err);
    case DCPK_V_SET:
        return put_set(w, v, depth, err);
    case DCPK_V_DICT:
        dcpk_pickle_put_op(w, DCPK_OP_EMPTY_DICT);
        remember_node(w, v);
        return put_pairs(w, v->as.pairs, v->n, depth, err);
    case DCPK_V_TENSOR:
        return put_tensor(w, v, err);
    case DCPK_V_GLOBAL:
        put_shared_global(w, v->as.global.module, v->as.global.name);
        return DCPK_OK;
    case DCPK_V_OBJECT:
        return put_object(w, v, depth, err);
    }
    return DCPK_OK;
}

/* Recursion is bounded by MAX_DEPTH; a failure of the bytes ends it early. */
static dcpk_status pickle_put_value(struct dcpk_pickle_writer *w, const struct dcpk_value *v,
                                    int depth, struct dcpk_error *err)
{
    uint64_t memo;

    if (depth >= MAX_DEPTH)
        return dcpk_fail(err, DCPK_ERANGE, "a value nests deeper than %d", MAX_DEPTH);
    if (w->out->status != DCPK_OK)
        return dcpk_bytes_status(w->out, err);
    if (is_memoised(v) && dcpk_map_get(&w->nodes, (const char *)&v, sizeof v, &memo)) {
        dcpk_pickle_put_get(w, (uint32_t)memo);
        return DCPK_OK;
    }
    return put_new(w, v, depth + 1, err);
}

dcpk_status dcpk_pickle_write(const struct dcpk_value *value, int protocol,
                              dcpk_pickle_put_tensor *tensor, void *context, struct dcpk_bytes *out,
                              struct dcpk_error *err)
{
    const size_t start = out->n_bytes;
    struct dcpk_pickle_writer *w = dcpk_pickle_writer_new(out, protocol, err);

    if (w == NULL)
        return err->status;
    w->tensor = tensor;
    w->context = context;
    if (pickle_put_value(w, value, 0, err) == DCPK_OK) {
        dcpk_pickle_put_op(w, DCPK_OP_STOP);
        (void)dcpk_bytes_status(out, err);
    }
    dcpk_pickle_writer_free(w);
    if (err->status != DCPK_OK) {
        out->n_bytes = start;
        dcpk_context(err, "writing a pickle");
    }
    return err->status;
}
