/* SPDX-License-Identifier: Apache-2.0 */
/* environment.c - variables of the environment that decide how Megatron trains. */
#include "lib/knobs/environment.h"

#include <string.h>

#include "lib/base/order.h"

const struct dcpk_variable dcpk_variables[] = {
    {"CUDA_DEVICE_MAX_CONNECTIONS",
     "how many queues a GPU takes work from; with one queue, communication waits for computation",
     "not set with Megatron-FSDP, which is refused with 1; 1 for tensor or context parallelism "
     "without it, before compute capability 10",
     "1"},
    {"PYTORCH_CUDA_ALLOC_CONF", "how PyTorch's allocator takes memory of a GPU",
     "without expandable_segments:True where nccl_ub is on, which registers memory pools",
     "expandable_segments:True"},
    {"PYTORCH_ALLOC_CONF", "how PyTorch's allocator takes memory; newer releases have this name",
     "without expandable_segments:True where nccl_ub is on", "expandable_segments:True"},
    {"NCCL_ALGO", "the algorithms that NCCL may choose from",
     "of Ring, CollnetDirect, CollnetChain and ^NVLS alone in deterministic_mode", NULL},
    {"NVTE_ALLOW_NONDETERMINISTIC_ALGO",
     "lets Transformer Engine take attention whose sums change from run to run",
     "0 in deterministic_mode", NULL},
    {"CUBLAS_WORKSPACE_CONFIG", "the workspace of cuBLAS, which decides the order of its sums",
     ":4096:8 or :16:8 in deterministic_mode", NULL},
};
const size_t dcpk_n_variables = DCPK_COUNT(dcpk_variables);

const struct dcpk_variable *dcpk_variable_find(const char *name)
{
    for (size_t i = 0; i < dcpk_n_variables; i++)
        if (strcmp(dcpk_variables[i].name, name) == 0)
            return &dcpk_variables[i];
    return NULL;
}
