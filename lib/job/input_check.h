/* SPDX-License-Identifier: Apache-2.0 */
/* input_check.h - checks what a checkpoint stores of its own bytes, before it is read. */
#ifndef DCPK_LIB_JOB_INPUT_CHECK_H
#define DCPK_LIB_JOB_INPUT_CHECK_H

#include "lib/exec/exec.h"

/* How a checkpoint was checked before it was read. */
struct dcpk_input_check {
    bool is_made;
    uint64_t checked_bytes; /* of tensors, against stored checksums; 0: the format stores none */
    size_t n_listed;        /* files against integrity.json; 0: there is none */
};

/*
 * Check all checksums of a checkpoint, and the files that its integrity.json lists. Collective
 * where the executor has ranks. Errors: DCPK_EFORMAT naming the first that is wrong; those of
 * reading.
 */
dcpk_status dcpk_check_input(struct dcpk_exec *exec, struct dcpk_input_check *check,
                             struct dcpk_error *err);

#endif
