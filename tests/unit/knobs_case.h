/* SPDX-License-Identifier: Apache-2.0 */
/* knobs_case.h - a command line of knobs, cut at its blanks, held against the rules. */
#ifndef DCPK_TESTS_UNIT_KNOBS_CASE_H
#define DCPK_TESTS_UNIT_KNOBS_CASE_H

#include <stdlib.h>

#include "lib/base/order.h"
#include "lib/knobs/knobs.h"
#include "tests/check.h"

#define MAX_WORDS 96

/* Of the line that was checked last. */
static struct dcpk_error err;
static struct dcpk_arena *arena;
static struct dcpk_train_knobs knobs;
static struct dcpk_train_notices notices;

#define TOY                                                                                        \
    "train --num-layers 4 --hidden-size 64 --ffn-hidden-size 96 --num-attention-heads 4 "          \
    "--seq-length 32 --micro-batch-size 1 --train-iters 20 "
#define FSDP  TOY "--use-megatron-fsdp --ckpt-format fsdp_dtensor "
#define SAVED FSDP "--save OUT "
#define FSDP2 TOY "--use-torch-fsdp2 --no-gradient-accumulation-fusion "

/* Sets what stands before the command, "NCCL_ALGO=Ring GPU=9 train"; GPU is gpu_major. */
static inline void set_environment(struct dcpk_train_environment *e, const char *name,
                                   const char *value)
{
    const struct {
        const char *name, **text;
    } all[] = {
        {"CUDA_DEVICE_MAX_CONNECTIONS", &e->max_connections},
        {"PYTORCH_CUDA_ALLOC_CONF", &e->alloc_conf},
        {"PYTORCH_ALLOC_CONF", &e->alloc_any},
        {"NCCL_ALGO", &e->nccl_algo},
        {"NVTE_ALLOW_NONDETERMINISTIC_ALGO", &e->te_algo},
        {"CUBLAS_WORKSPACE_CONFIG", &e->cublas_config},
    };
    bool is_set = strcmp(name, "GPU") == 0;

    if (is_set)
        e->gpu_major = (int)strtol(value, NULL, 10);
    for (size_t i = 0; i < DCPK_COUNT(all); i++)
        if (strcmp(all[i].name, name) == 0) {
            *all[i].text = value;
            is_set = true;
        }
    CHECK(is_set, name);
}

/* Checks a command line for 8 ranks. */
static inline dcpk_status check_line(const char *line)
{
    struct dcpk_train_environment environment = {.n_ranks = 8};
    char *words[MAX_WORDS], *rest = dcpk_arena_strdup(arena, line, &err), *word;
    int n = 0;

    while ((word = strsep(&rest, " ")) != NULL) {
        char *equals = strchr(word, '=');

        if (*word == '\0')
            continue;
        if (n > 0 || equals == NULL) {
            words[n++] = word;
            continue;
        }
        *equals = '\0';
        set_environment(&environment, word, equals + 1);
    }
    words[n] = NULL;
    dcpk_error_clear(&err);
    notices.n = 0;
    dcpk_train_knobs_init(&knobs, arena);
    if (dcpk_train_knobs_take_args(&knobs, &n, words, &err) != DCPK_OK)
        return err.status;
    CHECK_EQ_INT(n, 1, line);
    return dcpk_train_knobs_check(&knobs, &environment, &notices, &err);
}

static inline int knobs_set_up(void **state)
{
    (void)state;
    arena = dcpk_arena_new();
    return arena == NULL;
}

static inline int knobs_tear_down(void **state)
{
    (void)state;
    dcpk_arena_free(arena);
    return 0;
}

#define MAX_RULES 128
static bool reached[MAX_RULES];

/* The rule of an id, which is reached; NULL: there is none. */
static inline const struct dcpk_knob_rule *reach_rule(const char *id)
{
    const struct dcpk_knob_rule *rule;

    for (size_t i = 0; (rule = dcpk_knob_rule_at(i)) != NULL; i++)
        if (strcmp(rule->id, id) == 0) {
            reached[i] = true;
            return rule;
        }
    return NULL;
}

/* All rules that refuse, or that give notice, were reached. */
static inline void check_all_reached(bool refuses)
{
    const struct dcpk_knob_rule *rule;

    for (size_t i = 0; (rule = dcpk_knob_rule_at(i)) != NULL; i++)
        CHECK(reached[i] || (rule->remedy != NULL) != refuses, rule->id);
}

/* True if the text is that of the rule, before its value. */
static inline bool is_of_rule(const char *text, const struct dcpk_knob_rule *rule)
{
    const char *gap = strstr(rule->text, "{}");

    return strncmp(text, rule->text,
                   gap == NULL ? strlen(rule->text) : (size_t)(gap - rule->text)) == 0;
}

#endif
