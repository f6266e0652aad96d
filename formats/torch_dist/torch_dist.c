/* SPDX-License-Identifier: Apache-2.0 */
/* torch_dist.c - Megatron's distributed checkpoint on top of torch's: metadata.json, common state,
 * generations. */
#include "formats/formats.h"

#include <string.h>

#include "formats/dcp/dcp.h"
#include "formats/megatron/megatron.h"
#include "formats/torch/item.h"
#include "formats/torch/pickle.h"
#include "lib/base/text.h"
#include "lib/model/model.h"
#include "lib/model/request.h"

#define COMMON_PT    "common.pt"
#define COMMON_STATE "common_state/shard_0_1"

/*
 * A readable metadata.json makes a folder Megatron's own (FORMAT.md 1); open checks the backend
 * that it names, so that an unknown one is refused by name.
 */
static dcpk_status td_probe(struct dcpk_store *store, int *score, struct dcpk_error *err)
{
    enum dcpk_path_kind kind = DCPK_PATH_NOTHING;

    if (dcpk_store_look(store, DCPK_MEGATRON_METADATA_JSON, &kind, err))
        return err->status;
    *score = 90 * (kind == DCPK_PATH_FILE);
    return DCPK_OK;
}

/* True if the optimizer's state is stored in the model's shape, under the names that 0.15 brought
 * (FORMAT.md 5.3). */
static bool is_reshardable(const struct dcpk_checkpoint *ckpt)
{
    static const char start[] = "optimizer.state.param.";

    for (size_t t = 0; t < ckpt->n_tensors; t++) {
        const char *key = ckpt->tensors[t].key;

        if (dcpk_starts_with(key, "chained_") && strchr(key, '.') != NULL)
            key = strchr(key, '.') + 1;
        if (dcpk_starts_with(key, start))
            return true;
    }
    return false;
}

static bool has_flattened(const struct dcpk_checkpoint *ckpt)
{
    for (size_t t = 0; t < ckpt->n_tensors; t++)
        if (dcpk_megatron_is_flattened(ckpt, &ckpt->tensors[t]))
            return true;
    return false;
}

/*
 * State of the description of contents in the common state. Megatron's training loop has the entry
 * since 0.13 (FORMAT.md 6); a program that saves without that loop may leave it out in any release.
 */
enum content { CONTENT_UNKNOWN, CONTENT_DESCRIBED, CONTENT_MISSING };

/* The common state, where it can be read; else NULL. */
static dcpk_status outline_common(struct dcpk_checkpoint *ckpt, struct dcpk_arena *arena,
                                  const struct dcpk_value **common, struct dcpk_error *err)
{
    struct dcpk_item_range range;
    struct dcpk_source *source;

    *common = NULL;
    if (!dcpk_store_find(ckpt->store, COMMON_PT, &source, err)) {
        range = dcpk_item_whole(source);
        if (!dcpk_item_read_outline(&range, arena, common, err))
            return DCPK_OK;
    }
    if (!dcpk_status_is_content(err->status))
        return err->status;
    dcpk_error_clear(err);
    return DCPK_OK;
}

/* Reads the pickle of common.pt alone. Its faults are reported by the command that needs it. */
static dcpk_status find_content(struct dcpk_checkpoint *ckpt, enum content *content,
                                struct dcpk_error *err)
{
    struct dcpk_arena *arena = dcpk_arena_new();
    const struct dcpk_value *common = NULL;

    *content = CONTENT_UNKNOWN;
    (void)outline_common(ckpt, arena, &common, err);
    if (dcpk_value_get(common, "content_metadata") != NULL)
        *content = CONTENT_DESCRIBED;
    else if (dcpk_value_get(common, "args") != NULL)
        *content = CONTENT_MISSING;
    dcpk_arena_free(arena);
    return err->status;
}

/*
 * Releases that write common.pt. Those before 0.15 mark .metadata, but lose mcore_data under torch
 * 2.9 and later, where 0.12 and older run only with a patch (FORMAT.md 2). The output of
 * modify-state-dict has that torch's form, too, and 0.15's own root class is not kept there.
 */
