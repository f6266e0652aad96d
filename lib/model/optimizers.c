/* SPDX-License-Identifier: Apache-2.0 */
/* optimizers.c - tables of the states and of the fields of groups that show an optimizer. */
#include "lib/model/optimizers.h"

#include <stddef.h>
#include <string.h>

#include "lib/base/order.h"

struct optimizer_sign {
    const char *name, *optimizer; /* NULL: Adam's */
};

/* Sources: `state[...]` in torch/optim/ *.py@2.11.0; transformers 5.24 optimization.py (Adafactor);
 * state of lion-pytorch, Adan, Schedule-Free and bitsandbytes. */
static const struct optimizer_sign slots[] = {
    {"exp_avg", NULL},
    {"exp_avg_sq", NULL},
    {"step", NULL},
    {"master_param", NULL}, /* of Transformer Engine's FusedAdam */
    {"max_exp_avg_sq", "Adam with amsgrad"},
    {"mu_product", "NAdam"},
    {"exp_inf", "Adamax"},
    {"momentum_buffer", "SGD or Muon"},
    {"acc_delta", "Adadelta"},
    {"square_avg", "RMSprop or Adadelta"},
    {"grad_avg", "RMSprop"},
    {"sum", "Adagrad"},
    {"eta", "ASGD"},
    {"ax", "ASGD"},
    {"prev", "Rprop"},
    {"step_size", "Rprop"},
    {"row_var", "Adafactor"},
    {"col_var", "Adafactor"},
    {"variance", "Adafactor"},
    {"exp_avg_sq_row", "Adafactor"},
    {"exp_avg_sq_col", "Adafactor"},
    {"RMS", "Adafactor"},
    {"exp_avg_diff", "Adan"},
    {"z", "a schedule-free one"},
    {"state1", "one of bitsandbytes"},
};

/* Sources: `defaults` in torch/optim/ *.py@2.11.0; apex/optimizers/fused_lamb.py. */
static const struct optimizer_sign fields[] = {
    {"momentum_decay", "NAdam"},
    {"dampening", "SGD"},
    {"ns_steps", "Muon"},
    {"rho", "Adadelta"},
    {"centered", "RMSprop"},
    {"lr_decay", "Adagrad"},
    {"beta2_decay", "Adafactor"},
    {"decay_rate", "Adafactor"},
    {"lambd", "ASGD"},
    {"etas", "Rprop"},
    {"max_iter", "LBFGS"},
    {"grad_averaging", "LAMB"},
};

/* Fields that groups of Adam have as well: signs where their value is True. */
static const struct optimizer_sign switches[] = {
    {"amsgrad", "Adam with amsgrad"},
    {"maximize", "one that maximizes"},
};

static const struct optimizer_sign *find_sign(const struct optimizer_sign *signs, size_t n,
                                              const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(name, signs[i].name) == 0)
            return &signs[i];
    return NULL;
}

const char *dcpk_optimizer_of_slot(const char *slot)
{
    const struct optimizer_sign *sign = find_sign(slots, DCPK_COUNT(slots), slot);

    return sign == NULL ? "one that dcpkit does not know" : sign->optimizer;
}

/* Keeps the first sign of states, which several optimizers may have. */
static void take_sign(struct dcpk_optimizer_signs *signs, const char *optimizer, const char *key)
{
    if (signs->optimizer != NULL || optimizer == NULL)
        return;
    signs->optimizer = optimizer;
    signs->key = key;
}

/* Keeps the first key with this name. */
static void keep_key(const char **kept, const char *wanted, const char *name, const char *key)
{
    if (*kept == NULL && strcmp(name, wanted) == 0)
        *kept = key;
}

void dcpk_optimizer_take_slot(struct dcpk_optimizer_signs *signs, const char *slot, const char *key)
{
    keep_key(&signs->exp_avg, "exp_avg", slot, key);
    keep_key(&signs->exp_avg_sq, "exp_avg_sq", slot, key);
    take_sign(signs, dcpk_optimizer_of_slot(slot), key);
}

bool dcpk_optimizer_asks_value(const char *field)
{
    return find_sign(switches, DCPK_COUNT(switches), field) != NULL;
}

void dcpk_optimizer_take_field(struct dcpk_optimizer_signs *signs, const char *field,
                               const char *key, bool is_true)
{
    const struct optimizer_sign *sign = find_sign(fields, DCPK_COUNT(fields), field);

    if (sign == NULL && is_true)
        sign = find_sign(switches, DCPK_COUNT(switches), field);
    keep_key(&signs->differentiable, "differentiable", field, key);
    keep_key(&signs->amsgrad, "amsgrad", field, key);
    keep_key(&signs->amsgrad, "bias_correction", field, key);
    if (sign == NULL)
        return;
    if (!signs->is_by_field) /* a field counts more than a state */
        signs->optimizer = NULL;
    signs->is_by_field = true;
    take_sign(signs, sign->optimizer, key);
}

/* torch's RAdam keeps what Adam does. Every optimizer of torch has the field differentiable, Adam
 * and AdamW have amsgrad too, and the fused ones of Apex bias_correction. */
void dcpk_optimizer_end_signs(struct dcpk_optimizer_signs *signs)
{
    if (signs->exp_avg != NULL && signs->exp_avg_sq == NULL)
        take_sign(signs, "one without exp_avg_sq, such as Lion", signs->exp_avg);
    if (signs->differentiable != NULL && signs->amsgrad == NULL)
        take_sign(signs, "RAdam (a group of torch's without amsgrad)", signs->differentiable);
}
