/* SPDX-License-Identifier: Apache-2.0 */
/* request.c - what the formats' request hooks share. */
#include "lib/model/request.h"

#include <string.h>

static const char *const purpose_names[DCPK_N_PURPOSES] = {
    [DCPK_FOR_WEIGHTS] = "weights", [DCPK_FOR_EXTRA] = "extra",
    [DCPK_FOR_MASTERS] = "masters", [DCPK_FOR_MOMENTS] = "moments",
    [DCPK_FOR_GROUPS] = "groups",   [DCPK_FOR_SCHEDULER] = "scheduler",
    [DCPK_FOR_RNG] = "rng",         [DCPK_FOR_COMMON] = "common",
};

const char *dcpk_purpose_name(enum dcpk_purpose purpose)
{
    return purpose_names[purpose];
}

/* Tens of thousands of keys are made: printf would take most of the time. */
void dcpk_key_number(struct dcpk_bytes *key, int64_t n)
{
    char digits[24];
    size_t at = sizeof digits;

    do
        digits[--at] = (char)('0' + n % 10);
    while ((n /= 10) > 0);
    dcpk_bytes_put(key, digits + at, sizeof digits - at);
}

static struct dcpk_request named(enum dcpk_purpose purpose, uint32_t loaders, const char *key,
                                 size_t key_bytes)
{
    return (struct dcpk_request){
        .purpose = purpose, .loaders = loaders, .key = key, .key_bytes = key_bytes, .rank = -1};
}

dcpk_status dcpk_request_object(const struct dcpk_loading *loading, enum dcpk_purpose purpose,
                                uint32_t loaders, const struct dcpk_bytes *key,
                                struct dcpk_error *err)
{
    const struct dcpk_request request =
        named(purpose, loaders & loading->loaders, (const char *)key->data, key->n_bytes);

    if (dcpk_bytes_status(key, err) != DCPK_OK)
        return err->status;
    if (request.loaders == 0)
        return DCPK_OK;
    return loading->take(loading->context, &request, err);
}

dcpk_status dcpk_request_object_named(const struct dcpk_loading *loading, enum dcpk_purpose purpose,
                                      uint32_t loaders, const char *key, struct dcpk_error *err)
{
    const struct dcpk_request request =
        named(purpose, loaders & loading->loaders, key, strlen(key));

    if (request.loaders == 0)
        return DCPK_OK;
    return loading->take(loading->context, &request, err);
}

dcpk_status dcpk_request_fault(const struct dcpk_loading *loading, enum dcpk_purpose purpose,
                               uint32_t loaders, const char *key, const char *text,
                               struct dcpk_error *err)
{
    const struct dcpk_request about = named(purpose, loaders & loading->loaders, key, strlen(key));

    if (about.loaders == 0)
        return DCPK_OK;
    return loading->fault(loading->context, &about, text, err);
}

bool dcpk_loading_wants(const struct dcpk_loading *loading, enum dcpk_purpose purpose)
{
    const bool is_fresh = (loading->flags & DCPK_LOADING_FINETUNE) != 0;

    switch (purpose) {
    case DCPK_FOR_MASTERS:
    case DCPK_FOR_MOMENTS:
    case DCPK_FOR_GROUPS:
    case DCPK_FOR_SCHEDULER:
        return !is_fresh && (loading->flags & DCPK_LOADING_NO_OPTIMIZER) == 0;
    case DCPK_FOR_RNG:
        return !is_fresh && (loading->flags & DCPK_LOADING_NO_RNG) == 0;
    case DCPK_FOR_WEIGHTS:
    case DCPK_FOR_EXTRA:
    case DCPK_FOR_COMMON:
    case DCPK_N_PURPOSES:
        break;
    }
    return true;
}
