/* SPDX-License-Identifier: Apache-2.0 */
/* thread_ranks.h - the ranks of a job as threads of this process. */
#ifndef DCPK_LIB_EXEC_THREAD_RANKS_H
#define DCPK_LIB_EXEC_THREAD_RANKS_H

#include "lib/exec/ranks.h"

#define DCPK_MAX_THREAD_RANKS 64

/*
 * The work of a rank. Returns when its calls on `ranks` are over (NULL: alone), with the status
 * that it has agreed on with the others.
 */
typedef dcpk_status dcpk_rank_script(struct dcpk_ranks *ranks, void *context,
                                     struct dcpk_error *err);

/*
 * Run a script by n_ranks threads, 1 .. DCPK_MAX_THREAD_RANKS; the calling thread is one of them.
 * Their transport gathers and broadcasts, and sends no messages: no work of theirs may report
 * progress (ranks.h, dcpk_ranks_over). Waits for one another have no limit, whatever
 * dcpk_ranks_set_timeout was given: a rank is a thread of this process, which cannot end before it
 * does, and a script that returns ends the waits of the others. Returns what the scripts return, of
 * several failures that of the lowest rank. Errors also: DCPK_EIO where the system starts too few
 * threads; DCPK_ENOMEM.
 */
dcpk_status dcpk_thread_ranks_run(int n_ranks, dcpk_rank_script *script, void *context,
                                  struct dcpk_error *err);

#endif
