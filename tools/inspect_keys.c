/* SPDX-License-Identifier: Apache-2.0 */
/* inspect_keys.c - dcpkit inspect: keys folded for persons, every key for programs. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/order.h"
#include "lib/report/key_tree.h"
#include "tools/cmd.h"
#include "tools/inspect.h"

#define NAME_BYTES 512 /* of a name in a tree, the rest is cut off */

/* ---- folded ---- */

static void put_folded(struct dcpk_doc_rows *rows, const struct dcpk_summary_row *row)
{
    const bool is_tensor = row->dtype != DCPK_DTYPE_NONE;
    char size[DCPK_SIZE_TEXT_BYTES], count[32], keys[32], size_or_alias[DCPK_SIZE_TEXT_BYTES + 8];

    snprintf(count, sizeof count, "x%" PRIu64, row->n_keys);
    snprintf(keys, sizeof keys, "%" PRIu64 " keys", row->n_keys);
    snprintf(size_or_alias, sizeof size_or_alias, "%s%s", dcpk_cli_short_size(row->n_bytes, size),
             row->is_alias ? "  alias" : "");
    DCPK_DOC_PUT(rows,
                 {.title = "key",
                  .fact = dcpk_fact_text(row->pattern),
                  .flags = DCPK_DOC_BREAKS | DCPK_DOC_MEASURED},
                 DCPK_DOC_SHOWN(is_tensor, .title = "dtype",
                                .fact = dcpk_fact_text(dcpk_dtype_name(row->dtype)),
                                .flags = DCPK_DOC_MEASURED),
                 DCPK_DOC_SHOWN(is_tensor, .title = "shape",
                                .fact = dcpk_fact_ints(row->shape, row->rank),
                                .flags = DCPK_DOC_MEASURED, .gap = 1),
                 {.title = "keys",
                  .fact = dcpk_fact_text(count),
                  .flags = DCPK_DOC_MEASURED | DCPK_DOC_NOT_PAGE},
                 DCPK_DOC_SHOWN(row->n_keys > 1, .title = "keys", .fact = dcpk_fact_text(keys),
                                .flags = DCPK_DOC_NOT_TEXT),
                 {.title = "size",
                  .fact = dcpk_fact_text(size_or_alias),
                  .flags = DCPK_DOC_MEASURED | DCPK_DOC_NOT_PAGE,
                  .gap = 1},
                 DCPK_DOC_SHOWN(row->is_alias, .title = "alias", .fact = dcpk_fact_text("alias"),
                                .flags = DCPK_DOC_NOT_TEXT),
                 {.title = "size",
                  .fact = dcpk_fact_bytes(row->n_bytes),
                  .flags = DCPK_DOC_NOT_TEXT | DCPK_DOC_RIGHT});
}

/* Rows of tensors. */
struct folded {
    const struct dcpk_summary_row *rows;
    size_t n;
};

static void fill_folded_tensors(const void *context, struct dcpk_doc_rows *rows)
{
    const struct folded *folded = context;

    for (size_t i = 0; i < folded->n; i++)
        put_folded(rows, &folded->rows[i]);
}

static int compare_sizes(const void *left, const void *right)
{
    const struct dcpk_summary_row *a = left, *b = right;

    if (a->n_bytes != b->n_bytes)
        return DCPK_THREE_WAY(b->n_bytes, a->n_bytes);
    return strcmp(a->pattern, b->pattern);
}

static void fill_folded_objects(const void *context, struct dcpk_doc_rows *rows)
{
    const struct dcpk_summary *summary = context;

    for (size_t i = 0; i < summary->n_objects; i++)
        put_folded(rows, &summary->objects[i]);
}

static void show_folded(const struct folded *folded, unsigned flags, const char *heading,
                        struct dcpk_doc *doc)
{
    struct folded *kept = dcpk_doc_take(doc, 1, sizeof *kept);

    if (kept == NULL || folded->n == 0)
        return;
    *kept = *folded;
    dcpk_doc_heading(doc, heading);
    dcpk_doc_show(doc,
                  &(struct dcpk_doc_table){
                      .flags = flags, .indent = 2, .fill = fill_folded_tensors, .context = kept});
}

