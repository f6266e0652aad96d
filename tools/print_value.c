/* SPDX-License-Identifier: Apache-2.0 */
/* print_value.c - an object of a checkpoint as JSON. */
#include "tools/print_value.h"

#include <string.h>

#include "lib/base/json.h"
#include "lib/ckpt/format.h"

static bool is_outlined(const struct dcpk_object *object)
{
    return object != NULL && object->place.n_bytes > DCPK_MOST_LOADED_BYTES;
}

/* *value NULL: there is none of that name. */
static dcpk_status load(struct dcpk_checkpoint *ckpt, const char *key, struct dcpk_arena *arena,
                        const struct dcpk_value **value, struct dcpk_error *err)
{
    const struct dcpk_object *object = dcpk_checkpoint_object(ckpt, key);

    if (is_outlined(object))
        return ckpt->format->outline_object(ckpt, object, arena, value, err);
    if (object != NULL)
        return ckpt->format->load_object(ckpt, object, arena, value, err);
    if (strcmp(key, DCPK_COMMON_KEY) == 0 && ckpt->format->load_common != NULL &&
        dcpk_checkpoint_tensor(ckpt, key) == NULL)
        return ckpt->format->load_common(ckpt, arena, value, err);
    return DCPK_OK;
}

/* A value too large to be taken into memory is shown without its tensors' elements. */
static void tell_outline(const struct dcpk_voice *voice, const struct dcpk_object *object)
{
    char size[DCPK_SIZE_TEXT_BYTES], limit[DCPK_SIZE_TEXT_BYTES];

    dcpk_cli_note(voice,
                  "'%s' has %s: past %s the elements of its tensors are not shown, and its "
                  "checksums are not checked ('verify' does)",
                  object->key, dcpk_cli_short_size(object->place.n_bytes, size),
                  dcpk_cli_short_size(DCPK_MOST_LOADED_BYTES, limit));
}

static dcpk_status print_text(const char *key, const struct dcpk_value *value,
                              struct dcpk_error *err)
{
    struct dcpk_bytes bytes = {0};
    struct dcpk_json_out j;

    dcpk_cli_put_text(stdout, key);
    puts("  object");
    dcpk_json_out_init(&j, &bytes, 2);
    dcpk_value_to_json(value, &j);
    return dcpk_cli_print_bytes(&bytes, err);
}

static dcpk_status print_json(const char *key, const struct dcpk_value *value,
                              struct dcpk_error *err)
{
    struct dcpk_bytes bytes = {0};
    struct dcpk_json_out j;

    dcpk_json_out_init(&j, &bytes, 2);
    dcpk_json_begin_object(&j);
    dcpk_json_add_string(&j, "key", key);
    dcpk_json_put_key(&j, "value");
    dcpk_value_to_json(value, &j);
    dcpk_json_add_int(&j, "version", 1);
    dcpk_json_end_object(&j);
    return dcpk_cli_print_bytes(&bytes, err);
}

dcpk_status dcpk_print_value(struct dcpk_checkpoint *ckpt, const char *key, bool as_json,
                             const struct dcpk_voice *voice, bool *found, struct dcpk_error *err)
{
    struct dcpk_arena *arena = dcpk_arena_new(0, err);
    const struct dcpk_value *value = NULL;
    dcpk_status st = arena == NULL ? err->status : load(ckpt, key, arena, &value, err);

    *found = value != NULL;
    if (st == DCPK_OK && is_outlined(dcpk_checkpoint_object(ckpt, key)))
        tell_outline(voice, dcpk_checkpoint_object(ckpt, key));
    if (st == DCPK_OK && value != NULL)
        st = as_json ? print_json(key, value, err) : print_text(key, value, err);
    dcpk_arena_free(arena);
    return st;
}
