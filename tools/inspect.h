/* SPDX-License-Identifier: Apache-2.0 */
/* inspect.h - the work of dcpkit inspect and view, and what they report. */
#ifndef DCPK_TOOLS_INSPECT_H
#define DCPK_TOOLS_INSPECT_H

#include "lib/ckpt/run.h"
#include "lib/ckpt/run_list.h"
#include "lib/ckpt/summary.h"
#include "lib/exec/exec.h"
#include "lib/exec/find_layout.h"
#include "lib/exec/stats.h"
#include "lib/model/named_state.h"
#include "lib/report/doc.h"
#include "tools/cmd.h"

/* Facts for the report. Borrowed. */
struct dcpk_inspection {
    const struct dcpk_checkpoint *ckpt;
    const struct dcpk_run *run;
    const struct dcpk_run_list *list; /* of the run folder that was given; else empty */
    const struct dcpk_run_state *state;
    const struct dcpk_value *config;       /* config.json of a Hugging Face folder; NULL: none */
    const struct dcpk_saved_layout *saved; /* shown by the chunks, in spite of args */
    const struct dcpk_summary *summary;
    int64_t iteration; /* of the checkpoint itself, else of its folder; DCPK_ITERATION_... */
    bool has_chunks;   /* --chunks */
    bool is_tree;      /* --tree: the text lists names in levels, with the bytes of each */
    int n_largest;     /* --top: the text lists so many tensors, by size; 0: all, by key */
    const char *keys;  /* --keys; NULL: all */
    const struct dcpk_chosen *chosen; /* found by --keys; NULL: all */
    bool has_page;                    /* figures are wanted */
    const struct dcpk_stats *stats;   /* --stats: of each tensor, by its number; NULL without */
    /* With a page, of each layer of tensors that have layers in their first axis. */
    const struct dcpk_layer_stats {
        size_t tensor;
        int64_t layer;
        struct dcpk_stats stats;
    } * layers;
    size_t n_layers;
};

static inline bool dcpk_inspect_lists(const struct dcpk_inspection *in, size_t tensor)
{
    return in->chosen == NULL || in->chosen->tensors[tensor];
}

/* True if the first axis of a tensor counts layers. */
bool dcpk_inspect_is_stacked(const struct dcpk_tensor *tensor);

/* Statistics of all tensors together. */
struct dcpk_stats_findings {
    uint64_t n_tensors;
    uint64_t n_not_finite; /* tensors with NaN or Inf */
    uint64_t n_nan, n_inf; /* elements */
    uint64_t n_zero;       /* tensors of zeros alone */
    uint64_t n_unread;     /* tensors of dtypes without numbers */
};
void dcpk_inspect_findings(const struct dcpk_inspection *in, struct dcpk_stats_findings *found);

/* Fill a document, whose style is dcpk_inspect_style, with all there is. `in` outlives it. */
extern const struct dcpk_doc_style dcpk_inspect_style;
void dcpk_inspect_report(const struct dcpk_inspection *in, struct dcpk_doc *doc);
/* Its parts: keys; statistics; a table of the iterations of a run folder. */
void dcpk_inspect_report_keys(const struct dcpk_inspection *in, struct dcpk_doc *doc);
void dcpk_inspect_report_stats(const struct dcpk_inspection *in, struct dcpk_doc *doc);
/* For a page: the first screen; "70.6 B" on it; where the bytes are; maps of the largest tensors
 * that are cut; heat maps of the statistics. */
void dcpk_inspect_report_headline(const struct dcpk_inspection *in, struct dcpk_doc *doc);
const char *dcpk_short_count(uint64_t n, struct dcpk_doc *doc);
void dcpk_inspect_report_bytes(const struct dcpk_inspection *in, struct dcpk_doc *doc);
void dcpk_inspect_report_maps(const struct dcpk_inspection *in, struct dcpk_doc *doc);
void dcpk_inspect_report_heat(const struct dcpk_inspection *in, struct dcpk_doc *doc);
struct dcpk_doc_table dcpk_inspect_iterations(const struct dcpk_run_list *list);

/* The request of the command line. */
struct dcpk_inspect_request {
    bool as_json, is_tree, has_chunks, has_stats, fails_nonfinite;
    int n_largest;               /* 0: all tensors are listed */
    bool lists_meta, enable_msc; /* of Megatron's Python tool, without meaning here */
    const char *keys, *format, *iteration, *html;
    const char *sort;          /* key, size; NULL: key */
    bool is_silent;            /* nothing to stdout */
    struct dcpk_run_list list; /* of a run folder */
    struct dcpk_verbosity verbosity;
    struct dcpk_env env; /* of --stats */
};

/* Describe the checkpoint at `arg`, also as the page html of the request. Returns the exit code. */
int dcpk_inspect_path(void *request, const char *arg);

#endif
