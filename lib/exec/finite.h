/* SPDX-License-Identifier: Apache-2.0 */
/* finite.h - where a checkpoint holds NaN or Inf. */
#ifndef DCPK_LIB_EXEC_FINITE_H
#define DCPK_LIB_EXEC_FINITE_H

#include "lib/exec/exec.h"

#define DCPK_PLACE_TEXT_BYTES 1024

/*
 * Look through every stored tensor of floats. *n_bad: how many hold NaN or Inf; place: the first
 * one of the first of them, as "key[1, 4, 8] = nan". Errors: those of reading.
 */
dcpk_status dcpk_exec_find_nonfinite(struct dcpk_exec *exec, uint64_t *n_bad,
                                     char place[DCPK_PLACE_TEXT_BYTES], struct dcpk_error *err);

#endif
