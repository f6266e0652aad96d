/* SPDX-License-Identifier: Apache-2.0 */
/* knobs_rules_priv.h - a rule: when it applies, what it changes, the sentence. */
#ifndef DCPK_LIB_TRAIN_KNOBS_RULES_PRIV_H
#define DCPK_LIB_TRAIN_KNOBS_RULES_PRIV_H

#include "lib/train/knobs_priv.h"

struct dcpk_scene {
    const struct dcpk_train_knobs *knobs;
    const struct dcpk_train_environment *environment;
};

enum dcpk_rule_kind {
    DCPK_RULE_REFUSE, /* text and remedy are an error */
    DCPK_RULE_ADJUST, /* text is a notice, once `adjust` (NULL: nothing) has changed knobs */
};

/* The last of a list has no `when`. */
struct dcpk_knob_rule {
    enum dcpk_rule_kind kind;
    bool (*when)(const struct dcpk_scene *scene);
    void (*adjust)(struct dcpk_train_knobs *knobs);
    const char *(*value)(const struct dcpk_scene *scene); /* what "{}" in the text stands for */
    const char *text, *remedy;
};

/* Is Megatron-FSDP asked for? */
bool dcpk_scene_has_fsdp(const struct dcpk_scene *scene);
/* Is a checkpoint saved or loaded? */
bool dcpk_scene_has_files(const struct dcpk_scene *scene);
/* text: of a knob or the environment, may be NULL. */
bool dcpk_rule_text_is(const char *text, const char *word);

extern const struct dcpk_knob_rule dcpk_knob_rules_of_modes[], dcpk_knob_rules_of_others[],
    dcpk_knob_rules_of_fsdp[], dcpk_knob_rules_of_combinations[], dcpk_knob_rules_of_this_loop[],
    dcpk_knob_rules_of_numbers[];

#endif
