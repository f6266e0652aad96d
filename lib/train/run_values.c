/* SPDX-License-Identifier: Apache-2.0 */
/* run_values.c - args and parameter groups of a run, from its configuration. */
#include "lib/train/run_values.h"

#include <assert.h>
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/knobs/knobs.h"

static void values_put_int(struct dcpk_dict *v, const char *name, int64_t number)
{
    dcpk_dict_put(v, name, dcpk_value_int(v->arena, number, v->err));
}

static void values_put_float(struct dcpk_dict *v, const char *name, double number)
{
    dcpk_dict_put(v, name, dcpk_value_float(v->arena, number, v->err));
}

static void values_put_flag(struct dcpk_dict *v, const char *name, bool flag)
{
    dcpk_dict_put(v, name, dcpk_value_bool(flag));
}

static void values_put_text(struct dcpk_dict *v, const char *name, const char *text)
{
    dcpk_dict_put(v, name, dcpk_value_str(v->arena, text, v->err));
}

/* 0: None. */
static void values_put_count(struct dcpk_dict *v, const char *name, int64_t number)
{
    if (number == 0)
        dcpk_dict_put(v, name, dcpk_value_none());
    else
        values_put_int(v, name, number);
}

/* The value that the config has in the field of a knob. */
static void values_put_knob(struct dcpk_dict *v, const char *name,
                            const struct dcpk_train_config *config)
{
    struct dcpk_knob_walk walk;
    const struct dcpk_option *row = dcpk_knob_find(name, &walk);
    const void *field;

    static_assert(offsetof(struct dcpk_train_knobs, config) == 0, "rows count from the config");
    assert(row != NULL && row->at_bytes < sizeof *config);
    field = (const char *)config + row->at_bytes;
    if (row->kind == DCPK_OPTION_FLAG)
        values_put_flag(v, name, *(const bool *)field);
    else if (row->kind == DCPK_OPTION_NUMBER)
        values_put_float(v, name, *(const double *)field);
    else if (row->kind == DCPK_OPTION_LENGTH)
        values_put_int(v, name, *(const int64_t *)field);
    else
        values_put_text(v, name, *(const char *const *)field);
}

/* "None", "True", "0", "1.0" or a text. */
static void values_put_constant(struct dcpk_dict *v, const char *name, const char *text)
{
    const bool is_true = strcmp(text, "True") == 0;

    if (strcmp(text, "None") == 0)
        dcpk_dict_put(v, name, dcpk_value_none());
    else if (is_true || strcmp(text, "False") == 0)
        values_put_flag(v, name, is_true);
    else if (!isdigit((unsigned char)*text))
        values_put_text(v, name, text);
    else if (strchr(text, '.') != NULL)
        values_put_float(v, name, strtod(text, NULL));
    else
        values_put_int(v, name, strtoll(text, NULL, 10));
}

/* Every n-th layer from the first has experts: that n; 0 where no n is it. */
static int64_t moe_frequency(const struct dcpk_train_model *m)
{
    int64_t n = 1;

    if (m->moe_layers == NULL)
        return 1;
    while (n < m->layers && m->moe_layers[n] == 0)
        n++;
    for (int64_t i = 0; i < m->layers; i++)
        if ((m->moe_layers[i] != 0) != (i % n == 0))
            return 0;
    return n;
}

/* moe_layer_freq: a number, or a list of a 0 or 1 a layer. */
static void put_moe_layers(struct dcpk_dict *v, const struct dcpk_train_model *m)
{
    const int64_t n = moe_frequency(m);
    const struct dcpk_value **list;

    if (m->experts == 0 || (n > 0 && !m->is_moe_list)) {
        values_put_int(v, "moe_layer_freq", dcpk_max_i64(n, 1));
        return;
    }
    list = dcpk_arena_array(v->arena, (size_t)m->layers, sizeof *list, v->err);
    for (int64_t i = 0; list != NULL && i < m->layers; i++)
        list[i] = dcpk_value_int(v->arena, dcpk_train_is_moe(m, i), v->err);
    if (list != NULL)
        dcpk_dict_put(v, "moe_layer_freq",
                      dcpk_value_seq(v->arena, DCPK_V_LIST, list, (size_t)m->layers, v->err));
}

