/* SPDX-License-Identifier: Apache-2.0 */
/* metadata_write.c - an output that is laid out -> .metadata bytes, in the form of torch 2.4 and
 * later. */
#include "formats/dcp/dcp.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/torch/pickle.h"
#include "lib/base/alloc.h"

/*
 * Written as a stream: no value tree, nothing kept for a chunk. Every text and class is written
 * once and taken from the pickle's memo after that, so a chunk costs about 60 bytes of file, and a
 * key the 4 bytes of its memo number here: no text is ever looked up. Mutable objects are never
 * shared between keys: a loader may change one. Form: FORMAT.md 1;
 * torch/distributed/checkpoint/{metadata,filesystem}.py@2.11.0.
 */

#define METADATA_MODULE "torch.distributed.checkpoint.metadata"
#define BATCH           1000 /* items between SETITEMS or APPENDS, as CPython batches */
#define PIECE_BYTES     (1u << 20)

/* Globals that many entries name. */
enum global {
    TENSOR_CLASS,
    BYTES_CLASS,
    CHUNK_CLASS,
    INDEX_CLASS,
    INFO_CLASS,
    PROPERTIES_CLASS,
    MEMORY_FORMAT,
    GET_LAYOUT,
    SIZE_CLASS,
    N_GLOBALS
};
static const struct {
    const char *module, *name;
} globals[N_GLOBALS] = {
    [TENSOR_CLASS] = {METADATA_MODULE, "TensorStorageMetadata"},
    [BYTES_CLASS] = {METADATA_MODULE, "BytesStorageMetadata"},
    [CHUNK_CLASS] = {METADATA_MODULE, "ChunkStorageMetadata"},
    [INDEX_CLASS] = {METADATA_MODULE, "MetadataIndex"},
    [INFO_CLASS] = {"torch.distributed.checkpoint.filesystem", "_StorageInfo"},
    [PROPERTIES_CLASS] = {METADATA_MODULE, "TensorProperties"},
    [MEMORY_FORMAT] = {METADATA_MODULE, "_MEM_FORMAT_ENCODING"},
    [GET_LAYOUT] = {"torch.serialization", "_get_layout"},
    [SIZE_CLASS] = {"torch", "Size"},
};

/* Names of attributes, and other texts that entries share. */
enum word {
    PROPERTIES,
    SIZE,
    CHUNKS,
    OFFSETS,
    SIZES,
    STRIDED,
    FQN,
    INDEX,
    OFFSET,
    RELATIVE_PATH,
    LENGTH,
    MODEL_SHAPE,
    N_WORDS
};
static const char *const words[N_WORDS] = {
    [PROPERTIES] = "properties",
    [SIZE] = "size",
    [CHUNKS] = "chunks",
    [OFFSETS] = "offsets",
    [SIZES] = "sizes",
    [STRIDED] = "torch.strided",
    [FQN] = "fqn",
    [INDEX] = "index",
    [OFFSET] = "offset",
    [RELATIVE_PATH] = "relative_path",
    [LENGTH] = "length",
    [MODEL_SHAPE] = "nd_reformulated_orig_global_shape",
};

/*
 * Runs of opcodes that are the same each time once their classes and words are in the memo: half of
 * the file. Each is put together twice and copied from then on.
 */
enum run_kind {
    BYTES_ENTRY, /* all of an object's entry */
    CHUNK_HEAD,  /* of ChunkStorageMetadata, up to its offsets */
    INDEX_HEAD,  /* of MetadataIndex, up to its fqn */
    INFO_HEAD,   /* of _StorageInfo, up to its path */
    TENSOR_HEAD, /* of TensorStorageMetadata, up to its size: one a dtype */
    N_RUNS = TENSOR_HEAD + DCPK_N_DTYPES
};
#define RUN_BYTES 128

struct run {
    uint8_t bytes[RUN_BYTES];
    size_t n_bytes; /* 0: to be put together */
    bool is_known;  /* it has been, so that all of it is in the memo */
};

/* The place of something in the memo. */
struct memo {
    uint32_t number_plus_1; /* 0: not there yet */
};

