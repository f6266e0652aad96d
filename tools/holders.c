/* SPDX-License-Identifier: Apache-2.0 */
/* holders.c - figures of a page: the bytes of tensors as a treemap, and by rank and layer. */
#include "tools/holders.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/ckpt/content.h"
#include "lib/exec/find_layout.h"
#include "tools/cmd.h"
#include "tools/layers.h"

#define MAX_RANKS  4096 /* of a stage, and stages: beyond, args are not believed */
#define MAX_GROUPS 24   /* of layers in a part of the treemap */

struct dcpk_doc_figure dcpk_grid_figure(const struct dcpk_grid *grid, struct dcpk_doc *doc)
{
    const struct {
        const char *name;
        int64_t n;
    } sizes[] = {
        {"TP", grid->tp}, {"PP", grid->pp}, {"EP", grid->ep}, {"CP", grid->cp}, {"DP", grid->dp}};
    const char *text = "", *before = "";
    char count[DCPK_COUNT_TEXT_BYTES];

    for (size_t i = 0; i < DCPK_COUNT(sizes); i++)
        if (sizes[i].n > 1) {
            text = dcpk_doc_format(doc, "%s%s%s %" PRId64, text, before, sizes[i].name, sizes[i].n);
            before = " \u00b7 ";
        }
    if (*text == '\0')
        return (struct dcpk_doc_figure){"1", "rank of a model"};
    if (grid->world <= 0)
        return (struct dcpk_doc_figure){text, "parallel layout"};
    return (struct dcpk_doc_figure){
        text, dcpk_doc_format(doc, "%s", dcpk_cli_count((uint64_t)grid->world, "rank", count))};
}

/* ---- holdings of ranks ---- */

struct leaf {
    enum dcpk_content content;
    int64_t group; /* of layers; -1: outside */
    const char *module;
    double n_bytes;
};

struct work {
    struct dcpk_doc *doc;
    const struct dcpk_holders *of;
    int64_t n_layers, n_ranks; /* ranks: by files */
    bool has_buckets;
    /* the treemap */
    struct dcpk_map by_name;
    struct dcpk_bytes name, module; /* of the one at hand */
    struct leaf *leaves;
    size_t n_leaves, capacity;
    int64_t per_group;
    /* rank by layer */
    struct dcpk_layer_grid rows;
    struct dcpk_replica replica;
    int64_t per_row;
};

/* The layers of a chunk: [first, end); -1 and 0: it is outside of layers. */
static void layers_of(const struct dcpk_held *held, const struct dcpk_key_place *place,
                      int64_t *first, int64_t *end)
{
    *first = place->layer;
    *end = place->layer + 1;
    if (place->is_stacked) {
        *first = held->span[0];
        *end = held->span[0] + held->span[held->rank];
    }
}

static double bytes_of(const struct dcpk_held *held)
{
    double n = (double)dcpk_dtype_bytes(held->dtype);

    for (int a = 0; a < held->rank; a++)
        n *= (double)held->span[held->rank + a];
    return n;
}

static void take_extent(void *to, const struct dcpk_held *held)
{
    struct work *w = to;
    const struct dcpk_key_place place = dcpk_key_place_of(held->key, held->rank, held->shape);
    int64_t first, end;

    layers_of(held, &place, &first, &end);
    w->n_layers = dcpk_max_i64(w->n_layers, dcpk_min_i64(end, INT32_MAX));
    w->has_buckets |= !dcpk_replica_knows(held);
    w->n_ranks = dcpk_max_i64(w->n_ranks, dcpk_rank_of_file(held->file) + 1);
}

/* ---- the treemap ---- */