/* Args that are not the value of one knob, in any order. */
static void args_compute(struct dcpk_dict *v, const struct dcpk_train_config *c,
                         const struct dcpk_train_progress *progress)
{
    const struct dcpk_train_model *m = &c->model;
    const struct dcpk_grid *l = &c->layout;
    const enum dcpk_dtype compute = c->precision.compute, sums = c->precision.main_grads;
    const bool is_fsdp = c->fsdp.mode == DCPK_MODE_MEGATRON_FSDP;
    const bool has_sigmoid = m->has_sigmoid || m->has_expert_bias;

    values_put_int(v, "encoder_num_layers", m->layers);
    values_put_int(v, "encoder_seq_length", m->seq_length);
    values_put_flag(v, "group_query_attention", m->groups != m->heads);
    values_put_int(v, "padded_vocab_size", m->padded_vocab);
    values_put_int(v, "rotary_base", llround(m->rotary_base));
    values_put_flag(v, "untie_embeddings_and_output_weights", !m->is_tied);
    values_put_text(v, "transformer_impl",
                    m->impl == DCPK_IMPL_LOCAL ? "local" : "transformer_engine");
    values_put_count(v, "num_experts", m->experts);
    put_moe_layers(v, m);
    values_put_count(v, "moe_shared_expert_intermediate_size", m->shared_ffn);
    values_put_count(v, "mtp_num_layers", m->mtp_layers);
    values_put_count(v, "moe_ffn_hidden_size", m->experts > 0 ? m->moe_ffn : 0);
    values_put_int(v, "moe_router_topk", dcpk_max_i64(m->topk, 1));
    values_put_text(v, "moe_router_score_function", has_sigmoid ? "sigmoid" : "softmax");
    values_put_int(v, "transformer_pipeline_model_parallel_size", l->pp);
    values_put_int(v, "data_parallel_size", l->dp);
    values_put_int(v, "world_size", l->tp * l->cp * l->pp * l->dp);
    values_put_int(v, "num_distributed_optimizer_instances", dcpk_max_i64(l->instances, 1));
    values_put_text(v, "outer_dp_sharding_strategy",
                    c->fsdp.is_outer_sharded ? "optim" : "no_shard");
    values_put_flag(v, "use_megatron_fsdp", is_fsdp);
    values_put_text(v, "data_parallel_sharding_strategy", dcpk_strategy_names[c->fsdp.strategy]);
    values_put_flag(v, "use_distributed_optimizer", is_fsdp || c->fsdp.has_distributed_optimizer);
    values_put_count(v, "ddp_bucket_size", dcpk_max_i64(c->fsdp.bucket_elems, 0));
    values_put_flag(v, "bf16", compute == DCPK_BF16);
    values_put_flag(v, "fp16", compute == DCPK_F16);
    dcpk_dict_put(v, "params_dtype",
                  dcpk_value_global(v->arena, "torch", dcpk_dtype_name(compute), v->err));
    values_put_flag(v, "accumulate_allreduce_grads_in_fp32", sums != DCPK_BF16 && sums != DCPK_F16);
    values_put_text(v, "optimizer", c->optim.kind == DCPK_ADAM ? "adam" : "sgd");
    values_put_count(v, "lr_decay_iters", c->optim.decay_iters);
    values_put_int(v, "seed", (int64_t)c->data.seed);
    values_put_int(v, "iteration", progress->iteration);
    values_put_int(v, "consumed_train_samples", progress->consumed_samples);
    values_put_flag(v, "dist_ckpt_optim_fully_reshardable",
                    c->files.optimizer_layout == DCPK_FULLY_RESHARDABLE);
}

/* All args in their order: "a=c" is the constant c, "a" what args_compute has, else the value of
 * the knob a. */
static const char all_args[] =
    "num_layers encoder_num_layers hidden_size ffn_hidden_size num_attention_heads "
    "group_query_attention num_query_groups kv_channels vocab_size padded_vocab_size "
    "make_vocab_size_divisible_by tokenizer_type=NullTokenizer tokenizer_model=None seq_length "
    "encoder_seq_length max_position_embeddings position_embedding_type=rope "
    "add_position_embedding=True use_rotary_position_embeddings=False rotary_base "
    "rotary_percent=1.0 rotary_interleaved=False normalization=RMSNorm layernorm_epsilon "
    "apply_layernorm_1p=False qk_layernorm add_bias_linear=False add_qkv_bias=False swiglu=True "
    "squared_relu=False init_method_std attention_dropout=0.0 hidden_dropout=0.0 "
    "apply_query_key_layer_scaling=False untie_embeddings_and_output_weights transformer_impl "
    "num_experts moe_layer_freq moe_ffn_hidden_size moe_shared_expert_intermediate_size "
    "moe_router_topk moe_router_pre_softmax moe_router_score_function "
    "moe_router_enable_expert_bias moe_router_bias_update_rate "
    "moe_router_topk_scaling_factor=None moe_grouped_gemm moe_token_dispatcher_type=alltoall "
    "mtp_num_layers mtp_loss_scaling_factor tensor_model_parallel_size "
    "pipeline_model_parallel_size "
    "transformer_pipeline_model_parallel_size "
    "virtual_pipeline_model_parallel_size=None expert_model_parallel_size "
    "expert_tensor_parallel_size=1 context_parallel_size data_parallel_size world_size "
    "sequence_parallel=False use_tp_pp_dp_mapping num_distributed_optimizer_instances "
    "outer_dp_sharding_strategy use_megatron_fsdp use_torch_fsdp2=False "
    "data_parallel_sharding_strategy use_distributed_optimizer overlap_grad_reduce "
    "overlap_param_gather ddp_bucket_size bf16 fp16 params_dtype "
    "accumulate_allreduce_grads_in_fp32 use_precision_aware_optimizer=False "
    "calculate_per_token_loss optimizer adam_beta1 adam_beta2 adam_eps sgd_momentum clip_grad lr "
    "min_lr lr_warmup_init lr_decay_style lr_decay_iters lr_warmup_iters weight_decay "
    "start_weight_decay end_weight_decay weight_decay_incr_style apply_wd_to_qk_layernorm "
    "decoupled_lr=None micro_batch_size global_batch_size train_iters seed "
    "data_parallel_random_init=False iteration consumed_train_samples skipped_train_samples=0 "
    "consumed_valid_samples=0 ckpt_format use_dist_ckpt=True dist_ckpt_optim_fully_reshardable "
    "no_save_optim";