static struct dcpk_releases find_releases(const struct dcpk_checkpoint *ckpt, enum content content,
                                          bool is_flattened)
{
    const struct dcpk_dcp_info *info = ckpt->state;
    const bool is_new_torch = strcmp(info->torch_generation, "2.9+") == 0;
    const char *oldest = "core-0.11", *newest = "core-0.15";

    if (content == CONTENT_DESCRIBED)
        oldest = "core-0.13";
    if (content == CONTENT_MISSING)
        newest = "core-0.12";
    if (info->is_mcore_class)
        return (struct dcpk_releases){"core-0.15", "core-0.15"};
    if (info->has_mcore_data && info->has_planner_data)
        return (struct dcpk_releases){"core-0.8", "core-0.10"};
    if (info->has_mcore_data)
        return (struct dcpk_releases){oldest, newest};
    if (info->has_planner_data)
        return (struct dcpk_releases){"core-0.6", "core-0.10"};
    if (is_flattened && !is_new_torch && content != CONTENT_DESCRIBED)
        return (struct dcpk_releases){"core-0.8", newest};
    if (is_flattened && !is_new_torch)
        return (struct dcpk_releases){oldest, newest};
    if (!is_new_torch)
        return (struct dcpk_releases){"core-0.16", "core-0.18"};
    if (is_reshardable(ckpt))
        return (struct dcpk_releases){"core-0.15", "core-0.18"};
    if (content == CONTENT_MISSING)
        return (struct dcpk_releases){oldest, newest};
    return (struct dcpk_releases){oldest, is_flattened ? "core-0.14" : "core-0.18"};
}

/* The generations, by what is stored (FORMAT.md 1.1). */
static dcpk_status find_generation(struct dcpk_checkpoint *ckpt, enum dcpk_path_kind common_pt,
                                   struct dcpk_error *err)
{
    const struct dcpk_dcp_info *info = ckpt->state;
    const bool is_flattened = has_flattened(ckpt);
    const bool is_old = !info->is_mcore_class && (info->has_mcore_data || info->has_planner_data);
    enum content content = CONTENT_UNKNOWN;

    if (common_pt == DCPK_PATH_FILE && find_content(ckpt, &content, err) != DCPK_OK)
        return err->status;
    if (common_pt != DCPK_PATH_NOTHING) {
        ckpt->generation = is_flattened || is_old ? "A" : "B";
        ckpt->releases = find_releases(ckpt, content, is_flattened);
    } else if (dcpk_checkpoint_object(ckpt, COMMON_STATE) != NULL) {
        ckpt->generation = "C";
        ckpt->releases = (struct dcpk_releases){"core-0.19", NULL};
    } else {
        dcpk_checkpoint_note(ckpt, "there is neither " COMMON_PT " nor a common_state item: args, "
                                   "iteration and scheduler are missing");
    }
    return DCPK_OK;
}

static dcpk_status td_open(struct dcpk_checkpoint *ckpt, struct dcpk_error *err)
{
    enum dcpk_path_kind common_pt = DCPK_PATH_NOTHING;

    if (dcpk_megatron_check_backend(ckpt->store, DCPK_MEGATRON_METADATA_JSON, "torch_dist", err) ||
        dcpk_dcp_open(ckpt, ckpt->state, err) ||
        dcpk_store_look(ckpt->store, COMMON_PT, &common_pt, err))
        return err->status;
    return find_generation(ckpt, common_pt, err);
}

/* Both may be there: main then takes common.pt (FORMAT.md 1). */
static dcpk_status td_load_common(struct dcpk_checkpoint *ckpt, struct dcpk_arena *arena,
                                  const struct dcpk_value **value, struct dcpk_error *err)
{
    const struct dcpk_object *object = dcpk_checkpoint_object(ckpt, COMMON_STATE);
    const struct dcpk_value *v = NULL;

    if (dcpk_item_read_common(ckpt->store, COMMON_PT, arena, &v, err))
        return err->status;
    if (v == NULL && object != NULL) {
        if (dcpk_checkpoint_load_object(ckpt, object, arena, &v, err))
            return err->status;
        if (v->kind == DCPK_V_LIST)
            v = dcpk_value_at(v, 0);
        if (v != NULL && v->kind != DCPK_V_DICT)
            return dcpk_fail(err, DCPK_EFORMAT, "the common state is not a dict");
    }
    *value = v;
    return DCPK_OK;
}

/* Every release writes one of the two, and none loads a folder without (FORMAT.md 6). */
static dcpk_status td_check_whole(struct dcpk_checkpoint *ckpt, struct dcpk_error *err)
{
    enum dcpk_path_kind common_pt;

    if (dcpk_store_look(ckpt->store, COMMON_PT, &common_pt, err))
        return err->status;
    if (common_pt != DCPK_PATH_FILE && dcpk_checkpoint_object(ckpt, COMMON_STATE) == NULL)
        return dcpk_fail(
            err, DCPK_EFORMAT,
            "there is neither '" COMMON_PT "' nor an item '" COMMON_STATE
            "': args, iteration and scheduler are missing, no release of Megatron loads "
            "the folder (the copy is not whole)");
    return DCPK_OK;
}

/*
 * Every release reads common.pt, also those that no longer write it (FORMAT.md 6); generation C has
 * an item instead, which releases before 0.19 do not read.
 */
static bool wants(const struct dcpk_output *out, const char *generation)
{
    return out->target.generation != NULL && strcmp(out->target.generation, generation) == 0;
}

