/* SPDX-License-Identifier: Apache-2.0 */
/* peft_check.c - whether the matrices of an adapter fit each other and its configuration. */
#include <inttypes.h>
#include <string.h>

#include "formats/safetensors/hf_config_priv.h"
#include "formats/safetensors/hf_model.h"
#include "lib/base/alloc.h"
#include "lib/base/text.h"

/* The two matrices of a module; NULL: not there. */
struct checked_pair {
    const struct dcpk_tensor *a, *b;
    const char *module; /* its name in the base */
    bool is_embedding;
};

struct adapter_check {
    struct dcpk_arena *arena;
    struct dcpk_lora_config config;
    bool is_plain; /* the configuration is that of plain LoRA */
    struct checked_pair *pairs;
    size_t n_pairs, n_saved;
    struct dcpk_map pair_by_module;
    struct dcpk_hf_faults faults;
};

static dcpk_status take_matrix(struct adapter_check *c, const struct dcpk_tensor *tensor,
                               const struct dcpk_lora_name *name, const char *key,
                               struct dcpk_error *err)
{
    const struct dcpk_tensor **part;
    uint64_t i = c->n_pairs;
    bool existed = false;

    if (dcpk_map_put(&c->pair_by_module, key, name->n_module, c->n_pairs, &existed, &i, err))
        return err->status;
    if (!existed) {
        c->pairs[c->n_pairs] =
            (struct checked_pair){.module = dcpk_arena_strndup(c->arena, key, name->n_module, err),
                                  .is_embedding = name->is_embedding};
        if (c->pairs[c->n_pairs++].module == NULL)
            return err->status;
    }
    if (name->adapter != NULL || name->is_embedding != c->pairs[i].is_embedding)
        return dcpk_hf_fault(&c->faults, DCPK_EMISMATCH,
                             "'%s' is not a key that PEFT saves of '%s'", tensor->key,
                             c->pairs[i].module);
    part = name->part == DCPK_LORA_A ? &c->pairs[i].a : &c->pairs[i].b;
    if (*part != NULL)
        return dcpk_hf_fault(&c->faults, DCPK_EMISMATCH, "'%s' and '%s' are both of '%s'",
                             (*part)->key, tensor->key, c->pairs[i].module);
    *part = tensor;
    return DCPK_OK;
}

static dcpk_status take_tensor(struct adapter_check *c, const struct dcpk_tensor *tensor,
                               struct dcpk_error *err)
{
    const char *key = tensor->key;
    struct dcpk_lora_name name;

    if (!dcpk_starts_with(key, DCPK_PEFT_PREFIX))
        return dcpk_hf_fault(&c->faults, DCPK_EMISMATCH,
                             "'%s' does not begin with '" DCPK_PEFT_PREFIX "'", key);
    key += strlen(DCPK_PEFT_PREFIX);
    dcpk_lora_name_parse(key, &name);
    if (name.part < DCPK_LORA_SAVED)
        return take_matrix(c, tensor, &name, key, err);
    if (name.part == DCPK_LORA_OTHER && c->is_plain)
        return dcpk_hf_fault(&c->faults, DCPK_EUNSUPPORTED,
                             "'%s' is of an adapter that is not plain LoRA", tensor->key);
    c->n_saved += name.part != DCPK_LORA_OTHER;
    return DCPK_OK;
}

/* False, with a fault, for a tensor that is not a matrix. */
static bool is_matrix(struct adapter_check *c, const struct dcpk_tensor *tensor)
{
    char shape[256];

    if (tensor->rank == 2 && dcpk_dtype_is_float(tensor->dtype))
        return true;
    dcpk_hf_fault(&c->faults, tensor->rank > 2 ? DCPK_EUNSUPPORTED : DCPK_EMISMATCH,
                  "'%s' is %s %s, and not a matrix of floats", tensor->key,
                  dcpk_dtype_name(tensor->dtype),
                  dcpk_shape_format(tensor->shape, tensor->rank, shape, sizeof shape));
    return false;
}

