/* SPDX-License-Identifier: Apache-2.0 */
/* api_map_names.c - a map whose sources have other names than its targets. */
#include "formats/formats.h"
#include "lib/api/api_engine_priv.h"
#include "lib/base/alloc.h"
#include "lib/job/rename_shards.h"

/* The views of the checkpoint as a format names them; NULL: as stored. */
static dcpk_status names_see(struct map_names *names, const char *as,
                             struct dcpk_feed_views **views, struct dcpk_error *err)
{
    const struct dcpk_format *format = as == NULL ? NULL : dcpk_format_find(as);

    if (as != NULL && format == NULL)
        return dcpk_fail(err, DCPK_EUSAGE, "no format is called '%s'", as);
    return dcpk_feed_views_new(names->ckpt, format, DCPK_FEED_WEIGHTS, views, err);
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
        names_see(names, as[DCPKIT_SOURCES], &names->sources, err) ||
        names_see(names, as[DCPKIT_TARGETS], &names->targets, err))
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

dcpk_status api_names_apply(dcpkit_map *map, struct dcpk_error *err)
{
    struct map_side *side = &map->sides[DCPKIT_SOURCES];
    struct dcpk_renamed made = {.arena = map->arena};

    if (map->names.targets == NULL)
        return DCPK_OK;
    if (map->from.ckpt != NULL)
        return dcpk_fail(err, DCPK_EUSAGE, "a map has names or the tensors of a checkpoint");
    if (dcpk_rename_shards(map->names.sources, map->names.targets, side->shards, side->n, &made,
                           err)) {
        dcpk_free(made.shards);
        return err->status;
    }
    dcpk_free(side->shards);
    *side = (struct map_side){made.shards, made.n, made.capacity};
    return DCPK_OK;
}

void api_names_release(dcpkit_map *map)
{
    dcpk_feed_views_free(map->names.sources);
    dcpk_feed_views_free(map->names.targets);
    dcpk_checkpoint_close(map->names.ckpt);
}
