/* SPDX-License-Identifier: Apache-2.0 */
/* target_args.c - the options of a target, and which format each is for; of folders of Hugging
 * Face's. */
#include "tools/target_args.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

#include "lib/base/checked.h"
#include "lib/base/order.h"
#include "lib/base/text.h"

#define DCPK_OPT_STRUCT struct dcpk_target_args
const struct dcpk_option dcpk_target_rows[] = {
    DCPK_OPT_TEXT(
        "target-mesh", "DIMS", mesh,
        "torch_dist, zarr: write the chunks of a run on tp=T,pp=P,ep=E,dp=D,cp=C (left out: "
        "1), etp=E (of experts; left out: tp), vpp=V, first=N and last=N (layers of the "
        "stages at the ends); torch: write the folders of its ranks; for a pipeline cut in another "
        "way leave pp out, no chunk "
        "depends on it (default: few large chunks, which every layout loads)"),
    DCPK_OPT_TEXT("target-dp", "N[,DIMS]", dp,
                  "fsdp_dtensor: write the chunks of Megatron-FSDP on N data-parallel ranks "
                  "(context parallelism included); DIMS: tp=T,ep=E,hsdp=K instances,bucket=B "
                  "elements (default as with --overlap-grad-reduce, 0 without)"),
    DCPK_OPT_TEXT("vocab-size", "N", vocab_size,
                  "real rows of the vocabulary; for formats of Megatron's with "
                  "--make-vocab-size-divisible-by (default: as the checkpoint's args say)"),
    DCPK_OPT_TEXT("make-vocab-size-divisible-by", "M", divisible_by,
                  "pad the vocabulary to a multiple of M times the target's tp, trimming or "
                  "adding zero rows (default: as stored)"),
    DCPK_OPT_END};

/* The options of this file and of convert_args.c, by the format that they are for. */
static const struct for_format {
    const char *format;
    const char *options[3];
} for_formats[] = {{"torch_dist", {"--target-generation", "--target-optimizer", "--target-mesh"}},
                   {"zarr", {"--target-mesh"}},
                   {"torch", {"--target-mesh"}},
                   {"fsdp_dtensor", {"--target-dp"}}};

/* text NULL: *n stays unchanged. */
static dcpk_status parse_option_count(const char *option, const char *text, int64_t *n,
                                      struct dcpk_error *err)
{
    const char *end = text;

    if (text == NULL)
        return DCPK_OK;
    if (!dcpk_take_size(&end, n) || *end != '\0')
        return dcpk_fail(err, DCPK_EUSAGE, "%s: '%s' is not a number", option, text);
    if (*n < 1)
        return dcpk_fail(err, DCPK_EUSAGE, "%s: the number is %" PRId64 ", expected 1 to %" PRId64,
                         option, *n, DCPK_MAX_SIZE);
    return DCPK_OK;
}

static bool format_takes(const struct for_format *of, const char *option)
{
    for (size_t i = 0; i < DCPK_COUNT(of->options) && of->options[i] != NULL; i++)
        if (strcmp(of->options[i], option) == 0)
            return true;
    return false;
}

/* Checks that the option can be given with --to `to`. */
static dcpk_status check_format(const char *option, const struct dcpk_format *to,
                                struct dcpk_error *err)
{
    const char *before = " ";

    for (size_t i = 0; i < DCPK_COUNT(for_formats); i++)
        if (strcmp(to->name, for_formats[i].format) == 0 && format_takes(&for_formats[i], option))
            return DCPK_OK;
    dcpk_fail(err, DCPK_EUSAGE, "%s is for --to", option);
    for (size_t i = 0; i < DCPK_COUNT(for_formats); i++)
        if (format_takes(&for_formats[i], option)) {
            dcpk_append(err, "%s%s", before, for_formats[i].format);
            before = ", ";
        }
    dcpk_append(err, ", not for %s", to->name);
    return err->status;
}

dcpk_status dcpk_target_args_apply(const struct dcpk_target_args *a, const struct dcpk_format *to,
                                   struct dcpk_target *target, struct dcpk_rule_options *rules,
                                   struct dcpk_error *err)
{
    struct dcpk_placing fsdp;

    if (a->mesh != NULL && (check_format("--target-mesh", to, err) ||
                            dcpk_grid_parse("--target-mesh", a->mesh, &target->mesh, err)))
        return err->status;
    rules->mesh = target->mesh;
    if (a->dp != NULL && (check_format("--target-dp", to, err) ||
                          dcpk_placing_parse_fsdp("--target-dp", a->dp, &fsdp, err)))
        return err->status;
    if (a->dp != NULL) {
        target->mesh = fsdp.grid;
        target->bucket_elems = fsdp.bucket_elems;
    }
    if (parse_option_count("--vocab-size", a->vocab_size, &rules->vocab.size, err) ||
        parse_option_count("--make-vocab-size-divisible-by", a->divisible_by,
                           &rules->vocab.divisible_by, err))
        return err->status;
    if (a->vocab_size != NULL && a->divisible_by == NULL && !to->is_model)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "--vocab-size needs --make-vocab-size-divisible-by (Megatron's default is "
                         "128): together they say how many rows there are");
    rules->vocab.tp = target->mesh.tp;
    return DCPK_OK;
}

