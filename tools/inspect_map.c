/* SPDX-License-Identifier: Apache-2.0 */
/* inspect_map.c - a figure of dcpkit inspect: which file and rank holds which box. */
#include <inttypes.h>
#include <math.h>

#include "lib/base/order.h"
#include "lib/ckpt/format.h"
#include "lib/ckpt/overlaps.h"
#include "lib/exec/find_layout.h"
#include "tools/cmd.h"
#include "tools/holders.h"
#include "tools/inspect.h"
#include "tools/layers.h"

#define MAX_MAPS      16
#define MAX_BOXES     256 /* of a map */
#define ROW_HEIGHT    0.09
#define MIN_HEIGHT    0.12
#define LARGEST_RATIO 0.5

/* ---- the first screen ---- */

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

/* True if tensors are cut as args have it, so that their cuts show ranks. */
static bool has_replica(const struct dcpk_inspection *in)
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
    if (has_replica(in))
        holders.grid = in->state->layout;
    dcpk_report_holders(&holders, doc);
}

/* ---- statistics ---- */

bool dcpk_inspect_is_stacked(const struct dcpk_tensor *tensor)
{
    return dcpk_key_place_of(tensor->key, tensor->rank, tensor->shape).is_stacked;
}

/* One more than its last layer; 0: none. */
static int64_t layers_of_tensor(const struct dcpk_tensor *tensor)
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
            n_layers = dcpk_max_i64(n_layers, layers_of_tensor(&in->ckpt->tensors[i]));
    for (int c = 0; c < DCPK_CONTENT_OTHER; c++)
        report_heat_of(in, (enum dcpk_content)c, n_layers, doc);
}

/* ---- the axes that are drawn ---- */

struct axes {
    int x, y; /* y -1: there is one axis */
    bool is_cut[DCPK_MAX_RANK];
    size_t n_rows; /* boxes above each other */
};

static bool is_axis_cut(const struct dcpk_checkpoint *ckpt, const struct dcpk_tensor *t, int axis)
{
    const struct dcpk_chunk *first = &ckpt->chunks[t->first_chunk];

    for (size_t i = 1; i < t->n_chunks; i++)
        if (first[i].span[axis] != first->span[axis])
            return true;
    return false;
}

/* The first two axes that are cut; next to one that is, the last other one. */
static struct axes choose_axes(const struct dcpk_checkpoint *ckpt, const struct dcpk_tensor *t)
{
    struct axes axes = {.x = -1, .y = -1};

    for (int a = 0; a < t->rank; a++) {
        axes.is_cut[a] = is_axis_cut(ckpt, t, a);
        if (axes.is_cut[a] && axes.y < 0)
            axes.y = a;
        else if (axes.is_cut[a] && axes.x < 0)
            axes.x = a;
    }
    if (axes.y < 0)
        axes.y = 0;
    for (int a = t->rank - 1; a >= 0 && axes.x < 0; a--)
        if (a != axes.y)
            axes.x = a;
    if (axes.x < 0) {
        axes.x = axes.y;
        axes.y = -1;
    } else if (axes.x < axes.y) {
        const int swapped = axes.x;

        axes.x = axes.y;
        axes.y = swapped;
    }
    return axes;
}

/* True if the chunk is on the slice that is drawn: where the first one is, on all other axes. */
static bool is_on_slice(const struct dcpk_tensor *t, const struct axes *axes,
                        const struct dcpk_chunk *first, const struct dcpk_chunk *chunk)
{
    for (int a = 0; a < t->rank; a++)
        if (a != axes->x && a != axes->y && chunk->span[a] != first->span[a])
            return false;
    return true;
}

/* ---- boxes ---- */

/* "[0:32, 16:32]" */
static const char *span_text(struct dcpk_doc *doc, const struct dcpk_chunk *c, int rank)
{
    const char *text = "[", *before = "";

    for (int a = 0; a < rank; a++) {
        text = dcpk_doc_format(doc, "%s%s%" PRId64 ":%" PRId64, text, before, c->span[a],
                               c->span[a] + c->span[rank + a]);
        before = ", ";
    }
    return dcpk_doc_format(doc, "%s]", text);
}

