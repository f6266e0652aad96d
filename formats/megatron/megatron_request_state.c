/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_request_state.c - the training state that loaders of 3D-parallel checkpoints ask for:
 * common state, groups, buckets, RNG (formats/torch_dist/FORMAT.md 5 to 7). */
#include <inttypes.h>
#include <string.h>

#include "formats/megatron/megatron.h"
#include "lib/base/order.h"

#define SINCE(release) dcpk_loaders_of(release, DCPK_MAIN)

#define IS_NOT_THERE "is not in the common state"

/* "<owner>.<field> is not in the common state" */
static dcpk_status fault_at(const struct dcpk_loading *loading, enum dcpk_purpose purpose,
                            const char *owner, const char *field, struct dcpk_error *err)
{
    const char *key = dcpk_arena_printf(loading->arena, err, "%s.%s", owner, field);

    if (key == NULL)
        return err->status;
    return dcpk_request_fault(loading, purpose, DCPK_ALL_LOADERS, key, IS_NOT_THERE, err);
}

/* --- the optimizer --- */

/* Loaders that know a kind (formats/torch_dist/FORMAT.md 5). */
static const struct {
    const char *name;
    enum dcpk_optimizer_kind kind;
    enum dcpk_release last;
} types[] = {
    {"fully_reshardable", DCPK_OPTIMIZER_RESHARDABLE, DCPK_MAIN},
    {"dp_reshardable", DCPK_OPTIMIZER_BUCKETS, DCPK_MAIN},
    {"dp_zero_gather_scatter", DCPK_OPTIMIZER_GATHERED, DCPK_MAIN},
    {"fully_sharded_model_space", DCPK_OPTIMIZER_FLATTENED, DCPK_CORE_0_15},
};

static bool is_distributed(const struct dcpk_loading *loading)
{
    bool is_set = true;

    return !dcpk_value_as_bool(dcpk_value_get(loading->attrs, "use_distributed_optimizer"),
                               &is_set) ||
           is_set;
}

/* The layout by content_metadata, else that of older releases (load_checkpoint@0.15 to main). */
static const char *sharding_type(const struct dcpk_loading *loading)
{
    const struct dcpk_value *content = dcpk_value_get(loading->common, "content_metadata");
    const char *name = dcpk_value_as_str(dcpk_value_get(content, "distrib_optim_sharding_type"));

    if (name != NULL)
        return name;
    if (dcpk_value_is_true(loading->attrs, "ckpt_fully_parallel_save"))
        return "fully_sharded_model_space";
    return "dp_zero_gather_scatter";
}

/*
 * Routed experts have an optimizer of their own with expert parallelism
 * (megatron/core/optimizer/__init__.py get_megatron_optimizer).
 */
static bool loading_splits_experts(const struct dcpk_loading *loading)
{
    return loading->model->n_experts > 0 && loading->mesh.ep > 1;
}

void dcpk_optimizer_asked_find(const struct dcpk_loading *loading,
                               struct dcpk_optimizer_asked *asked)
{
    const struct dcpk_value *content = dcpk_value_get(loading->common, "content_metadata");
    const bool is_sharded = is_distributed(loading);

    *asked = (struct dcpk_optimizer_asked){
        .kind = DCPK_OPTIMIZER_NONE, .type = "not distributed", .loaders = DCPK_ALL_LOADERS};
    if (!dcpk_loading_wants(loading, DCPK_FOR_MOMENTS) ||
        dcpk_value_is_true(loading->attrs, "no_save_optim"))
        return;
    asked->is_split = loading_splits_experts(loading);
    asked->kind = is_sharded ? DCPK_OPTIMIZER_UNREADABLE : DCPK_OPTIMIZER_WHOLE;
    if (is_sharded)
        asked->type = sharding_type(loading);
    for (size_t i = 0; i < DCPK_COUNT(types) && is_sharded; i++)
        if (strcmp(asked->type, types[i].name) == 0) {
            asked->kind = types[i].kind;
            asked->loaders = dcpk_loaders_of(DCPK_CORE_0_15, types[i].last);
        }
    asked->has_prefix =
        asked->is_split &&
        (asked->kind == DCPK_OPTIMIZER_BUCKETS || asked->kind == DCPK_OPTIMIZER_GATHERED ||
         !dcpk_value_is_true(content, "chained_optim_avoid_prefix"));
}

