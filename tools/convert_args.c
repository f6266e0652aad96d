/* SPDX-License-Identifier: Apache-2.0 */
/* convert_args.c - options of the converting commands. */
#include "tools/convert_args.h"

#include "formats/dcp/dcp.h"

#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/order.h"

#define IMPL_WORDS "any te local" /* in the order of enum dcpk_impl */

#define DCPK_OPT_STRUCT struct dcpk_convert_args
static const struct dcpk_option gate_options[] = {
    DCPK_OPT_FLAG("swiglu", swiglu,
                  "fc1 holds gate and up rows (default: as the checkpoint's args say)"),
    DCPK_OPT_FLAG("no-swiglu", no_swiglu, "fc1 is a single matrix"),
    DCPK_OPT_TEXT("swiglu-modules", "A,B", modules,
                  "only fc1 of these modules holds gate and up rows"),
    DCPK_OPT_END};

static const struct dcpk_option loader_options[] = {
    DCPK_OPT_GROUP("the run that will load OUT"),
    DCPK_OPT_WORD("target-impl", "any|te|local", IMPL_WORDS, impl,
                  "implementation of its parameter names (default: any, all of them as aliases)"),
    DCPK_OPT_WORD("target-generation", "A|B|C|V2", "A B C V2", generation,
                  "torch_dist: common state in common.pt (B, read by every release; the default) "
                  "or as core 0.19 writes it (C, read from 0.19 on), or with the optimizer's state "
                  "flattened, as core 0.14 writes it (A, read by 0.14 and 0.15); fsdp_dtensor: V2, "
                  "keys of Megatron-FSDP v2"),
    DCPK_OPT_TARGET(target), DCPK_OPT_END};

static const struct dcpk_option proof_options[] = {
    DCPK_OPT_FLAG("check-input", check_input,
                  "check every checksum of IN first, and its integrity.json (reads it twice)"),
    DCPK_OPT_FLAG("no-check-input", no_check_input, "with --verify: skip that check"),
    DCPK_OPT_FLAG("verify", verify,
                  "prove the output against IN before it is published; this checks the checksums "
                  "of IN (--check-input), reads the output back (from disk, if the system drops "
                  "its page cache) and compares as 'verify --against' does"),
    DCPK_OPT_OUT_FILE("hashes", "FILE", hashes_path,
                      "read the output back and write the hashes of its tensors, for 'hash "
                      "--check'"),
    DCPK_OPT_FLAG("integrity", integrity,
                  "add integrity.json, which Megatron's --verify-integrity and 'verify' check"),
    DCPK_OPT_GROUP("the run of this program"),
    DCPK_OPT_FLAG("dry-run", dry_run, "print the plan and write nothing"),
    DCPK_OPT_COUNT("ranks", "N", n_ranks,
                   "with --dry-run: add how much each of N processes would do (default: none)"),
    DCPK_OPT_FLAG("force", force,
                  "replace an output that exists, and files of --report, --html and --hashes"),
    DCPK_OPT_FLAG("resume", resume,
                  "continue a run that was killed or failed, if there is one; an existing output "
                  "is compared with what would be written, and accepted if it is equal"),
    DCPK_OPT_TRACKER(tracker),
    DCPK_OPT_THREADS(n_threads),
    DCPK_OPT_MEMORY(memory_bytes),
    DCPK_OPT_OUT_FILE("report", "FILE", report_path, "write the report with every key as JSON"),
    DCPK_OPT(DCPK_OPTION_FLAG, 'v', "verbose", NULL, bool, verbose,
             "also report chunks, files, times and each kind of key that was left out"),
    DCPK_OPT_JSON(json),
    DCPK_OPT_HTML_FORCE(html_path),
    DCPK_OPT_VERBOSITY(verbosity),
    DCPK_OPT_END};

#define OUTPUTS                                                                                    \
    "fsdp_dtensor, torch_dist, zarr, torch, huggingface, dcp_hf, torchtitan, dcp with --layout"
static const struct dcpk_option layout_options[] = {
    DCPK_OPT_TEXT("layout", "P", layout,
                  "with --to dcp: the prefix before Hugging Face's names in the keys ('model.', "
                  "'app.model.', '' for none), or 'titan' for torchtitan's names, 'titan-unfused' "
                  "if it trains without fuse_qkv"),
    DCPK_OPT_END};

