/* SPDX-License-Identifier: Apache-2.0 */
/* input_args.c - options that describe a checkpoint to read. */
#include "tools/input_args.h"

#include <string.h>

/* A word that an option takes, and what it decides. */
struct word {
    const char *text;
    unsigned decision; /* enum dcpk_decision */
};

/* `when` begins each help text; `name`: the checkpoint's. */
#define ROWS(when, name)                                                                           \
    DCPK_OPT_TEXT("input-model-weight-prefix", "P", model_prefix,                                  \
                  when "prefix of weight keys in " name                                            \
                       ", fsdp_dtensor (default: model.module, else detected)"),                   \
        DCPK_OPT_TEXT("input-optimizer-state-prefix", "P", state_prefix,                           \
                      when "prefix of optimizer keys in " name ", fsdp_dtensor (default: "         \
                           "optimizer.state.module.module.module, else detected)"),                \
        DCPK_OPT_LIST("drop", "RE", drops,                                                         \
                      when "leave keys of " name " out that match, as if they did not exist; "     \
                           "may be given several times"),                                          \
        DCPK_OPT_LENGTH("ddp-bucket-size", "N", bucket_elems,                                      \
                        when "elements of a DDP bucket in the run that wrote " name ", if "        \
                             "optimizer state gathered by data-parallel rank 0 "                   \
                             "(dp_zero_gather_scatter) does not fit args.ddp_bucket_size"),        \
        DCPK_OPT_TEXT("trust", "weights|masters", trust,                                           \
                      when "if weights of " name " are not its rounded masters, or have none, "    \
                           "trust these and derive the others (default: that is an error)"),       \
        DCPK_OPT_TEXT("repair", "bucket-padding", repair,                                          \
                      when "move optimizer state of " name " back that core 0.15 to 0.19.2 moved " \
                           "over the padding of DDP buckets; lost masters become their weights, "  \
                           "exp_avg 0, exp_avg_sq the mean of its tensor"),                        \
        DCPK_OPT_FLAG("accept-gtp", accept_gtp,                                                    \
                      when                                                                         \
                      "accept weights of generalized tensor parallelism or of an interleaved "     \
                      "GLU as " name " stores them: you know that its release wrote them "         \
                      "right"),                                                                    \
        DCPK_OPT_END

#define DCPK_OPT_STRUCT struct dcpk_input_args
const struct dcpk_option dcpk_input_rows[] = {ROWS("", "IN")};
const struct dcpk_option dcpk_against_rows[] = {ROWS("with --against: ", "SRC")};

/* Add the decision of an option that takes one of a few words. */
static dcpk_status take_word(const char *option, const char *text, const struct word *words,
                             unsigned *decisions, struct dcpk_error *err)
{
    const char *before = "";

    if (text == NULL)
        return DCPK_OK;
    for (const struct word *word = words; word->text != NULL; word++)
        if (strcmp(text, word->text) == 0) {
            *decisions |= word->decision;
            return DCPK_OK;
        }
    dcpk_fail(err, DCPK_EUSAGE, "%s '%s' is not one of ", option, text);
    for (; words->text != NULL; words++, before = ", ")
        dcpk_append(err, "%s%s", before, words->text);
    return err->status;
}

dcpk_status dcpk_input_args_apply(const struct dcpk_input_args *a, struct dcpk_open_options *given,
                                  struct dcpk_error *err)
{
    static const struct word trust[] = {
        {"weights", DCPK_TRUST_WEIGHTS}, {"masters", DCPK_TRUST_MASTERS}, {NULL, 0}};
    static const struct word repair[] = {{"bucket-padding", DCPK_REPAIR_PADDING}, {NULL, 0}};

    *given = (struct dcpk_open_options){.bucket_elems = a->bucket_elems,
                                        .model_prefix = a->model_prefix,
                                        .state_prefix = a->state_prefix,
                                        .drops = a->drops.texts,
                                        .n_drops = a->drops.n};
    if (a->accept_gtp)
        given->decisions |= DCPK_ACCEPT_GTP;
    if (take_word("--trust", a->trust, trust, &given->decisions, err) ||
        take_word("--repair", a->repair, repair, &given->decisions, err))
        return err->status;
    return DCPK_OK;
}

bool dcpk_input_args_given(const struct dcpk_input_args *a)
{
    return a->bucket_elems != 0 || a->model_prefix != NULL || a->state_prefix != NULL ||
           a->trust != NULL || a->repair != NULL || a->accept_gtp || a->drops.n > 0;
}
