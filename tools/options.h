/* SPDX-License-Identifier: Apache-2.0 */
/* options.h - the options of a command: one table, from which parsing and --help both come. */
#ifndef DCPK_TOOLS_OPTIONS_H
#define DCPK_TOOLS_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/error.h"
#include "lib/base/option.h"

#define DCPK_CLI_MAX_COUNT  1000000
#define DCPK_CLI_MAX_LENGTH (INT64_C(1) << 60)

/*
 * Rows as a table writes them. A file with a table defines DCPK_OPT_STRUCT before it: the struct
 * whose fields the table fills. A field of another type does not compile.
 */
#define DCPK_OPT_AT(type, field) DCPK_OPTION_AT(DCPK_OPT_STRUCT, type, field)
#define DCPK_OPT(kind_, letter_, name_, argument_, type, field, help_)                             \
    {                                                                                              \
        .kind = kind_, .letter = letter_, .name = name_, .argument = argument_,                    \
        .at_bytes = DCPK_OPT_AT(type, field), .help = help_, .least = 1,                           \
        .most = (kind_) == DCPK_OPTION_COUNT ? DCPK_CLI_MAX_COUNT : DCPK_CLI_MAX_LENGTH            \
    }
#define DCPK_OPT_FLAG(name, field, help)                                                           \
    DCPK_OPT(DCPK_OPTION_FLAG, 0, name, NULL, bool, field, help)
#define DCPK_OPT_TEXT(name, argument, field, help)                                                 \
    DCPK_OPT(DCPK_OPTION_TEXT, 0, name, argument, const char *, field, help)
/* words: those that it takes, separated by blanks. */
#define DCPK_OPT_WORD(name_, argument_, words_, field, help_)                                      \
    {                                                                                              \
        .kind = DCPK_OPTION_WORD, .name = name_, .argument = argument_, .words = words_,           \
        .at_bytes = DCPK_OPT_AT(const char *, field), .help = help_                                \
    }
#define DCPK_OPT_FILE(name, argument, field, help)                                                 \
    DCPK_OPT(DCPK_OPTION_FILE, 0, name, argument, const char *, field, help)
#define DCPK_OPT_OUT_FILE(name, argument, field, help)                                             \
    DCPK_OPT(DCPK_OPTION_OUT_FILE, 0, name, argument, const char *, field, help)
#define DCPK_OPT_CHECKPOINT(name, argument, field, help)                                           \
    DCPK_OPT(DCPK_OPTION_CHECKPOINT, 0, name, argument, const char *, field, help)
#define DCPK_OPT_LIST(name, argument, field, help)                                                 \
    DCPK_OPT(DCPK_OPTION_LIST, 0, name, argument, struct dcpk_option_list, field, help)
#define DCPK_OPT_COUNT(name, argument, field, help)                                                \
    DCPK_OPT(DCPK_OPTION_COUNT, 0, name, argument, int, field, help)
#define DCPK_OPT_LENGTH(name, argument, field, help)                                               \
    DCPK_OPT(DCPK_OPTION_LENGTH, 0, name, argument, int64_t, field, help)
#define DCPK_OPT_NUMBER(name, argument, field, help)                                               \
    DCPK_OPT(DCPK_OPTION_NUMBER, 0, name, argument, double, field, help)
#define DCPK_OPT_GROUP(title)                                                                      \
    {                                                                                              \
        .kind = DCPK_OPTION_GROUP, .help = title                                                   \
    }
#define DCPK_OPT_ROWS(table, type, field)                                                          \
    {                                                                                              \
        .kind = DCPK_OPTION_ROWS, .at_bytes = DCPK_OPT_AT(type, field), .rows = table              \
    }
/* Rows of the same struct. */
#define DCPK_OPT_INCLUDE(table)                                                                    \
    {                                                                                              \
        .kind = DCPK_OPTION_ROWS, .rows = table                                                    \
    }
#define DCPK_OPT_END                                                                               \
    {                                                                                              \
        .kind = DCPK_OPTION_END                                                                    \
    }

/* Rows of several commands; of numbers 0 means the default. */
#define DCPK_OPT_THREADS(field)                                                                    \
    DCPK_OPT(DCPK_OPTION_COUNT, 'j', "threads", "N", int, field,                                   \
             "worker threads (default: the CPUs this process may use, at most 16)")
#define DCPK_OPT_MEMORY(field)                                                                     \
    DCPK_OPT(DCPK_OPTION_SIZE, 0, "memory", "SIZE", uint64_t, field,                               \
             "limit of all buffers together in bytes, or with K, M, G, T (default: 256M, at "      \
             "least 16M)")
/* As convert has it. */
#define DCPK_OPT_FORMAT(field)                                                                     \
    DCPK_OPT_TEXT("from", "FORMAT", field, "read DIR as this format (default: detected)")
#define DCPK_OPT_PAGE(field, existing)                                                             \
    DCPK_OPT_OUT_FILE("html", "FILE", field,                                                       \
                      "also write the result as a page for a browser, in a single file; "          \
                      "an existing page is replaced, any other FILE " existing)
#define DCPK_OPT_HTML(field) DCPK_OPT_PAGE(field, "is not")
/* The same of a command that has --force. */
#define DCPK_OPT_HTML_FORCE(field) DCPK_OPT_PAGE(field, "only with --force")

