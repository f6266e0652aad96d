/* SPDX-License-Identifier: Apache-2.0 */
/* content.h - the kind of a stored tensor by its key: a weight, optimizer state, something else. */
#ifndef DCPK_LIB_CKPT_CONTENT_H
#define DCPK_LIB_CKPT_CONTENT_H

#include <stdbool.h>

enum dcpk_content {
    DCPK_CONTENT_WEIGHTS, /* also buffers of the model */
    DCPK_CONTENT_MASTERS,
    DCPK_CONTENT_MOMENTS, /* exp_avg, exp_avg_sq, momentum_buffer */
    DCPK_CONTENT_OTHER,   /* steps, RNG states, other state of an optimizer */
    DCPK_N_CONTENTS,
};

/*
 * For torch_dist, zarr (formats/torch_dist/FORMAT.md 5) and fsdp_dtensor
 * (formats/fsdp_dtensor/FORMAT.md 4); a key without any of their marks is a weight's.
 */
enum dcpk_content dcpk_content_of(const char *key);
const char *dcpk_content_name(enum dcpk_content content); /* "weights" */

/* True if a tensor of weights is not a parameter, but a buffer (lib/model/registered.h). */
bool dcpk_content_is_buffer(const char *key);

#endif
