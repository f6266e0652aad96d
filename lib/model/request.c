/* SPDX-License-Identifier: Apache-2.0 */
/* request.c - a table of Megatron's releases, and what the formats' request hooks share. */
#include "lib/model/request.h"

#include <string.h>

/*
 * option: one that this release was the first to have (megatron/training of the tags core_v0.14.0
 * to core_v0.19.0 and main d98e8a64, compared): args hold every option, given or not. The newest
 * main adds none that is known.
 */
static const struct {
    const char *name, *title, *option;
} releases[DCPK_N_RELEASES] = {
    [DCPK_CORE_0_15] = {"core-0.15", "core 0.15", "glu_linear_offset"},
    [DCPK_CORE_0_16] = {"core-0.16", "core 0.16", "attention_output_gate"},
    [DCPK_CORE_0_17] = {"core-0.17", "core 0.17", "ckpt_fully_parallel_load_exchange_algo"},
    [DCPK_CORE_0_18] = {"core-0.18", "core 0.18", "use_layer_wise_distributed_optimizer"},
    [DCPK_CORE_0_19] = {"core-0.19", "core 0.19", "tensor_parallel_num_weight_shards"},
    [DCPK_MAIN_2026_08_22] = {"main-2026-08-22", "main of 2026-08-22", "megatron_fsdp_version"},
    [DCPK_MAIN] = {"main", "main since 2026-08-25", NULL},
};

/* Bits of a release: impl is the higher of its two digits, Adam the lower. */
#define N_VARIANTS 4

uint32_t dcpk_loaders_of(enum dcpk_release first, enum dcpk_release last)
{
    uint32_t loaders = 0;

    for (unsigned r = first; r <= (unsigned)last; r++)
        loaders |= (uint32_t)0xf << (N_VARIANTS * r);
    return loaders;
}

uint32_t dcpk_loaders_with_impl(enum dcpk_loader_impl impl)
{
    return (impl == DCPK_LOADER_TE ? 0x33333333U : 0xccccccccU) & DCPK_ALL_LOADERS;
}

uint32_t dcpk_loaders_with_adam(enum dcpk_loader_adam adam)
{
    return (adam == DCPK_LOADER_TE_ADAM ? 0x55555555U : 0xaaaaaaaaU) & DCPK_ALL_LOADERS;
}

const char *dcpk_release_name(enum dcpk_release release)
{
    return releases[release].name;
}

const char *dcpk_release_title(enum dcpk_release release)
{
    return releases[release].title;
}

/* "0.19" and "v0.19" are core-0.19. */
static bool is_number_of(const char *name, const char *number)
{
    return strncmp(name, "core-", 5) == 0 && strcmp(name + 5, number + (number[0] == 'v')) == 0;
}

bool dcpk_release_find(const char *name, enum dcpk_release *release)
{
    for (unsigned r = 0; r < DCPK_N_RELEASES; r++)
        if (strcmp(releases[r].name, name) == 0 || strcmp(releases[r].title, name) == 0 ||
            is_number_of(releases[r].name, name)) {
            *release = (enum dcpk_release)r;
            return true;
        }
    return false;
}

bool dcpk_release_of_args(const struct dcpk_value *attrs, enum dcpk_release *release)
{
    for (unsigned r = DCPK_N_RELEASES; r-- > 0;)
        if (releases[r].option != NULL && dcpk_value_get(attrs, releases[r].option) != NULL) {
            *release = (enum dcpk_release)r;
            return true;
        }
    return false;
}

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
