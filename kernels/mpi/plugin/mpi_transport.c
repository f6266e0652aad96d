/* SPDX-License-Identifier: Apache-2.0 */
/* mpi_transport.c - messages between ranks through MPI. MPI has one job a process, begun once and
 * ended once, so that join may be called once. */
#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/mpi/mpi_load.h"
#include "kernels/mpi/plugin/mpi_priv.h"
#include "lib/base/alloc.h"
#include "lib/base/clock.h"

#define TAG 1

/* Messages under way: MPI reads one from its slot until it has left. */
#define N_SLOTS 64

struct mpi_comm {
    struct dcpk_comm base;
    MPI_Comm world;
    uint64_t slots[N_SLOTS];
    MPI_Request requests[N_SLOTS];
};

dcpk_status dcpk_mpi_check(int code, const char *what, struct dcpk_error *err)
{
    char text[MPI_MAX_ERROR_STRING];
    int n = 0;

    if (code == MPI_SUCCESS)
        return DCPK_OK;
    if (MPI_Error_string(code, text, &n) != MPI_SUCCESS)
        n = 0;
    return dcpk_fail(err, DCPK_EIO, "MPI, %s: %.*s", what, n, text);
}

/* Under srun --mpi=none, Slurm's default, the processes do not know each other. MPI_Init of Open
 * MPI does not return then: it ends the process with 1, which here would be an answer. */
static dcpk_status check_launcher(struct dcpk_error *err)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int n;

    (void)MPI_Get_library_version(version, &n);
    if (strncmp(version, "Open MPI", 8) != 0 || getenv("SLURM_STEP_NUM_TASKS") == NULL ||
        getenv("PMIX_NAMESPACE") != NULL || getenv("PMI_RANK") != NULL ||
        getenv("OMPI_COMM_WORLD_SIZE") != NULL)
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EUSAGE,
                     "srun started several processes without MPI: give it --mpi=pmix ('srun "
                     "--mpi=list' lists the choices), or start them with mpirun");
}

static dcpk_status start(struct mpi_comm *comm, struct dcpk_error *err)
{
    int provided;

    if (check_launcher(err) ||
        dcpk_mpi_check(MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided), "starting",
                       err))
        return err->status;
    /* Errors on this communicator are returned; those on MPI_COMM_WORLD would end the process. */
    if (dcpk_mpi_check(MPI_Comm_dup(MPI_COMM_WORLD, &comm->world), "joining", err) ||
        dcpk_mpi_check(MPI_Comm_set_errhandler(comm->world, MPI_ERRORS_RETURN), "joining", err) ||
        dcpk_mpi_check(MPI_Comm_rank(comm->world, &comm->base.rank), "joining", err) ||
        dcpk_mpi_check(MPI_Comm_size(comm->world, &comm->base.n_ranks), "joining", err))
        return err->status;
    if (provided < MPI_THREAD_SERIALIZED)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "this MPI was built without threads (MPI_THREAD_SERIALIZED)");
    return DCPK_OK;
}

static dcpk_status mpi_join(struct dcpk_comm **made, struct dcpk_error *err)
{
    struct mpi_comm *comm = dcpk_alloc(sizeof *comm, err);
    dcpk_status st;

    if (comm == NULL)
        return err->status;
    comm->base.transport = &dcpk_transport_mpi;
    for (int i = 0; i < N_SLOTS; i++)
        comm->requests[i] = MPI_REQUEST_NULL;
    st = start(comm, err);
    if (st != DCPK_OK) {
        dcpk_free(comm); /* MPI itself can't be left and begun again */
        return st;
    }
    *made = &comm->base;
    return DCPK_OK;
}

static struct mpi_comm *of(struct dcpk_comm *comm)
{
    return (struct mpi_comm *)comm;
}

MPI_Comm dcpk_mpi_world(struct dcpk_comm *comm)
{
    return of(comm)->world;
}

/* Fails a wait in `what` for ranks that do not come. */
static dcpk_status fail_late(const struct mpi_comm *comm, const char *what, struct dcpk_error *err)
{
    return dcpk_fail(err, DCPK_EIO, "MPI, %s: another rank is not there after %d ms", what,
                     comm->base.timeout_ms);
}

/*
 * A collective call that was begun, code: how. In vain it stays with MPI, and with it *request:
 * there is no way to end it alone.
 */
