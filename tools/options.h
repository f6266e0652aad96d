/* SPDX-License-Identifier: Apache-2.0 */
/* options.h - the options of a command: one table, from which parsing and --help both come. */
#ifndef DCPK_TOOLS_OPTIONS_H
#define DCPK_TOOLS_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/error.h"

enum dcpk_cli_kind {
    DCPK_CLI_END,        /* behind the last row */
    DCPK_CLI_GROUP,      /* no option: `help` is the title of the rows behind it */
    DCPK_CLI_ROWS,       /* no option: stands for `rows`, of the struct in this field */
    DCPK_CLI_FLAG,       /* bool, set to true */
    DCPK_CLI_TEXT,       /* const char *, borrowed from argv; the last one counts */
    DCPK_CLI_FILE,       /* as TEXT: the name of a file to read; "-" is refused */
    DCPK_CLI_OUT_FILE,   /* as FILE, to write */
    DCPK_CLI_CHECKPOINT, /* as FILE: a folder or file with a checkpoint or args to read */
    DCPK_CLI_OUT_FOLDER, /* as FILE: a folder that is made, or replaced */
    DCPK_CLI_OUT_RUN,    /* as FILE: a run folder, or an iteration in one, to write */
    DCPK_CLI_LIST,       /* struct dcpk_cli_list, each time one more */
    DCPK_CLI_COUNT,      /* int, 1 .. 1000000 */
    DCPK_CLI_LENGTH,     /* int64_t, 1 .. 2^60 */
    DCPK_CLI_NUMBER,     /* double, 0 or more, finite */
    /* uint64_t, bytes, at least what a run needs: "67108864", "64M", "64MiB", "1.5G" (1024^3). */
    DCPK_CLI_SIZE,
};

#define DCPK_CLI_MAX_LIST 64
struct dcpk_cli_list {
    const char *texts[DCPK_CLI_MAX_LIST]; /* borrowed from argv */
    size_t n;
};

/* A row. A table of them ends with DCPK_OPT_END. */
struct dcpk_cli_option {
    enum dcpk_cli_kind kind;
    char letter;          /* its short form, 0: none */
    const char *name;     /* without the dashes */
    const char *argument; /* "FILE", "N"; NULL for a flag */
    size_t at_bytes;      /* of the field that it fills, in the struct of its table */
    /* With default and unit; wrapped when printed; '\n' begins a paragraph. NULL: accepted, and not
     * shown. */
    const char *help;
    const struct dcpk_cli_option *rows; /* of DCPK_CLI_ROWS */
};

/*
 * Rows as a table writes them. A file with a table defines DCPK_OPT_STRUCT before it: the struct
 * whose fields the table fills. A field of another type does not compile.
 */
#define DCPK_OPT_AT(type, field)                                                                   \
    (offsetof(DCPK_OPT_STRUCT, field) + 0 * sizeof((type *)0 == &((DCPK_OPT_STRUCT *)0)->field))
#define DCPK_OPT(kind, letter, name, argument, type, field, help)                                  \
    {                                                                                              \
        kind, letter, name, argument, DCPK_OPT_AT(type, field), help, NULL                         \
    }
#define DCPK_OPT_FLAG(name, field, help) DCPK_OPT(DCPK_CLI_FLAG, 0, name, NULL, bool, field, help)
#define DCPK_OPT_TEXT(name, argument, field, help)                                                 \
    DCPK_OPT(DCPK_CLI_TEXT, 0, name, argument, const char *, field, help)
#define DCPK_OPT_FILE(name, argument, field, help)                                                 \
    DCPK_OPT(DCPK_CLI_FILE, 0, name, argument, const char *, field, help)
#define DCPK_OPT_OUT_FILE(name, argument, field, help)                                             \
    DCPK_OPT(DCPK_CLI_OUT_FILE, 0, name, argument, const char *, field, help)
#define DCPK_OPT_CHECKPOINT(name, argument, field, help)                                           \
    DCPK_OPT(DCPK_CLI_CHECKPOINT, 0, name, argument, const char *, field, help)
#define DCPK_OPT_OUT_FOLDER(name, argument, field, help)                                           \
    DCPK_OPT(DCPK_CLI_OUT_FOLDER, 0, name, argument, const char *, field, help)
#define DCPK_OPT_OUT_RUN(name, argument, field, help)                                              \
    DCPK_OPT(DCPK_CLI_OUT_RUN, 0, name, argument, const char *, field, help)
#define DCPK_OPT_LIST(name, argument, field, help)                                                 \
    DCPK_OPT(DCPK_CLI_LIST, 0, name, argument, struct dcpk_cli_list, field, help)
#define DCPK_OPT_COUNT(name, argument, field, help)                                                \
    DCPK_OPT(DCPK_CLI_COUNT, 0, name, argument, int, field, help)
#define DCPK_OPT_LENGTH(name, argument, field, help)                                               \
    DCPK_OPT(DCPK_CLI_LENGTH, 0, name, argument, int64_t, field, help)
#define DCPK_OPT_NUMBER(name, argument, field, help)                                               \
    DCPK_OPT(DCPK_CLI_NUMBER, 0, name, argument, double, field, help)
#define DCPK_OPT_GROUP(title)                                                                      \
    {                                                                                              \
        DCPK_CLI_GROUP, 0, NULL, NULL, 0, title, NULL                                              \
    }
#define DCPK_OPT_ROWS(table, type, field)                                                          \
    {                                                                                              \
        DCPK_CLI_ROWS, 0, NULL, NULL, DCPK_OPT_AT(type, field), NULL, table                        \
    }
