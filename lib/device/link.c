/* SPDX-License-Identifier: Apache-2.0 */
/* link.c - waiting for an exchange, and agreement before the first one. */
#include "lib/device/link.h"

#include "lib/base/clock.h"
#include "lib/device/pause.h"

dcpk_status dcpk_link_wait(struct dcpk_link *link, int timeout_ms, struct dcpk_error *err)
{
    const double begun = dcpk_now_seconds();
    bool done = false;

    while (link->ops->poll(link, &done, err) == DCPK_OK) {
        const double waited = dcpk_now_seconds() - begun;

        if (done)
            return DCPK_OK;
        if (waited * 1000 > timeout_ms) {
            dcpk_fail(err, DCPK_EIO, "messages are not through the link '%s' after %d ms",
                      link->ops->name, timeout_ms);
            break;
        }
        dcpk_pause(waited);
    }
    link->ops->abort(link);
    return err->status;
}

dcpk_status dcpk_link_agree(struct dcpk_comm *comm, const char *name, struct dcpk_error *err)
{
    const struct dcpk_transport *transport = comm->transport;
    struct dcpk_error why = *err, network = DCPK_ERROR_INIT;
    int32_t status = DCPK_OK;
    int r;

    for (r = 0; r < comm->n_ranks && status == DCPK_OK; r++) {
        status = (int32_t)err->status;
        if (transport->broadcast(comm, r, &status, sizeof status, &network))
            break;
    }
    if (status != DCPK_OK && network.status == DCPK_OK)
        (void)transport->broadcast(comm, r - 1, &why, sizeof why, &network);
    if (err->status != DCPK_OK)
        return err->status;
    if (network.status != DCPK_OK)
        *err = network;
    else if (status != DCPK_OK)
        dcpk_fail(err, why.status, "rank %d has no link '%s': %s", r - 1, name, why.text);
    return err->status;
}
