/* SPDX-License-Identifier: Apache-2.0 */
/* model_state.c - training state of the canonical view: objects that may be unreadable, RNG states
 * by rank. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/ckpt/format.h"
#include "lib/model/model.h"
#include "lib/tensor/elem.h"

/* ---- a rank's RNG states ---- */

#define MAX_FIELDS       256 /* of a dict: five and a few; bounds the look-ups in a shared one */
#define MAX_LOADED_BYTES (1 << 20) /* of a tensor that is read as a value */
#define MAX_STATE_BYTES  (1 << 16) /* of a tensor: 5056 on a CPU, 16 on a GPU */

static bool is_bytes(const struct dcpk_value *v)
{
    const struct dcpk_value_tensor *t;

    if (v->kind != DCPK_V_TENSOR)
        return false;
    t = v->as.tensor;
    return t->dtype == DCPK_U8 && t->rank == 1 && t->n_bytes > 0 && t->n_bytes <= MAX_STATE_BYTES;
}

/* Python's and NumPy's states; their setters look into them. */
static bool is_tuple(const struct dcpk_value *v)
{
    return v->kind == DCPK_V_TUPLE && v->n > 0;
}

/* True for the state of --te-rng-tracker with CUDA graphs: generators. */
static bool is_tracker(const struct dcpk_value *v)
{
    return is_bytes(v) || v->kind == DCPK_V_OBJECT;
}

static bool is_trackers(const struct dcpk_value *v)
{
    if (v->kind != DCPK_V_DICT || v->n > MAX_FIELDS)
        return false;
    for (size_t i = 0; i < v->n; i++) {
        const char *name = dcpk_value_as_str(v->as.pairs[i].key);

        if (name == NULL || *name == '\0' || !is_tracker(v->as.pairs[i].value))
            return false;
    }
    return true;
}

static const struct {
    const char *name;
    bool (*is_kind)(const struct dcpk_value *v);
    const char *missing, *odd;
} fields[] = {
    {"random_rng_state", is_tuple, "RNG states without random_rng_state",
     "the random_rng_state of RNG states is not a tuple"},
    {"np_rng_state", is_tuple, "RNG states without np_rng_state",
     "the np_rng_state of RNG states is not a tuple"},
    {"torch_rng_state", is_bytes, "RNG states without torch_rng_state",
     "the torch_rng_state of RNG states is not a tensor of bytes"},
    {"cuda_rng_state", is_bytes, "RNG states without cuda_rng_state",
     "the cuda_rng_state of RNG states is not a tensor of bytes"},
    {"rng_tracker_states", is_trackers, "RNG states without rng_tracker_states",
     "the rng_tracker_states of RNG states are not a dict of tensors of bytes"},
};

#define N_FIELDS DCPK_COUNT(fields)

static bool is_known(const char *name)
{
    for (size_t f = 0; f < N_FIELDS; f++)
        if (strcmp(name, fields[f].name) == 0)
            return true;
    return false;
}

/* A field that no release has: a format that flattens dicts and lists would take it apart. */
static bool is_single(const struct dcpk_value *v)
{
    if (v->kind == DCPK_V_TENSOR)
        return is_bytes(v);
    return v->kind != DCPK_V_DICT && v->kind != DCPK_V_LIST;
}

static const char *find_fault(const struct dcpk_value *rank)
{
    if (rank->kind != DCPK_V_DICT)
        return "RNG states are a list of dicts, this is not";
    if (rank->n > MAX_FIELDS)
        return "RNG states of too many fields";
    for (size_t f = 0; f < N_FIELDS; f++) {
        const struct dcpk_value *v = dcpk_value_get(rank, fields[f].name);

        if (v == NULL)
            return fields[f].missing;
        if (!fields[f].is_kind(v))
            return fields[f].odd;
    }
    for (size_t i = 0; i < rank->n; i++) {
        const char *name = dcpk_value_as_str(rank->as.pairs[i].key);

        if (name == NULL || *name == '\0')
            return "a field of RNG states has no name";
        if (!is_known(name) && !is_single(rank->as.pairs[i].value))
            return "RNG states with a field of values in values";
    }
    return NULL;
}

