/* SPDX-License-Identifier: Apache-2.0 */
/* dcp.h - the PyTorch distributed checkpoint folder: .metadata and .distcp files. torch_dist and
 * fsdp_dtensor build on it. */
#ifndef DCPK_FORMATS_DCP_DCP_H
#define DCPK_FORMATS_DCP_DCP_H

#include "lib/ckpt/format.h"

/* What .metadata says beside tensors and objects. A format whose container is dcp keeps it as the
 * checkpoint's state. */
struct dcpk_dcp_info {
    const char *torch_generation; /* from the class names: "2.1-2.2", "2.3", "2.4-2.8", "2.9+" as
                                     far as they tell */
    bool is_mcore_class;          /* root class MCoreMetadata: Megatron 0.15 */
    bool has_mcore_data;
    bool has_planner_data;
};

/* Is there a .metadata? */
dcpk_status dcpk_dcp_is_folder(struct dcpk_store *store, bool *is, struct dcpk_error *err);

/* The hooks of struct dcpk_format that every DCP folder shares. dcpk_dcp_open fills ckpt and info.
 */
dcpk_status dcpk_dcp_open(struct dcpk_checkpoint *ckpt, struct dcpk_dcp_info *info,
                          struct dcpk_error *err);
dcpk_status dcpk_dcp_locate(struct dcpk_checkpoint *ckpt, const struct dcpk_chunk *chunk,
                            const struct dcpk_reader *reader, struct dcpk_extent *where,
                            struct dcpk_error *err);
dcpk_status dcpk_dcp_load_object(struct dcpk_checkpoint *ckpt, const struct dcpk_object *object,
                                 struct dcpk_arena *arena, const struct dcpk_value **value,
                                 struct dcpk_error *err);
dcpk_status dcpk_dcp_outline_object(struct dcpk_checkpoint *ckpt, const struct dcpk_object *object,
                                    struct dcpk_arena *arena, const struct dcpk_value **value,
                                    struct dcpk_error *err);
dcpk_status dcpk_dcp_each_record(struct dcpk_checkpoint *ckpt, const struct dcpk_object *object,
                                 dcpk_take_record *take, void *context, struct dcpk_error *err);
/* Files "__0_<n>.distcp" of at most 8 GiB; objects first, then chunks in their order; items of 1
 * MiB or more start at a multiple of 4096. */
dcpk_status dcpk_dcp_lay_out(struct dcpk_output *out, struct dcpk_error *err);
dcpk_status dcpk_dcp_frame(const struct dcpk_output *out, const struct dcpk_out_chunk *chunk,
                           uint32_t crc32, uint8_t *lead, uint8_t *tail, struct dcpk_error *err);
dcpk_status dcpk_dcp_encode(const struct dcpk_output *out, const struct dcpk_out_payload *payload,
                            struct dcpk_bytes *bytes, struct dcpk_error *err);
/* Write .metadata, hidden (form of torch 2.4 and later, planner_data 1-tuples): every key of every
 * tensor and object. finish shows it. */
dcpk_status dcpk_dcp_write_ahead(const struct dcpk_output *out, struct dcpk_folder *folder,
                                 struct dcpk_error *err);
dcpk_status dcpk_dcp_finish(struct dcpk_output *out, struct dcpk_folder *folder,
                            struct dcpk_error *err);

/*
 * The check_whole hook of a plain folder, whose state is its info: nothing in it is Megatron's
 * torch_dist, which cannot be loaded without its metadata.json. Errors: DCPK_EFORMAT naming the
 * sign.
 */
dcpk_status dcpk_dcp_check_whole(struct dcpk_checkpoint *ckpt, struct dcpk_error *err);

/*
 * Parse .metadata, at most 4 GiB - 1, into ckpt (tensors, chunks, objects, file names resolved
 * against ckpt->store). Memory: about 70 bytes a chunk or object while reading, beside what ckpt
 * keeps.
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
