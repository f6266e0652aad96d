/* SPDX-License-Identifier: Apache-2.0 */
/* api_map.c - a map for programs: shards of both sides, a plan, runs, fingerprints. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "lib/api/api_engine_priv.h"
#include "lib/base/alloc.h"
#include "lib/base/arena.h"
#include "lib/base/checked.h"
#include "lib/tensor/strided.h"

static_assert((int)DCPKIT_SOURCES == (int)DCPK_REMAP_SOURCES &&
                  (int)DCPKIT_TARGETS == (int)DCPK_REMAP_TARGETS,
              "one side, one number");

int dcpkit_map_new(dcpkit_engine *engine, dcpkit_map **map)
{
    struct dcpk_error *err = api_begin(engine->session);
    dcpkit_map *made = dcpk_alloc(sizeof *made, err);

    if (made == NULL)
        return (int)err->status;
    made->arena = dcpk_arena_new();
    made->engine = engine;
    made->note = "";
    engine->n_holders++;
    *map = made;
    return DCPKIT_OK;
}

void dcpkit_map_free(dcpkit_map *map)
{
    if (map == NULL)
        return;
    dcpk_remap_free(map->remap);
    api_checkpoint_release(map);
    api_names_release(map);
    api_engine_drop(map->engine);
    dcpk_free(map->sides[DCPKIT_SOURCES].shards);
    dcpk_free(map->sides[DCPKIT_TARGETS].shards);
    dcpk_arena_free(map->arena);
    dcpk_free(map);
}

/* Checks that the box fits its tensor, and that its bytes are numbers. */
static dcpk_status check_shard(const struct dcpk_shard *shard, const void *data,
                               struct dcpk_error *err)
{
    const int rank = shard->rank;
    int64_t n_bytes = 1;
    bool is_empty = false;

    for (int a = 0; a < rank; a++) {
        const int64_t offset = shard->span[a], extent = shard->span[rank + a];
        int64_t reach = 0;

        if (offset < 0 || extent < 0 || offset > shard->shape[a] - extent)
            return dcpk_fail(
                err, DCPK_EUSAGE,
                "axis %d of '%.200s' has %lld elements: %lld from %lld on are not in it", a,
                shard->name, (long long)shard->shape[a], (long long)extent, (long long)offset);
        is_empty = is_empty || extent == 0;
        if (extent > 0 &&
            (!dcpk_mul_i64(extent - 1, shard->stride_bytes[a], &reach) || reach == INT64_MIN ||
             !dcpk_add_i64(n_bytes, reach < 0 ? -reach : reach, &n_bytes)))
            return dcpk_fail(err, DCPK_EUSAGE, "axis %d of '%.200s' strides past the address space",
                             a, shard->name);
    }
    if (data == NULL && !is_empty)
        return dcpk_fail(err, DCPK_EUSAGE, "a shard of '%.200s' has no memory", shard->name);
    return DCPK_OK;
}

/* Copy what a caller's shard points to. */
static dcpk_status shard_take(dcpkit_map *map, const struct dcpkit_shard *from,
                              struct dcpk_shard *shard, struct dcpk_error *err)
{
    const size_t rank = (size_t)from->rank;
    int64_t *numbers = dcpk_arena_array(map->arena, 4 * rank, sizeof *numbers, err);

    if (numbers == NULL)
        return err->status;
    *shard = (struct dcpk_shard){.name = dcpk_arena_strdup(map->arena, from->name, err),
                                 .dtype = dcpk_dtype_from_name(from->dtype),
                                 .rank = from->rank,
                                 .shape = numbers,
                                 .span = numbers + rank,
                                 .stride_bytes = numbers + 3 * rank,
                                 .at = (uint64_t)(uintptr_t)from->data};
    if (shard->name == NULL)
        return err->status;
    if (shard->dtype == DCPK_DTYPE_NONE)
        return dcpk_fail(err, DCPK_EUSAGE, "'%.200s': there is no dtype '%.40s'", from->name,
                         from->dtype);
    if (rank == 0)
        return check_shard(shard, from->data, err);
    memcpy(numbers, from->shape, rank * sizeof *numbers);
    if (from->offset != NULL)
        memcpy(numbers + rank, from->offset, rank * sizeof *numbers);
    memcpy(numbers + 2 * rank, from->extent == NULL ? from->shape : from->extent,
           rank * sizeof *numbers);
    if (from->stride_bytes != NULL)
        memcpy(numbers + 3 * rank, from->stride_bytes, rank * sizeof *numbers);
    else
        dcpk_row_major_strides(dcpk_dtype_bytes(shard->dtype), numbers + 2 * rank, from->rank,
                               numbers + 3 * rank);
    return check_shard(shard, from->data, err);
}