/* Adds bytes to the leaf of that place. module: copied where it is new. */
static void add_leaf(struct work *w, const struct leaf *part)
{
    const char *name;
    uint64_t found;
    bool existed;

    w->name.n_bytes = 0;
    dcpk_bytes_printf(&w->name, "%d %" PRId64 " %s", (int)part->content, part->group, part->module);
    dcpk_bytes_u8(&w->name, 0);
    if (dcpk_bytes_status(&w->name, &w->doc->err) != DCPK_OK)
        return;
    if (dcpk_map_get(&w->by_name, (const char *)w->name.data, w->name.n_bytes, &found)) {
        w->leaves[found].n_bytes += part->n_bytes;
        return;
    }
    name = dcpk_doc_keep(w->doc, w->name.data, w->name.n_bytes);
    if (name == NULL ||
        dcpk_grow(&w->leaves, &w->capacity, w->n_leaves, sizeof *w->leaves, &w->doc->err) ||
        dcpk_map_put(&w->by_name, name, w->name.n_bytes, w->n_leaves, &existed, &found,
                     &w->doc->err) != DCPK_OK)
        return;
    w->leaves[w->n_leaves] = *part;
    w->leaves[w->n_leaves++].module = name + w->name.n_bytes - 1 - strlen(part->module);
}

static void take_leaf_part(void *to, const struct dcpk_held *held)
{
    struct work *w = to;
    const struct dcpk_key_place place = dcpk_key_place_of(held->key, held->rank, held->shape);
    struct leaf leaf = {dcpk_content_of(held->key), -1, dcpk_key_module(&place, &w->module), 0};
    int64_t first, end;

    layers_of(held, &place, &first, &end);
    leaf.n_bytes = bytes_of(held) / (double)dcpk_max_i64(end - first, 1);
    for (int64_t l = first; l < end && w->doc->err.status == DCPK_OK; l++) {
        if (l >= 0)
            leaf.group = l / w->per_group;
        add_leaf(w, &leaf);
    }
}

static int compare_leaves(const void *left, const void *right)
{
    const struct leaf *a = left, *b = right;
    const int order = DCPK_ORDER_BY_2(a, b, content, group);

    return order != 0 ? order : strcmp(a->module, b->module);
}

static const char *group_name(struct work *w, int64_t group)
{
    if (group < 0)
        return "outside of layers";
    if (w->per_group == 1)
        return dcpk_doc_format(w->doc, "layer %" PRId64, group);
    return dcpk_doc_format(w->doc, "layers %" PRId64 " to %" PRId64, group * w->per_group,
                           dcpk_min_i64((group + 1) * w->per_group, w->n_layers) - 1);
}

static void report_treemap(struct work *w)
{
    struct dcpk_doc_leaf *leaves;

    w->per_group = dcpk_max_i64((w->n_layers + MAX_GROUPS - 1) / MAX_GROUPS, 1);
    w->of->each(w->of->context, take_leaf_part, w);
    dcpk_map_release(&w->by_name);
    dcpk_bytes_status(&w->module, &w->doc->err);
    dcpk_bytes_release(&w->module);
    dcpk_bytes_release(&w->name);
    leaves = dcpk_doc_take(w->doc, w->n_leaves, sizeof *leaves);
    if (leaves == NULL || w->n_leaves == 0)
        goto out;
    qsort(w->leaves, w->n_leaves, sizeof *w->leaves, compare_leaves);
    for (size_t i = 0; i < w->n_leaves; i++)
        leaves[i] = (struct dcpk_doc_leaf){{dcpk_content_name(w->leaves[i].content),
                                            group_name(w, w->leaves[i].group), w->leaves[i].module},
                                           (uint64_t)w->leaves[i].n_bytes,
                                           w->leaves[i].content};
    dcpk_doc_treemap(
        w->doc, &(struct dcpk_doc_treemap){"bytes by part, layer and tensor", leaves, w->n_leaves});
out:
    dcpk_free(w->leaves);
}

/* ---- by rank and layer ---- */

/* Ranks [first, end) along an axis of `size` ranks, of those that hold elements [at, at + n) of
 * `whole`. */
