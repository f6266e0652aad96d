/* SPDX-License-Identifier: Apache-2.0 */
/* ranks.h - processes that share one job over a shared file system: sharing of work, progress and
 * failures. */
#ifndef DCPK_LIB_EXEC_RANKS_H
#define DCPK_LIB_EXEC_RANKS_H

#include "lib/base/bytes.h"
#include "lib/base/progress.h"
#include "lib/device/transport.h"

/*
 * Every rank runs the same program on the same input and comes to the same plan. Only results of a
 * few bytes and messages about progress and failure pass between them. NULL stands for a process
 * that is alone: rank 0 of 1, all calls below then do nothing.
 *
 * Collective calls must be made by all ranks in the same order. A rank that fails in between
 * calls dcpk_ranks_agree next, past all other collective calls; so does a rank to which one of them
 * returns the failure of another. Until then such calls return that error at once and send nothing.
 */
struct dcpk_ranks;

/*
 * The number of processes that the launcher (mpirun, mpiexec, srun) started; 1 without one. From
 * the environment: OMPI_COMM_WORLD_SIZE (Open MPI), PMI_SIZE (MPICH, Intel MPI),
 * SLURM_STEP_NUM_TASKS (srun). DCPKIT_ALONE=1 makes it 1: for a program that one process of a job
 * starts by itself.
 */
int dcpk_ranks_launched(void);

/*
 * True for one of several processes of torchrun other than its rank 0. They cannot find one another
 * here: rank 0 works, the others have nothing to do. Read from RANK, WORLD_SIZE, LOCAL_RANK and
 * TORCHELASTIC_RUN_ID, which torchrun sets together (torch/distributed/elastic/agent/server/
 * local_elastic_agent.py @2.11); one of them alone means nothing. Processes of mpirun or srun share
 * the work whatever these are, unless srun started fewer of them than torchrun: then it started the
 * torchruns, and dcpk_ranks_launched is 1. DCPKIT_ALONE=1: false. rank, n_ranks: their values.
 */
bool dcpk_ranks_stand_aside(int *rank, int *n_ranks);

/*
 * Join the other processes of this job. transports: NULL-terminated, the first is used. *ranks:
 * NULL when this process is alone; dcpk_ranks_leave. Errors: DCPK_EUSAGE when the launcher started
 * several processes that cannot find one another: no transport was built in, or the launcher and
 * the library do not know each other. After any error this process has to end with one, upon which
 * the launcher ends the others.
 */
dcpk_status dcpk_ranks_join(const struct dcpk_transport *const *transports,
                            struct dcpk_ranks **ranks, struct dcpk_error *err);
/*
 * Ranks over a comm that the caller has joined otherwise; dcpk_ranks_leave, which then leaves it,
 * too. Its transport needs all_gather and broadcast alone where no work sends messages (no
 * dcpk_ranks_progress, _send and _wait): `send` is NULL then. Errors: DCPK_ENOMEM, upon which comm
 * is still the caller's.
 */
dcpk_status dcpk_ranks_over(struct dcpk_comm *comm, struct dcpk_ranks **ranks,
                            struct dcpk_error *err);
/*
 * Collective: the job is over. A rank that leaves while others still work ends their work with an
 * error: the ranks no longer make the same calls. Errors: DCPK_EIO when the network broke on the
 * way; it then waits for no rank, and this process has to end with an error.
 */
dcpk_status dcpk_ranks_leave(struct dcpk_ranks *ranks, struct dcpk_error *err);
/* Not collective: free this rank and abandon its comm. Ranks that still make collective calls wait
 * for it as long as their transport lets them. NULL is a no-op. */
void dcpk_ranks_abandon(struct dcpk_ranks *ranks);

/* This rank, 0 alone; the number of ranks, 1 alone. */
int dcpk_ranks_self(const struct dcpk_ranks *ranks);
int dcpk_ranks_count(const struct dcpk_ranks *ranks);
/* Threads of each rank, at least 1: `wanted`; 0: its share of the CPUs that a process may use. */
int dcpk_ranks_threads(const struct dcpk_ranks *ranks, int wanted);
/* The group to open a link over (lib/device/link.h), between two agreements. NULL when alone. */
struct dcpk_comm *dcpk_ranks_comm(struct dcpk_ranks *ranks);

/*
 * How long calls below wait for other ranks, in milliseconds; 0, as at the beginning: without end,
 * as a rank may work for hours. Returns what it was. A rank that does not come in time is an error
 * as if the network had broken: dcpk_ranks_leave, which itself waits no longer than the last limit
 * that was set, if one was. Ranks that are threads of a process wait without
 * end whatever this is (dcpk_thread_ranks_run).
 */
int dcpk_ranks_set_timeout(struct dcpk_ranks *ranks, int timeout_ms);

/*
 * Collective: DCPK_OK when `st` is that on all ranks. Else all get the error of the lowest rank
 * that failed by itself, "rank N of M: " in front unless all failed. To be called with the rank's
 * own status and error. The failed work of other ranks has then ended, and the next may begin.
 */
dcpk_status dcpk_ranks_agree(struct dcpk_ranks *ranks, dcpk_status st, struct dcpk_error *err);

