/* SPDX-License-Identifier: Apache-2.0 */
/* open_options.h - what the caller states of a checkpoint, because no file of it does. */
#ifndef DCPK_LIB_CKPT_OPEN_OPTIONS_H
#define DCPK_LIB_CKPT_OPEN_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/tensor/dtype.h"
#include "lib/tensor/fp8_blocks.h"

/* The caller's decisions about possible faults of a checkpoint. */
enum dcpk_decision {
    /* where a weight is not its rounded master, this side is right; the other is made from it */
    DCPK_TRUST_WEIGHTS = 1,
    DCPK_TRUST_MASTERS = 2,
    /* Put optimizer state back that Megatron moved over the padding of DDP buckets. */
    DCPK_REPAIR_PADDING = 4,
    /* Take weights of generalized tensor parallelism as they are stored. */
    DCPK_ACCEPT_GTP = 8,
};

/* How formats name the weights of a family of models, as Hugging Face's are. Zeroed: what is usual.
 * Texts are borrowed as long as the checkpoint or output is open. */
struct dcpk_family_settings {
    const char *maps;   /* a folder of further maps of families; NULL: those that are built in */
    const char *family; /* NULL: detected */
    bool without_mtp;   /* leave MTP layers out */
    /* The configuration of a source that has none, or one that is laid under an output's; NULL:
     * that in `assets`, for a source. */
    const char *config;
    /* Only for outputs: */
    const char *assets;         /* a folder of tokenizer files, which are copied; NULL: none */
    int64_t vocab_size;         /* rows of the vocabulary; 0: by config, else by args */
    enum dcpk_dtype dtype;      /* of weights; DCPK_DTYPE_NONE: as they are stored */
    struct dcpk_fp8_format fp8; /* of matrices of attention and MLP; zeroed: not quantised */
    uint64_t max_file_bytes;    /* of tensors in a file; 0: the format's own */
    bool splits_state; /* names of optimizer state are those of weights, also where a trainer
                        * has fused them */
};

/* An adapter (LoRA) of a model. Zeroed: none is merged. Texts are borrowed as above. */
struct dcpk_lora_settings {
    bool merges;         /* add it to the weights that are read */
    bool goes_along;     /* not merged: the target writes it, too (writes_adapter) */
    const char *adapter; /* a folder of PEFT's; NULL: the checkpoint holds it, too */
    const char *config;  /* a file that gives its rank and alpha; NULL: the one next to it */
};

/* Zeroed: nothing. Borrowed until the checkpoint is closed. lib/job/give_options.h sets them. */
struct dcpk_value;
struct dcpk_open_options {
    unsigned decisions; /* of enum dcpk_decision */
    /* DDP bucket size, in elements, of the run that wrote it, where no file records it; 0:
     * unknown. */
    int64_t bucket_elems;
    /* An argparse.Namespace whose attributes replace stored ones; NULL: none. */
    const struct dcpk_value *args;
    /* Prefixes of the keys of weights and of optimizer state, without the last dot; NULL: the
     * format's own, else the one that its keys have. */
    const char *model_prefix, *state_prefix;
    struct dcpk_family_settings family;
    struct dcpk_lora_settings lora;
    const char *const *drops; /* regular expressions (lib/rules/edit.h): keys to be left out */
    size_t n_drops;
};

#endif
