/* SPDX-License-Identifier: Apache-2.0 */
/* target_args.h - the options that describe the run which will load a conversion's output, and
 * folders of Hugging Face's models, read or written. */
#ifndef DCPK_TOOLS_TARGET_ARGS_H
#define DCPK_TOOLS_TARGET_ARGS_H

#include "lib/ckpt/format.h"
#include "lib/job/convert.h"
#include "tools/cmd.h"

/* The options of a target, as given. */
struct dcpk_target_args {
    const char *mesh, *dp, *vocab_size, *divisible_by;
};

extern const struct dcpk_option dcpk_target_rows[];
#define DCPK_OPT_TARGET(field) DCPK_OPT_ROWS(dcpk_target_rows, struct dcpk_target_args, field)

/*
 * Fill target->mesh and bucket_elems, rules->mesh and rules->vocab. Errors: DCPK_EUSAGE for what
 * cannot be read, does not fit together or is not for the format `to`.
 */
dcpk_status dcpk_target_args_apply(const struct dcpk_target_args *a, const struct dcpk_format *to,
                                   struct dcpk_target *target, struct dcpk_rule_options *rules,
                                   struct dcpk_error *err);

struct dcpk_family_args {
    const char *maps, *family, *config, *assets, *dtype, *quantize, *max_file;
    bool without_mtp, allow_overflow;
    bool splits_state; /* of --layout */
};

extern const struct dcpk_option dcpk_family_rows[];
#define DCPK_OPT_FAMILY(field) DCPK_OPT_ROWS(dcpk_family_rows, struct dcpk_family_args, field)
/* For commands that read alone. */
#define DCPK_OPT_HF_CONFIG(field)                                                                  \
    DCPK_OPT_FILE("hf-config", "FILE", field,                                                      \
                  "the config.json of a model that a trainer stored without one")

/* Borrows `a`. Errors: DCPK_EUSAGE for a word that is not known, and for options of what is written
 * where `to` is not such a folder. */
dcpk_status dcpk_family_args_apply(const struct dcpk_family_args *a, const struct dcpk_format *to,
                                   struct dcpk_family_settings *settings, struct dcpk_error *err);

#endif