struct writing {
    const struct dcpk_output *out;
    dcpk_metadata_put *put;
    void *context;
    struct dcpk_error *err;
    dcpk_status st;          /* once it is a failure, nothing more is put */
    struct dcpk_bytes piece; /* bytes not put yet */
    struct dcpk_bytes name;  /* of an object, put together */
    struct dcpk_pickle_writer *w;
    struct memo globals[N_GLOBALS];
    struct memo words[N_WORDS];
    struct run runs[N_RUNS];
    size_t run_at_bytes; /* where the one that is put together begins in `piece` */
    struct memo *files;  /* by number */
    struct memo *keys;   /* of the tensors in their order, then of the objects: set by entries */
};

/* A list or dict under way: how many items since the last SETITEMS or APPENDS. */
struct batch {
    uint8_t close_op;
    size_t n;
};

/* As dcpk_pickle_put_op, inline: half of all bytes that are written come from here. */
static void op(struct writing *m, uint8_t opcode)
{
    dcpk_bytes_u8(&m->piece, opcode);
}

/* Text that is needed once. */
static void text(struct writing *m, const char *s)
{
    dcpk_pickle_put_text(m->w, s, strlen(s));
}

/* Text that is in the memo. */
static void known_text(struct writing *m, const struct memo *memo)
{
    dcpk_pickle_append_get(&m->piece, memo->number_plus_1 - 1);
}

/* Text from the memo, or written and memoised. */
static void shared_text(struct writing *m, const char *s, struct memo *memo)
{
    if (memo->number_plus_1 > 0)
        known_text(m, memo);
    else
        memo->number_plus_1 = dcpk_pickle_put_new_text(m->w, s, strlen(s)) + 1;
}

/* The name of an object, written and memoised. */
static void object_name(struct writing *m, const struct dcpk_out_object *object, struct memo *memo)
{
    m->name.n_bytes = 0;
    dcpk_out_object_name(object, &m->name);
    if (dcpk_bytes_status(&m->name, m->err) == DCPK_OK)
        memo->number_plus_1 =
            dcpk_pickle_put_new_text(m->w, (const char *)m->name.data, m->name.n_bytes) + 1;
    else if (m->st == DCPK_OK)
        m->st = m->err->status;
}

static void word(struct writing *m, enum word which)
{
    shared_text(m, words[which], &m->words[which]);
}

static void global(struct writing *m, enum global which)
{
    struct memo *memo = &m->globals[which];

    if (memo->number_plus_1 > 0) {
        dcpk_pickle_append_get(&m->piece, memo->number_plus_1 - 1);
        return;
    }
    dcpk_pickle_put_global(m->w, globals[which].module, globals[which].name);
    memo->number_plus_1 = dcpk_pickle_put_memo(m->w) + 1;
}

/* An empty instance of a class. */
static void instance(struct writing *m, enum global cls)
{
    global(m, cls);
    op(m, DCPK_OP_EMPTY_TUPLE);
    op(m, DCPK_OP_NEWOBJ);
}

/* The attributes of an instance: a dict given to BUILD. */
static void begin_state(struct writing *m)
{
    op(m, DCPK_OP_EMPTY_DICT);
    op(m, DCPK_OP_MARK);
}

static void end_state(struct writing *m)
{
    op(m, DCPK_OP_SETITEMS);
    op(m, DCPK_OP_BUILD);
}

/* Put what has been written so far. */
static void put_piece(struct writing *m)
{
    if (m->st == DCPK_OK)
        m->st = dcpk_bytes_status(&m->piece, m->err);
    if (m->st == DCPK_OK)
        m->st = m->put(m->context, m->piece.data, m->piece.n_bytes, m->err);
    m->piece.n_bytes = 0;
}
static struct batch begin_batch(struct writing *m, uint8_t open_op, uint8_t close_op)
{
    op(m, open_op);
    op(m, DCPK_OP_MARK);
    return (struct batch){.close_op = close_op};
}

/* Before each item. */
static void metadata_next_item(struct writing *m, struct batch *b)
{
    if (m->piece.n_bytes >= PIECE_BYTES)
        put_piece(m);
    if (b->n++ == BATCH) {
        op(m, b->close_op);
        op(m, DCPK_OP_MARK);
        b->n = 1;
    }
}

static void end_batch(struct writing *m, const struct batch *b)
{
    op(m, b->close_op);
}

/* False: it is there. True: the caller puts it together, then calls end_run. */
static bool begin_run(struct writing *m, unsigned which)
{
    const struct run *run = &m->runs[which];

    m->run_at_bytes = m->piece.n_bytes;
    dcpk_bytes_put(&m->piece, run->bytes, run->n_bytes);
    return run->n_bytes == 0;
}

