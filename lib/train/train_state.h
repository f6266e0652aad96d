/* SPDX-License-Identifier: Apache-2.0 */
/* train_state.h - what a rank trains: parameters, where they lie, and with whom. */
#ifndef DCPK_LIB_TRAIN_TRAIN_STATE_H
#define DCPK_LIB_TRAIN_TRAIN_STATE_H

#include "lib/device/ops.h"
#include "lib/train/params.h"
#include "lib/train/run_mesh.h"
#include "lib/train/shards.h"

/* All borrowed. */
struct dcpk_train_state {
    const struct dcpk_train_config *config;
    const struct dcpk_train_params *params;
    const struct dcpk_train_shards *shards;
    const struct dcpk_train_mesh *mesh;
    struct dcpk_math *math; /* memory of the shards */
    /* By parameter, in the math's memory: those that are buffers, whole; else NULL. The table may
     * be NULL. */
    float *const *buffers;
};

/* The slices of a row of this rank's part: of its columns where tensor parallelism cuts them, else
 * one; *first: the number of the first of them in the whole row. */
static inline int64_t dcpk_train_slices(const struct dcpk_train_config *config,
                                        const struct dcpk_train_param *param, int64_t *first)
{
    const int64_t n = config->precision.virtual_slices;

    *first = 0;
    if (param->tp_axis != 1)
        return 1;
    *first = param->offset[1] / (param->whole[1] / n);
    return param->shape[1] / (param->whole[1] / n);
}

#endif
