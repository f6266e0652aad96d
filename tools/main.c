/* SPDX-License-Identifier: Apache-2.0 */
/* main.c - the table of commands; the one place where commands, formats and devices meet. */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/formats.h"
#include "kernels/kernels.h"
#include "lib/exec/ranks.h"
#include "tools/cmd.h"
#include "tools/confine.h"
#include "tools/help.h"
#include "tools/version.h"

#define COMMAND_COLUMNS 36 /* of names in the list of commands */
#define SUMMARY_BYTES   128
#define PREFIX_BYTES    4 /* equal ones at the start: a name that is suggested */

struct command {
    const struct dcpk_cli *cli;
    const char *others; /* more names, separated by blanks; NULL: none */
    const char *summary;
    bool is_shared; /* several processes may share it */
};

static const struct command commands[] = {
    {&dcpk_cmd_apply, NULL, "make a checkpoint from another and a delta", false},
    {&dcpk_cmd_card, NULL, "print what is supported, each claim with its proof", false},
    {&dcpk_cmd_check, NULL, "check which releases of Megatron load a checkpoint", false},
    {&dcpk_cmd_compare, "diff compare", "compare two checkpoints, list what differs", true},
    {&dcpk_cmd_completion, NULL, "print the completion script of a shell", false},
    {&dcpk_cmd_convert, "reshard", "convert a checkpoint to another format", true},
    {&dcpk_cmd_convert_fsdp_dtensor, NULL, "the same, of these two formats", true},
    {&dcpk_cmd_convert_torch_dist, NULL, "the same with the flags of Megatron's Python tool", true},
    {&dcpk_cmd_delta, NULL, "write what changed between two checkpoints on disk", false},
    {&dcpk_cmd_doctor, NULL, "check this machine for training: GPUs, libraries, limits, a folder",
     false},
    {&dcpk_cmd_hash, NULL, "print the XXH3-128 of every tensor", true},
    {&dcpk_cmd_inspect, "ls info", "describe a checkpoint and its contents", false},
    {&dcpk_cmd_losscmp, NULL, "compare the losses of two training runs", false},
    {&dcpk_cmd_merge, NULL, "write the weighted sum of the weights of several checkpoints", true},
    {&dcpk_cmd_migrate, NULL, "change the configuration of a run for Megatron-FSDP, or back",
     false},
    {&dcpk_cmd_modify, "modify", "rename, remove or cast keys of a checkpoint", false},
    {&dcpk_cmd_print_tensor, "cat get", "print elements of a stored tensor", false},
    {&dcpk_cmd_print_json, NULL, "print the non-tensor content of a DCP folder, write its JSON",
     false},
    {&dcpk_cmd_remap, NULL, "move a checkpoint between layouts of ranks in memory, prove it", true},
    {&dcpk_cmd_train, NULL, "train a small GPT as Megatron does, save and resume", true},
    {&dcpk_cmd_verify, NULL, "check structure, cover and checksums, or prove a conversion", true},
    {&dcpk_cmd_view, NULL, "write the page of a checkpoint and print its address", false},
};
#define N_COMMANDS (sizeof commands / sizeof *commands)

const char *dcpk_command_name(size_t i)
{
    if (i >= N_COMMANDS)
        return NULL;
    return commands[i].cli->name;
}

static bool is_called(const struct command *command, const char *name)
{
    return strcmp(command->cli->name, name) == 0 ||
           (command->others != NULL && dcpk_option_has_word(command->others, name, strlen(name)));
}