static void end_run(struct writing *m, unsigned which)
{
    const size_t n_bytes = m->piece.n_bytes - m->run_at_bytes;
    struct run *run = &m->runs[which];

    if (run->is_known && n_bytes > 0 && n_bytes <= RUN_BYTES) { /* 0 after a failure */
        memcpy(run->bytes, m->piece.data + m->run_at_bytes, n_bytes);
        run->n_bytes = n_bytes;
    }
    run->is_known = true;
}

static void size(struct writing *m, const int64_t *numbers, int n)
{
    global(m, SIZE_CLASS);
    op(m, DCPK_OP_MARK);
    for (int i = 0; i < n; i++)
        dcpk_pickle_append_int(&m->piece, numbers[i]);
    op(m, DCPK_OP_TUPLE);
    op(m, DCPK_OP_TUPLE1);
    op(m, DCPK_OP_REDUCE);
}

/* State is the tuple (dtype, layout, requires_grad, memory format, pin_memory):
 * TensorProperties.__getstate__. */
static void properties(struct writing *m, enum dcpk_dtype dtype)
{
    instance(m, PROPERTIES_CLASS);
    op(m, DCPK_OP_MARK);
    dcpk_pickle_put_global(m->w, "torch", dcpk_dtype_name(dtype));
    global(m, GET_LAYOUT);
    word(m, STRIDED);
    op(m, DCPK_OP_TUPLE1);
    op(m, DCPK_OP_REDUCE);
    op(m, DCPK_OP_NEWFALSE);
    global(m, MEMORY_FORMAT);
    dcpk_pickle_append_int(&m->piece, 0); /* contiguous */
    op(m, DCPK_OP_TUPLE1);
    op(m, DCPK_OP_REDUCE);
    op(m, DCPK_OP_NEWFALSE);
    op(m, DCPK_OP_TUPLE);
    op(m, DCPK_OP_BUILD);
}

static void tensor_entry(struct writing *m, const struct dcpk_out_tensor *t)
{
    struct batch b;

    if (begin_run(m, TENSOR_HEAD + t->dtype)) {
        instance(m, TENSOR_CLASS);
        begin_state(m);
        word(m, PROPERTIES);
        properties(m, t->dtype);
        word(m, SIZE);
        end_run(m, TENSOR_HEAD + t->dtype);
    }
    if (t->written_shape != NULL)
        size(m, t->written_shape, t->written_rank);
    else
        size(m, t->shape, t->rank);
    word(m, CHUNKS);
    b = begin_batch(m, DCPK_OP_EMPTY_LIST, DCPK_OP_APPENDS);
    for (size_t i = 0; i < t->n_chunks; i++) {
        const struct dcpk_out_chunk *chunk = &m->out->chunks[t->first_chunk + i];
        int64_t room[2 * DCPK_MAX_RANK];
        int rank;
        const int64_t *span = dcpk_out_chunk_span(m->out, chunk, &rank, room);

        metadata_next_item(m, &b);
        if (begin_run(m, CHUNK_HEAD)) {
            instance(m, CHUNK_CLASS);
            begin_state(m);
            word(m, OFFSETS);
            end_run(m, CHUNK_HEAD);
        }
        size(m, span, rank);
        word(m, SIZES);
        size(m, span + rank, rank);
        end_state(m);
    }
    end_batch(m, &b);
    end_state(m);
}

static void entries(struct writing *m)
{
    const struct dcpk_output *out = m->out;
    struct batch b = begin_batch(m, DCPK_OP_EMPTY_DICT, DCPK_OP_SETITEMS);
    struct memo *key = m->keys;

    for (size_t i = 0; i < out->n_tensors; i++)
        for (size_t k = 0; k < out->tensors[i].n_keys; k++) {
            metadata_next_item(m, &b);
            shared_text(m, out->tensors[i].keys[k], key++);
            tensor_entry(m, &out->tensors[i]);
        }
    for (size_t i = 0; i < out->n_objects; i++) {
        metadata_next_item(m, &b);
        object_name(m, &out->objects[i], key++);
        if (begin_run(m, BYTES_ENTRY)) {
            instance(m, BYTES_CLASS);
            end_run(m, BYTES_ENTRY);
        }
    }
    end_batch(m, &b);
}

