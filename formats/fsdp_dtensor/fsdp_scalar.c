/* SPDX-License-Identifier: Apache-2.0 */
/* fsdp_scalar.c - reads tensors that are training state: the RNG's, steps. */
#include <inttypes.h>
#include <string.h>

#include "formats/fsdp_dtensor/fsdp_dtensor_priv.h"

#define MAX_STATE_BYTES (1 << 20) /* of such a tensor */

dcpk_status dcpk_fsdp_load_tensor(struct dcpk_model *model, uint32_t tensor,
                                  const struct dcpk_value **value, struct dcpk_error *err)
{
    const struct dcpk_checkpoint *ckpt = model->ckpt;
    const struct dcpk_tensor *t = &ckpt->tensors[tensor];
    struct dcpk_object item = {.key = t->key};
    int64_t n_elems;

    if (dcpk_shape_count(t->shape, t->rank, &n_elems, err))
        return err->status;
    if (t->n_chunks != 1 || n_elems > MAX_STATE_BYTES / 16)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "training state of %" PRId64 " elements in %zu chunks (known is one chunk "
                         "of at most %d)",
                         n_elems, t->n_chunks, MAX_STATE_BYTES / 16);
    item.place = ckpt->chunks[t->first_chunk].place;
    if (dcpk_by_place_load(&model->loaded, model->ckpt, &item, value, err))
        return err->status;
    if ((*value)->kind != DCPK_V_TENSOR)
        return dcpk_fail(err, DCPK_EFORMAT, "its item is not a tensor");
    return DCPK_OK;
}

dcpk_status dcpk_fsdp_read_step(struct dcpk_model *model, uint32_t tensor,
                                const struct dcpk_value **step, struct dcpk_error *err)
{
    const struct dcpk_value *value;
    const char *key = model->ckpt->tensors[tensor].key;
    float f;

    if (dcpk_fsdp_load_tensor(model, tensor, &value, err)) {
        dcpk_context(err, "'%s'", key);
        return err->status;
    }
    if (value->as.tensor->dtype != DCPK_F32 || value->as.tensor->n_bytes != sizeof f)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "'%s' is not a single float32", key);
    memcpy(&f, value->as.tensor->data, sizeof f);
    *step = dcpk_value_float(model->arena, (double)f, err);
    return *step == NULL ? err->status : DCPK_OK;
}