/* lora_A is [rank, in], lora_B [out, rank] (peft 0.21.2, tuners/lora/layer.py). */
static dcpk_status check_pair(struct adapter_check *c, const struct checked_pair *pair,
                              struct dcpk_error *err)
{
    float scale;

    if (pair->a == NULL && pair->b == NULL)
        return DCPK_OK; /* its keys are faults already */
    if (pair->a == NULL || pair->b == NULL)
        return dcpk_hf_fault(&c->faults, DCPK_EMISMATCH, "'%s' has lora_%c and no lora_%c",
                             pair->module, pair->a == NULL ? 'B' : 'A',
                             pair->a == NULL ? 'A' : 'B');
    if (!is_matrix(c, pair->a) || !is_matrix(c, pair->b))
        return DCPK_OK;
    if (pair->a->shape[0] != pair->b->shape[1])
        return dcpk_hf_fault(&c->faults, DCPK_EMISMATCH,
                             "'%s' has rank %" PRId64 " by lora_A and %" PRId64 " by lora_B",
                             pair->module, pair->a->shape[0], pair->b->shape[1]);
    if (!c->is_plain ||
        dcpk_lora_scale(&c->config, pair->module, pair->a->shape[0], &scale, err) == DCPK_OK)
        return DCPK_OK;
    if (!dcpk_status_is_content(err->status))
        return err->status;
    dcpk_hf_fault(&c->faults, err->status, "%s", err->text);
    dcpk_error_clear(err);
    return DCPK_OK;
}

static dcpk_status check_tensors(struct adapter_check *c, struct dcpk_checkpoint *ckpt,
                                 struct dcpk_error *err)
{
    c->pairs = dcpk_arena_array(c->arena, ckpt->n_tensors, sizeof *c->pairs, err);
    if (c->pairs == NULL)
        return err->status;
    for (size_t t = 0; t < ckpt->n_tensors; t++)
        if (take_tensor(c, &ckpt->tensors[t], err))
            return err->status;
    for (size_t i = 0; i < c->n_pairs; i++)
        if (check_pair(c, &c->pairs[i], err))
            return err->status;
    if (c->n_pairs == 0)
        dcpk_hf_fault(&c->faults, c->n_saved == 0 ? DCPK_EMISMATCH : DCPK_EUNSUPPORTED,
                      "there is no lora_A and no lora_B");
    return dcpk_hf_faults_end(&c->faults, err);
}

dcpk_status dcpk_peft_check(struct dcpk_checkpoint *ckpt, const char **found,
                            struct dcpk_error *err)
{
    struct adapter_check c = {.arena = dcpk_arena_new()};
    struct dcpk_error other_kind = DCPK_ERROR_INIT;
    const struct dcpk_json *targets;

    c.is_plain =
        dcpk_lora_config_read(ckpt, ckpt->store, DCPK_PEFT_FILE, &c.config, &other_kind) == DCPK_OK;
    /* verl's configuration has no peft_type */
    if ((c.is_plain || other_kind.status == DCPK_EUNSUPPORTED) &&
        dcpk_json_member(c.config.doc, "peft_type") == NULL)
        dcpk_fail(&other_kind, DCPK_EMISMATCH,
                  "there is no " DCPK_PEFT_CONFIG
                  " with \"peft_type\", without which PEFT does not load it");
    targets = dcpk_json_member(c.config.doc, DCPK_LORA_TARGETS);
    if (other_kind.status == DCPK_OK && targets != NULL && dcpk_json_first(targets) != NULL) {
        c.is_plain = false;
        dcpk_fail(&other_kind, DCPK_EUNSUPPORTED,
                  "\"" DCPK_LORA_TARGETS "\" is set: such ranks depend on the base's experts");
    }
    if (check_tensors(&c, ckpt, err) == DCPK_OK)
        *err = other_kind;
    if (err->status == DCPK_OK)
        *found = "each lora_A has its lora_B, and their ranks are those of " DCPK_PEFT_CONFIG;
    dcpk_lora_config_release(&c.config);
    dcpk_map_release(&c.pair_by_module);
    dcpk_bytes_release(&c.faults.text);
    dcpk_arena_free(c.arena);
    return err->status;
}
