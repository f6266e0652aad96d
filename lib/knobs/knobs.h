/* SPDX-License-Identifier: Apache-2.0 */
/* knobs.h - the settings of a run, by Megatron's names: one table of knobs, which flags and
 * configuration files fill, and Megatron's rules for their values. */
/*
 *   --num-layers 4            {"ddp": {"average_in_collective": true}}     ddp.bucket_size=16000
 *        |                                   |                                   |
 *        +------ dcpk_train_knobs_take_args, _take_config, _set: a row of the table each
 *                                            |
 *                     dcpk_train_knobs_check: rules in Megatron's order, notices
 *                                            |
 *                                 struct dcpk_train_config
 */
#ifndef DCPK_LIB_KNOBS_KNOBS_H
#define DCPK_LIB_KNOBS_KNOBS_H

#include "lib/base/arena.h"
#include "lib/base/digest.h"
#include "lib/base/option.h"
#include "lib/ckpt/value.h"
#include "lib/knobs/config.h"

struct dcpk_doc;

/* The effect of a knob: `effect` of its row. */
enum dcpk_knob_effect {
    DCPK_KNOB_VALUE,    /* model and ranks of the run; things that it loads, saves and logs */
    DCPK_KNOB_CHECKED,  /* V: a rule may refuse it */
    DCPK_KNOB_ADJUSTED, /* A: a rule may set it, with a notice */
    DCPK_KNOB_SCHEDULE, /* S: order and memory of the work, not a bit of its result */
    DCPK_KNOB_NUMERIC,  /* N: the result, in a defined way */
    DCPK_KNOB_NO_EFFECT /* I: accepted, with a notice */
};

#define DCPK_MAX_KNOBS 320

/* Settings that rules look at and the loop does not, in addition to the config. Texts live in
 * `arena`. */
struct dcpk_train_knobs {
    struct dcpk_train_config config; /* complete after dcpk_train_knobs_check */
    struct dcpk_arena *arena;        /* borrowed */
    bool given[DCPK_MAX_KNOBS];      /* by number of a knob (struct dcpk_knob_walk) */
    char *unread;                    /* names that a configuration has and no row; NULL: none */
    size_t unread_bytes, unread_capacity; /* of them, without the NUL */

