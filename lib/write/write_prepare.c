/* SPDX-License-Identifier: Apache-2.0 */
/* write_prepare.c - decides how units of a planned output are cut into tasks. */
#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/write/write_priv.h"

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
        .blocks = tensor->blocks,
    };
}

void dcpk_write_cut(const struct dcpk_writing *w, const struct dcpk_entry *entry,
                    struct dcpk_slabs *slabs, uint64_t *first_bytes)
{
    const struct dcpk_out_chunk *chunk = dcpk_units_chunk(&w->units, entry->first);
    struct dcpk_box box;

    *first_bytes = 0;
    if (w->units.units[entry->unit].n_chunks == 0)
        dcpk_unit_part_box(&w->units, entry->unit, &box, first_bytes);
    else
        dcpk_units_chunk_box(&w->units, chunk, &box);
    dcpk_slabs_cut(&box, dcpk_dtype_bytes(w->out->tensors[chunk->tensor].dtype),
                   w->workers[0].buffer_bytes, slabs);
}

/* The number of chunks from order[first] on, before order[last], that share a batch; 0: the first
 * one is too large for any. */
static uint32_t measure_batch(const struct dcpk_writing *w, size_t first, size_t last)
{
    const struct dcpk_out_chunk *chunk = dcpk_units_chunk(&w->units, first);
    const size_t buffer_bytes = w->workers[0].buffer_bytes;
    const uint64_t limit = dcpk_min_u64(buffer_bytes, BATCH_BYTES);
    uint64_t n_bytes = dcpk_write_item_bytes(chunk);
    uint32_t n = 1;

    if (n_bytes > buffer_bytes)
        return 0;
    for (size_t i = first + 1; i < last; i++, n++) {
        const struct dcpk_out_chunk *next = dcpk_units_chunk(&w->units, i);

        if (next->offset_bytes != chunk->offset_bytes + n_bytes ||
            n_bytes + dcpk_write_item_bytes(next) > limit)
            break;
        n_bytes += dcpk_write_item_bytes(next);
    }
    return n;
}

static dcpk_status write_add_entry(struct dcpk_writing *w, uint32_t unit, size_t first,
                                   uint32_t n_batch, struct dcpk_error *err)
{
    struct dcpk_entry *entry;
    struct dcpk_slabs slabs = {.n = 1};
    uint64_t first_bytes;

    if (dcpk_grow(&w->entries, &w->entries_capacity, w->n_entries, sizeof *w->entries, err) !=
        DCPK_OK)
        return err->status;
    entry = &w->entries[w->n_entries++];
    *entry = (struct dcpk_entry){
        .first_task = w->n_tasks, .unit = unit, .first = (uint32_t)first, .n_batch = n_batch};
    if (n_batch == 0)
        dcpk_write_cut(w, entry, &slabs, &first_bytes);
    entry->n_slabs_left = (uint32_t)slabs.n; /* a unit's bytes by a buffer's: few */
    w->n_tasks += slabs.n;
    w->states[unit].n_tasks_left += (uint32_t)slabs.n;
    return DCPK_OK;
}

static dcpk_status add_unit(struct dcpk_writing *w, uint32_t unit, struct dcpk_error *err)
{
    const struct dcpk_unit *u = &w->units.units[unit];
    const size_t last = (size_t)u->first + u->n_chunks;

    w->states[unit].n_tasks_left = 0;
    w->states[unit].crc32 = 0;
    w->files[dcpk_unit_file(&w->units, unit)].n_users++;
    if (u->n_chunks == 0)
        return write_add_entry(w, unit, u->first, 0, err);
    for (size_t first = u->first; first < last;) {
        const uint32_t n_batch = measure_batch(w, first, last);

        if (write_add_entry(w, unit, first, n_batch, err) != DCPK_OK)
            return err->status;
        first += n_batch == 0 ? 1 : n_batch;
    }
    return DCPK_OK;
}

dcpk_status dcpk_write_prepare(struct dcpk_writing *w, size_t first, size_t last,
                               struct dcpk_error *err)
{
    dcpk_status st = DCPK_OK;

    w->n_entries = 0;
    w->n_tasks = 0;
    for (size_t unit = first; unit < last && st == DCPK_OK; unit++)
        if (!w->states[unit].is_done)
            st = add_unit(w, (uint32_t)unit, err);
    return st;
}

dcpk_status dcpk_write_make_trees(struct dcpk_writing *w, struct dcpk_error *err)
{
    w->trees = dcpk_alloc_array(w->out->n_tensors, sizeof *w->trees, err);
    if (w->trees == NULL)
        return err->status;
    for (size_t t = 0; t < w->out->n_tensors; t++) {
        const struct dcpk_view view = dcpk_write_view(&w->out->tensors[t]);
        struct dcpk_box_tree tree;
        dcpk_status st;

        if (view.literal != NULL || view.n_pieces < 2)
            continue;
        st = dcpk_piece_tree_build(&view, &tree, err);
        if (st != DCPK_OK)
            return st;
        if (tree.order == NULL && tree.nodes == NULL)
            continue; /* made again at no cost when it is needed */
        w->trees[t] = dcpk_alloc(sizeof tree, err);
        if (w->trees[t] == NULL) {
            dcpk_box_tree_release(&tree);
            return err->status;
        }
        *w->trees[t] = tree;
    }
    return DCPK_OK;
}
