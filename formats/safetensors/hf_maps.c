/* SPDX-License-Identifier: Apache-2.0 */
/* hf_maps.c - all maps: those that are built in, and those of a folder. */
#include <stdlib.h>
#include <string.h>

#include "formats/safetensors/hf_map.h"
#include "lib/base/alloc.h"
#include "lib/base/text.h"
#include "lib/io/store.h"

#define MAX_MAP_BYTES (UINT64_C(1) << 20)
#define MAP_ENDING    ".json"
/* Tried first: a model that others' maps fit too is a plain one. */
#define PLAIN_FAMILY "llama"

static int compare_maps(const void *a, const void *b)
{
    const struct dcpk_hf_map *x = *(const struct dcpk_hf_map *const *)a;
    const struct dcpk_hf_map *y = *(const struct dcpk_hf_map *const *)b;
    if ((x->scheme == NULL) != (y->scheme == NULL))
        return x->scheme == NULL ? -1 : 1;
    const bool x_plain = strcmp(x->family, PLAIN_FAMILY) == 0;
    const bool y_plain = strcmp(y->family, PLAIN_FAMILY) == 0;

    if (x_plain != y_plain)
        return x_plain ? -1 : 1;
    return strcmp(x->family, y->family);
}

/* Instead of the one of its family, or after all others. */
static void put_map(const struct dcpk_hf_map **list, size_t *n, const struct dcpk_hf_map *map)
{
    for (size_t i = 0; i < *n; i++)
        if (strcmp(list[i]->family, map->family) == 0 &&
            strcmp(dcpk_text_or(list[i]->scheme, ""), dcpk_text_or(map->scheme, "")) == 0) {
            list[i] = map;
            return;
        }
    list[(*n)++] = map;
}

static dcpk_status map_read_file(struct dcpk_store *store, const char *name,
                                 struct dcpk_arena *arena, const struct dcpk_hf_map **map,
                                 struct dcpk_error *err)
{
    struct dcpk_source *source;
    char *text = NULL;
    size_t n_bytes = 0;

    if (dcpk_store_find(store, name, &source, err) ||
        dcpk_source_slurp(source, MAX_MAP_BYTES, &text, &n_bytes, err))
        return err->status;
    (void)dcpk_hf_map_read(name, text, n_bytes, arena, map, err);
    dcpk_free(text);
    return err->status;
}

/* Maps under construction. */
struct listing {
    struct dcpk_arena *arena;
    const struct dcpk_hf_map **list;
    size_t n;
};

static dcpk_status read_names(struct listing *l, struct dcpk_store *store, char *const *names,
                              size_t n_names, struct dcpk_error *err)
{
    size_t n_read = 0;

    for (size_t i = 0; i < n_names; i++) {
        const struct dcpk_hf_map *map;

        if (!dcpk_ends_with(names[i], MAP_ENDING))
            continue;
        if (map_read_file(store, names[i], l->arena, &map, err))
            return err->status;
        put_map(l->list, &l->n, map);
        n_read++;
    }
    if (n_read == 0)
        return dcpk_fail(err, DCPK_EUSAGE, "it has no file '*" MAP_ENDING "'");
    return DCPK_OK;
}

/* Lists the maps of a folder; the room for them is after the built-in ones. */
static dcpk_status read_folder(struct listing *l, const char *dir, struct dcpk_error *err)
{
    struct dcpk_store *store = NULL;
    const struct dcpk_hf_map **longer;
    char **names = NULL;
    size_t n_names = 0;

    if (dcpk_store_open(dir, &store, err) || dcpk_store_list(store, &names, &n_names, err))
        goto out;
    longer = dcpk_arena_extend(l->arena, l->list, l->n, l->n + n_names, sizeof *longer, err);
    if (longer == NULL)
        goto out;
    l->list = longer;
    (void)read_names(l, store, names, n_names, err);
out:
    dcpk_free(names);
    dcpk_store_close(store);
    if (err->status != DCPK_OK)
        dcpk_context(err, "reading maps of '%s'", dir);
    return err->status;
}

dcpk_status dcpk_hf_maps_load(const char *dir, struct dcpk_arena *arena, struct dcpk_hf_maps *maps,
                              struct dcpk_error *err)
{
    struct listing l = {.arena = arena};

    l.list = dcpk_arena_array(arena, dcpk_hf_n_built_in, sizeof *l.list, err);
    if (l.list == NULL)
        return err->status;
    for (size_t i = 0; i < dcpk_hf_n_built_in; i++) {
        const struct dcpk_hf_built_in *b = &dcpk_hf_built_in[i];

        if (dcpk_hf_map_read(b->file, b->text, b->n_bytes, arena, &l.list[l.n++], err))
            return err->status;
    }
    if (dir != NULL && read_folder(&l, dir, err))
        return err->status;
    qsort(l.list, l.n, sizeof *l.list, compare_maps);
    *maps = (struct dcpk_hf_maps){.list = l.list};
    while (maps->n < l.n && l.list[maps->n]->scheme == NULL)
        maps->n++;
    maps->n_schemes = l.n - maps->n;
    return DCPK_OK;
}