/* For people at a terminal; a page has the tree of all. */
static void report_largest(const struct dcpk_inspection *in, struct dcpk_doc *doc)
{
    const size_t n = in->summary->n_tensors, n_shown = dcpk_min_size(n, (size_t)in->n_largest);
    struct dcpk_summary_row *rows = dcpk_doc_take(doc, n, sizeof *rows);

    if (rows == NULL || n == 0)
        return;
    memcpy(rows, in->summary->tensors, n * sizeof *rows);
    qsort(rows, n, sizeof *rows, compare_sizes);
    show_folded(&(struct folded){rows, n_shown}, 0, "tensors, by size", doc);
    if (n_shown < n)
        dcpk_doc_line(doc, "  and %zu rows of smaller tensors", n - n_shown);
}

/* ---- as a tree, for people at a terminal ---- */

struct key_tree {
    const struct dcpk_summary *summary;
    const char **paths;         /* of the summary's tensors */
    struct dcpk_doc_rows *rows; /* that take it */
};

static void put_tree_row(void *context, const struct dcpk_tree_node *node)
{
    const struct key_tree *tree = context;
    const struct dcpk_summary_row *row = &tree->summary->tensors[node->first];
    char size[DCPK_SIZE_TEXT_BYTES], name[NAME_BYTES];
    uint64_t n_bytes = 0;

    for (size_t i = node->first; i < node->last; i++)
        n_bytes += tree->summary->tensors[i].n_bytes;
    snprintf(name, sizeof name, "%*s%.*s", 2 * node->level, "", (int)(node->end - node->at),
             row->pattern + node->at);
    DCPK_DOC_PUT(tree->rows,
                 {.title = "key",
                  .fact = dcpk_fact_text(name),
                  .flags = DCPK_DOC_BREAKS | DCPK_DOC_MEASURED},
                 {.title = "size",
                  .fact = dcpk_fact_text(dcpk_cli_short_size(n_bytes, size)),
                  .flags = DCPK_DOC_MEASURED | DCPK_DOC_RIGHT},
                 DCPK_DOC_SHOWN(node->is_leaf, .title = "dtype",
                                .fact = dcpk_fact_text(dcpk_dtype_name(row->dtype)),
                                .flags = DCPK_DOC_MEASURED),
                 DCPK_DOC_SHOWN(node->is_leaf, .title = "shape",
                                .fact = dcpk_fact_ints(row->shape, row->rank), .gap = 1));
}

static void fill_key_tree(const void *context, struct dcpk_doc_rows *rows)
{
    struct key_tree tree = *(const struct key_tree *)context;

    tree.rows = rows;
    dcpk_tree_walk(
        &(struct dcpk_tree){.paths = tree.paths, .enter = put_tree_row, .context = &tree},
        tree.summary->n_tensors);
}

static void report_key_tree(const struct dcpk_inspection *in, struct dcpk_doc *doc)
{
    const size_t n = in->summary->n_tensors;
    struct key_tree *tree = dcpk_doc_take(doc, 1, sizeof *tree);
    const char **paths = dcpk_doc_take(doc, n, sizeof *paths);

    if (paths == NULL)
        return;
    for (size_t i = 0; i < n; i++)
        paths[i] = in->summary->tensors[i].pattern;
    *tree = (struct key_tree){in->summary, paths, NULL};
    dcpk_doc_heading(doc, "tensors, as a tree");
    dcpk_doc_show(doc,
                  &(struct dcpk_doc_table){.indent = 2, .fill = fill_key_tree, .context = tree});
}

static void report_folded(const struct dcpk_inspection *in, struct dcpk_doc *doc)
{
    if (in->n_largest > 0 || in->is_tree) {
        doc->media = DCPK_DOC_TEXT;
        if (in->is_tree)
            report_key_tree(in, doc);
        else
            report_largest(in, doc);
        doc->media = DCPK_DOC_PAGE;
    }
    show_folded(&(struct folded){in->summary->tensors, in->summary->n_tensors}, DCPK_DOC_TREE,
                "tensors", doc);
    doc->media = 0;
    if (in->summary->n_objects > 0)
        dcpk_doc_heading(doc, "objects");
    dcpk_doc_show(doc, &(struct dcpk_doc_table){.flags = DCPK_DOC_TREE,
                                                .indent = 2,
                                                .fill = fill_folded_objects,
                                                .context = in->summary});
}

