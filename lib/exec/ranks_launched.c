/* SPDX-License-Identifier: Apache-2.0 */
/* ranks_launched.c - what the launcher left in the environment: how many processes there are. */
#include <stdlib.h>
#include <string.h>

#include "lib/base/order.h"
#include "lib/exec/ranks.h"

static bool is_alone(void)
{
    const char *alone = getenv("DCPKIT_ALONE");

    return alone != NULL && strcmp(alone, "1") == 0;
}

/* A number of the environment; -1 when there is none. */
static int env_number(const char *name)
{
    const char *text = getenv(name);
    char *end;
    long n;

    if (text == NULL || *text == '\0')
        return -1;
    n = strtol(text, &end, 10);
    if (*end != '\0' || n < 0 || n > INT32_MAX)
        return -1;
    return (int)n;
}

/* The number of processes that the launcher of MPI programs started. */
static int launcher_ranks(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"};

    for (size_t i = 0; i < DCPK_COUNT(names); i++) {
        const int n = env_number(names[i]);

        if (n > 0)
            return n;
    }
    return 1;
}

/* True if torchrun, not a launcher of MPI programs, started this one of n processes. */
static bool is_torchrun(int *rank, int *n)
{
    const int n_launched = launcher_ranks();
    const bool is_srun = getenv("OMPI_COMM_WORLD_SIZE") == NULL && getenv("SLURM_STEP_NUM_TASKS");

    *rank = env_number("RANK");
    *n = env_number("WORLD_SIZE");
    return getenv("TORCHELASTIC_RUN_ID") != NULL && env_number("LOCAL_RANK") >= 0 && *n > 1 &&
           *rank >= 0 && *rank < *n && (n_launched == 1 || (is_srun && n_launched < *n));
}

int dcpk_ranks_launched(void)
{
    int rank, n;

    if (is_alone() || is_torchrun(&rank, &n))
        return 1;
    return launcher_ranks();
}

bool dcpk_ranks_stand_aside(int *rank, int *n_ranks)
{
    return !is_alone() && is_torchrun(rank, n_ranks) && *rank > 0;
}
