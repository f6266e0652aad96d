/* SPDX-License-Identifier: Apache-2.0 */
/* convert_page.c - a conversion on a page: source and target side by side. */
#include <inttypes.h>
#include <stdio.h>

#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/ckpt/content.h"
#include "lib/ckpt/generation.h"
#include "lib/model/named_state.h"
#include "tools/cmd.h"
#include "tools/convert_report.h"
#include "tools/holders.h"

/* A property of the source and of the target. */
struct side_row {
    const char *what, *source, *target;
};
struct sides {
    struct side_row rows[24];
    size_t n;
};

static void add_side(struct sides *sides, const char *what, const char *source, const char *target)
{
    sides->rows[sides->n++] = (struct side_row){what, source, target};
}

static void fill_sides(const void *context, struct dcpk_doc_rows *rows)
{
    const struct sides *sides = context;

    for (size_t i = 0; i < sides->n; i++) {
        const struct side_row *row = &sides->rows[i];

        DCPK_DOC_PUT(
            rows, {.title = "", .fact = dcpk_fact_text(row->what)},
            {.title = "source", .fact = dcpk_fact_text(row->source), .flags = DCPK_DOC_BREAKS},
            {.title = "target", .fact = dcpk_fact_text(row->target), .flags = DCPK_DOC_BREAKS});
    }
}

static const char *doc_count_text(struct dcpk_doc *doc, uint64_t n)
{
    return dcpk_doc_format(doc, "%" PRIu64, n);
}

/* A size of a mesh: 0 is not known. */
static const char *mesh_text(struct dcpk_doc *doc, int64_t n)
{
    return n > 0 ? dcpk_doc_format(doc, "%" PRId64, n) : "-";
}

/* Sizes that either side knows, by args. */
static void add_layouts(struct sides *sides, const struct dcpk_grid *from,
                        const struct dcpk_grid *to, struct dcpk_doc *doc)
{
    const struct {
        const char *name;
        int64_t from, to;
    } sizes[] = {
        {"tensor parallel", from->tp, to->tp},  {"pipeline parallel", from->pp, to->pp},
        {"expert parallel", from->ep, to->ep},  {"expert tensor parallel", from->etp, to->etp},
        {"context parallel", from->cp, to->cp}, {"data parallel", from->dp, to->dp},
        {"ranks", from->world, to->world}};

    for (size_t i = 0; i < DCPK_COUNT(sizes); i++)
        if (sizes[i].from > 0 || sizes[i].to > 0)
            add_side(sides, sizes[i].name, mesh_text(doc, sizes[i].from),
                     mesh_text(doc, sizes[i].to));
}

static uint64_t file_bytes(const struct dcpk_checkpoint *ckpt)
{
    uint64_t n_bytes = 0;

    for (size_t i = 0; i < ckpt->n_files; i++)
        n_bytes += dcpk_source_bytes(ckpt->files[i]);
    return n_bytes;
}

static void add_amounts(struct sides *sides, const struct dcpk_conversion *c, struct dcpk_doc *doc)
{
    const struct dcpk_checkpoint *ckpt = c->ckpt;
    const struct dcpk_plan_totals *t = &c->totals;
    char a[DCPK_SIZE_TEXT_BYTES], b[DCPK_SIZE_TEXT_BYTES];

    add_side(sides, "keys of tensors", doc_count_text(doc, ckpt->n_tensors),
             doc_count_text(doc, t->n_keys));
    add_side(sides, "chunks", doc_count_text(doc, ckpt->n_chunks),
             doc_count_text(doc, t->n_chunks));
    add_side(sides, "keys of objects", doc_count_text(doc, ckpt->n_objects),
             doc_count_text(doc, t->n_objects));
    add_side(sides, "files", doc_count_text(doc, ckpt->n_files), doc_count_text(doc, t->n_files));
    add_side(sides, "in files",
             dcpk_doc_format(doc, "%s", dcpk_cli_short_size(file_bytes(ckpt), a)),
             dcpk_doc_format(doc, "%s", dcpk_cli_short_size(t->file_bytes, b)));
}

