/* SPDX-License-Identifier: Apache-2.0 */
/* inspect_page.c - the first screen of the page of dcpkit inspect. */
#include <inttypes.h>

#include "lib/base/order.h"
#include "lib/ckpt/format.h"
#include "tools/cmd.h"
#include "tools/inspect.h"

/* ---- the first screen ---- */

/* "TP 2 PP 4": the sizes above 1, by args or else by chunks. */
static struct dcpk_doc_figure layout_figure(const struct dcpk_inspection *in, struct dcpk_doc *doc)
{
    const struct dcpk_grid *args = &in->state->layout;
    const struct dcpk_saved_layout *saved = in->saved;
    const bool has_args = args->tp > 0 || args->world > 0;
    const struct {
        const char *name;
        int64_t by_args, by_chunks;
    } sizes[] = {{"TP", args->tp, saved->tp},
                 {"PP", args->pp, saved->pp},
                 {"EP", args->ep, saved->ep},
                 {"CP", args->cp, 0},
                 {"DP", args->dp, saved->dp}};
    const int64_t n_ranks = has_args ? args->world : saved->n_ranks;
    char count[DCPK_COUNT_TEXT_BYTES];
    const char *text = "", *before = "";

    if (in->ckpt->format->is_model || (!has_args && saved->tp == 0 && saved->dp == 0))
        return (struct dcpk_doc_figure){
            dcpk_doc_format(doc, "%" PRIu64, in->summary->totals.n_files), "files"};
    for (size_t i = 0; i < DCPK_COUNT(sizes); i++) {
        const int64_t n = has_args ? sizes[i].by_args : sizes[i].by_chunks;

        if (n > 1) {
            text = dcpk_doc_format(doc, "%s%s%s %" PRId64, text, before, sizes[i].name, n);
            before = " \u00d7 ";
        }
    }
    if (*text == '\0')
        return (struct dcpk_doc_figure){"1", "model-parallel rank"};
    if (n_ranks <= 0)
        return (struct dcpk_doc_figure){text, "parallel layout"};
    return (struct dcpk_doc_figure){
        text, dcpk_doc_format(doc, "%s", dcpk_cli_count((uint64_t)n_ranks, "rank", count))};
}

static void report_finite(const struct dcpk_inspection *in, struct dcpk_doc *doc)
{
    struct dcpk_stats_findings found;
    char count[DCPK_COUNT_TEXT_BYTES];

    if (in->stats == NULL)
        return;
    dcpk_inspect_findings(in, &found);
    doc->media = DCPK_DOC_PAGE;
    if (found.n_not_finite == 0)
        dcpk_doc_verdict(doc, true, "no NaN, no infinity");
    else
        dcpk_doc_verdict(doc, false, "NaN or infinity in %s",
                         dcpk_cli_count(found.n_not_finite, "tensor", count));
    doc->media = 0;
}

void dcpk_inspect_report_headline(const struct dcpk_inspection *in, struct dcpk_doc *doc)
{
    const struct dcpk_totals *t = &in->summary->totals;
    char size[DCPK_SIZE_TEXT_BYTES], count[DCPK_COUNT_TEXT_BYTES];
    struct dcpk_doc_bar bars[DCPK_N_CONTENTS + 1];
    struct dcpk_doc_headline headline = {.bar_title = "bytes by part",
                                         .bars = bars,
                                         .n_bars = DCPK_N_CONTENTS + 1,
                                         .is_bytes = true};

    headline.figures[0] =
        (struct dcpk_doc_figure){dcpk_short_count(t->n_params, doc), "parameters"};
    headline.figures[1].value =
        dcpk_doc_format(doc, "%s", dcpk_cli_short_size(t->tensor_bytes + t->object_bytes, size));
    headline.figures[1].label =
        dcpk_doc_format(doc, "in %s", dcpk_cli_count(t->n_tensors, "tensor", count));
    headline.figures[2] = layout_figure(in, doc);
    for (int i = 0; i < DCPK_N_CONTENTS; i++)
        bars[i] = (struct dcpk_doc_bar){dcpk_content_name((enum dcpk_content)i),
                                        t->by_content[i].tensor_bytes, 0};
    bars[DCPK_N_CONTENTS] = (struct dcpk_doc_bar){"objects", t->object_bytes, 0};
    dcpk_doc_headline(doc, &headline);
    report_finite(in, doc);
}
