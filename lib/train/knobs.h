/* SPDX-License-Identifier: Apache-2.0 */
/* knobs.h - what a run may be asked for, by Megatron's names: one table of knobs, which flags and
 * configuration files fill, and the rules that Megatron holds their values to. */
/*
 *   --num-layers 4            {"ddp": {"average_in_collective": true}}     ddp.bucket_size=16000
 *        |                                   |                                   |
 *        +------ dcpk_train_knobs_take_args, _take_config, _set: a row of the table each
 *                                            |
 *                     dcpk_train_knobs_check: rules in Megatron's order, notices
 *                                            |
 *                                 struct dcpk_train_config
 */
#ifndef DCPK_LIB_TRAIN_KNOBS_H
#define DCPK_LIB_TRAIN_KNOBS_H

#include "lib/base/arena.h"
#include "lib/base/digest.h"
#include "lib/ckpt/value.h"
#include "lib/train/config.h"

enum dcpk_knob_kind {
    DCPK_KNOB_FLAG,   /* bool; of arguments: alone, with "no-" before it, or with true or false */
    DCPK_KNOB_LENGTH, /* int64_t, 1 .. 2^31 - 1 */
    DCPK_KNOB_COUNT,  /* int64_t, 0 .. 2^40 */
    DCPK_KNOB_NUMBER, /* double, finite, 0 or more */
    DCPK_KNOB_TEXT,   /* const char * */
    DCPK_KNOB_WORD,   /* the same, one of `words` */
};

/* What a knob may change. */
enum dcpk_knob_class {
    DCPK_KNOB_VALUE,    /* what the run trains, on which ranks; what it loads, saves and logs */
    DCPK_KNOB_CHECKED,  /* V: a rule may refuse it */
    DCPK_KNOB_ADJUSTED, /* A: a rule may set it, with a notice */
    DCPK_KNOB_SCHEDULE, /* S: order and memory of the work, not a bit of its result */
    DCPK_KNOB_NUMERIC,  /* N: the result, in a defined way */
    DCPK_KNOB_NO_EFFECT /* I: accepted, with a notice */
};

struct dcpk_knob {
    /* Megatron's, with underscores; a flag spells them as dashes or underscores. */
    const char *name;
    const char *others;   /* more names, parted by blanks, "!" before one that means the opposite */
    const char *sections; /* of Megatron-Bridge's configuration, parted by blanks; "run": ours */
    enum dcpk_knob_kind kind;
    size_t at_bytes;      /* of its value in struct dcpk_train_knobs */
    const char *standard; /* its default; NULL: has none */
    enum dcpk_knob_class knob_class;
    const char *words; /* of WORD, parted by blanks */
    const char *help;  /* one sentence */
    const char *source;
};

#define DCPK_MAX_KNOBS 320

/* What rules look at and the loop does not, beside the config. Texts live in `arena`. */
struct dcpk_train_knobs {
    struct dcpk_train_config config; /* complete after dcpk_train_knobs_check */
    struct dcpk_arena *arena;        /* borrowed */
    bool given[DCPK_MAX_KNOBS];      /* by index of dcpk_knob_at */
    char *unread;                    /* names that a configuration has and no row; NULL: none */
    size_t unread_bytes, unread_capacity; /* of them, without the NUL */

    bool use_fsdp_in_dist, use_fsdp_in_ddp, use_custom_fsdp, use_torch_fsdp2;
    int64_t fsdp_version;
    const char *strategy, *outer_strategy;
    bool is_untied, is_group_query, reuses_grad_buf_in_ddp, reuses_grad_buf_in_optimizer;
    bool has_single_grouped_weight, has_single_grouped_bias, has_hybrid_cp, overlaps_experts;
    bool fuses_accumulation, reduces_in_bf16, preserves_fp32;
    bool has_nccl_ub, registers_by_hand, asks_meta_init;
    bool is_bf16, is_fp16, is_deterministic, fuses_cross_entropy, overlaps_tp;
    bool offloads_to_cpu, saves_hf, is_strict_load, is_fully_reshardable;
    bool is_swiglu, adds_bias, takes_saved_args;
    int64_t expert_tp, exact_lsb, seed;
    double hidden_dropout, attention_dropout, aux_loss;
    const char *normalization, *position_embedding, *impl, *moe_layer_freq, *recompute;
    const char *score_function, *balancing;
    const char *optimizer, *adam_form, *reduce, *optimizer_layout;
    const char *main_params, *main_grads, *comm;
    struct {
        bool flag;
        const char *text;
    } no_effect;
};

