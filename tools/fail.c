/* SPDX-License-Identifier: Apache-2.0 */
/* fail.c - errors in the words of the command line: options that mend them, exit codes. */
#include <stdarg.h>
#include <string.h>

#include "tools/cmd.h"

/* By the bits of enum dcpk_fix. */
static const struct {
    enum dcpk_fix fix;
    const char *words;
} fixes[DCPK_N_FIXES] = {
    {DCPK_FIX_RESUME, "--resume continues it"},
    {DCPK_FIX_REPLACE, "--force replaces it"},
    {DCPK_FIX_MEMORY, "raise --memory"},
    {DCPK_FIX_SWIGLU, "give --swiglu, --no-swiglu or --swiglu-modules as the model was built"},
    {DCPK_FIX_GROUP_MAP, "give --param-to-param-group-map-json"},
    {DCPK_FIX_VOCAB_SIZE, "give the model's number of tokens (its vocab_size) as --vocab-size"},
    {DCPK_FIX_BUCKET_SIZE,
     "give --ddp-bucket-size if the run used another size than args.ddp_bucket_size"},
    {DCPK_FIX_WEIGHTS_ONLY, "--weights-only leaves the optimizer state out"},
    {DCPK_FIX_OTHER_SHARDS, "choose another --target-dp"},
    {DCPK_FIX_NO_SHARDS, "leave --target-dp out: every layout loads the result"},
    {DCPK_FIX_NO_MESH, "leave --target-mesh out"},
    {DCPK_FIX_OWN_MAPPING, "convert without --like-megatron-inspector"},
    {DCPK_FIX_NO_READ_BACK, "leave --verify, --hashes and --integrity out"},
    {DCPK_FIX_NO_INTEGRITY, "leave --integrity out"},
    {DCPK_FIX_LIST_BUILT, "'dcpkit --version' lists what is built in"},
    {DCPK_FIX_LORA, "convert --merge-lora merges it; --base DIR gives its model if IN does not "
                    "hold it, --adapter-config FILE its alpha"},
    {DCPK_FIX_MODEL_FLAGS, "'dcpkit inspect' shows the flags of its model; 'dcpkit check' names "
                           "what a conversion would fix"},
    {DCPK_FIX_NO_LOAD_OPTIM, "--no-load-optim loads only weights"},
    {DCPK_FIX_FINETUNE, "--finetune loads only weights and begins at iteration 0"},
    {DCPK_FIX_SCHEDULE, "--override-opt-param-scheduler keeps that of this run, "
                        "--use-checkpoint-opt-param-scheduler takes that of the checkpoint"},
    {DCPK_FIX_ALLOW_OVERFLOW, "--allow-overflow writes them as infinities"},
    {DCPK_FIX_TRUST, "--trust weights derives masters from weights, --trust masters the reverse"},
    {DCPK_FIX_REPAIR, "'convert --repair bucket-padding' puts it back and reports what is lost"},
    {DCPK_FIX_GTP, "convert --accept-gtp takes them as they are stored"},
    {DCPK_FIX_ARGS, "--args-from takes args from a JSON object, a run_config.yaml of "
                    "Megatron-Bridge, or a checkpoint that has either"},
    {DCPK_FIX_RENAME, "modify-state-dict --op 'rename RE NEW' fixes keys"},
    {DCPK_FIX_PREFIX, "convert --input-model-weight-prefix takes keys with that prefix"},
    {DCPK_FIX_DROP, "convert --drop RE leaves them out"},
    {DCPK_FIX_CONFIG, "convert --hf-config FILE takes the config.json of the model"},
    {DCPK_FIX_REWRITE,
     "--target-mesh, --target-generation, --weights-only, --make-vocab-size-divisible-by or for "
     "fsdp_dtensor --target-dp writes it again"},
    {DCPK_FIX_DETECT, "without --from the format is detected"},
};

int dcpk_cli_exit_code(dcpk_status status)
{
    switch (status) {
    case DCPK_OK:
        return DCPK_EXIT_OK;
    case DCPK_EUSAGE:
        return DCPK_EXIT_USAGE;
    case DCPK_EFORMAT:
    case DCPK_EUNSUPPORTED:
    case DCPK_ERANGE:
    case DCPK_EMISMATCH:
        return DCPK_EXIT_INPUT;
    case DCPK_ENOMEM:
    case DCPK_EIO:
    case DCPK_ECANCELLED:
        return DCPK_EXIT_SYSTEM;
    }
    return DCPK_EXIT_SYSTEM;
}

const char *dcpk_cli_error_text(const struct dcpk_error *err, char text[DCPK_CLI_ERROR_BYTES])
{
    const char *before = " (";
    size_t n = (size_t)snprintf(text, DCPK_CLI_ERROR_BYTES, "%s", err->text);

    for (size_t i = 0; i < DCPK_N_FIXES && n < DCPK_CLI_ERROR_BYTES; i++) {
        if ((err->fixes & fixes[i].fix) == 0)
            continue;
        n += (size_t)snprintf(text + n, DCPK_CLI_ERROR_BYTES - n, "%s%s", before, fixes[i].words);
        before = "; ";
    }
    if (err->fixes != 0 && n < DCPK_CLI_ERROR_BYTES)
        snprintf(text + n, DCPK_CLI_ERROR_BYTES - n, ")");
    return text;
}

int dcpk_cli_usage(const char *command, const char *fmt, ...)
{
    va_list ap;

    dcpk_cli_printf(stderr, "dcpkit: %s: ", command);
    va_start(ap, fmt);
    dcpk_cli_vprintf(stderr, fmt, ap);
    va_end(ap);
    dcpk_cli_printf(stderr, "; see 'dcpkit %s --help'\n", command);
    return DCPK_EXIT_USAGE;
}

int dcpk_cli_fail(const char *command, const struct dcpk_error *err)
{
    char text[DCPK_CLI_ERROR_BYTES];

    /* 'dcpkit hash RUN | head' has all that it wants. */
    if (strcmp(err->text, DCPK_CLI_NO_READER) == 0)
        return dcpk_cli_exit_code(err->status);
    dcpk_cli_printf(stderr, "dcpkit: %s: ", command);
    dcpk_cli_put_text(stderr, dcpk_cli_error_text(err, text));
    dcpk_cli_printf(stderr, "\n");
    if ((err->fixes & DCPK_FIX_ALLOW_OVERFLOW) != 0) /* the input is sound: the answer is no */
        return DCPK_EXIT_NO;
    return dcpk_cli_exit_code(err->status);
}
