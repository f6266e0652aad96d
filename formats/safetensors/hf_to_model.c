/* SPDX-License-Identifier: Apache-2.0 */
/* hf_to_model.c - a folder of Hugging Face's -> the canonical view. */
#include <inttypes.h>
#include <string.h>

#include "formats/safetensors/hf_matching.h"
#include "formats/safetensors/hf_ops.h"
#include "lib/base/text.h"
#include "lib/model/names.h"
#include "lib/model/norms.h"

static const char reason_copy[] = "repeats another tensor, bit for bit";
static const char reason_mtp[] = "belongs to MTP layers, which are left out";
static const char reason_zero[] = "all zero, and no part of the family";
static const char reason_drop[] = "computed by every model itself";

size_t dcpk_hf_binding_find(const struct dcpk_hf_matching *m, const struct dcpk_hf_binding *b,
                            uint32_t stored[DCPK_HF_MAX_PARTS])
{
    size_t n = 0;

    for (size_t i = 0; i < b->rule->n_hf; i++) {
        stored[i] = dcpk_hf_matching_stored(m, b->hf[i]);
        n += stored[i] != DCPK_NO_TENSOR;
    }
    return n;
}

/* --- one parameter --- */

/* True if a weight is read with an adapter. */
static bool has_adapter(const struct dcpk_hf_matching *m, uint32_t stored)
{
    return m->scaled[stored].view != DCPK_NO_TENSOR && m->scaled[stored].scales == DCPK_NO_TENSOR;
}

/* Finds the parts to read of a stored tensor: itself, its weight with scales, its lines in
 * pairs. */
static dcpk_status hf_find_source(struct dcpk_hf_matching *m, const struct dcpk_hf_binding *b,
                                  size_t part, uint32_t stored, uint32_t *source,
                                  struct dcpk_error *err)
{
    const int axis = dcpk_hf_ops_pair_axis(b->rule, part);

    *source = stored;
    if (m->scaled[stored].view != DCPK_NO_TENSOR)
        *source = m->scaled[stored].view;
    if (axis < 0)
        return DCPK_OK;
    if (m->paired[stored] == DCPK_NO_TENSOR &&
        dcpk_hf_pair_view(m->ckpt, *source, axis + (b->expert >= 0), &m->paired[stored], err))
        return err->status;
    *source = m->paired[stored];
    return DCPK_OK;
}

/* Part i: the stored tensor, or the slice of it that is the expert's. */
static dcpk_status part_read(struct dcpk_hf_matching *m, const struct dcpk_hf_binding *b, size_t i,
                             uint32_t stored, struct dcpk_model_tensor *part,
                             struct dcpk_error *err)
{
    const struct dcpk_tensor *tensor = &m->ckpt->tensors[stored];
    uint32_t source;
    const struct dcpk_sources sources = {&source, 1, &b->expert, b->expert >= 0};

    if (b->expert >= 0 && (tensor->rank < 1 || tensor->shape[0] != m->sizes.n_experts))
        return dcpk_fail(err, DCPK_EMISMATCH, "it is not of %" PRId64 " experts",
                         m->sizes.n_experts);
    /* Its name is dropped too, else this is a fault already. */
    if (m->state == NULL && dcpk_dtype_bytes(tensor->dtype) < 2 &&
        m->scaled[stored].view == DCPK_NO_TENSOR &&
        (dcpk_hf_matching_keeps_other(m) ||
         dcpk_hf_map_drops(m->map, dcpk_hf_matching_name(m, stored))))
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "it is %s without scales",
                         dcpk_dtype_name(tensor->dtype));
    *part = (struct dcpk_model_tensor){.role = DCPK_WEIGHT};
    if (hf_find_source(m, b, i, stored, &source, err) ||
        dcpk_rows_read(m->model, &sources, part, err))
        return err->status;
    if (m->scaled[stored].scales != DCPK_NO_TENSOR)
        part->dtype = m->dtype;
    else if (has_adapter(m, stored))
        part->dtype = m->ckpt->tensors[stored].dtype;
    return DCPK_OK;
}

dcpk_status dcpk_hf_binding_join(struct dcpk_hf_matching *m, const struct dcpk_hf_binding *b,
                                 const uint32_t *stored, struct dcpk_model_tensor *whole,
                                 struct dcpk_error *err)
{
    const enum dcpk_dtype written = m->ckpt->given.family.dtype;
    struct dcpk_model_tensor parts[DCPK_HF_MAX_PARTS];
    bool is_summed = false;

