/* SPDX-License-Identifier: Apache-2.0 */
/* nvtx_ranges.c - the headers of NVTX load the library that a profiler names in
 * NVTX_INJECTION64_PATH, at the first call. */
#include "kernels/kernels.h"

#include <nvtx3/nvToolsExt.h>

static void nvtx_push(const char *name)
{
    (void)nvtxRangePushA(name);
}

static void nvtx_pop(void)
{
    (void)nvtxRangePop();
}

static dcpk_status nvtx_find(struct dcpk_error *err)
{
    if (nvtxRangePushA("dcpkit") == NVTX_NO_PUSH_POP_TRACKING)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "no profiler takes NVTX ranges: start this program under 'nsys profile'");
    nvtx_pop();
    return DCPK_OK;
}

const struct dcpk_ranges dcpk_ranges_nvtx = {
    .name = "nvtx",
    .summary = "NVTX, for Nsight Systems",
    .find = nvtx_find,
    .push = nvtx_push,
    .pop = nvtx_pop,
};
