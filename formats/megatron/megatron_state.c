/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_state.c - the common state -> the canonical view. */
#include <ctype.h>
#include <string.h>

#include "formats/megatron/megatron.h"
#include "lib/base/json.h"
#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/model/request.h"

/* ---- keys of optimizer state, taken apart ---- */

const char *dcpk_megatron_skip_chained(const char *key)
{
    const char *p = key;

    if (!dcpk_starts_with(key, "chained_"))
        return key;
    p += strlen("chained_");
    while (isdigit((unsigned char)*p))
        p++;
    return *p == '.' ? p + 1 : key;
}

bool dcpk_megatron_split_key(const char *key, struct dcpk_megatron_key *parts)
{
    static const char prefix[] = "optimizer.state.";
    const char *rest = dcpk_megatron_skip_chained(key), *dot;

    if (!dcpk_starts_with(rest, prefix))
        return false;
    rest += strlen(prefix);
    dot = strchr(rest, '.');
    if (dot == NULL || dot == rest || dot[1] == '\0')
        return false;
    *parts = (struct dcpk_megatron_key){rest, (size_t)(dot - rest), dot + 1};
    return true;
}

bool dcpk_megatron_state_is(const struct dcpk_megatron_key *key, const char *name)
{
    return strlen(name) == key->state_bytes && memcmp(key->state, name, key->state_bytes) == 0;
}

bool dcpk_megatron_is_flattened(const struct dcpk_checkpoint *ckpt,
                                const struct dcpk_tensor *tensor)
{
    const struct dcpk_tensor *weight;
    struct dcpk_megatron_key key;

    if (tensor->model_shape != NULL)
        return true;
    if (!dcpk_megatron_split_key(tensor->key, &key))
        return false;
    /*
     * Releases 0.13 and 0.14 lost mcore_data under torch 2.9 (formats/torch_dist/FORMAT.md 2): one
     * axis more shows it too.
     */
    weight = dcpk_checkpoint_tensor(ckpt, key.param);
    return weight != NULL && tensor->rank == weight->rank + 1;
}

/* The role of the tensor, by the state's name; `fp32_param` is the name that core up to 0.15, and
 * optimizers that are not distributed, give to `param`. */
enum dcpk_role dcpk_megatron_role(const struct dcpk_megatron_key *key)
{
    if (dcpk_megatron_state_is(key, "param") || dcpk_megatron_state_is(key, "fp32_param"))
        return DCPK_MASTER;
    if (dcpk_megatron_state_is(key, "exp_avg"))
        return DCPK_EXP_AVG;
    if (dcpk_megatron_state_is(key, "exp_avg_sq"))
        return DCPK_EXP_AVG_SQ;
    return dcpk_megatron_state_is(key, "step") ? DCPK_STEP : DCPK_STATE;
}

static bool megatron_is_one_of(const struct dcpk_value *key, const char *const *names)
{
    const char *name = dcpk_value_as_str(key);

    for (; name != NULL && *names != NULL; names++)
        if (strcmp(name, *names) == 0)
            return true;
    return false;
}

/* --- optimizers --- */

/*
 * The one step of an optimizer without sharding, which it keeps next to its groups
 * (formats/torch_dist/FORMAT.md 5.1); torch's AdamW has it as a tensor, groups have a number.
 */
static dcpk_status read_common_step(struct dcpk_model *model, const struct dcpk_value *optimizer,
                                    struct dcpk_error *err)
{
    const struct dcpk_value *step =
        dcpk_value_get(dcpk_value_get(optimizer, "state"), "common_step");
    float f;

    if (step != NULL && step->kind == DCPK_V_TENSOR) {
        if (step->as.tensor->dtype != DCPK_F32 || step->as.tensor->n_bytes != sizeof f)
            return dcpk_fail(err, DCPK_EUNSUPPORTED,
                             "the optimizer's common_step is a tensor, but no single float32");
        memcpy(&f, step->as.tensor->data, sizeof f);
        step = dcpk_value_float(model->arena, (double)f, err);
        if (step == NULL)
            return err->status;
    }
    model->common_step = step;
    return DCPK_OK;
}

