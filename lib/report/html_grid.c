/* SPDX-License-Identifier: Apache-2.0 */
/* html_grid.c - a heat map: a table whose cells are as dark as their numbers are large. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/order.h"
#include "lib/report/html_priv.h"

#define N_SHADES   10    /* of the style sheet: s0, s1, ... */
#define ROOM       800.0 /* pixels of all columns, where they are neither too wide nor too small */
#define MAX_LABELS 16    /* of columns; the others share one */

static void put_cell(struct dcpk_doc_pipe *pipe, const struct dcpk_doc_grid_cell *cell)
{
    const double shade = fmin(fmax(cell->shade, 0), 1);

    if (cell->tone != 0)
        dcpk_pipe_printf(pipe, "<td class=\"%s\" title=\"", dcpk_html_tone(cell->tone));
    else
        dcpk_pipe_printf(pipe, "<td class=\"s%d\" title=\"", (int)(shade * (N_SHADES - 1) + 0.5));
    dcpk_html_text(pipe, cell->text);
    dcpk_pipe_text(pipe, "\">");
}

/* Cells without anything are one. */
static void put_grid_row(struct dcpk_doc_pipe *pipe, const struct dcpk_doc_grid *grid, size_t row)
{
    const struct dcpk_doc_grid_cell *cells = grid->cells + row * grid->n_columns;

    dcpk_pipe_text(pipe, "<tr><th>");
    dcpk_html_put_path(pipe, grid->rows[row], strlen(grid->rows[row]));
    for (size_t i = 0, end; i < grid->n_columns; i = end) {
        for (end = i; end < grid->n_columns && cells[end].text == NULL; end++)
            ;
        if (end == i + 1)
            dcpk_pipe_text(pipe, "<td>");
        else if (end > i)
            dcpk_pipe_printf(pipe, "<td colspan=\"%zu\">", end - i);
        else
            put_cell(pipe, &cells[end++]);
    }
    dcpk_pipe_text(pipe, "</tr>\n");
    dcpk_pipe_rest(pipe);
}

static void put_grid_head(struct dcpk_doc_pipe *pipe, const struct dcpk_doc_grid *grid)
{
    const size_t step = grid->n_columns / (MAX_LABELS + 1) + 1;

    dcpk_pipe_printf(pipe, "<col><col span=\"%zu\" style=\"width:%.0fpx\">\n<tr><th>",
                     grid->n_columns, fmin(fmax(ROOM / (double)grid->n_columns, 16), 64));
    dcpk_html_text(pipe, grid->corner);
    for (size_t i = 0; i < grid->n_columns; i += step) {
        dcpk_pipe_printf(pipe, "<th colspan=\"%zu\">", dcpk_min_size(step, grid->n_columns - i));
        dcpk_html_text(pipe, grid->columns[i]);
    }
    dcpk_pipe_text(pipe, "</tr>\n");
}

void dcpk_html_grid(struct dcpk_doc_pipe *pipe, const struct dcpk_doc_grid *grid)
{
    dcpk_pipe_text(pipe, "<figure class=\"grid\"><figcaption>");
    dcpk_html_text(pipe, grid->title);
    dcpk_pipe_text(pipe, "</figcaption>\n<div class=\"scroll\" tabindex=\"0\"><table>\n");
    put_grid_head(pipe, grid);
    for (size_t i = 0; i < grid->n_rows; i++)
        put_grid_row(pipe, grid, i);
    dcpk_pipe_text(pipe, "</table></div>\n<p class=\"scale\">");
    dcpk_html_text(pipe, grid->least);
    for (int i = 0; i < N_SHADES; i++)
        dcpk_pipe_printf(pipe, "<i class=\"s%d\"></i>", i);
    dcpk_html_text(pipe, grid->most);
    dcpk_pipe_text(pipe, "</p></figure>\n");
}
