/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_releases.c - a table of releases: how DDP laid parameters into its buckets. */
#include "formats/megatron/buckets/megatron_releases.h"

/*
 * MC/distributed/param_and_grad_buffer.py of 0.6.0 to 0.16.1 (from 0.19 on
 * MC/optimizer/distrib_optimizer.py _compute_per_buffer_param_layout), the number of experts'
 * groups in MC/optimizer/__init__.py. The option is one that the release was first to have
 * (MT/arguments.py): args hold every option, given or not.
 */
const struct dcpk_replay_rules dcpk_replay_rules[DCPK_N_REPLAY_RULES] = {
    {"core 0.13 and later", "pipeline_model_parallel_layout", 64, 128, false, false},
    {"core 0.10 to 0.12", "expert_tensor_parallel_size", 64, 128, true, false},
    {"core 0.8 and 0.9", "dist_ckpt_strictness", 64, 128, true, true},
    {"core 0.7", "ddp_bucket_size", 1, 128, true, true},
    {"core 0.6", NULL, 1, 1, true, true},
};

const struct dcpk_replay_rules *dcpk_replay_rules_find(const struct dcpk_value *args)
{
    const struct dcpk_value *attrs = dcpk_value_attrs(args);
    const struct dcpk_replay_rules *rules = dcpk_replay_rules;

    while (rules->since_option != NULL && dcpk_value_get(attrs, rules->since_option) == NULL)
        rules++;
    return rules;
}

int64_t dcpk_replay_round_up(int64_t at, int64_t multiple)
{
    const int64_t over = at % multiple;

    return over == 0 ? at : at + (multiple - over);
}

int64_t dcpk_replay_end_multiple(const struct dcpk_replay_rules *rules, int64_t n_slices)
{
    int64_t a = rules->end_alignment, b = n_slices;

    while (b != 0) {
        const int64_t rest = a % b;

        a = b;
        b = rest;
    }
    return rules->end_alignment / a * n_slices;
}
