/* SPDX-License-Identifier: Apache-2.0 */
/* doc.c - a document while it is built: what programs see, and what persons see. */
#include "lib/report/doc.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/arena.h"
#include "lib/base/order.h"
#include "lib/report/doc_priv.h"
#include "lib/report/plain.h"

#define FIRST_MEMBERS 32

struct dcpk_fact dcpk_fact_text(const char *text)
{
    if (text == NULL)
        return dcpk_fact_null();
    return dcpk_fact_part(text, strlen(text));
}

void dcpk_doc_init(struct dcpk_doc *doc, const char *command, const struct dcpk_doc_style *style)
{
    *doc = (struct dcpk_doc){.style = *style, .command = command};
    doc->arena = dcpk_arena_new();
}

void dcpk_doc_release(struct dcpk_doc *doc)
{
    dcpk_arena_free(doc->arena);
    dcpk_free(doc->members);
    *doc = (struct dcpk_doc){.arena = NULL};
}

dcpk_status dcpk_doc_status(const struct dcpk_doc *doc, struct dcpk_error *err)
{
    if (doc->err.status != DCPK_OK)
        *err = doc->err;
    return doc->err.status;
}

void *dcpk_doc_take(struct dcpk_doc *doc, size_t n_items, size_t item_bytes)
{
    if (doc->err.status != DCPK_OK)
        return NULL;
    return dcpk_arena_array(doc->arena, n_items, item_bytes, &doc->err);
}

const void *dcpk_doc_keep(struct dcpk_doc *doc, const void *data, size_t n_bytes)
{
    if (doc->err.status != DCPK_OK)
        return NULL;
    return dcpk_arena_copy(doc->arena, data, n_bytes, 1, &doc->err);
}

static const char *format_text(struct dcpk_doc *doc, const char *fmt, va_list ap)
    __attribute__((format(printf, 2, 0)));
static const char *format_text(struct dcpk_doc *doc, const char *fmt, va_list ap)
{
    va_list again;
    char *text;
    int n;

    va_copy(again, ap);
    n = vsnprintf(NULL, 0, fmt, again);
    va_end(again);
    text = dcpk_doc_take(doc, (size_t)n + 1, 1);
    if (text == NULL)
        return "";
    vsnprintf(text, (size_t)n + 1, fmt, ap);
    return text;
}

const char *dcpk_doc_format(struct dcpk_doc *doc, const char *fmt, ...)
{
    const char *text;
    va_list ap;

    va_start(ap, fmt);
    text = format_text(doc, fmt, ap);
    va_end(ap);
    return text;
}

/* ---- for programs ---- */

void dcpk_doc_set(struct dcpk_doc *doc, const char *key, struct dcpk_fact fact)
{
    if (doc->err.status != DCPK_OK || key == NULL)
        return;
    if (doc->n_members == doc->capacity) {
        const size_t capacity = dcpk_max_size(FIRST_MEMBERS, 2 * doc->capacity);
        struct dcpk_doc_cell *more = dcpk_realloc(doc->members, capacity * sizeof *more, &doc->err);

        if (more == NULL)
            return;
        doc->members = more;
        doc->capacity = capacity;
    }
    doc->members[doc->n_members++] = (struct dcpk_doc_cell){.key = key, .fact = fact};
}

void dcpk_doc_set_count(struct dcpk_doc *doc, const char *key, uint64_t count)
{
    dcpk_doc_set(doc, key, dcpk_fact_count(count));
}

void dcpk_doc_set_text(struct dcpk_doc *doc, const char *key, const char *text)
{
    dcpk_doc_set(doc, key, dcpk_fact_text(text));
}

void dcpk_doc_set_flag(struct dcpk_doc *doc, const char *key, bool flag)
{
    dcpk_doc_set(doc, key, dcpk_fact_flag(flag));
}

