/* SPDX-License-Identifier: Apache-2.0 */
/* verl_megatron.c - a step of verl's with Megatron: folders of torch_dist, and config.json in the
 * place of args. */
#include <stdio.h>
#include <string.h>

#include "formats/dcp/dcp.h"
#include "formats/formats.h"
#include "formats/megatron/megatron.h"
#include "formats/safetensors/hf_model.h"
#include "formats/torch/item.h"
#include "formats/torch/pickle.h"
#include "lib/base/alloc.h"
#include "lib/base/json.h"
#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/model/arg_table.h"

#define MANIFEST       "ckpt_contents.json"
#define SIZES          "transformer_config.json"
#define STEP           "global_step_"
#define WHOLE          "dist_ckpt/"
#define ITEM           "shard_0_1"
#define N_PARTS        3
#define MAX_JSON_BYTES (UINT64_C(16) << 20)
#define MAX_SAME_BYTES (UINT64_C(1) << 30)

/* The folders of schema 2 (FORMAT.md 6), and their entries in the manifest. */
static const struct {
    const char *folder, *name;
} parts[N_PARTS] = {
    {"model/dist_ckpt/", "model"},
    {"optimizer/dist_ckpt/", "optimizer"},
    {"extra/dist_ckpt/", "rng_state"},
};

struct verl_state {
    struct dcpk_dcp_info info; /* first: the container's */
    const char *folders[N_PARTS];
    size_t n;
    int64_t step, world; /* 0: not recorded */
};

/* ---- the folders ---- */

static const char *path_in(struct dcpk_arena *arena, const char *folder, const char *name,
                           struct dcpk_error *err)
{
    return dcpk_arena_printf(arena, err, "%s%s", folder, name);
}

static dcpk_status look_in(struct dcpk_checkpoint *ckpt, const char *folder, const char *name,
                           enum dcpk_path_kind *kind, struct dcpk_error *err)
{
    const char *path = path_in(ckpt->arena, folder, name, err);

    if (path == NULL)
        return err->status;
    return dcpk_store_look(ckpt->store, path, kind, err);
}

/* Sets *is if the first part and `folder` have the same .metadata: they are copies of one save. */
static dcpk_status is_copy(struct dcpk_checkpoint *ckpt, const char *folder, bool *is,
                           struct dcpk_error *err)
{
    const struct verl_state *state = ckpt->state;
    const char *folders[2] = {state->folders[0], folder};
    struct dcpk_source *source;
    char *data[2] = {NULL, NULL};
    size_t n[2];

    for (int i = 0; i < 2 && err->status == DCPK_OK; i++) {
        const char *path = path_in(ckpt->arena, folders[i], ".metadata", err);

        if (path != NULL && dcpk_store_find(ckpt->store, path, &source, err) == DCPK_OK)
            (void)dcpk_source_slurp(source, MAX_SAME_BYTES, &data[i], &n[i], err);
    }
    if (err->status == DCPK_OK)
        *is = n[0] == n[1] && memcmp(data[0], data[1], n[0]) == 0;
    dcpk_free(data[0]);
    dcpk_free(data[1]);
    return err->status;
}

/* Without a manifest: a folder that verl's script for older saves made, with copies of one. */
static dcpk_status find_migrated(struct dcpk_checkpoint *ckpt, struct dcpk_error *err)
{
    struct verl_state *state = ckpt->state;

    for (size_t i = 0; i < N_PARTS; i++) {
        enum dcpk_path_kind folder, file;
        bool is = false;

        if (look_in(ckpt, parts[i].folder, ".", &folder, err) ||
            look_in(ckpt, parts[i].folder, DCPK_MEGATRON_METADATA_JSON, &file, err))
            return err->status;
        if (file == DCPK_PATH_FILE) {
            if (state->n > 0 && is_copy(ckpt, parts[i].folder, &is, err))
                return err->status;
            if (!is)
                state->folders[state->n++] = parts[i].folder;
        } else if (folder == DCPK_PATH_FOLDER) {
            return dcpk_fail(err, DCPK_EFORMAT,
                             "there is no '" MANIFEST "', which verl writes last, and '%s' has no "
                             "metadata.json: the save was cut short",
                             parts[i].folder);
        }
    }
    return DCPK_OK;
}

/* The manifest's entry: the folder that it is in, if it is one of Megatron's. */
static dcpk_status take_entry(struct dcpk_checkpoint *ckpt, const struct dcpk_json *entry, size_t i,
                              struct dcpk_error *err)
{
    const char *path = dcpk_json_string(dcpk_json_member(entry, "path"));
    const char *format = dcpk_json_string(dcpk_json_member(entry, "format"));
    struct verl_state *state = ckpt->state;
    enum dcpk_path_kind kind;