struct ranks {
    int64_t first, end;
};
static struct ranks ranks_of(int64_t at, int64_t n, int64_t whole, int64_t size)
{
    if (whole <= 0 || n >= whole)
        return (struct ranks){0, size};
    return (struct ranks){
        (int64_t)((double)at * (double)size / (double)whole),
        dcpk_min_i64((int64_t)(((double)at + (double)n) * (double)size / (double)whole + 0.999),
                     size)};
}

void dcpk_replica_init(struct dcpk_replica *replica, const struct dcpk_grid *grid, int64_t n_layers)
{
    struct dcpk_error err = DCPK_ERROR_INIT;

    *replica = (struct dcpk_replica){.grid = dcpk_grid_full(grid), .n_layers = n_layers};
    if (grid->tp > 0 && replica->grid.tp <= MAX_RANKS && replica->grid.ep <= MAX_RANKS &&
        replica->grid.etp == replica->grid.tp && replica->grid.pp <= MAX_RANKS &&
        replica->grid.tp * replica->grid.ep <= MAX_RANKS &&
        dcpk_grid_check_stages(&replica->grid, n_layers, 0, &err) == DCPK_OK)
        replica->n = replica->grid.tp * replica->grid.pp * replica->grid.ep;
}

/* The same of a tensor's rows or columns. Gate and up of a SwiGLU's fc1 are cut each: 2 parts a
 * rank, one in each half (lib/model/parts.h). */
static struct ranks tp_ranks_of(const char *key, int64_t at, int64_t n, int64_t whole, int64_t tp)
{
    if (strstr(key, "linear_fc1") != NULL && n > 0 && whole / n == 2 * tp && whole % n == 0)
        return (struct ranks){at / n % tp, at / n % tp + 1};
    return ranks_of(at, n, whole, tp);
}

bool dcpk_replica_knows(const struct dcpk_held *held)
{
    return strstr(held->key, ".bucket_idx_") == NULL;
}

/* Ranks of a replica along each of its axes. */
struct cut {
    int64_t pp;
    struct ranks ep, tp;
};

/* The ranks that hold a layer of a chunk; layer -1: of what is outside of layers, the embedding is
 * on the first stage and all else on the last. */
static struct cut cut_of(const struct dcpk_replica *replica, const struct dcpk_held *held,
                         const struct dcpk_key_place *place, int64_t layer)
{
    const struct dcpk_grid *g = &replica->grid;
    const bool is_expert = strstr(held->key, ".experts.experts.") != NULL;
    const int expert_axis = is_expert ? place->is_stacked : -1;
    struct cut cut = {0, {0, g->ep}, {0, g->tp}};

    if (layer >= 0)
        cut.pp = dcpk_grid_stage(g, replica->n_layers, layer);
    else if (strstr(held->key, "embedding") == NULL)
        cut.pp = g->pp - 1;
    for (int a = place->is_stacked; a < held->rank; a++) {
        const int64_t at = held->span[a], n = held->span[held->rank + a], whole = held->shape[a];

        if (a == expert_axis)
            cut.ep = ranks_of(at, n, whole, g->ep);
        else if (n < whole)
            cut.tp = tp_ranks_of(held->key, at, n, whole, g->tp);
    }
    return cut;
}

static int64_t number_of(const struct dcpk_grid *g, int64_t pp, int64_t ep, int64_t tp)
{
    return (pp * g->ep + ep) * g->tp + tp;
}

int64_t dcpk_replica_first(const struct dcpk_replica *replica, const struct dcpk_held *held)
{
    const struct dcpk_key_place place = dcpk_key_place_of(held->key, held->rank, held->shape);
    struct cut cut;
    int64_t first, end;

    layers_of(held, &place, &first, &end);
    cut = cut_of(replica, held, &place, first);
    return number_of(&replica->grid, cut.pp, cut.ep.first, cut.tp.first);
}

