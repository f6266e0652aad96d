/* SPDX-License-Identifier: Apache-2.0 */
/* pickle_read.c - the pickle machine: a stack, marks and a memo over bytes. It calls nothing. */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "formats/dcp/pickle_priv.h"
#include "lib/base/alloc.h"
#include "lib/base/cursor.h"

#define MEMO_SLACK  256  /* a memo number may pass the opcode's own position by this much */
#define TO_THE_MARK 0xff /* argument of the opcodes that take everything down to the last MARK */
#define MAX_PROTO   5

/* Source: CPython 3.11 Lib/pickletools.py, and Lib/pickle.py class _Unpickler for what each opcode
 * does. */
struct machine {
    struct dcpk_builder build;
    struct dcpk_cursor in;
    const struct dcpk_pickle_options *options;
    struct dcpk_value **stack;
    size_t n_stack, stack_capacity;
    size_t *marks; /* heights of the stack; nothing may be popped from below the last */
    size_t n_marks, mark_capacity;
    struct dcpk_value **memo; /* NULL: not set */
    size_t memo_capacity;
    uint64_t n_memo; /* entries that are set: the number that MEMOIZE takes next */
    uint64_t max_memo;
};

/* ---- stack, marks, memo ---- */

static dcpk_status push(struct machine *m, struct dcpk_value *v, struct dcpk_error *err)
{
    if (v == NULL ||
        dcpk_grow(&m->stack, &m->stack_capacity, m->n_stack, sizeof *m->stack, err) != DCPK_OK)
        return err->status;
    m->stack[m->n_stack++] = v;
    return DCPK_OK;
}

static size_t fence(const struct machine *m)
{
    return m->n_marks == 0 ? 0 : m->marks[m->n_marks - 1];
}

/* Are there n values above the last mark? */
static dcpk_status need(const struct machine *m, size_t n, struct dcpk_error *err)
{
    if (m->n_stack - fence(m) >= n)
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EFORMAT, "needs %zu values on the stack, finds %zu", n,
                     m->n_stack - fence(m));
}

/* The n-th value from the top; 0 is the top. */
static struct dcpk_value *peek(const struct machine *m, size_t n)
{
    return m->stack[m->n_stack - 1 - n];
}

/* Take what lies above the last mark off the stack, and the mark; items stay readable until the
 * next push. */
