/* SPDX-License-Identifier: Apache-2.0 */
/* stranger.c - recognises what people mistake for a checkpoint, by the names in a folder. */
#include "lib/ckpt/stranger.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/text.h"
#include "lib/ckpt/run.h"
#include "lib/ckpt/run_names.h"

#define MOST_FOLDERS 256 /* that are looked into */

/* megatron/training/checkpointing.py get_checkpoint_name @core_v0.19.0; --ckpt-convert-format is in
 * arguments.py of core 0.10 to main. */
static const char legacy[] =
    "it is of Megatron's old format 'torch', which is not read here: let Megatron load it and save "
    "it with --ckpt-convert-format torch_dist";
static const char hugging_face[] =
    "it is a Hugging Face model, which is not read here: import it into Megatron first";

/* A name that begins and ends so gives the folder away. Ordered: the first row that any name fits
 * is told. */
static const struct {
    const char *prefix, *suffix;
    const char *text;
} signs[] = {
    {"iter_", ".dcpkit-partial",
     "a conversion to it was cut short: convert --resume goes on with it"},
    {"mp_rank_", "", legacy},
    {"model_optim_rng", ".pt", legacy},
    {"__", ".distcp",
     "its data files have lost their .metadata: a copy of 'FOLDER/*' leaves hidden files out, and "
     "a save that was cut short has none"},
    {"", ".safetensors", hugging_face},
    {"", ".safetensors.index.json", hugging_face},
    {"pytorch_model", ".bin", hugging_face},
};

static const char *find_sign(char *const *names, size_t n)
{
    for (size_t s = 0; s < sizeof signs / sizeof *signs; s++)
        for (size_t i = 0; i < n; i++)
            if (dcpk_starts_with(names[i], signs[s].prefix) &&
                dcpk_ends_with(names[i], signs[s].suffix))
                return signs[s].text;
    return NULL;
}

/* Is there a file `name` in the folder `folder` of the store? */
static bool has(struct dcpk_store *store, const char *folder, const char *name)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    enum dcpk_path_kind kind = DCPK_PATH_NOTHING;
    char *path = dcpk_run_text(&err, "%s/%s", folder, name);

    if (path != NULL && dcpk_store_look(store, path, &kind, &err) != DCPK_OK)
        kind = DCPK_PATH_NOTHING;
    dcpk_free(path);
    return kind == DCPK_PATH_FILE;
}

/* The first folder in it that is a run, a checkpoint, or an array of a checkpoint in zarr (*array).
 */
static const char *find_inside(struct dcpk_store *store, char *const *names, size_t n, bool *array)
{
    for (size_t i = 0; i < n && i < MOST_FOLDERS; i++) {
        *array = has(store, names[i], ".zarray");
        if (*array || has(store, names[i], DCPK_TRACKER_NAME) ||
            has(store, names[i], ".metadata") || has(store, names[i], "metadata.json"))
            return names[i];
    }
    return NULL;
}

const char *dcpk_stranger_hint(struct dcpk_store *store, char text[DCPK_STRANGER_BYTES])
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    const char *sign, *inside;
    bool is_array = false;
    char **names;
    size_t n;

    text[0] = '\0';
    if (dcpk_store_list(store, &names, &n, &err) != DCPK_OK)
        return text;
    sign = find_sign(names, n);
    inside = sign == NULL ? find_inside(store, names, n, &is_array) : NULL;
    if (n == 0)
        snprintf(text, DCPK_STRANGER_BYTES, "; it is empty");
    else if (sign != NULL)
        snprintf(text, DCPK_STRANGER_BYTES, "; %s", sign);
    else if (is_array)
        snprintf(text, DCPK_STRANGER_BYTES,
                 "; its folder '%s' is an array in zarr, so a metadata.json is missing here: the "
                 "copy is not whole, or the save was cut short",
                 inside);
    else if (inside != NULL)
        snprintf(text, DCPK_STRANGER_BYTES, "; give a folder in it, such as '%s'", inside);
    dcpk_free(names);
    return text;
}
