/* SPDX-License-Identifier: Apache-2.0 */
/* item_order.h - chunks and objects in the order of their places, those with several names once. */
#ifndef DCPK_LIB_EXEC_ITEM_ORDER_H
#define DCPK_LIB_EXEC_ITEM_ORDER_H

#include "lib/ckpt/checkpoint.h"

/*
 * The numbers of the checkpoint's chunks in the order of the files, one of those that share a
 * place; but chunks of tensors of another shape or dtype are apart, so that each is looked at.
 * *chunks: dcpk_free. Errors: DCPK_ENOMEM; DCPK_ERANGE past 2^32 - 1 of them.
 */
dcpk_status dcpk_order_chunks(struct dcpk_checkpoint *ckpt, uint32_t **chunks, size_t *n_chunks,
                              struct dcpk_error *err);
/* The same of the objects. first: n_objects, by object the place in *objects of the one with its
 * bytes; NULL: not wanted. */
dcpk_status dcpk_order_objects(struct dcpk_checkpoint *ckpt, uint32_t *first, uint32_t **objects,
                               size_t *n_objects, struct dcpk_error *err);

#endif