static const struct dcpk_option shared_options[] = {
    DCPK_OPT_GROUP("contents of IN"),
    DCPK_OPT_ITERATION(iteration),
    DCPK_OPT_INCLUDE(gate_options),
    DCPK_OPT_FILE("param-to-param-group-map-json", "FILE", map_path,
                  "parameter groups as Megatron dumped them (default: derived by Megatron's rule)"),
    DCPK_OPT_ARGS_FROM(args_from),
    DCPK_OPT_INPUT(input),
    DCPK_OPT_INCLUDE(loader_options),
    DCPK_OPT_WORD("target-optimizer", "L", "fully_reshardable dp_reshardable", optimizer,
                  "torch_dist: fully_reshardable, state that any layout of ranks loads (the "
                  "default), or dp_reshardable, Megatron's own default: buckets for the tp, pp and "
                  "ep of --target-mesh"),
    DCPK_OPT_GROUP("contents of OUT"),
    DCPK_OPT_FLAG("weights-only", weights_only, "leave the optimizer out"),
    DCPK_OPT_FLAG(
        "keep-other", keep_other,
        "copy tensors that no map of a family knows (a vision tower), and whole models of families "
        "without a map, with their names and bytes; only between formats with Hugging Face's "
        "names"),
    DCPK_OPT_TEXT("output-model-weight-prefix", "P", model_prefix,
                  "prefix of weight keys (default: model.module; dcp_hf: model)"),
    DCPK_OPT_TEXT("output-optimizer-state-prefix", "P", state_prefix,
                  "prefix of optimizer keys (default: optimizer.state.module.module.module; fp32 "
                  "runs one module less; dcp_hf: optim, torchtitan: optimizer)"),
    DCPK_OPT_FLAG("like-megatron-inspector", like_inspector,
                  "write the same keys as Megatron's Python tool, where that works"),
    DCPK_OPT_FLAG("rename-mtp-keys", rename_mtp,
                  "with --like-megatron-inspector: name MTP's inner layer mtp_model_layer "
                  "(default: both names are written)"),
    DCPK_OPT_GROUP("proof"),
    DCPK_OPT_INCLUDE(proof_options),
    DCPK_OPT_END};

const struct dcpk_option dcpk_convert_rows[] = {
    DCPK_OPT_TEXT("to", "FORMAT", to, "format to write: " OUTPUTS ", peft (an adapter alone)"),
    DCPK_OPT_INCLUDE(layout_options),
    DCPK_OPT_TEXT("from", "FORMAT", from, "format to read (default: detected)"),
    DCPK_OPT_GROUP("adapters of PEFT (LoRA)"),
    DCPK_OPT_FLAG("merge-lora", lora.merges,
                  "add the adapter to the weights, in float32 and rounded once; --to is "
                  "huggingface if it is not given"),
    DCPK_OPT_CHECKPOINT("base", "DIR", base,
                        "the model of the adapter in IN: a Hugging Face folder (default: IN holds "
                        "both)"),
    DCPK_OPT_FILE("adapter-config", "FILE", lora.config,
                  "JSON with r and lora_alpha (default: adapter_config.json of the adapter, or "
                  "lora_train_meta.json next to IN)"),
    DCPK_OPT_FAMILY(family),
    DCPK_OPT_INCLUDE(shared_options),
    DCPK_OPT_END};

const struct dcpk_option dcpk_named_convert_rows[] = {
    DCPK_OPT_INCLUDE(shared_options),
    DCPK_OPT_FLAG("oom-traceback", oom_traceback, "accepted, without effect"),
    DCPK_OPT_MSC(enable_msc), DCPK_OPT_END};

const struct dcpk_option dcpk_merge_rows[] = {
    DCPK_OPT_TEXT("weights", "W,W", weights,
                  "a number for each checkpoint, used as given; for an average they add up to 1"),
    DCPK_OPT_TEXT("to", "FORMAT", to, "format to write: " OUTPUTS " (default: that of the first)"),
    DCPK_OPT_INCLUDE(layout_options),
    DCPK_OPT_FAMILY(family),
    DCPK_OPT_GROUP("contents of the checkpoints"),
    DCPK_OPT_ITERATION(iteration),
    DCPK_OPT_FLAG(
        "weights-only", weights_only,
        "leave optimizers out: sum the stored weights where masters are in optimizer buckets"),
    DCPK_OPT_INCLUDE(gate_options),
    DCPK_OPT_ARGS_FROM(args_from),
    DCPK_OPT_INPUT(input),
    DCPK_OPT_INCLUDE(loader_options),
    DCPK_OPT_GROUP("proof"),
    DCPK_OPT_INCLUDE(proof_options),
    DCPK_OPT_END};

