/* SPDX-License-Identifier: Apache-2.0 */
/* key_tree.h - sorted paths as a tree. */
/*
 *   decoder.layers.mlp.fc1        decoder
 *   decoder.layers.mlp.fc2   ->     layers.mlp
 *   decoder.norm                      fc1
 *                                     fc2
 *                                   norm
 *
 * A node is a run of paths that begin with the same names. A node with one child is one with it.
 * Names end at a dot or a slash; "{0..3}" is one name. Names past DCPK_TREE_LEVELS stay in a leaf.
 */
#ifndef DCPK_LIB_REPORT_KEY_TREE_H
#define DCPK_LIB_REPORT_KEY_TREE_H

#include <stdbool.h>
#include <stddef.h>

#define DCPK_TREE_LEVELS 12

struct dcpk_tree_node {
    size_t first, last; /* paths [first, last); of a leaf one */
    size_t at, end;     /* bytes of paths[first] that name it in its parent */
    int level;          /* 0: it has no parent */
    bool is_leaf;
};

/* Borrowed. */
struct dcpk_tree {
    const char *const *paths;
    void (*enter)(void *context, const struct dcpk_tree_node *node);
    void (*leave)(void *context); /* after the children of a node that has some; NULL: nothing */
    void *context;
};

/* Visits the nodes of n paths, parents before their children. */
void dcpk_tree_walk(const struct dcpk_tree *tree, size_t n);

#endif
