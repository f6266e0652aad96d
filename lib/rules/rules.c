/* SPDX-License-Identifier: Apache-2.0 */
/* rules.c - parameter groups, and all rules in their order. */
#include "lib/rules/rules.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "lib/base/json.h"
#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/model/registered.h"
#include "lib/rules/expect.h"

static bool is_trained(const struct dcpk_param *p)
{
    return p->tensor[DCPK_MASTER] != DCPK_NO_TENSOR || p->tensor[DCPK_EXP_AVG] != DCPK_NO_TENSOR ||
           p->tensor[DCPK_EXP_AVG_SQ] != DCPK_NO_TENSOR || p->tensor[DCPK_STATE] != DCPK_NO_TENSOR;
}

/* "model.module.decoder..." as maps have it (fp32 runs: "module.decoder...") -> "decoder...". */
static const char *strip_wrappers(const char *name)
{
    static const char *const wrappers[] = {"model.module.", "module.module.", "module."};

    for (size_t i = 0; i < DCPK_COUNT(wrappers); i++)
        if (strncmp(name, wrappers[i], strlen(wrappers[i])) == 0)
            return name + strlen(wrappers[i]);
    return name;
}

/* live name without wrappers -> group number. Keys are borrowed from doc. */
static dcpk_status read_map(const struct dcpk_json *doc, struct dcpk_map *map,
                            struct dcpk_error *err)
{
    if (dcpk_json_kind(doc) != DCPK_JSON_OBJECT)
        return dcpk_fail(err, DCPK_EFORMAT,
                         "not a JSON object of parameter names and group numbers");
    for (const struct dcpk_json *m = dcpk_json_first(doc); m != NULL; m = dcpk_json_next(m)) {
        const char *name = strip_wrappers(dcpk_json_key(m));
        int64_t group;
        uint64_t found;
        bool existed;
        dcpk_status st;

        if (!dcpk_json_int(m, &group) || group < 0 || group >= (int64_t)DCPK_NO_GROUP)
            return dcpk_fail(err, DCPK_EFORMAT, "'%s' has no group number", dcpk_json_key(m));
        st = dcpk_map_put(map, name, strlen(name), (uint64_t)group, &existed, &found, err);
        if (st != DCPK_OK)
            return st;
        if (existed && found != (uint64_t)group)
            return dcpk_fail(err, DCPK_EFORMAT,
                             "'%s' is there twice, in groups %" PRIu64 " and %" PRId64, name, found,
                             group);
    }
    return DCPK_OK;
}

/* The map's word on a parameter, whatever spelling the map uses. */
static dcpk_status group_from_map(const struct dcpk_model *model, const struct dcpk_map *map,
                                  struct dcpk_param *p, struct dcpk_error *err)
{
    for (size_t i = 0; i < p->n_spellings; i++) {
        uint64_t group;

        if (!dcpk_map_get(map, p->spellings[i], strlen(p->spellings[i]), &group))
            continue;
        if (group >= model->n_groups)
            return dcpk_fail(err, DCPK_EMISMATCH,
                             "the parameter group map puts '%s' into group %" PRIu64
                             ", the checkpoint has %zu groups",
                             p->spellings[i], group, model->n_groups);
        p->group = (uint32_t)group;
        return DCPK_OK;
    }
    return dcpk_fail(err, DCPK_EMISMATCH,
                     "the parameter group map lacks '%s' (looked for as 'model.module.%s')",
                     p->name, p->spellings[0]);
}

/* Megatron's default: no weight decay for 1-D tensors and biases (RULES.md 2). */
static double default_wd_mult(const struct dcpk_model *model, const struct dcpk_param *p,
                              const struct dcpk_model_tensor *tensor)
{
    const bool qk = dcpk_value_is_true(dcpk_value_attrs(model->args), "apply_wd_to_qk_layernorm");

    if (qk && (strstr(p->name, "q_layernorm.") != NULL || strstr(p->name, "k_layernorm.") != NULL))
        return 1.0;
    return tensor->rank <= 1 || dcpk_ends_with(p->name, ".bias") ? 0.0 : 1.0;
}

/* True if any group is an expert group. Without expert parallelism Megatron has none, and experts
 * are dense. */
static bool has_expert_groups(const struct dcpk_model *model)
{
    for (size_t i = 0; i < model->n_groups; i++)
        if (dcpk_value_is_true(model->groups[i], "is_expert_parallel"))
            return true;
    return false;
}

/*
 * args.decoupled_lr gives the word embedding and the output layer a group of their own
 * (is_embedding_or_output_parameter): core 0.15 and older flag it, later ones set its max_lr.
 */
static bool is_decoupled(const struct dcpk_model *model, const struct dcpk_value *group)
{
    const struct dcpk_value *attrs = dcpk_value_attrs(model->args);
    double lr, max_lr;

    return dcpk_value_is_true(group, "is_decoupled_lr") ||
           (dcpk_value_as_float(dcpk_value_get(attrs, "decoupled_lr"), &lr) &&
            dcpk_value_as_float(dcpk_value_get(group, "max_lr"), &max_lr) && max_lr == lr);
}

