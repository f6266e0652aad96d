/* SPDX-License-Identifier: Apache-2.0 */
/* hf_names.c - keys of PyTorch's trainers as names of a map: without prefix and wrappers. */
#include "formats/safetensors/hf_model.h"

#include <string.h>

#include "lib/base/order.h"
#include "lib/base/text.h"

/* Sources: torch 2.11 _dynamo/eval_frame.py, distributed/fsdp/_common_utils.py,
 * distributed/algorithms/_checkpoint/checkpoint_wrapper.py; fairscale's FlattenParamsWrapper; peft
 * 0.21.2 tuners/tuners_utils.py, utils/other.py (a module below its adapter). */
static const char *const wrappers[] = {
    "_orig_mod.",    "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.",
    "_fpw_module.",  "base_layer.",           "original_module.",
    "token_adapter."};

/* First modules of keys of other state, where those of the model have no prefix. Sources:
 * torchtitan 0.3.0 (components/checkpoint.py), accelerate 1.15, prime-rl and what users call
 * theirs. */
static const char *const others[] = {"optim",         "optimizer", "optimizers", "lr_scheduler",
                                     "lr_schedulers", "scheduler", "schedulers", "train_state",
                                     "dataloader",    "progress",  "rng",        "rng_state",
                                     "rng_states",    "step"};

static const char reason_state[] = "optimizer state of an unknown parameter, or of a kind that is "
                                   "not one of Adam's: its two moments and the step";
static const char reason_merged[] = "optimizer state of weights as they were without the adapter";
static const char reason_run[] = "training state that other trainers do not have";
static const char state_joint[] = ".state.";

/* The bytes of the wrapper that begins there; 0: none. */
static size_t wrapper_bytes(const char *at)
{
    for (size_t i = 0; i < DCPK_COUNT(wrappers); i++)
        if (dcpk_starts_with(at, wrappers[i]))
            return strlen(wrappers[i]);
    return 0;
}

const char *dcpk_hf_unwrap(struct dcpk_arena *arena, const char *key, struct dcpk_error *err)
{
    char *name = dcpk_arena_alloc(arena, strlen(key) + 1, err);
    bool begins = true;
    size_t n = 0;

    if (name == NULL)
        return NULL;
    while (*key != '\0') {
        const size_t n_wrapper = begins ? wrapper_bytes(key) : 0;

        if (n_wrapper > 0) {
            key += n_wrapper;
            continue;
        }
        begins = *key == '.';
        name[n++] = *key++;
    }
    return name;
}

/* `at`, or the place of the first of the wrappers that end there. */
static const char *before_wrappers(const char *key, const char *at)
{
    for (size_t i = 0; i < DCPK_COUNT(wrappers); i++) {
        const size_t n = strlen(wrappers[i]);

        if ((size_t)(at - key) > n && at[-(ptrdiff_t)n - 1] == '.' &&
            strncmp(at - n, wrappers[i], n) == 0)
            return before_wrappers(key, at - n);
    }
    return at;
}

const char *dcpk_hf_name_in(const char *key, const char *name)
{
    const size_t n_leaf = strlen(strrchr(name, '.')) - 1, n_module = strlen(name) - n_leaf;
    const char *at = key + strlen(key) - dcpk_min_size(strlen(key), n_leaf);

    if (strcmp(at, name + n_module) != 0 || strstr(key, ".state.") != NULL)
        return NULL;
    at = before_wrappers(key, at);
    if ((size_t)(at - key) < n_module || strncmp(at - n_module, name, n_module) != 0)
        return NULL;
    at -= n_module;
    if (at > key && at[-1] != '.')
        return NULL;
    return at;
}

/* Keys as names while the prefix is looked for. */
struct naming {
    struct dcpk_checkpoint *ckpt;
    const char **list; /* keys without wrappers, then names */
    const char *prefix;
    size_t n_wrapped;
};

/* Also of an optimizer that has a name of its own: "optim_ema.state.<...>". */
static bool begins_other(const char *name)
{
    if (dcpk_starts_with(name, "optim") &&
        (strstr(name, state_joint) != NULL || strstr(name, ".param_groups.") != NULL))
        return true;
    for (size_t i = 0; i < DCPK_COUNT(others); i++) {
        const size_t n = strlen(others[i]);

        if (strncmp(name, others[i], n) == 0 && (name[n] == '.' || name[n] == '\0'))
            return true;
    }
    return false;
}

static bool is_other(const struct naming *n, const char *name)
{
    return !dcpk_starts_with(name, n->prefix) || (n->prefix[0] == '\0' && begins_other(name));
}

