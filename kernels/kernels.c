/* SPDX-License-Identifier: Apache-2.0 */
/* kernels.c - the tables of host kernels, devices, mathematics, links, transports, collectives. The
 * only place where an #ifdef asks what was built in. */
#include "kernels/kernels.h"

#include <string.h>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/mpi/mpi_load.h"

const struct dcpk_host_kernels *const dcpk_host_kernel_sets[] = {
    &dcpk_host_kernels_tuned,
    &dcpk_host_kernels_plain,
    NULL,
};

const struct dcpk_device_ops *const dcpk_devices[] = {
    &dcpk_cpu_device,
#ifdef DCPK_HAVE_CUDA
    &dcpk_cuda_device,
#endif
    NULL,
};

const char *const dcpk_kernels_absent[] = {
#ifndef DCPK_HAVE_CUDA
    "cuda",
#endif
#ifndef DCPK_HAVE_CUBLAS
    "cublas",
#endif
#ifndef DCPK_HAVE_NCCL
    "nccl",
#endif
    NULL,
};

dcpk_status dcpk_kernels_fail(const char *kind, const char *name, struct dcpk_error *err)
{
    const size_t n = strcspn(name, ":");

    for (size_t i = 0; dcpk_kernels_absent[i] != NULL; i++)
        if (strlen(dcpk_kernels_absent[i]) == n && strncmp(dcpk_kernels_absent[i], name, n) == 0)
            return dcpk_fail_fix(err, DCPK_EUNSUPPORTED, DCPK_FIX_LIST_BUILT,
                                 "the %s '%s' is not built in: its libraries were missing when "
                                 "dcpkit was built",
                                 kind, name);
    return dcpk_fail_fix(err, DCPK_EUSAGE, DCPK_FIX_LIST_BUILT, "there is no %s '%s'", kind, name);
}

const struct dcpk_link_ops *const dcpk_links[] = {
    &dcpk_link_local,
#ifdef DCPK_HAVE_NCCL
    &dcpk_link_nccl,
#endif
    &dcpk_link_by_mpi,
    &dcpk_link_gather, /* works for all ranks, as the last resort */
    NULL,
};

const struct dcpk_ops *const dcpk_math_ops[] = {
    &dcpk_cpu_ops,
#ifdef DCPK_HAVE_CUDA
    &dcpk_cuda_ops,
#endif
#ifdef DCPK_HAVE_CUBLAS
    &dcpk_cublas_ops,
#endif
    NULL,
};

const struct dcpk_transport *const dcpk_transports[] = {
    &dcpk_transport_by_mpi,
    NULL,
};

const struct dcpk_ranges *const dcpk_ranges_built[] = {
#ifdef DCPK_HAVE_NVTX
    &dcpk_ranges_nvtx,
#endif
    NULL,
};

const struct dcpk_collectives *const dcpk_collectives_built[] = {
    &dcpk_collectives_by_mpi,
    &dcpk_collectives_alone, /* works for a process alone */
#ifdef DCPK_HAVE_NCCL
    &dcpk_collectives_nccl, /* the only ones of a GPU's memory */
#endif
    NULL,
};
