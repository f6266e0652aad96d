/* SPDX-License-Identifier: Apache-2.0 */
/* link.c - waiting for an exchange. */
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
