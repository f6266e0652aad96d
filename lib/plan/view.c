/* SPDX-License-Identifier: Apache-2.0 */
/* view.c - stored tensors as views; the index of a checkpoint's chunks. */
#include <assert.h>
#include <stdlib.h>

#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/ckpt/overlaps.h"
#include "lib/model/model.h"
#include "lib/plan/box_tree.h"
#include "lib/plan/plan.h"

bool dcpk_view_same_shape(const struct dcpk_view *a, const struct dcpk_view *b)
{
    return dcpk_shape_equal(a->shape, a->rank, b->shape, b->rank);
}

struct dcpk_view dcpk_model_view(const struct dcpk_model_tensor *tensor)
{
    return (struct dcpk_view){.dtype = tensor->dtype,
                              .rank = tensor->rank,
                              .shape = tensor->shape,
                              .pieces = tensor->pieces,
                              .n_pieces = tensor->n_pieces};
}

dcpk_status dcpk_view_stored(const struct dcpk_checkpoint *ckpt, uint32_t tensor,
                             struct dcpk_arena *arena, struct dcpk_view *view,
                             struct dcpk_error *err)
{
    const struct dcpk_tensor *stored = &ckpt->tensors[tensor];
    struct dcpk_piece *piece = dcpk_arena_alloc(arena, sizeof *piece, err);
    struct dcpk_box whole;
    dcpk_status st;

    if (piece == NULL)
        return err->status;
    dcpk_box_whole(stored->shape, stored->rank, &whole);
    st = dcpk_piece_make(arena, tensor, &whole, &whole, piece, err);
    if (st != DCPK_OK)
        return st;
    *view = (struct dcpk_view){
        .dtype = stored->dtype,
        .rank = stored->rank,
        .shape = stored->shape,
        .pieces = piece,
        .n_pieces = 1,
    };
    return DCPK_OK;
}

static const int64_t *piece_span(const void *items, size_t i)
{
    const struct dcpk_piece *piece = (const struct dcpk_piece *)items + i;

    return piece->span + 2 * piece->src_rank;
}

dcpk_status dcpk_piece_tree_build(const struct dcpk_view *view, struct dcpk_box_tree *tree,
                                  struct dcpk_error *err)
{
    *tree = (struct dcpk_box_tree){
        .items = view->pieces,
        .span = piece_span,
        .n = view->literal == NULL ? view->n_pieces : 0,
        .rank = view->rank,
    };
    return dcpk_box_tree_build(tree, err);
}

/* The place of a view's first bytes: equal views have the same. */
struct view_ref {
    uint32_t file;
    uint64_t offset_bytes;
    size_t view;
};

static int compare_view_refs(const void *left, const void *right)
{
    const struct view_ref *a = left, *b = right;

    return DCPK_ORDER_BY_3(a, b, file, offset_bytes, view);
}

/* Returns false for a view without bytes of the checkpoint. */
static bool make_view_ref(const struct dcpk_checkpoint *ckpt, const struct dcpk_view *view,
                          struct view_ref *ref)
{
    const struct dcpk_tensor *tensor;
    const struct dcpk_place *place;

    if (view->literal != NULL || view->n_pieces == 0 || view->pieces[0].src == DCPK_PIECE_FILL)
        return false;
    tensor = &ckpt->tensors[view->pieces[0].src];
    if (tensor->n_chunks == 0)
        return false;
    place = &ckpt->chunks[tensor->first_chunk].place;
    ref->file = place->file;
    ref->offset_bytes = place->offset_bytes;
    return true;
}

static bool same_view(const struct dcpk_checkpoint *ckpt, const struct dcpk_view *a,
                      const struct dcpk_view *b)
{
    return a->dtype == b->dtype && dcpk_view_same_shape(a, b) &&
           dcpk_pieces_are_aliases(ckpt, a->pieces, a->n_pieces, b->pieces, b->n_pieces);
}

dcpk_status dcpk_views_fold(const struct dcpk_checkpoint *ckpt, const struct dcpk_view *views,
                            size_t n, size_t *first, struct dcpk_error *err)
{
    struct view_ref *refs = dcpk_alloc_array(n, sizeof *refs, err);
    size_t n_refs = 0;

    if (refs == NULL)
        return err->status;
    for (size_t i = 0; i < n; i++) {
        first[i] = i;
        refs[n_refs].view = i;
        n_refs += make_view_ref(ckpt, &views[i], &refs[n_refs]);
    }
    qsort(refs, n_refs, sizeof *refs, compare_view_refs);
    for (size_t i = 1; i < n_refs; i++) {
        const size_t before = first[refs[i - 1].view];

        if (refs[i].file == refs[i - 1].file && refs[i].offset_bytes == refs[i - 1].offset_bytes &&
            same_view(ckpt, &views[before], &views[refs[i].view]))
            first[refs[i].view] = before;
    }
    dcpk_free(refs);
    return DCPK_OK;
}

struct dcpk_chunk_index {
    const struct dcpk_checkpoint *ckpt;
    size_t n_trees;              /* of stored tensors, then of views */
    struct dcpk_box_tree *trees; /* one a tensor, over its chunks */
};

static const int64_t *chunk_span(const void *items, size_t i)
{
    return ((const struct dcpk_chunk *)items)[i].span;
}

dcpk_status dcpk_chunk_index_new(const struct dcpk_checkpoint *ckpt,
                                 struct dcpk_chunk_index **index, struct dcpk_error *err)
{
    struct dcpk_chunk_index *made = dcpk_alloc(sizeof *made, err);
    dcpk_status st = DCPK_OK;

    if (made == NULL)
        return err->status;
    made->ckpt = ckpt;
    made->n_trees = ckpt->n_tensors + ckpt->n_views;
    made->trees = dcpk_alloc_array(made->n_trees, sizeof *made->trees, err);
    if (made->trees == NULL)
        st = err->status;
    for (size_t t = 0; t < made->n_trees && st == DCPK_OK; t++) {
        const struct dcpk_tensor *tensor = &ckpt->tensors[t];

        made->trees[t] = (struct dcpk_box_tree){
            .items = ckpt->chunks == NULL ? NULL : &ckpt->chunks[tensor->first_chunk],
            .span = chunk_span,
            .n = tensor->n_chunks,
            .rank = tensor->rank,
        };
        st = dcpk_box_tree_build(&made->trees[t], err);
    }
    if (st != DCPK_OK) {
        dcpk_context(err, "indexing the chunks of the checkpoint");
        dcpk_chunk_index_free(made);
        return st;
    }
    *index = made;
    return DCPK_OK;
}

void dcpk_chunk_index_free(struct dcpk_chunk_index *index)
{
    if (index == NULL)
        return;
    for (size_t t = 0; index->trees != NULL && t < index->n_trees; t++)
        dcpk_box_tree_release(&index->trees[t]);
    dcpk_free(index->trees);
    dcpk_free(index);
}

const struct dcpk_chunk *dcpk_chunk_index_next(const struct dcpk_chunk_index *index,
                                               uint32_t tensor, const struct dcpk_box *box,
                                               size_t *at)
{
    const struct dcpk_box_tree *tree = &index->trees[tensor];
    size_t item;

    assert(tensor < index->n_trees && box->rank == tree->rank);
    if (!dcpk_box_tree_next(tree, box, at, &item))
        return NULL;
    return &index->ckpt->chunks[index->ckpt->tensors[tensor].first_chunk + item];
}
