/* SPDX-License-Identifier: Apache-2.0 */
/* sandbox.c - Landlock rules: the files and folders that are needed; a seccomp filter: the system
 * calls that no work here needs. */
#include "lib/io/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/base/path.h"

/* ---- system calls ---- */

/* Numbers of system calls and their arguments are known for these; others go without a filter. */
#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#define OTHER_ABI    0x40000000U /* x32 calls have numbers from here on */
#elif defined(__aarch64__) && defined(__AARCH64EL__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#define OTHER_ABI    UINT32_MAX
#endif

/* Newer than the C library's header may be; the same for all architectures. */
#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
#endif
#ifndef SYS_setxattrat
#define SYS_setxattrat    463
#define SYS_removexattrat 466
#endif

/* LeakSanitizer stops the program's threads with ptrace when it ends. */
#if defined(__SANITIZE_ADDRESS__)
#define HAS_LEAK_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAS_LEAK_SANITIZER 1
#endif
#endif

#ifdef ARCHITECTURE

static const uint32_t never[] = {
    /* other programs, and what is in other processes */
    SYS_execve,
    SYS_execveat,
#ifndef HAS_LEAK_SANITIZER
    SYS_ptrace,
#endif
    SYS_kcmp,
#ifdef SYS_pidfd_getfd
    SYS_pidfd_getfd,
#endif
    /* mounts, name spaces, files by handle */
    SYS_mount,
    SYS_umount2,
    SYS_pivot_root,
    SYS_chroot,
    SYS_setns,
    SYS_unshare,
    SYS_open_by_handle_at,
#ifdef SYS_fsopen
    SYS_fsopen,
    SYS_fsmount,
    SYS_fspick,
    SYS_open_tree,
    SYS_move_mount,
#endif
#ifdef SYS_mount_setattr
    SYS_mount_setattr,
#endif
/* attributes by path, which Landlock does not see */
#ifdef SYS_chmod
    SYS_chmod,
    SYS_chown,
    SYS_lchown,
#endif
    SYS_fchmodat,
    SYS_fchmodat2,
    SYS_fchownat,
    SYS_setxattr,
    SYS_lsetxattr,
    SYS_removexattr,
    SYS_lremovexattr,
    SYS_setxattrat,
    SYS_removexattrat,
    /* large and rarely needed parts of the kernel */
    SYS_bpf,
    SYS_perf_event_open,
    SYS_userfaultfd,
#ifdef SYS_io_uring_setup /* its work passes by filters */
    SYS_io_uring_setup,
#endif
    SYS_add_key,
    SYS_request_key,
    SYS_keyctl,
    SYS_personality,
    /* the machine */
    SYS_init_module,
    SYS_finit_module,
    SYS_delete_module,
    SYS_kexec_load,
#ifdef SYS_kexec_file_load
    SYS_kexec_file_load,
#endif
    SYS_reboot,
    SYS_swapon,
    SYS_swapoff,
    SYS_acct,
    SYS_quotactl,
    SYS_syslog,
    SYS_settimeofday,
    SYS_clock_settime,
    SYS_adjtimex,
    SYS_clock_adjtime,
    SYS_sethostname,
    SYS_setdomainname,
};

/* Calls that ranks of one job make on each other. */
static const uint32_t apart[] = {SYS_socket, SYS_process_vm_readv, SYS_process_vm_writev};

#define N_NEVER (sizeof never / sizeof *never)
#define N_APART (sizeof apart / sizeof *apart)
#define N_REST  32 /* instructions in addition to those of the two tables, at most */

struct program {
    struct sock_filter code[2 * (N_NEVER + N_APART) + N_REST];
    unsigned short n;
};

static void program_put(struct program *p, uint16_t operation, uint32_t k, uint8_t if_true,
                        uint8_t if_false)
{
    p->code[p->n++] = (struct sock_filter){operation, if_true, if_false, k};
}

static void put_load(struct program *p, size_t offset_bytes)
{
    program_put(p, BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset_bytes, 0, 0);
}

static void put_refuse(struct program *p, int code)
{
    program_put(p, BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ((uint32_t)code & SECCOMP_RET_DATA), 0, 0);
}

/* Refuse the call whose number is loaded, if it is this one. */
static void put_call(struct program *p, uint32_t number, int code)
{
    program_put(p, BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1);
    put_refuse(p, code);
}

/* Refuse call `number` where its argument `i`, of which the low half counts, passes the test
 * `operation` with k; then load the number again. */
static void put_argument(struct program *p, uint32_t number, size_t i, uint16_t operation,
                         uint32_t k)
{
    program_put(p, BPF_JMP | BPF_JEQ | BPF_K, number, 0, 4);
    put_load(p, offsetof(struct seccomp_data, args) + i * sizeof(uint64_t));
    program_put(p, BPF_JMP | operation | BPF_K, k, 0, 1);
    put_refuse(p, EPERM);
    put_load(p, offsetof(struct seccomp_data, nr));
}

