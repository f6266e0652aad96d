/* SPDX-License-Identifier: Apache-2.0 */
/* fits.c - other strategies, micro batches and layouts of a run, and what each needs. */
#include "lib/train/fits.h"

#include <string.h>

#include "lib/base/order.h"

#define MAX_TP 8

struct dcpk_train_config dcpk_train_under(const struct dcpk_train_config *config, int column)
{
    const enum dcpk_strategy strategy = (enum dcpk_strategy)column;
    struct dcpk_train_config c = *config;

    if (column == DCPK_N_STRATEGIES || strategy == config->fsdp.strategy)
        return c;
    c.fsdp.mode = DCPK_MODE_MEGATRON_FSDP;
    c.fsdp.strategy = strategy;
    c.fsdp.has_distributed_optimizer = true;
    c.fsdp.overlaps_reduce = config->fsdp.asks_overlap || strategy >= DCPK_OPTIM_GRADS;
    c.fsdp.is_outer_sharded &= strategy == DCPK_OPTIM_GRADS_PARAMS;
    return c;
}

struct dcpk_train_config dcpk_train_choice(const struct dcpk_train_config *config,
                                           enum dcpk_strategy strategy)
{
    struct dcpk_train_config c = dcpk_train_under(config, (int)strategy);

    if (strategy >= DCPK_OPTIM_GRADS)
        return c;
    c.fsdp.mode = DCPK_MODE_DDP;
    c.fsdp.strategy = strategy;
    c.fsdp.has_distributed_optimizer = strategy == DCPK_OPTIM;
    c.fsdp.overlaps_reduce = config->fsdp.asks_overlap;
    c.fsdp.has_double_buffer = c.fsdp.has_max_pool = c.fsdp.is_outer_sharded = false;
    c.precision.main_params = DCPK_F32;
    c.precision.comm = c.precision.main_grads;
    c.precision.asked_comm = c.precision.asked_grads;
    return c;
}

dcpk_status dcpk_train_need(const struct dcpk_train_config *config, enum dcpk_footprint_of of,
                            uint64_t *n_bytes, struct dcpk_error *err)
{
    struct dcpk_train_footprint most;

    if (dcpk_train_footprint_most(config, of, &most, err) != DCPK_OK)
        return err->status;
    *n_bytes = dcpk_train_held_sum(most.held);
    return DCPK_OK;
}

/* Activations alone grow with the micro batch, each sample by as much. */
dcpk_status dcpk_train_largest_batch(const struct dcpk_train_config *config,
                                     enum dcpk_footprint_of of, uint64_t limit_bytes,
                                     int64_t *micro_batch, struct dcpk_error *err)
{
    struct dcpk_train_config c = *config;
    uint64_t one, two;

    c.data.micro_batch = 1;
    if (dcpk_train_need(&c, of, &one, err) != DCPK_OK)
        return err->status;
    c.data.micro_batch = 2;
    if (dcpk_train_need(&c, of, &two, err) != DCPK_OK)
        return err->status;
    *micro_batch = 0;
    if (limit_bytes >= one)
        *micro_batch = 1 + (int64_t)((limit_bytes - one) / (two - one));
    return DCPK_OK;
}

/* True if tp ranks can share a layer: the conditions of knobs_sizes.c on a run. */
static bool layout_divides(const struct dcpk_train_config *c, int64_t tp)
{
    const struct dcpk_train_model *m = &c->model;

    return m->heads % tp == 0 && m->groups % tp == 0 && m->ffn % tp == 0 && m->hidden % tp == 0 &&
           m->shared_ffn % tp == 0 && c->precision.virtual_slices % tp == 0;
}

/* True if dp ranks can share experts and the batch. A batch that follows them fits any number of
 * them: those that experts need, times 1, 2, 4, ... */
static bool layout_shares(const struct dcpk_train_config *c, int64_t dp)
{
    const struct dcpk_train_data *d = &c->data;
    int64_t least = 1;

    if (dp * c->layout.cp % c->layout.ep != 0)
        return false;
    if (!d->batch_follows_ranks)
        return d->global_batch % (d->micro_batch * dp) == 0;
    while (least * c->layout.cp % c->layout.ep != 0)
        least++;
    while (least < dp)
        least *= 2;
    return least == dp;
}

