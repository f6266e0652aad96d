/* SPDX-License-Identifier: Apache-2.0 */
/* config.c - sizes that Megatron derives from a configuration. */
/*
 *   vocabulary    ceil to vocab_divisible_by * tp
 *   bucket        40 million elements, or a million for each data-parallel rank
 *   queue         10^9 elements, or two units
 *
 * Sources: fsdp/src/megatron_fsdp/param_and_grad_buffer.py, megatron_fsdp.py @core_v0.19.0.
 */
#include "lib/knobs/config.h"

#include "lib/base/json.h"
#include "lib/base/order.h"

#define MIN_QUEUE_ELEMS INT64_C(1000000000)

const char *const dcpk_strategy_names[DCPK_N_STRATEGIES] = {
    [DCPK_NO_SHARD] = "no_shard",
    [DCPK_OPTIM] = "optim",
    [DCPK_OPTIM_GRADS] = "optim_grads",
    [DCPK_OPTIM_GRADS_PARAMS] = "optim_grads_params",
};

int64_t dcpk_train_padded_vocab(const struct dcpk_train_model *model, int64_t tp)
{
    const int64_t block = model->vocab_divisible_by * tp;

    return (model->vocab_size + block - 1) / block * block;
}

int dcpk_train_count_moments(const struct dcpk_train_optim *optim)
{
    if (optim->kind == DCPK_ADAM)
        return 2;
    return optim->momentum != 0;
}

int64_t dcpk_train_bucket_elems(const struct dcpk_train_config *config, int64_t pp,
                                bool overlaps_reduce)
{
    const int64_t asked = config->fsdp.bucket_elems;

    if (pp > 0)
        return 0;
    if (asked >= 0)
        return asked;
    if (!overlaps_reduce)
        return 0;
    return dcpk_grid_bucket_elems(config->layout.dp * config->layout.cp);
}

int64_t dcpk_train_queue_elems(const struct dcpk_train_config *config, int64_t n_units,
                               int64_t n_elems)
{
    if (config->fsdp.unit_elems > 0)
        return config->fsdp.unit_elems;
    if (n_units == 0)
        return MIN_QUEUE_ELEMS;
    return dcpk_max_i64(MIN_QUEUE_ELEMS, 2 * (n_elems / n_units));
}

/* ---- the first line of a log ---- */

static const char *line_parallelism(const struct dcpk_train_fsdp *f)
{
    if (f->mode == DCPK_MODE_MEGATRON_FSDP)
        return "Megatron-FSDP";
    if (f->has_distributed_optimizer)
        return "DDP with a distributed optimizer";
    return "DDP";
}

static void line_put_layout(struct dcpk_json_out *j, const struct dcpk_train_config *c)
{
    const struct dcpk_grid *l = &c->layout;

    dcpk_json_add_string(j, "data_parallelism", line_parallelism(&c->fsdp));
    dcpk_json_add_string(j, "data_parallel_sharding_strategy",
                         dcpk_strategy_names[c->fsdp.strategy]);
    dcpk_json_add_int(j, "tensor_model_parallel_size", l->tp);
    dcpk_json_add_int(j, "context_parallel_size", l->cp);
    dcpk_json_add_int(j, "expert_model_parallel_size", l->ep);
    dcpk_json_add_int(j, "pipeline_model_parallel_size", l->pp);
    dcpk_json_add_int(j, "data_parallel_size", l->dp);
    dcpk_json_add_int(j, "num_distributed_optimizer_instances", l->instances);
    dcpk_json_add_bool(j, "use_tp_pp_dp_mapping", l->is_tp_pp_dp);
}

static void line_put_numbers(struct dcpk_json_out *j, const struct dcpk_train_precision *p)
{
    dcpk_json_add_string(j, "params_dtype", dcpk_dtype_name(p->compute));
    dcpk_json_add_string(j, "megatron_fsdp_main_params_dtype", dcpk_dtype_name(p->main_params));
    dcpk_json_add_string(j, "megatron_fsdp_main_grads_dtype", dcpk_dtype_name(p->main_grads));
    dcpk_json_add_string(j, "megatron_fsdp_grad_comm_dtype", dcpk_dtype_name(p->comm));
    dcpk_json_add_bool(j, "calculate_per_token_loss", p->is_per_token_loss);
    if (p->is_exact)
        dcpk_json_add_string(j, "reduce", "exact");
    else
        dcpk_json_add_string(j, "reduce", "native");
    dcpk_json_add_int(j, "exact_lsb", p->exact_lsb);
    dcpk_json_add_int(j, "virtual_slices", p->virtual_slices);
    dcpk_json_add_int(j, "leaf_tokens", p->leaf_tokens);
}

void dcpk_run_line_put(const struct dcpk_train_config *config, struct dcpk_json_out *j)
{
    dcpk_json_put_key(j, "run");
    dcpk_json_begin_object(j);
    line_put_layout(j, config);
    line_put_numbers(j, &config->precision);
    dcpk_json_add_int(j, "micro_batch_size", config->data.micro_batch);
    dcpk_json_add_int(j, "global_batch_size", config->data.global_batch);
    dcpk_json_add_int(j, "train_iters", config->data.train_iters);
    dcpk_json_add_int(j, "seed", (int64_t)config->data.seed);
    dcpk_json_end_object(j);
}
