/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors.c - the format row: how a folder of safetensors files is known. */
#include "formats/formats.h"

#include <string.h>

#include "formats/safetensors/hf_model.h"
#include "formats/safetensors/safetensors_header.h"
#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/base/text.h"

/* A folder that is another format's may hold such files next to its own: theirs score higher. */
#define SCORE 80

dcpk_status dcpk_safetensors_probe(struct dcpk_store *store, int *score, struct dcpk_error *err)
{
    static const char *const sure[] = {DCPK_SAFETENSORS_INDEX, DCPK_SAFETENSORS_SINGLE};
    enum dcpk_path_kind kind;
    char **names = NULL;
    size_t n = 0;

    *score = 0;
    for (size_t i = 0; i < DCPK_COUNT(sure); i++) {
        if (dcpk_store_look(store, sure[i], &kind, err))
            return err->status;
        if (kind == DCPK_PATH_FILE) {
            *score = SCORE;
            return DCPK_OK;
        }
    }
    if (dcpk_store_list(store, &names, &n, err))
        return err->status;
    for (size_t i = 0; i < n; i++)
        if (dcpk_ends_with(names[i], DCPK_SAFETENSORS_ENDING))
            *score = SCORE;
    dcpk_free(names);
    return DCPK_OK;
}

/* True for files that belong to the tensors, also those that the index does not name. */
static bool safetensors_is_own(const struct dcpk_checkpoint *ckpt, const char *name)
{
    (void)ckpt;
    return strcmp(name, DCPK_SAFETENSORS_INDEX) == 0 ||
           dcpk_ends_with(name, DCPK_SAFETENSORS_ENDING);
}

/* There are no objects, so no class is known. */
bool dcpk_safetensors_is_known(const char *module, const char *name)
{
    (void)module;
    (void)name;
    return false;
}

const struct dcpk_format_reader dcpk_safetensors_reader = {
    .locate = dcpk_safetensors_locate,
    .is_own = safetensors_is_own,
};

/* Carries over the remarks that the files' writer left in them. */
static void safetensors_inherit(struct dcpk_output *out)
{
    out->form = out->source->state;
}

const struct dcpk_format_editor dcpk_safetensors_editor = {.rewrites = true,
                                                           .inherit = safetensors_inherit};

/* A model is its weights: what trained them is not known. */
static const struct dcpk_format_mapping mapping = {.writes_adapter = true,
                                                   .to_model = dcpk_hf_to_model,
                                                   .from_model = dcpk_hf_from_model,
                                                   .load_config = dcpk_hf_load_config,
                                                   .check_class = dcpk_hf_class_check};

static const struct dcpk_mark marks[] = {
    {DCPK_MARK_CHECKPOINT, DCPK_SAFETENSORS_INDEX, NULL, NULL},
    {DCPK_MARK_CHECKPOINT, DCPK_SAFETENSORS_SINGLE, NULL, NULL},
    {DCPK_MARK_PART, "shard-", DCPK_SAFETENSORS_ENDING,
     "its files are parts of tensors, which torch's HuggingFaceStorageWriter saved, and are not "
     "read: join them with torch's consolidate_safetensors_files"},
    {DCPK_MARK_PART, "model-", DCPK_SAFETENSORS_ENDING,
     "its files have lost their " DCPK_SAFETENSORS_INDEX ": the copy is not whole; one file can be "
     "given by its own path"},
    {DCPK_MARK_PART, "", DCPK_SAFETENSORS_ENDING, NULL},
    {DCPK_MARK_OTHER, "pytorch_model", ".bin",
     "it is a Hugging Face model in pickles, which are not read: save it as safetensors first"},
    {0},
};

const struct dcpk_format dcpk_format_safetensors = {
    .name = "safetensors",
    .other_names = "huggingface hugging_face hf",
    .summary = "a folder of safetensors files, as Hugging Face models have, or one such file",
    .marks = marks,
    .file_ending = DCPK_SAFETENSORS_ENDING,
    .mapping = &mapping,
    DCPK_SAFETENSORS_CONTAINER,
};
