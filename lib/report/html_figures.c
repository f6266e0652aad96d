/* SPDX-License-Identifier: Apache-2.0 */
/* html_figures.c - trees and maps of a page. */
#include <math.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/report/html_priv.h"
#include "lib/report/key_tree.h"
#include "lib/report/plain.h"

size_t dcpk_html_pick(const struct dcpk_doc_cell *cells, size_t n,
                      const struct dcpk_doc_cell *shown[DCPK_DOC_MAX_CELLS])
{
    size_t n_shown = 0;

    for (size_t i = 0; i < n; i++)
        if (cells[i].title != NULL && cells[i].fact.kind != DCPK_FACT_ABSENT &&
            (cells[i].flags & DCPK_DOC_NOT_PAGE) == 0)
            shown[n_shown++] = &cells[i];
    return n_shown;
}

/* ---- trees ---- */

struct leaf {
    char *html; /* the cells but path and size; owned */
    uint64_t n_bytes;
};

struct tree_rows {
    struct dcpk_doc_rows rows; /* first */
    struct dcpk_doc_pipe *pipe;
    struct leaf *leaves;
    char **paths; /* of leaves; owned */
    size_t n;
    uint64_t n_all, n_bytes;
};

static char *copy_text(const char *text, size_t n, struct dcpk_error *err)
{
    char *copy = dcpk_alloc(n + 1, err);

    if (copy != NULL && n > 0)
        memcpy(copy, text, n);
    return copy;
}

/* All cells but the path and the size, as HTML. */
static char *describe_leaf(const struct dcpk_doc_cell *const *shown, size_t n,
                           struct dcpk_error *err)
{
    struct dcpk_doc_pipe pipe = {.err = err};
    char *html = NULL;

    for (size_t i = 1; i < n; i++) {
        char room[DCPK_FACT_ROOM_BYTES];
        const struct dcpk_fact text = dcpk_fact_for_person(&shown[i]->fact, room);

        if (shown[i]->fact.kind == DCPK_FACT_BYTES)
            continue;
        dcpk_pipe_text(&pipe, "<span>");
        dcpk_html_put(&pipe, text.as.text, text.n);
        dcpk_pipe_text(&pipe, "</span>");
    }
    if (dcpk_bytes_status(&pipe.bytes, err) == DCPK_OK)
        html = copy_text((const char *)pipe.bytes.data, pipe.bytes.n_bytes, err);
    dcpk_bytes_release(&pipe.bytes);
    return html;
}

static void take_leaf(struct dcpk_doc_rows *rows, const struct dcpk_doc_cell *cells, size_t n)
{
    struct tree_rows *r = (struct tree_rows *)rows;
    const struct dcpk_doc_cell *shown[DCPK_DOC_MAX_CELLS];
    const size_t n_shown = dcpk_html_pick(cells, n, shown);
    struct leaf *leaf = &r->leaves[r->n];

    if (n_shown == 0 || r->n_all++ >= DCPK_DOC_PAGE_ROWS || rows->err->status != DCPK_OK)
        return;
    for (size_t i = 0; i < n_shown; i++)
        if (shown[i]->fact.kind == DCPK_FACT_BYTES)
            leaf->n_bytes = shown[i]->fact.as.count;
    r->paths[r->n] = copy_text(shown[0]->fact.as.text, shown[0]->fact.n, rows->err);
    leaf->html = describe_leaf(shown, n_shown, rows->err);
    r->n_bytes += leaf->n_bytes;
    r->n++;
}

static void put_size_bar(struct dcpk_doc_pipe *pipe, uint64_t n_bytes, uint64_t all)
{
    double share = 0;
    char size[DCPK_PLAIN_SIZE_BYTES];

    if (all > 0)
        share = 100.0 * (double)n_bytes / (double)all;
    dcpk_pipe_printf(pipe,
                     "<span class=\"size\">%s</span><span class=\"share\"><i "
                     "style=\"width:%.1f%%\"></i></span>",
                     dcpk_plain_size(n_bytes, size), share);
}

