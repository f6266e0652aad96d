/* SPDX-License-Identifier: Apache-2.0 */
/* fsdp_dtensor.c - Megatron-FSDP's checkpoint on top of torch's: the row and its probe. */
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/dcp/dcp.h"
#include "formats/fsdp_dtensor/fsdp_dtensor_priv.h"
#include "formats/torch/pickle.h"
#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/base/text.h"

#define PROBE_BYTES   (64u << 10)
#define BRIDGE_CONFIG "run_config.yaml" /* of Megatron-Bridge */
/* Groups by number, as Megatron's own converter leaves them. */
#define FD_GROUPS_OF_TOOL "optimizer.param_groups."

static int score_head(const char *head, size_t n_bytes)
{
    if (memmem(head, n_bytes, FD_MODEL, strlen(FD_MODEL)) != NULL ||
        memmem(head, n_bytes, FD_GROUP, strlen(FD_GROUP)) != NULL)
        return 80;
    if (dcpk_fsdp_has_prefixed_key(head, n_bytes))
        return 40;
    return 0;
}

/*
 * A .metadata without metadata.json (which would make Megatron read it as torch_dist,
 * FORMAT.md 1), and a key of a model or of parameter groups near its start; less certain where its
 * keys have another prefix.
 */
static dcpk_status fsdp_probe(struct dcpk_store *store, int *score, struct dcpk_error *err)
{
    enum dcpk_path_kind metadata_json;
    struct dcpk_source *source;
    uint64_t n_bytes;
    bool is_folder;
    char *head;

    *score = 0;
    if (dcpk_store_look(store, "metadata.json", &metadata_json, err) ||
        dcpk_dcp_is_folder(store, &is_folder, err))
        return err->status;
    if (metadata_json == DCPK_PATH_FILE || !is_folder)
        return DCPK_OK;
    if (dcpk_store_find(store, ".metadata", &source, err))
        return err->status;
    n_bytes = dcpk_min_u64(dcpk_source_bytes(source), PROBE_BYTES);
    head = dcpk_alloc((size_t)n_bytes, err);
    if (head == NULL)
        return err->status;
    if (dcpk_source_read(source, 0, head, (size_t)n_bytes, err) == DCPK_OK)
        *score = score_head(head, (size_t)n_bytes);
    dcpk_free(head);
    return err->status;
}

/* Marks of the release in keys (FORMAT.md 2). */
struct marks {
    bool has_groups;         /* of parameters */
    bool has_default_config; /* its field of 0.16 and later */
    bool has_expert_half;    /* a gated fc1 of an expert in two halves: 0.16 and later */
    bool has_master_param;   /* of a precision-aware optimizer, to 0.17 */
    /* Multi-token prediction: its old name and main's, or that of 0.17 to 0.19. */
    bool has_mtp, has_new_mtp;
    bool has_joined_mla; /* both down-projections in one: before main */
};

static struct marks find_marks(const struct dcpk_checkpoint *ckpt)
{
    struct marks m = {0};

    for (size_t i = 0; i < ckpt->n_objects; i++) {
        const char *key = ckpt->objects[i].key;
        const bool is_group =
            dcpk_starts_with(key, FD_GROUP) || dcpk_starts_with(key, FD_GROUPS_OF_TOOL);

        m.has_groups |= is_group;
        m.has_default_config |= is_group && dcpk_ends_with(key, ".default_config");
    }
    for (size_t i = 0; i < ckpt->n_tensors; i++) {
        const char *key = ckpt->tensors[i].key;
        const char *experts = strstr(key, ".mlp.experts.");

        m.has_expert_half |= experts != NULL && strstr(experts, ".linear_fc1.") != NULL &&
                             (dcpk_ends_with(key, "_w") || dcpk_ends_with(key, "_v"));
        m.has_master_param |= dcpk_ends_with(key, ".master_param");
        m.has_mtp |=
            strstr(key, "mtp.layers.") != NULL && strstr(key, ".transformer_layer.") != NULL;
        m.has_new_mtp |=
            strstr(key, "mtp.layers.") != NULL && strstr(key, ".mtp_model_layer.") != NULL;
        m.has_joined_mla |= strstr(key, ".linear_qkv_down_proj.") != NULL;
    }
    return m;
}