#define DCPK_OPT_JSON(field) DCPK_OPT_FLAG("json", field, "print one JSON document instead of text")
/* A flag of Megatron's checkpoint_inspector.py. */
#define DCPK_OPT_MSC(field) DCPK_OPT_FLAG("enable-msc", field, "accepted, without effect")
/* --progress and --quiet; the field is a struct dcpk_verbosity. */
#define DCPK_OPT_VERBOSITY(field) DCPK_OPT_ROWS(dcpk_verbosity_rows, struct dcpk_verbosity, field)
extern const struct dcpk_option dcpk_verbosity_rows[];

/* The kind of the arguments, apart from checkpoints to read: it decides what the sandbox lets
 * through. */
enum dcpk_cli_paths {
    DCPK_CLI_LAST_IS_OUT = 1,     /* the last is OUT, where a checkpoint is written */
    DCPK_CLI_SECOND_IS_KEY = 2,   /* the second is not a path */
    DCPK_CLI_LINKS_IN = 4,        /* files of the first are linked into OUT */
    DCPK_CLI_LISTS_RUN = 8,       /* all iterations of a run folder are looked at */
    DCPK_CLI_NO_PATHS = 16,       /* they are words */
    DCPK_CLI_ARE_FILES = 32,      /* each is a plain file that is read */
    DCPK_CLI_ASKS_DRIVERS = 64,   /* which open what they like: no walls, as with a device */
    DCPK_CLI_OUT_IS_FOLDER = 128, /* OUT itself is written, not an iteration in it */
};

/* Flags that a command has in addition to its table, and took before it: for help and hints. */
struct dcpk_cli_more {
    const char *title; /* of the list of all */
    /* Call `visit` for each row. part: the title of the rows that begin with it; NULL: none. */
    void (*each)(void (*visit)(void *context, const struct dcpk_option *row, const char *part),
                 void *context);
};

/* The arguments that are not options, borrowed from argv; words[n] is NULL. */
struct dcpk_cli_args {
    char **words;
    int n;
};

/* A command. The pointers to bool and to text point into `values` as parsing leaves it. */
struct dcpk_cli {
    const char *name;    /* "inspect" */
    const char *usage;   /* text after the name: "[options] DIR" */
    const char *summary; /* one sentence, broken into lines as help is */
    const struct dcpk_option *options;
    /* Names of the options that most people need, separated by blanks: -h shows them alone, help
     * shows them first. NULL: all are. */
    const char *everyday;
    void *values;         /* the struct that the table's fields are of */
    struct dcpk_env *env; /* of `values`, filled before parsing (dcpk_cli_env); NULL: none */
    const char *example;  /* one command line that works */
    int n_args[2];        /* the fewest and the most */
    const char *if_more;  /* after the message of an argument too many; NULL: nothing */
    char *by_default;     /* the argument if none is given; NULL: there is none */
    unsigned paths;       /* of enum dcpk_cli_paths */
    const bool *is_dry;   /* nothing is written but files of options; NULL: false */
    /* A file is written into the first argument, unless an option names another place. NULL: no. */
    const bool *writes_in;
    const char *const *to; /* the format that is written; NULL, or NULL there: that of IN */
    /* Called with `values` once all options are parsed, before the sandbox is entered: reads what
     * names more paths. NULL: nothing does. */
    dcpk_status (*settle)(void *values, struct dcpk_error *err);
    /* Rows that no argument fills, but `settle`: the sandbox lets their paths through, too. NULL:
     * none. */
    const struct dcpk_option *settled;
    const struct dcpk_cli_more *more; /* NULL: none */
    /* The value of an option that chooses an iteration of the first argument, a run. NULL: none. */
    const char *const *iteration;
    /* Called in the place of dcpk_cli_perform, for a command that looks at argv itself. NULL: none.
     */
    int (*begin)(const struct dcpk_cli *cli, int argc, char **argv);
    /* The command itself, after dcpk_cli_parse; the first argument is the path of the iteration.
     * Returns the exit code; where it sets *err, the code is that of the error. */
    int (*run)(void *values, const struct dcpk_cli_args *args, struct dcpk_error *err);
};

/*
 * Parse argv[1..] into cli->values and enter the sandbox that follows from it (tools/confine.h),
 * unless --no-sandbox is there. Returns -1 to continue; *args are then names of folders and files
 * or what is in them, none of a store that is not a file system. Else returns the exit code: 0
 * after -h and --help, 2 or 4 after a message on stderr.
 */
int dcpk_cli_parse(const struct dcpk_cli *cli, int argc, char **argv, struct dcpk_cli_args *args);

/* Parses, runs the command, prints its error. Returns the exit code. */
int dcpk_cli_perform(const struct dcpk_cli *cli, int argc, char **argv);

/* Fills cli->env, then begins the command. ranks: those that share it; NULL: it runs alone. Returns
 * the exit code that MANUAL.md lists; it is the same on all ranks, and only rank 0 prints. */
struct dcpk_ranks;
int dcpk_cli_main(const struct dcpk_cli *cli, int argc, char **argv, struct dcpk_ranks *ranks);

#define DCPK_CLI_FLAG_BYTES 64
/* Copy a name to text, with dashes for its underscores. Returns text. */
const char *dcpk_cli_flag(const char *name, char text[DCPK_CLI_FLAG_BYTES]);

#endif