dcpk_status dcpk_convert_choose_layout(struct dcpk_convert_args *a, const struct dcpk_format **to,
                                       struct dcpk_error *err)
{
    const struct dcpk_format *named = NULL;

    if (a->layout == NULL && dcpk_format_is_target(*to))
        return DCPK_OK;
    if (a->layout == NULL && *to != &dcpk_format_dcp)
        return dcpk_fail(err, DCPK_EUSAGE, "%s is read, not written; --to takes " DCPK_CLI_TARGETS,
                         (*to)->name);
    if (a->layout != NULL && *to != &dcpk_format_dcp)
        return dcpk_fail(err, DCPK_EUSAGE, "--layout is for --to dcp, not for %s", (*to)->name);
    if (a->layout == NULL)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "--to dcp needs --layout: 'titan', or the prefix of the model's keys, "
                         "'model.', 'app.model.' or ''");
    if (a->model_prefix != NULL)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "--layout and --output-model-weight-prefix exclude each other");
    a->family.splits_state = strcmp(a->layout, "titan-unfused") == 0;
    named = a->family.splits_state ? &dcpk_format_titan : dcpk_format_find(a->layout);
    *to = named;
    if (named != NULL && named->container == &dcpk_format_dcp)
        return DCPK_OK;
    if (named != NULL)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "--layout '%s' is the name of a format: choose it by --to, or write "
                         "'%s.' for a prefix",
                         named->name, named->name);
    *to = &dcpk_format_dcp_hf;
    a->model_prefix = a->layout;
    return DCPK_OK;
}

static dcpk_status split_modules(const char *text, struct dcpk_convert_parsed *p,
                                 struct dcpk_error *err)
{
    char *rest;

    if (text == NULL)
        return DCPK_OK;
    p->module_text = dcpk_alloc(strlen(text) + 1, err);
    if (p->module_text == NULL)
        return err->status;
    memcpy(p->module_text, text, strlen(text) + 1);
    rest = p->module_text;
    for (char *name; (name = strsep(&rest, ",")) != NULL;) {
        if (*name == '\0')
            continue;
        if (p->n_modules == DCPK_MAX_MODULES)
            return dcpk_fail(err, DCPK_EUSAGE, "--swiglu-modules names more than %d modules",
                             DCPK_MAX_MODULES);
        p->modules[p->n_modules++] = name;
    }
    return DCPK_OK;
}

static dcpk_status check_convert_arguments(const struct dcpk_convert_args *a,
                                           const struct dcpk_format *to, struct dcpk_error *err)
{
    if (a->check_input && a->no_check_input)
        return dcpk_fail(err, DCPK_EUSAGE, "--check-input and --no-check-input exclude each other");
    if (a->base != NULL && !a->lora.merges)
        return dcpk_fail(err, DCPK_EUSAGE, "--base is for --merge-lora");
    if (a->n_ranks > 0 && !a->dry_run)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "--ranks is for --dry-run; to share the work, start dcpkit N times by "
                         "mpirun or srun");
    if (a->lora.config != NULL && !a->lora.merges && !dcpk_format_is_called(to, "peft") &&
        !to->mapping->writes_adapter)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "--adapter-config is for --merge-lora and --to peft or huggingface");
    if (a->weights != NULL && dcpk_format_is_called(to, "peft"))
        return dcpk_fail(err, DCPK_EUSAGE,
                         "a merge sums whole models: --to peft, an adapter alone, is of convert");
    if (a->lora.merges && dcpk_format_is_called(to, "peft"))
        return dcpk_fail(err, DCPK_EUSAGE, "--merge-lora and --to peft exclude each other");
    if (a->swiglu && a->no_swiglu)
        return dcpk_fail(err, DCPK_EUSAGE, "--swiglu and --no-swiglu exclude each other");
    if (a->no_swiglu && a->modules != NULL)
        return dcpk_fail(err, DCPK_EUSAGE, "--no-swiglu and --swiglu-modules exclude each other");
    if (a->like_inspector && (a->weights_only || a->impl != NULL))
        return dcpk_fail(err, DCPK_EUSAGE,
                         "--like-megatron-inspector excludes --weights-only and --target-impl");
    if (a->like_inspector && (a->input.trust != NULL || a->input.repair != NULL))
        return dcpk_fail(err, DCPK_EUSAGE,
                         "--like-megatron-inspector excludes --trust and --repair");
    if (a->like_inspector && (a->target.dp != NULL || a->target.divisible_by != NULL))
        return dcpk_fail(err, DCPK_EUSAGE,
                         "--like-megatron-inspector excludes --target-dp and another vocabulary");
    return DCPK_OK;
}