static dcpk_status pop_mark(struct machine *m, struct dcpk_value ***items, size_t *n,
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
static dcpk_status pop_many(struct machine *m, unsigned arg, struct dcpk_value ***items, size_t *n,
                            struct dcpk_error *err)
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

static dcpk_status grow_memo(struct machine *m, size_t n, struct dcpk_error *err)
{
    const size_t capacity = n > 2 * m->memo_capacity ? n : 2 * m->memo_capacity;
    struct dcpk_value **memo;

    if (n <= m->memo_capacity)
        return DCPK_OK;
    memo = dcpk_realloc(m->memo, capacity * sizeof *memo, err);
    if (memo == NULL)
        return err->status;
    memset(memo + m->memo_capacity, 0, (capacity - m->memo_capacity) * sizeof *memo);
    m->memo = memo;
    m->memo_capacity = capacity;
    return DCPK_OK;
}

/*
 * Numbers in use are dense and each takes at least one byte of pickle, so one far past the opcode's
 * own position only asks for memory.
 */
static dcpk_status put_memo(struct machine *m, uint64_t number, struct dcpk_error *err)
{
    if (need(m, 1, err) != DCPK_OK)
        return err->status;
    if (number >= m->in.at_bytes + MEMO_SLACK || number >= m->max_memo)
        return dcpk_fail(
            err, DCPK_ERANGE, "memo number %" PRIu64 " passes the limit of %" PRIu64, number,
            m->max_memo < m->in.at_bytes + MEMO_SLACK ? m->max_memo : m->in.at_bytes + MEMO_SLACK);
    if (grow_memo(m, (size_t)number + 1, err) != DCPK_OK)
        return err->status;
    if (m->memo[number] == NULL)
        m->n_memo++;
    m->memo[number] = peek(m, 0);
    return DCPK_OK;
}

/* ---- opcodes: each takes the number in its row ---- */

/* A little-endian number of 1, 2, 4 or 8 bytes. */
static dcpk_status read_number(struct machine *m, unsigned n_bytes, uint64_t *out,
                               struct dcpk_error *err)
{
    const uint8_t *p = NULL;
    uint64_t number = 0;

    if (dcpk_cursor_bytes(&m->in, n_bytes, &p, err) != DCPK_OK)
        return err->status;
    for (unsigned i = n_bytes; i-- > 0;)
        number = number << 8 | p[i];
    *out = number;
    return DCPK_OK;
}

/* A length of len_bytes bytes and that many bytes, borrowed from the input. */
static dcpk_status read_counted(struct machine *m, unsigned len_bytes, const uint8_t **data,
                                size_t *n, struct dcpk_error *err)
{
    uint64_t n_bytes = 0;

    if (read_number(m, len_bytes, &n_bytes, err) != DCPK_OK)
        return err->status;
    if (n_bytes > m->in.n_bytes - m->in.at_bytes)
        return dcpk_fail(err, DCPK_EFORMAT,
                         "length of %" PRIu64 " bytes passes the end, %zu are left", n_bytes,
                         m->in.n_bytes - m->in.at_bytes);
    *n = (size_t)n_bytes;
    return dcpk_cursor_bytes(&m->in, *n, data, err);
}

static dcpk_status op_proto(struct machine *m, unsigned arg, struct dcpk_error *err)
{
    uint64_t proto = 0;

    if (read_number(m, arg, &proto, err) != DCPK_OK)
        return err->status;
    if (proto > MAX_PROTO)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "protocol %" PRIu64 ", at most %d is read", proto,
                         MAX_PROTO);
    return DCPK_OK;
}

/* Frames help a streaming reader only; a frame that lies about its length shows a cut file early.
 */
static dcpk_status op_frame(struct machine *m, unsigned arg, struct dcpk_error *err)
{
    uint64_t n_bytes = 0;

    if (read_number(m, arg, &n_bytes, err) != DCPK_OK)
        return err->status;
    if (n_bytes > m->in.n_bytes - m->in.at_bytes)
        return dcpk_fail(err, DCPK_EFORMAT,
                         "frame of %" PRIu64 " bytes passes the end, %zu are left", n_bytes,
                         m->in.n_bytes - m->in.at_bytes);
    return DCPK_OK;
}

static dcpk_status op_mark(struct machine *m, unsigned arg, struct dcpk_error *err)
{
    (void)arg;
    if (dcpk_grow(&m->marks, &m->mark_capacity, m->n_marks, sizeof *m->marks, err) != DCPK_OK)
        return err->status;
    m->marks[m->n_marks++] = m->n_stack;
    return DCPK_OK;
}

static dcpk_status op_pop(struct machine *m, unsigned arg, struct dcpk_error *err)
{
    struct dcpk_value **items = NULL;
    size_t n = 0;

    if (arg != TO_THE_MARK && m->n_marks > 0 && m->n_stack == fence(m))
        arg = TO_THE_MARK; /* POP takes a bare MARK off too */
    return pop_many(m, arg, &items, &n, err);
}

static dcpk_status op_dup(struct machine *m, unsigned arg, struct dcpk_error *err)
{
    return need(m, arg, err) == DCPK_OK ? push(m, peek(m, 0), err) : err->status;
}

static dcpk_status op_none(struct machine *m, unsigned arg, struct dcpk_error *err)
{
    (void)arg;
    return push(m, dcpk_builder_none(&m->build, err), err);
}

static dcpk_status op_bool(struct machine *m, unsigned arg, struct dcpk_error *err)
{
    return push(m, dcpk_builder_bool(&m->build, arg != 0, err), err);
}