static void filter_build(struct program *p, unsigned flags)
{
    put_load(p, offsetof(struct seccomp_data, arch));
    program_put(p, BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0);
    program_put(p, BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS, 0, 0);
    put_load(p, offsetof(struct seccomp_data, nr));
    program_put(p, BPF_JMP | BPF_JGE | BPF_K, OTHER_ABI, 0, 1);
    put_refuse(p, EPERM);
    for (size_t i = 0; i < N_NEVER; i++)
        put_call(p, never[i], EPERM);
    for (size_t i = 0; (flags & DCPK_SANDBOX_SOCKETS) == 0 && i < N_APART; i++)
        put_call(p, apart[i], EPERM);
#ifdef SYS_clone3 /* its flags are in memory, out of sight; the C library falls back to clone */
    put_call(p, SYS_clone3, ENOSYS);
#endif
    put_argument(p, SYS_clone, 0, BPF_JSET, CLONE_NEWUSER);
    put_argument(p, SYS_ioctl, 1, BPF_JEQ, TIOCSTI); /* types into the terminal */
    program_put(p, BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);
}

bool dcpk_sandbox_has_filter(void)
{
    const uint32_t action = SECCOMP_RET_ERRNO;

    return syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0;
}

static dcpk_status filter_enter(unsigned flags, struct dcpk_error *err)
{
    struct program p = {.n = 0};
    struct sock_fprog program = {.filter = p.code};

    if (!dcpk_sandbox_has_filter())
        return DCPK_OK;
    filter_build(&p, flags);
    program.len = p.n;
    /* SPEC_ALLOW: without it older kernels slow down all of the process's work */
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
                SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_SPEC_ALLOW, &program) != 0)
        return dcpk_fail_errno(err, errno, "giving the kernel a filter of system calls");
    return DCPK_OK;
}

#else

bool dcpk_sandbox_has_filter(void)
{
    return false;
}

static dcpk_status filter_enter(unsigned flags, struct dcpk_error *err)
{
    (void)flags;
    (void)err;
    return DCPK_OK;
}

#endif

/* The kernel's own header may be older than the kernel (include/uapi/linux/landlock.h @6.15). */
#ifndef SYS_landlock_create_ruleset
#define SYS_landlock_create_ruleset 444
#define SYS_landlock_add_rule       445
#define SYS_landlock_restrict_self  446
#endif
#define CREATE_RULESET_VERSION 1U
#define RULE_PATH_BENEATH      1
#define FS_EXECUTE             (UINT64_C(1) << 0)
#define FS_WRITE_FILE          (UINT64_C(1) << 1)
#define FS_READ_FILE           (UINT64_C(1) << 2)
#define FS_READ_DIR            (UINT64_C(1) << 3)
#define FS_REMOVE_DIR          (UINT64_C(1) << 4)
#define FS_REMOVE_FILE         (UINT64_C(1) << 5)
#define FS_MAKE_DIR            (UINT64_C(1) << 7)
#define FS_MAKE_REG            (UINT64_C(1) << 8)
#define FS_MAKE_SOCK           (UINT64_C(1) << 9)
#define FS_MAKE_FIFO           (UINT64_C(1) << 10)
#define FS_MAKE_SYM            (UINT64_C(1) << 12)
#define FS_REFER               (UINT64_C(1) << 13)
#define FS_TRUNCATE            (UINT64_C(1) << 14) /* ABI 3 */
#define FS_OF_FILE             (FS_EXECUTE | FS_WRITE_FILE | FS_READ_FILE | FS_TRUNCATE)
#define NET_ALL                UINT64_C(3) /* TCP: bind, connect */
#define SCOPE_ALL              UINT64_C(3) /* abstract sockets, signals */

#define MIN_ABI   2 /* the first with FS_REFER: before, nothing could be linked */
#define ABI_NET   4
#define ABI_SCOPE 6

struct ruleset {
    uint64_t fs, net, scope; /* access that is refused unless a rule allows it */
};

struct path_rule {
    uint64_t allowed;
    int32_t fd;
} __attribute__((packed));

struct dcpk_sandbox {
    unsigned flags;
    int fd; /* the ruleset, -1: no walls */
    uint64_t handled;
};

/* All rights of files that an ABI knows. */
static uint64_t handled_by(int abi)
{
    static const int n_rights[] = {[2] = 14, [3] = 15, [4] = 15, [5] = 16};
    const size_t known = dcpk_min_size((size_t)abi, DCPK_COUNT(n_rights) - 1);

    return (UINT64_C(1) << n_rights[known]) - 1;
}

