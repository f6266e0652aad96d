/* SPDX-License-Identifier: Apache-2.0 */
/* input_args.c - options that describe a checkpoint to read. */
#include "tools/input_args.h"

#include "lib/model/account.h"

/* `when` begins each help text; `name`: the checkpoint's. */
#define ROWS(when, name)                                                                           \
    DCPK_OPT_TEXT("input-model-weight-prefix", "P", model_prefix,                                  \
                  when "prefix of weight keys in " name                                            \
                       ", fsdp_dtensor (default: model.module, else found by looking)"),           \
        DCPK_OPT_TEXT("input-optimizer-state-prefix", "P", state_prefix,                           \
                      when "prefix of optimizer keys in " name ", fsdp_dtensor (default: "         \
                           "optimizer.state.module.module.module, else found by looking)"),        \
        DCPK_OPT_LIST("drop", "RE", drops,                                                         \
                      when "leave out what " name " has under keys that match, as if it were not " \
                           "there; may be given several times"),                                   \
        DCPK_OPT_LENGTH("ddp-bucket-size", "N", bucket_elems,                                      \
                        when "elements of a DDP bucket in the run that wrote " name ", where "     \
                             "optimizer state gathered by data-parallel rank 0 "                   \
                             "(dp_zero_gather_scatter) does not fit args.ddp_bucket_size"),        \
        DCPK_OPT_END

#define DCPK_OPT_STRUCT struct dcpk_input_args
const struct dcpk_cli_option dcpk_input_options[] = {ROWS("", "IN")};
const struct dcpk_cli_option dcpk_against_options[] = {ROWS("with --against: ", "SRC")};

void dcpk_input_args_apply(const struct dcpk_input_args *a, struct dcpk_input_facts *facts)
{
    *facts = (struct dcpk_input_facts){.bucket_elems = a->bucket_elems,
                                       .model_prefix = a->model_prefix,
                                       .state_prefix = a->state_prefix,
                                       .drops = a->drops.texts,
                                       .n_drops = a->drops.n};
}

bool dcpk_input_args_given(const struct dcpk_input_args *a)
{
    return a->bucket_elems != 0 || a->model_prefix != NULL || a->state_prefix != NULL ||
           a->drops.n > 0;
}

void dcpk_input_args_advise(const struct dcpk_model *model, struct dcpk_error *err)
{
    if (model == NULL || model->n_unknown == 0)
        return;
    if (model->unknown_prefix == NULL)
        dcpk_append(err, " (--drop RE leaves them out)");
    else if (dcpk_model_has_values(model))
        dcpk_append(err, " (modify-state-dict --op 'rename RE NEW' mends keys, --drop RE leaves "
                         "them out)");
    else
        dcpk_append(err, " (--input-model-weight-prefix %s takes them, --drop RE leaves them out)",
                    model->unknown_prefix);
}