/* key -> (key,): what torch writes for a state dict that was flat. */
static void planner_data(struct writing *m)
{
    struct batch b = begin_batch(m, DCPK_OP_EMPTY_DICT, DCPK_OP_SETITEMS);
    const size_t n = dcpk_output_count_keys(m->out);

    for (size_t i = 0; i < n; i++) {
        metadata_next_item(m, &b);
        known_text(m, &m->keys[i]);
        known_text(m, &m->keys[i]);
        op(m, DCPK_OP_TUPLE1);
    }
    end_batch(m, &b);
}

static void storage_info(struct writing *m, uint32_t file, uint64_t offset_bytes, uint64_t n_bytes)
{
    if (begin_run(m, INFO_HEAD)) {
        instance(m, INFO_CLASS);
        begin_state(m);
        word(m, RELATIVE_PATH);
        end_run(m, INFO_HEAD);
    }
    shared_text(m, m->out->files[file].name, &m->files[file]);
    word(m, OFFSET);
    dcpk_pickle_append_int(&m->piece, (int64_t)offset_bytes);
    word(m, LENGTH);
    dcpk_pickle_append_int(&m->piece, (int64_t)n_bytes);
    end_state(m);
}

/* A MetadataIndex, up to the first attribute after its key. */
static void begin_index(struct writing *m, const struct memo *key)
{
    if (begin_run(m, INDEX_HEAD)) {
        instance(m, INDEX_CLASS);
        begin_state(m);
        word(m, FQN);
        end_run(m, INDEX_HEAD);
    }
    known_text(m, key);
}

/* `number` is a hint that equality ignores: its place in the chunk list, None for an only chunk. */
static void chunk_place(struct writing *m, const struct dcpk_out_tensor *t, const struct memo *key,
                        size_t number)
{
    const struct dcpk_out_chunk *chunk = &m->out->chunks[t->first_chunk + number];
    int64_t room[2 * DCPK_MAX_RANK];
    int rank;
    const int64_t *span = dcpk_out_chunk_span(m->out, chunk, &rank, room);

    begin_index(m, key);
    word(m, INDEX);
    if (t->n_chunks == 1)
        op(m, DCPK_OP_NONE);
    else
        dcpk_pickle_append_int(&m->piece, (int64_t)number);
    word(m, OFFSET);
    size(m, span, rank);
    end_state(m);
    storage_info(m, chunk->file, chunk->offset_bytes,
                 chunk->data_bytes + chunk->lead_bytes + chunk->tail_bytes);
}

static void object_place(struct writing *m, const struct dcpk_out_object *object,
                         const struct memo *key)
{
    const struct dcpk_out_payload *payload = &m->out->payloads[object->payload];

    begin_index(m, key);
    word(m, INDEX);
    op(m, DCPK_OP_NONE);
    end_state(m);
    storage_info(m, payload->file, payload->offset_bytes, payload->n_bytes);
}

static void storage_data(struct writing *m)
{
    const struct dcpk_output *out = m->out;
    struct batch b = begin_batch(m, DCPK_OP_EMPTY_DICT, DCPK_OP_SETITEMS);
    struct memo *key = m->keys;

    for (size_t i = 0; i < out->n_tensors; i++) {
        const struct dcpk_out_tensor *t = &out->tensors[i];

        for (size_t k = 0; k < t->n_keys; k++, key++)
            for (size_t c = 0; c < t->n_chunks; c++) {
                metadata_next_item(m, &b);
                chunk_place(m, t, key, c);
            }
    }
    for (size_t i = 0; i < out->n_objects; i++) {
        metadata_next_item(m, &b);
        object_place(m, &out->objects[i], key++);
    }
    end_batch(m, &b);
}

/* splitmix64: spreads the identity over the digits of an id. */
static uint64_t metadata_mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* A text of the form that uuid.uuid4 gives; the same for the same input and options. */
static void identity_text(struct writing *m, uint64_t salt)
{
    const uint64_t hi = metadata_mix(m->out->identity + salt), lo = metadata_mix(hi);
    char id[40];

    snprintf(id, sizeof id, "%08" PRIx32 "-%04x-4%03x-%04x-%012" PRIx64, (uint32_t)(hi >> 32),
             (unsigned)(hi >> 16 & 0xffff), (unsigned)(hi & 0xfff),
             (unsigned)(0x8000 | (lo >> 48 & 0x3fff)), lo & 0xffffffffffffu);
    text(m, id);
}

