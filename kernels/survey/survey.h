/* SPDX-License-Identifier: Apache-2.0 */
/* survey.h - what NVIDIA's libraries know of this machine. They are loaded when they are asked, and
 * none of their headers is needed: the answer is the same whatever was built in. */
#ifndef DCPK_KERNELS_SURVEY_SURVEY_H
#define DCPK_KERNELS_SURVEY_SURVEY_H

#include <stdint.h>

#include "lib/base/error.h"

#define DCPK_MAX_GPUS 32 /* more of them are not looked at */

struct dcpk_gpu {
    char name[96];
    uint64_t n_bytes, n_free_bytes;
    int n_links; /* of NVLink, which are up */
};

struct dcpk_gpus {
    char driver[96];
    int cuda_version; /* the newest that the driver knows: 1000 major + 10 minor */
    int n;
    struct dcpk_gpu list[DCPK_MAX_GPUS];
    /* Pairs of GPUs: by NVLink; else below one host bridge; else across the processor or between
     * processors. */
    int n_nvlink, n_near, n_far;
};

/* Asks NVML; no GPU is opened. Errors: DCPK_EUNSUPPORTED with the reason: no driver, or one that
 * does not answer. */
dcpk_status dcpk_survey_gpus(struct dcpk_gpus *gpus, struct dcpk_error *err);

/* The version of NCCL: 10000 major + 100 minor + patch. Errors: DCPK_EUNSUPPORTED with the reason.
 */
dcpk_status dcpk_survey_nccl(int *version, struct dcpk_error *err);

#endif
