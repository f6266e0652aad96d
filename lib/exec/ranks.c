/* SPDX-License-Identifier: Apache-2.0 */
/* ranks.c - agreement and progress, on top of a transport. */
#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lib/base/alloc.h"
#include "lib/base/clock.h"
#include "lib/base/digest.h"
#include "lib/base/order.h"
#include "lib/exec/pool.h"
#include "lib/exec/ranks_priv.h"

/*
 * Messages are a kind and a number. All but STOP go to rank 0; STOP goes from a rank that failed to
 * all others.
 */
enum message_kind { BYTES, WORD, DONE, STOP };
#define NUMBER      ((UINT64_C(1) << DCPK_RANKS_WORD_BITS) - 1)
#define SEND_PERIOD 0.5 /* seconds between two messages about progress */
#define WAIT_NS     100000000

#define BROADCAST_BYTES ((size_t)1 << 30) /* at once: MPI counts in ints */

static void ranks_free(struct dcpk_ranks *ranks)
{
    pthread_mutex_destroy(&ranks->mutex);
    dcpk_free(ranks->votes);
    dcpk_free(ranks->sizes);
    dcpk_free(ranks->done_bytes);
    dcpk_free(ranks->n_got);
    dcpk_free(ranks);
}

dcpk_status dcpk_ranks_over(struct dcpk_comm *comm, struct dcpk_ranks **ranks,
                            struct dcpk_error *err)
{
    struct dcpk_ranks *made = dcpk_alloc(sizeof *made, err);

    if (made == NULL)
        return err->status;
    made->comm = comm;
    pthread_mutex_init(&made->mutex, NULL);
    made->votes = dcpk_alloc_array((size_t)comm->n_ranks, sizeof *made->votes, err);
    if (made->votes != NULL)
        made->sizes = dcpk_alloc_array((size_t)comm->n_ranks, sizeof *made->sizes, err);
    if (made->sizes != NULL)
        made->done_bytes = dcpk_alloc_array((size_t)comm->n_ranks, sizeof *made->done_bytes, err);
    if (made->done_bytes != NULL)
        made->n_got = dcpk_alloc_array((size_t)comm->n_ranks, sizeof *made->n_got, err);
    if (made->n_got == NULL) {
        ranks_free(made);
        return err->status;
    }
    *ranks = made;
    return DCPK_OK;
}

dcpk_status dcpk_ranks_join(const struct dcpk_transport *const *transports,
                            struct dcpk_ranks **ranks, struct dcpk_error *err)
{
    const int n_launched = dcpk_ranks_launched();
    struct dcpk_comm *comm;
    dcpk_status st;

    *ranks = NULL;
    if (n_launched == 1)
        return DCPK_OK;
    st = transports[0]->join(&comm, err);
    if (st != DCPK_OK)
        return dcpk_context(err, "started as one of %d processes", n_launched);
    if (comm->n_ranks == 1) {
        comm->transport->leave(comm);
        return dcpk_fail(err, DCPK_EUSAGE,
                         "started as one of %d processes, but MPI sees only this one: launcher and "
                         "library do not match (use mpirun, or srun with an --mpi= that 'srun "
                         "--mpi=list' names)",
                         n_launched);
    }
    st = dcpk_ranks_over(comm, ranks, err);
    if (st != DCPK_OK)
        comm->transport->abandon(comm); /* the others have joined */
    return st;
}

int dcpk_ranks_self(const struct dcpk_ranks *ranks)
{
    return ranks == NULL ? 0 : ranks->comm->rank;
}

int dcpk_ranks_count(const struct dcpk_ranks *ranks)
{
    return ranks == NULL ? 1 : ranks->comm->n_ranks;
}

int dcpk_ranks_threads(const struct dcpk_ranks *ranks, int wanted)
{
    if (wanted > 0)
        return wanted;
    return (int)dcpk_max_i64(1, dcpk_pool_default_threads() / dcpk_ranks_count(ranks));
}

struct dcpk_comm *dcpk_ranks_comm(struct dcpk_ranks *ranks)
{
    return ranks == NULL ? NULL : ranks->comm;
}

