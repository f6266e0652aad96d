/* SPDX-License-Identifier: Apache-2.0 */
/* pickle.h - Python pickles as data: a reader that calls nothing, and a writer. */
#ifndef DCPK_FORMATS_TORCH_PICKLE_H
#define DCPK_FORMATS_TORCH_PICKLE_H

#include "lib/base/bytes.h"
#include "lib/ckpt/value.h"
#include "lib/io/store.h"

/*
 * Limits of one pickle; 0 takes the default. Passing one is DCPK_ERANGE with the byte offset.
 */
struct dcpk_pickle_limits {
    uint32_t max_depth; /* nesting of the finished value, default 200 */
    uint64_t max_nodes; /* values made, default 64 * bytes of the pickle + 1024 */
    uint64_t max_memo;  /* memo entries, default bytes of the pickle */
    /* With a consumer: bytes of values made before the reader first looks for those it can forget,
     * default 8 MiB. */
    uint64_t collect_bytes;
};

/*
 * Resolve a persistent id (BINPERSID: torch's storages) to a value. Called while reading; `pid` is
 * the finished tuple, flat (no container in it; else DCPK_EUNSUPPORTED). The reader copies the node
 * that comes back, not what it points at.
 */
typedef dcpk_status dcpk_pickle_persistent(void *context, struct dcpk_arena *arena,
                                           const struct dcpk_value *pid,
                                           const struct dcpk_value **value, struct dcpk_error *err);

/*
 * Takes the items of large lists and dicts while the pickle is read, so that they need not be kept:
 * memory follows the kept values, not the pickle.
 */
struct dcpk_pickle_batch {
    const char *key;                       /* of `keys` */
    const struct dcpk_value *container;    /* the LIST or DICT that they are put into */
    const struct dcpk_value *const *items; /* of a DICT: key, value, key, ... */
    size_t n;                              /* pointers in items */
};
struct dcpk_pickle_consumer {
    /* The texts that may stand below a list or dict on the stack (CPython leaves the key there
     * while it fills a dict's value) for its items to be offered. NULL at the end. */
    const char *const *keys;
    /*
     * Take the first *n_taken items of the batch (of a DICT: an even number), which are finished,
     * without cycles and borrowed for the call; the others go into the container as ever.
     * *run: what dcpk_pickle_run returns for the container, 0 at first, set by the consumer.
     * Whether the container is where its key claims shows only when the whole value is there.
     */
    dcpk_status (*take)(void *context, const struct dcpk_pickle_batch *batch, uint32_t *run,
                        size_t *n_taken, struct dcpk_error *err);
    void *context;
};

/* A class or function that a pickle names; "" and "": what another call returns, called. */
struct dcpk_pickle_name {
    const char *module, *name;
};

struct dcpk_pickle_options {
    struct dcpk_pickle_limits limits;
    dcpk_pickle_persistent *persistent; /* NULL: BINPERSID is DCPK_EUNSUPPORTED */
    void *context;
    const struct dcpk_pickle_consumer *consumer; /* or NULL; not together with persistent */
    uint64_t base_bytes; /* added to offsets in messages: place of the pickle in its file */
    /* NULL, or set on success to the first class or function named anywhere in the pickle that is
     * not known, also where the value does not show it: Python would import it. It lives in the
     * arena; name is NULL when there is none. */
    struct dcpk_pickle_name *unknown;
};

