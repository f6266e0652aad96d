/* SPDX-License-Identifier: Apache-2.0 */
/* fsdp_shards.h - the chunks that Megatron-FSDP's ranks would write, of every parameter of a model.
 */
#ifndef DCPK_LIB_MODEL_FSDP_SHARDS_H
#define DCPK_LIB_MODEL_FSDP_SHARDS_H

#include "lib/ckpt/output.h"
#include "lib/model/parts.h"
#include "lib/place/fsdp_layout.h"

/* Zero it before use; release it in any case. */
struct dcpk_fsdp_shards {
    const struct dcpk_model *model;
    int64_t tp;
    struct dcpk_fsdp_param *params; /* by place in the order of registration, buffers left out */
    struct dcpk_fsdp_place *places; /* of the same */
    size_t n;
    size_t *at;   /* by the model's parameter: its index there, or SIZE_MAX */
    int64_t *cut; /* scratch for the rows of one parameter */
};

/*
 * Lay out the flat buffers for `target` (mesh.dp ranks of FSDP in mesh.instances, mesh.tp,
 * mesh.ep; bucket_elems). Nothing when mesh.dp is 0. The model is borrowed; shapes lie in `arena`.
 * Errors: DCPK_EMISMATCH naming what does not divide; DCPK_EUNSUPPORTED naming a parameter whose
 * place no rule knows.
 */
dcpk_status dcpk_fsdp_shards_find(const struct dcpk_model *model, const struct dcpk_target *target,
                                  struct dcpk_arena *arena, struct dcpk_fsdp_shards *shards,
                                  struct dcpk_error *err);
void dcpk_fsdp_shards_release(struct dcpk_fsdp_shards *shards);

/* The expert-parallel rank whose buffers a parameter of the shards is in; 0 for a dense one. */
int64_t dcpk_fsdp_ep_rank(const struct dcpk_fsdp_param *flat);

/*
 * Set tensor->spans: `rows` of parameter `param` (NULL: all), one box for each rank of FSDP and
 * block of tensor parallelism that holds a row of it (formats/fsdp_dtensor/FORMAT.md 8.1). Leaves
 * it alone when there is no layout, and for buffers. Errors: DCPK_EUNSUPPORTED for a row that would
 * be cut (lib/place/fsdp_layout.h).
 */
dcpk_status dcpk_fsdp_shards_cut(struct dcpk_fsdp_shards *shards, uint32_t param,
                                 const struct dcpk_rows *rows, struct dcpk_arena *arena,
                                 struct dcpk_out_tensor *tensor, struct dcpk_error *err);

#endif
