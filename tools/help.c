/* SPDX-License-Identifier: Apache-2.0 */
/* help.c - the options of a command as text, as a man page, and as words for completion. */
#include "tools/help.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/order.h"
#include "lib/base/text.h"
#include "tools/cmd.h"
#include "tools/version.h"
#include "tools/wrap.h"

#define HELP_COLUMN  34
#define SHORT_COLUMN 28 /* of the texts of -h */

/* Options that every command has. */
static const struct dcpk_option common[] = {
    {.name = DCPK_HELP_NO_SANDBOX,
     .help = "run without the sandbox, which lets this command use only the files that its "
             "arguments name, no programs and no network"},
    {.name = DCPK_HELP_COLOR,
     .argument = "WHEN",
     .help = "colours: always, never or auto, on a terminal unless NO_COLOR is set (default)"},
    {.name = "help", .letter = 'h', .help = "print this and stop; -h: the everyday options"}};

/* Prints each line of `text` as a paragraph, the first after `at` columns that are there already.
 */
static void put_paragraphs(const char *text, size_t at, size_t indent)
{
    for (const char *end = text; *end != '\0'; text = end + 1) {
        end = text + strcspn(text, "\n");
        dcpk_cli_printf(stdout, "%*s", (int)(indent - dcpk_min_size(at, indent)), "");
        dcpk_cli_put_wrapped(stdout, text, (size_t)(end - text), indent, indent);
        dcpk_cli_printf(stdout, "\n");
        at = 0;
    }
}

static void put_option(const struct dcpk_option *option)
{
    char left[96];
    char letter[8] = "   ";
    size_t at;

    if (option->letter != 0)
        snprintf(letter, sizeof letter, "-%c,", option->letter);
    snprintf(left, sizeof left, "  %s --%s", letter, option->name);
    at = strlen(left);
    if (option->argument != NULL)
        snprintf(left + at, sizeof left - at, " %s", option->argument);
    dcpk_cli_put_text(stdout, left);
    at = strlen(left);
    if (at >= HELP_COLUMN) {
        dcpk_cli_printf(stdout, "\n");
        at = 0;
    }
    put_paragraphs(option->help, at, HELP_COLUMN);
}

/* A list of flags on its way to stdout. */
struct flag_list {
    char before[DCPK_CLI_FLAG_BYTES];
    size_t at; /* columns */
};

/* Writes the flag of a row to list->before. Returns false if it is there already: a name that has
 * several rows is printed once. */
static bool next_flag(struct flag_list *list, const struct dcpk_option *row)
{
    char flag[DCPK_CLI_FLAG_BYTES];

    if (strcmp(dcpk_cli_flag(row->name, flag), list->before) == 0)
        return false;
    memcpy(list->before, flag, sizeof flag);
    return true;
}

/* The flags of each part are one paragraph. */
static void put_flag(void *context, const struct dcpk_option *row, const char *part)
{
    struct flag_list *list = context;
    size_t n;

    if (!next_flag(list, row))
        return;
    n = strlen(list->before) + strlen(" --");
    if (part != NULL) {
        dcpk_cli_printf(stdout, "\n  %s:", part);
        list->at = strlen(part) + strlen("  :");
    }
    if (list->at + n > dcpk_cli_columns(stdout)) {
        dcpk_cli_printf(stdout, "\n   ");
        list->at = strlen("   ");
    }
    dcpk_cli_printf(stdout, " --%s", list->before);
    list->at += n;
}

static void put_more(const struct dcpk_cli_more *more)
{
    struct flag_list list = {.at = 0};

    dcpk_cli_printf(stdout, "\n%s:", more->title);
    more->each(put_flag, &list);
    dcpk_cli_printf(stdout, "\n");
}

static bool is_everyday(const struct dcpk_cli *cli, const struct dcpk_option *option)
{
    return option->kind != DCPK_OPTION_GROUP && option->help != NULL &&
           (cli->everyday == NULL ||
            dcpk_option_has_word(cli->everyday, option->name, strlen(option->name)));
}

/* Prints the options that are, or are not, everyday ones, with the titles of groups that have one.
 */
static void put_options(const struct dcpk_cli *cli, bool everyday)
{
    const struct dcpk_option *group = NULL;

    for (const struct dcpk_option *o = cli->options; o->kind != DCPK_OPTION_END; o++) {
        if (o->kind == DCPK_OPTION_GROUP)
            group = o;
        if (o->kind == DCPK_OPTION_GROUP || o->help == NULL || is_everyday(cli, o) != everyday)
            continue;
        if (group != NULL && (!everyday || cli->everyday == NULL))
            dcpk_cli_printf(stdout, "\n%s:\n", group->help);
        group = NULL;
        put_option(o);
    }
}

static void put_head(const struct dcpk_cli *cli)
{
    dcpk_cli_printf(stdout, "usage: dcpkit %s %s\n", cli->name, cli->usage);
    put_paragraphs(cli->summary, 0, 0);
}

