/* SPDX-License-Identifier: Apache-2.0 */
/* run_mesh.c - a group has the number of its first rank: ranks that compute the same number are in
 * the same group. */
#include "lib/train/run_mesh.h"

#include <inttypes.h>

/* The formulas of run_mesh.h. `at` numbers the ranks of one tensor-parallel place and stage:
 * at = cp + C * dp, of experts at = ep + E * xdp. */
static int64_t mesh_rank(const struct dcpk_train_layout *l, int64_t tp, int64_t at, int64_t pp)
{
    if (l->is_tp_pp_dp)
        return tp + l->tp * (at % l->cp + l->cp * (pp + l->pp * (at / l->cp)));
    return tp + l->tp * (at + l->cp * l->dp * pp);
}

static int64_t mesh_expert_rank(const struct dcpk_train_layout *l, int64_t tp, int64_t at,
                                int64_t pp)
{
    if (l->is_tp_pp_dp)
        return tp + l->tp * (at % l->ep + l->ep * (pp + l->pp * (at / l->ep)));
    return tp + l->tp * (at + l->cp * l->dp * pp);
}

static void mesh_find(const struct dcpk_train_layout *l, int64_t rank, struct dcpk_train_mesh *m)
{
    const int64_t rest = rank / l->tp;
    const int64_t x = l->cp * l->dp / l->ep;

    m->rank = rank;
    m->tp = rank % l->tp;
    m->cp = rest % l->cp;
    m->ep = rest % l->ep;
    m->n_expert_dp = x;
    if (l->is_tp_pp_dp) {
        m->pp = rest / l->cp % l->pp;
        m->dp = rest / l->cp / l->pp;
        m->expert_dp = rest / l->ep / l->pp;
    } else {
        m->pp = rest / l->cp / l->dp;
        m->dp = rest / l->cp % l->dp;
        m->expert_dp = rest / l->ep % x;
    }
}

/* The first rank of this rank's group of a kind. */
static int64_t mesh_first(const struct dcpk_train_layout *l, const struct dcpk_train_mesh *m,
                          enum dcpk_train_group group)
{
    const int64_t n_inner = l->cp * l->dp / l->instances;
    const int64_t at = m->cp + l->cp * m->dp, expert_at = m->ep + l->ep * m->expert_dp;
    const bool has_embedding = m->pp == 0 || m->pp == l->pp - 1;

    switch (group) {
    case DCPK_G_TP:
        return mesh_rank(l, 0, at, m->pp);
    case DCPK_G_CP:
        return mesh_rank(l, m->tp, l->cp * m->dp, m->pp);
    case DCPK_G_PP:
        return mesh_rank(l, m->tp, at, 0);
    case DCPK_G_DP:
        return mesh_rank(l, m->tp, m->cp, m->pp);
    case DCPK_G_DP_CP:
        return mesh_rank(l, m->tp, 0, m->pp);
    case DCPK_G_INNER:
    case DCPK_G_GATHER:
        return mesh_rank(l, m->tp, at / n_inner * n_inner, m->pp);
    case DCPK_G_OUTER:
        return mesh_rank(l, m->tp, at % n_inner, m->pp);
    case DCPK_G_EP:
        return mesh_expert_rank(l, m->tp, expert_at - m->ep, m->pp);
    case DCPK_G_EXPERT_DP:
    case DCPK_G_EXPERT_GATHER:
        return mesh_expert_rank(l, m->tp, m->ep, m->pp);
    case DCPK_G_EMBEDDING:
        if (has_embedding)
            return mesh_rank(l, m->tp, at, 0);
        return m->rank;
    case DCPK_G_MODEL:
        return mesh_rank(l, 0, at, 0);
    case DCPK_G_WORLD:
    case DCPK_N_GROUPS:
        break;
    }
    return 0;
}

static dcpk_status mesh_check(const struct dcpk_train_layout *l, int64_t n_ranks,
                              struct dcpk_error *err)
{
    if (l->tp * l->cp * l->dp * l->pp != n_ranks)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "tp=%" PRId64 " x cp=%" PRId64 " x dp=%" PRId64 " x pp=%" PRId64
                         " are not the %" PRId64 " ranks of the job",
                         l->tp, l->cp, l->dp, l->pp, n_ranks);
    if (l->cp * l->dp % l->ep != 0)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "ep=%" PRId64 " does not divide cp x dp, %" PRId64 " ranks", l->ep,
                         l->cp * l->dp);
    /* Source: megatron/core/parallel_state.py @core_v0.19.0, initialize_model_parallel. */
    if (l->is_tp_pp_dp && l->pp > 1 && l->ep != l->cp)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "with the rank order tp-cp-ep-pp-dp, experts need as many data-parallel "
                         "ranks as the rest: ep=%" PRId64 " is not cp=%" PRId64,
                         l->ep, l->cp);
    if (l->cp * l->dp % l->instances != 0)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "%" PRId64
                         " instances of the distributed optimizer do not divide cp x dp, %" PRId64
                         " ranks",
                         l->instances, l->cp * l->dp);
    return DCPK_OK;
}

dcpk_status dcpk_train_mesh_init(const struct dcpk_train_layout *layout, struct dcpk_group *world,
                                 struct dcpk_train_mesh *mesh, struct dcpk_error *err)
{
    *mesh = (struct dcpk_train_mesh){.rank = world->rank, .n_ranks = world->n_ranks};
    if (mesh_check(layout, world->n_ranks, err))
        return err->status;
    mesh_find(layout, world->rank, mesh);
    mesh->group[DCPK_G_WORLD] = world;
    for (int g = DCPK_G_WORLD + 1; g < DCPK_N_GROUPS; g++) {
        const int64_t first = mesh_first(layout, mesh, (enum dcpk_train_group)g);

        if (world->by->split(world, (int)first, &mesh->group[g], err))
            return err->status;
    }
    return DCPK_OK;
}

dcpk_status dcpk_train_mesh_plan(const struct dcpk_train_layout *layout, int64_t rank,
                                 struct dcpk_group groups[DCPK_N_GROUPS],
                                 struct dcpk_train_mesh *mesh, struct dcpk_error *err)
{
    const int64_t n_ranks = layout->tp * layout->cp * layout->dp * layout->pp;

    *mesh = (struct dcpk_train_mesh){.n_ranks = n_ranks};
    if (mesh_check(layout, n_ranks, err))
        return err->status;
    mesh_find(layout, rank, mesh);
    for (int g = 0; g < DCPK_N_GROUPS; g++) {
        const enum dcpk_train_group group = (enum dcpk_train_group)g;
        const int64_t first = mesh_first(layout, mesh, group);

        groups[g] = (struct dcpk_group){.rank = 0};
        mesh->group[g] = &groups[g];
        for (int64_t r = 0; r < n_ranks; r++) {
            struct dcpk_train_mesh other;

            mesh_find(layout, r, &other);
            if (mesh_first(layout, &other, group) != first)
                continue;
            groups[g].n_ranks++;
            groups[g].rank += r < rank;
        }
    }
    return DCPK_OK;
}

int64_t dcpk_train_mesh_stage(const struct dcpk_train_layout *layout, int64_t pp)
{
    return mesh_rank(layout, 0, 0, pp);
}

void dcpk_train_mesh_release(struct dcpk_train_mesh *mesh)
{
    for (int g = DCPK_G_WORLD + 1; g < DCPK_N_GROUPS; g++)
        if (mesh->group[g] != NULL)
            mesh->group[g]->by->free(mesh->group[g]);
    *mesh = (struct dcpk_train_mesh){0};
}
