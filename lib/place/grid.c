/* SPDX-License-Identifier: Apache-2.0 */
/* grid.c - ranks to coordinates and back, layers to stages, and all that has to divide. */
#include "lib/place/grid.h"

#include <assert.h>
#include <inttypes.h>

#include "lib/base/order.h"

#define MIN_BUCKET_ELEMS       INT64_C(40000000)
#define BUCKET_ELEMS_OF_A_RANK INT64_C(1000000)

struct dcpk_grid dcpk_grid_full(const struct dcpk_grid *grid)
{
    int64_t *sizes[7];
    struct dcpk_grid full = *grid;

    sizes[0] = &full.tp;
    sizes[1] = &full.pp;
    sizes[2] = &full.dp;
    sizes[3] = &full.ep;
    sizes[4] = &full.cp;
    sizes[5] = &full.vpp;
    sizes[6] = &full.instances;
    for (size_t i = 0; i < DCPK_COUNT(sizes); i++)
        *sizes[i] = dcpk_max_i64(*sizes[i], 1);
    if (full.etp == 0)
        full.etp = full.tp;
    return full;
}

/* The ranks of a pipeline stage of a full grid. */
static int64_t stage_ranks(const struct dcpk_grid *full)
{
    return full->tp * full->cp * full->dp;
}

int64_t dcpk_grid_ranks(const struct dcpk_grid *grid)
{
    const struct dcpk_grid full = dcpk_grid_full(grid);

    return stage_ranks(&full) * full.pp;
}

int64_t dcpk_grid_bucket_elems(int64_t n_data_parallel)
{
    return dcpk_max_i64(MIN_BUCKET_ELEMS, BUCKET_ELEMS_OF_A_RANK * n_data_parallel);
}

/* ---- ranks ---- */

/*
 * The axes of a rank number, fastest first: `inner` and `middle` sizes, then `outer` and pp. Dense:
 * tp, cp, dp; experts: etp, ep, edp.
 */
struct radix {
    int64_t inner, middle, outer;
};

static struct radix dense_radix(const struct dcpk_grid *full)
{
    return (struct radix){full->tp, full->cp, full->dp};
}

static struct radix expert_radix(const struct dcpk_grid *full)
{
    return (struct radix){full->etp, full->ep, stage_ranks(full) / (full->etp * full->ep)};
}

/* The rank at these places; at: middle + its size * outer. */
static int64_t rank_at(const struct dcpk_grid *full, struct radix r, int64_t inner, int64_t at,
                       int64_t pp)
{
    if (full->is_tp_pp_dp)
        return inner + r.inner * (at % r.middle + r.middle * (pp + full->pp * (at / r.middle)));
    return inner + r.inner * (at + r.middle * r.outer * pp);
}

/* The inverse. */
static void find_places(const struct dcpk_grid *full, struct radix r, int64_t rank, int64_t *inner,
                        int64_t *at, int64_t *pp)
{
    const int64_t rest = rank / r.inner;

    *inner = rank % r.inner;
    if (full->is_tp_pp_dp) {
        *pp = rest / r.middle % full->pp;
        *at = rest % r.middle + r.middle * (rest / r.middle / full->pp);
    } else {
        *pp = rest / (r.middle * r.outer);
        *at = rest % (r.middle * r.outer);
    }
}

/* Data-parallel ranks, with context parallelism, of one instance. */
static int64_t instance_ranks(const struct dcpk_grid *full)
{
    return full->cp * full->dp / full->instances;
}

/* The same of routed experts. */
static int64_t instance_expert_ranks(const struct dcpk_grid *full)
{
    return dcpk_max_i64(1, expert_radix(full).outer / full->instances);
}

struct dcpk_coords dcpk_grid_coords(const struct dcpk_grid *grid, int64_t rank)
{
    const struct dcpk_grid full = dcpk_grid_full(grid);
    const int64_t n_shards = instance_ranks(&full);
    struct dcpk_coords c;
    int64_t at, expert_at, expert_pp;

    find_places(&full, dense_radix(&full), rank, &c.tp, &at, &c.pp);
    find_places(&full, expert_radix(&full), rank, &c.etp, &expert_at, &expert_pp);
    c.cp = at % full.cp;
    c.dp = at / full.cp;
    c.shard = at % n_shards;
    c.instance = at / n_shards;
    c.ep = expert_at % full.ep;
    c.edp = expert_at / full.ep;
    c.expert_shard = c.edp % instance_expert_ranks(&full);
    return c;
}

/* A coordinate of a group's first rank: 0 along the axes of the group. */
static int64_t first_along(unsigned axes, enum dcpk_axes axis, int64_t coordinate)
{
    if ((axes & (unsigned)axis) != 0)
        return 0;
    return coordinate;
}