static void args_put(struct dcpk_dict *v, const struct dcpk_value *computed, char *name,
                     const struct dcpk_train_config *config)
{
    const struct dcpk_value *value = dcpk_value_get(computed, name);
    char *equals = strchr(name, '=');

    if (value != NULL) {
        dcpk_dict_put(v, name, value);
    } else if (equals != NULL) {
        *equals = '\0';
        values_put_constant(v, name, equals + 1);
    } else {
        values_put_knob(v, name, config);
    }
}

const struct dcpk_value *dcpk_train_args_make(const struct dcpk_train_config *config,
                                              const struct dcpk_train_progress *progress,
                                              struct dcpk_arena *arena, struct dcpk_error *err)
{
    struct dcpk_dict v = {.arena = arena, .err = err};
    const struct dcpk_value *computed;
    const char *at = all_args, *word;
    size_t n;

    args_compute(&v, config, progress);
    computed = dcpk_dict_end(&v);
    v = (struct dcpk_dict){.arena = arena, .err = err};
    while ((word = dcpk_take_word(&at, &n)) != NULL && err->status == DCPK_OK) {
        char *name = dcpk_arena_strndup(arena, word, n, err);

        if (name != NULL)
            args_put(&v, computed, name, config);
    }
    if (err->status != DCPK_OK)
        return NULL;
    return dcpk_value_namespace(arena, v.pairs, v.n, err);
}

/* (beta1, beta2) */
static void put_betas(struct dcpk_dict *v, const struct dcpk_train_optim *o)
{
    const struct dcpk_value *pair[2] = {dcpk_value_float(v->arena, o->beta1, v->err),
                                        dcpk_value_float(v->arena, o->beta2, v->err)};

    dcpk_dict_put(v, "betas", dcpk_value_seq(v->arena, DCPK_V_TUPLE, pair, 2, v->err));
}

/*
 * Makes one group, in the order of fields in which Megatron's runs keep them. Those of TE's
 * FusedAdam and of torch's AdamW are completed when it is written (lib/rules/rules.h).
 */
static const struct dcpk_value *train_group(const struct dcpk_train_config *config,
                                            const struct dcpk_schedule *schedule, int64_t steps,
                                            int kind, struct dcpk_dict *v)
{
    const double wd_mult = kind == DCPK_GROUP_PLAIN ? 0.0 : 1.0;

    values_put_flag(v, "is_expert_parallel", kind == DCPK_GROUP_EXPERT);
    values_put_flag(v, "default_config", true);
    values_put_float(v, "wd_mult", wd_mult);
    values_put_float(v, "lr_mult", 1.0);
    values_put_flag(v, "is_decoupled_lr", false);
    /* Megatron's scheduler prefers these to its own: they are those that this run trains by. */
    values_put_float(v, "max_lr", schedule->max_lr);
    values_put_float(v, "min_lr", schedule->min_lr);
    values_put_float(v, "lr", dcpk_schedule_lr(schedule));
    if (config->optim.kind == DCPK_ADAM) {
        put_betas(v, &config->optim);
        values_put_float(v, "eps", config->optim.eps);
    } else {
        values_put_float(v, "momentum", config->optim.momentum);
    }
    values_put_float(v, "weight_decay", dcpk_schedule_wd(schedule) * wd_mult);
    if (config->optim.form == DCPK_ADAM_TE)
        values_put_int(v, "step", steps);
    else
        values_put_float(v, "step", (double)steps);
    return dcpk_dict_end(v);
}

