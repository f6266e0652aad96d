/* SPDX-License-Identifier: Apache-2.0 */
/* help.h - the options of a command for people, for man and for shells. */
#ifndef DCPK_TOOLS_HELP_H
#define DCPK_TOOLS_HELP_H

#include <stddef.h>

#include "tools/options.h"

/* Options that every command has, in addition to its table. */
#define DCPK_HELP_NO_SANDBOX "no-sandbox"
#define DCPK_HELP_COLOR      "color"

#define DCPK_HELP_SHORT "h"
#define DCPK_HELP_ALL   ""

/*
 * Prints to stdout. cli->options: a flat table. form: DCPK_HELP_SHORT (-h: the everyday options, a
 * line each), DCPK_HELP_ALL (--help), "man" (--help=man: a page in man(7)), "words" (--help=words:
 * each option on a line of its own, for completion). Returns the exit code; 2 for another form.
 */
int dcpk_cli_help(const struct dcpk_cli *cli, const char *form);

/* ---- topics ---- */

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
