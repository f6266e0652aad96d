/* SPDX-License-Identifier: Apache-2.0 */
/* release.c - a table of Megatron's releases. */
#include "lib/model/release.h"

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

uint32_t dcpk_loader(enum dcpk_release release, enum dcpk_loader_impl impl,
                     enum dcpk_loader_adam adam)
{
    return (uint32_t)1 << (N_VARIANTS * (unsigned)release + 2 * (unsigned)impl + (unsigned)adam);
}

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
