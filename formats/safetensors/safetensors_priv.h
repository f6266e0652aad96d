/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors_priv.h - the state of an open folder of safetensors files, and its hooks. */
#ifndef DCPK_FORMATS_SAFETENSORS_SAFETENSORS_PRIV_H
#define DCPK_FORMATS_SAFETENSORS_SAFETENSORS_PRIV_H

#include "formats/safetensors/safetensors_header.h"
#include "lib/ckpt/format.h"

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
