/* SPDX-License-Identifier: Apache-2.0 */
/* key_tree.c - sorted paths as a tree. */
#include "lib/report/key_tree.h"

#include <string.h>

/*
 * Bytes of path up to and with the separator that ends its next name from `at` on; 0: it has none.
 */
static size_t next_name(const char *path, size_t at)
{
    const size_t n = strcspn(path + at, "./");
    const char *closing = strchr(path + at + n, '}');
    size_t end = at + n;

    if (closing != NULL && memchr(path + at, '{', n) != NULL) /* "{0..3}" is one name */
        end = (size_t)(closing - path);
    end += strcspn(path + end, "./");
    return path[end] == '\0' ? 0 : end + 1;
}

/* Paths [first, result) that begin as `first` does with its first n_bytes. */
static size_t end_of_node(const struct dcpk_tree *tree, size_t first, size_t last, size_t n_bytes)
{
    size_t i = first + 1;

    while (i < last && strncmp(tree->paths[i], tree->paths[first], n_bytes) == 0)
        i++;
    return i;
}

/* Paths [first, last) share their first `at` bytes. At most DCPK_TREE_LEVELS deep. */
static void walk_nodes(const struct dcpk_tree *tree, size_t first, size_t last, size_t at,
                       int level)
{
    for (size_t i = first, end; i < last; i = end) {
        const char *path = tree->paths[i];
        size_t name_end = 0, more;

        end = i + 1;
        if (level < DCPK_TREE_LEVELS)
            name_end = next_name(path, at);
        if (name_end != 0)
            end = end_of_node(tree, i, last, name_end);
        if (end == i + 1) {
            tree->enter(tree->context,
                        &(struct dcpk_tree_node){i, end, at, strlen(path), level, true});
            continue;
        }
        while ((more = next_name(path, name_end)) != 0 && end_of_node(tree, i, end, more) == end)
            name_end = more;
        tree->enter(tree->context,
                    &(struct dcpk_tree_node){i, end, at, name_end - 1, level, false});
        walk_nodes(tree, i, end, name_end, level + 1);
        if (tree->leave != NULL)
            tree->leave(tree->context);
    }
}

void dcpk_tree_walk(const struct dcpk_tree *tree, size_t n)
{
    walk_nodes(tree, 0, n, 0, 0);
}
