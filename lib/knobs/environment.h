/* SPDX-License-Identifier: Apache-2.0 */
/* environment.h - variables of the environment that decide how Megatron trains. */
/*
 * Sources: megatron/training/arguments.py @core_v0.19.0 validate_args; the user guide of
 * Megatron-FSDP.
 */
#ifndef DCPK_LIB_KNOBS_ENVIRONMENT_H
#define DCPK_LIB_KNOBS_ENVIRONMENT_H

#include <stddef.h>

struct dcpk_variable {
    const char *name;
    const char *help;   /* the meaning of it */
    const char *wanted; /* values, and when */
    const char *bad;    /* a value, or one of several with commas, that some runs refuse; or NULL */
};

extern const struct dcpk_variable dcpk_variables[];
extern const size_t dcpk_n_variables;

const struct dcpk_variable *dcpk_variable_find(const char *name); /* NULL: it is not one of them */

#endif