    for (size_t i = 0; i < b->rule->n_hf; i++) {
        if (part_read(m, b, i, stored[i], &parts[i], err))
            return err->status;
        is_summed |= has_adapter(m, stored[i]);
    }
    /* a sum is rounded once, to what is written, and with it the parts that have no adapter */
    for (size_t i = 0; i < b->rule->n_hf && is_summed && written != DCPK_DTYPE_NONE; i++)
        parts[i].dtype = written;
    return dcpk_hf_ops_join(b->rule, &m->sizes, parts, m->model->arena, whole, err);
}

/* A fault of content is one of the list, and no end. That of a tensor of all experts is named
 * once. */
static dcpk_status take_fault(struct dcpk_hf_matching *m, const struct dcpk_hf_binding *b,
                              struct dcpk_error *err)
{
    if (!dcpk_status_is_content(err->status))
        return err->status;
    if (b->expert <= 0 || m->faults.n == 0)
        dcpk_hf_fault(&m->faults, DCPK_EMISMATCH, "'%s': %s", b->hf[0], err->text);
    dcpk_error_clear(err);
    return DCPK_OK;
}

/* A row for each token, as the family's class makes them: rows more are not known to be padding. */
static void check_tokens(struct dcpk_hf_matching *m, const struct dcpk_hf_binding *b,
                         const struct dcpk_model_tensor *tensor)
{
    const struct dcpk_value *attrs = dcpk_value_attrs(m->model->args);
    int64_t n_tokens;

    if ((strcmp(b->mg, DCPK_HF_EMBEDDING) != 0 && strcmp(b->mg, DCPK_HF_OUTPUT_LAYER) != 0) ||
        tensor->rank < 1 || !dcpk_value_as_int(dcpk_value_get(attrs, "vocab_size"), &n_tokens) ||
        tensor->shape[0] == n_tokens)
        return;
    dcpk_hf_fault(&m->faults, DCPK_EMISMATCH,
                  "'%s' has %" PRId64 " rows, and 'vocab_size' is %" PRId64, b->hf[0],
                  tensor->shape[0], n_tokens);
}

/* A norm's weight, where only one side stores it less one. */
static dcpk_status norm_read(struct dcpk_hf_matching *m, const struct dcpk_hf_binding *b,
                             struct dcpk_model_tensor *tensor, struct dcpk_error *err)
{
    const float addend = dcpk_hf_ops_addend(m->map, b, dcpk_value_attrs(m->model->args));

    if (addend == 0)
        return DCPK_OK;
    if (m->n_added++ == 0)
        m->first_added = b->mg;
    m->addend = addend;
    return dcpk_norm_add(m->ckpt, tensor, addend, m->model->arena, tensor, err);
}

/* All parts are there: the parameter, unless another binding gave it. */
static dcpk_status binding_take(struct dcpk_hf_matching *m, const struct dcpk_hf_binding *b,
                                const uint32_t *stored, struct dcpk_error *err)
{
    struct dcpk_model_tensor tensor;
    const size_t n_before = m->model->n_params;
    uint32_t param;

    for (size_t i = 0; i < b->rule->n_hf; i++)
        m->is_taken[stored[i]] = true;
    if (dcpk_model_param(m->model, b->mg, &param, err))
        return err->status;
    if (m->model->n_params == n_before)
        return dcpk_hf_fault(&m->faults, DCPK_EMISMATCH, "'%s' and '%s' both hold '%s'",
                             m->givers[param]->hf[0], b->hf[0], b->mg);
    m->givers[param] = b;
    if (dcpk_hf_binding_join(m, b, stored, &tensor, err))
        return take_fault(m, b, err);
    check_tokens(m, b, &tensor);
    tensor.param = param;
    if (norm_read(m, b, &tensor, err))
        return take_fault(m, b, err);
    for (size_t i = 0; i < b->rule->n_ops; i++)
        m->is_gated |= dcpk_name_is_fc1(b->mg) &&
                       (b->rule->ops[i] == DCPK_HF_CAT || b->rule->ops[i] == DCPK_HF_DEINTERLEAVE);
    if (b->rule->dtype != DCPK_DTYPE_NONE && (m->model->flags & DCPK_MODEL_OF_FAMILY) == 0)
        tensor.dtype = b->rule->dtype;
    return dcpk_model_add(m->model, &tensor, err);
}

