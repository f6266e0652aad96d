/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_common.c - training state as Megatron keeps it in the common state
 * (formats/torch_dist/FORMAT.md
 * 6). */
#include <inttypes.h>
#include <string.h>

#include "formats/megatron/buckets/megatron_buckets.h"
#include "formats/megatron/megatron_slots.h"
#include "lib/base/order.h"
#include "lib/model/portable.h"

#define SHARDING_TYPE  "fully_reshardable"
#define FLATTENED_TYPE "fully_sharded_model_space"
#define BUCKETS_TYPE   DCPK_MEGATRON_BUCKETS

/* --- parameter groups --- */

/*
 * The fields by which a loader finds its group again: param_group_identifier_keys of
 * megatron/core/optimizer/optimizer.py@0.15 to main, all together.
 */
static const char *const identity[] = {"wd_mult",         "lr_mult", "is_expert_parallel",
                                       "is_decoupled_lr", "max_lr",  "min_lr",
                                       "start_wd",        "end_wd",  "optimizer"};

static bool same_or_absent(const struct dcpk_value *a, const struct dcpk_value *b)
{
    return a == b || (a != NULL && b != NULL && dcpk_value_equal(a, b));
}

static bool same_identity(const struct dcpk_value *a, const struct dcpk_value *b)
{
    for (size_t i = 0; i < DCPK_COUNT(identity); i++)
        if (!same_or_absent(dcpk_value_get(a, identity[i]), dcpk_value_get(b, identity[i])))
            return false;
    return true;
}

static bool group_is_expert(const struct dcpk_value *group)
{
    return dcpk_value_is_true(group, "is_expert_parallel");
}

/* The groups of the dense and of the expert optimizer. */
struct optimizers {
    const struct dcpk_value **groups[2];
    size_t n[2];
};

/*
 * Megatron gives routed experts an optimizer of their own where they have their own data-parallel
 * ranks, with expert parallelism (megatron/core/optimizer/__init__.py@main
 * get_megatron_optimizer). Megatron-FSDP keeps them with the others.
 */
static bool target_splits_experts(const struct dcpk_model *model, const struct dcpk_output *out)
{
    int64_t ep = model->layout.ep;

    if (out->target.mesh.ep > 0)
        ep = out->target.mesh.ep;
    for (size_t i = 0; i < model->n_groups && ep <= 0; i++)
        if (group_is_expert(model->groups[i]))
            return true;
    return ep > 1;
}

/* By group, whether the dense optimizer [0] and the expert one [1] have a parameter of it. */
static void find_uses(const struct dcpk_model *model, const struct dcpk_slots *slots, bool split,
                      bool (*used)[2])
{
    for (size_t i = 0; i < slots->n; i++) {
        const struct dcpk_slot *slot = &slots->list[i];

        for (int64_t m = 0; m < slot->n_layers * slot->n_experts; m++) {
            const uint32_t group = model->params[slot->members[m]].group;

            if (group != DCPK_NO_GROUP)
                used[group][split && slot->has_experts] = true;
        }
    }
}

/* A group as the common state has it: without its parameters, and of that optimizer. */
static const struct dcpk_value *bare_group(struct dcpk_arena *arena, const struct dcpk_value *group,
                                           bool expert, struct dcpk_error *err)
{
    struct dcpk_dict bare = {.arena = arena, .err = err};

    for (size_t i = 0; i < group->n; i++) {
        const struct dcpk_value *name = group->as.pairs[i].key, *value = group->as.pairs[i].value;

        if (dcpk_value_is_str(name, "is_expert_parallel"))
            value = dcpk_value_bool(expert);
        if (!dcpk_value_is_str(name, "params"))
            dcpk_dict_add(&bare, name, value);
    }
    return dcpk_dict_end(&bare);
}

/* Append the group unless an equal one is there. */
static dcpk_status megatron_add_group(struct optimizers *o, struct dcpk_output *out,
                                      const struct dcpk_value *group, bool expert,
                                      struct dcpk_error *err)
{
    const struct dcpk_value *bare = bare_group(out->arena, group, expert, err);

    if (bare == NULL)
        return err->status;
    for (size_t i = 0; i < o->n[expert]; i++) {
        if (dcpk_value_equal(o->groups[expert][i], bare))
            return DCPK_OK;
        if (same_identity(o->groups[expert][i], bare))
            return dcpk_fail(err, DCPK_EMISMATCH,
                             "two parameter groups differ only in fields that Megatron does not "
                             "distinguish them by (it uses wd_mult, lr_mult, max_lr, ...)");
    }
    if (group_is_expert(group) != expert)
        dcpk_output_event(out, DCPK_EVENT_NOTE, "is_expert_parallel",
                          "parameter groups: is_expert_parallel is %s for routed experts, as "
                          "Megatron has it %s expert parallelism",
                          expert ? "True" : "False", expert ? "with" : "without");
    if (dcpk_value_get(bare, "step") == NULL)
        dcpk_output_event(out, DCPK_EVENT_NOTE, "step",
                          "a parameter group of the source has no step: without Transformer Engine "
                          "Megatron does not load it");
    o->groups[expert][o->n[expert]++] = bare;
    return DCPK_OK;
}

