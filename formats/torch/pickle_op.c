/* SPDX-License-Identifier: Apache-2.0 */
/* pickle_op.c - runs the opcodes of a pickle on a stack, marks and a memo. It calls nothing. */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "formats/torch/pickle_priv.h"
#include "lib/base/alloc.h"

#define TO_THE_MARK 0xff /* argument of the opcodes that take everything down to the last MARK */
#define MAX_PROTO   5

/* ---- stack and marks ---- */

static dcpk_status push(struct dcpk_pickle_machine *m, struct dcpk_value *v, struct dcpk_error *err)
{
    if (v == NULL ||
        dcpk_grow(&m->stack, &m->stack_capacity, m->n_stack, sizeof *m->stack, err) != DCPK_OK)
        return err->status;
    m->stack[m->n_stack++] = v;
    return DCPK_OK;
}

static size_t fence(const struct dcpk_pickle_machine *m)
{
    return m->n_marks == 0 ? 0 : m->marks[m->n_marks - 1];
}

/* Checks that there are n values above the last mark. */
static dcpk_status need(const struct dcpk_pickle_machine *m, size_t n, struct dcpk_error *err)
{
    if (m->n_stack - fence(m) >= n)
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EFORMAT, "needs %zu values on the stack, finds %zu", n,
                     m->n_stack - fence(m));
}

/* The n-th value from the top; 0 is the top. */
static struct dcpk_value *peek(const struct dcpk_pickle_machine *m, size_t n)
{
    return m->stack[m->n_stack - 1 - n];
}

/* Take what lies above the last mark off the stack, and the mark; items stay readable until the
 * next push. */
static dcpk_status pop_mark(struct dcpk_pickle_machine *m, struct dcpk_value ***items, size_t *n,
                            struct dcpk_error *err)
{
    if (m->n_marks == 0)
        return dcpk_fail(err, DCPK_EFORMAT, "needs a MARK, there is none");
    *n = m->n_stack - fence(m);
    m->n_stack = fence(m);
    m->n_marks--;
    *items = m->stack + m->n_stack;
    return DCPK_OK;
}

/* n values off the stack, or all above the last mark when arg is TO_THE_MARK. */
static dcpk_status pop_many(struct dcpk_pickle_machine *m, unsigned arg, struct dcpk_value ***items,
                            size_t *n, struct dcpk_error *err)
{
    if (arg == TO_THE_MARK)
        return pop_mark(m, items, n, err);
    if (need(m, arg, err) != DCPK_OK)
        return err->status;
    m->n_stack -= arg;
    *n = arg;
    *items = m->stack + m->n_stack;
    return DCPK_OK;
}

/* ---- opcodes with something after them ---- */

static dcpk_status read_number(struct dcpk_pickle_machine *m, unsigned n_bytes, uint64_t *out,
                               struct dcpk_error *err)
{
    const uint8_t *p = NULL;

    if (dcpk_cursor_bytes(&m->in.cursor, n_bytes, &p, err) != DCPK_OK)
        return err->status;
    *out = dcpk_load_le(p, n_bytes);
    return DCPK_OK;
}

/* A length of len_bytes bytes and that many bytes, borrowed from the input. */
static dcpk_status read_counted(struct dcpk_pickle_machine *m, unsigned len_bytes,
                                const uint8_t **data, size_t *n, struct dcpk_error *err)
{
    uint64_t n_bytes = 0;

    if (read_number(m, len_bytes, &n_bytes, err) != DCPK_OK)
        return err->status;
    if (n_bytes > dcpk_pickle_input_left(&m->in))
        return dcpk_fail(err, DCPK_EFORMAT,
                         "length of %" PRIu64 " bytes passes the end, %" PRIu64 " are left",
                         n_bytes, dcpk_pickle_input_left(&m->in));
    *n = (size_t)n_bytes;
    if (dcpk_pickle_input_fill(&m->in, *n, err) != DCPK_OK)
        return err->status;
    return dcpk_cursor_bytes(&m->in.cursor, *n, data, err);
}

/* These take the number after them, of n_bytes bytes. */
static dcpk_status op_proto(struct dcpk_pickle_machine *m, uint64_t proto, unsigned n_bytes,
                            struct dcpk_error *err)
{
    (void)m;
    (void)n_bytes;
    if (proto > MAX_PROTO)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "protocol %" PRIu64 ", at most %d is read", proto,
                         MAX_PROTO);
    return DCPK_OK;
}

