/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_hf_map.c - any map with any config.json and tensors: a model and a plan of it in which every
 * byte has its place, or an error. */
/*
 * The input: a line of two letters, which format the model goes to and what is asked for beside; a
 * map, to the next empty line; config.json, the same; tensors (tests/hf_folder.h).
 */
#include "formats/safetensors/hf_model.h"
#include "lib/plan/plan.h"
#include "lib/rules/rules.h"
#include "tests/fuzz/fuzz_text.h"
#include "tests/hf_folder.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

#define MAX_MAP_BYTES ((size_t)16 << 10)

/* The only map that is built in is that of the input, spaces behind it (hf_map.h). */
static char map_text[MAX_MAP_BYTES];
const struct dcpk_hf_built_in dcpk_hf_built_in[] = {{"input.json", map_text, sizeof map_text}};
const size_t dcpk_hf_n_built_in = 1;

/* The part of a text before the next empty line, which *rest then begins behind. */
static char *take_part(char **rest)
{
    char *part = *rest, *end = strstr(part, "\n\n");

    *rest = end == NULL ? part + strlen(part) : end + 2;
    if (end != NULL)
        *end = '\0';
    return part;
}

/* --- the conversion --- */

/* Bits of the second letter: from P on names lie in another container, and from X on the model
 * stays one of the family. */
enum { WITHOUT_MTP = 1, OF_FAMILY = 8, IN_CONTAINER = 16 };

/* Each chunk lies in one of the files. */
static void check_plan(const struct dcpk_output *out)
{
    for (size_t i = 0; i < out->n_chunks; i++) {
        const struct dcpk_out_chunk *chunk = &out->chunks[i];

        if (chunk->file >= out->n_files || chunk->tensor >= out->n_tensors ||
            chunk->offset_bytes + chunk->lead_bytes + chunk->data_bytes + chunk->tail_bytes >
                out->files[chunk->file].n_bytes)
            abort();
    }
}

static void convert(struct dcpk_checkpoint *ckpt, const uint8_t *letters)
{
    static const char *const names[] = {"huggingface", "torch_dist", "fsdp_dtensor", "zarr"};
    const struct dcpk_format *to = dcpk_format_find(names[letters[0] % 4]);
    const struct dcpk_rule_options rules = {.impl = DCPK_IMPL_TE, .vocab.divisible_by = 8};
    const struct dcpk_format *format = ckpt->format;
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_format contained;
    struct dcpk_model *model = NULL;
    struct dcpk_output *out = NULL;

    if (dcpk_model_new(ckpt, &model, &err) || dcpk_output_new(ckpt, to, &out, &err))
        abort();
    ckpt->given.family.without_mtp = (letters[1] & WITHOUT_MTP) != 0;
    contained = *ckpt->format;
    contained.container = dcpk_format_find("dcp");
    if ((letters[1] & IN_CONTAINER) != 0)
        ckpt->format = &contained;
    if ((letters[1] & IN_CONTAINER) != 0 && (letters[1] & OF_FAMILY) != 0)
        model->flags |= DCPK_MODEL_OF_FAMILY;
    out->target.family = ckpt->given.family;
    out->target.mesh = rules.mesh;
    if (ckpt->format->mapping->to_model(ckpt, model, &err) == DCPK_OK &&
        (letters[0] % 4 == 0 || dcpk_rules_apply(model, &rules, &err) == DCPK_OK) &&
        to->mapping->from_model(model, out, &err) == DCPK_OK &&
        dcpk_plan_build(out, &err) == DCPK_OK)
        check_plan(out);
    else if (err.text[0] == '\0')
        abort();
    dcpk_output_free(out);
    dcpk_model_free(model);
    ckpt->format = format;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_bytes file = {0};
    struct dcpk_checkpoint *ckpt = NULL;
    char *text, *rest;
    const char *map, *config;

    if (n_bytes < 3 || data[2] != '\n' || n_bytes > MAX_MAP_BYTES)
        return 0;
    text = fuzz_text(data, n_bytes);
    rest = text + 3;
    map = take_part(&rest);
    config = take_part(&rest);
    memset(map_text, ' ', sizeof map_text);
    memcpy(map_text, map, strlen(map));
    if (hf_folder_file(rest, &file))
        ckpt = hf_folder_open(config, &file, &err);
    if (ckpt == NULL && err.status != DCPK_OK && err.text[0] == '\0')
        abort();
    if (ckpt != NULL)
        convert(ckpt, data);
    dcpk_checkpoint_close(ckpt);
    dcpk_bytes_release(&file);
    free(text);
    return 0;
}
