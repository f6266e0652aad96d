/* SPDX-License-Identifier: Apache-2.0 */
/* output.h - a checkpoint to be written: keys, pieces, chunks and, once laid out, the place of
 * every byte. */
#ifndef DCPK_LIB_CKPT_OUTPUT_H
#define DCPK_LIB_CKPT_OUTPUT_H

#include "lib/base/bytes.h"
#include "lib/ckpt/checkpoint.h"
#include "lib/ckpt/overlaps.h"
#include "lib/tensor/fp8_blocks.h"
#include "lib/tensor/piece.h"

/* A tensor to be written once and listed under n_keys names. */
struct dcpk_out_tensor {
    const char *const *keys; /* the first is the main one */
    size_t n_keys;
    enum dcpk_dtype dtype;
    int rank;
    const int64_t *shape;
    /* The shape to write instead of `shape`: the same elements in the same order, with an axis and
     * the one of length 2 after it as one. NULL: `shape`. */
    const int64_t *written_shape;
    int written_rank;
    const struct dcpk_piece *pieces; /* cover shape exactly; sources are tensors of `source` */
    size_t n_pieces;
    const void *literal; /* instead of pieces: the bytes, row-major (RNG states, step) */
    /* Values or scales of a matrix, which the pieces are, in blocks of fp8; NULL: the pieces. */
    const struct dcpk_fp8_blocks *blocks;
    /* For a flattened tensor that is taken over as it is (struct dcpk_tensor); otherwise NULL. */
    const int64_t *model_shape;
    int model_rank;
    /* Boxes to cut it into (packed, as in a chunk; they must cover it); NULL: as few row-aligned
     * ones as make sense. */
    const int64_t *const *spans;
    size_t n_spans;
    size_t first_chunk; /* set by the plan: chunks[first_chunk .. + n_chunks) */
    size_t n_chunks;
};

/* The content of object items: a value to encode, or an item of the source to be carried over byte
 * for byte. */
struct dcpk_out_payload {
    const struct dcpk_value *value;   /* NULL: */
    const struct dcpk_object *source; /* copy these bytes */
    uint64_t offset_bytes, n_bytes;   /* its place, set by lay_out */
    uint32_t file;
};

/*
 * A name for a payload; many may share one. A field's name is "<key>.<field>", the two not joined:
 * each field of a parameter group is listed under every parameter of it.
 */
struct dcpk_out_object {
    const char *key;
    const char *field; /* NULL: the name is the key */
    uint32_t payload;
};

/*
 * One box of a tensor in the output, with its place: file bytes [offset, offset + lead + data +
 * tail), the data row-major. Set by lay_out: file, offset_bytes, lead_bytes, data_bytes,
 * tail_bytes.
 */
struct dcpk_out_chunk {
    uint32_t tensor;
    uint32_t file;
    const int64_t *span;
    uint64_t offset_bytes;
    uint64_t data_bytes;
    uint32_t lead_bytes;
    uint32_t tail_bytes;
};

struct dcpk_out_file {
    const char *name;
    uint64_t n_bytes;
};

/* A file of the source that is copied unchanged, perhaps under another name. */
struct dcpk_kept_file {
    const char *name;
    struct dcpk_source *source;
};

/* A small file next to the tensors and objects (common.pt, metadata.json), written last of all. */
struct dcpk_small_file {
    const char *name;
    const void *data;
    size_t n_bytes;
};

/* A tensor or an object of the source that stays, by its new key. */
struct dcpk_kept_item {
    const char *name;
    const struct dcpk_tensor *tensor; /* NULL: an object */
    const struct dcpk_object *object; /* NULL: a tensor */
    bool is_rewritten;                /* it gets another dtype: the output has it as a tensor */
};

/* Events that the report cannot read off the output itself. */
enum dcpk_event_kind {
    DCPK_EVENT_DROPPED, /* lost: the user should look at it */
    DCPK_EVENT_OMITTED, /* left out, and no run that loads the output misses it */
    DCPK_EVENT_NOTE,
};

/* One line of the report. */
struct dcpk_out_event {
    enum dcpk_event_kind kind;
    const char *key;  /* the source key, or what a note is about */
    const char *text; /* why; a note names its subject itself, as reports have the text alone */
    struct dcpk_out_event *next;
};

/* Properties of the target run; zeroed: any. */
struct dcpk_target {
    /* Sizes of the target's parallel dimensions; 0: not given, chunks as they read fastest. For
     * Megatron-FSDP, dp counts context parallelism. */
    struct dcpk_grid mesh;
    /* torch_dist: "A", "B" or "C"; fsdp_dtensor: "V2"; NULL: the one that every release reads. */
    const char *generation;
    /* torch_dist: "dp_reshardable"; NULL: fully_reshardable, which every layout of ranks loads. */
    const char *optimizer_layout;
    const char *impl; /* owner of the names: "te" or "local"; NULL: both, as aliases */
    /* fsdp_dtensor: elements after which FSDP starts another buffer outside units; 0: never. */
    int64_t bucket_elems;
    struct dcpk_family_settings family; /* of formats with names of families of models */
};

/* Requirements of a run that loads the output: a set. */
enum dcpk_load_needs {
    DCPK_LOAD_WITHOUT_RNG = 1,   /* its loader would ask for RNG states that are not there */
    DCPK_LOAD_WITHOUT_OPTIM = 2, /* the same of optimizer state, or of the scheduler's */
    DCPK_LOAD_WITHOUT_EP = 4,    /* routed experts are in the dense optimizer: at EP 1 only */
    DCPK_LOAD_WITH_EP = 8,       /* they have an optimizer of their own: above EP 1 only */
};

