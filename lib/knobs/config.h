/* SPDX-License-Identifier: Apache-2.0 */
/* config.h - what a training run is asked for: model, layout of ranks, data parallelism, precision,
 * optimizer, schedule, data, saving. Plain values; knobs.h fills and checks them. */
#ifndef DCPK_LIB_KNOBS_CONFIG_H
#define DCPK_LIB_KNOBS_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/model/names.h"
#include "lib/place/grid.h"
#include "lib/tensor/dtype.h"

struct dcpk_json_out;

/* Iterations, samples and steps of a run: a schedule counts them in doubles. */
#define DCPK_MAX_SAMPLES (INT64_C(1) << 53)

/* Parameters of a layer at most, but those of its experts (train/params.h). */
#define DCPK_TRAIN_MAX_LAYER_PARAMS 32

/* A GPT as Megatron's flags describe it. Sizes are of the whole model. */
struct dcpk_train_model {
    int64_t layers, hidden, ffn, heads;
    int64_t groups;     /* query groups; heads without --group-query-attention */
    int64_t head_dim;   /* kv_channels */
    int64_t vocab_size; /* tokens; padded_vocab is ceil to vocab_divisible_by * tp */
    int64_t padded_vocab, vocab_divisible_by;
    int64_t seq_length, max_positions;
    double norm_epsilon, rotary_base, init_std;
    bool is_tied, has_qk_norm;
    int64_t experts, topk, moe_ffn, shared_ffn;         /* experts 0: dense; shared_ffn 0: none */
    bool has_pre_softmax, has_sigmoid, has_expert_bias; /* has_expert_bias: has_sigmoid, too */
    double expert_bias_rate;
    const uint8_t *moe_layers; /* one a layer: 1, a MoE layer; NULL: experts > 0 for all */
    bool is_moe_list;          /* --moe-layer-freq is a list: layers are not stacked on disk */
    int64_t mtp_layers;
    double mtp_loss_factor;
    enum dcpk_impl impl; /* LOCAL or TE: names of parameters, order of registration */
    bool is_grouped;     /* experts in grouped linears */
};

/* Source: fsdp/src/megatron_fsdp/param_and_grad_buffer.py @core_v0.19.0. */
enum dcpk_strategy { DCPK_NO_SHARD, DCPK_OPTIM, DCPK_OPTIM_GRADS, DCPK_OPTIM_GRADS_PARAMS };
#define DCPK_N_STRATEGIES 4
extern const char *const dcpk_strategy_names[DCPK_N_STRATEGIES]; /* Megatron's: "no_shard", ... */
enum dcpk_parallel_mode { DCPK_MODE_DDP, DCPK_MODE_MEGATRON_FSDP };

struct dcpk_train_fsdp {
    enum dcpk_parallel_mode mode;
    enum dcpk_strategy strategy;
    bool has_distributed_optimizer; /* of DDP; always of FSDP */
    bool overlaps_reduce, overlaps_gather, has_double_buffer, has_max_pool;
    bool averages_in_collective, checks_nan, recomputes, is_fine_grained;
    bool is_outer_sharded; /* outer_dp_sharding_strategy optim: HFSDP, else HSDP */
    bool has_user_buffers, registers_by_hand, has_local_registration; /* nccl_ub */
    bool asks_overlap;     /* overlaps_reduce was asked for; optim_grads has it in any case */
    int64_t bucket_elems;  /* -1: Megatron's default */
    int64_t unit_elems;    /* suggested_communication_unit_size; 0: Megatron's default */
    int64_t hash_interval; /* check_weight_hash_across_dp_replicas_interval; 0: never */
};

struct dcpk_train_precision {
    enum dcpk_dtype compute;                       /* F32, BF16, F16 */
    enum dcpk_dtype main_params, main_grads, comm; /* AUTO is resolved by knobs.c */
    enum dcpk_dtype asked_grads, asked_comm; /* what exact sums replace by fp32; NONE: the same */
    bool is_exact;                           /* --reduce exact, else native */
    int exact_lsb;                           /* 44: the integers' unit is 2^-44 */
    int64_t virtual_slices;                  /* 0: 8 or fewer; resolved by knobs.c */
    int64_t leaf_tokens;                     /* 0: the whole sequence, with cp > 1 a chunk of it */
    double initial_scale, min_scale;         /* of fp16 */
    int64_t scale_window, hysteresis;
    bool is_per_token_loss;
};

