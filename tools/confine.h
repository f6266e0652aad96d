/* SPDX-License-Identifier: Apache-2.0 */
/* confine.h - confines a command to the files that its arguments name, before it reads any. */
#ifndef DCPK_TOOLS_CONFINE_H
#define DCPK_TOOLS_CONFINE_H

#include <stdio.h>

#include "tools/cmd.h"

/*
 * Enter the sandbox (lib/io/sandbox.h) that the parsed command line asks for: what it names as
 * input can be read, with what links in it lead to, and the system's libraries; what it names as
 * output can be written, with the folder around. Makes a run folder to write, because a folder can
 * be allowed only when it is there. One of several processes under mpirun gets the filter alone,
 * with sockets, because they share memory; so does one that uses a device or asks drivers. Errors:
 * DCPK_EIO, DCPK_ENOMEM.
 */
dcpk_status dcpk_confine(const struct dcpk_cli *cli, char **args, int n_args,
                         struct dcpk_error *err);

/*
 * Removes a folder that dcpk_confine made, if it is still empty. Call it when the command is over.
 */
void dcpk_confine_end(void);

/* "sandbox: ..." for --version. */
void dcpk_confine_print(FILE *out);

#endif
