/* SPDX-License-Identifier: Apache-2.0 */
/* doc_json.c - a document for programs: its members in the order of their keys. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/report/doc_priv.h"

struct json_rows {
    struct dcpk_doc_rows rows; /* first */
    struct dcpk_json_out *j;
    unsigned flags;
};

static void json_put_fact(const struct dcpk_fact *fact, struct dcpk_json_out *j,
                          struct dcpk_error *err);

static int compare_cells(const void *left, const void *right)
{
    const struct dcpk_doc_cell *const *a = left, *const *b = right;

    return strcmp((*a)->key, (*b)->key);
}

/* The number of members of sorted[0 .. n), n > 0, that begin with the first one's key up to its
 * dot. */
static size_t count_group(const struct dcpk_doc_cell *const *sorted, size_t n, size_t n_group)
{
    size_t i = 1;

    while (i < n && strncmp(sorted[i]->key, sorted[0]->key, n_group + 1) == 0)
        i++;
    return i;
}

/* A dot ends the name of an object around: "counts.n_cast". It sorts before what names have. */
static void json_put_sorted(const struct dcpk_doc_cell *const *sorted, size_t n, size_t n_around,
                            struct dcpk_json_out *j, struct dcpk_error *err)
{
    dcpk_json_begin_object(j);
    for (size_t i = 0, n_group = 1; i < n; i += n_group, n_group = 1) {
        const char *key = sorted[i]->key + n_around, *dot = strchr(key, '.');

        if (dot != NULL) {
            const size_t n_name = (size_t)(dot - key);

            n_group = count_group(sorted + i, n - i, n_around + n_name);
            dcpk_json_put_key_text(j, key, n_name);
            json_put_sorted(sorted + i, n_group, n_around + n_name + 1, j, err);
            continue;
        }
        assert(i + 1 == n || strcmp(sorted[i]->key, sorted[i + 1]->key) != 0);
        if (sorted[i]->fact.kind == DCPK_FACT_ABSENT)
            continue;
        if (sorted[i]->fact.kind != DCPK_FACT_MEMBER)
            dcpk_json_put_key(j, key);
        json_put_fact(&sorted[i]->fact, j, err);
    }
    dcpk_json_end_object(j);
}

/* Members of cells[0 .. n) that have a key; sorted is room for n. */
static void json_put_members(const struct dcpk_doc_cell *cells, size_t n,
                             const struct dcpk_doc_cell **sorted, struct dcpk_json_out *j,
                             struct dcpk_error *err)
{
    size_t n_sorted = 0;

    for (size_t i = 0; i < n; i++)
        if (cells[i].key != NULL)
            sorted[n_sorted++] = &cells[i];
    qsort(sorted, n_sorted, sizeof *sorted, compare_cells);
    json_put_sorted(sorted, n_sorted, 0, j, err);
}

static void json_take_row(struct dcpk_doc_rows *rows, const struct dcpk_doc_cell *cells, size_t n)
{
    struct json_rows *r = (struct json_rows *)rows;
    const struct dcpk_doc_cell *sorted[DCPK_DOC_MAX_CELLS];
    const size_t is_keyed = (r->flags & DCPK_DOC_KEYED) != 0;

    assert(n > 0 && n <= DCPK_DOC_MAX_CELLS);
    if (is_keyed)
        dcpk_json_put_key_text(r->j, cells[0].fact.as.text, cells[0].fact.n);
    if ((r->flags & DCPK_DOC_LIST) != 0)
        json_put_fact(&cells[is_keyed].fact, r->j, rows->err);
    else
        json_put_members(cells + is_keyed, n - is_keyed, sorted, r->j, rows->err);
}

static void json_put_table(const struct dcpk_doc_table *table, struct dcpk_json_out *j,
                           struct dcpk_error *err)
{
    struct json_rows r = {{json_take_row, err}, j, table->flags};

    if ((table->flags & DCPK_DOC_KEYED) != 0)
        dcpk_json_begin_object(j);
    else
        dcpk_json_begin_array(j);
    table->fill(table->context, &r.rows);
    if ((table->flags & DCPK_DOC_KEYED) != 0)
        dcpk_json_end_object(j);
    else
        dcpk_json_end_array(j);
}

static void json_put_ints(const struct dcpk_fact *fact, struct dcpk_json_out *j)
{
    dcpk_json_begin_array(j);
    for (size_t i = 0; i < fact->n; i++)
        dcpk_json_put_int(j, fact->as.ints[i]);
    dcpk_json_end_array(j);
}

static void json_put_texts(const struct dcpk_fact *fact, struct dcpk_json_out *j)
{
    dcpk_json_begin_array(j);
    for (size_t i = 0; i < fact->n; i++)
        dcpk_json_put_string(j, fact->as.texts[i]);
    dcpk_json_end_array(j);
}

/* Records and tables nest as deep as the program builds them. */
static void json_put_fact(const struct dcpk_fact *fact, struct dcpk_json_out *j,
                          struct dcpk_error *err)
{
    switch (fact->kind) {
    case DCPK_FACT_NULL:
    case DCPK_FACT_ABSENT:
        dcpk_json_put_null(j);
        break;
    case DCPK_FACT_FLAG:
        dcpk_json_put_bool(j, fact->as.flag);
        break;
    case DCPK_FACT_INT:
        dcpk_json_put_int(j, fact->as.integer);
        break;
    case DCPK_FACT_COUNT:
    case DCPK_FACT_BYTES:
        dcpk_json_put_uint(j, fact->as.count);
        break;
    case DCPK_FACT_NUMBER:
        dcpk_json_put_double(j, fact->as.number);
        break;
    case DCPK_FACT_TEXT:
        dcpk_json_put_text(j, fact->as.text, fact->n);
        break;
    case DCPK_FACT_INTS:
        json_put_ints(fact, j);
        break;
    case DCPK_FACT_TEXTS:
        json_put_texts(fact, j);
        break;
    case DCPK_FACT_TABLE:
        json_put_table(fact->as.table, j, err);
        break;
    case DCPK_FACT_JSON:
    case DCPK_FACT_MEMBER:
        fact->put(fact->as.context, j);
        break;
    }
}

dcpk_status dcpk_doc_json(const struct dcpk_doc *doc, struct dcpk_json_out *j,
                          struct dcpk_error *err)
{
    const struct dcpk_doc_cell **sorted;

    if (dcpk_doc_status(doc, err) != DCPK_OK)
        return err->status;
    sorted = dcpk_alloc_array(doc->n_members, sizeof *sorted, err);
    if (sorted != NULL)
        json_put_members(doc->members, doc->n_members, sorted, j, err);
    dcpk_free(sorted);
    return err->status;
}
