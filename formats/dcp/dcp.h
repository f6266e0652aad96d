/* SPDX-License-Identifier: Apache-2.0 */
/* dcp.h - the PyTorch distributed checkpoint folder: .metadata and .distcp files. torch_dist and
 * fsdp_dtensor build on it. */
#ifndef DCPK_FORMATS_DCP_DCP_H
#define DCPK_FORMATS_DCP_DCP_H

#include "lib/ckpt/format.h"

/* Facts in .metadata in addition to tensors and objects. A format on this container keeps it as the
 * checkpoint's state. */
struct dcpk_dcp_info {
    /* From the class names: "2.1-2.2", "2.3", "2.4-2.8", "2.9+", as far as they differ. */
    const char *torch_generation;
    bool is_mcore_class; /* root class MCoreMetadata: Megatron 0.15 */
    bool has_mcore_data;
    bool has_planner_data;
    /* Set before reading a folder that is one of several: Megatron's common state, which each of
     * them has, gets the key "common_state/<part>shard_0_1". NULL: its own. */
    const char *part;
};

/* Sets *is if there is a .metadata. */
dcpk_status dcpk_dcp_is_folder(struct dcpk_store *store, bool *is, struct dcpk_error *err);

/* The open hook's work for every DCP folder, in two parts or not: fills ckpt and info. */
dcpk_status dcpk_dcp_open(struct dcpk_checkpoint *ckpt, struct dcpk_dcp_info *info,
                          struct dcpk_error *err);
extern const struct dcpk_mark dcpk_dcp_marks[];
/* Items are torch.save archives in .distcp files, or .pt files. */
extern const struct dcpk_format_reader dcpk_dcp_reader;
/* The hook each_record of dcpk_dcp_reader (lib/ckpt/format.h). */
dcpk_status dcpk_dcp_each_record(struct dcpk_checkpoint *ckpt, const struct dcpk_object *object,
                                 dcpk_take_record *take, void *context, struct dcpk_error *err);
/*
 * Files "__0_<n>.distcp" of a 16th of the data, 256 MiB to 8 GiB; objects first, then chunks in
 * their order; items of 1 MiB or more start at a multiple of 4096. Then .metadata with every key of
 * every tensor and object (form of torch 2.4 and later, planner_data 1-tuples), written ahead and
 * hidden, shown by finish. The output's form is a dcpk_dcp_info: whether there is planner_data, and
 * mcore_data also where no tensor is flattened (NULL: planner_data alone).
 */
extern const struct dcpk_format_writer dcpk_dcp_writer;
/* For checkpoints whose state is a dcpk_dcp_info. */
extern const struct dcpk_format_editor dcpk_dcp_editor;
/* Common to formats on this container. */
#define DCPK_DCP_CONTAINER                                                                         \
    .state_bytes = sizeof(struct dcpk_dcp_info), .is_known = dcpk_pickle_is_known,                 \
    .reader = &dcpk_dcp_reader, .writer = &dcpk_dcp_writer, .editor = &dcpk_dcp_editor

/*
 * Parse .metadata, at most 4 GiB - 1, into ckpt (tensors, chunks, objects; files are next to it in
 * ckpt->store), in addition to what is there. Memory: about 70 bytes a chunk or object while
 * reading, in addition to what ckpt keeps.
 */
dcpk_status dcpk_metadata_read(struct dcpk_checkpoint *ckpt, struct dcpk_source *source,
                               struct dcpk_dcp_info *info, struct dcpk_error *err);
/*
 * The bytes of .metadata for an output that is laid out, in pieces of some MiB handed to `put` one
 * after the other. The same output gives the same bytes. Memory: 4 bytes a key and one piece.
 * Errors: those of `put`, which ends the writing, and DCPK_ENOMEM.
 */
typedef dcpk_status dcpk_metadata_put(void *context, const void *data, size_t n_bytes,
                                      struct dcpk_error *err);
dcpk_status dcpk_metadata_write(const struct dcpk_output *out, dcpk_metadata_put *put,
                                void *context, struct dcpk_error *err);

/* The plain container, any DCP folder: inspect, hash, verify; not converted. */
extern const struct dcpk_format dcpk_format_dcp;

#endif