static dcpk_status split_groups(const struct dcpk_model *model, struct dcpk_output *out,
                                const struct dcpk_slots *slots, struct optimizers *o,
                                struct dcpk_error *err)
{
    const bool split = target_splits_experts(model, out);
    bool(*used)[2] = dcpk_arena_array(out->arena, model->n_groups, sizeof *used, err);

    for (int e = 0; e < 2; e++) {
        o->groups[e] = dcpk_arena_array(out->arena, model->n_groups, sizeof *o->groups[e], err);
        if (used == NULL || o->groups[e] == NULL)
            return err->status;
    }
    find_uses(model, slots, split, used);
    for (size_t g = 0; g < model->n_groups; g++)
        for (int e = 0; e < 2; e++) {
            const bool unused = !used[g][0] && !used[g][1];

            if ((used[g][e] || (unused && e == (split && group_is_expert(model->groups[g])))) &&
                megatron_add_group(o, out, model->groups[g], e == 1, err))
                return err->status;
        }
    return DCPK_OK;
}

/*
 * An optimizer that is not distributed has a dict of states next to its groups, torch's with one
 * step for all (Transformer Engine's and Apex' could not load that), and in fp32 runs no further
 * dict around them (MC/optimizer/optimizer.py@0.19.0 Float16OptimizerWithFloat16Params,
 * FP32Optimizer). args record that the run has such ones.
 */
bool dcpk_megatron_is_distributed(const struct dcpk_model *model)
{
    bool is_set = true;

    return !dcpk_value_as_bool(
               dcpk_value_get(dcpk_value_attrs(model->args), "use_distributed_optimizer"),
               &is_set) ||
           is_set;
}

/* {'optimizer': {'param_groups': [...]}, 'param_state_sharding_type': ...}; sharding_type NULL: no
 * such entry. */
static const struct dcpk_value *one_optimizer(const struct dcpk_model *model,
                                              struct dcpk_arena *arena, const struct optimizers *o,
                                              int e, const char *sharding_type,
                                              struct dcpk_error *err)
{
    struct dcpk_dict inner = {.arena = arena, .err = err}, outer = inner;
    const struct dcpk_value *list = dcpk_value_seq(arena, DCPK_V_LIST, o->groups[e], o->n[e], err);

    dcpk_dict_put(&inner, "param_groups", list);
    if (!dcpk_megatron_is_distributed(model)) {
        struct dcpk_dict beside = {.arena = arena, .err = err};
        const struct dcpk_value *state;

        dcpk_dict_put(&beside, "common_step", model->common_step);
        state = dcpk_dict_end(&beside);
        dcpk_dict_put(&inner, "state", state);
        if (model->is_fp32) {
            dcpk_dict_put(&outer, "param_groups", list);
            dcpk_dict_put(&outer, "state", state);
        }
    }
    dcpk_dict_put(&outer, "optimizer", dcpk_dict_end(&inner));
    if (sharding_type != NULL)
        dcpk_dict_put(&outer, "param_state_sharding_type",
                      dcpk_value_str(arena, sharding_type, err));
    dcpk_dict_put(&outer, "grad_scaler", model->scaler);
    return dcpk_dict_end(&outer);
}

enum dcpk_dtype dcpk_megatron_model_dtype(const struct dcpk_model *model, bool *known)
{
    const struct dcpk_value *attrs = dcpk_value_attrs(model->args);
    const struct dcpk_value *params = dcpk_value_get(attrs, "params_dtype");
    const bool bf16 = dcpk_value_is_true(attrs, "bf16");
    const bool fp16 = dcpk_value_is_true(attrs, "fp16");

    *known = true;
    if (model->is_fp32)
        return DCPK_F32;
    if (params != NULL && params->kind == DCPK_V_GLOBAL &&
        dcpk_dtype_is_float(dcpk_dtype_from_name(params->as.global.name)))
        return dcpk_dtype_from_name(params->as.global.name);
    *known = bf16 || fp16;
    return fp16 && !bf16 ? DCPK_F16 : DCPK_BF16;
}

bool dcpk_megatron_is_generation_a(const struct dcpk_output *out)
{
    return out->target.generation != NULL && strcmp(out->target.generation, "A") == 0;
}

