/* SPDX-License-Identifier: Apache-2.0 */
/* resume_fit.c - checks that a checkpoint holds everything that a model asks for. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/train/resume.h"

#define MAX_NAMED 3

/* The reaction to a difference. */
enum verdict { IGNORED, NOTED, REFUSED };

static const struct strictness {
    const char *name;
    enum verdict run_alone, checkpoint_alone;
} strictnesses[] = {
    {"assume_ok_unexpected", REFUSED, IGNORED},
    {"raise_unexpected", REFUSED, IGNORED},
    {"raise_all", REFUSED, REFUSED},
    {"log_unexpected", NOTED, IGNORED},
    {"log_all", NOTED, NOTED},
    {"return_unexpected", NOTED, IGNORED},
    {"return_all", NOTED, NOTED},
    {"ignore_all", IGNORED, IGNORED},
};

/* Differences so far. */
struct fitting {
    const struct strictness *by;
    struct dcpk_bytes *notes;
    struct dcpk_bytes refused; /* the first three */
    uint64_t n_refused;
    bool is_state; /* optimizer state is among them */
};

/* NULL: there is none of that name. */
static const struct strictness *strictness_named(const char *name)
{
    if (name == NULL)
        return &strictnesses[0];
    for (size_t i = 0; i < DCPK_COUNT(strictnesses); i++)
        if (strcmp(strictnesses[i].name, name) == 0)
            return &strictnesses[i];
    return NULL;
}

bool dcpk_resume_keeps(const char *strictness)
{
    const struct strictness *by = strictness_named(strictness);

    return by != NULL && by->run_alone != REFUSED;
}

static dcpk_status find_strictness(const char *name, const struct strictness **found,
                                   struct dcpk_error *err)
{
    *found = strictness_named(name);
    if (*found != NULL)
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EUSAGE,
                     "'%s' is not a strictness: they are assume_ok_unexpected, log_unexpected, "
                     "log_all, raise_unexpected, raise_all, return_unexpected, return_all, "
                     "ignore_all",
                     name);
}

static void fitting_add(struct fitting *f, enum verdict verdict, const char *sentence)
{
    if (verdict == NOTED)
        dcpk_bytes_printf(f->notes, "%s\n", sentence);
    if (verdict != REFUSED)
        return;
    if (f->n_refused < MAX_NAMED)
        dcpk_bytes_printf(&f->refused, "%s%s", dcpk_joint(f->n_refused > 0, "; "), sentence);
    f->n_refused++;
}

const struct dcpk_model_tensor *dcpk_resume_find(const struct dcpk_model *model, const char *param,
                                                 enum dcpk_role role)
{
    const char *state = role == DCPK_STATE ? DCPK_MEMORY_STATE : NULL;
    uint64_t found;
    uint32_t tensor;

    if (!dcpk_map_get(&model->param_by_name, param, strlen(param), &found))
        return NULL;
    if (role == DCPK_WEIGHT || role == DCPK_MASTER)
        return dcpk_model_value(model, &model->params[found]);
    tensor = dcpk_model_find(model, (uint32_t)found, role, state);
    return tensor == DCPK_NO_TENSOR ? NULL : &model->tensors[tensor];
}

static const char *fit_role(enum dcpk_role role)
{
    if (role == DCPK_WEIGHT || role == DCPK_MASTER)
        return "value";
    return role == DCPK_STATE ? DCPK_MEMORY_STATE : dcpk_role_name(role);
}