/* True if the list has a group with this weight decay (times 1 or 0). */
static bool has_group(const struct dcpk_value *groups, double wd_mult, bool expert)
{
    for (size_t i = 0; groups != NULL && i < groups->n; i++) {
        const struct dcpk_value *group = dcpk_value_at(groups, i);
        double mult = 1;

        if (!dcpk_value_as_float(dcpk_value_get(group, "wd_mult"), &mult))
            dcpk_value_as_float(dcpk_value_get(group, "pre_wd_mult"), &mult);
        if (mult == wd_mult && dcpk_value_is_true(group, "is_expert_parallel") == expert)
            return true;
    }
    return false;
}

/* The fields by which a loader of every release distinguishes groups; NeMo has "pre_" before
 * some. */
static const char *lacking_identity(const struct dcpk_value *groups)
{
    static const char *const fields[][2] = {{"wd_mult", "pre_wd_mult"},
                                            {"lr_mult", "pre_lr_mult"},
                                            {"is_expert_parallel", "is_expert_parallel"},
                                            {"is_decoupled_lr", "is_decoupled_lr"}};

    for (size_t g = 0; g < groups->n; g++)
        for (size_t i = 0; i < DCPK_COUNT(fields); i++)
            if (dcpk_value_get(dcpk_value_at(groups, g), fields[i][0]) == NULL &&
                dcpk_value_get(dcpk_value_at(groups, g), fields[i][1]) == NULL)
                return fields[i][0];
    return NULL;
}

/*
 * The groups of one optimizer: a loader looks for each of its own by weight decay and kind, among
 * others (_filter_and_reorder_param_groups). Experts have no parameter without decay but biases.
 */
static dcpk_status ask_groups(const struct dcpk_loading *loading, const struct dcpk_value *one,
                              bool expert, struct dcpk_error *err)
{
    const struct dcpk_value *inner = dcpk_value_get(one, "optimizer");
    const struct dcpk_value *groups = dcpk_value_get(inner != NULL ? inner : one, "param_groups");
    const bool has_plain = !expert || dcpk_value_is_true(loading->attrs, "add_bias_linear");
    const char *missing = "optimizer.optimizer.param_groups";
    const char *no_decayed = "has no group with weight decay (wd_mult 1)";

    if (expert) {
        missing = "optimizer.1.optimizer.param_groups";
        no_decayed = "has no group of experts with weight decay";
    }
    if (groups == NULL || groups->n == 0)
        return dcpk_request_fault(loading, DCPK_FOR_GROUPS, DCPK_ALL_LOADERS, missing, IS_NOT_THERE,
                                  err);
    if ((is_distributed(loading) && dcpk_value_get(one, "param_state_sharding_type") == NULL &&
         fault_at(loading, DCPK_FOR_GROUPS, "optimizer", "param_state_sharding_type", err)) ||
        (lacking_identity(groups) != NULL &&
         fault_at(loading, DCPK_FOR_GROUPS, "optimizer.optimizer.param_groups",
                  lacking_identity(groups), err)) ||
        (!has_group(groups, 1, expert) &&
         dcpk_request_fault(loading, DCPK_FOR_GROUPS, DCPK_ALL_LOADERS,
                            "optimizer.optimizer.param_groups", no_decayed, err)) ||
        (has_plain && !has_group(groups, 0, expert) &&
         dcpk_request_fault(loading, DCPK_FOR_GROUPS, DCPK_ALL_LOADERS,
                            "optimizer.optimizer.param_groups",
                            "has no group without weight decay (wd_mult 0)", err)))
        return err->status;
    return DCPK_OK;
}

/*
 * One optimizer, or {0: dense, 1: expert}: what was saved with as many as the run has
 * (ChainedOptimizer.load_state_dict@0.15 to main).
 */
static dcpk_status ask_common_groups(const struct dcpk_loading *loading, bool is_split,
                                     struct dcpk_error *err)
{
    const struct dcpk_value *optimizer = dcpk_value_get(loading->common, "optimizer");
    const struct dcpk_value *first = dcpk_value_get_int(optimizer, 0);