const char *dcpk_replica_name(const struct dcpk_replica *replica, int64_t rank,
                              struct dcpk_doc *doc)
{
    const struct dcpk_grid *g = &replica->grid;
    const char *ep = "";

    if (g->ep > 1)
        ep = dcpk_doc_format(doc, " ep %" PRId64, rank / g->tp % g->ep);
    return dcpk_doc_format(doc, "pp %" PRId64 "%s tp %" PRId64, rank / g->tp / g->ep, ep,
                           rank % g->tp);
}

static void hold(struct work *w, int64_t holder, int64_t layer, double n_bytes)
{
    struct dcpk_layer_sum *sum = dcpk_layer_grid_at(&w->rows, (size_t)(holder / w->per_row), layer);

    sum->value += n_bytes;
    sum->is_there = true;
}

/* Gives a layer's part of a chunk to the ranks of a replica that hold it. */
static void hold_by_cut(struct work *w, const struct cut *cut, int64_t layer, double n_bytes)
{
    for (int64_t e = cut->ep.first; e < cut->ep.end; e++)
        for (int64_t t = cut->tp.first; t < cut->tp.end; t++)
            hold(w, number_of(&w->replica.grid, cut->pp, e, t), layer, n_bytes);
}

static void take_held_part(void *to, const struct dcpk_held *held)
{
    struct work *w = to;
    const struct dcpk_key_place place = dcpk_key_place_of(held->key, held->rank, held->shape);
    const int64_t rank = dcpk_rank_of_file(held->file);
    int64_t first, end;
    double n_bytes;

    layers_of(held, &place, &first, &end);
    n_bytes = bytes_of(held) / (double)dcpk_max_i64(end - first, 1);
    for (int64_t l = first; l < end; l++) {
        if (w->n_ranks <= 1) {
            const struct cut cut = cut_of(&w->replica, held, &place, l);

            hold_by_cut(w, &cut, l, n_bytes);
        } else if (rank >= 0) {
            hold(w, rank, l, n_bytes);
        }
    }
}

static const char *holder_name(const struct work *w, int64_t holder)
{
    if (w->n_ranks > 1)
        return dcpk_doc_format(w->doc, "rank %" PRId64, holder);
    return dcpk_replica_name(&w->replica, holder, w->doc);
}

static void report_rank_rows(struct work *w)
{
    const char *title = "bytes by rank and layer";
    int64_t n_holders = w->n_ranks;

    dcpk_replica_init(&w->replica, &w->of->grid, w->n_layers);
    if (w->n_ranks <= 1)
        n_holders = w->has_buckets ? 0 : w->replica.n;
    if (n_holders <= 1 || !dcpk_layer_grid_begin(&w->rows, w->n_layers, w->doc))
        return;
    w->per_row = (n_holders + DCPK_MAX_GRID_ROWS - 1) / DCPK_MAX_GRID_ROWS;
    for (int64_t i = 0; i < n_holders; i += w->per_row)
        dcpk_layer_grid_row(&w->rows, holder_name(w, i));
    w->of->each(w->of->context, take_held_part, w);
    if (w->n_ranks <= 1)
        title = "bytes by rank of one data-parallel replica, and layer";
    if (w->per_row > 1)
        title = dcpk_doc_format(w->doc, "%s; a row is %" PRId64 " ranks", title, w->per_row);
    dcpk_layer_grid_show(&w->rows, title, "layer", DCPK_LAYER_BYTES, w->doc);
}

void dcpk_report_holders(const struct dcpk_holders *holders, struct dcpk_doc *doc)
{
    struct work w = {.doc = doc, .of = holders};
    const unsigned media = doc->media;

    holders->each(holders->context, take_extent, &w);
    doc->media = DCPK_DOC_PAGE;
    dcpk_doc_heading(doc, "where the bytes are");
    report_treemap(&w);
    report_rank_rows(&w);
    doc->media = media;
}
