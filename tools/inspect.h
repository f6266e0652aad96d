/* SPDX-License-Identifier: Apache-2.0 */
/* inspect.h - what dcpkit inspect prints, as text and as JSON. */
#ifndef DCPK_TOOLS_INSPECT_H
#define DCPK_TOOLS_INSPECT_H

#include "lib/ckpt/run.h"
#include "lib/ckpt/saved_layout.h"
#include "lib/ckpt/summary.h"
#include "lib/exec/stats.h"

/* All that is known when it comes to printing. Borrowed. */
struct dcpk_inspection {
    const struct dcpk_checkpoint *ckpt;
    const struct dcpk_run *run;
    const struct dcpk_run_state *state;
    const struct dcpk_saved_layout *saved; /* what the chunks show, whatever args say */
    const struct dcpk_summary *summary;
    int64_t iteration; /* of the checkpoint itself, else of its folder; DCPK_ITERATION_... */
    bool has_chunks;   /* --chunks */
    const struct dcpk_stats *stats; /* --stats: of each tensor, by its number; NULL without */
};

dcpk_status dcpk_inspect_print(const struct dcpk_inspection *inspection, struct dcpk_error *err);
dcpk_status dcpk_inspect_print_json(const struct dcpk_inspection *inspection,
                                    struct dcpk_error *err);

/* One fact of the model line: where it stands in args, and how it is told. */
struct dcpk_model_fact {
    const char *name;    /* in args, and in JSON */
    const char *text;    /* "hidden %s" */
    const char *only_if; /* told only if this other attribute is set; NULL: always */
};
extern const struct dcpk_model_fact dcpk_model_facts[];
extern const size_t dcpk_n_model_facts;

#endif
