/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_rng.c - the keys of RNG states, read and made. */
#include "formats/megatron/megatron.h"

#include <inttypes.h>
#include <string.h>

#include "lib/base/checked.h"
#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/model/model.h"

#define MAX_AXES 8
/* Limit of keys of three numbers; a run has as many ranks. Past it they are left out, with a
 * note. */
#define MAX_KEYS (1 << 20)

/* --- keys --- */

/* Numbers joined by dots at *text, which then points after them; how many, -1: not of that
 * form. */
static int take_numbers(const char **text, int64_t numbers[MAX_AXES])
{
    int n = 0;

    for (;; ++*text) {
        if (n == MAX_AXES || (numbers[n++] = dcpk_take_number(text)) < 0)
            return -1;
        if (**text != '.')
            return n;
    }
}

bool dcpk_megatron_rng_split(const char *key, struct dcpk_rng *rank)
{
    const char *text = key + strlen(DCPK_MEGATRON_RNG);
    int64_t at[MAX_AXES], of[MAX_AXES];
    const int n = take_numbers(&text, at);
    int n_sizes;

    if (n < 2 || *text++ != '_')
        return false;
    n_sizes = take_numbers(&text, of);
    if (*text != '\0' || (n_sizes != n && !(n == 2 && n_sizes == 1)))
        return false;
    for (int a = 0; a < n_sizes; a++)
        if (at[a] >= of[a])
            return false;
    *rank = (struct dcpk_rng){.pp = at[0], .tp = at[1], .n_dp = n > 2};
    for (int a = 2; a < n; a++) { /* row-major */
        if (!dcpk_mul_i64(rank->n_dp, of[a], &rank->n_dp))
            return false;
        rank->dp = rank->dp * of[a] + at[a];
    }
    return true;
}

dcpk_status dcpk_megatron_read_rng(struct dcpk_model *model, const struct dcpk_object *object,
                                   struct dcpk_error *err)
{
    const struct dcpk_value *value;
    struct dcpk_rng rng;
    const char *fault;
    bool existed = false;

    if (!dcpk_megatron_rng_split(object->key, &rng)) {
        dcpk_model_drop(model, object->key,
                        "not of the form rng_state/shard_<pp>.<tp>[.<dp>]_<PP>.<TP>[.<DP>]");
        return DCPK_OK;
    }
    if (dcpk_model_load(model, object, &value, err))
        return err->status;
    if (value == NULL)
        return DCPK_OK;
    rng.states = value->kind == DCPK_V_LIST && value->n == 1 ? dcpk_value_at(value, 0) : NULL;
    if (rng.states == NULL || rng.states->kind != DCPK_V_LIST) {
        fault = "RNG states are a list of one list, and this is not";
    } else {
        fault = dcpk_rng_states_fault(rng.states);
    }
    if (fault != NULL) {
        dcpk_model_drop(model, object->key, fault);
        return DCPK_OK;
    }
    if (dcpk_model_add_rng(model, &rng, &existed, err))
        return err->status;
    if (existed)
        dcpk_model_drop(model, object->key, "another object has the RNG states of that rank");
    return DCPK_OK;
}

/* --- writing --- */

/* The ranks of the run that args describe. */
struct grid {
    int64_t pp, tp;
    int64_t n_dp; /* data- and context-parallel ranks; 0: not known */
};

/* args may lack sizes, and the source may have ranks beyond them. */
static struct grid find_grid(const struct dcpk_model *model)
{
    const struct dcpk_grid *layout = &model->layout;
    struct grid g = {.pp = dcpk_max_i64(layout->pp, 1), .tp = dcpk_max_i64(layout->tp, 1)};

    if (!dcpk_mul_i64(layout->dp, dcpk_max_i64(layout->cp, 1), &g.n_dp))
        g.n_dp = 0;
    for (size_t i = 0; i < model->n_rng; i++) {
        g.pp = dcpk_max_i64(g.pp, model->rng[i].pp + 1);
        g.tp = dcpk_max_i64(g.tp, model->rng[i].tp + 1);
        if (layout->dp == 0)
            g.n_dp = dcpk_max_i64(g.n_dp, model->rng[i].n_dp);
    }
    return g;
}

static bool has_few_keys(const struct dcpk_model *model, const struct grid *g)
{
    int64_t n;

    return dcpk_mul_i64((int64_t)model->n_rng, g->n_dp, &n) && n <= MAX_KEYS;
}

/* True if the i-th states stand for their (pp, tp). One of them does. */
static bool is_first(const struct dcpk_model *model, size_t i)
{
    const struct dcpk_rng rank = {.pp = model->rng[i].pp, .tp = model->rng[i].tp};

    return dcpk_model_rng(model, &rank) == &model->rng[i];
}

struct putting {
    const struct dcpk_model *model;
    struct dcpk_output *out;
    struct grid grid;
    uint32_t *payloads; /* by RNG states of the model: of which they are one, + 1; 0: not written */
};