/* Marks a name that another separator than a dot follows, for the script. */
static void put_name(struct dcpk_doc_pipe *pipe, const char *path, size_t at, size_t end)
{
    dcpk_pipe_text(pipe, "<span class=\"name\"");
    if (path[end] == '/')
        dcpk_pipe_text(pipe, " data-s=\"/\"");
    dcpk_pipe_text(pipe, ">");
    dcpk_html_put_path(pipe, path + at, end - at);
    dcpk_pipe_text(pipe, "</span>");
}

static void put_leaf_cells(const struct tree_rows *r, const struct leaf *leaf)
{
    dcpk_pipe_text(r->pipe, "<span class=\"what\">");
    dcpk_pipe_text(r->pipe, leaf->html);
    dcpk_pipe_text(r->pipe, "</span>");
    put_size_bar(r->pipe, leaf->n_bytes, r->n_bytes);
    dcpk_pipe_text(r->pipe, "</div>\n");
    dcpk_pipe_rest(r->pipe);
}

static void enter_node(void *context, const struct dcpk_tree_node *node)
{
    const struct tree_rows *r = context;
    uint64_t n_bytes = 0;

    if (node->is_leaf)
        dcpk_pipe_text(r->pipe, "<div class=\"leaf\">");
    else
        dcpk_pipe_text(r->pipe, node->level < 1 ? "<details open><summary>" : "<details><summary>");
    put_name(r->pipe, r->paths[node->first], node->at, node->end);
    if (node->is_leaf) {
        put_leaf_cells(r, &r->leaves[node->first]);
        return;
    }
    for (size_t i = node->first; i < node->last; i++)
        n_bytes += r->leaves[i].n_bytes;
    put_size_bar(r->pipe, n_bytes, r->n_bytes);
    dcpk_pipe_text(r->pipe, "</summary>\n");
}

static void leave_node(void *context)
{
    const struct tree_rows *r = context;

    dcpk_pipe_text(r->pipe, "</details>\n");
}

void dcpk_html_tree(struct dcpk_doc_pipe *pipe, const struct dcpk_doc_table *table)
{
    struct tree_rows r = {.rows = {take_leaf, pipe->err}, .pipe = pipe};
    struct dcpk_tree tree = {.enter = enter_node, .leave = leave_node, .context = &r};

    r.leaves = dcpk_alloc_array(DCPK_DOC_PAGE_ROWS, sizeof *r.leaves, pipe->err);
    r.paths = dcpk_alloc_array(DCPK_DOC_PAGE_ROWS, sizeof *r.paths, pipe->err);
    if (r.leaves != NULL && r.paths != NULL)
        table->fill(table->context, &r.rows);
    if (pipe->err->status == DCPK_OK && r.n > 0) {
        tree.paths = (const char *const *)r.paths;
        dcpk_pipe_text(pipe, "<div class=\"tree\">\n");
        dcpk_tree_walk(&tree, r.n);
        dcpk_pipe_text(pipe, "</div>\n");
    }
    dcpk_html_left_out(pipe, r.n_all - r.n, "rows");
    for (size_t i = 0; i < r.n; i++) {
        dcpk_free(r.paths[i]);
        dcpk_free(r.leaves[i].html);
    }
    dcpk_free(r.leaves);
    dcpk_free(r.paths);
}

/* ---- maps ---- */

#define MAP_WIDTH    1000.0
#define AXIS_ROOM    44.0
#define LABEL_WIDTH  110.0 /* a box as wide as this, and as high as LABEL_HEIGHT, has its label */
#define LABEL_HEIGHT 28.0