#undef DCPK_OPT_STRUCT
#define DCPK_OPT_STRUCT struct dcpk_family_args
const struct dcpk_option dcpk_family_rows[] = {
    DCPK_OPT_GROUP("folders of Hugging Face's models, as IN or OUT"),
    DCPK_OPT_TEXT("family", "F", family,
                  "the family of the model (default: by config.json, or the first that fits)"),
    DCPK_OPT_CHECKPOINT(
        "maps", "DIR", maps,
        "maps of families in addition to the built-in ones (formats/safetensors/MAPS.md)"),
    DCPK_OPT_FLAG("no-mtp", without_mtp, "leave MTP layers out"),
    DCPK_OPT_FILE("hf-config", "FILE", config,
                  "IN: its config.json if the trainer stored none; OUT: a config.json to start "
                  "from (token ids, the real vocabulary), which args override"),
    DCPK_OPT_CHECKPOINT("hf-assets", "DIR", assets,
                        "OUT: copy files of the tokenizer and generation_config.json from DIR; an "
                        "IN without config.json takes that of DIR"),
    DCPK_OPT_WORD("dtype", "D", "float32 bfloat16 float16", dtype,
                  "OUT: float32, bfloat16 or float16 (default: that of the model's weights)"),
    DCPK_OPT_FLAG("allow-overflow", allow_overflow,
                  "OUT: write finite elements that --dtype cannot hold as infinities (default: "
                  "refuse them, exit 1)"),
    DCPK_OPT_TEXT("quantize", "fp8-block[:V][,ue8m0]", quantize,
                  "OUT: store matrices of attention and MLP as fp8 in blocks of 128 x 128 with "
                  "scales; V: deepseek (default), deepgemm or transformers, which round "
                  "differently; ue8m0: scales are powers of two"),
    DCPK_OPT_TEXT("max-shard-size", "SIZE", max_file,
                  "OUT: bytes of tensors in a file, also with KB, MB or GB (default: 5GB)"),
    DCPK_OPT_END};

/* "fp8-block[:V][,ue8m0]"; also V alone may be ue8m0. */
static dcpk_status parse_quantize(const char *text, struct dcpk_fp8_format *fp8,
                                  struct dcpk_error *err)
{
    static const struct {
        const char *text;
        struct dcpk_fp8_format format;
    } known[] = {{"", {DCPK_FP8_DEEPSEEK, false}},
                 {",ue8m0", {DCPK_FP8_DEEPSEEK, true}},
                 {":ue8m0", {DCPK_FP8_DEEPSEEK, true}},
                 {":deepseek", {DCPK_FP8_DEEPSEEK, false}},
                 {":deepseek,ue8m0", {DCPK_FP8_DEEPSEEK, true}},
                 {":deepgemm", {DCPK_FP8_DEEPGEMM, false}},
                 {":deepgemm,ue8m0", {DCPK_FP8_DEEPGEMM, true}},
                 {":transformers", {DCPK_FP8_TRANSFORMERS, false}},
                 {":transformers,ue8m0", {DCPK_FP8_TRANSFORMERS, true}}};
    static const char method[] = "fp8-block";

    if (text == NULL)
        return DCPK_OK;
    for (size_t i = 0; i < DCPK_COUNT(known) && dcpk_starts_with(text, method); i++)
        if (strcmp(text + strlen(method), known[i].text) == 0) {
            *fp8 = known[i].format;
            return DCPK_OK;
        }
    return dcpk_fail(err, DCPK_EUSAGE,
                     "--quantize '%s' is not fp8-block, with :deepseek, :deepgemm or "
                     ":transformers and ,ue8m0 after it",
                     text);
}

/* As Hugging Face reads it: powers of ten. */
static dcpk_status parse_file_size(const char *text, uint64_t *n_bytes, struct dcpk_error *err)
{
    static const struct {
        const char *ending;
        uint64_t bytes;
    } units[] = {{"", 1}, {"KB", 1000}, {"MB", 1000000}, {"GB", 1000000000}};
    const char *end = text;
    uint64_t n = 0;

    if (text == NULL)
        return DCPK_OK;
    for (; isdigit((unsigned char)*end) && n < UINT64_MAX / 100; end++)
        n = n * 10 + (uint64_t)(*end - '0');
    for (size_t i = 0; i < DCPK_COUNT(units) && end > text && n > 0; i++)
        if (strcmp(end, units[i].ending) == 0 && dcpk_mul_u64(n, units[i].bytes, n_bytes))
            return DCPK_OK;
    return dcpk_fail(err, DCPK_EUSAGE,
                     "--max-shard-size '%s' is not a number of bytes, KB, MB or GB", text);
}

/* The first option given that is about what is written; NULL: none. */
static const char *output_option(const struct dcpk_family_args *a)
{
    if (a->assets != NULL)
        return "--hf-assets";
    if (a->dtype != NULL)
        return "--dtype";
    if (a->quantize != NULL)
        return "--quantize";
    return a->max_file != NULL ? "--max-shard-size" : NULL;
}

dcpk_status dcpk_family_args_apply(const struct dcpk_family_args *a, const struct dcpk_format *to,
                                   struct dcpk_family_settings *settings, struct dcpk_error *err)
{
    const char *option = output_option(a);

    if (option != NULL && !to->is_model)
        return dcpk_fail(err, DCPK_EUSAGE, "%s is for --to huggingface, not for %s", option,
                         to->name);
    *settings = (struct dcpk_family_settings){.maps = a->maps,
                                              .family = a->family,
                                              .without_mtp = a->without_mtp,
                                              .config = a->config,
                                              .assets = a->assets,
                                              .splits_state = a->splits_state};
    if (a->quantize != NULL && to->container != NULL)
        return dcpk_fail(err, DCPK_EUSAGE, "--quantize is for files of Hugging Face's, not for %s",
                         to->name);
    if (a->dtype != NULL)
        settings->dtype = dcpk_dtype_from_name(a->dtype);
    if (parse_quantize(a->quantize, &settings->fp8, err) ||
        parse_file_size(a->max_file, &settings->max_file_bytes, err))
        return err->status;
    return DCPK_OK;
}