/*
 * Read one pickle of protocol 0..5 framing, opcodes of protocols 2 to 5 (FORMAT.md 1 and the rest
 * of the data opcodes CPython emits); n bytes, at most 4 GiB - 1, which must end with STOP (bytes
 * after it are DCPK_EFORMAT). Nothing is called: GLOBAL/STACK_GLOBAL push a DCPK_V_GLOBAL; REDUCE,
 * NEWOBJ, NEWOBJ_EX and BUILD make DCPK_V_OBJECTs. The exact list of (module, name) pairs that
 * Megatron's and torch's files hold is in pickle_check.c; an object of another class has is_known
 * false and stays inert. A few known calls are turned into plain values: torch.Size -> TUPLE (of
 * ints), collections.OrderedDict() -> DICT (an OBJECT again when it has attributes of its own, as
 * torch's state dicts may), builtins.set/frozenset -> SET, _codecs.encode(str, "latin1") -> BYTES,
 * getattr(class, "Inner") -> GLOBAL "Class.Inner". Module names are those of Python 3
 * ("__builtin__" reads as "builtins"). POP of more than a plain value is DCPK_EUNSUPPORTED: Python
 * has made what it takes off. NEWOBJ_EX with keywords becomes a REDUCE of copyreg.__newobj_ex__.
 * EXT opcodes, INST and OBJ are DCPK_EUNSUPPORTED, and so is a container that holds itself. A dict
 * with the same text or integer key twice is DCPK_EFORMAT: which value counts would be open. A
 * value that unfolds past dcpk_unfold_limit of the pickle's bytes is DCPK_ERANGE. Memory:
 * proportional to the pickle's bytes (limits); everything in `arena`.
 */
dcpk_status dcpk_pickle_read(const void *data, size_t n_bytes,
                             const struct dcpk_pickle_options *options, struct dcpk_arena *arena,
                             const struct dcpk_value **value, struct dcpk_error *err);

/*
 * The same of a source, through a window of some 100 KiB that moves over it twice: once to learn
 * which memo entries are asked for.
 * With options->consumer: containers that were offered may not change once they are inside
 * something that was taken (DCPK_EUNSUPPORTED), and calls of builtins.set stay OBJECTs.
 */
dcpk_status dcpk_pickle_read_source(struct dcpk_source *source,
                                    const struct dcpk_pickle_options *options,
                                    struct dcpk_arena *arena, const struct dcpk_value **value,
                                    struct dcpk_error *err);

/* The consumer's number for a list or dict of a value read with one; 0: it took nothing of it. */
uint32_t dcpk_pickle_run(const struct dcpk_value *v);
/*
 * A text that a consumer is shown and that the pickle asks for again: its bytes live in the
 * reader's arena already, and the consumer may give it a number, to know it by when it comes again.
 * 0: it has none.
 */
bool dcpk_pickle_is_kept(const struct dcpk_value *text);
uint32_t dcpk_pickle_number(const struct dcpk_value *text);                  /* of a STR */
void dcpk_pickle_set_number(const struct dcpk_value *text, uint32_t number); /* of a kept one */

/* True if (module, name) is on the list. */
bool dcpk_pickle_is_known(const char *module, const char *name);

/*
 * Write `value` as a pickle of `protocol` 2 (GLOBAL opcodes, what torch's weights_only unpickler
 * takes) or 4. Nodes shared in the tree are written once and memoised, so that identity is kept and
 * size stays linear. Dicts and lists in batches of 1000 as CPython does. Tensors: `tensor` is
 * called for each and must append the opcodes that leave it on the stack; NULL: DCPK_EUNSUPPORTED.
 */
struct dcpk_pickle_writer; /* target of `tensor`; see below */
typedef dcpk_status dcpk_pickle_put_tensor(void *context, struct dcpk_pickle_writer *w,
                                           const struct dcpk_value_tensor *tensor,
                                           struct dcpk_error *err);
dcpk_status dcpk_pickle_write(const struct dcpk_value *value, int protocol,
                              dcpk_pickle_put_tensor *tensor, void *context, struct dcpk_bytes *out,
                              struct dcpk_error *err);

