/* SPDX-License-Identifier: Apache-2.0 */
/* cmd.c - what the subcommands share: options, messages, sizes, signals, opening. */
#include "tools/cmd.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/formats.h"
#include "lib/base/alloc.h"
#include "lib/base/text.h"
#include "lib/exec/exec.h"
#include "lib/model/model.h"
#include "tools/bar.h"
#include "tools/confine.h"
#include "tools/wrap.h"

#define MAX_OPTIONS    64
#define MAX_COUNT      1000000
#define MAX_LENGTH     (INT64_C(1) << 60)
#define HELP_COLUMN    34
#define NO_SANDBOX     "no-sandbox"
#define NO_SANDBOX_VAL 1                   /* of getopt_long: no letter, no row */
#define MAX_FILE_BYTES (UINT64_C(1) << 30) /* of a file that an option names */

int dcpk_cli_usage(const char *command, const char *fmt, ...)
{
    va_list ap;

    dcpk_cli_printf(stderr, "dcpkit: %s: ", command);
    va_start(ap, fmt);
    dcpk_cli_vprintf(stderr, fmt, ap);
    va_end(ap);
    dcpk_cli_printf(stderr, "; see 'dcpkit %s --help'\n", command);
    return DCPK_EXIT_USAGE;
}

/* Of this alone nobody is to be told: 'dcpkit hash RUN | head' has what it wants. */
#define NO_READER "writing to stdout: its reader has gone"

int dcpk_cli_fail(const char *command, const struct dcpk_error *err)
{
    if (strcmp(err->text, NO_READER) == 0)
        return dcpk_exit_code(err->status);
    dcpk_cli_printf(stderr, "dcpkit: %s: ", command);
    dcpk_cli_put_text(stderr, err->text);
    dcpk_cli_printf(stderr, "\n");
    return dcpk_exit_code(err->status);
}

void dcpk_cli_note(const struct dcpk_voice *voice, const char *fmt, ...)
{
    char text[1024];
    va_list ap;

    if (voice->is_quiet)
        return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    dcpk_cli_printf(stderr, "dcpkit: %s: note: ", voice->command);
    dcpk_cli_put_text(stderr, text);
    dcpk_cli_printf(stderr, "\n");
}

void dcpk_cli_note_msc(const struct dcpk_voice *voice)
{
    dcpk_cli_note(
        voice, "--enable-msc has no meaning here: folders of a file system are read and written");
}

void dcpk_cli_notes(const struct dcpk_voice *voice, const struct dcpk_checkpoint *ckpt)
{
    for (const struct dcpk_note *note = ckpt->notes; note != NULL; note = note->next)
        dcpk_cli_note(voice, "%s", note->text);
}

const char *dcpk_cli_short_size(uint64_t n_bytes, char text[DCPK_SIZE_TEXT_BYTES])
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double size = (double)n_bytes / 1024;
    size_t unit = 0;

    if (n_bytes < 1024) {
        snprintf(text, DCPK_SIZE_TEXT_BYTES, "%" PRIu64 " bytes", n_bytes);
        return text;
    }
    for (; size >= 1024 && unit + 1 < sizeof units / sizeof *units; unit++)
        size /= 1024;
    snprintf(text, DCPK_SIZE_TEXT_BYTES, "%.2f %s", size, units[unit]);
    return text;
}

const char *dcpk_cli_size(uint64_t n_bytes, char text[DCPK_SIZE_TEXT_BYTES])
{
    const size_t n = strlen(dcpk_cli_short_size(n_bytes, text));

    if (n_bytes >= 1024)
        snprintf(text + n, DCPK_SIZE_TEXT_BYTES - n, " (%" PRIu64 " bytes)", n_bytes);
    return text;
}

/* Is stdout a pipe that nobody reads any more? */
static bool has_no_reader(void)
{
    struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};

    return poll(&out, 1, 0) == 1 && (out.revents & POLLERR) != 0;
}

dcpk_status dcpk_cli_flush(struct dcpk_error *err)
{
    const int code = fflush(stdout) == 0 ? 0 : errno;

    if (code == 0 && !ferror(stdout))
        return DCPK_OK;
    if (has_no_reader())
        return dcpk_fail(err, DCPK_EIO, NO_READER);
    if (code == 0) /* it was an earlier write */
        return dcpk_fail(err, DCPK_EIO, "writing to stdout failed");
    return dcpk_fail_errno(err, code, "writing to stdout");
}

void dcpk_cli_keep_private(const struct dcpk_checkpoint *ckpt)
{
    const mode_t before = umask(0);

    (void)umask(before | dcpk_store_hidden(ckpt->store));
}