static int put_main_help(FILE *to)
{
    dcpk_cli_printf(to,
                    "usage: dcpkit COMMAND [options] ARGUMENTS\n"
                    "Convert, inspect, hash and verify checkpoints of Megatron, without Python.\n"
                    "\n"
                    "commands:\n");
    for (size_t i = 0; i < N_COMMANDS; i++) {
        const size_t column = COMMAND_COLUMNS + 2;
        char text[SUMMARY_BYTES];
        int n = snprintf(text, sizeof text, "%s", commands[i].summary);

        if (commands[i].others != NULL)
            n = snprintf(text, sizeof text, "%s (also: %s)", commands[i].summary,
                         commands[i].others);
        dcpk_cli_printf(to, "  %-*s", COMMAND_COLUMNS, commands[i].cli->name);
        dcpk_cli_put_wrapped(to, text, (size_t)n, column, column);
        dcpk_cli_printf(to, "\n");
    }
    dcpk_cli_printf(
        to, "\n"
            "options:\n"
            "  -h, --help                          print this, or with a command its help, as does "
            "'help'\n"
            "                                      ('help knob' explains the flags of 'train')\n"
            "  -V, --version                       print version, formats and devices\n"
            "\n"
            "guides ('help' and a name prints one):");
    for (const struct dcpk_topic *topic = dcpk_topics; topic->name != NULL; topic++)
        dcpk_cli_printf(to, " %s", topic->name);
    dcpk_cli_printf(
        to, "\n\n"
            "exit codes: 0 done, 1 the answer is no, 2 usage, 3 malformed or unsupported input,\n"
            "4 system; a command that a signal stops ends by it (130 after Ctrl-C)\n"
            "\n"
            "example:\n"
            "  dcpkit inspect checkpoints/run/iter_0000004\n");
    return dcpk_cli_end("main");
}

/* Prints the features that missing optional dependencies would add. */
static void put_absent(void)
{
    const char *before = "not built in: ";

    for (size_t i = 0; dcpk_kernels_absent[i] != NULL; i++, before = ", ")
        dcpk_cli_printf(stdout, "%s%s", before, dcpk_kernels_absent[i]);
    for (size_t i = 0; dcpk_formats_absent[i] != NULL; i++, before = ", ")
        dcpk_cli_printf(stdout, "%s%s", before, dcpk_formats_absent[i]);
    if (dcpk_archive_opener == NULL) {
        dcpk_cli_printf(stdout, "%slibarchive (checkpoints in archives)", before);
        before = ", ";
    }
    if (dcpk_yaml_args_reader == NULL) {
        dcpk_cli_printf(stdout, "%slibyaml (configurations of Megatron-Bridge)", before);
        before = ", ";
    }
    if (strcmp(before, ", ") == 0)
        dcpk_cli_printf(stdout, "\n");
}

#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#else
#define COMPILER "gcc " __VERSION__
#endif

/* Names what was found at run time, or why nothing was. */
static void put_transports(void)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    char version[128];

    dcpk_cli_printf(stdout, "transports:\n");
    for (size_t i = 0; dcpk_transports[i] != NULL; i++)
        if (dcpk_transports[i]->find(version, sizeof version, &err) == DCPK_OK)
            dcpk_cli_printf(stdout, "  %-14s%s (%s)\n", dcpk_transports[i]->name,
                            dcpk_transports[i]->summary, version);
        else
            dcpk_cli_printf(stdout, "  no %-11s%s\n", dcpk_transports[i]->name, err.text);
}

static int put_version(void)
{
    dcpk_cli_printf(
        stdout, "dcpkit %s\nbuilt from %s, %s, by " COMPILER "\nformats:\n", DCPK_VERSION,
        DCPK_COMMIT[0] == '\0' ? "a source archive" : "commit " DCPK_COMMIT, DCPK_BUILD_TYPE);
    for (size_t i = 0; dcpk_formats[i] != NULL; i++)
        dcpk_cli_printf(stdout, "  %-13s %s%s\n", dcpk_formats[i]->name, dcpk_formats[i]->summary,
                        dcpk_format_is_target(dcpk_formats[i]) ? "" : " (no target of convert)");
    dcpk_cli_printf(stdout, "devices:\n");
    for (size_t i = 0; dcpk_host_kernel_sets[i] != NULL; i++)
        dcpk_cli_printf(stdout, "  %-14s%s\n", dcpk_host_kernel_sets[i]->name,
                        dcpk_host_kernel_sets[i]->summary);
    dcpk_cli_printf(stdout, "memory of:\n");
    for (size_t i = 0; dcpk_devices[i] != NULL; i++)
        dcpk_cli_printf(stdout, "  %-14s%s\n", dcpk_devices[i]->name, dcpk_devices[i]->summary);
    put_transports();
    dcpk_cli_printf(stdout, "links:\n");
    for (size_t i = 0; dcpk_links[i] != NULL; i++)
        dcpk_cli_printf(stdout, "  %-14s%s\n", dcpk_links[i]->name, dcpk_links[i]->summary);
    put_absent();
    dcpk_confine_print(stdout);
    return dcpk_cli_end("main");
}

