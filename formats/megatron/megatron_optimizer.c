/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_optimizer.c - how the optimizer's state is kept, by keys and by what the common state
 * calls it (formats/torch_dist/FORMAT.md 5). */
#include <string.h>

#include "formats/megatron/megatron_state.h"
#include "lib/base/order.h"
#include "lib/base/text.h"

/* Layouts that keys show, after an optional "chained_N."; the first that occurs counts. */
static const struct {
    const char *start, *part; /* the key begins with / holds this */
    bool is_flattened;        /* and the tensor is stored flattened */
    bool is_certain;          /* whatever the common state calls it */
    const char *layout;       /* where the common state does not name it */
} signs[] = {
    /* Since core 0.13 the training loop names it. */
    {"optimizer.distributed.", ".bucket_idx_", false, false, "fully_sharded_bucket_space"},
    {"optimizer.distributed.", ".param_state/", false, true, "dp_zero_gather_scatter"},
    {"optimizer.state.", "", true, true, "fully_sharded_model_space"},
    {"optimizer.state.param.", "", false, false, "fully_reshardable"},
    {"optimizer.state.", "", false, false, "model-shaped"},
    {"optimizer.", "", false, false, "unknown"},
};
#define N_SIGNS (DCPK_COUNT(signs))

/* The first sign that `key` shows, N_SIGNS for none. */
static size_t sign_of(const char *key, bool is_flattened)
{
    key = dcpk_megatron_skip_chained(key);
    for (size_t i = 0; i < N_SIGNS; i++)
        if (dcpk_starts_with(key, signs[i].start) && strstr(key, signs[i].part) != NULL &&
            (is_flattened || !signs[i].is_flattened))
            return i;
    return N_SIGNS;
}

static size_t find_sign(const struct dcpk_checkpoint *ckpt)
{
    size_t best = N_SIGNS;

    for (size_t t = 0; t < ckpt->n_tensors && best > 0; t++) {
        const struct dcpk_tensor *tensor = &ckpt->tensors[t];

        if (dcpk_checkpoint_tensor_left_out(ckpt, t) != NULL)
            continue;
        best = dcpk_min_size(best, sign_of(tensor->key, dcpk_megatron_is_flattened(ckpt, tensor)));
    }
    for (size_t i = 0; i < ckpt->n_objects && best > 0; i++)
        if (dcpk_checkpoint_object_left_out(ckpt, i) == NULL)
            best = dcpk_min_size(best, sign_of(ckpt->objects[i].key, false));
    return best;
}

/* The layout's name in the common state (content_metadata: core 0.13 and later; else the
 * optimizer's own field, or that of the first one of several); NULL: nothing. */
static const char *stored_layout_name(const struct dcpk_value *common)
{
    const struct dcpk_value *optimizer = dcpk_value_get(common, "optimizer");
    const struct dcpk_value *first = dcpk_value_get_int(optimizer, 0);
    const char *name = dcpk_value_as_str(
        dcpk_value_get(dcpk_value_get(common, "content_metadata"), "distrib_optim_sharding_type"));

    if (name == NULL)
        name = dcpk_value_as_str(dcpk_value_get(optimizer, "param_state_sharding_type"));
    if (name == NULL)
        name = dcpk_value_as_str(dcpk_value_get(first, "param_state_sharding_type"));
    return name;
}

/* Without optimizer tensors and objects there is none, whatever is stored of it
 * (--no-save-optim). */
const char *dcpk_megatron_optimizer_layout(const struct dcpk_checkpoint *ckpt,
                                           const struct dcpk_value *common)
{
    const size_t sign = find_sign(ckpt);
    const char *name = stored_layout_name(common);

    if (sign == N_SIGNS)
        return "none";
    return name == NULL || signs[sign].is_certain ? signs[sign].layout : name;
}
