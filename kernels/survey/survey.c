/* SPDX-License-Identifier: Apache-2.0 */
/* survey.c - libnvidia-ml.so.1 and libnccl.so.2, by dlopen. */
/*
 * Calls and numbers: NVML's API reference (docs.nvidia.com/deploy/nvml-api, R580), and <nccl.h> of
 * NCCL 2.27. All of them are older than CUDA 12.
 */
#include "kernels/kernels.h"

#include <dlfcn.h>
#include <stdio.h>

#include "lib/base/order.h"
#include "lib/base/symbols.h"

#define NVML_P2P_NVLINK      2  /* NVML_P2P_CAPS_INDEX_NVLINK */
#define NVML_SAME_HOSTBRIDGE 30 /* NVML_TOPOLOGY_HOSTBRIDGE */
#define NVML_MAX_LINKS       18 /* NVML_NVLINK_MAX_LINKS */

typedef struct nvml_gpu *nvml_device;
struct nvml_memory {
    unsigned long long total, free, used;
};

/* Member, function, arguments. Results: 0 is success. */
#define NVML_CALLS(X)                                                                              \
    X(start, nvmlInit_v2, (void))                                                                  \
    X(stop, nvmlShutdown, (void))                                                                  \
    X(driver, nvmlSystemGetDriverVersion, (char *version, unsigned n_bytes))                       \
    X(cuda, nvmlSystemGetCudaDriverVersion, (int *version))                                        \
    X(count, nvmlDeviceGetCount_v2, (unsigned *n))                                                 \
    X(device, nvmlDeviceGetHandleByIndex_v2, (unsigned number, nvml_device *device))               \
    X(name, nvmlDeviceGetName, (nvml_device device, char *name, unsigned n_bytes))                 \
    X(memory, nvmlDeviceGetMemoryInfo, (nvml_device device, struct nvml_memory * memory))          \
    X(link, nvmlDeviceGetNvLinkState, (nvml_device device, unsigned link, int *is_up))             \
    X(peer, nvmlDeviceGetP2PStatus, (nvml_device a, nvml_device b, int kind, int *status))         \
    X(ancestor, nvmlDeviceGetTopologyCommonAncestor, (nvml_device a, nvml_device b, int *level))

#define NVML_MEMBER(member, function, arguments) int(*member) arguments;
struct nvml {
    NVML_CALLS(NVML_MEMBER)
};

#define NVML_ROW(member, function, arguments) {#function, &nvml->member},
static dcpk_status nvml_load(struct nvml *nvml, struct dcpk_error *err)
{
    const struct dcpk_symbol symbols[] = {NVML_CALLS(NVML_ROW)};
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    const char *missing;

    if (library == NULL)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "no driver for NVIDIA GPUs (libnvidia-ml.so.1)");
    missing = dcpk_symbols_find(library, symbols, DCPK_COUNT(symbols));
    if (missing != NULL)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "libnvidia-ml.so.1 lacks %s", missing);
    return DCPK_OK;
}

/* Facts that the driver does not give stay 0. */
static void survey_gpu(const struct nvml *nvml, nvml_device device, struct dcpk_gpu *gpu)
{
    struct nvml_memory memory = {0};

    if (nvml->name(device, gpu->name, sizeof gpu->name) != 0)
        snprintf(gpu->name, sizeof gpu->name, "unknown");
    (void)nvml->memory(device, &memory);
    gpu->n_bytes = memory.total;
    gpu->n_free_bytes = memory.free;
    for (unsigned i = 0; i < NVML_MAX_LINKS; i++) {
        int is_up = 0;

        gpu->n_links += nvml->link(device, i, &is_up) == 0 && is_up == 1;
    }
}

static void survey_pair(const struct nvml *nvml, nvml_device a, nvml_device b,
                        struct dcpk_gpus *gpus)
{
    int status = -1, level = INT32_MAX;

    if (nvml->peer(a, b, NVML_P2P_NVLINK, &status) == 0 && status == 0)
        gpus->n_nvlink++;
    else if (nvml->ancestor(a, b, &level) == 0 && level <= NVML_SAME_HOSTBRIDGE)
        gpus->n_near++;
    else
        gpus->n_far++;
}

dcpk_status dcpk_survey_gpus(struct dcpk_gpus *gpus, struct dcpk_error *err)
{
    nvml_device devices[DCPK_MAX_GPUS];
    struct nvml nvml;
    unsigned n = 0;
    int code;

    *gpus = (struct dcpk_gpus){.n = 0};
    if (nvml_load(&nvml, err) != DCPK_OK)
        return err->status;
    code = nvml.start();
    if (code != 0)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "the driver for NVIDIA GPUs does not answer (NVML's error %d)", code);
    if (nvml.driver(gpus->driver, sizeof gpus->driver) != 0 ||
        nvml.cuda(&gpus->cuda_version) != 0 || nvml.count(&n) != 0)
        dcpk_fail(err, DCPK_EUNSUPPORTED, "the driver for NVIDIA GPUs does not count them");
    for (unsigned i = 0; err->status == DCPK_OK && i < n && gpus->n < DCPK_MAX_GPUS; i++) {
        if (nvml.device(i, &devices[gpus->n]) != 0)
            continue; /* another user's */
        survey_gpu(&nvml, devices[gpus->n], &gpus->list[gpus->n]);
        for (int j = 0; j < gpus->n; j++)
            survey_pair(&nvml, devices[j], devices[gpus->n], gpus);
        gpus->n++;
    }
    (void)nvml.stop();
    return err->status;
}

dcpk_status dcpk_survey_nccl(int *version, struct dcpk_error *err)
{
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    int (*get_version)(int *) = NULL;
    const struct dcpk_symbol symbol = {"ncclGetVersion", &get_version};

    if (library == NULL || dcpk_symbols_find(library, &symbol, 1) != NULL)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "libnccl.so.2 is not there");
    if (get_version(version) != 0)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "libnccl.so.2 has no version");
    return DCPK_OK;
}
