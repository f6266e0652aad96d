/* SPDX-License-Identifier: Apache-2.0 */
/* old_driver.c - a libcuda.so.1 of CUDA 11.4 that can do nothing but give its version. */
#include "kernels/cuda/cuda_driver.h"

#include <string.h>

static int answer(const char *member, int *first)
{
    if (strcmp(member, "version") != 0)
        return CUDA_ERROR_UNKNOWN;
    *first = 11040;
    return CUDA_SUCCESS;
}

#define NAME_OF(function) #function
#define OLD(member, function)                                                                      \
    __attribute__((visibility("default"))) int old_##member(int *first) __asm__(                   \
        NAME_OF(function));                                                                        \
    int old_##member(int *first)                                                                   \
    {                                                                                              \
        return answer(#member, first);                                                             \
    }

CUDA_CALLS(OLD)
