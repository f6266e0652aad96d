/* SPDX-License-Identifier: Apache-2.0 */
/* request.h - the releases of Megatron whose loaders differ, and what the loaders of a format ask a
 * checkpoint for. */
#ifndef DCPK_LIB_MODEL_REQUEST_H
#define DCPK_LIB_MODEL_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/bytes.h"
#include "lib/ckpt/output.h"
#include "lib/ckpt/value.h"
#include "lib/model/expected.h"

enum dcpk_purpose {
    DCPK_FOR_WEIGHTS,
    DCPK_FOR_EXTRA,     /* extra states of modules */
    DCPK_FOR_MASTERS,   /* fp32 masters in tensors of their own */
    DCPK_FOR_MOMENTS,   /* and other states of the optimizer */
    DCPK_FOR_GROUPS,    /* parameter groups */
    DCPK_FOR_SCHEDULER, /* of the learning rate */
    DCPK_FOR_RNG,
    DCPK_FOR_COMMON, /* args, iteration, the file or item that holds them */
    DCPK_N_PURPOSES,
};

/* "weights", "rng", ... */
const char *dcpk_purpose_name(enum dcpk_purpose purpose);

/* One thing that loaders ask for. Texts and shape are the caller's until `take` returns. */
struct dcpk_request {
    enum dcpk_purpose purpose;
    uint32_t loaders; /* the asking format */
    const char *key;
    size_t key_bytes;
    const char *other; /* a key that will do instead: how runs spell it is not known; NULL: none */
    size_t other_bytes;
    const char *field; /* of an object whose name is "<key>.<field>"; NULL: its name is the key */
    bool is_tensor;
    bool may_differ; /* in the rows: a loader cuts or pads them */
    int rank;        /* -1: any shape will do */
    const int64_t *shape;
};

enum dcpk_loading_flags {
    DCPK_LOADING_NO_OPTIMIZER = 1, /* --no-load-optim */
    DCPK_LOADING_NO_RNG = 2,       /* --no-load-rng */
    DCPK_LOADING_FINETUNE = 4,     /* --finetune: neither of the two */
    DCPK_LOADING_FSDP_V1 = 8,      /* the version of Megatron-FSDP; neither: as in args */
    DCPK_LOADING_FSDP_V2 = 16,
};

/* A run that loads a checkpoint. All is borrowed. */
struct dcpk_loading {
    const struct dcpk_expected *model;
    const struct dcpk_value *attrs;  /* of the checkpoint's args */
    const struct dcpk_value *common; /* the common state of 3D-parallel formats; NULL: none */
    struct dcpk_grid saved, mesh;    /* of the run that saved, by args, and of the one that loads */
    uint32_t loaders;                /* that must be asked */
    unsigned flags;                  /* enum dcpk_loading_flags */
    struct dcpk_checkpoint *ckpt;    /* the one that is opened; NULL: */
    const struct dcpk_output *out;   /* it is planned */
    struct dcpk_arena *arena;        /* for what the hook makes */
    void *context;
    /* Each request once, in any order. */
    dcpk_status (*take)(void *context, const struct dcpk_request *request, struct dcpk_error *err);
    /* A fault other than a missing key that would stop those loaders; about->key: its place. */
    dcpk_status (*fault)(void *context, const struct dcpk_request *about, const char *text,
                         struct dcpk_error *err);
    /* The value of an object, NULL when it is not there. */
    dcpk_status (*value)(void *context, const char *key, const struct dcpk_value **value,
                         struct dcpk_error *err);
};

/* --- for the formats --- */

/* Append a number, 0 or more, in decimal. */
void dcpk_key_number(struct dcpk_bytes *key, int64_t n);

/* Hand over an object, or a tensor of any shape; its key is the text of `key`. */
dcpk_status dcpk_request_object(const struct dcpk_loading *loading, enum dcpk_purpose purpose,
                                uint32_t loaders, const struct dcpk_bytes *key,
                                struct dcpk_error *err);
dcpk_status dcpk_request_object_named(const struct dcpk_loading *loading, enum dcpk_purpose purpose,
                                      uint32_t loaders, const char *key, struct dcpk_error *err);
/* Reports what stops those loaders: "<key> <text>". */
dcpk_status dcpk_request_fault(const struct dcpk_loading *loading, enum dcpk_purpose purpose,
                               uint32_t loaders, const char *key, const char *text,
                               struct dcpk_error *err);

/* True if the run asks for such things at all. */
bool dcpk_loading_wants(const struct dcpk_loading *loading, enum dcpk_purpose purpose);

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
