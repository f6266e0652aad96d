/* SPDX-License-Identifier: Apache-2.0 */
/* knobs_numbers.c - dtypes of a run: rules of what would change nothing, what the rest comes to. */
/*
 *                   main parameters   main gradients            on their way
 *   Megatron-FSDP   fp32, or compute  megatron_fsdp_main_grads  megatron_fsdp_grad_comm
 *   DDP             fp32              fp32; bf16 with           as they are added up
 *                                     grad_reduce_in_bf16
 *   reduce exact    as above          integers                  integers
 */
#include <string.h>

#include "lib/train/knobs_rules_priv.h"

static enum dcpk_dtype number_dtype(const char *word, enum dcpk_dtype automatic)
{
    if (strcmp(word, "fp32") == 0)
        return DCPK_F32;
    if (strcmp(word, "bf16") == 0)
        return DCPK_BF16;
    if (strcmp(word, "fp16") == 0)
        return DCPK_F16;
    return automatic;
}

static enum dcpk_dtype number_of_model(const struct dcpk_train_knobs *k)
{
    if (k->is_fp16)
        return DCPK_F16;
    if (k->is_bf16)
        return DCPK_BF16;
    return DCPK_F32;
}

static enum dcpk_dtype number_of_main_params(const struct dcpk_train_knobs *k)
{
    if (dcpk_knobs_was_given(k, "preserve_fp32_weights") && !k->preserves_fp32)
        return number_of_model(k);
    return number_dtype(k->main_params, number_of_model(k));
}

static enum dcpk_dtype number_of_main_grads(const struct dcpk_train_knobs *k)
{
    return number_dtype(k->main_grads, number_of_model(k));
}

/* ---- rules ---- */

static bool number_is_exact(const struct dcpk_scene *s)
{
    return dcpk_rule_text_is(s->knobs->reduce, "exact");
}
static bool number_main_params(const struct dcpk_scene *s)
{
    const enum dcpk_dtype dtype = number_of_main_params(s->knobs);

    return dcpk_scene_has_fsdp(s) && dtype != DCPK_F32 && dtype != number_of_model(s->knobs);
}
static const char *number_main_params_word(const struct dcpk_scene *s)
{
    return s->knobs->main_params;
}
static bool number_main_params_alone(const struct dcpk_scene *s)
{
    return !dcpk_scene_has_fsdp(s) && number_of_main_params(s->knobs) != DCPK_F32;
}
static bool number_main_grads_alone(const struct dcpk_scene *s)
{
    return !dcpk_scene_has_fsdp(s) && number_of_main_grads(s->knobs) != DCPK_F32;
}
static bool number_comm_alone(const struct dcpk_scene *s)
{
    const enum dcpk_dtype sums = s->knobs->reduces_in_bf16 ? DCPK_BF16 : DCPK_F32;

    return !dcpk_scene_has_fsdp(s) && number_dtype(s->knobs->comm, sums) != sums;
}
static bool number_exact_main_grads(const struct dcpk_scene *s)
{
    return dcpk_scene_has_fsdp(s) && number_is_exact(s) &&
           number_of_main_grads(s->knobs) != DCPK_F32;
}
static bool number_exact_comm(const struct dcpk_scene *s)
{
    return dcpk_scene_has_fsdp(s) && number_is_exact(s) &&
           number_dtype(s->knobs->comm, DCPK_F32) != DCPK_F32;
}
static bool number_exact_bf16(const struct dcpk_scene *s)
{
    return !dcpk_scene_has_fsdp(s) && number_is_exact(s) && s->knobs->reduces_in_bf16;
}
static void number_set_main_grads(struct dcpk_train_knobs *k)
{
    k->main_grads = "fp32";
}
static void number_set_comm(struct dcpk_train_knobs *k)
{
    k->comm = "auto";
}
static void number_clear_bf16(struct dcpk_train_knobs *k)
{
    k->reduces_in_bf16 = false;
}

#define NUMBER_ALONE " has no effect without Megatron FSDP: "
#define NUMBER_EXACT " has no effect with reduce exact, which adds integers; reduce native has it"

const struct dcpk_knob_rule dcpk_knob_rules_of_numbers[] = {
    {DCPK_RULE_REFUSE, number_main_params, NULL, number_main_params_word,
     "megatron_fsdp_main_params_dtype is {}, neither fp32 nor the dtype of the model",
     "set it to fp32 or auto"},
    {DCPK_RULE_ADJUST, number_main_params_alone, NULL, NULL,
     "megatron_fsdp_main_params_dtype" NUMBER_ALONE "the optimizer changes weights in fp32", NULL},
    {DCPK_RULE_ADJUST, number_main_grads_alone, NULL, NULL,
     "megatron_fsdp_main_grads_dtype" NUMBER_ALONE "grad_reduce_in_bf16 sets the dtype", NULL},
    {DCPK_RULE_ADJUST, number_comm_alone, NULL, NULL,
     "megatron_fsdp_grad_comm_dtype" NUMBER_ALONE "gradients travel as they are added up", NULL},
    {DCPK_RULE_ADJUST, number_exact_main_grads, number_set_main_grads, NULL,
     "megatron_fsdp_main_grads_dtype" NUMBER_EXACT, NULL},
    {DCPK_RULE_ADJUST, number_exact_comm, number_set_comm, NULL,
     "megatron_fsdp_grad_comm_dtype" NUMBER_EXACT, NULL},
    {DCPK_RULE_ADJUST, number_exact_bf16, number_clear_bf16, NULL,
     "grad_reduce_in_bf16" NUMBER_EXACT, NULL},
    {.when = NULL},
};

/* ---- what they come to ---- */

void dcpk_knobs_resolve_numbers(struct dcpk_train_knobs *k)
{
    struct dcpk_train_precision *p = &k->config.precision;

    p->compute = number_of_model(k);
    p->main_params = number_of_main_params(k);
    p->main_grads = number_of_main_grads(k);
    p->comm = number_dtype(k->comm, p->main_grads);
    if (k->config.fsdp.mode == DCPK_MODE_DDP) {
        p->main_params = DCPK_F32;
        p->main_grads = DCPK_F32;
        if (k->reduces_in_bf16)
            p->main_grads = DCPK_BF16;
        p->comm = p->main_grads;
    }
    p->is_exact = strcmp(k->reduce, "exact") == 0;
    p->exact_lsb = (int)k->exact_lsb;
}
