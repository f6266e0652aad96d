/* SPDX-License-Identifier: Apache-2.0 */
/* formats.h - the table of all formats that were built. A new format is a folder here and one row
 * in formats.c. */
#ifndef DCPK_FORMATS_FORMATS_H
#define DCPK_FORMATS_FORMATS_H

#include "formats/remote/remote.h"
#include "formats/zarr/zarr.h"
#include "lib/base/setting.h"
#include "lib/ckpt/format.h"
#include "lib/ckpt/run.h"

/* NULL-terminated. */
extern const struct dcpk_format *const dcpk_formats[];

/* Rows of it, which no other folder builds on; FORMAT.md of their folders describes them. */
extern const struct dcpk_format dcpk_format_torch_dist, dcpk_format_fsdp_dtensor,
    dcpk_format_safetensors, dcpk_format_peft /* an adapter, on that container */;
/* The keys of torch_dist's tensors on a plain DCP folder. */
extern const struct dcpk_format dcpk_format_torch_dcp;
/* Megatron's format "torch": a folder of torch.save files for each model-parallel rank. */
extern const struct dcpk_format dcpk_format_torch;
/* Hugging Face's names on DCP: accelerate, transformers' Trainer, prime-rl, NeMo-RL, dcp.save; and
 * in shards of FSDP: verl, SkyRL. */
extern const struct dcpk_format dcpk_format_dcp_hf, dcpk_format_verl;
/* torchtitan's names on DCP, and in files of torch_checkpointing 2.0. */
extern const struct dcpk_format dcpk_format_titan, dcpk_format_titan_checkpointing;

/* Optional parts of formats that this build lacks, for people; NULL-terminated. */
extern const char *const *const dcpk_formats_absent;

/* Opens a checkpoint inside an archive (formats/archive); NULL when this build lacks libarchive. */
extern dcpk_run_open_file *const dcpk_archive_opener;

/* Files and folders that frameworks around Megatron keep next to a checkpoint's own
 * (formats/bridge/FORMAT.md); the last has no name. */
extern const struct dcpk_side_file dcpk_side_files[];

/* Read args from YAML, and YAML as it is (formats/bridge/bridge.h); NULL when this build lacks
 * libyaml. */
typedef dcpk_status dcpk_read_value(const char *text, size_t n_bytes, struct dcpk_arena *arena,
                                    const struct dcpk_value **value, struct dcpk_error *err);
extern dcpk_read_value *const dcpk_yaml_args_reader, *const dcpk_yaml_reader;

/* List the settings of a configuration with their places (formats/bridge/bridge.h); NULL as above.
 */
typedef dcpk_status dcpk_list_settings(const char *text, size_t n_bytes, struct dcpk_settings *list,
                                       struct dcpk_error *err);
extern dcpk_list_settings *const dcpk_yaml_settings;

/* The format of that name, or NULL. */
const struct dcpk_format *dcpk_format_find(const char *name);

#endif
