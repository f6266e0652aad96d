/* SPDX-License-Identifier: Apache-2.0 */
/* hub.c - the rows of Hugging Face's and torchtitan's names on DCP, and how keys show them. */
#include "formats/formats.h"

#include <inttypes.h>
#include <string.h>

#include "formats/dcp/dcp.h"
#include "formats/fsdp_shards/fsdp_shards.h"
#include "formats/safetensors/hf_model.h"
#include "formats/torch/pickle.h"
#include "lib/base/order.h"
#include "lib/base/text.h"

/* Keys that show whose names they are. */
struct signs {
    const char *names[3];  /* of the embedding; NULL: no further one */
    const char *layers[2]; /* before the number of a layer; the same */
    const char *text;
};

static const struct signs hf = {{"embed_tokens.weight", "wte.weight", "embeddings.weight"},
                                {".layers.", ".h."},
                                "Hugging Face's names in a checkpoint of FSDP2 or dcp.save"};
static const struct signs verl = {{"embed_tokens.weight", "wte.weight", "embeddings.weight"},
                                  {".layers.", ".h."},
                                  "Hugging Face's names in shards of FSDP"};
static const struct signs titan = {{"tok_embeddings.weight"}, {"layers."}, "torchtitan's names"};

/* The number of layers that the key proves. */
static int64_t layers_by(const char *key, const struct signs *signs)
{
    int64_t most = -1;

    for (size_t i = 0; i < DCPK_COUNT(signs->layers) && signs->layers[i] != NULL; i++) {
        const char *at = strstr(key, signs->layers[i]);

        if (at == NULL)
            continue;
        at += strlen(signs->layers[i]);
        most = dcpk_max_i64(most, dcpk_take_number(&at));
    }
    return most + 1;
}

/* True, with a note of the sizes, where a key ends with the embedding's name. */
static bool signs_fit(struct dcpk_checkpoint *ckpt, const struct signs *signs)
{
    const struct dcpk_tensor *embedding = NULL;
    int64_t n_layers = 0;

    for (size_t t = 0; t < ckpt->n_tensors; t++) {
        const char *key = ckpt->tensors[t].key;

        n_layers = dcpk_max_i64(n_layers, layers_by(key, signs));
        for (size_t i = 0; i < DCPK_COUNT(signs->names) && embedding == NULL; i++)
            if (signs->names[i] != NULL && dcpk_hf_name_in(key, signs->names[i]) != NULL &&
                ckpt->tensors[t].rank == 2)
                embedding = &ckpt->tensors[t];
    }
    if (embedding == NULL)
        return false;
    dcpk_checkpoint_note(
        ckpt, "%s: %" PRId64 " layers, hidden %" PRId64 ", %" PRId64 " rows of the vocabulary",
        signs->text, n_layers, embedding->shape[1], embedding->shape[0]);
    return true;
}

static bool hf_fits(struct dcpk_checkpoint *ckpt)
{
    return signs_fit(ckpt, &hf);
}

/* An adapter that was saved alone, too, which is taken out or refused by name. */
static bool verl_fits(struct dcpk_checkpoint *ckpt)
{
    return signs_fit(ckpt, &verl) || dcpk_lora_find(ckpt) != NULL;
}

static bool titan_fits(struct dcpk_checkpoint *ckpt)
{
    return signs_fit(ckpt, &titan);
}

static dcpk_status hub_probe(struct dcpk_store *store, int *score, struct dcpk_error *err)
{
    return dcpk_format_dcp.probe(store, score, err);
}

static dcpk_status hub_open(struct dcpk_checkpoint *ckpt, struct dcpk_error *err)
{
    return dcpk_dcp_open(ckpt, ckpt->state, err);
}

/* accelerate's and NeMo-RL's prefix; torchtitan has none, and fields of groups by parameter. */
static const struct dcpk_hf_scheme hf_scheme = {.name = NULL, .prefix = "model"};
static const struct dcpk_hf_scheme titan_scheme = {"torchtitan", "", true};

/* An adapter is merged where the caller asks for it, or goes along; the base alone is read only
 * where the caller drops its keys. */
static dcpk_status check_adapter(const struct dcpk_checkpoint *ckpt, struct dcpk_error *err)
{
    const struct dcpk_tensor *first = dcpk_lora_find(ckpt);

    if (first == NULL || ckpt->given.lora.merges || ckpt->given.lora.goes_along)
        return DCPK_OK;
    return dcpk_fail_fix(err, DCPK_EUNSUPPORTED, DCPK_FIX_LORA | DCPK_FIX_DROP,
                         "'%s' belongs to an adapter (LoRA); the keys without 'lora_' are its "
                         "model, and a conversion to huggingface writes both",
                         first->key);
}

static dcpk_status hf_to_model(struct dcpk_checkpoint *ckpt, struct dcpk_model *model,
                               struct dcpk_error *err)
{
    if (check_adapter(ckpt, err))
        return err->status;
    return dcpk_hf_scheme_to_model(ckpt, hf_scheme.name, model, err);
}