static void fit_asked(struct fitting *f, const struct dcpk_memory_tensor *asked,
                      const struct dcpk_model *model)
{
    const struct dcpk_model_tensor *have = dcpk_resume_find(model, asked->param, asked->role);
    const bool is_value = asked->role == DCPK_WEIGHT || asked->role == DCPK_MASTER;
    const struct dcpk_shard *shard = asked->shard;
    char sentence[512], a[64], b[64];

    if (have == NULL) {
        snprintf(sentence, sizeof sentence, "the checkpoint has no %s of '%s'",
                 fit_role(asked->role), asked->param);
        f->is_state |= f->by->run_alone == REFUSED && !is_value;
        fitting_add(f, f->by->run_alone, sentence);
    } else if (!dcpk_shape_equal(have->shape, have->rank, shard->shape, shard->rank)) {
        snprintf(sentence, sizeof sentence, "'%s' is %s in the checkpoint and %s in the model",
                 asked->param, dcpk_shape_format(have->shape, have->rank, a, sizeof a),
                 dcpk_shape_format(shard->shape, shard->rank, b, sizeof b));
        fitting_add(f, REFUSED, sentence);
    }
}

/* True if the tensor is named: if a parameter's value does not fit, it alone is. */
static bool fit_is_named(const struct dcpk_memory_tensor *asked, const struct dcpk_model *model)
{
    const struct dcpk_model_tensor *value = dcpk_resume_find(model, asked->param, DCPK_WEIGHT);

    return asked->role != DCPK_WEIGHT && asked->role != DCPK_MASTER &&
           (value == NULL ||
            !dcpk_shape_equal(value->shape, value->rank, asked->shard->shape, asked->shard->rank));
}

/* Parameters that no rank asks for. */
static dcpk_status fit_held(struct fitting *f, const struct dcpk_memory_index *asked,
                            const struct dcpk_model *model, struct dcpk_error *err)
{
    struct dcpk_map names = {0};
    char sentence[512];
    uint64_t found;
    bool existed;
    dcpk_status st = DCPK_OK;

    for (size_t i = 0; i < asked->n_tensors && st == DCPK_OK; i++)
        st = dcpk_map_put(&names, asked->tensors[i].param, strlen(asked->tensors[i].param), i,
                          &existed, &found, err);
    for (size_t p = 0; p < model->n_params && st == DCPK_OK; p++) {
        const char *name = model->params[p].name;

        if (dcpk_map_get(&names, name, strlen(name), &found))
            continue;
        snprintf(sentence, sizeof sentence, "the model has no '%s', which the checkpoint has",
                 name);
        fitting_add(f, f->by->checkpoint_alone, sentence);
    }
    dcpk_map_release(&names);
    return st;
}

static dcpk_status fail_fit(const struct fitting *f, struct dcpk_error *err)
{
    unsigned fixes = DCPK_FIX_MODEL_FLAGS;

    if (dcpk_bytes_status(&f->refused, err) != DCPK_OK)
        return err->status;
    if (f->is_state)
        fixes |= DCPK_FIX_NO_LOAD_OPTIM;
    return dcpk_fail_fix(err, DCPK_EMISMATCH, fixes,
                         "the checkpoint does not fit the model, in %" PRIu64 " tensor%s%s: %.*s",
                         f->n_refused, f->n_refused == 1 ? "" : "s",
                         f->n_refused > MAX_NAMED ? ", the first" : "", (int)f->refused.n_bytes,
                         (const char *)f->refused.data);
}

dcpk_status dcpk_resume_check_fit(const struct dcpk_memory_index *asked,
                                  const struct dcpk_model *model, const char *strictness,
                                  struct dcpk_bytes *notes, struct dcpk_error *err)
{
    struct fitting f = {.notes = notes};
    dcpk_status st = find_strictness(strictness, &f.by, err);

    if (st != DCPK_OK)
        return st;
    for (size_t i = 0; i < asked->n_tensors; i++)
        if (!fit_is_named(&asked->tensors[i], model))
            fit_asked(&f, &asked->tensors[i], model);
    st = fit_held(&f, asked, model, err);
    if (st == DCPK_OK && f.n_refused > 0)
        st = fail_fit(&f, err);
    dcpk_bytes_release(&f.refused);
    if (st == DCPK_OK)
        st = dcpk_bytes_status(notes, err);
    return st;
}
