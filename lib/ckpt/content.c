/* SPDX-License-Identifier: Apache-2.0 */
/* content.c - states of an optimizer by the first or last part of what follows its name and
 * "state.". */
#include "lib/ckpt/content.h"

#include <string.h>

#include "lib/base/order.h"
#include "lib/base/text.h"

static const struct {
    const char *name;
    enum dcpk_content content;
} states[] = {
    {"param", DCPK_CONTENT_MASTERS},        {"fp32_param", DCPK_CONTENT_MASTERS},
    {"master_param", DCPK_CONTENT_MASTERS}, {"exp_avg", DCPK_CONTENT_MOMENTS},
    {"exp_avg_sq", DCPK_CONTENT_MOMENTS},   {"momentum_buffer", DCPK_CONTENT_MOMENTS},
};

/* The state called text[0 .. n); DCPK_CONTENT_OTHER for another name. */
static enum dcpk_content content_find_state(const char *text, size_t n)
{
    for (size_t i = 0; i < DCPK_COUNT(states); i++)
        if (strlen(states[i].name) == n && memcmp(states[i].name, text, n) == 0)
            return states[i].content;
    return DCPK_CONTENT_OTHER;
}

/* Finds the rest of a key after the name of an optimizer, which is its first or second part:
 * "app.optim.state...". NULL: it has none. */
static const char *skip_optimizer(const char *key)
{
    static const char *const optimizers[] = {"optimizer.", "optim.", "optimizers."};

    for (int part = 0; part < 2 && key != NULL; part++) {
        const char *dot = strchr(key, '.');

        for (size_t i = 0; i < DCPK_COUNT(optimizers); i++)
            if (dcpk_starts_with(key, optimizers[i]))
                return dot + 1;
        key = dot == NULL ? NULL : dot + 1;
    }
    return NULL;
}

enum dcpk_content dcpk_content_of(const char *key)
{
    static const char *const others[] = {"rng_state", "opt_param_scheduler", "rerun_state_machine"};
    static const char state[] = "state.";
    const char *last = strrchr(key, '.');
    enum dcpk_content found = DCPK_CONTENT_OTHER;

    for (size_t i = 0; i < DCPK_COUNT(others); i++)
        if (dcpk_starts_with(key, others[i]))
            return DCPK_CONTENT_OTHER;
    key = skip_optimizer(key);
    if (key == NULL)
        return DCPK_CONTENT_WEIGHTS;
    if (dcpk_starts_with(key, state)) {
        key += strlen(state);
        found = content_find_state(key, strcspn(key, "."));
    }
    if (found == DCPK_CONTENT_OTHER)
        found = content_find_state(last + 1, strlen(last + 1));
    return found;
}

const char *dcpk_content_name(enum dcpk_content content)
{
    static const char *const names[DCPK_N_CONTENTS] = {"weights", "masters", "moments", "other"};

    return names[content];
}

bool dcpk_content_is_buffer(const char *key)
{
    return dcpk_ends_with(key, "mlp.router.expert_bias") ||
           dcpk_ends_with(key, "mlp.router.local_tokens_per_expert");
}
