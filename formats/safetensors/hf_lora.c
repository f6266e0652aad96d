/* SPDX-License-Identifier: Apache-2.0 */
/* hf_lora.c - weights with an adapter (LoRA) merged into them, as views that are computed. */
#include <inttypes.h>
#include <string.h>

#include "formats/formats.h"
#include "formats/safetensors/hf_matching.h"
#include "formats/safetensors/hf_model.h"
#include "formats/safetensors/safetensors_header.h"
#include "lib/base/order.h"
#include "lib/base/text.h"

static const char reason_replaced[] = "the adapter has another in its place (modules_to_save)";
static const char reason_repeated[] = "repeats the embedding of the adapter, bit for bit";

/* The two matrices of a module; DCPK_NO_TENSOR: not there. */
struct lora_pair {
    struct dcpk_lora_factors of;
    bool is_embedding;
};

/* Everything while an adapter is merged. */
struct adapting {
    struct dcpk_hf_matching *m;
    struct dcpk_lora_config config;
    struct lora_pair *pairs; /* in the arena of the model */
    size_t n_pairs, n_merged, n_saved;
    struct dcpk_map pair_by_module;
    struct dcpk_lora_name first; /* whose adapter all are of */
    uint32_t tied[2];            /* whole tensors of an embedding and an output layer that are */
    const char *tied_names[2];   /* tied, or DCPK_NO_TENSOR; their names in the base */
};

/* ---- the base ---- */

/* The stored tensor of the base that a name of the adapter's is, or DCPK_NO_TENSOR. */
static uint32_t find_base(const struct adapting *a, const char *name)
{
    const char *absent = dcpk_hf_matching_absent_prefix(a->m);
    const uint32_t stored = dcpk_hf_matching_stored(a->m, name);

    if (stored != DCPK_NO_TENSOR || absent == NULL || !dcpk_starts_with(name, absent))
        return stored;
    return dcpk_hf_matching_stored(a->m, name + strlen(absent));
}

/* Floats of at most 4 bytes without scales. */
static bool lora_is_plain(const struct adapting *a, uint32_t stored)
{
    const struct dcpk_tensor *tensor = &a->m->ckpt->tensors[stored];

    return dcpk_dtype_is_float(tensor->dtype) && dcpk_dtype_bytes(tensor->dtype) >= 2 &&
           dcpk_dtype_bytes(tensor->dtype) <= sizeof(float) &&
           (stored >= a->m->ckpt->n_tensors || a->m->scaled[stored].view == DCPK_NO_TENSOR);
}

/* True where the adapter has a tensor of its own in the place of the base's: one of scales is
 * computed. */
static bool is_saved(const struct adapting *a, uint32_t base)
{
    const uint32_t view = a->m->scaled[base].view;

    return view != DCPK_NO_TENSOR && a->m->ckpt->tensors[view].computed == NULL;
}

static dcpk_status fail_shapes(const struct adapting *a, const struct lora_pair *pair,
                               uint32_t base, struct dcpk_error *err)
{
    const uint32_t parts[] = {pair->of.a, pair->of.b, base};
    const char *before = "";

    dcpk_fail(err, DCPK_EMISMATCH, "the adapter does not fit its base: ");
    for (size_t i = 0; i < DCPK_COUNT(parts); i++, before = ", ") {
        const struct dcpk_tensor *t = &a->m->ckpt->tensors[parts[i]];
        char shape[256];

        if (i > 0 && parts[i] == parts[i - 1])
            continue; /* a whole tensor */
        dcpk_append(err, "%s'%s' is %s %s", before, t->key, dcpk_dtype_name(t->dtype),
                    dcpk_shape_format(t->shape, t->rank, shape, sizeof shape));
    }
    return err->status;
}

/* True for a weight that is stored as [in, out]: PEFT uses the class of the module (peft 0.21.2,
 * tuners/lora/layer.py), and its file has the flag of the last one alone. */
