/* SPDX-License-Identifier: Apache-2.0 */
/* dcp_parts.h - a model's folder and that of its optimizer, next to each other, read as one. */
#ifndef DCPK_FORMATS_DCP_DCP_PARTS_H
#define DCPK_FORMATS_DCP_DCP_PARTS_H

#include "formats/dcp/dcp.h"

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