bool dcpk_megatron_flattens(const struct dcpk_model *model, const struct dcpk_output *out)
{
    return model->has_optimizer && dcpk_megatron_is_generation_a(out) &&
           dcpk_megatron_is_distributed(model);
}

bool dcpk_megatron_has_buckets(const struct dcpk_model *model, const struct dcpk_output *out)
{
    const char *layout = out->target.optimizer_layout;

    return model->has_optimizer && layout != NULL && strcmp(layout, BUCKETS_TYPE) == 0;
}

static const char *stated_sharding(const struct dcpk_model *model, const struct dcpk_output *out)
{
    if (dcpk_megatron_has_buckets(model, out))
        return BUCKETS_TYPE;
    return dcpk_megatron_flattens(model, out) ? FLATTENED_TYPE : SHARDING_TYPE;
}

/* {'param_state_sharding_type': ...}: each group of ranks has the rest next to its buckets. */
static const struct dcpk_value *name_buckets(struct dcpk_arena *arena, struct dcpk_error *err)
{
    struct dcpk_dict named = {.arena = arena, .err = err};

    dcpk_dict_put(&named, "param_state_sharding_type", dcpk_value_str(arena, BUCKETS_TYPE, err));
    return dcpk_dict_end(&named);
}

/* common[e]: what the common state has of each optimizer; not one dict twice, which a loader that
 * merges into one of them would change for both. */
static dcpk_status put_in_buckets(const struct dcpk_model *model, struct dcpk_output *out,
                                  const struct optimizers *o, const struct dcpk_value *args,
                                  const struct dcpk_value **common, struct dcpk_error *err)
{
    struct dcpk_bucket_optimizers optimizers = {.args = args};
    bool is_known;

    if (!dcpk_megatron_is_distributed(model))
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "args.use_distributed_optimizer is false: a run without a distributed "
                         "optimizer has no buckets of its state (" BUCKETS_TYPE ")");
    optimizers.model_dtype = dcpk_megatron_model_dtype(model, &is_known);
    for (int e = 0; e < 2; e++) {
        common[e] = name_buckets(out->arena, err);
        if (e == 0 || o->n[e] > 0)
            optimizers.state[e] = one_optimizer(model, out->arena, o, e, NULL, err);
        if (err->status != DCPK_OK)
            return err->status;
    }
    return dcpk_megatron_put_buckets(model, out, &optimizers, err);
}

/*
 * One optimizer, or {0: dense, 1: expert}. A run loads either alone:
 * ChainedOptimizer.load_state_dict hands the whole dict to its one optimizer, which asks for
 * 'optimizer' in it, and two want exactly two entries (MC/optimizer/optimizer.py@0.15.3, 0.16.1,
 * 0.19.0 and main).
 */
static dcpk_status make_optimizer(const struct dcpk_model *model, struct dcpk_output *out,
                                  const struct dcpk_slots *slots, const struct dcpk_value *args,
                                  const struct dcpk_value **optimizer, struct dcpk_error *err)
{
    const struct dcpk_value *state[2] = {NULL};
    const char *type = stated_sharding(model, out);
    struct dcpk_dict both = {.arena = out->arena, .err = err};
    struct optimizers o = {.n = {0}};

    if (split_groups(model, out, slots, &o, err) ||
        (dcpk_megatron_has_buckets(model, out) && put_in_buckets(model, out, &o, args, state, err)))
        return err->status;
    for (int e = 0; e < 2; e++) {
        if (state[e] == NULL)
            state[e] = one_optimizer(model, out->arena, &o, e, type, err);
        dcpk_dict_add(&both, dcpk_value_int(out->arena, e, err), state[e]);
    }
    for (size_t i = 0; i < model->n_params; i++)
        if (model->params[i].expert >= 0)
            out->load_needs |= o.n[1] > 0 ? DCPK_LOAD_WITH_EP : DCPK_LOAD_WITHOUT_EP;
    *optimizer = dcpk_dict_end(&both);
    if (o.n[1] == 0)
        *optimizer = state[0];
    return dcpk_made(*optimizer, err);
}

/* --- the common state --- */

