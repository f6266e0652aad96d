/* SPDX-License-Identifier: Apache-2.0 */
/* settings_compare.h - the settings of two runs compared: flags, configurations, args of
 * checkpoints, each with each. */
#ifndef DCPK_LIB_JOB_SETTINGS_COMPARE_H
#define DCPK_LIB_JOB_SETTINGS_COMPARE_H

#include "lib/base/setting.h"
#include "lib/job/compare.h"

enum dcpk_settings_form {
    DCPK_FORM_FLAGS,      /* names and texts */
    DCPK_FORM_CONFIG,     /* a DICT, of sections or of names */
    DCPK_FORM_CHECKPOINT, /* the attributes of args */
};
/* The settings of a run; borrowed. */
struct dcpk_run_settings {
    enum dcpk_settings_form form;
    const struct dcpk_value *all; /* a DICT */
};

/* Make the DICT of a list of flags, in its arena: of a flag that is given twice the last counts. */
dcpk_status dcpk_flags_to_dict(const struct dcpk_settings *list, const struct dcpk_value **all,
                               struct dcpk_error *err);

/*
 * Compare, name by name: a knob has one name whatever its spelling. A setting that one side lacks
 * is as its default, where Megatron has one that is known; so is None. Differences of
 * Megatron-FSDP's settings come first, in the order of the knobs, then the others by name.
 *
 * tolerated: how far a run was (iteration); and what only one side has and no default is known of,
 * if that side lists everything: a checkpoint next to one of another release, or a checkpoint or
 * configuration next to another form. Not of Megatron-FSDP's settings between two checkpoints.
 *
 * report: release with dcpk_compare_release, also after a failure. Errors: DCPK_ENOMEM;
 * DCPK_ERANGE for more settings than a configuration has.
 */
dcpk_status dcpk_compare_settings(const struct dcpk_run_settings side[2],
                                  const struct dcpk_compare_options *options,
                                  struct dcpk_compare_report *report, struct dcpk_error *err);

#endif
