/* SPDX-License-Identifier: Apache-2.0 */
/* torch_dist.h - the format row of Megatron's torch_dist checkpoints; FORMAT.md describes them. */
#ifndef DCPK_FORMATS_TORCH_DIST_TORCH_DIST_H
#define DCPK_FORMATS_TORCH_DIST_TORCH_DIST_H

#include "lib/ckpt/format.h"

extern const struct dcpk_format dcpk_format_torch_dist;

#endif