/* BININT1 and BININT2 have no sign; BININT has. */
static dcpk_status op_int(struct machine *m, unsigned arg, struct dcpk_error *err)
{
    uint64_t bits = 0;

    if (read_number(m, arg, &bits, err) != DCPK_OK)
        return err->status;
    if (arg == 4)
        bits = (uint64_t)(int64_t)(int32_t)bits;
    return push(m, dcpk_builder_int(&m->build, (int64_t)bits, err), err);
}

static dcpk_status op_float(struct machine *m, unsigned arg, struct dcpk_error *err)
{
    uint64_t bits = 0;
    double f;

    if (read_number(m, arg, &bits, err) != DCPK_OK)
        return err->status;
    bits = __builtin_bswap64(bits);
    memcpy(&f, &bits, sizeof f);
    return push(m, dcpk_builder_float(&m->build, f, err), err);
}

static dcpk_status op_empty(struct machine *m, unsigned arg, struct dcpk_error *err)
{
    return push(m, dcpk_builder_empty(&m->build, (enum dcpk_value_kind)arg, err), err);
}

static dcpk_status op_tuple(struct machine *m, unsigned arg, struct dcpk_error *err)
{
    struct dcpk_value **items = NULL;
    size_t n = 0;

    if (pop_many(m, arg, &items, &n, err) != DCPK_OK)
        return err->status;
    return push(m, dcpk_builder_fixed(&m->build, DCPK_V_TUPLE, items, n, err), err);
}

static dcpk_status op_frozenset(struct machine *m, unsigned arg, struct dcpk_error *err)
{
    struct dcpk_value **items = NULL;
    size_t n = 0;

    if (pop_many(m, arg, &items, &n, err) != DCPK_OK)
        return err->status;
    return push(m, dcpk_builder_fixed(&m->build, DCPK_V_SET, items, n, err), err);
}

static dcpk_status op_append(struct machine *m, unsigned arg, struct dcpk_error *err)
{
    struct dcpk_value **items = NULL;
    size_t n = 0;

    if (pop_many(m, arg, &items, &n, err) != DCPK_OK || need(m, 1, err) != DCPK_OK)
        return err->status;
    return dcpk_builder_append(&m->build, peek(m, 0), items, n, err);
}

static dcpk_status op_set_item(struct machine *m, unsigned arg, struct dcpk_error *err)
{
    struct dcpk_value **items = NULL;
    size_t n = 0;

    if (pop_many(m, arg, &items, &n, err) != DCPK_OK || need(m, 1, err) != DCPK_OK)
        return err->status;
    return dcpk_builder_set_items(&m->build, peek(m, 0), items, n, err);
}

static dcpk_status op_add_items(struct machine *m, unsigned arg, struct dcpk_error *err)
{
    struct dcpk_value **items = NULL;
    size_t n = 0;

    if (pop_many(m, arg, &items, &n, err) != DCPK_OK || need(m, 1, err) != DCPK_OK)
        return err->status;
    return dcpk_builder_add(&m->build, peek(m, 0), items, n, err);
}

static dcpk_status op_reduce(struct machine *m, unsigned arg, struct dcpk_error *err)
{
    struct dcpk_value **items = NULL;
    size_t n = 0;

    if (pop_many(m, arg, &items, &n, err) != DCPK_OK)
        return err->status;
    return push(m, dcpk_builder_reduce(&m->build, items[0], items[1], err), err);
}

static dcpk_status op_new(struct machine *m, unsigned arg, struct dcpk_error *err)
{
    struct dcpk_value **items = NULL;
    size_t n = 0;

    if (pop_many(m, arg, &items, &n, err) != DCPK_OK)
        return err->status;
    return push(m, dcpk_builder_new(&m->build, items[0], items[1], err), err);
}

static dcpk_status op_new_ex(struct machine *m, unsigned arg, struct dcpk_error *err)
{
    struct dcpk_value **items = NULL;
    size_t n = 0;

    if (pop_many(m, arg, &items, &n, err) != DCPK_OK)
        return err->status;
    return push(m, dcpk_builder_new_ex(&m->build, items[0], items[1], items[2], err), err);
}