/* The group with a field `step`, which it may have already. NULL: out of memory. */
static const struct dcpk_value *with_step(struct dcpk_arena *arena, const struct dcpk_value *group,
                                          const struct dcpk_value *step, struct dcpk_error *err)
{
    struct dcpk_dict made = {.arena = arena, .err = err};

    if (step == NULL || dcpk_value_get(group, "step") != NULL)
        return group;
    dcpk_dict_put_all(&made, group);
    dcpk_dict_put(&made, "step", step);
    return dcpk_dict_end(&made);
}

void dcpk_megatron_add_scaler(struct dcpk_model *model, const struct dcpk_value *scaler)
{
    if (scaler == NULL)
        return;
    if ((model->flags & DCPK_MODEL_WEIGHTS_ONLY) != 0)
        dcpk_model_omit(model, "optimizer.grad_scaler", dcpk_reason_weights_only);
    else if (model->scaler == NULL)
        model->scaler = scaler;
    else if (!dcpk_value_equal(model->scaler, scaler))
        dcpk_model_drop(model, "optimizer.grad_scaler",
                        "the loss scalers of two optimizers differ; one is kept for both");
}

/* Notes entries of an optimizer's dict that this version does not know. */
static dcpk_status note_unknown_entries(struct dcpk_model *model,
                                        const struct dcpk_value *optimizer, struct dcpk_error *err)
{
    static const char *const known[] = {
        "optimizer", "param_groups",          "param_state", "param_state_sharding_type",
        "state",     "fp32_from_fp16_params", "grad_scaler", NULL};

    if (optimizer->kind != DCPK_V_DICT)
        return DCPK_OK;
    for (size_t i = 0; i < optimizer->n; i++) {
        const char *name = dcpk_value_as_str(optimizer->as.pairs[i].key), *key;

        if (name == NULL || megatron_is_one_of(optimizer->as.pairs[i].key, known))
            continue;
        key = dcpk_arena_printf(model->arena, err, "optimizer.%s", name);
        if (key == NULL)
            return err->status;
        dcpk_model_drop(model, key, "no entry of that name is known in an optimizer's state");
    }
    return DCPK_OK;
}

dcpk_status dcpk_megatron_add_groups(struct dcpk_model *model, const struct dcpk_value *optimizer,
                                     struct dcpk_error *err)
{
    const struct dcpk_value *inner = dcpk_value_get(optimizer, "optimizer");
    const struct dcpk_value *of = inner != NULL ? inner : optimizer; /* fp32: no further dict */
    const struct dcpk_value *list = dcpk_value_get(of, "param_groups");

    if (dcpk_value_get(optimizer, "param_state") != NULL)
        dcpk_model_omit(model, "optimizer.param_state",
                        "steps by the numbers of one rank's parameters: the groups have them too");
    dcpk_megatron_add_scaler(model, dcpk_value_get(optimizer, "grad_scaler"));
    for (size_t i = 0; list != NULL && i < list->n; i++)
        model->has_expert_optimizer |=
            dcpk_value_is_true(dcpk_value_at(list, i), "is_expert_parallel");
    if ((model->flags & DCPK_MODEL_WEIGHTS_ONLY) != 0)
        return DCPK_OK;
    if (note_unknown_entries(model, optimizer, err) || read_common_step(model, of, err))
        return err->status;
    if (list == NULL)
        return DCPK_OK;
    if (list->kind != DCPK_V_LIST)
        return dcpk_fail(
            err, DCPK_EFORMAT,
            "the parameter groups of the common state are not a list, and without them "
            "no optimizer state is of use");
    for (size_t i = 0; i < list->n; i++) {
        const struct dcpk_value *group = dcpk_value_at(list, i);

        if (group == NULL || group->kind != DCPK_V_DICT)
            return dcpk_fail(err, DCPK_EFORMAT,
                             "parameter group %zu of the common state is not a dict", i);
        group = with_step(model->arena, group, model->common_step, err);
        if (group == NULL || dcpk_model_add_group(model, group, err) != DCPK_OK)
            return err->status;
    }
    return DCPK_OK;
}

