/* SPDX-License-Identifier: Apache-2.0 */
/* fsdp_state.c - Megatron-FSDP's training state -> the canonical view: parameter groups, scheduler,
 * RNG. */
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/fsdp_dtensor/fsdp_dtensor_priv.h"
#include "formats/fsdp_dtensor/fsdp_rows.h"
#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/model/model.h"

/* One field of one parameter's group on its way into a dict. */
struct field {
    uint32_t param;
    size_t object;
};

static int compare_fields(const void *left, const void *right)
{
    const struct field *a = left, *b = right;

    return DCPK_ORDER_BY_2(a, b, param, object);
}

static const struct dcpk_value *pairs_find(const struct dcpk_dict *dict, const char *name)
{
    for (size_t i = 0; i < dict->n; i++)
        if (dcpk_value_is_str(dict->pairs[i].key, name))
            return dict->pairs[i].value;
    return NULL;
}

/* Append the field `step` where the parameter has it as a tensor of its own. */
static dcpk_status pairs_add_step(struct dcpk_model *model, uint32_t param, struct dcpk_dict *dict,
                                  struct dcpk_error *err)
{
    const uint32_t tensor = model->params[param].tensor[DCPK_STEP];
    const struct dcpk_value *step;

    if (pairs_find(dict, "step") != NULL || tensor == DCPK_NO_TENSOR)
        return DCPK_OK;
    if (dcpk_model_read_step(model, model->tensors[tensor].pieces[0].src, &step, err))
        return err->status;
    dcpk_dict_put(dict, "step", step);
    return err->status;
}

/* Append a field. Another name of a fused parameter may have added it already. */
static dcpk_status add_field(struct dcpk_model *model, const struct dcpk_object *object,
                             struct dcpk_dict *dict, struct dcpk_error *err)
{
    const char *name = strrchr(object->key, '.') + 1;
    const struct dcpk_value *value, *before = pairs_find(dict, name);

    if (dcpk_model_need(model, object, &value, err))
        return err->status;
    if (before != NULL && !dcpk_value_equal(before, value))
        return dcpk_fail(err, DCPK_EFORMAT, "'%s' differs under another name of its parameter",
                         object->key);
    if (before == NULL)
        dcpk_dict_put(dict, name, value);
    return err->status;
}

/* The fields of one parameter -> its group. */
static dcpk_status read_group(struct dcpk_model *model, const struct field *fields, size_t n,
                              struct dcpk_error *err)
{
    struct dcpk_dict made = {.arena = model->arena, .err = err};
    const struct dcpk_value *group;

    for (size_t i = 0; i < n; i++)
        if (add_field(model, &model->ckpt->objects[fields[i].object], &made, err))
            return err->status;
    if (pairs_add_step(model, fields[0].param, &made, err))
        return err->status;
    group = dcpk_dict_end(&made);
    if (group == NULL)
        return err->status;
    return dcpk_model_intern_group(model, group, &model->params[fields[0].param].group, err);
}

/*
 * The parameters whose group a name determines. Megatron's converter writes a dot too many in front
 * of it, and both halves of a SwiGLU parameter (FORMAT.md 12.2, T1).
 */
static dcpk_status find_params(struct dcpk_model *model, char *name, uint32_t params[2], size_t *n,
                               struct dcpk_error *err)
{
    const int half = dcpk_fsdp_half(name);

    if (dcpk_fsdp_group_params(model, name + (*name == '.'), params, n, err))
        return err->status;
    if (*n > 0 || half < 0)
        return DCPK_OK;
    name[strlen(name) - strlen(dcpk_fsdp_halves[half].name)] = '\0';
    return dcpk_fsdp_group_params(model, name + (*name == '.'), params, n, err);
}

/* Append the field that object i is, for the parameters whose group it determines. */
static dcpk_status fsdp_find_field(struct dcpk_model *model, size_t i, struct field *fields,
                                   size_t *n, struct dcpk_error *err)
{
    const char *key = model->ckpt->objects[i].key;
    const char *name = dcpk_fsdp_skip_q(key + strlen(FD_GROUP)), *dot = strrchr(name, '.');
    uint32_t params[2];
    size_t n_params = 0;
    char *param;

    if (dot != NULL) {
        param = dcpk_arena_strndup(model->arena, name, (size_t)(dot - name), err);
        if (param == NULL || find_params(model, param, params, &n_params, err))
            return err->status;
    }
    if (n_params == 0)
        dcpk_model_drop(model, key, "group field of a parameter that is not there");
    for (size_t p = 0; p < n_params; p++)
        fields[(*n)++] = (struct field){params[p], i};
    return DCPK_OK;
}