/* Prints what --help shows. */
static void put_help(const struct dcpk_cli *cli)
{
    put_head(cli);
    if (cli->everyday != NULL)
        dcpk_cli_printf(stdout, "\neveryday options:\n");
    else if (cli->options->kind != DCPK_OPTION_GROUP)
        dcpk_cli_printf(stdout, "\noptions:\n");
    put_options(cli, true);
    if (cli->everyday != NULL && cli->options->kind != DCPK_OPTION_GROUP)
        dcpk_cli_printf(stdout, "\noptions:\n");
    if (cli->everyday != NULL)
        put_options(cli, false);
    for (size_t i = 0; i < DCPK_COUNT(common); i++)
        put_option(&common[i]);
    if (cli->more != NULL)
        put_more(cli->more);
    dcpk_cli_printf(stdout, "\nexample:\n  %s\n", cli->example);
}

/* Prints an option with the first clause of its help. */
static void put_option_line(const struct dcpk_option *option)
{
    size_t n = strcspn(option->help, ";(\n");
    char left[96];
    int at;

    while (n > 0 && (option->help[n - 1] == ' ' || option->help[n - 1] == ','))
        n--;
    at = snprintf(left, sizeof left, "  --%s%s%s ", option->name,
                  option->argument != NULL ? " " : "",
                  option->argument != NULL ? option->argument : "");
    dcpk_cli_printf(stdout, "%-*s", SHORT_COLUMN, left);
    dcpk_cli_put_wrapped(stdout, option->help, n, dcpk_max_size((size_t)at, SHORT_COLUMN),
                         SHORT_COLUMN);
    dcpk_cli_printf(stdout, "\n");
}

/* Prints what -h shows: about 15 lines. */
static void put_short_help(const struct dcpk_cli *cli)
{
    size_t n_rows = 0;

    put_head(cli);
    dcpk_cli_printf(stdout, "\n");
    for (const struct dcpk_option *o = cli->options; o->kind != DCPK_OPTION_END; o++) {
        n_rows += o->kind != DCPK_OPTION_GROUP && o->help != NULL;
        if (is_everyday(cli, o))
            put_option_line(o);
    }
    if (n_rows > 0)
        dcpk_cli_printf(stdout, "\n'dcpkit %s --help' explains all %zu options.\n", cli->name,
                        n_rows);
    dcpk_cli_printf(stdout, "example:\n  %s\n", cli->example);
}

/* ---- a man page: man(7) of groff ---- */

/* Prints text that troff takes as it is: no escape, no request, no hyphen for a dash. */
static void put_troff(const char *text)
{
    for (bool is_start = true; *text != '\0'; is_start = *text++ == '\n')
        if (*text == '\n')
            dcpk_cli_printf(stdout, "\n.br\n");
        else if (is_start && (*text == '.' || *text == '\''))
            dcpk_cli_printf(stdout, "\\&%c", *text);
        else if (*text == '\\')
            dcpk_cli_printf(stdout, "\\e");
        else if (*text == '-')
            dcpk_cli_printf(stdout, "\\-");
        else
            dcpk_cli_printf(stdout, "%c", *text);
}

static void put_man_option(const struct dcpk_option *option)
{
    dcpk_cli_printf(stdout, ".TP\n");
    if (option->letter != 0)
        dcpk_cli_printf(stdout, "\\fB\\-%c\\fR, ", option->letter);
    dcpk_cli_printf(stdout, "\\fB\\-\\-");
    put_troff(option->name);
    dcpk_cli_printf(stdout, "\\fR");
    if (option->argument != NULL) {
        dcpk_cli_printf(stdout, " \\fI");
        put_troff(option->argument);
        dcpk_cli_printf(stdout, "\\fR");
    }
    dcpk_cli_printf(stdout, "\n");
    put_troff(option->help);
    dcpk_cli_printf(stdout, "\n");
}

static void put_man_flag(void *context, const struct dcpk_option *row, const char *part)
{
    struct flag_list *list = context;

    if (!next_flag(list, row))
        return;
    if (part != NULL)
        dcpk_cli_printf(stdout, ".TP\n%s\n", part);
    dcpk_cli_printf(stdout, "\\fB\\-\\-%s\\fR\n", list->before);
}

