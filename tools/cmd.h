/* SPDX-License-Identifier: Apache-2.0 */
/* cmd.h - what the subcommands share: options, messages, sizes, progress, opening. */
#ifndef DCPK_TOOLS_CMD_H
#define DCPK_TOOLS_CMD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "lib/base/bytes.h"
#include "lib/ckpt/checkpoint.h"
#include "lib/ckpt/run.h"
#include "tools/wrap.h"

struct dcpk_ranks;

/*
 * The commands: argv[0] is the command's name. Each returns the exit code that MANUAL.md lists. A
 * new one is a tools/cmd_<name>.c, a line here and a row in main.c. Those that take `ranks` (NULL:
 * alone) share the work with other processes: all run the same code and return the same code, what
 * is printed is seen of rank 0 alone.
 */
int dcpk_cmd_check(int argc, char **argv);
int dcpk_cmd_compare(int argc, char **argv, struct dcpk_ranks *ranks);
int dcpk_cmd_convert(int argc, char **argv, struct dcpk_ranks *ranks);
int dcpk_cmd_convert_fsdp_dtensor(int argc, char **argv, struct dcpk_ranks *ranks);
int dcpk_cmd_convert_torch_dist(int argc, char **argv, struct dcpk_ranks *ranks);
int dcpk_cmd_hash(int argc, char **argv, struct dcpk_ranks *ranks);
int dcpk_cmd_inspect(int argc, char **argv);
int dcpk_cmd_modify(int argc, char **argv);
int dcpk_cmd_print_json(int argc, char **argv);
int dcpk_cmd_print_tensor(int argc, char **argv);
int dcpk_cmd_verify(int argc, char **argv, struct dcpk_ranks *ranks);

enum { DCPK_EXIT_OK, DCPK_EXIT_NO, DCPK_EXIT_USAGE, DCPK_EXIT_INPUT, DCPK_EXIT_SYSTEM };

/*
 * Options: one table a command, from which both parsing (getopt_long) and --help come. --help
 * and --no-sandbox are added.
 */
enum dcpk_cli_kind {
    DCPK_CLI_FLAG,       /* value: bool *, set to true */
    DCPK_CLI_TEXT,       /* value: const char **, borrowed from argv; the last one counts */
    DCPK_CLI_FILE,       /* as TEXT: the name of a file to read; "-" is refused */
    DCPK_CLI_OUT_FILE,   /* the same, to write */
    DCPK_CLI_CHECKPOINT, /* the same, of a folder or file with a checkpoint or args to read */
    DCPK_CLI_LIST,       /* value: struct dcpk_cli_list *, each time one more */
    DCPK_CLI_COUNT,      /* value: int *, 1 .. 1000000 */
    DCPK_CLI_LENGTH,     /* value: int64_t *, 1 .. 2^60 */
    DCPK_CLI_NUMBER,     /* value: double *, 0 or more, finite */
    DCPK_CLI_HEADING,    /* no option: `help` is the title of the rows behind it */
    DCPK_CLI_MEMORY,     /* value: uint64_t *, bytes: "67108864", "64M", "64MiB", "1.5G"; powers of
                            1024; not below what a run needs */
};
#define DCPK_CLI_MAX_LIST 64
struct dcpk_cli_list {
    const char **texts; /* room for DCPK_CLI_MAX_LIST, borrowed from argv */
    size_t n;
};
struct dcpk_cli_option {
    const char *name; /* without the dashes */
    char letter;      /* its short form, 0: none */
    enum dcpk_cli_kind kind;
    void *value;
    const char *argument; /* "FILE", "N"; NULL for a flag */
    const char *help;     /* with default and unit, broken into lines when printed; '\n' begins a
                             paragraph */
};

/* A row that is a title of those behind it. */
#define DCPK_CLI_TITLE(text)                                                                       \
    {                                                                                              \
        .kind = DCPK_CLI_HEADING, .help = text                                                     \
    }
/* Rows that several commands have; the variable gets the value (0 = default). */
#define DCPK_CLI_THREADS(variable)                                                                 \
    {                                                                                              \
        "threads", 'j', DCPK_CLI_COUNT, &(variable), "N",                                          \
            "worker threads (default: the CPUs this process may use, at most 16)"                  \
    }
#define DCPK_CLI_MEMORY(variable)                                                                  \
    {                                                                                              \
        "memory", 0, DCPK_CLI_MEMORY, &(variable), "SIZE",                                         \
            "limit of all buffers together in bytes, or with K, M, G, T (default: 256M, at least " \
            "16M)"                                                                                 \
    }
#define DCPK_CLI_FORMAT(variable)                                                                  \
    {                                                                                              \
        "format", 0, DCPK_CLI_TEXT, &(variable), "NAME",                                           \
            "read DIR as this format (default: found by looking)"                                  \
    }
/* Two rows; the variable is a struct dcpk_voice. */
#define DCPK_CLI_VOICE(variable)                                                                   \
    {"progress",                                                                                   \
     0,                                                                                            \
     DCPK_CLI_FLAG,                                                                                \
     &(variable).wants_progress,                                                                   \
     NULL,                                                                                         \
     "progress on stderr also where that is no terminal: a line every 5 s and at the end "         \
     "(default: every 10 s)"},                                                                     \
    {                                                                                              \
        "quiet", 'q', DCPK_CLI_FLAG, &(variable).is_quiet, NULL,                                   \
            "no progress and no notes; errors alone, and the results that were asked for"          \
    }