/* One optimizer, or several under the keys 0, 1, ... (dense, then expert). */
static dcpk_status read_groups(struct dcpk_model *model, const struct dcpk_value *optimizer,
                               struct dcpk_error *err)
{
    const struct dcpk_value *chained;

    if (dcpk_value_get_int(optimizer, 0) == NULL) {
        if (optimizer == NULL)
            return DCPK_OK;
        return dcpk_megatron_add_groups(model, optimizer, err);
    }
    for (int64_t i = 0; (chained = dcpk_value_get_int(optimizer, i)) != NULL; i++)
        if (dcpk_megatron_add_groups(model, chained, err))
            return err->status;
    return DCPK_OK;
}

static void read_layout(struct dcpk_model *model)
{
    const struct dcpk_value *attrs = dcpk_value_attrs(model->args);
    bool bf16 = false, fp16 = false;

    dcpk_model_read_layout(model);
    if (dcpk_value_as_bool(dcpk_value_get(attrs, "bf16"), &bf16) &&
        dcpk_value_as_bool(dcpk_value_get(attrs, "fp16"), &fp16))
        model->is_fp32 = !bf16 && !fp16;
}

/* --- the common state --- */

/* Its entries that no member of the view stands for. */
static dcpk_status read_further(struct dcpk_model *model, const struct dcpk_value *common,
                                struct dcpk_error *err)
{
    static const char *const known[] = {"args",
                                        "iteration",
                                        "checkpoint_version",
                                        "num_floating_point_operations_so_far",
                                        "opt_param_scheduler",
                                        "content_metadata",
                                        "optimizer",
                                        "rerun_state_machine",
                                        NULL};
    struct dcpk_dict made = {.arena = model->arena, .err = err};

    if (common->kind != DCPK_V_DICT || common->n == 0)
        return DCPK_OK;
    for (size_t i = 0; i < common->n; i++)
        if (!megatron_is_one_of(common->as.pairs[i].key, known))
            dcpk_dict_add(&made, common->as.pairs[i].key, common->as.pairs[i].value);
    model->further = NULL;
    if (made.n > 0)
        model->further = dcpk_dict_end(&made);
    return err->status;
}

dcpk_status dcpk_megatron_read_common(struct dcpk_model *model, struct dcpk_error *err)
{
    const struct dcpk_value *common;

    if (dcpk_checkpoint_load_common(model->ckpt, model->arena, &common, err))
        return err->status;
    if (common == NULL)
        return dcpk_fail(
            err, DCPK_EFORMAT,
            "there is neither common.pt nor a common_state item: args and iteration are missing");
    model->args = dcpk_value_get(common, "args");
    if (dcpk_model_merge_given_args(model, err) != DCPK_OK)
        return err->status;
    model->iteration = dcpk_value_get(common, "iteration");
    model->version = dcpk_value_get(common, "checkpoint_version");
    model->flops = dcpk_value_get(common, "num_floating_point_operations_so_far");
    model->scheduler = dcpk_value_get(common, "opt_param_scheduler");
    model->content = dcpk_value_get(common, "content_metadata");
    read_layout(model);
    model->optimizer_layout = dcpk_megatron_optimizer_layout(model->ckpt, common);
    if (dcpk_value_get(common, "rerun_state_machine") != NULL)
        dcpk_model_omit(model, "rerun_state_machine", DCPK_MEGATRON_RERUN_REASON);
    if (model->content != NULL)
        dcpk_model_omit(model, "content_metadata",
                        "describes the source's layout; the output gets its own");
    if (read_further(model, common, err))
        return err->status;
    return read_groups(model, dcpk_value_get(common, "optimizer"), err);
}

/* ---- the optimizer's layout, by keys and by what the common state calls it
 * (formats/torch_dist/FORMAT.md 5) ---- */

