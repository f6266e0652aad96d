/* SPDX-License-Identifier: Apache-2.0 */
/* confine.c - confines a command to the files that its arguments name, before it reads any. */
#include "tools/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/formats.h"
#include "kernels/kernels.h"
#include "lib/base/order.h"
#include "lib/exec/ranks.h"
#include "lib/io/sandbox.h"
#include "lib/io/sink.h"
#include "tools/run_args.h"

#define CAN_READ      (DCPK_SANDBOX_LIST | DCPK_SANDBOX_READ)
#define CAN_WRITE     (CAN_READ | DCPK_SANDBOX_WRITE | DCPK_SANDBOX_MAKE | DCPK_SANDBOX_LINK)
#define CAN_LINK_FROM (CAN_READ | DCPK_SANDBOX_WRITE | DCPK_SANDBOX_LINK)
#define INNER_LEVELS  3 /* folders in a checkpoint in which links are looked for */

/* Files that the C library and others next to it read at first use, and files about the machine
 * that this program reads. */
static const struct {
    const char *path;
    unsigned access;
} system_paths[] = {
    {"/usr", CAN_READ},
    {"/lib", CAN_READ},
    {"/lib64", CAN_READ},
    {"/nix/store", CAN_READ},
    {"/etc/ld.so.cache", CAN_READ},
    {"/etc/localtime", CAN_READ},
    {"/etc/ssl/openssl.cnf", CAN_READ},
    {"/etc/pki/tls/openssl.cnf", CAN_READ},
    {"/etc/crypto-policies", CAN_READ},
    {"/proc/self", CAN_READ},
    {"/proc/self/exe", CAN_READ},
    {"/proc/meminfo", CAN_READ},
    {"/proc/cpuinfo", CAN_READ},
    {"/proc/sys", CAN_READ},
    {"/sys/devices/system", CAN_READ},
    {"/sys/fs/cgroup", CAN_READ},
    {"/dev/null", CAN_READ | DCPK_SANDBOX_WRITE},
    {"/dev/urandom", CAN_READ},
};

/* Files that naming a server and trusting it take. */
static const char *const network_paths[] = {
    "/etc/resolv.conf", "/etc/hosts", "/etc/host.conf", "/etc/nsswitch.conf",   "/etc/gai.conf",
    "/etc/services",    "/etc/ssl",   "/etc/pki",       "/etc/ca-certificates",
};

/*
 * Folders and files made before the sandbox was entered. main removes them at the end; the command
 * between the two does not see them. `path` lies in the innermost folder.
 */
struct made {
    char path[PATH_MAX];
    int n_parents;
};
#define MAX_MADE 4
static struct made made[MAX_MADE];
static size_t n_made;

/*
 * Finds the entry at `path`. *there is false also where the name leads nowhere, which the command
 * itself finds. flags: of fstatat. Errors: DCPK_EIO for any other refusal: an unknown entry cannot
 * be allowed.
 */
static dcpk_status confine_look_at(const char *path, int flags, bool *there, struct stat *info,
                                   struct dcpk_error *err)
{
    *there = fstatat(AT_FDCWD, path, info, flags) == 0;
    if (*there || errno == ENOENT || errno == ENOTDIR || errno == EACCES || errno == ELOOP ||
        errno == ENAMETOOLONG)
        return DCPK_OK;
    return dcpk_fail_errno(err, errno, "looking at '%s'", path);
}

static dcpk_status allow_system(struct dcpk_sandbox *box, struct dcpk_error *err)
{
    for (size_t i = 0; i < DCPK_COUNT(system_paths); i++)
        if (dcpk_sandbox_allow(box, system_paths[i].path, system_paths[i].access, err) != DCPK_OK)
            return err->status;
    return DCPK_OK;
}

/* Copy `path` to its last slash; "./" without one. false: it is too long. */
static bool folder_of(const char *path, char folder[PATH_MAX])
{
    const char *slash = strrchr(path, '/');
    size_t n;

    if (slash == NULL) {
        memcpy(folder, "./", sizeof "./");
        return true;
    }
    n = (size_t)(slash - path) + 1;
    if (n >= PATH_MAX)
        return false;
    memcpy(folder, path, n);
    folder[n] = '\0';
    return true;
}

static dcpk_status allow_around(struct dcpk_sandbox *box, const char *path, unsigned access,
                                struct dcpk_error *err)
{
    char folder[PATH_MAX];

    if (!folder_of(path, folder))
        return DCPK_OK;
    return dcpk_sandbox_allow(box, folder, access, err);
}