/* A flag of Megatron's checkpoint_inspector.py; the variable is a bool. */
#define DCPK_CLI_MSC(variable)                                                                     \
    {                                                                                              \
        "enable-msc", 0, DCPK_CLI_FLAG, &(variable), NULL, "accepted, without meaning here"        \
    }
#define DCPK_CLI_JSON(variable)                                                                    \
    {                                                                                              \
        "json", 0, DCPK_CLI_FLAG, &(variable), NULL, "print one JSON document instead of text"     \
    }

/* What the arguments are, beside checkpoints to read: it decides what the sandbox lets through. */
enum dcpk_cli_paths {
    DCPK_CLI_SECOND_IS_OUT = 1, /* the second is OUT, where a checkpoint is written */
    DCPK_CLI_SECOND_IS_KEY = 2, /* the second is no path */
    DCPK_CLI_LINKS_IN = 4,      /* files of the first are linked into OUT */
    DCPK_CLI_LISTS_RUN = 8,     /* all iterations of a run folder are looked at */
};

struct dcpk_cli {
    const char *name;    /* "inspect" */
    const char *usage;   /* what follows the name: "[options] DIR" */
    const char *summary; /* one sentence, broken into lines as help is */
    const struct dcpk_cli_option *options;
    size_t n_options;
    const char *example; /* one command line that works */
    int min_args, max_args;
    unsigned paths;     /* of enum dcpk_cli_paths */
    const bool *is_dry; /* set by parsing: nothing is written but files of options; NULL: false */
    const bool *writes_in; /* the same: a file is written into the first, unless an
 option names another place; NULL: false */
};

/*
 * Parse argv[1..] and enter the sandbox that follows from it (tools/confine.h), unless --no-sandbox
 * is there. Returns -1 to go on, then *args are the *n_args arguments that are no options
 * (borrowed from argv), names of folders and files or what is in them, but none of a store that is
 * no file system; else the exit code to return: 0 after --help, 2 or 4 after a message on stderr.
 */
int dcpk_cli_parse(const struct dcpk_cli *cli, int argc, char **argv, char ***args, int *n_args);

/*
 * Is `word` what a slip of the hand makes of `name`: the same but for one place of at most 3 bytes,
 * and of no more than half of it?
 */
bool dcpk_cli_is_near(const char *word, const char *name);

/* "dcpkit: <command>: <text>" to stderr. The first returns DCPK_EXIT_USAGE, the second the code of
 * err->status. */
int dcpk_cli_usage(const char *command, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int dcpk_cli_fail(const char *command, const struct dcpk_error *err);

/* What a command says beside its result. Its options: DCPK_CLI_VOICE. */
struct dcpk_voice {
    const char *command; /* for the beginning of each line */
    bool wants_progress, is_quiet;
};
/* "dcpkit: <command>: note: <text>" to stderr, unless the voice is quiet. */
void dcpk_cli_note(const struct dcpk_voice *voice, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* The note on DCPK_CLI_MSC. */
void dcpk_cli_note_msc(const struct dcpk_voice *voice);
/* All notes of a checkpoint. */
void dcpk_cli_notes(const struct dcpk_voice *voice, const struct dcpk_checkpoint *ckpt);

/* "1.50 GiB (1610612736 bytes)", below 1 KiB "412 bytes". Returns text. */
#define DCPK_SIZE_TEXT_BYTES 48
const char *dcpk_cli_size(uint64_t n_bytes, char text[DCPK_SIZE_TEXT_BYTES]);
/* "1.50 GiB" alone. */
const char *dcpk_cli_short_size(uint64_t n_bytes, char text[DCPK_SIZE_TEXT_BYTES]);
/* Write bytes and a newline to stdout and release them; DCPK_EIO when stdout is closed or full. */
dcpk_status dcpk_cli_print_bytes(struct dcpk_bytes *bytes, struct dcpk_error *err);
/* Can something be printed at all? Asked before work whose result is told at its end. */
dcpk_status dcpk_cli_check_stdout(struct dcpk_error *err);
/* What is made from now on is read by no more people than the checkpoint is (umask). */
void dcpk_cli_keep_private(const struct dcpk_checkpoint *ckpt);
/* Flush stdout: what was printed has arrived, or DCPK_EIO. That its reader has gone is an error
 * that dcpk_cli_fail does not print, unless something was done before, as a context tells. */
dcpk_status dcpk_cli_flush(struct dcpk_error *err);

/*
 * SIGINT, SIGTERM and SIGHUP ask the work to stop at the next progress call (DCPK_ECANCELLED) so
 * that half-made output is removed, or kept to be resumed; a second one ends the process. SIGXFSZ
 * is ignored: the write that passes the limit fails. Called once, by main.
 */
void dcpk_cli_catch_signals(void);
bool dcpk_cli_interrupted(void);

/* Read the file at `path`, at most 1 GiB of it, whole, with a NUL behind it; owned: dcpk_free. */
dcpk_status dcpk_cli_read_file(const char *path, char **text, size_t *n_bytes,
                               struct dcpk_error *err);

/*
 * Open the checkpoint at `path`, an iteration folder, a run folder or an archive (dcpk_run_open),
 * in one of the built formats (format: by name, NULL: by looking). ckpt: dcpk_checkpoint_close;
 * run: dcpk_run_release, may be NULL. Errors: DCPK_ECANCELLED after a signal; those of
 * opening.
 */
dcpk_status dcpk_cli_open(const char *path, const char *format, const struct dcpk_voice *voice,
                          struct dcpk_checkpoint **ckpt, struct dcpk_run *run,
                          struct dcpk_error *err);

#endif