static bool is_first_or_last(const char *name)
{
    return strcmp(name, "embedding.word_embeddings.weight") == 0 ||
           strcmp(name, "output_layer.weight") == 0;
}

static dcpk_status group_by_rule(const struct dcpk_model *model, bool expert_groups,
                                 struct dcpk_param *p, struct dcpk_error *err)
{
    const double wd_mult = default_wd_mult(model, p, dcpk_model_value(model, p));
    const bool expert = expert_groups && dcpk_name_is_expert(p->name);
    size_t n_found = 0, n_closer = 0;
    uint32_t closer = DCPK_NO_GROUP;

    for (size_t i = 0; i < model->n_groups; i++) {
        const bool is_expert = dcpk_value_is_true(model->groups[i], "is_expert_parallel");
        double mult = 1.0;

        dcpk_value_as_float(dcpk_value_get(model->groups[i], "wd_mult"), &mult);
        if (mult != wd_mult || is_expert != expert)
            continue;
        p->group = (uint32_t)i;
        n_found++;
        if (is_decoupled(model, model->groups[i]) == is_first_or_last(p->name)) {
            closer = (uint32_t)i;
            n_closer++;
        }
    }
    if (n_found > 1 && n_closer == 1)
        p->group = closer;
    if (n_found == 1 || (n_found > 1 && n_closer == 1))
        return DCPK_OK;
    return dcpk_fail_fix(
        err, DCPK_EUNSUPPORTED, DCPK_FIX_GROUP_MAP | DCPK_FIX_WEIGHTS_ONLY,
        "'%s' fits %s of the checkpoint's %zu parameter groups by Megatron's default "
        "rule (wd_mult %g, %s)",
        p->name, n_found == 0 ? "none" : "several", model->n_groups, wd_mult,
        expert ? "expert" : "dense");
}

dcpk_status dcpk_rules_groups(struct dcpk_model *model, const struct dcpk_rule_options *options,
                              struct dcpk_error *err)
{
    struct dcpk_json *doc = NULL;
    struct dcpk_map map = {0};
    const bool expert_groups = has_expert_groups(model);
    dcpk_status st = DCPK_OK;

    if (!model->has_optimizer || model->n_groups == 0)
        return DCPK_OK;
    if (options->group_map != NULL) {
        st = dcpk_json_parse(options->group_map, options->group_map_bytes, &doc, err);
        if (st == DCPK_OK)
            st = read_map(doc, &map, err);
        if (st != DCPK_OK)
            dcpk_context(err, "the parameter group map '%s'",
                         dcpk_text_or(options->group_map_name, ""));
    }
    for (size_t i = 0; i < model->n_params && st == DCPK_OK; i++) {
        struct dcpk_param *p = &model->params[i];

        p->is_buffer = !is_trained(p);
        if (p->is_buffer || p->group != DCPK_NO_GROUP)
            continue;
        if (doc != NULL)
            st = group_from_map(model, &map, p, err);
        else
            st = group_by_rule(model, expert_groups, p, err);
    }
    dcpk_map_release(&map);
    dcpk_json_free(doc);
    return st;
}

/* A field that one of the optimizers asks for, and its value where the source's group lacks it. */
static const struct default_field {
    const char *name;
    enum { IS_TRUE, IS_FALSE, IS_NONE } value;
} default_fields[] = {
    {"default_config", IS_TRUE},  /* core 0.16 and later */
    {"bias_correction", IS_TRUE}, /* TE FusedAdam */
    {"amsgrad", IS_FALSE},        /* the rest: torch AdamW */
    {"maximize", IS_FALSE},       {"foreach", IS_NONE}, {"capturable", IS_FALSE},
    {"differentiable", IS_FALSE}, {"fused", IS_NONE},   {"decoupled_weight_decay", IS_TRUE},
};
#define N_DEFAULT_FIELDS DCPK_COUNT(default_fields)

/* `step` as TE keeps it: an int. A float that is not a whole number stays. */
static const struct dcpk_value *whole_step(struct dcpk_model *model, const struct dcpk_value *step,
                                           struct dcpk_error *err)
{
    double v;

    if (step->kind != DCPK_V_FLOAT || !dcpk_value_as_float(step, &v) || v != floor(v) ||
        fabs(v) > 9e15)
        return step;
    return dcpk_value_int(model->arena, (int64_t)v, err);
}

static dcpk_status complete_group(struct dcpk_model *model, size_t g, struct dcpk_error *err)
{
    const struct dcpk_value *group = model->groups[g];
    struct dcpk_dict made = {.arena = model->arena, .err = err};

    for (size_t i = 0; i < group->n; i++) {
        struct dcpk_value_pair pair = group->as.pairs[i];

        if (dcpk_value_is_str(pair.key, "step"))
            pair.value = whole_step(model, pair.value, err);
        dcpk_dict_add(&made, pair.key, pair.value);
    }
    for (size_t i = 0; i < N_DEFAULT_FIELDS; i++) {
        const struct default_field *field = &default_fields[i];

        if (dcpk_value_get(group, field->name) != NULL)
            continue;
        if (field->value == IS_NONE)
            dcpk_dict_put(&made, field->name, dcpk_value_none());
        else
            dcpk_dict_put(&made, field->name, dcpk_value_bool(field->value == IS_TRUE));
    }
    model->groups[g] = dcpk_dict_end(&made);
    return dcpk_made(model->groups[g], err);
}

