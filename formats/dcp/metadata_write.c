/* SPDX-License-Identifier: Apache-2.0 */
/* metadata_write.c - an output that is laid out -> .metadata bytes, in the form of torch 2.4 and
 * later. */
#include "formats/dcp/dcp.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/dcp/pickle.h"
#include "lib/base/alloc.h"

/*
 * Written as a stream: no value tree, nothing kept for a chunk. Texts and class names go through
 * the pickle's memo, so a chunk costs about 60 bytes. Mutable objects are never shared between
 * keys: a loader may change one. Form: FORMAT.md ".metadata";
 * torch/distributed/checkpoint/{metadata,filesystem}.py@2.11.0.
 */

#define METADATA_MODULE "torch.distributed.checkpoint.metadata"
#define BATCH           1000 /* items between SETITEMS or APPENDS, as CPython batches */

/* Globals that are written once and taken from the memo after that. */
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

struct writing {
    const struct dcpk_output *out;
    struct dcpk_pickle_writer *w;
    uint32_t memo[N_GLOBALS];
    bool is_written[N_GLOBALS];
};

/* A list or dict under way: how many items since the last SETITEMS or APPENDS. */
struct batch {
    uint8_t close_op;
    size_t n;
};

static void op(struct writing *m, uint8_t opcode)
{
    dcpk_pickle_put_op(m->w, opcode);
}

static void text(struct writing *m, const char *s)
{
    dcpk_pickle_put_text(m->w, s, strlen(s));
}

