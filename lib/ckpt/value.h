/* SPDX-License-Identifier: Apache-2.0 */
/* value.h - inert values: what the non-tensor content of a checkpoint becomes. Nothing here can be
 * called. */
#ifndef DCPK_LIB_CKPT_VALUE_H
#define DCPK_LIB_CKPT_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/arena.h"
#include "lib/tensor/dtype.h"

struct dcpk_json;
struct dcpk_json_out;

enum dcpk_value_kind {
    DCPK_V_NONE,
    DCPK_V_BOOL,
    DCPK_V_INT,    /* fits int64 */
    DCPK_V_BIGINT, /* little-endian two's complement bytes in str */
    DCPK_V_FLOAT,
    DCPK_V_STR,   /* UTF-8, may hold NULs; a NUL stands after it */
    DCPK_V_BYTES, /* bytes; a bytearray is an OBJECT around one */
    DCPK_V_TUPLE,
    DCPK_V_LIST,
    DCPK_V_SET, /* frozenset too */
    DCPK_V_DICT,
    DCPK_V_TENSOR, /* a tensor stored inside an object item */
    DCPK_V_GLOBAL, /* a class, function or dtype by name, not called: torch.float32 */
    DCPK_V_OBJECT, /* an instance or the result of a call that was not made */
};

struct dcpk_value;
struct dcpk_value_pair {
    const struct dcpk_value *key, *value;
};

/*
 * A tensor inside an object: bytes row-major, owned by the arena (small by nature: RNG states, step
 * counters). In an outline (format.h) `data` is NULL and the bytes stay in the file.
 */
struct dcpk_value_tensor {
    enum dcpk_dtype dtype;
    int rank;
    const int64_t *shape;
    uint64_t n_bytes;
    const void *data;
    uint64_t first_bytes; /* outline: of the first element, in the file that holds the object */
    bool is_row_major;    /* outline: n_bytes from there on are all elements in order */
    /* outline: the stored record that holds the elements, in the same file, and its CRC-32 */
    uint64_t record_offset_bytes, record_bytes;
    uint32_t record_crc32;
};

/* How an object was pickled: REDUCE(callable, args) or NEWOBJ(class, args), then optionally
 * BUILD(state), APPENDS, SETITEMS. */
struct dcpk_value_object {
    /* The class or callable, "argparse" "Namespace"; both "" when the callable is itself an object:
     * args is then (callable, its arguments). */
    const char *module, *name;
    bool is_reduce; /* REDUCE; else NEWOBJ */
    /* On the reader's list of (module, name) pairs; else kept, named and never interpreted. */
    bool is_known;
    const struct dcpk_value *args;         /* a TUPLE */
    const struct dcpk_value *state;        /* BUILD's argument, or NULL */
    const struct dcpk_value *const *items; /* APPEND(S)ed to the object */
    size_t n_items;
    const struct dcpk_value_pair *pairs; /* SETITEM(S) */
    size_t n_pairs;
};

/*
 * A node of a tree (a graph without cycles: nodes may be shared). Lives in an arena, immutable once
 * built.
 */
struct dcpk_value {
    enum dcpk_value_kind kind;
    size_t n; /* STR, BYTES, BIGINT: bytes; TUPLE, LIST, SET: items; DICT: pairs */
    union {
        bool b;
        int64_t i;
        double f;
        const char *str;                        /* STR, BYTES, BIGINT */
        const struct dcpk_value *const *items;  /* TUPLE, LIST, SET */
        const struct dcpk_value_pair *pairs;    /* DICT, in insertion order */
        const struct dcpk_value_tensor *tensor; /* TENSOR */
        const struct dcpk_value_object *object; /* OBJECT */
        struct {
            const char *module, *name;
        } global;
    } as;
};

/*
 * The unfolded size of a value is the cost of a walk that does not know which nodes are shared: a
 * node counts 1, and 1 for each 8 bytes of its text, names or elements, each time it is met. A
 * reader of values refuses one that unfolds past dcpk_unfold_limit of the bytes it was stored in.
 * So a walk over one value is linear in stored bytes and needs no bound of its own; a combination
 * of several (JSON of a folder, an item under many names) is held against the limit of all their
 * bytes, each byte counted once.
 */
