/* SPDX-License-Identifier: Apache-2.0 */
/* options.c - a table of options as getopt_long wants it, and as --help prints it. */
#include "tools/options.h"

#include <assert.h>
#include <getopt.h>
#include <string.h>

#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/exec/exec.h"
#include "tools/cmd.h"
#include "tools/confine.h"
#include "tools/wrap.h"

#define MAX_OPTIONS    64
#define HELP_COLUMN    34
#define SHORT_COLUMN   28 /* of the texts of -h */
#define NO_SANDBOX     "no-sandbox"
#define COLOR          "color"
#define NO_SANDBOX_VAL 1 /* of getopt_long: not a letter, not a row */
#define COLOR_VAL      2
#define HELP_VAL       3
#define FIRST_ROW_VAL  256 /* of row 0, past all letters */

#define DCPK_OPT_STRUCT struct dcpk_verbosity
const struct dcpk_option dcpk_verbosity_options[] = {
    DCPK_OPT_FLAG("progress", wants_progress,
                  "show progress on stderr even if that is not a terminal: a line every 5 s and at "
                  "the end (default: every 10 s)"),
    DCPK_OPT(DCPK_OPTION_FLAG, 'q', "quiet", NULL, bool, is_quiet,
             "no progress and no notes; only errors and the requested results"),
    DCPK_OPT_END};

/* Appends a table to `flat`, which holds n rows, with the rows that ROWS stand for in their places;
 * at_bytes: of the table's struct. Returns how many rows there are then. */
static size_t options_flatten(const struct dcpk_option *table, size_t at_bytes,
                              struct dcpk_option flat[MAX_OPTIONS + 1], size_t n)
{
    for (const struct dcpk_option *row = table; row->kind != DCPK_OPTION_END; row++) {
        if (row->kind == DCPK_OPTION_ROWS) {
            n = options_flatten(row->rows, at_bytes + row->at_bytes, flat, n);
            continue;
        }
        assert(n < MAX_OPTIONS);
        flat[n] = *row;
        flat[n++].at_bytes += at_bytes;
    }
    flat[n] = (struct dcpk_option)DCPK_OPT_END;
    return n;
}

/* ---- help ---- */

/* A paragraph a line of `text`, the first after `at` columns that stand there already. */
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

const char *dcpk_cli_flag(const char *name, char text[DCPK_CLI_FLAG_BYTES])
{
    snprintf(text, DCPK_CLI_FLAG_BYTES, "%s", name);
    for (char *c = text; *c != '\0'; c++)
        if (*c == '_')
            *c = '-';
    return text;
}

/* A list of flags on its way to stdout. */
struct flag_list {
    char before[DCPK_CLI_FLAG_BYTES];
    size_t at; /* columns */
};