/* Rows of the same struct. */
#define DCPK_OPT_INCLUDE(table)                                                                    \
    {                                                                                              \
        DCPK_CLI_ROWS, 0, NULL, NULL, 0, NULL, table                                               \
    }
#define DCPK_OPT_END                                                                               \
    {                                                                                              \
        DCPK_CLI_END, 0, NULL, NULL, 0, NULL, NULL                                                 \
    }

/* Rows of several commands; of numbers 0 means the default. */
#define DCPK_OPT_THREADS(field)                                                                    \
    DCPK_OPT(DCPK_CLI_COUNT, 'j', "threads", "N", int, field,                                      \
             "worker threads (default: the CPUs this process may use, at most 16)")
#define DCPK_OPT_MEMORY(field)                                                                     \
    DCPK_OPT(DCPK_CLI_SIZE, 0, "memory", "SIZE", uint64_t, field,                                  \
             "limit of all buffers together in bytes, or with K, M, G, T (default: 256M, at "      \
             "least 16M)")
/* As convert has it. */
#define DCPK_OPT_FORMAT(field)                                                                     \
    DCPK_OPT_TEXT("from", "FORMAT", field, "read DIR as this format (default: found by looking)")
#define DCPK_OPT_PAGE(field, existing)                                                             \
    DCPK_OPT_OUT_FILE("html", "FILE", field,                                                       \
                      "write the result as a page for a browser as well, which needs nothing "     \
                      "beside it; an existing FILE is " existing)
#define DCPK_OPT_HTML(field) DCPK_OPT_PAGE(field, "not replaced")
/* The same of a command that has --force. */
#define DCPK_OPT_HTML_FORCE(field) DCPK_OPT_PAGE(field, "replaced only with --force")

#define DCPK_OPT_JSON(field) DCPK_OPT_FLAG("json", field, "print one JSON document instead of text")
/* A flag of Megatron's checkpoint_inspector.py. */
#define DCPK_OPT_MSC(field) DCPK_OPT_FLAG("enable-msc", field, "accepted, without meaning here")
/* --progress and --quiet; the field is a struct dcpk_verbosity. */
#define DCPK_OPT_VERBOSITY(field)                                                                  \
    DCPK_OPT_ROWS(dcpk_verbosity_options, struct dcpk_verbosity, field)
extern const struct dcpk_cli_option dcpk_verbosity_options[];

/* What the arguments are, beside checkpoints to read: it decides what the sandbox lets through. */
enum dcpk_cli_paths {
    DCPK_CLI_LAST_IS_OUT = 1,   /* the last is OUT, where a checkpoint is written */
    DCPK_CLI_SECOND_IS_KEY = 2, /* the second is not a path */
    DCPK_CLI_LINKS_IN = 4,      /* files of the first are linked into OUT */
    DCPK_CLI_LISTS_RUN = 8,     /* all iterations of a run folder are looked at */
    DCPK_CLI_NO_PATHS = 16,     /* they are words */
    DCPK_CLI_ARE_FILES = 32,    /* each is a plain file that is read */
};

/* Flags that a command has beside its table, as it took them before: for help and for hints. */
struct dcpk_cli_more {
    const char *title;             /* of the list of all */
    const char *(*name)(size_t i); /* "num_layers", spelled with dashes; NULL: no more */
    const char *(*part)(size_t i); /* what begins with flag i; NULL: nothing */
};

/* A command. The pointers to bool point into `values` as parsing leaves it. */
struct dcpk_cli {
    const char *name;    /* "inspect" */
    const char *usage;   /* what follows the name: "[options] DIR" */
    const char *summary; /* one sentence, broken into lines as help is */
    const struct dcpk_cli_option *options;
    void *values;        /* the struct that the table's fields are of */
    const char *example; /* one command line that works */
    int min_args, max_args;
    unsigned paths;     /* of enum dcpk_cli_paths */
    const bool *is_dry; /* nothing is written but files of options; NULL: false */
    /* A file is written into the first argument, unless an option names another place. NULL: no. */
    const bool *writes_in;
    const char *const *to; /* the format that is written; NULL, or NULL there: that of IN */
    /* Called with `values` once all options are parsed, before the sandbox is entered: reads what
     * names more paths. NULL: nothing does. */
    dcpk_status (*settle)(void *values, struct dcpk_error *err);
    /* Rows that no argument fills, but `settle`: the sandbox lets their paths through, too. NULL:
     * none. */
    const struct dcpk_cli_option *settled;
    const struct dcpk_cli_more *more; /* NULL: none */
};

/*
 * Parse argv[1..] into cli->values and enter the sandbox that follows from it (tools/confine.h),
 * unless --no-sandbox is there. Returns -1 to continue; *args are then the *n_args arguments that
 * are not options (borrowed from argv): names of folders and files or what is in them, none of a
 * store that is not a file system. Else returns the exit code: 0 after --help, 2 or 4 after a
 * message on stderr.
 */
int dcpk_cli_parse(const struct dcpk_cli *cli, int argc, char **argv, char ***args, int *n_args);

/* The flag of `more` that `word`, without its dashes, is near to; NULL: none. */
const char *dcpk_cli_near_flag(const struct dcpk_cli_more *more, const char *word);
/* Copy a name to text, with dashes for its underscores. Returns text. */
#define DCPK_CLI_FLAG_BYTES 64
const char *dcpk_cli_flag(const char *name, char text[DCPK_CLI_FLAG_BYTES]);

/*
 * Is `word` what a slip of the hand makes of `name`: the same but for one place of at most 3 bytes,
 * and of no more than half of it?
 */
bool dcpk_cli_is_near(const char *word, const char *name);

#endif
