/* SPDX-License-Identifier: Apache-2.0 */
/* bar.h - how far a long command is: a bar on a terminal, now and then a line in a log. */
#ifndef DCPK_TOOLS_BAR_H
#define DCPK_TOOLS_BAR_H

#include "lib/base/progress.h"
#include "tools/cmd.h"

/*
 * On stderr: part and bytes done, GB/s, time left. On a terminal one line that is redrawn and goes
 * when the work is done; else a line every few seconds, the first after 10 s, so that a short run
 * prints nothing, or from the start and with a last one when the verbosity wants progress. Nothing
 * when the verbosity is quiet. It always passes on SIGINT.
 */
struct dcpk_bar {
    const char *label; /* borrowed: "converting" */
    bool is_terminal, is_quiet, wants_lines;
    /* The current pass over the data: */
    bool has_begun, has_ended;
    uint64_t first_bytes; /* done at the first call: a resumed run does not begin at 0 */
    uint64_t last_bytes;
    double start_seconds;
    double next_seconds; /* when the next line is due */
};

/* bar, label: borrowed until the end. */
struct dcpk_progress dcpk_bar_begin(struct dcpk_bar *bar, const char *label,
                                    const struct dcpk_verbosity *verbosity);
void dcpk_bar_end(struct dcpk_bar *bar); /* clears the line */

#endif