/* Frames help a streaming reader only; a frame that lies about its length shows a cut file
 * early. */
static dcpk_status op_frame(struct dcpk_pickle_machine *m, uint64_t frame_bytes, unsigned n_bytes,
                            struct dcpk_error *err)
{
    (void)n_bytes;
    if (frame_bytes > dcpk_pickle_input_left(&m->in))
        return dcpk_fail(err, DCPK_EFORMAT,
                         "frame of %" PRIu64 " bytes passes the end, %" PRIu64
                         " are left (is it cut?)",
                         frame_bytes, dcpk_pickle_input_left(&m->in));
    return DCPK_OK;
}

/* BININT1 and BININT2 have no sign; BININT has. */
static dcpk_status op_int(struct dcpk_pickle_machine *m, uint64_t bits, unsigned n_bytes,
                          struct dcpk_error *err)
{
    const int64_t i = n_bytes == 4 ? (int32_t)bits : (int64_t)bits;

    return push(m, dcpk_builder_int(&m->build, i, err), err);
}

static dcpk_status op_float(struct dcpk_pickle_machine *m, uint64_t bits, unsigned n_bytes,
                            struct dcpk_error *err)
{
    double f;

    (void)n_bytes;
    bits = __builtin_bswap64(bits);
    memcpy(&f, &bits, sizeof f);
    return push(m, dcpk_builder_float(&m->build, f, err), err);
}

static dcpk_status op_put(struct dcpk_pickle_machine *m, uint64_t number, unsigned n_bytes,
                          struct dcpk_error *err)
{
    (void)n_bytes;
    if (need(m, 1, err) != DCPK_OK)
        return err->status;
    return dcpk_memo_put(&m->memo, number, dcpk_pickle_input_at(&m->in), peek(m, 0), err);
}

static dcpk_status op_get(struct dcpk_pickle_machine *m, uint64_t number, unsigned n_bytes,
                          struct dcpk_error *err)
{
    struct dcpk_value *v = NULL;

    (void)n_bytes;
    if (dcpk_memo_get(&m->memo, number, &v, err))
        return err->status;
    return push(m, v, err);
}

/* ---- opcodes that take values, or the number in their row ---- */

static dcpk_status op_mark(struct dcpk_pickle_machine *m, unsigned arg, struct dcpk_error *err)
{
    (void)arg;
    if (dcpk_grow(&m->marks, &m->mark_capacity, m->n_marks, sizeof *m->marks, err) != DCPK_OK)
        return err->status;
    m->marks[m->n_marks++] = m->n_stack;
    return DCPK_OK;
}

/* Python has made what is taken off: a call would have run, and nothing in the value would show it.
 * (CPython writes POP only for containers that hold themselves.) */
static dcpk_status op_pop(struct dcpk_pickle_machine *m, unsigned arg, struct dcpk_error *err)
{
    struct dcpk_value **items = NULL;
    size_t n = 0;

    if (arg != TO_THE_MARK && m->n_marks > 0 && m->n_stack == fence(m))
        arg = TO_THE_MARK; /* POP takes a bare MARK off too */
    if (pop_many(m, arg, &items, &n, err) != DCPK_OK)
        return err->status;
    for (size_t i = 0; i < n; i++)
        if (items[i]->kind == DCPK_V_GLOBAL || dcpk_value_is_container(items[i]))
            return dcpk_fail(err, DCPK_EUNSUPPORTED,
                             "takes a %s off the stack again, which its value does not show",
                             dcpk_builder_kind_name(items[i]->kind));
    return DCPK_OK;
}

static dcpk_status op_dup(struct dcpk_pickle_machine *m, unsigned arg, struct dcpk_error *err)
{
    if (need(m, arg, err) != DCPK_OK)
        return err->status;
    return push(m, peek(m, 0), err);
}

static dcpk_status op_none(struct dcpk_pickle_machine *m, unsigned arg, struct dcpk_error *err)
{
    (void)arg;
    return push(m, dcpk_builder_none(&m->build, err), err);
}

static dcpk_status op_bool(struct dcpk_pickle_machine *m, unsigned arg, struct dcpk_error *err)
{
    return push(m, dcpk_builder_bool(&m->build, arg != 0, err), err);
}

static dcpk_status op_empty(struct dcpk_pickle_machine *m, unsigned arg, struct dcpk_error *err)
{
    return push(m, dcpk_builder_empty(&m->build, (enum dcpk_value_kind)arg, err), err);
}