static void put_man_page(const struct dcpk_cli *cli)
{
    struct flag_list list = {.at = 0};

    dcpk_cli_printf(stdout, ".TH \"DCPKIT\\-%s\" 1 \"\" \"dcpkit " DCPK_VERSION "\"\n.SH NAME\n",
                    cli->name);
    dcpk_cli_printf(stdout, "dcpkit\\-%s \\- %.*s\n.SH SYNOPSIS\n\\fBdcpkit %s\\fR ", cli->name,
                    (int)strcspn(cli->summary, ".:;\n"), cli->summary, cli->name);
    put_troff(cli->usage);
    dcpk_cli_printf(stdout, "\n.SH DESCRIPTION\n");
    put_troff(cli->summary);
    dcpk_cli_printf(stdout, "\n.SH OPTIONS\n");
    for (const struct dcpk_option *o = cli->options; o->kind != DCPK_OPTION_END; o++)
        if (o->kind == DCPK_OPTION_GROUP)
            dcpk_cli_printf(stdout, ".SS %s\n", o->help);
        else if (o->help != NULL)
            put_man_option(o);
    dcpk_cli_printf(stdout, ".SS all commands\n");
    for (size_t i = 0; i < DCPK_COUNT(common); i++)
        put_man_option(&common[i]);
    if (cli->more != NULL) {
        dcpk_cli_printf(stdout, ".SH FLAGS\n");
        put_troff(cli->more->title);
        dcpk_cli_printf(stdout, ".\n");
        cli->more->each(put_man_flag, &list);
    }
    dcpk_cli_printf(stdout, ".SH EXAMPLE\n.nf\n");
    put_troff(cli->example);
    dcpk_cli_printf(stdout, "\n.fi\n.SH SEE ALSO\n.BR dcpkit (1)\n");
}

/* ---- completion ---- */

static void put_word(const struct dcpk_option *option)
{
    if (option->kind != DCPK_OPTION_GROUP && option->help != NULL)
        dcpk_cli_printf(stdout, "--%s\n", option->name);
}

static void put_flag_word(void *context, const struct dcpk_option *row, const char *part)
{
    struct flag_list *list = context;

    (void)part;
    if (next_flag(list, row))
        dcpk_cli_printf(stdout, "--%s\n", list->before);
}

static void put_words(const struct dcpk_cli *cli)
{
    struct flag_list list = {.at = 0};

    for (const struct dcpk_option *o = cli->options; o->kind != DCPK_OPTION_END; o++)
        put_word(o);
    for (size_t i = 0; i < DCPK_COUNT(common); i++)
        put_word(&common[i]);
    if (cli->more != NULL)
        cli->more->each(put_flag_word, &list);
}

int dcpk_cli_help(const struct dcpk_cli *cli, const char *form)
{
    static const struct {
        const char *form;
        void (*put)(const struct dcpk_cli *cli);
    } forms[] = {
        {DCPK_HELP_SHORT, put_short_help},
        {DCPK_HELP_ALL, put_help},
        {"man", put_man_page},
        {"words", put_words},
    };
    size_t i = 0;

    while (i < DCPK_COUNT(forms) && strcmp(forms[i].form, form) != 0)
        i++;
    if (i == DCPK_COUNT(forms))
        return dcpk_cli_usage(cli->name, "--help '%s' is not man or words", form);
    forms[i].put(cli);
    return dcpk_cli_end(cli->name);
}

/* ---- topics ---- */

#define HEADING "# "
#define COMMAND "    "

const struct dcpk_topic *dcpk_topic_find(const char *name)
{
    for (const struct dcpk_topic *topic = dcpk_topics; topic->name != NULL; topic++)
        if (strcmp(topic->name, name) == 0)
            return topic;
    return NULL;
}

int dcpk_topic_print(const struct dcpk_topic *topic)
{
    for (const char *const *line = topic->lines; *line != NULL; line++) {
        const bool is_command = dcpk_starts_with(*line, COMMAND);
        const size_t skipped = dcpk_starts_with(*line, HEADING) ? strlen(HEADING) : 0;

        if (line > topic->lines && !(is_command && dcpk_starts_with(line[-1], COMMAND)) &&
            !dcpk_starts_with(line[-1], HEADING))
            dcpk_cli_printf(stdout, "\n");
        if (is_command)
            dcpk_cli_put_text(stdout, *line);
        else
            dcpk_cli_put_wrapped(stdout, *line + skipped, strlen(*line + skipped), 0, 0);
        dcpk_cli_printf(stdout, "\n");
    }
    return dcpk_cli_end("help");
}

int dcpk_topic_print_man(const struct dcpk_topic *topic)
{
    dcpk_cli_printf(stdout,
                    ".TH \"DCPKIT\\-%s\" 7 \"\" \"dcpkit " DCPK_VERSION
                    "\"\n.SH NAME\ndcpkit\\-%s \\- ",
                    topic->name, topic->name);
    put_troff(topic->lines[0]);
    dcpk_cli_printf(stdout, "\n");
    for (const char *const *line = topic->lines + 1; *line != NULL; line++) {
        const char *text = *line;

        if (dcpk_starts_with(text, HEADING)) {
            dcpk_cli_printf(stdout, ".SH ");
            text += strlen(HEADING);
        } else if (dcpk_starts_with(text, COMMAND)) {
            dcpk_cli_printf(stdout, ".PP\n.nf\n");
        } else {
            dcpk_cli_printf(stdout, ".PP\n");
        }
        put_troff(text);
        dcpk_cli_printf(stdout, "\n");
        if (text[0] == ' ')
            dcpk_cli_printf(stdout, ".fi\n");
    }
    dcpk_cli_printf(stdout, ".SH SEE ALSO\n.BR dcpkit (1)\n");
    return dcpk_cli_end("help");
}