static void put_box(struct dcpk_doc_pipe *pipe, const struct dcpk_doc_box *box, double height)
{
    const double x = MAP_WIDTH * box->x, y = MAP_WIDTH * height * box->y;
    const double w = MAP_WIDTH * box->width, h = MAP_WIDTH * height * box->height;

    dcpk_pipe_printf(pipe,
                     "<g class=\"c%u\"><rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" "
                     "height=\"%.2f\"><title>",
                     box->group % DCPK_HTML_COLOURS, x, y, w, h);
    dcpk_html_text(pipe, box->text);
    dcpk_pipe_text(pipe, "</title></rect>");
    if (w >= LABEL_WIDTH && h >= LABEL_HEIGHT) {
        dcpk_pipe_printf(pipe, "<text x=\"%.2f\" y=\"%.2f\">", x + w / 2, y + h / 2);
        dcpk_html_text(pipe, box->label);
        dcpk_pipe_text(pipe, "</text>");
    }
    dcpk_pipe_text(pipe, "</g>\n");
}

/* One line for each group, with the number of its boxes. */
static void put_map_legend(struct dcpk_doc_pipe *pipe, const struct dcpk_doc_map *map)
{
    dcpk_pipe_text(pipe, "<ol class=\"boxes\">\n");
    for (size_t i = 0; i < map->n; i++) {
        const unsigned group = map->boxes[i].group;
        size_t before = 0, n = 0;

        for (size_t k = 0; k < map->n; k++) {
            before += k < i && map->boxes[k].group == group;
            n += map->boxes[k].group == group;
        }
        if (before > 0)
            continue;
        dcpk_pipe_printf(pipe, "<li class=\"c%u\">", group % DCPK_HTML_COLOURS);
        dcpk_html_text(pipe, map->boxes[i].label);
        dcpk_pipe_printf(pipe, n == 1 ? ": %zu chunk</li>\n" : ": %zu chunks</li>\n", n);
    }
    dcpk_pipe_text(pipe, "</ol>\n");
}

static void put_map_axes(struct dcpk_doc_pipe *pipe, const struct dcpk_doc_map *map)
{
    const double height = MAP_WIDTH * map->height;

    if (map->x_axis != NULL) {
        dcpk_pipe_printf(pipe, "<text class=\"axis\" x=\"%.0f\" y=\"%.0f\">", MAP_WIDTH / 2,
                         height + AXIS_ROOM / 2);
        dcpk_html_text(pipe, map->x_axis);
        dcpk_pipe_text(pipe, "</text>\n");
    }
    if (map->y_axis != NULL) {
        dcpk_pipe_printf(pipe,
                         "<text class=\"axis\" transform=\"translate(%.0f %.0f) rotate(-90)\">",
                         -AXIS_ROOM / 2, height / 2);
        dcpk_html_text(pipe, map->y_axis);
        dcpk_pipe_text(pipe, "</text>\n");
    }
}

void dcpk_html_map(struct dcpk_doc_pipe *pipe, const struct dcpk_doc_map *map)
{
    dcpk_pipe_printf(pipe, "<details class=\"map\"%s><summary>", map->is_open ? " open" : "");
    put_name(pipe, map->title, 0, strlen(map->title));
    dcpk_pipe_text(pipe, "<span class=\"what\"><span>");
    dcpk_html_text(pipe, map->note);
    dcpk_pipe_printf(pipe,
                     "</span></span></summary>\n<div class=\"scroll\"><svg viewBox=\"%.0f -1 %.0f "
                     "%.0f\" role=\"img\">\n",
                     -AXIS_ROOM, MAP_WIDTH + AXIS_ROOM + 2, MAP_WIDTH * map->height + AXIS_ROOM);
    put_map_axes(pipe, map);
    for (size_t i = 0; i < map->n; i++) {
        put_box(pipe, &map->boxes[i], map->height);
        dcpk_pipe_rest(pipe);
    }
    dcpk_pipe_text(pipe, "</svg></div>\n");
    put_map_legend(pipe, map);
    dcpk_pipe_text(pipe, "</details>\n");
}

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