static bool is_turned(const struct adapting *a, const char *name)
{
    const struct dcpk_hf_rules *rules = &a->m->map->layer;

    for (size_t i = 0; i < rules->n; i++)
        if (rules->list[i].n_ops > 0 && rules->list[i].ops[0] == DCPK_HF_TRANSPOSE &&
            dcpk_ends_with(name, rules->list[i].hf[0]))
            return true;
    return rules->n == 0 && a->config.is_turned;
}

/* The name in the base of what the adapter calls `name`: adapters of a class without an output
 * layer (LlamaModel) lack the beginning of the embedding's name. NULL for NULL. */
static const char *base_name(const struct adapting *a, const char *name, struct dcpk_error *err)
{
    const struct dcpk_hf_rules *rules = &a->m->map->top;
    const char *full = name;

    if (name == NULL || find_base(a, name) != DCPK_NO_TENSOR)
        return name;
    if (find_base(a, dcpk_hf_name_in_files(a->m, name)) != DCPK_NO_TENSOR)
        return dcpk_hf_name_in_files(a->m, name);
    for (size_t i = 0; i < rules->n && full == name; i++) {
        const char *first = rules->list[i].hf[0];

        if (strcmp(rules->list[i].mg, DCPK_HF_EMBEDDING) == 0 && strchr(first, '.') != NULL)
            full = dcpk_arena_printf(a->m->model->arena, err, "%.*s.%s",
                                     (int)(strchr(first, '.') - first), first, name);
    }
    if (full == NULL || find_base(a, full) != DCPK_NO_TENSOR)
        return full;
    return name;
}

/* The embedding or output layer, if that is the name of one; else NULL. */
static const char *vocabulary_parameter(const struct adapting *a, const char *name)
{
    const struct dcpk_hf_rules *rules = &a->m->map->top;

    for (size_t i = 0; i < rules->n; i++)
        if ((strcmp(rules->list[i].mg, DCPK_HF_EMBEDDING) == 0 ||
             strcmp(rules->list[i].mg, DCPK_HF_OUTPUT_LAYER) == 0) &&
            strcmp(rules->list[i].hf[0], name) == 0)
            return rules->list[i].mg;
    return NULL;
}

/* The same, if the base ties it to the other one. */
static const char *tied_parameter(const struct adapting *a, const char *name)
{
    const struct dcpk_value *attrs = dcpk_value_attrs(a->m->model->args);

    if (dcpk_value_is_true(attrs, "untie_embeddings_and_output_weights"))
        return NULL;
    return vocabulary_parameter(a, name);
}

static dcpk_status fail_tied(const char *name, struct dcpk_error *err)
{
    return dcpk_fail(err, DCPK_EUNSUPPORTED,
                     "the adapter changes '%s', and the base's embedding and output layer are "
                     "tied: PEFT would change one of them alone",
                     name);
}

/* PEFT changes one of two layers that are tied (peft 0.21.2, tied layers). */
static dcpk_status check_tied(const struct adapting *a, const char *name, struct dcpk_error *err)
{
    if (tied_parameter(a, name) != NULL)
        return fail_tied(name, err);
    if (a->m->map->top.n == 0 && strpbrk(name, "0123456789") == NULL)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "the adapter changes '%s', and no map knows whether the base ties it to "
                         "another layer: let PEFT merge it (merge_and_unload())",
                         name);
    return DCPK_OK;
}

/* The weight of a module, with the product of its matrices. */
static dcpk_status pair_merge(struct adapting *a, const struct lora_pair *pair,
                              struct dcpk_error *err)
{
    struct dcpk_checkpoint *ckpt = a->m->ckpt;
    const char *own = dcpk_arena_printf(a->m->model->arena, err, "%s.weight", pair->of.module);
    const char *name = base_name(a, own, err), *module = pair->of.module;
    struct dcpk_computed how = {.scales = DCPK_NO_SCALES,
                                .product = {.left = pair->of.b, .right = pair->of.a}};
    const struct dcpk_tensor *left, *right;
    struct dcpk_tensor weight;
    uint32_t base;
    int in;

