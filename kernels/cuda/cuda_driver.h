/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_driver.h - NVIDIA's driver, loaded when a GPU is asked for: its functions and its errors. */
/*
 * The driver's interface and not the runtime's: nothing of CUDA is linked, so that a program that
 * moves files neither pays for it nor needs it, and any driver of CUDA 12 will do, however new the
 * toolkit was. A GPU's primary context is used, which libraries of the same process share (torch).
 */
#ifndef DCPK_KERNELS_CUDA_CUDA_DRIVER_H
#define DCPK_KERNELS_CUDA_CUDA_DRIVER_H

#include <cuda.h>
#include <stddef.h>

#include "lib/base/error.h"

/* Drivers before CUDA 12.8 have only the first version, whose calls are the same. */
#undef cuEventElapsedTime
CUresult CUDAAPI cuEventElapsedTime(float *milliseconds, CUevent from, CUevent to);

/* name of the member, function. <cuda.h> gives the function its newest version. */
#define CUDA_CALLS(CALL)                                                                           \
    CALL(init, cuInit)                                                                             \
    CALL(version, cuDriverGetVersion)                                                              \
    CALL(error_name, cuGetErrorName)                                                               \
    CALL(error_string, cuGetErrorString)                                                           \
    CALL(device_count, cuDeviceGetCount)                                                           \
    CALL(device_get, cuDeviceGet)                                                                  \
    CALL(device_name, cuDeviceGetName)                                                             \
    CALL(device_attribute, cuDeviceGetAttribute)                                                   \
    CALL(context_retain, cuDevicePrimaryCtxRetain)                                                 \
    CALL(context_release, cuDevicePrimaryCtxRelease)                                               \
    CALL(context_push, cuCtxPushCurrent)                                                           \
    CALL(context_pop, cuCtxPopCurrent)                                                             \
    CALL(peer_enable, cuCtxEnablePeerAccess)                                                       \
    CALL(module_load, cuModuleLoadData)                                                            \
    CALL(module_unload, cuModuleUnload)                                                            \
    CALL(module_function, cuModuleGetFunction)                                                     \
    CALL(launch, cuLaunchKernel)                                                                   \
    CALL(stream_create, cuStreamCreate)                                                            \
    CALL(stream_create_first, cuStreamCreateWithPriority)                                          \
    CALL(stream_wait, cuStreamSynchronize)                                                         \
    CALL(stream_destroy, cuStreamDestroy)                                                          \
    CALL(event_create, cuEventCreate)                                                              \
    CALL(event_record, cuEventRecord)                                                              \
    CALL(event_query, cuEventQuery)                                                                \
    CALL(event_wait, cuEventSynchronize)                                                           \
    CALL(event_elapsed, cuEventElapsedTime)                                                        \
    CALL(event_destroy, cuEventDestroy)                                                            \
    CALL(memory_info, cuMemGetInfo)                                                                \
    CALL(memory_alloc, cuMemAlloc)                                                                 \
    CALL(memory_free, cuMemFree)                                                                   \
    CALL(memory_range, cuMemGetAddressRange)                                                       \
    CALL(host_alloc, cuMemHostAlloc)                                                               \
    CALL(host_free, cuMemFreeHost)                                                                 \
    CALL(host_register, cuMemHostRegister)                                                         \
    CALL(host_unregister, cuMemHostUnregister)                                                     \
    CALL(pointer_attribute, cuPointerGetAttribute)                                                 \
    CALL(copy, cuMemcpyAsync)                                                                      \
    CALL(fill, cuMemsetD8Async)                                                                    \
    CALL(handle_get, cuIpcGetMemHandle)                                                            \
    CALL(handle_open, cuIpcOpenMemHandle)                                                          \
    CALL(handle_close, cuIpcCloseMemHandle)

/* Functions of the driver. A value. */
struct cuda_driver {
#define CUDA_MEMBER(name, function) __typeof__(function) *name;
    CUDA_CALLS(CUDA_MEMBER)
#undef CUDA_MEMBER
};

/* Load the driver, which stays loaded. Errors: DCPK_EUNSUPPORTED with the reason: there is none, it
 * is older than CUDA 12, it finds no GPU that it can use. */
dcpk_status dcpk_cuda_driver_load(struct cuda_driver *driver, struct dcpk_error *err);

/* Make `context` the thread's, and the one that was again. */
void dcpk_cuda_enter(const struct cuda_driver *driver, CUcontext context);
void dcpk_cuda_leave(const struct cuda_driver *driver);

/* DCPK_OK, or what the driver's code comes to (DCPK_ENOMEM, DCPK_EIO): "<doing>: <its reason>". */
dcpk_status dcpk_cuda_check(const struct cuda_driver *driver, CUresult code, const char *doing,
                            struct dcpk_error *err);
/* The reason in the driver's words, static. */
const char *dcpk_cuda_reason(const struct cuda_driver *driver, CUresult code);

#endif