int dcpk_ranks_set_timeout(struct dcpk_ranks *ranks, int timeout_ms)
{
    int before;

    if (ranks == NULL)
        return 0;
    before = ranks->comm->timeout_ms;
    ranks->comm->timeout_ms = timeout_ms;
    if (timeout_ms > 0)
        ranks->limit_ms = timeout_ms;
    return before;
}

/* Take one message of rank `from` or DCPK_ANY_RANK; *got is false when there is none. */
static dcpk_status ranks_take(struct dcpk_ranks *ranks, int from, bool waits, bool *got,
                              struct dcpk_error *err)
{
    uint64_t message;
    dcpk_status st = ranks->comm->transport->receive(ranks->comm, waits, got, &from, &message, err);

    if (st != DCPK_OK || !*got)
        return st;
    ranks->n_got[from]++;
    switch ((enum message_kind)(message >> DCPK_RANKS_WORD_BITS)) {
    case STOP:
        ranks->n_stops_got++;
        break;
    case BYTES:
        ranks->done_bytes[from] = message & NUMBER;
        break;
    case WORD:
        if (ranks->receive != NULL)
            ranks->receive(ranks->receive_context, message & NUMBER);
        break;
    case DONE:
        ranks->n_done++;
        break;
    }
    return DCPK_OK;
}

static dcpk_status send_message(struct dcpk_ranks *ranks, int to, enum message_kind kind,
                                uint64_t number, struct dcpk_error *err)
{
    const uint64_t message = (uint64_t)kind << DCPK_RANKS_WORD_BITS | number;

    assert(number <= NUMBER);
    ranks->n_sent += kind != STOP;
    return ranks->comm->transport->send(ranks->comm, to, message, err);
}

/* Sends STOP to all others: this rank has failed. */
static dcpk_status send_stop(struct dcpk_ranks *ranks, struct dcpk_error *err)
{
    for (int to = 0; to < ranks->comm->n_ranks; to++)
        if (to != ranks->comm->rank && send_message(ranks, to, STOP, 0, err) != DCPK_OK)
            return err->status;
    return DCPK_OK;
}

/*
 * Receive what has been sent to this rank and not yet been received, so that the next phase begins
 * without messages of this one. From each rank by itself: one that is ahead may already have sent
 * messages of the next phase while another's last messages of this one are on their way.
 */
static dcpk_status drain(struct dcpk_ranks *ranks, struct dcpk_error *err)
{
    const int self = ranks->comm->rank;
    bool got;

    for (int r = 0; r < ranks->comm->n_ranks; r++) {
        const struct vote *vote = &ranks->votes[r];
        const uint64_t n_sent = (vote->stops != 0) + (self == 0 ? vote->n_sent : 0);

        while (r != self && ranks->n_got[r] < n_sent && ranks->comm->transport->send != NULL)
            if (ranks_take(ranks, r, true, &got, err) != DCPK_OK)
                return err->status;
        ranks->n_got[r] = 0;
    }
    ranks->n_stops_got = ranks->n_sent = 0;
    ranks->n_done = 0;
    ranks->receive = NULL;
    dcpk_error_clear(&ranks->broken);
    return DCPK_OK;
}

static uint32_t vote_sum(const struct vote *vote)
{
    return dcpk_crc32(0, vote, offsetof(struct vote, crc32));
}

/* Checks that every vote arrived as it was sent and is possible. */
static dcpk_status check_votes(const struct dcpk_ranks *ranks, struct dcpk_error *err)
{
    for (int r = 0; r < ranks->comm->n_ranks; r++) {
        const struct vote *vote = &ranks->votes[r];
        const bool has_failed = vote->status != DCPK_OK;

        if (vote->crc32 != vote_sum(vote) || vote->status < DCPK_OK ||
            vote->status > DCPK_ECANCELLED || (vote->stops != 0 && !has_failed))
            return dcpk_fail(err, DCPK_EIO,
                             "rank %d of %d: a message of rank %d arrived with other bytes",
                             ranks->comm->rank, ranks->comm->n_ranks, r);
    }
    return DCPK_OK;
}