    if (format == NULL || strcmp(format, "megatron_dist_checkpoint") != 0)
        return DCPK_OK;
    if (path == NULL || strlen(path) + 1 != strlen(parts[i].folder) ||
        !dcpk_starts_with(parts[i].folder, path))
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "'" MANIFEST "' has '%s' in another place than '%s'", parts[i].name,
                         parts[i].folder);
    if (look_in(ckpt, parts[i].folder, DCPK_MEGATRON_METADATA_JSON, &kind, err))
        return err->status;
    if (kind != DCPK_PATH_FILE)
        return dcpk_fail(err, DCPK_EFORMAT,
                         "'" MANIFEST "' has '%s' in '%s', and no metadata.json is there: the copy "
                         "is not whole, or Megatron-FSDP saved it, whose folder 'model/dist_ckpt' "
                         "is read by itself",
                         parts[i].name, parts[i].folder);
    state->folders[state->n++] = parts[i].folder;
    return DCPK_OK;
}

static dcpk_status find_listed(struct dcpk_checkpoint *ckpt, const struct dcpk_json *manifest,
                               struct dcpk_error *err)
{
    const struct dcpk_json *contents = dcpk_json_member(manifest, "contents");
    struct verl_state *state = ckpt->state;
    int64_t version = 0;

    if (!dcpk_json_int(dcpk_json_member(manifest, "schema_version"), &version) || version != 2)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "'" MANIFEST "' is not of schema_version 2");
    (void)dcpk_json_int(dcpk_json_member(manifest, "global_step"), &state->step);
    (void)dcpk_json_int(dcpk_json_member(manifest, "world_size"), &state->world);
    for (size_t i = 0; i < N_PARTS; i++) {
        const struct dcpk_json *entry = dcpk_json_member(contents, parts[i].name);

        /* The adapter of a model whose weights are Hugging Face's. */
        if (i == 0 && dcpk_json_member(contents, "peft_adapters") != NULL)
            entry = dcpk_json_member(contents, "peft_adapters");
        if (take_entry(ckpt, entry, i, err))
            return err->status;
    }
    return DCPK_OK;
}

static dcpk_status find_folders(struct dcpk_checkpoint *ckpt, struct dcpk_error *err)
{
    struct verl_state *state = ckpt->state;
    enum dcpk_path_kind whole, manifest;
    struct dcpk_json *doc = NULL;

    if (look_in(ckpt, WHOLE, DCPK_MEGATRON_METADATA_JSON, &whole, err) ||
        dcpk_store_look(ckpt->store, MANIFEST, &manifest, err))
        return err->status;
    if (whole == DCPK_PATH_FILE) {
        state->folders[state->n++] = WHOLE;
        return DCPK_OK;
    }
    if (manifest != DCPK_PATH_FILE)
        return find_migrated(ckpt, err);
    if (dcpk_json_read(ckpt->store, MANIFEST, MAX_JSON_BYTES, &doc, err))
        dcpk_context(err, "reading '" MANIFEST "'");
    else
        (void)find_listed(ckpt, doc, err);
    dcpk_json_free(doc);
    if (err->status == DCPK_OK && state->n == 0)
        (void)dcpk_fail(err, DCPK_EUNSUPPORTED,
                        "'" MANIFEST "' lists no folder of Megatron's: the model is in "
                        "'" DCPK_HF_IN_MODEL "'");
    return err->status;
}

/* Steps lie in folders "global_step_<number>", each with one for each model that is trained. */
static int64_t step_of_path(const char *path)
{
    int64_t step = 0;

    for (const char *at = path; (at = strstr(at, STEP)) != NULL;) {
        at += strlen(STEP);
        step = dcpk_max_i64(dcpk_take_number(&at), 0);
    }
    return step;
}

static dcpk_status verl_open_part(struct dcpk_checkpoint *ckpt, const char *folder,
                                  const char *part, struct dcpk_error *err)
{
    struct verl_state *state = ckpt->state;
    const char *backend = path_in(ckpt->arena, folder, DCPK_MEGATRON_METADATA_JSON, err);
    const char *metadata = path_in(ckpt->arena, folder, ".metadata", err);
    enum dcpk_path_kind kind;
    struct dcpk_source *source;

    if (backend == NULL || metadata == NULL ||
        dcpk_megatron_check_backend(ckpt->store, backend, "torch_dist", err))
        return err->status;
    if (dcpk_store_look(ckpt->store, metadata, &kind, err))
        return err->status;
    if (kind == DCPK_PATH_NOTHING)
        return dcpk_fail(err, DCPK_EFORMAT,
                         "there is no '%s': a copy of 'FOLDER/*' leaves hidden files out",
                         metadata);
    state->info.part = part;
    if (dcpk_store_find(ckpt->store, metadata, &source, err) ||
        dcpk_metadata_read(ckpt, source, &state->info, err))
        dcpk_context(err, "reading '%s'", metadata);
    return err->status;
}

