/* SPDX-License-Identifier: Apache-2.0 */
/* totals.h - integers added up over ranks. */
#ifndef DCPK_LIB_TRAIN_TOTALS_H
#define DCPK_LIB_TRAIN_TOTALS_H

#include "lib/device/collectives.h"
#include "lib/device/ops.h"

/*
 * Collective over the group: values, n of the host's (0: NULL), become their sums over all ranks,
 * modulo 2^64. st: how this rank fared before; where one failed, all do, those that did not with
 * DCPK_ECANCELLED. math: its memory is what the group moves. Errors: DCPK_ENOMEM; those of the
 * group and of math.
 */
dcpk_status dcpk_totals_agree(struct dcpk_group *group, struct dcpk_math *math, dcpk_status st,
                              int64_t *values, size_t n, struct dcpk_error *err);

#endif
