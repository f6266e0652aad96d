/* SPDX-License-Identifier: Apache-2.0 */
/* remap_tables.c - a plan as tables of tiles with the addresses of this rank: direct moves,
 * messages to pack and unpack, and what is read again to be checked. */

#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/exec/remap_inside.h"
#include "lib/tensor/strided.h"

/* More tiles than this are made larger ones. */
#define MANY_TILES  (UINT64_C(1) << 18)
#define WIDE_FACTOR 4

/* Reads need no tiles that are whole at a destination: fewer, larger ones. */
#define READ_FACTOR 4

static dcpk_status table_load(struct dcpk_remap *remap, const struct dcpk_tile_list *list,
                              enum dcpk_pace pace, struct dcpk_table **table,
                              struct dcpk_error *err)
{
    struct dcpk_device *device = remap->options.device;
    const struct dcpk_tiles tiles = {list->tiles, list->words, list->n, pace};

    if (list->n == 0)
        return DCPK_OK;
    remap->stats.n_tiles += list->n;
    remap->stats.table_bytes += list->n * sizeof *list->tiles;
    if (list->words != NULL)
        remap->stats.table_bytes += list->n * sizeof *list->words;
    return device->ops->load(device, &tiles, table, err);
}

/* One side of `box` in a shard; another rank's in the mapping of its memory. */
struct dcpk_tile_side dcpk_remap_side(const struct dcpk_remap *remap,
                                      const struct dcpk_shard *shard, const struct dcpk_box *box)
{
    struct dcpk_tile_side side = {dcpk_shard_address(shard, box->offset), shard->stride_bytes,
                                  shard->dtype};

    if (shard->holder != remap->self)
        side.at += remap->memories[shard->memory].shift;
    return side;
}

static uint32_t tensor_of(const struct dcpk_remap *remap, size_t unit, const struct dcpk_move *move)
{
    const size_t tensor = remap->plan->target_tensor[move->target];

    return (uint32_t)(tensor - remap->plan->units[unit].first_tensor);
}

/* The sum of what a move stores. */
static uint32_t sum_of(const struct dcpk_remap *remap, size_t unit, const struct dcpk_move *move)
{
    const struct dcpk_remap_plan *plan = remap->plan;

    if (remap->has_sums_by_move)
        return (uint32_t)(move - plan->moves);
    return tensor_of(remap, unit, move);
}

static bool are_stored_summed(const struct dcpk_remap *remap)
{
    return remap->options.checks || remap->has_sums_by_move;
}

/* Tiles as large as keeps their number at bay. */
size_t dcpk_remap_tile_bytes(const struct dcpk_remap *remap)
{
    const struct dcpk_remap_totals *totals = &remap->plan->totals[remap->self];
    const uint64_t n_bytes = totals->out_bytes + totals->in_bytes + totals->local_bytes;
    const bool are_many = n_bytes / DCPK_TILE_BYTES > MANY_TILES;

    return are_many ? WIDE_FACTOR * DCPK_TILE_BYTES : DCPK_TILE_BYTES;
}

/* Tiles of this rank's direct moves in a unit, into the list of the other rank of each. */
static dcpk_status direct_tiles(struct dcpk_remap *remap, size_t unit, struct dcpk_tile_list *lists,
                                struct dcpk_error *err)
{
    const struct dcpk_remap_plan *plan = remap->plan;
    const size_t end = plan->units[unit + 1].first_move;

    for (size_t i = plan->units[unit].first_move; i < end; i++) {
        const struct dcpk_move *m = &plan->moves[i];
        const struct dcpk_shard *s = &remap->sources[m->source], *t = &remap->targets[m->target];
        const int peer = s->holder == remap->self ? t->holder : s->holder;
        struct dcpk_tile_box box = {.shape = t->shape,
                                    .sum = sum_of(remap, unit, m),
                                    .has_words = are_stored_summed(remap)};

        if (dcpk_move_mover(plan, m) != remap->self ||
            remap->is_staged[remap->self * remap->n_ranks + peer] || dcpk_move_is_kept(plan, m))
            continue;
        dcpk_move_box(plan, m, &box.box);
        box.src = dcpk_remap_side(remap, s, &box.box);
        box.dst = dcpk_remap_side(remap, t, &box.box);
        if (dcpk_tile_list_add(&lists[peer], &box, dcpk_remap_tile_bytes(remap), err))
            return err->status;
    }
    return DCPK_OK;
}