/* Exchanges the call of this rank, its number and its status with all others. Fails only with the
 * network. */
static dcpk_status vote(struct dcpk_ranks *ranks, enum call call, uint64_t number, dcpk_status st,
                        struct dcpk_error *err)
{
    const struct dcpk_transport *transport = ranks->comm->transport;
    const bool stops = st != DCPK_OK && !(st == DCPK_ECANCELLED && ranks->n_stops_got > 0);
    struct vote mine = {number, ranks->n_sent, (int32_t)call, (int32_t)st, stops, 0};

    mine.crc32 = vote_sum(&mine);
    if ((stops && transport->send != NULL && send_stop(ranks, err)) ||
        transport->all_gather(ranks->comm, &mine, sizeof mine, ranks->votes, err) ||
        check_votes(ranks, err))
        return err->status;
    return drain(ranks, err);
}

/* The rank whose error all ranks report, -1 when none failed. One that was only interrupted comes
 * last. */
static int find_culprit(const struct dcpk_ranks *ranks)
{
    int culprit = -1;

    for (int r = 0; r < ranks->comm->n_ranks; r++) {
        if (ranks->votes[r].stops == 0)
            continue;
        if (ranks->votes[r].status != DCPK_ECANCELLED)
            return r;
        if (culprit < 0)
            culprit = r;
    }
    return culprit;
}

/* True if all ranks failed, as on malformed input: then no rank is named. */
static bool all_failed(const struct dcpk_ranks *ranks)
{
    bool all = true;

    for (int r = 0; r < ranks->comm->n_ranks; r++)
        all = all && ranks->votes[r].stops != 0;
    return all;
}

dcpk_status dcpk_ranks_broadcast(struct dcpk_ranks *ranks, int root, void *data, size_t n_bytes,
                                 struct dcpk_error *err)
{
    const struct dcpk_transport *transport = ranks->comm->transport;
    uint8_t *bytes = data;

    for (size_t at = 0, n; at < n_bytes; at += n) {
        n = dcpk_min_size(n_bytes - at, BROADCAST_BYTES);
        if (transport->broadcast(ranks->comm, root, bytes + at, n, &ranks->over) != DCPK_OK) {
            *err = ranks->over;
            return err->status;
        }
    }
    return DCPK_OK;
}

/* Ranks that have not failed make the same call, and none leaves before the others. Otherwise they
 * would wait for each other for ever. */
static bool have_come_apart(const struct dcpk_ranks *ranks)
{
    bool differ = false, one_leaves = false;

    for (int r = 0; r < ranks->comm->n_ranks; r++) {
        differ = differ || ranks->votes[r].call != ranks->votes[0].call;
        one_leaves = one_leaves || ranks->votes[r].call == LEAVE;
    }
    return differ && (one_leaves || find_culprit(ranks) < 0);
}

/* The network broke: a rank that has failed reports its own error. */
static dcpk_status fail_over(const struct dcpk_ranks *ranks, dcpk_status st, struct dcpk_error *err)
{
    if (st == DCPK_OK)
        *err = ranks->over;
    return err->status;
}

/* The error of a rank, from itself to all. */
static dcpk_status broadcast_error(struct dcpk_ranks *ranks, int culprit, struct dcpk_error *err)
{
    struct dcpk_error its = *err;

    if (dcpk_ranks_broadcast(ranks, culprit, &its, sizeof its, err) != DCPK_OK)
        return err->status;
    if ((int32_t)its.status == ranks->votes[culprit].status &&
        memchr(its.text, '\0', sizeof its.text) != NULL) {
        *err = its;
        return err->status;
    }
    dcpk_fail(&ranks->over, DCPK_EIO, "rank %d of %d failed, and its error did not arrive", culprit,
              ranks->comm->n_ranks);
    *err = ranks->over;
    return err->status;
}

