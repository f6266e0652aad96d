/* SPDX-License-Identifier: Apache-2.0 */
/* pool.h - n numbered tasks on a few threads, or one in the background; the only place where
 * threads start. */
#ifndef DCPK_LIB_EXEC_POOL_H
#define DCPK_LIB_EXEC_POOL_H

#include <stddef.h>
#include <stdint.h>

#include "lib/base/error.h"

/*
 * Run task(context, worker, i, err) for i = 0 .. n_tasks - 1 on n_threads threads (the caller is
 * one of them); tasks are handed out in order. worker: 0 .. n_threads - 1, for per-thread scratch.
 * The first failure stops the handing out; its error is returned after all have stopped. Signals
 * are blocked in the threads.
 */
typedef dcpk_status dcpk_task(void *context, int worker, uint64_t i, struct dcpk_error *err);
dcpk_status dcpk_pool_run(int n_threads, uint64_t n_tasks, dcpk_task *task, void *context,
                          struct dcpk_error *err);

/* One task on a thread of its own, in the background. */
struct dcpk_background;
typedef dcpk_status dcpk_background_task(void *context, struct dcpk_error *err);
/* *background: dcpk_background_finish. Signals are blocked in the thread. Errors: DCPK_EIO where
 * the system starts none; DCPK_ENOMEM. */
dcpk_status dcpk_background_start(dcpk_background_task *task, void *context,
                                  struct dcpk_background **background, struct dcpk_error *err);
/* Wait until the task has returned, and return what it did. NULL is a no-op. */
dcpk_status dcpk_background_finish(struct dcpk_background *background, struct dcpk_error *err);

/* CPUs this process may use (affinity and cgroup quota), at most 16, at least 1. */
int dcpk_pool_default_threads(void);

#endif
