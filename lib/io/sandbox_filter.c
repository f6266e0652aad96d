/* SPDX-License-Identifier: Apache-2.0 */
/* sandbox_filter.c - a seccomp filter: the system calls that no work here needs. */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/io/sandbox_priv.h"

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

dcpk_status dcpk_filter_enter(unsigned flags, struct dcpk_error *err)
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

dcpk_status dcpk_filter_enter(unsigned flags, struct dcpk_error *err)
{
    (void)flags;
    (void)err;
    return DCPK_OK;
}

#endif
