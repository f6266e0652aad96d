/* SPDX-License-Identifier: Apache-2.0 */
/* mp_rank_write.h - the files of an output of ranks. */
#ifndef DCPK_FORMATS_MP_RANK_WRITE_H
#define DCPK_FORMATS_MP_RANK_WRITE_H

#include "lib/ckpt/format.h"

/* A file that torch.load reads: a value, whose tensors without bytes are those of the output, one
 * chunk each. */
struct dcpk_mp_file {
    const char *name;   /* "mp_rank_00_001/distrib_optim.pt" */
    const char *prefix; /* of the records in it: "distrib_optim" */
    uint32_t payload;
    size_t first_tensor, n_tensors; /* of out->tensors */
};

/* out->form of an output; in its arena. */
struct dcpk_mp_files {
    struct dcpk_mp_file *list;
    size_t n, capacity;
};

/* Writes an output whose form these are. */
extern const struct dcpk_format_writer dcpk_mp_writer;

#endif