/* Deal the tiles of all peers, beginning with the next rank. */
static dcpk_status load_peers(struct dcpk_remap *remap, const struct dcpk_tile_list *lists,
                              struct dcpk_table **table, struct dcpk_error *err)
{
    const size_t n = (size_t)remap->n_ranks, self = (size_t)remap->self;
    const struct dcpk_tile_list **in_turn = dcpk_alloc_array(n, sizeof *in_turn, err);
    struct dcpk_tile_list all = {0};
    dcpk_status st = dcpk_made(in_turn, err);

    for (size_t k = 1; k < n && st == DCPK_OK; k++)
        in_turn[k - 1] = &lists[(self + k) % n];
    if (st == DCPK_OK)
        st = dcpk_tile_lists_deal(in_turn, n - 1, &all, err);
    if (st == DCPK_OK)
        st = table_load(remap, &all, DCPK_PACE_LINK, table, err);
    dcpk_tile_list_release(&all);
    dcpk_free(in_turn);
    return st;
}

dcpk_status dcpk_remap_load_lists(struct dcpk_remap *remap, const struct dcpk_tile_list *lists,
                                  enum dcpk_pace pace, struct dcpk_table **local,
                                  struct dcpk_table **peers, struct dcpk_error *err)
{
    if (table_load(remap, &lists[remap->self], pace, local, err))
        return err->status;
    return load_peers(remap, lists, peers, err);
}

/* The pace of moves inside the rank: they take no time from messages, unless they need more than
 * those. */
static enum dcpk_pace local_pace(const struct remap_unit *unit, const struct dcpk_tile_list *list)
{
    uint64_t stays = 0, goes = 0;

    for (size_t i = 0; i < list->n; i++)
        stays += (uint64_t)list->tiles[i].n_rows * list->tiles[i].n_elems *
                 dcpk_dtype_bytes((enum dcpk_dtype)list->tiles[i].to);
    for (size_t k = 0; k < unit->n_rounds; k++)
        for (size_t i = 0; i < unit->rounds[k].exchange.n_sends; i++)
            goes += unit->rounds[k].exchange.sends[i].n_bytes;
    return stays > 2 * goes ? DCPK_PACE_MEMORY : DCPK_PACE_BESIDE;
}

static dcpk_status load_direct(struct dcpk_remap *remap, size_t unit, struct dcpk_error *err)
{
    const size_t n = (size_t)remap->n_ranks;
    struct dcpk_tile_list *lists = dcpk_alloc_array(n, sizeof *lists, err);
    dcpk_status st = dcpk_made(lists, err);

    if (st == DCPK_OK)
        st = direct_tiles(remap, unit, lists, err);
    if (st == DCPK_OK)
        st = dcpk_remap_load_lists(remap, lists,
                                   local_pace(&remap->units[unit], &lists[remap->self]),
                                   &remap->units[unit].local, &remap->units[unit].peers, err);
    for (size_t r = 0; lists != NULL && r < n; r++)
        dcpk_tile_list_release(&lists[r]);
    dcpk_free(lists);
    return st;
}

