/* SPDX-License-Identifier: Apache-2.0 */
/* hf_map_json.c - what the readers of a map ask of its JSON. */
#include <string.h>

#include "formats/safetensors/hf_map_priv.h"

size_t dcpk_hf_count(const struct dcpk_json *node)
{
    size_t n = 0;

    for (node = dcpk_json_first(node); node != NULL; node = dcpk_json_next(node))
        n++;
    return n;
}

dcpk_status dcpk_hf_read_text(struct dcpk_arena *arena, const struct dcpk_json *node,
                              const char *what, const char **text, struct dcpk_error *err)
{
    const char *found = dcpk_json_string(node);

    if (found == NULL || *found == '\0')
        return dcpk_fail(err, DCPK_EFORMAT, "%s is not a text", what);
    *text = dcpk_arena_strdup(arena, found, err);
    return *text == NULL ? err->status : DCPK_OK;
}

dcpk_status dcpk_hf_check_keys(const struct dcpk_json *object, const char *const *known,
                               struct dcpk_error *err)
{
    if (object == NULL || dcpk_json_kind(object) != DCPK_JSON_OBJECT)
        return dcpk_fail(err, DCPK_EFORMAT, "not an object");
    for (object = dcpk_json_first(object); object != NULL; object = dcpk_json_next(object)) {
        size_t i = 0;

        while (known[i] != NULL && strcmp(known[i], dcpk_json_key(object)) != 0)
            i++;
        if (known[i] == NULL)
            return dcpk_fail(err, DCPK_EFORMAT, "the key \"%.40s\" is not known",
                             dcpk_json_key(object));
    }
    return DCPK_OK;
}
