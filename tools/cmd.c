/* SPDX-License-Identifier: Apache-2.0 */
/* cmd.c - what the subcommands share: messages, sizes, signals, files. */
#include "tools/cmd.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/formats.h"
#include "kernels/kernels.h"
#include "lib/base/alloc.h"
#include "lib/base/text.h"

void dcpk_cli_note(const struct dcpk_verbosity *verbosity, const char *fmt, ...)
{
    char text[1024];
    va_list ap;

    if (verbosity->is_quiet)
        return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    dcpk_cli_printf(stderr, "dcpkit: %s: note: ", verbosity->command);
    dcpk_cli_put_text(stderr, text);
    dcpk_cli_printf(stderr, "\n");
}

void dcpk_cli_note_msc(const struct dcpk_verbosity *verbosity)
{
    dcpk_cli_note(verbosity,
                  "--enable-msc has no effect: only folders of a file system are read and written");
}

void dcpk_cli_notes(const struct dcpk_verbosity *verbosity, const struct dcpk_checkpoint *ckpt)
{
    for (const struct dcpk_note *note = ckpt->notes; note != NULL; note = note->next)
        dcpk_cli_note(verbosity, "%s", note->text);
}

const char *dcpk_cli_short_size(uint64_t n_bytes, char text[DCPK_SIZE_TEXT_BYTES])
{
    return dcpk_plain_size(n_bytes, text);
}

const char *dcpk_cli_size(uint64_t n_bytes, char text[DCPK_SIZE_TEXT_BYTES])
{
    const size_t n = strlen(dcpk_cli_short_size(n_bytes, text));

    if (n_bytes >= 1024)
        snprintf(text + n, DCPK_SIZE_TEXT_BYTES - n, " (%" PRIu64 " bytes)", n_bytes);
    return text;
}

const char *dcpk_cli_count(uint64_t n, const char *what, char text[DCPK_COUNT_TEXT_BYTES])
{
    snprintf(text, DCPK_COUNT_TEXT_BYTES, "%" PRIu64 " %s%s", n, what, n == 1 ? "" : "s");
    return text;
}

/* True if stdout is a pipe without a reader. */
static bool has_no_reader(void)
{
    struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};

    return poll(&out, 1, 0) == 1 && (out.revents & POLLERR) != 0;
}

dcpk_status dcpk_cli_flush(struct dcpk_error *err)
{
    int code = 0;

    if (fflush(stdout) != 0)
        code = errno;
    if (code == 0 && !ferror(stdout))
        return DCPK_OK;
    if (has_no_reader())
        return dcpk_fail(err, DCPK_EIO, DCPK_CLI_NO_READER);
    if (code == 0) /* it was an earlier write */
        return dcpk_fail(err, DCPK_EIO, "writing to stdout failed");
    return dcpk_fail_errno(err, code, "writing to stdout");
}

int dcpk_cli_end(const char *command)
{
    struct dcpk_error err = DCPK_ERROR_INIT;

    if (dcpk_cli_flush(&err) != DCPK_OK)
        return dcpk_cli_fail(command, &err);
    return DCPK_EXIT_OK;
}

void dcpk_cli_keep_store_private(struct dcpk_store *store)
{
    const mode_t before = umask(0);

    (void)umask(before | dcpk_store_hidden(store));
}

void dcpk_cli_keep_private(const struct dcpk_checkpoint *ckpt)
{
    dcpk_cli_keep_store_private(ckpt->store);
}

dcpk_status dcpk_cli_keep_folder_private(const char *folder, struct dcpk_error *err)
{
    struct dcpk_store *store = NULL;

    if (folder == NULL)
        return DCPK_OK;
    if (dcpk_store_open(folder, &store, err) != DCPK_OK)
        return err->status;
    dcpk_cli_keep_store_private(store);
    dcpk_store_close(store);
    return DCPK_OK;
}

dcpk_status dcpk_cli_check_stdout(struct dcpk_error *err)
{
    const int flags = fcntl(STDOUT_FILENO, F_GETFL);

    if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY)
        return dcpk_fail(err, DCPK_EIO, "stdout is closed: the result could not be printed");
    return DCPK_OK;
}

dcpk_status dcpk_cli_print_bytes(struct dcpk_bytes *bytes, struct dcpk_error *err)
{
    dcpk_status st = dcpk_bytes_status(bytes, err);

    if (st == DCPK_OK) {
        dcpk_cli_put_lines(stdout, (const char *)bytes->data, bytes->n_bytes);
        dcpk_cli_printf(stdout, "\n");
        st = dcpk_cli_flush(err);
    }
    dcpk_bytes_release(bytes);
    return st;
}