    if (optimizer == NULL)
        return dcpk_request_fault(loading, DCPK_FOR_GROUPS, DCPK_ALL_LOADERS, "optimizer",
                                  IS_NOT_THERE, err);
    if (first != NULL && !is_split)
        return dcpk_request_fault(
            loading, DCPK_FOR_GROUPS, DCPK_ALL_LOADERS, "optimizer",
            "the common state has a dense optimizer and one of experts (expert parallelism), the "
            "run has one optimizer (KeyError: 'optimizer')",
            err);
    if (first == NULL && is_split)
        return dcpk_request_fault(loading, DCPK_FOR_GROUPS, DCPK_ALL_LOADERS, "optimizer",
                                  "the common state has one optimizer, the run with expert "
                                  "parallelism has two",
                                  err);
    if (first == NULL)
        first = optimizer;
    if (ask_groups(loading, first, false, err) ||
        (is_split && ask_groups(loading, dcpk_value_get_int(optimizer, 1), true, err)))
        return err->status;
    return DCPK_OK;
}

/* --- buckets --- */

/* One bucket's states, of the length in the list of buckets. */
static dcpk_status ask_bucket(const struct dcpk_loading *loading, const char *bucket,
                              int64_t n_elems, struct dcpk_error *err)
{
    static const char *const states[] = {"param", "exp_avg", "exp_avg_sq"};

    for (size_t i = 0; i < DCPK_COUNT(states); i++) {
        const char *key = dcpk_arena_printf(loading->arena, err, "%s.%s", bucket, states[i]);
        struct dcpk_request request = {.purpose = i == 0 ? DCPK_FOR_MASTERS : DCPK_FOR_MOMENTS,
                                       .loaders = loading->loaders,
                                       .key = key,
                                       .is_tensor = true,
                                       .rank = 1,
                                       .shape = &n_elems};

        if (key == NULL)
            return err->status;
        request.key_bytes = strlen(key);
        if (loading->take(loading->context, &request, err))
            return err->status;
    }
    return DCPK_OK;
}

/* The name of a torch dtype as Python writes it. */
static const char *dtype_text(struct dcpk_arena *arena, const struct dcpk_value *v,
                              struct dcpk_error *err)
{
    if (v == NULL || v->kind != DCPK_V_GLOBAL)
        return dcpk_arena_strdup(arena, "?", err);
    return dcpk_arena_printf(arena, err, "%s.%s", v->as.global.module, v->as.global.name);
}

/* The buckets of one dtype of a buffer. */
static dcpk_status ask_dtype(const struct dcpk_loading *loading, const char *group, size_t buffer,
                             const struct dcpk_value_pair *dtype, struct dcpk_error *err)
{
    const char *of = dtype_text(loading->arena, dcpk_value_at(dtype->key, 0), err);
    const char *grad = dtype_text(loading->arena, dcpk_value_at(dtype->key, 1), err);

    if (of == NULL || grad == NULL)
        return err->status;
    for (size_t b = 0; b < dtype->value->n; b++) {
        const char *bucket =
            dcpk_arena_printf(loading->arena, err, "%s.gbuf_idx_%zu.dtype_(%s, %s).bucket_idx_%zu",
                              group, buffer, of, grad, b);
        int64_t n_elems = 0;

        dcpk_value_as_int(dcpk_value_at(dtype->value, b), &n_elems);
        if (bucket == NULL || ask_bucket(loading, bucket, n_elems, err))
            return err->status;
    }
    return DCPK_OK;
}

/* One buffer: {(parameter dtype, gradient dtype): [elements of each bucket]}. */
static dcpk_status ask_buffer(const struct dcpk_loading *loading, const char *group, size_t buffer,
                              const struct dcpk_value *by_dtype, struct dcpk_error *err)
{
    if (by_dtype == NULL || by_dtype->kind != DCPK_V_DICT)
        return DCPK_OK;
    for (size_t d = 0; d < by_dtype->n; d++)
        if (ask_dtype(loading, group, buffer, &by_dtype->as.pairs[d], err))
            return err->status;
    return DCPK_OK;
}

