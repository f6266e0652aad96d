/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_parts.h - projections that 3D-parallel checkpoints keep in parts: Mamba's and Gated
 * DeltaNet's. */
#ifndef DCPK_FORMATS_MEGATRON_PARTS_H
#define DCPK_FORMATS_MEGATRON_PARTS_H

#include "lib/ckpt/parts.h"

/*
 * "X.in_proj.weight.z", ".x", ".B", ".C" and ".dt" are rows of one parameter "X.in_proj.weight",
 * one part behind the other. A tensor-parallel rank holds its block of every part in that order, so
 * the parts are the same for any number of ranks, and the parameter that they make together is the
 * one of a run without tensor parallelism (megatron/core/ssm/utils.py@0.19.0 _split_tensor_factory,
 * its caller in mamba_mixer.py, gated_delta_net/common.py).
 */
struct dcpk_parts {
    uint32_t tensor[DCPK_MAX_PARTS]; /* of ckpt, in the parameter's order */
    size_t
        n; /* 1: a tensor without parts; 0: a part that comes with the first one of its parameter */
    size_t whole_bytes; /* of the key, that name the parameter */
};

/*
 * A stored tensor with the parts that belong to it. Its own when it is the first of them, or has
 * none; else n is 0 and tensor[0] is itself. Errors: DCPK_EUNSUPPORTED for parts of no module that
 * is known, or not all there; DCPK_ENOMEM.
 */
dcpk_status dcpk_megatron_parts_find(const struct dcpk_checkpoint *ckpt, uint32_t tensor,
                                     struct dcpk_parts *parts, struct dcpk_error *err);

/*
 * The shape that n > 0 parts make, behind n_lead stacked axes; in ckpt's arena or a tensor's own.
 * Errors: DCPK_EFORMAT when they differ in more than their rows.
 */
dcpk_status dcpk_megatron_parts_join(const struct dcpk_checkpoint *ckpt,
                                     const struct dcpk_parts *parts, int n_lead,
                                     const int64_t **shape, struct dcpk_error *err);

#endif
