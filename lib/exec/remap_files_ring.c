/* SPDX-License-Identifier: Apache-2.0 */
/* remap_files_ring.c - places of this rank's parts in their files and in the ring, and the tiles
 * that take them from there. */
/*
 * Everything that a rank reads is one stream, in the order of the files, cut into stages; stage s
 * lies in the ring at s modulo the ring's stages. So every tile has its source before a byte is
 * read.
 *
 *   file      [ header | chunk | header | chunk ]...[ chunk |           encoded
 *                      |<-------range-------->|     |<-range|              |
 *   stream    [        |  load |        | load  |     load  ]  [ gathered load |   ...
 *             |<-------------------- stage ---------------->|  |<-- stage
 */

#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/exec/remap_files_inside.h"
#include "lib/exec/slab.h"
#include "lib/tensor/strided.h"

/* So many bytes between two wanted runs are read: that costs less than one more call. */
#define GAP_BYTES (16u << 10)
/* A box of which this is more than half is read by the gatherer, run by run. */
#define WASTE_BYTES (64u << 10)
#define ALIGN_BYTES 256

static const struct feed_part *part_of(const struct dcpk_remap_files *files, size_t load)
{
    return &files->parts[files->first_part + load];
}

const char *dcpk_feed_load_name(const struct dcpk_remap_files *files, size_t load)
{
    return files->options.views[part_of(files, load)->view].name;
}

static const struct dcpk_piece *piece_of(const struct dcpk_remap_files *files,
                                         const struct feed_part *part)
{
    return &files->options.views[part->view].view.pieces[part->piece];
}

bool dcpk_feed_wanted_box(const struct dcpk_remap_files *files, size_t load, struct dcpk_box *box)
{
    const struct dcpk_remap_plan *plan = files->base.plan;
    const uint32_t first = files->first_move[load], end = files->first_move[load + 1];

    for (uint32_t i = first; i < end; i++) {
        struct dcpk_box move;

        dcpk_move_box(plan, &plan->moves[files->moves[i]], &move);
        if (i == first)
            *box = move;
        for (int a = 0; a < move.rank; a++) {
            const int64_t low = dcpk_min_i64(box->offset[a], move.offset[a]);
            const int64_t high =
                dcpk_max_i64(box->offset[a] + box->extent[a], move.offset[a] + move.extent[a]);

            box->offset[a] = low;
            box->extent[a] = high - low;
        }
    }
    return end > first;
}

/* Moves by load. */
static dcpk_status list_moves(struct dcpk_remap_files *files, struct dcpk_error *err)
{
    const struct dcpk_remap_plan *plan = files->base.plan;
    struct dcpk_arena *arena = files->base.arena;
    const size_t n = files->n_loads;
    uint32_t *first = dcpk_arena_array(arena, n + 2, sizeof *first, err);

    if (first == NULL)
        return err->status;
    for (size_t i = 0; i < plan->n_moves; i++)
        if (plan->moves[i].source - files->first_part < n)
            first[plan->moves[i].source - files->first_part + 2]++;
    for (size_t i = 2; i < n + 2; i++)
        first[i] += first[i - 1];
    files->moves = dcpk_arena_array(arena, first[n + 1], sizeof *files->moves, err);
    if (files->moves == NULL)
        return err->status;
    for (size_t i = 0; i < plan->n_moves; i++)
        if (plan->moves[i].source - files->first_part < n)
            files->moves[first[plan->moves[i].source - files->first_part + 1]++] = (uint32_t)i;
    files->first_move = first;
    return DCPK_OK;
}

/* Bytes from the begin of a chunk to the element at `index`, and from there to the end of the last
 * element of `box`. */
static uint64_t offset_in_chunk(const struct dcpk_box *chunk, const int64_t *stride_bytes,
                                const int64_t *index)
{
    uint64_t at = 0;

    for (int a = 0; a < chunk->rank; a++)
        at += (uint64_t)(index[a] - chunk->offset[a]) * (uint64_t)stride_bytes[a];
    return at;
}

static uint64_t span_of_box(const struct dcpk_box *box, const int64_t *stride_bytes,
                            size_t elem_bytes)
{
    uint64_t n = elem_bytes;

    for (int a = 0; a < box->rank; a++)
        n += (uint64_t)(box->extent[a] - 1) * (uint64_t)stride_bytes[a];
    return n;
}

/* The chunk of a part: its box, and the strides of its elements when they lie row-major. */
static const struct dcpk_tensor *chunk_of(const struct dcpk_remap_files *files,
                                          const struct feed_part *part, struct dcpk_box *box,
                                          int64_t *stride_bytes)
{
    const struct dcpk_checkpoint *ckpt = files->options.ckpt;
    const struct dcpk_chunk *chunk = &ckpt->chunks[part->chunk];
    const struct dcpk_tensor *tensor = &ckpt->tensors[chunk->tensor];

    dcpk_box_unpack(chunk->span, tensor->rank, box);
    dcpk_row_major_strides(dcpk_dtype_bytes(tensor->dtype), box->extent, box->rank, stride_bytes);
    return tensor;
}

