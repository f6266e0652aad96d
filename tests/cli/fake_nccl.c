/* SPDX-License-Identifier: Apache-2.0 */
/* fake_nccl.c - a libnccl.so.2 that gives its version, FAKE_NCCL, and nothing else. */
#include <stdlib.h>

__attribute__((visibility("default"))) int ncclGetVersion(int *version);

int ncclGetVersion(int *version)
{
    const char *value = getenv("FAKE_NCCL");

    *version = 22703;
    if (value != NULL)
        *version = (int)strtol(value, NULL, 10);
    return 0;
}
