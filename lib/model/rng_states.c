/* SPDX-License-Identifier: Apache-2.0 */
/* rng_states.c - the kinds of a rank's RNG states. */
#include "lib/model/rng_states.h"
#include "lib/base/order.h"

#include <string.h>

#define MAX_FIELDS      256 /* of a dict: five and a few; bounds the look-ups in a shared one */
#define MAX_STATE_BYTES (1 << 16) /* of a tensor: 5056 on a CPU, 16 on a GPU */

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
