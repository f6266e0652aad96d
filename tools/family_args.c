/* SPDX-License-Identifier: Apache-2.0 */
/* family_args.c - options about Hugging Face's folders -> what formats go by. */
#include "tools/family_args.h"

#include <ctype.h>
#include <string.h>

#include "lib/base/checked.h"
#include "lib/base/order.h"

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
                  "the config.json of IN, where a trainer stores none; OUT: one to start from, "
                  "which args override: for token ids, the real vocabulary"),
    DCPK_OPT_CHECKPOINT("hf-assets", "DIR", assets,
                        "OUT: copy files of the tokenizer and generation_config.json from DIR; its "
                        "config.json is that of an IN without one"),
    DCPK_OPT_TEXT("dtype", "D", dtype,
                  "OUT: float32, bfloat16 or float16 (default: that of the model's weights)"),
    DCPK_OPT_FLAG("allow-overflow", allow_overflow,
                  "OUT: write finite elements that --dtype cannot hold as infinities (default: "
                  "refuse them, exit 1)"),
    DCPK_OPT_TEXT("max-shard-size", "SIZE", max_file,
                  "OUT: bytes of tensors in a file, also with KB, MB or GB (default: 5GB)"),
    DCPK_OPT_END};

static dcpk_status parse_dtype(const char *text, enum dcpk_dtype *dtype, struct dcpk_error *err)
{
    if (text == NULL)
        return DCPK_OK;
    *dtype = dcpk_dtype_from_name(text);
    if (*dtype != DCPK_F32 && *dtype != DCPK_BF16 && *dtype != DCPK_F16)
        return dcpk_fail(err, DCPK_EUSAGE, "--dtype '%s' is not one of float32, bfloat16, float16",
                         text);
    return DCPK_OK;
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
                                              .assets = a->assets};
    if (parse_dtype(a->dtype, &settings->dtype, err) ||
        parse_file_size(a->max_file, &settings->max_file_bytes, err))
        return err->status;
    return DCPK_OK;
}
