/* SPDX-License-Identifier: Apache-2.0 */
/* fault.h - what the preloaded fault makers and the tests that start them agree on. */
#ifndef DCPK_TESTS_FAULT_FAULT_H
#define DCPK_TESTS_FAULT_FAULT_H

#include <stdint.h>

/*
 * DCPK_FAULT="KIND NTH FILE": the NTH of the calls that KIND can strike (0: each of them) goes
 * wrong; FILE holds a struct fault_report and is mapped, so that it survives the process.
 *
 *   enospc  calls that need room       fail with ENOSPC
 *   full    writes and copies          fail with ENOSPC after NTH bytes in all, which n_calls
 * counts; files are given no room before (as on NFS 3) eio     every call                 fails
 * with EIO eintr   calls that can be repeated fail with EINTR (NTH 0: every other one) short reads,
 * writes and copies   do half of what was asked kill    every call                 is not made:
 * SIGKILL comes before it killroom  calls that need room  the same term    every call is made, but
 * SIGTERM comes before it tear    reads, writes and copies   do half of what was asked, then comes
 * SIGKILL nomem   every allocation           fails flip    writes of 512 bytes or more   write one
 * byte that is wrong
 *
 * "own-" in front of KIND: calls of the program itself count, those of libraries do not (MPI makes
 * thousands when it starts). "@NAME" behind it: calls of that name alone.
 */
#define FAULT_VARIABLE "DCPK_FAULT"

struct fault_report {
    uint64_t n_calls;           /* that the kind could have struck */
    uint64_t n_struck;          /* that it did */
    uint32_t n_open, n_threads; /* descriptors and threads at the end, if it came to one */
    char name[24];              /* of the last one struck */
};

#endif