dcpk_status dcpk_cli_check_stdout(struct dcpk_error *err)
{
    const int flags = fcntl(STDOUT_FILENO, F_GETFL);

    if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY)
        return dcpk_fail(err, DCPK_EIO, "stdout is closed: what was done could not be printed");
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

/* ---- options ---- */

/* A paragraph a line of `text`, the first behind `at` columns that stand there already. */
static void put_paragraphs(const char *text, size_t at, size_t indent)
{
    for (const char *end = text; *end != '\0'; text = end + 1) {
        end = text + strcspn(text, "\n");
        dcpk_cli_printf(stdout, "%*s", (int)(at < indent ? indent - at : 0), "");
        dcpk_cli_put_wrapped(stdout, text, (size_t)(end - text), indent, indent);
        dcpk_cli_printf(stdout, "\n");
        at = 0;
    }
}

static void put_option(const struct dcpk_cli_option *option)
{
    char left[96];
    char letter[8] = "   ";

    if (option->letter != 0)
        snprintf(letter, sizeof letter, "-%c,", option->letter);
    snprintf(left, sizeof left, "  %s --%s%s%s", letter, option->name,
             option->argument == NULL ? "" : " ", option->argument == NULL ? "" : option->argument);
    dcpk_cli_put_text(stdout, left);
    if (strlen(left) >= HELP_COLUMN)
        dcpk_cli_printf(stdout, "\n");
    put_paragraphs(option->help, strlen(left) < HELP_COLUMN ? strlen(left) : 0, HELP_COLUMN);
}

static int put_help(const struct dcpk_cli *cli)
{
    static const struct dcpk_cli_option added[] = {
        {NO_SANDBOX, 0, DCPK_CLI_FLAG, NULL, NULL,
         "do without the sandbox, which keeps this command from all files but those that its "
         "arguments name, from programs and from the network"},
        {"help", 'h', DCPK_CLI_FLAG, NULL, NULL, "print this and stop"}};
    struct dcpk_error err = DCPK_ERROR_INIT;

    dcpk_cli_printf(stdout, "usage: dcpkit %s %s\n", cli->name, cli->usage);
    put_paragraphs(cli->summary, 0, 0);
    for (size_t i = 0; i < cli->n_options; i++) {
        const struct dcpk_cli_option *option = &cli->options[i];

        if (option->kind == DCPK_CLI_HEADING || i == 0)
            dcpk_cli_printf(stdout, "\n%s:\n",
                            option->kind == DCPK_CLI_HEADING ? option->help : "options");
        if (option->kind != DCPK_CLI_HEADING)
            put_option(option);
    }
    for (size_t i = 0; i < sizeof added / sizeof *added; i++)
        put_option(&added[i]);
    dcpk_cli_printf(stdout, "\nexample:\n  %s\n", cli->example);
    return dcpk_cli_flush(&err) == DCPK_OK ? DCPK_EXIT_OK : dcpk_cli_fail(cli->name, &err);
}

/* "64M", "1.5GiB", "4096" -> bytes. */
static bool parse_size(const char *text, uint64_t *n_bytes)
{
    static const char units[] = "KMGT";
    const char *unit;
    double size;
    char *end;

    if (*text < '0' || *text > '9')
        return false;
    size = strtod(text, &end);
    unit = *end == '\0' ? NULL : strchr(units, toupper((unsigned char)*end));
    if (unit != NULL) {
        size = ldexp(size, 10 * (int)(unit - units + 1));
        end += end[1] == 'i' ? 2 : 1;
    }
    if (*end == 'B')
        end++;
    if (*end != '\0' || !isfinite(size) || size > 1e18)
        return false;
    *n_bytes = (uint64_t)size;
    return true;
}

static bool parse_count(const char *text, int64_t most, int64_t *count)
{
    char *end;
    long long v;

    errno = 0;
    v = strtoll(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || v < 1 || v > most)
        return false;
    *count = v;
    return true;
}

static bool parse_number(const char *text, double *number)
{
    char *end;
    const double v = strtod(text, &end);

    if (end == text || *end != '\0' || !isfinite(v) || v < 0)
        return false;
    *number = v;
    return true;
}

static bool append(struct dcpk_cli_list *list, const char *text)
{
    if (list->n == DCPK_CLI_MAX_LIST)
        return false;
    list->texts[list->n++] = text;
    return true;
}

