/* SPDX-License-Identifier: Apache-2.0 */
/* shards_priv.h - the files of all ranks while they are opened. */
#ifndef DCPK_FORMATS_FSDP_SHARDS_SHARDS_PRIV_H
#define DCPK_FORMATS_FSDP_SHARDS_SHARDS_PRIV_H

#include "formats/fsdp_shards/dtensor.h"
#include "formats/fsdp_shards/fsdp_shards.h"

/* Opening a folder: the tensors of rank 0, which all others have too. */
struct dcpk_shards_reading {
    struct dcpk_rank_reading rank; /* its arena: of the layouts, too */
    struct dcpk_shards_state *state;
    const char *config;                         /* the file that has the next line's: */
    int64_t version, n_ranks;                   /* of FSDP; of the run */
    const struct dcpk_dtensor_layout **layouts; /* of the checkpoint's tensors */
    size_t layouts_capacity;
    struct dcpk_map by_layout; /* its address in the arena */
    /* of the file at hand */
    struct dcpk_shard_file file;
    const char *name;
};

#define DCPK_SHARDS_MAX_RANKS 65536
#define DCPK_SHARDS_OPTIM     "optim_world_size_"

/* The open hook's work: `read` reads all files of the checkpoint. */
typedef dcpk_status dcpk_read_shards(struct dcpk_shards_reading *r, struct dcpk_error *err);
dcpk_status dcpk_shards_read(struct dcpk_checkpoint *ckpt, dcpk_read_shards *read,
                             struct dcpk_error *err);

/* Reads the file of a rank, `prefix` and its number, into `arena`: the next one whose tensors are
 * taken. */
dcpk_status dcpk_rank_file_read(struct dcpk_shards_reading *r, const char *prefix, int64_t rank,
                                struct dcpk_arena *arena, const struct dcpk_value **value,
                                struct dcpk_error *err);
/* Takes a tensor of that file under a key: a chunk, or a copy of one. Errors: those of reading it;
 * DCPK_EFORMAT where rank 0 has another. */
dcpk_status dcpk_rank_file_take(struct dcpk_shards_reading *r, const char *key,
                                const struct dcpk_value *value, struct dcpk_error *err);

/* True for a value that needs no class of Python: a number, a text, or a list of such. */
bool dcpk_shards_is_plain(const struct dcpk_value *value);
/* Adds an object of the file at hand. Both are kept: key and value lie in the checkpoint's arena.
 */
dcpk_status dcpk_shards_add_field(struct dcpk_shards_reading *r, const char *key,
                                  const struct dcpk_value *value, struct dcpk_error *err);

/* The hook load_object (lib/ckpt/format.h): a field of a group, or a tensor at its place. */
dcpk_status dcpk_shards_load_object(struct dcpk_checkpoint *ckpt, const struct dcpk_object *object,
                                    struct dcpk_arena *arena, const struct dcpk_value **value,
                                    struct dcpk_error *err);

/*
 * Reads the optimizer, where there is one: tensors optimizer.state.<name>.<state> and objects
 * optimizer.param_groups.0.<field>, as DCP has them. An optimizer that cannot be read under names
 * leaves the weights as they are, and its fault in the state. Errors: DCPK_EIO, DCPK_ENOMEM.
 */
dcpk_status dcpk_shards_read_optimizer(struct dcpk_shards_reading *r, struct dcpk_error *err);

#endif
