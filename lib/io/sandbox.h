/* SPDX-License-Identifier: Apache-2.0 */
/* sandbox.h - what this process needs from now on; the kernel refuses it the rest, for good. */
#ifndef DCPK_LIB_IO_SANDBOX_H
#define DCPK_LIB_IO_SANDBOX_H

#include <stdbool.h>

#include "lib/base/error.h"

/*
 * Two walls, each where the kernel has it. Landlock (ABI 2 and later: Linux 5.19) shuts off all
 * files and folders but those that were allowed, TCP (ABI 4), and signals and abstract sockets of
 * other processes (ABI 6). A seccomp filter refuses system calls that no work here needs (programs,
 * tracing, mounts, sockets, ...) with EPERM. Both hold for all threads that are started afterwards,
 * the filter for all there are; neither can be taken back. Open files stay usable. Source: the
 * kernel's Documentation/userspace-api/landlock.rst and seccomp_filter.rst.
 */
struct dcpk_sandbox;

/* Access to a path and everything below it. */
enum dcpk_sandbox_access {
    DCPK_SANDBOX_LIST = 1,           /* list folders */
    DCPK_SANDBOX_READ = 2,           /* read files */
    DCPK_SANDBOX_WRITE = 4,          /* change files that are there */
    DCPK_SANDBOX_MAKE = 8,           /* make, rename and delete files, links and folders */
    DCPK_SANDBOX_REMOVE_FOLDER = 16, /* delete empty folders */
    /*
     * Move and link from one folder to another. A file can be linked only to a folder that allows
     * no more than its own.
     */
    DCPK_SANDBOX_LINK = 32,
};

enum dcpk_sandbox_flags {
    DCPK_SANDBOX_NO_WALLS = 1, /* no Landlock: processes that share memory stay able to */
    DCPK_SANDBOX_SOCKETS = 2,  /* sockets, TCP and such memory are left alone */
};

/* The newest Landlock ABI that is used, 0: the kernel has none that can be. */
int dcpk_sandbox_landlock_abi(void);
/* True if the kernel takes a filter. */
bool dcpk_sandbox_has_filter(void);

/* Begin the list of what is needed. flags: of enum dcpk_sandbox_flags. Errors: DCPK_EIO. */
dcpk_status dcpk_sandbox_new(unsigned flags, struct dcpk_sandbox **sandbox, struct dcpk_error *err);
void dcpk_sandbox_free(struct dcpk_sandbox *sandbox); /* NULL is a no-op; what was entered stays */
/* True if it will have walls. Without them the functions below do nothing, except for entering. */
bool dcpk_sandbox_has_walls(const struct dcpk_sandbox *sandbox);

/*
 * Add `path`, links resolved, with `access`; of a file only what applies to one. A path that is not
 * there or cannot be reached adds nothing. Errors: DCPK_EIO for other failures than these.
 */
dcpk_status dcpk_sandbox_allow(struct dcpk_sandbox *sandbox, const char *path, unsigned access,
                               struct dcpk_error *err);
/*
 * Add the targets of links in `folder`, down to n_levels folders below it, and of links one level
 * below these targets. A path that is not a folder adds nothing.
 */
dcpk_status dcpk_sandbox_allow_links(struct dcpk_sandbox *sandbox, const char *folder,
                                     unsigned n_levels, unsigned access, struct dcpk_error *err);

/* Enter: from here on it holds. Errors: DCPK_EIO when the kernel has a wall and refuses it. */
dcpk_status dcpk_sandbox_enter(struct dcpk_sandbox *sandbox, struct dcpk_error *err);

#endif
