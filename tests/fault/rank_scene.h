/* SPDX-License-Identifier: Apache-2.0 */
/* rank_scene.h - a command's run by several ranks, one of which something happens to. */
#ifndef DCPK_TESTS_FAULT_RANK_SCENE_H
#define DCPK_TESTS_FAULT_RANK_SCENE_H

#include "tests/fault/strike.h"

#define MAX_RANKS 3

/*
 * Make MPI run on a test machine, which has few cores, perhaps as root; false where there is none.
 */
static inline bool rank_scene_begin(void)
{
    const char *const version[] = {"--version", NULL};

    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 1);
    setenv("OMPI_MCA_hwloc_base_binding_policy", "none", 1);
    return strstr(scene_run(DCPK_PROGRAM, version, NULL).printed, "\n  mpi ") != NULL &&
           scene_run("mpirun", version, NULL).exit_code == 0;
}

/* Run a scene by n ranks; rank `struck` (-1: none) meets the fault. */
static inline struct result rank_scene_run(const struct scene *scene, int n, int struck,
                                           const char *kind, uint64_t nth)
{
    static char variable[8192 + sizeof FAULT_VARIABLE];
    const bool in_memory = strstr(kind, "nomem") != NULL;
    const char *args[MAX_ARGS * MAX_RANKS];
    size_t n_args = 0;

    snprintf(variable, sizeof variable, FAULT_VARIABLE "=%s", strike_value(kind, nth));
    *strike_report = (struct fault_report){0};
    for (int r = 0; r < n; r++) {
        const char *const begin[] = {r == 0 ? "-n" : ":", r == 0 ? "1" : "-n", r == 0 ? "env" : "1",
                                     r == 0 ? NULL : "env"};

        for (int i = 0; i < 4 && begin[i] != NULL; i++)
            args[n_args++] = begin[i];
        /* Open MPI does not free all that it allocates when it starts */
        args[n_args++] = "ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0";
        if (r == struck) {
            args[n_args++] =
                in_memory ? "LD_PRELOAD=" DCPK_ALLOC_FAULT : "LD_PRELOAD=" DCPK_IO_FAULT;
            args[n_args++] = variable;
        }
        args[n_args++] = DCPK_PROGRAM;
        for (int i = 0; scene->args[i] != NULL; i++)
            args[n_args++] = scene->args[i];
    }
    args[n_args] = NULL;
    return scene_run("mpirun", args, NULL);
}

/* The next line that is ours; NULL: there is none. */
static inline const char *rank_scene_message(const char *said)
{
    if (strncmp(said, "dcpkit: ", 8) == 0)
        return said;
    said = strstr(said, "\ndcpkit: ");
    return said == NULL ? NULL : said + 1;
}

/* How many lines are ours. */
static inline int rank_scene_messages(const char *said)
{
    int n = 0;

    while ((said = rank_scene_message(said)) != NULL) {
        said++;
        n++;
    }
    return n;
}

#endif
