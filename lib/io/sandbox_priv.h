/* SPDX-License-Identifier: Apache-2.0 */
/* sandbox_priv.h - the two halves of a sandbox. */
#ifndef DCPK_LIB_IO_SANDBOX_PRIV_H
#define DCPK_LIB_IO_SANDBOX_PRIV_H

#include "lib/io/sandbox.h"

/* Install the filter for all threads. flags: of enum dcpk_sandbox_flags. Errors: DCPK_EIO. */
dcpk_status dcpk_filter_enter(unsigned flags, struct dcpk_error *err);

#endif