dcpk_status dcpk_rules_complete_groups(struct dcpk_model *model, struct dcpk_error *err)
{
    dcpk_status st = DCPK_OK;

    if (model->other_optimizer != NULL) /* the fields would make it look like Adam */
        return DCPK_OK;
    for (size_t g = 0; g < model->n_groups && st == DCPK_OK; g++)
        st = complete_group(model, g, err);
    return st;
}

static bool has_role(const struct dcpk_param *p, enum dcpk_role role)
{
    return p->tensor[role] != DCPK_NO_TENSOR;
}

/* True if the parameter has moments and, unlike one in fp32, a master next to its weight. */
static bool asks_master(const struct dcpk_model *model, const struct dcpk_param *p)
{
    return has_role(p, DCPK_EXP_AVG) && has_role(p, DCPK_WEIGHT) &&
           model->tensors[p->tensor[DCPK_WEIGHT]].dtype != DCPK_F32;
}

/* A lost master would be made again from its rounded weight. Some optimizers keep none at all. */
static dcpk_status check_masters(const struct dcpk_model *model, struct dcpk_error *err)
{
    const struct dcpk_param *lacking = NULL;
    size_t n_masters = 0;

    for (size_t i = 0; i < model->n_params; i++) {
        const struct dcpk_param *p = &model->params[i];

        if (!asks_master(model, p))
            continue;
        if (has_role(p, DCPK_MASTER))
            n_masters++;
        else if (lacking == NULL)
            lacking = p;
    }
    if (lacking == NULL || n_masters == 0)
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EFORMAT,
                     "'%s' has exp_avg but no fp32 master, which %zu other parameters have",
                     lacking->name, n_masters);
}

/* State of what is not there: a part of a checkpoint is missing, or its names are wrong. Where one
 * parameter has both of Adam's moments, none has one of them alone. */
static dcpk_status check_values(const struct dcpk_model *model, struct dcpk_error *err)
{
    static const char *const moments[] = {"exp_avg", "exp_avg_sq"};
    bool is_adam = false;

    for (size_t i = 0; i < model->n_params; i++)
        is_adam |= has_role(&model->params[i], DCPK_EXP_AVG) &&
                   has_role(&model->params[i], DCPK_EXP_AVG_SQ);
    for (size_t i = 0; i < model->n_params; i++) {
        const struct dcpk_param *p = &model->params[i];
        const bool has_first = has_role(p, DCPK_EXP_AVG);

        if (dcpk_model_value(model, p) == NULL)
            return dcpk_fail_fix(err, DCPK_EFORMAT, DCPK_FIX_WEIGHTS_ONLY,
                                 "'%s' has optimizer state but no weight", p->name);
        if (is_adam && has_first != has_role(p, DCPK_EXP_AVG_SQ))
            return dcpk_fail(err, DCPK_EFORMAT, "'%s' has the state %s but no %s", p->name,
                             moments[!has_first], moments[has_first]);
    }
    if (model->has_optimizer && model->n_groups == 0)
        return dcpk_fail_fix(err, DCPK_EUNSUPPORTED, DCPK_FIX_WEIGHTS_ONLY,
                             "the source has optimizer state but no parameter groups, without "
                             "which Megatron does not load it");
    return DCPK_OK;
}

/* A map of groups may use either spelling of a name: the target's is chosen after it. */
static dcpk_status assign_groups(struct dcpk_model *model, const struct dcpk_rule_options *options,
                                 struct dcpk_error *err)
{
    if (options->group_map == NULL) {
        if (dcpk_rules_spell(model, options->impl, err) || dcpk_rules_groups(model, options, err))
            return err->status;
        return DCPK_OK;
    }
    if (dcpk_rules_spell(model, DCPK_IMPL_ANY, err) || dcpk_rules_groups(model, options, err) ||
        dcpk_rules_spell(model, options->impl, err))
        return err->status;
    return DCPK_OK;
}

dcpk_status dcpk_rules_apply(struct dcpk_model *model, const struct dcpk_rule_options *options,
                             struct dcpk_error *err)
{
    if (dcpk_rules_check_model_rows(model, err) || dcpk_rules_canonical(model, err) ||
        dcpk_rules_args_fit(model, err) || check_values(model, err) || check_masters(model, err) ||
        dcpk_rules_gate(model, options, err) || assign_groups(model, options, err) ||
        dcpk_rules_complete_groups(model, err) || dcpk_rules_parallel(model, options->impl, err) ||
        dcpk_rules_mesh(model, &options->mesh, err) ||
        dcpk_rules_vocab(model, &options->vocab, err))
        return err->status;
    return DCPK_OK;
}