size_t dcpk_train_groups(const struct dcpk_train_config *config,
                         const struct dcpk_schedule *schedule,
                         const struct dcpk_train_progress *progress, struct dcpk_arena *arena,
                         const struct dcpk_value **groups, struct dcpk_error *err)
{
    const bool has_experts = config->model.experts > 0 && config->layout.ep > 1;
    const size_t n = has_experts ? DCPK_TRAIN_GROUPS : DCPK_TRAIN_GROUPS - 1;

    for (size_t g = 0; g < n; g++) {
        struct dcpk_dict v = {.arena = arena, .err = err};

        groups[g] = train_group(config, schedule, progress->adam_steps, (int)g, &v);
        if (groups[g] == NULL)
            return 0;
    }
    return n;
}

/* ---- how far it is ---- */

/* Layers with experts, those of multi-token prediction like the last one. */
static int64_t count_moe_layers(const struct dcpk_train_model *m)
{
    int64_t n = 0;

    for (int64_t i = 0; i < m->layers; i++)
        n += dcpk_train_is_moe(m, i);
    if (dcpk_train_is_moe(m, m->layers - 1))
        n += m->mtp_layers;
    return n;
}

double dcpk_train_step_flops(const struct dcpk_train_config *config)
{
    const double passes = 3, multiply_add = 2,
                 gated = 3; /* forward, and backward twice; fc1, fc2 */
    const struct dcpk_train_model *m = &config->model;
    const int64_t n_layers = m->layers + m->mtp_layers, n_moe = count_moe_layers(m);
    const double tokens = (double)(config->data.global_batch * m->seq_length);
    const double hidden = (double)m->hidden, query = (double)(m->head_dim * m->heads);
    const double keys = (double)(m->head_dim * m->groups);
    const double expert = (double)(m->moe_ffn * m->topk + m->shared_ffn);
    const double mlp =
        gated * hidden * ((double)(m->ffn * (n_layers - n_moe)) + expert * (double)n_moe);
    const double linear = hidden * (2 * query + 2 * keys) * (double)n_layers;
    const double mtp = (double)m->mtp_layers * (3 * hidden + 2 * hidden * hidden);
    const double logits = hidden * (double)(m->padded_vocab * (m->mtp_layers + 1));
    const double scores =
        (double)m->seq_length * query * (double)n_layers; /* a causal half, twice */

    return passes * multiply_add * tokens * (mlp + linear + mtp + logits + scores);
}

/* ---- the scale of fp16 ---- */

const struct dcpk_value *dcpk_train_scaler(const struct dcpk_loss_scale *scale,
                                           struct dcpk_arena *arena, struct dcpk_error *err)
{
    const float factor = (float)scale->scale;
    struct dcpk_dict v = {.arena = arena, .err = err};

    dcpk_dict_put(&v, "scale", dcpk_value_vector(arena, DCPK_F32, &factor, 1, err));
    values_put_int(&v, "growth_tracker", scale->n_good);
    values_put_int(&v, "hysteresis_tracker", scale->n_left);
    return dcpk_dict_end(&v);
}

static bool read_scale(const struct dcpk_value *value, double *scale)
{
    float f;

    if (value == NULL || value->kind != DCPK_V_TENSOR)
        return dcpk_value_as_float(value, scale);
    if (value->as.tensor->dtype != DCPK_F32 || value->as.tensor->n_bytes != sizeof f)
        return false;
    memcpy(&f, value->as.tensor->data, sizeof f);
    *scale = (double)f;
    return true;
}

/* A run counts on from it. */
static bool read_tracker(const struct dcpk_value *value, int64_t *tracker)
{
    return dcpk_value_as_int(value, tracker) && *tracker >= INT32_MIN && *tracker <= INT32_MAX;
}

dcpk_status dcpk_train_scaler_read(const struct dcpk_value *scaler, struct dcpk_loss_scale *scale,
                                   struct dcpk_error *err)
{
    struct dcpk_loss_scale read;

    if (!read_scale(dcpk_value_get(scaler, "scale"), &read.scale) || !(read.scale > 0) ||
        isinf(read.scale))
        return dcpk_fail(err, DCPK_EFORMAT, "the loss scaler's scale is not a positive number");
    if (!read_tracker(dcpk_value_get(scaler, "growth_tracker"), &read.n_good) ||
        !read_tracker(dcpk_value_get(scaler, "hysteresis_tracker"), &read.n_left))
        return dcpk_fail(err, DCPK_EFORMAT, "the loss scaler's trackers are not whole numbers");
    *scale = read;
    return DCPK_OK;
}