    if (name == NULL || check_tied(a, name, err))
        return err->status;
    if (pair->of.a == DCPK_NO_TENSOR || pair->of.b == DCPK_NO_TENSOR)
        return dcpk_fail(err, DCPK_EMISMATCH, "the adapter has lora_%c of '%s' and no lora_%c",
                         pair->of.a == DCPK_NO_TENSOR ? 'B' : 'A', pair->of.module,
                         pair->of.a == DCPK_NO_TENSOR ? 'A' : 'B');
    base = find_base(a, name);
    if (base == DCPK_NO_TENSOR)
        return dcpk_fail(err, DCPK_EMISMATCH, "the base has no '%s', which the adapter changes",
                         name);
    how.values = base;
    if (is_saved(a, base))
        how.values = a->m->scaled[base].view;
    how.product.is_turned = pair->is_embedding || is_turned(a, name);
    in = !how.product.is_turned;
    weight = ckpt->tensors[how.values];
    left = &ckpt->tensors[pair->of.b];
    right = &ckpt->tensors[pair->of.a];
    if (weight.rank != 2 || left->rank != 2 || right->rank != 2 || !lora_is_plain(a, how.values) ||
        !lora_is_plain(a, pair->of.a) || !lora_is_plain(a, pair->of.b) ||
        right->shape[1] != weight.shape[in] || left->shape[0] != weight.shape[1 - in] ||
        left->shape[1] != right->shape[0])
        return fail_shapes(a, pair, base, err);
    if (how.product.is_turned) {
        how.product.left = pair->of.a;
        how.product.right = pair->of.b;
    }
    how.product.rank = right->shape[0];
    weight.dtype = DCPK_F32;
    weight.n_chunks = 0;
    if (dcpk_lora_targets(&a->config, own)) /* patterns are of the parameter */
        module = own;
    if (dcpk_lora_scale(&a->config, module, how.product.rank, &how.addend, err))
        return err->status;
    return dcpk_checkpoint_add_computed(ckpt, &weight, &how, &a->m->scaled[base].view, err);
}

/* The run had another number of tokens than its base: the adapter's counts. */
static dcpk_status vocabulary_resize(struct adapting *a, int64_t n_tokens, int64_t n_before,
                                     struct dcpk_error *err)
{
    struct dcpk_model *model = a->m->model;
    const struct dcpk_value *size = dcpk_value_int(model->arena, n_tokens, err);

    if (size == NULL || dcpk_model_put_arg(model, "vocab_size", size, err) ||
        dcpk_model_put_arg(model, "padded_vocab_size", size, err))
        return err->status;
    dcpk_checkpoint_note_once(a->m->ckpt,
                              "the vocabulary has %" PRId64 " rows, as the adapter's tensors have; "
                              "the base's has %" PRId64,
                              n_tokens, n_before);
    return DCPK_OK;
}

/* Some tensors are in the file under several names. */
static dcpk_status check_same(const struct adapting *a, uint32_t first, uint32_t second,
                              struct dcpk_error *err)
{
    bool is_same;

    if (dcpk_hf_same_bytes(a->m->ckpt, first, second, &is_same, err) || is_same)
        return err->status;
    return dcpk_fail(err, DCPK_EMISMATCH,
                     "'%s' and '%s' of the adapter differ, and the base has one tensor for both",
                     a->m->ckpt->tensors[first].key, a->m->ckpt->tensors[second].key);
}

/* A whole tensor of the adapter in the place of the base's `name`. */
static dcpk_status saved_replace(struct adapting *a, const char *name, uint32_t tensor,
                                 struct dcpk_error *err)
{
    struct dcpk_checkpoint *ckpt = a->m->ckpt;
    const uint32_t base = find_base(a, name);
    const struct dcpk_tensor *t = &ckpt->tensors[tensor], *b;
    bool is_resized;

