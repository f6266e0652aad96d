/* SPDX-License-Identifier: Apache-2.0 */
/* pickle_priv.h - between the pickle machine (pickle_read.c) and the values it makes
 * (pickle_build.c). */
#ifndef DCPK_FORMATS_TORCH_PICKLE_PRIV_H
#define DCPK_FORMATS_TORCH_PICKLE_PRIV_H

#include "formats/torch/pickle.h"
#include "lib/base/cursor.h"

#define DCPK_PICKLE_RECENT_INTS    1024 /* a power of two */
#define DCPK_PICKLE_RECENT_GLOBALS 64   /* a power of two */
#define DCPK_PICKLE_MAX_NAME       255  /* bytes of a module or a name; longer ones occur nowhere */
#define DCPK_PICKLE_MAX_DEPTH      60000    /* fits dcpk_node.height below the walk's mark */
#define DCPK_NODE_FIXED            SIZE_MAX /* capacity of a SET that is frozen or shares its items */

enum dcpk_node_flags {
    /* A copy of what dcpk_pickle_persistent gave: what hangs on it has no struct dcpk_node. */
    DCPK_NODE_FOREIGN = 1,
    DCPK_NODE_ORDERED = 2, /* a DICT that is a collections.OrderedDict: it may have attributes */
};

/* The nodes of TUPLE, LIST, SET, DICT and OBJECT, so that the final check can colour them. */
struct dcpk_node {
    struct dcpk_value v;
    uint32_t at_bytes; /* of the opcode that made it */
    uint16_t height;   /* 0: not seen yet, GRAY: being walked, else levels below and with it */
    uint16_t flags;
    uint32_t unfolded; /* dcpk_value_unfolded of it, once its height is known */
    uint32_t run;      /* items of a LIST or DICT that a consumer took, 0: none */
};
struct dcpk_growing_node { /* LIST, SET, DICT */
    struct dcpk_node node;
    size_t capacity; /* items or pairs that the array has room for */
};
struct dcpk_growing_object {
    struct dcpk_value_object object;
    uint32_t item_capacity, pair_capacity; /* a pickle of less than 4 GiB has no more */
};
struct dcpk_object_node {
    struct dcpk_node node;
    struct dcpk_growing_object content;
};
struct dcpk_text_node { /* STR */
    struct dcpk_value v;
    uint32_t is_kept : 1; /* bytes with the names, node with `texts`: the collector leaves both */
    uint32_t latin1_made : 31; /* the builder's n_collections then; else it is gone */
    uint32_t number;           /* a consumer's for a kept text, 0: none */
    /* The result of _codecs.encode: made once between two collections, or repeated calls would eat
     * memory. */
    struct dcpk_value *latin1;
};

enum dcpk_call {
    DCPK_CALL_OTHER,
    DCPK_CALL_SIZE,
    DCPK_CALL_ORDERED_DICT,
    DCPK_CALL_SET,
    DCPK_CALL_ENCODE,
    DCPK_CALL_BYTES,
    DCPK_CALL_GETATTR,
};
struct dcpk_global_node { /* GLOBAL */
    struct dcpk_value v;
    enum dcpk_call call;
    bool is_known;
};

/*
 * Makes the values of one pickle. They are handed out without const because lists, dicts and
 * objects grow while the pickle is read; dcpk_builder_finish freezes the tree. Makers return NULL
 * with err set: DCPK_ENOMEM, or DCPK_ERANGE past a limit. Every value a function takes must come
 * from the same builder.
 */
struct dcpk_builder {
    struct dcpk_arena *arena;      /* of values: `names`, or owned when collecting */
    struct dcpk_arena *next_arena; /* empty, what the next collection moves to; owned */
    struct dcpk_arena *names;      /* of GLOBALs and the bytes of kept texts; borrowed */
    struct dcpk_arena *texts;      /* nodes of kept texts; NULL: nothing is collected */
    bool keeps_text;               /* the text made next: the memo will hold it to the end */
    uint64_t collect_bytes;        /* 0: values are never collected */
    uint64_t collect_at_bytes;     /* size of `arena` that makes a collection worth it */
    uint32_t n_collections; /* below 2^31: a pickle of less than 4 GiB makes no PiB of values */
    struct dcpk_check_frame *frames; /* of the check, max_depth of them; NULL: not needed yet */
    uint64_t n_nodes, max_nodes;
    uint32_t max_depth;
    uint32_t max_unfolded;
    /* The place of the opcode under way, set by the machine; nodes remember it for messages. */
    uint32_t at_bytes;
    uint64_t base_bytes;                              /* added to offsets in messages */
    const struct dcpk_global_node *unknown;           /* the first that is not known, or NULL */
    struct dcpk_value *none, *no, *yes, *empty_tuple; /* one node each, made when first needed */
    /* Sizes and offsets repeat: share their nodes. */
    struct dcpk_value *recent_ints[DCPK_PICKLE_RECENT_INTS];
    struct dcpk_value *recent_globals[DCPK_PICKLE_RECENT_GLOBALS]; /* likewise; never collected */
};