static dcpk_status side_add(dcpkit_map *map, enum dcpkit_side side,
                            const struct dcpkit_shard *shards, size_t n, struct dcpk_error *err)
{
    struct map_side *s = &map->sides[side];

    if (map->remap != NULL)
        return dcpk_fail(err, DCPK_EUSAGE, "shards are listed before the plan");
    if (side == DCPKIT_SOURCES && map->from.ckpt != NULL)
        return dcpk_fail(err, DCPK_EUSAGE, "the sources of this map are those of a checkpoint");
    for (size_t i = 0; i < n; i++) {
        if (shards[i].name == NULL || shards[i].dtype == NULL)
            return dcpk_fail(err, DCPK_EUSAGE, "shard %zu has no name or no dtype", i);
        if (shards[i].rank < 0 || shards[i].rank > DCPK_MAX_RANK)
            return dcpk_fail(err, DCPK_EUSAGE, "'%.200s' has %d axes, the limit is %d",
                             shards[i].name, shards[i].rank, DCPK_MAX_RANK);
        if (dcpk_grow(&s->shards, &s->capacity, s->n, sizeof *s->shards, err) ||
            shard_take(map, &shards[i], &s->shards[s->n], err))
            return err->status;
        s->n++;
    }
    return DCPK_OK;
}

static int map_add(dcpkit_map *map, enum dcpkit_side side, const struct dcpkit_shard *shards,
                   size_t n)
{
    struct dcpk_error *err = api_begin(map->engine->session);

    if (side_add(map, side, shards, n, err) && map->failed.status == DCPK_OK)
        map->failed = *err;
    return (int)err->status;
}

int dcpkit_map_source(dcpkit_map *map, const struct dcpkit_shard *shards, size_t n)
{
    return map_add(map, DCPKIT_SOURCES, shards, n);
}

int dcpkit_map_target(dcpkit_map *map, const struct dcpkit_shard *shards, size_t n)
{
    return map_add(map, DCPKIT_TARGETS, shards, n);
}

void dcpkit_map_fail(dcpkit_map *map, const char *sentence)
{
    if (map->failed.status == DCPK_OK)
        dcpk_fail(&map->failed, DCPK_EUSAGE, "%s", sentence);
}

/* Collective: checks that all ranks have a checkpoint as their source, or none has. */
static dcpk_status check_kind(dcpkit_map *map, struct dcpk_error *err)
{
    struct dcpk_ranks *ranks = map->engine->options.ranks;
    const uint64_t mine = map->from.ckpt != NULL;
    uint64_t least = mine;

    if (map->failed.status == DCPK_OK)
        (void)api_names_apply(map, &map->failed);
    if (map->failed.status != DCPK_OK)
        *err = map->failed;
    if (dcpk_ranks_agree(ranks, err->status, err))
        return err->status;
    if (dcpk_ranks_least(ranks, &least, err) == DCPK_OK && least != mine)
        dcpk_fail(err, DCPK_EUSAGE, "this rank has a checkpoint as its source, others have not");
    return dcpk_ranks_agree(ranks, err->status, err);
}

/* Plans; opens a link if the plan is the first to need one. */
static dcpk_status map_make(dcpkit_map *map, struct dcpk_error *err)
{
    const struct map_side *from = &map->sides[DCPKIT_SOURCES], *to = &map->sides[DCPKIT_TARGETS];
    const struct dcpk_remap_shards mine = {from->shards, to->shards, from->n, to->n};
    struct dcpk_remap_options *o = &map->engine->options;
    struct dcpk_error why = DCPK_ERROR_INIT;

    if (dcpk_remap_new(o, &mine, &map->remap, err) == DCPK_OK)
        return DCPK_OK;
    if (err->status != DCPK_EUNSUPPORTED || o->path != DCPK_REMAP_AUTO || o->link != NULL)
        return err->status;
    if (api_engine_find_link(map->engine, &why)) {
        *err = why;
        return err->status;
    }
    if (o->link == NULL)
        return err->status;
    dcpk_error_clear(err);
    return dcpk_remap_new(o, &mine, &map->remap, err);
}