static dcpk_status verl_open(struct dcpk_checkpoint *ckpt, struct dcpk_error *err)
{
    struct verl_state *state = ckpt->state;

    if (find_folders(ckpt, err))
        return err->status;
    if (state->step == 0)
        state->step = step_of_path(dcpk_store_path(ckpt->store));
    for (size_t i = 0; i < state->n; i++)
        if (verl_open_part(ckpt, state->folders[i], i == 0 ? NULL : state->folders[i], err))
            return err->status;
    return DCPK_OK;
}

/* ---- the common state ---- */

/* The item of the common state of a folder; NULL: there is none. */
static const struct dcpk_object *common_item(const struct dcpk_checkpoint *ckpt, size_t part)
{
    const struct verl_state *state = ckpt->state;
    char key[64];

    snprintf(key, sizeof key, "common_state/%s%s", part == 0 ? "" : state->folders[part], ITEM);
    return dcpk_checkpoint_object(ckpt, key);
}

static dcpk_status load_part(struct dcpk_checkpoint *ckpt, size_t part, struct dcpk_arena *arena,
                             const struct dcpk_value **value, struct dcpk_error *err)
{
    const struct verl_state *state = ckpt->state;
    const struct dcpk_object *item = common_item(ckpt, part);
    const char *path = path_in(arena, state->folders[part], "common.pt", err);

    *value = NULL;
    if (path == NULL || dcpk_item_read_common(ckpt->store, path, arena, value, err) ||
        *value != NULL || item == NULL)
        return err->status;
    if (dcpk_checkpoint_load_object(ckpt, item, arena, value, err))
        return err->status;
    if ((*value)->kind == DCPK_V_LIST)
        *value = dcpk_value_at(*value, 0);
    if (*value == NULL || (*value)->kind != DCPK_V_DICT)
        return dcpk_fail(err, DCPK_EFORMAT, "the common state of '%s' is not a dict",
                         state->folders[part]);
    return DCPK_OK;
}

/* The entries of a folder; several have the same content_metadata. The schedule has Megatron's
 * name: it is OptimizerParamScheduler's (verl/utils/megatron/optimizer.py@0.9.0). */
static void take_entries(struct dcpk_dict *made, const struct dcpk_value *common)
{
    for (size_t i = 0; common != NULL && i < common->n; i++) {
        const char *name = dcpk_value_as_str(common->as.pairs[i].key);

        if (name != NULL && strcmp(name, "lr_scheduler") == 0)
            name = "opt_param_scheduler";
        if (name != NULL && dcpk_dict_get(made, name) == NULL)
            dcpk_dict_put(made, name, common->as.pairs[i].value);
    }
}

static dcpk_status verl_load_common(struct dcpk_checkpoint *ckpt, struct dcpk_arena *arena,
                                    const struct dcpk_value **value, struct dcpk_error *err)
{
    const struct verl_state *state = ckpt->state;
    struct dcpk_dict made = {.arena = arena, .err = err};

    for (size_t i = 0; i < state->n; i++) {
        const struct dcpk_value *common;

        if (load_part(ckpt, i, arena, &common, err))
            return err->status;
        take_entries(&made, common);
    }
    if (dcpk_dict_get(&made, "iteration") == NULL)
        dcpk_dict_put(&made, "iteration", dcpk_value_int(arena, state->step, err));
    *value = dcpk_dict_end(&made);
    return dcpk_made(*value, err);
}

/* Every release writes one of the two (formats/torch_dist/FORMAT.md 6). */
static dcpk_status verl_check_whole(struct dcpk_checkpoint *ckpt, struct dcpk_error *err)
{
    const struct verl_state *state = ckpt->state;

    for (size_t i = 0; i < state->n; i++) {
        enum dcpk_path_kind kind;

        if (look_in(ckpt, state->folders[i], "common.pt", &kind, err))
            return err->status;
        if (kind != DCPK_PATH_FILE && common_item(ckpt, i) == NULL)
            return dcpk_fail(err, DCPK_EFORMAT,
                             "'%s' has neither common.pt nor an item of the common state: the copy "
                             "is not whole",
                             state->folders[i]);
    }
    return DCPK_OK;
}

/* ---- args ---- */

