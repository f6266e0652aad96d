/* SPDX-License-Identifier: Apache-2.0 */
/* sandbox.c - Landlock rules: the files and folders that are needed. */
#include "lib/io/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/base/path.h"
#include "lib/io/sandbox_priv.h"

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
    return dcpk_filter_enter(sandbox->flags, err);
}
