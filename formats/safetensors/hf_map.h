/* SPDX-License-Identifier: Apache-2.0 */
/* hf_map.h - the map of a family of Hugging Face's models, as its file has it: what its tensors and
 * the keys of config.json are to Megatron. MAPS.md describes the files. */
#ifndef DCPK_FORMATS_SAFETENSORS_HF_MAP_H
#define DCPK_FORMATS_SAFETENSORS_HF_MAP_H

#include "lib/base/json.h"
#include "lib/ckpt/value.h"

/* From Hugging Face's tensor to Megatron's; each has an inverse (MAPS.md, "ops"). */
enum dcpk_hf_op {
    DCPK_HF_TRANSPOSE,    /* the last two axes */
    DCPK_HF_DEINTERLEAVE, /* the even rows, then the odd ones */
    DCPK_HF_ROPE_HALVES,  /* deinterleave of every head of q and k, before qkv or groups */
    DCPK_HF_QKV,          /* q, k, v, of three tensors or of one: group by group */
    DCPK_HF_GROUPS,       /* one tensor has the groups of qkv already; for rope_halves */
    DCPK_HF_CAT,          /* rows of equal parts one after the other */
    DCPK_HF_DELTA_NET,    /* in_proj of Gated DeltaNet, of two tensors by key head */
    DCPK_HF_VOCAB,        /* rows of the vocabulary, whose padding differs */
    DCPK_HF_ADD_ONE,      /* of norms: one side has 1 + w where the other has w */
    DCPK_HF_N_OPS
};

/* The condition of a rule: one word of its "if". */
enum dcpk_hf_condition_kind {
    DCPK_HF_IF_MOE,    /* in a layer with routed experts */
    DCPK_HF_IF_DENSE,  /* in another */
    DCPK_HF_IF_LINEAR, /* in a layer with linear attention */
    DCPK_HF_IF_FULL,   /* in another */
    DCPK_HF_IF_ARG,    /* where that arg is true: not absent, None, 0 or False */
    DCPK_HF_IF_NO_ARG,
};

struct dcpk_hf_condition {
    enum dcpk_hf_condition_kind kind;
    const char *arg; /* of the last two; else NULL */
};

enum dcpk_hf_rule_flags {
    DCPK_HF_READ_ONLY = 1, /* "read": "only": it is not written */
    DCPK_HF_COPY = 2,      /* the same bytes under one more of Hugging Face's names */
    /* Forms that take the place of the parameter's other rules, both DCPK_HF_READ_ONLY too: */
    DCPK_HF_IN_MEMORY = 4, /* "read": "memory": where names are those of the class in memory */
    DCPK_HF_OF_STATE = 8,  /* "read": "state": of optimizer state, never of the weight */
};

#define DCPK_HF_MAX_PARTS 4
#define DCPK_HF_MAX_THETA 1e15 /* the base of rope is a number from 1 on; whole ones are exact */
#define DCPK_HF_MAX_WORDS 4

/* Names may hold {l}, {m}, {e} and {m+num_layers} (hf_ops.h). */
struct dcpk_hf_rule {
    const char *mg; /* the canonical name */
    const char *hf[DCPK_HF_MAX_PARTS];
    size_t n_hf;
    enum dcpk_hf_op ops[DCPK_HF_MAX_WORDS];
    size_t n_ops;
    struct dcpk_hf_condition conditions[DCPK_HF_MAX_WORDS]; /* all of them */
    size_t n_conditions;
    unsigned flags;        /* enum dcpk_hf_rule_flags */
    enum dcpk_dtype dtype; /* kept whatever is asked for; DCPK_DTYPE_NONE: not */
};

struct dcpk_hf_rules {
    const struct dcpk_hf_rule *list;
    size_t n;
};

/* The place of the names of `layer`. */
struct dcpk_hf_at {
    const char *mg, *hf;
};

/* --- config.json --- */

