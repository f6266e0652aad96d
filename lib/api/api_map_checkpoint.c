/* SPDX-License-Identifier: Apache-2.0 */
/* api_map_checkpoint.c - a map whose sources are the tensors of a checkpoint. */
#include <string.h>

#include "formats/formats.h"
#include "lib/api/api_engine_priv.h"
#include "lib/base/alloc.h"
#include "lib/base/map.h"
#include "lib/base/text.h"
#include "lib/job/live_names.h"
#include "lib/job/rename_shards.h"

static dcpk_status checkpoint_take(dcpkit_map *map, const char *path, const char *as,
                                   struct dcpk_error *err)
{
    dcpkit *session = map->engine->session;
    struct map_checkpoint *from = &map->from;
    const struct dcpk_format *format = as == NULL ? NULL : dcpk_format_find(as);

    if (map->remap != NULL)
        return dcpk_fail(err, DCPK_EUSAGE, "a checkpoint is listed before the plan");
    if (from->ckpt != NULL || map->sides[DCPKIT_SOURCES].n > 0)
        return dcpk_fail(err, DCPK_EUSAGE, "this map has sources already");
    if (as != NULL && format == NULL)
        return dcpk_fail(err, DCPK_EUSAGE, "no format is called '%s'", as);
    session->stage = "unpacking";
    from->env = session->env;
    from->env.ranks = map->engine->options.ranks;
    if (dcpk_env_open(&from->env, path, NULL, NULL, &from->ckpt, err) ||
        dcpk_feed_views_new(from->ckpt, format, NULL, 0, &from->views, err))
        return err->status;
    return DCPK_OK;
}

int dcpkit_map_source_checkpoint(dcpkit_map *map, const char *path, const char *as)
{
    struct dcpk_error *err = api_begin(map->engine->session);

    if (checkpoint_take(map, path, as, err) && map->failed.status == DCPK_OK)
        map->failed = *err;
    return (int)err->status;
}

void api_checkpoint_release(dcpkit_map *map)
{
    dcpk_remap_files_free(map->from.files);
    dcpk_feed_views_free(map->from.views);
    dcpk_checkpoint_close(map->from.ckpt);
}

const char *dcpkit_map_checkpoint_tensor(const dcpkit_map *map, size_t index)
{
    const struct dcpk_remap_view *views;
    size_t n = 0;

    if (map->from.views == NULL)
        return NULL;
    views = dcpk_feed_views(map->from.views, &n);
    return index < n ? views[index].name : NULL;
}

/* only_compares: see dcpk_remap_files_options. */
static dcpk_status files_make(dcpkit_map *map, bool only_compares, struct dcpk_remap_files **files,
                              struct dcpk_error *err)
{
    const struct dcpk_remap_options *o = &map->engine->options;
    const struct map_side *targets = &map->sides[DCPKIT_TARGETS];
    struct dcpk_remap_files_options options = {
        .env = &map->from.env,
        .ckpt = map->from.ckpt,
        .device = o->device,
        .path = o->path,
        .link_bytes_a_second = o->link_bytes_a_second,
        .timeout_ms = o->timeout_ms,
        .checks = o->checks || only_compares,
        .only_compares = only_compares,
    };

    options.views = dcpk_feed_views(map->from.views, &options.n_views);
    return dcpk_remap_files_new(&options, targets->shards, targets->n, files, err);
}

/* From targets to themselves: nothing moves, and no rank meets another's memory. */
static dcpk_status targets_make(dcpkit_map *map, struct dcpk_error *err)
{
    const struct map_side *targets = &map->sides[DCPKIT_TARGETS];
    const struct dcpk_remap_shards mine = {targets->shards, targets->shards, targets->n,
                                           targets->n};
    struct dcpk_remap_options options = map->engine->options;

    options.path = DCPK_REMAP_STAGED;
    options.link = NULL;
    options.unit_bytes = 0;
    options.checks = false;
    return dcpk_remap_new(&options, &mine, &map->remap, err);
}

dcpk_status api_checkpoint_plan(dcpkit_map *map, struct dcpk_error *err)
{
    if (files_make(map, false, &map->from.files, err) || targets_make(map, err))
        return err->status;
    return DCPK_OK;
}

dcpk_status api_checkpoint_totals(const dcpkit_map *map, struct dcpkit_map_totals *totals,
                                  struct dcpk_error *err)
{
    const struct dcpk_remap_files_stats *stats = dcpk_remap_files_stats(map->from.files);
    struct dcpk_ranks *ranks = map->engine->options.ranks;
    dcpk_status st = DCPK_OK;

