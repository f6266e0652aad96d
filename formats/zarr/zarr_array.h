/* SPDX-License-Identifier: Apache-2.0 */
/* zarr_array.h - one array of a zarr checkpoint: its .zarray, and the table of codecs. */
#ifndef DCPK_FORMATS_ZARR_ZARR_ARRAY_H
#define DCPK_FORMATS_ZARR_ZARR_ARRAY_H

#include "lib/ckpt/format.h"

/* A compressor by numcodecs' name for it. A new one is a row in zarr_codec.c. */
struct dcpk_zarr_codec {
    const char *id;
    /* Decode n_in bytes into exactly n_out. Errors: DCPK_EFORMAT, DCPK_ENOMEM. Thread-safe. */
    dcpk_status (*decode)(const uint8_t *in, size_t n_in, uint8_t *out, size_t n_out,
                          struct dcpk_error *err);
};

/* The codec of that name, or NULL. */
const struct dcpk_zarr_codec *dcpk_zarr_codec_find(const char *id);

/* The meaning of a missing chunk. */
enum dcpk_zarr_fill {
    DCPK_ZARR_FILL_NONE, /* null: nothing is known of it */
    DCPK_ZARR_FILL_ZERO,
    DCPK_ZARR_FILL_OTHER,
};

/* A `.zarray` file. A value. */
struct dcpk_zarr_array {
    enum dcpk_dtype dtype;
    bool is_void; /* dtype "<V2": taken for bfloat16 */
    int rank;
    int64_t shape[DCPK_MAX_RANK];
    int64_t chunk[DCPK_MAX_RANK]; /* extents of a chunk; 0 only along an axis of length 0 */
    int64_t grid[DCPK_MAX_RANK];  /* chunks along each axis */
    int64_t n_chunks;
    uint64_t chunk_bytes; /* of a whole chunk, at the edge too; 0 when there are none */
    char separator;       /* between the indices of a chunk's name */
    const struct dcpk_zarr_codec *codec; /* NULL: bytes as they are */
    enum dcpk_zarr_fill fill;
    char unknown[64]; /* a field that the specification does not have; "" when there is none */
};

/*
 * Parse the text of a `.zarray` file: zarr format 2, order C, no filters; fields in any order.
 * Errors: DCPK_EFORMAT (no JSON, a field missing or of the wrong kind, a size that cannot be),
 * DCPK_EUNSUPPORTED (format, dtype, byte order, order F, filters, compressor by name), DCPK_ERANGE.
 */
dcpk_status dcpk_zarr_parse(const char *text, size_t n, struct dcpk_zarr_array *array,
                            struct dcpk_error *err);

/* numpy's (or TensorStore's) name of a dtype; NULL: it has none. */
const char *dcpk_zarr_dtype_name(enum dcpk_dtype dtype);

/* ---- the state of an open checkpoint, and its hooks ---- */

#define DCPK_ZARR_COMMON_PT     "common.pt"
#define DCPK_ZARR_MAX_KEY_BYTES 1022

/* How the chunks of one array are stored. */
struct dcpk_zarr_layout {
    int64_t chunk[DCPK_MAX_RANK];
    uint64_t chunk_bytes;
    const struct dcpk_zarr_codec *codec;
};

/* ckpt->state of this format. */
struct dcpk_zarr_state {
    struct dcpk_zarr_layout *layouts; /* owned; of the tensor with the same number */
    size_t layouts_capacity, chunks_capacity;
    uint64_t n_missing;            /* chunks of all arrays that have no file */
    uint64_t may_miss;             /* that many; 0: not counted yet */
    bool has_void, has_short_name; /* noted once */
    const char *headless;          /* the first folder of chunks without .zarray; NULL: none */
};

/* Fill ckpt from the folders of its store: arrays, objects, notes. */
dcpk_status dcpk_zarr_open(struct dcpk_checkpoint *ckpt, struct dcpk_error *err);
dcpk_status dcpk_zarr_locate(struct dcpk_checkpoint *ckpt, const struct dcpk_chunk *chunk,
                             const struct dcpk_reader *reader, struct dcpk_extent *where,
                             struct dcpk_error *err);
dcpk_status dcpk_zarr_decode(struct dcpk_checkpoint *ckpt, const struct dcpk_chunk *chunk,
                             void *out, struct dcpk_error *err);
void dcpk_zarr_close(struct dcpk_checkpoint *ckpt);

/*
 * True if n bytes are the name of an object's file without its ".pt": "shard_<offsets>_<shape>".
 * is_short: core 0.4 to 0.7 lost the last component of a shape of several axes (FORMAT.md 4); such
 * a name is kept as it is: its offsets suffice.
 */
bool dcpk_zarr_is_shard(const char *name, size_t n, bool *is_short);

extern const struct dcpk_format_writer dcpk_zarr_writer;

dcpk_status dcpk_zarr_from_model(const struct dcpk_model *model, struct dcpk_output *out,
                                 struct dcpk_error *err);

#endif