/* Gather optimizer.param_to_group_meta.<Q>.<parameter>.<field>. */
dcpk_status dcpk_fsdp_read_groups(struct dcpk_model *model, struct dcpk_error *err)
{
    const struct dcpk_checkpoint *ckpt = model->ckpt;
    struct field *fields = dcpk_alloc_array(2 * ckpt->n_objects, sizeof *fields, err);
    size_t n = 0;

    if (fields == NULL)
        return err->status;
    for (size_t i = 0; i < ckpt->n_objects && err->status == DCPK_OK; i++)
        if (dcpk_starts_with(ckpt->objects[i].key, FD_GROUP) &&
            dcpk_checkpoint_object_left_out(ckpt, i) == NULL)
            (void)fsdp_find_field(model, i, fields, &n, err);
    qsort(fields, n, sizeof *fields, compare_fields);
    for (size_t i = 0, end; i < n && err->status == DCPK_OK; i = end) {
        for (end = i + 1; end < n && fields[end].param == fields[i].param; end++)
            ;
        (void)read_group(model, fields + i, end - i, err);
    }
    dcpk_free(fields);
    return err->status;
}

/* An object of that key, or NULL; `needed`: one that cannot be read is an error, else dropped. */
enum need { OPTIONAL, NEEDED };
static dcpk_status load_named(struct dcpk_model *model, const char *key, enum need need,
                              const struct dcpk_value **value, struct dcpk_error *err)
{
    const struct dcpk_object *object = dcpk_checkpoint_object(model->ckpt, key);

    *value = NULL;
    if (object == NULL)
        return DCPK_OK;
    if (need == NEEDED)
        return dcpk_model_need(model, object, value, err);
    return dcpk_model_load(model, object, value, err);
}

static bool is_scheduler(const struct dcpk_checkpoint *ckpt, size_t object)
{
    return dcpk_starts_with(ckpt->objects[object].key, FD_SCHEDULER) &&
           dcpk_checkpoint_object_left_out(ckpt, object) == NULL;
}

static dcpk_status read_scheduler(struct dcpk_model *model, struct dcpk_error *err)
{
    const struct dcpk_checkpoint *ckpt = model->ckpt;
    struct dcpk_dict made = {.arena = model->arena, .err = err};

    for (size_t i = 0; i < ckpt->n_objects; i++) {
        const char *key = ckpt->objects[i].key;
        const struct dcpk_value *value = NULL;

        if (!is_scheduler(ckpt, i))
            continue;
        if (load_named(model, key, OPTIONAL, &value, err))
            return err->status;
        dcpk_dict_put(&made, key + strlen(FD_SCHEDULER), value);
    }
    if (made.n == 0) /* there is none, or none can be read */
        return err->status;
    model->scheduler = dcpk_dict_end(&made);
    return dcpk_made(model->scheduler, err);
}

/* A leaf of "rng_state.(<pp>, <tp>).<data-parallel rank>.<field>[.<tracker>]" (section 4); in
 * torch_dcp without the ranks, which all save the same keys (section 14). */
struct rng_leaf {
    int64_t pp, tp, dp;
    const char *key;
    const char *field; /* "rng_tracker_states" when tracker is not NULL */
    const char *tracker;
    const struct dcpk_value *value; /* NULL: it cannot be read */
};

#define TRACKERS "rng_tracker_states."

/* Returns false when the key is not of that form. */
static bool split_rng(const char *key, struct rng_leaf *leaf)
{
    const char *text = key + strlen(FD_RNG);

    *leaf = (struct rng_leaf){.key = key};
    if (!isdigit((unsigned char)*text)) {
        if (*text++ != '(' || (leaf->pp = dcpk_take_number(&text)) < 0 ||
            !dcpk_starts_with(text, ", "))
            return false;
        text += strlen(", ");
        if ((leaf->tp = dcpk_take_number(&text)) < 0 || !dcpk_starts_with(text, ")."))
            return false;
        text += strlen(").");
    }
    if ((leaf->dp = dcpk_take_number(&text)) < 0 || *text != '.')
        return false;
    leaf->field = text + 1;
    if (dcpk_starts_with(leaf->field, TRACKERS))
        leaf->tracker = leaf->field + strlen(TRACKERS);
    return true;
}

