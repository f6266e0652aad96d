/* SPDX-License-Identifier: Apache-2.0 */
/* formats.h - the table of all formats that were built. A new format is a folder here and one row
 * in formats.c. */
#ifndef DCPK_FORMATS_FORMATS_H
#define DCPK_FORMATS_FORMATS_H

#include "formats/remote/remote.h"
#include "lib/base/codec.h"
#include "lib/base/setting.h"
#include "lib/ckpt/format.h"
#include "lib/ckpt/run.h"
#include "lib/ckpt/value.h"

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
/* Megatron's names in the folders of a step of verl. */
extern const struct dcpk_format dcpk_format_verl_megatron;
/* torchtitan's names on DCP, and in files of torch_checkpointing 2.0. */
extern const struct dcpk_format dcpk_format_titan, dcpk_format_titan_checkpointing;

/* Optional parts of formats that this build lacks, for people; NULL-terminated. */
extern const char *const *const dcpk_formats_absent;

/* Opens a checkpoint inside an archive (formats/archive); NULL when this build lacks libarchive. */
extern dcpk_run_open_file *const dcpk_archive_opener;

/* Files and folders that frameworks around Megatron keep next to a checkpoint's own
 * (formats/bridge/FORMAT.md); the last has no name. */
extern const struct dcpk_side_file dcpk_side_files[];

/* Read args from YAML, and YAML as it is below; NULL when this build lacks
 * libyaml. */
typedef dcpk_status dcpk_read_value(const char *text, size_t n_bytes, struct dcpk_arena *arena,
                                    const struct dcpk_value **value, struct dcpk_error *err);
extern dcpk_read_value *const dcpk_yaml_args_reader, *const dcpk_yaml_reader;

/* List the settings of a configuration with their places below; NULL as above.
 */
typedef dcpk_status dcpk_list_settings(const char *text, size_t n_bytes, struct dcpk_settings *list,
                                       struct dcpk_error *err);
extern dcpk_list_settings *const dcpk_yaml_settings;

/* The format of that name, or NULL. */
const struct dcpk_format *dcpk_format_find(const char *name);

/* ---- zarr ---- */

extern const struct dcpk_format dcpk_format_zarr;

/* Compressors that this build lacks, "zarr codec zstd"; NULL-terminated. */
extern const char *const dcpk_zarr_absent_codecs[];

/* zstd, frames with their checksum; NULL when this build lacks it. */
extern const struct dcpk_codec *const dcpk_zstd;

/* ---- archives ---- */

/*
 * A dcpk_run_open_file: list the archive once, find the checkpoint in it, open it. Members of a
 * plain tar and stored members of a zip are read where they are; where one cannot be (compressed,
 * sparse) all are unpacked once into an unnamed temporary file in $TMPDIR, or /tmp, and the store
 * gets a note of it. opening->progress: of the compressed bytes, while unpacking.
 * run->folder: "<path>:<folder in it>", or the path. Errors: DCPK_EFORMAT for what is not an
 * archive, malformed, leaves its folder, names a file twice, or has a link or device among the
 * checkpoint's files; DCPK_ERANGE when it unpacks to more than formats/archive/FORMAT.md's limit;
 * DCPK_EUNSUPPORTED when it is encrypted; DCPK_EIO when the temporary file finds no space;
 * DCPK_ECANCELLED; those of dcpk_run_find_among.
 */
dcpk_run_open_file dcpk_archive_open;

/* ---- fsdp_dtensor ---- */

/* The tool's flags (formats/fsdp_dtensor/FORMAT.md 12.1), borrowed; prefixes are the output's. */
struct dcpk_fsdp_inspector_options {
    bool swiglu;
    const char *const *swiglu_modules; /* NULL: not given; wins over swiglu, even when empty */
    size_t n_swiglu_modules;
    bool rename_mtp;
    /* A map was given: without meaning for a dense model, refused where the tool would use it
     * wrongly. */
    bool has_group_map;
};

/*
 * Another mapping of fsdp_dtensor, by from_keys with such options: the tensors and objects that
 * convert-torch-dist-to-fsdp-dtensor of tools/checkpoint/checkpoint_inspector.py (core 0.18.0 to
 * 0.19.0 and main) writes, by rules R0 to R16 of that section. Errors: DCPK_EUNSUPPORTED naming the
 * trap (T1 to T15) where the tool crashes or scrambles, and for a source without common state.
 */
extern const struct dcpk_format_mapping dcpk_fsdp_inspector;

/* ---- Megatron-Bridge's configuration, and YAML ---- */

/*
 * Read n bytes of YAML: one document, of the values that PyYAML's safe loader makes of it; tags are
 * not followed. value: in `arena`. Errors: DCPK_EFORMAT with line and column; DCPK_ERANGE for more
 * values than a configuration has, aliases followed.
 */
dcpk_status dcpk_bridge_parse(const char *text, size_t n_bytes, struct dcpk_arena *arena,
                              const struct dcpk_value **value, struct dcpk_error *err);

/*
 * Read n bytes of YAML: run_config.yaml of Megatron-Bridge, whose sections become args by the table
 * of FORMAT.md, or one mapping of args by their own names. args: an argparse.Namespace in `arena`.
 * Errors: DCPK_EFORMAT with line and column; DCPK_ERANGE for more values than a configuration has,
 * aliases followed; DCPK_EUNSUPPORTED for YAML that is neither.
 */
dcpk_status dcpk_bridge_read_args(const char *text, size_t n_bytes, struct dcpk_arena *arena,
                                  const struct dcpk_value **args, struct dcpk_error *err);

/*
 * List the settings of a configuration, YAML or JSON, with their places in the text: the members of
 * its sections, and those outside of sections. Errors: as dcpk_bridge_parse; DCPK_EUNSUPPORTED for
 * what is not a mapping.
 */
dcpk_status dcpk_bridge_settings(const char *text, size_t n_bytes, struct dcpk_settings *list,
                                 struct dcpk_error *err);

#endif