/* How a key of config.json becomes an arg (MAPS.md, "config"). */
enum dcpk_hf_how {
    DCPK_HF_HOW_COPY,        /* no word */
    DCPK_HF_HOW_OR,          /* value: where the key is absent or null */
    DCPK_HF_HOW_OR_ARG,      /* arg: the same, that of an arg; value: where the key is absent */
    DCPK_HF_HOW_OR_MUL,      /* arg, factor: the same, times that */
    DCPK_HF_HOW_OR_NONE,     /* 0 is None; value: where it is absent */
    DCPK_HF_HOW_NOT,         /* negated; value: where it is absent */
    DCPK_HF_HOW_HEAD_DIM,    /* absent: hidden_size / num_attention_heads */
    DCPK_HF_HOW_WINDOW,      /* W is (W - 1, 0) */
    DCPK_HF_HOW_TIMES,       /* arg: n times it */
    DCPK_HF_HOW_LEADING,     /* k zeros, then ones */
    DCPK_HF_HOW_SPARSE,      /* keys[0] is the step, keys[1] the list of dense layers */
    DCPK_HF_HOW_LINEAR,      /* keys[0] is the interval, keys[1] the list of kinds; value: absent */
    DCPK_HF_HOW_ROPE_LAYERS, /* the same; kinds are 1 (rotary embeddings) and 0; none of 0: None */
    DCPK_HF_HOW_GROUPS,      /* 1 is None */
    DCPK_HF_HOW_ENUM,        /* value: DICT of Hugging Face's values to args' */
    DCPK_HF_HOW_PATTERN,     /* text, or a list, with the kind of each layer */
    DCPK_HF_HOW_MAMBA_HEADS, /* None: as Megatron counts them */
    DCPK_HF_HOW_HF_ONLY,     /* an arg that is also written under another key; args: the one read */
    DCPK_HF_N_HOWS
};

struct dcpk_hf_row {
    /* Aliases: any is read, the first one is written; of SPARSE, LINEAR, ROPE_LAYERS the two. */
    const char *keys[DCPK_HF_MAX_PARTS];
    size_t n_keys;
    const char *args[DCPK_HF_MAX_PARTS]; /* all are written, the first that is there is read */
    size_t n_args;
    enum dcpk_hf_how how;
    const struct dcpk_value
        *value;      /* of OR, NOT, ENUM, LINEAR, ROPE_LAYERS, may be of OR_ARG, OR_NONE */
    const char *arg; /* of OR_ARG, OR_MUL and TIMES; else NULL */
    int64_t factor;  /* of OR_MUL; else 0 */
};

/* A member of rope_parameters or rope_scaling. */
struct dcpk_hf_rope_row {
    const char *key, *arg;
    const struct dcpk_value *by_default; /* where the key is absent; NULL: it must be there */
};

struct dcpk_hf_rope_kind {
    const char *name;                 /* "default", "llama3", ... */
    const struct dcpk_value *args;    /* DICT: hold on export, set on import */
    const struct dcpk_value *require; /* DICT of keys and the values they must have; may be empty */
    const struct dcpk_hf_rope_row *rows;
    size_t n_rows;
};

struct dcpk_hf_map {
    const char *file;   /* its name, for messages */
    const char *family; /* "llama" */
    /* The names of its tensors are these and not Hugging Face's ("torchtitan"), and it has nothing
     * about config.json; NULL: a family's own. */
    const char *scheme;
    const char *const *architectures;
    size_t n_architectures;
    const char *model_type;
    const char *const *other_types; /* model_types that are read as this one */
    size_t n_other_types;
    const char *foreign; /* the reason why Megatron core has no such model; NULL: it has */

    const struct dcpk_hf_row *config;
    size_t n_config;
    /* DICTs, empty where the file has none. */
    const struct dcpk_value *args; /* must hold on export, set on import */
    const struct dcpk_value *set;  /* set on import alone */
    const struct dcpk_value *hf;   /* the same as args, of config.json */
    /* the class's values for keys that config.json lacks, where those of `hf` are others */
    const struct dcpk_value *usual;
    const char *rope_theta; /* the arg; NULL: the family has no rope */
    double usual_theta;     /* of the family's class, where config.json has none */
    const struct dcpk_hf_rope_kind *rope_kinds;
    size_t n_rope_kinds;