/* Bytes of the target by part; bars[DCPK_N_CONTENTS]: objects. */
static void count_parts(const struct dcpk_output *out, struct dcpk_doc_bar *bars)
{
    for (int i = 0; i < DCPK_N_CONTENTS; i++)
        bars[i] = (struct dcpk_doc_bar){dcpk_content_name((enum dcpk_content)i), 0, 0};
    bars[DCPK_N_CONTENTS] = (struct dcpk_doc_bar){"objects", 0, 0};
    for (size_t i = 0; i < out->n_chunks; i++) {
        const struct dcpk_out_tensor *t = &out->tensors[out->chunks[i].tensor];

        bars[dcpk_content_of(t->keys[0])].count += out->chunks[i].data_bytes;
    }
    for (size_t i = 0; i < out->n_payloads; i++)
        bars[DCPK_N_CONTENTS].count += out->payloads[i].n_bytes;
}

/* The outcome of a run, in the colour of good news: it would have failed. */
static void report_convert_verdict(const struct dcpk_conversion *c, bool is_dry,
                                   struct dcpk_doc *doc)
{
    if (is_dry)
        return;
    doc->media = DCPK_DOC_PAGE;
    if (c->proof.arena != NULL)
        dcpk_doc_verdict(doc, true, "verified: equal to the input");
    else
        dcpk_doc_verdict(doc, true, "%s", c->is_complete ? "was complete" : "written");
    doc->media = 0;
}

static void report_convert_headline(const struct dcpk_conversion *c,
                                    const struct dcpk_convert_files *files, struct dcpk_doc *doc)
{
    const struct dcpk_plan_totals *t = &c->totals;
    struct dcpk_doc_bar bars[DCPK_N_CONTENTS + 1];
    struct dcpk_doc_headline headline = {.bar_title = "bytes of the target by part",
                                         .bars = bars,
                                         .n_bars = DCPK_N_CONTENTS + 1,
                                         .is_bytes = true};
    char size[DCPK_SIZE_TEXT_BYTES], count[DCPK_COUNT_TEXT_BYTES];

    count_parts(c->out, bars);
    headline.figures[0] = (struct dcpk_doc_figure){
        dcpk_doc_format(doc, "%s", dcpk_cli_short_size(t->file_bytes, size)),
        dcpk_doc_format(doc, "in %s", dcpk_cli_count(t->n_files, "file", count))};
    headline.figures[1] = (struct dcpk_doc_figure){
        doc_count_text(doc, t->n_tensors),
        dcpk_doc_format(doc, "tensors in %s", dcpk_cli_count(t->n_chunks, "chunk", count))};
    if (files->dry_run)
        headline.figures[2] = dcpk_grid_figure(&c->out->layout, doc);
    else
        headline.figures[2] =
            (struct dcpk_doc_figure){dcpk_doc_format(doc, "%.3g s", c->stats.seconds), "time"};
    dcpk_doc_headline(doc, &headline);
    report_convert_verdict(c, files->dry_run, doc);
}

static void each_planned(const void *context, dcpk_take_held *take, void *to)
{
    const struct dcpk_output *out = context;

    for (size_t i = 0; i < out->n_chunks; i++) {
        const struct dcpk_out_chunk *c = &out->chunks[i];
        const struct dcpk_out_tensor *t = &out->tensors[c->tensor];

        take(to, &(struct dcpk_held){t->keys[0], t->dtype, t->rank, t->shape, c->span,
                                     out->files[c->file].name});
    }
}

static void report_convert_bytes(const struct dcpk_conversion *c, struct dcpk_doc *doc)
{
    const struct dcpk_format_mapping *mapping = c->options->to->mapping;
    struct dcpk_holders holders = {.each = each_planned, .context = c->out};

    if (mapping != NULL && !mapping->has_flat_buffers)
        holders.grid = c->out->target.mesh;
    dcpk_report_holders(&holders, doc);
}