/* The flags of each part are one paragraph; a name that has several rows stands in it once. */
static void put_flag(void *context, const struct dcpk_option *row, const char *part)
{
    struct flag_list *list = context;
    char flag[DCPK_CLI_FLAG_BYTES];
    const size_t n = strlen(dcpk_cli_flag(row->name, flag)) + strlen(" --");

    if (strcmp(flag, list->before) == 0)
        return;
    memcpy(list->before, flag, sizeof flag);
    if (part != NULL) {
        dcpk_cli_printf(stdout, "\n  %s:", part);
        list->at = strlen(part) + strlen("  :");
    }
    if (list->at + n > dcpk_cli_columns(stdout)) {
        dcpk_cli_printf(stdout, "\n   ");
        list->at = strlen("   ");
    }
    dcpk_cli_printf(stdout, " --%s", flag);
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

/* Prints the options that are, or are not, everyday ones, with the titles of groups that have
 * one. */
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

static int put_command_help(const struct dcpk_cli *cli)
{
    static const struct dcpk_option added[] = {
        {.name = NO_SANDBOX,
         .help = "run without the sandbox, which lets this command use only the files that its "
                 "arguments name, no programs and no network"},
        {.name = COLOR,
         .argument = "WHEN",
         .help = "colours: always, never or auto, on a terminal unless NO_COLOR is set (default)"},
        {.name = "help", .letter = 'h', .help = "print this and stop; -h: the everyday options"}};
    struct dcpk_error err = DCPK_ERROR_INIT;

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
    for (size_t i = 0; i < DCPK_COUNT(added); i++)
        put_option(&added[i]);
    if (cli->more != NULL)
        put_more(cli->more);
    dcpk_cli_printf(stdout, "\nexample:\n  %s\n", cli->example);
    if (dcpk_cli_flush(&err) != DCPK_OK)
        return dcpk_cli_fail(cli->name, &err);
    return DCPK_EXIT_OK;
}

/* Prints an option in one line: the first clause of its help, as far as the line goes. */
static void put_option_line(const struct dcpk_option *option)
{
    const size_t columns = dcpk_cli_columns(stdout) - SHORT_COLUMN;
    size_t n = strcspn(option->help, ";(\n");
    char left[96];

    if (n > columns)
        for (n = columns; n > 0 && option->help[n] != ' ';)
            n--;
    while (n > 0 && (option->help[n - 1] == ' ' || option->help[n - 1] == ','))
        n--;
    snprintf(left, sizeof left, "  --%s%s%s ", option->name, option->argument != NULL ? " " : "",
             option->argument != NULL ? option->argument : "");
    dcpk_cli_printf(stdout, "%-*s%.*s\n", SHORT_COLUMN, left, (int)n, option->help);
}

/* Prints what -h shows: about 15 lines. */
static int put_short_help(const struct dcpk_cli *cli)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    size_t n_rows = 0;

    put_head(cli);
    dcpk_cli_printf(stdout, "\n");
    for (const struct dcpk_option *o = cli->options; o->kind != DCPK_OPTION_END; o++) {
        n_rows += o->kind != DCPK_OPTION_GROUP && o->help != NULL;
        if (is_everyday(cli, o))
            put_option_line(o);
    }
    dcpk_cli_printf(stdout, "\n'dcpkit %s --help' explains all %zu options.\nexample:\n  %s\n",
                    cli->name, n_rows, cli->example);
    if (dcpk_cli_flush(&err) != DCPK_OK)
        return dcpk_cli_fail(cli->name, &err);
    return DCPK_EXIT_OK;
}

/* ---- parsing ---- */

static bool option_is_path(const struct dcpk_option *option)
{
    return dcpk_option_is_text(option) && option->kind >= DCPK_OPTION_FILE;
}

/* Store an option's argument, NULL of a flag. Returns -1, or the exit code after a message. */
static int take_option(const struct dcpk_cli *cli, const struct dcpk_option *option,
                       const char *argument)
{
    char text[DCPK_OPTION_TAKES_BYTES];
    uint64_t size;

    if (option->kind == DCPK_OPTION_FLAG)
        argument = "true";
    if (option_is_path(option) && strcmp(argument, "-") == 0)
        return dcpk_cli_usage(cli->name,
                              "--%s takes the name of a file; '-' is not one: it does not mean "
                              "stdin or stdout here (./- is a file of that name)",
                              option->name);
    if (dcpk_option_read(option, argument, cli->values)) {
        if (option->kind != DCPK_OPTION_SIZE)
            return -1;
        memcpy(&size, dcpk_option_field(option, cli->values), sizeof size);
        if (size >= DCPK_EXEC_MIN_MEMORY_BYTES)
            return -1;
        return dcpk_cli_usage(cli->name, "--%s '%s' is too small: the minimum is 16M", option->name,
                              argument);
    }
    if (option->kind == DCPK_OPTION_LIST)
        return dcpk_cli_usage(cli->name, "--%s is given more than %d times", option->name,
                              DCPK_OPTION_MAX_LIST);
    return dcpk_cli_usage(cli->name, "--%s '%s' is not %s", option->name, argument,
                          dcpk_option_takes(option, text));
}

