/* SPDX-License-Identifier: Apache-2.0 */
/* topics.h - guides to read at the terminal and as man pages; the build embeds tools/topics. */
#ifndef DCPK_TOOLS_TOPICS_H
#define DCPK_TOOLS_TOPICS_H

#include <stddef.h>

/*
 * Lines of a guide, NULL after the last: the first is its title, "# " begins a heading, four blanks
 * a command to paste; any other line is a paragraph.
 */
struct dcpk_topic {
    const char *name;
    const char *const *lines;
};

extern const struct dcpk_topic dcpk_topics[]; /* made by the build; the last has no name */

/* The lines of formats/COMPATIBILITY.md without backquotes, NULL after the last. */
extern const char *const *const dcpk_compatibility;

const struct dcpk_topic *dcpk_topic_find(const char *name); /* NULL: there is none */
/* Print a guide as text, or, for the build, as a page of man(7). Returns the exit code. */
int dcpk_topic_print(const struct dcpk_topic *topic);
int dcpk_topic_print_man(const struct dcpk_topic *topic);

#endif