/* ---- every key ---- */

/* A tensor or an object, to be sorted. */
struct keyed {
    const char *key;
    const void *of;
};

struct keyed_list {
    const struct dcpk_inspection *in;
    struct keyed *list;
    size_t n;
};

static int compare_keyed(const void *left, const void *right)
{
    const struct keyed *a = left, *b = right;

    return strcmp(a->key, b->key);
}

static void put_chunk(struct dcpk_doc_rows *rows, const struct dcpk_checkpoint *ckpt,
                      const struct dcpk_tensor *tensor, const struct dcpk_chunk *c)
{
    const char *file = dcpk_source_name(ckpt->files[c->place.file]);

    DCPK_DOC_PUT(
        rows, {.title = "key", .fact = dcpk_fact_text(tensor->key)},
        {"offsets", "offsets", .fact = dcpk_fact_ints(c->span, tensor->rank)},
        {"extents", "extents", .fact = dcpk_fact_ints(c->span + tensor->rank, tensor->rank)},
        {"file", "file", .fact = dcpk_fact_text(file)},
        {"offset_bytes", "offset in bytes", .fact = dcpk_fact_count(c->place.offset_bytes),
         .flags = DCPK_DOC_RIGHT},
        {"n_bytes", "length in bytes", .fact = dcpk_fact_count(c->place.n_bytes),
         .flags = DCPK_DOC_RIGHT});
}

/* Chunks of one tensor, for programs. */
struct chunks_of {
    const struct dcpk_checkpoint *ckpt;
    const struct dcpk_tensor *tensor;
};

static void fill_chunks(const void *context, struct dcpk_doc_rows *rows)
{
    const struct chunks_of *of = context;

    for (size_t i = 0; i < of->tensor->n_chunks; i++)
        put_chunk(rows, of->ckpt, of->tensor, &of->ckpt->chunks[of->tensor->first_chunk + i]);
}

/* Fills in the chunks of all tensors, for people. */
static void fill_all_chunks(const void *context, struct dcpk_doc_rows *rows)
{
    const struct dcpk_inspection *in = context;

    for (size_t t = 0; t < in->ckpt->n_tensors; t++)
        if (dcpk_inspect_lists(in, t))
            fill_chunks(&(struct chunks_of){in->ckpt, &in->ckpt->tensors[t]}, rows);
}

/* Without a finite element there is no number. */
static struct dcpk_fact number_fact(const struct dcpk_stats *s, double v)
{
    return dcpk_fact_if(s->n_finite > 0, dcpk_fact_number(v));
}

static void put_tensor_row(struct dcpk_doc_rows *rows, const struct dcpk_inspection *in,
                           const struct dcpk_tensor *t, uint64_t n_bytes)
{
    static const struct dcpk_stats none;
    const struct dcpk_stats *s = in->stats == NULL ? &none : &in->stats[t - in->ckpt->tensors];
    const struct chunks_of of = {in->ckpt, t};
    const struct dcpk_doc_table chunks = {.fill = fill_chunks, .context = &of};
    const bool has = s->has_numbers;

    DCPK_DOC_PUT(rows, DCPK_MEMBER(NULL, dcpk_fact_text(t->key)),
                 dcpk_doc_member(in->has_chunks, "chunks", dcpk_fact_table(&chunks)),
                 DCPK_MEMBER("dtype", dcpk_fact_text(dcpk_dtype_name(t->dtype))),
                 /* flattened by Megatron 0.8 to 0.15 */
                 dcpk_doc_member(t->model_shape != NULL, "model_shape",
                                 dcpk_fact_ints(t->model_shape, t->model_rank)),
                 DCPK_MEMBER("n_bytes", dcpk_fact_bytes(n_bytes)),
                 DCPK_MEMBER("n_chunks", dcpk_fact_count(t->n_chunks)),
                 DCPK_MEMBER("shape", dcpk_fact_ints(t->shape, t->rank)),
                 dcpk_doc_member(in->stats != NULL && !has, "stats", dcpk_fact_null()),
                 dcpk_doc_member(has, "stats.max", number_fact(s, s->max)),
                 dcpk_doc_member(has, "stats.mean", number_fact(s, dcpk_stats_mean(s))),
                 dcpk_doc_member(has, "stats.min", number_fact(s, s->min)),
                 dcpk_doc_member(has, "stats.n_elems", dcpk_fact_count(s->n_elems)),
                 dcpk_doc_member(has, "stats.n_inf", dcpk_fact_count(s->n_inf)),
                 dcpk_doc_member(has, "stats.n_nan", dcpk_fact_count(s->n_nan)),
                 dcpk_doc_member(has, "stats.n_zero", dcpk_fact_count(s->n_zero)),
                 dcpk_doc_member(has, "stats.norm", number_fact(s, dcpk_stats_norm(s))));
}