dcpk_status dcpk_hf_maps_add_any(struct dcpk_hf_maps *maps, struct dcpk_arena *arena,
                                 struct dcpk_error *err)
{
    static const char text[] =
        "{\"family\": \"any\", \"architectures\": [\"any\"], \"model_type\": \"any\", \"config\": "
        "[], "
        "\"foreign\": \"no map has its names\", \"top\": [], \"at\": [], \"layer\": []}";

    return dcpk_hf_map_read("any", text, sizeof text - 1, arena, &maps->any, err);
}

bool dcpk_hf_map_is_any(const struct dcpk_hf_map *map)
{
    return strcmp(map->family, "any") == 0;
}

dcpk_status dcpk_hf_maps_join(const struct dcpk_hf_maps *maps, const char *scheme,
                              struct dcpk_arena *arena, const struct dcpk_hf_map **map,
                              struct dcpk_error *err)
{
    struct dcpk_hf_map *joined = dcpk_arena_alloc(arena, sizeof *joined, err);
    const char *before = "";

    if (joined == NULL)
        return err->status;
    for (size_t i = maps->n; i < maps->n + maps->n_schemes; i++) {
        const struct dcpk_hf_map *names = maps->list[i];

        if (strcmp(names->scheme, scheme) != 0 || strcmp(names->family, (*map)->family) != 0)
            continue;
        *joined = **map;
        joined->file = names->file;
        joined->prefix = NULL;
        joined->scales_suffix = NULL;
        joined->top = names->top;
        joined->at = names->at;
        joined->n_at = names->n_at;
        joined->layer = names->layer;
        joined->drop = names->drop;
        joined->n_drop = names->n_drop;
        joined->zero = names->zero;
        joined->n_zero = names->n_zero;
        *map = joined;
        return DCPK_OK;
    }
    (void)dcpk_fail(err, DCPK_EUNSUPPORTED, "names of %s are known of the families ", scheme);
    for (size_t i = maps->n; i < maps->n + maps->n_schemes; i++)
        if (strcmp(maps->list[i]->scheme, scheme) == 0) {
            dcpk_append(err, "%s%s", before, maps->list[i]->family);
            before = ", ";
        }
    dcpk_append(err, ", not of '%s'", (*map)->family);
    return err->status;
}

/* A name of a file as the class has it in memory. */
static dcpk_status name_in_memory(const struct dcpk_hf_map *map, struct dcpk_arena *arena,
                                  const char **name, struct dcpk_error *err)
{
    if (dcpk_starts_with(*name, map->memory[0]))
        *name =
            dcpk_arena_printf(arena, err, "%s%s", map->memory[1], *name + strlen(map->memory[0]));
    return dcpk_made(*name, err);
}

dcpk_status dcpk_hf_map_in_memory(struct dcpk_arena *arena, const struct dcpk_hf_map **map,
                                  struct dcpk_error *err)
{
    const struct dcpk_hf_map *of_files = *map;
    struct dcpk_hf_map *made = dcpk_arena_alloc(arena, sizeof *made, err);
    struct dcpk_hf_rule *top = dcpk_arena_array(arena, of_files->top.n, sizeof *top, err);
    struct dcpk_hf_at *at = dcpk_arena_array(arena, of_files->n_at, sizeof *at, err);

    if (made == NULL || top == NULL || at == NULL)
        return err->status;
    if (of_files->memory[0] == NULL)
        return DCPK_OK;
    for (size_t i = 0; i < of_files->top.n; i++) {
        top[i] = of_files->top.list[i];
        for (size_t p = 0; p < top[i].n_hf; p++)
            if (name_in_memory(of_files, arena, &top[i].hf[p], err))
                return err->status;
    }
    for (size_t i = 0; i < of_files->n_at; i++) {
        at[i] = of_files->at[i];
        if (name_in_memory(of_files, arena, &at[i].hf, err))
            return err->status;
    }
    *made = *of_files;
    made->top.list = top;
    made->at = at;
    *map = made;
    return DCPK_OK;
}

const struct dcpk_hf_map *dcpk_hf_maps_find(const struct dcpk_hf_maps *maps, const char *family)
{
    for (size_t i = 0; i < maps->n; i++)
        if (strcmp(maps->list[i]->family, family) == 0)
            return maps->list[i];
    return NULL;
}