/* Reads all that comes to this rank in a unit. */
dcpk_status dcpk_remap_load_landed(struct dcpk_remap *remap, size_t unit, struct dcpk_error *err)
{
    const struct dcpk_remap_plan *plan = remap->plan;
    const size_t end = plan->units[unit + 1].first_move;
    struct dcpk_tile_list list = {0};
    dcpk_status st = DCPK_OK;

    for (size_t i = plan->units[unit].first_move; i < end && st == DCPK_OK; i++) {
        const struct dcpk_move *m = &plan->moves[i];
        const struct dcpk_shard *t = &remap->targets[m->target];
        struct dcpk_tile_box box = {
            .shape = t->shape, .sum = tensor_of(remap, unit, m), .has_words = true};

        if (t->holder != remap->self || dcpk_move_is_kept(plan, m))
            continue;
        dcpk_move_box(plan, m, &box.box);
        box.src = dcpk_remap_side(remap, t, &box.box);
        st = dcpk_tile_list_add(&list, &box, READ_FACTOR * dcpk_remap_tile_bytes(remap), err);
    }
    if (st == DCPK_OK)
        st = table_load(remap, &list, DCPK_PACE_MEMORY, &remap->units[unit].landed, err);
    dcpk_tile_list_release(&list);
    return st;
}

/* Messages of a rank that have memory at a time: two rounds, to and from each other rank. */
static uint64_t slot_count(const struct dcpk_remap *remap)
{
    return 4 * (uint64_t)dcpk_max_i64(remap->n_ranks - 1, 1);
}

/* The place of a message: for each half, first those that are sent, then those that are received,
 * by turn, the distance of the peer. `stride`: bytes of each. */
static uint64_t message_at(const struct dcpk_remap *remap, size_t round, bool is_sent, int turn,
                           uint64_t stride)
{
    const uint64_t n = (uint64_t)remap->n_ranks - 1;
    const uint64_t slot = (round % 2 * 2 + (is_sent ? 0 : 1)) * n + (uint64_t)turn - 1;

    return (uint64_t)(uintptr_t)remap->staging + slot * stride;
}

/* One direction of a round under way. */
struct passage {
    size_t unit;
    bool is_sent;
    struct dcpk_tile_list list;
};

/* A part on its way into the message at `message`, or out of it. NULL: only read at its source, for
 * its fingerprint. */
static dcpk_status part_tiles(struct dcpk_remap *remap, struct passage *p,
                              const struct dcpk_remap_part *part, const void *message,
                              struct dcpk_error *err)
{
    const struct dcpk_move *m = &remap->plan->moves[part->move];
    const struct dcpk_shard *s = &remap->sources[m->source], *t = &remap->targets[m->target];
    struct dcpk_tile_box box = {.shape = t->shape,
                                .sum = sum_of(remap, p->unit, m),
                                .has_words = are_stored_summed(remap) && p->is_sent};
    int64_t strides[DCPK_MAX_RANK];
    struct dcpk_tile_side dense = {(uint64_t)(uintptr_t)message, strides, t->dtype};

    if (message != NULL)
        dense.at += part->at_bytes;
    dcpk_box_unpack(part->span, t->rank, &box.box);
    dcpk_row_major_strides(dcpk_dtype_bytes(t->dtype), box.box.extent, t->rank, strides);
    box.src = box.dst = dense;
    if (p->is_sent)
        box.src = dcpk_remap_side(remap, s, &box.box);
    else
        box.dst = dcpk_remap_side(remap, t, &box.box);
    return dcpk_tile_list_add(&p->list, &box, dcpk_remap_tile_bytes(remap), err);
}

/* The parts of a stream that are in a round: *n of them. Parts are in the order of rounds. */
static const struct dcpk_remap_part *round_parts(const struct dcpk_remap_stream *stream,
                                                 size_t round, size_t *n)
{
    size_t low = 0, high = stream->n_parts;

    for (size_t i; dcpk_bisect(low, high, &i);) /* the first part of the round */
        if (stream->parts[i].round < round)
            low = i + 1;
        else
            high = i;
    while (high < stream->n_parts && stream->parts[high].round == round)
        high++;
    *n = high - low;
    return stream->parts + low;
}

/* The place of a part at this rank, if it is there as in its message, one run of n_bytes; 0: it is
 * not. */
