/* SPDX-License-Identifier: Apache-2.0 */
/* hf_config_priv.h - faults that are collected, and what reading and writing config.json share. */
#ifndef DCPK_FORMATS_SAFETENSORS_HF_CONFIG_PRIV_H
#define DCPK_FORMATS_SAFETENSORS_HF_CONFIG_PRIV_H

#include "formats/safetensors/hf_config.h"
#include "lib/model/arg_table.h"

/* --- hf_dict.c --- */

/* All faults of a configuration. Zeroed: none. */
struct dcpk_hf_faults {
    struct dcpk_bytes text; /* joined by "; " */
    size_t n, first_bytes;  /* the first one's length */
    dcpk_status status;     /* of the first */
    bool skips_unsupported; /* DCPK_EUNSUPPORTED is none */
};
/* Adds a fault; the status is that of the first. Returns DCPK_OK: what reads on finds more. */
dcpk_status dcpk_hf_fault(struct dcpk_hf_faults *faults, dcpk_status status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* DCPK_OK, or all of them as one error. Releases them. */
dcpk_status dcpk_hf_faults_end(struct dcpk_hf_faults *faults, struct dcpk_error *err);

/* A value for a message, short; never NULL. */
const char *dcpk_hf_show(struct dcpk_arena *arena, const struct dcpk_value *value);

/* Short for tables (lib/ckpt/value.h). */
#define DCPK_HF_NONE      DCPK_CONST_NONE
#define DCPK_HF_NUMBER(x) DCPK_CONST_NUMBER(x)
#define DCPK_HF_WHOLE(x)  DCPK_CONST_WHOLE(x)
#define DCPK_HF_TRUTH(x)  DCPK_CONST_TRUTH(x)
#define DCPK_HF_WORD(x)   DCPK_CONST_WORD(x)

/* --- hf_dict.c: kinds of layers --- */

/*
 * Finds the layers of n_layers that have experts, by moe_layer_freq: an int, a list, or the text of
 * one. In `arena`. Errors: DCPK_EFORMAT for any other frequency, or one of another number of
 * layers.
 */
dcpk_status dcpk_hf_moe_layers(const struct dcpk_value *attrs, int64_t n_layers,
                               struct dcpk_arena *arena, const bool **is_moe,
                               struct dcpk_error *err);

/* The same of those that have linear attention, by linear_attention_freq: every layer but each
 * n-th for an int n. None where the attention is not a Gated DeltaNet. */
dcpk_status dcpk_hf_linear_layers(const struct dcpk_value *attrs, int64_t n_layers,
                                  struct dcpk_arena *arena, const bool **is_linear,
                                  struct dcpk_error *err);

/*
 * The kind of each layer of a hybrid model, one symbol a layer: M Mamba, * attention, - MLP, E
 * experts, others of no family; in `arena`. NULL and no error: args have no pattern. Sources:
 * megatron/core/models/hybrid/hybrid_layer_allocation.py@core_v0.19.0, Symbols ('|' ends a stage,
 * '/' begins MTP); hybrid_override_pattern before 0.17. Errors: DCPK_EMISMATCH for another number
 * of layers than n_layers.
 */
dcpk_status dcpk_hf_layer_symbols(const struct dcpk_value *attrs, int64_t n_layers,
                                  struct dcpk_arena *arena, const char **symbols,
                                  struct dcpk_error *err);
#define DCPK_HF_MAMBA     'M'
#define DCPK_HF_ATTENTION '*'
#define DCPK_HF_MLP       '-'
#define DCPK_HF_EXPERTS   'E'

/* True if the arg is one of experts and the pattern of a hybrid model has no layer of them: the
 * model is without the arg, and config.json without its key. */
bool dcpk_hf_arg_is_moot(const struct dcpk_value *attrs, const char *arg);

/* --- hf_config_view.c --- */

/* A config.json, whichever release of transformers wrote it. */
struct dcpk_hf_view {
    const struct dcpk_value *top;   /* DICT */
    const struct dcpk_value *rope;  /* DICT: rope_parameters or rope_scaling; NULL: none */
    const struct dcpk_value *theta; /* NULL: none */
    const char *rope_kind;          /* "default" where none is named */
};

/* Borrows `config`. Contradictions in it become faults. */
void dcpk_hf_view_init(struct dcpk_hf_view *view, const struct dcpk_value *config,
                       struct dcpk_arena *arena, struct dcpk_hf_faults *faults);
/* A key or one of its aliases; NULL: absent. */
const struct dcpk_value *dcpk_hf_view_get(const struct dcpk_hf_view *view, const char *key);
/* The i-th name that `key` has in some release, itself among them; NULL: no more. */
const char *dcpk_hf_alias(const char *key, size_t i);

/* --- hf_words_import.c, hf_words_export.c: the fifteen words --- */

struct dcpk_hf_importing {
    const struct dcpk_hf_import *in;
    struct dcpk_arena *arena;
    struct dcpk_hf_view view;
    struct dcpk_dict args;
    struct dcpk_hf_faults faults;
};

/* One row: what config.json has becomes args or a fault. Errors: DCPK_ENOMEM. */
dcpk_status dcpk_hf_row_import(struct dcpk_hf_importing *m, const struct dcpk_hf_row *row,
                               struct dcpk_error *err);
/* Set an arg of its kind, whatever kind of number config.json has under `key`; else a fault. */
dcpk_status dcpk_hf_arg_import(struct dcpk_hf_importing *m, const char *key, const char *arg,
                               const struct dcpk_value *value, struct dcpk_error *err);

/* Checks that the map can read a config.json (a DICT). Errors: those of dcpk_hf_config_to_args. */
dcpk_status dcpk_hf_config_check(const struct dcpk_hf_map *map, const struct dcpk_value *config,
                                 struct dcpk_arena *arena, struct dcpk_error *err);

struct dcpk_hf_exporting {
    const struct dcpk_hf_map *map;
    const struct dcpk_value *attrs;
    struct dcpk_arena *arena;
    struct dcpk_dict config;
    struct dcpk_hf_faults faults;
    size_t n_lacking; /* of the faults: args that the family does not have */
};

/* Set a key of config.json; a float stays one where args have it whole. */
dcpk_status dcpk_hf_key_export(struct dcpk_hf_exporting *m, const char *key,
                               const struct dcpk_value *value, struct dcpk_error *err);

/* --- hf_rope.c --- */

dcpk_status dcpk_hf_rope_import(struct dcpk_hf_importing *m, struct dcpk_error *err);
dcpk_status dcpk_hf_rope_export(struct dcpk_hf_exporting *m, struct dcpk_error *err);
/* True if any kind of rope of the map has a row or a value for the arg. */
bool dcpk_hf_ropes_name(const struct dcpk_hf_map *map, const char *arg);

/* --- hf_words_export.c --- */

/* True if experts are picked among all of them, groups or not. method: topk_method of config.json;
 * NULL: it has none, and the family's counts. */
bool dcpk_hf_is_greedy(const struct dcpk_hf_map *map, const struct dcpk_value *method);
/*
 * True if Megatron weighs the one expert of a token by its score. A class that divides by the sum
 * of the weights gives it all. Sources: megatron/core/transformer/moe/moe_utils.py@core_v0.19.0,
 * topk_routing_with_score_function; transformer_config.py stops for softmax after the choice.
 */
bool dcpk_hf_weighs_one_expert(const struct dcpk_value *attrs);
/*
 * True if layers share indexers from an offset of 0 on: Megatron takes it for 1
 * (experimental_attention_variant/dsa.py@core_v0.19.0), transformers for a first layer that has no
 * indexer (configuration_glm_moe_dsa.py).
 */
bool dcpk_hf_first_shares(const struct dcpk_value *attrs);
/* All keys that args give, or faults. Errors: DCPK_ENOMEM. */
dcpk_status dcpk_hf_config_compute(struct dcpk_hf_exporting *m, struct dcpk_error *err);

/* --- hf_class.c --- */

/* Checks that the classes of transformers 5.23 take a config.json (DICT). Errors: DCPK_EMISMATCH
 * with all that they stop at. */
dcpk_status dcpk_hf_class_takes(const struct dcpk_value *config, struct dcpk_arena *arena,
                                struct dcpk_error *err);

/* --- hf_traps.c: where the models of both sides differ inside --- */

/* attrs: args as they are, or as they are made. */
struct dcpk_hf_traps {
    const struct dcpk_value *attrs;
    bool is_import;
    dcpk_hf_remark *remark;
    void *context;
    struct dcpk_arena *arena;
};
void dcpk_hf_traps_remark(const struct dcpk_hf_traps *traps);

#endif
