/* SPDX-License-Identifier: Apache-2.0 */
/* mpi_link.c - messages in host memory through MPI, on the communicator of the transport. */
#include <assert.h>
#include <limits.h>

#include "kernels/mpi/plugin/mpi_priv.h"
#include "lib/base/alloc.h"

#define TAG 2 /* the transport has a different one */

struct mpi_link {
    struct dcpk_link base;
    MPI_Comm world;        /* borrowed */
    MPI_Request *requests; /* of the exchange under way: receives, then sends */
    int n_requests, n_receives;
};

static dcpk_status mpi_open(struct dcpk_comm *comm, struct dcpk_device *device,
                            struct dcpk_link **link, struct dcpk_error *err)
{
    struct mpi_link *made;

    (void)device;
    if (comm->transport != &dcpk_transport_mpi)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "the ranks did not find each other by MPI");
    made = dcpk_alloc(sizeof *made, err);
    if (made == NULL)
        return err->status;
    made->requests = dcpk_alloc_array(2 * (size_t)comm->n_ranks, sizeof *made->requests, err);
    if (made->requests == NULL) {
        dcpk_free(made);
        return err->status;
    }
    made->base = (struct dcpk_link){&dcpk_link_mpi, comm->rank, comm->n_ranks, false};
    made->world = dcpk_mpi_world(comm);
    *link = &made->base;
    return DCPK_OK;
}

static void mpi_abort(struct dcpk_link *link)
{
    struct mpi_link *l = (struct mpi_link *)link;

    for (int i = 0; i < l->n_requests; i++) {
        if (l->requests[i] == MPI_REQUEST_NULL)
            continue;
        if (i < l->n_receives) /* a send can't be cancelled */
            (void)MPI_Cancel(&l->requests[i]);
        (void)MPI_Request_free(&l->requests[i]);
    }
    l->n_requests = 0;
}

static void mpi_close(struct dcpk_link *link)
{
    struct mpi_link *l = (struct mpi_link *)link;

    if (l == NULL)
        return;
    mpi_abort(link);
    dcpk_free(l->requests);
    dcpk_free(l);
}

static dcpk_status mpi_begin(struct dcpk_link *link, const struct dcpk_exchange *exchange,
                             struct dcpk_error *err)
{
    struct mpi_link *l = (struct mpi_link *)link;

    assert(l->n_requests == 0);
    l->n_receives = (int)exchange->n_receives;
    for (size_t i = 0; i < exchange->n_receives + exchange->n_sends; i++) {
        const bool is_sent = i >= exchange->n_receives;
        const struct dcpk_message *m =
            is_sent ? &exchange->sends[i - exchange->n_receives] : &exchange->receives[i];
        MPI_Request *request = &l->requests[l->n_requests];
        const int n = (int)m->n_bytes;
        int code;

        if (m->n_bytes > INT_MAX)
            return dcpk_fail(err, DCPK_ERANGE, "%zu bytes are too many for one message",
                             m->n_bytes);
        if (is_sent)
            code = MPI_Isend(m->at, n, MPI_BYTE, m->peer, TAG, l->world, request);
        else
            code = MPI_Irecv(m->at, n, MPI_BYTE, m->peer, TAG, l->world, request);
        if (dcpk_mpi_check(code, "beginning an exchange", err))
            return err->status;
        l->n_requests++;
    }
    return DCPK_OK;
}

static dcpk_status mpi_poll(struct dcpk_link *link, bool *done, struct dcpk_error *err)
{
    struct mpi_link *l = (struct mpi_link *)link;
    int all = 0;

    if (dcpk_mpi_check(MPI_Testall(l->n_requests, l->requests, &all, MPI_STATUSES_IGNORE),
                       "exchanging", err))
        return err->status;
    if (all)
        l->n_requests = 0;
    *done = all != 0;
    return DCPK_OK;
}

const struct dcpk_link_ops dcpk_link_mpi = {
    .name = "mpi",
    .summary = "processes of one MPI job, from host memory",
    .memory = DCPK_MEMORY_HOST,
    .n_under_way = 1,
    DCPK_LINK_FUNCTIONS(mpi),
};