/*
 * Collective inside the work: checks that `number` is the same on all ranks. Errors: DCPK_EIO with
 * `what` on all ranks. It is not an error of the checkpoint: ranks that see different files cannot
 * work on it.
 */
dcpk_status dcpk_ranks_check_same(struct dcpk_ranks *ranks, uint64_t number, const char *what,
                                  struct dcpk_error *err);

/* Collective inside the work: *number becomes the least of all ranks. */
dcpk_status dcpk_ranks_least(struct dcpk_ranks *ranks, uint64_t *number, struct dcpk_error *err);

/*
 * Collective inside the work: append the n_bytes of every rank, one after the other, to `all` of
 * every rank. Also an agreement: `st` and err as for dcpk_ranks_agree. Bytes come as they were sent
 * (DCPK_EIO otherwise); what they mean is the caller's to check: how many of them each rank gave is
 * not known here. dcpk_ranks_share_each: n_bytes is the same on all ranks, or DCPK_EIO.
 */
dcpk_status dcpk_ranks_share(struct dcpk_ranks *ranks, const void *mine, size_t n_bytes,
                             struct dcpk_bytes *all, dcpk_status st, struct dcpk_error *err);
dcpk_status dcpk_ranks_share_each(struct dcpk_ranks *ranks, const void *mine, size_t n_bytes,
                                  struct dcpk_bytes *all, dcpk_status st, struct dcpk_error *err);
/* The same of n numbers, each of which becomes the sum, or the most, of all ranks' numbers; the
 * bytes of rank 0, which all get. */
dcpk_status dcpk_ranks_sum(struct dcpk_ranks *ranks, uint64_t *numbers, size_t n, dcpk_status st,
                           struct dcpk_error *err);
dcpk_status dcpk_ranks_most(struct dcpk_ranks *ranks, uint64_t *numbers, size_t n, dcpk_status st,
                            struct dcpk_error *err);
dcpk_status dcpk_ranks_first(struct dcpk_ranks *ranks, void *bytes, size_t n_bytes, dcpk_status st,
                             struct dcpk_error *err);
/* Collective, as dcpk_ranks_share: *ordinal is how many lower ranks are on this machine, so that
 * each of its ranks takes a device of its own. */
dcpk_status dcpk_ranks_ordinal(struct dcpk_ranks *ranks, int *ordinal, struct dcpk_error *err);

/* Work to be divided: n pieces in an order that all ranks have in common. */
struct dcpk_work {
    uint64_t n;
    uint64_t (*bytes_of)(const void *context, uint64_t i); /* the same on all ranks */
    const void *context;
    /* Set by dcpk_ranks_divide: */
    uint64_t total_bytes;
    uint64_t first, last; /* this rank's pieces are first .. last - 1 */
};
/* The one of n_ranks that does the piece with before_bytes before it: all do as many bytes as
 * any other, to a piece. */
int dcpk_work_rank(uint64_t total_bytes, int n_ranks, uint64_t before_bytes);
/* Give this rank its share of the pieces. Sends nothing. */
void dcpk_ranks_divide(const struct dcpk_ranks *ranks, struct dcpk_work *work);

/* Receives the number that another rank has sent, on rank 0; called by one thread at a time, any
 * thread. */
typedef void dcpk_ranks_receive(void *context, uint64_t word);
#define DCPK_RANKS_WORD_BITS 62

/*
 * Wrap `inner` (of the rank that shows progress, rank 0) for the work until the next agreement:
 * rank 0 shows the bytes of all ranks, and work stops (update returns false) once another rank has
 * failed. total_bytes: of all ranks together.
 */
struct dcpk_progress dcpk_ranks_progress(struct dcpk_ranks *ranks, struct dcpk_progress inner,
                                         uint64_t total_bytes);
/* On rank 0, until the next agreement: passes the numbers that other ranks send to `receive`. */
void dcpk_ranks_listen(struct dcpk_ranks *ranks, dcpk_ranks_receive *receive, void *context);
/* On the others: sends rank 0 a number below 2^62, without waiting. */
dcpk_status dcpk_ranks_send(struct dcpk_ranks *ranks, uint64_t word, struct dcpk_error *err);
/*
 * This rank has done its part of the work. On rank 0: wait for the others, showing how far they are
 * and calling `tick` (NULL: none) ten times a second. Errors: DCPK_ECANCELLED when another rank has
 * failed or the work was stopped; those of tick.
 */
dcpk_status dcpk_ranks_wait(struct dcpk_ranks *ranks,
                            dcpk_status (*tick)(void *context, struct dcpk_error *err),
                            void *context, struct dcpk_error *err);

/* ---- ranks as threads of this process ---- */

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
 * progress (dcpk_ranks_over). Waits for one another have no limit, whatever
 * dcpk_ranks_set_timeout was given: a rank is a thread of this process, which cannot end before it
 * does, and a script that returns ends the waits of the others. Returns what the scripts return, of
 * several failures that of the lowest rank. Errors also: DCPK_EIO where the system starts too few
 * threads; DCPK_ENOMEM.
 */
dcpk_status dcpk_thread_ranks_run(int n_ranks, dcpk_rank_script *script, void *context,
                                  struct dcpk_error *err);

#endif
