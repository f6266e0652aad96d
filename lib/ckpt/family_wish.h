/* SPDX-License-Identifier: Apache-2.0 */
/* family_wish.h - what the caller wants of formats whose names are those of families of models, as
 * Hugging Face's are. */
#ifndef DCPK_LIB_CKPT_FAMILY_WISH_H
#define DCPK_LIB_CKPT_FAMILY_WISH_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/tensor/dtype.h"

/* Zeroed: what is usual. Texts are borrowed as long as the checkpoint or output is open. */
struct dcpk_family_wish {
    const char *maps;   /* a folder of further maps of families; NULL: those that are built in */
    const char *family; /* NULL: found by looking */
    bool without_mtp;   /* leave MTP layers out */
    /* Of what is written: */
    const char *config;       /* a configuration that is laid under ours; NULL: none */
    const char *assets;       /* a folder of tokenizer files, which are copied; NULL: none */
    int64_t vocab_size;       /* rows of the vocabulary; 0: by config, else by args */
    enum dcpk_dtype dtype;    /* of weights; DCPK_DTYPE_NONE: as they are stored */
    uint64_t most_file_bytes; /* of tensors in a file; 0: the format's own */
};

#endif