static void binding_drop(struct dcpk_hf_matching *m, const struct dcpk_hf_binding *b,
                         const uint32_t *stored)
{
    for (size_t i = 0; i < b->rule->n_hf; i++)
        if (stored[i] != DCPK_NO_TENSOR && !m->is_taken[stored[i]]) {
            const uint32_t scales = m->scaled[stored[i]].scales;

            m->is_taken[stored[i]] = true;
            dcpk_model_drop(m->model, m->ckpt->tensors[stored[i]].key, reason_mtp);
            if (scales != DCPK_NO_TENSOR)
                dcpk_model_drop(m->model, m->ckpt->tensors[scales].key, reason_mtp);
        }
}

static dcpk_status binding_match(struct dcpk_hf_matching *m, const struct dcpk_hf_binding *b,
                                 struct dcpk_error *err)
{
    uint32_t stored[DCPK_HF_MAX_PARTS];
    const size_t n = dcpk_hf_binding_find(m, b, stored);

    if (n == 0 || !b->applies || (b->rule->flags & DCPK_HF_OF_STATE) != 0)
        return DCPK_OK;
    if (b->is_mtp && m->ckpt->given.family.without_mtp) {
        binding_drop(m, b, stored);
        return DCPK_OK;
    }
    if ((b->rule->flags & DCPK_HF_COPY) != 0)
        return DCPK_OK;
    if (n == b->rule->n_hf)
        return binding_take(m, b, stored, err);
    for (size_t i = 0; i < b->rule->n_hf; i++) {
        if (stored[i] == DCPK_NO_TENSOR)
            dcpk_hf_fault(&m->faults, DCPK_EMISMATCH, "'%s' is missing, a part of '%s'", b->hf[i],
                          b->mg);
        else
            m->is_taken[stored[i]] = true;
    }
    return DCPK_OK;
}

/* --- what is repeated, missing or left --- */

/* Sets *same if two stored tensors are equal, with their scales. */
static dcpk_status same_weight(struct dcpk_hf_matching *m, uint32_t a, uint32_t b, bool *same,
                               struct dcpk_error *err)
{
    const uint32_t scales_a = m->scaled[a].scales, scales_b = m->scaled[b].scales;

    if (dcpk_hf_same_bytes(m->ckpt, a, b, same, err) || !*same)
        return err->status;
    if (scales_a != DCPK_NO_TENSOR && scales_b != DCPK_NO_TENSOR)
        return dcpk_hf_same_bytes(m->ckpt, scales_a, scales_b, same, err);
    *same = scales_a == scales_b;
    return DCPK_OK;
}

/* The same bits as the tensor that gives `mg`: it is left out, and nothing is lost. */
static dcpk_status match_copy(struct dcpk_hf_matching *m, uint32_t copy, const char *mg,
                              struct dcpk_error *err)
{
    const char *key = m->ckpt->tensors[copy].key;
    const uint32_t scales = m->scaled[copy].scales;
    uint32_t original;
    uint64_t param;
    bool same;

    m->is_taken[copy] = true;
    if (!dcpk_map_get(&m->model->param_by_name, mg, strlen(mg), &param))
        return dcpk_hf_fault(&m->faults, DCPK_EMISMATCH, "'%s' repeats '%s', which is missing", key,
                             mg);
    original = dcpk_hf_matching_stored(m, m->givers[param]->hf[0]);
    if (has_adapter(m, copy) || has_adapter(m, original))
        return dcpk_hf_fault(&m->faults, DCPK_EUNSUPPORTED,
                             "the adapter changes '%s' or '%s', which are tied", key,
                             m->ckpt->tensors[original].key);
    if (same_weight(m, copy, original, &same, err))
        return err->status;
    if (same && scales != DCPK_NO_TENSOR)
        dcpk_model_omit(m->model, m->ckpt->tensors[scales].key, reason_copy);
    if (same)
        dcpk_model_omit(m->model, key, reason_copy);
    else
        dcpk_hf_fault(&m->faults, DCPK_EMISMATCH, "'%s' differs from '%s', with which it is tied",
                      key, m->ckpt->tensors[original].key);
    return DCPK_OK;
}

