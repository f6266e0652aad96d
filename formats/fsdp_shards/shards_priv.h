/* SPDX-License-Identifier: Apache-2.0 */
/* shards_priv.h - the part of a tensor in a rank's file. */
#ifndef DCPK_FORMATS_FSDP_SHARDS_SHARDS_PRIV_H
#define DCPK_FORMATS_FSDP_SHARDS_SHARDS_PRIV_H

#include "formats/fsdp_shards/fsdp_shards.h"
#include "lib/base/map.h"
#include "lib/ckpt/value.h"
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
 * Read a value of a rank's state dict (dcpk_item_read_known). Errors: DCPK_EUNSUPPORTED for what is
 * no tensor, for a placement that is not known and for elements that do not lie in order;
 * DCPK_EFORMAT for a mesh that cannot be; those of reading.
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

/* Opening a folder: the tensors of rank 0, which all others have too. */
struct dcpk_shards_reading {
    struct dcpk_checkpoint *ckpt;
    struct dcpk_shards_state *state;
    int64_t version, n_ranks;                   /* of fsdp_config.json */
    struct dcpk_arena *arena;                   /* of the layouts and of keys of the maps */
    const struct dcpk_dtensor_layout **layouts; /* of the checkpoint's tensors */
    size_t layouts_capacity;
    struct dcpk_map by_layout; /* its address in the arena */
    struct dcpk_map boxes;     /* of all chunks, by tensor and span -> its number */
    /* of the file at hand */
    struct dcpk_shard_file file;
    const char *name;
    uint32_t number;
    struct dcpk_map records; /* its first chunk in each record of the file, by place */
};

/* Reads the file of a rank into `arena`: the next one whose tensors are taken. */
#define DCPK_SHARDS_OPTIM "optim_world_size_"
dcpk_status dcpk_rank_file_read(struct dcpk_shards_reading *r, const char *prefix, int64_t rank,
                                struct dcpk_arena *arena, const struct dcpk_value **value,
                                struct dcpk_error *err);
/* Takes a tensor of that file under a key: a chunk, or a copy of one. Errors: those of reading it;
 * DCPK_EFORMAT where rank 0 has another. */
dcpk_status dcpk_rank_file_take(struct dcpk_shards_reading *r, const char *key,
                                const struct dcpk_value *value, struct dcpk_error *err);

/*
 * Reads the optimizer, where there is one: tensors optimizer.state.<name>.<state> and objects
 * optimizer.param_groups.0.<field>, as DCP has them. An optimizer that cannot be read under names
 * leaves the weights as they are, and its fault in the state. Errors: DCPK_EIO, DCPK_ENOMEM.
 */
dcpk_status dcpk_shards_read_optimizer(struct dcpk_shards_reading *r, struct dcpk_error *err);

#endif