/* The ranks that exchange tensors, and the way they do it. */
struct meeting {
    uint8_t *is_met; /* of each pair, both ways */
    int n_direct, n_staged;
    size_t n_staged_pairs;
    int a, b; /* the first of them */
};

static void meeting_add(const dcpkit_map *map, int a, int b, struct meeting *meeting)
{
    const struct dcpk_remap_plan *plan = dcpk_remap_plan(map->remap);
    const int self = dcpk_ranks_self(map->engine->options.ranks), n = plan->input.n_ranks;
    const bool is_mine = a == self || b == self;

    if (a == b || meeting->is_met[a * n + b])
        return;
    meeting->is_met[a * n + b] = meeting->is_met[b * n + a] = 1;
    if (plan->input.reaches[a * n + b]) {
        meeting->n_direct += is_mine;
        return;
    }
    meeting->n_staged += is_mine;
    if (meeting->n_staged_pairs++ == 0) {
        meeting->a = a;
        meeting->b = b;
    }
}

static dcpk_status meeting_find(dcpkit_map *map, struct meeting *meeting, struct dcpk_error *err)
{
    const struct dcpk_remap_plan *plan = dcpk_remap_plan(map->remap);
    const size_t n = (size_t)plan->input.n_ranks;

    meeting->is_met = dcpk_arena_array(map->arena, n * n, 1, err);
    if (meeting->is_met == NULL)
        return err->status;
    for (size_t i = 0; i < plan->n_moves; i++)
        meeting_add(map, plan->input.sources[plan->moves[i].source].holder,
                    plan->input.targets[plan->moves[i].target].holder, meeting);
    return DCPK_OK;
}

static dcpk_status note_make(dcpkit_map *map, const struct meeting *meeting, struct dcpk_error *err)
{
    const struct dcpk_remap_options *o = &map->engine->options;
    const char *why = dcpk_remap_stats(map->remap)->note;
    char others[48];

    if (meeting->n_staged_pairs == 0)
        return DCPK_OK;
    if (o->path == DCPK_REMAP_STAGED)
        why = "direct moves are switched off";
    snprintf(others, sizeof others, " and %zu more pairs", meeting->n_staged_pairs - 1);
    map->note = dcpk_arena_printf(map->arena, err, "ranks %d and %d%s go over the link '%s'%s%s",
                                  meeting->a, meeting->b, meeting->n_staged_pairs > 1 ? others : "",
                                  o->link->ops->name, why[0] == '\0' ? "" : ": ", why);
    return dcpk_made(map->note, err);
}

static void totals_fill(const dcpkit_map *map, const struct meeting *meeting,
                        struct dcpkit_map_totals *totals)
{
    const struct dcpk_remap_options *o = &map->engine->options;
    const struct dcpk_remap_plan *plan = dcpk_remap_plan(map->remap);
    const struct dcpk_remap_stats *stats = dcpk_remap_stats(map->remap);
    const struct dcpk_remap_totals *mine = &plan->totals[dcpk_ranks_self(o->ranks)];

    *totals = (struct dcpkit_map_totals){
        .in_bytes = mine->in_bytes,
        .out_bytes = mine->out_bytes,
        .local_bytes = mine->local_bytes,
        .kept_bytes = mine->kept_bytes,
        .table_bytes = stats->table_bytes,
        .staging_bytes = stats->staging_bytes,
        .n_tensors = plan->n_tensors,
        .n_units = plan->n_units,
        .n_unwanted = (size_t)plan->n_unwanted,
        .n_direct_peers = meeting->n_direct,
        .n_link_peers = meeting->n_staged,
        .predicted_seconds = plan->seconds,
        .link = meeting->n_staged_pairs > 0 ? o->link->ops->name : "",
        .note = map->note,
    };
    for (int r = 0; r < plan->input.n_ranks; r++)
        totals->all_bytes += plan->totals[r].in_bytes;
}