static uint64_t part_place(const struct dcpk_remap *remap, bool is_sent,
                           const struct dcpk_remap_part *part, uint64_t *n_bytes)
{
    const struct dcpk_move *m = &remap->plan->moves[part->move];
    const struct dcpk_shard *t = &remap->targets[m->target];
    const struct dcpk_shard *shard = is_sent ? &remap->sources[m->source] : t;
    const int64_t *extent = part->span + t->rank;
    uint64_t step = dcpk_dtype_bytes(t->dtype);

    for (int a = t->rank - 1; a >= 0; a--) {
        if (extent[a] > 1 && shard->stride_bytes[a] != (int64_t)step)
            return 0;
        step *= (uint64_t)extent[a];
    }
    *n_bytes = step;
    return shard->dtype == t->dtype ? dcpk_shard_address(shard, part->span) : 0;
}

/* The place of a message at this rank, if all its parts are there one after the other, as in the
 * message: it is sent from there, or received there, without a copy. 0: they are not. */
static uint64_t message_place(const struct dcpk_remap *remap, bool is_sent,
                              const struct dcpk_remap_part *parts, size_t n)
{
    uint64_t first = 0, end = 0, n_bytes = 0;

    if (remap->options.link->ops->memory != DCPK_MEMORY_DEVICE &&
        !remap->options.device->ops->is_host)
        return 0;
    for (size_t i = 0; i < n; i++) {
        const uint64_t at = part_place(remap, is_sent, &parts[i], &n_bytes);

        if (i == 0)
            first = at;
        if (at == 0 || at % DCPK_PART_ALIGN != 0 || at != first + end || parts[i].at_bytes != end)
            return 0;
        end += n_bytes;
    }
    return first;
}

/* A message of a round at one end, and the tiles that make it or read it. */
static dcpk_status message_make(struct dcpk_remap *remap, struct passage *p,
                                const struct dcpk_remap_stream *stream, size_t round,
                                struct dcpk_message *message, struct dcpk_error *err)
{
    size_t n;
    const struct dcpk_remap_part *parts = round_parts(stream, round, &n);
    const uint64_t place = message_place(remap, p->is_sent, parts, n);
    const bool is_summed = p->is_sent && are_stored_summed(remap);

    message->n_bytes = (size_t)stream->message_bytes[round];
    if (place != 0)
        message->at = (void *)(uintptr_t)place;
    for (size_t i = 0; i < n && (place == 0 || is_summed); i++)
        if (part_tiles(remap, p, &parts[i], place == 0 ? message->at : NULL, err))
            return err->status;
    return DCPK_OK;
}

/* The messages of one round in one direction, and the tiles that make or read them: all but the
 * first and the last ones run while other messages are under way. */
static dcpk_status load_round(struct dcpk_remap *remap, struct passage *p, size_t round,
                              uint64_t stride, struct dcpk_error *err)
{
    const struct dcpk_remap_rounds *rounds = &remap->rounds[p->unit];
    const struct dcpk_remap_stream *streams = p->is_sent ? rounds->sends : rounds->receives;
    struct remap_round *r = &remap->units[p->unit].rounds[round];
    const bool is_last = round + 1 == remap->units[p->unit].n_rounds;
    struct dcpk_message *messages =
        dcpk_arena_array(remap->arena, (size_t)remap->n_ranks, sizeof *messages, err);
    size_t n = 0;

    if (messages == NULL)
        return err->status;
    for (int k = 1; k < remap->n_ranks; k++) {
        const int turn = p->is_sent ? k : remap->n_ranks - k; /* sender and receiver at one time */
        const int peer = (remap->self + turn) % remap->n_ranks;

        if (round >= streams[peer].n_rounds)
            continue;
        messages[n].peer = peer;
        messages[n].at = (void *)(uintptr_t)message_at(remap, round, p->is_sent, k, stride);
        if (message_make(remap, p, &streams[peer], round, &messages[n++], err))
            return err->status;
    }
    if (p->is_sent) {
        remap->stats.n_messages += n;
        r->exchange.sends = messages;
        r->exchange.n_sends = n;
        return table_load(remap, &p->list, round == 0 ? DCPK_PACE_MEMORY : DCPK_PACE_BESIDE,
                          &r->pack, err);
    }
    r->exchange.receives = messages;
    r->exchange.n_receives = n;
    return table_load(remap, &p->list, is_last ? DCPK_PACE_MEMORY : DCPK_PACE_BESIDE, &r->unpack,
                      err);
}