int dcpk_sandbox_landlock_abi(void)
{
    const long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, CREATE_RULESET_VERSION);

    return abi < MIN_ABI ? 0 : (int)abi;
}

dcpk_status dcpk_sandbox_new(unsigned flags, struct dcpk_sandbox **sandbox, struct dcpk_error *err)
{
    const int abi = (flags & DCPK_SANDBOX_NO_WALLS) != 0 ? 0 : dcpk_sandbox_landlock_abi();
    struct dcpk_sandbox *s = dcpk_alloc(sizeof *s, err);
    struct ruleset rules;

    if (s == NULL)
        return err->status;
    s->flags = flags;
    s->fd = -1;
    if (abi != 0) {
        rules = (struct ruleset){handled_by(abi),
                                 abi < ABI_NET || (flags & DCPK_SANDBOX_SOCKETS) != 0 ? 0 : NET_ALL,
                                 abi < ABI_SCOPE ? 0 : SCOPE_ALL};
        s->handled = rules.fs;
        s->fd = (int)syscall(SYS_landlock_create_ruleset, &rules, sizeof rules, 0);
        if (s->fd < 0) {
            dcpk_free(s);
            return dcpk_fail_errno(err, errno, "making a set of Landlock rules");
        }
    }
    *sandbox = s;
    return DCPK_OK;
}

void dcpk_sandbox_free(struct dcpk_sandbox *sandbox)
{
    if (sandbox == NULL)
        return;
    if (sandbox->fd >= 0)
        close(sandbox->fd);
    dcpk_free(sandbox);
}

bool dcpk_sandbox_has_walls(const struct dcpk_sandbox *sandbox)
{
    return sandbox->fd >= 0;
}

static uint64_t rights_of(unsigned access)
{
    static const struct {
        enum dcpk_sandbox_access access;
        uint64_t rights;
    } rows[] = {
        {DCPK_SANDBOX_LIST, FS_READ_DIR},
        {DCPK_SANDBOX_READ, FS_READ_FILE},
        {DCPK_SANDBOX_WRITE, FS_WRITE_FILE | FS_TRUNCATE},
        {DCPK_SANDBOX_MAKE, FS_REMOVE_DIR | FS_REMOVE_FILE | FS_MAKE_DIR | FS_MAKE_REG |
                                FS_MAKE_SOCK | FS_MAKE_FIFO | FS_MAKE_SYM},
        {DCPK_SANDBOX_REMOVE_FOLDER, FS_REMOVE_DIR},
        {DCPK_SANDBOX_LINK, FS_REFER},
    };
    uint64_t rights = 0;

    for (size_t i = 0; i < DCPK_COUNT(rows); i++)
        if ((access & rows[i].access) != 0)
            rights |= rows[i].rights;
    return rights;
}

/* info: of what fd, an O_PATH descriptor, is. */
static dcpk_status sandbox_add_rule(const struct dcpk_sandbox *sandbox, int fd,
                                    const struct stat *info, unsigned access,
                                    struct dcpk_error *err)
{
    const uint64_t possible = S_ISDIR(info->st_mode) ? UINT64_MAX : FS_OF_FILE;
    const struct path_rule rule = {rights_of(access) & sandbox->handled & possible, fd};

    if (rule.allowed == 0 ||
        syscall(SYS_landlock_add_rule, sandbox->fd, RULE_PATH_BENEATH, &rule, 0) == 0 ||
        errno == EBADFD) /* a pipe or socket, which Landlock leaves alone */
        return DCPK_OK;
    return dcpk_fail_errno(err, errno, "adding a Landlock rule");
}

/* True if there is nothing at a path, or nothing that we may see. Its user reports it. */
static bool is_absent(int code)
{
    return code == ENOENT || code == ENOTDIR || code == EACCES || code == ELOOP ||
           code == ENAMETOOLONG;
}

/* *fd: what `name` in the folder of a descriptor leads to, links followed; -1: it is absent. */
static dcpk_status open_place(int folder_fd, const char *name, int *fd, struct stat *info,
                              struct dcpk_error *err)
{
    *fd = openat(folder_fd, name, O_PATH | O_CLOEXEC);
    if (*fd < 0 && is_absent(errno))
        return DCPK_OK;
    if (*fd >= 0 && fstat(*fd, info) == 0)
        return DCPK_OK;
    (void)dcpk_fail_errno(err, errno, "opening '%s'", name);
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
    return err->status;
}

dcpk_status dcpk_sandbox_allow(struct dcpk_sandbox *sandbox, const char *path, unsigned access,
                               struct dcpk_error *err)
{
    struct stat info;
    int fd = -1;
    dcpk_status st = DCPK_OK;