static dcpk_status check_generation(const struct dcpk_convert_args *a, const struct dcpk_format *to,
                                    struct dcpk_error *err)
{
    const char *const name = a->generation;
    const bool is_v2 = name != NULL && strcmp(name, "V2") == 0;
    const char *format = is_v2 ? "fsdp_dtensor" : "torch_dist";

    if (name == NULL)
        return DCPK_OK;
    if (strcmp(name, "A") == 0 && a->optimizer != NULL)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "--target-generation A has one layout of optimizer state, and excludes "
                         "--target-optimizer");
    if (strcmp(to->name, format) != 0)
        return dcpk_fail(err, DCPK_EUSAGE, "--target-generation is for --to %s, not for %s", format,
                         to->name);
    if (is_v2 && (a->target.dp != NULL || a->model_prefix != NULL || a->state_prefix != NULL ||
                  a->like_inspector))
        return dcpk_fail(err, DCPK_EUSAGE,
                         "--target-generation V2 excludes --target-dp, other prefixes and "
                         "--like-megatron-inspector");
    return DCPK_OK;
}

static dcpk_status check_optimizer(const struct dcpk_convert_args *a, const struct dcpk_format *to,
                                   struct dcpk_error *err)
{
    if (a->optimizer != NULL && strcmp(to->name, "torch_dist") != 0)
        return dcpk_fail(err, DCPK_EUSAGE, "--target-optimizer is for --to torch_dist, not for %s",
                         to->name);
    if (a->optimizer != NULL && a->weights_only)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "--target-optimizer and --weights-only exclude each other");
    return DCPK_OK;
}

/* Checks options that shape the keys of fsdp_dtensor and of nothing else. */
static dcpk_status check_fsdp_options(const struct dcpk_convert_args *a,
                                      const struct dcpk_format *to, struct dcpk_error *err)
{
    const char *option = NULL;

    if (a->model_prefix != NULL)
        option = "--output-model-weight-prefix";
    else if (a->state_prefix != NULL)
        option = "--output-optimizer-state-prefix";
    else if (a->like_inspector)
        option = "--like-megatron-inspector";
    if (option == NULL || strcmp(to->name, "fsdp_dtensor") == 0 ||
        (to->container != NULL && !a->like_inspector))
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EUSAGE, "%s is for --to fsdp_dtensor, not for %s", option, to->name);
}

static enum dcpk_swiglu swiglu_of(const struct dcpk_convert_args *a)
{
    if (a->swiglu || a->modules != NULL)
        return DCPK_SWIGLU_ON;
    return a->no_swiglu ? DCPK_SWIGLU_OFF : DCPK_SWIGLU_AUTO;
}

static void map_like_inspector(const struct dcpk_convert_args *a,
                               struct dcpk_convert_options *options,
                               struct dcpk_convert_parsed *parsed)
{
    const struct dcpk_rule_options *rules = &options->rules;

    parsed->inspector =
        (struct dcpk_fsdp_inspector_options){.swiglu = rules->swiglu == DCPK_SWIGLU_ON,
                                             .swiglu_modules = rules->swiglu_modules,
                                             .n_swiglu_modules = rules->n_swiglu_modules,
                                             .rename_mtp = a->rename_mtp,
                                             .has_group_map = rules->group_map != NULL};
    options->mapping = &dcpk_fsdp_inspector;
    options->mapping_options = &parsed->inspector;
}