static dcpk_status ranks_agree(struct dcpk_ranks *ranks, enum call call, uint64_t number,
                               dcpk_status st, struct dcpk_error *err)
{
    int culprit;

    if (st == DCPK_ECANCELLED && ranks->broken.status != DCPK_OK) {
        *err = ranks->broken;
        st = err->status;
    }
    if (ranks->over.status != DCPK_OK)
        return fail_over(ranks, st, err);
    if (vote(ranks, call, number, st, &ranks->over) != DCPK_OK) {
        if (st != DCPK_OK) /* printed by this rank when it leaves: no other can */
            dcpk_append(&ranks->over, "; this rank had failed: %s", err->text);
        return fail_over(ranks, st, err);
    }
    ranks->all_know = have_come_apart(ranks);
    if (ranks->all_know)
        dcpk_fail(&ranks->over, DCPK_EIO, "%d ranks do not do the same (please report this)",
                  ranks->comm->n_ranks);
    culprit = find_culprit(ranks);
    if (culprit < 0) {
        if (ranks->all_know)
            *err = ranks->over;
        return ranks->over.status;
    }
    if (culprit == ranks->comm->rank && !all_failed(ranks))
        dcpk_context(err, "rank %d of %d", culprit, ranks->comm->n_ranks);
    return broadcast_error(ranks, culprit, err);
}

dcpk_status dcpk_ranks_agree(struct dcpk_ranks *ranks, dcpk_status st, struct dcpk_error *err)
{
    if (ranks == NULL)
        return st;
    if (ranks->failed.status == DCPK_OK)
        return ranks_agree(ranks, AGREE, 0, st, err);
    if (st == DCPK_OK) /* else it is the same, with what was being done in front */
        *err = ranks->failed;
    ranks->failed.status = DCPK_OK;
    return err->status;
}

dcpk_status dcpk_ranks_agree_inside(struct dcpk_ranks *ranks, enum call call, uint64_t number,
                                    dcpk_status st, struct dcpk_error *err)
{
    if (ranks->failed.status != DCPK_OK)
        *err = ranks->failed;
    else if (ranks_agree(ranks, call, number, st, err) != DCPK_OK)
        ranks->failed = *err;
    else
        return DCPK_OK;
    return err->status;
}

dcpk_status dcpk_ranks_leave(struct dcpk_ranks *ranks, struct dcpk_error *err)
{
    struct dcpk_error ignored = DCPK_ERROR_INIT;
    dcpk_status st = DCPK_OK;

    if (ranks == NULL)
        return DCPK_OK;
    if (ranks->comm->timeout_ms == 0) /* those that a limit ended do not come */
        ranks->comm->timeout_ms = ranks->limit_ms;
    (void)ranks_agree(ranks, LEAVE, 0, DCPK_OK,
                      &ignored); /* ends the work of those that have not left */
    if (ranks->over.status == DCPK_OK || ranks->all_know) {
        ranks->comm->transport->leave(ranks->comm);
    } else {
        *err = ranks->over;
        st = err->status;
        ranks->comm->transport->abandon(ranks->comm);
    }
    ranks_free(ranks);
    return st;
}

void dcpk_ranks_abandon(struct dcpk_ranks *ranks)
{
    if (ranks == NULL)
        return;
    ranks->comm->transport->abandon(ranks->comm);
    ranks_free(ranks);
}

int dcpk_work_rank(uint64_t total_bytes, int n_ranks, uint64_t before_bytes)
{
    return (int)(before_bytes / (total_bytes / (uint64_t)n_ranks + 1));
}

void dcpk_ranks_divide(const struct dcpk_ranks *ranks, struct dcpk_work *work)
{
    uint64_t before = 0;

    work->total_bytes = work->first = work->last = 0;
    for (uint64_t i = 0; i < work->n; i++)
        work->total_bytes += work->bytes_of(work->context, i);
    if (ranks == NULL) {
        work->last = work->n;
        return;
    }
    for (uint64_t i = 0; i < work->n; i++) {
        const int rank = dcpk_work_rank(work->total_bytes, ranks->comm->n_ranks, before);

        work->first += rank < ranks->comm->rank;
        work->last += rank <= ranks->comm->rank;
        before += work->bytes_of(work->context, i);
    }
}