static dcpk_status load_rounds(struct dcpk_remap *remap, size_t unit, uint64_t stride,
                               struct dcpk_error *err)
{
    dcpk_status st = DCPK_OK;

    for (size_t i = 0; i < 2 * remap->units[unit].n_rounds && st == DCPK_OK; i++) {
        struct passage p = {.unit = unit, .is_sent = i % 2 == 0};

        st = load_round(remap, &p, i / 2, stride, err);
        dcpk_tile_list_release(&p.list);
    }
    return st;
}

/* The most bytes that one of this rank's messages has, aligned. */
static uint64_t widest_message(const struct dcpk_remap *remap)
{
    uint64_t most = 0;

    for (size_t u = 0; u < remap->plan->n_units; u++)
        for (int r = 0; r < 2 * remap->n_ranks; r++) {
            const struct dcpk_remap_rounds *rounds = &remap->rounds[u];
            const struct dcpk_remap_stream *stream =
                r < remap->n_ranks ? &rounds->sends[r] : &rounds->receives[r - remap->n_ranks];

            for (size_t i = 0; i < stream->n_rounds; i++)
                most = dcpk_max_u64(most, stream->message_bytes[i]);
        }
    return (most + 255) / 256 * 256;
}

/* All ranks have as many rounds in a unit as the one with the most. */
static dcpk_status share_rounds(struct dcpk_remap *remap, struct dcpk_error *err)
{
    const size_t n_units = remap->plan->n_units;
    uint64_t *mine = dcpk_alloc_array(n_units, sizeof *mine, err);
    dcpk_status st = dcpk_made(mine, err);

    if (!remap->is_staging_used) {
        dcpk_free(mine);
        return st;
    }

    for (size_t u = 0; u < n_units && st == DCPK_OK; u++)
        mine[u] = remap->rounds[u].n_rounds;
    st = dcpk_ranks_most(remap->options.ranks, mine, n_units, st, err);
    for (size_t u = 0; u < n_units && st == DCPK_OK; u++)
        remap->units[u].n_rounds = (size_t)mine[u];
    dcpk_free(mine);
    return st;
}

/* Cut the staged moves of all units into messages. */
static dcpk_status make_rounds(struct dcpk_remap *remap, struct dcpk_error *err)
{
    const uint64_t room = remap->options.staging_bytes / slot_count(remap) / 256 * 256;
    const struct dcpk_staging staging = {remap->plan, remap->self, remap->is_staged,
                                         dcpk_max_u64(room, 256)};

    remap->rounds = dcpk_alloc_array(remap->plan->n_units, sizeof *remap->rounds, err);
    if (remap->rounds == NULL)
        return err->status;
    for (size_t u = 0; u < remap->plan->n_units; u++)
        if (dcpk_remap_rounds_new(&staging, u, &remap->rounds[u], err))
            return err->status;
    return DCPK_OK;
}