/* ---- inputs ---- */

/* The text that an option (one of TEXT and the kinds of files) was given; NULL: none. */
static const char *given_text(const struct dcpk_cli *cli, const struct dcpk_option *option)
{
    return *(const char **)dcpk_option_field(option, cli->values);
}

static const char *text_of(const struct dcpk_cli *cli, const char *name)
{
    for (const struct dcpk_option *o = cli->options; o->kind != DCPK_OPTION_END; o++)
        if (o->kind == DCPK_OPTION_TEXT && strcmp(o->name, name) == 0)
            return given_text(cli, o);
    return NULL;
}

/* A folder with a checkpoint, or a run with several, of which one is meant. */
static dcpk_status allow_links(struct dcpk_sandbox *box, const struct dcpk_cli *cli,
                               const char *path, unsigned access, struct dcpk_error *err)
{
    const unsigned n_levels = (cli->paths & DCPK_CLI_LISTS_RUN) != 0 ? 1 : 0;
    struct dcpk_error ignored = DCPK_ERROR_INIT; /* the command itself finds it again */
    char chosen[DCPK_RUN_PATH_BYTES];
    struct dcpk_run run;

    if (dcpk_sandbox_allow_links(box, path, n_levels, access, err) != DCPK_OK)
        return err->status;
    if (dcpk_choose_iteration(path, text_of(cli, "iteration"), chosen, &ignored) ||
        dcpk_run_find(chosen, dcpk_formats, &run, &ignored))
        return DCPK_OK;
    (void)dcpk_sandbox_allow_links(box, run.folder, INNER_LEVELS, access, err);
    dcpk_run_release(&run);
    return err->status;
}

static dcpk_status allow_network(struct dcpk_sandbox *box, struct dcpk_error *err)
{
    for (size_t i = 0; i < DCPK_COUNT(network_paths); i++)
        if (dcpk_sandbox_allow(box, network_paths[i], CAN_READ, err) != DCPK_OK)
            return err->status;
    return DCPK_OK;
}

/* A checkpoint: a folder, an archive, or a folder in one. */
static dcpk_status allow_checkpoint(struct dcpk_sandbox *box, const struct dcpk_cli *cli,
                                    const char *path, unsigned access, struct dcpk_error *err)
{
    const char *temporary = getenv("TMPDIR");
    char archive[DCPK_RUN_PATH_BYTES];
    struct stat info;
    bool there;

    if (dcpk_run_is_remote(path))
        return allow_network(box, err);
    if (dcpk_run_split(path, archive) != NULL)
        path = archive;
    if (dcpk_sandbox_allow(box, path, access, err) || confine_look_at(path, 0, &there, &info, err))
        return err->status;
    if (!there)
        return DCPK_OK;
    if (S_ISDIR(info.st_mode))
        return allow_links(box, cli, path, access, err);
    if (temporary == NULL || *temporary == '\0')
        temporary = "/tmp";
    if (allow_around(box, path, DCPK_SANDBOX_LIST, err) || /* it is found there */
        dcpk_sandbox_allow(box, temporary,
                           DCPK_SANDBOX_READ | DCPK_SANDBOX_WRITE | DCPK_SANDBOX_MAKE, err))
        return err->status;
    return DCPK_OK;
}

/* ---- outputs ---- */

/* The file that a link at `path` is to lead to is made by writing through the link. */
static dcpk_status allow_target(struct dcpk_sandbox *box, const char *path, struct dcpk_error *err)
{
    char target[PATH_MAX];
    const char *led_to = target;
    size_t n_folder;
    ssize_t n;

    if (!folder_of(path, target))
        return DCPK_OK;
    n_folder = strlen(target);
    n = readlink(path, target + n_folder, sizeof target - 1 - n_folder);
    if (n <= 0)
        return DCPK_OK;
    target[n_folder + (size_t)n] = '\0';
    if (target[n_folder] == '/')
        led_to += n_folder;
    return allow_around(box, led_to, CAN_WRITE, err);
}

/* A file that an option names: a new one takes its place, unless what is there is written into. */
static dcpk_status allow_out_file(struct dcpk_sandbox *box, const char *path,
                                  struct dcpk_error *err)
{
    struct stat info;
    bool there;

