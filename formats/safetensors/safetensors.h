/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors.h - the format row of folders of safetensors files; FORMAT.md describes them. */
#ifndef DCPK_FORMATS_SAFETENSORS_SAFETENSORS_H
#define DCPK_FORMATS_SAFETENSORS_SAFETENSORS_H

#include "lib/ckpt/format.h"

extern const struct dcpk_format dcpk_format_safetensors;
extern const struct dcpk_format dcpk_format_peft; /* an adapter, on that container (peft.c) */

#endif
