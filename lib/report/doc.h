/* SPDX-License-Identifier: Apache-2.0 */
/* doc.h - what a command reports, built once; rendered as text, as JSON and as a page. */
#ifndef DCPK_LIB_REPORT_DOC_H
#define DCPK_LIB_REPORT_DOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/error.h"
#include "lib/base/json.h"

/*
 * A document has two kinds of readers. A program sees members, sorted by key. A person sees rows,
 * lines, tables and figures in the order in which they were added. Content for both is added once.
 * The rows of a table are asked for when it is rendered: a document does not grow with a
 * checkpoint. Texts are borrowed until the document is released, except those made by a format.
 */

/* ---- facts: typed values ---- */

enum dcpk_fact_kind {
    DCPK_FACT_NULL,
    DCPK_FACT_ABSENT, /* not a member, but the object around it is there */
    DCPK_FACT_FLAG,
    DCPK_FACT_INT,
    DCPK_FACT_COUNT,
    DCPK_FACT_BYTES, /* a count; a person reads "1.50 GiB" */
    DCPK_FACT_NUMBER,
    DCPK_FACT_TEXT,
    DCPK_FACT_INTS,
    DCPK_FACT_TEXTS, /* for programs alone, as all that follow */
    DCPK_FACT_TABLE,
    DCPK_FACT_JSON,   /* written by a function */
    DCPK_FACT_MEMBER, /* the same, which writes the key, too */
};

struct dcpk_doc_cell;
struct dcpk_doc_table;
typedef void dcpk_fact_put(const void *context, struct dcpk_json_out *j);

struct dcpk_fact {
    enum dcpk_fact_kind kind;
    size_t n; /* bytes of text, ints, texts */
    union {
        bool flag;
        int64_t integer;
        uint64_t count;
        double number;
        const char *text;
        const int64_t *ints;
        const char *const *texts;
        const struct dcpk_doc_table *table;
        const void *context;
    } as;
    dcpk_fact_put *put; /* of JSON and MEMBER, called with as.context */
};

static inline struct dcpk_fact dcpk_fact_null(void)
{
    return (struct dcpk_fact){.kind = DCPK_FACT_NULL};
}
static inline struct dcpk_fact dcpk_fact_absent(void)
{
    return (struct dcpk_fact){.kind = DCPK_FACT_ABSENT};
}
static inline struct dcpk_fact dcpk_fact_flag(bool v)
{
    return (struct dcpk_fact){.kind = DCPK_FACT_FLAG, .as.flag = v};
}
static inline struct dcpk_fact dcpk_fact_int(int64_t v)
{
    return (struct dcpk_fact){.kind = DCPK_FACT_INT, .as.integer = v};
}
static inline struct dcpk_fact dcpk_fact_count(uint64_t v)
{
    return (struct dcpk_fact){.kind = DCPK_FACT_COUNT, .as.count = v};
}
static inline struct dcpk_fact dcpk_fact_bytes(uint64_t v)
{
    return (struct dcpk_fact){.kind = DCPK_FACT_BYTES, .as.count = v};
}
static inline struct dcpk_fact dcpk_fact_number(double v)
{
    return (struct dcpk_fact){.kind = DCPK_FACT_NUMBER, .as.number = v};
}
static inline struct dcpk_fact dcpk_fact_ints(const int64_t *v, int n)
{
    return (struct dcpk_fact){.kind = DCPK_FACT_INTS, .n = (size_t)n, .as.ints = v};
}
static inline struct dcpk_fact dcpk_fact_texts(const char *const *v, size_t n)
{
    return (struct dcpk_fact){.kind = DCPK_FACT_TEXTS, .n = n, .as.texts = v};
}
static inline struct dcpk_fact dcpk_fact_table(const struct dcpk_doc_table *table)
{
    return (struct dcpk_fact){.kind = DCPK_FACT_TABLE, .as.table = table};
}
static inline struct dcpk_fact dcpk_fact_json(dcpk_fact_put *put, const void *context)
{
    return (struct dcpk_fact){.kind = DCPK_FACT_JSON, .as.context = context, .put = put};
}
static inline struct dcpk_fact dcpk_fact_member(dcpk_fact_put *put, const void *context)
{
    return (struct dcpk_fact){.kind = DCPK_FACT_MEMBER, .as.context = context, .put = put};
}
struct dcpk_fact dcpk_fact_text(const char *text); /* NULL: null */
static inline struct dcpk_fact dcpk_fact_part(const char *text, size_t n_bytes)
{
    return (struct dcpk_fact){.kind = DCPK_FACT_TEXT, .n = n_bytes, .as.text = text};
}
/* The fact where there is one, else null. */
static inline struct dcpk_fact dcpk_fact_if(bool has, struct dcpk_fact fact)
{
    return has ? fact : dcpk_fact_null();
}

