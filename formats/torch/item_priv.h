/* SPDX-License-Identifier: Apache-2.0 */
/* item_priv.h - what the item_*.c share in addition to item.h. */
#ifndef DCPK_FORMATS_TORCH_ITEM_PRIV_H
#define DCPK_FORMATS_TORCH_ITEM_PRIV_H

#include "formats/torch/item.h"
#include "formats/torch/zip_priv.h"

/* A tensor as its pickle describes it: offsets and strides in elements of dtype. */
struct dcpk_rebuilt {
    enum dcpk_dtype dtype;
    int rank;
    int64_t shape[DCPK_MAX_RANK];
    int64_t stride_elems[DCPK_MAX_RANK]; /* 0 on axes of length 1 and when there are no elements */
    int64_t offset_elems;
    int64_t storage_elems;
    const char *key; /* of the storage; in the pickle's arena */
};

/* Name of the OBJECTs that persistent ids become; recognised by its address, so that no pickle can
 * make one. */
extern const char dcpk_storage_mark[];

/* Read data.pkl of an archive into arena. n_storages: how many persistent ids it has. limit_bytes:
 * the longest data.pkl. */
dcpk_status dcpk_item_read_pickle(struct dcpk_zip *zip, uint64_t limit_bytes,
                                  struct dcpk_arena *arena, const struct dcpk_value **value,
                                  size_t *n_storages, struct dcpk_error *err);

/* Append data.pkl of a contiguous tensor of storage "0", to the byte as torch.save writes it. */
dcpk_status dcpk_item_put_pickle(const struct dcpk_item_form *form, struct dcpk_bytes *out,
                                 struct dcpk_error *err);

/*
 * Read a node of that value as a tensor; is_tensor false, r untouched: it is something else. Every
 * element lies inside the storage that the pickle claims. v: may be NULL.
 */
dcpk_status dcpk_rebuilt_read(const struct dcpk_value *v, bool *is_tensor, struct dcpk_rebuilt *r,
                              struct dcpk_error *err);

/* The record of a tensor's storage; DCPK_EFORMAT unless it has exactly the bytes that the pickle
 * claims. */
dcpk_status dcpk_rebuilt_find_storage(const struct dcpk_zip *zip, const struct dcpk_rebuilt *r,
                                      const struct dcpk_zip_member **member,
                                      struct dcpk_error *err);

/* Name in module `torch` for dtypes saved by _rebuild_tensor_v2; NULL: _rebuild_tensor_v3,
 * torch.storage UntypedStorage. */
const char *dcpk_storage_class_name(enum dcpk_dtype dtype);
/* The dtype of a storage class of module `torch`, or DCPK_DTYPE_NONE. */
enum dcpk_dtype dcpk_storage_class_dtype(const char *name);

#endif