    if (dcpk_sandbox_allow(box, path, DCPK_SANDBOX_READ | DCPK_SANDBOX_WRITE, err) ||
        confine_look_at(path, AT_SYMLINK_NOFOLLOW, &there, &info, err))
        return err->status;
    if (!there || S_ISREG(info.st_mode))
        return allow_around(box, path, CAN_WRITE, err);
    if (confine_look_at(path, 0, &there, &info, err) != DCPK_OK)
        return err->status;
    if (there)
        return DCPK_OK;
    return allow_target(box, path, err);
}

/* True if OUT itself will be the folder, as of a model, not a run folder. */
static bool writes_folder(const struct dcpk_cli *cli, const char *in)
{
    const struct dcpk_format *to = NULL;

    if ((cli->paths & DCPK_CLI_OUT_IS_FOLDER) != 0)
        return true;
    if (cli->to != NULL && *cli->to != NULL)
        to = dcpk_format_find(*cli->to);
    if (to != NULL)
        return to->is_model || !dcpk_format_is_target(to); /* a container: names on it are */
    return (cli->to == NULL || *cli->to == NULL) && dcpk_run_is_model(in, dcpk_formats);
}

/* Sets the place for a writer: it works in the folder around place->path. "": a path that is too
 * long. */
static void set_place(struct made *place, const char *path)
{
    if (strlen(path) < sizeof place->path)
        memcpy(place->path, path, strlen(path) + 1);
}

static dcpk_status find_place(const struct dcpk_cli *cli, const char *in, const char *out,
                              struct dcpk_run *run, struct made *place, struct dcpk_error *err)
{
    const char *inside = out;
    bool is_archive;

    if (dcpk_run_check_apart(in, out, err) || dcpk_run_is_archive(out, &is_archive, err))
        return err->status;
    if (!is_archive && writes_folder(cli, in)) {
        if (dcpk_run_target_model(out, run, err) != DCPK_OK)
            return err->status;
    } else if (!is_archive) {
        if (dcpk_run_target(out, 0, DCPK_TRACKER_SET, dcpk_formats, run, err) != DCPK_OK)
            return err->status;
        inside = run->tracker;
    }
    if (!dcpk_run_is_remote(in) && dcpk_folder_check_apart(inside, in, err) != DCPK_OK)
        return err->status;
    set_place(place, inside);
    return DCPK_OK;
}

/*
 * The same, where the system lets us look. place->path stays "" when `out` makes no sense or is not
 * apart from `in`: the command itself finds that.
 */
static dcpk_status find_sound_place(const struct dcpk_cli *cli, const char *in, const char *out,
                                    struct made *place, struct dcpk_error *err)
{
    char archive[DCPK_RUN_PATH_BYTES];
    struct dcpk_error refusal = DCPK_ERROR_INIT;
    struct dcpk_run run = {0};
    struct stat info;
    bool there;

    if (dcpk_run_split(in, archive) != NULL)
        in = archive;
    if (confine_look_at(in, 0, &there, &info, err) != DCPK_OK ||
        (!there && !dcpk_run_is_remote(in)))
        return err->status;
    (void)find_place(cli, in, out, &run, place, &refusal);
    dcpk_run_release(&run);
    if (refusal.status == DCPK_EIO || refusal.status == DCPK_ENOMEM)
        *err = refusal;
    return err->status;
}

/* Finds the folder that an option writes. "" where it makes no sense. */
static dcpk_status find_folder(const struct dcpk_option *option, const char *path,
                               struct made *place, struct dcpk_error *err)
{
    struct dcpk_error refusal = DCPK_ERROR_INIT; /* the command itself finds it again */
    struct dcpk_run run = {0};

    if (option->kind == DCPK_OPTION_OUT_FOLDER)
        set_place(place, path);
    else if (dcpk_run_target(path, 0, DCPK_TRACKER_SET, dcpk_formats, &run, &refusal) == DCPK_OK)
        set_place(place, run.tracker);
    dcpk_run_release(&run);
    if (refusal.status == DCPK_EIO || refusal.status == DCPK_ENOMEM)
        *err = refusal;
    return err->status;
}

/* Allow to write around place->path, and to remove what was made for it. */
static dcpk_status allow_place(struct dcpk_sandbox *box, const struct made *place,
                               struct dcpk_error *err)
{
    char outer[PATH_MAX];

    if (allow_around(box, place->path, CAN_WRITE, err) != DCPK_OK || place->n_parents == 0)
        return err->status;
    memcpy(outer, place->path, strlen(place->path) + 1);
    for (int i = 0; i <= place->n_parents; i++) {
        char *slash = strrchr(outer, '/');

        if (slash == NULL)
            memcpy(outer, ".", 2);
        else
            slash[slash == outer] = '\0';
    }
    return dcpk_sandbox_allow(box, outer, DCPK_SANDBOX_REMOVE_FOLDER, err);
}