/* By rank, a rank's trackers after its other fields. */
static int fsdp_compare_leaves(const void *left, const void *right)
{
    const struct rng_leaf *a = left, *b = right;
    const int order = DCPK_ORDER_BY_3(a, b, pp, tp, dp);

    if (order != 0)
        return order;
    if ((a->tracker != NULL) != (b->tracker != NULL))
        return DCPK_THREE_WAY(a->tracker != NULL, b->tracker != NULL);
    return strcmp(a->field, b->field);
}

/* The leaf's value: an object, or a tensor, which is carried as a value. */
static dcpk_status read_leaf(struct dcpk_model *model, size_t i, struct rng_leaf *leaf,
                             struct dcpk_error *err)
{
    const struct dcpk_checkpoint *ckpt = model->ckpt;

    if (i < ckpt->n_objects)
        (void)dcpk_by_place_load(&model->loaded, model->ckpt, &ckpt->objects[i], &leaf->value, err);
    else
        (void)dcpk_model_load_tensor(model, (uint32_t)(i - ckpt->n_objects), &leaf->value, err);
    if (!dcpk_status_is_content(err->status))
        return err->status;
    dcpk_model_drop(model, leaf->key, err->text);
    dcpk_error_clear(err);
    leaf->value = NULL;
    return DCPK_OK;
}

/* All leaves, sorted. */
static dcpk_status read_leaves(struct dcpk_model *model, struct rng_leaf **leaves, size_t *n,
                               struct dcpk_error *err)
{
    const struct dcpk_checkpoint *ckpt = model->ckpt;
    struct rng_leaf leaf;
    size_t capacity = 0;

    for (size_t i = 0; i < ckpt->n_objects + ckpt->n_tensors; i++) {
        const char *key, *left_out;

        if (i < ckpt->n_objects) {
            key = ckpt->objects[i].key;
            left_out = dcpk_checkpoint_object_left_out(ckpt, i);
        } else {
            key = ckpt->tensors[i - ckpt->n_objects].key;
            left_out = dcpk_checkpoint_tensor_left_out(ckpt, i - ckpt->n_objects);
        }
        if (!dcpk_starts_with(key, FD_RNG) || left_out != NULL)
            continue;
        if (!split_rng(key, &leaf)) {
            dcpk_model_drop(model, key, "not of the form " FD_RNG "(<pp>, <tp>).<i>.<field>");
            continue;
        }
        if (read_leaf(model, i, &leaf, err) ||
            dcpk_grow(leaves, &capacity, *n, sizeof **leaves, err))
            return err->status;
        (*leaves)[(*n)++] = leaf;
    }
    if (*n > 0)
        qsort(*leaves, *n, sizeof **leaves, fsdp_compare_leaves);
    return DCPK_OK;
}

/* The dict of one data-parallel rank: leaves[0..n), of which the last are its trackers. */
static const struct dcpk_value *make_rank(struct dcpk_arena *arena, const struct rng_leaf *leaves,
                                          size_t n, struct dcpk_error *err)
{
    struct dcpk_dict fields = {.arena = arena, .err = err}, trackers = fields;

    for (size_t i = 0; i < n; i++)
        if (leaves[i].tracker != NULL)
            dcpk_dict_put(&trackers, leaves[i].tracker, leaves[i].value);
        else
            dcpk_dict_put(&fields, leaves[i].field, leaves[i].value);
    /* An empty dict leaves no key (3.1): without trackers there is one all the same. */
    dcpk_dict_put(&fields, "rng_tracker_states", dcpk_dict_end(&trackers));
    return dcpk_dict_end(&fields);
}

/* The reason why the leaves of one (pp, tp) are not all of its states; NULL: they are. */
static const char *find_gap(const struct rng_leaf *leaves, size_t n)
{
    int64_t next = 0;

    for (size_t i = 0; i < n; i++) {
        if (leaves[i].value == NULL)
            return "another part of this RNG state cannot be read";
        if (leaves[i].dp > next)
            return "RNG states of an earlier data-parallel rank are missing";
        next = leaves[i].dp + 1;
    }
    return NULL;
}