    if (base == DCPK_NO_TENSOR)
        return dcpk_fail(err, DCPK_EMISMATCH, "the base has no '%s', which the adapter replaces",
                         name);
    if (is_saved(a, base))
        return check_same(a, a->m->scaled[base].view, tensor, err);
    b = &ckpt->tensors[base];
    is_resized = vocabulary_parameter(a, name) != NULL && t->rank == 2 && b->rank == 2 &&
                 t->shape[1] == b->shape[1] && t->shape[0] != b->shape[0];
    if ((!is_resized && !dcpk_shape_equal(t->shape, t->rank, b->shape, b->rank)) ||
        !lora_is_plain(a, tensor) || !lora_is_plain(a, base))
        return fail_shapes(a, &(struct lora_pair){{NULL, tensor, tensor}, false}, base, err);
    if (is_resized && vocabulary_resize(a, t->shape[0], b->shape[0], err))
        return err->status;
    a->m->scaled[base].view = tensor;
    a->n_saved++;
    dcpk_model_omit(a->m->model, b->key, reason_replaced);
    return DCPK_OK;
}

/* Whole tensors of two layers that are tied: both are there, and equal to the bit. */
static dcpk_status tied_put(struct adapting *a, const char *name, uint32_t tensor,
                            struct dcpk_error *err)
{
    const int layer = strcmp(tied_parameter(a, name), DCPK_HF_EMBEDDING) != 0;
    uint32_t copy;

    for (int i = 0; i < 2; i++)
        if (a->tied[i] != DCPK_NO_TENSOR && check_same(a, a->tied[i], tensor, err))
            return err->status;
    if (a->tied[layer] != DCPK_NO_TENSOR)
        return DCPK_OK;
    a->tied[layer] = tensor;
    a->tied_names[layer] = name;
    if (a->tied[1 - layer] == DCPK_NO_TENSOR)
        return DCPK_OK;
    copy = find_base(a, a->tied_names[1]);
    if (copy != DCPK_NO_TENSOR) { /* the base's file need not have it */
        a->m->is_taken[copy] = true;
        dcpk_model_omit(a->m->model, a->m->ckpt->tensors[copy].key, reason_replaced);
    }
    dcpk_model_omit(a->m->model, a->m->ckpt->tensors[a->tied[1]].key, reason_repeated);
    return saved_replace(a, a->tied_names[0], a->tied[0], err);
}

static dcpk_status saved_put(struct adapting *a, const char *name, uint32_t tensor,
                             struct dcpk_error *err)
{
    name = base_name(a, name, err);
    if (name == NULL)
        return err->status;
    if (tied_parameter(a, name) != NULL)
        return tied_put(a, name, tensor, err);
    if (check_tied(a, name, err))
        return err->status;
    return saved_replace(a, name, tensor, err);
}

/* ---- the adapter ---- */

static dcpk_status pair_put(struct adapting *a, const char *key, const struct dcpk_lora_name *name,
                            uint32_t tensor, struct dcpk_error *err)
{
    const char *module = dcpk_arena_strndup(a->m->model->arena, key, name->n_module, err);
    struct lora_pair *pair;
    bool existed = false;
    uint64_t i = a->n_pairs;
    uint32_t *part;

    if (module == NULL ||
        dcpk_map_put(&a->pair_by_module, module, name->n_module, a->n_pairs, &existed, &i, err))
        return err->status;
    pair = &a->pairs[existed ? i : a->n_pairs++];
    if (!existed)
        *pair = (struct lora_pair){{module, DCPK_NO_TENSOR, DCPK_NO_TENSOR}, name->is_embedding};
    if (pair->is_embedding != name->is_embedding)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "'%s' is not a key that PEFT saves of '%s'",
                         a->m->ckpt->tensors[tensor].key, module);
    part = name->part == DCPK_LORA_A ? &pair->of.a : &pair->of.b;
    if (*part != DCPK_NO_TENSOR)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "'%s' and '%s' are both of '%s'",
                         a->m->ckpt->tensors[*part].key, a->m->ckpt->tensors[tensor].key, module);
    *part = tensor;
    return DCPK_OK;
}

/* A tensor of the adapter; key: as a name of the base's has its beginning. */
static dcpk_status part_take(struct adapting *a, const char *key, uint32_t tensor,
                             struct dcpk_error *err)
{
    struct dcpk_lora_name name;