static dcpk_status take_tuple(struct dcpk_pickle_machine *m, struct dcpk_value **items, size_t n,
                              struct dcpk_error *err)
{
    return push(m, dcpk_builder_fixed(&m->build, DCPK_V_TUPLE, items, n, err), err);
}

static dcpk_status take_frozenset(struct dcpk_pickle_machine *m, struct dcpk_value **items,
                                  size_t n, struct dcpk_error *err)
{
    return push(m, dcpk_builder_fixed(&m->build, DCPK_V_SET, items, n, err), err);
}

/* The key of the dict that `to`, the top of the stack, is on its way into, if the consumer wants
 * to see what goes into `to`; NULL else. */
static const char *wanted_key(const struct dcpk_pickle_machine *m, const struct dcpk_value *to)
{
    const struct dcpk_pickle_consumer *c = m->options->consumer;
    const struct dcpk_value *below;

    if (c == NULL || m->n_stack < 2 || (to->kind != DCPK_V_LIST && to->kind != DCPK_V_DICT))
        return NULL;
    below = peek(m, 1);
    for (size_t i = 0; below->kind == DCPK_V_STR && c->keys[i] != NULL; i++)
        if (strcmp(below->as.str, c->keys[i]) == 0)
            return c->keys[i];
    return NULL;
}

/* Let the consumer take the first of the items that go into `to`; *items and *n become the rest. */
static dcpk_status offer(struct dcpk_pickle_machine *m, struct dcpk_value *to,
                         struct dcpk_value ***items, size_t *n, struct dcpk_error *err)
{
    const struct dcpk_pickle_consumer *c = m->options->consumer;
    struct dcpk_pickle_batch batch = {.key = wanted_key(m, to), .container = to, .n = *n};
    size_t n_taken = 0;

    if (batch.key == NULL || (to->kind == DCPK_V_DICT && *n % 2 != 0) ||
        dcpk_node_of(to)->height != 0)
        return DCPK_OK;
    batch.items = (const struct dcpk_value *const *)*items;
    for (size_t i = 0; i < *n; i++)
        if (dcpk_builder_check(&m->build, batch.items[i], err))
            return err->status;
    if (c->take(c->context, &batch, &dcpk_node_of(to)->run, &n_taken, err))
        return err->status;
    assert(n_taken <= *n);
    *items += n_taken;
    *n -= n_taken;
    return DCPK_OK;
}

static dcpk_status take_append(struct dcpk_pickle_machine *m, struct dcpk_value **items, size_t n,
                               struct dcpk_error *err)
{
    if (need(m, 1, err) != DCPK_OK || offer(m, peek(m, 0), &items, &n, err) != DCPK_OK)
        return err->status;
    return dcpk_builder_append(&m->build, peek(m, 0), items, n, err);
}

static dcpk_status take_set_item(struct dcpk_pickle_machine *m, struct dcpk_value **items, size_t n,
                                 struct dcpk_error *err)
{
    if (need(m, 1, err) != DCPK_OK || offer(m, peek(m, 0), &items, &n, err) != DCPK_OK)
        return err->status;
    return dcpk_builder_set_items(&m->build, peek(m, 0), items, n, err);
}

static dcpk_status take_add_items(struct dcpk_pickle_machine *m, struct dcpk_value **items,
                                  size_t n, struct dcpk_error *err)
{
    if (need(m, 1, err) != DCPK_OK)
        return err->status;
    return dcpk_builder_add(&m->build, peek(m, 0), items, n, err);
}

static dcpk_status take_reduce(struct dcpk_pickle_machine *m, struct dcpk_value **items, size_t n,
                               struct dcpk_error *err)
{
    (void)n;
    return push(m, dcpk_builder_reduce(&m->build, items[0], items[1], err), err);
}

static dcpk_status take_new(struct dcpk_pickle_machine *m, struct dcpk_value **items, size_t n,
                            struct dcpk_error *err)
{
    (void)n;
    return push(m, dcpk_builder_new(&m->build, items[0], items[1], err), err);
}

static dcpk_status take_new_ex(struct dcpk_pickle_machine *m, struct dcpk_value **items, size_t n,
                               struct dcpk_error *err)
{
    (void)n;
    return push(m, dcpk_builder_new_ex(&m->build, items[0], items[1], items[2], err), err);
}

