/* SPDX-License-Identifier: Apache-2.0 */
/* dcp_paths.c - planner_data of .metadata: where the nested dict that was saved has each flat key.
 */
#include "formats/dcp/dcp.h"
#include "formats/torch/pickle.h"
#include "lib/base/alloc.h"

#define MAX_METADATA_BYTES (UINT64_C(1) << 30)

/* Conversions have no use for it, so that opening drops it: the file is read again. */
dcpk_status dcpk_dcp_load_paths(struct dcpk_checkpoint *ckpt, struct dcpk_arena *arena,
                                const struct dcpk_value **paths, uint64_t *n_bytes,
                                struct dcpk_error *err)
{
    const struct dcpk_pickle_options options = {0};
    const struct dcpk_value *root, *planner_data;
    struct dcpk_source *source;
    char *data;
    size_t n;

    if (dcpk_store_find(ckpt->store, ".metadata", &source, err) ||
        dcpk_source_slurp(source, MAX_METADATA_BYTES, &data, &n, err))
        return err->status;
    (void)dcpk_pickle_read(data, n, &options, arena, &root, err);
    dcpk_free(data);
    if (err->status != DCPK_OK)
        return err->status;
    planner_data = dcpk_value_get(dcpk_value_attrs(root), "planner_data");
    *n_bytes = n;
    if (planner_data != NULL && planner_data->kind == DCPK_V_DICT)
        *paths = planner_data;
    return DCPK_OK;
}