static void fill_tensors(const void *context, struct dcpk_doc_rows *rows)
{
    const struct keyed_list *all = context;

    for (size_t i = 0; i < all->n; i++) {
        const struct dcpk_tensor *t = all->list[i].of;
        int64_t n_elems;

        if (dcpk_shape_count(t->shape, t->rank, &n_elems, rows->err) != DCPK_OK)
            return;
        put_tensor_row(rows, all->in, t, (uint64_t)n_elems * dcpk_dtype_bytes(t->dtype));
    }
}

static void fill_objects(const void *context, struct dcpk_doc_rows *rows)
{
    const struct keyed_list *all = context;

    for (size_t i = 0; i < all->n; i++) {
        const struct dcpk_object *o = all->list[i].of;
        const char *file = dcpk_source_name(all->in->ckpt->files[o->place.file]);

        DCPK_DOC_PUT(rows, DCPK_MEMBER(NULL, dcpk_fact_text(o->key)),
                     DCPK_MEMBER("file", dcpk_fact_text(file)),
                     DCPK_MEMBER("n_bytes", dcpk_fact_bytes(o->place.n_bytes)),
                     DCPK_MEMBER("offset_bytes", dcpk_fact_count(o->place.offset_bytes)));
    }
}

/* Room for n keys, in the document; NULL after a failure. */
static struct keyed_list *new_keyed_list(const struct dcpk_inspection *in, size_t n,
                                         struct dcpk_doc *doc)
{
    struct keyed_list *all = dcpk_doc_take(doc, 1, sizeof *all);
    struct keyed *list = dcpk_doc_take(doc, n, sizeof *list);

    if (list == NULL)
        return NULL;
    *all = (struct keyed_list){in, list, 0};
    return all;
}

static void report_every_key(const struct dcpk_inspection *in, struct dcpk_doc *doc)
{
    const struct dcpk_checkpoint *ckpt = in->ckpt;
    struct keyed_list *tensors = new_keyed_list(in, ckpt->n_tensors, doc);
    struct keyed_list *objects = new_keyed_list(in, ckpt->n_objects, doc);

    if (tensors == NULL || objects == NULL)
        return;
    for (size_t i = 0; i < ckpt->n_tensors; i++)
        if (dcpk_inspect_lists(in, i))
            tensors->list[tensors->n++] = (struct keyed){ckpt->tensors[i].key, &ckpt->tensors[i]};
    for (size_t i = 0; i < ckpt->n_objects; i++)
        if (in->chosen == NULL || in->chosen->objects[i])
            objects->list[objects->n++] = (struct keyed){ckpt->objects[i].key, &ckpt->objects[i]};
    qsort(tensors->list, tensors->n, sizeof *tensors->list, compare_keyed);
    qsort(objects->list, objects->n, sizeof *objects->list, compare_keyed);
    dcpk_doc_set_table(doc, "tensors",
                       &(struct dcpk_doc_table){
                           .flags = DCPK_DOC_KEYED, .fill = fill_tensors, .context = tensors});
    dcpk_doc_set_table(doc, "objects",
                       &(struct dcpk_doc_table){
                           .flags = DCPK_DOC_KEYED, .fill = fill_objects, .context = objects});
}

void dcpk_inspect_report_keys(const struct dcpk_inspection *in, struct dcpk_doc *doc)
{
    report_folded(in, doc);
    report_every_key(in, doc);
    if (!in->has_chunks)
        return;
    dcpk_doc_heading(doc, "chunks (key, offsets, extents, file, offset in bytes, length in bytes)");
    dcpk_doc_show(doc, &(struct dcpk_doc_table){
                           .flags = DCPK_DOC_TABS, .fill = fill_all_chunks, .context = in});
}