/* Sizes of the run in Megatron's TransformerConfig, which the layout of buckets depends on. */
static dcpk_status put_sizes(struct dcpk_dict *args, const struct dcpk_json *config,
                             struct dcpk_error *err)
{
    static const struct {
        const char *name, *arg;
    } sizes[] = {{"tensor_model_parallel_size", NULL},
                 {"pipeline_model_parallel_size", NULL},
                 {"virtual_pipeline_model_parallel_size", NULL},
                 {"context_parallel_size", NULL},
                 {"expert_model_parallel_size", NULL},
                 {"expert_tensor_parallel_size", NULL},
                 {"num_layers_in_first_pipeline_stage", "decoder_first_pipeline_num_layers"},
                 {"num_layers_in_last_pipeline_stage", "decoder_last_pipeline_num_layers"},
                 {"account_for_embedding_in_pipeline_split", NULL},
                 {"account_for_loss_in_pipeline_split", NULL},
                 {"moe_grouped_gemm", NULL}};

    for (size_t i = 0; i < DCPK_COUNT(sizes); i++) {
        const struct dcpk_json *member = dcpk_json_member(config, sizes[i].name);

        if (member != NULL && dcpk_json_kind(member) != DCPK_JSON_NULL)
            dcpk_dict_put(args, dcpk_text_or(sizes[i].arg, sizes[i].name),
                          dcpk_hf_value(args->arena, member, err));
    }
    return err->status;
}

/* Ranks of the run: by the manifest; without it, where each rank has saved its part of buckets, by
 * the files "__<rank>_<number>.distcp". 0: not known. */
static int64_t count_ranks(const struct dcpk_checkpoint *ckpt)
{
    const struct verl_state *state = ckpt->state;
    int64_t n_ranks = state->world;
    bool has_buckets = false;

    for (size_t t = 0; t < ckpt->n_tensors && !has_buckets; t++)
        has_buckets = strstr(ckpt->tensors[t].key, ".bucket_idx_") != NULL;
    if (state->world > 0 || !has_buckets)
        return n_ranks;
    for (size_t i = 0; i < ckpt->n_files; i++) {
        const char *at = dcpk_name_last(dcpk_source_name(ckpt->files[i]));

        if (dcpk_starts_with(at, "__")) {
            at += strlen("__");
            n_ranks = dcpk_max_i64(n_ranks, dcpk_take_number(&at) + 1);
        }
    }
    return n_ranks;
}

static bool has_mtp(const struct dcpk_checkpoint *ckpt)
{
    for (size_t t = 0; t < ckpt->n_tensors; t++)
        if (dcpk_starts_with(ckpt->tensors[t].key, "mtp."))
            return true;
    return false;
}

/* Puts facts about the run that the folder has, and config.json has not. */
static dcpk_status put_stored(struct dcpk_checkpoint *ckpt, struct dcpk_dict *args,
                              struct dcpk_error *err)
{
    const struct dcpk_tensor *embedding = dcpk_checkpoint_tensor(ckpt, DCPK_HF_EMBEDDING);
    struct dcpk_json *config = NULL;
    enum dcpk_path_kind kind;

    if (dcpk_store_look(ckpt->store, SIZES, &kind, err))
        return err->status;
    if (kind == DCPK_PATH_FILE && dcpk_json_read(ckpt->store, SIZES, MAX_JSON_BYTES, &config, err))
        return dcpk_context(err, "reading '" SIZES "'");
    (void)put_sizes(args, config, err);
    dcpk_json_free(config);
    if (count_ranks(ckpt) > 0)
        dcpk_dict_put(args, "world_size", dcpk_value_int(args->arena, count_ranks(ckpt), err));
    if (embedding != NULL && embedding->rank == 2)
        dcpk_dict_put(args, "padded_vocab_size",
                      dcpk_value_int(args->arena, embedding->shape[0], err));
    if (!has_mtp(ckpt))
        dcpk_dict_put(args, "mtp_num_layers", dcpk_value_none());
    return err->status;
}

