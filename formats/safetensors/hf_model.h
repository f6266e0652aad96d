/* SPDX-License-Identifier: Apache-2.0 */
/* hf_model.h - a folder of Hugging Face's <-> the canonical view, by the map of its family. */
#ifndef DCPK_FORMATS_SAFETENSORS_HF_MODEL_H
#define DCPK_FORMATS_SAFETENSORS_HF_MODEL_H

#include "formats/safetensors/hf_ops.h"
#include "lib/base/json.h"
#include "lib/base/regex.h"
#include "lib/ckpt/format.h"
#include "lib/ckpt/output.h"
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
#define DCPK_HF_IN_MODEL         "model/" DCPK_HF_INNER /* the same with verl's Megatron */
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
/*
 * Args of a checkpoint with Megatron's names that has none, by its configuration
 * (dcpk_hf_document_find). has_lm_head, dtype: of what is stored. *args: a Namespace in its arena;
 * NULL: it has no configuration. Errors: those of hf_config.h.
 */
dcpk_status dcpk_hf_find_args(struct dcpk_checkpoint *ckpt, bool has_lm_head, enum dcpk_dtype dtype,
                              const struct dcpk_value **args, struct dcpk_error *err);
/* Sets model->command_line by model->args, those of an import: what has Megatron compute the same.
 * Errors: DCPK_ENOMEM. */
dcpk_status dcpk_hf_put_command_line(struct dcpk_model *model, struct dcpk_error *err);
/* mapping->load_config: config.json. Errors: DCPK_EFORMAT if it is not an object. */
dcpk_status dcpk_hf_load_config(struct dcpk_checkpoint *ckpt, struct dcpk_arena *arena,
                                const struct dcpk_value **value, struct dcpk_error *err);

/*
 * mapping->check_class, hf_class.c: checks that the classes of transformers 5.23 take config.json.
 * A folder without one, or of another class, is not judged. Errors: DCPK_EMISMATCH with all that
 * they stop at; those of reading.
 */
dcpk_status dcpk_hf_class_check(struct dcpk_checkpoint *ckpt, const char **found,
                                struct dcpk_error *err);

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

/* config.json of a folder, or of huggingface/ or model/huggingface/ in it. *config: the caller's,
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

/* ---- names in a trainer's checkpoint (hf_names.c) ---- */

/* Zeroed: every key is a name. */
struct dcpk_hf_names {
    const char **list;       /* by stored tensor; a NULL in it: not of the model. NULL: the keys */
    struct dcpk_map by_name; /* of the list; owned */
    /* Optimizer state: "<name>.<state>" -> stored tensor; owned. The part of the keys in front of
     * ".state."; NULL: there is none. */
    struct dcpk_map states;
    const char *state_prefix;
    const char *other_state; /* a key with another such prefix; NULL: none */
};

/* The key without the modules that torch.compile, FSDP and activation checkpointing wrap around
 * others, in `arena`. NULL and err: DCPK_ENOMEM. */
const char *dcpk_hf_unwrap(struct dcpk_arena *arena, const char *key, struct dcpk_error *err);

/* The place in `key` where `name` ("norm.weight") begins, if the key ends with it as with whole
 * modules, the last of which may be wrapped, and is not of optimizer state; NULL: it does not. */
const char *dcpk_hf_name_in(const char *key, const char *name);

/*
 * Finds the names in a checkpoint of a trainer: a key without wrappers (dcpk_hf_unwrap) and without
 * the prefix of all keys of the model. That is what stands before `embedding`, a name of the map,
 * in the one key that ends so (embedding NULL, for a model without a map: the modules that all keys
 * begin with, if lm_head.weight or score.weight is next after them); given.model_prefix decides
 * where it is set. Tensors that are not below it are not of the model. Errors: DCPK_EMISMATCH where
 * no key ends so, DCPK_EUNSUPPORTED where several do, or two keys have one name, with those keys.
 */
dcpk_status dcpk_hf_names_find(struct dcpk_checkpoint *ckpt, struct dcpk_arena *arena,
                               const char *embedding, struct dcpk_hf_names *names,
                               struct dcpk_error *err);
void dcpk_hf_names_release(struct dcpk_hf_names *names); /* a zeroed one is a no-op */

/* A parameter that no map knows has its own name after this, with slashes, so that it is never
 * taken for one of Megatron's: "huggingface:visual/norm/weight". */
#define DCPK_HF_OTHER "huggingface:"

/* Leaves tensors that are not of the model, and objects, out of the view: dropped, or omitted where
 * only weights are asked for. Not those that are taken, by tensor and by object. */
void dcpk_hf_names_leave(const struct dcpk_hf_names *names, struct dcpk_model *model,
                         const bool *is_taken, const bool *is_object_taken);