static bool asks_help(const char *word)
{
    return strcmp(word, "help") == 0 || strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

static int unknown_command(const char *name)
{
    const char *before = "; did you mean ";
    struct stat there;

    dcpk_cli_printf(stderr, "dcpkit: unknown command '%s'", name);
    if (stat(name, &there) == 0 && S_ISDIR(there.st_mode)) {
        dcpk_cli_printf(stderr, "; 'dcpkit inspect %s' describes the folder\n", name);
        return DCPK_EXIT_USAGE;
    }
    for (size_t i = 0; i < N_COMMANDS; i++) {
        const char *other = commands[i].cli->name;

        if (strncmp(name, other, PREFIX_BYTES) != 0 && !dcpk_option_is_near(name, other))
            continue;
        dcpk_cli_printf(stderr, "%s'%s'", before, other);
        before = ", ";
    }
    dcpk_cli_printf(stderr, "%s\n", before[0] == ',' ? "?" : "; 'dcpkit --help' lists them");
    return DCPK_EXIT_USAGE;
}

/* Several processes would do the same thing several times, to the same files. */
static int run_alone(const struct dcpk_cli *cli, int argc, char **argv)
{
    const int n = dcpk_ranks_launched();

    if (n == 1)
        return dcpk_cli_main(cli, argc, argv, NULL);
    return dcpk_cli_usage(
        cli->name,
        "started as one of %d processes, but this command runs in a single one: start it without "
        "mpirun or srun, or from a job's process with DCPKIT_ALONE=1 in the environment",
        n);
}

/* Only rank 0 prints; the others report through dcpk_ranks_agree. */
static dcpk_status fall_silent(struct dcpk_error *err)
{
    const int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    dcpk_status st = DCPK_OK;

    if (fd < 0)
        return dcpk_fail_errno(err, errno, "opening '/dev/null'");
    if (dup2(fd, STDOUT_FILENO) < 0 || dup2(fd, STDERR_FILENO) < 0)
        st = dcpk_fail_errno(err, errno, "turning stdout and stderr to '/dev/null'");
    close(fd);
    return st;
}

/* Collective: launchers can start several commands as one job, which would wait for each other. */
static dcpk_status check_all_arguments(struct dcpk_ranks *ranks, int argc, char **argv,
                                       struct dcpk_error *err)
{
    const size_t n_ranks = (size_t)dcpk_ranks_count(ranks);
    struct dcpk_bytes mine = {0}, all = {0};
    bool same;
    dcpk_status st;

    for (int i = 0; i < argc; i++)
        dcpk_bytes_put(&mine, argv[i], strlen(argv[i]) + 1);
    st = dcpk_ranks_share(ranks, mine.data, mine.n_bytes, &all, dcpk_bytes_status(&mine, err), err);
    same = st != DCPK_OK || all.n_bytes == n_ranks * mine.n_bytes;
    for (size_t r = 0; st == DCPK_OK && same && r < n_ranks; r++)
        same = memcmp(all.data + r * mine.n_bytes, mine.data, mine.n_bytes) == 0;
    if (!same) /* as all see */
        st = dcpk_fail(err, DCPK_EUSAGE,
                       "the %zu processes of this job were started with different arguments; one "
                       "command is shared by all",
                       n_ranks);
    dcpk_bytes_release(&mine);
    dcpk_bytes_release(&all);
    return st;
}

static int run_shared(const struct dcpk_cli *cli, int argc, char **argv)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_ranks *ranks;
    const int verbosity = dup(STDERR_FILENO);
    dcpk_status st = DCPK_OK;
    bool leads;
    int exit_code;

    if (dcpk_ranks_join(dcpk_transports, &ranks, &err) != DCPK_OK)
        return dcpk_cli_fail(cli->name, &err);
    leads = dcpk_ranks_self(ranks) == 0;
    if (!leads)
        st = fall_silent(&err);
    if (st == DCPK_OK)
        st = check_all_arguments(ranks, argc, argv, &err);
    if (dcpk_ranks_agree(ranks, st, &err) == DCPK_OK)
        exit_code = dcpk_cli_main(cli, argc, argv, ranks);
    else if (leads)
        exit_code = dcpk_cli_fail(cli->name, &err);
    else
        exit_code = dcpk_cli_exit_code(err.status);
    if (dcpk_ranks_leave(ranks, &err) != DCPK_OK && (!leads || exit_code == DCPK_EXIT_OK)) {
        (void)dup2(verbosity, STDERR_FILENO); /* no other rank is left to print it */
        exit_code = dcpk_cli_fail(cli->name, &err);
    }
    close(verbosity);
    return exit_code;
}