/* ---- tables ---- */

enum dcpk_doc_cell_flags {
    DCPK_DOC_RIGHT = 1,    /* numbers */
    DCPK_DOC_BREAKS = 2,   /* a key, the first or the last of a row: alone where no line holds it */
    DCPK_DOC_MEASURED = 4, /* as wide in text as the widest of its column */
    DCPK_DOC_GOOD = 8,     /* shown in green, where there are colours */
    DCPK_DOC_BAD = 16,     /* in red */
    DCPK_DOC_WARN = 128,   /* in amber; in a page alone */
    DCPK_DOC_NOT_TEXT = 32, /* left out of text */
    DCPK_DOC_NOT_PAGE = 64, /* left out of a page */
};

/* A value in a row of a table. A key "place.a" is the member a of the object place. */
struct dcpk_doc_cell {
    const char *key;   /* for programs; NULL: they do not see it */
    const char *title; /* for persons, of its column; NULL: they do not see it */
    struct dcpk_fact fact;
    unsigned flags;    /* enum dcpk_doc_cell_flags */
    const char *label; /* printed before it in text; NULL: nothing */
    int width;         /* in text: least columns; 0: as many as it has */
    int gap;           /* in text: blanks before it; 0: two, none before the first */
};

/* A cell that programs alone see. */
#define DCPK_MEMBER(name, value)                                                                   \
    {                                                                                              \
        .key = (name), .fact = (value)                                                             \
    }
/* The same where there is one. */
static inline struct dcpk_doc_cell dcpk_doc_member(bool has, const char *key, struct dcpk_fact fact)
{
    if (!has)
        key = NULL;
    return (struct dcpk_doc_cell){.key = key, .fact = fact};
}
/* A cell that persons see where `has`; what follows it are fields of the cell. */
#define DCPK_DOC_SHOWN(has, ...) dcpk_doc_shown((has), (struct dcpk_doc_cell){__VA_ARGS__})
static inline struct dcpk_doc_cell dcpk_doc_shown(bool has, struct dcpk_doc_cell cell)
{
    if (!has)
        cell.title = NULL;
    return cell;
}

/* Takes rows, one after the other; borrows its arguments until the call returns. */
struct dcpk_doc_rows {
    void (*take)(struct dcpk_doc_rows *rows, const struct dcpk_doc_cell *cells, size_t n);
    struct dcpk_error *err;
};
static inline void dcpk_doc_put(struct dcpk_doc_rows *rows, const struct dcpk_doc_cell *cells,
                                size_t n)
{
    rows->take(rows, cells, n);
}
#define DCPK_DOC_PUT(rows, ...)                                                                    \
    dcpk_doc_put((rows), (const struct dcpk_doc_cell[]){__VA_ARGS__},                              \
                 sizeof((const struct dcpk_doc_cell[]){__VA_ARGS__}) /                             \
                     sizeof(struct dcpk_doc_cell))

enum dcpk_doc_media { DCPK_DOC_TEXT = 1, DCPK_DOC_PAGE = 2 };

enum dcpk_doc_table_flags {
    DCPK_DOC_KEYED = 1,       /* JSON: an object by the first cell; else an array */
    DCPK_DOC_LIST = 2,        /* JSON: an array of the first cells' values */
    DCPK_DOC_TABS = 8,        /* text: tabs between the cells */
    DCPK_DOC_PARAGRAPHS = 16, /* a cell is a paragraph; all but the first are 2 columns in */
    DCPK_DOC_LINES = 64,      /* the same, without breaking lines */
    DCPK_DOC_TREE = 32,       /* page: the first cell is a path, which is folded */
};

#define DCPK_DOC_MAX_CELLS 24 /* of a row; asserted */

struct dcpk_doc_table {
    unsigned flags; /* enum dcpk_doc_table_flags */
    int indent;     /* in text */
    /* Put every row, the same ones each time it is called; a failure goes into rows->err. */
    void (*fill)(const void *context, struct dcpk_doc_rows *rows);
    const void *context;
};

