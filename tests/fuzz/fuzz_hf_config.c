/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_hf_config.c - any bytes as config.json give args or an error; the args are of the family,
 * and give a config.json that can be read, alone and laid over the one that they are of. */
#include <stdlib.h>

#include "formats/safetensors/hf_config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static const struct dcpk_value *args_of(const struct dcpk_hf_map *map, const char *text, size_t n,
                                        struct dcpk_arena *arena, struct dcpk_error *err)
{
    struct dcpk_hf_import wish = {.map = map};
    const struct dcpk_value *args = NULL;
    struct dcpk_json *doc = NULL;

    if (dcpk_json_parse(text, n, &doc, err) == DCPK_OK) {
        wish.config = doc;
        (void)dcpk_hf_config_to_args(&wish, arena, &args, err);
    }
    dcpk_json_free(doc);
    return args;
}

static void check_back(const struct dcpk_hf_map *map, const struct dcpk_value *args,
                       const struct dcpk_json *base, struct dcpk_arena *arena,
                       struct dcpk_error *err)
{
    struct dcpk_hf_export wish = {
        .map = map, .args = dcpk_value_attrs(args), .vocab_size = 8, .dtype = DCPK_F32};
    struct dcpk_bytes text = {0};
    size_t distance;

    (void)dcpk_value_as_int(dcpk_value_get(wish.args, "vocab_size"), &wish.vocab_size);
    (void)dcpk_value_as_int(dcpk_value_get(wish.args, "mtp_num_layers"), &wish.n_mtp);
    if (dcpk_hf_args_hold(map, wish.args, &distance, err) == DCPK_OK) {
        if (dcpk_hf_config_write(&wish, &text, err) != DCPK_OK ||
            args_of(map, (const char *)text.data, text.n_bytes, arena, err) == NULL)
            abort();
        wish.base = base;
        if (dcpk_hf_config_write(&wish, &text, err) != DCPK_OK)
            abort();
    }
    dcpk_bytes_release(&text);
    if (dcpk_hf_flags_write(wish.args, &text, &(struct dcpk_error){0}) != DCPK_OK)
        abort();
    dcpk_bytes_release(&text);
}

/* The maps that are built in, read once. */
static const struct dcpk_hf_maps *all_maps(void)
{
    static struct dcpk_hf_maps maps;
    static struct dcpk_arena *kept;
    struct dcpk_error err = DCPK_ERROR_INIT;

    if (kept == NULL) {
        kept = dcpk_arena_new();
        if (kept == NULL || dcpk_hf_maps_load(NULL, kept, &maps, &err))
            abort();
    }
    return &maps;
}

/* The first byte picks the family. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    const struct dcpk_hf_maps *maps = all_maps();
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new();
    const struct dcpk_value *args;
    const struct dcpk_hf_map *map;
    struct dcpk_json *base = NULL;

    if (arena == NULL)
        abort();
    if (n_bytes > 0) {
        map = maps->list[data[0] % maps->n];
        args = args_of(map, (const char *)data + 1, n_bytes - 1, arena, &err);
        if (args != NULL &&
            dcpk_json_parse((const char *)data + 1, n_bytes - 1, &base, &err) == DCPK_OK)
            check_back(map, args, base, arena, &err);
        else if (err.status == DCPK_OK || err.text[0] == '\0')
            abort();
    }
    dcpk_json_free(base);
    dcpk_arena_free(arena);
    return 0;
}