/*
 * A daemon or a cron job may have closed 0 to 2: a file opened later would get the number, and
 * messages would be written into it. The replacement of stdout cannot be written to, so that a
 * result without a reader is an error. Returns false when the system refused.
 */
static bool guard_descriptors(void)
{
    static const int modes[] = {O_RDONLY, O_RDONLY, O_WRONLY};

    for (int fd = 0; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", modes[fd]) != fd)
            return false;
    return true;
}

/* With fewer nothing can be converted, and what was begun could not be deleted. */
#define MIN_DESCRIPTORS 32

static bool check_descriptors(struct dcpk_error *err)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= MIN_DESCRIPTORS)
        return true;
    dcpk_fail(err, DCPK_EIO,
              "this process may have %ju files open at once (ulimit -n), %d are needed",
              (uintmax_t)limit.rlim_cur, MIN_DESCRIPTORS);
    return false;
}

/* argv[0] is the command's name. */
static int run_command(int argc, char **argv)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    int rank, n;

    if (dcpk_ranks_stand_aside(&rank, &n)) { /* torchrun itself reports how rank 0 ends */
        dcpk_cli_printf(
            stderr,
            "dcpkit: %s: rank %d of %d under torchrun has nothing to do, rank 0 does the work "
            "(DCPKIT_ALONE=1 makes each process work by itself; mpirun and srun share it)\n",
            argv[0], rank, n);
        return DCPK_EXIT_OK;
    }
    if (!check_descriptors(&err))
        return dcpk_cli_fail(argv[0], &err);
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (!is_called(&commands[i], argv[0]))
            continue;
        if (commands[i].is_shared)
            return run_shared(commands[i].cli, argc, argv);
        return run_alone(commands[i].cli, argc, argv);
    }
    return unknown_command(argv[0]);
}

/* Above this a table is memory of its own: it grows without a copy, and goes back to the system
 * when it is freed. glibc's own limit rises with the first that is freed. */
#define OWN_MEMORY_BYTES (512 * 1024)

/* The longest message with all of it escaped. */
#define LINE_BYTES ((size_t)64 << 10)

int main(int argc, char **argv)
{
    static char line[LINE_BYTES]; /* stdio's, until the process ends */
    char help[] = "--help";
    int exit_code;

    if (!guard_descriptors())
        return DCPK_EXIT_SYSTEM;                /* there is nowhere to print */
    setvbuf(stderr, line, _IOLBF, sizeof line); /* lines of several processes stay whole */
    mallopt(M_MMAP_THRESHOLD, OWN_MEMORY_BYTES);
    if (argc < 2) {
        (void)put_main_help(stderr);
        return DCPK_EXIT_USAGE;
    }
    if (strcmp(argv[1], "help") == 0 && argc > 2 && strcmp(argv[2], "knob") == 0)
        return dcpk_cli_main(&dcpk_cmd_help_knob, argc - 2, argv + 2, NULL);
    if (strcmp(argv[1], "help") == 0 && argc > 2 && dcpk_topic_find(argv[2]) != NULL) {
        if (argc > 3 && strcmp(argv[3], "--man") == 0)
            return dcpk_topic_print_man(dcpk_topic_find(argv[2]));
        return dcpk_topic_print(dcpk_topic_find(argv[2]));
    }
    if (strcmp(argv[1], "help") == 0 && argc > 2 && !asks_help(argv[2]))
        return run_command(2, (char *[]){argv[2], help, NULL});
    if (asks_help(argv[1]))
        return put_main_help(stdout);
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0)
        return put_version();
    dcpk_cli_catch_signals();
    exit_code = run_command(argc - 1, argv + 1);
    dcpk_confine_end();
    if (exit_code == DCPK_EXIT_SYSTEM && dcpk_ranks_launched() == 1) /* a launcher wants the code */
        dcpk_cli_die_of_signal();
    return exit_code;
}
