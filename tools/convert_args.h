/* SPDX-License-Identifier: Apache-2.0 */
/* convert_args.h - the options of the converting commands, and what they make of a conversion. */
#ifndef DCPK_TOOLS_CONVERT_ARGS_H
#define DCPK_TOOLS_CONVERT_ARGS_H

#include "formats/formats.h"
#include "lib/job/convert.h"
#include "tools/args_from.h"
#include "tools/cmd.h"
#include "tools/run_args.h"
#include "tools/target_args.h"

#define DCPK_MAX_MODULES 64

/* The options of a conversion, as given. */
struct dcpk_convert_args {
    const char *from, *to, *impl, *generation, *optimizer, *modules, *map_path, *report_path,
        *html_path, *hashes_path, *layout, *model_prefix, *state_prefix, *tracker, *iteration,
        *args_from, *base;
    struct dcpk_lora_settings lora; /* of --merge-lora; its adapter is IN where there is a base */
    struct dcpk_input_args input;
    bool swiglu, no_swiglu, weights_only, keep_other, check_input, no_check_input, verify,
        integrity, like_inspector, rename_mtp, dry_run, force, resume, json, verbose;
    struct dcpk_verbosity verbosity;
    bool oom_traceback, enable_msc; /* of the Python tool; without meaning here */
    int n_threads, n_ranks;         /* ranks that a dry run plans for */
    uint64_t memory_bytes;
    struct dcpk_target_args target;
    struct dcpk_family_args family;
    const char *weights; /* of merge */
    char *const *inputs; /* the checkpoints that are read, as given */
    size_t n_inputs;
};

/* The parsed values of the texts; owned, zero it before use. */
struct dcpk_convert_parsed {
    char in[DCPK_RUN_PATH_BYTES]; /* IN, or the iteration of it that is meant */
    char *module_text;
    const char *modules[DCPK_MAX_MODULES]; /* the parts of --swiglu-modules a,b */
    size_t n_modules;
    char *map; /* the parameter group map's file */
    size_t map_bytes;
    struct dcpk_args_from args_from;
    struct dcpk_fsdp_inspector_options inspector; /* of --like-megatron-inspector */
};

/* Options of convert, of the commands that name both formats as Megatron's Python tool does, and of
 * merge. */
extern const struct dcpk_option dcpk_convert_rows[], dcpk_named_convert_rows[], dcpk_merge_rows[];

/* Replace --to dcp with --layout, or a prefix in its place, by the format of names on that
 * container. Errors: DCPK_EUSAGE for a format that is read alone, and options that exclude each
 * other. */
dcpk_status dcpk_convert_choose_layout(struct dcpk_convert_args *a, const struct dcpk_format **to,
                                       struct dcpk_error *err);

/*
 * Check the arguments and fill `options` except what the caller has set: env, `to`. IN is the
 * first input. `parsed` holds what options points to: dcpk_convert_parsed_release. Errors:
 * DCPK_EUSAGE for what does not fit together; those of reading the map.
 */
dcpk_status dcpk_convert_args_apply(const struct dcpk_convert_args *a, const char *out,
                                    struct dcpk_convert_options *options,
                                    struct dcpk_convert_parsed *parsed, struct dcpk_error *err);
void dcpk_convert_parsed_release(struct dcpk_convert_parsed *parsed); /* zeroed: a no-op */

#endif