/* Memory for the messages, and a unit's rounds as tables and exchanges. */
static dcpk_status load_staged(struct dcpk_remap *remap, struct dcpk_error *err)
{
    struct dcpk_device *device = remap->options.device;
    const uint64_t widest = widest_message(remap);
    void *at;

    for (size_t u = 0; u < remap->plan->n_units; u++)
        if (remap->units[u].n_rounds > 0 && remap->options.link == NULL)
            return dcpk_fail(err, DCPK_EUNSUPPORTED,
                             "other ranks need a link, and this build or "
                             "machine has none");
    if (widest > remap->staging_stride) {
        remap->stats.staging_bytes = slot_count(remap) * widest;
        if (device->ops->alloc(device, remap->options.link->ops->memory,
                               (size_t)remap->stats.staging_bytes, &at, err))
            return err->status;
        remap->staging = at;
        remap->staging_stride = widest;
        remap->has_others_staging = false;
    }
    for (size_t u = 0; u < remap->plan->n_units; u++) {
        struct remap_unit *unit = &remap->units[u];

        unit->rounds = dcpk_arena_array(remap->arena, unit->n_rounds, sizeof *unit->rounds, err);
        if (unit->rounds == NULL)
            return err->status;
        if (load_rounds(remap, u, remap->staging_stride, err))
            return err->status;
    }
    return DCPK_OK;
}

/* Numbers for the fingerprints of the unit with the most tensors. */
dcpk_status dcpk_remap_make_sums(struct dcpk_remap *remap, struct dcpk_error *err)
{
    struct dcpk_device *device = remap->options.device;
    const struct dcpk_remap_plan *plan = remap->plan;
    void *at;

    for (size_t u = 0; u < plan->n_units; u++)
        remap->n_sums = dcpk_max_size(remap->n_sums, plan->units[u + 1].first_tensor -
                                                         plan->units[u].first_tensor);
    if (!remap->options.checks || remap->n_sums == 0)
        return DCPK_OK;
    if (device->ops->alloc(device, DCPK_MEMORY_DEVICE, 2 * remap->n_sums * sizeof *remap->sums, &at,
                           err))
        return err->status;
    remap->sums = remap->stored = at;
    if (device->ops->alloc(device, DCPK_MEMORY_HOST, 2 * remap->n_sums * sizeof *remap->sums, &at,
                           err))
        return err->status;
    remap->host_sums = at;
    return DCPK_OK;
}

static void free_rounds(struct dcpk_remap *remap)
{
    for (size_t u = 0; remap->rounds != NULL && u < remap->plan->n_units; u++)
        dcpk_remap_rounds_release(&remap->rounds[u]);
    dcpk_free(remap->rounds);
    remap->rounds = NULL;
}

dcpk_status dcpk_remap_make_tables(struct dcpk_remap *remap, struct dcpk_error *err)
{
    const size_t n_units = remap->plan->n_units;

    remap->units = dcpk_arena_array(remap->arena, n_units, sizeof *remap->units, err);
    if (remap->units == NULL || make_rounds(remap, err) || share_rounds(remap, err) ||
        load_staged(remap, err) || dcpk_remap_make_sums(remap, err))
        return err->status;
    free_rounds(remap);
    for (size_t u = 0; u < n_units; u++)
        if (load_direct(remap, u, err) ||
            (remap->options.checks && dcpk_remap_load_landed(remap, u, err)))
            return err->status;
    return DCPK_OK;
}

void dcpk_remap_free_tables(struct dcpk_remap *remap)
{
    struct dcpk_device *device = remap->options.device;

    for (size_t u = 0; remap->units != NULL && u < remap->plan->n_units; u++) {
        struct remap_unit *unit = &remap->units[u];

        device->ops->unload(device, unit->local);
        device->ops->unload(device, unit->peers);
        device->ops->unload(device, unit->landed);
        for (size_t k = 0; unit->rounds != NULL && k < unit->n_rounds; k++) {
            device->ops->unload(device, unit->rounds[k].pack);
            device->ops->unload(device, unit->rounds[k].unpack);
        }
    }
    free_rounds(remap);
    if (remap->has_others_staging)
        remap->staging = NULL;
    /* After a failure messages may still be under way: the device frees it at its end. */
    if (remap->options.link == NULL || !remap->options.link->is_broken)
        device->ops->free(device, remap->staging);
    device->ops->free(device, remap->sums);
    device->ops->free(device, remap->host_sums);
    device->ops->free(device, remap->scratch);
}