#define DCPK_UNFOLD_BASE   ((uint32_t)1 << 20) /* small values may share what they like */
#define DCPK_UNFOLD_A_BYTE 16
static inline uint32_t dcpk_unfold_limit(uint64_t stored_bytes)
{
    if (stored_bytes > (UINT32_MAX - DCPK_UNFOLD_BASE) / DCPK_UNFOLD_A_BYTE)
        return UINT32_MAX;
    return (uint32_t)stored_bytes * DCPK_UNFOLD_A_BYTE + DCPK_UNFOLD_BASE;
}
/* The unfolded size of one node alone, and of a whole value that was read (NULL: 0). */
uint64_t dcpk_value_unfolded_node(const struct dcpk_value *v);
uint64_t dcpk_value_unfolded(const struct dcpk_value *v); /* of all nodes, shared ones each time */

/* Constant values, for tables. */
#define DCPK_CONST_NONE                                                                            \
    {                                                                                              \
        .kind = DCPK_V_NONE                                                                        \
    }
#define DCPK_CONST_NUMBER(x)                                                                       \
    {                                                                                              \
        .kind = DCPK_V_FLOAT, .as.f = (x)                                                          \
    }
#define DCPK_CONST_WHOLE(x)                                                                        \
    {                                                                                              \
        .kind = DCPK_V_INT, .as.i = (x)                                                            \
    }
#define DCPK_CONST_TRUTH(x)                                                                        \
    {                                                                                              \
        .kind = DCPK_V_BOOL, .as.b = (x)                                                           \
    }
#define DCPK_CONST_WORD(x)                                                                         \
    {                                                                                              \
        .kind = DCPK_V_STR, .n = sizeof(x) - 1, .as.str = (x)                                      \
    }

/* Makers: NULL and err on failure (memory only). Contents are borrowed unless noted; they must live
 * in the same or an older arena. */
const struct dcpk_value *dcpk_value_none(void);
const struct dcpk_value *dcpk_value_bool(bool b); /* constant: never NULL */
/* An INT. */
const struct dcpk_value *dcpk_value_int(struct dcpk_arena *arena, int64_t i,
                                        struct dcpk_error *err);
/* A new FLOAT. */
const struct dcpk_value *dcpk_value_float(struct dcpk_arena *arena, double f,
                                          struct dcpk_error *err);
const struct dcpk_value *dcpk_value_str(struct dcpk_arena *arena, const char *text,
                                        struct dcpk_error *err); /* text copied */
const struct dcpk_value *dcpk_value_bytes(struct dcpk_arena *arena, const void *data, size_t n,
                                          struct dcpk_error *err); /* data copied */
/* A name that is pickled by reference, torch.bfloat16; both texts borrowed. */
const struct dcpk_value *dcpk_value_global(struct dcpk_arena *arena, const char *module,
                                           const char *name, struct dcpk_error *err);
/* A tensor with one axis; data copied. */
const struct dcpk_value *dcpk_value_vector(struct dcpk_arena *arena, enum dcpk_dtype dtype,
                                           const void *data, int64_t n_elems,
                                           struct dcpk_error *err);
const struct dcpk_value *dcpk_value_seq(struct dcpk_arena *arena, enum dcpk_value_kind kind,
                                        const struct dcpk_value *const *items, size_t n,
                                        struct dcpk_error *err); /* array copied */
const struct dcpk_value *dcpk_value_dict(struct dcpk_arena *arena,
                                         const struct dcpk_value_pair *pairs, size_t n,
                                         struct dcpk_error *err); /* array copied */
/* argparse.Namespace with these attributes. */
const struct dcpk_value *dcpk_value_namespace(struct dcpk_arena *arena,
                                              const struct dcpk_value_pair *pairs, size_t n,
                                              struct dcpk_error *err);

/* A dict under construction, in `arena`; the first failure is in *err, which is zeroed before. */
struct dcpk_dict {
    struct dcpk_arena *arena;
    struct dcpk_error *err;
    struct dcpk_value_pair *pairs;
    size_t n, capacity;
};
/* Append a pair, whose name is copied. Nothing where the key or the value is NULL. */
void dcpk_dict_add(struct dcpk_dict *dict, const struct dcpk_value *key,
                   const struct dcpk_value *value);