/* The payload of the model's i-th states: made when they are first asked for. */
static dcpk_status find_payload(struct putting *p, size_t i, uint32_t *payload,
                                struct dcpk_error *err)
{
    const struct dcpk_value *list;

    if (p->payloads[i] == 0) {
        list = dcpk_value_seq(p->out->arena, DCPK_V_LIST, &p->model->rng[i].states, 1, err);
        if (list == NULL || dcpk_output_add_payload(p->out, list, NULL, payload, err))
            return err->status;
        p->payloads[i] = *payload + 1;
    }
    *payload = p->payloads[i] - 1;
    return DCPK_OK;
}

static const char *make_key(const struct putting *p, const struct dcpk_rng *rank,
                            struct dcpk_error *err)
{
    const struct grid *g = &p->grid;

    if (rank->n_dp == 0)
        return dcpk_arena_printf(p->out->arena, err,
                                 DCPK_MEGATRON_RNG "%" PRId64 ".%" PRId64 "_%" PRId64 ".%" PRId64,
                                 rank->pp, rank->tp, g->pp, g->tp);
    return dcpk_arena_printf(p->out->arena, err,
                             DCPK_MEGATRON_RNG "%" PRId64 ".%" PRId64 ".%" PRId64 "_%" PRId64
                                               ".%" PRId64 ".%" PRId64,
                             rank->pp, rank->tp, rank->dp, g->pp, g->tp, rank->n_dp);
}

/* The object of one rank, for which there are states. */
static dcpk_status put_rank(struct putting *p, const struct dcpk_rng *rank, struct dcpk_error *err)
{
    const struct dcpk_rng *rng = dcpk_model_rng(p->model, rank);
    const char *key = make_key(p, rank, err);
    uint32_t payload;

    if (key == NULL || find_payload(p, (size_t)(rng - p->model->rng), &payload, err))
        return err->status;
    return dcpk_output_add_object(p->out, key, payload, err);
}

/* The objects of one (pp, tp), which has states. */
static dcpk_status put_model_rank(struct putting *p, int64_t pp, int64_t tp, struct dcpk_error *err)
{
    const int64_t n_dp = p->grid.n_dp;

    if (put_rank(p, &(struct dcpk_rng){.pp = pp, .tp = tp}, err))
        return err->status;
    for (int64_t dp = 0; dp < n_dp; dp++)
        if (put_rank(p, &(struct dcpk_rng){.pp = pp, .tp = tp, .dp = dp, .n_dp = n_dp}, err))
            return err->status;
    return DCPK_OK;
}

/* States that are not written, by the key that they would have, and why. */
static void rng_note_left(const struct putting *p, const char *why)
{
    for (size_t i = 0; i < p->model->n_rng; i++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        const char *key;

        if (p->payloads[i] != 0)
            continue;
        key = make_key(p, &p->model->rng[i], &err);
        if (key != NULL)
            dcpk_output_event(p->out, DCPK_EVENT_OMITTED, key, "%s", why);
    }
}

/* True if there are states of every (pp, tp). */
static bool has_every_rank(const struct putting *p)
{
    int64_t n_ranks = 0, n_found = 0;

    for (size_t i = 0; i < p->model->n_rng; i++)
        n_found += is_first(p->model, i);
    return dcpk_mul_i64(p->grid.pp, p->grid.tp, &n_ranks) && n_found == n_ranks;
}

dcpk_status dcpk_megatron_put_rng(const struct dcpk_model *model, struct dcpk_output *out,
                                  int n_axes, bool *is_whole, struct dcpk_error *err)
{
    const char *why = "another rank has no RNG state, and a run loads those of all or none";
    struct putting p = {.model = model, .out = out, .grid = find_grid(model)};

    *is_whole = has_every_rank(&p);
    if (n_axes < DCPK_MEGATRON_RNG_BY_EVERY_RANK)
        p.grid.n_dp = 0;
    if (!has_few_keys(model, &p.grid)) {
        p.grid.n_dp = 0;
        dcpk_output_event(out, DCPK_EVENT_NOTE, "rng_state",
                          "args have more than %d ranks: RNG states have keys by pipeline and "
                          "tensor rank alone",
                          MAX_KEYS);
    }
    p.payloads = dcpk_arena_array(out->arena, model->n_rng, sizeof *p.payloads, err);
    if (p.payloads == NULL)
        return err->status;
    for (size_t i = 0; i < model->n_rng && *is_whole; i++)
        if (is_first(model, i) && put_model_rank(&p, model->rng[i].pp, model->rng[i].tp, err))
            return err->status;
    if (*is_whole)
        why = "RNG state of a data-parallel rank that the target does not have or distinguish: it "
              "gets that of the first";
    rng_note_left(&p, why);
    return DCPK_OK;
}
