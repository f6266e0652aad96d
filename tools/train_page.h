/* SPDX-License-Identifier: Apache-2.0 */
/* train_page.h - the curves of a run, on a page that is written again during the run. */
#ifndef DCPK_TOOLS_TRAIN_PAGE_H
#define DCPK_TOOLS_TRAIN_PAGE_H

#include "lib/job/step_log.h"
#include "lib/knobs/config.h"

#define DCPK_TRAIN_PAGE_POINTS 4096 /* of a curve at most; then every second one is left out */

/* Zeroed, with `path` NULL: no page. A value: dcpk_train_page_release. */
struct dcpk_train_page {
    const char *path;
    double *points; /* of all curves, their x first */
    size_t n;
    int64_t stride;    /* every so many steps are a point */
    int64_t n_steps;   /* since the run began */
    double first_loss; /* of this run */
    double written;    /* seconds (lib/base/clock.h) when the page was written */
    struct dcpk_step last;
};

/* Adds a step, which took `seconds`; writes the page again when the last one is some seconds old.
 * Errors: DCPK_ENOMEM, DCPK_EIO. */
dcpk_status dcpk_train_page_put(struct dcpk_train_page *page,
                                const struct dcpk_train_config *config,
                                const struct dcpk_step *step, double seconds,
                                struct dcpk_error *err);
/* Writes the page of a run that has ended as `failure` has it. Errors: DCPK_ENOMEM, DCPK_EIO. */
dcpk_status dcpk_train_page_end(struct dcpk_train_page *page,
                                const struct dcpk_train_config *config,
                                const struct dcpk_error *failure, struct dcpk_error *err);
void dcpk_train_page_release(struct dcpk_train_page *page);

#endif