/* ---- figures, which a page has alone ---- */

/* Boxes of a tensor on two of its axes. x, y, width, height: parts of the whole, 0 to 1. */
struct dcpk_doc_box {
    double x, y, width, height;
    unsigned group;    /* boxes of one group have one colour, and one line of the legend */
    const char *label; /* "rank 3": of the group; in the box where there is room */
    const char *text;  /* the whole story, in a line */
};
struct dcpk_doc_map {
    const char *title, *note;
    bool is_open; /* when the page is */
    const struct dcpk_doc_box *boxes;
    size_t n;
    double height;               /* of the picture, its width being 1 */
    const char *x_axis, *y_axis; /* "axis 1: 0 to 64"; NULL: not an axis */
};

struct dcpk_doc_bar {
    const char *label;
    uint64_t count;
    unsigned tone; /* DCPK_DOC_GOOD, _WARN or _BAD; 0: a colour of its own */
};

/* The first screen: at most three figures ("156 M", "parameters"), and their parts as one bar. */
#define DCPK_DOC_N_FIGURES 3
struct dcpk_doc_headline {
    struct dcpk_doc_figure {
        const char *value, *label; /* value NULL: there is none */
    } figures[DCPK_DOC_N_FIGURES];
    const char *bar_title;
    const struct dcpk_doc_bar *bars; /* those of 0 are left out */
    size_t n_bars;
    bool is_bytes; /* the counts of bars */
};

/* One of a row of answers: "core 0.19", "loads with --no-load-rng". */
struct dcpk_doc_chip {
    const char *label, *text;
    const char *why; /* NULL: nothing more */
    unsigned tone;
};

/* A size with its place in three levels: "weights", "layer 3", "mlp.linear_fc1.weight". Leaves that
 * share a level follow each other. */
#define DCPK_DOC_LEVELS 3
struct dcpk_doc_leaf {
    const char *path[DCPK_DOC_LEVELS];
    uint64_t n_bytes;
    unsigned group; /* leaves of one group have one colour */
};
struct dcpk_doc_treemap {
    const char *title;
    const struct dcpk_doc_leaf *leaves;
    size_t n;
};

/* A heat map. cells: row by row; text NULL: there is nothing. shade: 0 to 1. */
struct dcpk_doc_grid {
    const char *title, *corner; /* corner: names the rows */
    const char *const *rows, *const *columns;
    size_t n_rows, n_columns;
    const struct dcpk_doc_grid_cell {
        double shade;
        unsigned tone; /* instead of a shade; 0: none */
        const char *text;
    } * cells;
    const char *least, *most; /* ends of the scale */
};

/* Points (x, y) joined by a line, by x; those that are not finite are left out. */
struct dcpk_doc_curve {
    const char *label;
    const double *x, *y;
    size_t n;
};
/* Curves in one picture, with axes for all of them. */
struct dcpk_doc_plot {
    const char *title;
    const struct dcpk_doc_curve *curves;
    size_t n;
    bool is_log; /* the axis of y, which numbers above 0 have alone */
};

/* ---- the document ---- */

/* How rows look in text. */
struct dcpk_doc_style {
    int indent, label_columns;
};

struct dcpk_doc_item;
struct dcpk_doc_member;

/* Zeroed = empty. Errors are sticky: dcpk_doc_status. */
struct dcpk_doc {
    struct dcpk_arena *arena;
    struct dcpk_doc_item *first, *last;
    struct dcpk_doc_cell *members;
    size_t n_members, capacity;
    struct dcpk_doc_style style;
    unsigned media;                         /* of the added items; 0: all */
    const char *command, *title, *subtitle; /* head of the page */
    int refresh_seconds; /* a browser loads the page again after so many; 0: never */
    const char *verdict; /* the last one; NULL: there is none */
    unsigned tone;       /* of it */
    struct dcpk_error err;
};

void dcpk_doc_init(struct dcpk_doc *doc, const char *command, const struct dcpk_doc_style *style);
void dcpk_doc_release(struct dcpk_doc *doc);
/* DCPK_OK, or the first failure of what was added, written into err. */
dcpk_status dcpk_doc_status(const struct dcpk_doc *doc, struct dcpk_error *err);