/* The table in getopt_long's form. */
static void fill_getopt(const struct dcpk_cli *cli, struct option *longs, char *letters)
{
    size_t n = 0, n_longs = 0;

    letters[n++] = ':'; /* a missing argument is not an unknown option */
    for (int i = 0; cli->options[i].kind != DCPK_OPTION_END; i++) {
        const struct dcpk_option *option = &cli->options[i];
        const bool has_argument = option->kind != DCPK_OPTION_FLAG;

        if (option->kind == DCPK_OPTION_GROUP)
            continue;
        longs[n_longs].name = option->name;
        longs[n_longs].has_arg = has_argument ? required_argument : no_argument;
        longs[n_longs++].val = FIRST_ROW_VAL + i;
        if (option->letter != 0) {
            letters[n++] = option->letter;
            if (has_argument)
                letters[n++] = ':';
        }
    }
    longs[n_longs++] = (struct option){.name = NO_SANDBOX, .val = NO_SANDBOX_VAL};
    longs[n_longs++] =
        (struct option){.name = COLOR, .has_arg = required_argument, .val = COLOR_VAL};
    longs[n_longs] = (struct option){.name = "help", .val = HELP_VAL};
    letters[n++] = 'h';
    letters[n] = '\0';
}

static const struct dcpk_option *option_of(const struct dcpk_cli *cli, int c)
{
    const struct dcpk_option *option = cli->options;

    if (c >= FIRST_ROW_VAL)
        return &cli->options[c - FIRST_ROW_VAL];
    while (option->kind != DCPK_OPTION_END && option->letter != c)
        option++;
    return option;
}

bool dcpk_cli_is_near(const char *word, const char *name)
{
    const size_t n_word = strlen(word), n_name = strlen(name);
    const size_t least = dcpk_min_size(n_word, n_name), most = n_word + n_name - least;
    size_t before = 0, behind = 0;

    while (before < least && word[before] == name[before])
        before++;
    while (behind < least - before && word[n_word - 1 - behind] == name[n_name - 1 - behind])
        behind++;
    return most - before - behind <= 3 && 2 * (most - before - behind) <= least;
}

/* A word, and where the name of the first row that it is near to is put. */
struct near_flag {
    char asked[DCPK_CLI_FLAG_BYTES], *name;
    bool is_found;
};

static void find_near(void *context, const struct dcpk_option *row, const char *part)
{
    struct near_flag *near = context;
    char flag[DCPK_CLI_FLAG_BYTES];

    (void)part;
    if (near->is_found || !dcpk_cli_is_near(near->asked, dcpk_cli_flag(row->name, flag)))
        return;
    snprintf(near->name, DCPK_CLI_FLAG_BYTES, "%s", row->name);
    near->is_found = true;
}

const char *dcpk_cli_near_flag(const struct dcpk_cli_more *more, const char *word,
                               char name[DCPK_CLI_FLAG_BYTES])
{
    struct near_flag near = {.name = name};

    dcpk_cli_flag(word, near.asked);
    if (more != NULL)
        more->each(find_near, &near);
    return near.is_found ? name : NULL;
}

/* "--dryrun": not one of ours, nor the beginning of just one. */
static int unknown_option(const struct dcpk_cli *cli, const char *word)
{
    const char *begin = word + strspn(word, "-"), *near = NULL;
    const size_t n = strcspn(begin, "=");
    char name[DCPK_CLI_FLAG_BYTES], knob[DCPK_CLI_FLAG_BYTES], flag[DCPK_CLI_FLAG_BYTES];

    if (n < sizeof name) {
        memcpy(name, begin, n);
        name[n] = '\0';
        for (const struct dcpk_option *o = cli->options; o->kind != DCPK_OPTION_END; o++)
            if (near == NULL && o->kind != DCPK_OPTION_GROUP && o->help != NULL &&
                (dcpk_starts_with(o->name, name) || dcpk_cli_is_near(name, o->name)))
                near = o->name;
        if (near == NULL && dcpk_cli_near_flag(cli->more, name, knob) != NULL)
            near = dcpk_cli_flag(knob, flag);
    }
    if (near == NULL)
        return dcpk_cli_usage(cli->name, "unknown option '%s'", word);
    return dcpk_cli_usage(cli->name, "unknown or ambiguous option '%s'; did you mean '--%s'?", word,
                          near);
}