/* Copies, and the output layer of a model that is tied. */
static dcpk_status match_copies(struct dcpk_hf_matching *m, struct dcpk_error *err)
{
    for (size_t i = 0; i < m->bindings.n; i++) {
        const struct dcpk_hf_binding *b = &m->bindings.list[i];
        const bool is_copy = (b->rule->flags & DCPK_HF_COPY) != 0;
        const bool is_tied = !b->applies && strcmp(b->mg, DCPK_HF_OUTPUT_LAYER) == 0;
        uint32_t stored[DCPK_HF_MAX_PARTS];
        const char *mg = b->mg;
        uint64_t param;

        if ((!is_copy && !is_tied) || dcpk_hf_binding_find(m, b, stored) == 0 ||
            stored[0] == DCPK_NO_TENSOR || m->is_taken[stored[0]])
            continue;
        /* in a tied model both are the embedding */
        if (!dcpk_map_get(&m->model->param_by_name, mg, strlen(mg), &param))
            mg = DCPK_HF_EMBEDDING;
        if (match_copy(m, stored[0], mg, err))
            return err->status;
    }
    return DCPK_OK;
}

/* A parameter that the map has, and no tensor gives. */
static dcpk_status find_missing(struct dcpk_hf_matching *m, struct dcpk_error *err)
{
    struct dcpk_map named = {0};

    for (size_t i = 0; i < m->bindings.n; i++) {
        const struct dcpk_hf_binding *b = &m->bindings.list[i];
        uint32_t stored[DCPK_HF_MAX_PARTS];
        bool existed = false;
        uint64_t found;

        if (!b->applies || (b->rule->flags & (DCPK_HF_COPY | DCPK_HF_READ_ONLY)) != 0 ||
            (b->is_mtp && m->ckpt->given.family.without_mtp) ||
            dcpk_map_get(&m->model->param_by_name, b->mg, strlen(b->mg), &found) ||
            dcpk_hf_binding_find(m, b, stored) > 0)
            continue;
        if (dcpk_map_put(&named, b->mg, strlen(b->mg), 0, &existed, &found, err))
            break;
        if (!existed)
            dcpk_hf_fault(&m->faults, DCPK_EMISMATCH, "'%s' is missing, it holds '%s'", b->hf[0],
                          b->mg);
    }
    dcpk_map_release(&named);
    return err->status;
}

/* A tensor that the family does not have, if it computes nothing: all of it is zero. */
static dcpk_status match_zero(struct dcpk_hf_matching *m, size_t t, struct dcpk_error *err)
{
    const char *key = m->ckpt->tensors[t].key;
    bool is_zero;

    if (m->is_taken[t] || dcpk_hf_matching_name(m, t) == NULL ||
        !dcpk_hf_map_has_zero(m->map, dcpk_hf_matching_name(m, t)))
        return DCPK_OK;
    m->is_taken[t] = true;
    if (dcpk_hf_is_zero(m->ckpt, (uint32_t)t, &is_zero, err))
        return err->status;
    if (is_zero)
        dcpk_model_omit(m->model, key, reason_zero);
    else {
        m->fixes |= DCPK_FIX_DROP;
        dcpk_hf_fault(&m->faults, DCPK_EUNSUPPORTED,
                      "'%s' is not zero, and family '%s' has no such tensor", key, m->map->family);
    }
    return DCPK_OK;
}

/* A tensor that no rule takes, by its own name; not one with scales, which others would lose. */
static dcpk_status keep_other(struct dcpk_hf_matching *m, uint32_t t, struct dcpk_error *err)
{
    const char *own = dcpk_hf_matching_name(m, t);
    char *name = dcpk_arena_printf(m->model->arena, err, DCPK_HF_OTHER "%s", own);
    struct dcpk_model_tensor tensor = {.role = DCPK_WEIGHT};
    const bool is_summed = has_adapter(m, t);
    const uint32_t source = is_summed ? m->scaled[t].view : t;
    const struct dcpk_sources sources = {.tensor = &source, .n = 1};
    const enum dcpk_dtype written = m->ckpt->given.family.dtype;

    if (name == NULL)
        return err->status;
    if (strchr(own, '/') != NULL)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "'%s' has a slash in its name", own);
    for (char *at = name; (at = strchr(at, '.')) != NULL;)
        *at = '/';
    if (dcpk_rows_read(m->model, &sources, &tensor, err) ||
        dcpk_model_param(m->model, name, &tensor.param, err))
        return err->status;
    if (is_summed)
        tensor.dtype = written != DCPK_DTYPE_NONE ? written : m->ckpt->tensors[t].dtype;
    m->is_taken[t] = true;
    if (m->n_other++ == 0)
        m->first_other = m->ckpt->tensors[t].key;
    return dcpk_model_add(m->model, &tensor, err);
}