/* Describes a plan between shards. */
static dcpk_status map_describe(dcpkit_map *map, struct dcpkit_map_totals *totals,
                                struct dcpk_error *err)
{
    struct meeting meeting = {0};

    if (meeting_find(map, &meeting, err) == DCPK_OK && note_make(map, &meeting, err) == DCPK_OK)
        totals_fill(map, &meeting, totals);
    return dcpk_ranks_agree(map->engine->options.ranks, err->status, err);
}

static dcpk_status map_plan(dcpkit_map *map, struct dcpkit_map_totals *totals,
                            struct dcpk_error *err)
{
    if (check_kind(map, err))
        return err->status;
    if (map->from.ckpt != NULL) {
        if (api_checkpoint_plan(map, err) == DCPK_OK)
            api_checkpoint_totals(map, totals, err);
        return err->status;
    }
    if (map_make(map, err) == DCPK_OK)
        map_describe(map, totals, err);
    return err->status;
}

int dcpkit_map_plan(dcpkit_map *map, struct dcpkit_map_totals *totals)
{
    struct dcpk_error *err = api_begin(map->engine->session);
    struct dcpkit_map_totals made;

    if (map->remap != NULL)
        return (int)dcpk_fail(err, DCPK_EUSAGE, "a map is planned once");
    if (map->failed.status == DCPK_OK && totals != NULL)
        api_check_size(sizeof made, totals->size, &map->failed);
    if (map_plan(map, &made, err)) {
        dcpk_remap_free(map->remap);
        map->remap = NULL;
        map->failed = *err;
        return (int)err->status;
    }
    if (totals != NULL)
        api_give(totals, &made, totals->size);
    return DCPKIT_OK;
}

const char *dcpkit_map_tensor(const dcpkit_map *map, size_t index)
{
    const struct dcpk_remap_plan *plan;

    if (map->remap == NULL)
        return NULL;
    plan = dcpk_remap_plan(map->remap);
    return index < plan->n_tensors ? plan->tensors[index].name : NULL;
}

void dcpkit_map_each_unit(dcpkit_map *map, void (*done)(void *, size_t, size_t, size_t),
                          void *context)
{
    map->done = done;
    map->context = context;
}

static void unit_done(void *context, size_t unit)
{
    const dcpkit_map *map = context;
    const struct dcpk_remap_unit *units = dcpk_remap_plan(map->remap)->units;
    const size_t first = units[unit].first_tensor;

    if (map->done != NULL)
        map->done(map->context, unit, first, units[unit + 1].first_tensor - first);
}

static dcpk_status map_run(dcpkit_map *map, struct dcpkit_map_stats *stats, struct dcpk_error *err)
{
    const struct dcpk_remap_stats *made = dcpk_remap_stats(map->remap);

    if (map->from.ckpt != NULL)
        return api_checkpoint_run(map, stats, err);
    dcpk_remap_run(map->remap, unit_done, map, err);
    *stats = (struct dcpkit_map_stats){.units_done = made->units_done,
                                       .seconds = made->seconds,
                                       .n_tiles = made->n_tiles,
                                       .n_messages = made->n_messages};
    return err->status;
}

static dcpk_status map_run_changed(dcpkit_map *map, struct dcpkit_map_stats *stats,
                                   struct dcpk_error *err)
{
    const struct dcpk_remap_stats *made = dcpk_remap_stats(map->remap);
    struct dcpk_remap_changes changes = {0};

    *stats = (struct dcpkit_map_stats){0};
    if (map->from.ckpt != NULL)
        return dcpk_fail(err, DCPK_EUSAGE, "a checkpoint's files have no changes to send: run all");
    dcpk_remap_run_changed(map->remap, unit_done, map, &changes, err);
    *stats = (struct dcpkit_map_stats){.units_done = made->units_done,
                                       .seconds = made->seconds,
                                       .n_tiles = changes.n_tiles,
                                       .n_messages = changes.n_messages,
                                       .n_blocks = changes.n_blocks,
                                       .n_sent_blocks = changes.n_sent_blocks,
                                       .sent_bytes = changes.sent_bytes};
    return err->status;
}

typedef dcpk_status map_runner(dcpkit_map *map, struct dcpkit_map_stats *stats,
                               struct dcpk_error *err);

