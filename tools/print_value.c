/* SPDX-License-Identifier: Apache-2.0 */
/* print_value.c - an object of a checkpoint as JSON. */
#include "tools/print_value.h"

#include <stdio.h>
#include <string.h>

#include "lib/base/json.h"
#include "lib/base/text.h"
#include "lib/ckpt/format.h"
#include "lib/model/named_state.h"

/* A value too large to be taken into memory is shown without its tensors' elements. */
static void note_outline(const struct dcpk_verbosity *verbosity, const struct dcpk_object *object)
{
    char size[DCPK_SIZE_TEXT_BYTES], limit[DCPK_SIZE_TEXT_BYTES];

    dcpk_cli_note(verbosity,
                  "'%s' has %s: past %s the elements of its tensors are not shown, and its "
                  "checksums are not checked ('verify' does)",
                  object->key, dcpk_cli_short_size(object->place.n_bytes, size),
                  dcpk_cli_short_size(DCPK_MAX_LOADED_BYTES, limit));
}

/* Nothing but the value, so that jq can read it. */
static dcpk_status print_value_text(const struct dcpk_value *value, struct dcpk_error *err)
{
    struct dcpk_bytes bytes = {0};
    struct dcpk_json_out j;

    dcpk_json_out_init(&j, &bytes, 2);
    dcpk_value_to_json(value, &j);
    return dcpk_cli_print_bytes(&bytes, err);
}

static dcpk_status print_value_json(const char *key, const struct dcpk_value *value,
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

static dcpk_status print_value(const char *key, const struct dcpk_value *value, bool as_json,
                               struct dcpk_error *err)
{
    if (as_json)
        return print_value_json(key, value, err);
    return print_value_text(value, err);
}

dcpk_status dcpk_print_value(struct dcpk_checkpoint *ckpt, const char *key, bool as_json,
                             const struct dcpk_verbosity *verbosity, bool *found,
                             struct dcpk_error *err)
{
    struct dcpk_arena *arena = dcpk_arena_new(0, err);
    const struct dcpk_object *object = dcpk_checkpoint_object(ckpt, key);
    const struct dcpk_value *value;

    *found = false;
    if (arena == NULL || object == NULL ||
        dcpk_checkpoint_show_object(ckpt, object, arena, &value, err))
        goto out;
    *found = true;
    if (dcpk_object_is_large(object))
        note_outline(verbosity, object);
    (void)print_value(key, value, as_json, err);
out:
    dcpk_arena_free(arena);
    return err->status;
}

/* " (but there is 'near')", or nothing when near is NULL. */
static const char *hint_text(const char *near, char text[DCPK_ERROR_BYTES])
{
    text[0] = '\0';
    if (near != NULL)
        snprintf(text, DCPK_ERROR_BYTES, " (but there is '%s')", near);
    return text;
}

/* "args.lrr": what there is comes to an end within the name. */
static dcpk_status fail_member(const char *name, const struct dcpk_named_state *state,
                               struct dcpk_error *err)
{
    char hint[DCPK_ERROR_BYTES];
    const char *rest = name + state->n_parent_bytes + 1, *near = NULL, *member;

    for (size_t i = 0; (member = dcpk_named_state_member(state->parent, i)) != NULL; i++)
        if (near == NULL && (strstr(member, rest) != NULL || dcpk_cli_is_near(rest, member)))
            near = member;
    return dcpk_fail(err, DCPK_EUSAGE, "there is no '%s' in '%.*s'%s", rest,
                     (int)state->n_parent_bytes, name, hint_text(near, hint));
}

static const char *near_key(struct dcpk_checkpoint *ckpt, const char *key)
{
    for (size_t i = 0; i < ckpt->n_tensors; i++)
        if (strstr(ckpt->tensors[i].key, key) != NULL)
            return ckpt->tensors[i].key;
    for (size_t i = 0; i < ckpt->n_objects; i++)
        if (strstr(ckpt->objects[i].key, key) != NULL)
            return ckpt->objects[i].key;
    for (size_t i = 0; i < ckpt->n_tensors; i++)
        if (dcpk_cli_is_near(key, ckpt->tensors[i].key))
            return ckpt->tensors[i].key;
    return NULL;
}

static dcpk_status fail_name(struct dcpk_checkpoint *ckpt, const char *name,
                             struct dcpk_arena *arena, struct dcpk_error *err)
{
    const char *bracket = strrchr(name, '['), *near = NULL, *key;
    size_t n_key = strlen(name);
    const char *const *names;
    char hint[DCPK_ERROR_BYTES];

    if (dcpk_ends_with(name, "]") && bracket != NULL)
        n_key = (size_t)(bracket - name);
    key = dcpk_arena_strndup(arena, name, n_key, err);
    if (key == NULL || dcpk_named_state_list(ckpt, arena, &names, err) != DCPK_OK)
        return err->status;
    if (*key != '\0')
        near = near_key(ckpt, key);
    for (; near == NULL && *names != NULL; names++)
        if (dcpk_cli_is_near(key, *names))
            near = *names;
    return dcpk_fail(err, DCPK_EUSAGE,
                     "there is no tensor or object '%s'%s; 'dcpkit inspect' lists them", key,
                     hint_text(near, hint));
}

dcpk_status dcpk_print_named(struct dcpk_checkpoint *ckpt, const char *name, bool as_json,
                             struct dcpk_error *err)
{
    struct dcpk_arena *arena = dcpk_arena_new(0, err);
    struct dcpk_named_state state = {0};

    if (arena == NULL || dcpk_named_state_find(ckpt, name, arena, &state, err))
        goto out;
    if (state.value != NULL)
        (void)print_value(name, state.value, as_json, err);
    else if (state.n_parent_bytes > 0)
        (void)fail_member(name, &state, err);
    else
        (void)fail_name(ckpt, name, arena, err);
out:
    dcpk_arena_free(arena);
    return err->status;
}
