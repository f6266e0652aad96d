/* SPDX-License-Identifier: Apache-2.0 */
/* doc_priv.h - what the renderers know of a document. */
#ifndef DCPK_LIB_REPORT_DOC_PRIV_H
#define DCPK_LIB_REPORT_DOC_PRIV_H

#include "lib/base/bytes.h"
#include "lib/report/doc.h"

enum dcpk_item_kind {
    DCPK_ITEM_ROW,       /* label, text */
    DCPK_ITEM_LINE,      /* text */
    DCPK_ITEM_PARAGRAPH, /* text */
    DCPK_ITEM_TABLE,     /* data: struct dcpk_doc_table */
    DCPK_ITEM_HEADING,   /* text */
    DCPK_ITEM_HEADLINE,  /* data: struct dcpk_doc_headline */
    DCPK_ITEM_CHIPS,     /* data: struct dcpk_doc_chip, n */
    DCPK_ITEM_TREEMAP,   /* data: struct dcpk_doc_treemap */
    DCPK_ITEM_GRID,      /* data: struct dcpk_doc_grid */
    DCPK_ITEM_MAP,       /* data: struct dcpk_doc_map */
    DCPK_ITEM_PLOT,      /* data: struct dcpk_doc_plot */
};

/* Content for people, in the document's arena. */
struct dcpk_doc_item {
    enum dcpk_item_kind kind;
    unsigned media;
    unsigned tone; /* DCPK_DOC_GOOD, DCPK_DOC_BAD or 0 */
    const char *label, *text;
    const void *data;
    size_t n;
    struct dcpk_doc_item *next;
};

/* A fact as a person reads it; `room` holds what has to be made. */
#define DCPK_FACT_ROOM_BYTES 256
struct dcpk_fact dcpk_fact_for_person(const struct dcpk_fact *fact,
                                      char room[DCPK_FACT_ROOM_BYTES]);

/* Text on its way out: gathered, and written when there is enough of it. Zero it, set `out`. */
struct dcpk_doc_pipe {
    struct dcpk_bytes bytes;
    const struct dcpk_doc_out *out;
    struct dcpk_error *err; /* sticky */
};
void dcpk_pipe_put(void *pipe, const char *text, size_t n_bytes);
void dcpk_pipe_text(struct dcpk_doc_pipe *pipe, const char *text);
void dcpk_pipe_printf(struct dcpk_doc_pipe *pipe, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Between two whole characters: write what has gathered, if it is much. */
void dcpk_pipe_rest(struct dcpk_doc_pipe *pipe);
/* Write the rest and release it. Returns the status of err. */
dcpk_status dcpk_pipe_end(struct dcpk_doc_pipe *pipe);

#endif