/* What of the environment rules ask for; NULL: not set. */
struct dcpk_train_environment {
    const char *max_connections; /* CUDA_DEVICE_MAX_CONNECTIONS */
    const char *alloc_conf;      /* PYTORCH_CUDA_ALLOC_CONF */
    const char *nccl_algo;       /* NCCL_ALGO */
    const char *te_algo;         /* NVTE_ALLOW_NONDETERMINISTIC_ALGO */
    const char *cublas_config;   /* CUBLAS_WORKSPACE_CONFIG */
    int gpu_major;               /* of the compute capability: 9 is Hopper; 0: no GPU */
    int64_t n_ranks;
};

/* Sentences for who started the run, in their order. Zeroed = none. */
#define DCPK_MAX_NOTICES 128
struct dcpk_train_notices {
    const char *texts[DCPK_MAX_NOTICES]; /* in the knobs' arena */
    size_t n;
};

/* Row i of the table; NULL: there are not so many. Rows of one part of a run stand together. */
const struct dcpk_knob *dcpk_knob_at(size_t i);
/* The title of the rows that begin with row i; NULL: it is not the first of its part. */
const char *dcpk_knob_title(size_t i);
/* The first row of a name, of any spelling: "--use-nccl-ub", "ddp.bucket_size". NULL: none. */
const struct dcpk_knob *dcpk_knob_find(const char *name);

/*
 * Why this loop lacks a knob that Megatron has, and what to do instead: two clauses of a sentence,
 * "attention is that of query groups; leave it out". NULL: it has that knob, or Megatron lacks it.
 */
const char *dcpk_knob_absence(const char *name);

/* Fill in the defaults. arena: borrowed as long as the knobs. */
void dcpk_train_knobs_init(struct dcpk_train_knobs *knobs, struct dcpk_arena *arena);

/*
 * Set every row of a name, "num_layers" or "ddp.average_in_collective"; the last call counts.
 * text NULL, "None" or "null": back to the default. Errors: DCPK_EUSAGE for an unknown name, or a
 * text that is not of the row's kind.
 */
dcpk_status dcpk_train_knobs_set(struct dcpk_train_knobs *knobs, const char *name, const char *text,
                                 struct dcpk_error *err);

/*
 * Take from argv[1 .. *argc) what rows know: flags with their values, and "section.name=value".
 * What is left keeps its order, argv[0] too; nothing behind "--" is taken. Texts are borrowed from
 * argv. Errors: as dcpk_train_knobs_set; DCPK_EUSAGE for a flag without its value, or one of
 * Megatron's that this loop lacks (dcpk_knob_absence).
 */
dcpk_status dcpk_train_knobs_take_args(struct dcpk_train_knobs *knobs, int *argc, char **argv,
                                       struct dcpk_error *err);

/*
 * Take a configuration: a DICT of sections as Megatron-Bridge has them, or of knobs by their names.
 * Sections without a row, and names without a row whose value is None or False, go into
 * knobs->unread. Errors: DCPK_EUSAGE for another name, or a value that is not of its row's kind;
 * DCPK_EUNSUPPORTED for what is not a DICT.
 */
dcpk_status dcpk_train_knobs_take_config(struct dcpk_train_knobs *knobs,
                                         const struct dcpk_value *config, struct dcpk_error *err);

/*
 * Take what describes the model from args of a checkpoint (an argparse.Namespace), as
 * use_checkpoint_args means: some in the place of what was given, the others where nothing was.
 * Source: load_args_from_checkpoint (megatron/training/checkpointing.py @core_v0.19.0).
 * Errors: DCPK_EUSAGE for a model that this loop lacks; as dcpk_train_knobs_set.
 */
dcpk_status dcpk_train_knobs_take_saved(struct dcpk_train_knobs *knobs,
                                        const struct dcpk_value *args, struct dcpk_error *err);

/*
 * Hold the knobs against Megatron's rules in its order, adjust what it adjusts, and complete
 * knobs->config. Errors: DCPK_EUSAGE with the sentence of the reference documents, "; " and what
 * mends it; DCPK_ENOMEM.
 */
dcpk_status dcpk_train_knobs_check(struct dcpk_train_knobs *knobs,
                                   const struct dcpk_train_environment *environment,
                                   struct dcpk_train_notices *notices, struct dcpk_error *err);

/* Hash the values of all rows. Errors: DCPK_ENOMEM. */
dcpk_status dcpk_train_knobs_hash(const struct dcpk_train_knobs *knobs, struct dcpk_hash *hash,
                                  struct dcpk_error *err);

/*
 * Check that a run of a complete configuration has the bits of every other layout: with context
 * parallelism a rank lacks the whole samples that exact sums begin with by default. What is only
 * explained needs no such check. Errors: DCPK_EUSAGE naming the knob and a value.
 */
dcpk_status dcpk_train_check_leaves(const struct dcpk_train_config *config, struct dcpk_error *err);

#endif
