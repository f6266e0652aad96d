/* SPDX-License-Identifier: Apache-2.0 */
/* zarr.c - the format row: how a zarr checkpoint is known, its common state and objects. */
#include "formats/zarr/zarr.h"

#include <string.h>

#include "formats/dcp/item.h"
#include "formats/megatron/megatron.h"
#include "formats/zarr/zarr_priv.h"

/* metadata.json says zarr: surer than torch_dist's 90, for which any metadata.json will do. */
static int zarr_probe(struct dcpk_store *store)
{
    struct dcpk_megatron_backend backend;
    struct dcpk_error err = DCPK_ERROR_INIT;

    if (!dcpk_store_has(store, DCPK_MEGATRON_METADATA_JSON))
        return 0;
    if (dcpk_megatron_read_backend(store, &backend, &err) != DCPK_OK)
        return err.status == DCPK_ENOMEM ? 100
                                         : 0; /* no guess: open runs into it, too, and says so */
    return strcmp(backend.name, "zarr") == 0 ? 95 : 0;
}

/* A .pt file holds the bare value; the list of one around it is what torch_dist's items have. */
static dcpk_status zarr_load_object(struct dcpk_checkpoint *ckpt, const struct dcpk_object *object,
                                    struct dcpk_arena *arena, const struct dcpk_value **value,
                                    struct dcpk_error *err)
{
    const struct dcpk_value *bare = NULL, *list;
    dcpk_status st = dcpk_item_read_value(ckpt->files[object->place.file], 0, object->place.n_bytes,
                                          0, arena, &bare, err);

    if (st != DCPK_OK) {
        dcpk_context(err, "object '%s'", object->key);
        return st;
    }
    list = dcpk_value_seq(arena, DCPK_V_LIST, &bare, 1, err);
    if (list == NULL)
        return err->status;
    *value = list;
    return DCPK_OK;
}

static dcpk_status zarr_load_common(struct dcpk_checkpoint *ckpt, struct dcpk_arena *arena,
                                    const struct dcpk_value **value, struct dcpk_error *err)
{
    const struct dcpk_value *v = NULL;
    struct dcpk_source *source;
    dcpk_status st = DCPK_OK;

    if (dcpk_store_has(ckpt->store, DCPK_ZARR_COMMON_PT)) {
        st = dcpk_store_find(ckpt->store, DCPK_ZARR_COMMON_PT, &source, err);
        if (st == DCPK_OK)
            st = dcpk_item_read_value(source, 0, dcpk_source_bytes(source), 0, arena, &v, err);
        if (st == DCPK_OK && v->kind != DCPK_V_DICT)
            st = dcpk_fail(err, DCPK_EFORMAT, "the common state is no dict");
    }
    if (st != DCPK_OK) {
        dcpk_context(err, "reading '%s'", DCPK_ZARR_COMMON_PT);
        return st;
    }
    *value = v;
    return DCPK_OK;
}

const struct dcpk_format dcpk_format_zarr = {
    .name = "zarr",
    .summary = "Megatron's zarr checkpoint (core 0.4 to 0.15)",
    .state_bytes = sizeof(struct dcpk_zarr_state),
    .probe = zarr_probe,
    .open = dcpk_zarr_open,
    .locate = dcpk_zarr_locate,
    .decode = dcpk_zarr_decode,
    .load_object = zarr_load_object,
    .load_common = zarr_load_common,
    .close = dcpk_zarr_close,
    .to_model = dcpk_megatron_to_model,
    .from_model = dcpk_zarr_from_model,
    .lay_out = dcpk_zarr_lay_out,
    .frame = dcpk_zarr_frame,
    .encode = dcpk_zarr_encode,
    .finish = dcpk_zarr_finish,
    .container = &dcpk_zarr_arrays,
};