static void report_convert_sides(const struct dcpk_conversion *c, struct dcpk_doc *doc)
{
    const char *generation = dcpk_text_or(c->out->target.generation, "");
    char source_generation[DCPK_GENERATION_TEXT_BYTES];
    struct sides *sides = dcpk_doc_take(doc, 1, sizeof *sides);
    struct dcpk_run_state state = {0};

    if (sides == NULL)
        return;
    dcpk_run_state_load(c->ckpt, doc->arena, &state);
    dcpk_generation_text(c->ckpt, source_generation);
    add_side(sides, "folder", c->source.folder, c->target.folder);
    add_side(sides, "format",
             dcpk_doc_format(doc, "%s %s", c->ckpt->format->name, source_generation),
             dcpk_doc_format(doc, "%s %s", c->options->to->name, generation));
    add_layouts(sides, &state.layout, &c->out->layout, doc);
    add_amounts(sides, c, doc);
    dcpk_doc_show(doc, &(struct dcpk_doc_table){.fill = fill_sides, .context = sides});
}

void dcpk_convert_report_page(const struct dcpk_conversion *c,
                              const struct dcpk_convert_files *files, struct dcpk_doc *doc)
{
    report_convert_headline(c, files, doc);
    report_convert_bytes(c, doc);
    doc->media = DCPK_DOC_PAGE;
    dcpk_doc_heading(doc, "source and target");
    report_convert_sides(c, doc);
    dcpk_doc_heading(doc, files->dry_run ? "planned work" : "work done");
    doc->media = 0;
}

/* ---- keys ---- */

/* ---- tensors ---- */

/* "float32", "float32 from bfloat16". */
static const char *cast_text(const struct dcpk_out_tensor *t, const struct dcpk_tensor *source,
                             char room[64])
{
    if (source == NULL || source->dtype == t->dtype)
        return dcpk_dtype_name(t->dtype);
    snprintf(room, 64, "%s from %s", dcpk_dtype_name(t->dtype), dcpk_dtype_name(source->dtype));
    return room;
}

static void fill_out_tensors(const void *context, struct dcpk_doc_rows *rows)
{
    const struct dcpk_conversion *c = context;

    for (size_t i = 0; i < c->out->n_tensors; i++) {
        const struct dcpk_out_tensor *t = &c->out->tensors[i];
        const struct dcpk_tensor *source = dcpk_report_source(c, t);
        const bool is_cast = source != NULL && source->dtype != t->dtype;
        const char *source_key = NULL, *source_dtype = NULL;
        char room[64];

        if (source != NULL) {
            source_key = source->key;
            source_dtype = dcpk_dtype_name(source->dtype);
        }
        DCPK_DOC_PUT(
            rows,
            {"source", "source key", .fact = dcpk_fact_text(source_key), .flags = DCPK_DOC_BREAKS},
            dcpk_doc_member(is_cast, "source_dtype", dcpk_fact_text(source_dtype)),
            {"key", "output key", .fact = dcpk_fact_text(t->keys[0]), .flags = DCPK_DOC_BREAKS},
            {"dtype", .fact = dcpk_fact_text(dcpk_dtype_name(t->dtype))},
            {.title = "dtype", .fact = dcpk_fact_text(cast_text(t, source, room))},
            {.key = "shape",
             .title = "shape",
             .fact = dcpk_fact_ints(t->shape, t->rank),
             .flags = DCPK_DOC_RIGHT},
            {.title = "aliases", .fact = dcpk_fact_count(t->n_keys - 1), .flags = DCPK_DOC_RIGHT},
            DCPK_MEMBER("aliases", dcpk_fact_texts(t->keys + 1, t->n_keys - 1)));
    }
}

/* ---- objects ---- */

/*
 * Object keys in the order of their payloads: an index of out->objects each. NULL after a failure.
 */
