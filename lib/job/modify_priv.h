/* SPDX-License-Identifier: Apache-2.0 */
/* modify_priv.h - the output of a modification. */
#ifndef DCPK_LIB_JOB_MODIFY_PRIV_H
#define DCPK_LIB_JOB_MODIFY_PRIV_H

#include "lib/job/modify.h"

/*
 * Fill m->out with what stays, under its new keys. Where items share files (dcp), keys of the same
 * bytes share one tensor or payload, and when nothing is cast, chunks, payloads and files have the
 * places they had; else only boxes, for the plan to place. Where they have files of their own
 * (zarr), m->out->tensors are those that are cast.
 */
dcpk_status dcpk_modify_output(struct dcpk_modification *m, struct dcpk_error *err);

#endif
