/* SPDX-License-Identifier: Apache-2.0 */
/* help.h - the options of a command for people, for man and for shells. */
#ifndef DCPK_TOOLS_HELP_H
#define DCPK_TOOLS_HELP_H

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

/* Prints text to stdout that troff takes as it is: no escape, no request, no hyphen for a dash. */
void dcpk_cli_put_troff(const char *text);

#endif