    *totals = (struct dcpkit_map_totals){
        .in_bytes = stats->in_bytes,
        .out_bytes = stats->out_bytes,
        .local_bytes = stats->local_bytes,
        .read_bytes = stats->plan_bytes + stats->gathered_bytes,
        .table_bytes = stats->table_bytes,
        .staging_bytes = stats->ring_bytes + stats->slot_bytes,
        .n_tensors = dcpk_remap_plan(map->remap)->n_tensors,
        .n_units = 1,
        .predicted_seconds = stats->predicted_seconds,
        .link = "",
        .note = stats->note,
    };
    totals->all_bytes = stats->in_bytes;
    st = dcpk_ranks_sum(ranks, &totals->all_bytes, 1, st, err);
    return dcpk_ranks_agree(ranks, st, err);
}

dcpk_status api_checkpoint_run(dcpkit_map *map, struct dcpkit_map_stats *stats,
                               struct dcpk_error *err)
{
    const struct dcpk_remap_files_stats *made = dcpk_remap_files_stats(map->from.files);
    dcpk_status st;

    map->engine->session->stage = "loading";
    st = dcpk_remap_files_run(map->from.files, err);
    *stats = (struct dcpkit_map_stats){.units_done = st == DCPK_OK,
                                       .seconds = made->seconds,
                                       .n_tiles = made->n_tiles,
                                       .read_bytes = made->read_bytes};
    if (st == DCPK_OK && map->done != NULL)
        map->done(map->context, 0, 0, dcpk_remap_plan(map->remap)->n_tensors);
    return st;
}

/* Find the tensors that differ in a rank's team by their names: each team has a plan of its own. */
static dcpk_status mark_different(const dcpkit_map *map, const struct dcpk_remap_files *files,
                                  uint64_t *differs, struct dcpk_error *err)
{
    const struct dcpk_remap_plan *all = dcpk_remap_plan(map->remap);
    const struct dcpk_remap_plan *read = dcpk_remap_files_plan(files);
    const uint64_t *sums = dcpk_remap_files_sums(files);
    struct dcpk_map numbers = {0};
    dcpk_status st = DCPK_OK;

    for (uint32_t i = 0; i < all->n_tensors && st == DCPK_OK; i++) {
        const char *name = all->tensors[i].name;
        uint64_t found;
        bool existed;

        st = dcpk_map_put(&numbers, name, strlen(name), i, &existed, &found, err);
    }
    for (uint32_t i = 0; i < read->n_tensors && st == DCPK_OK; i++) {
        const char *name = read->tensors[i].name;
        uint64_t number;

        if (sums[i] != sums[read->n_tensors + i] &&
            dcpk_map_get(&numbers, name, strlen(name), &number))
            differs[number] = 1;
    }
    dcpk_map_release(&numbers);
    return st;
}

dcpk_status api_checkpoint_verify(dcpkit_map *map, uint64_t *differs, struct dcpk_error *err)
{
    const size_t n = dcpk_remap_plan(map->remap)->n_tensors;
    struct dcpk_remap_files *files = NULL;
    dcpk_status st;

    map->engine->session->stage = "verifying";
    if (files_make(map, true, &files, err))
        return err->status;
    st = dcpk_remap_files_run(files, err);
    if (st == DCPK_OK)
        st = mark_different(map, files, differs, err);
    st = dcpk_ranks_sum(map->engine->options.ranks, differs, n, st, err);
    dcpk_remap_files_free(files);
    return dcpk_ranks_agree(map->engine->options.ranks, st, err);
}

/* ---- other names ---- */

/* "huggingface:family=phi3": the format, and *family, which is NULL without one. */
static const struct dcpk_format *find_format(const char *text, const char **family)
{
    static const char word[] = ":family=";
    const char *colon = strchr(text, ':');
    char name[32];

    *family = NULL;
    if (colon == NULL)
        return dcpk_format_find(text);
    if (!dcpk_starts_with(colon, word) || (size_t)(colon - text) >= sizeof name)
        return NULL;
    memcpy(name, text, (size_t)(colon - text));
    name[colon - text] = '\0';
    *family = colon + strlen(word);
    return dcpk_format_find(name);
}

/* The views of the checkpoint as a format or a scheme names them; NULL: as stored. */
static dcpk_status names_see(const dcpkit_map *map, const char *as, bool are_targets,
                             struct dcpk_feed_views **views, struct dcpk_error *err)
{
    const struct dcpk_remap_options *options = &map->engine->options;
    const struct dcpk_live_options live = {.text = as,
                                           .rank = dcpk_ranks_self(options->ranks),
                                           .n_ranks = dcpk_ranks_count(options->ranks),
                                           .are_targets = are_targets,
                                           .hf = dcpk_format_find("huggingface"),
                                           .dcp_hf = dcpk_format_find("dcp_hf")};
    const struct dcpk_format *format = NULL;
    const char *family = NULL;

