/* SPDX-License-Identifier: Apache-2.0 */
/* html_treemap.c - sizes of nested things as nested rectangles, squarified (Bruls, Huizing, van
 * Wijk: Squarified Treemaps, 2000). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/report/html_priv.h"
#include "lib/report/plain.h"

#define LEAST_PART (1.0 / 400) /* of all: smaller nodes of one parent are drawn as one */
#define ASPECT     2.0         /* of the picture as it is laid out; a phone stretches it */
#define GAP        0.25        /* percent around the nodes of the first level */

/* A rectangle; x and width in percent of the width, y and height of the height. */
struct tile {
    double x, y, width, height;
};

/* Leaves [first, end) of one parent; n_others: how many nodes it stands for, 0: itself. */
struct node {
    double n_bytes;
    size_t first, end, n_others;
};

struct treemap {
    struct dcpk_doc_pipe *pipe;
    const struct dcpk_doc_treemap *map;
    double all;
};

static void put_tile(struct dcpk_doc_pipe *pipe, const struct tile *at)
{
    dcpk_pipe_printf(pipe, "style=\"inset:%.4g%% %.4g%% %.4g%% %.4g%%\"", at->y,
                     100 - at->x - at->width, 100 - at->y - at->height, at->x);
}

/* "weights, layer 3, mlp.linear_fc1.weight: 1.50 MiB" */
static void put_story(const struct treemap *t, const struct node *node, int level)
{
    const struct dcpk_doc_leaf *leaf = &t->map->leaves[node->first];
    char size[DCPK_PLAIN_SIZE_BYTES];

    for (int i = 0; i < level; i++) {
        dcpk_html_text(t->pipe, leaf->path[i]);
        dcpk_pipe_text(t->pipe, ", ");
    }
    if (node->n_others > 0)
        dcpk_pipe_printf(t->pipe, "%zu smaller ones", node->n_others);
    else
        dcpk_html_text(t->pipe, leaf->path[level]);
    dcpk_pipe_printf(t->pipe, ": %s", dcpk_plain_size((uint64_t)node->n_bytes, size));
}

/* "linear_fc1" of "mlp.linear_fc1.weight". */
static void put_label(struct dcpk_doc_pipe *pipe, const char *name)
{
    const char *end = strstr(name, ".weight");
    const char *first = name;

    if (end == NULL)
        end = name + strlen(name);
    for (const char *c = name; c < end; c++)
        if (c[0] == '.' && c + 1 < end)
            first = c + 1;
    dcpk_html_put(pipe, first, (size_t)(end - first));
}

static void put_leaf_tile(const struct treemap *t, const struct node *node, int level,
                          const struct tile *at, size_t colour)
{
    dcpk_pipe_printf(t->pipe, "<i class=\"c%zu\" ", colour % DCPK_HTML_COLOURS);
    put_tile(t->pipe, at);
    dcpk_pipe_text(t->pipe, " title=\"");
    put_story(t, node, level);
    dcpk_pipe_text(t->pipe, "\">");
    if (node->n_others == 0 && at->width > 4 && at->height > 4)
        put_label(t->pipe, t->map->leaves[node->first].path[level]);
    dcpk_pipe_text(t->pipe, "</i>\n");
    dcpk_pipe_rest(t->pipe);
}

static int compare_nodes(const void *left, const void *right)
{
    const struct node *a = left, *b = right;

    if (a->n_bytes != b->n_bytes)
        return DCPK_THREE_WAY(b->n_bytes, a->n_bytes);
    return DCPK_THREE_WAY(a->first, b->first);
}

/* Finds the nodes of a level in leaves [first, end), the largest first. Returns how many. */
static size_t find_nodes(const struct treemap *t, size_t first, size_t end, int level,
                         struct node *nodes)
{
    const struct dcpk_doc_leaf *leaves = t->map->leaves;
    struct node others = {.first = end};
    size_t n = 0;

    for (size_t i = first, next; i < end; i = next) {
        struct node node = {.first = i};

        for (next = i; next < end && strcmp(leaves[next].path[level], leaves[i].path[level]) == 0;
             next++)
            node.n_bytes += (double)leaves[next].n_bytes;
        node.end = next;
        if (level > 0 && node.n_bytes < LEAST_PART * t->all) {
            if (others.n_others == 0)
                others.first = i;
            others.n_bytes += node.n_bytes;
            others.n_others++;
        } else if (node.n_bytes > 0) {
            nodes[n++] = node;
        }
    }
    if (others.n_bytes > 0)
        nodes[n++] = others;
    qsort(nodes, n, sizeof *nodes, compare_nodes);
    return n;
}

