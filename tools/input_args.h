/* SPDX-License-Identifier: Apache-2.0 */
/* input_args.h - the options that state what no file of a checkpoint records. */
#ifndef DCPK_TOOLS_INPUT_ARGS_H
#define DCPK_TOOLS_INPUT_ARGS_H

#include "lib/job/give_options.h"
#include "tools/cmd.h"

/* The values of the options. */
struct dcpk_input_args {
    const char *model_prefix, *state_prefix;
    const char *trust, *repair;
    bool accept_gtp;
    int64_t bucket_elems;
    struct dcpk_option_list drops;
};

/* Options of a command's IN, and of the SRC of --against. */
extern const struct dcpk_option dcpk_input_rows[], dcpk_against_rows[];
#define DCPK_OPT_INPUT(field)   DCPK_OPT_ROWS(dcpk_input_rows, struct dcpk_input_args, field)
#define DCPK_OPT_AGAINST(field) DCPK_OPT_ROWS(dcpk_against_rows, struct dcpk_input_args, field)

/* Borrows `a`. Errors: DCPK_EUSAGE for a word that an option does not take. */
dcpk_status dcpk_input_args_apply(const struct dcpk_input_args *a, struct dcpk_open_options *given,
                                  struct dcpk_error *err);
/* True if any of them was given. */
bool dcpk_input_args_given(const struct dcpk_input_args *a);

#endif