static dcpk_status allow_places(struct dcpk_sandbox *box, struct dcpk_error *err)
{
    for (size_t i = 0; i < n_made; i++)
        if (allow_place(box, &made[i], err) != DCPK_OK)
            return err->status;
    return DCPK_OK;
}

/* ---- the command line ---- */

static dcpk_status allow_in_file(struct dcpk_sandbox *box, const char *path, struct dcpk_error *err)
{
    if (dcpk_sandbox_allow(box, path, CAN_READ, err) ||
        allow_around(box, path, DCPK_SANDBOX_LIST, err)) /* it is found there */
        return err->status;
    return DCPK_OK;
}

static dcpk_status allow_in_files(struct dcpk_sandbox *box, char **paths, int n_paths,
                                  struct dcpk_error *err)
{
    for (int i = 0; i < n_paths; i++)
        if (allow_in_file(box, paths[i], err) != DCPK_OK)
            return err->status;
    return DCPK_OK;
}

static dcpk_status allow_option(struct dcpk_sandbox *box, const struct dcpk_cli *cli,
                                const struct dcpk_option *option, struct dcpk_error *err)
{
    const bool is_in = option->kind == DCPK_OPTION_FILE,
               is_out = option->kind == DCPK_OPTION_OUT_FILE;
    const char *path;

    if (!is_in && !is_out && option->kind != DCPK_OPTION_CHECKPOINT)
        return DCPK_OK;
    path = given_text(cli, option);
    if (path == NULL)
        return DCPK_OK;
    if (is_out)
        return allow_out_file(box, path, err);
    if (is_in)
        return allow_in_file(box, path, err);
    return allow_checkpoint(box, cli, path, CAN_READ, err);
}

static dcpk_status allow_options(struct dcpk_sandbox *box, const struct dcpk_cli *cli,
                                 struct dcpk_error *err)
{
    for (const struct dcpk_option *o = cli->options; o->kind != DCPK_OPTION_END; o++)
        if (allow_option(box, cli, o, err) != DCPK_OK)
            return err->status;
    return DCPK_OK;
}

static bool has_out_file(const struct dcpk_cli *cli)
{
    for (const struct dcpk_option *o = cli->options; o->kind != DCPK_OPTION_END; o++)
        if (o->kind == DCPK_OPTION_OUT_FILE && given_text(cli, o) != NULL)
            return true;
    return false;
}

static bool is_dry(const struct dcpk_cli *cli)
{
    return cli->is_dry != NULL && *cli->is_dry;
}

/* Access that the command needs to the first argument. */
static unsigned first_access(const struct dcpk_cli *cli)
{
    if (is_dry(cli))
        return CAN_READ;
    if (cli->writes_in != NULL && *cli->writes_in && !has_out_file(cli))
        return CAN_WRITE;
    return (cli->paths & DCPK_CLI_LINKS_IN) != 0 ? CAN_LINK_FROM : CAN_READ;
}

static dcpk_status allow_arguments(struct dcpk_sandbox *box, const struct dcpk_cli *cli,
                                   char **args, int n_args, struct dcpk_error *err)
{
    const bool has_out = (cli->paths & DCPK_CLI_LAST_IS_OUT) != 0 && n_args > 1;
    int n_checkpoints = n_args;

    if (allow_places(box, err) != DCPK_OK)
        return err->status;
    if ((cli->paths & DCPK_CLI_NO_PATHS) != 0)
        return DCPK_OK;
    if ((cli->paths & DCPK_CLI_ARE_FILES) != 0)
        return allow_in_files(box, args, n_args, err);
    if (has_out)
        n_checkpoints--;
    else if ((cli->paths & DCPK_CLI_SECOND_IS_KEY) != 0)
        n_checkpoints = n_args > 0;
    for (int i = 0; i < n_checkpoints; i++)
        if (allow_checkpoint(box, cli, args[i], i == 0 ? first_access(cli) : CAN_READ, err))
            return err->status;
    if (has_out)
        return allow_in_file(box, args[n_args - 1], err); /* an existing output is compared */
    return DCPK_OK;
}

