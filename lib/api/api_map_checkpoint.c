/* SPDX-License-Identifier: Apache-2.0 */
/* api_map_checkpoint.c - a map whose sources are the tensors of a checkpoint. */

#include "formats/formats.h"
#include "lib/api/api_engine_priv.h"

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
        dcpk_feed_views_new(from->ckpt, format, &from->views, err))
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

static dcpk_status files_make(dcpkit_map *map, struct dcpk_error *err)
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
        .checks = o->checks,
    };

    options.views = dcpk_feed_views(map->from.views, &options.n_views);
    return dcpk_remap_files_new(&options, targets->shards, targets->n, &map->from.files, err);
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
    if (files_make(map, err) || targets_make(map, err))
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