const char *dcpk_rng_states_fault(const struct dcpk_value *states)
{
    if (states->kind != DCPK_V_LIST || states->n == 0)
        return "RNG states are a list of dicts, this is not";
    for (size_t i = 0; i < states->n; i++) {
        const char *fault = find_fault(states->as.items[i]);

        if (fault != NULL)
            return fault;
    }
    return NULL;
}

/* ---- objects of the state ---- */

dcpk_status dcpk_model_load(struct dcpk_model *model, const struct dcpk_object *object,
                            const struct dcpk_value **value, struct dcpk_error *err)
{
    dcpk_status st = dcpk_by_place_load(&model->loaded, model->ckpt, object, value, err);

    if (!dcpk_status_is_content(st))
        return st;
    dcpk_model_drop(model, object->key, err->text);
    dcpk_error_clear(err);
    *value = NULL;
    return DCPK_OK;
}

dcpk_status dcpk_model_need(struct dcpk_model *model, const struct dcpk_object *object,
                            const struct dcpk_value **value, struct dcpk_error *err)
{
    if (dcpk_by_place_load(&model->loaded, model->ckpt, object, value, err) != DCPK_OK)
        dcpk_context(err, "object '%s'", object->key);
    return err->status;
}

dcpk_status dcpk_model_load_tensor(struct dcpk_model *model, uint32_t tensor,
                                   const struct dcpk_value **value, struct dcpk_error *err)
{
    const struct dcpk_checkpoint *ckpt = model->ckpt;
    const struct dcpk_tensor *t = &ckpt->tensors[tensor];
    struct dcpk_object item = {.key = t->key};
    int64_t n_elems;

    if (dcpk_shape_count(t->shape, t->rank, &n_elems, err))
        return err->status;
    if (t->n_chunks != 1 || n_elems > MAX_LOADED_BYTES / 16)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "training state of %" PRId64 " elements in %zu chunks (known is one chunk "
                         "of at most %d)",
                         n_elems, t->n_chunks, MAX_LOADED_BYTES / 16);
    item.place = ckpt->chunks[t->first_chunk].place;
    if (dcpk_by_place_load(&model->loaded, model->ckpt, &item, value, err))
        return err->status;
    if ((*value)->kind != DCPK_V_TENSOR)
        return dcpk_fail(err, DCPK_EFORMAT, "its item is not a tensor");
    return DCPK_OK;
}

static dcpk_status number_of(struct dcpk_model *model, const struct dcpk_value_tensor *tensor,
                             const struct dcpk_value **value, struct dcpk_error *err)
{
    struct dcpk_elem elem;
    int64_t n_elems;

    if (dcpk_shape_count(tensor->shape, tensor->rank, &n_elems, err))
        return err->status;
    if (n_elems != 1 || tensor->data == NULL || tensor->n_bytes != dcpk_dtype_bytes(tensor->dtype))
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "it is a tensor of %" PRId64 " elements, not of one", n_elems);
    elem = dcpk_elem_load(tensor->dtype, tensor->data);
    if (elem.kind == DCPK_ELEM_FLOAT)
        *value = dcpk_value_float(model->arena, elem.re, err);
    else if (elem.kind == DCPK_ELEM_INT)
        *value = dcpk_value_int(model->arena, elem.i, err);
    else
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "it is a tensor of %s, not of numbers",
                         dcpk_dtype_name(tensor->dtype));
    return dcpk_made(*value, err);
}

dcpk_status dcpk_model_take_number(struct dcpk_model *model, const struct dcpk_value **value,
                                   struct dcpk_error *err)
{
    const struct dcpk_value *old = *value, **items;

    if (old->kind == DCPK_V_TENSOR)
        return number_of(model, old->as.tensor, value, err);
    if (old->kind != DCPK_V_TUPLE && old->kind != DCPK_V_LIST)
        return DCPK_OK;
    items = dcpk_arena_copy(model->arena, old->as.items, old->n, sizeof *items, err);
    if (items == NULL)
        return err->status;
    for (size_t i = 0; i < old->n; i++)
        if (items[i]->kind == DCPK_V_TENSOR &&
            number_of(model, items[i]->as.tensor, &items[i], err))
            return err->status;
    *value = dcpk_value_seq(model->arena, old->kind, items, old->n, err);
    return dcpk_made(*value, err);
}

