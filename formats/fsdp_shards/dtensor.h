/* SPDX-License-Identifier: Apache-2.0 */
/* dtensor.h - the part of a tensor in a rank's file: a DTensor, its mesh and its placements. */
#ifndef DCPK_FORMATS_FSDP_SHARDS_DTENSOR_H
#define DCPK_FORMATS_FSDP_SHARDS_DTENSOR_H

#include "lib/ckpt/value.h"
#include "lib/io/store.h"
#include "lib/tensor/box.h"

#define DCPK_SHARDS_MAX_MESH 8 /* dimensions of a mesh */

enum dcpk_placement_kind { DCPK_REPLICATE, DCPK_SHARD, DCPK_STRIDED_SHARD };

/* How a tensor is spread over ranks: the same in all files, byte for byte. */
struct dcpk_dtensor_layout {
    int64_t dtype; /* enum dcpk_dtype */
    int64_t rank;
    int64_t shape[DCPK_MAX_RANK]; /* of the whole tensor */
    int64_t n_mesh;               /* dimensions of its mesh; 0: not a DTensor, whole in each file */
    int64_t mesh[DCPK_SHARDS_MAX_MESH]; /* their sizes */
    int64_t kind[DCPK_SHARDS_MAX_MESH]; /* enum dcpk_placement_kind, of each of them */
    int64_t axis[DCPK_SHARDS_MAX_MESH]; /* that it cuts */
    int64_t n_cuts;
    int64_t cuts[DCPK_SHARDS_MAX_MESH]; /* dimensions of the mesh, in the order in which they cut */
};

/* A tensor in one rank's file. */
struct dcpk_dtensor {
    struct dcpk_dtensor_layout layout;
    int64_t at[DCPK_SHARDS_MAX_MESH]; /* the rank's coordinates in the mesh */
    const struct dcpk_value_tensor *local;
};

/* A mesh in a file, and where the file's rank is in it. */
struct dcpk_shard_mesh {
    const struct dcpk_value *value;
    int64_t n, sizes[DCPK_SHARDS_MAX_MESH], at[DCPK_SHARDS_MAX_MESH];
};

/* The file whose tensors are read; zeroed except for the first three. */
#define DCPK_SHARDS_MAX_MESHES 16
struct dcpk_shard_file {
    struct dcpk_source *source;
    int64_t rank, n_ranks;
    /* Tensors share them: one, or two with tensor parallelism. */
    struct dcpk_shard_mesh meshes[DCPK_SHARDS_MAX_MESHES];
    size_t n_meshes;
};

/*
 * Read a value of a rank's state dict (dcpk_item_read_known). Errors: DCPK_EUNSUPPORTED for a value
 * that is not a tensor, for an unknown placement and for elements that are not in order;
 * DCPK_EFORMAT for an impossible mesh; those of reading.
 */
dcpk_status dcpk_dtensor_read(struct dcpk_shard_file *file, const struct dcpk_value *value,
                              struct dcpk_dtensor *tensor, struct dcpk_error *err);

/*
 * Find the box that the rank of a tensor holds, and check that its local tensor has that shape: a
 * dimension of n ranks cuts an axis into pieces of ceil(size / n), the last ones shorter or empty.
 * Errors: DCPK_EFORMAT. Source: FORMAT.md 3.
 */
dcpk_status dcpk_dtensor_place(const struct dcpk_dtensor *tensor, struct dcpk_box *box,
                               struct dcpk_error *err);

#endif