/* Find a load in its file. A task of the pool. */
static dcpk_status load_locate(void *context, int worker, uint64_t i, struct dcpk_error *err)
{
    struct dcpk_remap_files *files = context;
    const struct feed_part *part = part_of(files, i);
    struct feed_load *load = &files->loads[i];
    struct dcpk_box wanted, chunk, from, to;
    int64_t stride_bytes[DCPK_MAX_RANK];
    const struct dcpk_tensor *tensor;
    struct dcpk_extent extent;
    uint64_t n_elems, n_bytes;

    if (!dcpk_feed_wanted_box(files, i, &wanted))
        return DCPK_OK;
    n_elems = dcpk_box_elems(&wanted);
    load->is_gathered = true;
    load->n_bytes = n_elems * dcpk_dtype_bytes(files->dtypes[part->view]);
    if (part->chunk == FEED_NONE)
        return DCPK_OK;
    if (dcpk_exec_locate(files->exec, &files->options.ckpt->chunks[part->chunk],
                         &files->workers[worker].reader, &extent, err))
        return err->status;
    tensor = chunk_of(files, part, &chunk, stride_bytes);
    if (!extent.is_row_major || extent.is_zero || extent.decoded_bytes > 0 ||
        tensor->dtype != files->dtypes[part->view])
        return DCPK_OK;
    (void)dcpk_piece_clip(piece_of(files, part), &wanted, &from, &to);
    n_bytes = span_of_box(&from, stride_bytes, dcpk_dtype_bytes(tensor->dtype));
    if (n_bytes > 2 * load->n_bytes + WASTE_BYTES)
        return DCPK_OK;
    *load = (struct feed_load){.source = extent.source,
                               .first_bytes = extent.first_bytes +
                                              offset_in_chunk(&chunk, stride_bytes, from.offset),
                               .n_bytes = n_bytes};
    return DCPK_OK;
}

/* Find the record that holds the chunk of a load, where the load before is not of it, too. A task
 * of the pool. */
static dcpk_status record_locate(void *context, int worker, uint64_t i, struct dcpk_error *err)
{
    struct dcpk_remap_files *files = context;
    struct dcpk_checkpoint *ckpt = files->options.ckpt;
    const struct feed_part *part = part_of(files, i);
    const struct dcpk_chunk *chunk, *before;

    if (part->chunk == FEED_NONE)
        return DCPK_OK;
    chunk = &ckpt->chunks[part->chunk];
    if (i > 0 && part[-1].chunk != FEED_NONE) {
        before = &ckpt->chunks[part[-1].chunk];
        if (before->place.file == chunk->place.file &&
            before->place.offset_bytes == chunk->place.offset_bytes)
            return DCPK_OK;
    }
    return dcpk_checkpoint_locate(ckpt, chunk, &files->workers[worker].reader, &files->records[i],
                                  err);
}

/* Finds the records that a run has to check, if that is wanted. */
static dcpk_status find_records(struct dcpk_remap_files *files, struct dcpk_error *err)
{
    if (!files->options.checks_files)
        return DCPK_OK;
    files->records =
        dcpk_arena_array(files->base.arena, files->n_loads, sizeof *files->records, err);
    if (files->records == NULL ||
        dcpk_pool_run(files->exec->n_threads, files->n_loads, record_locate, files, err))
        return err->status;
    for (size_t i = 0; i < files->n_loads; i++)
        if (files->records[i].has_crc32)
            files->record_bytes += files->records[i].record_bytes;
    return DCPK_OK;
}

/* Adds the load to a range if it follows in the file and within its stage; it gets its place
 * there. */
static bool range_extend(const struct dcpk_remap_files *files, struct feed_range *range,
                         struct feed_load *load)
{
    const uint64_t stage_end = (range->at / files->stage_bytes + 1) * files->stage_bytes;
    uint64_t n_bytes;

    if (range->source == NULL || load->is_gathered || range->source != load->source ||
        load->first_bytes < range->file_bytes ||
        load->first_bytes - range->file_bytes > range->n_bytes + GAP_BYTES)
        return false;
    n_bytes = load->first_bytes - range->file_bytes + load->n_bytes;
    if (n_bytes > stage_end - range->at)
        return false;
    load->at = range->at + (load->first_bytes - range->file_bytes);
    range->n_bytes = dcpk_max_u64(range->n_bytes, n_bytes);
    return true;
}