/* ---- adapters (lora_config.c) ---- */

#define DCPK_PEFT_CONFIG "adapter_config.json"
#define DCPK_PEFT_FILE   "adapter_model.safetensors"
#define DCPK_PEFT_FOLDER "lora_adapter/"     /* in the folder of its base, as of verl's merger */
#define DCPK_PEFT_PREFIX "base_model.model." /* of every key in that file */
#define DCPK_VERL_CONFIG "lora_train_meta.json"
#define DCPK_LORA_TARGETS                                                                          \
    "target_parameters" /* of experts, in that file: the last part of names                        \
                         */

/* Modules whose names match have another rank, or alpha. */
struct dcpk_lora_pattern {
    struct dcpk_regex *regex; /* owned */
    double value;
};
struct dcpk_lora_patterns {
    struct dcpk_lora_pattern *list; /* owned */
    size_t n;
};

struct dcpk_lora_config {
    struct dcpk_json *doc; /* owned */
    double rank, alpha;
    struct dcpk_lora_patterns ranks, alphas; /* the first one that matches counts */
    bool is_rslora;                          /* alpha is divided by the root of the rank */
    bool is_turned;                          /* weights are [in, out] */
};

/*
 * Reads the configuration of an adapter: the caller's (given.lora.config), else adapter_config.json
 * or verl's lora_train_meta.json in the store. *config: zeroed; dcpk_lora_config_release in any
 * case. key: a key of the adapter, for messages. Errors: DCPK_EUNSUPPORTED where there is none, and
 * for each kind of adapter that is not a plain LoRA, by the name of its field; DCPK_EFORMAT for a
 * rank or alpha that is none; those of reading and of expressions.
 */
dcpk_status dcpk_lora_config_read(const struct dcpk_checkpoint *ckpt, struct dcpk_store *store,
                                  const char *key, struct dcpk_lora_config *config,
                                  struct dcpk_error *err);
void dcpk_lora_config_release(struct dcpk_lora_config *config);

/* The factor of the product of a module's two matrices. rank: as they are stored. Errors:
 * DCPK_EMISMATCH where the configuration has another. */
dcpk_status dcpk_lora_scale(const struct dcpk_lora_config *config, const char *module, int64_t rank,
                            float *scale, struct dcpk_error *err);

enum dcpk_lora_part {
    DCPK_LORA_A,
    DCPK_LORA_B,
    DCPK_LORA_SAVED, /* a whole tensor in the place of the base's (modules_to_save) */
    DCPK_LORA_BASE,  /* no part of an adapter */
    DCPK_LORA_OTHER, /* of another kind of adapter */
};
struct dcpk_lora_name {
    enum dcpk_lora_part part;
    bool is_embedding;   /* a matrix of an embedding: its sum is with the transpose */
    size_t n_module;     /* bytes of the module's name, at the beginning */
    const char *word;    /* PEFT's between module and adapter: ".lora_A"; NULL: of the base */
    const char *adapter; /* PEFT's name of the adapter, in a checkpoint of a run; */
    size_t n_adapter;    /* 0 in a folder of PEFT's */
    const char *rest;    /* after it: "weight" */
};
/* Takes a key apart. Points into it. */
void dcpk_lora_name_parse(const char *key, struct dcpk_lora_name *name);

/* Checks that a tensor is of the adapter that the first one is of. *first: zeroed before that.
 * Errors: DCPK_EUNSUPPORTED with both names. */
dcpk_status dcpk_lora_check_one(struct dcpk_lora_name *first, const struct dcpk_lora_name *name,
                                struct dcpk_error *err);

/* peft.c: puts the adapter in the checkpoint of a run into the output, as tensors and a
 * configuration that PEFT loads; into DCPK_PEFT_FOLDER where the output is of another format.
 * Errors: DCPK_EUNSUPPORTED where there is none, or it is not a plain LoRA adapter; those of
 * dcpk_lora_config_read. */
dcpk_status dcpk_peft_put(struct dcpk_output *out, struct dcpk_error *err);

/* mapping->check_class of an adapter, peft_check.c: keys are those that PEFT saves, each lora_A has
 * its lora_B, both are matrices, and both have the rank of the configuration. Errors:
 * DCPK_EMISMATCH with all that does not fit; DCPK_EUNSUPPORTED where that fits, for other kinds
 * than plain LoRA and where the base decides ranks. */
dcpk_status dcpk_peft_check(struct dcpk_checkpoint *ckpt, const char **found,
                            struct dcpk_error *err);
/* The first matrix of an adapter in the checkpoint that is not left out; NULL: none. */
const struct dcpk_tensor *dcpk_lora_find(const struct dcpk_checkpoint *ckpt);

#endif
