/* SPDX-License-Identifier: Apache-2.0 */
/* run_state.c - reads args, iteration and layouts of the run that wrote a checkpoint. */
#include "lib/model/run_state.h"

#include <string.h>

#include "lib/ckpt/format.h"
#include "lib/model/layout.h"
#include "lib/model/named_state.h"

/* Nothing is known of the keys of a plain container. */
static const char *optimizer_layout(const struct dcpk_checkpoint *ckpt,
                                    const struct dcpk_value *common)
{
    const struct dcpk_format_mapping *mapping = ckpt->format->mapping;

    if (mapping == NULL)
        return "unknown";
    return mapping->optimizer_layout(ckpt, common);
}

/* The value of an object item, NULL when there is none or it cannot be read (then a note holds
 * why). */
static const struct dcpk_value *load_item(struct dcpk_checkpoint *ckpt, const char *key,
                                          struct dcpk_arena *arena)
{
    const struct dcpk_object *object = dcpk_checkpoint_object(ckpt, key);
    const struct dcpk_value *value = NULL;
    struct dcpk_error err = DCPK_ERROR_INIT;

    if (object == NULL)
        return NULL;
    if (dcpk_checkpoint_load_item(ckpt, object, arena, &value, &err) != DCPK_OK) {
        dcpk_checkpoint_note(ckpt, "'%s' cannot be read: %s", key, err.text);
        return NULL;
    }
    return value;
}

static const struct dcpk_value *load_common(struct dcpk_checkpoint *ckpt, struct dcpk_arena *arena)
{
    const struct dcpk_value *value = NULL;
    struct dcpk_error err = DCPK_ERROR_INIT;

    if (dcpk_checkpoint_load_common(ckpt, arena, &value, &err) != DCPK_OK) {
        dcpk_checkpoint_note(ckpt, "the common state cannot be read: %s", err.text);
        return NULL;
    }
    return value;
}

/* A checkpoint that cannot be read has been noted, and has no names. */
static const char *const *list_names(struct dcpk_checkpoint *ckpt, struct dcpk_arena *arena)
{
    static const char *const none[] = {NULL};
    struct dcpk_error ignored = DCPK_ERROR_INIT;
    const char *const *names;

    if (dcpk_named_state_list(ckpt, arena, &names, &ignored) != DCPK_OK)
        return none;
    return names;
}

void dcpk_run_state_load(struct dcpk_checkpoint *ckpt, struct dcpk_arena *arena,
                         struct dcpk_run_state *state)
{
    const struct dcpk_value *common = load_common(ckpt, arena);
    const struct dcpk_value *args;

    memset(state, 0, sizeof *state);
    args = dcpk_value_get(common, "args");
    state->iteration = dcpk_value_get(common, "iteration");
    state->version = dcpk_value_get(common, "checkpoint_version");
    if (common == NULL) {
        args = load_item(ckpt, "args", arena);
        state->iteration = load_item(ckpt, "iteration", arena);
        state->version = load_item(ckpt, "checkpoint_version", arena);
    }
    state->args = args = dcpk_value_attrs(args);
    dcpk_layout_read(args, &state->layout);
    state->optimizer_layout = optimizer_layout(ckpt, common);
    state->names = list_names(ckpt, arena);
}