void dcpk_doc_set_table(struct dcpk_doc *doc, const char *key, const struct dcpk_doc_table *table)
{
    const struct dcpk_doc_table *copy = dcpk_doc_keep(doc, table, sizeof *table);

    if (copy != NULL)
        dcpk_doc_set(doc, key, dcpk_fact_table(copy));
}

/* ---- for persons ---- */

static void add_item(struct dcpk_doc *doc, const struct dcpk_doc_item *item)
{
    struct dcpk_doc_item *added = dcpk_doc_take(doc, 1, sizeof *added);

    if (added == NULL)
        return;
    *added = *item;
    if (added->media == 0)
        added->media = doc->media;
    if (added->media == 0)
        added->media = DCPK_DOC_TEXT | DCPK_DOC_PAGE;
    if (doc->last == NULL)
        doc->first = added;
    else
        doc->last->next = added;
    doc->last = added;
}

static void add_row(struct dcpk_doc *doc, const char *label, unsigned tone, const char *text)
{
    add_item(doc, &(struct dcpk_doc_item){
                      .kind = DCPK_ITEM_ROW, .tone = tone, .label = label, .text = text});
}

void dcpk_doc_row(struct dcpk_doc *doc, const char *label, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    add_row(doc, label, 0, format_text(doc, fmt, ap));
    va_end(ap);
}

void dcpk_doc_verdict(struct dcpk_doc *doc, bool is_good, const char *fmt, ...)
{
    const unsigned media = doc->media;
    va_list ap;

    va_start(ap, fmt);
    doc->verdict = format_text(doc, fmt, ap);
    va_end(ap);
    doc->tone = is_good ? DCPK_DOC_GOOD : DCPK_DOC_BAD;
    if (media == DCPK_DOC_PAGE)
        return;
    doc->media = DCPK_DOC_TEXT;
    add_row(doc, "verdict", doc->tone, doc->verdict);
    doc->media = media;
}

void dcpk_doc_note(struct dcpk_doc *doc, const char *label, const char *text)
{
    add_row(doc, label, 0, text);
}

void dcpk_doc_line(struct dcpk_doc *doc, const char *fmt, ...)
{
    struct dcpk_doc_item item = {.kind = DCPK_ITEM_LINE};
    va_list ap;

    va_start(ap, fmt);
    item.text = format_text(doc, fmt, ap);
    va_end(ap);
    add_item(doc, &item);
}

void dcpk_doc_paragraph(struct dcpk_doc *doc, const char *text)
{
    add_item(doc, &(struct dcpk_doc_item){.kind = DCPK_ITEM_PARAGRAPH, .text = text});
}

void dcpk_doc_show(struct dcpk_doc *doc, const struct dcpk_doc_table *table)
{
    add_item(doc, &(struct dcpk_doc_item){.kind = DCPK_ITEM_TABLE,
                                          .data = dcpk_doc_keep(doc, table, sizeof *table)});
}

void dcpk_doc_heading(struct dcpk_doc *doc, const char *text)
{
    add_item(doc, &(struct dcpk_doc_item){.kind = DCPK_ITEM_HEADING, .text = text});
}

static void add_figure(struct dcpk_doc *doc, enum dcpk_item_kind kind, const void *data, size_t n,
                       size_t item_bytes)
{
    add_item(doc, &(struct dcpk_doc_item){.kind = kind,
                                          .media = DCPK_DOC_PAGE,
                                          .data = dcpk_doc_keep(doc, data, n * item_bytes),
                                          .n = n});
}

void dcpk_doc_headline(struct dcpk_doc *doc, const struct dcpk_doc_headline *headline)
{
    struct dcpk_doc_headline kept = *headline;

    kept.bars = dcpk_doc_keep(doc, headline->bars, headline->n_bars * sizeof *headline->bars);
    add_figure(doc, DCPK_ITEM_HEADLINE, &kept, 1, sizeof kept);
}

void dcpk_doc_chips(struct dcpk_doc *doc, const struct dcpk_doc_chip *chips, size_t n)
{
    add_figure(doc, DCPK_ITEM_CHIPS, chips, n, sizeof *chips);
}