static dcpk_status find_left(struct dcpk_hf_matching *m, struct dcpk_error *err)
{
    const bool keeps = dcpk_hf_matching_keeps_other(m);

    for (size_t t = 0; t < m->ckpt->n_tensors; t++) {
        const char *key = m->ckpt->tensors[t].key;

        if (m->is_taken[t] || m->scaled[t].scales == t || dcpk_hf_matching_name(m, t) == NULL ||
            dcpk_checkpoint_tensor_left_out(m->ckpt, t) != NULL)
            continue;
        if (!dcpk_hf_map_drops(m->map, dcpk_hf_matching_name(m, t))) {
            if (keeps && m->scaled[t].scales == DCPK_NO_TENSOR) {
                if (keep_other(m, (uint32_t)t, err))
                    return err->status;
                continue;
            }
            m->n_other += !keeps;
            dcpk_hf_fault(&m->faults, DCPK_EMISMATCH, "no rule takes '%s'", key);
            continue;
        }
        dcpk_model_omit(m->model, key, reason_drop);
        if (m->scaled[t].scales != DCPK_NO_TENSOR)
            dcpk_model_omit(m->model, m->ckpt->tensors[m->scaled[t].scales].key, reason_drop);
    }
    if (m->n_other > 0 && keeps)
        dcpk_checkpoint_note_once(m->ckpt,
                                  "%zu tensors that no map knows keep their names, '%s' the first",
                                  m->n_other, m->first_other);
    return DCPK_OK;
}

/* Leaves out MTP layers without tensors: transformers' classes lack them, so their checkpoints have
 * config.json's number of MTP layers and no weights of these. */
static void leave_absent_mtp(struct dcpk_hf_matching *m)
{
    uint32_t stored[DCPK_HF_MAX_PARTS];

    if (m->sizes.n_mtp == 0 || m->ckpt->given.family.without_mtp)
        return;
    for (size_t i = 0; i < m->bindings.n; i++)
        if (m->bindings.list[i].is_mtp && dcpk_hf_binding_find(m, &m->bindings.list[i], stored) > 0)
            return;
    m->ckpt->given.family.without_mtp = true;
    dcpk_checkpoint_note_once(m->ckpt,
                              "no tensor is of an MTP layer, and the configuration or the family "
                              "has %" PRId64 ": left out",
                              m->sizes.n_mtp);
}

/* Every layer has tensors: what args claim costs no more than what is stored. */
static dcpk_status check_layers(const struct dcpk_hf_matching *m, struct dcpk_error *err)
{
    if (m->sizes.n_layers + m->sizes.n_mtp <= (int64_t)m->ckpt->n_tensors)
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EMISMATCH,
                     "%zu tensors are fewer than the %" PRId64 " layers of the configuration",
                     m->ckpt->n_tensors, m->sizes.n_layers + m->sizes.n_mtp);
}

static dcpk_status match_all(struct dcpk_hf_matching *m, struct dcpk_error *err)
{
    for (size_t i = 0; i < m->bindings.n; i++)
        if (binding_match(m, &m->bindings.list[i], err))
            return err->status;
    if (match_copies(m, err) || find_missing(m, err))
        return err->status;
    for (size_t t = 0; m->map->n_zero > 0 && t < m->ckpt->n_tensors; t++)
        if (match_zero(m, t, err))
            return err->status;
    return find_left(m, err);
}

/* --- the folder --- */

/* Puts the state that Megatron asks of a checkpoint in addition to args. */
static dcpk_status hf_put_state(struct dcpk_hf_matching *m, struct dcpk_error *err)
{
    struct dcpk_model *model = m->model;

    model->optimizer_layout = model->has_optimizer ? "model-shaped" : "none";
    if (model->iteration == NULL)
        model->iteration = dcpk_value_int(model->arena, 0, err);
    model->version = dcpk_value_float(model->arena, 3.0, err);
    if (model->iteration == NULL || model->version == NULL)
        return err->status;
    if (m->ckpt->given.family.without_mtp && m->sizes.n_mtp > 0 &&
        dcpk_model_put_arg(model, "mtp_num_layers", dcpk_value_none(), err))
        return err->status;
    if (m->is_gated && !dcpk_value_is_true(dcpk_value_attrs(model->args), "swiglu") &&
        dcpk_model_put_arg(model, "gated_linear_unit", dcpk_value_bool(true), err))
        return err->status;
    dcpk_model_read_layout(model);
    return DCPK_OK;
}