static const struct dcpk_value *make_content(const struct dcpk_model *model,
                                             const struct dcpk_output *out,
                                             const struct dcpk_slots *slots, struct dcpk_error *err)
{
    const bool has_buckets = dcpk_megatron_has_buckets(model, out);
    const bool is_flattened = dcpk_megatron_flattens(model, out);
    struct dcpk_dict b = {.arena = out->arena, .err = err};
    const char *type = stated_sharding(model, out);

    dcpk_dict_put(&b, "distrib_optim_sharding_type", dcpk_value_str(out->arena, type, err));
    if (!has_buckets && !is_flattened)
        dcpk_dict_put(&b, "distrib_optim_fully_reshardable_mem_efficient", dcpk_value_bool(false));
    dcpk_dict_put(&b, "singleton_local_shards", dcpk_value_bool(false));
    dcpk_dict_put(&b, "chained_optim_avoid_prefix", dcpk_value_bool(true));
    if (slots->is_homogeneous_by_args && !slots->is_stacked)
        dcpk_dict_put(&b, "non_homogeneous_layers", dcpk_value_bool(true));
    return dcpk_dict_end(&b);
}

/* args, changed to name what the folder lacks: else a loader asks for it and stops. */
static dcpk_status make_args(const struct dcpk_model *model, struct dcpk_output *out,
                             bool is_rng_whole, const struct dcpk_value **args,
                             struct dcpk_error *err)
{
    const struct dcpk_value *attrs = dcpk_value_attrs(model->args);
    struct dcpk_dict set = {.arena = out->arena, .err = err};

    if (!is_rng_whole)
        dcpk_dict_put(&set, "no_save_rng", dcpk_value_bool(true));
    if (!is_rng_whole && !dcpk_value_is_true(attrs, "no_save_rng"))
        dcpk_output_event(out, DCPK_EVENT_NOTE, "args.no_save_rng",
                          "args.no_save_rng is set: the output lacks RNG states of its (pipeline, "
                          "tensor) ranks, and a resumed run seeds them again");
    /* A loader that finds this set asks for no state, and yet stops when it then has none. */
    if (!model->has_optimizer)
        out->load_needs |= DCPK_LOAD_WITHOUT_OPTIM;
    if (!model->has_optimizer)
        dcpk_dict_put(&set, "no_save_optim", dcpk_value_bool(true));
    if (!model->has_optimizer && !dcpk_value_is_true(attrs, "no_save_optim"))
        dcpk_output_event(out, DCPK_EVENT_NOTE, "args.no_save_optim",
                          "args.no_save_optim is set: no optimizer state is written");
    if (dcpk_value_get(attrs, "ckpt_format") != NULL)
        dcpk_dict_put(&set, "ckpt_format", dcpk_value_str(out->arena, out->format->name, err));
    if (dcpk_value_get(attrs, "use_megatron_fsdp") != NULL)
        dcpk_dict_put(&set, "use_megatron_fsdp", dcpk_value_bool(false));
    return dcpk_args_portable(out, model->args, &set, args, err);
}

/* Append what else the source's common state held, except classes: those are dropped by name. */
static void add_further(const struct dcpk_model *model, struct dcpk_output *out,
                        struct dcpk_dict *b)
{
    const struct dcpk_value *more = model->further;

    for (size_t i = 0; more != NULL && i < more->n; i++) {
        const char *name = dcpk_value_as_str(more->as.pairs[i].key);

        if (name == NULL)
            name = "?";
        if (dcpk_value_is_portable(more->as.pairs[i].value))
            dcpk_dict_add(b, more->as.pairs[i].key, more->as.pairs[i].value);
        else
            dcpk_output_event(out, DCPK_EVENT_DROPPED, name,
                              "holds a class, which another Megatron may not have");
    }
}

dcpk_status dcpk_megatron_make_common(const struct dcpk_model *model, struct dcpk_output *out,
                                      const struct dcpk_slots *slots, bool is_rng_whole,
                                      const struct dcpk_value **common, struct dcpk_error *err)
{
    struct dcpk_dict b = {.arena = out->arena, .err = err};
    const struct dcpk_value *args, *optimizer = NULL, *version = model->version;

    if (make_args(model, out, is_rng_whole, &args, err))
        return err->status;
    if (model->iteration == NULL)
        return dcpk_fail(err, DCPK_EFORMAT,
                         "the source has no iteration: Megatron does not load a checkpoint without "
                         "it");
    if (model->has_optimizer && make_optimizer(model, out, slots, args, &optimizer, err))
        return err->status;
    if (version == NULL)
        version = dcpk_value_float(out->arena, 3.0, err);
    dcpk_dict_put(&b, "args", args);
    dcpk_dict_put(&b, "checkpoint_version", version);
    dcpk_dict_put(&b, "iteration", model->iteration);
    dcpk_dict_put(&b, "optimizer", optimizer);
    dcpk_dict_put(&b, "opt_param_scheduler", model->scheduler);
    dcpk_dict_put(&b, "num_floating_point_operations_so_far", model->flops);
    dcpk_dict_put(&b, "content_metadata", make_content(model, out, slots, err));
    add_further(model, out, &b);
    *common = dcpk_dict_end(&b);
    return dcpk_made(*common, err);
}