    dcpk_lora_name_parse(key, &name);
    if (name.part == DCPK_LORA_OTHER)
        return dcpk_fail(
            err, DCPK_EUNSUPPORTED,
            "'%s' belongs to an adapter that is not plain LoRA; only such is converted "
            "(PEFT merges others: merge_and_unload())",
            a->m->ckpt->tensors[tensor].key);
    if (name.part < DCPK_LORA_SAVED)
        return pair_put(a, key, &name, tensor, err);
    key = dcpk_arena_printf(a->m->model->arena, err, "%.*s%s%s", (int)name.n_module, key,
                            dcpk_joint(*name.rest != '\0', "."), name.rest);
    if (key != NULL)
        key = dcpk_hf_unwrap(a->m->model->arena, key, err);
    if (key == NULL)
        return err->status;
    return saved_put(a, key, tensor, err);
}

/* A tensor of a checkpoint of its own, as a view: of PEFT's folder, or of a run. */
static dcpk_status take_other(struct adapting *a, const struct dcpk_tensor *tensor,
                              uint32_t first_file, struct dcpk_error *err)
{
    struct dcpk_checkpoint *ckpt = a->m->ckpt;
    const bool is_run = ckpt->adapter->format != &dcpk_format_peft;
    const char *key = tensor->key, *at;
    struct dcpk_lora_name name;
    uint32_t index;

    if (is_run && strstr(key, ".state.") != NULL)
        return DCPK_OK; /* of the optimizer */
    if (is_run)
        key = dcpk_hf_unwrap(ckpt->arena, key, err);
    if (key == NULL)
        return err->status;
    at = strstr(key, DCPK_PEFT_PREFIX);
    if (at == NULL || (at > key && !is_run))
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "'%s' of the adapter does not begin with '" DCPK_PEFT_PREFIX "'", key);
    at += strlen(DCPK_PEFT_PREFIX);
    if (!is_run && strstr(at, ".original_module.") != NULL) {
        dcpk_checkpoint_note_once(ckpt,
                                  "'%s' of the adapter is left out: it is of the base, and "
                                  "the adapter has another in its place",
                                  tensor->key);
        return DCPK_OK;
    }
    dcpk_lora_name_parse(at, &name);
    if (is_run && name.part == DCPK_LORA_BASE)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "'%s' belongs to a base in the adapter's own checkpoint: convert that "
                         "without another base",
                         tensor->key);
    if (((is_run || name.part < DCPK_LORA_SAVED) && dcpk_lora_check_one(&a->first, &name, err)) ||
        dcpk_checkpoint_add_stored_view(ckpt, tensor, first_file, &index, err))
        return err->status;
    return part_take(a, at, index, err);
}

static dcpk_status take_others(struct adapting *a, struct dcpk_error *err)
{
    struct dcpk_checkpoint *ckpt = a->m->ckpt, *from = ckpt->adapter;
    const uint32_t first_file = (uint32_t)ckpt->n_files;
    uint32_t file;

    if (from->format != &dcpk_format_peft && dcpk_lora_find(from) == NULL)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "there is no " DCPK_PEFT_FILE
                         ", which PEFT's save_pretrained() writes, and "
                         "no tensor of an adapter (lora_A)");
    if (dcpk_lora_config_read(ckpt, from->store, DCPK_PEFT_FILE, &a->config, err))
        return err->status;
    for (size_t i = 0; i < from->n_files; i++)
        if (dcpk_checkpoint_add_file(ckpt, from->files[i], &file, err))
            return err->status;
    a->pairs = dcpk_arena_array(a->m->model->arena, from->n_tensors, sizeof *a->pairs, err);
    for (size_t t = 0; a->pairs != NULL && t < from->n_tensors; t++)
        if (take_other(a, &from->tensors[t], first_file, err))
            return err->status;
    return err->status;
}

/* Takes a tensor out of a model's if it belongs to the adapter of a run. *key: its name there, with
 * PEFT's name of the adapter. */