/* States of which a part cannot be understood are not taken: a loader would miss it. */
static void settle_leaves(struct dcpk_model *model, const struct rng_leaf *leaves, size_t n,
                          const char *fault)
{
    for (size_t i = 0; i < n; i++) {
        if (fault == NULL)
            dcpk_model_carry(model, leaves[i].key);
        else if (leaves[i].value != NULL)
            dcpk_model_drop(model, leaves[i].key, fault);
    }
}

/* The ranks of one (pp, tp): a list over data-parallel ranks. */
static dcpk_status model_add_fsdp_rng(struct dcpk_model *model, const struct rng_leaf *leaves,
                                      size_t n, struct dcpk_error *err)
{
    const struct dcpk_value **ranks = dcpk_arena_array(model->arena, n, sizeof *ranks, err);
    struct dcpk_rng rng = {.pp = leaves[0].pp, .tp = leaves[0].tp};
    const char *fault = find_gap(leaves, n);
    size_t n_ranks = 0;
    bool existed;

    if (ranks == NULL)
        return err->status;
    for (size_t i = 0, end; i < n && fault == NULL; i = end) {
        for (end = i + 1; end < n && leaves[end].dp == leaves[i].dp; end++)
            ;
        ranks[n_ranks] = make_rank(model->arena, leaves + i, end - i, err);
        if (ranks[n_ranks++] == NULL)
            return err->status;
    }
    rng.states = dcpk_value_seq(model->arena, DCPK_V_LIST, ranks, n_ranks, err);
    if (rng.states == NULL)
        return err->status;
    if (fault == NULL)
        fault = dcpk_rng_states_fault(rng.states);
    settle_leaves(model, leaves, n, fault);
    if (fault != NULL)
        return DCPK_OK;
    return dcpk_model_add_rng(model, &rng, &existed, err);
}

static dcpk_status fsdp_read_rng(struct dcpk_model *model, struct dcpk_error *err)
{
    struct rng_leaf *leaves = NULL;
    size_t n = 0;

    (void)read_leaves(model, &leaves, &n, err);
    for (size_t i = 0, end; i < n && err->status == DCPK_OK; i = end) {
        for (end = i + 1;
             end < n && leaves[end].pp == leaves[i].pp && leaves[end].tp == leaves[i].tp; end++)
            ;
        (void)model_add_fsdp_rng(model, leaves + i, end - i, err);
    }
    dcpk_free(leaves);
    return err->status;
}

/* Objects that Megatron-FSDP does not save. */
static void note_unknown_objects(struct dcpk_model *model)
{
    static const char *const names[] = {"args", "iteration", "checkpoint_version",
                                        "num_floating_point_operations_so_far"};
    static const char *const prefixes[] = {FD_SCHEDULER, FD_GROUP, FD_RNG};

    for (size_t i = 0; i < model->ckpt->n_objects; i++) {
        const char *key = model->ckpt->objects[i].key;
        bool is_known = dcpk_checkpoint_object_left_out(model->ckpt, i) != NULL ||
                        dcpk_fsdp_is_listed_group(key);

        for (size_t k = 0; k < DCPK_COUNT(names); k++)
            is_known |= strcmp(key, names[k]) == 0;
        for (size_t k = 0; k < DCPK_COUNT(prefixes); k++)
            is_known |= dcpk_starts_with(key, prefixes[k]);
        if (!is_known && dcpk_ends_with(key, "._extra_state"))
            dcpk_model_omit(model, key, "extra state of a layer, which is None without FP8");
        else if (!is_known && dcpk_fsdp_is_left_over(key))
            dcpk_model_omit(model, key, "left by Megatron's converter, no loader asks for it");
        else if (!is_known)
            dcpk_model_drop(model, key, "no object of that name is known to Megatron-FSDP");
    }
}

dcpk_status dcpk_fsdp_read_state(struct dcpk_model *model, struct dcpk_error *err)
{
    const struct {
        const char *key;
        enum need need;
        const struct dcpk_value **value;
    } items[] = {
        {"args", NEEDED, &model->args},
        {"iteration", NEEDED, &model->iteration},
        {"checkpoint_version", OPTIONAL, &model->version},
        {"num_floating_point_operations_so_far", OPTIONAL, &model->flops},
    };

    for (size_t i = 0; i < DCPK_COUNT(items); i++)
        if (load_named(model, items[i].key, items[i].need, items[i].value, err))
            return err->status;
    if (dcpk_model_merge_given_args(model, err))
        return err->status;
    note_unknown_objects(model);
    if (read_scheduler(model, err))
        return err->status;
    return fsdp_read_rng(model, err);
}
