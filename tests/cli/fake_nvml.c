/* SPDX-License-Identifier: Apache-2.0 */
/* fake_nvml.c - a libnvidia-ml.so.1 of a machine with GPUs: FAKE_N of them (2), of which number
 * FAKE_DOWN (none) has lost half of its links. Numbers 0 and 1 are joined by NVLink, others not. */
#include <stdio.h>
#include <stdlib.h>

#define SHOWN __attribute__((visibility("default")))
#define CALL(name, ...)                                                                            \
    SHOWN int name(__VA_ARGS__);                                                                   \
    int name(__VA_ARGS__)

struct memory {
    unsigned long long total, free, used;
};

static long number_of(const char *name, long otherwise)
{
    const char *value = getenv(name);

    if (value == NULL)
        return otherwise;
    return strtol(value, NULL, 10);
}

static char gpus[64]; /* a handle is the address of one */

CALL(nvmlInit_v2, void)
{
    return (int)number_of("FAKE_FAILS", 0);
}
CALL(nvmlShutdown, void)
{
    return 0;
}
CALL(nvmlSystemGetDriverVersion, char *version, unsigned n_bytes)
{
    snprintf(version, n_bytes, "580.65.06");
    return 0;
}
CALL(nvmlSystemGetCudaDriverVersion, int *version)
{
    *version = (int)number_of("FAKE_CUDA", 13000);
    return 0;
}
CALL(nvmlDeviceGetCount_v2, unsigned *n)
{
    *n = (unsigned)number_of("FAKE_N", 2);
    return 0;
}
CALL(nvmlDeviceGetHandleByIndex_v2, unsigned number, char **device)
{
    *device = &gpus[number];
    return 0;
}
CALL(nvmlDeviceGetName, char *device, char *name, unsigned n_bytes)
{
    (void)device;
    snprintf(name, n_bytes, "NVIDIA H100 80GB HBM3");
    return 0;
}
CALL(nvmlDeviceGetMemoryInfo, char *device, struct memory *memory)
{
    (void)device;
    *memory = (struct memory){.total = 80ull << 30, .free = 79ull << 30, .used = 1ull << 30};
    return 0;
}
CALL(nvmlDeviceGetNvLinkState, char *device, unsigned link, int *is_up)
{
    *is_up = link < 9 || device - gpus != number_of("FAKE_DOWN", -1);
    return 0;
}
CALL(nvmlDeviceGetP2PStatus, char *a, char *b, int kind, int *status)
{
    *status = kind != 2 || a - gpus > 1 || b - gpus > 1;
    return 0;
}
CALL(nvmlDeviceGetTopologyCommonAncestor, char *a, char *b, int *level)
{
    *level = 50;
    if ((a - gpus) / 2 == (b - gpus) / 2)
        *level = 20;
    return 0;
}
