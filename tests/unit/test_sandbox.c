/* SPDX-License-Identifier: Apache-2.0 */
/* test_sandbox.c - what a process in the sandbox can do, and what the kernel refuses it. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/exec/pool.h"
#include "lib/io/sandbox.h"
#include "tests/check.h"
#include "tests/unit/scratch.h"

/* ---- attempts: each returns 0 or its errno ---- */

static int code_of(int fd)
{
    if (fd < 0)
        return errno;
    close(fd);
    return 0;
}

static int try_read(const char *path)
{
    return code_of(open(path, O_RDONLY | O_CLOEXEC));
}

static int try_write(const char *path)
{
    return code_of(open(path, O_WRONLY | O_CLOEXEC));
}

static int try_make(const char *path)
{
    return code_of(open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
}

static int try_list(const char *path)
{
    return code_of(open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

static int try_truncate(const char *path)
{
    return truncate(path, 0) == 0 ? 0 : errno;
}

static int try_delete(const char *path)
{
    return unlink(path) == 0 ? 0 : errno;
}

static int try_folder(const char *path)
{
    return mkdir(path, 0700) == 0 ? 0 : errno;
}

static int try_mode(const char *path)
{
    return chmod(path, 0777) == 0 ? 0 : errno;
}

static int try_run(const char *path)
{
    char *const args[] = {NULL}, *const environment[] = {NULL};

    execve(path, args, environment);
    return errno;
}

static int try_connect(const char *path)
{
    (void)path;
    return code_of(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
}

static int try_signal(const char *path)
{
    (void)path;
    return kill(getppid(), 0) == 0 ? 0 : errno;
}

static int try_mount(const char *path)
{
    return mount("none", path, "tmpfs", 0, NULL) == 0 ? 0 : errno;
}

static int try_type(const char *path)
{
    char letter = 'x';

    (void)path;
    return ioctl(STDIN_FILENO, TIOCSTI, &letter) == 0 ? 0 : errno;
}

static int try_name_space(const char *path)
{
    (void)path;
    return syscall(SYS_unshare, 0x10000000 /* CLONE_NEWUSER */) == 0 ? 0 : errno;
}

struct reading {
    const char *path;
    int codes[2];
};

static dcpk_status read_in_thread(void *context, int worker, uint64_t i, struct dcpk_error *err)
{
    struct reading *reading = context;

    (void)worker;
    (void)err;
    reading->codes[i] = try_read(reading->path);
    return DCPK_OK;
}

/* Threads start, and are confined as well. */
static int try_threads(const char *path)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct reading reading = {path, {0}};

    if (dcpk_pool_run(2, 2, read_in_thread, &reading, &err) != DCPK_OK ||
        reading.codes[0] != reading.codes[1])
        return -2;
    return reading.codes[0];
}

/* ---- the sandbox that they are made in ---- */

/* Paths in the scratch folder: in/ is read, out/ is written, else/ is neither. */
static const char *const folders[] = {"in", "in/below", "out", "else", "else/linked"};
static const char *const files[] = {"in/file",   "in/below/file",    "out/file",      "else/file",
                                    "else/only", "else/linked/file", "else/tempting", "file_rule"};
static const char *const links[][2] = {
    {"../else/only", "in/link"},           {"../../else/only", "in/below/link"},
    {"../else/linked", "in/linked"},       {"../in", "in/circle"},
    {"/no/such/file/anywhere", "in/lost"},
};

static const struct {
    const char *label;
    int (*attempt)(const char *path);
    const char *path;
    int code;
} cases[] = {
    {"a file of IN is read", try_read, "in/file", 0},
    {"one in a folder of it", try_read, "in/below/file", 0},
    {"IN is listed", try_list, "in", 0},
    {"what a link in IN leads to is read", try_read, "in/link", 0},
    {"under its own name as well", try_read, "else/only", 0},
    {"what a link to a folder leads to", try_read, "in/linked/file", 0},
    {"a file of IN is not written", try_write, "in/file", EACCES},
    {"nor made", try_make, "in/new", EACCES},
    {"nor a folder", try_folder, "in/new", EACCES},
    {"nor deleted", try_delete, "in/file", EACCES},
    {"nor given another mode", try_mode, "in/file", EPERM},
    {"a file elsewhere is not read", try_read, "else/file", EACCES},
    {"also by a thread", try_threads, "else/file", EACCES},
    {"a thread reads IN", try_threads, "in/file", 0},
    {"a folder elsewhere is not listed", try_list, "else", EACCES},
    {"nothing is made elsewhere", try_make, "else/new", EACCES},
    {"nothing is deleted elsewhere", try_delete, "else/tempting", EACCES},
    {"/etc/passwd is not read", try_read, "/etc/passwd", EACCES},
    {"a file of OUT is written", try_write, "out/file", 0},
    {"one is made", try_make, "out/new", 0},
    {"a folder is made", try_folder, "out/folder", 0},
    {"one is deleted", try_delete, "out/file", 0},
    {"a file that is allowed is read", try_read, "file_rule", 0},
    {"but not deleted", try_delete, "file_rule", EACCES},
    {"no program is started", try_run, "/bin/true", EPERM},
    {"no socket is opened", try_connect, "", EPERM},
    {"nothing is mounted", try_mount, "out", EPERM},
    {"no name space is made", try_name_space, "", EPERM},
    {"nothing is typed into a terminal", try_type, "", EPERM},
    {"an open descriptor stays", try_list, "in/below", 0},
};

/* A wall that not every kernel has: its ABI. */
static const struct {
    const char *label;
    int (*attempt)(const char *path);
    const char *path;
    int abi, code;
} later_cases[] = {
    {"a file of IN is not truncated", try_truncate, "in/file", 3, EACCES},
    {"no other process gets a signal", try_signal, "", 6, EPERM},
};

static const char *place(const char *path)
{
    return path[0] == '/' || path[0] == '\0' ? path : scratch(path);
}

static void fill(void)
{
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        CHECK_EQ_INT(mkdir(place(folders[i]), 0700), 0, folders[i]);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        CHECK_EQ_INT(try_make(place(files[i])), 0, files[i]);
    for (size_t i = 0; i < sizeof links / sizeof *links; i++)
        CHECK_EQ_INT(symlink(links[i][0], place(links[i][1])), 0, links[i][1]);
}

#define READ  (DCPK_SANDBOX_LIST | DCPK_SANDBOX_READ)
#define WRITE (READ | DCPK_SANDBOX_WRITE | DCPK_SANDBOX_MAKE | DCPK_SANDBOX_LINK)

static dcpk_status enter(unsigned in_access, unsigned flags, struct dcpk_error *err)
{
    struct dcpk_sandbox *box = NULL;
    dcpk_status st = dcpk_sandbox_new(flags, &box, err);

    if (st == DCPK_OK)
        st = dcpk_sandbox_allow(box, place("in"), in_access, err);
    if (st == DCPK_OK)
        st = dcpk_sandbox_allow_links(box, place("in"), 2, DCPK_SANDBOX_READ, err);
    if (st == DCPK_OK)
        st = dcpk_sandbox_allow(box, place("out"), WRITE, err);
    if (st == DCPK_OK)
        st = dcpk_sandbox_allow(box, place("file_rule"), READ, err);
    if (st == DCPK_OK)
        st = dcpk_sandbox_allow(box, place("no such file"), WRITE, err);
    if (st == DCPK_OK)
        st = dcpk_sandbox_enter(box, err);
    dcpk_sandbox_free(box);
    return st;
}

#define N_CASES (sizeof cases / sizeof *cases)
#define N_LATER (sizeof later_cases / sizeof *later_cases)
#define UNTRIED (-1)

/* What the child found; it has no other way to say it. */
struct found {
    dcpk_status entered;
    int codes[N_CASES], later[N_LATER];
};

static void make_attempts(struct found *found)
{
    struct dcpk_error err = DCPK_ERROR_INIT;

    found->entered = enter(READ, 0, &err);
    for (size_t i = 0; i < N_CASES; i++)
        found->codes[i] = cases[i].attempt(place(cases[i].path));
    for (size_t i = 0; i < N_LATER; i++)
        found->later[i] = later_cases[i].attempt(place(later_cases[i].path));
}

/* Run `work` in a process of its own. */
static void in_child(void (*work)(struct found *found), struct found *found)
{
    const pid_t child = fork();
    int status;

    CHECK(child >= 0, "fork");
    if (child == 0) {
        work(found);
        _exit(0);
    }
    CHECK_EQ_INT(waitpid(child, &status, 0), child, "waiting");
    CHECK_EQ_INT(status, 0, "the child's status");
}

static struct found *new_found(void)
{
    struct found *found =
        mmap(NULL, sizeof *found, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    CHECK(found != MAP_FAILED, "mmap");
    memset(found, UNTRIED, sizeof *found);
    return found;
}

static void test_attempts(void **state)
{
    struct found *found = new_found();

    (void)state;
    fill();
    in_child(make_attempts, found);
    CHECK_EQ_INT(found->entered, DCPK_OK, "entering");
    for (size_t i = 0; i < N_CASES; i++)
        CHECK_EQ_INT(found->codes[i], cases[i].code, cases[i].label);
    for (size_t i = 0; i < N_LATER; i++)
        if (later_cases[i].abi <= dcpk_sandbox_landlock_abi())
            CHECK_EQ_INT(found->later[i], later_cases[i].code, later_cases[i].label);
    munmap(found, sizeof *found);
}

static int code_of_link(void)
{
    return link(place("in/file"), place("out/linked")) == 0 ? 0 : errno;
}

static void link_from_read_only(struct found *found)
{
    struct dcpk_error err = DCPK_ERROR_INIT;

    found->entered = enter(READ | DCPK_SANDBOX_LINK, 0, &err);
    found->codes[0] = code_of_link();
}

static void link_from_writable(struct found *found)
{
    struct dcpk_error err = DCPK_ERROR_INIT;

    found->entered = enter(READ | DCPK_SANDBOX_WRITE | DCPK_SANDBOX_LINK, 0, &err);
    found->codes[0] = code_of_link();
}

/* landlock.rst, "File moves and links": a link gives no right that its file has not. */
static void test_links(void **state)
{
    struct found *found = new_found();

    (void)state;
    fill();
    in_child(link_from_read_only, found);
    CHECK_EQ_INT(found->entered, DCPK_OK, "entering");
    CHECK_EQ_INT(found->codes[0], EXDEV, "to where more may be done");
    in_child(link_from_writable, found);
    CHECK_EQ_INT(found->codes[0], 0, "to where the same may be done");
    munmap(found, sizeof *found);
}

static void work_with_others(struct found *found)
{
    struct dcpk_error err = DCPK_ERROR_INIT;

    found->entered = enter(READ, DCPK_SANDBOX_NO_WALLS | DCPK_SANDBOX_SOCKETS, &err);
    found->codes[0] = try_connect("");
    found->codes[1] = try_read(place("else/file"));
    found->codes[2] = try_run("/bin/true");
}

static void test_ranks(void **state)
{
    struct found *found = new_found();

    (void)state;
    fill();
    in_child(work_with_others, found);
    CHECK_EQ_INT(found->entered, DCPK_OK, "entering");
    CHECK_EQ_INT(found->codes[0], 0, "a socket is opened");
    CHECK_EQ_INT(found->codes[1], 0, "there are no walls");
    CHECK_EQ_INT(found->codes[2], EPERM, "no program is started");
    munmap(found, sizeof *found);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_attempts, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_links, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_ranks, scratch_setup, scratch_teardown),
    };

    if (dcpk_sandbox_landlock_abi() == 0 || !dcpk_sandbox_has_filter())
        return 77; /* the kernel has not both */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
