/* SPDX-License-Identifier: Apache-2.0 */
/* kernels.h - the tables of what was built in. New host kernels, a new device, link,
 * transport or collectives are a folder here and one row in kernels.c. */
#ifndef DCPK_KERNELS_KERNELS_H
#define DCPK_KERNELS_KERNELS_H

#include <stdint.h>

#include "lib/base/error.h"
#include "lib/device/collectives.h"
#include "lib/device/device.h"
#include "lib/device/host_kernels.h"
#include "lib/device/link.h"
#include "lib/device/ops.h"
#include "lib/device/ranges.h"
#include "lib/device/transport.h"

/* NULL-terminated; the first is the one to use. */
extern const struct dcpk_host_kernels *const dcpk_host_kernel_sets[];

/* NULL-terminated; the first is the processor's, the specification. A built-in device may still
 * find no hardware: `open` reports it. */
extern const struct dcpk_device_ops *const dcpk_devices[];

/* The plain one, the specification that twins are tested against. */
extern const struct dcpk_host_kernels dcpk_host_kernels_plain;

/* NULL-terminated; the first is the one to use. Its library may not be there: `find` reports it. */
extern const struct dcpk_transport *const dcpk_transports[];

/* NULL-terminated, in the order of preference; the first is that of threads, the specification. */
extern const struct dcpk_link_ops *const dcpk_links[];

/* NULL-terminated; the first whose memory is the mathematics', and whose world is made, is the one
 * to use. */
extern const struct dcpk_collectives *const dcpk_collectives_built[];

/* NULL-terminated: the mathematics of a training step; the first is the processor's, the
 * specification. A built-in device may still find no hardware: `open` reports it. */
extern const struct dcpk_ops *const dcpk_math_ops[];

/* NULL-terminated: ranges for profilers. `find` reports whether one listens. */
extern const struct dcpk_ranges *const dcpk_ranges_built[];

/* NULL-terminated: names of what an optional dependency would have brought. */
extern const char *const dcpk_kernels_absent[];

/* Fails for a name, perhaps with ":NUMBER", that no row of a kind has ("device", "link"):
 * DCPK_EUNSUPPORTED where it would have been built in, else DCPK_EUSAGE. */
dcpk_status dcpk_kernels_fail(const char *kind, const char *name, struct dcpk_error *err);

/* ---- rows of these tables ---- */

/* The same results, faster. */
extern const struct dcpk_host_kernels dcpk_host_kernels_tuned;
/* Host memory, and the mathematics of a training step in it. */
extern const struct dcpk_device_ops dcpk_cpu_device;
extern const struct dcpk_ops dcpk_cpu_ops;

/* Ranks that are threads of one process. */
extern const struct dcpk_link_ops dcpk_link_local;

/*
 * For ranks that have nothing better: whatever the transport is, its all_gather carries the
 * messages from host memory, and every rank gets those of all others, too. An exchange ends in the
 * first poll, which takes as long as the calls of all_gather; how long one may take is the
 * transport's to say.
 */
extern const struct dcpk_link_ops dcpk_link_gather;

/*
 * DCPK_MEMORY_DEVICE is the GPU's, shared between processes by CUDA IPC handles; it takes plain
 * allocations only, those of torch's expandable segments have no handle. DCPK_MEMORY_HOST is
 * page-locked. `open` returns DCPK_EUNSUPPORTED where no GPU or no driver is, or where the driver
 * is older than the toolkit that this was built with. The calling thread's current device is what
 * it was before a call when it returns.
 */
extern const struct dcpk_device_ops dcpk_cuda_device;

/* Products add as the processor's do, to the bit; sums along a row are trees of a block. */
extern const struct dcpk_ops dcpk_cuda_ops;

/* Products by cuBLAS, attention by products: fast, and the same bits for the same call. libcublas
 * is loaded when it is opened: DCPK_EUNSUPPORTED where there is none. Where it was built. */
extern const struct dcpk_ops dcpk_cublas_ops;

/*
 * Messages between GPUs: of other hosts, or without peer access. The device is a "cuda" one, a GPU
 * of its own for each rank. libnccl.so.2 is found when a link is opened, not before: the copy that
 * the process has already (torch's), else the system's; `open` returns DCPK_EUNSUPPORTED where
 * there is none. All messages of an exchange are one group, so that they are under way at the same
 * time; NCCL wants large ones: 354 GB/s into each of two H200 in one message, 288 in messages of 64
 * MiB, 44 in messages of 512 KiB.
 */
extern const struct dcpk_link_ops dcpk_link_nccl;

/*
 * Collectives of a training step. Memory is a GPU's, or page-locked memory of the host; a GPU of
 * its own for each rank. A group of one rank copies, and needs no NCCL. libnccl.so.2 is loaded when
 * a group has several: errors of world are those of the link "nccl" then. Each group has a
 * communicator for its collectives and one for messages in each direction, joined at the first
 * call: the first message of a group waits until each of its ranks has asked for one.
 */
extern const struct dcpk_collectives dcpk_collectives_nccl;

extern const struct dcpk_ranges dcpk_ranges_nvtx;

/* ---- the installed drivers and libraries (kernels/survey) ---- */

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