int64_t dcpk_grid_first(const struct dcpk_grid *grid, const struct dcpk_coords *at, unsigned axes)
{
    const struct dcpk_grid full = dcpk_grid_full(grid);
    const struct dcpk_coords c = *at;
    const int64_t pp = first_along(axes, DCPK_AXIS_PP, c.pp);
    int64_t dense_at = c.cp + full.cp * c.dp;

    if ((axes & (DCPK_AXIS_EP | DCPK_AXIS_EDP | DCPK_AXIS_EXPERT_SHARD)) != 0) {
        const int64_t ep = first_along(axes, DCPK_AXIS_EP, c.ep);
        int64_t edp = first_along(axes, DCPK_AXIS_EDP, c.edp);

        if ((axes & DCPK_AXIS_EXPERT_SHARD) != 0)
            edp -= c.expert_shard;
        return rank_at(&full, expert_radix(&full), c.etp, ep + full.ep * edp, pp);
    }
    if ((axes & DCPK_AXIS_CP) != 0)
        dense_at -= c.cp;
    if ((axes & DCPK_AXIS_DP) != 0)
        dense_at -= full.cp * c.dp;
    if ((axes & DCPK_AXIS_SHARD) != 0)
        dense_at -= c.shard;
    if ((axes & DCPK_AXIS_INSTANCE) != 0)
        dense_at -= instance_ranks(&full) * c.instance;
    return rank_at(&full, dense_radix(&full), first_along(axes, DCPK_AXIS_TP, c.tp), dense_at, pp);
}

int64_t dcpk_grid_stage_rank(const struct dcpk_grid *grid, int64_t pp)
{
    const struct dcpk_grid full = dcpk_grid_full(grid);

    return rank_at(&full, dense_radix(&full), 0, 0, pp);
}

/* ---- layers ---- */

/* Layers of a stage of a full grid, with what counts as one; -1: they are not whole. */
static int64_t stage_layers(const struct dcpk_grid *full, int64_t n_layers, unsigned flags,
                            int64_t stage)
{
    const int64_t n_others = full->pp - (full->first > 0) - (full->last > 0);
    const int64_t n_counted =
        ((flags & DCPK_COUNTS_EMBEDDING) != 0) + (int64_t)((flags & DCPK_COUNTS_LOSS) != 0);
    const int64_t rest = n_layers + n_counted - full->first - full->last;

    if (stage == 0 && full->first > 0)
        return full->first;
    if (stage == full->pp - 1 && full->last > 0)
        return full->last;
    if (rest < 0 || rest % n_others != 0)
        return -1;
    return rest / n_others;
}

int64_t dcpk_grid_chunk_layers(const struct dcpk_grid *grid, int64_t n_layers, unsigned flags,
                               int64_t chunk)
{
    const struct dcpk_grid full = dcpk_grid_full(grid);
    const int64_t n_chunks = full.pp * full.vpp;
    int64_t n = stage_layers(&full, n_layers, flags, chunk % full.pp) / full.vpp;

    n -= (flags & DCPK_COUNTS_EMBEDDING) != 0 && chunk == 0;
    n -= (flags & DCPK_COUNTS_LOSS) != 0 && chunk == n_chunks - 1;
    return n;
}

int64_t dcpk_grid_layer_chunk(const struct dcpk_grid *grid, int64_t n_layers, int64_t layer,
                              int64_t *first)
{
    int64_t chunk = 0, n;

    assert(layer >= 0 && layer < n_layers);
    *first = 0;
    while (n = dcpk_grid_chunk_layers(grid, n_layers, 0, chunk), *first + n <= layer) {
        *first += n;
        chunk++;
    }
    return chunk;
}

int64_t dcpk_grid_stage(const struct dcpk_grid *grid, int64_t n_layers, int64_t layer)
{
    int64_t first;

    return dcpk_grid_layer_chunk(grid, n_layers, layer, &first) % dcpk_max_i64(grid->pp, 1);
}

/* The ends have their layers: checks that the stages between have some, too, and all of the
 * rest. */
static dcpk_status check_ends(const struct dcpk_grid *full, int64_t n_layers,
                              struct dcpk_error *err)
{
    const int64_t n_others = full->pp - (full->first > 0) - (full->last > 0);
    const int64_t rest = n_layers - full->first - full->last;
    const bool fits = n_others == 0 ? rest == 0 : rest > 0 && rest % n_others == 0;

    if (!fits)
        return dcpk_fail(err, DCPK_EMISMATCH,
                         "first=%" PRId64 " and last=%" PRId64 " leave %" PRId64
                         " of the model's %" PRId64 " layers for %" PRId64 " stages",
                         full->first, full->last, rest, n_layers, n_others);
    /* get_transformer_layer_offset of core 0.14 to main divides by 0 there. */
    if (full->vpp > 1 && n_others == 0)
        return dcpk_fail(err, DCPK_EMISMATCH,
                         "first=%" PRId64 " and last=%" PRId64 " leave no stage between them: "
                         "Megatron does not cut the layers of such a pipeline into vpp=%" PRId64
                         " chunks",
                         full->first, full->last, full->vpp);
    return DCPK_OK;
}