/* Layouts that keys show, after an optional "chained_N."; the first that occurs counts. */
static const struct {
    const char *start, *part; /* the key begins with / holds this */
    bool is_flattened;        /* and the tensor is stored flattened */
    bool is_certain;          /* whatever the common state calls it */
    const char *layout;       /* where the common state does not name it */
} signs[] = {
    /* Since core 0.13 the training loop names it. */
    {"optimizer.distributed.", ".bucket_idx_", false, false, "fully_sharded_bucket_space"},
    {"optimizer.distributed.", ".param_state/", false, true, "dp_zero_gather_scatter"},
    {"optimizer.state.", "", true, true, "fully_sharded_model_space"},
    {"optimizer.state.param.", "", false, false, "fully_reshardable"},
    {"optimizer.state.", "", false, false, "model-shaped"},
    {"optimizer.", "", false, false, "unknown"},
};
#define N_SIGNS (DCPK_COUNT(signs))

/* The first sign that `key` shows, N_SIGNS for none. */
static size_t sign_of(const char *key, bool is_flattened)
{
    key = dcpk_megatron_skip_chained(key);
    for (size_t i = 0; i < N_SIGNS; i++)
        if (dcpk_starts_with(key, signs[i].start) && strstr(key, signs[i].part) != NULL &&
            (is_flattened || !signs[i].is_flattened))
            return i;
    return N_SIGNS;
}

static size_t find_sign(const struct dcpk_checkpoint *ckpt)
{
    size_t best = N_SIGNS;

    for (size_t t = 0; t < ckpt->n_tensors && best > 0; t++) {
        const struct dcpk_tensor *tensor = &ckpt->tensors[t];

        if (dcpk_checkpoint_tensor_left_out(ckpt, t) != NULL)
            continue;
        best = dcpk_min_size(best, sign_of(tensor->key, dcpk_megatron_is_flattened(ckpt, tensor)));
    }
    for (size_t i = 0; i < ckpt->n_objects && best > 0; i++)
        if (dcpk_checkpoint_object_left_out(ckpt, i) == NULL)
            best = dcpk_min_size(best, sign_of(ckpt->objects[i].key, false));
    return best;
}

/* The layout's name in the common state (content_metadata: core 0.13 and later; else the
 * optimizer's own field, or that of the first one of several); NULL: nothing. */
static const char *stored_layout_name(const struct dcpk_value *common)
{
    const struct dcpk_value *optimizer = dcpk_value_get(common, "optimizer");
    const struct dcpk_value *first = dcpk_value_get_int(optimizer, 0);
    const char *name = dcpk_value_as_str(
        dcpk_value_get(dcpk_value_get(common, "content_metadata"), "distrib_optim_sharding_type"));

    if (name == NULL)
        name = dcpk_value_as_str(dcpk_value_get(optimizer, "param_state_sharding_type"));
    if (name == NULL)
        name = dcpk_value_as_str(dcpk_value_get(first, "param_state_sharding_type"));
    return name;
}

/* Without optimizer tensors and objects there is none, whatever is stored of it
 * (--no-save-optim). */
const char *dcpk_megatron_optimizer_layout(const struct dcpk_checkpoint *ckpt,
                                           const struct dcpk_value *common)
{
    const size_t sign = find_sign(ckpt);
    const char *name = stored_layout_name(common);

    if (sign == N_SIGNS)
        return "none";
    return name == NULL || signs[sign].is_certain ? signs[sign].layout : name;
}

/* ---- metadata.json: the backend ---- */

#define MAX_JSON_BYTES (1u << 20)

static dcpk_status read_backend(const struct dcpk_json *doc, struct dcpk_megatron_backend *backend,
                                struct dcpk_error *err)
{
    const char *name = dcpk_json_string(dcpk_json_member(doc, "sharded_backend"));

    if (name == NULL)
        return dcpk_fail(err, DCPK_EFORMAT, "'%s' names no sharded_backend",
                         DCPK_MEGATRON_METADATA_JSON);
    if (strlen(name) >= sizeof backend->name)
        return dcpk_fail(err, DCPK_EFORMAT, "'%s' names a sharded_backend of %zu bytes",
                         DCPK_MEGATRON_METADATA_JSON, strlen(name));
    backend->version = 1; /* also where it is not a number: see ask_field */
    dcpk_json_int(dcpk_json_member(doc, "sharded_backend_version"), &backend->version);
    memcpy(backend->name, name, strlen(name) + 1);
    return DCPK_OK;
}