/* The worst ratio of sides in a row of nodes along a side of length `side`; in equal units. */
static double worst_ratio(const struct node *row, size_t n, double side, double scale)
{
    const double largest = row[0].n_bytes * scale, least = row[n - 1].n_bytes * scale;
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += row[i].n_bytes * scale;
    return fmax(side * side * largest / (sum * sum), sum * sum / (side * side * least));
}

/* Places nodes one row after the other, each along the shorter side of the room that is left. */
static void place_nodes(const struct node *nodes, size_t n, struct tile room, struct tile *tiles)
{
    double left = 0;

    for (size_t i = 0; i < n; i++)
        left += nodes[i].n_bytes;
    for (size_t i = 0, end; i < n; i = end) {
        const double width = room.width * ASPECT, side = fmin(width, room.height);
        const bool is_column = width > room.height;
        const double scale = width * room.height / left;
        double sum = nodes[i].n_bytes, at = 0;

        for (end = i + 1; end < n && worst_ratio(nodes + i, end - i + 1, side, scale) <=
                                         worst_ratio(nodes + i, end - i, side, scale);
             end++)
            sum += nodes[end].n_bytes;
        for (size_t k = i; k < end; k++) {
            const double part = nodes[k].n_bytes / sum, row = sum / left;

            if (is_column)
                tiles[k] = (struct tile){room.x, room.y + at * room.height, room.width * row,
                                         room.height * part};
            else
                tiles[k] = (struct tile){room.x + at * room.width, room.y, room.width * part,
                                         room.height * row};
            at += part;
        }
        if (is_column) {
            room.x += room.width * (sum / left);
            room.width *= 1 - sum / left;
        } else {
            room.y += room.height * (sum / left);
            room.height *= 1 - sum / left;
        }
        left -= sum;
    }
}

/* Draws leaves [first, end) from a level on, at most DCPK_DOC_LEVELS deep. */
static void put_level(const struct treemap *t, const struct node *of, int level,
                      const struct tile *room, size_t colour)
{
    const size_t most = of->end - of->first;
    struct node *nodes = dcpk_alloc_array(most, sizeof *nodes, t->pipe->err);
    struct tile *tiles = NULL;
    size_t n = 0;

    if (nodes != NULL)
        tiles = dcpk_alloc_array(most, sizeof *tiles, t->pipe->err);
    if (tiles != NULL) {
        n = find_nodes(t, of->first, of->end, level, nodes);
        place_nodes(nodes, n, *room, tiles);
    }
    for (size_t i = 0; i < n; i++) {
        struct tile inner = tiles[i];

        if (level == 0)
            colour = t->map->leaves[nodes[i].first].group;
        if (level == DCPK_DOC_LEVELS - 1 || nodes[i].n_others > 0) {
            put_leaf_tile(t, &nodes[i], level, &tiles[i], colour);
            continue;
        }
        if (level == 0 && inner.width > 4 * GAP && inner.height > 4 * GAP)
            inner = (struct tile){inner.x + GAP, inner.y + GAP * ASPECT, inner.width - 2 * GAP,
                                  inner.height - 2 * GAP * ASPECT};
        put_level(t, &nodes[i], level + 1, &inner, colour);
        dcpk_pipe_text(t->pipe, "<u ");
        put_tile(t->pipe, &inner);
        dcpk_pipe_text(t->pipe, ">");
        if (level > 0 && inner.width > 8 && inner.height > 12)
            dcpk_html_text(t->pipe, t->map->leaves[nodes[i].first].path[level]);
        dcpk_pipe_text(t->pipe, "</u>\n");
    }
    dcpk_free(tiles);
    dcpk_free(nodes);
}

void dcpk_html_treemap(struct dcpk_doc_pipe *pipe, const struct dcpk_doc_treemap *map)
{
    struct treemap t = {.pipe = pipe, .map = map};

    for (size_t i = 0; i < map->n; i++)
        t.all += (double)map->leaves[i].n_bytes;
    if (t.all <= 0)
        return;
    dcpk_pipe_text(pipe, "<figure><figcaption>");
    dcpk_html_text(pipe, map->title);
    dcpk_pipe_text(pipe, "</figcaption>\n<div class=\"treemap\">\n");
    put_level(&t, &(struct node){.first = 0, .end = map->n}, 0, &(struct tile){0, 0, 100, 100}, 0);
    dcpk_pipe_text(pipe, "</div></figure>\n");
}