/*
 * dp_reshardable: one rank of the model-parallel group has its optimizer, how many elements its
 * buckets have, and the buckets.
 */
static dcpk_status request_ask_group(const struct dcpk_loading *loading, const char *group,
                                     struct dcpk_error *err)
{
    static const char *const objects[] = {"optimizer", "per_bucket_numel",
                                          "per_bucket_numel_unpadded"};
    const struct dcpk_value *numel = NULL, *buffers;

    for (size_t i = 0; i < DCPK_COUNT(objects); i++) {
        const char *key =
            dcpk_arena_printf(loading->arena, err, "%s.%s/shard_0_1", group, objects[i]);

        if (key == NULL)
            return err->status;
        if (dcpk_request_object_named(loading, DCPK_FOR_GROUPS, DCPK_ALL_LOADERS, key, err) ||
            loading->value(loading->context, key, &numel, err))
            return err->status;
    }
    buffers = numel != NULL && numel->kind == DCPK_V_LIST ? dcpk_value_at(numel, 0) : NULL;
    for (size_t b = 0; buffers != NULL && b < buffers->n; b++)
        if (ask_buffer(loading, group, b, dcpk_value_at(buffers, b), err))
            return err->status;
    return DCPK_OK;
}

static dcpk_status ask_ranks(const struct dcpk_loading *loading,
                             const struct dcpk_optimizer_asked *asked, int64_t n_ranks,
                             const char *prefix, struct dcpk_error *err)
{
    for (int64_t r = 0; r < n_ranks; r++) {
        const char *group = dcpk_arena_printf(
            loading->arena, err, "%soptimizer.distributed.dp_group_idx_%" PRId64, prefix, r);
        const char *gathered;

        if (group == NULL)
            return err->status;
        gathered = dcpk_arena_printf(loading->arena, err, "%s.param_state/shard_0_1", group);

        if (gathered == NULL)
            return err->status;
        if (asked->kind == DCPK_OPTIMIZER_BUCKETS) {
            if (request_ask_group(loading, group, err))
                return err->status;
        } else if (dcpk_request_object_named(loading, DCPK_FOR_MOMENTS, DCPK_ALL_LOADERS, gathered,
                                             err)) {
            return err->status;
        }
    }
    return DCPK_OK;
}

/* Layouts tied to ranks: the tensor and pipeline ranks have to be those that saved. */
static dcpk_status ask_tied(const struct dcpk_loading *loading,
                            const struct dcpk_optimizer_asked *asked, struct dcpk_error *err)
{
    const struct dcpk_grid *mesh = &loading->mesh, *saved = &loading->saved;
    const int64_t tp = dcpk_max_i64(mesh->tp, 1), pp = dcpk_max_i64(mesh->pp, 1);
    const char *dense = asked->has_prefix ? "chained_0." : "";

    if (tp != dcpk_max_i64(saved->tp, 1) || pp != dcpk_max_i64(saved->pp, 1))
        return dcpk_request_fault(loading, DCPK_FOR_MOMENTS, DCPK_ALL_LOADERS, asked->type,
                                  "this layout of the optimizer loads only with the tensor and "
                                  "pipeline parallel sizes that it was saved with",
                                  err);
    if (ask_ranks(loading, asked, tp * pp, dense, err) ||
        (asked->is_split &&
         ask_ranks(loading, asked, pp * dcpk_max_i64(mesh->ep, 1), "chained_1.", err)))
        return err->status;
    return DCPK_OK;
}

/*
 * Under args.no_save_optim no tensor is asked for, and yet the entry is read: load_checkpoint takes
 * state_dict['optimizer'] unless an option forbids it (KeyError; checkpointing.py@0.15 to main).
 */
static dcpk_status ask_unsaved(const struct dcpk_loading *loading, struct dcpk_error *err)
{
    if (!dcpk_loading_wants(loading, DCPK_FOR_MOMENTS) ||
        dcpk_value_get(loading->common, "optimizer") != NULL)
        return DCPK_OK;
    return dcpk_request_fault(loading, DCPK_FOR_GROUPS, DCPK_ALL_LOADERS, "optimizer",
                              IS_NOT_THERE ", and is read although args.no_save_optim says that "
                                           "none was saved (KeyError: 'optimizer')",
                              err);
}

