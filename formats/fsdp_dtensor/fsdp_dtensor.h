/* SPDX-License-Identifier: Apache-2.0 */
/* fsdp_dtensor.h - the format row of Megatron-FSDP checkpoints; FORMAT.md describes them. */
#ifndef DCPK_FORMATS_FSDP_DTENSOR_FSDP_DTENSOR_H
#define DCPK_FORMATS_FSDP_DTENSOR_FSDP_DTENSOR_H

#include "lib/ckpt/format.h"

extern const struct dcpk_format dcpk_format_fsdp_dtensor;
extern const struct dcpk_format dcpk_format_torch_dcp; /* a scheme on it */

#endif