static dcpk_status unwrap_all(struct naming *n, struct dcpk_arena *arena, struct dcpk_error *err)
{
    for (size_t t = 0; t < n->ckpt->n_tensors; t++) {
        const char *key = n->ckpt->tensors[t].key;

        if (dcpk_checkpoint_tensor_left_out(n->ckpt, t) != NULL)
            continue;
        n->list[t] = dcpk_hf_unwrap(arena, key, err);
        if (n->list[t] == NULL)
            return err->status;
        n->n_wrapped += strcmp(n->list[t], key) != 0;
    }
    return DCPK_OK;
}

/* The part before the embedding's name in the one key that ends with it. */
static dcpk_status find_prefix(struct naming *n, struct dcpk_arena *arena, const char *embedding,
                               struct dcpk_error *err)
{
    const char *found = NULL;

    for (size_t t = 0; t < n->ckpt->n_tensors; t++) {
        const char *at = n->list[t] == NULL ? NULL : dcpk_hf_name_in(n->list[t], embedding);

        if (at == NULL)
            continue;
        if (found != NULL)
            return dcpk_fail_fix(err, DCPK_EUNSUPPORTED, DCPK_FIX_PREFIX | DCPK_FIX_DROP,
                                 "'%s' and '%s' are both the embedding of a model", found,
                                 n->ckpt->tensors[t].key);
        found = n->ckpt->tensors[t].key;
        n->prefix = dcpk_arena_strndup(arena, n->list[t], (size_t)(at - n->list[t]), err);
        if (n->prefix == NULL)
            return err->status;
    }
    if (found == NULL && dcpk_lora_find(n->ckpt) != NULL)
        return dcpk_fail_fix(err, DCPK_EUNSUPPORTED, DCPK_FIX_LORA,
                             "the checkpoint holds an adapter (LoRA) without its model: no key "
                             "ends with '%s', the embedding",
                             embedding);
    if (found == NULL)
        return dcpk_fail(err, DCPK_EMISMATCH, "no key ends with '%s', the embedding by config.json",
                         embedding);
    return DCPK_OK;
}

/* True for keys that trainers keep next to those of a model, at the top or one module below. */
static bool is_of_run(const char *name)
{
    const char *below = strchr(name, '.');

    return begins_other(name) || (below != NULL && begins_other(below + 1)) ||
           strstr(name, state_joint) != NULL;
}

/* The modules that all keys begin with, where the output layer is below them: of a model that no
 * map describes. */
static dcpk_status find_any_prefix(struct naming *n, struct dcpk_arena *arena,
                                   struct dcpk_error *err)
{
    const char *first = NULL;
    size_t n_same = 0, n_head = SIZE_MAX; /* bytes before the output layer */

    for (size_t t = 0; t < n->ckpt->n_tensors; t++) {
        const char *name = n->list[t], *head;
        size_t i = 0, n_dot = 0;

        if (name == NULL || is_of_run(name))
            continue;
        if (first == NULL) {
            first = name;
            n_same = strlen(name);
        }
        for (; i < n_same && name[i] == first[i]; i++)
            if (name[i] == '.')
                n_dot = i + 1;
        n_same = n_dot;
        head = dcpk_hf_name_in(name, "lm_head.weight");
        if (head == NULL) /* of a critic or reward model */
            head = dcpk_hf_name_in(name, "score.weight");
        if (head != NULL && (size_t)(head - name) < n_head)
            n_head = (size_t)(head - name);
    }
    n->prefix = dcpk_arena_strndup(arena, dcpk_text_or(first, ""), n_same, err);
    if (n->prefix == NULL || n_same == 0 || n_head == n_same)
        return err->status;
    return dcpk_fail_fix(err, DCPK_EUNSUPPORTED, DCPK_FIX_PREFIX,
                         "all keys begin with '%s', without an lm_head.weight or score.weight "
                         "next: it may be a prefix, or the model's own name",
                         n->prefix);
}

static dcpk_status put_name(const struct naming *n, size_t t, const char *name,
                            struct dcpk_map *by_name, struct dcpk_error *err)
{
    uint64_t first = 0;
    bool existed = false;

    if (dcpk_map_put(by_name, name, strlen(name), t, &existed, &first, err))
        return err->status;
    if (existed)
        return dcpk_fail_fix(err, DCPK_EUNSUPPORTED, DCPK_FIX_DROP,
                             "'%s' and '%s' are one tensor of the model, '%s'",
                             n->ckpt->tensors[first].key, n->ckpt->tensors[t].key, name);
    return DCPK_OK;
}