/* Values reach us through const arrays of dcpk_value; all of them are nodes of this builder (never
 * const). */
static inline struct dcpk_value *dcpk_node_mutable(const struct dcpk_value *v)
{
    return (struct dcpk_value *)(uintptr_t)v;
}

static inline struct dcpk_node *dcpk_node_of(const struct dcpk_value *v)
{
    return (struct dcpk_node *)(uintptr_t)v;
}

/* True if the collector leaves it where it is. */
static inline bool dcpk_node_is_fixed(const struct dcpk_value *v)
{
    return v->kind == DCPK_V_GLOBAL ||
           (v->kind == DCPK_V_STR && ((const struct dcpk_text_node *)v)->is_kept);
}

static inline bool dcpk_node_is_foreign(const struct dcpk_value *v)
{
    return dcpk_value_is_container(v) && (dcpk_node_of(v)->flags & DCPK_NODE_FOREIGN) != 0;
}

static inline struct dcpk_growing_object *dcpk_node_object(struct dcpk_value *v)
{
    return (struct dcpk_growing_object *)(uintptr_t)v->as.object;
}

/* Checks that `to`, of one of two kinds, may still change; else DCPK_EUNSUPPORTED. */
dcpk_status dcpk_node_check_target(const struct dcpk_value *to, enum dcpk_value_kind kind,
                                   enum dcpk_value_kind or_kind, struct dcpk_error *err);

/* A zeroed node of n_bytes whose first member is a struct dcpk_value; the second for those with a
 * struct dcpk_node. */
void *dcpk_builder_make(struct dcpk_builder *b, enum dcpk_value_kind kind, size_t n_bytes,
                        struct dcpk_error *err);
/* The same with a struct dcpk_node, whose place in the pickle it sets. */
void *dcpk_builder_node(struct dcpk_builder *b, enum dcpk_value_kind kind, size_t n_bytes,
                        struct dcpk_error *err);
/* Set call and is_known of a global whose names are set. */
void dcpk_builder_classify(struct dcpk_global_node *g);

/* arena: takes the result and the names, and all other values too unless there is a consumer. */
void dcpk_builder_init(struct dcpk_builder *b, struct dcpk_arena *arena,
                       const struct dcpk_pickle_options *options, size_t n_bytes);
/* Frees all but what it made in the arena of init. */
void dcpk_builder_release(struct dcpk_builder *b);

/* None: one node for all uses. */
struct dcpk_value *dcpk_builder_none(struct dcpk_builder *b, struct dcpk_error *err);
/* True, False: one node each. */
struct dcpk_value *dcpk_builder_bool(struct dcpk_builder *b, bool v, struct dcpk_error *err);
/* An INT, shared with recent uses of the number. */
struct dcpk_value *dcpk_builder_int(struct dcpk_builder *b, int64_t i, struct dcpk_error *err);
/* n bytes of little-endian two's complement: an INT when it fits, else a BIGINT of the fewest
 * bytes. */
struct dcpk_value *dcpk_builder_long(struct dcpk_builder *b, const uint8_t *le, size_t n,
                                     struct dcpk_error *err);
/* A new FLOAT. */
struct dcpk_value *dcpk_builder_float(struct dcpk_builder *b, double f, struct dcpk_error *err);
/* STR; DCPK_EFORMAT unless UTF-8 (lone surrogates pass: CPython writes them). */
struct dcpk_value *dcpk_builder_text(struct dcpk_builder *b, const uint8_t *text, size_t n,
                                     struct dcpk_error *err);
/* A new BYTES with a copy of n bytes. */
struct dcpk_value *dcpk_builder_bytes(struct dcpk_builder *b, const uint8_t *data, size_t n,
                                      struct dcpk_error *err);
