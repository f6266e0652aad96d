/* SPDX-License-Identifier: Apache-2.0 */
/* release.h - the releases of Megatron whose loaders differ, and sets of loaders. */
#ifndef DCPK_LIB_MODEL_RELEASE_H
#define DCPK_LIB_MODEL_RELEASE_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/ckpt/value.h"

enum dcpk_release {
    DCPK_CORE_0_15,
    DCPK_CORE_0_16,
    DCPK_CORE_0_17,
    DCPK_CORE_0_18,
    DCPK_CORE_0_19,
    DCPK_MAIN_2026_08_22, /* main of that day, commit d98e8a64 */
    DCPK_MAIN,            /* main since 2026-08-25: RNG states in three numbers (#6858) */
    DCPK_N_RELEASES,
};

/*
 * A loader is a release with Transformer Engine's layers or Megatron's local ones, and with its
 * Adam or torch's. A set of loaders is a word of bits.
 */
enum dcpk_loader_impl { DCPK_LOADER_TE, DCPK_LOADER_LOCAL };
enum dcpk_loader_adam { DCPK_LOADER_TE_ADAM, DCPK_LOADER_TORCH_ADAM };

#define DCPK_ALL_LOADERS (((uint32_t)1 << (4 * DCPK_N_RELEASES)) - 1)

/* The loader as a set of one. */
uint32_t dcpk_loader(enum dcpk_release release, enum dcpk_loader_impl impl,
                     enum dcpk_loader_adam adam);
/* All loaders of the releases from `first` to `last`; of one implementation; with one Adam. */
uint32_t dcpk_loaders_of(enum dcpk_release first, enum dcpk_release last);
uint32_t dcpk_loaders_with_impl(enum dcpk_loader_impl impl); /* of all releases */
uint32_t dcpk_loaders_with_adam(enum dcpk_loader_adam adam); /* of all releases */

/* "core-0.19", "main": in options and JSON; "core 0.19", "main since 2026-08-25": for people. */
const char *dcpk_release_name(enum dcpk_release release);
const char *dcpk_release_title(enum dcpk_release release);
/* By name, title or number ("core-0.19", "core 0.19", "0.19", "v0.19"). False when none is called
 * that. */
bool dcpk_release_find(const char *name, enum dcpk_release *release);

/*
 * The release that wrote these attributes of args (a DICT or NULL), by the youngest option that
 * they have. False: they have none of these.
 */
bool dcpk_release_of_args(const struct dcpk_value *attrs, enum dcpk_release *release);

#endif