/* Send this rank's bytes to rank 0, now and then; take what others sent. Under the lock. */
static dcpk_status exchange(struct dcpk_ranks *ranks, uint64_t done_bytes, struct dcpk_error *err)
{
    const double now = dcpk_now_seconds();
    bool got = true;

    ranks->done_bytes[ranks->comm->rank] = done_bytes;
    while (got)
        if (ranks_take(ranks, DCPK_ANY_RANK, false, &got, err) != DCPK_OK)
            return err->status;
    if (ranks->comm->rank == 0 || now < ranks->next_send)
        return DCPK_OK;
    ranks->next_send = now + SEND_PERIOD;
    return send_message(ranks, 0, BYTES, done_bytes, err);
}

/* The bytes of all ranks that this one knows of: of all on rank 0. */
static uint64_t known_bytes(const struct dcpk_ranks *ranks)
{
    uint64_t n_bytes = 0;

    for (int r = 0; r < ranks->comm->n_ranks; r++)
        n_bytes += ranks->done_bytes[r];
    return n_bytes;
}

static bool on_progress(void *context, uint64_t done_bytes, uint64_t total_bytes)
{
    struct dcpk_ranks *ranks = context;
    bool goes_on;

    (void)total_bytes;
    pthread_mutex_lock(&ranks->mutex);
    goes_on = exchange(ranks, done_bytes, &ranks->broken) == DCPK_OK && ranks->n_stops_got == 0 &&
              (ranks->inner.update == NULL ||
               ranks->inner.update(ranks->inner.context, known_bytes(ranks), ranks->total_bytes));
    pthread_mutex_unlock(&ranks->mutex);
    return goes_on;
}

static void on_begin(void *context, const char *label)
{
    struct dcpk_ranks *ranks = context;

    dcpk_progress_begin(&ranks->inner, label);
}

struct dcpk_progress dcpk_ranks_progress(struct dcpk_ranks *ranks, struct dcpk_progress inner,
                                         uint64_t total_bytes)
{
    if (ranks == NULL)
        return inner;
    memset(ranks->done_bytes, 0, (size_t)ranks->comm->n_ranks * sizeof *ranks->done_bytes);
    ranks->inner = inner;
    ranks->total_bytes = total_bytes;
    return (struct dcpk_progress){.update = on_progress, .begin = on_begin, .context = ranks};
}

void dcpk_ranks_listen(struct dcpk_ranks *ranks, dcpk_ranks_receive *receive, void *context)
{
    if (ranks == NULL)
        return;
    ranks->receive = receive;
    ranks->receive_context = context;
}

dcpk_status dcpk_ranks_send(struct dcpk_ranks *ranks, uint64_t word, struct dcpk_error *err)
{
    dcpk_status st;

    pthread_mutex_lock(&ranks->mutex);
    st = send_message(ranks, 0, WORD, word, err);
    pthread_mutex_unlock(&ranks->mutex);
    return st;
}

dcpk_status dcpk_ranks_wait(struct dcpk_ranks *ranks,
                            dcpk_status (*tick)(void *context, struct dcpk_error *err),
                            void *context, struct dcpk_error *err)
{
    const struct timespec pause = {.tv_nsec = WAIT_NS};
    dcpk_status st = DCPK_OK;

    if (ranks == NULL)
        return DCPK_OK;
    if (ranks->comm->rank != 0)
        return send_message(ranks, 0, DONE, 0, err);
    while (st == DCPK_OK && ranks->n_done < ranks->comm->n_ranks - 1) {
        if (!on_progress(ranks, ranks->done_bytes[0], 0))
            return dcpk_fail(err, DCPK_ECANCELLED, "stopped on request");
        if (tick != NULL)
            st = tick(context, err);
        if (ranks->n_done < ranks->comm->n_ranks - 1)
            nanosleep(&pause, NULL);
    }
    return st;
}

/* ---- the number of processes, from the environment that the launcher sets ---- */

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
