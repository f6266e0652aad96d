/* SPDX-License-Identifier: Apache-2.0 */
/* html_priv.h - the parts of a page. */
#ifndef DCPK_LIB_REPORT_HTML_PRIV_H
#define DCPK_LIB_REPORT_HTML_PRIV_H

#include "lib/report/doc_priv.h"

/* The style sheet of every page. */
extern const char *const dcpk_html_style[];
extern const size_t dcpk_n_html_style;
/* The script of every page, and its hash for the policy. */
extern const char dcpk_html_script[];
extern const char dcpk_html_script_hash[];
/* Classes of the style sheet c0, c1, ...: neighbours differ. */
#define DCPK_HTML_COLOURS 12

/* Text, safe between tags and in an attribute in double quotes. */
void dcpk_html_put(struct dcpk_doc_pipe *pipe, const char *text, size_t n_bytes);
void dcpk_html_text(struct dcpk_doc_pipe *pipe, const char *text);
/* The same of a key or a path: a line may break after each of its names. */
void dcpk_html_put_path(struct dcpk_doc_pipe *pipe, const char *text, size_t n_bytes);

/* The cells that a page shows, in front. Returns how many. */
size_t dcpk_html_pick(const struct dcpk_doc_cell *cells, size_t n,
                      const struct dcpk_doc_cell *shown[DCPK_DOC_MAX_CELLS]);
/* "N more rows are not on this page." */
void dcpk_html_left_out(struct dcpk_doc_pipe *pipe, uint64_t n, const char *what);

/* Rows whose first cell is a path, as a tree. */
void dcpk_html_tree(struct dcpk_doc_pipe *pipe, const struct dcpk_doc_table *table);
/* The class of a tone. */
const char *dcpk_html_tone(unsigned tone);
/* Figures. */
void dcpk_html_treemap(struct dcpk_doc_pipe *pipe, const struct dcpk_doc_treemap *map);
void dcpk_html_grid(struct dcpk_doc_pipe *pipe, const struct dcpk_doc_grid *grid);
void dcpk_html_map(struct dcpk_doc_pipe *pipe, const struct dcpk_doc_map *map);
void dcpk_html_plot(struct dcpk_doc_pipe *pipe, const struct dcpk_doc_plot *plot);

#endif
