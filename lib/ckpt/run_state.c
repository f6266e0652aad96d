/* SPDX-License-Identifier: Apache-2.0 */
/* run_state.c - what a checkpoint says of the run that wrote it: args, iteration, layouts. */
#include "lib/ckpt/run_state.h"

#include <string.h>

#include "lib/ckpt/format.h"
#include "lib/ckpt/layout.h"
#include "lib/ckpt/named_state.h"

/* Keys that tell the optimizer's layout where no metadata names it; the first that occurs counts
 * (torch_dist.md 5). */
static const struct {
    const char *start, *part; /* the key begins with / holds this; after an optional "chained_N." */
    bool is_flattened;        /* and the tensor is stored flattened */
    const char *layout;
} signs[] = {
    {"optimizer.state.module.", "", false, "fsdp_dtensor"},
    {"optimizer.param_to_group_meta.", "", false, "fsdp_dtensor"},
    {"optimizer.distributed.", ".param_state/", false, "dp_zero_gather_scatter"},
    {"optimizer.distributed.", ".bucket_idx_", false, "dp_reshardable"},
    {"optimizer.state.", "", true, "fully_sharded_model_space"},
    {"optimizer.state.param.", "", false, "fully_reshardable"},
    {"optimizer.state.", "", false, "model-shaped"},
    {"optimizer.", "", false, "unknown"},
};
#define N_SIGNS (sizeof signs / sizeof *signs)

/* The first sign that `key` shows, N_SIGNS for none. */
static size_t sign_of(const char *key, bool is_flattened)
{
    if (strncmp(key, "chained_", 8) == 0 && strchr(key, '.') != NULL)
        key = strchr(key, '.') + 1;
    for (size_t i = 0; i < N_SIGNS; i++)
        if (strncmp(key, signs[i].start, strlen(signs[i].start)) == 0 &&
            strstr(key, signs[i].part) != NULL && (is_flattened || !signs[i].is_flattened))
            return i;
    return N_SIGNS;
}

static const char *layout_from_keys(const struct dcpk_checkpoint *ckpt)
{
    size_t best = N_SIGNS;

    for (size_t i = 0; i < ckpt->n_tensors && best > 0; i++) {
        const size_t sign = sign_of(ckpt->tensors[i].key, ckpt->tensors[i].model_shape != NULL);

        best = sign < best ? sign : best;
    }
    for (size_t i = 0; i < ckpt->n_objects && best > 0; i++) {
        const size_t sign = sign_of(ckpt->objects[i].key, false);

        best = sign < best ? sign : best;
    }
    return best == N_SIGNS ? "none" : signs[best].layout;
}

/*
 * A checkpoint without optimizer tensors or objects has none, whatever its metadata says
 * (--no-save-optim); else content_metadata (0.13 and later), the optimizer's own field, the keys.
 */
static const char *optimizer_layout(const struct dcpk_checkpoint *ckpt,
                                    const struct dcpk_value *common)
{
    const char *from_keys = layout_from_keys(ckpt);
    const struct dcpk_value *optimizer = dcpk_value_get(common, "optimizer");
    const char *name;

    if (strcmp(from_keys, "none") == 0)
        return from_keys;
    name = dcpk_value_as_str(
        dcpk_value_get(dcpk_value_get(common, "content_metadata"), "distrib_optim_sharding_type"));
    if (name == NULL)
        name = dcpk_value_as_str(dcpk_value_get(optimizer, "param_state_sharding_type"));
    if (name == NULL)
        name = dcpk_value_as_str(
            dcpk_value_get(dcpk_value_get_int(optimizer, 0), "param_state_sharding_type"));
    return name == NULL ? from_keys : name;
}

/* The value of an object item, NULL when there is none or it cannot be read (then a note says why).
 */
static const struct dcpk_value *load_item(struct dcpk_checkpoint *ckpt, const char *key,
                                          struct dcpk_arena *arena)
{
    const struct dcpk_object *object = dcpk_checkpoint_object(ckpt, key);
    const struct dcpk_value *value = NULL;
    struct dcpk_error err = DCPK_ERROR_INIT;

    if (object == NULL)
        return NULL;
    if (dcpk_checkpoint_load_object(ckpt, object, arena, &value, &err) != DCPK_OK) {
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

/* What cannot be read has been noted, and has no names. */
static const char *const *list_names(struct dcpk_checkpoint *ckpt, struct dcpk_arena *arena)
{
    static const char *const none[] = {NULL};
    struct dcpk_error ignored = DCPK_ERROR_INIT;
    const char *const *names;

    return dcpk_named_state_list(ckpt, arena, &names, &ignored) == DCPK_OK ? names : none;
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
