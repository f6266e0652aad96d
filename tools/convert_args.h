/* SPDX-License-Identifier: Apache-2.0 */
/* convert_args.h - the options of the converting commands, and what they make of a conversion. */
#ifndef DCPK_TOOLS_CONVERT_ARGS_H
#define DCPK_TOOLS_CONVERT_ARGS_H

#include "formats/fsdp_dtensor/fsdp_inspector.h"
#include "lib/job/convert.h"
#include "tools/args_from.h"
#include "tools/cmd.h"
#include "tools/run_args.h"
#include "tools/target_args.h"
#include "tools/told_args.h"

#define DCPK_MAX_MODULES 64

/* What the command line says. */
struct dcpk_convert_args {
    const char *from, *to, *impl, *generation, *modules, *map_path, *report_path, *hashes_path,
        *model_prefix, *state_prefix, *tracker, *iteration, *args_from;
    struct dcpk_told_args told;
    bool swiglu, no_swiglu, weights_only, check_input, verify, integrity, like_inspector,
        rename_mtp, dry_run, force, resume, json;
    struct dcpk_voice voice;
    bool oom_traceback, enable_msc; /* of the Python tool; without meaning here */
    int n_threads;
    uint64_t memory_bytes;
    struct dcpk_target_args target;
};

/* What parsing makes of the texts; owned, zero it before use. */
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

#define DCPK_CONVERT_OPTIONS(a)                                                                    \
    DCPK_CLI_TITLE("what IN holds"), DCPK_CLI_ITERATION((a).iteration),                            \
        {"swiglu",    0,    DCPK_CLI_FLAG,                                                         \
         &(a).swiglu, NULL, "fc1 holds gate and up rows (default: as the checkpoint's args say)"}, \
        {"no-swiglu", 0, DCPK_CLI_FLAG, &(a).no_swiglu, NULL, "fc1 is a single matrix"},           \
        {"swiglu-modules", 0,     DCPK_CLI_TEXT,                                                   \
         &(a).modules,     "A,B", "only fc1 of these modules holds gate and up rows"},             \
        {"param-to-param-group-map-json",                                                          \
         0,                                                                                        \
         DCPK_CLI_FILE,                                                                            \
         &(a).map_path,                                                                            \
         "FILE",                                                                                   \
         "parameter groups as Megatron dumped them (default: derived by Megatron's rule)"},        \
        DCPK_CLI_ARGS_FROM((a).args_from), DCPK_TOLD_OPTIONS((a).told, "", "IN"),                  \
        DCPK_CLI_TITLE("the run that will load OUT"),                                              \
        {"target-impl",  0,                                                                        \
         DCPK_CLI_TEXT,  &(a).impl,                                                                \
         "any|te|local", "spelling of its names (default: any, all of them as aliases)"},          \
        {"target-generation",                                                                      \
         0,                                                                                        \
         DCPK_CLI_TEXT,                                                                            \
         &(a).generation,                                                                          \
         "B|C|V2",                                                                                 \
         "torch_dist: common state in common.pt (B, read by every release; the default) or as "    \
         "core 0.19 writes it (C, read from 0.19 on); fsdp_dtensor: V2, keys of Megatron-FSDP "    \
         "v2"},                                                                                    \
        DCPK_TARGET_OPTIONS((a).target), DCPK_CLI_TITLE("what is written"),                        \
        {"weights-only", 0, DCPK_CLI_FLAG, &(a).weights_only, NULL, "leave the optimizer out"},    \
        {"output-model-weight-prefix",                                                             \
         0,                                                                                        \
         DCPK_CLI_TEXT,                                                                            \
         &(a).model_prefix,                                                                        \
         "P",                                                                                      \
         "prefix of weight keys (default: model.module)"},                                         \
        {"output-optimizer-state-prefix",                                                          \
         0,                                                                                        \
         DCPK_CLI_TEXT,                                                                            \
         &(a).state_prefix,                                                                        \
         "P",                                                                                      \
         "prefix of optimizer keys (default: optimizer.state.module.module.module; fp32 runs one " \
         "module less)"},                                                                          \
        {"like-megatron-inspector",                                                                \
         0,                                                                                        \
         DCPK_CLI_FLAG,                                                                            \
         &(a).like_inspector,                                                                      \
         NULL,                                                                                     \
         "write key for key what Megatron's Python tool writes, where it works"},                  \
        {"rename-mtp-keys",                                                                        \
         0,                                                                                        \
         DCPK_CLI_FLAG,                                                                            \
         &(a).rename_mtp,                                                                          \
         NULL,                                                                                     \
         "with --like-megatron-inspector: name MTP's inner layer mtp_model_layer (otherwise both " \
         "names are written)"},                                                                    \
        DCPK_CLI_TITLE("proof"),                                                                   \
        {"check-input",                                                                            \
         0,                                                                                        \
         DCPK_CLI_FLAG,                                                                            \
         &(a).check_input,                                                                         \
         NULL,                                                                                     \
         "check every checksum of IN first, and its integrity.json (reads it twice)"},             \
        {"verify",                                                                                 \
         0,                                                                                        \
         DCPK_CLI_FLAG,                                                                            \
         &(a).verify,                                                                              \
         NULL,                                                                                     \
         "read the output back, past the page cache where the system lets it go, and prove it "    \
         "against IN as 'verify --against' does; only then is it published"},                      \
        {"hashes",                                                                                 \
         0,                                                                                        \
         DCPK_CLI_OUT_FILE,                                                                        \
         &(a).hashes_path,                                                                         \
         "FILE",                                                                                   \
         "read the output back and write the hashes of its tensors, for 'hash --check'"},          \
        {"integrity",                                                                              \
         0,                                                                                        \
         DCPK_CLI_FLAG,                                                                            \
         &(a).integrity,                                                                           \
         NULL,                                                                                     \
         "add integrity.json, which Megatron's --verify-integrity and 'verify' check"},            \
        DCPK_CLI_TITLE("the run of this program"),                                                 \
        {"dry-run", 0, DCPK_CLI_FLAG, &(a).dry_run, NULL, "print the plan, write nothing"},        \
        {"force",    0,    DCPK_CLI_FLAG,                                                          \
         &(a).force, NULL, "replace an output that exists, and files of --report and --hashes"},   \
        {"resume",                                                                                 \
         0,                                                                                        \
         DCPK_CLI_FLAG,                                                                            \
         &(a).resume,                                                                              \
         NULL,                                                                                     \
         "go on where a run that was killed or failed stopped, if there was one; an output that "  \
         "is there is compared, and complete when it is what would be written"},                   \
        DCPK_CLI_TRACKER((a).tracker), DCPK_CLI_THREADS((a).n_threads),                            \
        DCPK_CLI_MEMORY((a).memory_bytes),                                                         \
        {"report",         0,      DCPK_CLI_OUT_FILE,                                              \
         &(a).report_path, "FILE", "write the report with every key as JSON"},                     \
        DCPK_CLI_JSON((a).json), DCPK_CLI_VOICE((a).voice)

/*
 * Check the arguments and fill options->flags, rules, exec and prefixes; the rest is the caller's.
 * `parsed` holds what options points to: dcpk_convert_parsed_release. Errors: DCPK_EUSAGE for what
 * does not fit together; those of reading the map.
 */
dcpk_status dcpk_convert_args_apply(const struct dcpk_convert_args *a, const char *in,
                                    const char *out, struct dcpk_convert_options *options,
                                    struct dcpk_convert_parsed *parsed, struct dcpk_error *err);
void dcpk_convert_parsed_release(struct dcpk_convert_parsed *parsed);

#endif