    if (as != NULL && dcpk_live_is(as))
        return dcpk_live_views_new(map->names.ckpt, &live, views, err);
    if (as != NULL && (format = find_format(as, &family)) == NULL)
        return dcpk_fail(err, DCPK_EUSAGE, "no format, and no names in memory, are called '%s'",
                         as);
    return dcpk_feed_views_new(map->names.ckpt, format, family, DCPK_FEED_WEIGHTS, views, err);
}

static dcpk_status names_take(dcpkit_map *map, const char *path, const char *const as[2],
                              struct dcpk_error *err)
{
    struct map_names *names = &map->names;

    if (map->remap != NULL)
        return dcpk_fail(err, DCPK_EUSAGE, "names are given before the plan");
    if (names->ckpt != NULL)
        return dcpk_fail(err, DCPK_EUSAGE, "this map has names already");
    map->engine->session->stage = "unpacking";
    if (dcpk_env_open(&map->engine->session->env, path, NULL, NULL, &names->ckpt, err) ||
        names_see(map, NULL, false, &names->stored, err))
        return err->status;
    for (int side = 0; side < 2; side++)
        if (names_see(map, as[side], side == DCPKIT_TARGETS, &names->sides[side], err))
            return err->status;
    return DCPK_OK;
}

int dcpkit_map_names(dcpkit_map *map, const char *path, const char *sources, const char *targets)
{
    struct dcpk_error *err = api_begin(map->engine->session);
    const char *const as[2] = {sources, targets};

    if (names_take(map, path, as, err) && map->failed.status == DCPK_OK)
        map->failed = *err;
    return (int)err->status;
}

/* Bytes of an element at most. */
#define ZERO_BYTES 16

/* Adds targets that are zeros, and sources of one element for them. */
static dcpk_status add_zeros(dcpkit_map *map, const struct dcpk_renamed *made,
                             struct dcpk_error *err)
{
    static const uint8_t zero[ZERO_BYTES];
    struct dcpk_device *device = map->engine->options.device;

    if (made->n_zeros > 0 &&
        (device->ops->alloc(device, DCPK_MEMORY_DEVICE, ZERO_BYTES, &map->names.zero, err) ||
         device->ops->copy(device, 0, map->names.zero, zero, ZERO_BYTES, err) ||
         dcpk_device_wait(device, 0, DCPK_REMAP_TIMEOUT_MS, err)))
        return err->status;
    for (size_t i = 0; i < made->n_zeros; i++)
        for (int side = 0; side < 2; side++) {
            struct map_side *s = &map->sides[side];
            struct dcpk_shard shard = made->zeros[i];

            if (side == DCPKIT_SOURCES) {
                int64_t *none = dcpk_arena_array(map->arena, (size_t)shard.rank, sizeof *none, err);

                if (none == NULL)
                    return err->status;
                shard.stride_bytes = none;
                shard.at = (uint64_t)(uintptr_t)map->names.zero;
            }
            if (dcpk_grow(&s->shards, &s->capacity, s->n, sizeof shard, err))
                return err->status;
            s->shards[s->n++] = shard;
        }
    return DCPK_OK;
}

/* The shards of a side as boxes of the tensors of `to`. */
static dcpk_status side_rename(dcpkit_map *map, int number, const struct dcpk_feed_views *to,
                               struct dcpk_renamed *made, struct dcpk_error *err)
{
    struct map_side *side = &map->sides[number];

    made->arena = map->arena;
    made->are_targets = number == DCPKIT_TARGETS;
    if (dcpk_rename_shards(map->names.sides[number], to, side->shards, side->n, made, err)) {
        dcpk_free(made->shards);
        return err->status;
    }
    dcpk_free(side->shards);
    *side = (struct map_side){made->shards, made->n, made->capacity};
    return DCPK_OK;
}

dcpk_status api_names_apply(dcpkit_map *map, struct dcpk_error *err)
{
    const struct dcpk_feed_views *to = map->names.sides[DCPKIT_TARGETS];
    struct dcpk_renamed targets = {0}, sources = {0};

    if (to == NULL)
        return DCPK_OK;
    if (map->from.ckpt != NULL)
        return dcpk_fail(err, DCPK_EUSAGE, "a map has names or the tensors of a checkpoint");
    if (dcpk_feed_views_are_local(to)) {
        to = map->names.stored;
        side_rename(map, DCPKIT_TARGETS, to, &targets, err);
    }
    if (err->status == DCPK_OK && side_rename(map, DCPKIT_SOURCES, to, &sources, err) == DCPK_OK)
        add_zeros(map, &targets, err);
    dcpk_free(targets.zeros);
    return err->status;
}

void api_names_release(dcpkit_map *map)
{
    dcpk_feed_views_free(map->names.stored);
    for (int side = 0; side < 2; side++)
        dcpk_feed_views_free(map->names.sides[side]);
    dcpk_checkpoint_close(map->names.ckpt);
    if (map->names.zero != NULL)
        map->engine->options.device->ops->free(map->engine->options.device, map->names.zero);
}
