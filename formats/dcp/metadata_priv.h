/* SPDX-License-Identifier: Apache-2.0 */
/* metadata_priv.h - the content of .metadata, packed while its pickle is read. */
#ifndef DCPK_FORMATS_DCP_METADATA_PRIV_H
#define DCPK_FORMATS_DCP_METADATA_PRIV_H

#include "formats/dcp/dcp.h"
#include "formats/torch/pickle.h"

#define DCPK_METADATA_MODULE "torch.distributed.checkpoint.metadata"

/*
 * Keys and sizes are interned, so that equal ones have equal numbers: a place belongs to a chunk
 * when (key, offsets) are the same two numbers. Chunks, entries and places are as many as the
 * checkpoint has; they are kept small and refer to each other by index.
 */
#define DCPK_NO_SIZE UINT32_MAX /* instead of a size: an object, which has no offsets */

struct dcpk_packed_chunk { /* ChunkStorageMetadata */
    uint32_t offsets, extents;
    uint32_t next; /* chunk of the same list; of the last one the first */
};
struct dcpk_packed_entry { /* TensorStorageMetadata, or BytesStorageMetadata: dtype NONE */
    uint32_t key;
    uint32_t shape;
    uint32_t list; /* last chunk + 1; 0: a tensor without chunks */
    enum dcpk_dtype dtype;
};
/* MetadataIndex; its own index is a hint only (torch 2.11 metadata.py). */
struct dcpk_packed_index {
    uint32_t key, offsets;
};
struct dcpk_packed_place { /* MetadataIndex: _StorageInfo */
    struct dcpk_packed_index index;
    uint32_t file;
    bool is_used;
    uint64_t offset_bytes, n_bytes;
};

/* The dcpk_pickle_run of a dict that was taken; of a list of chunks it is the last one + 1. */
enum dcpk_packed_run {
    DCPK_PACKED_NOTHING,
    DCPK_PACKED_ENTRIES,
    DCPK_PACKED_PLACES,
    DCPK_PACKED_IGNORED, /* planner_data: paths of keys, which nothing here needs */
    DCPK_PACKED_RUNS,
};

struct dcpk_packed {
    struct dcpk_checkpoint *ckpt; /* borrowed: files are added to it; its arena holds keys, sizes */
    const char *folder;           /* what is before names of files, with a slash, or nothing */
    int folder_bytes;
    const char **keys;
    const int64_t **sizes; /* rank, then that many numbers */
    struct dcpk_packed_chunk *chunks;
    struct dcpk_packed_entry *entries;
    struct dcpk_packed_place *places;
    size_t n_keys, n_sizes, n_chunks, n_entries, n_places;
    size_t keys_capacity, sizes_capacity, chunks_capacity, entries_capacity, places_capacity;
    struct dcpk_map key_by_text, size_by_numbers, file_by_name;
    bool has_run[DCPK_PACKED_RUNS];
    bool is_old_module; /* TensorProperties of torch 2.1 or 2.2 */
};

/* Zeroed except ckpt and the folder before use; the pickle is read into the checkpoint's arena. */
void dcpk_packed_release(struct dcpk_packed *p);
/* Nothing more is added: forget what only that needs. */
void dcpk_packed_close(struct dcpk_packed *p);

/*
 * For a struct dcpk_pickle_consumer with a struct dcpk_packed as its context. Takes what it
 * understands; the rest stays in the tree, is read again at the end and then gives its error, with
 * the place that is known only then.
 */
extern const char *const dcpk_packed_keys[];
dcpk_status dcpk_packed_take(void *packed, const struct dcpk_pickle_batch *batch, uint32_t *run,
                             size_t *n_taken, struct dcpk_error *err);

/* The number of chunks in the list of an entry. */
size_t dcpk_packed_count(const struct dcpk_packed *p, uint32_t list);

/* One pair of state_dict_metadata or of storage_data; errors name its key. */
dcpk_status dcpk_packed_add_entry(struct dcpk_packed *p, const struct dcpk_value *key,
                                  const struct dcpk_value *value, struct dcpk_error *err);
dcpk_status dcpk_packed_add_place(struct dcpk_packed *p, const struct dcpk_value *key,
                                  const struct dcpk_value *value, struct dcpk_error *err);

/* True if v is made by cls.__new__. */
bool dcpk_metadata_is_a(const struct dcpk_value *v, const char *module, const char *name);
/* Describes a value for messages: the name of its class, *module is the class's, or its kind and
 * "". */
const char *dcpk_metadata_class(const struct dcpk_value *v, const char **module);
/* A text that can be a C string, or NULL. */
const char *dcpk_metadata_text(const struct dcpk_value *v);
/* A torch.Size (or tuple) of non-negative numbers, at most DCPK_MAX_RANK of them. what: for
 * messages. */
dcpk_status dcpk_metadata_size(const struct dcpk_value *v, const char *what, int64_t *numbers,
                               int *rank, struct dcpk_error *err);

/* ---- folders (dcp_parts.c) ---- */

#define DCPK_DCP_METADATA  ".metadata"
#define DCPK_DCP_OPTIMIZER "optim" /* begins the name of the optimizer's folder */

/*
 * Paths of the .metadata files that make one checkpoint: of the folder itself; or of its two
 * folders that have one, if the name of one of them begins with "optim" (accelerate and Trainer:
 * pytorch_model_fsdp_0, optimizer_0; NeMo-RL: weights, optimizer). The model's is the first.
 */
struct dcpk_dcp_parts {
    char metadata[2][256 + sizeof DCPK_DCP_METADATA];
    int n; /* 0: no checkpoint of this format is there */
};
dcpk_status dcpk_dcp_find_parts(struct dcpk_store *store, struct dcpk_dcp_parts *parts,
                                struct dcpk_error *err);

/* The hook load_paths of dcpk_dcp_reader (lib/ckpt/format.h). Conversions have no use for it, so
 * that opening drops it: the files are read again. */
dcpk_status dcpk_dcp_load_paths(struct dcpk_checkpoint *ckpt, struct dcpk_arena *arena,
                                const struct dcpk_value **paths, uint64_t *n_bytes,
                                struct dcpk_error *err);

#endif