/* builtins.bytearray(bytes), not called. */
struct dcpk_value *dcpk_builder_bytearray(struct dcpk_builder *b, const uint8_t *data, size_t n,
                                          struct dcpk_error *err);
/* A str of Python 2: STR when it is UTF-8, else BYTES. */
struct dcpk_value *dcpk_builder_old_str(struct dcpk_builder *b, const uint8_t *data, size_t n,
                                        struct dcpk_error *err);
/* DCPK_EFORMAT: empty, not UTF-8, a NUL or newline inside; DCPK_ERANGE: longer than 255 bytes. */
struct dcpk_value *dcpk_builder_global(struct dcpk_builder *b, const char *module,
                                       size_t module_bytes, const char *name, size_t name_bytes,
                                       struct dcpk_error *err);
/* An empty LIST, SET or DICT that may grow. */
struct dcpk_value *dcpk_builder_empty(struct dcpk_builder *b, enum dcpk_value_kind kind,
                                      struct dcpk_error *err);
/* A TUPLE, or a SET (frozenset), of n items; the array is copied. */
struct dcpk_value *dcpk_builder_fixed(struct dcpk_builder *b, enum dcpk_value_kind kind,
                                      struct dcpk_value *const *items, size_t n,
                                      struct dcpk_error *err);
/* The object that cls.__new__(cls, *args) or callable(*args) would give, or the plain value that
 * pickle.h promises for it. */
struct dcpk_value *dcpk_builder_new(struct dcpk_builder *b, struct dcpk_value *cls,
                                    struct dcpk_value *args, struct dcpk_error *err);
struct dcpk_value *dcpk_builder_new_ex(struct dcpk_builder *b, struct dcpk_value *cls,
                                       struct dcpk_value *args, struct dcpk_value *keywords,
                                       struct dcpk_error *err);
struct dcpk_value *dcpk_builder_reduce(struct dcpk_builder *b, struct dcpk_value *callable,
                                       struct dcpk_value *args, struct dcpk_error *err);
/* A node of our own for what a dcpk_pickle_persistent returned. */
struct dcpk_value *dcpk_builder_adopt(struct dcpk_builder *b, const struct dcpk_value *foreign,
                                      struct dcpk_error *err);

/* Grow a LIST or an OBJECT; a SET that is open; a DICT or an OBJECT (items: key, value, key, ...; n
 * even). */
dcpk_status dcpk_builder_append(struct dcpk_builder *b, struct dcpk_value *to,
                                struct dcpk_value *const *items, size_t n, struct dcpk_error *err);
dcpk_status dcpk_builder_add(struct dcpk_builder *b, struct dcpk_value *to,
                             struct dcpk_value *const *items, size_t n, struct dcpk_error *err);
dcpk_status dcpk_builder_set_items(struct dcpk_builder *b, struct dcpk_value *to,
                                   struct dcpk_value *const *items, size_t n,
                                   struct dcpk_error *err);
dcpk_status dcpk_builder_set_state(struct dcpk_builder *b, struct dcpk_value *to,
                                   struct dcpk_value *state, struct dcpk_error *err);

/*
 * Refuse cycles, trees deeper than the limit or larger unfolded than theirs, and dicts with a key
 * twice, in what can be reached from v. Each container is looked at once, whatever the number of
 * calls, and cannot change any more after that. Linear.
 */
dcpk_status dcpk_builder_check(struct dcpk_builder *b, const struct dcpk_value *v,
                               struct dcpk_error *err);

/* Values that are in use: the collector moves what they lead to and updates them. */
struct dcpk_roots {
    struct dcpk_value **values; /* NULLs among them are skipped */
    size_t n;
    const uint32_t *which; /* n indexes, each once; NULL: the first n */
};
/* True if the builder has made enough since the last collection that the next is worth it. */
static inline bool dcpk_builder_is_full(const struct dcpk_builder *b)
{
    return b->collect_bytes != 0 && dcpk_arena_used_bytes(b->arena) >= b->collect_at_bytes;
}
/* Move what the roots lead to into another arena and clear the old one. On failure only releasing
 * is left to do. */
dcpk_status dcpk_builder_collect(struct dcpk_builder *b, const struct dcpk_roots *roots,
                                 size_t n_roots, struct dcpk_error *err);
