/* SPDX-License-Identifier: Apache-2.0 */
/* hub.h - models of Hugging Face's families in the container of PyTorch's trainers. */
#ifndef DCPK_FORMATS_HUB_HUB_H
#define DCPK_FORMATS_HUB_HUB_H

#include "lib/ckpt/format.h"

/* Hugging Face's names: accelerate, transformers' Trainer, prime-rl, NeMo-RL, dcp.save. */
extern const struct dcpk_format dcpk_format_dcp_hf;
/* torchtitan's names. */
extern const struct dcpk_format dcpk_format_titan;
/* Hugging Face's names in shards of FSDP: verl, SkyRL. */
extern const struct dcpk_format dcpk_format_verl;
/* torchtitan's names in files of torch_checkpointing 2.0. */
extern const struct dcpk_format dcpk_format_titan_checkpointing;

#endif