static dcpk_status read_backend_of(struct dcpk_store *store, const char *name,
                                   struct dcpk_megatron_backend *backend, struct dcpk_error *err)
{
    struct dcpk_json *doc = NULL;

    if (dcpk_json_read(store, name, MAX_JSON_BYTES, &doc, err))
        return dcpk_context(err, "reading '%s'", name);
    (void)read_backend(doc, backend, err);
    dcpk_json_free(doc);
    return err->status;
}

dcpk_status dcpk_megatron_read_backend(struct dcpk_store *store,
                                       struct dcpk_megatron_backend *backend,
                                       struct dcpk_error *err)
{
    return read_backend_of(store, DCPK_MEGATRON_METADATA_JSON, backend, err);
}

dcpk_status dcpk_megatron_check_backend(struct dcpk_store *store, const char *name,
                                        const char *wanted, struct dcpk_error *err)
{
    struct dcpk_megatron_backend backend;

    if (read_backend_of(store, name, &backend, err))
        return err->status;
    if (strcmp(backend.name, wanted) != 0)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "'%s' says sharded_backend \"%s\", this reader reads \"%s\"", name,
                         backend.name, wanted);
    if (backend.version != 1)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "'%s' says sharded_backend_version %lld, known is 1",
                         DCPK_MEGATRON_METADATA_JSON, (long long)backend.version);
    return DCPK_OK;
}

/* The fields that releases up to core 0.18 know, and their values; text NULL: the number 1
 * (formats/torch_dist/FORMAT.md 1.2). */
static const struct field {
    const char *name, *text;
    bool is_any; /* the reader of the format has looked at it */
} fields[] = {
    {"sharded_backend", NULL, true},
    {"sharded_backend_version", NULL, false},
    {"common_backend", "torch", false},
    {"common_backend_version", NULL, false},
};

static const struct field *field_find(const char *name)
{
    for (size_t i = 0; i < DCPK_COUNT(fields); i++)
        if (strcmp(fields[i].name, name) == 0)
            return &fields[i];
    return NULL;
}

/* True if Python finds the value equal to that of the field. 1.0 and true are 1 there. */
static bool field_holds(const struct field *field, const struct dcpk_json *value)
{
    const char *text = dcpk_json_string(value);
    int64_t number = 0;
    bool is_true = false;

    if (field->is_any)
        return true;
    if (field->text != NULL)
        return text != NULL && strcmp(text, field->text) == 0;
    return (dcpk_json_int(value, &number) && number == 1) ||
           (dcpk_json_bool(value, &is_true) && is_true);
}

static dcpk_status ask_field(const struct dcpk_loading *loading, const struct dcpk_json *member,
                             struct dcpk_error *err)
{
    const struct field *field = field_find(dcpk_json_key(member));
    enum dcpk_release last = DCPK_CORE_0_16;
    const char *text = "has a value that core 0.15 and 0.16 have no loader for", *key;

    if (field != NULL && field_holds(field, member))
        return DCPK_OK;
    if (field == NULL) {
        last = DCPK_CORE_0_18;
        text = "is a field that stops releases up to core 0.18 (TypeError of CheckpointingConfig)";
    }
    key = dcpk_arena_printf(loading->arena, err, DCPK_MEGATRON_METADATA_JSON ".%s",
                            dcpk_json_key(member));
    if (key == NULL)
        return err->status;
    return dcpk_request_fault(loading, DCPK_FOR_COMMON, dcpk_loaders_of(DCPK_CORE_0_15, last), key,
                              text, err);
}

dcpk_status dcpk_megatron_request_backend(const struct dcpk_loading *loading,
                                          struct dcpk_error *err)
{
    struct dcpk_json *doc = NULL;

    if (loading->out != NULL || /* a planned output has Megatron's own text */
        dcpk_json_read(loading->ckpt->store, DCPK_MEGATRON_METADATA_JSON, MAX_JSON_BYTES, &doc,
                       err))
        return err->status;
    for (const struct dcpk_json *m = dcpk_json_first(doc); m != NULL && err->status == DCPK_OK;
         m = dcpk_json_next(m))
        (void)ask_field(loading, m, err);
    dcpk_json_free(doc);
    return err->status;
}