static const size_t *sort_objects(const struct dcpk_output *out, struct dcpk_doc *doc)
{
    size_t *order = dcpk_doc_take(doc, out->n_objects, sizeof *order);
    size_t *first = dcpk_doc_take(doc, out->n_payloads + 1, sizeof *first);

    if (first == NULL || order == NULL)
        return NULL;
    for (size_t i = 0; i < out->n_objects; i++)
        first[out->objects[i].payload + 1]++;
    for (size_t i = 0; i < out->n_payloads; i++)
        first[i + 1] += first[i];
    for (size_t i = 0; i < out->n_objects; i++)
        order[first[out->objects[i].payload]++] = i;
    return order;
}

/* Objects of an output, order[0 .. n_objects) by payload. */
struct objects_of {
    const struct dcpk_output *out;
    const size_t *order;
};
/* One payload under its names: objects order[0 .. n). */
struct names_of {
    const struct dcpk_output *out;
    const size_t *order;
    size_t n;
};

static void put_out_object_name(const void *context, struct dcpk_json_out *j)
{
    struct dcpk_bytes name = {0};

    dcpk_out_object_name(context, &name);
    dcpk_json_put_text(j, (const char *)name.data, name.n_bytes);
    dcpk_bytes_release(&name);
}

static void fill_object_aliases(const void *context, struct dcpk_doc_rows *rows)
{
    const struct names_of *of = context;

    for (size_t i = 1; i < of->n; i++)
        DCPK_DOC_PUT(rows, DCPK_MEMBER(NULL, dcpk_fact_json(put_out_object_name,
                                                            &of->out->objects[of->order[i]])));
}

static void fill_out_objects(const void *context, struct dcpk_doc_rows *rows)
{
    const struct objects_of *all = context;
    const struct dcpk_out_object *objects = all->out->objects;
    const size_t *order = all->order;
    struct dcpk_bytes name = {0};

    for (size_t i = 0, n; i < all->out->n_objects; i += n) {
        const struct dcpk_out_object *first = &objects[order[i]];
        const struct dcpk_object *source = all->out->payloads[first->payload].source;
        struct names_of names = {all->out, order + i, 1};
        const struct dcpk_doc_table aliases = {
            .flags = DCPK_DOC_LIST, .fill = fill_object_aliases, .context = &names};

        for (n = 1; i + n < all->out->n_objects && objects[order[i + n]].payload == first->payload;
             n++)
            continue;
        names.n = n;
        name.n_bytes = 0;
        dcpk_out_object_name(first, &name);
        if (name.status != DCPK_OK)
            break;
        DCPK_DOC_PUT(
            rows,
            {.key = "source",
             "source key",
             .fact = dcpk_fact_text(source == NULL ? NULL : source->key),
             .flags = DCPK_DOC_BREAKS},
            DCPK_MEMBER("aliases", dcpk_fact_table(&aliases)),
            DCPK_MEMBER("key", dcpk_fact_json(put_out_object_name, first)),
            {.title = "output key",
             .fact = dcpk_fact_part((const char *)name.data, name.n_bytes),
             .flags = DCPK_DOC_BREAKS},
            {.title = "aliases", .fact = dcpk_fact_count(names.n - 1), .flags = DCPK_DOC_RIGHT});
    }
    dcpk_bytes_status(&name, rows->err);
    dcpk_bytes_release(&name);
}

void dcpk_convert_report_keys(const struct dcpk_conversion *c, struct dcpk_doc *doc)
{
    const struct objects_of objects = {c->out, sort_objects(c->out, doc)};
    const void *kept = dcpk_doc_keep(doc, &objects, sizeof objects);

    doc->media = DCPK_DOC_PAGE;
    dcpk_doc_heading(doc, "tensors that are written");
    dcpk_doc_table(doc, "tensors",
                   &(struct dcpk_doc_table){.fill = fill_out_tensors, .context = c});
    dcpk_doc_heading(doc, "objects that are written");
    dcpk_doc_table(doc, "objects",
                   &(struct dcpk_doc_table){.fill = fill_out_objects, .context = kept});
    doc->media = 0;
}
