/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_model.c - any keys, shapes and common state as a model: a plan in which every byte has its
 * place, or an error. */
/*
 * The input: which formats and rules (a letter each), a newline, a small checkpoint
 * (tests/fuzz/listed.h).
 */
#include "formats/formats.h"
#include "lib/plan/plan.h"
#include "lib/rules/rules.h"
#include "tests/fuzz/listed.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

/* What the letters say. */
struct choice {
    const char *from, *to;
    struct dcpk_rule_options rules;
    struct dcpk_target target;
};

static struct choice choose(const uint8_t *letters)
{
    static const char *const names[] = {"torch_dist", "fsdp_dtensor", "zarr"};
    struct choice c = {.from = names[letters[0] % 2], .to = names[letters[1] % 3]};

    c.rules.impl = letters[2] % 3 == 1   ? DCPK_IMPL_TE
                   : letters[2] % 3 == 2 ? DCPK_IMPL_LOCAL
                                         : c.rules.impl;
    c.rules.swiglu = letters[2] & 8 ? DCPK_SWIGLU_OFF : DCPK_SWIGLU_AUTO;
    if (letters[2] & 16)
        c.rules.mesh.tp = 2;
    if (letters[2] & 32)
        c.rules.mesh.pp = 2;
    c.target.mesh = c.rules.mesh;
    c.target.generation = letters[1] & 8 && strcmp(c.to, "torch_dist") == 0 ? "C" : NULL;
    return c;
}

/* A plan that was made has each chunk in one of its files. */
static void check_plan(const struct dcpk_output *out)
{
    for (size_t i = 0; i < out->n_chunks; i++) {
        const struct dcpk_out_chunk *chunk = &out->chunks[i];
        const uint64_t file_bytes =
            chunk->file < out->n_files ? out->files[chunk->file].n_bytes : 0;

        if (chunk->file >= out->n_files || chunk->tensor >= out->n_tensors ||
            chunk->offset_bytes > file_bytes ||
            chunk->lead_bytes + chunk->data_bytes + chunk->tail_bytes >
                file_bytes - chunk->offset_bytes)
            abort();
    }
}

static void convert(struct dcpk_checkpoint *ckpt, const struct choice *choice)
{
    const struct dcpk_format *from = dcpk_format_find(choice->from);
    const struct dcpk_format *to = dcpk_format_find(choice->to);
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_model *model = NULL;
    struct dcpk_output *out = NULL;
    dcpk_status st = dcpk_model_new(ckpt, &model, &err);

    if (st == DCPK_OK)
        st = dcpk_output_new(ckpt, to, &out, &err);
    if (st != DCPK_OK)
        abort();
    out->target = choice->target;
    st = from->mapping->to_model(ckpt, model, &err);
    if (st == DCPK_OK)
        st = dcpk_rules_apply(model, &choice->rules, &err);
    if (st == DCPK_OK)
        st = to->mapping->from_model(model, out, &err);
    if (st == DCPK_OK)
        st = dcpk_plan_build(out, &err);
    if (st == DCPK_OK)
        check_plan(out);
    else if (err.text[0] == '\0')
        abort();
    dcpk_output_free(out);
    dcpk_model_free(model);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    /* Only torch_dist has its common state outside of objects. */
    static const struct dcpk_format megatron = {LISTED_FORMAT, .load_common = listed_common};
    static const struct dcpk_format fsdp = {LISTED_FORMAT};
    struct dcpk_checkpoint *ckpt;
    struct choice choice;

    if (n_bytes < 4 || data[3] != '\n')
        return 0;
    choice = choose(data);
    ckpt = listed_checkpoint(strcmp(choice.from, "torch_dist") == 0 ? &megatron : &fsdp, data + 4,
                             n_bytes - 4);
    if (ckpt != NULL)
        convert(ckpt, &choice);
    dcpk_checkpoint_close(ckpt);
    return 0;
}