/* Store an option's argument. Returns -1, or the exit code after a message. */
static int take_option(const struct dcpk_cli *cli, const struct dcpk_cli_option *option,
                       char *argument)
{
    int64_t count;

    switch (option->kind) {
    case DCPK_CLI_HEADING: /* no option */
        return -1;
    case DCPK_CLI_FLAG:
        *(bool *)option->value = true;
        return -1;
    case DCPK_CLI_TEXT:
        *(const char **)option->value = argument;
        return -1;
    case DCPK_CLI_FILE:
    case DCPK_CLI_OUT_FILE:
    case DCPK_CLI_CHECKPOINT:
        if (strcmp(argument, "-") == 0)
            return dcpk_cli_usage(cli->name,
                                  "--%s takes the name of a file, '-' is none: it does not stand "
                                  "for stdin or stdout here (./- is a file of that name)",
                                  option->name);
        *(const char **)option->value = argument;
        return -1;
    case DCPK_CLI_LIST:
        if (append(option->value, argument))
            return -1;
        return dcpk_cli_usage(cli->name, "--%s is given more than %d times", option->name,
                              DCPK_CLI_MAX_LIST);
    case DCPK_CLI_COUNT:
        if (!parse_count(argument, MAX_COUNT, &count))
            return dcpk_cli_usage(cli->name, "--%s '%s' is no number from 1 to %d", option->name,
                                  argument, MAX_COUNT);
        *(int *)option->value = (int)count;
        return -1;
    case DCPK_CLI_LENGTH:
        if (parse_count(argument, MAX_LENGTH, option->value))
            return -1;
        return dcpk_cli_usage(cli->name, "--%s '%s' is no number from 1 to 2^60", option->name,
                              argument);
    case DCPK_CLI_NUMBER:
        if (parse_number(argument, option->value))
            return -1;
        return dcpk_cli_usage(cli->name, "--%s '%s' is no finite number of 0 or more", option->name,
                              argument);
    case DCPK_CLI_MEMORY:
        if (!parse_size(argument, option->value))
            return dcpk_cli_usage(cli->name, "--%s '%s' is no size like 256M or 1G", option->name,
                                  argument);
        if (*(uint64_t *)option->value < DCPK_EXEC_LEAST_MEMORY_BYTES)
            return dcpk_cli_usage(cli->name, "--%s '%s' is too little: 16M is the least",
                                  option->name, argument);
        return -1;
    }
    return -1;
}

/* The table in getopt_long's form; val is the row's number + 1, letters lead to it through
 * `letters`. */
static void fill_getopt(const struct dcpk_cli *cli, struct option *longs, char *letters)
{
    size_t n = 0, n_longs = 0;

    letters[n++] = ':'; /* a missing argument is told from an unknown option */
    for (size_t i = 0; i < cli->n_options; i++) {
        const struct dcpk_cli_option *option = &cli->options[i];
        const bool has_argument = option->kind != DCPK_CLI_FLAG;

        if (option->kind == DCPK_CLI_HEADING)
            continue;
        longs[n_longs].name = option->name;
        longs[n_longs].has_arg = has_argument ? required_argument : no_argument;
        longs[n_longs++].val = (int)i + 256;
        if (option->letter != 0) {
            letters[n++] = option->letter;
            if (has_argument)
                letters[n++] = ':';
        }
    }
    longs[n_longs++] = (struct option){.name = NO_SANDBOX, .val = NO_SANDBOX_VAL};
    longs[n_longs] = (struct option){.name = "help", .val = 'h'};
    letters[n++] = 'h';
    letters[n] = '\0';
}

static const struct dcpk_cli_option *option_of(const struct dcpk_cli *cli, int c)
{
    if (c >= 256)
        return &cli->options[c - 256];
    for (size_t i = 0; i < cli->n_options; i++)
        if (cli->options[i].letter == c)
            return &cli->options[i];
    return NULL;
}

bool dcpk_cli_is_near(const char *word, const char *name)
{
    const size_t n_word = strlen(word), n_name = strlen(name);
    const size_t least = n_word < n_name ? n_word : n_name;
    const size_t most = n_word < n_name ? n_name : n_word;
    size_t before = 0, behind = 0;

    while (before < least && word[before] == name[before])
        before++;
    while (behind < least - before && word[n_word - 1 - behind] == name[n_name - 1 - behind])
        behind++;
    return most - before - behind <= 3 && 2 * (most - before - behind) <= least;
}

