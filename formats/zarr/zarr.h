/* SPDX-License-Identifier: Apache-2.0 */
/* zarr.h - the format row of Megatron's zarr checkpoints; FORMAT.md describes them. */
#ifndef DCPK_FORMATS_ZARR_ZARR_H
#define DCPK_FORMATS_ZARR_ZARR_H

#include "lib/base/codec.h"
#include "lib/ckpt/format.h"

extern const struct dcpk_format dcpk_format_zarr;

/* Compressors that this build lacks, "zarr codec zstd"; NULL-terminated. */
extern const char *const dcpk_zarr_absent_codecs[];

/* zstd, frames with their checksum; NULL when this build lacks it. */
extern const struct dcpk_codec *const dcpk_zstd;

#endif