struct dcpk_output {
    struct dcpk_target target;
    unsigned load_needs;            /* enum dcpk_load_needs, set by from_model */
    struct dcpk_arena *arena;       /* everything here */
    struct dcpk_checkpoint *source; /* borrowed */
    const struct dcpk_format *format;
    struct dcpk_grid layout; /* by the args that it gets, set by from_model; 0: not known */
    const char *family;      /* of a model's folder, set by from_model; else NULL */
    /* The common state that is kept in a file or an item of its own, set by from_model; NULL: there
     * is none. */
    const struct dcpk_value *common;
    int pickle_protocol; /* of object payloads: 2 by default */
    const void *form;    /* known to the format's writer alone; NULL: its usual form */
    /* Other key prefixes than the format's own, without the last dot; NULL: its own. Borrowed. */
    const char *model_prefix, *state_prefix;

    struct dcpk_out_tensor *tensors;
    size_t n_tensors, tensors_capacity;
    size_t n_of_adapter; /* the last ones of them, which lie in a folder of their own */
    struct dcpk_out_payload *payloads;
    size_t n_payloads, payloads_capacity;
    struct dcpk_by_place taken; /* items of the source -> their payload, or DCPK_NOT_TAKEN */
    struct dcpk_out_object *objects;
    size_t n_objects, objects_capacity;
    struct dcpk_out_chunk *chunks;
    size_t n_chunks, chunks_capacity;
    struct dcpk_out_file *files;
    size_t n_files, files_capacity;
    struct dcpk_kept_file *kept;
    size_t n_kept, kept_capacity;
    struct dcpk_small_file *small_files; /* in the order in which they are written */
    size_t n_small_files, small_files_capacity;
    struct dcpk_out_event *events, **events_end;
    /* Hash of input and options, for ids that must not depend on time or place. */
    uint64_t identity;
};

/* An empty output in `format`. source, format: borrowed. *out: dcpk_output_free. Errors:
 * DCPK_ENOMEM. */
dcpk_status dcpk_output_new(struct dcpk_checkpoint *source, const struct dcpk_format *format,
                            struct dcpk_output **out, struct dcpk_error *err);
void dcpk_output_free(struct dcpk_output *out); /* NULL is a no-op */

size_t dcpk_output_count_keys(const struct dcpk_output *out); /* of tensors and objects */

/* Append; `tensor` and what it points to must live in out->arena or the source's. */
dcpk_status dcpk_output_add_tensor(struct dcpk_output *out, const struct dcpk_out_tensor *tensor,
                                   struct dcpk_error *err);
#define DCPK_NOT_TAKEN UINT64_MAX
/*
 * An object item: `value`, or the bytes of `source` as they are; one that was taken before, under
 * another key, is the payload it was. Errors: DCPK_EUNSUPPORTED when it holds a class, function or
 * call that out->format does not know (is_known); those of reading it. They do not name `source`.
 */
dcpk_status dcpk_output_add_payload(struct dcpk_output *out, const struct dcpk_value *value,
                                    const struct dcpk_object *source, uint32_t *payload,
                                    struct dcpk_error *err);
/* Another payload of the same content, for formats that cannot give one two names. */
dcpk_status dcpk_output_copy_payload(struct dcpk_output *out, uint32_t payload, uint32_t *copy,
                                     struct dcpk_error *err);
/* An object item of a checkpoint that is copied unchanged, with all that it holds. */
dcpk_status dcpk_output_keep_payload(struct dcpk_output *out, const struct dcpk_object *source,
                                     uint32_t *payload, struct dcpk_error *err);
dcpk_status dcpk_output_add_object(struct dcpk_output *out, const char *key, uint32_t payload,
                                   struct dcpk_error *err);
dcpk_status dcpk_output_add_field(struct dcpk_output *out, const char *key, const char *field,
                                  uint32_t payload, struct dcpk_error *err);
/*
 * The box of a chunk in the axes that are written: chunk->span, or in `room` that span with two of
 * its axes as one. The chunk holds all of the second one (asserted). *rank: of the box.
 */
const int64_t *dcpk_out_chunk_span(const struct dcpk_output *out,
                                   const struct dcpk_out_chunk *chunk, int *rank,
                                   int64_t room[2 * DCPK_MAX_RANK]);
/* Append an object's name, without a NUL. */
void dcpk_out_object_name(const struct dcpk_out_object *object, struct dcpk_bytes *name);
/* The first name of a payload, for messages; lives in out->arena. */
const char *dcpk_output_payload_name(const struct dcpk_output *out, uint32_t payload);
/* name: lives in out->arena or the source's. */
dcpk_status dcpk_output_keep(struct dcpk_output *out, const char *name, struct dcpk_source *source,
                             struct dcpk_error *err);
/* name: as above; data is copied. */
dcpk_status dcpk_output_put_small_file(struct dcpk_output *out, const char *name, const void *data,
                                       size_t n_bytes, struct dcpk_error *err);
bool dcpk_output_has_small_file(const struct dcpk_output *out, const char *name);
/* The number for `identity`: of keys, dtypes, shapes and the lengths of the source's files; not of
 * paths, time or threads. */
uint64_t dcpk_output_identity(const struct dcpk_output *out);
void dcpk_output_event(struct dcpk_output *out, enum dcpk_event_kind kind, const char *key,
                       const char *fmt, ...) __attribute__((format(printf, 4, 5)));

#endif