static dcpk_status op_build(struct dcpk_pickle_machine *m, unsigned arg, struct dcpk_error *err)
{
    struct dcpk_value **items = NULL;
    size_t n = 0;

    if (need(m, 2, err) != DCPK_OK || pop_many(m, arg, &items, &n, err) != DCPK_OK)
        return err->status;
    return dcpk_builder_set_state(&m->build, peek(m, 0), items[0], err);
}

static dcpk_status op_global(struct dcpk_pickle_machine *m, unsigned arg, struct dcpk_error *err)
{
    const char *module, *name;
    size_t module_bytes, name_bytes;

    (void)arg;
    if (dcpk_cursor_line(&m->in.cursor, &module, &module_bytes, err) != DCPK_OK ||
        dcpk_cursor_line(&m->in.cursor, &name, &name_bytes, err) != DCPK_OK)
        return err->status;
    return push(m, dcpk_builder_global(&m->build, module, module_bytes, name, name_bytes, err),
                err);
}

static dcpk_status take_stack_global(struct dcpk_pickle_machine *m, struct dcpk_value **items,
                                     size_t n, struct dcpk_error *err)
{
    (void)n;
    if (items[0]->kind != DCPK_V_STR || items[1]->kind != DCPK_V_STR)
        return dcpk_fail(err, DCPK_EFORMAT, "module and name are a %s and a %s, not text",
                         dcpk_builder_kind_name(items[0]->kind),
                         dcpk_builder_kind_name(items[1]->kind));
    return push(m,
                dcpk_builder_global(&m->build, items[0]->as.str, items[0]->n, items[1]->as.str,
                                    items[1]->n, err),
                err);
}

/* A flat pid cannot lead back to a list that is still growing. */
static dcpk_status check_pid(const struct dcpk_value *pid, struct dcpk_error *err)
{
    bool is_flat = pid->kind == DCPK_V_TUPLE && !dcpk_node_is_foreign(pid);

    for (size_t i = 0; is_flat && i < pid->n; i++)
        is_flat = !dcpk_value_is_container(pid->as.items[i]);
    if (!is_flat)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "persistent id is a %s, not a flat tuple",
                         dcpk_builder_kind_name(pid->kind));
    return DCPK_OK;
}

static dcpk_status take_persistent(struct dcpk_pickle_machine *m, struct dcpk_value **items,
                                   size_t n, struct dcpk_error *err)
{
    const struct dcpk_value *found = NULL;

    (void)n;
    if (m->options->persistent == NULL)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "persistent ids do not belong in this pickle");
    if (check_pid(items[0], err) != DCPK_OK ||
        m->options->persistent(m->options->context, m->build.arena, items[0], &found, err) !=
            DCPK_OK)
        return err->status;
    assert(found != NULL);
    return push(m, dcpk_builder_adopt(&m->build, found, err), err);
}

static dcpk_status op_memoize(struct dcpk_pickle_machine *m, unsigned arg, struct dcpk_error *err)
{
    return op_put(m, m->memo.n_set, arg, err);
}

/* ---- the table ---- */

/* LONG4's and BINSTRING's lengths have a sign: negative ones pass every end. */
typedef struct dcpk_value *make_counted(struct dcpk_builder *b, const uint8_t *data, size_t n,
                                        struct dcpk_error *err);

struct op { /* one of take, run, number, make and refused */
    /* Gets the arg values that are taken off the stack. */
    dcpk_status (*take)(struct dcpk_pickle_machine *m, struct dcpk_value **items, size_t n,
                        struct dcpk_error *err);
    dcpk_status (*run)(struct dcpk_pickle_machine *m, unsigned arg, struct dcpk_error *err);
    unsigned arg; /* bytes of the number or length after it, values it takes, or a kind */
    dcpk_status (*number)(struct dcpk_pickle_machine *m, uint64_t number, unsigned n_bytes,
                          struct dcpk_error *err);
    make_counted *make;  /* fate of the bytes that a length of arg bytes counts */
    const char *refused; /* name of an opcode that is known and not read */
};

