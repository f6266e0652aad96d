/* SPDX-License-Identifier: Apache-2.0 */
/* injection.c - a profiler as NVTX loads it (NVTX_INJECTION64_PATH): prints ranges to stderr as
 * they begin and end, "(forward(gather))". */
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <string.h>

static int n_open;

static int NVTX_API push(const char *name)
{
    fprintf(stderr, "(%s", name);
    return n_open++;
}

static int NVTX_API pop(void)
{
    fputs(--n_open == 0 ? ")\n" : ")", stderr);
    return n_open;
}

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_export_table);

__attribute__((visibility("default"))) int
InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_export_table)
{
    const NvtxExportTableCallbacks *callbacks = get_export_table(NVTX_ETID_CALLBACKS);
    int (*const my_push)(const char *) = push;
    int (*const my_pop)(void) = pop;
    NvtxFunctionTable table;
    unsigned n;

    if (callbacks == NULL || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &n) ||
        n <= NVTX_CBID_CORE_RangePop)
        return 0;
    memcpy(table[NVTX_CBID_CORE_RangePushA], &my_push, sizeof my_push);
    memcpy(table[NVTX_CBID_CORE_RangePop], &my_pop, sizeof my_pop);
    return 1;
}
