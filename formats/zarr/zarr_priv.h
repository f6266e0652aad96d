/* SPDX-License-Identifier: Apache-2.0 */
/* zarr_priv.h - the state of an open zarr checkpoint and the hooks that work on it. */
#ifndef DCPK_FORMATS_ZARR_ZARR_PRIV_H
#define DCPK_FORMATS_ZARR_ZARR_PRIV_H

#include "formats/zarr/zarr_array.h"

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
extern const struct dcpk_format_editor dcpk_zarr_editor;

dcpk_status dcpk_zarr_from_model(const struct dcpk_model *model, struct dcpk_output *out,
                                 struct dcpk_error *err);

#endif