/* Args by config.json, with what is stored in their place, and with what the caller has given. */
static dcpk_status find_args(struct dcpk_checkpoint *ckpt, struct dcpk_error *err)
{
    const struct dcpk_tensor *embedding = dcpk_checkpoint_tensor(ckpt, DCPK_HF_EMBEDDING);
    const bool has_lm_head = dcpk_checkpoint_tensor(ckpt, DCPK_HF_OUTPUT_LAYER) != NULL;
    struct dcpk_dict stored = {.arena = ckpt->arena, .err = err}, made = stored;
    const struct dcpk_value *args, *pairs;
    enum dcpk_dtype dtype = DCPK_DTYPE_NONE;

    if (embedding != NULL)
        dtype = embedding->dtype;
    if (dcpk_hf_find_args(ckpt, has_lm_head, dtype, &args, err) || put_stored(ckpt, &stored, err))
        return err->status;
    if (args == NULL && ckpt->given.args == NULL)
        return dcpk_fail_fix(err, DCPK_EUNSUPPORTED, DCPK_FIX_CONFIG | DCPK_FIX_ARGS,
                             "verl saves no args of Megatron's, and no config.json is in "
                             "'" DCPK_HF_INNER "' or '" DCPK_HF_IN_MODEL "'");
    pairs = dcpk_value_attrs(args);
    for (size_t i = 0; pairs != NULL && i < pairs->n; i++) {
        const char *name = dcpk_value_as_str(pairs->as.pairs[i].key);

        if (name != NULL && dcpk_dict_get(&stored, name) == NULL)
            dcpk_dict_put(&made, name, pairs->as.pairs[i].value);
    }
    dcpk_dict_put_all(&made, dcpk_dict_end(&stored));
    if (err->status != DCPK_OK)
        return err->status;
    args = dcpk_value_namespace(ckpt->arena, made.pairs, made.n, err);
    if (args == NULL || dcpk_args_merge_given(ckpt, ckpt->arena, &args, err))
        return err->status;
    ckpt->given.args = args;
    return DCPK_OK;
}

/* verl's usual save has the weights with Hugging Face's names next to Megatron's optimizer. */
static dcpk_status check_weights(const struct dcpk_checkpoint *ckpt, struct dcpk_error *err)
{
    const struct verl_state *state = ckpt->state;
    const bool is_whole = strcmp(state->folders[0], WHOLE) == 0;

    for (size_t t = 0; t < ckpt->n_tensors; t++)
        if (strstr(ckpt->tensors[t].key, "optimizer.") == NULL)
            return DCPK_OK;
    return dcpk_fail(err, DCPK_EUNSUPPORTED,
                     "no weights are in Megatron's folders: they have Hugging Face's names, in "
                     "'%s', which is read by itself; an optimizer of Megatron's is not read with "
                     "them",
                     is_whole ? DCPK_HF_INNER : DCPK_HF_IN_MODEL);
}

static dcpk_status verl_megatron_to_model(struct dcpk_checkpoint *ckpt, struct dcpk_model *model,
                                          struct dcpk_error *err)
{
    if (check_weights(ckpt, err) || find_args(ckpt, err) ||
        dcpk_megatron_to_model(ckpt, model, err) || dcpk_hf_put_command_line(model, err))
        return err->status;
    if (model->scheduler != NULL)
        dcpk_checkpoint_note_once(ckpt,
                                  "opt_param_scheduler: verl's counts steps, and Megatron-LM's "
                                  "counts samples: let the run override it");
    return DCPK_OK;
}

/* ---- the row ---- */

static const struct dcpk_mark marks[] = {
    {DCPK_MARK_CHECKPOINT, MANIFEST, NULL, NULL},
    {DCPK_MARK_CHECKPOINT, WHOLE DCPK_MEGATRON_METADATA_JSON, NULL, NULL},
    {DCPK_MARK_CHECKPOINT, "model/" WHOLE DCPK_MEGATRON_METADATA_JSON, NULL, NULL},
    {0},
};

static dcpk_status verl_probe(struct dcpk_store *store, int *score, struct dcpk_error *err)
{
    enum dcpk_path_kind kind = DCPK_PATH_NOTHING;

    for (size_t i = 0; marks[i].start != NULL && kind != DCPK_PATH_FILE; i++)
        if (dcpk_store_look(store, marks[i].start, &kind, err))
            return err->status;
    *score = 80 * (kind == DCPK_PATH_FILE);
    return DCPK_OK;
}

static const struct dcpk_format_mapping mapping = {
    .to_model = verl_megatron_to_model,
    .load_config = dcpk_hf_load_config,
    .optimizer_layout = dcpk_megatron_optimizer_layout,
};

const struct dcpk_format dcpk_format_verl_megatron = {
    .name = "verl_megatron",
    .summary = "a step of verl's with Megatron: model, optimizer and RNG states (read only)",
    .marks = marks,
    .is_nested = true,
    .state_bytes = sizeof(struct verl_state),
    .is_known = dcpk_pickle_is_known,
    .probe = verl_probe,
    .open = verl_open,
    .load_common = verl_load_common,
    .check_whole = verl_check_whole,
    .reader = &dcpk_dcp_reader,
    .mapping = &mapping,
};