void dcpk_dict_put(struct dcpk_dict *dict, const char *name, const struct dcpk_value *value);
/* Append the pairs of a DICT; NULL: none. */
void dcpk_dict_put_all(struct dcpk_dict *dict, const struct dcpk_value *members);
/* The value of a name; NULL: none. All keys are text for this and what follows. */
const struct dcpk_value *dcpk_dict_get(const struct dcpk_dict *dict, const char *name);
/* Put a pair in the place of an older one of that name. Returns err->status for a NULL value. */
dcpk_status dcpk_dict_set(struct dcpk_dict *dict, const char *name, const struct dcpk_value *value);
/* The same of each pair of a DICT; NULL: none. */
dcpk_status dcpk_dict_set_all(struct dcpk_dict *dict, const struct dcpk_value *members);
/* A name that is not there: a no-op. */
void dcpk_dict_remove(struct dcpk_dict *dict, const char *name);
/* Sort by name, as Python does. */
void dcpk_dict_sort(struct dcpk_dict *dict);
/* The DICT, of which the pairs are a part then; NULL after a failure. */
const struct dcpk_value *dcpk_dict_end(const struct dcpk_dict *dict);

/* Look-ups; NULL when absent or when `v` is NULL or of another kind, so that calls chain. O(n). */
const struct dcpk_value *dcpk_value_get(const struct dcpk_value *dict,
                                        const char *key); /* str key of a DICT */
const struct dcpk_value *dcpk_value_get_int(const struct dcpk_value *dict,
                                            int64_t key); /* int key of a DICT */
const struct dcpk_value *dcpk_value_at(const struct dcpk_value *seq,
                                       size_t i); /* TUPLE, LIST, SET */
/* Attributes of an argparse.Namespace (or any object whose BUILD state is a dict): that dict, or
 * NULL. */
const struct dcpk_value *dcpk_value_attrs(const struct dcpk_value *object);
/* True if it is a LIST or a TUPLE; not of NULL. */
static inline bool dcpk_value_is_list(const struct dcpk_value *v)
{
    return v != NULL && (v->kind == DCPK_V_LIST || v->kind == DCPK_V_TUPLE);
}
/* True if other values are in it. */
static inline bool dcpk_value_is_container(const struct dcpk_value *v)
{
    return (v->kind >= DCPK_V_TUPLE && v->kind <= DCPK_V_DICT) || v->kind == DCPK_V_OBJECT;
}
/* True if v is an object of that class. */
bool dcpk_value_is_object(const struct dcpk_value *v, const char *module, const char *name);
/* Typed reads: false, out untouched, when absent or of another kind (as_int takes a bool as 0 or 1;
 * as_float an int). */
bool dcpk_value_as_int(const struct dcpk_value *v, int64_t *out);
bool dcpk_value_as_float(const struct dcpk_value *v, double *out); /* an INT is converted */
bool dcpk_value_as_bool(const struct dcpk_value *v, bool *out);    /* only a BOOL */
/* The int (or bool) that a DICT has under a key, else the default. */
int64_t dcpk_value_int_or(const struct dcpk_value *dict, const char *key, int64_t by_default);
/* True if it is absent (NULL), or None. */
bool dcpk_value_is_none(const struct dcpk_value *v);
/* True if a dict (NULL: none) has a member of that name, and it is True. */
bool dcpk_value_is_true(const struct dcpk_value *dict, const char *name);
const char *dcpk_value_as_str(const struct dcpk_value *v);            /* NULL unless STR */
bool dcpk_value_is_str(const struct dcpk_value *v, const char *text); /* NULL: false */

/*
 * Same content: kinds, order of sequences, dicts as sets of pairs, floats by bits but NaN equal
 * NaN, tensors bit for bit. Linear in the unfolded size of the smaller one, and in what both share
 * once; without memory for that the answer is "not equal".
 */
bool dcpk_value_equal(const struct dcpk_value *a, const struct dcpk_value *b);
/* True if two values of options mean the same. Numbers by value; absent (NULL), None and False are
 * one; a list is equal to a tuple. */
bool dcpk_value_same(const struct dcpk_value *a, const struct dcpk_value *b);

/*
 * JSON for people and tools: tuples as arrays, tensors and objects as {"__class__": ...}, "..."
 * for what is nested past DCPK_JSON_MAX_DEPTH. Linear in the unfolded size. Small tensors show
 * their bytes, except those of an outline.
 */
void dcpk_value_to_json(const struct dcpk_value *v, struct dcpk_json_out *out);
/*
 * Reads JSON as people write it: objects are dicts, "torch.bfloat16" is a dtype, a whole number an
 * INT. NULL and err: DCPK_EUNSUPPORTED for more than 8 levels; DCPK_ENOMEM.
 */
const struct dcpk_value *dcpk_value_from_json(struct dcpk_arena *arena,
                                              const struct dcpk_json *node, struct dcpk_error *err);

#endif
