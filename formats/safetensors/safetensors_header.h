/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors_header.h - the JSON header of a safetensors file: where tensors are. */
#ifndef DCPK_FORMATS_SAFETENSORS_SAFETENSORS_HEADER_H
#define DCPK_FORMATS_SAFETENSORS_SAFETENSORS_HEADER_H

#include "lib/base/arena.h"
#include "lib/ckpt/format.h"
#include "lib/tensor/box.h"
#include "lib/tensor/dtype.h"

/* A file is the length of the header in 8 bytes, little-endian, the header, and the data. */
#define DCPK_SAFETENSORS_LENGTH_BYTES     8
#define DCPK_SAFETENSORS_MAX_HEADER_BYTES 100000000 /* of the readers; FORMAT.md 1 */

struct dcpk_safetensors_entry {
    const char *key;
    enum dcpk_dtype dtype;
    int rank;
    const int64_t *shape;
    uint64_t first_bytes, end_bytes; /* of the data after the header */
};

/* The remark of a file's writer: {"format": "pt"}. */
struct dcpk_safetensors_remark {
    const char *key, *text;
};

struct dcpk_safetensors_header {
    const struct dcpk_safetensors_entry *entries; /* in the order of their bytes */
    size_t n_entries;
    const struct dcpk_safetensors_remark *remarks; /* "__metadata__", in its order */
    size_t n_remarks;
};

/* safetensors' name of a dtype, "BF16"; NULL: it has none. */
const char *dcpk_safetensors_dtype_name(enum dcpk_dtype dtype);

/*
 * Read the n bytes of a header of a file with data_bytes of data. All of *header lives in `arena`.
 * Errors: DCPK_EFORMAT for what no reader takes (FORMAT.md 1): text that is not JSON, a key twice,
 * a size that is not shape times dtype, bytes that belong to no tensor or to two;
 * DCPK_EUNSUPPORTED for a dtype of less than a byte, or more than DCPK_MAX_RANK axes;
 * DCPK_ERANGE for more than 2^63 bytes.
 */
dcpk_status dcpk_safetensors_parse(const char *text, size_t n, uint64_t data_bytes,
                                   struct dcpk_arena *arena, struct dcpk_safetensors_header *header,
                                   struct dcpk_error *err);

/* ---- the state of an open folder, and its hooks ---- */

#define DCPK_SAFETENSORS_ENDING ".safetensors"
#define DCPK_SAFETENSORS_SINGLE "model.safetensors"
#define DCPK_SAFETENSORS_INDEX  "model.safetensors.index.json"

/* ckpt->state of this format. */
struct dcpk_safetensors_state {
    size_t chunks_capacity;
    /* Remarks of all files, each key once, in their order. */
    struct dcpk_safetensors_remark *remarks; /* owned */
    size_t n_remarks, remarks_capacity;
    struct dcpk_map remark_by_key; /* key -> index */
};

/* Fill ckpt from the headers of the files that the index names, or of those that are there. */
dcpk_status dcpk_safetensors_open(struct dcpk_checkpoint *ckpt, struct dcpk_error *err);
void dcpk_safetensors_close(struct dcpk_checkpoint *ckpt);
dcpk_status dcpk_safetensors_locate(struct dcpk_checkpoint *ckpt, const struct dcpk_chunk *chunk,
                                    const struct dcpk_reader *reader, struct dcpk_extent *where,
                                    struct dcpk_error *err);

/* Common to the rows on this container. */
dcpk_status dcpk_safetensors_probe(struct dcpk_store *store, int *score, struct dcpk_error *err);
bool dcpk_safetensors_is_known(const char *module, const char *name);
extern const struct dcpk_format_reader dcpk_safetensors_reader;
extern const struct dcpk_format_writer dcpk_safetensors_writer;
extern const struct dcpk_format_editor dcpk_safetensors_editor;
#define DCPK_SAFETENSORS_CONTAINER                                                                 \
    .is_model = true, .state_bytes = sizeof(struct dcpk_safetensors_state),                        \
    .is_known = dcpk_safetensors_is_known, .probe = dcpk_safetensors_probe,                        \
    .open = dcpk_safetensors_open, .close = dcpk_safetensors_close,                                \
    .reader = &dcpk_safetensors_reader, .writer = &dcpk_safetensors_writer,                        \
    .editor = &dcpk_safetensors_editor

#endif