static const struct op ops[256] = {
    [DCPK_OP_MARK] = {.run = op_mark, .arg = 0},
    ['0'] = {.run = op_pop, .arg = 1},           /* POP */
    ['1'] = {.run = op_pop, .arg = TO_THE_MARK}, /* POP_MARK */
    ['2'] = {.run = op_dup, .arg = 1},           /* DUP */
    ['G'] = {.number = op_float, .arg = 8},      /* BINFLOAT */
    ['J'] = {.number = op_int, .arg = 4},        /* BININT */
    ['K'] = {.number = op_int, .arg = 1},        /* BININT1 */
    ['M'] = {.number = op_int, .arg = 2},        /* BININT2 */
    [DCPK_OP_NONE] = {.run = op_none, .arg = 0},
    [DCPK_OP_BINPERSID] = {.take = take_persistent, .arg = 1},
    [DCPK_OP_REDUCE] = {.take = take_reduce, .arg = 2},
    ['T'] = {.make = dcpk_builder_old_str, .arg = 4}, /* BINSTRING */
    ['U'] = {.make = dcpk_builder_old_str, .arg = 1}, /* SHORT_BINSTRING */
    ['X'] = {.make = dcpk_builder_text, .arg = 4},    /* BINUNICODE */
    [DCPK_OP_APPEND] = {.take = take_append, .arg = 1},
    [DCPK_OP_BUILD] = {.run = op_build, .arg = 1},
    ['c'] = {.run = op_global, .arg = 0}, /* GLOBAL */
    [DCPK_OP_EMPTY_DICT] = {.run = op_empty, .arg = DCPK_V_DICT},
    [DCPK_OP_APPENDS] = {.take = take_append, .arg = TO_THE_MARK},
    ['h'] = {.number = op_get, .arg = 1}, /* BINGET */
    ['j'] = {.number = op_get, .arg = 4}, /* LONG_BINGET */
    [DCPK_OP_EMPTY_LIST] = {.run = op_empty, .arg = DCPK_V_LIST},
    ['q'] = {.number = op_put, .arg = 1}, /* BINPUT */
    ['r'] = {.number = op_put, .arg = 4}, /* LONG_BINPUT */
    [DCPK_OP_SETITEM] = {.take = take_set_item, .arg = 2},
    [DCPK_OP_TUPLE] = {.take = take_tuple, .arg = TO_THE_MARK},
    [DCPK_OP_EMPTY_TUPLE] = {.take = take_tuple, .arg = 0},
    [DCPK_OP_SETITEMS] = {.take = take_set_item, .arg = TO_THE_MARK},
    ['B'] = {.make = dcpk_builder_bytes, .arg = 4}, /* BINBYTES */
    ['C'] = {.make = dcpk_builder_bytes, .arg = 1}, /* SHORT_BINBYTES */
    [0x80] = {.number = op_proto, .arg = 1},        /* PROTO */
    [DCPK_OP_NEWOBJ] = {.take = take_new, .arg = 2},
    [DCPK_OP_TUPLE1] = {.take = take_tuple, .arg = 1},
    [DCPK_OP_TUPLE2] = {.take = take_tuple, .arg = 2},
    [DCPK_OP_TUPLE3] = {.take = take_tuple, .arg = 3},
    [DCPK_OP_NEWTRUE] = {.run = op_bool, .arg = 1},
    [DCPK_OP_NEWFALSE] = {.run = op_bool, .arg = 0},
    [0x8a] = {.make = dcpk_builder_long, .arg = 1},        /* LONG1 */
    [0x8b] = {.make = dcpk_builder_long, .arg = 4},        /* LONG4 */
    [0x8c] = {.make = dcpk_builder_text, .arg = 1},        /* SHORT_BINUNICODE */
    [0x8d] = {.make = dcpk_builder_text, .arg = 8},        /* BINUNICODE8 */
    [0x8e] = {.make = dcpk_builder_bytes, .arg = 8},       /* BINBYTES8 */
    [0x8f] = {.run = op_empty, .arg = DCPK_V_SET},         /* EMPTY_SET */
    [0x90] = {.take = take_add_items, .arg = TO_THE_MARK}, /* ADDITEMS */
    [0x91] = {.take = take_frozenset, .arg = TO_THE_MARK}, /* FROZENSET */
    [0x92] = {.take = take_new_ex, .arg = 3},              /* NEWOBJ_EX */
    [0x93] = {.take = take_stack_global, .arg = 2},        /* STACK_GLOBAL */
    [0x94] = {.run = op_memoize, .arg = 0},                /* MEMOIZE */
    [0x95] = {.number = op_frame, .arg = 8},               /* FRAME */
    [0x96] = {.make = dcpk_builder_bytearray, .arg = 8},   /* BYTEARRAY8 */
    [0x82] = {.refused = "EXT1"},
    [0x83] = {.refused = "EXT2"},
    [0x84] = {.refused = "EXT4"},
    [0x97] = {.refused = "NEXT_BUFFER"},
    [0x98] = {.refused = "READONLY_BUFFER"},
    ['i'] = {.refused = "INST"},
    ['o'] = {.refused = "OBJ"},
    ['P'] = {.refused = "PERSID"},
    ['F'] = {.refused = "FLOAT (protocol 0)"},
    ['I'] = {.refused = "INT (protocol 0)"},
    ['L'] = {.refused = "LONG (protocol 0)"},
    ['S'] = {.refused = "STRING (protocol 0)"},
    ['V'] = {.refused = "UNICODE (protocol 0)"},
    ['d'] = {.refused = "DICT (protocol 0)"},
    ['g'] = {.refused = "GET (protocol 0)"},
    ['l'] = {.refused = "LIST (protocol 0)"},
    ['p'] = {.refused = "PUT (protocol 0)"},
};