static double part_of(int64_t n, int64_t whole)
{
    return whole == 0 ? 0 : (double)n / (double)whole;
}

/* The colours of boxes: by rank where files show it, else by the rank of a replica that the cuts
 * of tensors show, else by file. */
struct colours {
    bool by_rank;
    struct dcpk_replica replica;
};

static void set_colour(struct dcpk_doc_box *box, const struct colours *colours,
                       const struct dcpk_held *held, uint32_t file, struct dcpk_doc *doc)
{
    const int64_t rank = dcpk_rank_of_file(held->file);

    box->group = file;
    box->label = held->file;
    if (colours->by_rank && rank >= 0) {
        box->group = (unsigned)rank;
        box->label = dcpk_doc_format(doc, "rank %" PRId64, rank);
    } else if (!colours->by_rank && colours->replica.n > 1 && dcpk_replica_knows(held)) {
        const int64_t first = dcpk_replica_first(&colours->replica, held);

        box->group = (unsigned)first;
        box->label = dcpk_replica_name(&colours->replica, first, doc);
    }
}

static struct dcpk_doc_box make_box(const struct dcpk_checkpoint *ckpt, const struct dcpk_tensor *t,
                                    const struct axes *axes, const struct dcpk_chunk *c,
                                    const struct colours *colours, struct dcpk_doc *doc)
{
    const struct dcpk_held held = {
        t->key, t->dtype, t->rank, t->shape, c->span, dcpk_source_name(ckpt->files[c->place.file])};
    const int64_t *extent = c->span + t->rank;
    char size[DCPK_SIZE_TEXT_BYTES];
    struct dcpk_doc_box box = {.x = part_of(c->span[axes->x], t->shape[axes->x]),
                               .width = part_of(extent[axes->x], t->shape[axes->x]),
                               .height = 1};

    if (axes->y >= 0) {
        box.y = part_of(c->span[axes->y], t->shape[axes->y]);
        box.height = part_of(extent[axes->y], t->shape[axes->y]);
    }
    set_colour(&box, colours, &held, c->place.file, doc);
    box.text = dcpk_doc_format(doc, "%s: %s in %s, %s", box.label, span_text(doc, c, t->rank),
                               held.file, dcpk_cli_short_size(c->place.n_bytes, size));
    return box;
}

/* "layers: 0 to 4", "axis 1: 0 to 64"; NULL: there is no such axis. */
static const char *axis_text(const struct dcpk_tensor *t, int axis, struct dcpk_doc *doc)
{
    if (axis < 0)
        return NULL;
    if (axis == 0 && dcpk_inspect_is_stacked(t))
        return dcpk_doc_format(doc, "layers: 0 to %" PRId64, t->shape[0]);
    return dcpk_doc_format(doc, "axis %d: 0 to %" PRId64, axis, t->shape[axis]);
}

static void report_map(const struct dcpk_inspection *in, const struct dcpk_tensor *t, bool is_open,
                       const struct colours *colours, struct dcpk_doc *doc)
{
    const struct dcpk_checkpoint *ckpt = in->ckpt;
    const struct dcpk_chunk *first = &ckpt->chunks[t->first_chunk];
    const struct axes axes = choose_axes(ckpt, t);
    const size_t most = dcpk_min_size(t->n_chunks, MAX_BOXES);
    struct dcpk_doc_box *boxes = dcpk_doc_take(doc, most, sizeof *boxes);
    struct dcpk_doc_map map = {.title = t->key, .boxes = boxes, .is_open = is_open};
    char shape[256];
    double least = 1;

    for (size_t i = 0; boxes != NULL && i < t->n_chunks && map.n < most; i++)
        if (is_on_slice(t, &axes, first, &first[i]))
            boxes[map.n++] = make_box(ckpt, t, &axes, &first[i], colours, doc);
    for (size_t i = 0; i < map.n; i++)
        if (boxes[i].height > 0)
            least = fmin(least, boxes[i].height);
    map.height = fmax(MIN_HEIGHT, fmin(LARGEST_RATIO, ROW_HEIGHT / least));
    map.x_axis = axis_text(t, axes.x, doc);
    map.y_axis = axis_text(t, axes.y, doc);
    map.note = dcpk_doc_format(doc, "%s %s in %zu chunks",
                               dcpk_shape_format(t->shape, t->rank, shape, sizeof shape),
                               dcpk_dtype_name(t->dtype), t->n_chunks);
    if (map.n < t->n_chunks)
        map.note = dcpk_doc_format(doc, "%s; drawn are %zu, of the first slice", map.note, map.n);
    dcpk_doc_map(doc, &map);
}

