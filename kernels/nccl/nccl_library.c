/* SPDX-License-Identifier: Apache-2.0 */
/* nccl_library.c - libnccl.so.2, by dlopen. */
#include "kernels/nccl/nccl_channel.h"

#include <dlfcn.h>

#include "kernels/cuda/cuda_driver.h"
#include "lib/base/order.h"
#include "lib/base/symbols.h"

static dcpk_status nccl_find(void *library, struct nccl *nccl, struct dcpk_error *err)
{
    const struct dcpk_symbol symbols[] = {
#define NCCL_ROW(member, function) {DCPK_SYMBOL_NAME(function), &nccl->member},
        NCCL_CALLS(NCCL_ROW)
#undef NCCL_ROW
    };
    const char *missing = dcpk_symbols_find(library, symbols, DCPK_COUNT(symbols));

    if (missing != NULL)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "libnccl.so.2 is older than 2.14: it lacks %s",
                         missing);
    return DCPK_OK;
}

/* Functions of later releases, of each group all or none. */
static void nccl_find_later(void *library, struct nccl *nccl)
{
    const struct dcpk_symbol memory[] = {{"ncclMemAlloc", &nccl->mem_alloc},
                                         {"ncclMemFree", &nccl->mem_free},
                                         {"ncclCommRegister", &nccl->comm_register},
                                         {"ncclCommDeregister", &nccl->comm_deregister}};
    const struct dcpk_symbol windows[] = {{"ncclCommWindowRegister", &nccl->window_register},
                                          {"ncclCommWindowDeregister", &nccl->window_deregister}};

    if (dcpk_symbols_find(library, memory, DCPK_COUNT(memory)) != NULL)
        nccl->mem_alloc = NULL;
    if (dcpk_symbols_find(library, windows, DCPK_COUNT(windows)) != NULL)
        nccl->window_register = NULL;
}

dcpk_status dcpk_nccl_load(struct nccl *nccl, struct dcpk_error *err)
{
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD);

    if (library == NULL)
        library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "NCCL is not there: %s", dlerror());
    nccl_find_later(library, nccl);
    return nccl_find(library, nccl, err);
}

/* As NCCL 2.14 knew it, which all later ones take: fields that it had not are never looked at. */
ncclConfig_t dcpk_nccl_config(void)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;

    config.version = NCCL_VERSION(2, 14, 0);
    config.blocking = 0;
    return config;
}

dcpk_status dcpk_nccl_check(const struct nccl *nccl, ncclComm_t comm, ncclResult_t result,
                            const char *doing, struct dcpk_error *err)
{
    if (result == ncclSuccess || result == ncclInProgress)
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EIO, "%s: NCCL: %s: %s", doing, nccl->error_string(result),
                     comm == NULL ? "" : nccl->last_error(comm));
}

dcpk_status dcpk_nccl_poll(const struct nccl *nccl, ncclComm_t comm, bool *done,
                           struct dcpk_error *err)
{
    ncclResult_t result = ncclSuccess;

    if (dcpk_nccl_check(nccl, comm, nccl->async_error(comm, &result), "asking for the state",
                        err) ||
        dcpk_nccl_check(nccl, comm, result, "talking to other ranks", err))
        return err->status;
    *done = result == ncclSuccess;
    return DCPK_OK;
}
