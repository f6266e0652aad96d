/* SPDX-License-Identifier: Apache-2.0 */
/* imports.h - the memory of other processes that a device has mapped, found again by its id. */
#ifndef DCPK_LIB_DEVICE_IMPORTS_H
#define DCPK_LIB_DEVICE_IMPORTS_H

#include "lib/base/error.h"
#include "lib/device/device.h"

struct dcpk_import {
    struct dcpk_import *next;
    struct dcpk_memory_id id;
    void *at; /* where its base lies here */
};

/* The imports of one device. Zeros except for the functions and what they are given. */
struct dcpk_imports {
    struct dcpk_import *first; /* the latest */
    /* *at: where the memory is mapped. On failure nothing is. */
    dcpk_status (*map)(void *context, const struct dcpk_memory_id *id, void **at,
                       struct dcpk_error *err);
    void (*unmap)(void *context, const struct dcpk_import *import);
    void *context;
};

/*
 * *at: the place of the memory, mapped unless it is already. Earlier exports of the same process at
 * a place that meets it are unmapped. Errors: DCPK_EUNSUPPORTED when the memory is of another
 * machine; DCPK_ENOMEM; those of `map`.
 */
dcpk_status dcpk_imports_get(struct dcpk_imports *imports, const struct dcpk_memory_id *id,
                             void **at, struct dcpk_error *err);

/* Unmap all. */
void dcpk_imports_release(struct dcpk_imports *imports);

#endif