/* For programs. A key "counts.n_cast" is the member n_cast of the object counts. */
void dcpk_doc_set(struct dcpk_doc *doc, const char *key, struct dcpk_fact fact);
void dcpk_doc_set_count(struct dcpk_doc *doc, const char *key, uint64_t count);
void dcpk_doc_set_text(struct dcpk_doc *doc, const char *key, const char *text); /* NULL: null */
void dcpk_doc_set_flag(struct dcpk_doc *doc, const char *key, bool flag);
void dcpk_doc_set_table(struct dcpk_doc *doc, const char *key, const struct dcpk_doc_table *table);
/* Zeroed memory of the document, for what a table points to; NULL after a failure. */
void *dcpk_doc_take(struct dcpk_doc *doc, size_t n_items, size_t item_bytes);
/* A copy of n_bytes in the document, for what a table points to; NULL after a failure. */
const void *dcpk_doc_keep(struct dcpk_doc *doc, const void *data, size_t n_bytes);

/* For both: "label   value", and the member. */
void dcpk_doc_fact(struct dcpk_doc *doc, const char *label, const char *key, struct dcpk_fact fact);
/* For both: `table` is copied. */
void dcpk_doc_table(struct dcpk_doc *doc, const char *key, const struct dcpk_doc_table *table);

/* For persons: "label   sentence". */
void dcpk_doc_row(struct dcpk_doc *doc, const char *label, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void dcpk_doc_note(struct dcpk_doc *doc, const char *label, const char *text);
/* The row "verdict", in the colour of good or bad news; a page has it in its head alone. */
void dcpk_doc_verdict(struct dcpk_doc *doc, bool is_good, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void dcpk_doc_line(struct dcpk_doc *doc, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Text: a line of its own after an empty one, with a colon. */
void dcpk_doc_heading(struct dcpk_doc *doc, const char *text);
/* A wrapped paragraph. */
void dcpk_doc_paragraph(struct dcpk_doc *doc, const char *text);
void dcpk_doc_show(struct dcpk_doc *doc, const struct dcpk_doc_table *table);

/* For pages. Pointers are borrowed; structs are copied. */
void dcpk_doc_headline(struct dcpk_doc *doc, const struct dcpk_doc_headline *headline);
void dcpk_doc_chips(struct dcpk_doc *doc, const struct dcpk_doc_chip *chips, size_t n);
void dcpk_doc_treemap(struct dcpk_doc *doc, const struct dcpk_doc_treemap *map);
void dcpk_doc_grid(struct dcpk_doc *doc, const struct dcpk_doc_grid *grid);
void dcpk_doc_map(struct dcpk_doc *doc, const struct dcpk_doc_map *map);
void dcpk_doc_plot(struct dcpk_doc *doc, const struct dcpk_doc_plot *plot);
/* printf into the document's memory; "" after a failure. */
const char *dcpk_doc_format(struct dcpk_doc *doc, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- rendering ---- */

/* The output, in parts that end with a whole character. */
struct dcpk_doc_out {
    dcpk_status (*write)(void *to, const char *text, size_t n_bytes, struct dcpk_error *err);
    void *to;
    size_t columns;  /* of text: of its lines; 0: DCPK_PLAIN_COLUMNS */
    bool has_colour; /* of text: a terminal shows verdicts and headings in colour */
};

/* For persons: lines, with nothing in them that plays with a terminal (lib/report/plain.h). Errors:
 * DCPK_ENOMEM; those of `write` and of the tables. */
dcpk_status dcpk_doc_text(const struct dcpk_doc *doc, const struct dcpk_doc_out *out,
                          struct dcpk_error *err);
/* One object with all members. */
dcpk_status dcpk_doc_json(const struct dcpk_doc *doc, struct dcpk_json_out *j,
                          struct dcpk_error *err);
/*
 * One page of HTML that needs nothing else: no network. Its one script searches, sorts and copies;
 * it works without. At most DCPK_DOC_PAGE_ROWS rows of each table are in it, and a sentence gives
 * the number of the others.
 */
#define DCPK_DOC_PAGE_ROWS 1000
/* The first bytes of each page: a file that begins with them may be replaced by another page. */
#define DCPK_DOC_PAGE_BEGIN "<!doctype html>\n<!-- a page of dcpkit -->\n"
dcpk_status dcpk_doc_html(const struct dcpk_doc *doc, const struct dcpk_doc_out *out,
                          struct dcpk_error *err);

#endif