static void storage_meta(struct writing *m)
{
    dcpk_pickle_put_global(m->w, METADATA_MODULE, "StorageMeta");
    op(m, DCPK_OP_EMPTY_TUPLE);
    op(m, DCPK_OP_NEWOBJ);
    begin_state(m);
    text(m, "checkpoint_id");
    identity_text(m, 0);
    text(m, "save_id");
    identity_text(m, 1);
    text(m, "load_id");
    op(m, DCPK_OP_NONE);
    text(m, "modules");
    op(m, DCPK_OP_EMPTY_LIST);
    end_state(m);
}

/*
 * mcore_data: the model's shapes of flattened tensors; Megatron 0.8 to 0.15
 * (formats/torch_dist/FORMAT.md 2).
 */
static void mcore_data(struct writing *m)
{
    const struct dcpk_output *out = m->out;
    struct batch b = begin_batch(m, DCPK_OP_EMPTY_DICT, DCPK_OP_SETITEMS);
    struct memo *key = m->keys;

    for (size_t i = 0; i < out->n_tensors; i++) {
        const struct dcpk_out_tensor *t = &out->tensors[i];

        for (size_t k = 0; k < t->n_keys; k++) {
            metadata_next_item(m, &b);
            known_text(m, key++);
            op(m, DCPK_OP_EMPTY_DICT);
            if (t->model_shape == NULL)
                continue;
            op(m, DCPK_OP_MARK);
            word(m, MODEL_SHAPE);
            size(m, t->model_shape, t->model_rank);
            op(m, DCPK_OP_SETITEMS);
        }
    }
    end_batch(m, &b);
}

/*
 * The class MCoreMetadata is never written: only core 0.15 can import it. Nor is its mcore_data
 * then where no tensor is flattened: with the plain class it is the mark of releases before 0.15.
 */
static bool needs_mcore_data(const struct dcpk_output *out)
{
    const struct dcpk_dcp_info *form = out->form;

    if (form != NULL && form->has_mcore_data && !form->is_mcore_class)
        return true;
    for (size_t i = 0; i < out->n_tensors; i++)
        if (out->tensors[i].model_shape != NULL)
            return true;
    return false;
}

static void root(struct writing *m)
{
    const struct dcpk_dcp_info *form = m->out->form;

    dcpk_pickle_put_global(m->w, METADATA_MODULE, "Metadata");
    op(m, DCPK_OP_EMPTY_TUPLE);
    op(m, DCPK_OP_NEWOBJ);
    begin_state(m);
    text(m, "state_dict_metadata");
    entries(m);
    text(m, "planner_data");
    if (form == NULL || form->has_planner_data)
        planner_data(m);
    else
        op(m, DCPK_OP_NONE);
    text(m, "storage_data");
    storage_data(m);
    text(m, "storage_meta");
    storage_meta(m);
    text(m, "version");
    text(m, "1.0.0");
    if (needs_mcore_data(m->out)) {
        text(m, "mcore_data");
        mcore_data(m);
    }
    end_state(m);
    op(m, DCPK_OP_STOP);
}

static dcpk_status write_all(struct writing *m)
{
    m->files = dcpk_alloc_array(m->out->n_files, sizeof *m->files, m->err);
    if (m->files != NULL)
        m->keys = dcpk_alloc_array(dcpk_output_count_keys(m->out), sizeof *m->keys, m->err);
    if (m->keys != NULL)
        m->w = dcpk_pickle_writer_new(&m->piece, 2, m->err);
    if (m->w == NULL)
        return m->err->status;
    root(m);
    put_piece(m);
    return m->st;
}

dcpk_status dcpk_metadata_write(const struct dcpk_output *out, dcpk_metadata_put *put,
                                void *context, struct dcpk_error *err)
{
    struct writing m = {.out = out, .put = put, .context = context, .err = err};
    const dcpk_status st = write_all(&m);

    dcpk_pickle_writer_free(m.w);
    dcpk_bytes_release(&m.piece);
    dcpk_bytes_release(&m.name);
    dcpk_free(m.files);
    dcpk_free(m.keys);
    return st;
}
