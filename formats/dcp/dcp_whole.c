/* SPDX-License-Identifier: Apache-2.0 */
/* dcp_whole.c - what in a plain folder shows that Megatron wrote it, whose metadata.json is then
 * lost. */
#include <string.h>

#include "formats/dcp/dcp.h"
#include "lib/base/order.h"
#include "lib/base/text.h"

/* States of optimizer.state.<state>.<parameter> (formats/torch_dist/FORMAT.md 5). */
static const char *const states[] = {
    "optimizer.state.param.",
    "optimizer.state.fp32_param.",
    "optimizer.state.exp_avg.",
    "optimizer.state.exp_avg_sq.",
};

/* "0.1": numbers with dots between; returns what stands after them, NULL when there is none. */
static const char *skip_numbers(const char *text)
{
    for (;;) {
        const size_t n = strspn(text, "0123456789");

        if (n == 0)
            return NULL;
        text += n;
        if (*text != '.')
            return text;
        text++;
    }
}

/* "rng_state/shard_0.1_2.2": a sharded object (formats/torch_dist/FORMAT.md 3). */
static bool is_sharded(const char *key)
{
    const char *at = strstr(key, "/shard_");

    if (at != NULL)
        at = skip_numbers(at + strlen("/shard_"));
    if (at != NULL)
        at = *at == '_' ? skip_numbers(at + 1) : NULL;
    return at != NULL && *at == '\0';
}

/* "decoder.layers.mlp.linear_fc1.weight": all layers in one tensor. */
static bool is_stacked(const char *key)
{
    const char *at = strstr(key, "decoder.layers.");

    return at != NULL && (dcpk_starts_with(at + strlen("decoder.layers."), "mlp.") ||
                          dcpk_starts_with(at + strlen("decoder.layers."), "self_attention."));
}

/* The state of a parameter that is there under the rest of the key. */
static bool is_state(const struct dcpk_checkpoint *ckpt, const char *key)
{
    for (size_t i = 0; i < DCPK_COUNT(states); i++)
        if (dcpk_starts_with(key, states[i]))
            return dcpk_checkpoint_tensor(ckpt, key + strlen(states[i])) != NULL;
    return false;
}

/* A key that only Megatron's torch_dist has; NULL: none. */
static const char *find_megatron_key(const struct dcpk_checkpoint *ckpt)
{
    for (size_t i = 0; i < ckpt->n_objects; i++)
        if (is_sharded(ckpt->objects[i].key))
            return ckpt->objects[i].key;
    for (size_t i = 0; i < ckpt->n_tensors; i++)
        if (is_stacked(ckpt->tensors[i].key) || is_state(ckpt, ckpt->tensors[i].key))
            return ckpt->tensors[i].key;
    return NULL;
}

dcpk_status dcpk_dcp_check_whole(struct dcpk_checkpoint *ckpt, struct dcpk_error *err)
{
    static const char lost[] = "Megatron writes that with a metadata.json, without which it does "
                               "not load the folder, and there is none (the copy is not whole)";
    const struct dcpk_dcp_info *info = ckpt->state;
    enum dcpk_path_kind metadata_json, common_pt;
    const char *key = find_megatron_key(ckpt);

    if (dcpk_store_look(ckpt->store, "metadata.json", &metadata_json, err) != DCPK_OK ||
        dcpk_store_look(ckpt->store, "common.pt", &common_pt, err) != DCPK_OK)
        return err->status;
    if (metadata_json == DCPK_PATH_FILE) /* asked for as a plain folder: nothing is lost */
        return DCPK_OK;
    if (common_pt == DCPK_PATH_FILE)
        return dcpk_fail(err, DCPK_EFORMAT, "there is a 'common.pt': %s", lost);
    if (key != NULL)
        return dcpk_fail(err, DCPK_EFORMAT, "there is the key '%.200s': %s", key, lost);
    if (info->is_mcore_class || info->has_mcore_data)
        return dcpk_fail(err, DCPK_EFORMAT, ".metadata is of Megatron's own class: %s", lost);
    return DCPK_OK;
}