/* ---- signals ---- */

/* The variables that the signal handlers write. */
static volatile sig_atomic_t n_signals, last_signal, wants_line;

static void on_signal(int number)
{
    last_signal = number;
    if (n_signals++ > 0) {
        signal(number, SIG_DFL);
        raise(number);
    }
}

static void on_line_wanted(int number)
{
    (void)number;
    wants_line = 1;
}

void dcpk_cli_catch_signals(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    const struct sigaction line = {.sa_handler = on_line_wanted, .sa_flags = SA_RESTART};
    const struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};

    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct sigaction before;

        /* signals that nohup or a shell's '&' had ignored stay ignored */
        if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(numbers[i], &action, NULL);
    }
    sigaction(SIGUSR1, &line, NULL);
    signal(SIGXFSZ, SIG_IGN); /* past the limit on files a write fails */
    signal(SIGPIPE, SIG_IGN); /* the same without a reader */
}

bool dcpk_cli_interrupted(void)
{
    return n_signals > 0;
}

bool dcpk_cli_take_line_wanted(void)
{
    const bool is_wanted = wants_line != 0;

    wants_line = 0;
    return is_wanted;
}

void dcpk_cli_die_of_signal(void)
{
    if (n_signals == 0)
        return;
    fflush(NULL);
    signal(last_signal, SIG_DFL);
    raise(last_signal);
}

int dcpk_cli_each(const struct dcpk_cli_args *args, dcpk_cli_run *run, void *context)
{
    int code = DCPK_EXIT_OK;

    for (int i = 0; i < args->n; i++) {
        int found;

        if (i > 0)
            dcpk_cli_printf(stdout, "\n");
        found = run(context, args->words[i]);
        if (found > code)
            code = found;
    }
    return code;
}

/* ---- opening ---- */

dcpk_status dcpk_cli_read_file(const char *path, uint64_t max_bytes, char **text, size_t *n,
                               struct dcpk_error *err)
{
    const char *name = dcpk_name_last(path);
    char *folder = dcpk_alloc(strlen(path) + 2, err);
    struct dcpk_store *store = NULL;
    struct dcpk_source *source;

    if (folder == NULL)
        return err->status;
    memcpy(folder, path, (size_t)(name - path));
    if (name == path)
        folder[0] = '.';
    if (dcpk_store_open(folder, &store, err) == DCPK_OK &&
        dcpk_store_find(store, name, &source, err) == DCPK_OK)
        (void)dcpk_source_slurp(source, max_bytes, text, n, err);
    dcpk_store_close(store);
    dcpk_free(folder);
    return err->status;
}

struct dcpk_env dcpk_cli_env(struct dcpk_ranks *ranks)
{
    return (struct dcpk_env){.formats = dcpk_formats,
                             .open_file = dcpk_archive_opener,
                             .open_url = dcpk_remote_open,
                             .is_stopped = dcpk_cli_interrupted,
                             .side_files = dcpk_side_files,
                             .kernels = dcpk_host_kernel_sets[0],
                             .codec = dcpk_zstd,
                             .ranks = ranks};
}

/* ---- formats ---- */

/* Copies the name of a target that `name` is near to, its own or another. */
static bool find_near_target(const char *name, char near[DCPK_CLI_FLAG_BYTES])
{
    size_t n;

    for (size_t i = 0; dcpk_formats[i] != NULL; i++) {
        const char *lists[] = {dcpk_formats[i]->name, dcpk_formats[i]->other_names}, *word;

        for (size_t list = 0; list < 2 && dcpk_format_is_target(dcpk_formats[i]); list++)
            for (const char *at = dcpk_text_or(lists[list], "");
                 (word = dcpk_take_word(&at, &n)) != NULL;) {
                snprintf(near, DCPK_CLI_FLAG_BYTES, "%.*s", (int)n, word);
                if (dcpk_option_is_near(name, near))
                    return true;
            }
    }
    return false;
}

dcpk_status dcpk_cli_find_target(const char *name, const struct dcpk_format **to,
                                 struct dcpk_error *err)
{
    char near[DCPK_CLI_FLAG_BYTES];

    *to = dcpk_format_find(name);
    if (*to != NULL)
        return DCPK_OK;
    (void)dcpk_fail(err, DCPK_EUSAGE, "no format is called '%s'; --to takes " DCPK_CLI_TARGETS,
                    name);
    if (find_near_target(name, near))
        dcpk_append(err, "; did you mean '%s'?", near);
    return err->status;
}