/* A: groups without default_config. Names that only some releases use narrow B down. */
static void fsdp_find_generation(struct dcpk_checkpoint *ckpt)
{
    const struct marks m = find_marks(ckpt);

    if (dcpk_fsdp_is_torch_dcp(ckpt)) {
        ckpt->generation = ""; /* of another row */
    } else if (dcpk_fsdp_is_v2(ckpt)) {
        ckpt->generation = "V2";
        ckpt->releases = (struct dcpk_releases){"main", "main"};
    } else if (m.has_groups && !m.has_default_config) {
        ckpt->generation = "A";
        ckpt->releases = (struct dcpk_releases){"core-0.14", "core-0.15"};
    } else if (m.has_groups || m.has_expert_half) {
        ckpt->generation = "B";
        ckpt->releases = (struct dcpk_releases){"core-0.16", NULL};
        if (m.has_new_mtp && !m.has_mtp)
            ckpt->releases.from = "core-0.17";
        if (m.has_joined_mla)
            ckpt->releases.to = "core-0.19";
        if (m.has_master_param)
            ckpt->releases.to = "core-0.17";
    }
}

static dcpk_status fsdp_open(struct dcpk_checkpoint *ckpt, struct dcpk_error *err)
{
    if (dcpk_dcp_open(ckpt, ckpt->state, err))
        return err->status;
    fsdp_find_generation(ckpt);
    return DCPK_OK;
}

/* True if the checkpoint holds an object whose key begins so. */
static bool has_object_below(const struct dcpk_checkpoint *ckpt, const char *prefix)
{
    for (size_t i = 0; i < ckpt->n_objects; i++)
        if (dcpk_starts_with(ckpt->objects[i].key, prefix))
            return true;
    return false;
}

/*
 * A run saves args, iteration and checkpoint_version together (generate_state_dict of
 * megatron/training/checkpointing.py @core_v0.19.0); a folder that has one of them, or the
 * scheduler, and not all has lost some. Weights alone have none. Megatron-Bridge keeps the content
 * of args and iteration in a file of its own.
 */
static dcpk_status fsdp_check_whole(struct dcpk_checkpoint *ckpt, struct dcpk_error *err)
{
    static const char *const names[] = {"args", "iteration"};
    bool is_of_run = dcpk_checkpoint_object(ckpt, "checkpoint_version") != NULL ||
                     has_object_below(ckpt, "opt_param_scheduler");
    enum dcpk_path_kind bridge;

    if (dcpk_store_look(ckpt->store, BRIDGE_CONFIG, &bridge, err))
        return err->status;
    for (size_t i = 0; i < 2; i++)
        is_of_run = is_of_run || dcpk_checkpoint_object(ckpt, names[i]) != NULL;
    if (bridge == DCPK_PATH_FILE || !is_of_run)
        return DCPK_OK;
    for (size_t i = 0; i < 2; i++)
        if (dcpk_checkpoint_object(ckpt, names[i]) == NULL)
            return dcpk_fail(err, DCPK_EFORMAT,
                             "there is other state of a training run, but no object '%s', which "
                             "Megatron saves with it",
                             names[i]);
    return DCPK_OK;
}

#define DCPK_FSDP_CONTAINER                                                                        \
    .marks = dcpk_dcp_marks, .probe = fsdp_probe, .open = fsdp_open,                               \
    .check_whole = fsdp_check_whole, DCPK_DCP_CONTAINER

static const struct dcpk_format_mapping mapping = {
    .has_prefixes = true,
    .has_flat_buffers = true,
    .to_model = dcpk_fsdp_to_model,
    .from_model = dcpk_fsdp_from_model,
    .request = dcpk_fsdp_request,
    .optimizer_layout = dcpk_fsdp_optimizer_layout,
};

const struct dcpk_format dcpk_format_fsdp_dtensor = {
    .name = "fsdp_dtensor",
    .other_names = "fsdp megatron_fsdp",
    .summary = "Megatron-FSDP's checkpoint, core 0.14 to main",
    .mapping = &mapping,
    DCPK_FSDP_CONTAINER,
};

/* ---- the scheme torch_dcp (torch_dcp.c) ---- */

static bool torch_dcp_fits(struct dcpk_checkpoint *ckpt)
{
    return dcpk_fsdp_is_torch_dcp(ckpt);
}

static const struct dcpk_format_mapping torch_dcp_mapping = {
    .has_prefixes = true,
    .to_model = dcpk_fsdp_to_model,
    .optimizer_layout = dcpk_fsdp_optimizer_layout,
};

const struct dcpk_format dcpk_format_torch_dcp = {
    .name = "torch_dcp",
    .summary = "Megatron's state dict in DCP (--use-torch-fsdp2; read, not written)",
    .container = &dcpk_format_fsdp_dtensor,
    .fits = torch_dcp_fits,
    .mapping = &torch_dcp_mapping,
    DCPK_FSDP_CONTAINER,
};