/* The next place in the stream for n_bytes within one block of block_bytes. */
static uint64_t next_place(uint64_t at, uint64_t n_bytes, uint64_t block_bytes)
{
    at = (at + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
    if (at % block_bytes + n_bytes > block_bytes)
        at = (at / block_bytes + 1) * block_bytes;
    return at;
}

/* Give every load its place in the stream. */
static dcpk_status place_loads(struct dcpk_remap_files *files, struct dcpk_error *err)
{
    struct feed_range *range = NULL;
    size_t capacity = 0;
    uint64_t end = 0;

    for (size_t i = 0; i < files->n_loads; i++) {
        struct feed_load *load = &files->loads[i];

        if (load->n_bytes == 0)
            continue;
        if (range == NULL || !range_extend(files, range, load)) {
            if (dcpk_grow(&files->ranges, &capacity, files->n_ranges, sizeof *files->ranges, err))
                return err->status;
            load->at = next_place(end, load->n_bytes,
                                  load->is_gathered ? files->slice_bytes : files->stage_bytes);
            range = &files->ranges[files->n_ranges++];
            *range = (struct feed_range){load->at, load->n_bytes, load->first_bytes, load->source,
                                         (uint32_t)i};
        }
        end = range->at + range->n_bytes;
    }
    files->n_stages = (size_t)((end + files->stage_bytes - 1) / files->stage_bytes);
    files->stages =
        dcpk_arena_array(files->base.arena, files->n_stages, sizeof *files->stages, err);
    if (files->stages == NULL)
        return err->status;
    for (size_t i = files->n_ranges; i-- > 0;) {
        struct feed_stage *stage = &files->stages[files->ranges[i].at / files->stage_bytes];

        range = &files->ranges[i];
        stage->first_range = i;
        stage->n_bytes =
            dcpk_max_u64(stage->n_bytes, range->at % files->stage_bytes + range->n_bytes);
        if (range->source == NULL)
            files->stats.gathered_bytes += range->n_bytes;
        else
            files->stats.plan_bytes += range->n_bytes;
    }
    return DCPK_OK;
}

/* The strides of a piece's source, by the axes of its view: they correspond in order, those of
 * length 1 in the piece left out. */
static void view_strides(const struct dcpk_piece *piece, const int64_t *src, int64_t *view)
{
    struct dcpk_box from, to;
    int f = 0;

    dcpk_piece_from(piece, &from);
    dcpk_piece_to(piece, &to);
    for (int t = 0; t < to.rank; t++) {
        view[t] = 0;
        if (to.extent[t] == 1)
            continue;
        while (from.extent[f] == 1)
            f++;
        view[t] = src[f++];
    }
}

/* The place of box `move` of a load in the ring. strides: storage. */
static struct dcpk_tile_side side_in_ring(const struct dcpk_remap_files *files, size_t i,
                                          const struct dcpk_box *move, int64_t *strides)
{
    const struct feed_part *part = part_of(files, i);
    const struct feed_load *load = &files->loads[i];
    const uint64_t ring_bytes = files->stage_bytes * files->n_ring_stages;
    struct dcpk_box wanted, chunk, from, first, to;
    struct dcpk_tile_side side = {.at = (uint64_t)(uintptr_t)files->ring + load->at % ring_bytes,
                                  .stride_bytes = strides,
                                  .dtype = files->dtypes[part->view]};
    int64_t stored[DCPK_MAX_RANK];

    (void)dcpk_feed_wanted_box(files, i, &wanted);
    if (load->is_gathered) {
        dcpk_row_major_strides(dcpk_dtype_bytes(side.dtype), wanted.extent, wanted.rank, strides);
        side.at += offset_in_chunk(&wanted, strides, move->offset);
        return side;
    }
    (void)chunk_of(files, part, &chunk, stored);
    (void)dcpk_piece_clip(piece_of(files, part), &wanted, &first, &to);
    (void)dcpk_piece_clip(piece_of(files, part), move, &from, &to);
    view_strides(piece_of(files, part), stored, strides);
    side.at += offset_in_chunk(&chunk, stored, from.offset) -
               offset_in_chunk(&chunk, stored, first.offset);
    return side;
}

/* The tiles of a load, into the list of the rank that each goes to. */
static dcpk_status load_tiles(struct dcpk_remap_files *files, size_t load,
                              struct dcpk_tile_list *lists, struct dcpk_error *err)
{
    struct dcpk_remap *base = &files->base;
    const struct dcpk_remap_plan *plan = base->plan;

    for (uint32_t i = files->first_move[load]; i < files->first_move[load + 1]; i++) {
        const struct dcpk_move *m = &plan->moves[files->moves[i]];
        const struct dcpk_shard *t = &base->targets[m->target];
        struct dcpk_tile_box box = {.shape = t->shape,
                                    .sum = plan->target_tensor[m->target],
                                    .has_words = base->options.checks};
        int64_t strides[DCPK_MAX_RANK];
        uint64_t n_bytes;

        dcpk_move_box(plan, m, &box.box);
        n_bytes = dcpk_box_elems(&box.box) * dcpk_dtype_bytes(t->dtype);
        if (t->holder == base->self)
            files->stats.local_bytes += n_bytes;
        else
            files->stats.out_bytes += n_bytes;
        box.src = side_in_ring(files, load, &box.box, strides);
        box.dst = dcpk_remap_side(base, t, &box.box);
        if (dcpk_tile_list_add(&lists[t->holder], &box, dcpk_remap_tile_bytes(base), err))
            return err->status;
    }
    return DCPK_OK;
}

/* The tables of a stage; *load: the first that is not in a stage before, then in one after. */
static dcpk_status stage_load(struct dcpk_remap_files *files, size_t stage, size_t *load,
                              struct dcpk_error *err)
{
    struct dcpk_remap *base = &files->base;
    const size_t n = (size_t)base->n_ranks;
    const uint64_t end = (stage + 1) * files->stage_bytes;
    struct dcpk_tile_list *lists = dcpk_alloc_array(n, sizeof *lists, err);
    dcpk_status st = dcpk_made(lists, err);

    for (; st == DCPK_OK && *load < files->n_loads && files->loads[*load].at < end; ++*load)
        st = load_tiles(files, *load, lists, err);
    for (size_t r = 0; files->options.only_compares && r < n && st == DCPK_OK; r++)
        if (lists[r].n > 0)
            st = dcpk_remap_load_reading(base, &lists[r], &files->stages[stage].reading, err);
    if (st == DCPK_OK && !files->options.only_compares)
        st = dcpk_remap_load_lists(base, lists, DCPK_PACE_MEMORY, &files->stages[stage].local,
                                   &files->stages[stage].peers, err);
    for (size_t r = 0; lists != NULL && r < n; r++)
        dcpk_tile_list_release(&lists[r]);
    dcpk_free(lists);
    return st;
}

/* Memory for the ring, and for what is read before it is copied there. */
static dcpk_status alloc_ring(struct dcpk_remap_files *files, struct dcpk_error *err)
{
    struct dcpk_device *device = files->base.options.device;
    void *at;

    files->n_ring_stages = dcpk_min_size(files->n_stages, FEED_N_STAGES);
    if (files->n_stages == 0)
        return DCPK_OK;
    files->stats.ring_bytes = files->n_ring_stages * files->stage_bytes;
    if (device->ops->alloc(device, DCPK_MEMORY_DEVICE, (size_t)files->stats.ring_bytes, &at, err))
        return err->status;
    files->ring = at;
    if (device->ops->is_host)
        return DCPK_OK;
    files->n_slots = 2 * (size_t)files->exec->n_threads;
    files->stats.slot_bytes = files->n_slots * files->slice_bytes;
    if (device->ops->alloc(device, DCPK_MEMORY_HOST, (size_t)files->stats.slot_bytes, &at, err))
        return err->status;
    files->slots = at;
    return DCPK_OK;
}

dcpk_status dcpk_feed_make_ring(struct dcpk_remap_files *files, struct dcpk_error *err)
{
    size_t load = 0;

    files->loads = dcpk_arena_array(files->base.arena, files->n_loads, sizeof *files->loads, err);
    if (files->loads == NULL || list_moves(files, err))
        return err->status;
    files->workers = dcpk_workers_new(files->exec, err);
    if (files->workers == NULL ||
        dcpk_pool_run(files->exec->n_threads, files->n_loads, load_locate, files, err) ||
        find_records(files, err) || place_loads(files, err) || alloc_ring(files, err))
        return err->status;
    for (size_t s = 0; s < files->n_stages; s++)
        if (stage_load(files, s, &load, err))
            return err->status;
    files->stats.n_tiles = files->base.stats.n_tiles;
    files->stats.table_bytes = files->base.stats.table_bytes;
    files->stats.n_parts = files->n_loads;
    return DCPK_OK;
}

void dcpk_feed_free_ring(struct dcpk_remap_files *files)
{
    struct dcpk_device *device = files->base.options.device;

    for (size_t s = 0; files->stages != NULL && s < files->n_stages; s++) {
        device->ops->unload(device, files->stages[s].local);
        device->ops->unload(device, files->stages[s].peers);
        dcpk_remap_free_reading(&files->base, &files->stages[s].reading);
    }
    device->ops->free(device, files->ring);
    device->ops->free(device, files->slots);
    dcpk_workers_free(files->exec, files->workers);
    dcpk_free(files->ranges);
}
