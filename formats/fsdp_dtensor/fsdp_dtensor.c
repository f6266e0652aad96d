/* SPDX-License-Identifier: Apache-2.0 */
/* fsdp_dtensor.c - Megatron-FSDP's checkpoint on top of torch's: the row and its probe. */
#include <string.h>

#include "formats/dcp/dcp.h"
#include "formats/fsdp_dtensor/fsdp_dtensor_priv.h"
#include "lib/base/alloc.h"
#include "lib/base/text.h"

#define PROBE_BYTES   (64u << 10)
#define BRIDGE_CONFIG "run_config.yaml" /* of Megatron-Bridge */

/*
 * A .metadata without metadata.json (which would make Megatron read it as torch_dist,
 * fsdp_dtensor.md section 2), and a key of a model or of parameter groups near its start.
 */
static dcpk_status fd_probe(struct dcpk_store *store, int *score, struct dcpk_error *err)
{
    enum dcpk_path_kind metadata_json;
    struct dcpk_source *source;
    uint64_t n_bytes;
    bool is_folder;
    char *head;
    dcpk_status st;

    *score = 0;
    if (dcpk_store_look(store, "metadata.json", &metadata_json, err) != DCPK_OK ||
        dcpk_dcp_is_folder(store, &is_folder, err) != DCPK_OK)
        return err->status;
    if (metadata_json == DCPK_PATH_FILE || !is_folder)
        return DCPK_OK;
    if (dcpk_store_find(store, ".metadata", &source, err) != DCPK_OK)
        return err->status;
    n_bytes = dcpk_source_bytes(source);
    if (n_bytes > PROBE_BYTES)
        n_bytes = PROBE_BYTES;
    head = dcpk_alloc((size_t)n_bytes, err);
    if (head == NULL)
        return err->status;
    st = dcpk_source_read(source, 0, head, (size_t)n_bytes, err);
    if (st == DCPK_OK && (memmem(head, (size_t)n_bytes, FD_MODEL, strlen(FD_MODEL)) != NULL ||
                          memmem(head, (size_t)n_bytes, FD_GROUP, strlen(FD_GROUP)) != NULL))
        *score = 80;
    dcpk_free(head);
    return st;
}

static dcpk_status fd_open(struct dcpk_checkpoint *ckpt, struct dcpk_error *err)
{
    struct dcpk_dcp_info info = {0};

    return dcpk_dcp_open(ckpt, &info, err);
}

/* Does the checkpoint hold an object whose key begins so? */
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
 * scheduler, and not all has lost some. Weights alone have none. Megatron-Bridge keeps what args
 * and iteration say in a file of its own.
 */
static dcpk_status fd_check_whole(struct dcpk_checkpoint *ckpt, struct dcpk_error *err)
{
    static const char *const names[] = {"args", "iteration"};
    enum dcpk_path_kind bridge;
    dcpk_status st = dcpk_store_look(ckpt->store, BRIDGE_CONFIG, &bridge, err);
    bool is_of_run = dcpk_checkpoint_object(ckpt, "checkpoint_version") != NULL ||
                     has_object_below(ckpt, "opt_param_scheduler");

    for (size_t i = 0; i < 2; i++)
        is_of_run = is_of_run || dcpk_checkpoint_object(ckpt, names[i]) != NULL;
    if (st != DCPK_OK || bridge == DCPK_PATH_FILE || !is_of_run)
        return st;
    for (size_t i = 0; i < 2; i++)
        if (dcpk_checkpoint_object(ckpt, names[i]) == NULL)
            return dcpk_fail(err, DCPK_EFORMAT,
                             "there is other state of a training run, but no object '%s', which "
                             "Megatron saves with it",
                             names[i]);
    return DCPK_OK;
}

const struct dcpk_format dcpk_format_fsdp_dtensor = {
    .name = "fsdp_dtensor",
    .summary = "Megatron-FSDP's checkpoint, core 0.14 to main",
    .changed_by = "--target-dp or --make-vocab-size-divisible-by",
    .state_bytes = 0,
    .probe = fd_probe,
    .open = fd_open,
    .locate = dcpk_dcp_locate,
    .load_object = dcpk_dcp_load_object,
    .outline_object = dcpk_dcp_outline_object,
    .each_record = dcpk_dcp_each_record,
    .check_whole = fd_check_whole,
    .to_model = dcpk_fsdp_to_model,
    .from_model = dcpk_fsdp_from_model,
    .lay_out = dcpk_dcp_lay_out,
    .frame = dcpk_dcp_frame,
    .encode = dcpk_dcp_encode,
    .write_ahead = dcpk_dcp_write_ahead,
    .finish = dcpk_dcp_finish,
    .container = &dcpk_format_dcp,
};