/* "--dryrun": not one of ours, nor the beginning of just one. */
static int unknown_option(const struct dcpk_cli *cli, const char *word)
{
    const char *begin = word + strspn(word, "-"), *near = NULL;
    const size_t n = strcspn(begin, "=");
    char name[32];

    if (n < sizeof name) {
        memcpy(name, begin, n);
        name[n] = '\0';
        for (size_t i = 0; i < cli->n_options && near == NULL; i++)
            if (cli->options[i].kind != DCPK_CLI_HEADING &&
                (dcpk_starts_with(cli->options[i].name, name) ||
                 dcpk_cli_is_near(name, cli->options[i].name)))
                near = cli->options[i].name;
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

int dcpk_cli_parse(const struct dcpk_cli *cli, int argc, char **argv, char ***args, int *n_args)
{
    struct option longs[MAX_OPTIONS + 3] = {0};
    char letters[2 * MAX_OPTIONS + 4];
    struct dcpk_error err = DCPK_ERROR_INIT;
    bool has_sandbox = true;
    int c, code;

    if (cli->n_options > MAX_OPTIONS)
        abort();
    fill_getopt(cli, longs, letters);
    opterr = 0;
    optind = 0; /* glibc: start anew */
    while ((c = getopt_long(argc, argv, letters, longs, NULL)) != -1) {
        const struct dcpk_cli_option *option;

        if (c == 'h')
            return put_help(cli);
        if (c == NO_SANDBOX_VAL) {
            has_sandbox = false;
            continue;
        }
        option = c == '?' || c == ':' ? NULL : option_of(cli, c);
        code = option == NULL ? bad_option(cli, c, argv) : take_option(cli, option, optarg);
        if (code >= 0)
            return code;
    }
    *args = argv + optind;
    *n_args = argc - optind;
    if (*n_args < cli->min_args)
        return dcpk_cli_usage(cli->name, "an argument is missing: dcpkit %s %s", cli->name,
                              cli->usage);
    if (*n_args > cli->max_args)
        return dcpk_cli_usage(cli->name, "there is an argument too many: '%s'",
                              (*args)[cli->max_args]);
    for (int i = 0; i < *n_args; i++)
        if (dcpk_starts_with((*args)[i], "msc://"))
            return dcpk_cli_usage(cli->name,
                                  "'%s' is a Multi-Storage Client URL: this program reads and "
                                  "writes folders; mount the storage or copy the checkpoint",
                                  (*args)[i]);
    if (has_sandbox && dcpk_confine(cli, *args, *n_args, &err) != DCPK_OK)
        return dcpk_cli_fail(cli->name, &err);
    return -1;
}

/* ---- signals ---- */

/* The one variable that a signal handler may write; there is no other way to hear of SIGINT. */
static volatile sig_atomic_t n_signals;

static void on_signal(int number)
{
    if (n_signals++ > 0) {
        signal(number, SIG_DFL);
        raise(number);
    }
}

void dcpk_cli_catch_signals(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    const struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};

    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct sigaction before;

        /* what nohup or a shell's '&' had ignored stays ignored */
        if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(numbers[i], &action, NULL);
    }
    signal(SIGXFSZ, SIG_IGN); /* past the limit on files a write fails, and that is told */
    signal(SIGPIPE, SIG_IGN); /* the same without a reader; of messages it is no matter */
}

bool dcpk_cli_interrupted(void)
{
    return n_signals > 0;
}

/* ---- opening ---- */

dcpk_status dcpk_cli_read_file(const char *path, char **text, size_t *n, struct dcpk_error *err)
{
    const char *slash = strrchr(path, '/'), *name = slash == NULL ? path : slash + 1;
    char *folder = dcpk_alloc(strlen(path) + 2, err);
    struct dcpk_store *store = NULL;
    struct dcpk_source *source;
    dcpk_status st;

    if (folder == NULL)
        return err->status;
    if (slash == NULL)
        folder[0] = '.';
    else
        memcpy(folder, path, (size_t)(slash - path) + 1);
    st = dcpk_store_open(folder, &store, err);
    if (st == DCPK_OK)
        st = dcpk_store_find(store, name, &source, err);
    if (st == DCPK_OK)
        st = dcpk_source_slurp(source, MAX_FILE_BYTES, text, n, err);
    dcpk_store_close(store);
    dcpk_free(folder);
    return st;
}

dcpk_status dcpk_cli_open(const char *path, const char *format, const struct dcpk_voice *voice,
                          struct dcpk_checkpoint **ckpt, struct dcpk_run *run,
                          struct dcpk_error *err)
{
    struct dcpk_run found = {0};
    struct dcpk_checkpoint *opened = NULL;
    struct dcpk_store *store;
    struct dcpk_bar bar;
    const struct dcpk_progress progress = dcpk_bar_begin(&bar, "unpacking", voice);
    const struct dcpk_opening opening = {dcpk_formats, dcpk_archive_opener, &progress};
    dcpk_status st = dcpk_run_open(path, &opening, &found, &store, err);

    dcpk_bar_end(&bar);
    if (st == DCPK_OK)
        st = dcpk_checkpoint_open(store, dcpk_formats, format, &opened, err);
    if (st == DCPK_OK && dcpk_cli_interrupted())
        st = dcpk_fail(err, DCPK_ECANCELLED, "stopped on request");
    if (st == DCPK_OK)
        *ckpt = opened;
    else
        dcpk_checkpoint_close(opened);
    if (st == DCPK_OK && run != NULL)
        *run = found;
    else
        dcpk_run_release(&found);
    return st;
}