dcpk_status dcpk_model_read_step(struct dcpk_model *model, uint32_t tensor,
                                 const struct dcpk_value **step, struct dcpk_error *err)
{
    const struct dcpk_value *value;
    const char *key = model->ckpt->tensors[tensor].key;
    float f;

    if (dcpk_model_load_tensor(model, tensor, &value, err))
        return dcpk_context(err, "'%s'", key);
    if (value->as.tensor->dtype != DCPK_F32 || value->as.tensor->n_bytes != sizeof f)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "'%s' is not a single float32", key);
    memcpy(&f, value->as.tensor->data, sizeof f);
    *step = dcpk_value_float(model->arena, (double)f, err);
    return dcpk_made(*step, err);
}

dcpk_status dcpk_model_intern_group(struct dcpk_model *model, const struct dcpk_value *dict,
                                    uint32_t *group, struct dcpk_error *err)
{
    for (*group = 0; *group < model->n_groups; ++*group)
        if (dcpk_value_equal(model->groups[*group], dict))
            return DCPK_OK;
    return dcpk_model_add_group(model, dict, err);
}

/* --- RNG states --- */

#define RANK_BYTES 96

/* The name of a rank in rng_by_rank; n_dp 0: of all of its (pp, tp). */
static size_t rank_name(const struct dcpk_rng *rng, char name[RANK_BYTES])
{
    return (size_t)snprintf(name, RANK_BYTES, "%" PRId64 ".%" PRId64 ".%" PRId64 ".%" PRId64,
                            rng->pp, rng->tp, rng->n_dp == 0 ? 0 : rng->dp, rng->n_dp);
}

/* The name of the first data-parallel rank, of however many. */
static size_t first_name(const struct dcpk_rng *rng, char name[RANK_BYTES])
{
    return (size_t)snprintf(name, RANK_BYTES, "%" PRId64 ".%" PRId64, rng->pp, rng->tp);
}

static dcpk_status put_rank(struct dcpk_model *model, const char *name, size_t n, bool *existed,
                            struct dcpk_error *err)
{
    const char *copy = dcpk_arena_strndup(model->arena, name, n, err);
    uint64_t found;

    if (copy == NULL)
        return err->status;
    return dcpk_map_put(&model->rng_by_rank, copy, n, model->n_rng, existed, &found, err);
}

dcpk_status dcpk_model_add_rng(struct dcpk_model *model, const struct dcpk_rng *rng, bool *existed,
                               struct dcpk_error *err)
{
    char name[RANK_BYTES];
    bool has_first;

    if (dcpk_grow(&model->rng, &model->rng_capacity, model->n_rng, sizeof *model->rng, err) ||
        put_rank(model, name, rank_name(rng, name), existed, err))
        return err->status;
    if (*existed)
        return DCPK_OK;
    if (rng->n_dp > 0 && rng->dp == 0 &&
        put_rank(model, name, first_name(rng, name), &has_first, err) != DCPK_OK)
        return err->status;
    model->rng[model->n_rng++] = *rng;
    return DCPK_OK;
}

const struct dcpk_rng *dcpk_model_rng(const struct dcpk_model *model, const struct dcpk_rng *rank)
{
    const struct dcpk_rng of_all = {.pp = rank->pp, .tp = rank->tp};
    char name[RANK_BYTES];
    uint64_t i;

    if (dcpk_map_get(&model->rng_by_rank, name, rank_name(rank, name), &i) ||
        dcpk_map_get(&model->rng_by_rank, name, rank_name(&of_all, name), &i) ||
        dcpk_map_get(&model->rng_by_rank, name, first_name(rank, name), &i))
        return &model->rng[i];
    return NULL;
}

void dcpk_model_clear_rng(struct dcpk_model *model)
{
    dcpk_map_release(&model->rng_by_rank);
    model->n_rng = 0;
}
