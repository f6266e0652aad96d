/* SPDX-License-Identifier: Apache-2.0 */
/* target_args.h - the options that describe the run which will load a conversion's output. */
#ifndef DCPK_TOOLS_TARGET_ARGS_H
#define DCPK_TOOLS_TARGET_ARGS_H

#include "lib/job/convert.h"
#include "tools/cmd.h"

/* What the command line says. */
struct dcpk_target_args {
    const char *mesh, *dp, *vocab_size, *divisible_by;
};

#define DCPK_TARGET_OPTIONS(a)                                                                     \
    {"target-mesh",                                                                                \
     0,                                                                                            \
     DCPK_CLI_TEXT,                                                                                \
     &(a).mesh,                                                                                    \
     "DIMS",                                                                                       \
     "torch_dist: write the chunks of a run on tp=T,pp=P,ep=E,dp=D,cp=C (left out: 1), etp=E (of " \
     "experts; left out: tp), vpp=V, first=N and last=N (layers of the stages at the ends); for "  \
     "a pipeline cut otherwise leave pp out, no chunk depends on it (default: few large chunks, "  \
     "which every layout loads)"},                                                                 \
        {"target-dp",                                                                              \
         0,                                                                                        \
         DCPK_CLI_TEXT,                                                                            \
         &(a).dp,                                                                                  \
         "N[,DIMS]",                                                                               \
         "fsdp_dtensor: write the chunks of Megatron-FSDP on N data-parallel ranks (context "      \
         "parallelism included); DIMS: tp=T,ep=E,hsdp=K instances,bucket=B elements (default "     \
         "as with --overlap-grad-reduce, 0 without)"},                                             \
        {"vocab-size",  0,                                                                         \
         DCPK_CLI_TEXT, &(a).vocab_size,                                                           \
         "N",           "real rows of the vocabulary (default: as the checkpoint's args say)"},    \
    {                                                                                              \
        "make-vocab-size-divisible-by", 0, DCPK_CLI_TEXT, &(a).divisible_by, "M",                  \
            "pad the vocabulary to a multiple of M times the target's tp, trimming or adding "     \
            "zero rows (default: as stored)"                                                       \
    }

/* "tp=2,pp=2": the sizes of a mesh, those left out 1 and dp 0. Errors: DCPK_EUSAGE naming
 * `option`. */
dcpk_status dcpk_mesh_parse(const char *option, const char *text, struct dcpk_layout *mesh,
                            struct dcpk_error *err);

/*
 * Fill target->mesh and bucket_elems, rules->mesh and rules->vocab. Errors: DCPK_EUSAGE for what
 * cannot be read, does not fit together or is not for the format `to`.
 */
dcpk_status dcpk_target_args_apply(const struct dcpk_target_args *a, const struct dcpk_format *to,
                                   struct dcpk_target *target, struct dcpk_rule_options *rules,
                                   struct dcpk_error *err);

/* Add to the error that a checkpoint is of the format `to` already what would write it anew. */
void dcpk_target_args_advise(const struct dcpk_format *to, struct dcpk_error *err);

#endif