static int run_by(map_runner *run, dcpkit_map *map, struct dcpkit_map_stats *stats)
{
    struct dcpk_error *err = api_begin(map->engine->session);
    struct dcpkit_map_stats made;

    if (map->remap == NULL)
        return (int)dcpk_fail(err, DCPK_EUSAGE, "a map is planned before it runs");
    if (stats != NULL && api_check_size(sizeof made, stats->size, err))
        return (int)err->status; /* on all ranks: they run one program */
    run(map, &made, err);
    if (stats != NULL)
        api_give(stats, &made, stats->size);
    return (int)err->status;
}

int dcpkit_map_run(dcpkit_map *map, struct dcpkit_map_stats *stats)
{
    return run_by(map_run, map, stats);
}

int dcpkit_map_run_changed(dcpkit_map *map, struct dcpkit_map_stats *stats)
{
    return run_by(map_run_changed, map, stats);
}

int dcpkit_map_fingerprint(dcpkit_map *map, enum dcpkit_side side, uint64_t *sums, size_t n)
{
    struct dcpk_error *err = api_begin(map->engine->session);
    size_t n_tensors;

    if (map->remap == NULL)
        return (int)dcpk_fail(err, DCPK_EUSAGE, "a map is planned before it is read");
    n_tensors = dcpk_remap_plan(map->remap)->n_tensors;
    if (side == DCPKIT_SOURCES && map->from.ckpt != NULL)
        dcpk_fail(err, DCPK_EUSAGE, "the sources of this map are files, not memory");
    else if (n < n_tensors)
        dcpk_fail(err, DCPK_EUSAGE, "%zu tensors have as many fingerprints, not %zu", n_tensors, n);
    if (dcpk_ranks_agree(map->engine->options.ranks, err->status, err))
        return (int)err->status;
    return (int)dcpk_remap_fingerprint(map->remap, (enum dcpk_remap_side)side, sums, err);
}

static dcpk_status map_verify(dcpkit_map *map, uint64_t *differs, struct dcpk_error *err)
{
    const size_t n = dcpk_remap_plan(map->remap)->n_tensors;
    uint64_t *sums;

    if (map->from.ckpt != NULL)
        return api_checkpoint_verify(map, differs, err);
    sums = dcpk_alloc_array(2 * n, sizeof *sums, err);
    if (dcpk_ranks_agree(map->engine->options.ranks, err->status, err) == DCPK_OK &&
        dcpk_remap_verify(map->remap, sums, err) == DCPK_OK)
        for (size_t i = 0; i < n; i++)
            differs[i] = sums[i] != sums[n + i];
    dcpk_free(sums);
    return err->status;
}

/* Names the first of the tensors that differ. */
static dcpk_status fail_different(const dcpkit_map *map, const uint64_t *differs,
                                  struct dcpk_error *err)
{
    const struct dcpk_remap_plan *plan = dcpk_remap_plan(map->remap);
    size_t n = 0, first = 0;

    for (size_t i = plan->n_tensors; i-- > 0;)
        if (differs[i] != 0) {
            first = i;
            n++;
        }
    if (n == 0)
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EMISMATCH,
                     "targets of %zu of %u tensors do not hold what their sources do; the first is "
                     "'%.200s'",
                     n, plan->n_tensors, plan->tensors[first].name);
}

int dcpkit_map_verify(dcpkit_map *map, uint8_t *differs, size_t n)
{
    struct dcpk_error *err = api_begin(map->engine->session);
    uint64_t *found = NULL;
    size_t n_tensors;

    if (map->remap == NULL)
        return (int)dcpk_fail(err, DCPK_EUSAGE, "a map is planned before it is verified");
    n_tensors = dcpk_remap_plan(map->remap)->n_tensors;
    if (differs != NULL && n < n_tensors)
        dcpk_fail(err, DCPK_EUSAGE, "%zu tensors have as many answers, not %zu", n_tensors, n);
    else
        found = dcpk_alloc_array(n_tensors, sizeof *found, err);
    if (dcpk_ranks_agree(map->engine->options.ranks, err->status, err) == DCPK_OK &&
        map_verify(map, found, err) == DCPK_OK) {
        for (size_t i = 0; differs != NULL && i < n_tensors; i++)
            differs[i] = found[i] != 0;
        fail_different(map, found, err);
    }
    dcpk_free(found);
    return (int)err->status;
}