/* Checks that the layers of every stage are divided evenly over its chunks. */
static dcpk_status check_chunks(const struct dcpk_grid *full, int64_t n_layers, unsigned flags,
                                struct dcpk_error *err)
{
    for (int64_t stage = 0; stage < full->pp && full->vpp > 1; stage++) {
        const int64_t n = stage_layers(full, n_layers, flags, stage);

        if (n % full->vpp != 0)
            return dcpk_fail(err, DCPK_EMISMATCH,
                             "vpp=%" PRId64 " does not divide the %" PRId64
                             " layers of a stage; without vpp the chunks are the same, and load",
                             full->vpp, n);
    }
    return DCPK_OK;
}

dcpk_status dcpk_grid_check_stages(const struct dcpk_grid *grid, int64_t n_layers, unsigned flags,
                                   struct dcpk_error *err)
{
    const struct dcpk_grid full = dcpk_grid_full(grid);
    const bool is_uneven = full.first > 0 || full.last > 0;

    if (full.pp == 1 && (is_uneven || full.vpp > 1))
        return dcpk_fail(err, DCPK_EMISMATCH,
                         "first, last and vpp cut a pipeline, but pp is 1: leave them out");
    if (!is_uneven && stage_layers(&full, n_layers, flags, 0) < 0)
        return dcpk_fail(
            err, DCPK_EMISMATCH,
            "pp=%" PRId64 " does not divide the %" PRId64
            " layers: give first and last, the layers of the stages at the ends, or "
            "leave pp out: no chunk depends on it, and every pipeline loads the result",
            full.pp, n_layers);
    if ((is_uneven && check_ends(&full, n_layers, err)) ||
        check_chunks(&full, n_layers, flags, err))
        return err->status;
    return DCPK_OK;
}

/* ---- divisibility ---- */

static dcpk_status check_divides(const char *what, int64_t n, const char *by, int64_t size,
                                 struct dcpk_error *err)
{
    if (size <= 1 || n % size == 0)
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EMISMATCH, "%s=%" PRId64 " does not divide the %" PRId64 " %s", by,
                     size, n, what);
}

/* Checks that n_ranks of a stage hold experts in equal parts. */
static dcpk_status check_expert_ranks(const struct dcpk_grid *full, int64_t n_ranks,
                                      dcpk_status code, struct dcpk_error *err)
{
    if (n_ranks % (full->etp * full->ep) == 0)
        return DCPK_OK;
    return dcpk_fail(err, code,
                     "etp=%" PRId64 " times ep=%" PRId64 " does not divide the %" PRId64
                     " ranks of %sa pipeline stage",
                     full->etp, full->ep, n_ranks, full->instances > 1 ? "an instance in " : "");
}

static dcpk_status check_experts(const struct dcpk_grid *grid, int64_t n_experts,
                                 struct dcpk_error *err)
{
    const struct dcpk_grid full = dcpk_grid_full(grid);

    if (n_experts == 0 && grid->ep > 1)
        return dcpk_fail(err, DCPK_EMISMATCH,
                         "ep=%" PRId64 " is given, but the model has no experts", grid->ep);
    if (n_experts == 0 && grid->etp > 1)
        return dcpk_fail(err, DCPK_EMISMATCH,
                         "etp=%" PRId64 " is given, but the model has no experts", grid->etp);
    if (check_divides("experts", n_experts, "ep", grid->ep, err))
        return err->status;
    if (n_experts == 0 || grid->dp == 0)
        return DCPK_OK;
    return check_expert_ranks(&full, stage_ranks(&full) / full.instances, DCPK_EMISMATCH, err);
}

dcpk_status dcpk_grid_check_model(const struct dcpk_grid *grid, const struct dcpk_grid_model *model,
                                  struct dcpk_error *err)
{
    if (check_divides("attention heads", model->heads, "tp", grid->tp, err))
        return err->status;
    if (model->groups > grid->tp && /* fewer groups than ranks are cut by rows */
        check_divides("query groups", model->groups, "tp", grid->tp, err))
        return err->status;
    if (model->layers > 0 && dcpk_grid_check_stages(grid, model->layers, 0, err))
        return err->status;
    return check_experts(grid, model->experts, err);
}

dcpk_status dcpk_grid_check_ranks(const struct dcpk_grid *grid, int64_t n_ranks,
                                  struct dcpk_error *err)
{
    const struct dcpk_grid g = dcpk_grid_full(grid);

    if (dcpk_grid_ranks(grid) != n_ranks)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "tp=%" PRId64 " x cp=%" PRId64 " x dp=%" PRId64 " x pp=%" PRId64
                         " are not the %" PRId64 " ranks of the job",
                         g.tp, g.cp, g.dp, g.pp, n_ranks);
    if (g.is_tp_pp_dp && g.pp > 1 && expert_radix(&g).outer != g.dp)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "with the rank order tp-cp-ep-pp-dp, experts need as many data-parallel "
                         "ranks as the rest: %" PRId64 " are not dp=%" PRId64,
                         expert_radix(&g).outer, g.dp);
    if (g.cp * g.dp % g.instances != 0)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "%" PRId64
                         " instances of the distributed optimizer do not divide cp x dp, %" PRId64
                         " ranks",
                         g.instances, g.cp * g.dp);
    return check_expert_ranks(&g, stage_ranks(&g) / g.instances, DCPK_EUSAGE, err);
}