static dcpk_status put_common_item(struct dcpk_output *out, const struct dcpk_value *common,
                                   struct dcpk_error *err)
{
    const struct dcpk_value *list = dcpk_value_seq(out->arena, DCPK_V_LIST, &common, 1, err);
    uint32_t payload;

    if (list == NULL || dcpk_output_add_payload(out, list, NULL, &payload, err))
        return err->status;
    return dcpk_output_add_object(out, COMMON_STATE, payload, err);
}

/* common.pt, then metadata.json, which makes the folder a checkpoint: its text is Megatron's
 * (FORMAT.md 1.2). */
static dcpk_status put_files(struct dcpk_output *out, const struct dcpk_value *common,
                             struct dcpk_error *err)
{
    static const char with_item[] = "{\"sharded_backend\": \"torch_dist\", "
                                    "\"sharded_backend_version\": 1}";
    static const char with_file[] = "{\"sharded_backend\": \"torch_dist\", "
                                    "\"sharded_backend_version\": 1, "
                                    "\"common_backend\": \"torch\", \"common_backend_version\": 1}";
    const char *text = with_item;

    if (!wants(out, "C")) {
        text = with_file;
        if (dcpk_item_put_file(out, "common", common, err))
            return err->status;
    }
    return dcpk_output_put_small_file(out, DCPK_MEGATRON_METADATA_JSON, text, strlen(text), err);
}

static dcpk_status td_from_model(const struct dcpk_model *model, struct dcpk_output *out,
                                 struct dcpk_error *err)
{
    /* As Megatron writes it from 0.11 on (FORMAT.md 2). */
    static const struct dcpk_dcp_info form = {.has_planner_data = false},
                                      form_of_a = {.has_mcore_data = true};
    const struct dcpk_value *common;

    if (dcpk_megatron_from_model(model, out, DCPK_MEGATRON_RNG_BY_EVERY_RANK, &common, err))
        return err->status;
    out->common = common;
    out->form = &form;
    if (wants(out, "A"))
        out->form = &form_of_a;
    if (wants(out, "C") && put_common_item(out, common, err) != DCPK_OK)
        return err->status;
    return put_files(out, common, err);
}

/* The file is all that releases before core 0.19 read (FORMAT.md 6). */
static dcpk_status has_common_file(const struct dcpk_loading *loading, bool *has,
                                   struct dcpk_error *err)
{
    enum dcpk_path_kind kind = DCPK_PATH_NOTHING;

    if (loading->out != NULL) {
        *has = dcpk_output_has_small_file(loading->out, COMMON_PT);
        return DCPK_OK;
    }
    if (dcpk_store_look(loading->ckpt->store, COMMON_PT, &kind, err))
        return err->status;
    *has = kind != DCPK_PATH_NOTHING;
    return DCPK_OK;
}

static dcpk_status td_request(const struct dcpk_loading *loading, struct dcpk_error *err)
{
    bool has_file;

    if (has_common_file(loading, &has_file, err) || dcpk_megatron_request_backend(loading, err))
        return err->status;
    if (loading->common == NULL)
        return dcpk_request_fault(loading, DCPK_FOR_COMMON, DCPK_ALL_LOADERS, COMMON_PT,
                                  "is not there, nor an item '" COMMON_STATE "'", err);
    if ((!has_file &&
         dcpk_request_fault(loading, DCPK_FOR_COMMON,
                            dcpk_loaders_of(DCPK_CORE_0_15, DCPK_CORE_0_18), COMMON_PT,
                            "is not there: releases before core 0.19 read no other form of the "
                            "common state",
                            err)) ||
        (!has_file &&
         dcpk_request_object_named(loading, DCPK_FOR_COMMON,
                                   dcpk_loaders_of(DCPK_CORE_0_19, DCPK_MAIN), COMMON_STATE, err)))
        return err->status;
    return dcpk_megatron_request(loading, err);
}

static const struct dcpk_mark marks[] = {
    {DCPK_MARK_CHECKPOINT, ".metadata", NULL, NULL},
    {DCPK_MARK_CHECKPOINT, DCPK_MEGATRON_METADATA_JSON, NULL, NULL},
    {DCPK_MARK_PART, COMMON_PT, NULL, NULL},
    {0},
};

static const struct dcpk_format_mapping mapping = {
    .to_model = dcpk_megatron_to_model,
    .from_model = td_from_model,
    .request = td_request,
    .optimizer_layout = dcpk_megatron_optimizer_layout,
};

const struct dcpk_format dcpk_format_torch_dist = {
    .name = "torch_dist",
    .summary = "Megatron's distributed checkpoint (3D parallelism), core 0.6 to main",
    .marks = marks,
    .probe = td_probe,
    .open = td_open,
    .load_common = td_load_common,
    .check_whole = td_check_whole,
    .mapping = &mapping,
    DCPK_DCP_CONTAINER,
};