/* True if the value that is made now goes into the memo, to be asked for. */
static bool is_kept(const struct dcpk_pickle_machine *m)
{
    const struct dcpk_cursor *c = &m->in.cursor;
    const uint8_t *next = c->data + c->at_bytes;
    const size_t n = c->n_bytes - c->at_bytes;

    if (n >= 1 && ops[*next].run == op_memoize)
        return dcpk_memo_is_asked(&m->memo, m->memo.n_set);
    if (n >= 5 && ops[*next].number == op_put)
        return dcpk_memo_is_asked(&m->memo,
                                  ops[*next].arg == 1 ? next[1] : dcpk_load_u32le(next + 1));
    return false;
}

/* A value of the bytes that are counted after the opcode. */
static dcpk_status make_value(struct dcpk_pickle_machine *m, const struct op *op,
                              struct dcpk_error *err)
{
    const uint8_t *data = NULL;
    size_t n = 0;

    if (read_counted(m, op->arg, &data, &n, err) != DCPK_OK)
        return err->status;
    m->build.keeps_text = is_kept(m);
    return push(m, op->make(&m->build, data, n, err), err);
}

dcpk_status dcpk_pickle_step(struct dcpk_pickle_machine *m, uint8_t opcode, struct dcpk_error *err)
{
    const struct op *op = &ops[opcode];
    struct dcpk_value **items = NULL;
    uint64_t number = 0;
    size_t n = 0;

    if (op->take != NULL) {
        if (pop_many(m, op->arg, &items, &n, err))
            return err->status;
        return op->take(m, items, n, err);
    }
    if (op->run != NULL)
        return op->run(m, op->arg, err);
    if (op->number != NULL) {
        if (read_number(m, op->arg, &number, err))
            return err->status;
        return op->number(m, number, op->arg, err);
    }
    if (op->make != NULL)
        return make_value(m, op, err);
    if (op->refused != NULL)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "%s is not read", op->refused);
    return dcpk_fail(err, DCPK_EUNSUPPORTED, "unknown opcode");
}

dcpk_status dcpk_pickle_skip(struct dcpk_pickle_machine *m, uint8_t opcode, struct dcpk_error *err)
{
    const struct op *op = &ops[opcode];
    const uint8_t *data;
    const char *line;
    uint64_t number = 0;
    size_t n;

    if (op->make != NULL)
        return read_counted(m, op->arg, &data, &n, err);
    if (op->number != NULL && read_number(m, op->arg, &number, err) != DCPK_OK)
        return err->status;
    if (op->number == op_get)
        return dcpk_memo_ask(&m->memo, number, err);
    for (int i = 0; op->run == op_global && i < 2; i++)
        if (dcpk_cursor_line(&m->in.cursor, &line, &n, err) != DCPK_OK)
            return err->status;
    return DCPK_OK;
}

dcpk_status dcpk_pickle_skip_plain(struct dcpk_pickle_machine *m, struct dcpk_error *err)
{
    struct dcpk_cursor *c = &m->in.cursor;

    while (c->n_bytes - c->at_bytes > sizeof(uint64_t)) {
        const uint8_t *p = c->data + c->at_bytes;
        const struct op *op = &ops[*p];

        if (op->number == op_get) {
            if (dcpk_memo_ask(&m->memo, dcpk_load_le(p + 1, op->arg), err))
                return err->status;
        } else if (op->number == NULL && op->take == NULL &&
                   (op->run == NULL || op->run == op_global))
            break;
        c->at_bytes += 1 + (op->number == NULL ? 0 : op->arg);
    }
    return DCPK_OK;
}
