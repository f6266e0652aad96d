/* SPDX-License-Identifier: Apache-2.0 */
/* inspect.h - what dcpkit inspect prints, as text and as JSON. */
#ifndef DCPK_TOOLS_INSPECT_H
#define DCPK_TOOLS_INSPECT_H

#include "lib/base/json.h"
#include "lib/ckpt/run.h"
#include "lib/ckpt/run_list.h"
#include "lib/ckpt/summary.h"
#include "lib/exec/stats.h"
#include "lib/model/run_state.h"
#include "lib/model/saved_layout.h"

/* All that is known when it comes to printing. Borrowed. */
struct dcpk_inspection {
    const struct dcpk_checkpoint *ckpt;
    const struct dcpk_run *run;
    const struct dcpk_run_list *list; /* of the run folder that was given; else empty */
    const struct dcpk_run_state *state;
    const struct dcpk_saved_layout *saved; /* what the chunks show, whatever args say */
    const struct dcpk_summary *summary;
    int64_t iteration; /* of the checkpoint itself, else of its folder; DCPK_ITERATION_... */
    bool has_chunks;   /* --chunks */
    const char *keys;  /* --keys; NULL: all */
    const struct dcpk_chosen *chosen; /* what --keys finds; NULL: all */
    const struct dcpk_stats *stats;   /* --stats: of each tensor, by its number; NULL without */
};

/* What statistics say of all tensors together. */
struct dcpk_stats_findings {
    uint64_t n_tensors;
    uint64_t n_not_finite; /* tensors with NaN or Inf */
    uint64_t n_nan, n_inf; /* elements */
    uint64_t n_zero;       /* tensors of zeros alone */
    uint64_t n_unread;     /* tensors of dtypes without numbers */
};
void dcpk_inspect_findings(const struct dcpk_inspection *in, struct dcpk_stats_findings *found);
dcpk_status dcpk_inspect_print_stats(const struct dcpk_inspection *in, struct dcpk_error *err);

/* A listing under its title; nothing for no rows. */
void dcpk_inspect_print_rows(const char *title, const struct dcpk_summary_row *rows, size_t n);
/* A key behind `at` columns, broken behind dots and slashes; its further lines begin at `indent`.
 */
void dcpk_inspect_put_key(const char *key, size_t at, size_t indent);

dcpk_status dcpk_inspect_print(const struct dcpk_inspection *inspection, struct dcpk_error *err);
dcpk_status dcpk_inspect_print_json(const struct dcpk_inspection *inspection,
                                    struct dcpk_error *err);

/* The iterations of the run folder `path`, a line each; as the member "iterations". */
void dcpk_inspect_print_list(const char *path, const struct dcpk_run_list *list);
void dcpk_inspect_put_list(const struct dcpk_run_list *list, struct dcpk_json_out *j);

/* One fact of the model line: where it stands in args, and how it is told. */
struct dcpk_model_fact {
    const char *name;    /* in args, and in JSON */
    const char *text;    /* "hidden %s" */
    const char *only_if; /* told only if this other attribute is set; NULL: always */
};
extern const struct dcpk_model_fact dcpk_model_facts[];
extern const size_t dcpk_n_model_facts;

#endif
