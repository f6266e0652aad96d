/* SPDX-License-Identifier: Apache-2.0 */
/* convert_keys.c - every key of a conversion's output, with its source. */
#include "tools/convert_report.h"

#include <stdio.h>

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
            {.key = "source",
             .title = "source key",
             .fact = dcpk_fact_text(source_key),
             .flags = DCPK_DOC_BREAKS},
            dcpk_doc_member(is_cast, "source_dtype", dcpk_fact_text(source_dtype)),
            {.key = "key",
             .title = "output key",
             .fact = dcpk_fact_text(t->keys[0]),
             .flags = DCPK_DOC_BREAKS},
            {.key = "dtype", .fact = dcpk_fact_text(dcpk_dtype_name(t->dtype))},
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
             .title = "source key",
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
