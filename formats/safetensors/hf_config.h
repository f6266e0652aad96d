/* SPDX-License-Identifier: Apache-2.0 */
/* hf_config.h - config.json from Megatron's args, and back, by the rows of a map. */
#ifndef DCPK_FORMATS_SAFETENSORS_HF_CONFIG_H
#define DCPK_FORMATS_SAFETENSORS_HF_CONFIG_H

#include "formats/safetensors/hf_map.h"
#include "lib/base/bytes.h"
#include "lib/tensor/fp8_blocks.h"

/* A remark for the user: of what, and what about it. */
typedef void dcpk_hf_remark(void *context, const char *key, const char *text);

/*
 * The map of config.json: the one that `family` names (NULL: none), else by "architectures", else
 * by "model_type". Errors: DCPK_EUNSUPPORTED with all families where none fits, and where both are
 * there and contradict each other; DCPK_EUSAGE for an unknown `family`.
 */
dcpk_status dcpk_hf_config_find_map(const struct dcpk_hf_maps *maps, const char *family,
                                    const struct dcpk_json *config, const struct dcpk_hf_map **map,
                                    struct dcpk_error *err);

/* True if "architectures" of config.json names a class of the map, or nothing at all. */
bool dcpk_hf_config_names_map(const struct dcpk_hf_map *map, const struct dcpk_json *config);

struct dcpk_hf_import {
    const struct dcpk_hf_map *map;
    const struct dcpk_json *config;
    bool has_lm_head; /* the files hold a tensor of the output layer of its own */
    bool is_lenient;  /* only tensors matter: takes what Megatron has no arg for */
    /* dtype of the written weights; DCPK_DTYPE_NONE: as config.json has it */
    enum dcpk_dtype dtype;
    dcpk_hf_remark *remark; /* NULL: none */
    void *context;
};

/*
 * An argparse.Namespace in `arena` with what the import sets: the rows, args and set of the map,
 * and what every import has (tensor_model_parallel_size 1, ...). Both spellings of config.json are
 * read, of transformers 4 and 5. vocab_size is config.json's; padded_vocab_size the same: who pads
 * the rows changes it. Where the models of both sides differ inside is a remark.
 * Errors: DCPK_EUNSUPPORTED for what Megatron has no arg for, DCPK_EFORMAT for a key that is
 * missing, of another kind, or contradicts another; with the key, the value and what would do of
 * all of them, as many as the error holds.
 */
dcpk_status dcpk_hf_config_to_args(const struct dcpk_hf_import *import, struct dcpk_arena *arena,
                                   const struct dcpk_value **args, struct dcpk_error *err);

/*
 * Checks that the args of a checkpoint meet the map's requirements (args, rows, a kind of rope). An
 * arg that is absent counts as the parser's default, and one that the map does not name must have
 * the value that changes nothing: a window, say, is not Llama's. args: the attributes' DICT, of any
 * release. *distance: how far the args are from the map, by how many do not hold. Errors:
 * DCPK_EMISMATCH naming the first of them; DCPK_ENOMEM.
 */
dcpk_status dcpk_hf_args_hold(const struct dcpk_hf_map *map, const struct dcpk_value *args,
                              size_t *distance, struct dcpk_error *err);

struct dcpk_hf_export {
    const struct dcpk_hf_map *map;
    const struct dcpk_value *args; /* the attributes' DICT */
    int64_t vocab_size;
    enum dcpk_dtype dtype;        /* of the weights */
    int64_t n_mtp;                /* MTP layers that are written; 0: none */
    const struct dcpk_json *base; /* the caller's config.json, which is laid under; NULL: none */
    struct dcpk_fp8_format fp8;   /* of weights in blocks; zeroed: none are */
    /* `base` stays as it is, except for its dtype, and for scales that weights have no more. */
    bool keeps_base;
    bool is_as_stored; /* of it also the dtype */
    dcpk_hf_remark *remark;
    void *context;
};

/*
 * config.json as it is written, appended to `text`: in the spelling of transformers 4, which 5 and
 * vLLM read too, sorted, indent 2, a newline after it. A key of `base` that args change, and one
 * that is left out, is a remark. Errors: DCPK_EMISMATCH or DCPK_EUNSUPPORTED for args that are not
 * of the family or that config.json cannot hold, all of them; DCPK_EFORMAT for a `base` that
 * contradicts itself; those of dcpk_hf_config_to_args where what is kept of `base` makes it a
 * config.json that is not of args (a window, say); DCPK_ENOMEM.
 */
dcpk_status dcpk_hf_config_write(const struct dcpk_hf_export *export, struct dcpk_bytes *text,
                                 struct dcpk_error *err);

/*
 * Writes the flags that a user types in addition to --use-checkpoint-args, one line, a newline
 * after it, appended to `text` (MAPS.md, "flags"). args: the attributes' DICT of
 * dcpk_hf_config_to_args.
 */
dcpk_status dcpk_hf_flags_write(const struct dcpk_value *args, struct dcpk_bytes *text,
                                struct dcpk_error *err);

struct dcpk_hf_vocab {
    const struct dcpk_value *args; /* the attributes' DICT */
    const struct dcpk_json *base;  /* the caller's config.json, or NULL */
    int64_t given;                 /* rows, by the caller; 0: not */
    int64_t stored_rows;           /* of the embedding */
    dcpk_hf_remark *remark;        /* NULL: none */
    void *context;
};

/*
 * The rows of the vocabulary that an export writes: those of `base`, else given, else of args, else
 * all that are stored, which is a remark. Errors: DCPK_EMISMATCH (DCPK_FIX_VOCAB_SIZE) where that
 * is more than are stored; where it is fewer than args have tokens; DCPK_EUSAGE where `base` and
 * given differ; DCPK_EFORMAT where `base` has another thing than a number of rows.
 */
dcpk_status dcpk_hf_vocab_size(const struct dcpk_hf_vocab *vocab, int64_t *n_rows,
                               struct dcpk_error *err);

/* True for a file of a model's folder that is copied unchanged: generation_config.json and the
 * tokenizer's. A program never is. */
bool dcpk_hf_is_asset(const char *name);

#endif