static dcpk_status titan_to_model(struct dcpk_checkpoint *ckpt, struct dcpk_model *model,
                                  struct dcpk_error *err)
{
    return dcpk_hf_scheme_to_model(ckpt, titan_scheme.name, model, err);
}

static dcpk_status hf_from_model(const struct dcpk_model *model, struct dcpk_output *out,
                                 struct dcpk_error *err)
{
    return dcpk_hf_scheme_from_model(model, out, &hf_scheme, err);
}

static dcpk_status titan_from_model(const struct dcpk_model *model, struct dcpk_output *out,
                                    struct dcpk_error *err)
{
    return dcpk_hf_scheme_from_model(model, out, &titan_scheme, err);
}

/* State of an optimizer has keys of its parameters. */
static const char *hub_optimizer_layout(const struct dcpk_checkpoint *ckpt,
                                        const struct dcpk_value *common)
{
    (void)common;
    for (size_t t = 0; t < ckpt->n_tensors; t++)
        if (dcpk_ends_with(ckpt->tensors[t].key, ".exp_avg"))
            return "model-shaped";
    return "none";
}

static const struct dcpk_format_mapping hf_mapping = {.has_prefixes = true,
                                                      .to_model = hf_to_model,
                                                      .from_model = hf_from_model,
                                                      .optimizer_layout = hub_optimizer_layout};
static const struct dcpk_format_mapping titan_mapping = {.has_prefixes = true,
                                                         .to_model = titan_to_model,
                                                         .from_model = titan_from_model,
                                                         .optimizer_layout = hub_optimizer_layout};

/* A tensor that no mesh spreads is read from the first file: all have the same bytes. */
static dcpk_status verl_to_model(struct dcpk_checkpoint *ckpt, struct dcpk_model *model,
                                 struct dcpk_error *err)
{
    const struct dcpk_shards_state *state = ckpt->state;

    if (check_adapter(ckpt, err))
        return err->status;
    if (state->optimizer_fault != NULL && (model->flags & DCPK_MODEL_WEIGHTS_ONLY) == 0)
        return dcpk_fail_fix(err, DCPK_EUNSUPPORTED, DCPK_FIX_WEIGHTS_ONLY, "%s",
                             state->optimizer_fault);
    if (dcpk_shards_check_whole_copies(ckpt, err))
        return err->status;
    return dcpk_hf_scheme_to_model(ckpt, hf_scheme.name, model, err);
}

static const struct dcpk_format_mapping verl_mapping = {
    .has_prefixes = true, .to_model = verl_to_model, .optimizer_layout = hub_optimizer_layout};

static dcpk_status checkpointing_to_model(struct dcpk_checkpoint *ckpt, struct dcpk_model *model,
                                          struct dcpk_error *err)
{
    if (dcpk_shards_check_whole_copies(ckpt, err))
        return err->status;
    return titan_to_model(ckpt, model, err);
}

static const struct dcpk_format_mapping checkpointing_mapping = {.has_prefixes = true,
                                                                 .to_model = checkpointing_to_model,
                                                                 .optimizer_layout =
                                                                     hub_optimizer_layout};

/* A row whose bytes lie as those of DCP. */
#define HUB_ON_DCP                                                                                 \
    .container = &dcpk_format_dcp, .marks = dcpk_dcp_marks, .is_model = true, .probe = hub_probe,  \
    .open = hub_open, DCPK_DCP_CONTAINER

const struct dcpk_format dcpk_format_dcp_hf = {
    .name = "dcp_hf",
    .other_names = "fsdp2",
    .summary = "Hugging Face's names in PyTorch's distributed checkpoint: accelerate, Trainer, "
               "prime-rl, NeMo-RL",
    .fits = hf_fits,
    .mapping = &hf_mapping,
    HUB_ON_DCP,
};

const struct dcpk_format dcpk_format_titan = {
    .name = "torchtitan",
    .other_names = "titan",
    .summary = "torchtitan's names in PyTorch's distributed checkpoint",
    .fits = titan_fits,
    .mapping = &titan_mapping,
    HUB_ON_DCP,
};

const struct dcpk_format dcpk_format_verl = {
    .name = "verl",
    .other_names = "skyrl",
    .summary = "Hugging Face's names in shards of FSDP, a file a rank: verl, SkyRL (read only)",
    .container = &dcpk_format_fsdp_shards,
    .fits = verl_fits,
    .check_whole = dcpk_shards_check_whole_copies,
    .mapping = &verl_mapping,
    DCPK_SHARDS_CONTAINER,
};

const struct dcpk_format dcpk_format_titan_checkpointing = {
    .name = "titan_checkpointing",
    .summary = "torchtitan's names in torch_checkpointing 2.0, a file a rank (read only)",
    .container = &dcpk_format_checkpointing,
    .fits = titan_fits,
    .mapping = &checkpointing_mapping,
    DCPK_CHECKPOINTING_CONTAINER,
};
