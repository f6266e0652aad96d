/* SPDX-License-Identifier: Apache-2.0 */
/* inspect_page.c - the first screen of the page of dcpkit inspect. */
#include <inttypes.h>

#include "lib/base/order.h"
#include "lib/ckpt/format.h"
#include "lib/ckpt/overlaps.h"
#include "tools/cmd.h"
#include "tools/holders.h"
#include "tools/inspect.h"
#include "tools/layers.h"

/* ---- the first screen ---- */

/* The layout by args, or else by chunks. */
static struct dcpk_doc_figure layout_figure(const struct dcpk_inspection *in, struct dcpk_doc *doc)
{
    const struct dcpk_saved_layout *saved = in->saved;
    const struct dcpk_grid by_chunks = {.tp = saved->tp,
                                        .pp = saved->pp,
                                        .ep = saved->ep,
                                        .dp = saved->dp,
                                        .world = saved->n_ranks};

    if (!in->ckpt->format->is_model && (in->state->layout.tp > 0 || in->state->layout.world > 0))
        return dcpk_grid_figure(&in->state->layout, doc);
    if (!in->ckpt->format->is_model && (saved->tp > 0 || saved->dp > 0))
        return dcpk_grid_figure(&by_chunks, doc);
    return (struct dcpk_doc_figure){dcpk_doc_format(doc, "%" PRIu64, in->summary->totals.n_files),
                                    in->summary->totals.n_files == 1 ? "file" : "files"};
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

/* ---- where the bytes are ---- */

struct stored_parts {
    const struct dcpk_inspection *in;
    const bool *is_alias; /* by chunk */
};

static void each_stored(const void *context, dcpk_take_held *take, void *to)
{
    const struct stored_parts *parts = context;
    const struct dcpk_checkpoint *ckpt = parts->in->ckpt;

    for (size_t i = 0; i < ckpt->n_chunks; i++) {
        const struct dcpk_chunk *c = &ckpt->chunks[i];
        const struct dcpk_tensor *t = &ckpt->tensors[c->tensor];

        if (!parts->is_alias[i] && dcpk_inspect_lists(parts->in, c->tensor))
            take(to, &(struct dcpk_held){t->key, t->dtype, t->rank, t->shape, c->span,
                                         dcpk_source_name(ckpt->files[c->place.file])});
    }
}

bool dcpk_inspect_has_replica(const struct dcpk_inspection *in)
{
    const struct dcpk_format_mapping *mapping = in->ckpt->format->mapping;

    return mapping != NULL && !mapping->has_flat_buffers && in->saved->tp > 0 &&
           in->saved->tp == in->state->layout.tp;
}

void dcpk_inspect_report_bytes(const struct dcpk_inspection *in, struct dcpk_doc *doc)
{
    const struct dcpk_checkpoint *ckpt = in->ckpt;
    bool *is_alias = dcpk_doc_take(doc, ckpt->n_chunks + ckpt->n_objects, sizeof *is_alias);
    const struct stored_parts parts = {in, is_alias};
    struct dcpk_holders holders = {.each = each_stored, .context = &parts};

    if (is_alias == NULL || dcpk_find_aliases(ckpt, is_alias, &doc->err) != DCPK_OK)
        return;
    if (dcpk_inspect_has_replica(in))
        holders.grid = in->state->layout;
    dcpk_report_holders(&holders, doc);
}

/* ---- statistics ---- */

bool dcpk_inspect_is_stacked(const struct dcpk_tensor *tensor)
{
    return dcpk_key_place_of(tensor->key, tensor->rank, tensor->shape).is_stacked;
}

int64_t dcpk_inspect_layers(const struct dcpk_tensor *tensor)
{
    const struct dcpk_key_place place = dcpk_key_place_of(tensor->key, tensor->rank, tensor->shape);

    return place.is_stacked ? tensor->shape[0] : place.layer + 1;
}

static void add_stats(struct dcpk_layer_grid *grid, const struct dcpk_key_place *place,
                      int64_t layer, const struct dcpk_stats *s, struct dcpk_bytes *text)
{
    struct dcpk_layer_sum *sum;

    if (!s->has_numbers || s->n_elems == 0)
        return;
    sum = dcpk_layer_grid_at(grid, dcpk_layer_grid_row(grid, dcpk_key_module(place, text)), layer);
    sum->is_there = true;
    sum->is_bad |= s->n_nan + s->n_inf > 0;
    if (s->n_finite == 0)
        return;
    sum->value += s->sum_squares;
    sum->weight += (double)s->n_finite;
}

static void report_heat_of(const struct dcpk_inspection *in, enum dcpk_content content,
                           int64_t n_layers, struct dcpk_doc *doc)
{
    struct dcpk_bytes text = {.data = NULL};
    struct dcpk_layer_grid grid;

    if (!dcpk_layer_grid_begin(&grid, n_layers, doc))
        return;
    for (size_t i = 0; i < in->ckpt->n_tensors; i++) {
        const struct dcpk_tensor *t = &in->ckpt->tensors[i];
        const struct dcpk_key_place place = dcpk_key_place_of(t->key, t->rank, t->shape);

        if (dcpk_inspect_lists(in, i) && !place.is_stacked && dcpk_content_of(t->key) == content)
            add_stats(&grid, &place, place.layer, &in->stats[i], &text);
    }
    for (size_t i = 0; i < in->n_layers; i++) {
        const struct dcpk_tensor *t = &in->ckpt->tensors[in->layers[i].tensor];
        const struct dcpk_key_place place = dcpk_key_place_of(t->key, t->rank, t->shape);

        if (dcpk_content_of(t->key) == content)
            add_stats(&grid, &place, in->layers[i].layer, &in->layers[i].stats, &text);
    }
    dcpk_bytes_status(&text, &doc->err);
    dcpk_bytes_release(&text);
    dcpk_layer_grid_show(&grid,
                         dcpk_doc_format(doc, "root mean square of %s, on a scale of logarithms",
                                         dcpk_content_name(content)),
                         "layer", DCPK_LAYER_RMS, doc);
}

void dcpk_inspect_report_heat(const struct dcpk_inspection *in, struct dcpk_doc *doc)
{
    int64_t n_layers = 0;

    for (size_t i = 0; i < in->ckpt->n_tensors; i++)
        if (dcpk_inspect_lists(in, i))
            n_layers = dcpk_max_i64(n_layers, dcpk_inspect_layers(&in->ckpt->tensors[i]));
    for (int c = 0; c < DCPK_CONTENT_OTHER; c++)
        report_heat_of(in, (enum dcpk_content)c, n_layers, doc);
}