/* A tensor of the optimizer's: whose, and which state. */
static dcpk_status put_state(const struct naming *n, size_t t, struct dcpk_hf_names *names,
                             struct dcpk_arena *arena, struct dcpk_error *err)
{
    const char *name = n->list[t], *at = strstr(name, state_joint);
    const char *given = n->ckpt->given.state_prefix;
    const size_t n_prefix = at == NULL ? 0 : (size_t)(at - name);

    if (at == NULL ||
        (given != NULL && (strlen(given) != n_prefix || strncmp(given, name, n_prefix) != 0)))
        return DCPK_OK;
    if (names->state_prefix == NULL)
        names->state_prefix = dcpk_arena_strndup(arena, name, n_prefix, err);
    if (names->state_prefix == NULL)
        return err->status;
    if (strlen(names->state_prefix) != n_prefix ||
        strncmp(names->state_prefix, name, n_prefix) != 0) {
        names->other_state = n->ckpt->tensors[t].key;
        return DCPK_OK;
    }
    return put_name(n, t, at + strlen(state_joint), &names->states, err);
}

dcpk_status dcpk_hf_names_find(struct dcpk_checkpoint *ckpt, struct dcpk_arena *arena,
                               const char *embedding, struct dcpk_hf_names *names,
                               struct dcpk_error *err)
{
    const char *given = ckpt->given.model_prefix;
    struct naming n = {.ckpt = ckpt};

    n.list = dcpk_arena_array(arena, ckpt->n_tensors, sizeof *n.list, err);
    if (n.list == NULL || unwrap_all(&n, arena, err))
        return err->status;
    if (given != NULL)
        n.prefix = dcpk_arena_printf(arena, err, "%s%s", given, *given == '\0' ? "" : ".");
    else if (embedding == NULL)
        (void)find_any_prefix(&n, arena, err);
    else
        (void)find_prefix(&n, arena, embedding, err);
    if (err->status != DCPK_OK || n.prefix == NULL)
        return err->status;
    for (size_t t = 0; t < ckpt->n_tensors; t++) {
        if (n.list[t] == NULL)
            continue;
        if (is_other(&n, n.list[t])) {
            if (put_state(&n, t, names, arena, err))
                return err->status;
            n.list[t] = NULL;
            continue;
        }
        n.list[t] += strlen(n.prefix);
        if (put_name(&n, t, n.list[t], &names->by_name, err))
            return err->status;
    }
    if (n.n_wrapped > 0)
        dcpk_checkpoint_note_once(ckpt,
                                  "%zu keys name wrappers of modules ('_orig_mod', "
                                  "'_fsdp_wrapped_module', ...), which are not part of the names",
                                  n.n_wrapped);
    names->list = n.list;
    return DCPK_OK;
}

void dcpk_hf_names_release(struct dcpk_hf_names *names)
{
    dcpk_map_release(&names->by_name);
    dcpk_map_release(&names->states);
}

/* Optimizer state or any other. Returns true for the first. */
static bool leave(struct dcpk_model *model, const char *key)
{
    const bool is_state = strstr(key, "optim") != NULL;
    const char *reason = is_state ? reason_state : reason_run;

    if (is_state && model->ckpt->given.lora.merges)
        reason = reason_merged;
    if ((model->flags & DCPK_MODEL_WEIGHTS_ONLY) != 0)
        dcpk_model_omit(model, key, is_state ? dcpk_reason_weights_only : reason);
    else
        dcpk_model_drop(model, key, reason);
    return is_state;
}

void dcpk_hf_names_leave(const struct dcpk_hf_names *names, struct dcpk_model *model,
                         const bool *is_taken, const bool *is_object_taken)
{
    struct dcpk_checkpoint *ckpt = model->ckpt;
    size_t n_tensors = 0, n_objects = 0, n = 0; /* of optimizers; of all */

    for (size_t t = 0; t < ckpt->n_tensors; t++)
        if (names->list[t] == NULL && !is_taken[t] &&
            dcpk_checkpoint_tensor_left_out(ckpt, t) == NULL) {
            n_tensors += leave(model, ckpt->tensors[t].key);
            n++;
        }
    for (size_t i = 0; i < ckpt->n_objects; i++)
        if (!is_object_taken[i] && dcpk_checkpoint_object_left_out(ckpt, i) == NULL) {
            n_objects += leave(model, ckpt->objects[i].key);
            n++;
        }
    if (n > 0)
        dcpk_checkpoint_note_once(ckpt,
                                  "%sleft out: %zu tensors and %zu objects of optimizers, %zu keys "
                                  "of other training state (schedulers, RNG, data)",
                                  model->has_optimizer ? "" : "only weights are converted; ",
                                  n_tensors, n_objects, n - n_tensors - n_objects);
}
