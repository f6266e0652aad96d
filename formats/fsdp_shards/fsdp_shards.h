/* SPDX-License-Identifier: Apache-2.0 */
/* fsdp_shards.h - a folder of verl's or SkyRL's: a torch.save file for each rank of FSDP. */
#ifndef DCPK_FORMATS_FSDP_SHARDS_FSDP_SHARDS_H
#define DCPK_FORMATS_FSDP_SHARDS_FSDP_SHARDS_H

#include "formats/torch/rank_files.h"

/* A folder, in addition to its tensors: the checkpoint's state. */
struct dcpk_shards_state {
    struct dcpk_rank_files files;
    /* The reason why the optimizer's files are not read; NULL: there is none. */
    const char *optimizer_fault;
    const struct dcpk_value **fields; /* of the objects; the array is owned */
    size_t n_fields, fields_capacity;
};

/* The containers, with any names: inspect, hash, verify; not converted. */
extern const struct dcpk_format dcpk_format_fsdp_shards;
extern const struct dcpk_format dcpk_format_checkpointing;

/* The hooks of its row, for schemes on it (lib/ckpt/format.h). */
extern const struct dcpk_mark dcpk_shards_marks[];
extern const struct dcpk_format_reader dcpk_shards_reader;
bool dcpk_shards_is_known(const char *module, const char *name);
dcpk_status dcpk_shards_probe(struct dcpk_store *store, int *score, struct dcpk_error *err);
dcpk_status dcpk_shards_open(struct dcpk_checkpoint *ckpt, struct dcpk_error *err);
void dcpk_shards_close(struct dcpk_checkpoint *ckpt);
dcpk_status dcpk_shards_check_copies(struct dcpk_checkpoint *ckpt, struct dcpk_error *err);
#define DCPK_SHARDS_CONTAINER                                                                      \
    .marks = dcpk_shards_marks, .is_model = true, .probe = dcpk_shards_probe,                      \
    .state_bytes = sizeof(struct dcpk_shards_state), .is_known = dcpk_shards_is_known,             \
    .open = dcpk_shards_open, .close = dcpk_shards_close,                                          \
    .check_copies = dcpk_shards_check_copies, .reader = &dcpk_shards_reader

/* Those of torch_checkpointing 2.0, which has the same files under other names. */
extern const struct dcpk_mark dcpk_checkpointing_marks[];
extern const struct dcpk_format_reader dcpk_checkpointing_reader;
dcpk_status dcpk_checkpointing_probe(struct dcpk_store *store, int *score, struct dcpk_error *err);
dcpk_status dcpk_checkpointing_open(struct dcpk_checkpoint *ckpt, struct dcpk_error *err);
#define DCPK_CHECKPOINTING_CONTAINER                                                               \
    .marks = dcpk_checkpointing_marks, .is_model = true, .probe = dcpk_checkpointing_probe,        \
    .state_bytes = sizeof(struct dcpk_shards_state), .is_known = dcpk_shards_is_known,             \
    .open = dcpk_checkpointing_open, .close = dcpk_shards_close,                                   \
    .check_copies = dcpk_shards_check_copies, .reader = &dcpk_checkpointing_reader

/* The same of tensors that are whole in every file, and that a conversion reads from one of them:
 * no mesh shows that they are replicas. */
dcpk_status dcpk_shards_check_whole_copies(struct dcpk_checkpoint *ckpt, struct dcpk_error *err);

#endif