    bool use_fsdp_in_dist, use_fsdp_in_ddp, use_custom_fsdp, use_torch_fsdp2;
    int64_t fsdp_version;
    const char *strategy, *outer_strategy;
    bool is_untied, is_group_query, reuses_grad_buf_in_ddp, reuses_grad_buf_in_optimizer;
    bool has_single_grouped_weight, has_single_grouped_bias, has_hybrid_cp, overlaps_experts;
    bool fuses_accumulation, reduces_in_bf16, preserves_fp32;
    bool asks_meta_init;
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

/* Parts of the environment that rules ask for; NULL: not set. */
struct dcpk_train_environment {
    const char *max_connections; /* CUDA_DEVICE_MAX_CONNECTIONS */
    const char *alloc_conf;      /* PYTORCH_CUDA_ALLOC_CONF */
    const char *alloc_any;       /* PYTORCH_ALLOC_CONF, the same for every kind of device */
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

/* Adds a sentence; it is borrowed. Errors: DCPK_EUSAGE where there is no room. */
dcpk_status dcpk_train_notices_add(struct dcpk_train_notices *notices, const char *text,
                                   struct dcpk_error *err);

/*
 * A walk over the table of knobs: rows of struct dcpk_option, whose fields are those of struct
 * dcpk_train_knobs. A name is Megatron's, with underscores; a flag spells them as dashes or
 * underscores; the section "run" has the knobs that are ours. A few names have two rows, in two
 * sections. Zeroed: before the first row. Rows of one part of a run are together.
 */
#define DCPK_KNOB_NAME_BYTES 64
struct dcpk_knob_walk {
    size_t number;    /* of the row that the walk is at, from 0 */
    const char *part; /* its part of a run, a title */
    bool begins_part; /* it is the first of it */
    size_t n, at_part, at_row, at_list;
    const char *word;         /* the next name in that list */
    struct dcpk_option named; /* the row of a name in a list, */
    char name[DCPK_KNOB_NAME_BYTES], others[DCPK_KNOB_NAME_BYTES + 16]; /* and its texts */
};
/* The next row, as long as the walk stays at it. NULL: there are no more. */
const struct dcpk_option *dcpk_knob_next(struct dcpk_knob_walk *walk);

/* Walk to the first row of a name, of any spelling: "--use-nccl-ub", "ddp.bucket_size". NULL:
 * none. */
const struct dcpk_option *dcpk_knob_find(const char *name, struct dcpk_knob_walk *walk);

/* True if the row that a walk is at is of the part of FSDP. */
bool dcpk_knob_is_of_fsdp(const struct dcpk_knob_walk *walk);

/* Walk to the first row whose name `word` is a slip of, dashes and underscores being the same; of
 * the section section[0 .. n_bytes), NULL: of any. NULL: none. */
const struct dcpk_option *dcpk_knob_find_near(const char *word, const char *section, size_t n_bytes,
                                              struct dcpk_knob_walk *walk);

/* The rows of files and folders, for the sandbox. A row without a name ends them. */
extern const struct dcpk_option dcpk_knobs_of_run[];

/*
 * The reason why this loop lacks a knob that Megatron has, and what to do instead: two clauses of a
 * sentence, "attention is that of query groups; leave it out". NULL: it has that knob, or Megatron
 * lacks it.
 */
const char *dcpk_knob_absence(const char *name);

/*
 * Rules are tried in their order, each sees what those before it have set. A rule with a remedy
 * refuses the run, another one gives a notice.
 *
 *   when   "a !b c=word | d>2 ?e"     alternatives of terms that all hold
 *
 *          a       true, not 0, or a text that is set; !a: the opposite, of every form
 *          a=word  the text, or the number; a>2, a<2: of numbers
 *          ?a      it was given
 *
 * Names are those of knobs ("ddp.a": the row of that section; else one of its rows is enough), or,
 * in capitals, what knobs_check.c reads of the environment or computes of several knobs.
 */
struct dcpk_knob_rule {
    const char *id; /* for tests; NULL: after the last one */
    const char *when;
    const char *set;   /* "a=true b=0", before the notice; NULL: nothing */
    const char *value; /* the name whose text replaces "{}" in `text`; NULL: none */
    const char *text, *remedy;
    const char *source; /* of a rule of Megatron's, which a migration follows; NULL: no other */
    const char *mend;   /* what a migration sets, where it is not `set`: as `set`, and "a=None" */
};
/* Rule i, in their order. NULL: there are not so many. */
const struct dcpk_knob_rule *dcpk_knob_rule_at(size_t i);

/* True if the condition of a rule holds. */
bool dcpk_knob_rule_holds(const struct dcpk_knob_rule *rule, struct dcpk_train_knobs *knobs,
                          const struct dcpk_train_environment *environment);
/* The text of a rule with its value, in the knobs' arena or constant. NULL and err: DCPK_ENOMEM. */
const char *dcpk_knob_rule_sentence(const struct dcpk_knob_rule *rule,
                                    struct dcpk_train_knobs *knobs,
                                    const struct dcpk_train_environment *environment,
                                    struct dcpk_error *err);
/* True if a rule's name[0 .. n_bytes), "a" or "section.a", means the row. */
bool dcpk_knob_rule_names(const struct dcpk_option *row, const char *name, size_t n_bytes);

/* Fill in the defaults. arena: borrowed as long as the knobs. */
void dcpk_train_knobs_init(struct dcpk_train_knobs *knobs, struct dcpk_arena *arena);

/*
 * Set every row of a name, "num_layers" or "ddp.average_in_collective"; the last call counts.
 * text NULL, "None" or "null": back to the default. Errors: DCPK_EUSAGE for an unknown name, or a
 * text that is not of the row's kind.
 */
dcpk_status dcpk_train_knobs_set(struct dcpk_train_knobs *knobs, const char *name, const char *text,
                                 struct dcpk_error *err);

/* A value of a configuration or of args as a flag has it. NULL: no flag has such a value, or err.
 */
const char *dcpk_knob_text(struct dcpk_arena *arena, const struct dcpk_value *v,
                           struct dcpk_error *err);

/*
 * Takes the flags that rows know from argv[1 .. *argc), with their values, and
 * "section.name=value". The rest keeps its order, argv[0] too; nothing after "--" is taken. Texts
 * are borrowed from argv. Errors: as dcpk_train_knobs_set; DCPK_EUSAGE for a flag without its
 * value, or one of Megatron's that this loop lacks (dcpk_knob_absence).
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

/* Hash the values of all rows. */
void dcpk_train_knobs_hash(const struct dcpk_train_knobs *knobs, struct dcpk_hash *hash);

/*
 * Check that a run of a complete configuration has the bits of every other layout: with context
 * parallelism a rank lacks the whole samples that exact sums begin with by default. A run that is
 * only explained needs no such check. Errors: DCPK_EUSAGE naming the knob and a value.
 */
dcpk_status dcpk_train_check_leaves(const struct dcpk_train_config *config, struct dcpk_error *err);

/* Explain the knob of a name in any spelling (dcpk_knob_find), with every rule whose sentence names
 * it. Errors: DCPK_EUSAGE for a name that no knob has; of the document. */
dcpk_status dcpk_knob_explain(const char *name, struct dcpk_doc *doc, struct dcpk_error *err);

/* List all knobs, a line each, by the parts of a run. */
dcpk_status dcpk_knob_list(struct dcpk_doc *doc, struct dcpk_error *err);

/* ---- variables of the environment that decide how Megatron trains ---- */

/* Sources: megatron/training/arguments.py @core_v0.19.0 validate_args; the user guide of
 * Megatron-FSDP. */
struct dcpk_variable {
    const char *name;
    const char *help;   /* the meaning of it */
    const char *wanted; /* values, and when */
    const char *bad;    /* a value, or one of several with commas, that some runs refuse; or NULL */
};

extern const struct dcpk_variable dcpk_variables[];
extern const size_t dcpk_n_variables;

const struct dcpk_variable *dcpk_variable_find(const char *name); /* NULL: it is not one of them */

#endif
