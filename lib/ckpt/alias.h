/* SPDX-License-Identifier: Apache-2.0 */
/* alias.h - two names for the same stored bytes. */
#ifndef DCPK_LIB_CKPT_ALIAS_H
#define DCPK_LIB_CKPT_ALIAS_H

#include "lib/ckpt/checkpoint.h"
#include "lib/tensor/piece.h"

/*
 * True if tensors a and b (or views) consist of the same bytes: one dtype, the same boxes at the
 * same places in the same order. Chunks without bytes (left out by zarr) have no place to share.
 */
bool dcpk_tensors_are_aliases(const struct dcpk_checkpoint *ckpt, uint32_t a, uint32_t b);

/* True if two lists of pieces put the same bytes in the same places. A fill has no bytes to
 * share. */
bool dcpk_pieces_are_aliases(const struct dcpk_checkpoint *ckpt, const struct dcpk_piece *a,
                             size_t n_a, const struct dcpk_piece *b, size_t n_b);

#endif