static dcpk_status ask_optimizer(const struct dcpk_loading *loading,
                                 const struct dcpk_optimizer_asked *asked, struct dcpk_error *err)
{
    switch (asked->kind) {
    case DCPK_OPTIMIZER_NONE:
        return ask_unsaved(loading, err);
    case DCPK_OPTIMIZER_BUCKETS:
    case DCPK_OPTIMIZER_GATHERED:
        return ask_tied(loading, asked, err);
    case DCPK_OPTIMIZER_UNREADABLE:
        return dcpk_request_fault(loading, DCPK_FOR_MOMENTS, DCPK_ALL_LOADERS, asked->type,
                                  "no release from core 0.15 on reads this layout of the optimizer",
                                  err);
    case DCPK_OPTIMIZER_FLATTENED:
        if (dcpk_request_fault(loading, DCPK_FOR_MOMENTS, SINCE(DCPK_CORE_0_16), asked->type,
                               "core 0.16 and later do not read flattened optimizer state",
                               err) != DCPK_OK)
            return err->status;
        break;
    case DCPK_OPTIMIZER_RESHARDABLE:
    case DCPK_OPTIMIZER_WHOLE:
        break;
    }
    if (asked->kind != DCPK_OPTIMIZER_WHOLE && strcmp(loading->model->optimizer, "adam") != 0 &&
        dcpk_request_fault(loading, DCPK_FOR_MOMENTS, DCPK_ALL_LOADERS, "args.optimizer",
                           "is not adam: a distributed optimizer of another kind is not loaded",
                           err) != DCPK_OK)
        return err->status;
    return ask_common_groups(loading, asked->is_split, err);
}

/* --- RNG, rerun state --- */

/* Ranks that keep RNG states of their own: pipeline, tensor, and where a release has it, data. */
static dcpk_status ask_rng_form(const struct dcpk_loading *loading, uint32_t loaders,
                                int64_t n_data, struct dcpk_error *err)
{
    const int64_t pp = dcpk_max_i64(loading->mesh.pp, 1), tp = dcpk_max_i64(loading->mesh.tp, 1);
    const bool has_data = n_data > 0;
    struct dcpk_bytes key = {.data = NULL};

    if (!has_data)
        n_data = 1;
    for (int64_t i = 0; i < pp * tp * n_data && err->status == DCPK_OK; i++) {
        key.n_bytes = 0;
        dcpk_bytes_printf(&key, "rng_state/shard_%" PRId64 ".%" PRId64, i / n_data / tp,
                          i / n_data % tp);
        if (has_data)
            dcpk_bytes_printf(&key, ".%" PRId64, i % n_data);
        dcpk_bytes_printf(&key, "_%" PRId64 ".%" PRId64, pp, tp);
        if (has_data)
            dcpk_bytes_printf(&key, ".%" PRId64, n_data);
        (void)dcpk_request_object(loading, DCPK_FOR_RNG, loaders, &key, err);
    }
    dcpk_bytes_release(&key);
    return err->status;
}

/*
 * get_rng_state: two numbers; core 0.16 three with expert parallelism, main since Megatron-LM #6858
 * (2026-08-25) always. A run of other (tensor, pipeline) sizes than those of args asks for none.
 */
static dcpk_status request_ask_rng(const struct dcpk_loading *loading, struct dcpk_error *err)
{
    const struct dcpk_grid *mesh = &loading->mesh, *saved = &loading->saved;
    const int64_t n_data = dcpk_max_i64(mesh->dp, 1) * dcpk_max_i64(mesh->cp, 1);
    uint32_t three = SINCE(DCPK_MAIN);

    if (!dcpk_loading_wants(loading, DCPK_FOR_RNG) ||
        dcpk_value_is_true(loading->attrs, "no_save_rng") ||
        dcpk_max_i64(mesh->tp, 1) != dcpk_max_i64(saved->tp, 1) ||
        dcpk_max_i64(mesh->pp, 1) != dcpk_max_i64(saved->pp, 1))
        return DCPK_OK;
    if (mesh->ep > 1)
        three |= dcpk_loaders_of(DCPK_CORE_0_16, DCPK_CORE_0_16);
    if (ask_rng_form(loading, DCPK_ALL_LOADERS & ~three, 0, err))
        return err->status;
    if (!((loading->loaders & three) != 0))
        return DCPK_OK;
    return ask_rng_form(loading, three, n_data, err);
}