static dcpk_status finish_collective(const struct mpi_comm *comm, int code, MPI_Request *request,
                                     const char *what, struct dcpk_error *err)
{
    const double begun = dcpk_now_seconds();
    int is_done = 0;

    while (dcpk_mpi_check(code, what, err) == DCPK_OK) {
        const double waited = dcpk_now_seconds() - begun;

        code = MPI_Test(request, &is_done, MPI_STATUS_IGNORE);
        if (code == MPI_SUCCESS && is_done)
            return DCPK_OK;
        if (code == MPI_SUCCESS && waited * 1000 > comm->base.timeout_ms)
            return fail_late(comm, what, err);
        dcpk_pause(waited);
    }
    return err->status;
}

/* Memory of a call with a limit: MPI keeps that of a call that is late, and may write into it. */
static void free_unless_late(uint8_t *bytes, MPI_Request request)
{
    if (request == MPI_REQUEST_NULL)
        dcpk_free(bytes);
}

static dcpk_status gather_within(const struct mpi_comm *comm, const void *mine, size_t n_bytes,
                                 void *all, struct dcpk_error *err)
{
    const size_t n_all = n_bytes * (size_t)comm->base.n_ranks;
    const int n = (int)n_bytes;
    MPI_Request request = MPI_REQUEST_NULL;
    uint8_t *bytes = dcpk_alloc(n_all + n_bytes + 1, err);
    dcpk_status st;
    int code;

    if (bytes == NULL)
        return err->status;
    memcpy(bytes + n_all, mine, n_bytes);
    code = MPI_Iallgather(bytes + n_all, n, MPI_BYTE, bytes, n, MPI_BYTE, comm->world, &request);
    st = finish_collective(comm, code, &request, "gathering", err);
    if (st == DCPK_OK)
        memcpy(all, bytes, n_all);
    free_unless_late(bytes, request);
    return st;
}

static dcpk_status broadcast_within(const struct mpi_comm *comm, int root, void *data,
                                    size_t n_bytes, struct dcpk_error *err)
{
    MPI_Request request = MPI_REQUEST_NULL;
    uint8_t *bytes = dcpk_alloc(n_bytes + 1, err);
    dcpk_status st;
    int code;

    if (bytes == NULL)
        return err->status;
    memcpy(bytes, data, n_bytes);
    code = MPI_Ibcast(bytes, (int)n_bytes, MPI_BYTE, root, comm->world, &request);
    st = finish_collective(comm, code, &request, "broadcasting", err);
    if (st == DCPK_OK)
        memcpy(data, bytes, n_bytes);
    free_unless_late(bytes, request);
    return st;
}

static dcpk_status mpi_all_gather(struct dcpk_comm *base, const void *mine, size_t n_bytes,
                                  void *all, struct dcpk_error *err)
{
    const struct mpi_comm *comm = of(base);
    const int n = (int)n_bytes;

    if (n_bytes > INT_MAX)
        return dcpk_fail(err, DCPK_ERANGE, "%zu bytes are too many for one message", n_bytes);
    if (base->timeout_ms > 0)
        return gather_within(comm, mine, n_bytes, all, err);
    return dcpk_mpi_check(MPI_Allgather(mine, n, MPI_BYTE, all, n, MPI_BYTE, comm->world),
                          "gathering", err);
}

static dcpk_status mpi_broadcast(struct dcpk_comm *base, int root, void *data, size_t n_bytes,
                                 struct dcpk_error *err)
{
    const struct mpi_comm *comm = of(base);

    if (n_bytes > INT_MAX)
        return dcpk_fail(err, DCPK_ERANGE, "%zu bytes are too many for one message", n_bytes);
    if (base->timeout_ms > 0)
        return broadcast_within(comm, root, data, n_bytes, err);
    return dcpk_mpi_check(MPI_Bcast(data, (int)n_bytes, MPI_BYTE, root, comm->world),
                          "broadcasting", err);
}

/* A slot whose message has left; waits for one where all are under way. */
static dcpk_status free_slot(struct mpi_comm *comm, int *slot, struct dcpk_error *err)
{
    int is_done;

    for (*slot = 0; *slot < N_SLOTS; ++*slot) {
        dcpk_status st = dcpk_mpi_check(
            MPI_Test(&comm->requests[*slot], &is_done, MPI_STATUS_IGNORE), "sending", err);

        if (st != DCPK_OK || is_done)
            return st;
    }
    return dcpk_mpi_check(MPI_Waitany(N_SLOTS, comm->requests, slot, MPI_STATUS_IGNORE), "sending",
                          err);
}