static dcpk_status op_build(struct machine *m, unsigned arg, struct dcpk_error *err)
{
    struct dcpk_value **items = NULL;
    size_t n = 0;

    if (need(m, 2, err) != DCPK_OK || pop_many(m, arg, &items, &n, err) != DCPK_OK)
        return err->status;
    return dcpk_builder_set_state(&m->build, peek(m, 0), items[0], err);
}

static dcpk_status op_global(struct machine *m, unsigned arg, struct dcpk_error *err)
{
    const char *module, *name;
    size_t module_bytes, name_bytes;

    (void)arg;
    if (dcpk_cursor_line(&m->in, &module, &module_bytes, err) != DCPK_OK ||
        dcpk_cursor_line(&m->in, &name, &name_bytes, err) != DCPK_OK)
        return err->status;
    return push(m, dcpk_builder_global(&m->build, module, module_bytes, name, name_bytes, err),
                err);
}

static dcpk_status op_stack_global(struct machine *m, unsigned arg, struct dcpk_error *err)
{
    struct dcpk_value **items = NULL;
    size_t n = 0;

    if (pop_many(m, arg, &items, &n, err) != DCPK_OK)
        return err->status;
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
        is_flat = !dcpk_node_is_container(pid->as.items[i]);
    return is_flat ? DCPK_OK
                   : dcpk_fail(err, DCPK_EUNSUPPORTED, "persistent id is a %s, not a flat tuple",
                               dcpk_builder_kind_name(pid->kind));
}

static dcpk_status op_persistent(struct machine *m, unsigned arg, struct dcpk_error *err)
{
    const struct dcpk_value *found = NULL;
    struct dcpk_value **items = NULL;
    size_t n = 0;

    if (pop_many(m, arg, &items, &n, err) != DCPK_OK)
        return err->status;
    if (m->options->persistent == NULL)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "persistent ids do not belong in this pickle");
    if (check_pid(items[0], err) != DCPK_OK ||
        m->options->persistent(m->options->context, m->build.arena, items[0], &found, err) !=
            DCPK_OK)
        return err->status;
    assert(found != NULL);
    return push(m, dcpk_builder_adopt(&m->build, found, err), err);
}

static dcpk_status op_put(struct machine *m, unsigned arg, struct dcpk_error *err)
{
    uint64_t number = 0;

    return read_number(m, arg, &number, err) == DCPK_OK ? put_memo(m, number, err) : err->status;
}

static dcpk_status op_memoize(struct machine *m, unsigned arg, struct dcpk_error *err)
{
    (void)arg;
    return put_memo(m, m->n_memo, err);
}

static dcpk_status op_get(struct machine *m, unsigned arg, struct dcpk_error *err)
{
    uint64_t number = 0;

    if (read_number(m, arg, &number, err) != DCPK_OK)
        return err->status;
    if (number >= m->memo_capacity || m->memo[number] == NULL)
        return dcpk_fail(err, DCPK_EFORMAT, "memo number %" PRIu64 " was never set", number);
    return push(m, m->memo[number], err);
}

/* ---- the table ---- */

/* LONG4's and BINSTRING's lengths have a sign: negative ones pass every end. */
typedef struct dcpk_value *make_counted(struct dcpk_builder *b, const uint8_t *data, size_t n,
                                        struct dcpk_error *err);

struct op {
    dcpk_status (*run)(struct machine *m, unsigned arg, struct dcpk_error *err);
    unsigned arg; /* bytes of the number or length behind it, values it takes, or a kind */
    make_counted
        *make; /* instead of run: what becomes of the bytes that a length of arg bytes counts */
    const char *refused; /* name of an opcode that is known and not read */
};

