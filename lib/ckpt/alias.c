/* SPDX-License-Identifier: Apache-2.0 */
/* alias.c - two names for the same stored bytes. */
#include "lib/ckpt/alias.h"

#include <string.h>

/* Stored chunks both, or runs that begin alike in chunks whose places are compared elsewhere. */
static bool same_run(const struct dcpk_chunk_run *a, const struct dcpk_chunk_run *b)
{
    return a == b || (a != NULL && b != NULL && a->first == b->first);
}

/* The same arithmetic with the same bytes. */
static bool same_computed(const struct dcpk_checkpoint *ckpt, const struct dcpk_tensor *x,
                          const struct dcpk_tensor *y)
{
    const struct dcpk_computed *a = x->computed, *b = y->computed;

    return a != NULL && b != NULL && dcpk_shape_equal(x->shape, x->rank, y->shape, y->rank) &&
           a->block_rows == b->block_rows && a->block_cols == b->block_cols &&
           a->addend == b->addend &&
           (a->values == b->values || (a->values != DCPK_NO_VALUES && b->values != DCPK_NO_VALUES &&
                                       dcpk_tensors_are_aliases(ckpt, a->values, b->values))) &&
           (a->scales == b->scales || (a->scales != DCPK_NO_SCALES && b->scales != DCPK_NO_SCALES &&
                                       dcpk_tensors_are_aliases(ckpt, a->scales, b->scales)));
}

bool dcpk_tensors_are_aliases(const struct dcpk_checkpoint *ckpt, uint32_t a, uint32_t b)
{
    const struct dcpk_tensor *x = &ckpt->tensors[a], *y = &ckpt->tensors[b];

    if (a == b)
        return true;
    if (x->computed != NULL || y->computed != NULL)
        return same_computed(ckpt, x, y);
    if (x->dtype != y->dtype || x->rank != y->rank || x->n_chunks != y->n_chunks)
        return false;
    for (size_t i = 0; i < x->n_chunks; i++) {
        const struct dcpk_chunk *c = &ckpt->chunks[x->first_chunk + i],
                                *d = &ckpt->chunks[y->first_chunk + i];
        const size_t span_bytes = 2 * (size_t)x->rank * sizeof *c->span;

        if (c->place.n_bytes == 0 || c->place.file != d->place.file ||
            c->place.offset_bytes != d->place.offset_bytes ||
            !same_run(dcpk_checkpoint_chunk_run(ckpt, c), dcpk_checkpoint_chunk_run(ckpt, d)) ||
            memcmp(c->span, d->span, span_bytes) != 0)
            return false;
    }
    return true;
}

bool dcpk_pieces_are_aliases(const struct dcpk_checkpoint *ckpt, const struct dcpk_piece *a,
                             size_t n_a, const struct dcpk_piece *b, size_t n_b)
{
    if (n_a != n_b)
        return false;
    for (size_t i = 0; i < n_a; i++) {
        const struct dcpk_piece *p = &a[i], *q = &b[i];
        const size_t span_bytes = 2 * ((size_t)p->src_rank + p->dst_rank) * sizeof *p->span;

        if (p->src == DCPK_PIECE_FILL || q->src == DCPK_PIECE_FILL || p->src_rank != q->src_rank ||
            p->dst_rank != q->dst_rank || p->axes != q->axes ||
            memcmp(p->span, q->span, span_bytes) != 0 ||
            !dcpk_tensors_are_aliases(ckpt, p->src, q->src))
            return false;
    }
    return true;
}
