/* SPDX-License-Identifier: Apache-2.0 */
/* told_args.h - the options that tell of a checkpoint what no file does. */
#ifndef DCPK_TOOLS_TOLD_ARGS_H
#define DCPK_TOOLS_TOLD_ARGS_H

#include "lib/job/told.h"
#include "tools/cmd.h"

/* What the command line says. */
struct dcpk_told_args {
    const char *model_prefix, *state_prefix;
    int64_t bucket_elems;
    struct dcpk_cli_list drops; /* room for DCPK_CLI_MAX_LIST texts given by the caller */
};

/* `when` begins each help: "" or "with --against: "; `name`: the checkpoint's. */
#define DCPK_TOLD_OPTIONS(a, when, name)                                                           \
    {"input-model-weight-prefix",                                                                  \
     0,                                                                                            \
     DCPK_CLI_TEXT,                                                                                \
     &(a).model_prefix,                                                                            \
     "P",                                                                                          \
     when "prefix of weight keys in " name ", fsdp_dtensor (default: model.module, else found "    \
          "by looking)"},                                                                          \
        {"input-optimizer-state-prefix",                                                           \
         0,                                                                                        \
         DCPK_CLI_TEXT,                                                                            \
         &(a).state_prefix,                                                                        \
         "P",                                                                                      \
         when "prefix of optimizer keys in " name ", fsdp_dtensor (default: "                      \
              "optimizer.state.module.module.module, else found by looking)"},                     \
        {"drop",                                                                                   \
         0,                                                                                        \
         DCPK_CLI_LIST,                                                                            \
         &(a).drops,                                                                               \
         "RE",                                                                                     \
         when "leave out what " name                                                               \
              " has under keys that match, as if it were not there; may be "                       \
              "given several times"},                                                              \
    {                                                                                              \
        "ddp-bucket-size", 0, DCPK_CLI_LENGTH, &(a).bucket_elems, "N",                             \
            when "elements of a DDP bucket in the run that wrote " name ", where optimizer state " \
                 "gathered by data-parallel rank 0 (dp_zero_gather_scatter) does not fit "         \
                 "args.ddp_bucket_size"                                                            \
    }

/* Borrows `a`. */
void dcpk_told_args_apply(const struct dcpk_told_args *a, struct dcpk_told *told);
/* Was any of them given? */
bool dcpk_told_args_given(const struct dcpk_told_args *a);

struct dcpk_model;
/* Name in `err` the options that would mend it, where tensors of the model were not recognised. */
void dcpk_told_args_advise(const struct dcpk_model *model, struct dcpk_error *err);

#endif
