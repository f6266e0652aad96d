/* SPDX-License-Identifier: Apache-2.0 */
/* box_tree.c - a flat tree of bounding boxes over boxes in the order of their offsets. */
#include "lib/plan/box_tree.h"

#include <inttypes.h>
#include <stdlib.h>

#include "lib/base/alloc.h"
#include "lib/base/order.h"

#define FANOUT 16

static int compare_offsets(const struct dcpk_box_tree *tree, size_t i, size_t j)
{
    return dcpk_compare_i64s(tree->span(tree->items, i), tree->span(tree->items, j),
                             (size_t)tree->rank);
}

static int compare_item_boxes(const void *a, const void *b, void *tree)
{
    const uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    const int order = compare_offsets(tree, i, j);

    if (order != 0)
        return order;
    return DCPK_THREE_WAY(i, j);
}

static bool in_order(const struct dcpk_box_tree *tree)
{
    for (size_t i = 1; i < tree->n; i++)
        if (compare_offsets(tree, i - 1, i) > 0)
            return false;
    return true;
}

static size_t parents_of(size_t n)
{
    return n / FANOUT + (n % FANOUT != 0);
}

static size_t count_nodes(size_t n)
{
    size_t n_nodes = 0;

    if (n <= FANOUT)
        return 0;
    do {
        n = parents_of(n);
        n_nodes += n;
    } while (n > 1);
    return n_nodes;
}

static size_t item_at(const struct dcpk_box_tree *tree, size_t at)
{
    return tree->order == NULL ? at : tree->order[at];
}

static const int64_t *span_at(const struct dcpk_box_tree *tree, size_t at)
{
    return tree->span(tree->items, item_at(tree, at));
}

/* Let the bounding box `node` hold [offset, end) as well. */
static void grow_node(int64_t *node, const int64_t *offset, const int64_t *end, int rank)
{
    for (int axis = 0; axis < rank; axis++) {
        if (offset[axis] < node[axis])
            node[axis] = offset[axis];
        if (end[axis] > node[rank + axis])
            node[rank + axis] = end[axis];
    }
}

static void fill_nodes(const struct dcpk_box_tree *tree, size_t n_nodes)
{
    const int rank = tree->rank;
    const size_t width = 2 * (size_t)rank;
    size_t child = 0, n_children = parents_of(tree->n);

    for (size_t i = 0; i < n_nodes; i++)
        for (int axis = 0; axis < rank; axis++) {
            tree->nodes[i * width + (size_t)axis] = INT64_MAX;
            tree->nodes[i * width + (size_t)(rank + axis)] = 0;
        }
    for (size_t at = 0; at < tree->n; at++) {
        const int64_t *span = span_at(tree, at);
        int64_t end[DCPK_MAX_RANK];

        for (int axis = 0; axis < rank; axis++)
            end[axis] = span[axis] + span[rank + axis];
        grow_node(tree->nodes + at / FANOUT * width, span, end, rank);
    }
    while (n_children > 1) { /* each level from the one below it */
        const size_t parent = child + n_children;

        for (size_t i = 0; i < n_children; i++) {
            const int64_t *node = tree->nodes + (child + i) * width;

            grow_node(tree->nodes + (parent + i / FANOUT) * width, node, node + rank, rank);
        }
        child = parent;
        n_children = parents_of(n_children);
    }
}

dcpk_status dcpk_box_tree_build(struct dcpk_box_tree *tree, struct dcpk_error *err)
{
    const size_t n_nodes = count_nodes(tree->n);

    tree->order = NULL;
    tree->nodes = NULL;
    if (tree->n > UINT32_MAX)
        return dcpk_fail(err, DCPK_ERANGE, "%zu boxes of one tensor, the limit is %" PRIu32,
                         tree->n, UINT32_MAX);
    if (!in_order(tree)) {
        tree->order = dcpk_alloc_array(tree->n, sizeof *tree->order, err);
        if (tree->order == NULL)
            return err->status;
        for (size_t i = 0; i < tree->n; i++)
            tree->order[i] = (uint32_t)i;
        qsort_r(tree->order, tree->n, sizeof *tree->order, compare_item_boxes, tree);
    }
    if (n_nodes > 0) {
        tree->nodes = dcpk_alloc_array(n_nodes, 2 * (size_t)tree->rank * sizeof *tree->nodes, err);
        if (tree->nodes == NULL) {
            dcpk_box_tree_release(tree);
            return err->status;
        }
        fill_nodes(tree, n_nodes);
    }
    return DCPK_OK;
}

void dcpk_box_tree_release(struct dcpk_box_tree *tree)
{
    dcpk_free(tree->order);
    dcpk_free(tree->nodes);
    tree->order = NULL;
    tree->nodes = NULL;
}

static bool node_meets(const int64_t *node, int rank, const struct dcpk_box *box)
{
    for (int axis = 0; axis < rank; axis++)
        if (node[axis] >= box->offset[axis] + box->extent[axis] ||
            node[rank + axis] <= box->offset[axis])
            return false;
    return true;
}

static bool span_meets(const int64_t *span, int rank, const struct dcpk_box *box)
{
    for (int axis = 0; axis < rank; axis++) {
        const int64_t end = span[axis] + span[rank + axis];
        const int64_t box_end = box->offset[axis] + box->extent[axis];

        if (dcpk_max_i64(span[axis], box->offset[axis]) >= dcpk_min_i64(end, box_end))
            return false;
    }
    return true;
}

/* The number of boxes from `at` on that are known to miss: the widest run that begins there and
 * misses. */
static size_t run_that_misses(const struct dcpk_box_tree *tree, const struct dcpk_box *box,
                              size_t at)
{
    const size_t node_width = 2 * (size_t)tree->rank;
    size_t width = FANOUT, level = 0, n_level = parents_of(tree->n), run = 0;

    while (at % width == 0 &&
           !node_meets(tree->nodes + (level + at / width) * node_width, tree->rank, box)) {
        run = width;
        if (n_level == 1)
            break;
        level += n_level;
        n_level = parents_of(n_level);
        width *= FANOUT;
    }
    return run;
}

bool dcpk_box_tree_next(const struct dcpk_box_tree *tree, const struct dcpk_box *box, size_t *at,
                        size_t *item)
{
    while (*at < tree->n) {
        const size_t run = tree->nodes == NULL ? 0 : run_that_misses(tree, box, *at);
        const size_t here = *at;

        if (run > 0) {
            *at += dcpk_min_size(run, tree->n - here);
            continue;
        }
        ++*at;
        if (span_meets(span_at(tree, here), tree->rank, box)) {
            *item = item_at(tree, here);
            return true;
        }
    }
    return false;
}

uint64_t dcpk_box_tree_bytes(size_t n, int rank)
{
    const uint64_t node_bytes = 2 * (uint64_t)rank * sizeof(int64_t);

    if (n <= 1)
        return 0;
    return n * sizeof(uint32_t) + count_nodes(n) * node_bytes;
}