static bool leave_model(struct dcpk_hf_matching *m, uint32_t t, const char **key,
                        struct dcpk_lora_name *name)
{
    *key = dcpk_hf_matching_name(m, t);
    if (*key == NULL)
        return false;
    dcpk_lora_name_parse(*key, name);
    if (name->part == DCPK_LORA_BASE)
        return false;
    m->is_taken[t] = true;
    m->names.list[t] = NULL; /* no name of the model */
    return true;
}

/* Those of the checkpoint of a run. */
static dcpk_status take_own(struct adapting *a, struct dcpk_error *err)
{
    struct dcpk_hf_matching *m = a->m;

    a->pairs = dcpk_arena_array(m->model->arena, m->ckpt->n_tensors, sizeof *a->pairs, err);
    for (uint32_t t = 0; a->pairs != NULL && t < m->ckpt->n_tensors; t++) {
        struct dcpk_lora_name name;
        const char *key;

        if (leave_model(m, t, &key, &name) &&
            (dcpk_lora_check_one(&a->first, &name, err) || part_take(a, key, t, err)))
            return err->status;
    }
    return err->status;
}

static dcpk_status take_adapter(struct adapting *a, struct dcpk_error *err)
{
    struct dcpk_checkpoint *ckpt = a->m->ckpt;
    const struct dcpk_tensor *own = dcpk_lora_find(ckpt);

    if (ckpt->given.lora.adapter != NULL) {
        if (take_others(a, err))
            dcpk_context(err, "the adapter '%s'", ckpt->given.lora.adapter);
        return err->status;
    }
    if (own == NULL || a->m->names.list == NULL)
        return dcpk_fail_fix(err, DCPK_EUSAGE, DCPK_FIX_LORA,
                             "the checkpoint has no tensors of an adapter (lora_A)");
    if (dcpk_lora_config_read(ckpt, ckpt->store, own->key, &a->config, err))
        return err->status;
    return take_own(a, err);
}

/* Tensors of an adapter that goes along are not tensors of the base. */
static void leave_adapter(struct dcpk_hf_matching *m)
{
    for (uint32_t t = 0; m->names.list != NULL && t < m->ckpt->n_tensors; t++) {
        struct dcpk_lora_name name;
        const char *key;

        if (leave_model(m, t, &key, &name))
            dcpk_model_carry(m->model, m->ckpt->tensors[t].key);
    }
}

dcpk_status dcpk_hf_lora_merge(struct dcpk_hf_matching *m, struct dcpk_error *err)
{
    struct adapting a = {.m = m, .tied = {DCPK_NO_TENSOR, DCPK_NO_TENSOR}};

    if (m->ckpt->given.lora.goes_along && dcpk_lora_find(m->ckpt) != NULL)
        leave_adapter(m);
    if (!m->ckpt->given.lora.merges)
        return DCPK_OK;
    if (take_adapter(&a, err) == DCPK_OK && a.n_pairs == 0)
        (void)dcpk_fail(err, DCPK_EUNSUPPORTED, "the adapter has no lora_A");
    if (err->status == DCPK_OK && a.tied[0] != a.tied[1])
        for (int i = 0; i < 2; i++)
            if (a.tied[1 - i] == DCPK_NO_TENSOR)
                (void)fail_tied(a.tied_names[i], err);
    for (size_t i = 0; i < a.n_pairs && err->status == DCPK_OK; i++) {
        size_t n_merged = 0;

        if (dcpk_hf_lora_experts(m, &a.config, &a.pairs[i].of, &n_merged, err) == DCPK_OK &&
            n_merged == 0 && pair_merge(&a, &a.pairs[i], err) == DCPK_OK)
            n_merged = 1;
        a.n_merged += n_merged;
    }
    if (err->status == DCPK_OK)
        dcpk_checkpoint_note_once(
            m->ckpt,
            "the LoRA adapter in '%s' is merged: weights changed in float32 and rounded once: "
            "%zu; tensors taken from the adapter: %zu",
            dcpk_text_or(m->ckpt->given.lora.adapter, dcpk_store_path(m->ckpt->store)), a.n_merged,
            a.n_saved);
    dcpk_map_release(&a.pair_by_module);
    dcpk_lora_config_release(&a.config);
    return err->status;
}