/* Make the folders of a place: only what is there can be allowed. */
static dcpk_status make_parents(const char *name, struct dcpk_error *err)
{
    struct made *place = &made[n_made];

    if (err->status == DCPK_OK && place->path[0] != '\0') {
        n_made++;
        (void)dcpk_parents_make(place->path, &place->n_parents, err);
    }
    if (err->status != DCPK_OK)
        dcpk_context(err, "making a place for '%s'", name);
    return err->status;
}

/* Makes places for the options that name a folder to write, and for OUT. */
static dcpk_status make_places(const struct dcpk_cli *cli, char **args, int n_args,
                               struct dcpk_error *err)
{
    const struct dcpk_option *o = cli->options;

    for (; o->kind != DCPK_OPTION_END && n_made < MAX_MADE - 1; o++) {
        const char *path;

        if (o->kind != DCPK_OPTION_OUT_FOLDER && o->kind != DCPK_OPTION_OUT_RUN)
            continue;
        path = given_text(cli, o);
        if (path == NULL)
            continue;
        (void)find_folder(o, path, &made[n_made], err);
        if (make_parents(path, err) != DCPK_OK)
            return err->status;
    }
    if ((cli->paths & DCPK_CLI_LAST_IS_OUT) == 0 || n_args < 2)
        return DCPK_OK;
    (void)find_sound_place(cli, args[0], args[n_args - 1], &made[n_made], err);
    return make_parents(args[n_args - 1], err);
}

#define DOING "making a sandbox (--no-sandbox works without one)"

static dcpk_status enter_box(struct dcpk_sandbox *box, const struct dcpk_cli *cli, char **args,
                             int n_args, struct dcpk_error *err)
{
    if ((dcpk_sandbox_has_walls(box) && (allow_system(box, err) || allow_options(box, cli, err) ||
                                         allow_arguments(box, cli, args, n_args, err))) ||
        dcpk_sandbox_enter(box, err))
        dcpk_context(err, DOING);
    return err->status;
}

/* A device other than the processor, whose driver opens what it likes. */
static bool uses_device(const struct dcpk_cli *cli)
{
    const char *name = text_of(cli, "device");

    return (cli->paths & DCPK_CLI_ASKS_DRIVERS) != 0 ||
           (name != NULL && strcmp(name, dcpk_devices[0]->name) != 0);
}

/* A checkpoint is on a server. */
static bool reads_server(const struct dcpk_cli *cli, char **args, int n_args)
{
    const struct dcpk_option *o = cli->options;

    for (int i = 0; i < n_args && (cli->paths & DCPK_CLI_NO_PATHS) == 0; i++)
        if (dcpk_run_is_remote(args[i]))
            return true;
    for (; o->kind != DCPK_OPTION_END; o++)
        if (o->kind == DCPK_OPTION_CHECKPOINT && given_text(cli, o) != NULL &&
            dcpk_run_is_remote(given_text(cli, o)))
            return true;
    return false;
}

dcpk_status dcpk_confine(const struct dcpk_cli *cli, char **args, int n_args,
                         struct dcpk_error *err)
{
    struct dcpk_sandbox *box = NULL;
    unsigned flags = 0;

    if (dcpk_ranks_launched() > 1 || uses_device(cli))
        flags = DCPK_SANDBOX_NO_WALLS | DCPK_SANDBOX_SOCKETS;
    else if (reads_server(cli, args, n_args))
        flags = DCPK_SANDBOX_SOCKETS;
    if (dcpk_sandbox_new(flags, &box, err) != DCPK_OK)
        dcpk_context(err, DOING);
    else if (!dcpk_sandbox_has_walls(box) || is_dry(cli) ||
             make_places(cli, args, n_args, err) == DCPK_OK)
        (void)enter_box(box, cli, args, n_args, err);
    dcpk_sandbox_free(box);
    return err->status;
}

void dcpk_confine_end(void)
{
    for (; n_made > 0; n_made--)
        dcpk_parents_remove(made[n_made - 1].path, made[n_made - 1].n_parents);
}

void dcpk_confine_print(FILE *out)
{
    const int abi = dcpk_sandbox_landlock_abi();
    const bool has_filter = dcpk_sandbox_has_filter();

    dcpk_cli_printf(out, "sandbox: ");
    if (abi > 0)
        dcpk_cli_printf(out, "Landlock ABI %d", abi);
    if (abi > 0 && has_filter)
        dcpk_cli_printf(out, ", ");
    if (has_filter)
        dcpk_cli_printf(out, "seccomp");
    if (abi <= 0 && !has_filter)
        dcpk_cli_printf(out, "none (the kernel has no Landlock or seccomp)");
    dcpk_cli_printf(out, "\n");
}
