/* SPDX-License-Identifier: Apache-2.0 */
/* mp_rank.h - Megatron's format "torch": a folder of torch.save files for each model-parallel rank.
 */
#ifndef DCPK_FORMATS_MP_RANK_MP_RANK_H
#define DCPK_FORMATS_MP_RANK_MP_RANK_H

#include "lib/ckpt/format.h"

extern const struct dcpk_format dcpk_format_torch;

#endif