/* True if a fault is pending that a rank is to find again. Its state is then an enum's number above
 * 0. */
static bool has_rerun(const struct dcpk_loading *loading)
{
    const struct dcpk_value *rerun = dcpk_value_get(loading->common, "rerun_state_machine");
    const struct dcpk_value *state = dcpk_value_get(rerun, "state");
    int64_t number = 0;

    if (state == NULL || state->kind != DCPK_V_OBJECT)
        return false;
    return dcpk_value_as_int(dcpk_value_at(state->as.object->args, 0), &number) && number != 0;
}

/* On the same ranks as before, each asks for its own (rerun_state_machine.py@0.15 to main). */
static dcpk_status ask_rerun(const struct dcpk_loading *loading, struct dcpk_error *err)
{
    const struct dcpk_grid *mesh = &loading->mesh, *saved = &loading->saved;
    const bool same = mesh->tp == saved->tp && mesh->pp == saved->pp && mesh->dp == saved->dp &&
                      mesh->world == saved->world;
    struct dcpk_bytes key = {.data = NULL};

    for (int64_t r = 0; same && has_rerun(loading) && r < saved->world && err->status == DCPK_OK;
         r++) {
        key.n_bytes = 0;
        dcpk_bytes_printf(&key, "rerun_state_machine_state/shard_%" PRId64 "_%" PRId64, r,
                          saved->world);
        (void)dcpk_request_object(loading, DCPK_FOR_COMMON, DCPK_ALL_LOADERS, &key, err);
    }
    dcpk_bytes_release(&key);
    return err->status;
}

/* --- the common state --- */

/* The fields that OptimizerParamScheduler.load_state_dict stops without (start_wd is none of
 * them). */
static dcpk_status ask_scheduler(const struct dcpk_loading *loading, struct dcpk_error *err)
{
    static const char *const fields[] = {
        "max_lr", "lr_warmup_steps", "num_steps",     "lr_decay_style", "lr_decay_steps",
        "min_lr", "end_wd",          "wd_incr_style", "wd_incr_steps",
    };
    const struct dcpk_value *scheduler = dcpk_value_get(loading->common, "opt_param_scheduler");

    if (!dcpk_loading_wants(loading, DCPK_FOR_SCHEDULER))
        return DCPK_OK;
    if (scheduler == NULL)
        return dcpk_request_fault(loading, DCPK_FOR_SCHEDULER, DCPK_ALL_LOADERS,
                                  "opt_param_scheduler", IS_NOT_THERE, err);
    for (size_t i = 0; i < DCPK_COUNT(fields); i++)
        if (dcpk_value_get(scheduler, fields[i]) == NULL &&
            fault_at(loading, DCPK_FOR_SCHEDULER, "opt_param_scheduler", fields[i], err))
            return err->status;
    return DCPK_OK;
}

/* Asks for the parts of the common state without which a resume stops (formats/torch_dist/FORMAT.md
 * 7). */
static dcpk_status ask_common(const struct dcpk_loading *loading, struct dcpk_error *err)
{
    static const char *const names[] = {"args", "checkpoint_version", "iteration"};

    for (size_t i = 0; i < DCPK_COUNT(names); i++)
        if (dcpk_value_get(loading->common, names[i]) == NULL &&
            dcpk_request_fault(loading, DCPK_FOR_COMMON, DCPK_ALL_LOADERS, names[i], IS_NOT_THERE,
                               err))
            return err->status;
    return ask_scheduler(loading, err);
}

dcpk_status dcpk_megatron_request_state(const struct dcpk_loading *loading,
                                        const struct dcpk_optimizer_asked *asked,
                                        struct dcpk_error *err)
{
    if (ask_common(loading, err) != DCPK_OK || ask_optimizer(loading, asked, err) != DCPK_OK ||
        request_ask_rng(loading, err) != DCPK_OK)
        return err->status;
    return ask_rerun(loading, err);
}