    if (sandbox->fd >= 0)
        st = open_place(AT_FDCWD, path, &fd, &info, err);
    if (fd < 0)
        return st;
    st = sandbox_add_rule(sandbox, fd, &info, access, err);
    close(fd);
    return st;
}

/* ---- links ---- */

#define MAX_LEVELS 8
#define MAX_LINKED 1024 /* folders that links lead to: of more the links are not looked for */

/* A walk, depth first. */
struct walk {
    struct level {
        DIR *dir;
        unsigned n_below; /* levels that are looked into below this one */
    } levels[MAX_LEVELS + 1];
    size_t n_levels;
    struct seen {
        dev_t device;
        ino_t inode;
    } linked[MAX_LINKED]; /* looked into already: links may lead in circles */
    size_t n_linked;
};

/* Look into a folder, too. */
static dcpk_status sandbox_enter(struct walk *walk, int folder_fd, const char *name,
                                 unsigned n_below, struct dcpk_error *err)
{
    DIR *dir = dcpk_dir_open(folder_fd, name, 0);

    if (dir == NULL && is_absent(errno))
        return DCPK_OK;
    if (dir == NULL)
        return dcpk_fail_errno(err, errno, "opening folder '%s'", name);
    walk->levels[walk->n_levels++] = (struct level){dir, n_below};
    return DCPK_OK;
}

/* Remember a folder that a link leads to; false when it is not to be looked into. */
static bool walk_take(struct walk *walk, const struct stat *info)
{
    for (size_t i = 0; i < walk->n_linked; i++)
        if (walk->linked[i].device == info->st_dev && walk->linked[i].inode == info->st_ino)
            return false;
    if (walk->n_linked == MAX_LINKED)
        return false;
    walk->linked[walk->n_linked++] = (struct seen){info->st_dev, info->st_ino};
    return true;
}

static dcpk_status walk_link(struct walk *walk, const struct dcpk_sandbox *sandbox, int folder_fd,
                             const char *name, unsigned access, struct dcpk_error *err)
{
    struct stat info;
    int fd;
    dcpk_status st = open_place(folder_fd, name, &fd, &info, err);

    if (fd < 0)
        return st;
    st = sandbox_add_rule(sandbox, fd, &info, access, err);
    close(fd);
    if (st == DCPK_OK && S_ISDIR(info.st_mode) && walk->n_levels <= MAX_LEVELS &&
        walk_take(walk, &info))
        st = sandbox_enter(walk, folder_fd, name, 0, err);
    return st;
}

static bool is_kind(int folder_fd, const struct dirent *entry, unsigned char type, mode_t kind)
{
    struct stat info;

    if (entry->d_type != DT_UNKNOWN)
        return entry->d_type == type;
    return fstatat(folder_fd, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
           (info.st_mode & S_IFMT) == kind;
}

dcpk_status dcpk_sandbox_allow_links(struct dcpk_sandbox *sandbox, const char *folder,
                                     unsigned n_levels, unsigned access, struct dcpk_error *err)
{
    struct walk *walk;
    dcpk_status st = DCPK_OK;

    if (sandbox->fd < 0)
        return DCPK_OK;
    walk = dcpk_alloc(sizeof *walk, err);
    if (walk == NULL)
        return err->status;
    st = sandbox_enter(walk, AT_FDCWD, folder, n_levels < MAX_LEVELS ? n_levels : MAX_LEVELS - 1,
                       err);
    while (walk->n_levels > 0) {
        const struct level top = walk->levels[walk->n_levels - 1];
        const struct dirent *entry = st == DCPK_OK ? readdir(top.dir) : NULL;

        if (entry == NULL) {
            closedir(top.dir);
            walk->n_levels--;
        } else if (is_kind(dirfd(top.dir), entry, DT_LNK, S_IFLNK)) {
            st = walk_link(walk, sandbox, dirfd(top.dir), entry->d_name, access, err);
        } else if (top.n_below > 0 && strcmp(entry->d_name, ".") != 0 &&
                   strcmp(entry->d_name, "..") != 0 &&
                   is_kind(dirfd(top.dir), entry, DT_DIR, S_IFDIR)) {
            st = sandbox_enter(walk, dirfd(top.dir), entry->d_name, top.n_below - 1, err);
        }
    }
    dcpk_free(walk);
    return st;
}

dcpk_status dcpk_sandbox_enter(struct dcpk_sandbox *sandbox, struct dcpk_error *err)
{
    if (sandbox->fd >= 0 && (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
                             syscall(SYS_landlock_restrict_self, sandbox->fd, 0) != 0))
        return dcpk_fail_errno(err, errno, "entering a set of Landlock rules");
    return filter_enter(sandbox->flags, err);
}
