/* SPDX-License-Identifier: Apache-2.0 */
/* write_prepare.c - decides how a planned output is cut into tasks. */
#include <stdlib.h>

#include "lib/base/alloc.h"
#include "lib/exec/write_priv.h"

#define BATCH_BYTES (1u << 20) /* enough for a batch: more would leave threads idle at the end */

uint64_t dcpk_write_item_bytes(const struct dcpk_out_chunk *chunk)
{
    return chunk->lead_bytes + chunk->data_bytes + chunk->tail_bytes;
}

struct dcpk_view dcpk_write_view(const struct dcpk_out_tensor *tensor)
{
    return (struct dcpk_view){
        .dtype = tensor->dtype,
        .rank = tensor->rank,
        .shape = tensor->shape,
        .pieces = tensor->pieces,
        .n_pieces = tensor->n_pieces,
        .literal = tensor->literal,
    };
}

void dcpk_write_cut(const struct dcpk_writing *c, const struct dcpk_out_chunk *chunk,
                    struct dcpk_slabs *slabs)
{
    const struct dcpk_out_tensor *tensor = &c->out->tensors[chunk->tensor];
    struct dcpk_box box;

    dcpk_box_unpack(chunk->span, tensor->rank, &box);
    dcpk_slabs_cut(&box, dcpk_dtype_bytes(tensor->dtype), c->workers[0].buffer_bytes, slabs);
}

static int compare_chunks(const void *a, const void *b, void *context)
{
    const struct dcpk_output *out = context;
    const struct dcpk_out_chunk *x = &out->chunks[*(const uint32_t *)a];
    const struct dcpk_out_chunk *y = &out->chunks[*(const uint32_t *)b];

    if (x->file != y->file)
        return x->file < y->file ? -1 : 1;
    return (x->offset_bytes > y->offset_bytes) - (x->offset_bytes < y->offset_bytes);
}

static dcpk_status order_chunks(struct dcpk_writing *c, struct dcpk_error *err)
{
    const size_t n = c->out->n_chunks;
    bool sorted = true;

    c->order = dcpk_alloc_array(n, sizeof *c->order, err);
    if (c->order == NULL)
        return err->status;
    for (size_t i = 0; i < n; i++) {
        c->order[i] = (uint32_t)i;
        sorted = sorted && (i == 0 || compare_chunks(&c->order[i - 1], &c->order[i], c->out) <= 0);
    }
    if (!sorted)
        qsort_r(c->order, n, sizeof *c->order, compare_chunks, c->out);
    return DCPK_OK;
}

/* How many chunks from order[first] on share a batch; 0: the first one is too large for any. */
static uint32_t measure_batch(const struct dcpk_writing *c, size_t first)
{
    const struct dcpk_out_chunk *chunk = &c->out->chunks[c->order[first]];
    const size_t buffer_bytes = c->workers[0].buffer_bytes;
    const uint64_t limit = buffer_bytes < BATCH_BYTES ? buffer_bytes : BATCH_BYTES;
    uint64_t n_bytes = dcpk_write_item_bytes(chunk);
    uint32_t n = 1;

    if (n_bytes > buffer_bytes)
        return 0;
    for (size_t i = first + 1; i < c->out->n_chunks; i++, n++) {
        const struct dcpk_out_chunk *next = &c->out->chunks[c->order[i]];

        if (next->file != chunk->file || next->offset_bytes != chunk->offset_bytes + n_bytes ||
            n_bytes + dcpk_write_item_bytes(next) > limit)
            break;
        n_bytes += dcpk_write_item_bytes(next);
    }
    return n;
}

static dcpk_status make_entries(struct dcpk_writing *c, struct dcpk_error *err)
{
    size_t capacity = 0;

    for (size_t first = 0; first < c->out->n_chunks;) {
        const struct dcpk_out_chunk *chunk = &c->out->chunks[c->order[first]];
        const uint32_t n_batch = measure_batch(c, first);
        struct dcpk_slabs slabs = {.n = 1};

        if (dcpk_grow(&c->entries, &capacity, c->n_entries, sizeof *c->entries, err) != DCPK_OK)
            return err->status;
        if (n_batch == 0)
            dcpk_write_cut(c, chunk, &slabs);
        c->entries[c->n_entries++] = (struct dcpk_entry){c->n_tasks, (uint32_t)first, n_batch};
        c->n_tasks += slabs.n;
        c->files[chunk->file].n_tasks_left += slabs.n;
        first += n_batch == 0 ? 1 : n_batch;
    }
    return DCPK_OK;
}

static dcpk_status make_trees(struct dcpk_writing *c, struct dcpk_error *err)
{
    c->trees = dcpk_alloc_array(c->out->n_tensors, sizeof *c->trees, err);
    if (c->trees == NULL)
        return err->status;
    for (size_t t = 0; t < c->out->n_tensors; t++) {
        const struct dcpk_view view = dcpk_write_view(&c->out->tensors[t]);
        struct dcpk_box_tree tree;
        dcpk_status st;

        if (view.literal != NULL || view.n_pieces < 2)
            continue;
        st = dcpk_piece_tree_build(&view, &tree, err);
        if (st != DCPK_OK)
            return st;
        if (tree.order == NULL && tree.nodes == NULL)
            continue; /* made again at no cost when it is needed */
        c->trees[t] = dcpk_alloc(sizeof tree, err);
        if (c->trees[t] == NULL) {
            dcpk_box_tree_release(&tree);
            return err->status;
        }
        *c->trees[t] = tree;
    }
    return DCPK_OK;
}

dcpk_status dcpk_write_prepare(struct dcpk_writing *c, struct dcpk_error *err)
{
    dcpk_status st = order_chunks(c, err);

    if (st == DCPK_OK)
        st = make_entries(c, err);
    return st == DCPK_OK ? make_trees(c, err) : st;
}