/* ---- which tensors ---- */

static uint64_t tensor_bytes(const struct dcpk_checkpoint *ckpt, const struct dcpk_tensor *t)
{
    uint64_t n_bytes = 0;

    for (size_t i = 0; i < t->n_chunks; i++)
        n_bytes += ckpt->chunks[t->first_chunk + i].place.n_bytes;
    return n_bytes;
}

/* The largest ones that are cut, the largest first. Returns how many are cut. */
static size_t find_largest(const struct dcpk_inspection *in,
                           const struct dcpk_tensor *largest[MAX_MAPS], size_t *n)
{
    uint64_t sizes[MAX_MAPS] = {0};
    size_t n_cut = 0;

    *n = 0;
    for (size_t i = 0; i < in->ckpt->n_tensors; i++) {
        const struct dcpk_tensor *t = &in->ckpt->tensors[i];
        const uint64_t n_bytes = tensor_bytes(in->ckpt, t);
        size_t at;

        if (!dcpk_inspect_lists(in, i) || t->n_chunks < 2 || t->rank == 0)
            continue;
        n_cut++;
        if (*n == MAX_MAPS && n_bytes <= sizes[MAX_MAPS - 1])
            continue;
        *n = dcpk_min_size(*n + 1, MAX_MAPS);
        for (at = *n - 1; at > 0 && sizes[at - 1] < n_bytes; at--) {
            sizes[at] = sizes[at - 1];
            largest[at] = largest[at - 1];
        }
        sizes[at] = n_bytes;
        largest[at] = t;
    }
    return n_cut;
}

static struct colours choose_colours(const struct dcpk_inspection *in)
{
    const struct dcpk_checkpoint *ckpt = in->ckpt;
    struct colours colours = {.by_rank = false};
    int64_t n_layers = 0;

    for (size_t i = 0; i < ckpt->n_files; i++)
        colours.by_rank |= dcpk_rank_of_file(dcpk_source_name(ckpt->files[i])) > 0;
    for (size_t i = 0; i < ckpt->n_tensors; i++)
        n_layers = dcpk_max_i64(n_layers, layers_of_tensor(&ckpt->tensors[i]));
    if (has_replica(in))
        dcpk_replica_init(&colours.replica, &in->state->layout, n_layers);
    return colours;
}

void dcpk_inspect_report_maps(const struct dcpk_inspection *in, struct dcpk_doc *doc)
{
    const struct dcpk_tensor *largest[MAX_MAPS];
    size_t n;
    const size_t n_cut = find_largest(in, largest, &n);
    const struct colours colours = choose_colours(in);

    doc->media = DCPK_DOC_PAGE;
    if (n_cut > 0)
        dcpk_doc_heading(doc, "chunks of a tensor");
    for (size_t i = 0; i < n; i++)
        report_map(in, largest[i], i == 0, &colours, doc);
    if (n_cut > n)
        dcpk_doc_paragraph(
            doc, dcpk_doc_format(doc,
                                 "Drawn are the %zu largest tensors of several chunks, of %zu; "
                                 "--keys RE chooses others.",
                                 n, n_cut));
    doc->media = 0;
}