static int bad_option(const struct dcpk_cli *cli, int c, char **argv)
{
    const char *word = argv[optind - 1];

    if (c == ':')
        return dcpk_cli_usage(cli->name, "option '%s' needs an argument", word);
    if (optopt > 0 && optopt < 256)
        return dcpk_cli_usage(cli->name, "unknown option '-%c'", optopt);
    if (optopt != 0)
        return dcpk_cli_usage(cli->name, "option '%s' takes no argument", word);
    return unknown_option(cli, word);
}

/* --color: as the variables that other programs know say it. */
static int take_color(const struct dcpk_cli *cli, const char *when)
{
    if (strcmp(when, "auto") != 0 && strcmp(when, "always") != 0 && strcmp(when, "never") != 0)
        return dcpk_cli_usage(cli->name, "--" COLOR " '%s' is not always, never or auto", when);
    if (strcmp(when, "always") == 0)
        unsetenv("NO_COLOR");
    if (strcmp(when, "auto") != 0)
        setenv(strcmp(when, "never") == 0 ? "NO_COLOR" : "CLICOLOR_FORCE", "1", true);
    return -1;
}

/* Parse all options. Returns -1, or the exit code to end with. */
static int take_options(const struct dcpk_cli *cli, int argc, char **argv, bool *has_sandbox)
{
    struct option longs[MAX_OPTIONS + 4] = {0};
    char letters[2 * MAX_OPTIONS + 4];
    int c, code = -1;

    fill_getopt(cli, longs, letters);
    opterr = 0;
    optind = 0; /* glibc: start again */
    while (code < 0 && (c = getopt_long(argc, argv, letters, longs, NULL)) != -1) {
        if (c == 'h')
            return put_short_help(cli);
        if (c == HELP_VAL)
            return put_command_help(cli);
        if (c == NO_SANDBOX_VAL)
            *has_sandbox = false;
        else if (c == COLOR_VAL)
            code = take_color(cli, optarg);
        else if (c == '?' || c == ':')
            code = bad_option(cli, c, argv);
        else
            code = take_option(cli, option_of(cli, c), optarg);
    }
    return code;
}

static int check_args(const struct dcpk_cli *cli, char **args, int n_args)
{
    if (n_args < cli->min_args)
        return dcpk_cli_usage(cli->name, "an argument is missing: dcpkit %s %s", cli->name,
                              cli->usage);
    if (n_args > cli->max_args)
        return dcpk_cli_usage(cli->name, "unexpected argument '%s'", args[cli->max_args]);
    for (int i = 0; i < n_args && (cli->paths & DCPK_CLI_NO_PATHS) == 0; i++)
        if (dcpk_starts_with(args[i], "msc://"))
            return dcpk_cli_usage(cli->name,
                                  "'%s' is a Multi-Storage Client URL: this program reads and "
                                  "writes folders; mount the storage or copy the checkpoint",
                                  args[i]);
    return -1;
}

int dcpk_cli_parse(const struct dcpk_cli *cli, int argc, char **argv, char ***args, int *n_args)
{
    struct dcpk_option rows[MAX_OPTIONS + 1];
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_cli flat = *cli;
    bool has_sandbox = true;
    size_t n_rows;
    int code;

    n_rows = options_flatten(cli->options, 0, rows, 0);
    flat.options = rows;
    code = take_options(&flat, argc, argv, &has_sandbox);
    if (code >= 0)
        return code;
    *args = argv + optind;
    *n_args = argc - optind;
    code = check_args(cli, *args, *n_args);
    if (code >= 0)
        return code;
    if (cli->settle != NULL && cli->settle(cli->values, &err) != DCPK_OK)
        return dcpk_cli_fail(cli->name, &err);
    if (cli->settled != NULL)
        (void)options_flatten(cli->settled, 0, rows, n_rows);
    if (has_sandbox && dcpk_confine(&flat, *args, *n_args, &err) != DCPK_OK)
        return dcpk_cli_fail(cli->name, &err);
    return -1;
}