static const struct op ops[256] = {
    [DCPK_OP_MARK] = {.run = op_mark, .arg = 0},
    ['0'] = {.run = op_pop, .arg = 1},           /* POP */
    ['1'] = {.run = op_pop, .arg = TO_THE_MARK}, /* POP_MARK */
    ['2'] = {.run = op_dup, .arg = 1},           /* DUP */
    ['G'] = {.run = op_float, .arg = 8},         /* BINFLOAT */
    ['J'] = {.run = op_int, .arg = 4},           /* BININT */
    ['K'] = {.run = op_int, .arg = 1},           /* BININT1 */
    ['M'] = {.run = op_int, .arg = 2},           /* BININT2 */
    [DCPK_OP_NONE] = {.run = op_none, .arg = 0},
    [DCPK_OP_BINPERSID] = {.run = op_persistent, .arg = 1},
    [DCPK_OP_REDUCE] = {.run = op_reduce, .arg = 2},
    ['T'] = {.make = dcpk_builder_old_str, .arg = 4}, /* BINSTRING */
    ['U'] = {.make = dcpk_builder_old_str, .arg = 1}, /* SHORT_BINSTRING */
    ['X'] = {.make = dcpk_builder_text, .arg = 4},    /* BINUNICODE */
    [DCPK_OP_APPEND] = {.run = op_append, .arg = 1},
    [DCPK_OP_BUILD] = {.run = op_build, .arg = 1},
    ['c'] = {.run = op_global, .arg = 0}, /* GLOBAL */
    [DCPK_OP_EMPTY_DICT] = {.run = op_empty, .arg = DCPK_V_DICT},
    [DCPK_OP_APPENDS] = {.run = op_append, .arg = TO_THE_MARK},
    ['h'] = {.run = op_get, .arg = 1}, /* BINGET */
    ['j'] = {.run = op_get, .arg = 4}, /* LONG_BINGET */
    [DCPK_OP_EMPTY_LIST] = {.run = op_empty, .arg = DCPK_V_LIST},
    ['q'] = {.run = op_put, .arg = 1}, /* BINPUT */
    ['r'] = {.run = op_put, .arg = 4}, /* LONG_BINPUT */
    [DCPK_OP_SETITEM] = {.run = op_set_item, .arg = 2},
    [DCPK_OP_TUPLE] = {.run = op_tuple, .arg = TO_THE_MARK},
    [DCPK_OP_EMPTY_TUPLE] = {.run = op_tuple, .arg = 0},
    [DCPK_OP_SETITEMS] = {.run = op_set_item, .arg = TO_THE_MARK},
    ['B'] = {.make = dcpk_builder_bytes, .arg = 4}, /* BINBYTES */
    ['C'] = {.make = dcpk_builder_bytes, .arg = 1}, /* SHORT_BINBYTES */
    [0x80] = {.run = op_proto, .arg = 1},           /* PROTO */
    [DCPK_OP_NEWOBJ] = {.run = op_new, .arg = 2},
    [DCPK_OP_TUPLE1] = {.run = op_tuple, .arg = 1},
    [DCPK_OP_TUPLE2] = {.run = op_tuple, .arg = 2},
    [DCPK_OP_TUPLE3] = {.run = op_tuple, .arg = 3},
    [DCPK_OP_NEWTRUE] = {.run = op_bool, .arg = 1},
    [DCPK_OP_NEWFALSE] = {.run = op_bool, .arg = 0},
    [0x8a] = {.make = dcpk_builder_long, .arg = 1},      /* LONG1 */
    [0x8b] = {.make = dcpk_builder_long, .arg = 4},      /* LONG4 */
    [0x8c] = {.make = dcpk_builder_text, .arg = 1},      /* SHORT_BINUNICODE */
    [0x8d] = {.make = dcpk_builder_text, .arg = 8},      /* BINUNICODE8 */
    [0x8e] = {.make = dcpk_builder_bytes, .arg = 8},     /* BINBYTES8 */
    [0x8f] = {.run = op_empty, .arg = DCPK_V_SET},       /* EMPTY_SET */
    [0x90] = {.run = op_add_items, .arg = TO_THE_MARK},  /* ADDITEMS */
    [0x91] = {.run = op_frozenset, .arg = TO_THE_MARK},  /* FROZENSET */
    [0x92] = {.run = op_new_ex, .arg = 3},               /* NEWOBJ_EX */
    [0x93] = {.run = op_stack_global, .arg = 2},         /* STACK_GLOBAL */
    [0x94] = {.run = op_memoize, .arg = 0},              /* MEMOIZE */
    [0x95] = {.run = op_frame, .arg = 8},                /* FRAME */
    [0x96] = {.make = dcpk_builder_bytearray, .arg = 8}, /* BYTEARRAY8 */
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

static dcpk_status step(struct machine *m, uint8_t opcode, struct dcpk_error *err)
{
    const struct op *op = &ops[opcode];
    const uint8_t *data = NULL;
    size_t n = 0;

    if (op->run != NULL)
        return op->run(m, op->arg, err);
    if (op->make != NULL)
        return read_counted(m, op->arg, &data, &n, err) == DCPK_OK
                   ? push(m, op->make(&m->build, data, n, err), err)
                   : err->status;
    if (op->refused != NULL)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "%s is not read", op->refused);
    return dcpk_fail(err, DCPK_EUNSUPPORTED, "unknown opcode");
}

