/* SPDX-License-Identifier: Apache-2.0 */
/* lora_config.h - the configuration of an adapter of PEFT, and the names of its tensors (FORMAT.md
 * 5). */
#ifndef DCPK_FORMATS_SAFETENSORS_LORA_CONFIG_H
#define DCPK_FORMATS_SAFETENSORS_LORA_CONFIG_H

#include "lib/base/json.h"
#include "lib/base/regex.h"
#include "lib/ckpt/output.h"

#define DCPK_PEFT_CONFIG "adapter_config.json"
#define DCPK_PEFT_FILE   "adapter_model.safetensors"
#define DCPK_PEFT_FOLDER "lora_adapter/"     /* in the folder of its base, as of verl's merger */
#define DCPK_PEFT_PREFIX "base_model.model." /* of every key in that file */
#define DCPK_VERL_CONFIG "lora_train_meta.json"

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
    size_t n_module;     /* bytes of the module's name, at the beginning */
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

/* The first matrix of an adapter in the checkpoint that is not left out; NULL: none. */
const struct dcpk_tensor *dcpk_lora_find(const struct dcpk_checkpoint *ckpt);

#endif