/* Move it into `to`; no value may be made after that. */
dcpk_status dcpk_builder_move(struct dcpk_builder *b, struct dcpk_arena *to,
                              const struct dcpk_roots *roots, size_t n_roots,
                              struct dcpk_error *err);

/* "list", "dict", ... for messages. */
const char *dcpk_builder_kind_name(enum dcpk_value_kind kind);

/* The bytes of a pickle. The cursor sees all of them, or a window into the source. */
struct dcpk_pickle_input {
    struct dcpk_cursor cursor;
    struct dcpk_source *source; /* NULL: all in memory */
    uint64_t n_bytes;           /* of the pickle */
    uint64_t base_bytes;        /* place of the pickle in its file, for messages */
    uint8_t *window;
    size_t window_bytes;
};
/* Bytes of the pickle before the cursor, and from there on. */
static inline uint64_t dcpk_pickle_input_at(const struct dcpk_pickle_input *in)
{
    return in->cursor.base_bytes - in->base_bytes + in->cursor.at_bytes;
}
static inline uint64_t dcpk_pickle_input_left(const struct dcpk_pickle_input *in)
{
    return in->n_bytes - dcpk_pickle_input_at(in);
}
/* Lets the cursor see the next n bytes, or all that are left if fewer. Earlier borrowed bytes are
 * invalid then. */
dcpk_status dcpk_pickle_input_fill(struct dcpk_pickle_input *in, size_t n, struct dcpk_error *err);

struct dcpk_bits { /* a set of numbers */
    uint64_t *words;
    size_t n_words;
};
/* Memo of a pickle of n_bytes. First all numbers that are asked for, then settle, then put and
 * get. */
struct dcpk_memo {
    struct dcpk_bits asked, set;
    uint32_t *n_before; /* numbers asked for before each word of `asked` */
    struct dcpk_value **values;
    size_t n_values;
    uint32_t *moving; /* indexes of values that the collector moves: few, most are texts */
    size_t n_moving, moving_capacity;
    struct dcpk_bits is_moving; /* the numbers of those */
    uint64_t n_set;             /* numbers that are set: the one that MEMOIZE takes next */
    uint64_t max_entries, max_number;
};
/* Marks a number to be kept; ignores one that n_bytes cannot set. */
dcpk_status dcpk_memo_ask(struct dcpk_memo *memo, uint64_t number, struct dcpk_error *err);
/* True if dcpk_memo_ask marked it. */
bool dcpk_memo_is_asked(const struct dcpk_memo *memo, uint64_t number);
/* at_bytes: of the pickle read so far. DCPK_ERANGE: a number that this can not justify. */
dcpk_status dcpk_memo_put(struct dcpk_memo *memo, uint64_t number, uint64_t at_bytes,
                          struct dcpk_value *v, struct dcpk_error *err);
/* DCPK_EFORMAT: never set. */
dcpk_status dcpk_memo_get(const struct dcpk_memo *memo, uint64_t number, struct dcpk_value **v,
                          struct dcpk_error *err);

/* ---- the machine ---- */

#define DCPK_PICKLE_STEP_BYTES                                                                     \
    1024 /* in sight before each opcode: more than one without a length takes */

/* Source: CPython 3.11 Lib/pickletools.py, and class _Unpickler of Lib/pickle.py for each
 * opcode. */
struct dcpk_pickle_machine {
    struct dcpk_builder build;
    struct dcpk_pickle_input in;
    const struct dcpk_pickle_options *options;
    struct dcpk_value **stack;
    size_t n_stack, stack_capacity;
    size_t *marks; /* heights of the stack; nothing may be popped from below the last */
    size_t n_marks, mark_capacity;
    struct dcpk_memo memo;
};

/* Execute the opcode; its argument follows at the cursor. */
dcpk_status dcpk_pickle_step(struct dcpk_pickle_machine *m, uint8_t opcode, struct dcpk_error *err);
/* Pass over its argument only, and note a memo number that it asks for. */
dcpk_status dcpk_pickle_skip(struct dcpk_pickle_machine *m, uint8_t opcode, struct dcpk_error *err);
/* The same for all opcodes from here on that lie in sight with a number after them or nothing:
 * most of a pickle, in a loop that does no more. */
dcpk_status dcpk_pickle_skip_plain(struct dcpk_pickle_machine *m, struct dcpk_error *err);

#endif
