/* SPDX-License-Identifier: Apache-2.0 */
/* cmd.h - what the subcommands share: messages, sizes, signals, opening. Options: options.h. */
#ifndef DCPK_TOOLS_CMD_H
#define DCPK_TOOLS_CMD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "lib/base/bytes.h"
#include "lib/ckpt/checkpoint.h"
#include "lib/ckpt/run.h"
#include "lib/exec/env.h"
#include "tools/options.h"
#include "tools/wrap.h"

/* The commands. A new one is a tools/cmd_<name>.c, a name here and a row in main.c. help_knob: of
 * 'dcpkit help', argv[0] is "knob". */
extern const struct dcpk_cli dcpk_cmd_apply, dcpk_cmd_card, dcpk_cmd_check, dcpk_cmd_compare,
    dcpk_cmd_completion, dcpk_cmd_convert, dcpk_cmd_convert_fsdp_dtensor,
    dcpk_cmd_convert_torch_dist, dcpk_cmd_delta, dcpk_cmd_doctor, dcpk_cmd_hash, dcpk_cmd_help_knob,
    dcpk_cmd_inspect, dcpk_cmd_losscmp, dcpk_cmd_merge, dcpk_cmd_migrate, dcpk_cmd_modify,
    dcpk_cmd_print_json, dcpk_cmd_print_tensor, dcpk_cmd_remap, dcpk_cmd_train, dcpk_cmd_verify,
    dcpk_cmd_view;

/* Name of command i, in the order of the help; NULL after the last one. */
const char *dcpk_command_name(size_t i);

enum { DCPK_EXIT_OK, DCPK_EXIT_NO, DCPK_EXIT_USAGE, DCPK_EXIT_INPUT, DCPK_EXIT_SYSTEM };

/* Runs a command for each of its arguments, an empty line between two. Returns the highest exit
 * code. */
typedef int dcpk_cli_run(void *context, const char *arg);
int dcpk_cli_each(const struct dcpk_cli_args *args, dcpk_cli_run *run, void *context);

/* "dcpkit: <command>: <text>" to stderr. The first returns DCPK_EXIT_USAGE, the second the code of
 * err->status; it prints nothing when the text is DCPK_CLI_NO_READER. */
#define DCPK_CLI_NO_READER "writing to stdout: its reader has gone"
int dcpk_cli_usage(const char *command, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int dcpk_cli_fail(const char *command, const struct dcpk_error *err);
/* The exit code (tools/MANUAL.md) that belongs to a status: 0, 2, 3 or 4. */
int dcpk_cli_exit_code(dcpk_status status);
/* The format that `name`, of --to, means. Errors: DCPK_EUSAGE with those that there are, and a near
 * one. */
#define DCPK_CLI_TARGETS                                                                           \
    "fsdp_dtensor, torch_dist, zarr, torch, huggingface, peft or dcp (with --layout)"
dcpk_status dcpk_cli_find_target(const char *name, const struct dcpk_format **to,
                                 struct dcpk_error *err);
/* The text of an error and what mends it, as options: "... exists (--force replaces it)". Returns
 * text. */
#define DCPK_CLI_ERROR_BYTES (DCPK_ERROR_BYTES + 1024)
const char *dcpk_cli_error_text(const struct dcpk_error *err, char text[DCPK_CLI_ERROR_BYTES]);

/* Output of a command in addition to its result. Its options: DCPK_OPT_VERBOSITY. */
struct dcpk_verbosity {
    const char *command; /* for the beginning of each line */
    bool wants_progress, is_quiet;
};
/* "dcpkit: <command>: note: <text>" to stderr, unless the verbosity is quiet. */
void dcpk_cli_note(const struct dcpk_verbosity *verbosity, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* The note on DCPK_OPT_MSC. */
void dcpk_cli_note_msc(const struct dcpk_verbosity *verbosity);
/* All notes of a checkpoint. */
void dcpk_cli_notes(const struct dcpk_verbosity *verbosity, const struct dcpk_checkpoint *ckpt);

/* "1.50 GiB (1610612736 bytes)", below 1 KiB "412 bytes". Returns text. */
#define DCPK_SIZE_TEXT_BYTES DCPK_PLAIN_SIZE_BYTES
const char *dcpk_cli_size(uint64_t n_bytes, char text[DCPK_SIZE_TEXT_BYTES]);
/* "1.50 GiB" alone. */
const char *dcpk_cli_short_size(uint64_t n_bytes, char text[DCPK_SIZE_TEXT_BYTES]);
/* "1 file", "3 files": `what` is the word for one. Returns text. */
#define DCPK_COUNT_TEXT_BYTES 40
const char *dcpk_cli_count(uint64_t n, const char *what, char text[DCPK_COUNT_TEXT_BYTES]);
/* Write bytes and a newline to stdout and release them; DCPK_EIO when stdout is closed or full. */
dcpk_status dcpk_cli_print_bytes(struct dcpk_bytes *bytes, struct dcpk_error *err);
/* Checks that stdout can be written to, before work whose result is printed at its end. */
dcpk_status dcpk_cli_check_stdout(struct dcpk_error *err);
/* Lets later files be read by no more people than the checkpoint is (umask). */
void dcpk_cli_keep_private(const struct dcpk_checkpoint *ckpt);
void dcpk_cli_keep_store_private(struct dcpk_store *store);
/* The same of a folder whose files are copied; NULL: none. Errors: DCPK_EIO. */
dcpk_status dcpk_cli_keep_folder_private(const char *folder, struct dcpk_error *err);
/* Flush stdout, so that all printed text has arrived, or fail with DCPK_EIO. dcpk_cli_fail does not
 * print the error that the reader has gone, unless a context names earlier work. */
dcpk_status dcpk_cli_flush(struct dcpk_error *err);
/* The same at the end of a command that only prints: its exit code, failures printed. */
int dcpk_cli_end(const char *command);

/*
 * SIGINT, SIGTERM and SIGHUP ask the work to stop at the next progress call (DCPK_ECANCELLED) so
 * that half-made output is removed, or kept to be resumed; a second one ends the process. SIGXFSZ
 * is ignored: the write that passes the limit fails. Called once, by main.
 */
void dcpk_cli_catch_signals(void);
bool dcpk_cli_interrupted(void); /* True after the first of these signals */
/* True once after each SIGUSR1, which asks for a line of progress on stderr. */
bool dcpk_cli_take_line_wanted(void);
/* Ends the process by the signal that stopped it, so that a shell's loop ends with it; returns
 * where there was none. */
void dcpk_cli_die_of_signal(void);

/* The most bytes of a log, a map of keys, hashes. */
#define DCPK_CLI_MAX_FILE_BYTES ((uint64_t)1 << 30)
/* Read the file at `path` whole, with a NUL after it; owned: dcpk_free. Errors: DCPK_ERANGE for
 * more than max_bytes. */
dcpk_status dcpk_cli_read_file(const char *path, uint64_t max_bytes, char **text, size_t *n_bytes,
                               struct dcpk_error *err);

/* The built-in tables, with the defaults of threads and memory; no progress. ranks: NULL: alone. */
struct dcpk_env dcpk_cli_env(struct dcpk_ranks *ranks);

#endif
