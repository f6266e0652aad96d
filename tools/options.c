/* SPDX-License-Identifier: Apache-2.0 */
/* options.c - a table of options, parsed by getopt_long. */
#include "tools/options.h"

#include <assert.h>
#include <getopt.h>
#include <string.h>

#include "lib/base/text.h"
#include "lib/exec/exec.h"
#include "lib/place/grid.h"
#include "tools/cmd.h"
#include "tools/confine.h"
#include "tools/help.h"
#include "tools/run_args.h"

#define MAX_OPTIONS    96
#define NO_SANDBOX_VAL 1 /* of getopt_long: not a letter, not a row */
#define COLOR_VAL      2
#define HELP_VAL       3
#define FIRST_ROW_VAL  256 /* of row 0, past all letters */

#define DCPK_OPT_STRUCT struct dcpk_verbosity
const struct dcpk_option dcpk_verbosity_rows[] = {
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

const char *dcpk_cli_flag(const char *name, char text[DCPK_CLI_FLAG_BYTES])
{
    snprintf(text, DCPK_CLI_FLAG_BYTES, "%s", name);
    for (char *c = text; *c != '\0'; c++)
        if (*c == '_')
            *c = '-';
    return text;
}

/* ---- parsing ---- */

static bool option_is_path(const struct dcpk_option *option)
{
    return dcpk_option_is_text(option) && option->kind >= DCPK_OPTION_FILE;
}

/* "te local" becomes "te, local". */
static const char *join_words(const char *words, char text[DCPK_OPTION_TAKES_BYTES])
{
    size_t n = 0;

    for (; *words != '\0' && n < DCPK_OPTION_TAKES_BYTES - 2; words++) {
        if (*words == ' ')
            text[n++] = ',';
        text[n++] = *words;
    }
    text[n] = '\0';
    return text;
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
    if (option->kind == DCPK_OPTION_WORD)
        return dcpk_cli_usage(cli->name, "--%s '%s' is not one of %s", option->name, argument,
                              join_words(option->words, text));
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
    longs[n_longs++] = (struct option){.name = DCPK_HELP_NO_SANDBOX, .val = NO_SANDBOX_VAL};
    longs[n_longs++] =
        (struct option){.name = DCPK_HELP_COLOR, .has_arg = required_argument, .val = COLOR_VAL};
    longs[n_longs] = (struct option){.name = "help", .has_arg = optional_argument, .val = HELP_VAL};
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
    if (near->is_found || !dcpk_option_is_near(near->asked, dcpk_cli_flag(row->name, flag)))
        return;
    snprintf(near->name, DCPK_CLI_FLAG_BYTES, "%s", row->name);
    near->is_found = true;
}

/* The name of the flag of `more` that `word`, without its dashes, is near to, copied; NULL: none.
 */
static const char *near_flag(const struct dcpk_cli_more *more, const char *word,
                             char name[DCPK_CLI_FLAG_BYTES])
{
    struct near_flag near = {.name = name};

    dcpk_cli_flag(word, near.asked);
    if (more != NULL)
        more->each(find_near, &near);
    return near.is_found ? name : NULL;
}

/* The option that takes a dimension of the mesh, where `word` is one; NULL: none. */
static const char *mesh_option(const struct dcpk_cli *cli, const char *word)
{
    for (const struct dcpk_option *o = cli->options; o->kind != DCPK_OPTION_END; o++)
        if (o->kind != DCPK_OPTION_GROUP && strcmp(o->name, "target-mesh") == 0)
            return dcpk_grid_has_size(word) ? o->name : NULL;
    return NULL;
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
        near = mesh_option(cli, name);
        for (const struct dcpk_option *o = cli->options; o->kind != DCPK_OPTION_END; o++)
            if (near == NULL && o->kind != DCPK_OPTION_GROUP && o->help != NULL &&
                (dcpk_starts_with(o->name, name) || dcpk_option_is_near(name, o->name)))
                near = o->name;
        if (near == NULL && near_flag(cli->more, name, knob) != NULL)
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
        return dcpk_cli_usage(cli->name, "--" DCPK_HELP_COLOR " '%s' is not always, never or auto",
                              when);
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
            return dcpk_cli_help(cli, DCPK_HELP_SHORT);
        if (c == HELP_VAL)
            return dcpk_cli_help(cli, optarg == NULL ? DCPK_HELP_ALL : optarg);
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
    if (n_args < cli->n_args[0])
        return dcpk_cli_usage(cli->name, "an argument is missing: dcpkit %s %s", cli->name,
                              cli->usage);
    if (n_args > cli->n_args[1])
        return dcpk_cli_usage(cli->name, "unexpected argument '%s'%s", args[cli->n_args[1]],
                              dcpk_text_or(cli->if_more, ""));
    for (int i = 0; i < n_args && (cli->paths & DCPK_CLI_NO_PATHS) == 0; i++)
        if (dcpk_starts_with(args[i], "msc://"))
            return dcpk_cli_usage(cli->name,
                                  "'%s' is a Multi-Storage Client URL: this program reads and "
                                  "writes folders; mount the storage or copy the checkpoint",
                                  args[i]);
    return -1;
}

int dcpk_cli_parse(const struct dcpk_cli *cli, int argc, char **argv, struct dcpk_cli_args *args)
{
    struct dcpk_option rows[MAX_OPTIONS + 1];
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_cli flat = *cli;
    static char *only[2]; /* by_default, as an argument */
    bool has_sandbox = true;
    size_t n_rows;
    int code;

    n_rows = options_flatten(cli->options, 0, rows, 0);
    flat.options = rows;
    code = take_options(&flat, argc, argv, &has_sandbox);
    if (code >= 0)
        return code;
    *args = (struct dcpk_cli_args){argv + optind, argc - optind};
    if (args->n == 0 && cli->by_default != NULL) {
        only[0] = cli->by_default;
        *args = (struct dcpk_cli_args){only, 1};
    }
    code = check_args(cli, args->words, args->n);
    if (code >= 0)
        return code;
    if (cli->settle != NULL && cli->settle(cli->values, &err) != DCPK_OK)
        return dcpk_cli_fail(cli->name, &err);
    if (cli->settled != NULL)
        (void)options_flatten(cli->settled, 0, rows, n_rows);
    if (has_sandbox && dcpk_confine(&flat, args->words, args->n, &err) != DCPK_OK)
        return dcpk_cli_fail(cli->name, &err);
    return -1;
}

int dcpk_cli_perform(const struct dcpk_cli *cli, int argc, char **argv)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    char path[DCPK_RUN_PATH_BYTES];
    struct dcpk_cli_args args;
    int code = dcpk_cli_parse(cli, argc, argv, &args);

    if (code >= 0)
        return code;
    if (cli->iteration != NULL &&
        dcpk_choose_iteration(args.words[0], *cli->iteration, path, &err) != DCPK_OK)
        return dcpk_cli_fail(cli->name, &err);
    if (cli->iteration != NULL)
        args.words[0] = path;
    code = cli->run(cli->values, &args, &err);
    if (err.status != DCPK_OK)
        return dcpk_cli_fail(cli->name, &err);
    return code;
}

int dcpk_cli_main(const struct dcpk_cli *cli, int argc, char **argv, struct dcpk_ranks *ranks)
{
    if (cli->env != NULL)
        *cli->env = dcpk_cli_env(ranks);
    if (cli->begin != NULL)
        return cli->begin(cli, argc, argv);
    return dcpk_cli_perform(cli, argc, argv);
}
