/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_driver.c - libcuda.so.1, by dlopen. */
#include "kernels/cuda/cuda_driver.h"

#include <dlfcn.h>

#include "lib/base/order.h"
#include "lib/base/symbols.h"

#define OLDEST_VERSION 12000

static dcpk_status driver_find(void *library, struct cuda_driver *driver, struct dcpk_error *err)
{
    const struct dcpk_symbol symbols[] = {
#define CUDA_ROW(member, function) {DCPK_SYMBOL_NAME(function), &driver->member},
        CUDA_CALLS(CUDA_ROW)
#undef CUDA_ROW
    };
    const char *missing = dcpk_symbols_find(library, symbols, DCPK_COUNT(symbols));

    if (missing != NULL)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "the driver for NVIDIA GPUs lacks %s", missing);
    return DCPK_OK;
}

dcpk_status dcpk_cuda_driver_load(struct cuda_driver *driver, struct dcpk_error *err)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    int version = 0, n_devices = 0;
    CUresult code;

    if (library == NULL)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "this machine has no driver for NVIDIA GPUs");
    if (driver_find(library, driver, err))
        return err->status;
    driver->version(&version);
    if (version < OLDEST_VERSION)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "the driver for NVIDIA GPUs knows CUDA up to %d.%d, needed is %d.%d",
                         version / 1000, version % 1000 / 10, OLDEST_VERSION / 1000,
                         OLDEST_VERSION % 1000 / 10);
    code = driver->init(0);
    if (code == CUDA_SUCCESS)
        code = driver->device_count(&n_devices);
    if (code != CUDA_SUCCESS || n_devices == 0)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "the driver for NVIDIA GPUs finds none: %s",
                         dcpk_cuda_reason(driver, code));
    return DCPK_OK;
}

void dcpk_cuda_enter(const struct cuda_driver *driver, CUcontext context)
{
    driver->context_push(context);
}

void dcpk_cuda_leave(const struct cuda_driver *driver)
{
    CUcontext mine;

    driver->context_pop(&mine);
}

const char *dcpk_cuda_reason(const struct cuda_driver *driver, CUresult code)
{
    const char *text = NULL;

    if (driver->error_string(code, &text) != CUDA_SUCCESS || text == NULL)
        return "unknown error";
    return text;
}

dcpk_status dcpk_cuda_check(const struct cuda_driver *driver, CUresult code, const char *doing,
                            struct dcpk_error *err)
{
    dcpk_status st = DCPK_EIO;
    const char *name = NULL;

    if (code == CUDA_SUCCESS)
        return DCPK_OK;
    if (code == CUDA_ERROR_OUT_OF_MEMORY)
        st = DCPK_ENOMEM;
    if (driver->error_name(code, &name) != CUDA_SUCCESS || name == NULL)
        name = "unknown";
    return dcpk_fail(err, st, "%s: %s (%s)", doing, dcpk_cuda_reason(driver, code), name);
}