/* True if stages of this run can have as many layers each; another number of stages than that of
 * the run needs equal ones. */
static bool layout_stages(const struct dcpk_train_config *c, int64_t pp)
{
    return pp == c->layout.pp || (c->model.layers % pp == 0 && c->model.mtp_layers == 0);
}

/* Changes `c` to tp, pp and dp ranks where they make a run. */
static bool layout_try(struct dcpk_train_config *c, int64_t tp, int64_t pp, int64_t dp)
{
    struct dcpk_grid *l = &c->layout;

    if (!layout_divides(c, tp) || !layout_stages(c, pp) || !layout_shares(c, dp))
        return false;
    if (pp != l->pp)
        l->first = l->last = 0;
    l->tp = tp;
    l->pp = pp;
    l->dp = dp;
    l->instances = 1;
    c->fsdp.is_outer_sharded = false;
    if (c->data.batch_follows_ranks)
        c->data.global_batch = c->data.micro_batch * dp;
    c->model.padded_vocab = dcpk_train_padded_vocab(&c->model, tp);
    return true;
}

dcpk_status dcpk_train_smallest_layout(const struct dcpk_train_config *config,
                                       enum dcpk_footprint_of of, uint64_t limit_bytes,
                                       struct dcpk_grid *layout, struct dcpk_error *err)
{
    const int64_t most = DCPK_TRAIN_MAX_RANKS / (config->layout.cp * config->layout.pp);
    struct dcpk_train_config c = *config;
    uint64_t n_bytes;

    *layout = (struct dcpk_grid){0};
    for (int64_t n = 1; n <= most; n++)
        for (int64_t tp = 1; tp <= dcpk_min_i64(n, MAX_TP); tp++) {
            if (n % tp != 0 || !layout_try(&c, tp, config->layout.pp, n / tp))
                continue;
            if (dcpk_train_need(&c, of, &n_bytes, err) != DCPK_OK)
                return err->status;
            if (n_bytes > limit_bytes)
                continue;
            *layout = c.layout;
            return DCPK_OK;
        }
    return DCPK_OK;
}

/* ---- sweeps ---- */

dcpk_status dcpk_train_sweep_parse(const char *text, unsigned *axes, struct dcpk_error *err)
{
    static const struct {
        const char *name;
        unsigned axis;
    } names[] = {{"tp", DCPK_SWEEP_TP}, {"pp", DCPK_SWEEP_PP}, {"dp", DCPK_SWEEP_DP}};

    *axes = 0;
    for (const char *word = text; *word != '\0';) {
        const size_t n = strcspn(word, ",");
        unsigned axis = 0;

        for (size_t i = 0; i < DCPK_COUNT(names); i++)
            if (n == strlen(names[i].name) && memcmp(word, names[i].name, n) == 0)
                axis = names[i].axis;
        if (axis == 0)
            return dcpk_fail(err, DCPK_EUSAGE, "'%.*s' of '%s' is not tp, pp or dp", (int)n, word,
                             text);
        *axes |= axis;
        word += n + (word[n] == ',');
    }
    if (*axes == 0)
        return dcpk_fail(err, DCPK_EUSAGE, "a sweep is over tp, pp or dp, or several of them");
    return DCPK_OK;
}

dcpk_status dcpk_train_each_layout(const struct dcpk_train_config *config, unsigned axes,
                                   const struct dcpk_layout_visit *visit, struct dcpk_error *err)
{
    const struct dcpk_grid *own = &config->layout;
    const int64_t n_ranks = own->tp * own->pp * own->dp;

    for (int64_t tp = 1; tp <= n_ranks; tp++)
        for (int64_t pp = 1; pp <= n_ranks / tp; pp++) {
            struct dcpk_train_config c = *config;
            const int64_t dp = n_ranks / (tp * pp);

            if (tp * pp * dp != n_ranks || ((axes & DCPK_SWEEP_TP) == 0 && tp != own->tp) ||
                ((axes & DCPK_SWEEP_PP) == 0 && pp != own->pp) ||
                ((axes & DCPK_SWEEP_DP) == 0 && dp != own->dp) || !layout_try(&c, tp, pp, dp))
                continue;
            if (visit->visit(visit->context, &c, err) != DCPK_OK)
                return err->status;
        }
    return DCPK_OK;
}