void dcpk_doc_treemap(struct dcpk_doc *doc, const struct dcpk_doc_treemap *map)
{
    add_figure(doc, DCPK_ITEM_TREEMAP, map, 1, sizeof *map);
}

void dcpk_doc_grid(struct dcpk_doc *doc, const struct dcpk_doc_grid *grid)
{
    add_figure(doc, DCPK_ITEM_GRID, grid, 1, sizeof *grid);
}

void dcpk_doc_map(struct dcpk_doc *doc, const struct dcpk_doc_map *map)
{
    add_figure(doc, DCPK_ITEM_MAP, map, 1, sizeof *map);
}

void dcpk_doc_plot(struct dcpk_doc *doc, const struct dcpk_doc_plot *plot)
{
    struct dcpk_doc_plot kept = *plot;

    kept.curves = dcpk_doc_keep(doc, plot->curves, plot->n * sizeof *plot->curves);
    add_figure(doc, DCPK_ITEM_PLOT, &kept, 1, sizeof kept);
}

/* ---- for both ---- */

void dcpk_doc_fact(struct dcpk_doc *doc, const char *label, const char *key, struct dcpk_fact fact)
{
    char room[DCPK_FACT_ROOM_BYTES];
    const struct dcpk_fact text = dcpk_fact_for_person(&fact, room);

    dcpk_doc_set(doc, key, fact);
    add_item(doc, &(struct dcpk_doc_item){
                      .kind = DCPK_ITEM_ROW,
                      .label = label,
                      .text = dcpk_doc_format(doc, "%.*s", (int)text.n, text.as.text)});
}

void dcpk_doc_table(struct dcpk_doc *doc, const char *key, const struct dcpk_doc_table *table)
{
    dcpk_doc_set_table(doc, key, table);
    dcpk_doc_show(doc, table);
}

/* ---- facts ---- */

static void ints_text(const struct dcpk_fact *fact, char room[DCPK_FACT_ROOM_BYTES])
{
    size_t at = (size_t)snprintf(room, DCPK_FACT_ROOM_BYTES, "[");
    const char *before = "";

    for (size_t i = 0; i < fact->n && at < DCPK_FACT_ROOM_BYTES; i++) {
        at += (size_t)snprintf(room + at, DCPK_FACT_ROOM_BYTES - at, "%s%" PRId64, before,
                               fact->as.ints[i]);
        before = ", ";
    }
    if (at < DCPK_FACT_ROOM_BYTES)
        snprintf(room + at, DCPK_FACT_ROOM_BYTES - at, "]");
}

struct dcpk_fact dcpk_fact_for_person(const struct dcpk_fact *fact, char room[DCPK_FACT_ROOM_BYTES])
{
    room[0] = '\0';
    switch (fact->kind) {
    case DCPK_FACT_TEXT:
        return *fact;
    case DCPK_FACT_FLAG:
        return dcpk_fact_text(fact->as.flag ? "yes" : "no");
    case DCPK_FACT_INT:
        snprintf(room, DCPK_FACT_ROOM_BYTES, "%" PRId64, fact->as.integer);
        break;
    case DCPK_FACT_COUNT:
        snprintf(room, DCPK_FACT_ROOM_BYTES, "%" PRIu64, fact->as.count);
        break;
    case DCPK_FACT_BYTES:
        dcpk_plain_size(fact->as.count, room);
        break;
    case DCPK_FACT_NUMBER:
        snprintf(room, DCPK_FACT_ROOM_BYTES, "%.3g", fact->as.number);
        break;
    case DCPK_FACT_INTS:
        ints_text(fact, room);
        break;
    case DCPK_FACT_NULL:
    case DCPK_FACT_ABSENT:
    case DCPK_FACT_TEXTS:
    case DCPK_FACT_TABLE:
    case DCPK_FACT_JSON:
    case DCPK_FACT_MEMBER:
        return dcpk_fact_text("-");
    }
    return dcpk_fact_text(room);
}