    /* The endings of names of scales and of their values, and where in config.json the size of the
     * blocks stands. suffix NULL: none; block NULL: 32 values of 4 bits. */
    const char *scales_suffix, *scales_values, *scales_block;
    const char *prefix;    /* NULL: none */
    const char *memory[2]; /* names of files begin with the first, of the class in memory with the
                              second instead; NULL: with the same */
    struct dcpk_hf_rules top, layer;
    const struct dcpk_hf_at *at;
    size_t n_at;
    const char *const *drop; /* patterns of Hugging Face's names; {*} is anything */
    size_t n_drop;
    const char *const *zero; /* the same of tensors that are left out if all of them is zero */
    size_t n_zero;
};

/* All maps, in the order in which they are tried: llama first, then by family; then n_schemes with
 * names of other schemes. */
struct dcpk_hf_maps {
    const struct dcpk_hf_map *const *list;
    size_t n, n_schemes;
    const struct dcpk_hf_map *any; /* of a model that none of the list fits; NULL: there is none */
};

/*
 * Read one map; all of it lives in `arena`, `file` too. Errors: DCPK_EFORMAT with the file, the
 * rule and the word for anything that MAPS.md does not describe.
 */
dcpk_status dcpk_hf_map_read(const char *file, const char *text, size_t n_bytes,
                             struct dcpk_arena *arena, const struct dcpk_hf_map **map,
                             struct dcpk_error *err);

/*
 * The maps that are built in, and those of the folder `dir` (NULL: none): its files <family>.json,
 * each instead of the built-in one of the family, or in addition to the others. Errors: those of
 * dcpk_hf_map_read and of reading the folder; DCPK_EUSAGE where it holds no map.
 */
dcpk_status dcpk_hf_maps_load(const char *dir, struct dcpk_arena *arena, struct dcpk_hf_maps *maps,
                              struct dcpk_error *err);

/* Sets maps->any: without rules, so that all tensors keep their names. */
dcpk_status dcpk_hf_maps_add_any(struct dcpk_hf_maps *maps, struct dcpk_arena *arena,
                                 struct dcpk_error *err);
bool dcpk_hf_map_is_any(const struct dcpk_hf_map *map); /* true for that one */

/* *map, of a family, becomes one with the rules of its map of the scheme; in `arena`. Errors:
 * DCPK_EUNSUPPORTED where there is none, naming the families that have one. */
dcpk_status dcpk_hf_maps_join(const struct dcpk_hf_maps *maps, const char *scheme,
                              struct dcpk_arena *arena, const struct dcpk_hf_map **map,
                              struct dcpk_error *err);

/* *map becomes one with the names that its class has in memory, in `arena`; without others it
 * stays.
 */
dcpk_status dcpk_hf_map_in_memory(struct dcpk_arena *arena, const struct dcpk_hf_map **map,
                                  struct dcpk_error *err);

/* NULL: there is none of that family. */
const struct dcpk_hf_map *dcpk_hf_maps_find(const struct dcpk_hf_maps *maps, const char *family);

/* A node as a value in `arena`: objects are DICTs, arrays LISTs, numbers as Python reads them, 1.0
 * a FLOAT. NULL and err: DCPK_ENOMEM. */
const struct dcpk_value *dcpk_hf_value(struct dcpk_arena *arena, const struct dcpk_json *node,
                                       struct dcpk_error *err);

/* ---- reading (hf_map_read.c) ---- */

/* A map that is built in: the bytes of its file. Generated from maps/ by CMake. */
struct dcpk_hf_built_in {
    const char *file, *text;
    size_t n_bytes;
};
extern const struct dcpk_hf_built_in dcpk_hf_built_in[];
extern const size_t dcpk_hf_n_built_in;

/* A text in `arena`; DCPK_EFORMAT where the node is not text, or empty. what: for messages. */
dcpk_status dcpk_hf_read_text(struct dcpk_arena *arena, const struct dcpk_json *node,
                              const char *what, const char **text, struct dcpk_error *err);
/* The members of an object are all of `known` (NULL-terminated). */
dcpk_status dcpk_hf_check_keys(const struct dcpk_json *object, const char *const *known,
                               struct dcpk_error *err);
/* The number of children of an array or object. */
size_t dcpk_hf_count(const struct dcpk_json *node);

/* --- hf_map_config.c --- */

/* "config", "args", "set", "hf" and "rope" of a map's file. */
dcpk_status dcpk_hf_map_read_config(const struct dcpk_json *doc, struct dcpk_arena *arena,
                                    struct dcpk_hf_map *map, struct dcpk_error *err);

#endif
