/* SPDX-License-Identifier: Apache-2.0 */
/* dtensor_place.c - from a rank's place in the mesh to its box of the tensor. */
#include "formats/fsdp_shards/dtensor.h"
#include "lib/base/order.h"

dcpk_status dcpk_dtensor_place(const struct dcpk_dtensor *tensor, struct dcpk_box *box,
                               struct dcpk_error *err)
{
    const struct dcpk_dtensor_layout *layout = &tensor->layout;
    const struct dcpk_value_tensor *local = tensor->local;
    char wanted[256], stored[256];

    dcpk_box_whole(layout->shape, (int)layout->rank, box);
    for (int64_t i = 0; i < layout->n_cuts; i++) {
        const int64_t cut = layout->cuts[i], n = layout->mesh[cut];
        int64_t *extent = &box->extent[layout->axis[cut]];
        const int64_t piece = *extent / n + (*extent % n != 0);
        int64_t skipped = *extent;

        if (piece > 0 && tensor->at[cut] <= *extent / piece)
            skipped = tensor->at[cut] * piece;
        box->offset[layout->axis[cut]] += skipped;
        *extent = dcpk_min_i64(piece, *extent - skipped);
    }
    if (dcpk_shape_equal(box->extent, box->rank, local->shape, local->rank))
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EFORMAT,
                     "its local tensor has the shape %s, and its placements give the rank %s",
                     dcpk_shape_format(local->shape, local->rank, stored, sizeof stored),
                     dcpk_shape_format(box->extent, box->rank, wanted, sizeof wanted));
}
