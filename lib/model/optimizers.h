/* SPDX-License-Identifier: Apache-2.0 */
/* optimizers.h - which optimizer of PyTorch's trainers keeps a state, by the names in it. */
#ifndef DCPK_LIB_MODEL_OPTIMIZERS_H
#define DCPK_LIB_MODEL_OPTIMIZERS_H

#include <stdbool.h>

/* Signs of an optimizer; zeroed before the first name. Keys are borrowed. */
struct dcpk_optimizer_signs {
    /* The optimizer that is not Adam or AdamW, in words, and the first key that shows it; NULL: no
     * key does. */
    const char *optimizer, *key;
    bool is_by_field;                     /* that key is a group's */
    const char *exp_avg, *exp_avg_sq;     /* the first key of each moment */
    const char *differentiable, *amsgrad; /* the first key of such a field */
};

/* The optimizer that keeps the state `slot` ("mu_product") of a parameter, in words; NULL: Adam
 * does. */
const char *dcpk_optimizer_of_slot(const char *slot);
/* Take the name of a state of a parameter. */
void dcpk_optimizer_take_slot(struct dcpk_optimizer_signs *signs, const char *slot,
                              const char *key);
/* True if a group's field is a sign where its value is True. */
bool dcpk_optimizer_asks_value(const char *field);
/* Take the name of a group's field; is_true: its value, if dcpk_optimizer_asks_value. */
void dcpk_optimizer_take_field(struct dcpk_optimizer_signs *signs, const char *field,
                               const char *key, bool is_true);
/* After the last name: find optimizers that are known by names that they lack. */
void dcpk_optimizer_end_signs(struct dcpk_optimizer_signs *signs);

#endif