static unsigned flags_of(const struct dcpk_convert_args *a)
{
    unsigned flags = 0;

    if (a->weights_only)
        flags |= DCPK_CONVERT_WEIGHTS_ONLY;
    if (a->keep_other)
        flags |= DCPK_CONVERT_KEEP_OTHER;
    if (a->check_input || (a->verify && !a->no_check_input))
        flags |= DCPK_CONVERT_CHECK_INPUT;
    if (a->verify)
        flags |= DCPK_CONVERT_VERIFY;
    if (a->family.allow_overflow)
        flags |= DCPK_CONVERT_ALLOW_OVERFLOW;
    if (a->hashes_path != NULL)
        flags |= DCPK_CONVERT_HASHES;
    if (a->integrity)
        flags |= DCPK_CONVERT_INTEGRITY;
    return flags;
}

/* Check the options, without reading more than the run folder. */
static dcpk_status parse_options(const struct dcpk_convert_args *a,
                                 struct dcpk_convert_options *options,
                                 struct dcpk_convert_parsed *parsed, struct dcpk_error *err)
{
    const char *in = a->base != NULL ? a->base : a->inputs[0];

    if (check_convert_arguments(a, options->to, err) ||
        dcpk_choose_iteration(in, a->iteration, parsed->in, err) ||
        check_generation(a, options->to, err) || check_optimizer(a, options->to, err) ||
        check_fsdp_options(a, options->to, err) ||
        dcpk_target_args_apply(&a->target, options->to, &options->target, &options->rules, err) ||
        dcpk_family_args_apply(&a->family, options->to, &options->target.family, err))
        return err->status;
    options->target.family.vocab_size = options->rules.vocab.size;
    return DCPK_OK;
}

static dcpk_status read_group_map(const char *path, struct dcpk_convert_parsed *parsed,
                                  struct dcpk_rule_options *rules, struct dcpk_error *err)
{
    if (path == NULL)
        return DCPK_OK;
    if (dcpk_cli_read_file(path, DCPK_CLI_MAX_FILE_BYTES, &parsed->map, &parsed->map_bytes, err) !=
        DCPK_OK)
        return dcpk_context(err, "reading the parameter group map");
    rules->group_map_name = path;
    rules->group_map = parsed->map;
    rules->group_map_bytes = parsed->map_bytes;
    return DCPK_OK;
}

dcpk_status dcpk_convert_args_apply(const struct dcpk_convert_args *a, const char *out,
                                    struct dcpk_convert_options *options,
                                    struct dcpk_convert_parsed *parsed, struct dcpk_error *err)
{
    if (parse_options(a, options, parsed, err) != DCPK_OK)
        return err->status;
    options->in = parsed->in;
    options->out = out;
    options->from = a->from;
    options->env.n_threads = a->n_threads;
    options->env.memory_bytes = a->memory_bytes;
    options->model_prefix = a->model_prefix;
    options->state_prefix = a->state_prefix;
    options->flags = flags_of(a);
    options->folder_flags = dcpk_folder_flags_of(a->force, a->resume);
    options->rules.swiglu = swiglu_of(a);
    options->target.generation = a->generation;
    options->target.optimizer_layout = a->optimizer;
    options->tracker = dcpk_tracker_policy_of(a->tracker);
    if (a->impl != NULL)
        options->rules.impl = (enum dcpk_impl)(dcpk_option_number(IMPL_WORDS, a->impl) - 1);
    options->given = dcpk_input_args_read(&a->input);
    if (dcpk_args_from_read(a->args_from, &a->verbosity, &parsed->args_from, err) ||
        split_modules(a->modules, parsed, err) ||
        read_group_map(a->map_path, parsed, &options->rules, err))
        return err->status;
    options->given.args = parsed->args_from.args;
    options->given.family = options->target.family;
    options->given.lora = a->lora;
    if (a->modules != NULL) {
        options->rules.swiglu_modules = parsed->modules;
        options->rules.n_swiglu_modules = parsed->n_modules;
    }
    if (a->like_inspector)
        map_like_inspector(a, options, parsed);
    return DCPK_OK;
}

void dcpk_convert_parsed_release(struct dcpk_convert_parsed *parsed)
{
    dcpk_free(parsed->map);
    dcpk_free(parsed->module_text);
    dcpk_args_from_release(&parsed->args_from);
}