enum dcpk_train_optimizer { DCPK_ADAM, DCPK_SGD };
enum dcpk_adam_form { DCPK_ADAM_TE, DCPK_ADAM_TORCH };
struct dcpk_train_optim {
    enum dcpk_train_optimizer kind;
    enum dcpk_adam_form form;
    double beta1, beta2, eps, momentum, clip; /* clip 0: none */
    double lr, min_lr, warmup_init_lr;
    const char *lr_style, *wd_style, *wsd_style;  /* Megatron's words */
    int64_t warmup_iters, decay_iters, wsd_iters; /* 0: none; decay_iters 0: train_iters */
    double warmup_fraction;                       /* 0: none */
    double weight_decay, start_wd, end_wd;
    bool decays_qk_norm;
    bool uses_saved_schedule, overrides_schedule;
};

struct dcpk_train_data {
    int64_t micro_batch, global_batch, train_iters, exit_at; /* exit_at 0: train_iters */
    int64_t exit_interval;    /* stop at the first iteration divisible by it; 0: do not */
    bool batch_follows_ranks; /* global_batch was not given: a micro batch for each rank */
    uint64_t seed;
    const char *token_file; /* NULL: mock data */
    bool has_noise;         /* noise of losses is measured first (initial.h) */
};

/* Megatron's logger. */
struct dcpk_train_logger {
    const char *folder;  /* of TensorBoard's events; NULL: none are written */
    int64_t interval;    /* iterations between two events */
    bool has_throughput; /* printed and, with has_times, among the events */
    bool has_times, has_loss_scale;
};

enum dcpk_optimizer_layout { DCPK_FULLY_RESHARDABLE, DCPK_DP_RESHARDABLE, DCPK_FLATTENED };
struct dcpk_train_files {
    const char *save, *load, *ckpt_format, *generation; /* generation: "A", "B", "C" */
    const char *map_folder;                             /* dump_param_to_param_group_map */
    int64_t save_interval;
    enum dcpk_optimizer_layout optimizer_layout;
    bool is_async, no_load_optim, no_save_optim, no_save_rng, is_finetune;
    bool checks_input;      /* check every checksum of a loaded checkpoint first */
    const char *strictness; /* dist_ckpt_strictness */
    const char *log;        /* JSON lines are appended to it; NULL: none */
    struct dcpk_train_logger logger;
    bool notes_times, has_ranges; /* seconds by phase; phases as ranges for Nsight */
    int64_t state_hash_interval;  /* iterations between two hashes of the log; 0: none */
};

struct dcpk_train_config {
    struct dcpk_train_model model;
    struct dcpk_grid layout; /* dp is what the number of ranks leaves; etp: params.h */
    struct dcpk_train_fsdp fsdp;
    struct dcpk_train_precision precision;
    struct dcpk_train_optim optim;
    struct dcpk_train_data data;
    struct dcpk_train_files files;
};

/* ---- values computed from a configuration, for the run and its explanation ---- */

/* The rows of the word embedding when tp ranks share them. */
int64_t dcpk_train_padded_vocab(const struct dcpk_train_model *model, int64_t tp);

/* fp32 numbers that the optimizer keeps for each parameter in addition to it: Adam 2, SGD 1 or
 * 0. */
int dcpk_train_count_moments(const struct dcpk_train_optim *optim);

/*
 * Elements at which parameters outside units begin another bucket, on stage pp; 0: never.
 * overlaps_reduce: of the strategy that is looked at.
 */
int64_t dcpk_train_bucket_elems(const struct dcpk_train_config *config, int64_t pp,
                                bool overlaps_reduce);

/* Elements of gradients that may wait to be reduced; half of it are gathered ahead. n_units:
 * buckets' units of this rank, of n_elems together. */
int64_t dcpk_train_queue_elems(const struct dcpk_train_config *config, int64_t n_units,
                               int64_t n_elems);

/*
 * Add a member to the object that `j` is in, for the first line of a log: what a run's layout and
 * numbers depend on.
 *
 *   "run": {"data_parallelism": "Megatron-FSDP", "data_parallel_sharding_strategy": "optim_grads",
 *           "tensor_model_parallel_size": 2, ..., "reduce": "exact", "exact_lsb": 44, ...}
 *
 * Names are those of knobs (knobs.h), values what rules and defaults made of them. config: checked
 * (knobs.h).
 */
void dcpk_run_line_put(const struct dcpk_train_config *config, struct dcpk_json_out *j);

#endif
