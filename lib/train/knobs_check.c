/* SPDX-License-Identifier: Apache-2.0 */
/* knobs_check.c - rules in their order, then the config that a run goes by. */
#include <string.h>

#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/train/knobs_rules_priv.h"

/* The text with its value in the place of "{}". NULL and err: no memory. */
static const char *rule_sentence(const struct dcpk_knob_rule *rule, const struct dcpk_scene *scene,
                                 struct dcpk_error *err)
{
    const char *gap = strstr(rule->text, "{}");

    if (gap == NULL)
        return rule->text;
    return dcpk_arena_printf(scene->knobs->arena, err, "%.*s%s%s", (int)(gap - rule->text),
                             rule->text, rule->value(scene), gap + 2);
}

static dcpk_status notices_add(struct dcpk_train_notices *notices, const char *text,
                               struct dcpk_error *err)
{
    if (notices->n == DCPK_MAX_NOTICES)
        return dcpk_fail(err, DCPK_EUSAGE, "more than %d notices: leave out what has no effect",
                         DCPK_MAX_NOTICES);
    notices->texts[notices->n++] = text;
    return DCPK_OK;
}

/* One list of rules, one after the other: each sees what those before it have changed. */
static dcpk_status rules_apply(const struct dcpk_knob_rule *rules, struct dcpk_train_knobs *knobs,
                               const struct dcpk_train_environment *environment,
                               struct dcpk_train_notices *notices, struct dcpk_error *err)
{
    const struct dcpk_scene scene = {knobs, environment};

    for (const struct dcpk_knob_rule *rule = rules; rule->when != NULL; rule++) {
        const char *text;

        if (!rule->when(&scene))
            continue;
        text = rule_sentence(rule, &scene, err);
        if (text == NULL)
            return err->status;
        if (rule->kind == DCPK_RULE_REFUSE)
            return dcpk_fail(err, DCPK_EUSAGE, "%s; %s", text, rule->remedy);
        if (rule->adjust != NULL)
            rule->adjust(knobs);
        if (notices_add(notices, text, err) != DCPK_OK)
            return err->status;
    }
    return DCPK_OK;
}

/* Every knob that was given and does nothing. */
static dcpk_status notices_of_no_effect(struct dcpk_train_knobs *knobs,
                                        struct dcpk_train_notices *notices, struct dcpk_error *err)
{
    struct dcpk_knob_walk walk = {0};
    const struct dcpk_option *knob;

    while ((knob = dcpk_knob_next(&walk)) != NULL) {
        const char *text;

        if (!knobs->given[walk.number] || knob->effect != DCPK_KNOB_NO_EFFECT)
            continue;
        text = dcpk_arena_printf(knobs->arena, err, "%s has no effect here: %s", knob->name,
                                 knob->help);
        if (text == NULL || notices_add(notices, text, err) != DCPK_OK)
            return err->status;
    }
    return DCPK_OK;
}

dcpk_status dcpk_train_knobs_check(struct dcpk_train_knobs *knobs,
                                   const struct dcpk_train_environment *environment,
                                   struct dcpk_train_notices *notices, struct dcpk_error *err)
{
    static const struct dcpk_knob_rule *const lists[] = {
        dcpk_knob_rules_of_others,    dcpk_knob_rules_of_fsdp,    dcpk_knob_rules_of_combinations,
        dcpk_knob_rules_of_this_loop, dcpk_knob_rules_of_numbers,
    };

    if (rules_apply(dcpk_knob_rules_of_modes, knobs, environment, notices, err) ||
        dcpk_knobs_check_sizes(knobs, environment, err))
        return err->status;
    for (size_t i = 0; i < DCPK_COUNT(lists); i++)
        if (rules_apply(lists[i], knobs, environment, notices, err) != DCPK_OK)
            return err->status;
    if (dcpk_knobs_check_course(knobs, err) || notices_of_no_effect(knobs, notices, err))
        return err->status;
    dcpk_knobs_resolve(knobs);
    return DCPK_OK;
}