dcpk_status dcpk_hf_put_command_line(struct dcpk_model *model, struct dcpk_error *err)
{
    struct dcpk_bytes text = {0};

    if (dcpk_hf_flags_write(dcpk_value_attrs(model->args), &text, err) == DCPK_OK &&
        dcpk_bytes_status(&text, err) == DCPK_OK)
        model->command_line = dcpk_arena_strndup(
            model->arena, dcpk_text_or((const char *)text.data, ""), text.n_bytes, err);
    dcpk_bytes_release(&text);
    return err->status;
}

/* Reports all mismatches as one error. */
static dcpk_status matching_end(struct dcpk_hf_matching *m, struct dcpk_error *err)
{
    const size_t n = m->faults.n;

    if (dcpk_hf_faults_end(&m->faults, err)) {
        dcpk_context(err, "the map of %s does not fit, in %zu places", m->map->family, n);
        err->fixes |= m->fixes;
    }
    if (err->status != DCPK_OK && m->n_other > 0 && !dcpk_hf_matching_keeps_other(m))
        dcpk_append(err, "; convert's option keep-other would keep what no rule takes");
    return err->status;
}

static dcpk_status matching_run(struct dcpk_hf_matching *m, struct dcpk_error *err)
{
    const size_t n_tensors = m->ckpt->n_tensors;

    if (dcpk_hf_matching_read_config(m, err) || check_layers(m, err) ||
        dcpk_hf_bind(m->map, &m->sizes, dcpk_hf_matching_absent_prefix(m), m->model->arena,
                     &m->bindings, err))
        return err->status;
    m->is_taken = dcpk_arena_array(m->model->arena, n_tensors, sizeof *m->is_taken, err);
    m->givers = dcpk_arena_array(m->model->arena, m->bindings.n, sizeof *m->givers, err);
    m->paired = dcpk_arena_array(m->model->arena, n_tensors, sizeof *m->paired, err);
    m->is_object_taken =
        dcpk_arena_array(m->model->arena, m->ckpt->n_objects, sizeof *m->is_object_taken, err);
    if (m->is_taken == NULL || m->givers == NULL || m->paired == NULL || m->is_object_taken == NULL)
        return err->status;
    memset(m->paired, 0xff, n_tensors * sizeof *m->paired); /* DCPK_NO_TENSOR */
    leave_absent_mtp(m);
    if (dcpk_hf_lora_merge(m, err) || match_all(m, err) || matching_end(m, err) ||
        m->names.list == NULL)
        return err->status;
    if (dcpk_hf_match_states(m, err) || matching_end(m, err))
        return err->status;
    dcpk_hf_names_leave(&m->names, m->model, m->is_taken, m->is_object_taken);
    return DCPK_OK;
}

static void note_norms_read(const struct dcpk_hf_matching *m)
{
    if (m->n_added > 0)
        dcpk_checkpoint_note_once(
            m->ckpt,
            "%zu weights of norms, '%s' the first, are read %s one, as args have them: the sum of "
            "float32, rounded to the dtype that is written, gives back every bit of w for %s",
            m->n_added, m->first_added, m->addend < 0 ? "less" : "plus",
            m->addend < 0 ? "w from 0.5 to 2 alone" : "some w alone");
}

dcpk_status dcpk_hf_to_model(struct dcpk_checkpoint *ckpt, struct dcpk_model *model,
                             struct dcpk_error *err)
{
    return dcpk_hf_scheme_to_model(ckpt, NULL, model, err);
}

dcpk_status dcpk_hf_scheme_to_model(struct dcpk_checkpoint *ckpt, const char *scheme,
                                    struct dcpk_model *model, struct dcpk_error *err)
{
    struct dcpk_hf_matching m = {.ckpt = ckpt, .scheme = scheme, .model = model};

    (void)matching_run(&m, err);
    dcpk_hf_names_release(&m.names);
    if (err->status != DCPK_OK) {
        dcpk_bytes_release(&m.faults.text);
        return err->status;
    }
    if (hf_put_state(&m, err) || dcpk_hf_put_command_line(model, err))
        return err->status;
    note_norms_read(&m);
    model->family = m.map->family;
    model->foreign = m.map->foreign;
    dcpk_checkpoint_note_once(ckpt, "the family is %s", model->family);
    return DCPK_OK;
}
