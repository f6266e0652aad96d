/* SPDX-License-Identifier: Apache-2.0 */
/* inspect_map.c - figures of dcpkit inspect: which file and rank holds which box; how large values
 * are. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "lib/base/order.h"
#include "lib/base/text.h"
#include "tools/cmd.h"
#include "tools/inspect.h"

#define MAX_MAPS      16
#define MAX_BOXES     256 /* of a map */
#define MIN_DECADE    (-12)
#define N_DECADES     20 /* of histograms: 1e-12 to 1e8 */
#define ROW_HEIGHT    0.09
#define MIN_HEIGHT    0.12
#define LARGEST_RATIO 0.5

/* "__3_1.distcp" was written by rank 3; -1: the name does not show it. */
static int64_t rank_of_file(const char *name)
{
    int64_t rank = -1;

    if (dcpk_starts_with(name, "__")) {
        name += 2;
        rank = dcpk_take_number(&name);
    }
    return *name == '_' ? rank : -1;
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

static struct dcpk_doc_box make_box(const struct dcpk_checkpoint *ckpt, const struct dcpk_tensor *t,
                                    const struct axes *axes, const struct dcpk_chunk *c,
                                    struct dcpk_doc *doc)
{
    const char *file = dcpk_source_name(ckpt->files[c->place.file]);
    const int64_t rank = rank_of_file(file);
    const int64_t *extent = c->span + t->rank;
    const char *by = "";
    char size[DCPK_SIZE_TEXT_BYTES];
    struct dcpk_doc_box box = {.x = part_of(c->span[axes->x], t->shape[axes->x]),
                               .width = part_of(extent[axes->x], t->shape[axes->x]),
                               .height = 1,
                               .group = c->place.file,
                               .label = ""};

    if (axes->y >= 0) {
        box.y = part_of(c->span[axes->y], t->shape[axes->y]);
        box.height = part_of(extent[axes->y], t->shape[axes->y]);
    }
    if (rank >= 0) {
        box.group = (unsigned)rank;
        box.label = dcpk_doc_format(doc, "rank %" PRId64, rank);
        by = dcpk_doc_format(doc, "%s: ", box.label);
    }
    box.text = dcpk_doc_format(doc, "%s%s in %s, %s", by, span_text(doc, c, t->rank), file,
                               dcpk_cli_short_size(c->place.n_bytes, size));
    return box;
}

static void report_map(const struct dcpk_inspection *in, const struct dcpk_tensor *t, bool is_open,
                       struct dcpk_doc *doc)
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
            boxes[map.n++] = make_box(ckpt, t, &axes, &first[i], doc);
    for (size_t i = 0; i < map.n; i++)
        if (boxes[i].height > 0)
            least = fmin(least, boxes[i].height);
    map.height = fmax(MIN_HEIGHT, fmin(LARGEST_RATIO, ROW_HEIGHT / least));
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

void dcpk_inspect_report_maps(const struct dcpk_inspection *in, struct dcpk_doc *doc)
{
    const struct dcpk_tensor *largest[MAX_MAPS];
    size_t n;
    const size_t n_cut = find_largest(in, largest, &n);

    doc->media = DCPK_DOC_PAGE;
    if (n_cut > 0)
        dcpk_doc_heading(doc, "chunks of a tensor");
    for (size_t i = 0; i < n; i++)
        report_map(in, largest[i], i == 0, doc);
    if (n_cut > n)
        dcpk_doc_paragraph(
            doc, dcpk_doc_format(doc,
                                 "Drawn are the %zu largest tensors of several chunks, of %zu; "
                                 "--keys RE chooses others.",
                                 n, n_cut));
    doc->media = 0;
}

/* ---- histograms ---- */

static int decade_of(double v)
{
    const double decade = floor(log10(v));

    return (int)fmin(N_DECADES - 1, fmax(0, decade - MIN_DECADE));
}

static void report_histogram(struct dcpk_doc *doc, const char *title,
                             const uint64_t counts[N_DECADES], uint64_t n_zero)
{
    struct dcpk_doc_bar bars[N_DECADES + 1];
    int first = 0, last = N_DECADES - 1;
    size_t n = 0;

    while (first < last && counts[first] == 0)
        first++;
    while (last > first && counts[last] == 0)
        last--;
    if (n_zero > 0)
        bars[n++] = (struct dcpk_doc_bar){"0", n_zero};
    for (int i = first; i <= last; i++)
        bars[n++] = (struct dcpk_doc_bar){
            dcpk_doc_format(doc, "1e%d to 1e%d", i + MIN_DECADE, i + 1 + MIN_DECADE), counts[i]};
    dcpk_doc_bars(doc, title, bars, n);
}

void dcpk_inspect_report_histograms(const struct dcpk_inspection *in, struct dcpk_doc *doc)
{
    uint64_t by_rms[N_DECADES] = {0}, by_most[N_DECADES] = {0}, n_zero = 0;

    for (size_t t = 0; t < in->ckpt->n_tensors; t++) {
        const struct dcpk_stats *s = &in->stats[t];
        const double most = fmax(fabs(s->min), fabs(s->max));

        if (!dcpk_inspect_lists(in, t) || s->n_finite == 0)
            continue;
        if (most == 0) {
            n_zero++;
            continue;
        }
        by_most[decade_of(most)]++;
        by_rms[decade_of(dcpk_stats_norm(s) / sqrt((double)s->n_finite))]++;
    }
    report_histogram(doc, "tensors by the root mean square of their elements", by_rms, n_zero);
    report_histogram(doc, "tensors by their largest magnitude", by_most, n_zero);
}
