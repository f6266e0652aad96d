/* SPDX-License-Identifier: Apache-2.0 */
/* api_map_names.c - a map whose sources have other names than its targets. */
#include "formats/formats.h"
#include "lib/api/api_engine_priv.h"
#include "lib/base/alloc.h"
#include "lib/base/text.h"
#include "lib/job/live_names.h"
#include "lib/job/rename_shards.h"

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

/* The shards of a side as boxes of the tensors of `to`. */
static dcpk_status side_rename(dcpkit_map *map, int number, const struct dcpk_feed_views *to,
                               struct dcpk_error *err)
{
    struct map_side *side = &map->sides[number];
    struct dcpk_renamed made = {.arena = map->arena, .are_targets = number == DCPKIT_TARGETS};

    if (dcpk_rename_shards(map->names.sides[number], to, side->shards, side->n, &made, err)) {
        dcpk_free(made.shards);
        return err->status;
    }
    dcpk_free(side->shards);
    *side = (struct map_side){made.shards, made.n, made.capacity};
    return DCPK_OK;
}

dcpk_status api_names_apply(dcpkit_map *map, struct dcpk_error *err)
{
    const struct dcpk_feed_views *to = map->names.sides[DCPKIT_TARGETS];

    if (to == NULL)
        return DCPK_OK;
    if (map->from.ckpt != NULL)
        return dcpk_fail(err, DCPK_EUSAGE, "a map has names or the tensors of a checkpoint");
    if (dcpk_feed_views_are_local(to)) {
        to = map->names.stored;
        if (side_rename(map, DCPKIT_TARGETS, to, err))
            return err->status;
    }
    return side_rename(map, DCPKIT_SOURCES, to, err);
}

void api_names_release(dcpkit_map *map)
{
    dcpk_feed_views_free(map->names.stored);
    for (int side = 0; side < 2; side++)
        dcpk_feed_views_free(map->names.sides[side]);
    dcpk_checkpoint_close(map->names.ckpt);
}
