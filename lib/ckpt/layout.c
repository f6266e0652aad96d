/* SPDX-License-Identifier: Apache-2.0 */
/* layout.c - the sizes of a mesh in a checkpoint's args. */
#include "lib/ckpt/layout.h"

#include <stddef.h>
#include <string.h>

const struct dcpk_layout_size dcpk_layout_sizes[DCPK_LAYOUT_N_SIZES] = {
    {"tensor_model_parallel_size", offsetof(struct dcpk_layout, tp)},
    {"pipeline_model_parallel_size", offsetof(struct dcpk_layout, pp)},
    {"expert_model_parallel_size", offsetof(struct dcpk_layout, ep)},
    {"context_parallel_size", offsetof(struct dcpk_layout, cp)},
    {"data_parallel_size", offsetof(struct dcpk_layout, dp)},
    {"world_size", offsetof(struct dcpk_layout, world)},
    {"expert_tensor_parallel_size", offsetof(struct dcpk_layout, etp)},
    {"virtual_pipeline_model_parallel_size", offsetof(struct dcpk_layout, vpp)},
    {"decoder_first_pipeline_num_layers", offsetof(struct dcpk_layout, first)},
    {"decoder_last_pipeline_num_layers", offsetof(struct dcpk_layout, last)},
};

void dcpk_layout_read(const struct dcpk_value *attrs, struct dcpk_layout *layout)
{
    for (size_t i = 0; i < DCPK_LAYOUT_N_SIZES; i++) {
        int64_t size = 0;

        if (!dcpk_value_as_int(dcpk_value_get(attrs, dcpk_layout_sizes[i].name), &size) || size < 0)
            size = 0;
        memcpy((char *)layout + dcpk_layout_sizes[i].at, &size, sizeof size);
    }
}

int64_t dcpk_layout_get(const struct dcpk_layout *layout, const struct dcpk_layout_size *size)
{
    int64_t value;

    memcpy(&value, (const char *)layout + size->at, sizeof value);
    return value;
}
