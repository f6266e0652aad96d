/* SPDX-License-Identifier: Apache-2.0 */
/* knobs_priv.h - how rows of the table of knobs are written, and what its files share. */
#ifndef DCPK_LIB_TRAIN_KNOBS_PRIV_H
#define DCPK_LIB_TRAIN_KNOBS_PRIV_H

#include <stddef.h>

#include "lib/train/knobs.h"

/* Kind and place of a row; a field of another type does not compile. */
#define DCPK_K_AT(type, field)                                                                     \
    (offsetof(struct dcpk_train_knobs, field) +                                                    \
     0 * sizeof((type *)0 == &((struct dcpk_train_knobs *)0)->field))
#define DCPK_K_FLAG(field)   DCPK_KNOB_FLAG, DCPK_K_AT(bool, field)
#define DCPK_K_LENGTH(field) DCPK_KNOB_LENGTH, DCPK_K_AT(int64_t, field)
#define DCPK_K_COUNT(field)  DCPK_KNOB_COUNT, DCPK_K_AT(int64_t, field)
#define DCPK_K_NUMBER(field) DCPK_KNOB_NUMBER, DCPK_K_AT(double, field)
#define DCPK_K_TEXT(field)   DCPK_KNOB_TEXT, DCPK_K_AT(const char *, field)
#define DCPK_K_WORD(field)   DCPK_KNOB_WORD, DCPK_K_AT(const char *, field)

/* Where a row's meaning is defined. */
#define DCPK_K_OF_ARGUMENTS   "megatron/training/arguments.py @core_v0.19.0"
#define DCPK_K_OF_TRANSFORMER "megatron/core/transformer/transformer_config.py @core_v0.19.0"
#define DCPK_K_OF_DDP         "megatron/core/distributed/distributed_data_parallel_config.py @core_v0.19.0"
#define DCPK_K_OF_OPTIMIZER   "megatron/core/optimizer/optimizer_config.py @core_v0.19.0"
#define DCPK_K_OF_FSDP        "megatron/core/distributed/fsdp/src/megatron_fsdp @core_v0.19.0"
#define DCPK_K_OF_BRIDGE      "src/megatron/bridge/training/config.py of Megatron-Bridge"
#define DCPK_K_OF_THIS_LOOP   "this program alone"

/* Rows of one part of a run; the last has no name. */
extern const struct dcpk_knob dcpk_knobs_of_model[], dcpk_knobs_of_ranks[], dcpk_knobs_of_fsdp[],
    dcpk_knobs_of_numbers[], dcpk_knobs_of_optimizer[], dcpk_knobs_of_run[],
    dcpk_knobs_of_no_effect[];

/* Is `word` one of the words in `list`, which blanks part? NULL: it has none. */
bool dcpk_knob_has_word(const char *list, const char *word, size_t n_bytes);

/* How a text names a row: the row itself, or its opposite. */
enum dcpk_knob_sense { DCPK_KNOB_OTHER, DCPK_KNOB_SAME, DCPK_KNOB_OPPOSITE };
/* name: as text[0 .. n_bytes), dashes or underscores, without section. */
enum dcpk_knob_sense dcpk_knob_is_named(const struct dcpk_knob *knob, const char *name,
                                        size_t n_bytes);

/* Was row of `name` given? */
bool dcpk_knobs_was_given(const struct dcpk_train_knobs *knobs, const char *name);

/* Which layers are MoE layers, by the knob's text: a period, or a list of Python's. */
dcpk_status dcpk_knobs_read_moe_layers(struct dcpk_train_knobs *knobs, struct dcpk_error *err);
/* Sizes of the mesh, batch arithmetic, what they have to divide. */
dcpk_status dcpk_knobs_check_sizes(struct dcpk_train_knobs *knobs,
                                   const struct dcpk_train_environment *environment,
                                   struct dcpk_error *err);
/* Optimizer, schedule and what is saved. */
dcpk_status dcpk_knobs_check_course(struct dcpk_train_knobs *knobs, struct dcpk_error *err);
/* The enumerations of the config, by texts that rules have passed. */
void dcpk_knobs_resolve(struct dcpk_train_knobs *knobs);
/* Of them the dtypes; config.fsdp.mode is set. */
void dcpk_knobs_resolve_numbers(struct dcpk_train_knobs *knobs);

#endif