static dcpk_status mpi_send(struct dcpk_comm *base, int to, uint64_t message,
                            struct dcpk_error *err)
{
    struct mpi_comm *comm = of(base);
    int slot;
    dcpk_status st = free_slot(comm, &slot, err);

    if (st != DCPK_OK)
        return st;
    comm->slots[slot] = message;
    return dcpk_mpi_check(
        MPI_Isend(&comm->slots[slot], 1, MPI_UINT64_T, to, TAG, comm->world, &comm->requests[slot]),
        "sending", err);
}

/* Finds a message from `source`. Waits for one where that has a limit. */
static dcpk_status find_message(const struct mpi_comm *comm, int source, bool waits, int *is_there,
                                struct dcpk_error *err)
{
    const double begun = dcpk_now_seconds();

    while (dcpk_mpi_check(MPI_Iprobe(source, TAG, comm->world, is_there, MPI_STATUS_IGNORE),
                          "receiving", err) == DCPK_OK) {
        const double waited = dcpk_now_seconds() - begun;

        if (*is_there || !waits)
            return DCPK_OK;
        if (waited * 1000 > comm->base.timeout_ms)
            return fail_late(comm, "receiving", err);
        dcpk_pause(waited);
    }
    return err->status;
}

static dcpk_status mpi_receive(struct dcpk_comm *base, bool waits, bool *got, int *from,
                               uint64_t *message, struct dcpk_error *err)
{
    struct mpi_comm *comm = of(base);
    const int source = *from == DCPK_ANY_RANK ? MPI_ANY_SOURCE : *from;
    MPI_Status status;
    int is_there = 1;
    dcpk_status st = DCPK_OK;

    if (!waits || base->timeout_ms > 0)
        st = find_message(comm, source, waits, &is_there, err);
    *got = st == DCPK_OK && is_there;
    if (!*got)
        return st;
    st = dcpk_mpi_check(MPI_Recv(message, 1, MPI_UINT64_T, source, TAG, comm->world, &status),
                        "receiving", err);
    *from = status.MPI_SOURCE;
    return st;
}

static void mpi_leave(struct dcpk_comm *base)
{
    struct mpi_comm *comm = of(base);

    (void)MPI_Waitall(N_SLOTS, comm->requests, MPI_STATUSES_IGNORE);
    (void)MPI_Comm_free(&comm->world);
    (void)MPI_Finalize();
    dcpk_free(comm);
}

/* MPI_Finalize would wait for the others. mpirun ends a job when one of its processes ends without
 * it, srun with --kill-on-bad-exit. Slots of messages that have not left stay with MPI. */
static void mpi_abandon(struct dcpk_comm *base)
{
    struct mpi_comm *comm = of(base);
    int have_left = 0;

    if (MPI_Testall(N_SLOTS, comm->requests, &have_left, MPI_STATUSES_IGNORE) == MPI_SUCCESS &&
        have_left)
        dcpk_free(comm);
}

const struct dcpk_transport dcpk_transport_mpi = {
    .name = "mpi",
    .summary = "processes of one job, started by mpirun or srun",
    .join = mpi_join,
    .all_gather = mpi_all_gather,
    .broadcast = mpi_broadcast,
    .send = mpi_send,
    .receive = mpi_receive,
    .leave = mpi_leave,
    .abandon = mpi_abandon,
};

/* ---- the plug-in ---- */

static void mpi_version(char *text, size_t n_bytes)
{
    char all[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int n;

    (void)MPI_Get_library_version(all, &n);
    (void)snprintf(text, n_bytes, "%.*s", (int)strcspn(all, ",\n"),
                   all); /* "Open MPI v4.1.4, ..." */
}

extern const struct dcpk_mpi_plugin dcpkit_mpi_plugin;
__attribute__((visibility("default"))) const struct dcpk_mpi_plugin dcpkit_mpi_plugin = {
    .interface = DCPK_MPI_INTERFACE,
    .version = mpi_version,
    .transport = &dcpk_transport_mpi,
    .link = &dcpk_link_mpi,
    .collectives = &dcpk_collectives_mpi,
};
