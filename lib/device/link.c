/* SPDX-License-Identifier: Apache-2.0 */
/* link.c - waiting for an exchange, and agreement before the first one. */
#include "lib/device/link.h"

#include <string.h>

#include "lib/base/clock.h"

dcpk_status dcpk_link_wait(struct dcpk_link *link, int timeout_ms, struct dcpk_error *err)
{
    const double begun = dcpk_now_seconds();
    bool done = false;

    while (link->ops->poll(link, &done, err) == DCPK_OK) {
        const double waited = dcpk_now_seconds() - begun;

        if (done)
            return DCPK_OK;
        if (waited * 1000 > timeout_ms) {
            dcpk_fail(err, DCPK_EIO, "the link '%s' did not deliver all messages in %d ms",
                      link->ops->name, timeout_ms);
            break;
        }
        dcpk_pause(waited);
    }
    link->ops->abort(link);
    return err->status;
}

/* Broadcast the status of rank r twice: a word that changed on its way is recognised. */
static dcpk_status broadcast_status(struct dcpk_comm *comm, int r, int32_t *status,
                                    struct dcpk_error *err)
{
    uint32_t words[2] = {(uint32_t)*status, ~(uint32_t)*status};

    if (comm->transport->broadcast(comm, r, words, sizeof words, err) != DCPK_OK)
        return err->status;
    if (words[0] != ~words[1] || words[0] > DCPK_ECANCELLED)
        return dcpk_fail(err, DCPK_EIO, "the broadcast of rank %d arrived with other bytes", r);
    *status = (int32_t)words[0];
    return DCPK_OK;
}

dcpk_status dcpk_link_agree(struct dcpk_comm *comm, const char *name, struct dcpk_error *err)
{
    struct dcpk_error why = *err, network = DCPK_ERROR_INIT;
    int32_t status = DCPK_OK;
    int r;

    for (r = 0; r < comm->n_ranks && status == DCPK_OK && network.status == DCPK_OK; r++) {
        status = (int32_t)err->status;
        (void)broadcast_status(comm, r, &status, &network);
    }
    if (status != DCPK_OK && network.status == DCPK_OK &&
        comm->transport->broadcast(comm, r - 1, &why, sizeof why, &network) == DCPK_OK &&
        ((int32_t)why.status != status || memchr(why.text, '\0', sizeof why.text) == NULL))
        dcpk_fail(&network, DCPK_EIO, "the error of rank %d did not arrive", r - 1);
    if (err->status != DCPK_OK)
        return err->status;
    if (network.status != DCPK_OK)
        *err = network;
    else if (status != DCPK_OK)
        dcpk_fail(err, why.status, "rank %d has no link '%s': %s", r - 1, name, why.text);
    return err->status;
}