static void global(struct writing *m, enum global which)
{
    if (m->is_written[which]) {
        dcpk_pickle_put_get(m->w, m->memo[which]);
        return;
    }
    dcpk_pickle_put_global(m->w, globals[which].module, globals[which].name);
    m->memo[which] = dcpk_pickle_put_memo(m->w);
    m->is_written[which] = true;
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

static struct batch begin_batch(struct writing *m, uint8_t open_op, uint8_t close_op)
{
    op(m, open_op);
    op(m, DCPK_OP_MARK);
    return (struct batch){.close_op = close_op};
}

/* Before each item. */
static void next_item(struct writing *m, struct batch *b)
{
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

static void size(struct writing *m, const int64_t *numbers, int n)
{
    global(m, SIZE_CLASS);
    op(m, DCPK_OP_MARK);
    for (int i = 0; i < n; i++)
        dcpk_pickle_put_int(m->w, numbers[i]);
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
    text(m, "torch.strided");
    op(m, DCPK_OP_TUPLE1);
    op(m, DCPK_OP_REDUCE);
    op(m, DCPK_OP_NEWFALSE);
    global(m, MEMORY_FORMAT);
    dcpk_pickle_put_int(m->w, 0); /* contiguous */
    op(m, DCPK_OP_TUPLE1);
    op(m, DCPK_OP_REDUCE);
    op(m, DCPK_OP_NEWFALSE);
    op(m, DCPK_OP_TUPLE);
    op(m, DCPK_OP_BUILD);
}

static void tensor_entry(struct writing *m, const struct dcpk_out_tensor *t)
{
    struct batch b;

    instance(m, TENSOR_CLASS);
    begin_state(m);
    text(m, "properties");
    properties(m, t->dtype);
    text(m, "size");
    size(m, t->shape, t->rank);
    text(m, "chunks");
    b = begin_batch(m, DCPK_OP_EMPTY_LIST, DCPK_OP_APPENDS);
    for (size_t i = 0; i < t->n_chunks; i++) {
        const int64_t *span = m->out->chunks[t->first_chunk + i].span;

        next_item(m, &b);
        instance(m, CHUNK_CLASS);
        begin_state(m);
        text(m, "offsets");
        size(m, span, t->rank);
        text(m, "sizes");
        size(m, span + t->rank, t->rank);
        end_state(m);
    }
    end_batch(m, &b);
    end_state(m);
}

static void entries(struct writing *m)
{
    const struct dcpk_output *out = m->out;
    struct batch b = begin_batch(m, DCPK_OP_EMPTY_DICT, DCPK_OP_SETITEMS);

    for (size_t i = 0; i < out->n_tensors; i++)
        for (size_t k = 0; k < out->tensors[i].n_keys; k++) {
            next_item(m, &b);
            text(m, out->tensors[i].keys[k]);
            tensor_entry(m, &out->tensors[i]);
        }
    for (size_t i = 0; i < out->n_objects; i++) {
        next_item(m, &b);
        text(m, out->objects[i].key);
        instance(m, BYTES_CLASS);
    }
    end_batch(m, &b);
}

/* key -> (key,): what torch writes for a state dict that was flat. */
static void path_entry(struct writing *m, struct batch *b, const char *key)
{
    next_item(m, b);
    text(m, key);
    text(m, key);
    op(m, DCPK_OP_TUPLE1);
}

static void planner_data(struct writing *m)
{
    const struct dcpk_output *out = m->out;
    struct batch b = begin_batch(m, DCPK_OP_EMPTY_DICT, DCPK_OP_SETITEMS);

    for (size_t i = 0; i < out->n_tensors; i++)
        for (size_t k = 0; k < out->tensors[i].n_keys; k++)
            path_entry(m, &b, out->tensors[i].keys[k]);
    for (size_t i = 0; i < out->n_objects; i++)
        path_entry(m, &b, out->objects[i].key);
    end_batch(m, &b);
}

static void storage_info(struct writing *m, uint32_t file, uint64_t offset_bytes, uint64_t n_bytes)
{
    instance(m, INFO_CLASS);
    begin_state(m);
    text(m, "relative_path");
    text(m, m->out->files[file].name);
    text(m, "offset");
    dcpk_pickle_put_int(m->w, (int64_t)offset_bytes);
    text(m, "length");
    dcpk_pickle_put_int(m->w, (int64_t)n_bytes);
    end_state(m);
}

/* `number` is a hint that equality ignores: its place in the chunk list, None for an only chunk. */
static void chunk_place(struct writing *m, const struct dcpk_out_tensor *t, const char *key,
                        size_t number)
{
    const struct dcpk_out_chunk *chunk = &m->out->chunks[t->first_chunk + number];

    instance(m, INDEX_CLASS);
    begin_state(m);
    text(m, "fqn");
    text(m, key);
    text(m, "index");
    if (t->n_chunks == 1)
        op(m, DCPK_OP_NONE);
    else
        dcpk_pickle_put_int(m->w, (int64_t)number);
    text(m, "offset");
    size(m, chunk->span, t->rank);
    end_state(m);
    storage_info(m, chunk->file, chunk->offset_bytes,
                 chunk->data_bytes + chunk->lead_bytes + chunk->tail_bytes);
}

static void object_place(struct writing *m, const struct dcpk_out_object *object)
{
    const struct dcpk_out_payload *payload = &m->out->payloads[object->payload];

    instance(m, INDEX_CLASS);
    begin_state(m);
    text(m, "fqn");
    text(m, object->key);
    text(m, "index");
    op(m, DCPK_OP_NONE);
    end_state(m);
    storage_info(m, payload->file, payload->offset_bytes, payload->n_bytes);
}

static void storage_data(struct writing *m)
{
    const struct dcpk_output *out = m->out;
    struct batch b = begin_batch(m, DCPK_OP_EMPTY_DICT, DCPK_OP_SETITEMS);

    for (size_t i = 0; i < out->n_tensors; i++) {
        const struct dcpk_out_tensor *t = &out->tensors[i];

        for (size_t k = 0; k < t->n_keys; k++)
            for (size_t c = 0; c < t->n_chunks; c++) {
                next_item(m, &b);
                chunk_place(m, t, t->keys[k], c);
            }
    }
    for (size_t i = 0; i < out->n_objects; i++) {
        next_item(m, &b);
        object_place(m, &out->objects[i]);
    }
    end_batch(m, &b);
}

/* splitmix64: spreads the identity over the digits of an id. */
static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* A text of the form that uuid.uuid4 gives; the same for the same input and options. */
static void identity_text(struct writing *m, uint64_t salt)
{
    const uint64_t hi = mix(m->out->identity + salt), lo = mix(hi);
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

/* mcore_data: the model's shapes of flattened tensors; Megatron 0.8 to 0.15 (torch_dist.md 2.3). */
static void mcore_data(struct writing *m)
{
    const struct dcpk_output *out = m->out;
    struct batch b = begin_batch(m, DCPK_OP_EMPTY_DICT, DCPK_OP_SETITEMS);

    for (size_t i = 0; i < out->n_tensors; i++) {
        const struct dcpk_out_tensor *t = &out->tensors[i];

        for (size_t k = 0; k < t->n_keys; k++) {
            next_item(m, &b);
            text(m, t->keys[k]);
            op(m, DCPK_OP_EMPTY_DICT);
            if (t->model_shape == NULL)
                continue;
            op(m, DCPK_OP_MARK);
            text(m, "nd_reformulated_orig_global_shape");
            size(m, t->model_shape, t->model_rank);
            op(m, DCPK_OP_SETITEMS);
        }
    }
    end_batch(m, &b);
}

static bool has_model_shapes(const struct dcpk_output *out)
{
    for (size_t i = 0; i < out->n_tensors; i++)
        if (out->tensors[i].model_shape != NULL)
            return true;
    return false;
}

static void root(struct writing *m)
{
    dcpk_pickle_put_global(m->w, METADATA_MODULE, "Metadata");
    op(m, DCPK_OP_EMPTY_TUPLE);
    op(m, DCPK_OP_NEWOBJ);
    begin_state(m);
    text(m, "state_dict_metadata");
    entries(m);
    text(m, "planner_data");
    if (m->out->omits_planner_data)
        op(m, DCPK_OP_NONE);
    else
        planner_data(m);
    text(m, "storage_data");
    storage_data(m);
    text(m, "storage_meta");
    storage_meta(m);
    text(m, "version");
    text(m, "1.0.0");
    if (has_model_shapes(m->out)) {
        text(m, "mcore_data");
        mcore_data(m);
    }
    end_state(m);
    op(m, DCPK_OP_STOP);
}

dcpk_status dcpk_metadata_write(const struct dcpk_output *out, struct dcpk_bytes *bytes,
                                struct dcpk_error *err)
{
    struct writing m = {.out = out, .w = dcpk_pickle_writer_new(bytes, 2, err)};
    dcpk_status st;

    if (m.w == NULL)
        return err->status;
    root(&m);
    st = dcpk_bytes_status(bytes, err);
    dcpk_pickle_writer_free(m.w);
    return st;
}