/* Opcodes by CPython's names (pickletools), for callers of put_op. */
enum {
    DCPK_OP_MARK = '(',
    DCPK_OP_STOP = '.',
    DCPK_OP_NONE = 'N',
    DCPK_OP_NEWTRUE = 0x88,
    DCPK_OP_NEWFALSE = 0x89,
    DCPK_OP_EMPTY_TUPLE = ')',
    DCPK_OP_TUPLE = 't',
    DCPK_OP_TUPLE1 = 0x85,
    DCPK_OP_TUPLE2 = 0x86,
    DCPK_OP_TUPLE3 = 0x87,
    DCPK_OP_EMPTY_LIST = ']',
    DCPK_OP_APPEND = 'a',
    DCPK_OP_APPENDS = 'e',
    DCPK_OP_EMPTY_DICT = '}',
    DCPK_OP_SETITEM = 's',
    DCPK_OP_SETITEMS = 'u',
    DCPK_OP_NEWOBJ = 0x81,
    DCPK_OP_REDUCE = 'R',
    DCPK_OP_BUILD = 'b',
    DCPK_OP_BINPERSID = 'Q',
    DCPK_OP_BININT = 'J',
    DCPK_OP_BININT1 = 'K',
    DCPK_OP_BININT2 = 'M',
    DCPK_OP_BINGET = 'h',
    DCPK_OP_LONG_BINGET = 'j',
};

/*
 * The writer's pieces, for streams too large for a value tree (.metadata) and for put_tensor.
 * Errors are sticky in the bytes. No memo is kept by these except text: dcpk_pickle_put_text
 * memoises each text of at most 64 KiB the first time and gets it from the memo after that. Modules
 * and names hold no newline.
 */
struct dcpk_pickle_writer *
dcpk_pickle_writer_new(struct dcpk_bytes *out, int protocol,
                       struct dcpk_error *err);             /* out borrowed; writes PROTO */
void dcpk_pickle_writer_free(struct dcpk_pickle_writer *w); /* NULL is a no-op */
void dcpk_pickle_put_op(struct dcpk_pickle_writer *w,
                        uint8_t opcode);                            /* an opcode without argument */
void dcpk_pickle_put_int(struct dcpk_pickle_writer *w, int64_t v);  /* in the shortest opcode */
void dcpk_pickle_put_float(struct dcpk_pickle_writer *w, double v); /* BINFLOAT */
/* Pushes a text, from the memo where it is there. */
void dcpk_pickle_put_text(struct dcpk_pickle_writer *w, const char *text, size_t n);
/* Text that is known not to be in the memo, without a look: stored there, its number. Later calls
 * of put_text do not know of it. */
uint32_t dcpk_pickle_put_new_text(struct dcpk_pickle_writer *w, const char *text, size_t n);
/* Pushes module.name, from the memo where it is there. */
void dcpk_pickle_put_global(struct dcpk_pickle_writer *w, const char *module, const char *name);
/* Store the top of the stack in the memo; the number to get it back with. */
uint32_t dcpk_pickle_put_memo(struct dcpk_pickle_writer *w);
/* Pushes an entry of the memo. */
void dcpk_pickle_put_get(struct dcpk_pickle_writer *w, uint32_t memo);

/* The appends of these two, for streams of many millions of them: inline, past the writer. */
static inline void dcpk_pickle_append_get(struct dcpk_bytes *out, uint32_t memo)
{
    if (memo <= UINT8_MAX) {
        dcpk_bytes_u16(out, (uint16_t)(DCPK_OP_BINGET | memo << 8));
    } else {
        dcpk_bytes_u8(out, DCPK_OP_LONG_BINGET);
        dcpk_bytes_u32(out, memo);
    }
}

void dcpk_pickle_append_long(struct dcpk_bytes *out, int64_t v); /* An int of more than 32 bits */
static inline void dcpk_pickle_append_int(struct dcpk_bytes *out, int64_t v)
{
    if (v >= 0 && v <= UINT8_MAX) {
        dcpk_bytes_u16(out, (uint16_t)(DCPK_OP_BININT1 | v << 8));
    } else if (v >= 0 && v <= UINT16_MAX) {
        dcpk_bytes_u8(out, DCPK_OP_BININT2);
        dcpk_bytes_u16(out, (uint16_t)v);
    } else if (v >= INT32_MIN && v <= INT32_MAX) {
        dcpk_bytes_u8(out, DCPK_OP_BININT);
        dcpk_bytes_u32(out, (uint32_t)(int32_t)v);
    } else {
        dcpk_pickle_append_long(out, v);
    }
}

#endif