/* At STOP: one value, nothing open, nothing behind. */
static dcpk_status stop(struct machine *m, struct dcpk_error *err)
{
    if (m->n_stack != 1 || m->n_marks != 0)
        return dcpk_fail(err, DCPK_EFORMAT,
                         "STOP with %zu values and %zu marks on the stack, not one value",
                         m->n_stack, m->n_marks);
    if (m->in.at_bytes != m->in.n_bytes)
        return dcpk_fail(err, DCPK_EFORMAT, "%zu bytes behind STOP",
                         m->in.n_bytes - m->in.at_bytes);
    return dcpk_builder_finish(&m->build, m->stack[0], err);
}

static dcpk_status run(struct machine *m, struct dcpk_error *err)
{
    uint8_t opcode = 0;
    dcpk_status st = DCPK_OK;

    while (st == DCPK_OK) {
        m->build.at_bytes = (uint32_t)m->in.at_bytes;
        if (m->in.at_bytes == m->in.n_bytes)
            return dcpk_fail(err, DCPK_EFORMAT, "pickle ends at byte %" PRIu64 " without STOP",
                             m->in.base_bytes + m->in.n_bytes);
        opcode = m->in.data[m->in.at_bytes++];
        if (opcode == DCPK_OP_STOP)
            break;
        st = step(m, opcode, err);
    }
    if (st == DCPK_OK)
        st = stop(m, err);
    if (st != DCPK_OK)
        dcpk_context(err, "pickle opcode 0x%02x at byte %" PRIu64, opcode,
                     m->in.base_bytes + m->build.at_bytes);
    return st;
}

dcpk_status dcpk_pickle_read(const void *data, size_t n_bytes,
                             const struct dcpk_pickle_options *options, struct dcpk_arena *arena,
                             const struct dcpk_value **value, struct dcpk_error *err)
{
    static const struct dcpk_pickle_options defaults = {0};
    struct machine m = {0};
    dcpk_status st;

    if (n_bytes > UINT32_MAX)
        return dcpk_fail(err, DCPK_ERANGE, "pickle of %zu bytes, at most %" PRIu32 " are read",
                         n_bytes, UINT32_MAX);
    m.options = options != NULL ? options : &defaults;
    m.max_memo = m.options->limits.max_memo == 0 ? n_bytes : m.options->limits.max_memo;
    dcpk_cursor_init(&m.in, data, n_bytes, m.options->base_bytes);
    dcpk_builder_init(&m.build, arena, m.options, n_bytes);
    st = dcpk_grow(&m.stack, &m.stack_capacity, 0, sizeof *m.stack,
                   err); /* never NULL from here on */
    if (st == DCPK_OK)
        st = run(&m, err);
    if (st == DCPK_OK)
        *value = m.stack[0];
    dcpk_free(m.stack);
    dcpk_free(m.marks);
    dcpk_free(m.memo);
    return st;
}
