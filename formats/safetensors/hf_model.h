/* SPDX-License-Identifier: Apache-2.0 */
/* hf_model.h - a folder of Hugging Face's <-> the canonical view, by the map of its family. */
#ifndef DCPK_FORMATS_SAFETENSORS_HF_MODEL_H
#define DCPK_FORMATS_SAFETENSORS_HF_MODEL_H

#include "formats/safetensors/hf_ops.h"
#include "lib/ckpt/format.h"
#include "lib/model/model.h"

/* Names of a trainer in another container than files of safetensors: a row of hub.c. */
struct dcpk_hf_scheme {
    const char *name;   /* of the maps' files; NULL: of transformers' class in memory */
    const char *prefix; /* before names, without the last dot, where the caller gives none */
    /* Fields of groups are listed by parameter, as by flatten_optimizer_state_dict, and not by
     * group. */
    bool is_flattened;
};

#define DCPK_HF_CONFIG           "config.json"
#define DCPK_HF_INNER            "huggingface" /* the folder with it in verl's and SkyRL's */
#define DCPK_HF_MAX_CONFIG_BYTES (UINT64_C(16) << 20)
#define DCPK_HF_OUTPUT_LAYER     "output_layer.weight"
#define DCPK_HF_EMBEDDING        "embedding.word_embeddings.weight"

/*
 * mapping->to_model: the family by config.json, args by its rows, tensors by its rules.
 * Errors: DCPK_EUNSUPPORTED without config.json, of an unknown family and for what Megatron has no
 * arg for; DCPK_EMISMATCH with all that does not match: a tensor that no rule takes, a parameter
 * that none gives or two give, shapes that are not what args ask for, repeated tensors whose bits
 * differ.
 */
dcpk_status dcpk_hf_to_model(struct dcpk_checkpoint *ckpt, struct dcpk_model *model,
                             struct dcpk_error *err);
/*
 * The same for a scheme (hub.c): names of a trainer in another container. scheme: that of the map's
 * file; NULL: Hugging Face's names. Errors: those of dcpk_hf_names_find too.
 */
dcpk_status dcpk_hf_scheme_to_model(struct dcpk_checkpoint *ckpt, const char *scheme,
                                    struct dcpk_model *model, struct dcpk_error *err);
/* mapping->load_config: config.json. Errors: DCPK_EFORMAT where it is not an object. */
dcpk_status dcpk_hf_load_config(struct dcpk_checkpoint *ckpt, struct dcpk_arena *arena,
                                const struct dcpk_value **value, struct dcpk_error *err);

/*
 * mapping->check_class, hf_class.c: checks that the classes of transformers 5.23 take config.json.
 * A folder without one is not judged. Errors: DCPK_EMISMATCH with all that they stop at; those of
 * reading.
 */
dcpk_status dcpk_hf_class_check(struct dcpk_checkpoint *ckpt, struct dcpk_error *err);

/*
 * mapping->from_model: the family that the caller names, else the first one whose args hold and
 * whose rules take every parameter exactly once. Errors: DCPK_EMISMATCH with what does not fit.
 */
dcpk_status dcpk_hf_from_model(const struct dcpk_model *model, struct dcpk_output *out,
                               struct dcpk_error *err);
/* The same under names of a scheme, with optimizer state where the model has any. */
dcpk_status dcpk_hf_scheme_from_model(const struct dcpk_model *model, struct dcpk_output *out,
                                      const struct dcpk_hf_scheme *scheme, struct dcpk_error *err);

/* --- hf_files.c --- */

/* The JSON of a file of its own, by its path. *doc: the caller's, dcpk_json_free. Errors: those of
 * reading it, with its path. */
dcpk_status dcpk_hf_file_read(const char *path, struct dcpk_json **doc, struct dcpk_error *err);

/* config.json of a folder, or of the folder huggingface/ in it. *config: the caller's,
 * dcpk_json_free; NULL: there is none. */
dcpk_status dcpk_hf_document_read(struct dcpk_store *store, struct dcpk_json **config,
                                  struct dcpk_error *err);

/*
 * The configuration of a checkpoint: config.json of its folder, else the caller's (given.family);
 * for names in another container the caller's comes first. *config as above.
 */
dcpk_status dcpk_hf_document_find(struct dcpk_checkpoint *ckpt, struct dcpk_json **config,
                                  struct dcpk_error *err);

/* The configuration that is laid under the one that is written: the caller's, else that of a source
 * that is a model. *base as above; NULL: none. Errors: those of reading it, with its path. */
dcpk_status dcpk_hf_base_find(struct dcpk_output *out, struct dcpk_json **base,
                              struct dcpk_error *err);

/*
 * Puts the files of a tokenizer next to the output: those of the caller's folder (--hf-assets),
 * else those that the source has (tokenizer/ of Megatron-Bridge). A note where there are none.
 * Errors: those of reading them; DCPK_EUSAGE where the caller's folder holds none.
 */
dcpk_status dcpk_hf_assets_put(struct dcpk_output *out, struct dcpk_error *err);

/* --- hf_same.c --- */

/* Sets *same if two stored tensors have the same dtype, shape and bytes. Reads both. */
dcpk_status dcpk_hf_same_bytes(struct dcpk_checkpoint *ckpt, uint32_t a, uint32_t b, bool *same,
                               struct dcpk_error *err);
/* Sets *is if all bytes of a stored tensor are zero. Reads it. */
dcpk_status dcpk_hf_is_zero(struct dcpk_checkpoint *ckpt, uint32_t tensor, bool *is,
                            struct dcpk_error *err);

#endif
